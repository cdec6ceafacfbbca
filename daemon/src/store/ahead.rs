//! Preallocates the WAL ahead of commits.
//!
//! Syncing a file that has grown also commits the file system's journal, which takes two to thirty times as long as overwriting
//! allocated blocks. So the WAL is extended with zeros while idle, [`CHUNK`] at a time; SQLite does not notice, because no frame
//! begins with zeros (<https://sqlite.org/fileformat.html>, 4.2).
//! The writing thread does it within a transaction: the holder of the write lock owns the end of the WAL.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::{Connection, TransactionBehavior};

use super::error::StoreError;
use super::files;
use crate::fault;

/// How much is added, in bytes: about ten turns.
const CHUNK: u64 = 1 << 20;

/// The WAL is extended when less than this is free, in bytes: enough for two turns in a row.
const LEAST: u64 = 256 << 10;

/// The sizes of a page, a frame's header and the WAL's header (same page, 4.1 and 4.2), in bytes.
const PAGE: u64 = 4096;
const FRAME: u64 = PAGE + 24;
const HEADER: u64 = 32;

/// The free space of one WAL.
pub(super) struct Ahead {
    path: PathBuf,
    file: Option<File>,
    /// Pages in the WAL, after the last commit.
    pages: Arc<AtomicI32>,
    /// After a full disk, do not try again before the WAL is used up to here, in bytes.
    not_before: u64,
}

impl Ahead {
    /// For the database at `path`; each commit updates `pages`.
    pub(super) fn new(path: &Path, pages: Arc<AtomicI32>) -> Self {
        Self { path: files::with(path, "-wal"), file: None, pages, not_before: 0 }
    }

    /// Whether little space is free.
    pub(super) fn is_short(&mut self) -> bool {
        let used = self.used();
        // Before the first commit there is no WAL.
        if used == HEADER || used < self.not_before {
            return false;
        }
        // If the length is unknown, [`Self::keep`] logs the error.
        self.length().map_or(true, |length| length < used + LEAST)
    }

    /// Extends the WAL. A failure only makes commits slower, so it is only logged.
    pub(super) fn keep(&mut self, connection: &Connection) {
        if let Err(error) = self.make(connection) {
            tracing::info!(target: "store", %error, "cannot extend the WAL; commits take longer");
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
            // Leave the rest of the disk to others.
            file.set_len(length)?;
            return Err(error.into());
        }
        fault::point("store.lengthened");
        Ok(alone.rollback()?)
    }
}

/// Adds a [`CHUNK`] of allocated blocks.
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
