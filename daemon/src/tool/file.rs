//! Files: what is never opened, the text of one that is edited, and errors that a model can act on.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::change::TEXT_MAX;
use super::handle::{Dir, Entry, regular};
use super::own_database::{Identity, OWN_DATABASE, is_own};
use super::path::show;
use super::types::ToolOutput;
use super::workspace::Workspace;
use super::{alike, diff, text};

/// Names of a directory that are compared with one that was not found.
const NEIGHBOURS_MAX: usize = 10_000;

/// A diff is for a user to glance at; a longer one is cut.
const DIFF_MAX: usize = 8 * 1024;

/// Files longer than this are not compared: it would take seconds.
const DIFF_INPUT_MAX: usize = 1024 * 1024;

/// A comparison that takes longer gives a coarser diff.
const DIFF_TIME: Duration = Duration::from_millis(300);

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
    if path.starts_with(&workspace.cwd) && !workspace.cwd.is_dir() {
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

/// The error when the working directory is gone.
pub(super) fn gone(workspace: &Workspace) -> String {
    let cwd = text::one_line(&workspace.cwd.to_string_lossy());
    format!("the working directory {cwd} is gone; absolute paths still work, and `linger set --dir` moves the session")
}

/// Suggests the name in the same directory that is most like the last part of `target`.
fn neighbour(target: &Path) -> String {
    let entries = target.parent().and_then(|parent| Dir::open(parent).and_then(|dir| dir.list()).ok());
    let (Some(name), Some(entries)) = (target.file_name(), entries) else { return String::new() };
    let names: Vec<String> = entries
        .take(NEIGHBOURS_MAX)
        .filter_map(|entry| Some(String::from_utf8_lossy(entry.ok()?.file_name().to_bytes()).into_owned()))
        .collect();
    let name = name.to_string_lossy();
    if let Some(how) = names.iter().find_map(|other| alike::same(&name, other)) {
        return how;
    }
    text::did_you_mean(&name, &names.iter().map(String::as_str).collect::<Vec<_>>())
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
