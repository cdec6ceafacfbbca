//! A repair of databases that are damaged in every way: it comes to its end, and what it leaves has no damage and no other events.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use linger_protocol::event::{Event, EventBody};
use linger_protocol::tree::{Forked, Origin};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::session::actor::{environment, stored};
use crate::session::state::State;
use crate::store::Fold;
use crate::store::files;
use crate::store::open::tests::{copy_of, files, killed_with};
use crate::store::rng::Rng;
use crate::store::write::write_session;

/// How many damaged copies are repaired.
const SEEDS: u64 = 40;

fn set_head(connection: &Connection, session: &str, head: i64) {
    let fold: String =
        connection.query_row("SELECT fold FROM session WHERE id = ?", [session], |row| row.get(0)).unwrap();
    // The state is whole in one column: the database is of the first schema.
    let (body, _) = fold.rsplit_once(",\"sum\":\"").unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&format!("{body}}}")).unwrap();
    state["head"] = head.into();
    let mut fold = state.to_string();
    fold.pop();
    let sum = crc32fast::hash(fold.as_bytes());
    fold += &format!(",\"sum\":\"{sum:08x}\"}}");
    connection.execute("UPDATE session SET fold = ? WHERE id = ?", [&fold, session]).unwrap();
}

/// A database of some sessions, as after a kill.
pub(super) fn killed() -> TempDir {
    killed_with(set_head)
}

/// What of each event is known by its session and number.
fn events(path: &Path) -> BTreeMap<(String, i64), String> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare("SELECT session, seq, data FROM event").unwrap();
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// What is wrong with a database; all of it must be read.
fn findings(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let (findings, complete) = scan(&connection, &Blobs::of(path), || false).unwrap();
    assert!(complete);
    findings.into_iter().map(|(what, session, text)| format!("{what:?} {session:?}: {text}")).collect()
}

/// The blobs of the database that is damaged here have no files.
fn without_blobs(path: &Path) {
    Connection::open(path).unwrap().execute_batch("DELETE FROM blob").unwrap();
}

#[test]
fn whatever_is_damaged_a_repair_leaves_what_can_be_read_and_each_event_its_number() {
    let original = killed();
    let whole = copy_of(&original);
    let mut before = events(&whole.1);
    // One was removed, and stays so.
    before.retain(|(session, _), _| session != "jd6jypey8m");
    let (mut same, mut less) = (0, 0);
    for seed in 0..SEEDS {
        let (_dir, path) = copy_of(&original);
        let mut rng = Rng(seed);
        let file = files::with(&path, if rng.below(4) == 0 { "-wal" } else { "" });
        let mut bytes = fs::read(&file).unwrap();
        match rng.below(4) {
            0 => (0..1 + rng.below(20)).for_each(|_| {
                let at = rng.below(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }),
            1 => {
                let page = rng.below(bytes.len() / 4096) * 4096;
                rng.fill(&mut bytes[page..][..4096]);
            }
            2 => bytes.truncate(rng.below(bytes.len())),
            _ => bytes[..100].fill(0x5a),
        }
        fs::write(&file, bytes).unwrap();
        let found = files(&path);
        let recovered = run(&path).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        assert_eq!(findings(&path), [""; 0], "seed {seed}: {recovered:#?}");
        for damage in recovered.damage.iter().filter(|damage| damage.what == Damaged::Database) {
            let aside = files(damage.file.as_ref().unwrap());
            assert!(aside[""] == found[""], "seed {seed}: what was set aside is what was found");
        }
        let after = events(&path);
        let kept: Vec<_> = before.iter().filter(|(at, data)| after.get(at) == Some(data)).map(|(at, _)| at).collect();
        // Behind the last that is known, as at the end of a WAL that is cut, new ones begin.
        let in_between = |(id, seq): &(String, i64)| kept.iter().any(|(other, later)| other == id && later > seq);
        let is_other = |(at, data): &(&(String, i64), &String)| {
            before.get(at).is_some_and(|was| was != *data) && !data.contains("\"kind\":\"lost\"") && in_between(at)
        };
        assert_eq!(after.iter().filter(is_other).count(), 0, "seed {seed}: an event has another's number");
        if kept.len() == before.len() {
            same += 1
        } else {
            less += 1
        }
        // What was done is not done again.
        assert_eq!(run(&path).unwrap().damage.len(), recovered.damage.iter().filter(|it| it.file.is_some()).count());
        assert!(events(&path) == after, "seed {seed}");
    }
    assert!(same > 3 && less > 3, "{same} with all their events, {less} without some");
}

#[test]
fn a_repair_that_was_cut_short_goes_on_with_what_is_not_here_yet() {
    let (_dir, path) = copy_of(&killed());
    let all = events(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..100].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    run(&path).unwrap();
    without_blobs(&path);
    let after = events(&path);
    let mut aside = aside::list(&path).remove(0);
    // As if the helper had been killed before the last two.
    let connection = Connection::open(&path).unwrap();
    let sql = "SELECT id FROM session ORDER BY id LIMIT 2";
    let gone: Vec<String> =
        connection.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for id in &gone {
        for table in ["event", "question", "scratch", "outcome", "usage", "blob"] {
            connection.execute(&format!("DELETE FROM {table} WHERE session = ?"), [id]).unwrap();
        }
        connection.execute("DELETE FROM session WHERE id = ?", [id]).unwrap();
    }
    drop(connection);
    let carried = aside.report.carried;
    aside.report = Report { settled: false, carried: 0, ..aside.report };
    aside.save().unwrap();
    assert_eq!(run(&path).unwrap().damage[0].carried, carried);
    let again = events(&path);
    assert!(all.iter().all(|(at, data)| again.get(at) == after.get(at) || again.get(at) == Some(data)));
    assert_eq!(again.len(), after.len());
    assert_eq!(findings(&path), [""; 0]);
}

#[test]
fn what_the_user_has_removed_since_does_not_come_back() {
    let (_dir, path) = copy_of(&killed());
    let mut bytes = fs::read(&path).unwrap();
    bytes[..100].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let connection = open::open(&path).unwrap().0;
    connection.execute("INSERT INTO removed VALUES ('37grq28w2p')", []).unwrap();
    drop(connection);
    run(&path).unwrap();
    assert!(events(&path).keys().all(|(session, _)| session != "37grq28w2p"));
    assert!(events(&path).keys().any(|(session, _)| session == "3c725prqhm"));
}

#[test]
fn what_is_missing_of_a_session_is_said_also_by_a_repair_that_is_begun_again() {
    let (_dir, path) = copy_of(&killed());
    let spoil = "UPDATE event SET data = '{' WHERE session = '3c725prqhm' AND seq = 5";
    Connection::open(&path).unwrap().execute(spoil, []).unwrap();
    let left = || run(&path).unwrap().damage.remove(0).left;
    let first = left();
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].session.as_str(), first[0].events + 1), ("3c725prqhm", first[0].of));
    let mut aside = aside::list(&path).remove(0);
    // As if the helper had been killed before it wrote its report.
    aside.report = Report { settled: false, carried: 0, left: Vec::new(), ..aside.report };
    aside.save().unwrap();
    assert_eq!(left(), first);
}

#[test]
fn costs_are_copied_once_also_those_of_removed_sessions() {
    let (_dir, path) = copy_of(&killed());
    let connection = Connection::open(&path).unwrap();
    connection.execute("INSERT INTO usage VALUES (1, '', 'demo/demo', 2, 3, 4, 5, 6, 7, 8, 0)", []).unwrap();
    drop(connection);
    let costs = || -> Vec<(String, i64, Option<i64>)> {
        let connection = Connection::open(&path).unwrap();
        let mut rows =
            connection.prepare("SELECT session, input, cost FROM usage ORDER BY day, session, model").unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = costs();
    let spoil = "UPDATE event SET data = '{' WHERE session = '3c725prqhm' AND seq = 5";
    Connection::open(&path).unwrap().execute(spoil, []).unwrap();
    run(&path).unwrap();
    assert_eq!(costs(), before);
    let mut aside = aside::list(&path).remove(0);
    aside.report = Report { settled: false, ..aside.report };
    aside.save().unwrap();
    run(&path).unwrap();
    assert_eq!(costs(), before);
}

#[test]
fn a_fork_keeps_what_it_shares_whatever_becomes_of_its_origin() {
    for (removed, spoiled) in [(true, false), (false, true), (true, true)] {
        let (_dir, path) = copy_of(&killed());
        let connection = open::open(&path).unwrap().0;
        let (origin, fork, shared) = ("m55bcbgrhy", "forkedfrom", 8);
        let mut state = State::default().before_fork(shared);
        let left = Origin { session: origin.into(), seq: shared };
        let begun = Forked { origin: left, cwd: "/w".into(), model: "demo/demo".to_owned(), ..Forked::default() };
        let body = EventBody::Forked(Box::new(begun));
        let event = Event { body, seq: Some(shared + 1), at: 1, turn: None };
        state.apply(&event);
        let folds = [state.to_fold(), Fold::Shared(origin.to_owned(), shared), environment(&BTreeMap::new())];
        write_session(&connection, fork, &[], &[Arc::new(stored(&event).unwrap())], &folds).unwrap();
        if removed {
            connection.execute("INSERT INTO removed VALUES (?)", [origin]).unwrap();
            connection.execute("DELETE FROM session WHERE id = ?", [origin]).unwrap();
        }
        if spoiled {
            connection.execute("UPDATE event SET data = '{' WHERE session = ? AND seq = 7", [origin]).unwrap();
        }
        // Something of another session, so that there is a repair in each case.
        connection.execute("UPDATE event SET data = '{' WHERE session = 'hmp369g2kx' AND seq = 20", []).unwrap();
        drop(connection);
        let before = events(&path);
        run(&path).unwrap();
        let after = events(&path);
        for seq in 5..=shared as i64 {
            let (was, is) = (&before[&(origin.to_owned(), seq)], &after[&(fork.to_owned(), seq)]);
            if spoiled && seq == 7 {
                assert!(is.contains("\"kind\":\"lost\""), "{is}");
            } else {
                assert_eq!(is, was);
            }
        }
        assert!(after[&(fork.to_owned(), shared as i64 + 1)].contains("\"kind\":\"forked\""));
        assert_eq!(after.keys().any(|(session, _)| session == origin), !removed);
        let connection = Connection::open(&path).unwrap();
        let rows: i64 = connection.query_row("SELECT count(*) FROM shared", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "the events were copied");
    }
}
