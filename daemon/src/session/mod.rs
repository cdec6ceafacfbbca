//! Sessions: the actor that owns one, the turn that is its child, the log that both write and clients read.
//!
//! The rooms, from the top down; each imports only those below it:
//!
//! | room | owns |
//! |---|---|
//! | `actor` | the task that owns a session: its mailbox, its state, and the order of what happens |
//! | `turn` | the agent loop, and the request for a title |
//! | `calls` | running a call: its permission, hooks, checkpoints and result |
//! | `delegate` | the children of a session |
//! | `reading` | the log as others see it: subscriptions, feeds, search, the conversation backwards, changed files |
//! | `env` | the services of all sessions, and what they keep in memory |
//! | `messages` | what an actor is told, by clients and by its turn |
//! | `context` | from the log to the messages of a model; compaction |
//! | `state` | the fold over a log, a family of fields each, and how a turn whose task is gone continues |

pub mod actor;
pub mod calls;
pub mod context;
pub mod delegate;
pub mod env;
pub mod messages;
pub mod reading;
pub mod state;
#[cfg(test)]
mod tests;
pub mod turn;

use linger_protocol::event::EventBody;
use linger_protocol::id::TurnId;

use crate::store::blob::Held;

/// An event without its seq, time, and the ids of its message and calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The turn that it belongs to; absent for an event between turns.
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
