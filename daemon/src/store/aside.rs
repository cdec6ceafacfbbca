//! Setting aside: a database that cannot be used goes, with its WAL, to a dated name beside it. Nothing is ever deleted or
//! changed on the way.
//!
//! A set-aside database `linger.db.damaged-2026-11-21T101500Z` has its WAL and index under the same name with SQLite's
//! suffixes, so that `sqlite3` opens it as it is, and a [`Report`] in JSON beside it: why, and what became of it.
//! Three renames are not one: a marker that is written first says what is under way, so that a daemon that is killed between two
//! of them goes on with it at its next start. No database is made while the marker is there.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sys::clock;

/// What SQLite adds to a database's name for the WAL and its index.
pub const PARTS: [&str; 3] = ["", "-wal", "-shm"];

/// What a set-aside file's name has after the database's.
const NAMES: [(&str, Kind); 3] =
    [(".damaged-", Kind::Database), (".newer-", Kind::Newer), ("-wal.damaged-", Kind::Wal)];

/// The most that is read of a report, in bytes: 10,000 sessions that could not be carried over.
const MAX_REPORT: u64 = 4 << 20;

/// What a set-aside file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A whole database that cannot be used, or not in part.
    #[default]
    Database,
    /// A whole database that a later linger wrote.
    Newer,
    /// The end of a WAL that cannot be read; its database is in use.
    Wal,
}

/// What is known of a set-aside file; beside it in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// What it is.
    pub kind: Kind,
    /// When it was set aside, in Unix milliseconds.
    pub at: u64,
    /// Why.
    pub reason: String,
    /// The version of its schema, if a later linger wrote it.
    pub schema: i64,
    /// Whether everything that could be carried over was.
    pub settled: bool,
    /// Whether there may be sessions that nothing is known of.
    pub uncertain: bool,
    /// Sessions that were carried over whole.
    pub carried: u32,
    /// Sessions that could not be carried over, or not whole.
    pub left: Vec<Left>,
}

/// A session that could not be carried over whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The session.
    pub session: String,
    /// How many of its events were carried over.
    pub events: u64,
    /// How many it is known to have had; 0 if nothing is known of that.
    pub of: u64,
    /// What is wrong with the rest.
    pub text: String,
}

/// A set-aside file.
#[derive(Clone, Debug, PartialEq)]
pub struct Aside {
    /// Where it lies.
    pub path: PathBuf,
    /// What is known of it.
    pub report: Report,
}

impl Report {
    /// Whether something of it is here alone, as far as anybody knows.
    pub fn has_rest(&self) -> bool {
        self.kind != Kind::Wal && (self.uncertain || !self.left.is_empty())
    }
}

impl Aside {
    /// Writes down what is known now.
    pub fn save(&self) -> io::Result<()> {
        write_whole(&with(&self.path, ".json"), &self.report)
    }
}

/// What is under way.
#[derive(Serialize, Deserialize)]
struct Marker {
    to: PathBuf,
    report: Report,
}

/// `path` with something after its last component.
pub fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn marker(database: &Path) -> PathBuf {
    with(database, ".setting-aside")
}

/// Notes that the database at `path` is to be set aside; [`finish`] does it, now or at the next start.
pub fn begin(database: &Path, report: Report) -> io::Result<PathBuf> {
    let to = free_name(database, report.kind, report.at);
    write_whole(&marker(database), &Marker { to: to.clone(), report })?;
    Ok(to)
}

/// Does what [`begin`] noted, if anything. Nobody may have the database open.
pub fn finish(database: &Path) -> io::Result<Option<Aside>> {
    let note = marker(database);
    move_away(&note)?;
    let Marker { to, report } = match std::fs::read(&note) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(marker) => marker,
            // It is written whole or not at all: this is somebody else's, or damaged itself.
            Err(_) => {
                std::fs::rename(&note, free_name(&note, Kind::Database, clock::now()))?;
                return Ok(None);
            }
        },
    };
    for part in PARTS {
        let (from, to) = (with(database, part), with(&to, part));
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let aside = Aside { path: to, report };
    aside.save()?;
    std::fs::remove_file(&note)?;
    sync_directory(database)?;
    tracing::error!(target: "store", file = %aside.path.display(), reason = aside.report.reason, "the database was set aside");
    Ok(Some(aside))
}

/// Copies a file aside that stays in use.
pub fn copy(database: &Path, part: &str, reason: String) -> io::Result<Aside> {
    let at = clock::now();
    let to = free_name(database, Kind::Wal, at);
    let from = File::open(with(database, part))?;
    let mut copy = private_file(&to)?;
    io::copy(&mut &from, &mut copy)?;
    copy.sync_all()?;
    // Nothing in it can be carried over: what could be read was.
    let aside = Aside { path: to, report: Report { kind: Kind::Wal, at, reason, settled: true, ..Report::default() } };
    aside.save()?;
    Ok(aside)
}

/// Renames a part of a database that has lost its main file.
pub fn orphan(database: &Path, part: &str) -> io::Result<()> {
    let (from, at) = (with(database, part), clock::now());
    if !from.exists() {
        return Ok(());
    }
    let to = free_name(&from, Kind::Database, at);
    tracing::error!(target: "store", file = %to.display(), "a part of a database that is not there was set aside");
    std::fs::rename(&from, &to)?;
    let reason = "its database is not there".to_owned();
    Aside { path: to, report: Report { kind: Kind::Wal, at, reason, settled: true, ..Report::default() } }.save()
}

/// Removes a database that is only half made.
pub fn clear_database(path: &Path) -> io::Result<()> {
    PARTS.into_iter().chain(["-journal"]).try_for_each(|part| clear(&with(path, part)))
}

/// Removes a file that is only half made.
fn clear(path: &Path) -> io::Result<()> {
    move_away(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives what has the name of a file, and is none, a dated name; a file stays.
pub fn move_away(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().map_or(true, |meta| meta.is_file()) {
        return Ok(());
    }
    out_of_the_way(path).map(drop)
}

/// Gives whatever is there a dated name, which it says.
pub fn out_of_the_way(path: &Path) -> io::Result<Option<PathBuf>> {
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let to = free_name(path, Kind::Database, clock::now());
    tracing::error!(target: "store", path = %path.display(), to = %to.display(), "what is not what it should be was moved out of the way");
    std::fs::rename(path, &to)?;
    Ok(Some(to))
}

/// Everything that was set aside, the oldest first.
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
            let (date, kind) = NAMES.into_iter().find_map(|(mark, kind)| Some((rest.strip_prefix(mark)?, kind)))?;
            // What SQLite, a report and salvaging have beside it.
            let part = date.contains('.') || PARTS.iter().skip(1).any(|part| date.ends_with(part));
            (!part).then(|| Aside { path: dir.join(&file), report: report(&dir.join(&file), kind) })
        })
        .collect();
    found.sort_by(|a, b| (a.report.at, &a.path).cmp(&(b.report.at, &b.path)));
    found
}

/// Whether a database was set aside from which not everything that can be was carried over: what its sessions have in files of
/// their own is to stay.
pub fn is_owed(database: &Path) -> bool {
    list(database).iter().any(|Aside { report, .. }| report.kind != Kind::Wal && (!report.settled || report.has_rest()))
}

fn report(path: &Path, kind: Kind) -> Report {
    let file = with(path, ".json");
    let known = std::fs::metadata(&file).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_REPORT);
    let text = known.then(|| std::fs::read(&file).ok()).flatten();
    let unknown = || Report { kind, reason: "nothing is known of why".to_owned(), ..Report::default() };
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_else(unknown)
}

/// The dated name, and one that is free if two were set aside in one second.
fn free_name(database: &Path, kind: Kind, at: u64) -> PathBuf {
    let mark = NAMES.iter().find(|(_, named)| *named == kind).map_or(".damaged-", |(mark, _)| mark);
    let name = format!("{mark}{}", stamp(at));
    let taken = |path: &Path| PARTS.iter().any(|part| with(path, part).symlink_metadata().is_ok());
    let first = with(database, &name);
    let more = (2..).map(|n| with(database, &format!("{name}-{n}")));
    std::iter::once(first.clone()).chain(more).find(|path| !taken(path)).unwrap_or(first)
}

/// `2026-11-21T101500Z`: no character that a shell or another system would mind.
fn stamp(at: u64) -> String {
    let (day, second) = (at / 86_400_000, at / 1000 % 86_400);
    format!("{}T{:02}{:02}{:02}Z", clock::date(day), second / 3600, second / 60 % 60, second % 60)
}

/// Writes a file that is there whole or not at all, also after the machine lost its power.
fn write_whole(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let new = with(path, ".new");
    clear(&new)?;
    let mut file = private_file(&new)?;
    file.write_all(serde_json::to_string_pretty(content)?.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_directory(path)
}

/// Makes a file that nobody else can read.
pub fn private_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

/// Names are on disk once their directory is.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
