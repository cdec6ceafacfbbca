//! Where a repository keeps what it has, found without git: a `.git` file counts only if the repository that it names knows this
//! directory as its worktree or submodule. Blocks on the disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::tool::handle::{Dir, Entry};

/// The longest file of a git directory that is read, in bytes; configurations and lists of patterns have some thousands.
const SMALL_MAX: u64 = 1 << 20;

/// The directories of a repository.
pub(super) struct Places {
    /// Directory of the worktree's own files: `HEAD`, `index`.
    pub(super) own: PathBuf,
    /// Directory of the files that all worktrees share: `objects`, `refs`, `config`.
    pub(super) common: PathBuf,
}

impl Places {
    /// The places of the repository whose worktree is `root`. Fails with the reason. Blocks.
    pub(super) fn of(root: &Path) -> Result<Self, String> {
        let git = root.join(".git");
        let status = git.symlink_metadata().map_err(|_| no_worktree(root))?;
        if status.is_dir() {
            return match git.join("commondir").symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { own: git.clone(), common: git }),
                Err(error) => Err(format!("its .git/commondir cannot be read: {error}")),
                Ok(_) => Err("its .git directory leads elsewhere (.git/commondir)".to_owned()),
            };
        }
        let elsewhere = || "its .git file leads to a repository that does not name this directory".to_owned();
        let named = small(&git).ok_or("its .git is neither a directory nor a small file")?;
        let named = String::from_utf8(named).map_err(|_| elsewhere())?;
        let own = named.strip_prefix("gitdir: ").ok_or_else(elsewhere)?.trim_end_matches('\n');
        let own = root.join(own).canonicalize().map_err(|_| elsewhere())?;
        // A worktree: only the repository itself has written both files.
        if let (Some(back), Some(common)) = (line(&own.join("gitdir")), line(&own.join("commondir"))) {
            let common = own.join(common).canonicalize().map_err(|_| elsewhere())?;
            let names_us = own.join(back).canonicalize().is_ok_and(|back| back == git);
            let is_its = own.parent() == Some(&*common.join("worktrees"));
            return if names_us && is_its { Ok(Self { own, common }) } else { Err(elsewhere()) };
        }
        // A submodule of the repository that it lies in: a directory of its own there, without links, that names this worktree.
        let mut modules = root.ancestors().skip(1).map(|above| above.join(".git/modules"));
        let is_its = modules.any(|modules| own != modules && own.starts_with(&modules) && Dir::open(&modules).is_ok());
        if is_its && own.join("commondir").symlink_metadata().is_err() && named_worktree(&own).as_deref() == Some(root)
        {
            return Ok(Self { common: own.clone(), own });
        }
        Err(elsewhere())
    }
}

/// Why a directory without `.git` has nothing to show.
fn no_worktree(root: &Path) -> String {
    let is_bare = root.join("HEAD").is_file() && root.join("objects").is_dir() && root.join("refs").is_dir();
    let what = if is_bare { "a bare git repository, without a worktree" } else { "no git repository" };
    format!("{} is {what}", root.display())
}

/// The worktree that the configuration of a submodule names, as git writes it: a path relative to the git directory.
fn named_worktree(own: &Path) -> Option<PathBuf> {
    let named = ["config.worktree", "config"].iter().find_map(|file| {
        let text = String::from_utf8(small(&own.join(file))?).ok()?;
        let value =
            |line: &str| Some(line.trim().strip_prefix("worktree")?.trim_start().strip_prefix('=')?.trim().to_owned());
        text.lines().rev().find_map(value)
    })?;
    own.join(named.trim_matches('"')).canonicalize().ok()
}

/// All of a small regular file; nothing if there is no file. Fails with the reason if it cannot be read whole: what it says is then
/// unknown, and not nothing.
pub(super) fn if_there(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let shown = path.display();
    match Entry::at(path).and_then(|entry| entry.read(SMALL_MAX)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("its {shown} cannot be read: {error}")),
        Ok(None) => Err(format!("its {shown} has more than {SMALL_MAX} bytes")),
        Ok(content) => Ok(content),
    }
}

/// The most files and directories of a repository that are looked at.
const ENTRIES_MAX: usize = 2_000_000;

/// Fails unless everything below these directories is a file or a directory: git follows links, and waits for whoever writes into a
/// FIFO. A directory that does not exist has nothing in it. Blocks.
pub(super) fn only_files(directories: Vec<PathBuf>) -> Result<(), String> {
    let (mut left, mut looked) = (directories, 0);
    while let Some(directory) = left.pop() {
        let unreadable = |error: io::Error| format!("its {} cannot be read: {error}", directory.display());
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let kind = entry.file_type().map_err(unreadable)?;
            looked += 1;
            if looked > ENTRIES_MAX {
                return Err(format!("it has more than {ENTRIES_MAX} files"));
            }
            if kind.is_symlink() {
                return Err(format!("its {} is a link", entry.path().display()));
            }
            if kind.is_dir() {
                left.push(entry.path());
            } else if !kind.is_file() {
                return Err(format!("its {} is not a regular file", entry.path().display()));
            }
        }
    }
    Ok(())
}

/// All of a small regular file; nothing if it is something else.
pub(super) fn small(path: &Path) -> Option<Vec<u8>> {
    Entry::at(path).ok()?.read(SMALL_MAX).ok()?
}

/// The text of a small file of one line.
fn line(path: &Path) -> Option<String> {
    Some(String::from_utf8(small(path)?).ok()?.trim_end_matches('\n').to_owned())
}
