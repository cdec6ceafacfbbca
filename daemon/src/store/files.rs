//! Files beside the database: names with suffixes and dates, private and atomic files.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::sys::clock;

/// The suffixes of a database's files: the database, its WAL, and the WAL's index.
pub const PARTS: [&str; 3] = ["", "-wal", "-shm"];

/// Follows the name of a damaged file, before the date.
pub(super) const DAMAGED: &str = ".damaged-";

/// `path` with a suffix after its last component.
pub fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes an incomplete database.
pub fn clear_database(path: &Path) -> io::Result<()> {
    PARTS.into_iter().chain(["-journal"]).try_for_each(|part| clear(&with(path, part)))
}

/// Removes an incomplete file.
fn clear(path: &Path) -> io::Result<()> {
    move_away(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file atomically, and syncs it.
pub(super) fn write_whole(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let new = with(path, ".new");
    clear(&new)?;
    let mut file = private_file(&new)?;
    file.write_all(serde_json::to_string_pretty(content)?.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_directory(path)
}

/// Creates a file that only the user can read.
pub fn private_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

/// Syncs the directory of `path`, and so its name.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Renames what is not a regular file; a file stays.
pub fn move_away(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().map_or(true, |meta| meta.is_file()) {
        return Ok(());
    }
    move_aside(path).map(drop)
}

/// Renames what is at `path`, if anything, to a dated name, and gives that.
pub fn move_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let to = free_name(path, DAMAGED, clock::now());
    tracing::error!(target: "store", path = %path.display(), to = %to.display(), "an unusable file was renamed");
    std::fs::rename(path, &to)?;
    Ok(Some(to))
}

/// `path` with a mark and a date; also with a number if that name is taken.
pub(super) fn free_name(path: &Path, mark: &str, at: u64) -> PathBuf {
    let name = format!("{mark}{}", stamp(at));
    let taken = |path: &Path| PARTS.iter().any(|part| with(path, part).symlink_metadata().is_ok());
    let first = with(path, &name);
    let more = (2..).map(|n| with(path, &format!("{name}-{n}")));
    std::iter::once(first.clone()).chain(more).find(|path| !taken(path)).unwrap_or(first)
}

/// `2026-11-21T101500Z`: no character that needs quoting.
fn stamp(at: u64) -> String {
    let (day, second) = (at / 86_400_000, at / 1000 % 86_400);
    format!("{}T{:02}{:02}{:02}Z", clock::date(day), second / 3600, second / 60 % 60, second % 60)
}
