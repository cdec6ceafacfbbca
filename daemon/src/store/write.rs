//! The writing thread: commits a group, publishes it, answers, then wakes readers.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use rusqlite::{Connection, params};
use tokio::sync::watch;

use super::ahead::Ahead;
use super::append::{Append, Change, Done, Fold, StateRow, Write};
use super::blob::Held;
use super::damage::KnownDamage;
use super::error::StoreError;
use super::event_row::sum;
use super::intact::Intact;
use super::parts;
use super::upkeep::{self, Upkeep};
use super::usage;
use crate::fault;
use crate::log::{Log, Piece, Stored};
use crate::store::idempotency::Outcome;
use crate::sys::clock;

/// How many outcomes of keyed requests are kept, newest first: some 4 MB. A request is repeated within minutes; at a hundred
/// requests a day they last half a year.
const MAX_OUTCOMES: i64 = 20_000;

/// The idle time before the WAL is extended: a client of a freshly started daemon writes within milliseconds and would wait.
const QUIET: Duration = Duration::from_millis(20);

/// The most appends in one transaction; more would delay the first.
const MAX_GROUP: usize = 256;

pub(super) fn run(
    connection: &Connection,
    writes: &mpsc::Receiver<Write>,
    mut upkeep: Upkeep,
    mut ahead: Ahead,
    found: &KnownDamage,
    grown: &watch::Sender<()>,
    intact: Arc<Intact>,
) {
    let mut synced = Synced { on: false, intact };
    while let Some(first) = next_write(connection, writes, &mut upkeep, &mut ahead, &mut synced) {
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(Write::Append(append)) = next {
            group.push(*append);
            next = if group.len() < MAX_GROUP { writes.try_recv().ok() } else { None };
        }
        if !group.is_empty() {
            let gives_up = group.iter().flat_map(|append| &append.folds).any(|fold| matches!(fold, Fold::GiveUp(_)));
            let has_events = group.iter().any(|append| !append.events.is_empty());
            commit_group(connection, group, &mut synced, found);
            if has_events {
                grown.send_replace(());
            }
            if gives_up {
                upkeep.wake();
            }
        }
        match next {
            Some(Write::Remove(log, outcomes, done)) => {
                remove(connection, &log, &outcomes, done, &mut synced);
                grown.send_replace(());
                upkeep.wake();
            }
            Some(Write::Outcome(outcome, done)) => {
                let result =
                    set_sync(connection, true, &mut synced).and_then(|()| remember_alone(connection, &outcome));
                // The caller may be gone.
                let _unheard = done.send(result);
            }
            Some(Write::Change(change, sync, done)) => {
                let result = set_sync(connection, sync, &mut synced).and_then(|()| change_alone(connection, change));
                // The caller may be gone.
                let _unheard = done.send(result);
                // An artifact that left may leave a blob that nothing uses.
                upkeep.wake();
            }
            Some(Write::Close(done)) => {
                upkeep.close();
                return close(connection, done);
            }
            Some(Write::Append(_)) | None => {}
        }
    }
}

/// The next write; does upkeep until there is one.
fn next_write(
    connection: &Connection,
    writes: &mpsc::Receiver<Write>,
    upkeep: &mut Upkeep,
    ahead: &mut Ahead,
    synced: &mut Synced,
) -> Option<Write> {
    let mut step = |upkeep: &mut Upkeep| {
        // Upkeep needs no sync. If this fails, the step fails too, or is only slower.
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
fn commit_group(connection: &Connection, group: Vec<Append>, synced: &mut Synced, found: &KnownDamage) {
    let sync = group.iter().any(|append| append.sync);
    if fault::bug("I1") {
        for early in &group {
            early.log.publish(&early.pieces, early.events.clone());
            early.log.wake();
        }
    }
    if let Err(error) = set_sync(connection, sync, synced).and_then(|()| commit(connection, &group)) {
        if group.len() == 1 {
            return finish(group, &Err(error), found);
        }
        for append in group {
            let result = set_sync(connection, append.sync, synced)
                .and_then(|()| commit(connection, std::slice::from_ref(&append)));
            finish(vec![append], &result, found);
        }
        return;
    }
    finish(group, &Ok(()), found);
}

/// The sync mode, and the checks before a synced commit.
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

fn commit(connection: &Connection, group: &[Append]) -> Result<(), StoreError> {
    if let Some(append) = group.iter().find(|append| append.log.failed()) {
        // Its seqs follow events that were never stored.
        return Err(StoreError(format!("an earlier write of session {} failed", append.log.session).into()));
    }
    let kinds = || {
        let pieces = group.iter().filter(|append| !append.pieces.is_empty()).map(|_| "pieces");
        pieces.chain(group.iter().flat_map(|append| append.events.iter().map(|event| event.kind.as_str())))
    };
    fault::store()?;
    let transaction = connection.unchecked_transaction()?;
    for append in group {
        let Append { log, pieces, events, folds, .. } = append;
        write_session(&transaction, log.session.as_str(), pieces, events, folds)?;
    }
    fault::commit("before", kinds());
    fault::store()?;
    transaction.commit()?;
    fault::commit("after", kinds());
    Ok(())
}

/// Publishes first, so that a client which attaches after its answer finds the event; answers next, so that a caller hears of its
/// request before readers are woken for its event.
fn finish(group: Vec<Append>, result: &Result<(), StoreError>, found: &KnownDamage) {
    for append in group {
        match result {
            Ok(()) => {}
            Err(error) => {
                // Later appends fail too; the session's actor retries and reports.
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
                    found.session(&append.log.session, &format!("cannot write it: {}", error.0));
                    found.database(&format!("found damage while writing: {}", error.0));
                }
            }
        }
        fault::point("store.before_answer");
        if result.is_ok() && !fault::bug("I1") {
            append.log.publish(&append.pieces, append.events);
        }
        if result.is_ok() {
            append.folds.iter().for_each(|fold| {
                if let Fold::Blob(held) | Fold::Content(held, _) = fold {
                    held.committed();
                }
            });
        }
        if let Some(done) = append.done {
            // The turn or client may be gone; the commit stands.
            let _unheard = done.send(result.clone());
        }
        fault::point("store.after_answer");
        if result.is_ok() && !fault::bug("I1") {
            append.log.wake();
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
        connection
            .prepare_cached(
                "INSERT INTO scratch (session, stream, block, offset, kind, text) VALUES (?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![session, piece.stream, piece.block, piece.offset as i64, piece.kind.name(), piece.text])?;
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

/// `bytes`: the size of the append's events, added to the session's size.
fn write_fold(connection: &Connection, session: &str, fold: &Fold, bytes: i64) -> rusqlite::Result<()> {
    match fold {
        Fold::Session { name, cwd, state, updated_at, head, rows, parent } => {
            write_rows(connection, session, rows)?;
            // Set the name only if it changed, because each set writes its index.
            let update = |set: &str, and: &str| {
                let sql = format!(
                    "UPDATE session SET state = ?3, updated_at = ?4, fold = ?5, size = size + ?6, cwd = ?7{set}
                     WHERE id = ?1{and}"
                );
                let values = params![session, name, state, *updated_at as i64, head, bytes, cwd];
                connection.prepare_cached(&sql)?.execute(values)
            };
            let mut known = update("", " AND name IS ?2")?;
            if known == 0 {
                known = update(", name = ?2", "")?;
            }
            if known > 0 {
                return Ok(());
            }
            // A new session has one event; a carried over one has all of them, and its blobs.
            let sql = format!(
                "INSERT INTO session (id, name, cwd, state, updated_at, env, fold, parent, size)
                 VALUES (?1, ?2, ?3, ?4, ?5, '{{}}', ?6, ?7, {SIZE})"
            );
            let values = params![session, name, cwd, state, *updated_at as i64, head, parent];
            connection.prepare_cached(&sql)?.execute(values)?
        }
        Fold::Shared(origin, seq) => parts::share(connection, session, origin, *seq)?,
        Fold::Environment(env) => {
            connection.prepare_cached("UPDATE session SET env = ? WHERE id = ?")?.execute(params![env, session])?
        }
        Fold::Asked(pending) => connection
            .prepare_cached("INSERT INTO question (id, session, asked) VALUES (?, ?, ?)")?
            .execute(params![pending.question.as_str(), session, json(pending)?])?,
        Fold::Answered { question, answer, by, at } => connection
            .prepare_cached(
                "UPDATE question SET answer = ?, answered_by = ?, answered_at = ? WHERE id = ? AND answer IS NULL",
            )?
            .execute(params![json(answer)?, by, *at as i64, question.as_str()])?,
        Fold::Blob(held) => use_blob(connection, session, held, None)?,
        Fold::Content(held, seq) => use_blob(connection, session, held, Some(*seq as i64))?,
        Fold::GiveUp(seq) => give_up(connection, session, *seq as i64)?,
        Fold::Spent(spent) => usage::add(connection, session, spent)?,
        Fold::Outcome(outcome) => return remember(connection, session, outcome),
        Fold::Unencodable(why) => return Err(unencodable(why)),
    };
    Ok(())
}

/// Writes the changed families of a session's state; the others stay.
fn write_rows(connection: &Connection, session: &str, rows: &[StateRow]) -> rusqlite::Result<()> {
    for (name, text) in rows {
        match text {
            Some(text) => connection
                .prepare_cached("INSERT OR REPLACE INTO family (session, name, data) VALUES (?, ?, ?)")?
                .execute(params![session, name, text])?,
            None => connection
                .prepare_cached("DELETE FROM family WHERE session = ? AND name = ?")?
                .execute(params![session, name])?,
        };
    }
    Ok(())
}

/// The session uses a blob; one with a `seq` may be given up later.
fn use_blob(connection: &Connection, session: &str, held: &Held, seq: Option<i64>) -> rusqlite::Result<usize> {
    let (hash, size) = (held.id().as_str(), held.size() as i64);
    let new = connection
        .prepare_cached("INSERT OR IGNORE INTO blob (session, hash, size, seq) VALUES (?, ?, ?, ?)")?
        .execute(params![session, hash, size, seq])?;
    if new == 0 {
        // Of a null the maximum is null.
        return connection
            .prepare_cached("UPDATE blob SET seq = max(seq, ?) WHERE session = ? AND hash = ? AND seq IS NOT NULL")?
            .execute(params![seq, session, hash]);
    }
    connection.prepare_cached("UPDATE session SET size = size + ? WHERE id = ?")?.execute(params![size, session])
}

/// The session gives up contents of files; upkeep deletes those that no other session uses.
fn give_up(connection: &Connection, session: &str, seq: i64) -> rusqlite::Result<usize> {
    for sql in [
        "INSERT OR IGNORE INTO stray (hash) SELECT hash FROM blob WHERE session = ?1 AND seq <= ?2",
        "UPDATE session SET size = size - (SELECT coalesce(sum(size), 0) FROM blob WHERE session = ?1 AND seq <= ?2)
         WHERE id = ?1",
    ] {
        connection.prepare_cached(sql)?.execute(params![session, seq])?;
    }
    connection.prepare_cached("DELETE FROM blob WHERE session = ? AND seq <= ?")?.execute(params![session, seq])
}

/// Stores an outcome, and deletes the oldest beyond the bound.
fn remember(connection: &Connection, session: &str, outcome: &Outcome) -> rusqlite::Result<()> {
    let Outcome { key, result } = outcome;
    let result = result.as_ref().map_err(|why| unencodable(why))?;
    connection
        .prepare_cached("INSERT INTO outcome (key, session, params, result, at) VALUES (?, ?, ?, ?, ?)")?
        .execute(params![key.id, session, key.params, result, clock::now() as i64])?;
    // Row ids only grow, so this deletes at most one row, by its id.
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

fn change_alone(connection: &Connection, change: Change) -> Result<(), StoreError> {
    let transaction = connection.unchecked_transaction()?;
    change(&transaction)?;
    Ok(transaction.commit()?)
}

fn close(connection: &Connection, done: Done) {
    fault::point("store.close");
    let checkpoint = connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()));
    fault::point("store.closed");
    // The closer of the store may be gone; then the next start checkpoints the WAL.
    let _unheard = done.send(checkpoint.map_err(StoreError::from));
}

fn remove(connection: &Connection, log: &Arc<Log>, outcomes: &[Outcome], done: Done, synced: &mut Synced) {
    fault::point("store.before_remove");
    let result = (|| {
        set_sync(connection, true, synced)?;
        let transaction = connection.unchecked_transaction()?;
        upkeep::mark_removed(&transaction, log.session.as_str())?;
        // Keep the outcomes without the session, so that a repeated request gets its answer.
        for outcome in outcomes {
            remember(&transaction, "", outcome)?;
        }
        Ok(transaction.commit()?)
    })();
    fault::point("store.after_remove");
    if result.is_ok() {
        log.remove();
    }
    // The client may be gone.
    let _unheard = done.send(result);
}

/// The JSON of a value; the write fails if it cannot be encoded.
fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// The error of a write of what could not be encoded, for this reason.
fn unencodable(why: &str) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(why.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use linger_protocol::id::SessionId;
    use tokio::sync::oneshot;

    use super::*;

    /// Keeps where the log ended when an answer came.
    struct Looks(Arc<Log>, AtomicU64);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.tail().head, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_answered_can_be_read_and_readers_are_woken_afterwards() {
        let log = Log::new(SessionId::from("s"), 0, Vec::new());
        let looks = Arc::new(Looks(log.clone(), AtomicU64::new(0)));
        let (waker, readers) = (Waker::from(looks.clone()), log.subscribe());
        let (done, mut answer) = oneshot::channel();
        assert!(std::pin::Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)).is_pending());
        let events =
            vec![Arc::new(Stored { seq: 1, at: 0, kind: "notice".to_owned(), stream: None, data: "{}".to_owned() })];
        let (pieces, folds) = (Vec::new(), Vec::new());
        let append = Append { log, events, turn: None, pieces, folds, sync: false, done: Some(done) };
        finish(vec![append], &Ok(()), &KnownDamage::default());
        assert_eq!(looks.1.load(Ordering::Relaxed), 1);
        assert!(matches!(
            std::pin::Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)),
            Poll::Ready(Ok(Ok(())))
        ));
        assert!(readers.has_changed().unwrap());
    }
}
