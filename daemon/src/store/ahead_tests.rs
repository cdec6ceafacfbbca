//! Room is there before it is needed, and what is stored does not notice.

use super::*;
use crate::store::checkpoint;
use crate::store::damage::KnownDamage;
use crate::store::open::open;

fn commit(connection: &Connection, n: u64) {
    let insert = "INSERT INTO scratch VALUES ('s', 'm', 0, ?1, 'text', ?2)";
    connection.execute(insert, (n as i64, "x".repeat(1000))).unwrap();
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM scratch", [], |row| row.get(0)).unwrap()
}

struct Scene {
    dir: tempfile::TempDir,
    write: Connection,
    read: Connection,
    ahead: Ahead,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linger.db");
        let (mut write, read) = open(&path).unwrap();
        let pages = checkpoint::beside(&mut write, &path, &KnownDamage::default()).unwrap();
        Self { ahead: Ahead::new(&path, pages), dir, write, read }
    }

    /// What the writing thread does when nothing is to be written.
    fn keep(&mut self) {
        if self.ahead.is_short() {
            self.ahead.keep(&self.write);
        }
    }

    fn wal(&self) -> u64 {
        std::fs::metadata(&self.ahead.path).map_or(0, |meta| meta.len())
    }
}

#[test]
fn commits_do_not_lengthen_a_wal_that_has_room() {
    let mut scene = Scene::new();
    scene.keep();
    assert!(scene.ahead.file.is_none(), "there is no WAL before the first commit");
    let mut lengths = std::collections::BTreeSet::new();
    for n in 0..500 {
        commit(&scene.write, 2 * n);
        scene.keep();
        let length = scene.wal();
        commit(&scene.write, 2 * n + 1);
        // When the WAL begins anew, what it has beyond its limit is cut off.
        assert!(scene.wal() <= length, "commit {n} found no room");
        lengths.insert(length);
    }
    assert!(lengths.len() >= 2, "{lengths:?}");
    assert_eq!(count(&scene.read), 1000);
}

#[test]
fn what_was_committed_is_there_after_a_crash_whatever_room_follows_it() {
    let mut scene = Scene::new();
    for n in 0..300 {
        commit(&scene.write, n);
        scene.keep();
    }
    // As a crash leaves it: no connection is closed.
    let copy = tempfile::tempdir().unwrap();
    for part in ["linger.db", "linger.db-wal"] {
        std::fs::copy(scene.dir.path().join(part), copy.path().join(part)).unwrap();
    }
    let (write, read) = open(&copy.path().join("linger.db")).unwrap();
    assert_eq!(count(&read), 300);
    commit(&write, 1000);
    assert_eq!(count(&read), 301);
}

#[test]
fn somebody_else_who_writes_is_not_written_over() {
    let mut scene = Scene::new();
    commit(&scene.write, 0);
    let other = Connection::open(scene.dir.path().join("linger.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    scene.write.pragma_update(None, "busy_timeout", 10).unwrap();
    let before = scene.wal();
    scene.keep();
    assert_eq!(scene.wal(), before, "it waits for another time");
    commit(&other, 1);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&scene.read), 2);
}
