//! One child and its process group: starting it, its input and output, and its end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::ledger::Ledger;
use super::mark::OWNER;
use super::running::{self, ENDED, RunningChild};
use super::spawn::{Children, Spawn};
use super::strays::Stray;
use super::{oom, storm, strays};
use crate::fault;
use crate::sys::disk;
use crate::sys::task;

/// How long a group may take to end after SIGTERM: enough to remove a lock file, and a cancel still ends within 2 s.
pub(super) const GRACE: Duration = Duration::from_millis(if cfg!(test) { 3000 } else { 500 });

/// How long output is read after the child has ended: its `| tee` may lag behind, but a background server it started holds the
/// pipe forever.
pub(super) const OUTPUT_GRACE: Duration = Duration::from_millis(if cfg!(test) { 3000 } else { 200 });

/// The PATH of an environment that has none.
pub(super) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The size of the read buffer, in bytes: half of a Linux pipe, to keep futures small.
pub const READ_SIZE: usize = 32 * 1024;

/// Concurrent children of all sessions; each takes a descriptor or two and megabytes.
/// A session has one `bash` call at a time. What a command starts itself is bounded by [`super::storm`].
const MAX_CHILDREN: usize = 256;

/// The destination of a child's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stderr {
    /// Part of the output, in the order written.
    Merged,
    /// A separate pipe, for [`Process::finish`].
    Apart,
}

/// A child's standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// End of file.
    Nothing,
    /// These bytes, without a bound, then end of file.
    Bytes(Vec<u8>),
}

/// A child and its process group; dropping it kills the group.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    /// Records this child.
    ledger: Arc<Ledger>,
    /// The child's process id.
    leader: Option<Pid>,
    /// The process group; absent once killed.
    pub(super) group: Option<Pid>,
    /// The value of [`strays::CALL`] in its environment.
    call: String,
    /// Its program and arguments, with a NUL between them.
    line: Vec<u8>,
    /// The processes that it left behind, once it has ended.
    left: Vec<Stray>,
}

/// A running child and its process group.
#[derive(Debug)]
pub struct Process {
    pub(super) group: Group,
    pub(super) output: pipe::Receiver,
    /// Standard error, if separate.
    pub(super) errors: Option<pipe::Receiver>,
    /// The task that writes the input; ends with the process.
    _feeder: Option<AbortOnDropHandle<()>>,
    /// When reading output stops; absent while the child runs.
    pub(super) until: Option<Instant>,
}

impl Process {
    /// Starts a program. Must be called within a Tokio runtime.
    pub(super) fn start<S: AsRef<OsStr>>(
        spawn: &Spawn,
        program: &Executable,
        args: &[S],
        input: Input,
        stderr: Stderr,
    ) -> io::Result<Self> {
        let Input::Bytes(bytes) = input else { return Self::piped(spawn, program, args, Stdio::null(), stderr) };
        let (reader, writer) = io::pipe()?;
        let process = Self::piped(spawn, program, args, reader.into(), stderr)?;
        let mut writer = pipe::Sender::from_owned_fd(OwnedFd::from(writer))?;
        let feeder = task::spawn(async move {
            // A child may end without reading its input.
            let _unread = writer.write_all(&bytes).await;
        });
        Ok(Self { _feeder: Some(AbortOnDropHandle::new(feeder)), ..process })
    }

    fn piped<S: AsRef<OsStr>>(
        spawn: &Spawn,
        program: &Executable,
        args: &[S],
        stdin: Stdio,
        stderr: Stderr,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let (errors, stderr): (Option<io::PipeReader>, Stdio) = match stderr {
            Stderr::Merged => (None, writer.try_clone()?.into()),
            Stderr::Apart => {
                let (errors, writer) = io::pipe()?;
                (Some(errors), writer.into())
            }
        };
        let group = Group::start(spawn, program, args, [stdin, writer.into(), stderr])?;
        let errors = errors.map(receiver).transpose()?;
        Ok(Self { group, output: receiver(reader)?, errors, _feeder: None, until: None })
    }

    /// Reads output; 0 at its end. Cancel safe.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.until {
                None => tokio::select! {
                    biased;
                    read = self.output.read(buffer) => return read,
                    _ = self.group.child.wait() => self.until = Some(Instant::now() + OUTPUT_GRACE),
                },
                // A background child may flood the pipe, and `timeout_at` checks the clock only when nothing can be read.
                Some(until) if Instant::now() >= until => return Ok(0),
                Some(until) => return timeout_at(until, self.output.read(buffer)).await.unwrap_or(Ok(0)),
            }
        }
    }

    /// Waits for the child, then kills the rest of its group.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.group.wait().await
    }

    /// The processes that the child left behind when it ended by itself, and that were ended then.
    pub fn left(&self) -> &[Stray] {
        &self.group.left
    }

    /// Sends the group SIGTERM, discards its output for [`GRACE`], then kills it.
    pub async fn end(mut self) {
        self.group.terminate();
        let _ = timeout(GRACE, async {
            let mut buffer = vec![0; READ_SIZE];
            while self.output.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
            self.group.child.wait().await
        })
        .await;
        self.group.kill();
        let _ = self.group.child.wait().await;
    }
}

/// The reading end of a pipe, for Tokio.
pub(super) fn receiver(pipe: io::PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(OwnedFd::from(pipe))
}

impl Group {
    /// Starts a program with these as standard input, output and error.
    /// Its environment is that of `spawn`, [`OWNER`] and [`strays::CALL`].
    #[allow(clippy::disallowed_methods)] // The only spawn.
    pub(super) fn start<S: AsRef<OsStr>>(
        Spawn { cwd, env, children: Children { ledger, .. }, started_for }: &Spawn,
        Executable { name, file }: &Executable,
        args: &[S],
        [stdin, stdout, stderr]: [Stdio; 3],
    ) -> io::Result<Self> {
        // Held until the child is in the list: a reaper that sees it would take it for an orphan otherwise.
        let mut running = running::lock();
        if running.len() >= MAX_CHILDREN {
            return Err(io::Error::other(format!(
                "{MAX_CHILDREN} commands are already running; try again when some have ended"
            )));
        }
        let call = strays::name(started_for.session());
        let mut command = Command::new(file);
        command
            .arg0(name)
            .args(args)
            .current_dir(cwd)
            .env_clear()
            .env("PATH", DEFAULT_PATH)
            .env("TERM", "dumb")
            .env("NO_COLOR", "1")
            .envs(env.as_ref())
            .envs(ledger.owner.as_ref().map(|owner| (OWNER, owner)))
            .env(strays::CALL, &call)
            .stdin(stdin)
            .stderr(stderr)
            .stdout(stdout)
            .process_group(0)
            // For a child that moved itself to another group. Tokio reaps a dropped child.
            .kill_on_drop(true);
        fault::point("child.before_spawn");
        let limit = storm::begin();
        let child = command.spawn()?;
        fault::point("child.spawned");
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            if let Some(limit) = limit {
                limit.hold(group);
            }
            oom::prefer(group);
            running.push(RunningChild { pid: group, call: call.clone() });
            drop(running);
            ledger.add(group, started_for.clone());
        }
        // From here on dropping `Self` ends the child. `command` holds the other ends of the pipes until the return.
        let words = args.iter().map(|arg| arg.as_ref().as_encoded_bytes());
        let line = std::iter::once(name.as_bytes()).chain(words).collect::<Vec<_>>().join(&0);
        Ok(Self { child, ledger: ledger.clone(), leader: group, group, call, line, left: Vec::new() })
    }

    /// The child's process id; 0 if unknown.
    pub(super) fn pid(&self) -> u32 {
        self.leader.map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Waits for the child, then kills the rest of its group.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        fault::point("child.ended");
        if let Some(group) = self.group {
            self.left = strays::left_by(&self.call, group, &self.line).await;
        }
        self.kill();
        status
    }

    /// Sends the group SIGTERM.
    pub(super) fn terminate(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// Kills the group, once: later its id may belong to another group.
    /// An id is free only when the child is reaped and its group is empty, and the kernel hands out all other ids first.
    pub(super) fn kill(&mut self) {
        if let Some(group) = self.group.take().filter(|_| !fault::bug("I8")) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if let Some(leader) = self.leader {
            running::lock().retain(|child| child.pid != leader);
            self.ledger.remove(leader);
            ENDED.notify_one();
        }
    }
}

/// A program to start.
pub(super) struct Executable {
    /// The name it is called by, `argv[0]`.
    pub(super) name: String,
    /// The file to run.
    pub(super) file: PathBuf,
}

/// Finds the first of `programs` in the PATH of `env`, relative to `cwd`. A name with a `/` is a file itself.
/// The search probes the disk and fails after [`disk::TIMEOUT`].
/// The standard library can search PATH too, but then it forks, which copies the page tables of the whole daemon; with an
/// absolute file it uses the cheaper `posix_spawn`.
pub(super) async fn find(programs: &[&str], env: &BTreeMap<String, String>, cwd: &Path) -> io::Result<Executable> {
    if let [program] = programs
        && program.contains('/')
    {
        return Ok(Executable { name: (*program).to_owned(), file: cwd.join(program) });
    }
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let dirs: Arc<[PathBuf]> = std::env::split_paths(path).map(|dir| cwd.join(dir)).collect();
    // The directory being searched, for the error if it hangs.
    let at = Arc::new(AtomicUsize::new(0));
    let names: Vec<String> = programs.iter().map(|program| (*program).to_owned()).collect();
    let (seen, now) = (dirs.clone(), at.clone());
    let runs = |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    let search = move || {
        let mut both = names.iter().flat_map(|program| seen.iter().enumerate().map(move |dir| (program, dir)));
        both.find_map(|(program, (nth, dir))| {
            now.store(nth, Ordering::Relaxed);
            Some(Executable { name: program.clone(), file: Some(dir.join(program)).filter(runs)? })
        })
    };
    // The place is the whole PATH, so that a hung directory of it does not fail probes of the session's directory.
    match disk::probe(Path::new(path), disk::TIMEOUT, search).await {
        Some(found) => found.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{} not found in PATH ({path})", programs.join(" or ")))
        }),
        None => {
            let hung = dirs.get(at.load(Ordering::Relaxed)).map(PathBuf::as_path).unwrap_or(cwd);
            let why = format!("{}, and it is a directory of PATH", disk::unresponsive(hung));
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}
