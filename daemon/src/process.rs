//! Children: the one place that spawns a process, and the guard that ends it with all that it started.
//!
//! A [`Process`] leads a process group of its own. Whoever holds it owns the group: dropping it kills the group, [`Process::end`]
//! asks first. A child gets exactly the environment and the input it is given, and one pipe for its output.
//! What leaves the group (`setsid`) stays in the family ([`adopt_orphans`]) and ends with the daemon, or at its next start:
//! [`end_left_behind`] finds it by a variable that every child has, and [`ledger`] a child that cleared its environment.

mod finish;
pub mod ledger;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};

use crate::fault;
pub use finish::{End, Finished};

/// How long a group may take to end after SIGTERM. Long enough to remove a lock file, short enough that a cancel ends within 2 s.
const GRACE: Duration = Duration::from_millis(500);

/// How long output is read on after the child itself has ended: its `| tee` may lag behind, but a server that it left in the
/// background holds the pipe for ever.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Where programs are looked for when the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Output is read in pieces of this size: what a Linux pipe gives at once, halved to keep futures small.
pub const READ_SIZE: usize = 32 * 1024;

/// The variable that says which daemon a process descends from: the path of its database.
pub const OWNER: &str = "LINGER_OWNER";

/// Processes that tools and keys may have at once, in all sessions; each takes a descriptor or two and megabytes of its own.
/// A session has one `bash` call at a time. How many processes a command starts itself is up to the user's own limits.
const MAX_CHILDREN: usize = 256;

/// How long a killed process may take to be gone: it may hang in the system for as long as a disk does.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(2);

/// What becomes of a child's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stderr {
    /// It is a part of the output, in the order in which it was written.
    Merged,
    /// It has a pipe of its own, for [`Process::finish`].
    Apart,
}

/// The most bytes of input that a child is given: what a pipe holds everywhere, so that nobody has to wait for its reader.
pub const MAX_INPUT: usize = 16 << 10;

/// A running child and its process group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The child itself.
    leader: Option<Pid>,
    /// The group that is still to be killed; none once it was.
    group: Option<Pid>,
    output: pipe::Receiver,
    /// Its standard error, if that is apart.
    errors: Option<pipe::Receiver>,
    /// Until when output is read; none while the child runs.
    until: Option<Instant>,
}

impl Process {
    /// Starts `script` in bash, or in sh where there is no bash.
    pub fn shell(script: &str, cwd: &Path, env: &BTreeMap<String, String>, stderr: Stderr) -> io::Result<Self> {
        match Self::spawn("bash", &["-c", script], cwd, env, stderr) {
            // A missing directory is reported as `NotFound` too.
            Err(error) if error.kind() == io::ErrorKind::NotFound && cwd.is_dir() => {
                Self::spawn("sh", &["-c", script], cwd, env, stderr)
            }
            started => started,
        }
    }

    /// Starts `program` in `cwd` with the environment `env` and nothing else. Must be called within a Tokio runtime.
    pub fn spawn<S: AsRef<OsStr>>(
        program: &str,
        args: &[S],
        cwd: &Path,
        env: &BTreeMap<String, String>,
        stderr: Stderr,
    ) -> io::Result<Self> {
        Self::start(program, args, cwd, env, (Stdio::null(), stderr))
    }

    /// Starts this very program with other arguments, as a helper that gets `input`; see [`MAX_INPUT`].
    pub fn helper(args: &[&str], env: &BTreeMap<String, String>, input: &[u8]) -> io::Result<Self> {
        if input.len() > MAX_INPUT {
            return Err(io::Error::other(format!("a helper takes {MAX_INPUT} bytes")));
        }
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(input)?;
        drop(writer);
        let own = Path::new("/proc/self/exe");
        let program = if own.exists() { own.to_path_buf() } else { std::env::current_exe()? };
        Self::start(&program.to_string_lossy(), args, Path::new("/"), env, (reader.into(), Stderr::Apart))
    }

    #[allow(clippy::disallowed_methods)] // This is the place.
    fn start<S: AsRef<OsStr>>(
        program: &str,
        args: &[S],
        cwd: &Path,
        env: &BTreeMap<String, String>,
        (stdin, stderr): (Stdio, Stderr),
    ) -> io::Result<Self> {
        if own().len() >= MAX_CHILDREN {
            return Err(io::Error::other(format!(
                "{MAX_CHILDREN} commands run already; try again when some have ended"
            )));
        }
        let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        let found = find(program, path, cwd).ok_or(io::ErrorKind::NotFound)?;
        let (reader, writer) = io::pipe()?;
        let (errors, stderr): (Option<io::PipeReader>, Stdio) = match stderr {
            Stderr::Merged => (None, writer.try_clone()?.into()),
            Stderr::Apart => {
                let (errors, writer) = io::pipe()?;
                (Some(errors), writer.into())
            }
        };
        let mut command = Command::new(found);
        command
            .arg0(program)
            .args(args)
            .current_dir(cwd)
            .env_clear()
            .env("PATH", DEFAULT_PATH)
            .env("TERM", "dumb")
            .env("NO_COLOR", "1")
            .envs(env)
            .stdin(stdin)
            .stderr(stderr)
            .stdout(writer)
            .process_group(0)
            // For a child that moved itself to another group; Tokio reaps what is dropped.
            .kill_on_drop(true);
        fault::point("child.before_spawn");
        let child = command.spawn()?;
        fault::point("child.spawned");
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        own().extend(group);
        group.into_iter().for_each(ledger::add);
        // From here on the drop of `process` ends the child; `command`, which holds the pipe's other end, goes at the return.
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let errors = errors.map(|errors| pipe::Receiver::from_owned_fd(OwnedFd::from(errors))).transpose()?;
        Ok(Self { child, leader: group, group, output, errors, until: None })
    }

    /// The next piece of output; 0 once there is no more. Nothing is lost when the future is dropped.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.until {
                None => tokio::select! {
                    biased;
                    read = self.output.read(buffer) => return read,
                    _ = self.child.wait() => self.until = Some(Instant::now() + LAST_WORDS),
                },
                // A background child may flood the pipe: time-outs look at the clock only when there is nothing to read.
                Some(until) if Instant::now() >= until => return Ok(0),
                Some(until) => return timeout_at(until, self.output.read(buffer)).await.unwrap_or(Ok(0)),
            }
        }
    }

    /// Waits for the child, then kills what is left of its group.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        fault::point("child.ended");
        self.kill();
        status
    }

    /// Asks the group to end, gives it a moment in which its output is thrown away, and kills what is left.
    pub async fn end(mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::TERM);
        }
        let _ = timeout(GRACE, async {
            let mut buffer = vec![0; READ_SIZE];
            while self.output.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            self.child.wait().await
        })
        .await;
        self.kill();
        let _ = self.child.wait().await;
    }

    /// Kills the group, once: later its number may be another's.
    /// A number is free only when the child was reaped and its group is empty, and the kernel hands out all others first.
    fn kill(&mut self) {
        if let Some(group) = self.group.take().filter(|_| !fault::bug("I8")) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(leader) = self.leader {
            let mut own = own();
            own.retain(|pid| *pid != leader);
            if own.is_empty() {
                ledger::clear();
            }
        }
    }
}

/// The children that a [`Process`] waits for.
static OWN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<Pid>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of every process below it whose own parent ends, so that none can leave the family
/// ([`crate::peer`] asks who belongs to it), and takes note when one of them ends. Runs until it is dropped.
pub async fn adopt_orphans() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    adopt()?;
    loop {
        ended.recv().await;
        // Those whose end a [`Process`] waits for are its to reap, and mostly are by now: then there is nothing to look for.
        tokio::task::yield_now().await;
        if !has_ended_child() {
            continue;
        }
        let own = own().clone();
        // Those that cannot be seen now are reaped with the next one.
        for orphan in children().unwrap_or_default().into_iter().filter(|child| !own.contains(child)) {
            // One that lives on is not waited for.
            let _lives = rustix::process::waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }
}

/// Makes this process the parent of every process below it whose own parent ends. Elsewhere than on Linux nobody can be that.
pub fn adopt() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Whether a child has ended that nobody has reaped.
fn has_ended_child() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // Without any child that is an error.
    rustix::process::waitid(WaitId::All, look).is_ok_and(|ended| ended.is_some())
}

/// The children of this process, adopted ones too; fails where they cannot be seen, as without a descriptor to look with.
/// Elsewhere than on Linux none are found.
pub fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    let threads = match std::fs::read_dir("/proc/self/task") {
        Ok(threads) => threads,
        Err(error) if gone(&error) => return Ok(children),
        Err(error) => return Err(error),
    };
    for thread in threads {
        let list = match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(list) => list,
            // A thread that has ended meanwhile: its children are another's.
            Err(error) if gone(&error) => continue,
            Err(error) => return Err(error),
        };
        children.extend(list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(children)
}

fn gone(error: &io::Error) -> bool {
    [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The file that `program` is in the directories of `path`, as seen from `cwd`.
/// The standard library could look for it too, but then forks, which copies the page tables of the whole daemon; it spawns a
/// program that it need not look for as cheaply as the system can.
fn find(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    let candidates = std::env::split_paths(path).map(|dir| cwd.join(dir).join(program));
    let runs = |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    candidates.into_iter().find(runs)
}

/// Kills every process whose environment says that it descends from the daemon with this database, and waits until it is gone;
/// how many there were. This process and those in `spared` are left alone: a daemon may have been started by a tool of an earlier
/// one. For the start, before anything else is served: only a daemon that died together with its keeper left any.
#[cfg(target_os = "linux")]
pub fn end_left_behind(database: &Path, spared: Option<u32>) -> usize {
    let mark = format!("{OWNER}={}", database.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    let mut killed = Vec::new();
    let spared = [Some(rustix::process::getpid()), spared.and_then(|pid| Pid::from_raw(pid.cast_signed()))];
    for pid in pids.filter(|pid| !spared.contains(&Some(*pid)) && is_marked(*pid, &mark)) {
        // The number may be another's by now; the descriptor cannot be, so it is taken first and the mark looked at again.
        let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { continue };
        if is_marked(pid, &mark) && rustix::process::pidfd_send_signal(&process, Signal::KILL).is_ok() {
            killed.push(process);
        }
    }
    let until = std::time::Instant::now() + GONE;
    for process in &killed {
        let mut gone = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
        let left = until.saturating_duration_since(std::time::Instant::now());
        // If it is not gone by then, it is about to be.
        let _late = rustix::event::poll(&mut gone, left.try_into().ok().as_ref());
    }
    killed.len()
}

/// Elsewhere a process does not show its environment: what the dead one left behind is not found.
#[cfg(not(target_os = "linux"))]
pub fn end_left_behind(_database: &Path, _spared: Option<u32>) -> usize {
    0
}

#[cfg(target_os = "linux")]
fn is_marked(pid: Pid, mark: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(20);

    fn start(script: &str) -> Process {
        Process::shell(script, Path::new("/"), &BTreeMap::new(), Stderr::Merged).unwrap()
    }

    async fn all(process: &mut Process) -> String {
        let mut output = Vec::new();
        let mut buffer = vec![0; READ_SIZE];
        loop {
            match timeout(SOON, process.read(&mut buffer)).await.unwrap().unwrap() {
                0 => return String::from_utf8(output).unwrap(),
                read => output.extend_from_slice(&buffer[..read]),
            }
        }
    }

    async fn line(process: &mut Process) -> String {
        let mut buffer = vec![0; 1024];
        let read = timeout(SOON, process.read(&mut buffer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&buffer[..read]).trim().to_owned()
    }

    /// Waits until all copies of the write end are closed: then no process that had it lives.
    async fn gone(mut witness: pipe::Receiver) {
        let mut rest = Vec::new();
        timeout(SOON, witness.read_to_end(&mut rest)).await.unwrap().unwrap();
    }

    /// A FIFO in a new directory, opened for reading; whoever in `script` has it open as a writer is alive.
    fn witness() -> (tempfile::TempDir, String, pipe::Receiver) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("witness");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let reader = pipe::OpenOptions::new().open_receiver(&path).unwrap();
        (dir, path.display().to_string(), reader)
    }

    #[tokio::test]
    async fn output_and_errors_are_in_the_order_of_writing() {
        let mut process = start("for i in 1 2 3; do echo out $i; echo err $i >&2; done");
        assert_eq!(all(&mut process).await, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
        assert!(process.wait().await.unwrap().success());
    }

    #[tokio::test]
    async fn a_child_has_exactly_the_given_environment() {
        let env = BTreeMap::from([("A".to_owned(), "1 2".to_owned()), ("TERM".to_owned(), "vt100".to_owned())]);
        let mut process = Process::spawn::<&str>("env", &[], Path::new("/"), &env, Stderr::Merged).unwrap();
        let mut lines: Vec<_> = all(&mut process).await.lines().map(ToOwned::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["A=1 2", "NO_COLOR=1", &format!("PATH={DEFAULT_PATH}"), "TERM=vt100"]);
    }

    #[tokio::test]
    async fn a_program_is_looked_for_in_the_path_of_the_child() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::os::unix::fs::symlink("/bin/echo", dir.path().join("bin/own-echo")).unwrap();
        std::fs::write(dir.path().join("own-echo"), "not a program").unwrap();
        let spawn = |path: &str| {
            let env = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
            Process::spawn("own-echo", &["hi"], dir.path(), &env, Stderr::Merged)
        };
        let mut process = spawn(".:bin").unwrap();
        assert_eq!(all(&mut process).await, "hi\n");
        assert_eq!(spawn("/nowhere").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")] // `/proc`
    #[tokio::test]
    async fn a_child_has_no_input_and_its_pipe_only_where_it_belongs() {
        let mut process = start(
            "cat; cd /proc/$$/fd; pipe=$(readlink 1); for fd in *; do [ \"$(readlink $fd)\" = $pipe ] && echo $fd; done",
        );
        assert_eq!(all(&mut process).await, "1\n2\n");
    }

    #[tokio::test]
    async fn what_was_left_in_the_background_neither_holds_the_output_nor_lives_on() {
        let (_dir, path, reader) = witness();
        let mut process = start(&format!("sleep 1000 3>{path} & echo hi"));
        assert_eq!(all(&mut process).await, "hi\n");
        process.wait().await.unwrap();
        gone(reader).await;
    }

    #[tokio::test]
    async fn a_background_flood_ends_soon_after_its_parent() {
        let (_dir, path, reader) = witness();
        let mut process = start(&format!("yes 3>{path} & exit 7"));
        all(&mut process).await;
        assert_eq!(process.wait().await.unwrap().code(), Some(7));
        gone(reader).await;
    }

    #[tokio::test]
    async fn the_last_words_end_although_there_is_more_to_read() {
        let mut process = start("yes");
        line(&mut process).await;
        process.output.readable().await.unwrap();
        process.until = Some(Instant::now());
        assert_eq!(all(&mut process).await, "");
    }

    #[tokio::test]
    async fn output_that_lags_behind_its_shell_is_kept() {
        let mut process = start("(sleep 0.05; echo late) & true");
        assert_eq!(all(&mut process).await, "late\n");
    }

    #[tokio::test]
    async fn dropping_kills_the_whole_group_and_reaps_the_child() {
        let (_dir, path, reader) = witness();
        let mut process = start(&format!("exec 3>{path}; (sleep 1000 & sleep 1000) & echo ready; sleep 1000"));
        assert_eq!(line(&mut process).await, "ready");
        let pid = process.group.unwrap();
        drop(process);
        gone(reader).await;
        let reaped = async {
            while rustix::process::test_kill_process(pid).is_ok() {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, reaped).await.unwrap();
    }

    #[tokio::test]
    async fn ending_lets_a_child_clean_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bye");
        let mut process =
            start(&format!("trap 'echo bye >{}; exit' TERM; echo ready; while :; do sleep 0.01; done", file.display()));
        assert_eq!(line(&mut process).await, "ready");
        process.end().await;
        assert_eq!(std::fs::read_to_string(file).unwrap(), "bye\n");
    }

    #[tokio::test]
    async fn ending_kills_what_ignores_the_request() {
        let (_dir, path, reader) = witness();
        let mut process = start(&format!(
            "exec 3>{path}; trap '' TERM; (trap '' TERM; sleep 1000) & echo ready; sleep 1000; sleep 1000"
        ));
        assert_eq!(line(&mut process).await, "ready");
        timeout(SOON, process.end()).await.unwrap();
        gone(reader).await;
    }

    #[tokio::test]
    async fn a_child_that_closes_its_output_is_still_waited_for() {
        let mut process = start("exec >&- 2>&-; sleep 0.05; exit 3");
        assert_eq!(all(&mut process).await, "");
        assert_eq!(process.wait().await.unwrap().code(), Some(3));
    }
}
