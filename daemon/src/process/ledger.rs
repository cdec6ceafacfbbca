//! The ledger: a file of running children, by process id and start time, for the start after a crash.
//!
//! It exists while a daemon runs; a start that finds none has nothing to clean up. If it was deleted, the next keeper sees by the
//! lock that a daemon died, and creates an empty one.
//! It finds children that cleared their environment: process id and start time identify a process.
//! One line a child; truncated when no child runs, and rewritten with the running ones when it grows past [`REWRITE_AT`].
//! It is not synced: no child survives a power loss. If writing fails, a warning says so once and nothing else stops.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::SessionId;
use linger_protocol::token::Grant;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::sys::peer;

/// How much of the ledger is read, in bytes, from its end: the newest lines are last.
const MAX_RECORD: u64 = 256 << 10;

/// The size at which the ledger is rewritten, in bytes: of its thousands of lines only a few still run.
const REWRITE_AT: u64 = 64 << 10;

/// The purpose of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartedFor {
    /// The daemon itself, or what no session owns.
    #[default]
    Daemon,
    /// A tool of this session.
    Session(SessionId),
    /// It is an MCP server, and the user's configuration grants it this.
    Server(Arc<Grant>),
}

impl StartedFor {
    /// The session whose tool it is.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session) => Some(session),
            Self::Daemon | Self::Server(_) => None,
        }
    }
}

/// The children of one daemon, and the file that records them.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The daemon's database; absent in tests that need none.
    pub(super) owner: Option<PathBuf>,
    recorded: Mutex<Recorded>,
}

/// A child that runs.
#[derive(Debug)]
struct Child {
    pid: Pid,
    /// When it began, as [`peer::started`] has it: another process may get its number.
    began: Option<u64>,
    started_for: StartedFor,
}

#[derive(Debug, Default)]
struct Recorded {
    /// The running children.
    running: Vec<Child>,
    /// The open file; absent before [`Ledger::open`] and after a failed write.
    file: Option<File>,
}

/// Children that an earlier daemon left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftBehind {
    /// It crashed: it may have left processes that the ledger does not list.
    pub died: bool,
    /// Process groups that still ran and were killed.
    pub ended: usize,
}

/// Creates an empty ledger if there is none, so that the next start cleans up.
pub fn keep(path: &Path) -> io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

impl Ledger {
    /// A ledger for the daemon with the database `owner`; not open yet.
    pub(super) fn of(owner: &Path) -> Self {
        Self { owner: Some(owner.to_path_buf()), recorded: Mutex::default() }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the process groups in the file at `path` that still run, and records the daemon's own children there from now on.
    /// Fails if the file cannot be used.
    pub fn open(&self, path: &Path) -> io::Result<LeftBehind> {
        let (file, left) = take_over(path)?;
        self.recorded().file = Some(file);
        Ok(left)
    }

    /// Removes the file, unless a child still runs.
    pub fn close(&self, path: &Path) -> io::Result<()> {
        let mut recorded = self.recorded();
        if !recorded.running.is_empty() {
            return Ok(());
        }
        recorded.file.take().map_or(Ok(()), |_| std::fs::remove_file(path))
    }

    /// The purpose of this process: that of its nearest recorded ancestor. A process that has left its parents counts as the
    /// daemon's own.
    pub fn started_for(&self, pid: u32) -> StartedFor {
        let recorded = self.recorded();
        let found = peer::line(pid).find_map(|pid| {
            let is_it = |child: &&Child| child.pid.as_raw_nonzero().get().cast_unsigned() == pid;
            let child = recorded.running.iter().find(is_it)?;
            Some(if started(child.pid) == child.began { child.started_for.clone() } else { StartedFor::Daemon })
        });
        found.unwrap_or_default()
    }

    /// Whether the server with this grant still runs.
    pub fn runs(&self, server: &Arc<Grant>) -> bool {
        let is = |child: &Child| matches!(&child.started_for, StartedFor::Server(grant) if Arc::ptr_eq(grant, server));
        self.recorded().running.iter().any(is)
    }

    /// Records a child.
    pub(super) fn add(&self, child: Pid, started_for: StartedFor) {
        let mut recorded = self.recorded();
        recorded.running.push(Child { pid: child, began: started(child), started_for });
        let Recorded { running, file: Some(file) } = &mut *recorded else { return };
        if let Err(error) = write(file, child, running) {
            tracing::warn!(target: "process", %error, "cannot record children; after a crash some may be left running");
            recorded.file = None;
        }
    }

    /// Removes a child that has ended; empties the file with the last one.
    pub(super) fn remove(&self, child: Pid) {
        let mut recorded = self.recorded();
        recorded.running.retain(|it| it.pid != child);
        if let Recorded { running, file: Some(file) } = &*recorded
            && running.is_empty()
        {
            // A line that stays is harmless: its start time matches no process.
            let _stays = file.set_len(0);
        }
    }
}

/// Opens the file at `path`, kills the groups in it that still run, and empties it.
fn take_over(path: &Path) -> io::Result<(File, LeftBehind)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600).custom_flags(flags.bits() as i32);
    match options.clone().create_new(true).open(path) {
        Ok(file) => return Ok((file, LeftBehind::default())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    let mut text = Vec::new();
    // A first line that is cut short matches no process.
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(MAX_RECORD)))?;
    Read::by_ref(&mut file).take(MAX_RECORD).read_to_end(&mut text)?;
    let left: Vec<Pid> = String::from_utf8_lossy(&text).lines().filter_map(still_runs).collect();
    for group in &left {
        // It may have ended in the meantime.
        let _gone = kill_process_group(*group, Signal::KILL);
    }
    file.set_len(0)?;
    Ok((file, LeftBehind { died: true, ended: left.len() }))
}

/// The child of a line, if it still runs.
fn still_runs(line: &str) -> Option<Pid> {
    let (pid, began) = line.split_once(' ')?;
    let pid = Pid::from_raw(pid.parse().ok().filter(|pid| *pid > 0)?)?;
    (Some(started(pid)?) == began.parse().ok()).then_some(pid)
}

/// Adds a line for `child`, which is among `running`.
fn write(file: &mut File, child: Pid, running: &[Child]) -> io::Result<()> {
    let rewrite = file.metadata()?.len() > REWRITE_AT;
    let all = running.iter().map(|child| child.pid).filter(|pid| rewrite || *pid == child);
    // A child that has ended already needs no line.
    let line = |pid: Pid| Some(format!("{} {}\n", pid.as_raw_nonzero(), started(pid)?));
    let lines: String = all.filter_map(line).collect();
    if rewrite {
        // A daemon killed at this moment has an empty ledger; the mark finds its children.
        file.set_len(0)?;
    }
    file.write_all(lines.as_bytes())
}

fn started(pid: Pid) -> Option<u64> {
    peer::started(pid.as_raw_nonzero().get().cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use super::*;

    #[test]
    fn only_the_very_process_that_was_recorded_is_meant() {
        let me = rustix::process::getpid();
        let began = started(me).unwrap();
        let line = |began: u64| format!("{} {began}", me.as_raw_nonzero());
        assert_eq!(still_runs(&line(began)), Some(me));
        assert_eq!(still_runs(&line(1)), None, "an earlier one with the same number");
        for junk in ["", "x", "1", "0 1", "-1 1", "99999999999 1", "4194304 1"] {
            assert_eq!(still_runs(junk), None, "{junk}");
        }
    }
    #[test]
    #[allow(clippy::disallowed_methods)] // A real child, to be found by its line.
    fn a_record_that_has_become_long_keeps_those_that_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("children");
        let spawn = || std::process::Command::new("/bin/sleep").arg("30").process_group(0).spawn().unwrap();
        let mut child = spawn();
        let pid = Pid::from_child(&child);
        let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        for _ in 0..20_000 {
            write(&mut file, pid, &[Child { pid, began: None, started_for: StartedFor::Daemon }]).unwrap();
        }
        let length = path.metadata().unwrap().len();
        assert!(length <= REWRITE_AT + 64, "{length}");
        // A ledger beyond the bound, with the child as its newest line.
        let newest = std::fs::read_to_string(&path).unwrap().lines().last().unwrap().to_owned();
        std::fs::write(&path, format!("{}{newest}\n", "4194300 123456789\n".repeat(16_000))).unwrap();
        let ledger = Ledger::default();
        assert_eq!(ledger.open(&path).unwrap(), LeftBehind { died: true, ended: 1 });
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
        ledger.close(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_record_has_the_children_of_its_own_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        let (one, two) = (Ledger::default(), Ledger::default());
        one.open(&path).unwrap();
        two.open(&other).unwrap();
        let me = rustix::process::getpid();
        one.add(me, StartedFor::Session("s1".into()));
        assert_eq!(one.started_for(std::process::id()).session(), Some(&"s1".into()));
        assert_eq!(two.started_for(std::process::id()), StartedFor::Daemon);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().map(still_runs).collect::<Vec<_>>(), [Some(me)]);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "");
        one.close(&path).unwrap();
        two.close(&other).unwrap();
        assert!(path.exists() && !other.exists(), "a child of one still runs");
        one.remove(me);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        one.close(&path).unwrap();
        assert!(!path.exists());
    }
}
