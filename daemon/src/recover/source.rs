//! A database that was set aside, open for reading.
//!
//! It is never written to, not even its WAL: it is opened for reading only, by another name in a directory of its own, where
//! SQLite can make what it needs. If its first page is damaged, which alone says where the tables begin, that of a new database
//! takes its place, in a copy: the tables of every linger database begin at the same pages. Where the tables cannot be walked all
//! the same, a database is made of the rows that each page has by itself ([`Source::piece_together`]), and read like any other.
//! What its sessions are, [`salvage`] tells.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::pages::{self, PAGE_SIZE};
use super::salvage::{self, Examined, PAGE};
use crate::log::Piece;
use crate::store::event_row::said;
use crate::store::idempotency::{Key, Outcome};
use crate::store::read::{self, Page};
use crate::store::{INCREMENTAL, SCHEMA, Spent, aside, migrate, usage};

/// Results of keyed requests that are carried over: the prompts of years.
const MAX_OUTCOMES: usize = 200_000;

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
            // Of rows that contradict each other all are wanted.
            connection.execute_batch("DROP INDEX event_stream")?;
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
        match salvage::all_ids(&connection) {
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
        let mut examined = self.with(|connection| Some(salvage::examine(connection, id, said)))?;
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
        let size = (PAGE, usize::MAX);
        let page = |connection: &_| read::page(connection, id, after, until, size, said).0;
        self.with(|connection| Some(page(connection))).unwrap_or_default()
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
        self.with(|connection| {
            let mut statement =
                connection.prepare("SELECT session FROM removed WHERE session NOT IN (SELECT id FROM session)").ok()?;
            let rows = statement.query_map([], |row| row.get(0)).ok()?;
            Some(rows.map_while(Result::ok).collect())
        })
        .unwrap_or_default()
    }

    /// What each session has paid for, and under the empty name those that were removed; nothing if that cannot be read to its end.
    pub fn paid(&self) -> HashMap<String, Vec<Spent>> {
        self.with(|connection| usage::all(connection).ok()).unwrap_or_default()
    }

    /// What requests with idempotency keys came to, by session.
    pub fn outcomes(&self) -> HashMap<String, Vec<Outcome>> {
        let mut found: HashMap<String, Vec<Outcome>> = HashMap::new();
        let mut seen = BTreeSet::new();
        for order in ["key", "key DESC"] {
            let sql = format!("SELECT key, session, params, result FROM outcome ORDER BY {order} LIMIT {MAX_OUTCOMES}");
            // As with the ids: from both ends, as far as it goes.
            let _end = self.with(|connection| {
                let mut statement = connection.prepare(&sql).ok()?;
                let mut rows = statement.query([]).ok()?;
                while let Some(row) = rows.next().ok()? {
                    let column = |column| row.get::<_, String>(column);
                    if let (Ok(id), Ok(session), Ok(params), Ok(result)) = (column(0), column(1), column(2), column(3))
                        && seen.insert(id.clone())
                    {
                        found.entry(session).or_default().push(Outcome { key: Key { id, params }, result });
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
