//! Bodies in place of a stream: a web page, or a whole answer at once. Told apart by the first byte, not by the content type.
//!
//! Pure. Deliberately absent: reading it, which is the driver's.

use std::sync::Arc;

use serde_json::Value;

use super::failure::{one_line, page_title};
use super::transport_error::failed;
use super::types::{Codec, Failure, FailureClass, Framing};
use super::wire::with_good_escapes;

/// The failure of a web page in the place of a stream.
pub(super) fn page(text: &str) -> Failure {
    let title = page_title(text).filter(|title| !title.is_empty());
    let title = title.map(|title| format!(", \"{}\"", one_line(title))).unwrap_or_default();
    failed(FailureClass::NotFound, format!("answered with a web page instead of a stream{title}"))
}

/// Why there is no stream where a whole answer is.
const AT_ONCE: &str = "answered all at once instead of streaming: the server, or a proxy before it, has to heed `stream`, or set `streaming = false` in \
     [providers.NAME.compat]";

/// The largest whole answer that was asked for, in bytes.
const MAX_ANSWER: usize = 32 << 20;

/// The most of a whole answer that is kept: an error that it may be is shorter.
const MAX_WHOLE: usize = 64 << 10;

/// The first bytes of a body, until it is known what it is.
pub(super) struct Opening {
    /// The wire format that is due.
    pub(super) codec: Arc<dyn Codec>,
    kind: BodyKind,
    /// The beginning of a whole answer, up to the limit.
    whole: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyKind {
    /// Nothing came but blanks, and a byte order mark.
    Unknown,
    Stream,
    Page,
    Whole,
}

impl Opening {
    pub(super) fn new(codec: Arc<dyn Codec>) -> Self {
        Self { codec, kind: BodyKind::Unknown, whole: Vec::new() }
    }

    /// Whether `chunk` is a stream's; if not, perhaps why there will be none.
    pub(super) fn take(&mut self, chunk: &[u8]) -> Result<(), Option<Failure>> {
        if self.kind == BodyKind::Unknown {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
            self.kind = match (chunk.iter().find(|byte| !blank(byte)), self.codec.framing()) {
                (None, _) => BodyKind::Unknown,
                (Some(b'<'), _) => BodyKind::Page,
                // No field of an event begins so, and lines of JSON all do.
                (Some(b'{' | b'['), Framing::Sse) => BodyKind::Whole,
                (Some(_), _) => BodyKind::Stream,
            };
        }
        match self.kind {
            BodyKind::Unknown | BodyKind::Stream => Ok(()),
            BodyKind::Page => Err(Some(page(&String::from_utf8_lossy(chunk)))),
            BodyKind::Whole => {
                let most = if self.codec.is_unstreamed() { MAX_ANSWER } else { MAX_WHOLE };
                let room = most - self.whole.len();
                self.whole.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
                Err((self.whole.len() == most).then(at_once))
            }
        }
    }

    /// A whole answer that was asked for, as the data of one event.
    pub(super) fn whole_answer(&self) -> Option<String> {
        if self.kind != BodyKind::Whole || !self.codec.is_unstreamed() {
            return None;
        }
        let answer: Value = serde_json::from_str(&with_good_escapes(&String::from_utf8_lossy(&self.whole))).ok()?;
        let is_error = Failure::in_event("", &answer.to_string()).is_some();
        (!is_error).then(|| self.codec.as_event(answer).to_string())
    }

    /// The failure of a body that was no stream, now that no more comes; `reason` is why it was cut, if it was.
    pub(super) fn end(&self, reason: Option<&Failure>) -> Option<Failure> {
        if self.kind != BodyKind::Whole {
            return None;
        }
        let whole = String::from_utf8_lossy(&self.whole);
        let whole = with_good_escapes(&whole);
        match (reason, serde_json::from_str::<serde::de::IgnoredAny>(&whole)) {
            (_, Ok(_)) => {
                let failure = Failure::in_event("", &whole);
                Some(failure.map_or_else(at_once, |failure| self.said(failure)))
            }
            (Some(reason), Err(_)) => Some(reason.clone()),
            (None, Err(_)) => Some(self.said(failed(FailureClass::Stream, ""))),
        }
    }

    /// An error that came as if all were well.
    fn said(&self, failure: Failure) -> Failure {
        let said = self.codec.failure(200, &self.whole).message;
        Failure { message: format!("answered without streaming: {said}"), ..failure }
    }
}

/// An answer that somebody has held back until it was whole: it would come so again, and be paid for again.
fn at_once() -> Failure {
    failed(FailureClass::Rejected, AT_ONCE)
}
