//! Git worktrees of children: a directory and a branch of its own, made by the daemon below its data directory.
//!
//! `git worktree` itself makes and removes them, without a checkout and without hooks; what puts files somewhere, or reads their
//! contents, runs in a [private git directory](super::private), so no filter, merge driver or other program that the repository names
//! ever runs. Files that a filter would change (Git LFS) are there as git stores them.
//! Everything can be done again: what a crash left half made is made whole by the next [`Worktrees::make`] for the same child.
//! A worktree that has anything that is nowhere else is never removed. One whose session never came to be, because of a crash between
//! the two, is found by [`Worktrees::made_before`].
//!
//! | file | owns |
//! |---|---|
//! | `run` | running git, in the repository and in a private directory |
//! | `merge` | committing what a child left, and merging it |
//! | `index` | holding an index while files are merged |

mod index;
mod merge;
mod run;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linger_protocol::id::SessionId;
use linger_protocol::worktree::{Worktree, WorktreeStatus};

use crate::process::server::Children;
use crate::sys::{clock, disk};
use crate::tool::git::places::Places;
use crate::tool::workspace::Workspace;

pub use merge::{MergeDone, MergeError, Work};
use run::Repository;

/// The beginning of the names of branches.
const BRANCHES: &str = "linger";

/// How old a worktree without a session is before it is one that a crash left: its session is made right after it.
const STRAY_AGE: Duration = Duration::from_secs(3600);

/// How often strays are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(6 * 3600);

/// The locks of worktrees that are kept at once; more of them are made again.
const MAX_LOCKS: usize = 256;

/// The worktrees of all children; part of what sessions share.
#[derive(Debug)]
pub struct Worktrees {
    dir: PathBuf,
    children: Children,
    /// One task at a time works on a worktree.
    locks: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
    /// When strays were looked for last.
    swept: Mutex<Option<Instant>>,
}

impl Worktrees {
    /// The worktrees below `dir`, which need not exist.
    pub fn below(dir: PathBuf, children: Children) -> Self {
        Self { dir, children, locks: Mutex::default(), swept: Mutex::default() }
    }

    /// The branch of a child.
    pub fn branch(child: &SessionId) -> String {
        format!("{BRANCHES}/{child}")
    }

    /// Makes the worktree of a child from the last commit of its parent's workspace, or finds the one that there is. Fails with the
    /// reason, for the model.
    pub async fn make(&self, parent: &Workspace, child: &SessionId) -> Result<Worktree, String> {
        let path = self.dir.join(child.as_str());
        let _lock = self.lock(&path).await;
        let repository = Repository::of(&parent.root, parent, &self.children)?;
        let Some(head) = repository.git.commit("HEAD").await? else {
            return Err(
                "the repository has no commit yet, and a worktree is made of one: commit something first, or work \
                        without a worktree"
                    .to_owned(),
            );
        };
        let branch = Self::branch(child);
        if is_whole(&path).await {
            touch(&path).await;
            let own = Repository::of(&path, parent, &self.children)?;
            let base = own.git.commit("HEAD").await?.unwrap_or(head);
            return Ok(Worktree { path, branch, base, status: WorktreeStatus::Kept });
        }
        linger_protocol::place::private_directory(&self.dir).map_err(|error| error.to_string())?;
        repository.forget(&path).await;
        let place = path.to_string_lossy().into_owned();
        let begun = repository.git.commit(&format!("refs/heads/{branch}")).await?;
        let named: Vec<&str> = match begun {
            Some(_) => vec!["worktree", "add", "--no-checkout", &place, &branch],
            None => vec!["worktree", "add", "--no-checkout", "-b", &branch, &place, &head],
        };
        repository.git.run(&named).await?;
        let base = begun.unwrap_or(head);
        if let Err(why) = self.check_out(&path, parent, &base).await {
            self.remove(&repository, &path, &branch, &base).await?;
            return Err(why);
        }
        tracing::info!(target: "worktree", path = %path.display(), branch, base, "made");
        Ok(Worktree { path, branch, base, status: WorktreeStatus::Kept })
    }

    /// Puts the files of a commit into a new worktree.
    async fn check_out(&self, path: &Path, parent: &Workspace, commit: &str) -> Result<(), String> {
        let private = run::private(path, parent, &self.children).await?.on_own_index();
        // The index is written last, so a worktree with one is whole.
        private.git.run(&["-c", "core.sparseCheckout=false", "read-tree", "-m", "-u", commit]).await?;
        Ok(())
    }

    /// Removes a worktree and its branch unless it has something that is nowhere else; whether it is gone. Fails with the reason.
    pub async fn tidy(&self, of: &Worktree, workspace: &Workspace) -> Result<bool, String> {
        let _lock = self.lock(&of.path).await;
        let there = of.path.clone();
        match disk::probe(&self.dir, disk::TIMEOUT, move || there.join(".git").symlink_metadata().is_ok()).await {
            Some(true) => {}
            // A user removed it; the branch is theirs.
            Some(false) => return Ok(true),
            None => return Err(disk::unresponsive(&of.path)),
        }
        if self.has_work(of, workspace).await? {
            return Ok(false);
        }
        self.remove_unused(of, workspace).await?;
        Ok(true)
    }

    /// The children whose worktrees were made a while ago, now and then; nothing in between.
    pub async fn made_before(&self) -> Vec<SessionId> {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.is_some_and(|at| at.elapsed() < SWEEP_EVERY) {
                return Vec::new();
            }
            *swept = Some(Instant::now());
        }
        let dir = self.dir.clone();
        let look = move || {
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            entries
                .filter(|entry| is_old(&entry.path()))
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect()
        };
        let names: Option<Vec<String>> = disk::probe(&self.dir, disk::TIMEOUT, look).await;
        names.unwrap_or_default().into_iter().map(SessionId).collect()
    }

    /// Removes the worktree of a child that was never made, unless it has something that is nowhere else, or was made lately; whether it
    /// is gone. `workspace` says where git is. Fails with the reason.
    pub async fn tidy_stray(&self, child: &SessionId, workspace: &Workspace) -> Result<bool, String> {
        let path = self.dir.join(child.as_str());
        let _lock = self.lock(&path).await;
        let there = path.clone();
        if disk::probe(&self.dir, disk::TIMEOUT, move || is_old(&there)).await != Some(true) {
            return Ok(false);
        }
        let own = Repository::of(&path, workspace, &self.children)?;
        let Some(head) = own.git.commit("HEAD").await? else { return Ok(false) };
        let of = Worktree { branch: Self::branch(child), base: String::new(), path, status: WorktreeStatus::Kept };
        if self.has_work(&of, workspace).await? {
            return Ok(false);
        }
        self.remove_unused(&Worktree { base: head, ..of }, workspace).await?;
        Ok(true)
    }

    async fn remove_unused(&self, of: &Worktree, workspace: &Workspace) -> Result<(), String> {
        let repository = Repository::of(&of.path, workspace, &self.children)?.shared();
        self.remove(&repository, &of.path, &of.branch, &of.base).await?;
        tracing::info!(target: "worktree", path = %of.path.display(), branch = of.branch, "removed: it has no changes");
        Ok(())
    }

    /// Whether a worktree has changes that are not committed, or commits that no other branch has.
    async fn has_work(&self, of: &Worktree, workspace: &Workspace) -> Result<bool, String> {
        let private = run::private(&of.path, workspace, &self.children).await?;
        let changed =
            private.git.run(&["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=dirty"]).await?;
        if !changed.is_empty() || private.unfinished().is_some() {
            return Ok(true);
        }
        let own = format!("refs/heads/{}", of.branch);
        let (tips, but) = (private.git.commits(&[&own, "HEAD"]).await?, format!("--exclude={}", of.branch));
        let mut args: Vec<&str> = vec!["rev-list", "-n", "1"];
        args.extend(tips.iter().map(String::as_str));
        let base = Some(of.base.as_str()).filter(|base| !base.is_empty());
        args.extend(std::iter::once("--not").chain(base).chain([but.as_str(), "--branches", "--remotes"]));
        Ok(!private.git.run(&args).await?.is_empty())
    }

    /// Removes a worktree and its branch, whatever they have. The branch stays if it moved since the last look.
    async fn remove(&self, repository: &Repository, path: &Path, branch: &str, base: &str) -> Result<(), String> {
        let own = format!("refs/heads/{branch}");
        let tip = repository.git.commit(&own).await?.unwrap_or_else(|| base.to_owned());
        repository.forget(path).await;
        let left = path.to_path_buf();
        if disk::probe(&self.dir, disk::TIMEOUT, move || left.symlink_metadata().is_ok()).await != Some(false) {
            return Err(format!("the worktree {} cannot be removed", path.display()));
        }
        // Its files are gone; a branch that is left costs nothing.
        if let Err(why) = repository.git.run(&["update-ref", "-d", &own, &tip]).await {
            tracing::warn!(target: "worktree", branch, %why, "the branch of a removed worktree stays");
        }
        Ok(())
    }

    async fn lock(&self, path: &Path) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() >= MAX_LOCKS {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            locks.entry(path.to_path_buf()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

/// Whether there is a worktree at `path` whose checkout was finished.
async fn is_whole(path: &Path) -> bool {
    let at = path.to_path_buf();
    let look = move || Places::of(&at).is_ok_and(|places| places.own.join("index").is_file());
    disk::probe(path, disk::TIMEOUT, look).await.unwrap_or_default()
}

/// Says that a worktree is in use, so that none takes it for a stray.
async fn touch(path: &Path) {
    let mark = path.join(".git");
    let touched = move || fs::File::open(mark).and_then(|mark| mark.set_modified(clock::system()));
    if !matches!(disk::probe(path, disk::TIMEOUT, touched).await, Some(Ok(()))) {
        tracing::debug!(target: "worktree", path = %path.display(), "its time cannot be set");
    }
}

/// Whether a worktree was made, or asked for again, a while ago.
fn is_old(path: &Path) -> bool {
    let made = path.join(".git").symlink_metadata().and_then(|status| status.modified());
    made.is_ok_and(|made| clock::system().duration_since(made).is_ok_and(|age| age >= STRAY_AGE))
}

/// Whether a directory may be removed as a worktree: it is none of a user's.
fn is_ours(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|status| status.is_dir())
}
