//! Git for worktrees: in the repository itself for what only git may write (worktrees, references), with nothing that touches a
//! file's content; and in a mirror of it for everything else.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::index::IndexLock;
use super::is_ours;
use crate::process::server::Children;
use crate::sys::disk;
use crate::sys::task;
use crate::tool::git::places::Places;
use crate::tool::git::private::Private;
use crate::tool::git::process::Git;
use crate::tool::handle::Entry;
use crate::tool::workspace::Workspace;

/// How long one call of git may take: a checkout of 100,000 files takes some ten seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// The most bytes that one call may write: the names of about 100,000 files, with modes and objects.
const OUTPUT_MAX: usize = 24 << 20;

/// The longest line of git's log of a branch that is read, in bytes: two commits, an author and a note.
const LINE_MAX: u64 = 16 << 10;

/// Variables that say whose commits these are.
const AUTHOR: [&str; 4] = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];

/// Operations that only a person can end, by the file that says that one is unfinished.
const STATES: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("BISECT_START", "a bisect"),
];

/// The repository itself. Its calls write references and the administrative files of a worktree; of the programs that a
/// configuration can name only hooks would run then, and they are off.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    /// Directory of the worktree's own files.
    own: PathBuf,
    /// Directory of the files that all worktrees share.
    common: PathBuf,
    pub(super) git: Git,
}

impl Repository {
    /// The one whose worktree is `root`. Fails with the reason.
    pub(super) fn of(root: &Path, workspace: &Workspace, children: &Children) -> Result<Self, String> {
        let Places { own, common } = Places::of(root).map_err(|why| format!("no worktree can be made here: {why}"))?;
        let git = git(root, workspace, children).in_repository(&own);
        Ok(Self { own, common, git })
    }

    /// The same from the directory that all worktrees share, for when that of this one goes.
    pub(super) fn shared(self) -> Self {
        Self { git: self.git.with("GIT_DIR", &self.common).started_in(&self.common), ..self }
    }

    /// The commits before and after the last change of HEAD, and what git noted of it; `None` if it keeps no such log.
    pub(super) async fn last_move(&self) -> Option<(String, String, String)> {
        let file = self.own.join("logs/HEAD");
        let end = disk::probe(&self.own, disk::TIMEOUT, move || {
            let (mut file, metadata) = Entry::at(&file).and_then(|entry| entry.open()).ok()?;
            let from = metadata.len().saturating_sub(LINE_MAX);
            file.seek(SeekFrom::Start(from)).ok()?;
            let mut end = Vec::new();
            file.take(LINE_MAX).read_to_end(&mut end).ok()?;
            Some(String::from_utf8_lossy(&end).into_owned())
        });
        let end = end.await??;
        // `OLD NEW NAME <MAIL> TIME ZONE<tab>NOTE`, a line each: gitformat-reflog.
        let (who, note) = end.lines().last()?.split_once('\t')?;
        let mut words = who.split(' ').map(str::to_owned);
        Some((words.next()?, words.next()?, note.to_owned()))
    }

    /// Removes the worktree at `path`, also one that is half made; what cannot be removed stays.
    pub(super) async fn forget(&self, path: &Path) {
        let place = path.to_string_lossy().into_owned();
        // There may be none.
        let _none = self.git.run(&["worktree", "remove", "--force", "--force", &place]).await;
        let left = path.to_path_buf();
        let _gone = task::spawn_blocking(move || {
            if is_ours(&left)
                && let Err(error) = std::fs::remove_dir_all(&left)
            {
                tracing::warn!(target: "worktree", path = %left.display(), %error, "cannot be removed");
            }
        })
        .await;
        // What git noted of a directory that is gone.
        let _none = self.git.run(&["worktree", "remove", "--force", "--force", &place]).await;
    }
}

/// Git that works on the files of the worktree at `root`, in a mirror of its repository. Fails with the reason.
pub(super) async fn private(root: &Path, workspace: &Workspace, children: &Children) -> Result<Private, String> {
    Private::of(git(root, workspace, children)).await
}

fn git(root: &Path, workspace: &Workspace, children: &Children) -> Git {
    Git::of_daemon(root, workspace, children.clone()).within(LIMIT, OUTPUT_MAX)
}

impl Private {
    /// Locks the index of the worktree, and works on its copy from now on. Fails with the reason.
    pub(super) async fn lock_index(&mut self, owner: String) -> Result<Arc<IndexLock>, String> {
        let lock = IndexLock::take(&self.git.root, self.own.clone(), owner).await?;
        self.git = self.git.clone().with("GIT_INDEX_FILE", lock.path());
        Ok(lock)
    }

    /// The unfinished operation in the worktree: a merge, for example. Asks the disk, shortly.
    pub(super) fn unfinished(&self) -> Option<&'static str> {
        STATES.iter().find(|(file, _)| self.own.join(file).symlink_metadata().is_ok()).map(|(_, what)| *what)
    }

    /// Says whose commits these are: of the variables, else of the repository's and then of the user's configuration, else ours.
    pub(super) async fn sign(&mut self, workspace: &Workspace) -> Result<(), String> {
        let mut settings = Vec::new();
        if let Some(home) = workspace.env.get("HOME").map(Path::new) {
            let config = workspace.env.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
            for file in [config.join("git/config"), home.join(".gitconfig")] {
                let read = disk::probe(home, disk::TIMEOUT, move || std::fs::read(file).ok()).await.flatten();
                if let Some(text) = read {
                    // One that cannot be read says nothing.
                    settings.extend(self.settings(text).await.unwrap_or_default());
                }
            }
        }
        settings.extend(self.repository_settings().await?);
        let of = |key: &str| settings.iter().rev().find(|(name, value)| name == key && !value.trim().is_empty());
        let value = |key: &str, other: &str| of(key).map_or_else(|| other.to_owned(), |(_, value)| value.clone());
        let (name, email) = (value("user.name", "linger"), value("user.email", "linger@localhost"));
        let mut git = self.git.clone();
        for (variable, default) in AUTHOR.iter().zip([&name, &email, &name, &email]) {
            git = git.with(variable, workspace.env.get(*variable).filter(|value| !value.is_empty()).unwrap_or(default));
        }
        self.git = git;
        Ok(())
    }
}
