//! Framing: bytes from the network become server-sent events or lines of JSON.
//!
//! A push parser: the reader gives it chunks, however they were cut, and it calls back for each whole event.
//! Source: the HTML standard, section "Interpreting an event stream".
//! Deliberately absent: reconnecting (nobody reconnects to a paid request; `mcp` does, with [`Framer::resume`]), and the meaning of the
//! data.

use std::borrow::Cow;
use std::time::Duration;

use memchr::memchr2;

use super::types::Framing;

/// The largest event or line: the arguments of a call that writes a large file may come in one piece.
pub const MAX_EVENT: usize = 8 << 20;

/// Some editors and proxies put this before UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The longest id of an event that is kept, in bytes: it goes into a header.
const MAX_ID: usize = 1 << 10;

/// An event was larger than [`MAX_EVENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {} MiB", MAX_EVENT >> 20)]
pub struct Oversize;

/// Cuts a response body into events.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// No line was read yet, so a byte order mark may come.
    first: bool,
    event: EventFields,
}

/// The event that is being read.
#[derive(Debug, Default)]
struct EventFields {
    name: String,
    data: String,
    /// Whether there was a `data` line; an event without one is none.
    has_data: bool,
    /// The last `id` that was read, and that of the last whole event; the pause that the stream wants.
    read_id: String,
    id: String,
    retry: Option<Duration>,
}

impl Framer {
    /// A framer at the beginning of a body.
    pub fn new(framing: Framing) -> Self {
        Self { framing, partial: Vec::new(), after_cr: false, first: true, event: EventFields::default() }
    }

    /// Takes a chunk and gives each event that it completes to `on`: the name (empty if there is none) and the data.
    pub fn push(&mut self, mut chunk: &[u8], on: &mut impl FnMut(&str, &str)) -> Result<(), Oversize> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr2(b'\n', b'\r', chunk) {
            let (line, rest) = chunk.split_at(end);
            if self.partial.is_empty() {
                self.line(line, on)?;
            } else {
                self.keep(line)?;
                let mut whole = std::mem::take(&mut self.partial);
                self.line(&whole, on)?;
                whole.clear();
                self.partial = whole; // Its room is used again.
            }
            chunk = match rest {
                [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => rest,
                [_, rest @ ..] => {
                    self.after_cr = rest.is_empty();
                    rest
                }
                [] => rest,
            };
        }
        self.keep(chunk)
    }

    /// The body has ended. A last line of JSON counts; an event that its empty line did not end does not, as the standard says.
    pub fn finish(&mut self, on: &mut impl FnMut(&str, &str)) {
        if self.framing == Framing::NdJson && !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            // The line was within its bound when it was kept.
            let _ = self.line(&line, on);
        }
    }

    /// Where the stream can be resumed, if it says so: the id of its last event, and the pause before that.
    pub fn resume(&self) -> Option<(&str, Option<Duration>)> {
        let EventFields { id, retry, .. } = &self.event;
        (!id.is_empty()).then_some((id, *retry))
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), Oversize> {
        if self.partial.len() + piece.len() + self.event.data.len() > MAX_EVENT {
            return Err(Oversize);
        }
        self.partial.extend_from_slice(piece);
        Ok(())
    }

    fn line(&mut self, mut line: &[u8], on: &mut impl FnMut(&str, &str)) -> Result<(), Oversize> {
        if std::mem::take(&mut self.first) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if self.event.data.len() + line.len() > MAX_EVENT {
            return Err(Oversize);
        }
        match self.framing {
            Framing::Sse => self.event.line(line, on),
            Framing::NdJson if line.trim_ascii().is_empty() => {}
            Framing::NdJson => on("", &text(line)),
        }
        Ok(())
    }
}

impl EventFields {
    fn line(&mut self, line: &[u8], on: &mut impl FnMut(&str, &str)) {
        if line.is_empty() {
            if self.has_data {
                on(&self.name, &self.data);
            }
            self.id.clone_from(&self.read_id);
            self.name.clear();
            self.data.clear();
            self.has_data = false;
        } else if let Some(value) = field(line, b"data") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push('\n');
            }
            self.data.push_str(&text(value));
        } else if let Some(value) = field(line, b"event") {
            self.name.clear();
            self.name.push_str(&text(value));
        } else if let Some(value) = field(line, b"id").filter(|id| id.len() <= MAX_ID && !id.contains(&0)) {
            self.read_id.clear();
            self.read_id.push_str(&text(value));
        } else if let Some(value) = field(line, b"retry") {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            self.retry = text(value).parse().ok().filter(|_| is_number).map(Duration::from_millis).or(self.retry);
        }
        // What is left are comments, which begin with a colon, and unknown fields.
    }
}

/// `bytes` as text, with U+FFFD for what is none. Nearly all is good, and checking that is faster than looking for what is bad.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The value of the field `name`, if `line` is one: without the colon and one space after it.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        [] => Some(&[]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(framing: Framing, chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut framer = Framer::new(framing);
        let mut got = Vec::new();
        let mut on = |name: &str, data: &str| got.push((name.to_owned(), data.to_owned()));
        for chunk in chunks {
            framer.push(chunk, &mut on).unwrap();
        }
        framer.finish(&mut on);
        got
    }

    fn check(input: &[u8], expect: &[(&str, &str)]) {
        let expect: Vec<_> = expect.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
        assert_eq!(events(Framing::Sse, &[input]), expect);
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(events(Framing::Sse, &bytes), expect, "byte by byte");
    }

    #[test]
    fn a_stream_says_where_it_can_be_resumed() {
        let check = |input: &[u8], expect: Option<(&str, Option<u64>)>| {
            let mut framer = Framer::new(Framing::Sse);
            framer.push(input, &mut |_, _| {}).unwrap();
            let expect = expect.map(|(id, retry)| (id, retry.map(Duration::from_millis)));
            assert_eq!(framer.resume(), expect, "{}", String::from_utf8_lossy(input));
        };
        check(b"data: x\n\n", None);
        check(b"id: 7\nretry: 500\ndata:\n\n", Some(("7", Some(500))));
        check(b"id: 7\n\ndata: x\nretry: soon\n\nid: 8\n\n", Some(("8", None)));
        check(b"id: 7\n\nid: 8\ndata: cu", Some(("7", None)));
        check(b"id: 7\n\nid\n\n", None);
    }

    #[test]
    fn events_have_a_name_and_data() {
        check(b"event: ping\ndata: {}\n\ndata:x\n\n", &[("ping", "{}"), ("", "x")]);
        check(b"data: a\ndata\ndata: b\n\n", &[("", "a\n\nb")]);
        check(b"data:\n\n", &[("", "")]);
    }

    #[test]
    fn lines_end_in_lf_cr_or_both() {
        check(b"data: a\r\ndata: b\r\n\r\n", &[("", "a\nb")]);
        check(b"data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\n\r\n", &[("", "a"), ("", "b"), ("", "c"), ("", "d")]);
    }

    #[test]
    fn comments_marks_and_unknown_fields_are_skipped() {
        check(b"\xef\xbb\xbfdata: a\n\n: OPENROUTER PROCESSING\n\nid: 7\nevent: no data\n\n", &[("", "a")]);
        check(b"database: x\ndata: y\n\n", &[("", "y")]);
    }

    #[test]
    fn an_event_without_its_empty_line_is_none() {
        check(b"data: a\n\ndata: b\n", &[("", "a")]);
    }

    #[test]
    fn bad_utf8_is_replaced() {
        check(b"data: \xff\xc3\xa4\n\n", &[("", "\u{fffd}\u{e4}")]);
    }

    #[test]
    fn lines_of_json_need_no_end() {
        let got = events(Framing::NdJson, &[b"{\"a\":1}\r\n\n{\"b\":", b"2}"]);
        assert_eq!(got, [(String::new(), "{\"a\":1}".to_owned()), (String::new(), "{\"b\":2}".to_owned())]);
    }

    #[test]
    fn an_endless_event_is_an_error() {
        let chunk = vec![b'x'; 1 << 20];
        let mut framer = Framer::new(Framing::Sse);
        assert_eq!((0..9).try_for_each(|_| framer.push(&chunk, &mut |_, _| {})), Err(Oversize));
        let mut framer = Framer::new(Framing::Sse);
        let line = [b"data: ".as_slice(), &chunk, b"\n"].concat();
        assert_eq!((0..9).try_for_each(|_| framer.push(&line, &mut |_, _| {})), Err(Oversize));
    }

    proptest! {
        #[test]
        fn the_cuts_between_chunks_do_not_matter(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["data: x\r\n", "data", "event", ":", ": ", "\n", "\r", "\r\n", "ä€😀", "x", "\u{feff}", "\n\n"]), 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            lines in any::<bool>(),
        ) {
            let framing = if lines { Framing::NdJson } else { Framing::Sse };
            let input = pieces.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(framing, &chunks), events(framing, &[&input]));
        }
    }
}
