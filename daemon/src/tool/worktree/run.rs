//! Running git for worktrees: in the repository itself for what only git may write (worktrees, references), with hooks off and
//! nothing that touches a file's content; and in a private git directory for everything else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::index::IndexLock;
use super::is_ours;
use crate::process::finish::Finished;
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};
use crate::process::{End, Input, Stderr};
use crate::sys::disk;
use crate::sys::task;
use crate::tool::git::repository::{Mirror, Places};
use crate::tool::git::{KEPT, OWN, programs};
use crate::tool::workspace::Workspace;

/// How long one call of git may take: a checkout of 100,000 files takes some ten seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// What one call may write, in bytes: the names of about 100,000 files.
const OUTPUT_MAX: usize = 8 << 20;

/// As [`OUTPUT_MAX`], with modes and objects beside the names.
const ENTRIES_MAX: usize = 3 * OUTPUT_MAX;

/// The longest line of git's log of a branch that is read, in bytes: two commits, an author and a note.
const LINE_MAX: u64 = 16 << 10;

/// How much of an error of git's is passed on, in lines.
const TOLD: usize = 5;

/// Settings that count before those of the repository, for the few calls that read its configuration. Such a call writes references
/// and the administrative files of a worktree, and of the programs that a configuration can name only hooks run then.
const SETTINGS: [(&str, &str); 7] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("worktree.useRelativePaths", "false"),
];

/// Variables that say whose commits these are.
const AUTHOR: [&str; 4] = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];

/// What is in the middle of something that only a person can end, by the file that says so.
const STATES: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("BISECT_START", "a bisect"),
];

/// The repository itself.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    /// What belongs to the worktree.
    own: PathBuf,
    /// What all worktrees share.
    common: PathBuf,
    spawn: Spawn,
}

impl Repository {
    /// The one whose worktree is `root`. Fails with the reason.
    pub(super) fn of(root: &Path, workspace: &Workspace, children: &Children) -> Result<Self, String> {
        let places = Places::of(root).map_err(|why| format!("no worktree can be made here: {why}"))?;
        let settings = SETTINGS.iter().enumerate().flat_map(|(n, (name, value))| {
            [
                (format!("GIT_CONFIG_KEY_{n}"), (*name).to_owned()),
                (format!("GIT_CONFIG_VALUE_{n}"), (*value).to_owned()),
            ]
        });
        let mut env = variables(workspace, root);
        env.extend(settings);
        env.insert("GIT_CONFIG_COUNT".to_owned(), SETTINGS.len().to_string());
        env.insert("GIT_DIR".to_owned(), places.own.to_string_lossy().into_owned());
        let spawn = Spawn {
            cwd: root.to_path_buf(),
            env: Arc::new(env),
            children: children.clone(),
            started_for: StartedFor::Daemon,
        };
        Ok(Self { own: places.own, common: places.common, spawn })
    }

    /// The same from the directory that all worktrees share, for when that of this one goes.
    pub(super) fn shared(self) -> Self {
        let mut env = BTreeMap::clone(&self.spawn.env);
        env.insert("GIT_DIR".to_owned(), self.common.to_string_lossy().into_owned());
        let spawn = Spawn { cwd: self.common.clone(), env: Arc::new(env), ..self.spawn };
        Self { spawn, ..self }
    }

    pub(super) async fn run(&self, args: &[&str]) -> Result<String, String> {
        said(&run(&self.spawn, args, Vec::new()).await?, args)
    }

    /// The commit that `name` is, if it is one.
    pub(super) async fn try_commit(&self, name: &str) -> Result<Option<String>, String> {
        try_commit(&self.spawn, name).await
    }

    /// The commits before and after the last change of HEAD, and what git noted of it; `None` if it keeps no such log.
    pub(super) async fn last_move(&self) -> Option<(String, String, String)> {
        let file = self.own.join("logs/HEAD");
        let end = disk::probe(&self.own, disk::TIMEOUT, move || {
            let mut file = File::open(file).ok()?;
            let from = file.metadata().ok()?.len().saturating_sub(LINE_MAX);
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
        let _none = self.run(&["worktree", "remove", "--force", "--force", &place]).await;
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
        let _none = self.run(&["worktree", "remove", "--force", "--force", &place]).await;
    }
}

/// A private git directory of one worktree, with the repository's objects and references.
#[derive(Debug)]
pub(super) struct Private {
    mirror: Arc<Mirror>,
    /// What belongs to the worktree.
    own: PathBuf,
    spawn: Spawn,
}

impl Private {
    /// That of the worktree at `root`; `writes`: its index is the real one, and not a copy. Fails with the reason.
    pub(super) async fn of(
        root: &Path,
        workspace: &Workspace,
        children: &Children,
        writes: bool,
    ) -> Result<Self, String> {
        let at = root.to_path_buf();
        let made = disk::probe(root, disk::TIMEOUT, move || Ok((Mirror::of(&at)?, Places::of(&at)?))).await;
        let (mirror, places) = made.unwrap_or_else(|| Err(disk::unresponsive(root)))?;
        let mut env = variables(workspace, root);
        env.insert("GIT_DIR".to_owned(), mirror.path().to_string_lossy().into_owned());
        env.insert("GIT_WORK_TREE".to_owned(), root.to_string_lossy().into_owned());
        if writes {
            env.insert("GIT_INDEX_FILE".to_owned(), places.own.join("index").to_string_lossy().into_owned());
        }
        let spawn = Spawn {
            cwd: root.to_path_buf(),
            env: Arc::new(env),
            children: children.clone(),
            started_for: StartedFor::Daemon,
        };
        let this = Self { mirror: Arc::new(mirror), own: places.own, spawn };
        let settings = this.settings(&["--file", "-", "--no-includes"], this.mirror.config.clone()).await?;
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        this.mirror.configure(&settings).map_err(|error| error.to_string())?;
        Ok(this)
    }

    async fn settings(&self, of: &[&str], input: Vec<u8>) -> Result<Vec<(String, String)>, String> {
        let args: Vec<&str> = [&["config"], of, &["-z", "--list"]].concat();
        let listed = said(&run(&self.spawn, &args, input).await?, &args)?;
        let pairs = listed.split('\0').filter_map(|line| line.split_once('\n'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) async fn run(&self, args: &[&str]) -> Result<String, String> {
        said(&run(&self.spawn, args, Vec::new()).await?, args)
    }

    /// As [`Self::run`], for `--raw`.
    pub(super) async fn run_raw(&self, args: &[&str]) -> Result<String, String> {
        said(&run_within(&self.spawn, args, Vec::new(), ENTRIES_MAX).await?, args)
    }

    /// Locks the index of the worktree, and works on its copy from now on. Fails with the reason.
    pub(super) async fn lock_index(&mut self, root: &Path, owner: String) -> Result<Arc<IndexLock>, String> {
        let lock = IndexLock::take(root, self.own.clone(), owner).await?;
        let mut env = BTreeMap::clone(&self.spawn.env);
        env.insert("GIT_INDEX_FILE".to_owned(), lock.path().to_string_lossy().into_owned());
        self.spawn.env = Arc::new(env);
        Ok(lock)
    }

    /// As [`Self::run`], with something to read.
    pub(super) async fn run_with(&self, args: &[&str], input: Vec<u8>) -> Result<String, String> {
        said(&run(&self.spawn, args, input).await?, args)
    }

    /// As [`Self::run`], whatever the exit code.
    pub(super) async fn try_run(&self, args: &[&str]) -> Result<Finished, String> {
        run(&self.spawn, args, Vec::new()).await
    }

    /// The commits that these names are; those that are none are left out.
    pub(super) async fn commits(&self, names: &[&str]) -> Result<Vec<String>, String> {
        let mut commits = Vec::new();
        for name in names {
            commits.extend(try_commit(&self.spawn, name).await?);
        }
        Ok(commits)
    }

    /// What the worktree is in the middle of, if it is. Asks the disk, shortly.
    pub(super) fn is_in_the_middle_of(&self) -> Option<&'static str> {
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
                    settings.extend(self.settings(&["--file", "-", "--no-includes"], text).await.unwrap_or_default());
                }
            }
        }
        settings.extend(self.settings(&["--file", "-", "--no-includes"], self.mirror.config.clone()).await?);
        let of = |key: &str| settings.iter().rev().find(|(name, value)| name == key && !value.trim().is_empty());
        let value = |key: &str, other: &str| of(key).map_or_else(|| other.to_owned(), |(_, value)| value.clone());
        let (name, email) = (value("user.name", "linger"), value("user.email", "linger@localhost"));
        let mut env = BTreeMap::clone(&self.spawn.env);
        for (variable, default) in AUTHOR.iter().zip([&name, &email, &name, &email]) {
            let value = workspace.env.get(*variable).filter(|value| !value.is_empty()).unwrap_or(default);
            env.insert((*variable).to_owned(), value.clone());
        }
        self.spawn.env = Arc::new(env);
        Ok(())
    }
}

/// The variables of every call.
fn variables(workspace: &Workspace, root: &Path) -> BTreeMap<String, String> {
    let path = programs(workspace.env.get("PATH").map_or("", String::as_str), root);
    let kept = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), workspace.env.get(*name)?.clone())));
    let own = OWN.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    // Messages are read.
    let plain = [("PATH", path), ("LC_ALL", "C".to_owned())].map(|(name, value)| (name.to_owned(), value));
    kept.chain(own).chain(plain).collect()
}

async fn try_commit(spawn: &Spawn, name: &str) -> Result<Option<String>, String> {
    let named = format!("{name}^{{commit}}");
    let done = run(spawn, &["rev-parse", "--verify", "--quiet", "--end-of-options", &named], Vec::new()).await?;
    let text = String::from_utf8_lossy(&done.output).trim().to_owned();
    Ok(matches!(done.end, End::Status(status) if status.success()).then_some(text).filter(|text| !text.is_empty()))
}

async fn run(spawn: &Spawn, args: &[&str], input: Vec<u8>) -> Result<Finished, String> {
    run_within(spawn, args, input, OUTPUT_MAX).await
}

async fn run_within(spawn: &Spawn, args: &[&str], input: Vec<u8>, max: usize) -> Result<Finished, String> {
    let input = if input.is_empty() { Input::Nothing } else { Input::Bytes(input) };
    let process = spawn.program("git", args, input, Stderr::Apart).await;
    let process = process.map_err(|error| format!("git could not be started: {error}"))?;
    process.finish(LIMIT, max).await.map_err(|error| format!("the output of git could not be read: {error}"))
}

/// The output of a call that went well.
fn said(done: &Finished, args: &[&str]) -> Result<String, String> {
    let what = args.iter().find(|arg| !arg.starts_with('-') && !arg.contains('=')).unwrap_or(&"git");
    match done.end {
        End::Status(status) if status.success() => Ok(String::from_utf8_lossy(&done.output).into_owned()),
        End::Status(status) => {
            let lines: Vec<&str> = done.stderr.trim().lines().take(TOLD).collect();
            let why = if lines.is_empty() { status.to_string() } else { lines.join("; ") };
            Err(format!("git {what} failed: {why}"))
        }
        End::TooMuch => Err(format!("git {what} names too many files")),
        End::TooLate => Err(format!("git {what} takes longer than {} s", LIMIT.as_secs())),
    }
}
