//! The store: SQLite on threads of its own.
//!
//! One thread writes: it commits whatever is queued ([`queue`]) in one transaction and never waits to collect more, so that one
//! commit costs microseconds and many at once share it. An [`Append`] that precedes a side effect or was acknowledged to a user is
//! *synced*: it is on disk when it is answered; the rest survives the death of the process.
//! One thread reads ([`reader`]), on a connection of its own; a third moves the WAL into the database beside the commits
//! ([`checkpoint`]). All end when the last [`Store`] is dropped; what was queued is written. [`Store::close`] waits for that.
//! A session that is removed is gone at once; its rows and its space follow when there is time ([`upkeep`]).
//! Deliberately absent: any knowledge of what an event means.

mod ahead;
pub mod aside;
pub mod blob;
mod checkpoint;
pub mod damage;
pub(crate) mod event_row;
pub mod idempotency;
mod intact;
pub(crate) mod migrate;
pub mod open;
mod queue;
pub(crate) mod read;
mod reader;
#[cfg(test)]
pub(crate) mod rng;
mod upkeep;
pub(crate) mod usage;
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
use tokio::sync::oneshot;

pub use event_row::sum as event_sum;
pub use migrate::SCHEMA;
pub use read::{Answered, PENDING, Page, SessionRow};

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

/// What a query or a write failed with; shared by everything that was queued behind it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("storage failed: {0}")]
pub struct StoreError(pub Reason);

/// What is wrong, and whether that is damage.
#[derive(Clone, Debug)]
pub struct Reason {
    text: Arc<str>,
    damage: bool,
    /// It contradicts what is stored already.
    clash: bool,
}

impl StoreError {
    /// What is stored cannot be what was written.
    pub fn damage(text: impl Into<Arc<str>>) -> Self {
        Self(Reason { text: text.into(), damage: true, clash: false })
    }

    /// Whether trying again is no use: what is stored cannot be what was written.
    pub fn is_damage(&self) -> bool {
        self.0.damage
    }

    /// Whether trying again is no use: it contradicts what is stored already.
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
            let hint = "`linger doctor` says what is damaged, `linger doctor --repair` saves what can be read";
            return Self::new(Code::Damaged, format!("what is stored is damaged: {}", error.0)).hint(hint);
        }
        Self::new(Code::Storage, error.to_string()).hint("see whether the disk is full; `linger doctor` says more")
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
            // What was read says itself what is wrong with it.
            rusqlite::Error::FromSqlConversionFailure(_, _, error) => error.to_string(),
            error => error.to_string(),
        };
        Self(Reason { text: text.into(), damage, clash })
    }
}

/// Where an [`Append`] says what became of it.
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
    /// What is folded from the events.
    pub folds: Vec<Fold>,
    /// Whether it must be on disk before it is answered.
    pub sync: bool,
    /// Who wants to know.
    pub done: Option<Done>,
}

/// A change to what is folded from the log.
pub enum Fold {
    /// The session's state.
    Session {
        /// Unique among sessions.
        name: Option<String>,
        /// Where it works.
        cwd: String,
        /// `running` and the like, for finding sessions to take up at the start.
        state: &'static str,
        /// When it last changed.
        updated_at: u64,
        /// The state in JSON.
        fold: String,
        /// The session that started it; written with the first event.
        parent: Option<String>,
    },
    /// The variables of the session's tools; written once, with the first event.
    Environment(String),
    /// A question waits.
    Asked(Box<PendingQuestion>),
    /// A question has its answer, or was withdrawn.
    Answered {
        /// The question.
        question: QuestionId,
        /// The name of the option that was chosen; absent if it was withdrawn.
        answer: Option<String>,
        /// Who answered, or why it was withdrawn.
        by: String,
        /// When, in Unix milliseconds.
        at: u64,
    },
    /// The session uses a blob.
    Blob(Held),
    /// Answers were paid for.
    Spent(Spent),
    /// What a request with an idempotency key came to.
    Outcome(Outcome),
}

/// Answers of a day and a model, and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    /// The day, in days since 1970, as UTC has it.
    pub day: u64,
    /// `provider/model`.
    pub model: String,
    /// How many.
    pub answers: u64,
    /// How much they were.
    pub usage: Usage,
}

enum Write {
    Append(Box<Append>),
    Remove(Arc<Log>, Vec<Outcome>, Done),
    Outcome(Outcome, Done),
    Close(Done),
}

/// The threads; cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// The damage that was met.
    pub found: Found,
    /// The database's own path, without links.
    pub path: Arc<Path>,
    writer: Queue,
    reader: mpsc::Sender<(Lane, Query)>,
    /// What is too large for a row.
    pub blobs: Blobs,
    intact: Arc<Intact>,
}

impl Store {
    /// Opens or makes the database at `path`, mode 0600; one that cannot be used is set aside.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let found = Found::default();
        let path = open::own_path(path);
        let path = path.as_path();
        let (mut write, read) = open::open(path)?;
        found.set_aside(aside::list(path));
        let ahead = ahead::Ahead::new(path, checkpoint::beside(&mut write, path, &found)?);
        let fixed = write.is_readonly(rusqlite::MAIN_DB)?;
        let (blobs, intact) = (Blobs::beside(path), Arc::new(Intact::of(path, fixed)));
        let (writer, writes) = Queue::new();
        let (reader, queries) = mpsc::channel();
        std::thread::Builder::new().name("store-write".to_owned()).spawn({
            let found = found.clone();
            let upkeep = upkeep::Upkeep::new(path, blobs.clone(), found.clone());
            let intact = intact.clone();
            move || write::run(&write, &writes, upkeep, ahead, &found, intact)
        })?;
        std::thread::Builder::new().name("store-read".to_owned()).spawn(move || reader::run(&read, &queries))?;
        Ok(Self { found, path: path.into(), writer, reader, blobs, intact })
    }

    /// Why nothing is written: the files of the database are not those that were opened. Looks at the disk.
    pub fn astray(&self) -> Option<String> {
        self.intact.look().err().map(|error| error.0.to_string())
    }

    /// Waits until a database that could only be read when it was opened can be written: then it has to be opened anew.
    pub async fn writable(&self) {
        self.intact.writable().await;
    }

    /// Queues an append; it is answered, and shown, once it is committed.
    pub fn append(&self, append: Append) {
        self.writer.send(Write::Append(Box::new(append)));
    }

    /// Removes a session: it is gone once this answers, and what is stored of it is deleted when there is time. The outcomes of
    /// the requests that asked for it stay.
    pub async fn remove(&self, log: Arc<Log>, outcomes: Vec<Outcome>) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Remove(log, outcomes, done));
        answer.await.map_err(|_| ended())?
    }

    /// What there is to say when a blob cannot be read; it is damage if it is gone, or another.
    pub fn lost_blob(&self, id: &BlobId, error: std::io::Error) -> StoreError {
        let Some(text) = lost_blob(&self.blobs, id, &error) else { return error.into() };
        self.found.blob(id, &text);
        StoreError::damage(format!("blob {id}: {text}"))
    }

    /// Writes down what a request of no session came to, synced.
    pub async fn remember(&self, outcome: Outcome) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Outcome(outcome, done));
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
            // Whoever asked may have gone: then nothing is read, or nobody hears it.
            if !done.is_closed() {
                let _unheard = done.send(fault::store().and_then(|()| query(connection)));
            }
        });
        self.reader.send((lane, query)).map_err(|_| ended())?;
        Ok(answer.await.map_err(|_| ended())??)
    }

    /// Runs a query of one session; if it meets damage, the session is damaged.
    async fn read_of<T: Send + 'static>(
        &self,
        lane: Lane,
        session: &SessionId,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_in(lane, query).await.inspect_err(|error| self.met(session, error))
    }

    /// A query of a session met this.
    pub(crate) fn met(&self, session: &SessionId, error: &StoreError) {
        if error.is_damage() {
            self.found.session(session, &error.0.to_string());
        }
    }

    /// Writes what is queued, moves the WAL into the database, and takes nothing any more.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Close(done));
        answer.await.map_err(|_| ended())?
    }
}

/// What is said of a blob that is gone, or another; nothing of one that may be as it should.
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
