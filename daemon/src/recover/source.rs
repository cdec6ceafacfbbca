//! A database that was set aside, open for reading.
//!
//! The original is never written to, not even its WAL: it is read under another name, in a directory of its own, where SQLite can
//! create the files it needs. If its tables cannot be walked, a new database is made of the events that single pages have, and of
//! the other rows that can be reached. If its first page is damaged, the first page of a new database replaces it in the copy: the
//! tables of every linger database begin at the same pages.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params_from_iter};

use super::pages::{self, PAGE_SIZE};
use super::salvage;
use crate::store::idempotency::{Key, Outcome};
use crate::store::{INCREMENTAL, SCHEMA, files, migrate};

/// The tables besides `event`, and the column that names the session.
const TABLES: [(&str, &str); 7] = [
    ("session", "id"),
    ("family", "session"),
    ("scratch", "session"),
    ("outcome", "session"),
    ("usage", "session"),
    ("removed", "session"),
    ("shared", "session"),
];

/// A set-aside database, open for reading.
#[derive(Debug)]
pub(super) struct Source {
    /// The connection; dropped before its directory is removed.
    pub(super) connection: Connection,
    /// The ids of all known sessions, also of those of which nothing else is left.
    pub(super) sessions: Vec<String>,
    /// Whether the table of sessions was read to its end, so that no others exist.
    pub(super) has_all: bool,
    _dir: Dir,
}

/// Why nothing of a set-aside database can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// A later linger wrote it.
    #[error("its schema is version {0}, this lingerd knows {SCHEMA}")]
    Newer(i64),
    /// Damage hides all sessions, if any exist.
    #[error("no session can be found in it")]
    Nothing,
    /// The table of sessions was read to its end and is empty.
    #[error("there is no session in it")]
    Empty,
    /// The system's.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

/// The complaint of SQLite about the pages of a database, if any.
pub(super) fn complaint(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok(Some(result.replace("*** in database main ***\n", "")).filter(|result| result != "ok"))
}

impl Source {
    /// Opens a set-aside database.
    pub(super) fn open(file: &Path) -> Result<Self, Unreadable> {
        let dir = Dir::beside(file)?;
        match connect(&dir.take(file, true)?) {
            Ok(connection) if complaint(&connection).is_ok_and(|complaint| complaint.is_none()) => {
                let sessions = salvage::sessions(&connection, Vec::new());
                return Ok(Self { connection, sessions, has_all: true, _dir: dir });
            }
            Err(error @ (Unreadable::Newer(_) | Unreadable::Empty)) => return Err(error),
            _ => drop(dir),
        }
        Self::piece_together(file)
    }

    /// Makes a database of what can be reached in a damaged one.
    pub(super) fn piece_together(file: &Path) -> Result<Self, Unreadable> {
        let dir = Dir::beside(file)?;
        let here = dir.take(file, false)?;
        // An unreadable WAL has nothing.
        let merged = || {
            let _without = merge_wal(&here);
            connect(&here)
        };
        let mut damaged = merged();
        for version in (1..=SCHEMA).rev() {
            if damaged.is_ok() {
                break;
            }
            transplant(&here, version)?;
            damaged = merged();
        }
        let connection = Connection::open(here.with_file_name("pieces.db")).context("cannot create a database")?;
        let (found, has_all) = damaged.as_ref().map(salvage::ids).unwrap_or_default();
        let made = (|| {
            connection.pragma_update(None, "synchronous", "OFF")?;
            connection.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
            connection.execute_batch(&migrate::sql(0, SCHEMA))?;
            connection.execute_batch("BEGIN")?;
            pages::gather(&here, &connection)?;
            // The empty name has the costs of removed sessions.
            let ids = found.iter().map(String::as_str).chain([""]);
            for (id, (table, column)) in ids.flat_map(|id| TABLES.map(|table| (id, table))) {
                if let Ok(damaged) = &damaged {
                    copy_rows(damaged, &connection, table, column, id)?;
                }
            }
            anyhow::Ok(connection.execute_batch("COMMIT")?)
        })();
        made.context("its pages cannot be put together")?;
        let sessions = salvage::sessions(&connection, found);
        if sessions.is_empty() {
            Err(Unreadable::Nothing)
        } else {
            Ok(Self { connection, sessions, has_all, _dir: dir })
        }
    }
}

impl Source {
    /// The outcomes of a session's requests with an idempotency key, up to the first unreadable one.
    pub(super) fn outcomes(&self, id: &str) -> Vec<Outcome> {
        let read = || -> rusqlite::Result<Vec<Outcome>> {
            let mut select = self
                .connection
                .prepare_cached("SELECT key, params, result FROM outcome WHERE session = ? ORDER BY n")?;
            let outcome = |row: &Row<'_>| {
                Ok(Outcome { key: Key { id: row.get(0)?, params: row.get(1)? }, result: Ok(row.get(2)?) })
            };
            Ok(select.query_map([id], outcome)?.map_while(Result::ok).collect())
        };
        read().unwrap_or_default()
    }
}

/// Copies the rows of a session, up to the first unreadable one. Fails if nothing can be written.
fn copy_rows(from: &Connection, to: &Connection, table: &str, column: &str, id: &str) -> rusqlite::Result<()> {
    let read = || -> rusqlite::Result<(Vec<Vec<Value>>, usize)> {
        let mut select = from.prepare_cached(&format!("SELECT * FROM {table} WHERE {column} = ?"))?;
        let columns = select.column_count();
        let rows = select.query_map([id], |row| (0..columns).map(|column| row.get(column)).collect())?;
        Ok((rows.map_while(Result::ok).collect(), columns))
    };
    let (rows, columns) = read().unwrap_or_default();
    for row in rows {
        let values = vec!["?"; columns].join(", ");
        let mut insert = to.prepare_cached(&format!("INSERT OR IGNORE INTO {table} VALUES ({values})"))?;
        match insert.execute(params_from_iter(row)) {
            // A damaged page gave it values that the table does not take.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// A directory next to a set-aside database, to read it in; removed when this is dropped.
#[derive(Debug)]
struct Dir(PathBuf);

impl Dir {
    /// Fails with [`Unreadable::Empty`] if `file` is not a file, or is empty; opening a pipe would block.
    fn beside(file: &Path) -> Result<Self, Unreadable> {
        if file.symlink_metadata().is_ok_and(|meta| !meta.is_file() || meta.len() == 0) {
            return Err(Unreadable::Empty);
        }
        let dir = files::with(file, ".reading");
        // A killed helper may have left one.
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(anyhow::Error::from(error).into()),
            _ => {}
        }
        std::fs::DirBuilder::new().mode(0o700).create(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self(dir))
    }

    /// The database with its WAL under its own name: a `link`, which is only read, or a copy.
    fn take(&self, file: &Path, link: bool) -> anyhow::Result<PathBuf> {
        let here = self.0.join("linger.db");
        files::clear_database(&here).context("cannot remove an earlier copy")?;
        if !link || std::fs::hard_link(file, &here).is_err() {
            std::fs::copy(file, &here).context("it cannot be copied")?;
        }
        let wal = files::with(file, "-wal");
        if wal.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            std::fs::copy(wal, files::with(&here, "-wal")).context("its WAL cannot be copied")?;
        }
        Ok(here)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // The next helper removes what is left.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// A connection to a database of this schema or an earlier one that has a session.
fn connect(here: &Path) -> Result<Connection, Unreadable> {
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
        (ids, true) if ids.is_empty() => Err(Unreadable::Empty),
        (ids, false) if ids.is_empty() => Err(Unreadable::Nothing),
        _ => Ok(connection),
    }
}

/// A connection that moves nothing when it is closed, and reads a file that is shorter than its header says.
fn open_as_it_is(here: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(here, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    Ok(connection)
}

/// Moves the WAL of a copy into the copy.
fn merge_wal(here: &Path) -> rusqlite::Result<()> {
    let connection = open_as_it_is(here, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // SQLite opens the WAL when it reads the first page.
    connection.pragma_query_value(None, "user_version", |_| Ok(()))?;
    connection.wal_checkpoint_v2(None::<&str>, rusqlite::wal::CheckpointMode::FULL).map(drop)
}

/// Replaces the first page with that of a new database of this version (<https://sqlite.org/fileformat.html>, 1.3).
fn transplant(file: &Path, version: i64) -> anyhow::Result<()> {
    let model = file.with_file_name("model.db");
    files::clear_database(&model)?;
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
    let wal = 1 + u8::from(files::with(file, "-wal").exists());
    // The formats for writing and reading; the number of the last change, equal at both places so that the number of pages counts;
    // no free pages.
    let fields: [(usize, &[u8]); 5] =
        [(18, &[wal, wal]), (24, &[0, 0, 0, 1]), (92, &[0, 0, 0, 1]), (28, &pages.to_be_bytes()), (32, &[0; 8])];
    for (at, bytes) in fields {
        if let Some(place) = page.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    target.write_all_at(&page, 0)?;
    Ok(())
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
