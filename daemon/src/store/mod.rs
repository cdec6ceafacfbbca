//! The store: SQLite on threads of its own.
//!
//! One thread writes: it commits the queue ([`queue`]) in one transaction and never waits to collect more, so that one commit
//! costs microseconds and many at once share it. An [`Append`] that precedes a side effect or was acknowledged to a user is
//! *synced*: it is on disk before its result is sent; the others survive a kill of the process.
//! One thread reads ([`reader`]), on a connection of its own; a third moves the WAL into the database beside the commits
//! ([`checkpoint`]). All end when the last [`Store`] is dropped, after the queue is written. [`Store::close`] waits for that.
//! The rows of a removed session are deleted while the thread is idle ([`upkeep`]).
//! Deliberately absent: any knowledge of what an event means.

mod ahead;
pub mod artifact;
pub mod aside;
pub mod blob;
mod checkpoint;
pub mod damage;
pub(crate) mod event_row;
pub mod feed;
pub mod files;
pub mod idempotency;
mod intact;
pub(crate) mod migrate;
pub mod open;
pub(crate) mod parts;
mod queue;
pub(crate) mod read;
mod reader;
#[cfg(test)]
pub(crate) mod rng;
pub mod scope;
pub mod token;
mod upkeep;
pub(crate) mod usage;
pub mod words;
pub(crate) mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::{BlobId, QuestionId, SessionId, TurnId};
use linger_protocol::message::Usage;
use linger_protocol::question::PendingQuestion;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

pub use event_row::sum as event_sum;
pub use migrate::SCHEMA;
pub use parts::MAX_PARTS;
pub use read::{Answered, BINNED, FOLD, LARGE, MIN_PREFIX, PENDING, Page, SessionRow, Untouched, Wanted};

use intact::Intact;

use crate::fault;
use crate::log::{Log, Piece, Stored};
use crate::store::blob::{Blobs, Held};
use crate::store::idempotency::Outcome;
use damage::{Found, is_damage};
use queue::Queue;
use reader::{Lane, Query};

/// The database's `auto_vacuum`: free pages are given back when they are asked for, and move nothing otherwise.
pub(crate) const INCREMENTAL: i64 = 2;

/// The error of a query or a write; shared by the writes queued behind it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("storage failed: {0}")]
pub struct StoreError(pub Reason);

/// The reason of an error.
#[derive(Clone, Debug)]
pub struct Reason {
    text: Arc<str>,
    damage: bool,
    /// A constraint of the database forbids it.
    clash: bool,
}

impl StoreError {
    /// The error of stored data that is not what was written.
    pub fn damage(text: impl Into<Arc<str>>) -> Self {
        Self(Reason { text: text.into(), damage: true, clash: false })
    }

    /// Whether stored data is not what was written, so that a retry is useless.
    pub fn is_damage(&self) -> bool {
        self.0.damage
    }

    /// Whether a constraint of the database forbids it, so that a retry is useless.
    pub fn is_clash(&self) -> bool {
        self.0.clash
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self { text: text.into(), damage: false, clash: false }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text: text.into(), damage: false, clash: false }
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        if error.is_damage() {
            let hint = "`linger doctor` reports damage, `linger doctor --repair` saves what can be read";
            return Self::new(Code::Damaged, format!("stored data is damaged: {}", error.0)).hint(hint);
        }
        Self::new(Code::Storage, error.to_string()).hint("check whether the disk is full; `linger doctor` reports more")
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string().into())
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let damage = is_damage(&error);
        let clash = error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation);
        let text = match error {
            // The conversion's own error is the reason.
            rusqlite::Error::FromSqlConversionFailure(_, _, error) => error.to_string(),
            error => error.to_string(),
        };
        Self(Reason { text: text.into(), damage, clash })
    }
}

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
        /// The question.
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
type Change = Box<dyn FnOnce(&Connection) -> rusqlite::Result<()> + Send>;

enum Write {
    Append(Box<Append>),
    Remove(Arc<Log>, Vec<Outcome>, Done),
    Outcome(Outcome, Done),
    /// A change to a table of no session; whether it must be on disk before it is answered.
    Change(Change, bool, Done),
    Close(Done),
}

/// The threads; cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// The damage that was found.
    pub found: Found,
    /// The database's own path, without links.
    pub path: Arc<Path>,
    writer: Queue,
    reader: mpsc::Sender<(Lane, Query)>,
    /// Content that is too large for a row.
    pub blobs: Blobs,
    intact: Arc<Intact>,
    /// The tokens, as they were when the database was opened.
    pub tokens: Arc<[token::TokenRow]>,
    /// Wakes the readers of all sessions after each commit with events.
    grown: watch::Sender<()>,
}

impl Store {
    /// Opens or creates the database at `path`, mode 0600. An unusable one is set aside.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let found = Found::default();
        let path = open::own_path(path);
        let path = path.as_path();
        let (mut write, read) = open::open(path)?;
        let tokens = token::all(&read).unwrap_or_else(|error| {
            tracing::error!(target: "store", %error, "the tokens cannot be read: none is valid");
            Vec::new()
        });
        found.set_aside(aside::list(path));
        let ahead = ahead::Ahead::new(path, checkpoint::beside(&mut write, path, &found)?);
        let fixed = write.is_readonly(rusqlite::MAIN_DB)?;
        let (blobs, intact) = (Blobs::of(path), Arc::new(Intact::of(path, fixed)));
        let (writer, writes) = Queue::new();
        let (reader, queries) = mpsc::channel();
        let grown = watch::Sender::new(());
        std::thread::Builder::new().name("store-write".to_owned()).spawn({
            let found = found.clone();
            let upkeep = upkeep::Upkeep::new(path, blobs.clone(), found.clone());
            let (intact, grown) = (intact.clone(), grown.clone());
            move || write::run(&write, &writes, upkeep, ahead, (&found, &grown), intact)
        })?;
        std::thread::Builder::new().name("store-read".to_owned()).spawn(move || reader::run(&read, &queries))?;
        Ok(Self { found, path: path.into(), writer, reader, blobs, intact, tokens: tokens.into(), grown })
    }

    /// Why nothing can be written, if the database's files were moved or replaced. Reads the directory.
    pub fn astray(&self) -> Option<String> {
        self.intact.look().err().map(|error| error.0.to_string())
    }

    /// Waits until a database that was opened read-only can be written; it must then be opened again.
    pub async fn writable(&self) {
        self.intact.writable().await;
    }

    /// Queues an append; its result and its events follow the commit.
    pub fn append(&self, append: Append) {
        self.writer.send(Write::Append(Box::new(append)));
    }

    /// Removes a session; its rows are deleted later, in small steps. The outcomes of the remove requests are kept.
    pub async fn remove(&self, log: Arc<Log>, outcomes: Vec<Outcome>) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Remove(log, outcomes, done));
        answer.await.map_err(|_| ended())?
    }

    /// The error of a blob that cannot be read; damage if it is missing or has other bytes.
    pub fn lost_blob(&self, id: &BlobId, error: std::io::Error) -> StoreError {
        let Some(text) = lost_blob(&self.blobs, id, &error) else { return error.into() };
        self.found.blob(id, &text);
        StoreError::damage(format!("blob {id}: {text}"))
    }

    /// Stores the outcome of a request of no session, synced.
    pub async fn remember(&self, outcome: Outcome) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Outcome(outcome, done));
        answer.await.map_err(|_| ended())?
    }

    /// Changes rows of no session, in a transaction of its own; on disk when this returns, if `sync`.
    async fn change(
        &self,
        sync: bool,
        change: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Change(Box::new(change), sync, done));
        answer.await.map_err(|_| ended())?
    }

    /// Runs `query`, which reads a few rows, on the reading connection.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_in(Lane::Quick, query).await
    }

    async fn read_in<T: Send + 'static>(
        &self,
        lane: Lane,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, answer) = oneshot::channel();
        let query: Query = Box::new(move |connection| {
            // The caller may be gone.
            if !done.is_closed() {
                let _unheard = done.send(fault::store().and_then(|()| query(connection)));
            }
        });
        self.reader.send((lane, query)).map_err(|_| ended())?;
        Ok(answer.await.map_err(|_| ended())??)
    }

    /// Runs a query of one session; an error that is damage makes the session damaged.
    async fn read_of<T: Send + 'static>(
        &self,
        lane: Lane,
        session: &SessionId,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_in(lane, query).await.inspect_err(|error| self.met(session, error))
    }

    /// Records damage that a query of a session found.
    pub(crate) fn met(&self, session: &SessionId, error: &StoreError) {
        if error.is_damage() {
            self.found.session(session, &error.0.to_string());
        }
    }

    /// Writes the queue and moves the WAL into the database; later writes fail.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Close(done));
        answer.await.map_err(|_| ended())?
    }
}

/// Why a blob is lost; `None` for an error that may pass.
pub(crate) fn lost_blob(blobs: &Blobs, id: &BlobId, error: &std::io::Error) -> Option<String> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Some(format!("{} is missing", blobs.path(id).unwrap_or_default().display())),
        std::io::ErrorKind::InvalidData => Some(error.to_string()),
        _ => None,
    }
}

fn ended() -> StoreError {
    StoreError("the store has ended".into())
}
