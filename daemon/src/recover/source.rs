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
#[derive(Debug)]
pub(crate) struct Source {
    /// The connection; dropped before its directory is removed.
    pub(crate) connection: Connection,
    /// Its first page is that of a new database, which knows nothing of what was removed.
    transplanted: bool,
    /// It is made of the rows that single pages have: there may have been others.
    pieced: bool,
    _dir: Dir,
}

/// Why nothing of a set-aside database can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
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
    pub(crate) fn open(file: &Path) -> Result<Self, Unreadable> {
        let dir = Dir::beside(file)?;
        let here = dir.take(file, true)?;
        let mut opened = connect(&here, false);
        for version in (1..=SCHEMA).rev() {
            if opened.is_ok() || matches!(&opened, Err(Unreadable::Newer(_) | Unreadable::Empty)) {
                break;
            }
            transplant(&dir.take(file, false)?, version)?;
            opened = connect(&here, true);
        }
        let (connection, transplanted) = opened?;
        Ok(Self { connection, transplanted, pieced: false, _dir: dir })
    }

    /// Makes a database of what each page of a set-aside one has by itself.
    pub(crate) fn piece_together(file: &Path) -> Result<Self, Unreadable> {
        let dir = Dir::beside(file)?;
        let here = dir.take(file, false)?;
        if aside::with(&here, "-wal").exists() && merge_wal(&here).is_err() {
            transplant(&here, SCHEMA)?;
            // A WAL that cannot be read has nothing.
            let _without = merge_wal(&here);
        }
        let connection = Connection::open(here.with_file_name("pieces.db")).context("no database can be made")?;
        let made = (|| {
            // Nobody misses it if the machine loses its power.
            connection.pragma_update(None, "synchronous", "OFF")?;
            connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
            connection.execute_batch(&migrate::sql(0, SCHEMA))?;
            // Of rows that contradict each other all are wanted.
            connection.execute_batch("DROP INDEX event_stream")?;
            pages::gather(&here, &connection)
        })();
        let rows = made.context("its pages cannot be put together")?;
        tracing::info!(target: "recover", file = %file.display(), rows, "was read page by page");
        if rows == 0 {
            return Err(Unreadable::Nothing);
        }
        Ok(Self { connection, transplanted: true, pieced: true, _dir: dir })
    }

    /// Whether all its tables can be walked, whatever is in their rows.
    pub(super) fn is_walkable(&self) -> bool {
        super::complaint(&self.connection).is_ok_and(|complaint| complaint.is_none())
    }

    /// A session, as far as it can be read.
    pub(super) fn examine(&self, id: &str) -> Examined {
        let mut examined = salvage::examine(&self.connection, id, said);
        if self.pieced && examined.broken.is_none() && examined.stale {
            // Its state would have told. Had it gone on, a call that has run might run again.
            let head = examined.head;
            examined.broken =
                Some(format!("its state cannot be read, and nobody can tell what came after event {head}"));
            examined.goes_on = false;
        }
        examined
    }

    /// The text of a session's open streams.
    pub(super) fn pieces(&self, id: &str) -> Vec<Piece> {
        read::pieces(&self.connection, id).unwrap_or_default()
    }

    /// Events after `after`.
    pub(crate) fn page(&self, id: &str, after: u64, until: u64) -> Page {
        read::page(&self.connection, id, after, until, (PAGE, usize::MAX), said).0
    }

    /// Sessions that the user has removed, of which there still are events. Without a doubt only: what is not here is carried over.
    pub(crate) fn removed(&self) -> BTreeSet<String> {
        if self.transplanted { BTreeSet::new() } else { salvage::removed(&self.connection).unwrap_or_default() }
    }

    /// What each session has paid for, and under the empty name those that were removed; nothing if that cannot be read to its end.
    pub(super) fn paid(&self) -> HashMap<String, Vec<Spent>> {
        usage::all(&self.connection).unwrap_or_default()
    }

    /// What requests with idempotency keys came to, by session.
    pub(super) fn outcomes(&self) -> HashMap<String, Vec<Outcome>> {
        let mut found: HashMap<String, Vec<Outcome>> = HashMap::new();
        let mut walk = || -> rusqlite::Result<()> {
            let sql = format!("SELECT session, key, params, result FROM outcome LIMIT {MAX_OUTCOMES}");
            let mut statement = self.connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let key = Key { id: row.get(1)?, params: row.get(2)? };
                found.entry(row.get(0)?).or_default().push(Outcome { key, result: row.get(3)? });
            }
            Ok(())
        };
        let _as_far_as_it_goes = walk();
        found
    }
}

/// A directory beside a set-aside database, to read it in; gone when this is dropped.
#[derive(Debug)]
struct Dir(PathBuf);

impl Dir {
    fn beside(file: &Path) -> Result<Self, Unreadable> {
        // What has the name of a database and is no file has no session in it, and a pipe would be waited for.
        if file.symlink_metadata().is_ok_and(|meta| !meta.is_file()) {
            return Err(Unreadable::Empty);
        }
        let dir = aside::with(file, ".reading");
        // What a helper that died in the middle has left.
        remove(&dir)?;
        std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self(dir))
    }

    /// The database with its WAL, under a name of its own: a `link` to it, which is only read, or a copy.
    fn take(&self, file: &Path, link: bool) -> anyhow::Result<PathBuf> {
        let here = self.0.join("linger.db");
        aside::clear_database(&here).context("an earlier copy cannot be removed")?;
        if !link || std::fs::hard_link(file, &here).is_err() {
            std::fs::copy(file, &here).context("it cannot be copied")?;
        }
        let wal = aside::with(file, "-wal");
        if wal.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            std::fs::copy(wal, aside::with(&here, "-wal")).context("its WAL cannot be copied")?;
        }
        Ok(here)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(target: "recover", dir = %self.0.display(), %error, "could not be removed");
        }
    }
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| dir.display().to_string()),
        _ => Ok(()),
    }
}

/// A connection to a database of this schema or an earlier one that has some session; gives `transplanted` back.
fn connect(here: &Path, transplanted: bool) -> Result<(Connection, bool), Unreadable> {
    let open = || -> rusqlite::Result<(Connection, i64)> {
        let connection = open_as_it_is(here, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((connection, version))
    };
    let (connection, version) = open().context("it cannot be opened")?;
    if version > SCHEMA {
        return Err(Unreadable::Newer(version));
    }
    match salvage::ids(&connection) {
        (ids, true) if ids.is_empty() && !transplanted => Err(Unreadable::Empty),
        (ids, _) if ids.is_empty() => Err(Unreadable::Nothing),
        _ => Ok((connection, transplanted)),
    }
}

/// A connection that moves nothing when it is closed, and reads a file that is shorter than its header says as far as it goes.
fn open_as_it_is(here: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(here, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    Ok(connection)
}

/// Moves what the WAL of a copy has into the copy.
fn merge_wal(here: &Path) -> rusqlite::Result<()> {
    let connection = open_as_it_is(here, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The WAL is opened by the first page that is read.
    connection.pragma_query_value(None, "user_version", |_| Ok(()))?;
    connection.wal_checkpoint_v2(None::<&str>, rusqlite::wal::CheckpointMode::FULL).map(drop)
}

/// Gives a database the first page that a new one of this version has (<https://sqlite.org/fileformat.html>, 1.3).
fn transplant(file: &Path, version: i64) -> anyhow::Result<()> {
    let model = file.with_file_name("model.db");
    aside::clear_database(&model)?;
    let connection = Connection::open(&model)?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_SIZE}; PRAGMA auto_vacuum = {INCREMENTAL}; BEGIN; {} COMMIT;",
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
