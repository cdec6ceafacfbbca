//! Sessions: the actor that owns one, the turn that is its child, the log that both write and clients read.

pub mod actor;
pub mod calls;
pub mod compaction;
pub mod context;
pub mod env;
pub mod names;
pub mod recovery;
pub mod state;
pub mod subscription;
#[cfg(test)]
mod tests;
pub mod turn;
pub mod waiting;

use linger_protocol::event::EventBody;
use linger_protocol::id::TurnId;

use crate::store::blob::Held;

/// An event before it has its number, its time, and the names of the message and calls in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The turn that it is a part of.
    pub turn: Option<TurnId>,
    /// What happened.
    pub body: EventBody,
    /// The blobs that it names, held until it is written.
    pub blobs: Vec<Held>,
}

impl Draft {
    /// An event outside any turn; the actor puts those of a turn into theirs.
    pub fn new(body: EventBody) -> Self {
        Self { turn: None, body, blobs: Vec::new() }
    }

    /// An event of a turn.
    pub fn of_turn(turn: &TurnId, body: EventBody) -> Self {
        Self { turn: Some(turn.clone()), ..Self::new(body) }
    }
}
