//! The pieces of an answer, which come from a completion or from a turn.

use hyper::StatusCode;
use linger_protocol::id::SessionId;
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::face::gateway::reply::Failure;

/// How many pieces may wait until they are written.
pub(super) const WAITING: usize = 16;

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum AnswerPiece {
    /// Text of a message.
    Text(String),
    /// Thinking of a message.
    Thinking(String),
    /// A message of the model's is whole; this is its text. Only from a session.
    Message(String),
    /// An event of the session, as it came.
    Event(Box<RawValue>),
    /// An event of the provider, as it came, for an answer that is native: the text of a JSON object.
    Native(String),
    /// The end, which comes last.
    Finished(Finished),
    /// There is no more; comes last.
    Failed(Failure),
}

/// The end of an answer.
#[derive(Debug)]
pub(super) struct Finished {
    /// The last message of the model.
    pub(super) content: Vec<ContentBlock>,
    /// The answer that fits the schema, if there was one.
    pub(super) answer: Option<Value>,
    pub(super) reason: StopReason,
    pub(super) usage: Usage,
}

/// An answer that is under way.
pub(super) struct AnswerStream {
    pub(super) pieces: mpsc::Receiver<AnswerPiece>,
    /// The model that answers, or the name that was asked for.
    pub(super) model: String,
    pub(super) session: Option<SessionId>,
    /// The parts of the request that have no effect.
    pub(super) ignored: Vec<String>,
    /// Whether the provider's own events are the answer: all others but the end are absent.
    pub(super) is_native: bool,
}

/// The failure of a connection to the daemon that is gone.
pub(super) fn lost() -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "lost", "the connection to the daemon was lost").hint("ask again")
}
