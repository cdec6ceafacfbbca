//! The options of a request: its headers and its query.

use std::path::PathBuf;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use linger_protocol::id::SessionId;

use super::piece::AnswerStream;
use crate::face::gateway::client::{Client, Query};
use crate::face::gateway::reply::{Failure, Reply};

/// The session of a request, and of its answer.
const SESSION: HeaderName = HeaderName::from_static("x-linger-session");

/// The directory of the session that a request makes, where the token names none.
const DIRECTORY: HeaderName = HeaderName::from_static("x-linger-directory");

/// The parts of a request that have no effect.
const WARNING: HeaderName = HeaderName::from_static("x-linger-warning");

/// The longest warning, in characters: clients bound the size of all headers together.
const MAX_WARNING: usize = 1_000;

/// The options of a request, apart from its body.
pub(super) struct RequestOptions {
    pub(super) session: Option<SessionId>,
    pub(super) directory: Option<PathBuf>,
    /// Whether all of linger's events are wanted in the stream.
    pub(super) has_events: bool,
}

impl RequestOptions {
    /// The options of a request.
    pub(super) fn read(headers: &HeaderMap, query: &Query) -> Self {
        let text =
            |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
        Self {
            session: text(&SESSION).map(SessionId::from),
            directory: text(&DIRECTORY).map(PathBuf::from),
            has_events: query.get("events") == Some("all"),
        }
    }

    /// The directory of a new session: the header's, or the token's.
    pub(super) fn directory(&self, client: &Client) -> Option<PathBuf> {
        let granted =
            || client.wire.welcome.pointer("/grant/directory")?.as_str().map(linger_protocol::path::from_text);
        self.directory.clone().or_else(granted)
    }

    /// [`Self::directory`], or a failure that says how to name one.
    pub(super) fn required_directory(&self, client: &Client) -> Result<PathBuf, Failure> {
        let none = || {
            Failure::bad_request("no directory is known for the session")
                .hint("mint a token with `--dir`, or send the header X-Linger-Directory")
        };
        self.directory(client).ok_or_else(none)
    }
}

/// The headers of an answer that are linger's.
pub(super) struct AnswerHeaders {
    session: Option<SessionId>,
    warning: Option<String>,
}

impl AnswerHeaders {
    /// The session of an answer, and the parts of the request that have no effect.
    pub(super) fn of(running: &AnswerStream) -> Self {
        let ignored = &running.ignored;
        let warning = (!ignored.is_empty()).then(|| format!("not passed on: {}", ignored.join(", ")));
        Self { session: running.session.clone(), warning }
    }

    /// Adds them to a reply.
    pub(super) fn add(&self, mut reply: Reply) -> Reply {
        let session = self.session.as_ref().and_then(|session| HeaderValue::from_str(session.as_str()).ok());
        let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
        let warning = self.warning.iter().map(|text| text.chars().map(plain).take(MAX_WARNING).collect::<String>());
        let warning = warning.filter_map(|text| HeaderValue::from_str(&text).ok()).next();
        for (name, value) in [(SESSION, session), (WARNING, warning)] {
            if let Some(value) = value {
                reply.headers_mut().insert(name, value);
            }
        }
        reply
    }
}
