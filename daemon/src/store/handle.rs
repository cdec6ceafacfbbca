//! The handle to the store's threads: queues writes, sends queries, waits for results.

use std::path::Path;
use std::sync::{Arc, mpsc};

use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Connection, params};
use tokio::sync::{oneshot, watch};

use super::append::{Append, Write};
use super::blob::Blobs;
use super::damage::KnownDamage;
use super::error::{StoreError, ended};
use super::idempotency::Outcome;
use super::intact::Intact;
use super::queue::Queue;
use super::reader::{Lane, Query};
use super::token::{TokenRow, held};
use crate::fault;
use crate::log::Log;

/// The threads; cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// The damage that was found.
    pub found: KnownDamage,
    /// The database's own path, without links.
    pub path: Arc<Path>,
    pub(super) writer: Queue,
    pub(super) reader: mpsc::Sender<(Lane, Query)>,
    /// Content that is too large for a row.
    pub blobs: Blobs,
    pub(super) intact: Arc<Intact>,
    /// The tokens, as they were when the database was opened.
    pub tokens: Arc<[TokenRow]>,
    /// Wakes the readers of all sessions after each commit with events.
    pub(super) grown: watch::Sender<()>,
}

impl Store {
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
    pub(super) async fn change(
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

    pub(super) async fn read_in<T: Send + 'static>(
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
    pub(super) async fn read_of<T: Send + 'static>(
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

    /// Stores a new token; it is on disk when this returns.
    pub async fn add_token(&self, row: TokenRow) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let TokenRow { id, hash, allows, created_at, used_at, code_until } = &row;
            let values = params![id, hash, allows, held(*created_at), used_at.map(held), code_until.map(held)];
            connection.execute("INSERT INTO token VALUES (?, ?, ?, ?, ?, ?)", values).map(drop)
        })
        .await
    }

    /// A code was exchanged for a token with this hash; it is on disk when this returns. A token that was removed stays so.
    pub async fn exchange_token(&self, id: String, hash: String) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let sql = "UPDATE token SET hash = ?2, code_until = NULL WHERE id = ?1";
            connection.execute(sql, params![id, hash]).map(drop)
        })
        .await
    }

    /// A connection began with a token.
    pub async fn used_token(&self, id: String, at: u64) -> Result<(), StoreError> {
        self.change(false, move |connection| {
            connection.execute("UPDATE token SET used_at = ?2 WHERE id = ?1", params![id, held(at)]).map(drop)
        })
        .await
    }

    /// Deletes tokens; they are gone from the disk when this returns.
    pub async fn remove_tokens(&self, ids: Vec<String>) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let ids = serde_json::json!(ids).to_string();
            let sql = "DELETE FROM token WHERE id IN (SELECT value FROM json_each(?))";
            connection.execute(sql, [ids]).map(drop)
        })
        .await
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
