//! Commits go on while the WAL is moved into the database, and the WAL does not grow for ever.

use std::time::Instant;

use super::*;
use crate::store::open::open;

/// A mebibyte.
const MIB: u64 = 1 << 20;

/// One commit after the other, of a kilobyte each, as a stream of deltas is; gives how long each took.
fn stream(connection: &Connection, first: u64, commits: u64, pause: Duration) -> Vec<Duration> {
    let text = "x".repeat(1000);
    let mut insert = connection.prepare("INSERT INTO scratch VALUES ('s', ?1, 0, ?2, 'text', ?3)").unwrap();
    let mut took = Vec::new();
    for n in first..first + commits {
        let began = Instant::now();
        insert.execute((format!("m{}", n / 64), (n % 64) as i64, &text)).unwrap();
        took.push(began.elapsed());
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    took
}

fn wal(path: &Path) -> u64 {
    std::fs::metadata(crate::store::files::with(path, "-wal")).map_or(0, |meta| meta.len())
}

#[test]
fn the_wal_of_a_stream_that_pauses_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let (mut write, read) = open(&path).unwrap();
    beside(&mut write, &path, &KnownDamage::default()).unwrap();
    let pages = || read.wal_checkpoint_v2(None::<&str>, CheckpointMode::NOOP).unwrap().0;
    let (mut before, mut commits) = (0, 0);
    while pages() >= before {
        before = pages();
        commits += 1;
        assert!(commits < 2000, "the WAL has {before} pages and grows");
        // Time enough for a disk that is slow.
        let pause = if before < STEP { Duration::from_millis(1) } else { Duration::from_millis(300) };
        stream(&write, commits, 1, pause);
    }
    assert!(before >= STEP, "not before it is worth it: at {before} pages");
}

#[test]
fn the_wal_of_a_stream_that_never_pauses_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let (mut write, _read) = open(&path).unwrap();
    let pages = beside(&mut write, &path, &KnownDamage::default()).unwrap();
    let (mut before, mut commits) = (0, 0);
    // On a busy machine it gets longer before it is begun anew.
    while pages.load(Ordering::Relaxed) >= before {
        before = pages.load(Ordering::Relaxed);
        stream(&write, commits, 10, Duration::ZERO);
        commits += 10;
        assert!(commits < 150_000, "the WAL has {} MiB and grows", wal(&path) / MIB);
    }
}

#[test]
fn a_reader_that_holds_on_does_not_hold_up_commits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let (mut write, read) = open(&path).unwrap();
    beside(&mut write, &path, &KnownDamage::default()).unwrap();
    let transaction = read.unchecked_transaction().unwrap();
    read.query_row("SELECT count(*) FROM event", [], |_| Ok(())).unwrap();
    let took = stream(&write, 0, 15_000, Duration::ZERO);
    assert!(wal(&path) > 64 * MIB, "the reader keeps the WAL from being begun anew");
    // Five seconds would be SQLite's own patience.
    let longest = took.iter().max().unwrap();
    assert!(*longest < Duration::from_secs(2), "a commit waited for the reader: {longest:?}");
    drop(transaction);
}
