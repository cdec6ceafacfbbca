//! Where a repository keeps what it has, found without git: a `.git` file counts only if the repository that it names knows this
//! directory as its worktree or submodule. Blocks on the disk.

use std::path::{Path, PathBuf};

use crate::tool::handle::Entry;

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
        let status = git.symlink_metadata().map_err(|_| format!("{} is no git repository", root.display()))?;
        if status.is_dir() {
            return match git.join("commondir").symlink_metadata() {
                Ok(_) => Err("its .git directory leads elsewhere (.git/commondir)".to_owned()),
                Err(_) => Ok(Self { own: git.clone(), common: git }),
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
        // A submodule of the repository that it lies in.
        let modules = root.ancestors().skip(1).map(|above| above.join(".git/modules"));
        let mut modules = modules.filter_map(|modules| modules.canonicalize().ok());
        if modules.any(|modules| own.starts_with(modules)) && own.join("commondir").symlink_metadata().is_err() {
            return Ok(Self { common: own.clone(), own });
        }
        Err(elsewhere())
    }
}

/// All of a small regular file; nothing if it is something else.
pub(super) fn small(path: &Path) -> Option<Vec<u8>> {
    Entry::at(path).ok()?.read(SMALL_MAX).ok()?
}

/// The text of a small file of one line.
fn line(path: &Path) -> Option<String> {
    Some(String::from_utf8(small(path)?).ok()?.trim_end_matches('\n').to_owned())
}
