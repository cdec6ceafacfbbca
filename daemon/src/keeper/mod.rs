//! The keeper: the parent process of the daemon. It restarts a daemon that died, after killing the processes that it left.
//! It forwards only SIGTERM, the keys of its terminal (the daemon has left that terminal), and SIGHUP, which reports a missing
//! socket.
//!
//! It holds the lock, so that no second daemon starts between two lives, and it is the sub-reaper of all its descendants, so that
//! a dead daemon's children become its own. It never opens the database or the socket and never talks to a model, so their
//! failures cannot crash it. It has one thread, which sleeps in `poll`, and no timer while the daemon runs.
//!
//! A pair of sockets connects the two ([`Link`]): the daemon sends a letter for each phase of its life. End of file tells the
//! daemon that its keeper is gone; it then ends in good order and takes the keeper's place.
//!
//! While a daemon lives, the keeper's name in process lists ends in the daemon's process id. No other process can change that name,
//! so a client can tell the daemon from a tool's child that the keeper adopted when the daemon died. The daemon opens its socket
//! after its keeper has this name, and the keeper takes the id back before it reaps the daemon, so no later process has that id.
//!
//! A daemon that ends on request ends the keeper with the same exit code; so does a first daemon that exits before it serves.
//! Any other end is a crash, and so is a restart that fails, as when no process can be created. The first restart is immediate,
//! the next ones wait as [`PAUSES`] says, and then the keeper gives up, with the reason in the log file.

pub mod lock;

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use linger_protocol::footprint;
use linger_protocol::place::Places;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::keeper::lock::{Lock, LockError};
use crate::process::ledger;
use crate::process::{OWNER, adopt, children, mark};
use crate::sys::{descriptors, terminal};
use crate::{diagnostics, fault};

/// Pauses before restarts, in milliseconds. A single crash costs no wait; a daemon that crashes at every start must not keep a
/// processor busy, and after about twenty seconds it needs a user.
const PAUSES: [u64; 10] = [0, 50, 100, 200, 500, 1000, 2000, 4000, 5000, 8000];

/// After a life this long, the next crash counts as the first again.
const HEALTHY: Duration = Duration::from_secs(60);

/// How long a daemon may take to end after SIGTERM: 4 s for its sessions, the rest for its disk. Killing it then loses nothing.
const DRAIN: Duration = Duration::from_secs(5);

/// How long to wait for killed processes: one may hang in the kernel as long as a disk does.
const GONE: Duration = Duration::from_secs(2);

/// The interval of looking for children while killing them: a death raises SIGCHLD, an adoption raises nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The letter from a daemon that serves.
const READY: u8 = b'r';

/// The letter from a daemon that ends on request.
const ENDING: u8 = b'e';

/// The letter to a daemon whose process id is in the keeper's name.
const NAMED: u8 = b'n';

/// The keeper's name in process lists while no daemon lives.
const NAME: &str = "lingerd";

/// The daemon's argument that carries [`Kept`]: process id, restarts and descriptors.
const KEPT: &str = "--kept=";

/// The argument with the lock of a daemon that becomes the keeper: a descriptor.
const LOCK: &str = "--lock=";

/// State that a daemon inherits from its keeper.
#[derive(Debug)]
pub struct Kept {
    /// The connection to the keeper.
    pub link: Link,
    /// The lock, which the keeper holds too.
    pub lock: Arc<Lock>,
    /// The socket from the service manager, if any.
    pub listener: Option<UnixListener>,
    /// The keeper's process id.
    pub keeper: u32,
    /// How many daemons of this keeper have died.
    pub restarts: u32,
}

/// The daemon's end of the connection to its keeper.
#[derive(Debug)]
pub struct Link(UnixStream);

impl Link {
    /// Tells the keeper that the daemon serves clients.
    pub fn ready(&self) {
        self.send(READY);
    }

    /// Tells the keeper that the daemon ends on request.
    pub fn ending(&self) {
        self.send(ENDING);
    }

    fn send(&self, letter: u8) {
        // The reader notices when the keeper is gone.
        let _gone = (&self.0).write(&[letter]);
    }

    /// Waits until the keeper's name has this process's id; returns at once if the keeper is gone.
    pub fn await_name(&self) {
        let _gone = (&self.0).read(&mut [0]);
    }

    /// A second handle, to wait for the end of the keeper.
    pub fn reader(&self) -> io::Result<UnixStream> {
        let reader = self.0.try_clone()?;
        reader.set_nonblocking(true)?;
        Ok(reader)
    }
}

impl Kept {
    /// Parses the argument of a keeper; `None` if it is another argument. Takes ownership of the descriptors it names.
    pub fn from_argument(argument: &str) -> Option<anyhow::Result<Self>> {
        let numbers = argument.strip_prefix(KEPT)?;
        Some(Self::parse(numbers).context("--kept is for the keeper only"))
    }

    fn parse(numbers: &str) -> anyhow::Result<Self> {
        let numbers: Vec<i64> = numbers.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let [keeper, restarts, link, lock, listener] = numbers.as_slice() else {
            anyhow::bail!("expected five numbers")
        };
        let take = |fd: i64| Ok::<OwnedFd, anyhow::Error>(descriptors::take(RawFd::try_from(fd)?)?);
        Ok(Self {
            link: Link(take(*link)?.into()),
            lock: Arc::new(Lock::inherited(take(*lock)?.into())),
            listener: if *listener < 0 { None } else { Some(take(*listener)?.into()) },
            keeper: u32::try_from(*keeper)?,
            restarts: u32::try_from(*restarts)?,
        })
    }
}

/// Keeps a daemon running until it ends on request; returns its exit code. `lock`: of a daemon whose place this process takes.
pub fn run(places: &Places, background: bool, lock: Option<Lock>) -> anyhow::Result<ExitCode> {
    // First of all, because a client may send SIGHUP as soon as it sees the lock.
    let hangup = notified(&[SIGHUP])?;
    let replaces = lock.is_some();
    let taken = match lock.filter(|lock| lock.is_held(places)) {
        Some(lock) => mark::may_replace(&places.data).map_err(LockError::TooLow).and_then(|()| lock.taken_again()),
        None => take_lock(places),
    };
    let lock = match taken {
        Ok(lock) => lock,
        Err(LockError::Held(held)) if !held.repairs => {
            println!("running");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error.into()),
    };
    // Not earlier: what opens and closes the file while it checks would end this again.
    lock.name_this_process();
    if lock.follows_a_death
        && let Err(error) = ledger::keep(&places.children())
    {
        record(
            places,
            "WARN",
            &format!("cannot write the ledger, so processes of a dead daemon may be left running: {error}"),
        );
    }
    let listener = listenfd::ListenFd::from_env().take_unix_listener(0).context("the socket that was passed")?;
    for passed_on in [Some(lock.as_fd()), listener.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
        inheritable(passed_on)?;
    }
    if background && let Err(error) = terminal::leave_terminal() {
        // This fails only for a process group leader, and the child of a shell's job is none. If it fails, a hangup reaches us.
        record(places, "WARN", &format!("cannot leave the terminal's session: {error}"));
    }
    adopt()?;
    let signals = Signals { end: notified(&[SIGTERM, SIGINT, SIGQUIT])?, child: notified(&[SIGCHLD])?, hangup };
    let kept = Keeper { places, background, lock, listener, signals, crashes: 0, restarts: u32::from(replaces) }.keep();
    if let Err(error) = &kept {
        // In the background standard error is `/dev/null`.
        record(places, "ERROR", &format!("{error:#}"));
    }
    kept
}

/// Takes the lock, if a daemon may start in this process.
fn take_lock(places: &Places) -> Result<Lock, LockError> {
    let lock = Lock::take(places)?;
    mark::may_start(&places.data, lock::is_above)?;
    Ok(lock)
}

/// Replaces this process with a keeper, which holds the same lock: for a daemon that has lost its own. Returns only on failure.
pub fn replace_this_process(places: &Places, background: bool, lock: &Lock) -> io::Error {
    let replace = || {
        let mut argument = OsString::from(LOCK);
        argument.push(lock.pass_on()?.to_string());
        let mut program = program(places)?;
        Ok::<_, io::Error>(program.arg(argument).args(background.then_some("--background")).exec())
    };
    replace().unwrap_or_else(|error| error)
}

/// Parses the argument of [`replace_this_process`]; `None` if it is another one. Takes ownership of the descriptor it names.
pub fn lock_from_argument(argument: &str) -> Option<anyhow::Result<Lock>> {
    let fd = argument.strip_prefix(LOCK)?;
    let take = |fd: &str| Ok::<_, anyhow::Error>(Lock::inherited(descriptors::take(fd.parse()?)?.into()));
    Some(take(fd).context("--lock is for the daemon only"))
}

struct Keeper<'a> {
    places: &'a Places,
    background: bool,
    lock: Lock,
    listener: Option<UnixListener>,
    signals: Signals,
    /// Crashes in a row.
    crashes: usize,
    /// Crashes in total; the death of a keeper before this one counts as one.
    restarts: u32,
}

/// Streams that become readable when a signal arrives.
struct Signals {
    end: UnixStream,
    child: UnixStream,
    /// SIGHUP; it never ends the keeper.
    hangup: UnixStream,
}

/// One daemon process.
struct Life {
    pid: Pid,
    link: UnixStream,
    began: Instant,
    ready: bool,
    /// Whether it ends on request.
    ending: bool,
    /// When to kill it; set after SIGTERM.
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
                        record(self.places, "WARN", &format!("cannot list the daemon's processes: {error}"));
                    }
                    fault::point("keeper.family_ended");
                    let failed_to_start = self.restarts == 0 && !life.ready && status.exit_status().is_some();
                    if life.ending || failed_to_start {
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
                Err(error) if self.restarts == 0 => return Err(error).context("cannot start the daemon"),
                // A lack of processes, descriptors or memory may pass.
                Err(error) => format!("cannot start the daemon: {error}"),
            };
            let Some(pause) = PAUSES.get(self.crashes) else {
                anyhow::bail!(
                    "{died}, for the {}th time in a row: giving up; see {}",
                    self.crashes + 1,
                    self.places.log().display()
                );
            };
            record(self.places, "ERROR", &format!("{died}; restart in {pause} ms"));
            (self.crashes, self.restarts) = (self.crashes + 1, self.restarts.saturating_add(1));
            if self.sleep(Duration::from_millis(*pause))? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Kills the processes that a daemon left; fails if they cannot be listed.
    fn leave_nothing(&self) -> io::Result<()> {
        let left = self.kill_descendants()?;
        if left > 0 {
            record(self.places, "WARN", &format!("{left} processes of the daemon still run after SIGKILL"));
        }
        Ok(())
    }

    /// Starts the next daemon, after killing what is left of the last one.
    fn begin(&self) -> io::Result<Life> {
        if self.restarts > 0 {
            // Usually nothing is left, but the last attempt may have failed.
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
        let pid = Pid::from_child(&child);
        // At most 15 bytes are kept: seven digits are enough for every process id.
        terminal::set_process_name(&format!("{NAME} {}", pid.as_raw_nonzero()));
        // It fails if the daemon has died already.
        let _gone = (&link).write(&[NAMED]);
        link.set_nonblocking(true)?;
        Ok(Life { pid, link, began: Instant::now(), ready: false, ending: false, until: None })
    }

    /// Waits for the end of the daemon; returns its exit status.
    fn watch(&self, life: &mut Life) -> anyhow::Result<WaitStatus> {
        let mut talks = true;
        loop {
            if has_ended(life.pid)
                && let Some(status) = reap_daemon(life.pid)
            {
                // Its last letter may still be unread.
                self.listen(life)?;
                return Ok(status);
            }
            let Signals { end, child, hangup } = &self.signals;
            let all = [end.as_fd(), child.as_fd(), hangup.as_fd(), life.link.as_fd()];
            // A closed link stays readable forever.
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
                    &format!("the daemon still ran {} s after SIGTERM: killed", DRAIN.as_secs()),
                );
                let _gone = kill_process(life.pid, Signal::KILL);
                life.until = None;
            }
        }
    }

    /// Reads the daemon's letters; false once the link is closed.
    fn listen(&self, life: &mut Life) -> io::Result<bool> {
        let mut letters = [0; 16];
        loop {
            let received = match life.link.read(&mut letters) {
                Ok(0) => return Ok(false),
                Ok(read) => letters.get(..read).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                // The daemon died with unread data on its end.
                Err(_) => return Ok(false),
            };
            life.ending |= received.contains(&ENDING);
            if received.contains(&READY) && !life.ready {
                life.ready = true;
                if self.background
                    && let Err(error) = terminal::detach_stdio()
                {
                    record(self.places, "WARN", &format!("cannot detach from the terminal: {error}"));
                }
                footprint::release_idle_memory();
            }
        }
    }

    /// Kills all descendants; returns how many still run after [`GONE`].
    fn kill_descendants(&self) -> io::Result<usize> {
        let until = Instant::now() + GONE;
        loop {
            while reap().is_some() {}
            let children = children()?;
            if children.is_empty() || Instant::now() > until {
                return Ok(children.len());
            }
            for child in children {
                // An unreaped child keeps its process id, so this is no other process.
                let _gone = kill_process(child, Signal::KILL);
            }
            let _interrupted = ready(&[self.signals.child.as_fd()], Some(POLL_INTERVAL));
            drained(&self.signals.child);
        }
    }

    /// Sleeps for `pause`; true if a signal to end arrived.
    fn sleep(&self, pause: Duration) -> io::Result<bool> {
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

/// This program, even if its file was replaced or deleted since the start. Its name in process lists shows the data directory.
#[allow(clippy::disallowed_methods, reason = "the keeper's only child")]
fn program(places: &Places) -> io::Result<Command> {
    let own = std::path::Path::new("/proc/self/exe");
    let mut program = Command::new(if own.exists() { own.to_path_buf() } else { std::env::current_exe()? });
    let mut title = OsString::from("lingerd: ");
    title.push(&places.data);
    program.arg0(title);
    Ok(program)
}

/// Whether a child has ended; it is not reaped. True if that cannot be told.
fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::Pid(child), options), Ok(None))
}

/// Takes the daemon's id out of the keeper's name, then reaps the daemon: its id is free only then.
fn reap_daemon(daemon: Pid) -> Option<WaitStatus> {
    terminal::set_process_name(NAME);
    rustix::process::waitpid(Some(daemon), WaitOptions::NOHANG).ok().flatten().map(|(_, status)| status)
}

/// Reaps a child that has ended.
fn reap() -> Option<WaitStatus> {
    wait(WaitOptions::NOHANG).ok().flatten().map(|(_, status)| status)
}

/// A stream that becomes readable when one of these signals arrives.
fn notified(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// Empties the stream; whether there was anything to read.
fn drained(mut stream: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
        any = true;
    }
    any
}

/// Waits until one of these is readable, or `within` has passed.
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

/// Writes a line into the log file, or to standard error if that fails.
fn record(places: &Places, level: &str, text: &str) {
    if let Err(error) = diagnostics::append(&places.log(), level, "keeper", text) {
        eprintln!("lingerd: {text} ({}: {error})", places.log().display());
    }
}
