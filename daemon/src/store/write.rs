//! The writing thread: group commit, then answer, then show.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use rusqlite::{Connection, params};

use super::ahead::Ahead;
use super::damage::Found;
use super::event_row::sum;
use super::intact::Intact;
use super::scratch::{self, Recent};
use super::upkeep::{self, Upkeep};
use super::usage;
use super::{Append, Done, Fold, StoreError, Write};
use crate::fault;
use crate::log::{Log, Piece, Stored};
use crate::store::idempotency::Outcome;
use crate::sys::clock;

/// Outcomes of keyed requests that are kept, the newest: some 4 MB. A request is sent again within seconds or minutes, in which
/// nobody makes so many others; at a hundred a day they last for half a year.
const MAX_OUTCOMES: i64 = 20_000;

/// How long nothing is to be written before room is made in the WAL: what a client does at a daemon that has just started, which
/// would wait for that, comes in a few milliseconds.
const QUIET: Duration = Duration::from_millis(20);

/// Appends in one transaction; more would make the first of them wait.
const MAX_GROUP: usize = 256;

pub(super) fn run(
    connection: &Connection,
    writes: &mpsc::Receiver<Write>,
    mut upkeep: Upkeep,
    mut ahead: Ahead,
    found: &Found,
    intact: Arc<Intact>,
) {
    let (mut synced, mut recent) = (Synced { on: false, intact }, Recent::default());
    while let Some(first) = next_write(connection, writes, &mut upkeep, &mut ahead, &mut synced) {
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(Write::Append(append)) = next {
            group.push(*append);
            next = if group.len() < MAX_GROUP { writes.try_recv().ok() } else { None };
        }
        if !group.is_empty() {
            commit_group(connection, group, &mut synced, &mut recent, found);
        }
        match next {
            Some(Write::Remove(log, outcomes, done)) => {
                remove(connection, &log, &outcomes, done, &mut synced);
                upkeep.wake();
            }
            Some(Write::Outcome(outcome, done)) => {
                let result =
                    set_sync(connection, true, &mut synced).and_then(|()| remember_alone(connection, &outcome));
                // Whoever asked may have gone.
                let _unheard = done.send(result);
            }
            Some(Write::Close(done)) => {
                upkeep.close();
                return close(connection, done);
            }
            Some(Write::Append(_)) | None => {}
        }
    }
}

/// What is to be written next; what is left to do is done until there is something.
fn next_write(
    connection: &Connection,
    writes: &mpsc::Receiver<Write>,
    upkeep: &mut Upkeep,
    ahead: &mut Ahead,
    synced: &mut Synced,
) -> Option<Write> {
    let mut step = |upkeep: &mut Upkeep| {
        // Nobody waits for it to be on disk. If this fails, so does the step, or it is only slower.
        let _slower = set_sync(connection, false, synced);
        upkeep.step(connection);
    };
    if upkeep.is_overdue() {
        step(upkeep);
    }
    while upkeep.is_due() {
        match writes.try_recv() {
            Ok(write) => return Some(write),
            Err(mpsc::TryRecvError::Empty) => step(upkeep),
            Err(mpsc::TryRecvError::Disconnected) => return None,
        }
    }
    match writes.try_recv() {
        Err(mpsc::TryRecvError::Empty) if ahead.is_short() => match writes.recv_timeout(QUIET) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                ahead.keep(connection);
                writes.recv().ok()
            }
            write => write.ok(),
        },
        Err(mpsc::TryRecvError::Empty) => writes.recv().ok(),
        write => write.ok(),
    }
}

/// Commits all in one transaction; if that fails, each in one of its own, so that one bad append harms only its session.
fn commit_group(connection: &Connection, group: Vec<Append>, synced: &mut Synced, recent: &mut Recent, found: &Found) {
    let sync = group.iter().any(|append| append.sync);
    if fault::bug("I1") {
        group.iter().for_each(|early| early.log.publish(&early.pieces, early.events.clone()));
    }
    if let Err(error) = set_sync(connection, sync, synced).and_then(|()| commit(connection, &group, recent)) {
        if group.len() == 1 {
            return finish(group, &Err(error), found);
        }
        for append in group {
            let result = set_sync(connection, append.sync, synced)
                .and_then(|()| commit(connection, std::slice::from_ref(&append), recent));
            finish(vec![append], &result, found);
        }
        return;
    }
    finish(group, &Ok(()), found);
}

/// Whether commits are synced, and what is looked at before one that is.
struct Synced {
    on: bool,
    intact: Arc<Intact>,
}

fn set_sync(connection: &Connection, sync: bool, synced: &mut Synced) -> Result<(), StoreError> {
    if sync {
        synced.intact.check()?;
    }
    if sync != synced.on {
        connection.pragma_update(None, "synchronous", if sync { "FULL" } else { "NORMAL" })?;
        synced.on = sync;
    }
    Ok(())
}

fn commit(connection: &Connection, group: &[Append], recent: &mut Recent) -> Result<(), StoreError> {
    if let Some(append) = group.iter().find(|append| append.log.failed()) {
        // Its numbers follow events that were never stored.
        return Err(StoreError(format!("an earlier write of session {} failed", append.log.session).into()));
    }
    fault::store()?;
    let transaction = connection.unchecked_transaction()?;
    let more = recent.make_room(&transaction, group.iter().map(|append| append.pieces.len()).sum())?;
    for append in group {
        let Append { log, pieces, events, folds, .. } = append;
        write_session(&transaction, log.session.as_str(), pieces, events, folds)?;
    }
    fault::commit("before", group);
    fault::store()?;
    transaction.commit()?;
    *recent = more;
    fault::commit("after", group);
    Ok(())
}

/// Answers first: whoever asked is told before the event that it caused goes round.
fn finish(group: Vec<Append>, result: &Result<(), StoreError>, found: &Found) {
    for append in group {
        match result {
            Ok(()) => {}
            Err(error) => {
                // What follows fails too, and is tried again by whoever keeps the session, who says how that goes on.
                let first = !append.log.failed();
                let new = if first && !error.is_damage() {
                    append.log.fail_for_now(&error.0.to_string())
                } else {
                    append.log.fail();
                    first
                };
                if new {
                    tracing::error!(target: "store", session = %append.log.session, %error, "write failed");
                }
                if error.is_damage() {
                    found.session(&append.log.session, &format!("it cannot be written: {}", error.0));
                    found.database(&format!("writing meets damage: {}", error.0));
                }
            }
        }
        fault::point("store.before_answer");
        if result.is_ok() {
            append.folds.iter().for_each(|fold| {
                if let Fold::Blob(held) = fold {
                    held.committed();
                }
            });
        }
        if let Some(done) = append.done {
            // The turn or client that asked may have gone; the commit stands.
            let _unheard = done.send(result.clone());
        }
        fault::point("store.after_answer");
        if result.is_ok() && !fault::bug("I1") {
            append.log.publish(&append.pieces, append.events);
        }
        fault::point("store.after_publish");
    }
}

/// Writes events and what is folded from them, within the caller's transaction.
pub(crate) fn write_session(
    connection: &Connection,
    session: &str,
    pieces: &[Piece],
    events: &[Arc<Stored>],
    folds: &[Fold],
) -> rusqlite::Result<()> {
    for piece in pieces {
        fault::store()?;
        scratch::add(connection, session, piece)?;
    }
    for event in events {
        fault::store()?;
        connection
            .prepare_cached(
                "INSERT INTO event (n, session, seq, at, kind, stream, data, sum) VALUES
                 (1 + max((SELECT n FROM numbered), (SELECT coalesce(max(n), 0) FROM event)), ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                session,
                event.seq as i64,
                event.at as i64,
                event.kind,
                event.stream,
                event.data,
                sum(session.as_bytes(), &event.data)
            ])?;
        if let Some(stream) = &event.stream {
            connection
                .prepare_cached("DELETE FROM scratch WHERE session = ? AND stream = ?")?
                .execute(params![session, stream])?;
        }
    }
    let bytes = events.iter().map(|event| event.data.len() as i64).sum();
    for fold in folds {
        fault::store()?;
        write_fold(connection, session, fold, bytes)?;
    }
    Ok(())
}

/// Bytes of the events and blobs of session `?1`.
pub(crate) const SIZE: &str = "(SELECT coalesce(sum(octet_length(data)), 0) FROM event WHERE session = ?1)
     + (SELECT coalesce(sum(size), 0) FROM blob WHERE session = ?1)";

/// `bytes`: what the events of the same append have, by which the session grows.
fn write_fold(connection: &Connection, session: &str, fold: &Fold, bytes: i64) -> rusqlite::Result<()> {
    match fold {
        Fold::Session { name, cwd, state, updated_at, fold, parent } => {
            // A name is in an index of its own, which would be written each time if it were set each time.
            let update = |set: &str, and: &str| {
                let sql = format!(
                    "UPDATE session SET state = ?3, updated_at = ?4, fold = ?5, size = size + ?6, cwd = ?7{set}
                     WHERE id = ?1{and}"
                );
                let values = params![session, name, state, *updated_at as i64, fold, bytes, cwd];
                connection.prepare_cached(&sql)?.execute(values)
            };
            let mut known = update("", " AND name IS ?2")?;
            if known == 0 {
                known = update(", name = ?2", "")?;
            }
            if known > 0 {
                return Ok(());
            }
            // A new one has one event; one that is carried over has all of them, and its blobs.
            let sql = format!(
                "INSERT INTO session (id, name, cwd, state, updated_at, env, fold, parent, size)
                 VALUES (?1, ?2, ?3, ?4, ?5, '{{}}', ?6, ?7, {SIZE})"
            );
            let values = params![session, name, cwd, state, *updated_at as i64, fold, parent];
            connection.prepare_cached(&sql)?.execute(values)?
        }
        Fold::Environment(env) => {
            connection.prepare_cached("UPDATE session SET env = ? WHERE id = ?")?.execute(params![env, session])?
        }
        Fold::Asked(pending) => connection
            .prepare_cached("INSERT INTO question (id, session, asked) VALUES (?, ?, ?)")?
            .execute(params![pending.question.as_str(), session, json(pending)])?,
        Fold::Answered { question, answer, by, at } => connection
            .prepare_cached(
                "UPDATE question SET answer = ?, answered_by = ?, answered_at = ? WHERE id = ? AND answer IS NULL",
            )?
            .execute(params![json(answer), by, *at as i64, question.as_str()])?,
        Fold::Blob(held) => {
            let size = held.size() as i64;
            let new = connection
                .prepare_cached("INSERT OR IGNORE INTO blob (session, hash, size) VALUES (?, ?, ?)")?
                .execute(params![session, held.id().as_str(), size])?;
            let grown = if new > 0 { size } else { 0 };
            connection
                .prepare_cached("UPDATE session SET size = size + ? WHERE id = ?")?
                .execute(params![grown, session])?
        }
        Fold::Spent(spent) => usage::add(connection, session, spent)?,
        Fold::Outcome(outcome) => return remember(connection, session, outcome),
    };
    Ok(())
}

/// Writes an outcome down, and forgets the one that is the oldest by now.
fn remember(connection: &Connection, session: &str, outcome: &Outcome) -> rusqlite::Result<()> {
    let Outcome { key, result } = outcome;
    connection
        .prepare_cached("INSERT INTO outcome (key, session, params, result, at) VALUES (?, ?, ?, ?, ?)")?
        .execute(params![key.id, session, key.params, result, clock::now() as i64])?;
    // Numbers only grow while there is anything, so this is one row at most, found by its number.
    connection
        .prepare_cached("DELETE FROM outcome WHERE n <= ?")?
        .execute([connection.last_insert_rowid() - MAX_OUTCOMES])?;
    Ok(())
}

fn remember_alone(connection: &Connection, outcome: &Outcome) -> Result<(), StoreError> {
    let transaction = connection.unchecked_transaction()?;
    remember(&transaction, "", outcome)?;
    Ok(transaction.commit()?)
}

fn close(connection: &Connection, done: Done) {
    fault::point("store.close");
    let checkpoint = connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()));
    fault::point("store.closed");
    // Whoever closes the store waits for the answer; if not, the WAL is moved at the next start.
    let _unheard = done.send(checkpoint.map_err(StoreError::from));
}

fn remove(connection: &Connection, log: &Arc<Log>, outcomes: &[Outcome], done: Done, synced: &mut Synced) {
    fault::point("store.before_remove");
    let result = (|| {
        set_sync(connection, true, synced)?;
        let transaction = connection.unchecked_transaction()?;
        upkeep::mark_removed(&transaction, log.session.as_str())?;
        // Whoever asks again is told that it was done, though nothing is left that could tell: it is no session's any more.
        for outcome in outcomes {
            remember(&transaction, "", outcome)?;
        }
        Ok(transaction.commit()?)
    })();
    fault::point("store.after_remove");
    if result.is_ok() {
        log.remove();
    }
    // The client that asked may have gone.
    let _unheard = done.send(result);
}

/// JSON of a type whose serialisation cannot fail.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
