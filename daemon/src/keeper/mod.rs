//! The keeper: the parent process of the daemon proper. It restarts it when it dies, and first ends what the dead one left
//! behind; it passes SIGTERM on, the keys of a terminal that it stays in, which the daemon has left, and SIGHUP, which tells the
//! daemon that somebody misses its socket; nothing else.
//!
//! It holds the lock beside the database, so that nobody starts a second daemon between two lives, and it is the sub-reaper of
//! everything below it, so that what a daemon leaves behind becomes its child. It never opens the database or the socket and
//! talks to no model, which is why it does not die of what they do. One thread, which sleeps in `poll`: no timer while the
//! daemon lives.
//!
//! A pair of sockets links the two: a letter from the daemon says where it is in its life, and the end of the stream tells the
//! daemon that its keeper is gone ([`Link`]); it then ends in good order and takes the keeper's place.
//!
//! A daemon that ends by its own will ends the keeper, with the same exit code; so does one that never got to serve and said
//! why. Any other end is a crash, and so is a life after the first one that cannot begin, as when no process can be made: the next
//! one begins at once the first time, then after longer and longer pauses, and after [`PAUSES`] of them the keeper gives up, with
//! the reason in the log file.

pub mod lock;

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use linger_protocol::place::Places;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::keeper::lock::{Lock, LockError};
use crate::process::ledger;
use crate::process::{OWNER, adopt, children};
use crate::sys::{descriptors, memory, terminal};
use crate::{diagnostics, fault};

/// Pauses before the lives that follow crashes, in milliseconds. Nobody should wait after one crash; a daemon that cannot live
/// must not keep a processor busy, and after some twenty seconds somebody has to look.
const PAUSES: [u64; 10] = [0, 50, 100, 200, 500, 1000, 2000, 4000, 5000, 8000];

/// A daemon that lived this long can live: the next crash is a first one again.
const HEALTHY: Duration = Duration::from_secs(60);

/// How long a daemon may take to end after SIGTERM: its sessions have 4 s, its disk the rest. What is killed then has lost nothing.
const DRAIN: Duration = Duration::from_secs(5);

/// How long killed processes may take to be gone: one may hang in the system for as long as a disk does.
const GONE: Duration = Duration::from_secs(2);

/// How often the family is looked at while it is being ended, at least: a process that dies says so, one that is adopted does not.
const LOOK: Duration = Duration::from_millis(20);

/// What a daemon tells its keeper: it serves.
const READY: u8 = b'r';

/// What a daemon tells its keeper: it ends because it was told to.
const ENDING: u8 = b'e';

/// How the command line names what a daemon gets from its keeper.
const KEPT: &str = "--kept=";

/// What a daemon gets from its keeper.
#[derive(Debug)]
pub struct Kept {
    /// The way to the keeper.
    pub link: Link,
    /// The lock, which the keeper holds too.
    pub lock: Lock,
    /// The socket that the service manager opened.
    pub listener: Option<UnixListener>,
    /// The keeper's process.
    pub keeper: u32,
    /// How often a daemon of this keeper died before.
    pub restarts: u32,
}

/// The daemon's end of the pair.
#[derive(Debug)]
pub struct Link(UnixStream);

impl Link {
    /// Tells the keeper that clients are served.
    pub fn ready(&self) {
        self.say(READY);
    }

    /// Tells the keeper that the end which follows is wanted.
    pub fn ending(&self) {
        self.say(ENDING);
    }

    fn say(&self, letter: u8) {
        // A keeper that has gone is noticed by whoever reads.
        let _gone = (&self.0).write(&[letter]);
    }

    /// Another handle, to wait for the keeper's end with.
    pub fn reader(&self) -> io::Result<UnixStream> {
        let reader = self.0.try_clone()?;
        reader.set_nonblocking(true)?;
        Ok(reader)
    }
}

impl Kept {
    /// What a keeper says on the command line of its daemon, if this is such a command line.
    pub fn from_argument(argument: &str) -> Option<anyhow::Result<Self>> {
        let numbers = argument.strip_prefix(KEPT)?;
        Some(Self::parse(numbers).context("only a keeper starts a daemon so"))
    }

    fn parse(numbers: &str) -> anyhow::Result<Self> {
        let numbers: Vec<i64> = numbers.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let [keeper, restarts, link, lock, listener] = numbers.as_slice() else { anyhow::bail!("five numbers") };
        let take = |fd: i64| Ok::<OwnedFd, anyhow::Error>(descriptors::take(RawFd::try_from(fd)?)?);
        Ok(Self {
            link: Link(take(*link)?.into()),
            lock: Lock::inherited(take(*lock)?.into()),
            listener: if *listener < 0 { None } else { Some(take(*listener)?.into()) },
            keeper: u32::try_from(*keeper)?,
            restarts: u32::try_from(*restarts)?,
        })
    }
}

/// Keeps a daemon until it ends by its own will, and gives its exit code.
pub fn run(places: &Places, background: bool) -> anyhow::Result<ExitCode> {
    // Whoever sees the lock may say at once that the socket is missing.
    let hangup = notified(&[SIGHUP])?;
    let lock = match Lock::take(places) {
        Ok(lock) => lock,
        Err(LockError::Held(_)) => {
            println!("running");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error.into()),
    };
    if lock.follows_a_death
        && let Err(error) = ledger::keep(&places.children())
    {
        record(places, "WARN", &format!("what a daemon that died left may not be looked for: {error}"));
    }
    let listener = listenfd::ListenFd::from_env().take_unix_listener(0).context("the socket that was passed")?;
    for passed_on in [Some(lock.as_fd()), listener.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
        inheritable(passed_on)?;
    }
    if background && let Err(error) = terminal::leave_terminal() {
        // A child of a shell's job cannot be a group leader here, so this cannot fail; if it does, a hangup may reach us.
        record(places, "WARN", &format!("could not leave the terminal's session: {error}"));
    }
    adopt()?;
    let signals = Signals { end: notified(&[SIGTERM, SIGINT, SIGQUIT])?, child: notified(&[SIGCHLD])?, hangup };
    let kept = Keeper { places, background, lock, listener, signals, crashes: 0, restarts: 0 }.keep();
    if let Err(error) = &kept {
        // In the background nobody hears what is said to standard error.
        record(places, "ERROR", &format!("{error:#}"));
    }
    kept
}

/// Starts this program anew in this process, as a keeper: for a daemon that has lost its own.
pub fn take_its_place(places: &Places, background: bool) -> io::Error {
    let arguments = background.then_some("--background");
    program(places).map_or_else(|error| error, |mut program| program.args(arguments).exec())
}

struct Keeper<'a> {
    places: &'a Places,
    background: bool,
    lock: Lock,
    listener: Option<UnixListener>,
    signals: Signals,
    /// Crashes in a row.
    crashes: usize,
    /// Crashes in all.
    restarts: u32,
}

/// Streams that become readable when a signal comes.
struct Signals {
    end: UnixStream,
    child: UnixStream,
    /// A terminal that goes away is no reason to end.
    hangup: UnixStream,
}

/// One daemon.
struct Life {
    pid: Pid,
    link: UnixStream,
    began: Instant,
    ready: bool,
    /// Its end is wanted.
    ending: bool,
    /// When it is killed, if it was told to end and does not.
    until: Option<Instant>,
}

impl Keeper<'_> {
    fn keep(mut self) -> anyhow::Result<ExitCode> {
        loop {
            let died = match self.begin() {
                Ok(mut life) => {
                    let status = self.watch(&mut life)?;
                    fault::point("keeper.daemon_died");
                    if let Err(error) = self.leave_nothing() {
                        record(self.places, "WARN", &format!("what the daemon left behind cannot be seen: {error}"));
                    }
                    fault::point("keeper.family_ended");
                    let spoke = self.restarts == 0 && !life.ready && status.exit_status().is_some();
                    if life.ending || spoke {
                        return Ok(status
                            .exit_status()
                            .and_then(|code| u8::try_from(code).ok())
                            .map_or(ExitCode::FAILURE, ExitCode::from));
                    }
                    if life.began.elapsed() > HEALTHY {
                        self.crashes = 0;
                    }
                    format!("the daemon (process {}) {}", life.pid.as_raw_nonzero(), described(&status))
                }
                Err(error) if self.restarts == 0 => return Err(error).context("the daemon cannot be started"),
                // What is missing now may be there in a moment: processes, descriptors, memory.
                Err(error) => format!("the daemon cannot be started: {error}"),
            };
            let Some(pause) = PAUSES.get(self.crashes) else {
                anyhow::bail!(
                    "{died}, for the {}th time in a row: giving up; see {}",
                    self.crashes + 1,
                    self.places.log().display()
                );
            };
            record(self.places, "ERROR", &format!("{died}; it is started again in {pause} ms"));
            (self.crashes, self.restarts) = (self.crashes + 1, self.restarts.saturating_add(1));
            if self.told_to_end(Duration::from_millis(*pause))? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Ends what a daemon left behind; fails if that cannot be seen.
    fn leave_nothing(&self) -> io::Result<()> {
        let left = self.end_family()?;
        if left > 0 {
            record(self.places, "WARN", &format!("{left} processes of the daemon do not end"));
        }
        Ok(())
    }

    /// Starts the next daemon, once nothing of the one before is left.
    fn begin(&self) -> io::Result<Life> {
        if self.restarts > 0 {
            // Mostly there is nothing any more; but the last look may have failed.
            self.leave_nothing()?;
        }
        let (link, theirs) = UnixStream::pair()?;
        inheritable(theirs.as_fd())?;
        let numbers = [
            i64::from(std::process::id()),
            i64::from(self.restarts),
            i64::from(theirs.as_raw_fd()),
            i64::from(self.lock.as_fd().as_raw_fd()),
            self.listener.as_ref().map_or(-1, |listener| i64::from(listener.as_raw_fd())),
        ];
        let mut argument = OsString::from(KEPT);
        argument.push(numbers.map(|number| number.to_string()).join(","));
        let mut program = program(self.places)?;
        program.arg(argument).args(self.background.then_some("--background"));
        let child = program.env_remove(OWNER).stdin(Stdio::null()).spawn()?;
        link.set_nonblocking(true)?;
        let pid = Pid::from_child(&child);
        Ok(Life { pid, link, began: Instant::now(), ready: false, ending: false, until: None })
    }

    /// Waits until the daemon has ended, and says how.
    fn watch(&self, life: &mut Life) -> anyhow::Result<WaitStatus> {
        let mut talks = true;
        loop {
            if let Some(status) = reap(Some(life.pid)) {
                // What it said last.
                self.listen(life)?;
                return Ok(status);
            }
            let Signals { end, child, hangup } = &self.signals;
            let all = [end.as_fd(), child.as_fd(), hangup.as_fd(), life.link.as_fd()];
            // A link that was closed stays readable.
            let watched = all.get(..if talks { 4 } else { 3 }).unwrap_or_default();
            let left = life.until.map(|until| until.saturating_duration_since(Instant::now()));
            ready(watched, left)?;
            if drained(&self.signals.end) {
                life.ending = true;
                life.until = life.until.or(Some(Instant::now() + DRAIN));
                let _gone = kill_process(life.pid, Signal::TERM);
            }
            drained(&self.signals.child);
            talks = talks && self.listen(life)?;
            if drained(&self.signals.hangup) && life.ready {
                let _gone = kill_process(life.pid, Signal::HUP);
            }
            if life.until.is_some_and(|until| until <= Instant::now()) {
                record(
                    self.places,
                    "ERROR",
                    &format!("the daemon has not ended {} s after SIGTERM: killed", DRAIN.as_secs()),
                );
                let _gone = kill_process(life.pid, Signal::KILL);
                life.until = None;
            }
        }
    }

    /// Takes what the daemon says; whether it may say more.
    fn listen(&self, life: &mut Life) -> io::Result<bool> {
        let mut letters = [0; 16];
        loop {
            let said = match life.link.read(&mut letters) {
                Ok(0) => return Ok(false),
                Ok(read) => letters.get(..read).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                // It died with something unread.
                Err(_) => return Ok(false),
            };
            life.ending |= said.contains(&ENDING);
            if said.contains(&READY) && !life.ready {
                life.ready = true;
                if self.background
                    && let Err(error) = terminal::detach_stdio()
                {
                    record(self.places, "WARN", &format!("the terminal is not let go of: {error}"));
                }
                memory::release_idle_memory();
            }
        }
    }

    /// Kills whatever is below the keeper until nothing is; how many processes do not end.
    fn end_family(&self) -> io::Result<usize> {
        let until = Instant::now() + GONE;
        loop {
            while reap(None).is_some() {}
            let family = children()?;
            if family.is_empty() || Instant::now() > until {
                return Ok(family.len());
            }
            for child in family {
                // A child that was not waited for keeps its number, so this is no other process.
                let _gone = kill_process(child, Signal::KILL);
            }
            let _interrupted = ready(&[self.signals.child.as_fd()], Some(LOOK));
            drained(&self.signals.child);
        }
    }

    /// Lets a pause pass; whether the keeper is to end.
    fn told_to_end(&self, pause: Duration) -> io::Result<bool> {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            ready(&[self.signals.end.as_fd()], Some(left))?;
            if drained(&self.signals.end) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }
}

/// This very program, also when its file was replaced or deleted since it was started. In a list of processes it says whose
/// sessions it has, by the directory of its database.
#[allow(clippy::disallowed_methods, reason = "the keeper's one child; it does nothing but start it")]
fn program(places: &Places) -> io::Result<Command> {
    let own = std::path::Path::new("/proc/self/exe");
    let mut program = Command::new(if own.exists() { own.to_path_buf() } else { std::env::current_exe()? });
    let mut title = OsString::from("lingerd: ");
    title.push(&places.data);
    program.arg0(title);
    Ok(program)
}

/// Collects a child that has ended: this one, or any.
fn reap(child: Option<Pid>) -> Option<WaitStatus> {
    match child {
        Some(child) => rustix::process::waitpid(Some(child), WaitOptions::NOHANG),
        None => wait(WaitOptions::NOHANG),
    }
    .ok()
    .flatten()
    .map(|(_, status)| status)
}

/// A stream that becomes readable when one of these signals comes.
fn notified(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// Whether there was something to read; it is read.
fn drained(mut stream: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
        any = true;
    }
    any
}

/// Waits until one of these can be read, or the time has passed.
fn ready(streams: &[BorrowedFd<'_>], within: Option<Duration>) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> = streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let within = within.map(|within| within.try_into().unwrap_or_default());
    match poll(&mut polled, within.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn inheritable(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfd(fd, FdFlags::empty())?)
}

fn described(status: &WaitStatus) -> String {
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "has ended".to_owned(),
    }
}

/// Writes a line into the log file, or to standard error if that cannot be.
fn record(places: &Places, level: &str, text: &str) {
    if let Err(error) = diagnostics::append(&places.log(), level, "keeper", text) {
        eprintln!("lingerd: {text} ({}: {error})", places.log().display());
    }
}
