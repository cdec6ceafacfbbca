//! The store: SQLite on threads of its own.
//!
//! One thread writes: it commits whatever is queued in one transaction and never waits to collect more, so that one commit
//! costs microseconds and many at once share it. An [`Append`] that precedes a side effect or was acknowledged to a user is
//! *synced*: it is on disk when it is answered; the rest survives the death of the process.
//! One thread reads, on a connection of its own. Both end when the last [`Store`] is dropped; what was queued is written.
//! [`Store::close`] waits for that, and moves the WAL into the database.
//! A session that is removed is gone at once; its rows and its space follow when there is time ([`upkeep`]).
//! Deliberately absent: any knowledge of what an event means.

mod read;
mod upkeep;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context as _;
use linger_protocol::id::TurnId;
use linger_protocol::permission::{Decision, Pending};
use rusqlite::Connection;
use tokio::sync::oneshot;

pub use read::{Answered, Page, SessionRow};

use crate::blob::{Blobs, Held};
use crate::session::log::{Log, Piece, Stored};

/// The schema, a step a version; a step that was released never changes.
const STEPS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];

/// The version of the schema that this build knows; a database of a later one is not opened.
pub const SCHEMA: i64 = STEPS.len() as i64;

/// Page cache of each connection in KiB: sessions read their log once and forward.
const CACHE_KIB: i64 = 256;

/// The database's `auto_vacuum`: free pages are given back when they are asked for, and move nothing otherwise.
const INCREMENTAL: i64 = 2;

/// The WAL is cut back to this size after a checkpoint, in bytes.
const WAL_LIMIT: i64 = 16 << 20;

/// What a write failed with; shared by everything that was queued behind it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("storage failed: {0}")]
pub struct StoreError(pub Arc<str>);

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string().into())
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self(error.to_string().into())
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
    },
    /// The variables of the session's tools; written once, with the first event.
    Environment(String),
    /// A permission waits.
    Asked(Pending),
    /// A permission has its decision.
    Decided {
        /// Which.
        permission: String,
        /// What was decided.
        decision: Decision,
        /// By whom.
        by: String,
        /// When.
        at: u64,
    },
    /// The session uses a blob.
    Blob(Held),
    /// What a request with an idempotency key came to.
    Outcome {
        /// The key.
        key: String,
        /// The result in JSON.
        result: String,
    },
}

type Query = Box<dyn FnOnce(&Connection) + Send>;

enum Write {
    Append(Box<Append>),
    Remove(Arc<Log>, Done),
    Rewrite,
    Close(Done),
}

/// Both threads; cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: mpsc::Sender<Write>,
    reader: mpsc::Sender<Query>,
    /// What is too large for a row.
    pub blobs: Blobs,
}

impl Store {
    /// Opens or makes the database at `path`, mode 0600.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        make_private(path).with_context(|| format!("{}: cannot make the database", path.display()))?;
        let write = connect(path).with_context(|| format!("{}: cannot open the database", path.display()))?;
        migrate(&write).with_context(|| format!("{}: not a database of this linger", path.display()))?;
        let read = connect(path)?;
        read.pragma_update(None, "query_only", true)?;
        let blobs = Blobs::beside(path);
        let upkeep = upkeep::Upkeep::new(blobs.clone());
        let (writer, writes) = mpsc::channel();
        let (reader, queries) = mpsc::channel::<Query>();
        std::thread::Builder::new()
            .name("store-write".to_owned())
            .spawn(move || write::run(&write, &writes, upkeep))?;
        std::thread::Builder::new().name("store-read".to_owned()).spawn(move || {
            while let Ok(query) = queries.recv() {
                query(&read);
            }
        })?;
        Ok(Self { writer, reader, blobs })
    }

    /// Queues an append; it is answered, and shown, once it is committed.
    pub fn append(&self, append: Append) {
        if let Err(mpsc::SendError(Write::Append(append))) = self.writer.send(Write::Append(Box::new(append))) {
            append.log.fail();
            if let Some(done) = append.done {
                // Nobody may be waiting any more.
                let _unheard = done.send(Err(ended()));
            }
        }
    }

    /// Removes a session: it is gone once this answers, and what is stored of it is deleted when there is time.
    pub async fn remove(&self, log: Arc<Log>) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Remove(log, done)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Lets the database be rewritten once it has free pages that it cannot give back otherwise. Writes wait meanwhile.
    pub fn rewrite(&self) {
        // A store that has ended has nothing to give back.
        let _ended = self.writer.send(Write::Rewrite);
    }

    /// Runs `query` on the reading connection.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, answer) = oneshot::channel();
        let query: Query = Box::new(move |connection| {
            // Whoever asked may have gone.
            let _unheard = done.send(query(connection));
        });
        self.reader.send(query).map_err(|_| ended())?;
        Ok(answer.await.map_err(|_| ended())??)
    }

    /// Writes what is queued, moves the WAL into the database, and takes nothing any more.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writer.send(Write::Close(done)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn ended() -> StoreError {
    StoreError("the store has ended".into())
}

/// Makes the file with its mode before SQLite sees it; the WAL takes its mode from it.
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    // Before anything is in the database; one that has something stays as it is.
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "busy_timeout", 5000)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_LIMIT, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn migrate(connection: &Connection) -> anyhow::Result<()> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = usize::try_from(version).ok().filter(|version| *version <= STEPS.len());
    let Some(known) = known else {
        anyhow::bail!("its schema is version {version}, this build knows {SCHEMA}: a newer lingerd wrote it");
    };
    let steps = STEPS.iter().skip(known).copied().collect::<String>();
    if steps.is_empty() {
        return Ok(());
    }
    let sql = format!("BEGIN IMMEDIATE; {steps} PRAGMA user_version = {SCHEMA}; COMMIT;");
    connection.execute_batch(&sql).context("the schema could not be made")
}
