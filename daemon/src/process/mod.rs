//! Children: the one place that spawns a process, and the guard that ends it with all that it started.
//!
//! A [`Process`] leads a process group of its own. Whoever holds it owns the group: dropping it kills the group, [`Process::end`]
//! asks first. A child gets exactly the environment and the input it is given, and one pipe for its output. A child that is
//! talked to and lives longer is a [`server::Server`].
//! What leaves the group (`setsid`) stays in the family ([`adopt_orphans`]) and ends with the daemon, or at its next start:
//! [`end_left_behind`] and [`ledger`] find it.

mod finish;
pub mod ledger;
pub mod mark;
pub mod server;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::fault;
use crate::sys::disk;
pub use finish::{End, Finished};
use ledger::Ledger;
pub use mark::end_left_behind;
use server::{Children, Spawn};

/// How long a group may take to end after SIGTERM. Long enough to remove a lock file, short enough that a cancel ends within 2 s.
const GRACE: Duration = Duration::from_millis(if cfg!(test) { 3000 } else { 500 });

/// How long output is read on after the child itself has ended: its `| tee` may lag behind, but a server that it left in the
/// background holds the pipe for ever.
const LAST_WORDS: Duration = Duration::from_millis(if cfg!(test) { 3000 } else { 200 });

/// Where programs are looked for when the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Output is read in pieces of this size: what a Linux pipe gives at once, halved to keep futures small.
pub const READ_SIZE: usize = 32 * 1024;

/// The variable that says which daemon a process descends from: the path of its database.
pub const OWNER: &str = "LINGER_OWNER";

/// Processes that tools and keys may have at once, in all sessions; each takes a descriptor or two and megabytes of its own.
/// A session has one `bash` call at a time. How many processes a command starts itself is up to the user's own limits.
const MAX_CHILDREN: usize = 256;

/// What becomes of a child's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stderr {
    /// It is a part of the output, in the order in which it was written.
    Merged,
    /// It has a pipe of its own, for [`Process::finish`].
    Apart,
}

/// What a child reads from its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Its end.
    Nothing,
    /// These bytes, however many, and then its end.
    Bytes(Vec<u8>),
}

/// The most bytes of input that a helper is given: what a pipe holds everywhere, so that nobody has to wait for its reader.
pub const MAX_INPUT: usize = 16 << 10;

/// A child and its process group; dropping it kills the group.
#[derive(Debug)]
struct Group {
    child: Child,
    /// Where it is recorded.
    ledger: Arc<Ledger>,
    /// The child itself.
    leader: Option<Pid>,
    /// The group that is still to be killed; none once it was.
    group: Option<Pid>,
}

/// A running child and its process group.
#[derive(Debug)]
pub struct Process {
    group: Group,
    output: pipe::Receiver,
    /// Its standard error, if that is apart.
    errors: Option<pipe::Receiver>,
    /// Writes its input; ends with the process.
    _feeder: Option<AbortOnDropHandle<()>>,
    /// Until when output is read; none while the child runs.
    until: Option<Instant>,
}

impl Process {
    /// Starts a program, given as its name and its file. Must be called within a Tokio runtime.
    fn start<S: AsRef<OsStr>>(
        spawn: &Spawn,
        program: (&str, &Path),
        args: &[S],
        input: Input,
        stderr: Stderr,
    ) -> io::Result<Self> {
        let Input::Bytes(bytes) = input else { return Self::piped(spawn, program, args, Stdio::null(), stderr) };
        let (reader, writer) = io::pipe()?;
        let process = Self::piped(spawn, program, args, reader.into(), stderr)?;
        let mut writer = pipe::Sender::from_owned_fd(OwnedFd::from(writer))?;
        let feeder = tokio::spawn(async move {
            // One that ends without reading is no error.
            let _unread = writer.write_all(&bytes).await;
        });
        Ok(Self { _feeder: Some(AbortOnDropHandle::new(feeder)), ..process })
    }

    fn piped<S: AsRef<OsStr>>(
        spawn: &Spawn,
        program: (&str, &Path),
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

    /// The next piece of output; 0 once there is no more. Nothing is lost when the future is dropped.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.until {
                None => tokio::select! {
                    biased;
                    read = self.output.read(buffer) => return read,
                    _ = self.group.child.wait() => self.until = Some(Instant::now() + LAST_WORDS),
                },
                // A background child may flood the pipe: time-outs look at the clock only when there is nothing to read.
                Some(until) if Instant::now() >= until => return Ok(0),
                Some(until) => return timeout_at(until, self.output.read(buffer)).await.unwrap_or(Ok(0)),
            }
        }
    }

    /// Waits for the child, then kills what is left of its group.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.group.wait().await
    }

    /// Asks the group to end, gives it a moment in which its output is thrown away, and kills what is left.
    pub async fn end(mut self) {
        self.group.ask_to_end();
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

/// The end of a pipe that is read here.
fn receiver(pipe: io::PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(OwnedFd::from(pipe))
}

impl Group {
    /// Starts the program in `file`, which is told that its name is `name`, with these for its standard input, output and error.
    /// It has the environment of `spawn` and nothing else, but for the variable that says whose it is.
    #[allow(clippy::disallowed_methods)] // This is the place.
    fn start<S: AsRef<OsStr>>(
        Spawn { cwd, env, children: Children { ledger, .. } }: &Spawn,
        (name, file): (&str, &Path),
        args: &[S],
        [stdin, stdout, stderr]: [Stdio; 3],
    ) -> io::Result<Self> {
        if own().len() >= MAX_CHILDREN {
            return Err(io::Error::other(format!(
                "{MAX_CHILDREN} commands run already; try again when some have ended"
            )));
        }
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
            .stdin(stdin)
            .stderr(stderr)
            .stdout(stdout)
            .process_group(0)
            // For a child that moved itself to another group; Tokio reaps what is dropped.
            .kill_on_drop(true);
        fault::point("child.before_spawn");
        let child = command.spawn()?;
        fault::point("child.spawned");
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            own().push(group);
            ledger.add(group);
        }
        // From here on its drop ends the child; `command`, which holds the other ends of the pipes, goes at the return.
        Ok(Self { child, ledger: ledger.clone(), leader: group, group })
    }

    /// The number of the child; 0 if it had none.
    fn pid(&self) -> u32 {
        self.leader.map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Waits for the child, then kills what is left of its group.
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        fault::point("child.ended");
        self.kill();
        status
    }

    /// Asks the group to end.
    fn ask_to_end(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// Kills the group, once: later its number may be another's.
    /// A number is free only when the child was reaped and its group is empty, and the kernel hands out all others first.
    fn kill(&mut self) {
        if let Some(group) = self.group.take().filter(|_| !fault::bug("I8")) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if let Some(leader) = self.leader {
            own().retain(|pid| *pid != leader);
            self.ledger.remove(leader);
        }
    }
}

/// The children that a [`Group`] waits for. The process has this once: whoever reaps must know all that are not to be reaped, and
/// the children of a process are those of every daemon in it.
static OWN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<Pid>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of every process below it whose own parent ends, so that none can leave the family
/// ([`crate::sys::peer`] asks who belongs to it). What it gives takes note when one of them ends, until it is dropped.
pub fn adopt_orphans() -> io::Result<impl Future<Output = ()>> {
    let mut ended = signal(SignalKind::child())?;
    adopt()?;
    Ok(async move {
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
    })
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

/// The first of `programs` that is in a directory of the PATH in `env`, as seen from `cwd`, with its file; one with a `/` in its
/// name is that file. Who looks there waits
/// for a disk that may not answer, so that is done elsewhere and given up after a while.
/// The standard library could look for it too, but then forks, which copies the page tables of the whole daemon; it spawns a
/// program that it need not look for as cheaply as the system can.
async fn find(programs: &[&str], env: &BTreeMap<String, String>, cwd: &Path) -> io::Result<(String, PathBuf)> {
    if let [program] = programs
        && program.contains('/')
    {
        return Ok(((*program).to_owned(), cwd.join(program)));
    }
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let dirs: Arc<[PathBuf]> = std::env::split_paths(path).map(|dir| cwd.join(dir)).collect();
    // The directory that is looked at, to be named if it does not answer.
    let at = Arc::new(AtomicUsize::new(0));
    let names: Vec<String> = programs.iter().map(|program| (*program).to_owned()).collect();
    let (seen, now) = (dirs.clone(), at.clone());
    let runs = |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    let look = move || {
        let mut both = names.iter().flat_map(|program| seen.iter().enumerate().map(move |dir| (program, dir)));
        both.find_map(|(program, (nth, dir))| {
            now.store(nth, Ordering::Relaxed);
            Some((program.clone(), Some(dir.join(program)).filter(runs)?))
        })
    };
    // In the name of the whole PATH: the session's directory may answer all the while.
    match disk::probe(Path::new(path), disk::TIMEOUT, look).await {
        Some(found) => found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} is in no directory of PATH ({path})", programs.join(" or ")),
            )
        }),
        None => {
            let silent = dirs.get(at.load(Ordering::Relaxed)).map(PathBuf::as_path).unwrap_or(cwd);
            let why = format!("{}, and it is a directory of PATH", disk::unresponsive(silent));
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

#[cfg(test)]
mod tests;
