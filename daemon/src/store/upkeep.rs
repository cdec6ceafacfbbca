//! The idle work of the writing thread: deleting the rows of removed sessions and the files of unused blobs, and shrinking the
//! database.
//!
//! Each step is a small transaction, so that the next write waits for a few milliseconds at most. The remaining work is in the
//! database (`removed`, `stray`, the list of free pages), so a restarted daemon continues it. Without work the thread sleeps.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linger_protocol::id::BlobId;
use rusqlite::{Connection, params};

use super::damage::KnownDamage;
use super::error::StoreError;
use super::open::PATIENCE;
use super::{artifact, aside, parts, usage};
use crate::fault;
use crate::store::blob::{Blobs, Discarded};

/// Rows that one step deletes at most, and bytes of events: about a millisecond of work.
const ROWS: i64 = 256;
const BYTES: i64 = 1 << 20;

/// Pages that one step returns to the file system; it moves as many from the end of the file.
const PAGES: i64 = 256;

/// Free pages that are kept for the next writes.
const SPARE: i64 = 64;

/// Under a constant load of writes, a step runs at least this often.
const TURN: Duration = Duration::from_millis(50);

/// How long shrinking waits for readers: one takes less than a millisecond. After that it is put off.
const READERS: Duration = Duration::from_millis(20);

/// The pause after a failed step, such as on a full disk.
const PAUSE: Duration = Duration::from_secs(60);

/// The remaining work.
pub(super) struct Upkeep {
    /// The database.
    path: PathBuf,
    blobs: Blobs,
    found: KnownDamage,
    next: Step,
    /// When the last step ended.
    last: Instant,
    /// The end of the pause after a failed step.
    paused: Option<Instant>,
    /// Removed sessions that are left to the next start: their rows are damaged, or a set-aside database has them too, so that
    /// their mark must stay.
    later: BTreeSet<String>,
    /// Removed sessions of which forks have events: what is left of them stays until a fork is removed.
    forked: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Find the blobs that a killed daemon held.
    Sweep,
    Rows,
    Strays,
    Pages,
    Nothing,
}

impl Upkeep {
    pub(super) fn new(path: &Path, blobs: Blobs, found: KnownDamage) -> Self {
        let (path, later, forked) = (path.to_path_buf(), BTreeSet::new(), BTreeSet::new());
        Self { path, blobs, found, next: Step::Sweep, last: Instant::now(), paused: None, later, forked }
    }

    /// Ends the work: no writes follow.
    pub(super) fn close(&self) {
        self.blobs.close();
    }

    /// Continues the work after a removal.
    pub(super) fn wake(&mut self) {
        if self.next != Step::Sweep {
            self.next = Step::Rows;
        }
        self.forked.clear();
        self.paused = None;
    }

    /// Whether a step should run while the thread is idle.
    pub(super) fn is_due(&self) -> bool {
        self.next != Step::Nothing && self.paused.is_none_or(|until| Instant::now() >= until)
    }

    /// Whether a step should run before the next write.
    pub(super) fn is_overdue(&self) -> bool {
        self.is_due() && self.last.elapsed() >= TURN
    }

    /// Runs one step.
    pub(super) fn step(&mut self, connection: &Connection) {
        self.paused = None;
        fault::point("upkeep.before_step");
        match self.run(connection) {
            Ok(next) => self.next = next,
            Err(error) => {
                tracing::warn!(target: "store", step = ?self.next, %error, "deleting removed rows failed, and is tried again later");
                if error.is_damage() {
                    self.found.database(&format!("found damage while deleting: {}", error.0));
                }
                self.paused = Some(Instant::now() + PAUSE);
            }
        }
        fault::point("upkeep.stepped");
        self.last = Instant::now();
    }

    fn run(&mut self, connection: &Connection) -> Result<Step, StoreError> {
        match self.next {
            Step::Sweep => {
                if aside::keeps_blobs(&self.path) {
                    // The sessions of a set-aside database may use blobs that no session here uses.
                    return Ok(Step::Rows);
                }
                if let Err(error) = self.sweep(connection) {
                    // It costs only space; the next start tries again.
                    tracing::warn!(target: "store", %error, "cannot search for unused blobs");
                }
                Ok(Step::Rows)
            }
            Step::Rows => Ok(if self.delete_rows(connection)? { Step::Rows } else { Step::Strays }),
            // As above; the next removal or start tries again.
            Step::Strays if aside::keeps_blobs(&self.path) => Ok(Step::Pages),
            Step::Strays => Ok(if self.delete_strays(connection)? { Step::Strays } else { Step::Pages }),
            Step::Pages => Ok(if self.give_back(connection)? { Step::Pages } else { Step::Nothing }),
            Step::Nothing => Ok(Step::Nothing),
        }
    }

    fn sweep(&self, connection: &Connection) -> Result<(), StoreError> {
        let (ids, dirs) = self.blobs.left_behind()?;
        let transaction = connection.unchecked_transaction()?;
        for id in ids {
            transaction.prepare_cached("INSERT OR IGNORE INTO stray (hash) VALUES (?)")?.execute([id.as_str()])?;
        }
        transaction.commit()?;
        delete_files(dirs);
        Ok(())
    }

    /// Deletes some rows of a removed session; whether more may be left.
    fn delete_rows(&mut self, connection: &Connection) -> Result<bool, StoreError> {
        let Some(session) = self.next_removed(connection)? else { return Ok(false) };
        match delete_rows_of(connection, &session) {
            Ok(true) => {}
            Ok(false) if aside::keeps_blobs(&self.path) => {
                self.later.insert(session);
            }
            Ok(false) if parts::needed(connection, &session)? > 0 => {
                self.forked.insert(session);
            }
            Ok(false) => {
                connection.execute("DELETE FROM removed WHERE session = ?", [&session])?;
                tracing::debug!(target: "store", session, "all rows deleted");
            }
            Err(error) if error.is_damage() => {
                tracing::warn!(target: "store", session, %error, "cannot delete the rows of a removed session");
                self.found.database(&format!("found damage while deleting: {}", error.0));
                self.later.insert(session);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn next_removed(&self, connection: &Connection) -> Result<Option<String>, StoreError> {
        let mut statement = connection.prepare_cached("SELECT session FROM removed")?;
        let mut removed = statement.query([])?;
        while let Some(row) = removed.next()? {
            let session: String = row.get(0)?;
            if !self.later.contains(&session) && !self.forked.contains(&session) {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    /// Deletes some unused blobs; whether more may be left.
    fn delete_strays(&self, connection: &Connection) -> Result<bool, StoreError> {
        let transaction = connection.unchecked_transaction()?;
        let strays: Vec<String> = transaction
            .prepare_cached("SELECT hash FROM stray LIMIT ?")?
            .query_map([ROWS], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let (mut gone, mut settled) = (Vec::new(), 0);
        for hash in &strays {
            let used = || -> Result<bool, StoreError> {
                Ok(transaction.prepare_cached("SELECT 1 FROM blob WHERE hash = ? LIMIT 1")?.exists([hash])?)
            };
            match self.blobs.discard(&BlobId(hash.clone()), used, &mut gone) {
                Ok(Discarded::Settled) => {
                    transaction.prepare_cached("DELETE FROM stray WHERE hash = ?")?.execute([hash])?;
                    settled += 1;
                }
                Ok(Discarded::Held) => {}
                Err(error) => tracing::warn!(target: "store", blob = hash, %error, "cannot be deleted"),
            }
        }
        transaction.commit()?;
        delete_files(gone);
        // Held ones are left to the next removal or start.
        Ok(settled > 0 && strays.len() as i64 == ROWS)
    }

    /// Returns some free pages to the file system; whether more are left.
    fn give_back(&mut self, connection: &Connection) -> Result<bool, StoreError> {
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        if pragma("freelist_count")? <= SPARE {
            return Ok(false);
        }
        // Each row that is read returns one page.
        let mut statement = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        if pragma("freelist_count")? > SPARE {
            return Ok(true);
        }
        // The file shrinks when the whole WAL is moved into it, which readers delay.
        connection.busy_timeout(READERS)?;
        let moved = connection.pragma_update_and_check(None, "wal_checkpoint", "FULL", |_| Ok(()));
        connection.busy_timeout(PATIENCE)?;
        moved?;
        Ok(false)
    }
}

/// Marks a session as removed, within the caller's transaction; its other rows are deleted later.
pub(super) fn mark_removed(connection: &Connection, session: &str) -> rusqlite::Result<()> {
    connection.execute("UPDATE numbered SET n = max(n, (SELECT coalesce(max(n), 0) FROM event))", [])?;
    connection.execute("INSERT OR IGNORE INTO removed (session) VALUES (?)", [session])?;
    connection.execute("DELETE FROM session WHERE id = ?", [session])?;
    connection.execute("DELETE FROM family WHERE session = ?", [session])?;
    // Lists of pending questions do not look at the session.
    let waiting = "DELETE FROM question INDEXED BY question_open WHERE session = ? AND answer IS NULL";
    connection.execute(waiting, [session])?;
    usage::release(connection, session)?;
    parts::unshare(connection, session)?;
    artifact::delete_of(connection, session, parts::needed(connection, session)?)?;
    Ok(())
}

/// Deletes some rows of a session; whether it had any.
fn delete_rows_of(connection: &Connection, session: &str) -> Result<bool, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    if transaction.prepare_cached("SELECT 1 FROM session WHERE id = ?")?.exists([session])? {
        // A removal deletes the row in the same transaction.
        tracing::error!(target: "store", session, "marked as removed, but has a row; the mark is deleted");
        transaction.execute("DELETE FROM removed WHERE session = ?", [session])?;
        transaction.commit()?;
        return Ok(true);
    }
    // Forks have the events up to this one, and the blobs that these name; nobody can undo changes of the session any more.
    let needed = parts::needed(&transaction, session)?;
    let mut deleted = delete_events(&transaction, session, needed)?;
    for sql in [
        "DELETE FROM scratch WHERE session = ?1 AND (stream, block, offset) IN
             (SELECT stream, block, offset FROM scratch WHERE session = ?1 LIMIT ?2)",
        "DELETE FROM question WHERE id IN (SELECT id FROM question WHERE session = ?1 LIMIT ?2)",
        "DELETE FROM outcome WHERE key IN (SELECT key FROM outcome WHERE session = ?1 LIMIT ?2)",
        "INSERT OR IGNORE INTO stray (hash)
             SELECT hash FROM blob WHERE session = ?1 AND (?3 = 0 OR seq IS NOT NULL) ORDER BY hash LIMIT ?2",
        "DELETE FROM blob WHERE session = ?1 AND hash IN
             (SELECT hash FROM blob WHERE session = ?1 AND (?3 = 0 OR seq IS NOT NULL) ORDER BY hash LIMIT ?2)",
    ] {
        if deleted < ROWS {
            let mut statement = transaction.prepare_cached(sql)?;
            // Only the last two have a third parameter.
            deleted += match statement.parameter_count() {
                3 => statement.execute(params![session, ROWS, needed])?,
                _ => statement.execute(params![session, ROWS])?,
            } as i64;
        }
    }
    if deleted == 0 {
        // A fork that had more of them may be gone.
        deleted += artifact::delete_of(&transaction, session, needed)? as i64;
    }
    transaction.commit()?;
    Ok(deleted > 0)
}

/// Deletes the first events of a session after `needed`, about [`BYTES`] of them.
fn delete_events(connection: &Connection, session: &str, needed: i64) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, octet_length(data) FROM event WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
    )?;
    let mut rows = statement.query(params![session, needed, ROWS])?;
    let (mut last, mut bytes) = (None, 0);
    while bytes < BYTES
        && let Some(row) = rows.next()?
    {
        last = Some(row.get::<_, i64>(0)?);
        bytes += row.get::<_, i64>(1)?;
    }
    let Some(last) = last else { return Ok(0) };
    let mut delete = connection.prepare_cached("DELETE FROM event WHERE session = ? AND seq > ? AND seq <= ?")?;
    Ok(delete.execute(params![session, needed, last])? as i64)
}

/// Deletes files and directories on another thread, because large files take long. The next start deletes what is left.
fn delete_files(paths: Vec<PathBuf>) {
    if paths.is_empty() {
        return;
    }
    let delete = move || {
        for path in paths {
            let deleted = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            if let Err(error) = deleted {
                tracing::warn!(target: "store", path = %path.display(), %error, "cannot be deleted");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("store-delete".to_owned()).spawn(delete) {
        tracing::warn!(target: "store", %error, "files cannot be deleted now");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use linger_protocol::id::SessionId;

    use super::{Upkeep, mark_removed};
    use crate::log::{Log, Stored};
    use crate::store::blob::Blobs;
    use crate::store::damage::KnownDamage;
    use crate::store::idempotency::{Key, Outcome};
    use crate::store::open::open;
    use crate::store::{Append, Fold, Store};

    fn event(seq: u64) -> Arc<Stored> {
        let data = format!("{{\"seq\":{seq}}}");
        Arc::new(Stored { seq, at: 1, kind: "notice".into(), stream: None, data })
    }

    fn session() -> Fold {
        let (cwd, head) = ("/".to_owned(), "{}".to_owned());
        Fold::Session { name: None, cwd, state: "idle", updated_at: 1, head, rows: Vec::new(), parent: None }
    }

    fn outcome(id: &str) -> Outcome {
        Outcome { key: Key { id: id.to_owned(), params: "p".to_owned() }, result: Ok("null".to_owned()) }
    }

    async fn write(store: &Store, log: &Arc<Log>, outcomes: &[&str]) {
        write_events(store, log, (1..=600).map(event).collect(), outcomes).await;
    }

    async fn write_events(store: &Store, log: &Arc<Log>, events: Vec<Arc<Stored>>, outcomes: &[&str]) {
        let (done, committed) = tokio::sync::oneshot::channel();
        let folds = outcomes.iter().map(|id| Fold::Outcome(outcome(id))).chain([session()]).collect();
        let log = log.clone();
        store.append(Append { log, events, turn: None, pieces: Vec::new(), folds, sync: true, done: Some(done) });
        committed.await.unwrap().unwrap();
    }

    async fn rows(store: &Store) -> i64 {
        let count = "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM removed)";
        store.read(move |connection| connection.query_row(count, [], |row| row.get(0))).await.unwrap()
    }

    #[tokio::test]
    async fn of_a_session_that_was_removed_nothing_stays_but_what_its_removal_came_to() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("linger.db")).unwrap();
        let log = Log::new(SessionId::from("s1"), 0, Vec::new());
        write(&store, &log, &["prompt"]).await;
        store.remove(log, vec![outcome("remove")]).await.unwrap();
        assert!(store.session(SessionId::from("s1")).await.unwrap().is_none());
        while rows(&store).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(store.outcome("remove".to_owned()).await.unwrap(), Some(outcome("remove")));
        assert_eq!(store.outcome("prompt".to_owned()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn contents_that_are_given_up_are_deleted_and_those_that_are_named_since_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("linger.db")).unwrap();
        let log = Log::new(SessionId::from("s1"), 0, Vec::new());
        write(&store, &log, &[]).await;
        let path = |bytes: &[u8]| store.blobs.path(&crate::store::blob::id_of_bytes(bytes)).unwrap();
        let append = async |folds: Vec<Fold>| {
            let (done, committed) = tokio::sync::oneshot::channel();
            let (log, events, pieces) = (log.clone(), Vec::new(), Vec::new());
            store.append(Append { log, events, turn: None, pieces, folds, sync: true, done: Some(done) });
            committed.await.unwrap().unwrap();
        };
        let put = |bytes: &[u8]| store.blobs.put(bytes).unwrap();
        append(vec![
            Fold::Content(put(b"old"), 1),
            Fold::Content(put(b"named again"), 1),
            Fold::Content(put(b"named again"), 5),
            Fold::Content(put(b"an output too"), 1),
            Fold::Blob(put(b"an output too")),
        ])
        .await;
        append(vec![Fold::GiveUp(3)]).await;
        while path(b"old").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(path(b"named again").exists() && path(b"an output too").exists());
        let size = "SELECT coalesce(sum(size), 0) = (SELECT sum(length(x)) FROM (SELECT 'named again' AS x UNION SELECT 'an output too')) FROM blob";
        assert!(
            store.read(move |connection| connection.query_row(size, [], |row| row.get::<_, bool>(0))).await.unwrap()
        );
    }

    #[tokio::test]
    async fn the_numbers_of_events_grow_over_all_sessions_and_none_is_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linger.db");
        let store = Store::open(&path).unwrap();
        let log = |id: &str| Log::new(SessionId::from(id), 0, Vec::new());
        for (session, events) in [("s1", 1..=2), ("s2", 1..=1), ("s1", 3..=3)] {
            write_events(&store, &log(session), events.map(event).collect(), &[]).await;
        }
        let numbers = async |store: &Store| {
            let sql = "SELECT group_concat(session || seq || '=' || n, ' ') FROM (SELECT * FROM event ORDER BY n)";
            let read = |connection: &rusqlite::Connection| connection.query_row(sql, [], |row| row.get(0));
            store.read(read).await.unwrap()
        };
        let all: String = numbers(&store).await;
        assert_eq!(all, "s11=1 s12=2 s21=3 s13=4");
        store.remove(log("s1"), Vec::new()).await.unwrap();
        while rows(&store).await > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        store.close().await.unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        write_events(&store, &log("s3"), vec![event(1)], &[]).await;
        assert_eq!(numbers(&store).await, "s21=3 s31=5");
    }

    #[tokio::test]
    async fn what_a_tool_made_stays_as_long_as_a_fork_has_the_link_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("linger.db")).unwrap();
        let log = |id: &str| Log::new(SessionId::from(id), 0, Vec::new());
        let origin = log("s1");
        let events = |seqs: std::ops::RangeInclusive<u64>| {
            let now = crate::sys::clock::now();
            seqs.map(|seq| Arc::new(Stored { at: now, ..(*event(seq)).clone() })).collect()
        };
        let next_moment = || {
            let now = crate::sys::clock::now();
            while crate::sys::clock::now() <= now {
                std::hint::spin_loop();
            }
        };
        let make = async |name: &str| {
            next_moment();
            let (bytes, session) = (name.as_bytes().to_vec(), SessionId::from("s1"));
            store.keep_artifact(name.to_owned(), "text/plain".to_owned(), bytes, "make", &session).await.unwrap();
            next_moment();
        };
        let fork = async |id: &str, last: u64| {
            let log = Log::new(SessionId::from(id), last, Vec::new());
            let (done, committed) = tokio::sync::oneshot::channel();
            let folds = vec![session(), Fold::Shared("s1".to_owned(), last)];
            let (events, pieces) = (events(last + 1..=last + 1), Vec::new());
            store.append(Append { log: log.clone(), events, turn: None, pieces, folds, sync: true, done: Some(done) });
            committed.await.unwrap().unwrap();
            log
        };
        let names = async || {
            let mut all = store.artifacts(10, None, None).await.unwrap();
            all.sort_by_key(|it| it.created_at);
            all.into_iter().map(|it| it.name).collect::<Vec<_>>().join(" ")
        };
        for (name, seqs) in [("a", 1..=2), ("b", 3..=4), ("c", 5..=6)] {
            make(name).await;
            write_events(&store, &origin, events(seqs), &[]).await;
        }
        let (first, second) = (fork("s2", 2).await, fork("s3", 4).await);
        store.remove(origin, Vec::new()).await.unwrap();
        assert_eq!(names().await, "a b", "no fork has the last event");
        let until = async |expect: &str| {
            while names().await != expect {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        store.remove(second, Vec::new()).await.unwrap();
        until("a").await;
        store.remove(first, Vec::new()).await.unwrap();
        until("").await;
        let used = "SELECT count(*) FROM blob";
        let used: i64 = store.read(move |connection| connection.query_row(used, [], |row| row.get(0))).await.unwrap();
        assert_eq!(used, 0, "their bytes go too");
    }

    #[tokio::test]
    async fn a_removed_session_that_is_damaged_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linger.db");
        let store = Store::open(&path).unwrap();
        let log = |id: &str| Log::new(SessionId::from(id), 0, Vec::new());
        let marked = |seq: u64| Arc::new(Stored { data: "here is damage".repeat(20), ..(*event(seq)).clone() });
        write_events(&store, &log("s1"), (1..=600).map(marked).collect(), &[]).await;
        write(&store, &log("s2"), &[]).await;
        store.close().await.unwrap();
        drop(store);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut pages = bytes.chunks_mut(4096).filter(|page| page.windows(14).any(|text| text == b"here is damage"));
        pages.nth(20).unwrap()[..8].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let (connection, _) = open(&path).unwrap();
        for id in ["s1", "s2"] {
            mark_removed(&connection, id).unwrap();
        }
        let found = KnownDamage::default();
        let mut upkeep = Upkeep::new(&path, Blobs::of(&path), found.clone());
        while upkeep.is_due() {
            upkeep.step(&connection);
        }
        let left = "SELECT group_concat(session) FROM removed";
        let left: Option<String> = connection.query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left.as_deref(), Some("s1"));
        assert!(found.seen().database.is_some_and(|met| met.text.contains("found damage while deleting")));
    }
}
