//! The definition of damage, and the damage that this daemon has met; also which sessions cannot be written.
//!
//! Damage is detected when it is read. A query of one session makes only that session damaged: its error is typed, lists and starts
//! go on without it. A write makes the database damaged. Both are kept until the session can be read again or the daemon ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Error, ErrorCode, ffi};

use super::aside::Aside;
use crate::sys::clock;

/// The most damaged sessions that are kept, and the most blobs: more than a user reads.
const MAX_SESSIONS: usize = 1000;

/// Whether an error means that what is stored is not what was written.
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::SqliteFailure(error, _) => match error.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // The disk cannot read back what it stored; other I/O errors come from writing, or pass.
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

/// The error of a value that cannot be what was written.
pub fn unreadable(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, text.into())
}

/// One piece of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// When it was met first, in Unix milliseconds.
    pub at: u64,
    /// The reason.
    pub text: String,
}

/// All damage met so far.
#[derive(Clone, Default)]
pub struct Seen {
    /// The database that is in use, beyond single sessions.
    pub database: Option<Met>,
    /// Sessions that cannot be read.
    pub sessions: BTreeMap<SessionId, Met>,
    /// Blobs whose files are lost.
    pub blobs: BTreeMap<BlobId, Met>,
    /// Sessions that cannot be written at present.
    pub unwritten: BTreeMap<SessionId, Met>,
    /// Set-aside files, as of the last listing.
    pub asides: Vec<Aside>,
}

/// Adds a reason; whether it is the first one.
fn note<K: Ord + Clone>(all: &mut BTreeMap<K, Met>, one: &K, text: &str) -> bool {
    if all.contains_key(one) || all.len() >= MAX_SESSIONS {
        return false;
    }
    all.insert(one.clone(), Met { at: clock::now(), text: text.to_owned() });
    true
}

/// The damage that this daemon has met; cheap to clone.
#[derive(Clone, Default)]
pub struct KnownDamage(Arc<Mutex<Seen>>);

impl KnownDamage {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it.
    pub fn seen(&self) -> Seen {
        self.lock().clone()
    }

    /// Replaces the list of set-aside files.
    pub fn set_aside(&self, asides: Vec<Aside>) {
        self.lock().asides = asides;
    }

    /// A session cannot be read.
    pub fn session(&self, session: &SessionId, text: &str) {
        if note(&mut self.lock().sessions, session, text) {
            tracing::error!(target: "store", %session, text, "damaged");
        }
    }

    /// A session can be read, or was removed.
    pub fn readable(&self, session: &SessionId) {
        self.lock().sessions.remove(session);
    }

    /// Why a session cannot be read.
    pub fn of(&self, session: &SessionId) -> Option<String> {
        self.lock().sessions.get(session).map(|met| met.text.clone())
    }

    /// The database is damaged beyond one session.
    pub fn database(&self, text: &str) {
        let database = &mut self.lock().database;
        if database.is_none() {
            tracing::error!(target: "store", text, "the database is damaged");
            *database = Some(Met { at: clock::now(), text: text.to_owned() });
        }
    }

    /// A blob is lost.
    pub fn blob(&self, blob: &BlobId, text: &str) {
        if note(&mut self.lock().blobs, blob, text) {
            tracing::error!(target: "store", %blob, text, "lost");
        }
    }

    /// A blob can be read.
    pub fn blob_is_well(&self, blob: &BlobId) {
        self.lock().blobs.remove(blob);
    }

    /// A session cannot be written at present.
    pub fn unwritten(&self, session: &SessionId, text: &str) {
        note(&mut self.lock().unwritten, session, text);
    }

    /// A session was written, or was removed.
    pub fn written(&self, session: &SessionId) {
        self.lock().unwritten.remove(session);
    }

    /// Why a session cannot be written at present.
    pub fn why_unwritten(&self, session: &SessionId) -> Option<String> {
        self.lock().unwritten.get(session).map(|met| met.text.clone())
    }
}
