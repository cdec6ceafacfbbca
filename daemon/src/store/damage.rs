//! What is damage, and where it was met; and what cannot be written just now.
//!
//! Damage is found where it is met, and not looked for at the start, which would read everything. A query of one session that
//! meets it makes that session damaged and no other: its error is typed, lists and starts go on without it. A write that meets it
//! says that the database is damaged. Both are kept here until the session can be read again or the daemon ends; nothing is
//! mended here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Error, ErrorCode, ffi};

use super::aside::Aside;
use crate::sys::clock;

/// Damaged sessions that are remembered, and blobs: more than anybody reads, and a list must end.
const MAX_SESSIONS: usize = 1000;

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

/// What was met so far.
#[derive(Clone, Default)]
pub struct Seen {
    /// The database that is in use, beyond single sessions.
    pub database: Option<Met>,
    /// Sessions that cannot be read.
    pub sessions: BTreeMap<SessionId, Met>,
    /// Blobs whose files are lost.
    pub blobs: BTreeMap<BlobId, Met>,
    /// Sessions of which nothing can be written just now.
    pub unwritten: BTreeMap<SessionId, Met>,
    /// What lies aside, as of the last look.
    pub asides: Vec<Aside>,
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
pub struct Found(Arc<Mutex<Seen>>);

impl Found {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it.
    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// What lies aside now.
    pub fn set_aside(&self, asides: Vec<Aside>) {
        self.lock().asides = asides;
    }

    /// A session cannot be read.
    pub fn session(&self, session: &SessionId, text: &str) {
        if note(&mut self.lock().sessions, session, text) {
            tracing::error!(target: "store", %session, text, "damaged");
        }
    }

    /// A session can be read, or is no more.
    pub fn readable(&self, session: &SessionId) {
        self.lock().sessions.remove(session);
    }

    /// What is wrong with a session.
    pub fn of(&self, session: &SessionId) -> Option<String> {
        self.lock().sessions.get(session).map(|met| met.text.clone())
    }

    /// Something met this error beside any session.
    pub fn write_failed(&self, error: &Error) {
        if is_damage(error) {
            self.database(&error.to_string());
        }
    }

    /// The database is damaged beyond one session.
    pub fn database(&self, text: &str) {
        let database = &mut self.lock().database;
        if database.is_none() {
            tracing::error!(target: "store", text, "the database is damaged");
            *database = Some(Met { at: clock::now(), text: text.to_owned() });
        }
    }

    /// A blob cannot be had.
    pub fn blob(&self, blob: &BlobId, text: &str) {
        if note(&mut self.lock().blobs, blob, text) {
            tracing::error!(target: "store", %blob, text, "lost");
        }
    }

    /// There is nothing wrong with a blob any more.
    pub fn blob_is_well(&self, blob: &BlobId) {
        self.lock().blobs.remove(blob);
    }

    /// Nothing of a session can be written just now.
    pub fn unwritten(&self, session: &SessionId, text: &str) {
        let unwritten = &mut self.lock().unwritten;
        unwritten.entry(session.clone()).or_insert_with(|| Met { at: clock::now(), text: text.to_owned() });
    }

    /// Something of it was, or it is no more.
    pub fn written(&self, session: &SessionId) {
        self.lock().unwritten.remove(session);
    }

    /// Why nothing of a session can be written just now.
    pub fn why_unwritten(&self, session: &SessionId) -> Option<String> {
        self.lock().unwritten.get(session).map(|met| met.text.clone())
    }
}
