//! The options of a request: its headers and its query.

use std::path::PathBuf;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use linger_protocol::id::SessionId;

use crate::face::gateway::client::{Client, Query};
use crate::face::gateway::reply::{Failure, Reply};

/// The session of a request, and of its answer.
const SESSION: HeaderName = HeaderName::from_static("x-linger-session");

/// The directory of the session that a request makes, where the token names none.
const DIRECTORY: HeaderName = HeaderName::from_static("x-linger-directory");

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
        let granted = || client.wire.welcome.pointer("/grant/directory")?.as_str().map(PathBuf::from);
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

/// Names the session of an answer.
pub(super) fn with_session(mut reply: Reply, session: Option<&SessionId>) -> Reply {
    if let Some(value) = session.and_then(|session| HeaderValue::from_str(session.as_str()).ok()) {
        reply.headers_mut().insert(SESSION, value);
    }
    reply
}
