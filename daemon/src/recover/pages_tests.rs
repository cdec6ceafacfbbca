//! Rows that are found page by page, held against what SQLite reads of the same database before it was damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rusqlite::config::DbConfig;
use tempfile::TempDir;

use super::*;
use crate::recover::source::{Source, Unreadable};
use crate::store::rng::Rng;
use crate::store::{INCREMENTAL, SCHEMA, event_row, files, migrate};

/// All events.
const EVENTS: &str = "SELECT session, seq, at, kind, stream, data FROM event";

/// An event.
type Row = [Option<String>; 6];

/// How many damaged copies are read.
const SEEDS: u64 = 200;

/// How many sessions there are.
const SESSIONS: usize = 6;

fn add(connection: &Connection, session: &str, seq: i64, size: usize) {
    let data =
        format!("{{\"kind\":\"notice\",\"level\":\"info\",\"text\":\"{}\",\"seq\":{seq},\"at\":1}}", "é".repeat(size));
    let (stream, sum) = ((seq % 3 == 0).then(|| format!("m{seq}")), event_row::sum(session.as_bytes(), &data));
    let row = (session, seq, seq << (seq % 60), "notice", stream, &data, sum);
    let sql = "INSERT INTO event (session, seq, at, kind, stream, data, sum) VALUES (?, ?, ?, ?, ?, ?, ?)";
    connection.execute(sql, row).unwrap();
}

/// A database with rows of all sizes, some of which go on for many pages; with what was written last in its WAL, as after a kill.
fn killed() -> TempDir {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join("linger.db");
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL).unwrap();
    connection.execute_batch(&migrate::sql(0, SCHEMA)).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    for session in 0..SESSIONS {
        let id = format!("session{session:02}");
        (1..40).for_each(|seq| {
            add(&connection, &id, seq, [3, 100, 234, 490, 700, 9000][(seq as usize * 7 + session) % 6])
        });
    }
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())).unwrap();
    (40..50)
        .for_each(|seq| (0..SESSIONS).for_each(|session| add(&connection, &format!("session{session:02}"), seq, 200)));
    for part in ["", "-wal"] {
        fs::copy(files::with(&path, part), files::with(&killed.path().join("linger.db"), part)).unwrap();
    }
    killed
}

fn copy_of(dir: &TempDir) -> (TempDir, PathBuf) {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("linger.db");
    for part in ["", "-wal"] {
        fs::copy(files::with(&dir.path().join("linger.db"), part), files::with(&path, part)).unwrap();
    }
    (copy, path)
}

fn rows(connection: &Connection) -> BTreeSet<Row> {
    let mut statement = connection.prepare(EVENTS).unwrap();
    let text = |value| match value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        other => panic!("{other:?}"),
    };
    let row = |row: &rusqlite::Row<'_>| Ok(std::array::from_fn(|column| text(row.get(column).unwrap())));
    statement.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// What SQLite reads.
fn read(path: &Path) -> BTreeSet<Row> {
    let connection = Connection::open(path).unwrap();
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    rows(&connection)
}

/// What is found page by page.
fn found(path: &Path) -> BTreeSet<Row> {
    match Source::piece_together(path) {
        Ok(source) => rows(&source.connection),
        Err(Unreadable::Nothing | Unreadable::Empty) => BTreeSet::new(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn of_a_database_that_is_whole_every_event_is_found() {
    let dir = killed();
    let path = dir.path().join("linger.db");
    let expected = read(&path);
    assert_eq!(expected.len(), SESSIONS * 49);
    assert!(found(&path) == expected);
}

#[test]
fn databases_of_every_schema_are_read_and_what_was_deleted_stays_away() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    for version in 1..=SCHEMA {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linger.db");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "auto_vacuum", INCREMENTAL).unwrap();
        let sql = fs::read_to_string(data.join(format!("schema-{version}.sql")));
        connection.execute_batch(&sql.unwrap_or_else(|_| migrate::sql(0, version))).unwrap();
        (1..400).for_each(|seq| add(&connection, "gone", seq, 900));
        let events: i64 = connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
        connection.execute("DELETE FROM event WHERE session = 'gone'", []).unwrap();
        drop(connection);
        let found = found(&path);
        let of = |name: &str| found.iter().filter(|row| row[0].as_deref() == Some(name)).count();
        assert_eq!(of("gone"), 0, "version {version}");
        assert_eq!(found.len() as i64, events - 399, "version {version}");
    }
}

#[test]
fn a_page_that_is_lost_takes_its_own_rows_and_no_others() {
    let original = killed();
    let expected = read(&original.path().join("linger.db"));
    let mut rng = Rng(1);
    let pages = fs::metadata(original.path().join("linger.db")).unwrap().len() as usize / PAGE_SIZE;
    for page in 0..pages {
        let (_dir, path) = copy_of(&original);
        let mut bytes = fs::read(&path).unwrap();
        rng.fill(&mut bytes[page * PAGE_SIZE..][..PAGE_SIZE]);
        fs::write(&path, bytes).unwrap();
        let found = found(&path);
        assert!(found.is_subset(&expected), "page {}", page + 1);
        assert!(found.len() + 60 > expected.len(), "page {}: {} of {}", page + 1, found.len(), expected.len());
    }
}

#[test]
fn a_wal_is_read_as_far_as_sqlite_reads_it() {
    let original = killed();
    let length = fs::metadata(original.path().join("linger.db-wal")).unwrap().len() as usize;
    let mut counts = BTreeSet::new();
    for seed in 0..SEEDS / 8 {
        let (_dir, path) = copy_of(&original);
        let (mut rng, wal) = (Rng(seed), files::with(&path, "-wal"));
        let mut bytes = fs::read(&wal).unwrap();
        match seed % 2 {
            0 => bytes.truncate(rng.below(length)),
            _ => bytes[rng.below(length)] ^= 1 << rng.below(8),
        }
        fs::write(&wal, bytes).unwrap();
        let found = found(&path);
        assert!(found == read(&path), "seed {seed}");
        counts.insert(found.len());
    }
    assert!(counts.len() > 10, "{counts:?}");
}

#[test]
fn whatever_bytes_there_are_nothing_panics_and_nothing_is_read_for_ever() {
    let original = killed();
    for seed in 0..SEEDS {
        let (_dir, path) = copy_of(&original);
        let mut rng = Rng(seed);
        let file = files::with(&path, if rng.below(4) == 0 { "-wal" } else { "" });
        let mut bytes = fs::read(&file).unwrap();
        let length = bytes.len();
        let page = |rng: &mut Rng| rng.below(length / PAGE_SIZE) * PAGE_SIZE;
        match rng.below(5) {
            // Lengths, types, pointers.
            0 => (0..200).for_each(|_| bytes[rng.below(length)] = [0, 0x7f, 0x80, 0xff][rng.below(4)]),
            1 => (0..400).for_each(|_| bytes[rng.below(length)] ^= 1 << rng.below(8)),
            // Headers of pages.
            2 => (0..20).for_each(|_| {
                let at = page(&mut rng);
                rng.fill(&mut bytes[at + 1..][..100]);
            }),
            // Pages at the place of others.
            3 => (0..20).for_each(|_| {
                let (from, to) = (page(&mut rng), page(&mut rng));
                bytes.copy_within(from..from + PAGE_SIZE, to);
            }),
            // Pages that say that they have rows, and have anything.
            _ => (0..20).for_each(|_| {
                let at = page(&mut rng);
                rng.fill(&mut bytes[at..][..PAGE_SIZE]);
                bytes[at] = [0x02, 0x0a, TABLE_LEAF][rng.below(3)];
            }),
        }
        bytes.truncate(length - rng.below(2) * rng.below(length / 2));
        fs::write(&file, bytes).unwrap();
        found(&path);
    }
}
