//! Reading what can be read of a session, or of a database that was set aside.
//!
//! A session is its events: its state is folded from them again ([`State::apply`]) and whatever else is stored of it follows from
//! both. What counts is which events can be read ([`examine`]); the same walk tells a session whose state alone is damaged, which
//! needs no more than a new state. Each event keeps its number: one that cannot be read gets a `lost` in its place, so that
//! cursors, and the numbers that the state has, mean what they meant.
//! The state that is stored knows what the lost events did. Where it can be read, and nothing is lost that it counts on, the session
//! goes on from it ([`Examined::goes_on`]); else what can be told is folded from the rest, and nothing goes on by itself.
//! A set-aside database ([`Source`]) is never written to, not even its WAL: it is opened for reading only, by another name in a
//! directory of its own, where SQLite can make what it needs. If its first page is damaged, which alone says where the tables
//! begin, that of a new database takes its place, in a copy: the tables of every linger database begin at the same pages.
//! Where the tables cannot be walked all the same, a database is made of the rows that each page has by itself
//! ([`Source::piece_together`]), and read like any other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{BlobId, CallId};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::permission::Pending;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::read::{self, Page, SessionRow};
use super::{Fold, INCREMENTAL, SCHEMA, StoreError, aside, migrate, pages};
use crate::session::log::Piece;
use crate::session::state::{State, Turn};
use crate::session::{actor, recovery};

/// Events that are read at once, in bytes.
const PAGE: usize = 256 << 10;

/// Results of keyed requests that are carried over: the prompts of years.
const MAX_OUTCOMES: usize = 200_000;

/// Sessions that are looked for: a damaged table may lead in circles.
const MAX_IDS: usize = 1_000_000;

/// Events of one session that may be lost before what follows them is given up too: each has one in its place.
const MAX_LOST: u64 = 100_000;

/// The size of a page in every linger database, in bytes: SQLite's own.
pub(super) const PAGE_SIZE: usize = 4096;

/// A session as far as it can be read.
#[derive(Debug)]
pub struct Examined {
    /// Its row, as it is stored, if it has one.
    pub row: Result<Option<SessionRow>, String>,
    /// How many events can be read.
    pub events: u64,
    /// How many there are known to be.
    pub known: u64,
    /// The number of the last of which something is known: that it can be read, or that it is lost.
    pub head: u64,
    /// The events up to there that are lost, first and last of those in a row.
    pub lost: Vec<(u64, u64)>,
    /// Where it stands: what is stored, if that can be trusted, or what is folded from its events.
    pub state: State,
    /// Whether the session can go on from that state, whatever is lost.
    pub goes_on: bool,
    /// The variables of its tools.
    pub env: BTreeMap<String, String>,
    /// Results of calls that are not in a message yet.
    pub results: HashMap<CallId, ContentBlock>,
    /// Why not all events are there, if there should be others.
    pub broken: Option<String>,
    /// Whether the state that is stored is not that of the events.
    pub stale: bool,
}

/// Reads a session from its first event on.
pub fn examine(connection: &Connection, id: &str) -> Examined {
    // All of it as it is now: the session may be at work. Without this its state may seem to be older than its events.
    let _now = connection.unchecked_transaction();
    let row = read::session(connection, id, read::ANY_SESSION).map_err(|error| StoreError::from(error).0.to_string());
    let columns = row.as_ref().ok().and_then(Option::as_ref);
    let fold: Option<State> = columns.and_then(|row| serde_json::from_str(&row.fold).ok());
    let env: Option<BTreeMap<String, String>> = columns.and_then(|row| serde_json::from_str(&row.env).ok());
    let mut session = Examined {
        row,
        events: 0,
        known: 0,
        head: 0,
        lost: Vec::new(),
        state: State::default(),
        goes_on: false,
        env: env.clone().unwrap_or_default(),
        results: HashMap::new(),
        broken: None,
        stale: false,
    };
    let last = read::last(connection, id);
    let head = fold.as_ref().map_or(0, |fold| fold.head);
    let until = last.as_ref().map_or(head, |last| head.max(*last));
    session.known = until;
    session.broken = last.err().filter(|_| fold.is_none()).map(|error| format!("its end cannot be found: {error}"));
    while session.head < until && session.known_lost() < MAX_LOST {
        let (page, error) = read::page(connection, id, session.head, until, PAGE, usize::MAX);
        for stored in &page {
            if let Err(text) = session.take(&stored.data, stored.seq) {
                session.broken.get_or_insert(text);
                session.lose(stored.seq);
            }
        }
        if let Some(error) = error.filter(|_| page.is_empty()) {
            session.broken.get_or_insert_with(|| StoreError::from(error).0.to_string());
            let last = before_next(connection, id, session.head + 1, until);
            if session.known_lost() + (last - session.head) > MAX_LOST {
                break;
            }
            session.lose(last);
        }
    }
    if session.events == 0 && session.broken.is_none() {
        session.broken = Some("it has no events".to_owned());
    }
    if let Ok(Some(row)) = &session.row
        && session.state.cwd.as_os_str().is_empty()
    {
        // Its first event is lost, and its state too.
        session.state.cwd = row.cwd.clone().into();
        session.state.name = session.state.name.take().or_else(|| row.name.clone());
    }
    session.stale = fold.as_ref().is_none_or(|fold| fold.head != session.head) || env.is_none();
    session.goes_on = session.broken.is_none();
    if let Some(fold) =
        fold.filter(|fold| session.broken.is_some() && fold.head == session.head && session.head == until)
    {
        session.trust(fold);
    }
    session
}

/// The number of the event before the next one that can be reached, where `lost` cannot be read.
fn before_next(connection: &Connection, id: &str, lost: u64, until: u64) -> u64 {
    let sql = "SELECT seq FROM event WHERE session = ? AND seq > ? ORDER BY seq LIMIT 1";
    let next = || -> rusqlite::Result<Option<i64>> {
        connection.prepare_cached(sql)?.query_row(rusqlite::params![id, lost as i64], |row| row.get(0)).optional()
    };
    match next() {
        Ok(Some(next)) => (next as u64).saturating_sub(1).clamp(lost, until),
        Ok(None) => until,
        // The way there is lost too; the one after may have another.
        Err(_) => lost,
    }
}

impl Examined {
    fn known_lost(&self) -> u64 {
        self.head - self.events
    }

    /// Whether this event is lost.
    pub fn is_lost(&self, seq: u64) -> bool {
        self.lost.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    /// Takes the next events, up to `last`, as lost.
    fn lose(&mut self, last: u64) {
        let first = self.head + 1;
        for seq in first..=last {
            let body = EventBody::Lost { first, last };
            self.state.apply(&Event { body, seq: Some(seq), at: self.state.updated_at, turn: None });
        }
        self.head = last;
        match self.lost.last_mut().filter(|before| before.1 + 1 == first) {
            Some(before) => before.1 = last,
            None => self.lost.push((first, last)),
        }
    }

    /// Takes the state that is stored: it has what the lost events did.
    fn trust(&mut self, mut state: State) {
        // A prompt that waits has its words in its event.
        state.queue.retain(|queued| !self.is_lost(queued.seq));
        let of_turn = |turn: &Turn| {
            let asked = turn.shape.as_ref().is_none_or(|shape| !self.is_lost(shape.seq));
            asked && self.lost.iter().all(|(_, last)| *last <= state.before_turn)
        };
        self.goes_on = state.turn.as_ref().is_none_or(of_turn);
        self.state = state;
    }

    fn take(&mut self, data: &str, seq: u64) -> Result<(), String> {
        let event: Event =
            serde_json::from_str(data).map_err(|error| format!("event {seq} cannot be understood: {error}"))?;
        if event.seq != Some(seq) {
            return Err(format!("event {seq} has another number inside"));
        }
        self.state.apply(&event);
        match &event.body {
            EventBody::SessionCreated { env, .. } if self.env.is_empty() => self.env.clone_from(env),
            EventBody::Message { role: Role::User, .. } => self.results.clear(),
            body => self.results.extend(recovery::result_of(body)),
        }
        (self.events, self.head) = (self.events + 1, seq);
        Ok(())
    }
}

/// What is kept of permissions beside the events that speak of them.
pub fn permissions(session: &str, page: &Page) -> Vec<Fold> {
    let fold = |stored: &crate::session::log::Stored| {
        let event: Event = serde_json::from_str(&stored.data).ok()?;
        match event.body {
            EventBody::PermissionRequested { permission, call_id, tool, action, input, cwd, digest, grant, .. } => {
                let session = session.into();
                let (call, at) = (call_id, event.at);
                Some(Fold::Asked(Pending { permission, session, call, tool, action, input, cwd, digest, grant, at }))
            }
            EventBody::PermissionResolved { permission, decision, by, .. } => {
                Some(Fold::Decided { permission: permission.0, decision, by, at: event.at })
            }
            _ => None,
        }
    };
    page.iter().filter_map(fold).collect()
}

/// What these events add to their days.
pub fn spent(page: &Page) -> Vec<Fold> {
    let events = page.iter().filter_map(|stored| serde_json::from_str::<Event>(&stored.data).ok());
    events.filter_map(|event| actor::spent(&event)).collect()
}

/// The blobs that these events name.
pub fn blobs(page: &Page) -> BTreeSet<BlobId> {
    fn named(content: &[ContentBlock], found: &mut BTreeSet<BlobId>) {
        for block in content {
            found.extend(block.blob().cloned());
            if let ContentBlock::ToolResult { content, .. } = block {
                named(content, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    for event in page.iter().filter_map(|stored| serde_json::from_str::<Event>(&stored.data).ok()) {
        match event.body {
            EventBody::PromptAccepted { content, .. } | EventBody::Message { content, .. } => {
                named(&content, &mut found)
            }
            EventBody::ToolFinished { content, blob, .. } => {
                named(&content, &mut found);
                found.extend(blob);
            }
            _ => {}
        }
    }
    found
}

/// The ids of all sessions that can be found, by every way there is to them; the latest first where that is known.
pub fn ids(connection: &Connection) -> Vec<String> {
    all_ids(connection).0
}

/// The same, and whether the table of sessions could be read to its end, so that there are no others.
pub fn all_ids(connection: &Connection) -> (Vec<String>, bool) {
    let (mut found, mut all) = (Vec::new(), false);
    let ways = [
        "SELECT id FROM session INDEXED BY session_updated ORDER BY updated_at DESC",
        "SELECT id FROM session INDEXED BY session_updated ORDER BY updated_at",
        "SELECT id FROM session NOT INDEXED ORDER BY id",
        "SELECT id FROM session NOT INDEXED ORDER BY id DESC",
    ];
    for way in ways {
        // An error ends this way; what lies behind it is found from the other end.
        let mut walk = || -> rusqlite::Result<bool> {
            let mut statement = connection.prepare(way)?;
            let mut rows = statement.query([])?;
            let mut whole = true;
            for _ in 0..MAX_IDS {
                let Some(row) = rows.next()? else { return Ok(whole) };
                let id = row.get::<_, String>(0);
                whole &= id.is_ok();
                found.extend(id);
            }
            Ok(false)
        };
        // The index may be whole where the table is not, and the other way round.
        all |= walk().unwrap_or(false) && way.contains("NOT INDEXED");
    }
    for (next, start) in [
        ("SELECT session FROM event WHERE session > ? ORDER BY session LIMIT 1", ""),
        ("SELECT session FROM event WHERE session < ? ORDER BY session DESC LIMIT 1", "\u{10ffff}"),
    ] {
        let (mut at, mut met) = (start.to_owned(), BTreeSet::new());
        let next_id = |at: &str| -> rusqlite::Result<String> {
            connection.prepare_cached(next)?.query_row([at], |row| row.get(0))
        };
        while met.len() < MAX_IDS
            && let Ok(id) = next_id(&at)
            && met.insert(id.clone())
        {
            at.clone_from(&id);
            found.push(id);
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|id| seen.insert(id.clone()));
    (found, all)
}

/// A set-aside database, open for reading.
pub struct Source {
    /// The connection; dropped before its directory is removed.
    pub connection: Option<Connection>,
    dir: PathBuf,
    /// Its first page is that of a new database, which may name other pages for some tables.
    transplanted: bool,
    /// It is made of the rows that single pages have: there may have been others.
    pieced: bool,
}

/// Why nothing of a set-aside database can be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A later linger wrote it.
    #[error("its schema is version {0}, this lingerd knows {SCHEMA}")]
    Newer(i64),
    /// There is nothing in it that looks like a session.
    #[error("no session can be found in it")]
    Nothing,
    /// There is no session in it, as far as it can be read, which is to its end.
    #[error("there is no session in it")]
    Empty,
    /// The system's.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Source {
    /// Opens a set-aside database.
    pub fn open(file: &Path) -> Result<Self, Unreadable> {
        must_be_file(file)?;
        let dir = aside::with(file, ".reading");
        remove(&dir)?;
        std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| dir.display().to_string())?;
        let mut source = Self { connection: None, dir, transplanted: false, pieced: false };
        match source.as_it_is(file) {
            Ok(()) => Ok(source),
            Err(error @ (Unreadable::Newer(_) | Unreadable::Empty)) => Err(error),
            Err(_) => source.with_new_first_page(file).map(|()| source),
        }
    }

    /// Makes a database of what each page of a set-aside one has by itself.
    pub fn piece_together(file: &Path) -> Result<Self, Unreadable> {
        must_be_file(file)?;
        let dir = aside::with(file, ".reading");
        remove(&dir)?;
        std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| dir.display().to_string())?;
        let mut source = Self { connection: None, dir, transplanted: false, pieced: true };
        let connection = Connection::open(source.dir.join("pieces.db")).context("no database can be made")?;
        let made = (|| {
            // Nobody misses it if the machine loses its power.
            connection.pragma_update(None, "synchronous", "OFF")?;
            connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
            connection.execute_batch(&migrate::sql(0, SCHEMA))?;
            pages::gather(file, &connection)
        })();
        let rows = made.context("its pages cannot be put together")?;
        tracing::info!(target: "store", file = %file.display(), rows, "was read page by page");
        if rows == 0 {
            return Err(Unreadable::Nothing);
        }
        source.connection = Some(connection);
        Ok(source)
    }

    /// By another name, so that what SQLite makes beside it is not made beside the original.
    fn as_it_is(&mut self, file: &Path) -> Result<(), Unreadable> {
        let here = self.dir.join("linger.db");
        if std::fs::hard_link(file, &here).is_err() {
            std::fs::copy(file, &here).context("it cannot be copied")?;
        }
        self.copy_wal(file)?;
        self.connect(&here)
    }

    fn with_new_first_page(&mut self, file: &Path) -> Result<(), Unreadable> {
        let mut failed = Unreadable::Nothing;
        self.transplanted = true;
        let vacuum = auto_vacuum(file);
        let models = (1..=SCHEMA).rev().flat_map(|version| [(version, vacuum), (version, INCREMENTAL - vacuum)]);
        for (version, vacuum) in models {
            self.connection = None;
            remove(&self.dir)?;
            std::fs::DirBuilder::new().mode(0o700).create(&self.dir).with_context(|| self.dir.display().to_string())?;
            let here = self.dir.join("linger.db");
            std::fs::copy(file, &here).context("it cannot be copied")?;
            self.copy_wal(file)?;
            transplant(&here, &self.dir.join("model.db"), version, vacuum)?;
            match self.connect(&here) {
                Ok(()) => return Ok(()),
                Err(error) => failed = error,
            }
        }
        self.connection = None;
        Err(failed)
    }

    fn copy_wal(&self, file: &Path) -> Result<(), Unreadable> {
        let wal = aside::with(file, "-wal");
        if wal.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            std::fs::copy(wal, self.dir.join("linger.db-wal")).context("its WAL cannot be copied")?;
        }
        Ok(())
    }

    fn connect(&mut self, here: &Path) -> Result<(), Unreadable> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<(Connection, i64)> {
            let connection = Connection::open_with_flags(here, flags)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            // A file that is shorter than its header says is read as far as it goes.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.pragma_update(None, "cell_size_check", true)?;
            let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            Ok((connection, version))
        };
        let (connection, version) = open().context("it cannot be opened")?;
        if version > SCHEMA {
            return Err(Unreadable::Newer(version));
        }
        match all_ids(&connection) {
            (ids, false) if ids.is_empty() => return Err(Unreadable::Nothing),
            (ids, true) if ids.is_empty() && !self.transplanted => return Err(Unreadable::Empty),
            (ids, _) if ids.is_empty() => return Err(Unreadable::Nothing),
            _ => {}
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// A session, as far as it can be read.
    pub fn examine(&self, id: &str) -> Option<Examined> {
        let mut examined = self.with(|connection| Some(examine(connection, id)))?;
        if self.pieced && examined.broken.is_none() && examined.stale {
            // Its state would have told. Had it gone on, a call that has run might run again.
            let head = examined.head;
            examined.broken =
                Some(format!("its state cannot be read, and nobody can tell what came after event {head}"));
            examined.goes_on = false;
        }
        Some(examined)
    }

    /// The text of a session's open streams.
    pub fn pieces(&self, id: &str) -> Vec<Piece> {
        self.with(|connection| read::pieces(connection, id).ok()).unwrap_or_default()
    }

    /// Events after `after`.
    pub fn page(&self, id: &str, after: u64, until: u64) -> Page {
        self.with(|connection| Some(read::page(connection, id, after, until, PAGE, usize::MAX).0)).unwrap_or_default()
    }

    /// Runs a query.
    pub fn with<T>(&self, query: impl FnOnce(&Connection) -> Option<T>) -> Option<T> {
        self.connection.as_ref().and_then(query)
    }

    /// Sessions that the user has removed, of which there still are events. Without a doubt only: what is not here is carried over.
    pub fn removed(&self) -> BTreeSet<String> {
        if self.transplanted {
            return BTreeSet::new();
        }
        // Early versions have no such table.
        self.with(|connection| {
            let mut statement =
                connection.prepare("SELECT session FROM removed WHERE session NOT IN (SELECT id FROM session)").ok()?;
            let rows = statement.query_map([], |row| row.get(0)).ok()?;
            Some(rows.map_while(Result::ok).collect())
        })
        .unwrap_or_default()
    }

    /// What requests with idempotency keys came to, by session.
    pub fn outcomes(&self) -> HashMap<String, Vec<(String, String)>> {
        let mut found: HashMap<String, Vec<(String, String)>> = HashMap::new();
        let mut seen = BTreeSet::new();
        for order in ["key", "key DESC"] {
            let sql = format!("SELECT key, session, result FROM outcome ORDER BY {order} LIMIT {MAX_OUTCOMES}");
            // As with the ids: from both ends, as far as it goes.
            let _end = self.with(|connection| {
                let mut statement = connection.prepare(&sql).ok()?;
                let mut rows = statement.query([]).ok()?;
                while let Some(row) = rows.next().ok()? {
                    let columns = (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, String>(2));
                    if let (Ok(key), Ok(session), Ok(result)) = columns
                        && seen.insert(key.clone())
                    {
                        found.entry(session).or_default().push((key, result));
                    }
                }
                Some(())
            });
        }
        found
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.connection = None;
        if let Err(error) = remove(&self.dir) {
            tracing::warn!(target: "store", dir = %self.dir.display(), %error, "could not be removed");
        }
    }
}

/// Removes what a daemon that died in the middle has left beside a set-aside database.
pub fn tidy(file: &Path) {
    if let Err(error) = remove(&aside::with(file, ".reading")) {
        tracing::warn!(target: "repair", %error, "what was made to read a set-aside database cannot be removed");
    }
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| dir.display().to_string()),
        _ => Ok(()),
    }
}

/// What has the name of a database and is no file has no session in it, and a pipe would be waited for.
fn must_be_file(path: &Path) -> Result<(), Unreadable> {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_file() => Err(Unreadable::Empty),
        _ => Ok(()),
    }
}

/// What a database most likely has for `auto_vacuum`: with it the second page says what the others are, the third one being the
/// root of a table (<https://sqlite.org/fileformat.html>, 1.8), and everything else comes a page later.
fn auto_vacuum(file: &Path) -> i64 {
    let mut entry = [0; 5];
    let read = std::fs::File::open(file).and_then(|file| file.read_exact_at(&mut entry, PAGE_SIZE as u64));
    if read.is_ok() && entry == [1, 0, 0, 0, 0] { INCREMENTAL } else { 0 }
}

/// Gives a database the first page that a new one of this version has (<https://sqlite.org/fileformat.html>, 1.3).
fn transplant(file: &Path, model: &Path, version: i64, vacuum: i64) -> anyhow::Result<()> {
    let connection = Connection::open(model)?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_SIZE}; PRAGMA auto_vacuum = {vacuum}; BEGIN; {} COMMIT;",
        migrate::sql(0, version)
    ))?;
    connection.close().map_err(|(_, error)| error)?;
    let mut page = vec![0; PAGE_SIZE];
    std::fs::File::open(model)?.read_exact_at(&mut page, 0)?;
    let target = std::fs::OpenOptions::new().write(true).open(file)?;
    let pages = u32::try_from(target.metadata()?.len() / PAGE_SIZE as u64).unwrap_or(u32::MAX);
    let wal = u8::from(aside::with(file, "-wal").exists());
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = page.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    // Written and read with a WAL, if there is one.
    put(18, &[1 + wal, 1 + wal]);
    // The number of pages counts if these two are the same: of the last change, and of the one that it was written with.
    put(24, &[0, 0, 0, 1]);
    put(92, &[0, 0, 0, 1]);
    put(28, &pages.to_be_bytes());
    // No free pages are known.
    put(32, &[0; 8]);
    target.write_all_at(&page, 0)?;
    Ok(())
}
