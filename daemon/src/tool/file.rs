//! Files: what is never opened, the text of one that is edited, and errors that a model can act on.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::handle::{Dir, Entry};
use super::path::show;
use super::{ToolOutput, Workspace, diff, text};
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

/// What is said of a file of the daemon's own database.
pub(super) const OWN_DATABASE: &str = "is the database of the daemon itself; look at it with `sqlite3 -readonly`";

/// What tells a file from others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    mode: u32,
    uid: u32,
    inode: (u64, u64),
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self { mode: metadata.mode(), uid: metadata.uid(), inode: (metadata.dev(), metadata.ino()) }
    }
}

impl From<&Stat> for Identity {
    // The types of these fields depend on the system.
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, clippy::cast_lossless)]
    fn from(status: &Stat) -> Self {
        let inode = (status.st_dev as u64, status.st_ino as u64);
        Self { mode: status.st_mode as u32, uid: status.st_uid, inode }
    }
}

/// Whether it is a file of the daemon's own database. To close any descriptor of one takes away the locks that SQLite has on it
/// in this process (fcntl(2)), and another process would then take its WAL for left behind.
pub(super) fn is_own(file: &Identity) -> bool {
    // No other mode is theirs, and few files have it.
    let may_be = file.mode & 0o777 == 0o600 && file.uid == geteuid().as_raw();
    let same = |path: PathBuf| path.metadata().is_ok_and(|own| Identity::from(&own).inode == file.inode);
    let own = || OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    may_be && own().iter().any(|database| PARTS.into_iter().any(|part| same(with(database, part))))
}

/// Opens a regular file by a path that may have links. For files that linger itself looks for and does not show.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let metadata = path.metadata()?;
    regular(FileType::from_raw_mode(metadata.mode()))?;
    if is_own(&Identity::from(&metadata)) {
        return Err(io::Error::other(OWN_DATABASE));
    }
    // It may have been replaced since.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    regular(FileType::from_raw_mode(file.metadata()?.mode()))?;
    Ok(file)
}

/// Fails unless it is the type of a regular file.
pub(super) fn regular(kind: FileType) -> io::Result<()> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory; use ls")),
        _ => Err(io::Error::other("is not a regular file")),
    }
}

/// The text of a file that is to be changed.
pub(super) fn text(entry: &Entry) -> io::Result<String> {
    let large = || io::Error::other(format!("has more than the {TEXT_MAX} bytes that can be edited"));
    String::from_utf8(entry.read(TEXT_MAX)?.ok_or_else(large)?).map_err(|_| io::Error::other("is not UTF-8 text"))
}

/// The failure of a call for `path`, which leads to `target`.
pub(super) fn failure(workspace: &Workspace, path: &Path, target: &Path, error: &io::Error) -> ToolOutput {
    ToolOutput::error(explain(workspace, path, target, error))
}

pub(super) fn explain(workspace: &Workspace, path: &Path, target: &Path, error: &io::Error) -> String {
    let shown = show(&workspace.cwd, path);
    if !workspace.cwd.is_dir() {
        return gone(workspace);
    }
    if error.kind() == io::ErrorKind::NotFound && path.is_symlink() {
        return format!("{shown} is a link to what does not exist");
    }
    if error.kind() == io::ErrorKind::NotFound {
        return format!("{shown} does not exist{}", neighbour(target));
    }
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return format!("{shown} is behind a link that came while the call began, or that leads to itself");
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

/// The name most like the last part of `target` beside it.
fn neighbour(target: &Path) -> String {
    let entries = target.parent().and_then(|parent| Dir::open(parent).and_then(|dir| dir.list()).ok());
    let (Some(name), Some(entries)) = (target.file_name(), entries) else { return String::new() };
    let names: Vec<String> = entries
        .take(NEIGHBOURS_MAX)
        .filter_map(|entry| Some(String::from_utf8_lossy(entry.ok()?.file_name().to_bytes()).into_owned()))
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
