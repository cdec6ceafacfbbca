//! Room in the WAL ahead of the commits.
//!
//! To sync a file that has grown, a file system with a journal commits that too, which takes two to thirty times as long as
//! writing over blocks that the file has. So the WAL is lengthened with zeros while nobody waits, [`CHUNK`] at a time; for SQLite
//! it ends where it did, because no frame begins with zeros (<https://sqlite.org/fileformat.html>, 4.2).
//! It is done by the writing thread, within a transaction: whoever holds the lock on writing is alone with the end of the WAL.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::{Connection, TransactionBehavior};

use super::{StoreError, aside};
use crate::fault;

/// How much is added at once, in bytes: ten turns or so.
const CHUNK: u64 = 1 << 20;

/// With less room than this, in bytes, more is made: it lasts for two turns that follow each other at once.
const LEAST: u64 = 256 << 10;

/// Pages of the database and of its WAL, and what stands before each there and before all (same place, 4.1 and 4.2), in bytes.
const PAGE: u64 = 4096;
const FRAME: u64 = PAGE + 24;
const HEADER: u64 = 32;

/// The room in one WAL.
pub(super) struct Ahead {
    path: PathBuf,
    file: Option<File>,
    /// Pages in the WAL, after the last commit.
    pages: Arc<AtomicI32>,
    /// Nothing is tried before the WAL is in use up to here: there was no more space.
    not_before: u64,
}

impl Ahead {
    /// Of the database at `path`, whose commits keep `pages`.
    pub(super) fn new(path: &Path, pages: Arc<AtomicI32>) -> Self {
        Self { path: aside::with(path, "-wal"), file: None, pages, not_before: 0 }
    }

    /// Whether there is little room.
    pub(super) fn is_short(&mut self) -> bool {
        let used = self.used();
        // Before the first commit there is no WAL.
        if used == HEADER || used < self.not_before {
            return false;
        }
        // What cannot be known is said by whoever makes room.
        self.length().map_or(true, |length| length < used + LEAST)
    }

    /// Makes room. What fails makes commits slower and nothing worse, so it is only logged.
    pub(super) fn keep(&mut self, connection: &Connection) {
        if let Err(error) = self.make(connection) {
            tracing::info!(target: "store", %error, "no room is made in the WAL: commits take longer");
            self.not_before = self.used() + CHUNK;
        }
    }

    /// How much of the WAL is in use, in bytes.
    fn used(&self) -> u64 {
        HEADER + u64::try_from(self.pages.load(Ordering::Relaxed)).unwrap_or(0) * FRAME
    }

    fn length(&mut self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn file(&mut self) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(OpenOptions::new().write(true).open(&self.path)?)),
        }
    }

    fn make(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let alone = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        let length = self.length()?;
        let file = self.file()?;
        if let Err(error) = lengthen(file, length) {
            // What is left of the disk is for others.
            file.set_len(length)?;
            return Err(error.into());
        }
        fault::point("store.lengthened");
        Ok(alone.rollback()?)
    }
}

/// Adds a [`CHUNK`] whose blocks are on the disk.
fn lengthen(file: &File, length: u64) -> io::Result<()> {
    let zeros = [0; 16 << 10];
    for at in (length..length + CHUNK).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_data()
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
