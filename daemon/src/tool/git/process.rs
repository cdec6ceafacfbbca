//! Starting git: its arguments, environment, limits and output. No other file starts it.
//!
//! A call of linger's own ([`Git`]) has an environment of its own: a few variables of the session ([`KEPT`]), those that keep git from
//! asking, paging, fetching and reading configurations outside the repository ([`FORCED`]), and a PATH without directories of the
//! workspace. [`QUIET`] are the settings under which no program is started that a configuration can name; a private git directory
//! has them in its file, and a call in a real repository gets them as variables, which count before its configuration.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use crate::process::finish::Finished;
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn, UMASK};
use crate::process::{End, Input, Process, Stderr};
use crate::tool::workspace::Workspace;

/// How much of an error of git's is passed on, in lines.
const STDERR_LINES: usize = 5;

/// Variables of the session that linger's own calls get.
const KEPT: [&str; 10] =
    ["HOME", "XDG_CONFIG_HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "TZ", UMASK];

/// Variables that all of linger's own calls have.
const FORCED: [(&str, &str); 13] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_ASKPASS", "false"),
    ("GIT_EXTERNAL_DIFF", ""),
];

/// Settings of all of linger's own calls: those that name a program name one that does nothing, and nothing is tidied behind a call.
pub(super) const QUIET: [(&str, &str); 15] = [
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", "false"),
    ("core.sshCommand", "/dev/null"),
    ("core.gitProxy", "/dev/null"),
    ("gpg.program", "/dev/null"),
    ("gpg.ssh.program", "/dev/null"),
    ("gpg.x509.program", "/dev/null"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("worktree.useRelativePaths", "false"),
];

/// Why a call of git gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum GitError {
    #[error("git could not be started: {0}")]
    NotStarted(io::Error),
    #[error("the output of git could not be read: {0}")]
    Unreadable(io::Error),
    /// The second is the beginning of what git wrote to standard error, or its status.
    #[error("git {0} failed: {1}")]
    Failed(String, String),
    #[error("git {0} names too many files")]
    TooMuch(String),
    #[error("git {0} takes longer than {limit} s", limit = .1.as_secs())]
    TooLate(String, Duration),
}

impl From<GitError> for String {
    fn from(error: GitError) -> Self {
        error.to_string()
    }
}

/// Runs git for linger itself, in one directory and environment.
#[derive(Clone, Debug)]
pub(super) struct Git {
    /// The worktree that it is about.
    pub(super) root: PathBuf,
    spawn: Spawn,
    /// How long one call may take.
    limit: Duration,
    /// How many bytes one call may write.
    output_max: usize,
}

impl Git {
    /// Git in the directory `root`, for the daemon. Its messages are English, for some are read. Asks the disk, shortly.
    pub(super) fn of_daemon(root: &Path, workspace: &Workspace, children: Children) -> Self {
        let started_for = StartedFor::Daemon;
        let spawn = Spawn { cwd: root.to_path_buf(), env: workspace.env.clone(), children, started_for };
        Self::of_call(root, &spawn).with("LC_ALL", "C")
    }

    /// Git for a call of a session, about the worktree `root`: started where `spawn` starts processes. Asks the disk, shortly.
    pub(super) fn of_call(root: &Path, spawn: &Spawn) -> Self {
        let kept = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), spawn.env.get(*name)?.clone())));
        let forced = FORCED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let path = outside(spawn.env.get("PATH").map_or("", String::as_str), root);
        let env: BTreeMap<String, String> = kept.chain(forced).chain([("PATH".to_owned(), path)]).collect();
        let spawn = Spawn { env: Arc::new(env), ..spawn.clone() };
        Self { root: root.to_path_buf(), spawn, limit: Duration::from_secs(120), output_max: 8 << 20 }
    }

    /// The same with other limits, of the time of a call and of the bytes that it may write.
    pub(super) fn within(self, limit: Duration, output_max: usize) -> Self {
        Self { limit, output_max, ..self }
    }

    /// The same with a variable.
    pub(super) fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let value = value.as_ref().to_string_lossy().into_owned();
        Arc::make_mut(&mut self.spawn.env).insert(name.to_owned(), value);
        self
    }

    /// The same in a private git directory, on the files of the worktree.
    pub(super) fn in_private(self, dir: &Path) -> Self {
        // Variables are text; git starts in the root, so that a name which is none needs not be told.
        let root = if self.root.to_str().is_some() { self.root.clone() } else { PathBuf::from(".") };
        self.with("GIT_DIR", dir).with("GIT_WORK_TREE", root)
    }

    /// The same in a real git directory, under settings that count before those of its configuration.
    pub(super) fn in_repository(self, dir: &Path) -> Self {
        let count = QUIET.len().to_string();
        let this = self.with("GIT_DIR", dir).with("GIT_CONFIG_COUNT", count);
        QUIET.iter().enumerate().fold(this, |this, (nth, (name, value))| {
            this.with(&format!("GIT_CONFIG_KEY_{nth}"), name).with(&format!("GIT_CONFIG_VALUE_{nth}"), value)
        })
    }

    /// The same, started in another directory.
    pub(super) fn started_in(mut self, cwd: &Path) -> Self {
        self.spawn.cwd = cwd.to_path_buf();
        self
    }

    /// Starts git; its two outputs are one.
    pub(super) async fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Process, GitError> {
        self.spawn.program("git", args, Input::Nothing, Stderr::Merged).await.map_err(GitError::NotStarted)
    }

    /// Runs git for its output. Fails if git does.
    pub(super) async fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, GitError> {
        self.run_with(args, Vec::new()).await
    }

    /// As [`Self::run`], with something to read.
    pub(super) async fn run_with<S: AsRef<OsStr>>(&self, args: &[S], input: Vec<u8>) -> Result<String, GitError> {
        Ok(String::from_utf8_lossy(&self.bytes(args, input).await?).into_owned())
    }

    /// As [`Self::run_with`], for output that need not be text.
    pub(super) async fn bytes<S: AsRef<OsStr>>(&self, args: &[S], input: Vec<u8>) -> Result<Vec<u8>, GitError> {
        let done = self.finish(args, input).await?;
        match done.end {
            End::Status(status) if status.success() => Ok(done.output),
            End::Status(status) => Err(GitError::Failed(subcommand(args), reason(&done.stderr, status))),
            End::TooMuch => Err(GitError::TooMuch(subcommand(args))),
            End::TooLate => Err(GitError::TooLate(subcommand(args), self.limit)),
        }
    }

    /// Runs git to its end, whatever that is.
    pub(super) async fn finish<S: AsRef<OsStr>>(&self, args: &[S], input: Vec<u8>) -> Result<Finished, GitError> {
        let input = if input.is_empty() { Input::Nothing } else { Input::Bytes(input) };
        let process = self.spawn.program("git", args, input, Stderr::Apart).await.map_err(GitError::NotStarted)?;
        process.finish(self.limit, self.output_max).await.map_err(GitError::Unreadable)
    }

    /// The commit that `name` is, if it is one.
    pub(super) async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let named = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &named];
        let done = self.finish(&args, Vec::new()).await?;
        let text = String::from_utf8_lossy(&done.output).trim().to_owned();
        Ok(matches!(done.end, End::Status(status) if status.success()).then_some(text).filter(|text| !text.is_empty()))
    }

    /// The commits that these names are; those that are none are left out.
    pub(super) async fn commits(&self, names: &[&str]) -> Result<Vec<String>, GitError> {
        let mut commits = Vec::new();
        for name in names {
            commits.extend(self.commit(name).await?);
        }
        Ok(commits)
    }
}

/// Starts git as a shell in the session's directory would, for a call that was permitted; its two outputs are one.
pub(super) async fn start_as_command(spawn: &Spawn, args: &[String]) -> io::Result<Process> {
    spawn.command("git", args, Input::Nothing, Stderr::Merged).await
}

/// The directories of `path` in which a program may be: nothing of the workspace runs unasked.
fn outside(path: &str, root: &Path) -> String {
    let is_apart = |dir: &PathBuf| dir.is_absolute() && !dir.canonicalize().is_ok_and(|dir| dir.starts_with(root));
    let kept: Vec<PathBuf> = std::env::split_paths(path).filter(is_apart).collect();
    std::env::join_paths(kept).ok().and_then(|path| path.into_string().ok()).unwrap_or_default()
}

/// The subcommand, for errors.
fn subcommand<S: AsRef<OsStr>>(args: &[S]) -> String {
    let mut words = args.iter().map(|arg| arg.as_ref().to_string_lossy());
    words.find(|word| !word.starts_with('-') && !word.contains('=')).map(Cow::into_owned).unwrap_or_default()
}

/// The beginning of what git wrote to standard error, on one line, or its status.
fn reason(stderr: &str, status: ExitStatus) -> String {
    let lines: Vec<&str> = stderr.trim().lines().take(STDERR_LINES).collect();
    if lines.is_empty() { status.to_string() } else { lines.join("; ") }
}
