//! Moving the WAL into the database, where it stalls nobody.
//!
//! By itself SQLite does this inside a commit of whoever made the WAL long, with two syncs of the disk: a stream of deltas would
//! stand still meanwhile. Here the writing connection only counts, in its commit hook, and wakes a thread with a connection of
//! its own. That thread checkpoints passively: it waits for nobody and nobody waits for it. A WAL whose every page was moved is
//! begun anew by the next commit; when that never comes to be because commits never pause, the WAL is closed for a moment once
//! it has [`LONG`] pages, which then costs the commits the time of the last few pages.
//! The thread is made when it is first needed, and ends with the writing connection; it has no timer.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use super::damage::Found;

/// Pages that were not moved yet and wake the thread: 4 MiB, as SQLite's own.
const STEP: c_int = 1000;

/// Pages at which the WAL is closed for a moment: 64 MiB, which a start after a crash reads in a tenth of a second.
const LONG: c_int = 16_384;

/// How often one wake-up tries to catch up with commits that go on meanwhile.
const ROUNDS: usize = 4;

/// How long commits may be held up by readers that use the end of a long WAL; then it grows by another [`STEP`].
const HELD_UP: Duration = Duration::from_millis(10);

/// Stack of the thread: it calls SQLite and nothing else.
const STACK: usize = 256 << 10;

/// Takes checkpoints out of the commits of `connection`; gives where each commit leaves the number of pages in the WAL.
pub(super) fn beside(connection: &mut Connection, path: &Path, found: &Found) -> rusqlite::Result<Arc<AtomicI32>> {
    // How many pages of the WAL are known to be in the database.
    let moved = Arc::new(AtomicI32::new(0));
    let length = Arc::new(AtomicI32::new(0));
    let kept = length.clone();
    let (path, found) = (path.to_path_buf(), found.clone());
    let mut wake: Option<SyncSender<()>> = None;
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: c_int| {
        length.store(pages, Ordering::Relaxed);
        let done = moved.load(Ordering::Relaxed);
        if pages < done {
            // It was begun anew.
            moved.store(0, Ordering::Relaxed);
        }
        if pages - done >= STEP || (pages < done && pages >= STEP) {
            let wake = wake.get_or_insert_with(|| thread(path.clone(), moved.clone(), found.clone()));
            // One wake-up that waits is as good as two.
            let _pending = wake.try_send(());
        }
        Ok(())
    }))?;
    Ok(kept)
}

fn thread(path: PathBuf, moved: Arc<AtomicI32>, found: Found) -> SyncSender<()> {
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

fn run(path: &Path, moved: &AtomicI32, woken: &Receiver<()>, found: &Found) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.busy_timeout(HELD_UP)?;
    while woken.recv().is_ok() {
        match catch_up(&connection) {
            Ok(pages) => moved.store(pages, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(target: "store", %error, "a checkpoint failed");
                found.write_failed(&error);
                // It is tried again when as much again has come.
                let pages = length(&connection).unwrap_or(0);
                moved.store(pages, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Moves what there is; gives how many pages were.
fn catch_up(connection: &Connection) -> rusqlite::Result<c_int> {
    let mut moved = 0;
    for _ in 0..ROUNDS {
        moved = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE)?.1;
        // A checkpoint says how long the WAL was when it began.
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

/// How many pages the WAL has now.
fn length(connection: &Connection) -> rusqlite::Result<c_int> {
    Ok(connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::NOOP)?.0)
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
