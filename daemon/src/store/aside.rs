//! Setting aside: a database that cannot be used is renamed, with its WAL, to a dated name beside it. Nothing is deleted or changed.
//!
//! A set-aside `linger.db.damaged-2026-11-21T101500Z` has its WAL and index under the same name with SQLite's suffixes, so that
//! `sqlite3` opens it, and a [`Report`] in JSON beside it.
//! Three renames are not atomic: a marker, written first, records them, and the next start completes them if the daemon is killed.
//! No database is created while the marker exists.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{DAMAGED, free_name, move_aside, move_away, private_file, sync_directory, write_whole};
pub use super::files::{PARTS, with};
use crate::sys::clock;

/// The largest report that is read, in bytes: one that names 10,000 sessions.
const MAX_REPORT: u64 = 4 << 20;

/// The reason why a file was set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsideKind {
    /// A damaged database.
    #[default]
    Database,
    /// A database that a later linger wrote.
    Newer,
    /// A WAL with unreadable commits, or without its database.
    Wal,
}

/// The report beside a set-aside file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The reason why it was set aside.
    pub kind: AsideKind,
    /// When it was set aside, in Unix milliseconds.
    pub at: u64,
    /// Why.
    pub reason: String,
    /// The version of its schema, if a later linger wrote it.
    pub schema: i64,
    /// Whether everything readable was copied.
    pub settled: bool,
    /// Whether it may have sessions that could not be found.
    pub uncertain: bool,
    /// How many sessions were copied whole.
    pub carried: u32,
    /// The other sessions.
    pub left: Vec<Left>,
}

/// A session that could not be copied whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its id in the database that was set aside.
    pub session: String,
    /// How many of its events were copied.
    pub events: u64,
    /// How many it had; 0 if unknown.
    pub of: u64,
    /// Why the others were not.
    pub text: String,
}

/// A set-aside file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aside {
    /// Where it is.
    #[serde(with = "linger_protocol::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// The content of the file beside it.
    pub report: Report,
}

impl AsideKind {
    /// The part of a set-aside file's name between the database's name and the date.
    fn mark(self) -> &'static str {
        match self {
            Self::Database => DAMAGED,
            Self::Newer => ".newer-",
            Self::Wal => "-wal.damaged-",
        }
    }
}

impl Report {
    /// Whether something of it may be nowhere else.
    pub fn has_rest(&self) -> bool {
        self.kind != AsideKind::Wal && (self.uncertain || !self.left.is_empty())
    }
}

impl Aside {
    /// Writes the report.
    pub fn save(&self) -> io::Result<()> {
        write_whole(&with(&self.path, ".json"), &self.report)
    }
}

fn marker(database: &Path) -> PathBuf {
    with(database, ".setting-aside")
}

/// Records that the database is to be set aside; [`finish`] does it, now or at the next start.
pub fn begin(database: &Path, report: Report) -> io::Result<PathBuf> {
    let aside = Aside { path: free_name(database, report.kind.mark(), report.at), report };
    write_whole(&marker(database), &aside)?;
    Ok(aside.path)
}

/// Does what [`begin`] recorded, if anything. The database must not be open.
pub fn finish(database: &Path) -> io::Result<()> {
    let note = marker(database);
    move_away(&note)?;
    let text = match std::fs::read(&note) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    let Ok(aside) = serde_json::from_slice::<Aside>(&text) else {
        // A marker is written whole or not at all: this one is damaged.
        return std::fs::rename(&note, free_name(&note, DAMAGED, clock::now()));
    };
    for part in PARTS {
        match std::fs::rename(with(database, part), with(&aside.path, part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    aside.save()?;
    std::fs::remove_file(&note)?;
    sync_directory(database)?;
    tracing::error!(target: "store", file = %aside.path.display(), reason = aside.report.reason, "the database was set aside");
    Ok(())
}

/// Copies the WAL of a database that stays in use.
pub fn copy_wal(database: &Path, reason: String) -> io::Result<PathBuf> {
    let at = clock::now();
    let to = free_name(database, AsideKind::Wal.mark(), at);
    let from = File::open(with(database, "-wal"))?;
    let mut copy = private_file(&to)?;
    io::copy(&mut &from, &mut copy)?;
    copy.sync_all()?;
    let aside =
        Aside { path: to, report: Report { kind: AsideKind::Wal, at, reason, settled: true, ..Report::default() } };
    aside.save()?;
    Ok(aside.path)
}

/// Renames the WAL and its index, whose database is missing: SQLite would use them for the new one.
pub fn orphan(database: &Path) -> io::Result<()> {
    PARTS.iter().skip(1).try_for_each(|part| move_aside(&with(database, part)).map(drop))
}

/// All set-aside files, the oldest first.
pub fn list(database: &Path) -> Vec<Aside> {
    let (Some(dir), Some(name)) = (database.parent(), database.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<Aside> = entries
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let rest = file.strip_prefix(name)?;
            let mut kinds = [AsideKind::Database, AsideKind::Newer, AsideKind::Wal].into_iter();
            let (date, kind) = kinds.find_map(|kind| Some((rest.strip_prefix(kind.mark())?, kind)))?;
            // Reports, temporary directories, and SQLite's other files.
            let part = date.contains('.') || PARTS.iter().skip(1).any(|part| date.ends_with(part));
            (!part).then(|| Aside { path: dir.join(&file), report: report(&dir.join(&file), kind) })
        })
        .collect();
    found.sort_by(|a, b| (a.report.at, &a.path).cmp(&(b.report.at, &b.path)));
    found
}

/// Whether a set-aside database still has sessions of its own: then no blob is deleted, because they may use it.
pub fn keeps_blobs(database: &Path) -> bool {
    list(database)
        .iter()
        .any(|Aside { report, .. }| report.kind != AsideKind::Wal && (!report.settled || report.has_rest()))
}

fn report(path: &Path, kind: AsideKind) -> Report {
    let file = with(path, ".json");
    let known = std::fs::metadata(&file).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_REPORT);
    let text = known.then(|| std::fs::read(&file).ok()).flatten();
    let reason = if kind == AsideKind::Wal { "its database was missing" } else { "its report is missing" };
    let unknown = || Report { kind, reason: reason.to_owned(), ..Report::default() };
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_else(unknown)
}
