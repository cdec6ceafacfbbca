//! Jobs of the writing thread: changes to one session, and to tables of no session.

use std::sync::Arc;

use linger_protocol::id::{QuestionId, TurnId};
use linger_protocol::message::Usage;
use linger_protocol::question::PendingQuestion;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::blob::Held;
use super::error::StoreError;
use super::idempotency::Outcome;
use crate::log::{Log, Piece, Stored};

/// Gets the result of a write.
pub type Done = oneshot::Sender<Result<(), StoreError>>;

/// Changes to one session, all or nothing.
pub struct Append {
    /// The session's log, which shows the events and pieces once they are committed.
    pub log: Arc<Log>,
    /// Events, with the next numbers in order.
    pub events: Vec<Arc<Stored>>,
    /// The turn that `pieces` belong to.
    pub turn: Option<TurnId>,
    /// Text for the scratch rows of open streams.
    pub pieces: Vec<Piece>,
    /// Changes to the other tables.
    pub folds: Vec<Fold>,
    /// Whether it must be on disk before `done` gets its result.
    pub sync: bool,
    /// Gets the result, if anything waits for it.
    pub done: Option<Done>,
}

/// The row of a family of a session's state: its name and its text; without one the row is deleted.
pub type StateRow = (&'static str, Option<String>);

/// A change to a table that is folded from the log.
pub enum Fold {
    /// The session's state.
    Session {
        /// Unique among sessions.
        name: Option<String>,
        /// Its working directory.
        cwd: String,
        /// Such as `running`; a start resumes sessions by it.
        state: &'static str,
        /// When it last changed.
        updated_at: u64,
        /// The part of the state that each append writes, in JSON, with the checksum of the whole.
        head: String,
        /// The rows of the families that have changed.
        rows: Vec<StateRow>,
        /// The session that started it; written with the first event.
        parent: Option<String>,
    },
    /// The session begins with the events of another one, up to this number; written once, with its own first event.
    Shared(String, u64),
    /// The variables of the session's tools; written once, with the first event.
    Environment(String),
    /// A question was asked.
    Asked(Box<PendingQuestion>),
    /// A question has its answer, or was withdrawn.
    Answered {
        /// The open question that is now closed.
        question: QuestionId,
        /// The name of the chosen option; absent if it was withdrawn.
        answer: Option<String>,
        /// The client that answered, or why it was withdrawn.
        by: String,
        /// When, in Unix milliseconds.
        at: u64,
    },
    /// The session uses a blob.
    Blob(Held),
    /// The session uses a blob with the content of a file, which the event of this seq names.
    Content(Held, u64),
    /// The session gives up the contents that no event after this seq names.
    GiveUp(u64),
    /// Answers cost something.
    Spent(Spent),
    /// The outcome of a keyed request.
    Outcome(Outcome),
    /// An event or a part of the state cannot be encoded, for this reason: nothing of the append is written.
    Unencodable(String),
}

/// The usage of answers of one day and one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    /// The day, in days since 1970, as UTC has it.
    pub day: u64,
    /// `provider/model`.
    pub model: String,
    /// How many answers.
    pub answers: u64,
    /// The sum of their usage.
    pub usage: Usage,
}

/// A change to rows that belong to no session.
pub(super) type Change = Box<dyn FnOnce(&Connection) -> rusqlite::Result<()> + Send>;

/// A job of the writing thread.
pub(super) enum Write {
    Append(Box<Append>),
    Remove(Arc<Log>, Vec<Outcome>, Done),
    Outcome(Outcome, Done),
    /// A change to a table of no session; whether it must be on disk before it is answered.
    Change(Change, bool, Done),
    Close(Done),
}
