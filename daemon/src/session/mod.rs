//! Sessions: the actor that owns one, the turn that is its child, the log that both write and clients read.

pub mod actor;
pub mod attention;
pub mod budget;
mod call_checkpoints;
mod call_hooks;
pub mod calls;
pub mod changes;
pub mod circles;
pub mod compaction;
pub mod context;
pub mod delegate;
pub mod env;
pub mod feed;
pub mod hooks;
pub mod library;
pub mod line;
pub mod names;
pub mod preview;
pub mod queued_bytes;
pub mod recovery;
pub mod search;
pub mod state;
pub mod subscription;
#[cfg(test)]
mod tests;
pub mod title;
pub mod turn;
pub mod until;

use linger_protocol::event::EventBody;
use linger_protocol::id::TurnId;

use crate::store::blob::Held;

/// An event without its seq, time, and the ids of its message and calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Its turn.
    pub turn: Option<TurnId>,
    /// The content.
    pub body: EventBody,
    /// Its blobs, held until it is written.
    pub blobs: Vec<Held>,
}

impl Draft {
    /// An event without a turn; the actor sets the turn of a turn's events.
    pub fn new(body: EventBody) -> Self {
        Self { turn: None, body, blobs: Vec::new() }
    }

    /// An event of a turn.
    pub fn of_turn(turn: &TurnId, body: EventBody) -> Self {
        Self { turn: Some(turn.clone()), ..Self::new(body) }
    }
}
