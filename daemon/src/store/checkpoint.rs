//! Checkpoints: moves the WAL into the database without stalling commits.
//!
//! By default SQLite checkpoints inside the commit that fills the WAL, with two syncs, which would stall a stream of deltas. Here
//! the writing connection only counts pages, in its commit hook, and wakes a thread with its own connection. That thread makes
//! passive checkpoints, which block nothing. Once all pages are moved, the next commit restarts the WAL; if commits never pause,
//! the WAL is restarted when it has [`LONG`] pages, which delays commits by the last few pages.
//! The thread starts when first needed, ends with the writing connection, and has no timer.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use super::damage::{KnownDamage, is_damage};

/// How many unmoved pages wake the thread: 4 MiB, as SQLite's default.
const STEP: c_int = 1000;

/// The size, in pages, at which the WAL is restarted: 64 MiB, which a start after a crash reads in a tenth of a second.
const LONG: c_int = 16_384;

/// How often one wake-up tries to catch up with new commits.
const ROUNDS: usize = 4;

/// How long a restart of the WAL may wait for readers, delaying commits; then the WAL grows by another [`STEP`].
const HELD_UP: Duration = Duration::from_millis(10);

/// The thread's stack, in bytes: it only calls SQLite.
const STACK: usize = 256 << 10;

/// Moves the checkpoints of `connection` to the thread; returns the number of pages in the WAL after each commit.
pub(super) fn beside(
    connection: &mut Connection,
    path: &Path,
    found: &KnownDamage,
) -> rusqlite::Result<Arc<AtomicI32>> {
    // Pages of the WAL that are in the database.
    let moved = Arc::new(AtomicI32::new(0));
    let length = Arc::new(AtomicI32::new(0));
    let kept = length.clone();
    let (path, found) = (path.to_path_buf(), found.clone());
    let mut wake: Option<SyncSender<()>> = None;
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: c_int| {
        length.store(pages, Ordering::Relaxed);
        let done = moved.load(Ordering::Relaxed);
        if pages < done {
            // The WAL was restarted.
            moved.store(0, Ordering::Relaxed);
        }
        if pages - done >= STEP || (pages < done && pages >= STEP) {
            let wake = wake.get_or_insert_with(|| thread(path.clone(), moved.clone(), found.clone()));
            // A pending wake-up is enough.
            let _pending = wake.try_send(());
        }
        Ok(())
    }))?;
    Ok(kept)
}

fn thread(path: PathBuf, moved: Arc<AtomicI32>, found: KnownDamage) -> SyncSender<()> {
    let (wake, woken) = sync_channel(1);
    let work = move || {
        if let Err(error) = run(&path, &moved, &woken, &found) {
            tracing::error!(target: "store", %error, "no checkpoints are made: the WAL grows");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("store-move".to_owned()).stack_size(STACK).spawn(work) {
        tracing::error!(target: "store", %error, "no checkpoints are made: the WAL grows");
    }
    wake
}

fn run(path: &Path, moved: &AtomicI32, woken: &Receiver<()>, found: &KnownDamage) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.busy_timeout(HELD_UP)?;
    while woken.recv().is_ok() {
        match catch_up(&connection) {
            Ok(pages) => moved.store(pages, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(target: "store", %error, "a checkpoint failed");
                if is_damage(&error) {
                    found.database(&error.to_string());
                }
                // Try again after another STEP.
                let pages = length(&connection).unwrap_or(0);
                moved.store(pages, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Moves all pages; returns how many.
fn catch_up(connection: &Connection) -> rusqlite::Result<c_int> {
    let mut moved = 0;
    for _ in 0..ROUNDS {
        moved = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE)?.1;
        // A checkpoint reports the length of the WAL at its start.
        if moved >= length(connection)? {
            return Ok(moved);
        }
    }
    if moved < LONG {
        return Ok(moved);
    }
    match connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::RESTART) {
        Ok((_, moved)) => Ok(moved),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
            tracing::info!(target: "store", pages = moved, "a reader holds on to the WAL, which grows");
            Ok(moved)
        }
        Err(error) => Err(error),
    }
}

/// The number of pages in the WAL.
fn length(connection: &Connection) -> rusqlite::Result<c_int> {
    Ok(connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::NOOP)?.0)
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
