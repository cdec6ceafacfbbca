//! What is damage, and where it was met; and what cannot be written just now.
//!
//! Damage is found where it is met, and not looked for at the start, which would read everything. A query of one session that
//! meets it makes that session damaged and no other: its error is typed, lists and starts go on without it. A write that meets it
//! says that the database is damaged. Both are kept here until the session can be read again or the daemon ends, for
//! `daemon/status`; `daemon/repair` mends them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Error, ErrorCode, ffi};

use crate::sys::clock;

/// Damaged sessions that are remembered, and blobs: more than anybody reads, and a list must end.
const MAX_SESSIONS: usize = 1000;

/// Who has decided permissions whose answer is lost.
pub const DAMAGE: &str = "damage";

/// Whether this means that what is stored is not what was written.
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::SqliteFailure(error, _) => match error.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // The disk cannot give back what it took; other input and output errors come from writing, or pass.
            ErrorCode::SystemIoFailure => matches!(
                error.extended_code,
                ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS
            ),
            _ => false,
        },
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => true,
        _ => false,
    }
}

/// What was read and cannot be what was written.
pub fn unreadable(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, text.into())
}

/// One piece of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// When it was first met, in Unix milliseconds.
    pub at: u64,
    /// What was said.
    pub text: String,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Met>,
    blobs: BTreeMap<BlobId, Met>,
    /// Those that nothing can be done about any more, and where what was in their place lies.
    given_up: BTreeMap<BlobId, (Met, Option<PathBuf>)>,
    unwritten: BTreeMap<SessionId, Met>,
    beside: BTreeMap<SessionId, Met>,
    database: Option<Met>,
}

/// Keeps what is wrong with one of them; whether that is news.
fn note<K: Ord + Clone>(all: &mut BTreeMap<K, Met>, one: &K, text: &str) -> bool {
    if all.contains_key(one) || all.len() >= MAX_SESSIONS {
        return false;
    }
    all.insert(one.clone(), Met { at: clock::now(), text: text.to_owned() });
    true
}

/// The damage that this daemon has met; cheap to clone.
#[derive(Clone, Default)]
pub struct Found(Arc<Mutex<State>>);

impl Found {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session cannot be read.
    pub fn session(&self, session: &SessionId, text: &str) {
        if note(&mut self.state().sessions, session, text) {
            tracing::error!(target: "store", %session, text, "damaged");
        }
    }

    /// What is kept of a session beside its events is not what these say. It can be made anew in place, and keeps nothing from working.
    pub fn beside(&self, session: &SessionId, text: &str) {
        if note(&mut self.state().beside, session, text) {
            tracing::warn!(target: "store", %session, text, "not as its events say");
        }
    }

    /// Of which sessions something has to be made anew, and what.
    pub fn all_beside(&self) -> Vec<(SessionId, Met)> {
        self.state().beside.iter().map(|(id, met)| (id.clone(), met.clone())).collect()
    }

    /// All that follows from a session's events is as they say.
    pub fn beside_is_well(&self, session: &SessionId) {
        self.state().beside.remove(session);
    }

    /// Something met this error beside any session.
    pub fn write_failed(&self, error: &Error) {
        if is_damage(error) {
            self.database(&error.to_string());
        }
    }

    /// The database is damaged beyond one session.
    pub fn database(&self, text: &str) {
        let database = &mut self.state().database;
        if database.is_none() {
            tracing::error!(target: "store", text, "the database is damaged");
            *database = Some(Met { at: clock::now(), text: text.to_owned() });
        }
    }

    /// A blob cannot be had.
    pub fn blob(&self, blob: &BlobId, text: &str) {
        if note(&mut self.state().blobs, blob, text) {
            tracing::error!(target: "store", %blob, text, "lost");
        }
    }

    /// What is wrong with which blobs.
    pub fn blobs(&self) -> Vec<(BlobId, Met)> {
        self.state().blobs.iter().map(|(id, met)| (id.clone(), met.clone())).collect()
    }

    /// There is nothing wrong with it any more.
    pub fn blob_is_well(&self, blob: &BlobId) {
        let mut state = self.state();
        state.blobs.remove(blob);
        state.given_up.remove(blob);
    }

    /// Nothing uses it any more; what was in its place lies `aside`.
    pub fn give_up(&self, blob: &BlobId, aside: Option<PathBuf>) {
        let mut state = self.state();
        if let Some(met) = state.blobs.remove(blob) {
            state.given_up.insert(blob.clone(), (met, aside));
        }
    }

    /// The blobs that were given up since this daemon started.
    pub fn given_up(&self) -> Vec<(Met, Option<PathBuf>)> {
        self.state().given_up.values().cloned().collect()
    }

    /// Nothing of a session can be written just now.
    pub fn unwritten(&self, session: &SessionId, text: &str) {
        let unwritten = &mut self.state().unwritten;
        unwritten.entry(session.clone()).or_insert_with(|| Met { at: clock::now(), text: text.to_owned() });
    }

    /// Something of it was, or it is no more.
    pub fn written(&self, session: &SessionId) {
        self.state().unwritten.remove(session);
    }

    /// Why nothing of a session can be written just now.
    pub fn why_unwritten(&self, session: &SessionId) -> Option<String> {
        self.state().unwritten.get(session).map(|met| met.text.clone())
    }

    /// Of how many sessions nothing can be written just now, and since when and why of the first of them.
    pub fn all_unwritten(&self) -> Option<(usize, Met)> {
        let state = self.state();
        let first = state.unwritten.values().min_by_key(|met| met.at)?;
        Some((state.unwritten.len(), first.clone()))
    }

    /// A session can be read again, and has all that it should; or it is no more.
    pub fn mended(&self, session: &SessionId) {
        let mut state = self.state();
        state.sessions.remove(session);
        state.beside.remove(session);
    }

    /// What is wrong with a session.
    pub fn of(&self, session: &SessionId) -> Option<String> {
        self.state().sessions.get(session).map(|met| met.text.clone())
    }

    /// What is wrong with the database, and with which sessions.
    pub fn all(&self) -> (Option<Met>, Vec<(SessionId, Met)>) {
        let state = self.state();
        (state.database.clone(), state.sessions.iter().map(|(id, met)| (id.clone(), met.clone())).collect())
    }
}
