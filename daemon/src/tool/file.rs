//! Files: opened only if they are regular, replaced as a whole, and errors that a model can act on.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Access, OFlags, access};
use rustix::process::geteuid;

use super::path::show;
use super::{Workspace, diff, text};
use crate::store::aside::{PARTS, with};

/// The longest file that is edited: it is in memory several times.
pub(super) const TEXT_MAX: u64 = 16 * 1024 * 1024;

/// Names of a directory that are compared with one that was not found.
const NEIGHBOURS_MAX: usize = 10_000;

/// A diff is for a user to glance at; a longer one is cut.
const DIFF_MAX: usize = 8 * 1024;

/// Files longer than this are not compared: it would take seconds.
const DIFF_INPUT_MAX: usize = 1024 * 1024;

/// A comparison that takes longer gives a coarser diff.
const DIFF_TIME: Duration = Duration::from_millis(300);

/// The databases that this process has open, of all its daemons: their locks are the process's.
static OWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Nothing here opens this database from now on.
pub(crate) fn keep_shut(database: &Path) {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).insert(database.to_path_buf());
}

/// Whether it is a file of the daemon's own database. To close any descriptor of one takes away the locks that SQLite has on it
/// in this process (fcntl(2)), and another process would then take its WAL for left behind.
fn is_own(metadata: &Metadata) -> bool {
    // No other mode is theirs, and few files have it.
    let may_be = metadata.mode() & 0o777 == 0o600 && metadata.uid() == geteuid().as_raw();
    let same =
        |path: PathBuf| path.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (metadata.dev(), metadata.ino()));
    let own = || OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    may_be && own().iter().any(|database| PARTS.into_iter().any(|part| same(with(database, part))))
}

/// Opens a regular file. Nothing else is opened at all: a FIFO would block, and a device may act.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let metadata = path.metadata()?;
    regular(&metadata)?;
    if is_own(&metadata) {
        return Err(io::Error::other("is the database of the daemon itself; look at it with `sqlite3 -readonly`"));
    }
    // It may have been replaced since.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    Ok((file, metadata))
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    match metadata {
        metadata if metadata.is_file() => Ok(()),
        metadata if metadata.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory; use ls")),
        _ => Err(io::Error::other("is not a regular file")),
    }
}

/// The text of a file that is to be changed.
pub(super) fn text(path: &Path) -> io::Result<String> {
    let (file, metadata) = open(path)?;
    let mut bytes = Vec::new();
    file.take(TEXT_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(io::Error::other(format!(
            "has {} bytes, more than the {TEXT_MAX} that can be edited",
            metadata.len()
        )));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("is not UTF-8 text"))
}

/// Puts `content` in the place of `path`: a reader sees the old or the new, and a power cut leaves one of them.
/// Mode and, where it may, owner stay as they were. `path` has no link at its end.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let old = path.metadata().ok();
    if let Some(old) = &old {
        regular(old)?;
        // The directory alone decides about a rename; a file that was made read-only is to stay as it is.
        access(path, Access::WRITE_OK)?;
    }
    let parent = path.parent().ok_or(io::ErrorKind::IsADirectory)?;
    let mut file = tempfile::Builder::new()
        .prefix(".linger-")
        .permissions(Permissions::from_mode(if old.is_some() { 0o600 } else { 0o666 }))
        .tempfile_in(parent)?;
    file.write_all(content)?;
    if let Some(old) = &old {
        let _ = std::os::unix::fs::fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// What to tell a model about `error` with `path`.
pub(super) fn explain(workspace: &Workspace, path: &Path, error: &io::Error) -> String {
    let shown = show(&workspace.cwd, path);
    if !workspace.cwd.is_dir() {
        return gone(workspace);
    }
    if error.kind() == io::ErrorKind::NotFound {
        return format!("{shown} does not exist{}", neighbour(path));
    }
    // `: No such …` for what the system says, ` is …` for what is said here.
    match error.raw_os_error() {
        Some(_) => format!("{shown}: {error}"),
        None => format!("{shown} {error}"),
    }
}

/// That there is nothing to work in.
pub(super) fn gone(workspace: &Workspace) -> String {
    format!("the working directory {} is gone", text::one_line(&workspace.cwd.to_string_lossy()))
}

/// The name most like the last part of `path` beside it.
fn neighbour(path: &Path) -> String {
    let (Some(name), Some(entries)) = (path.file_name(), path.parent().and_then(|parent| parent.read_dir().ok()))
    else {
        return String::new();
    };
    let names: Vec<String> = entries
        .take(NEIGHBOURS_MAX)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    text::did_you_mean(&name.to_string_lossy(), &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A unified diff, bounded; none when nothing changed or there is too much to compare.
pub(super) fn diff(name: &str, old: &str, new: &str) -> Option<String> {
    if old == new || old.len().max(new.len()) > DIFF_INPUT_MAX {
        return None;
    }
    let whole = diff::unified(name, old, new, DIFF_TIME);
    let kept = text::head(&whole, DIFF_MAX);
    match whole.len() - kept.len() {
        0 => Some(whole),
        cut => Some(format!("{kept}[… {cut} bytes left out]\n")),
    }
}
