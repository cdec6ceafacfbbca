//! Finds the process that holds a lock: the daemon's, for when its socket does not answer or may not be its own, and the gateway's.
//!
//! The holder of the daemon's lock is the daemon or its keeper. The keeper also holds a lock of fcntl(2), and the system names the
//! holder of such a lock at once. Where there is none (a keeper that died, a repair), the list of all locks (`/proc/locks`) names
//! the holder of the `flock`; reading it waits for all processors, some 8 ms.
//!
//! No other process is ever signalled: the process is held by a descriptor first and looked up again afterwards, so its number
//! cannot have been reused. The lock itself is not touched: a daemon that is starting would take an attempt for another daemon.
//! If neither names a holder, the result is `None`.

use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Flock, FlockType, Pid, Signal};
use serde_json::Value;

use crate::place::Places;

/// The most bytes that are read of the lock's file: a process and a path are far less.
const MAX_CONTENT: u64 = 16 << 10;

/// The daemon, or its keeper.
#[derive(Debug)]
pub struct Holder {
    /// The id of the process that holds the lock.
    pub pid: u32,
    /// Its socket, as it says in the lock's file.
    pub socket: Option<PathBuf>,
    /// Whether it says in the lock's file that it is the daemon.
    announced: bool,
    process: OwnedFd,
}

/// How often to read the list: the system gives it in pieces, and a line can slip between two of them.
const PROBES: usize = 5;

/// The buffer for the list: the system fills as much of it as it can at once, a page. With the small first reads of
/// `fs::read_to_string` one list in thirty missed a line while others took and left locks.
const LIST_BUFFER: usize = 16 << 10;

/// The holder of the daemon's lock.
pub fn find(places: &Places) -> Option<Holder> {
    of_file(&places.data.join("lingerd.lock"))
}

/// The holder of the lock on a file of this user's.
pub fn of_file(path: &Path) -> Option<Holder> {
    (0..PROBES).find_map(|_| probe(path))
}

fn probe(path: &Path) -> Option<Holder> {
    let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let flags = i32::try_from((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits()).ok()?;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let holder = || named(&file).or_else(|| owner(&locks()?, meta.ino()));
    let pid = holder()?;
    let process = open(pid)?;
    // The descriptor is open: the number is this process's, if it still holds the lock.
    if holder() != Some(pid) {
        return None;
    }
    let mut text = String::new();
    let content: Value = match file.take(MAX_CONTENT).read_to_string(&mut text) {
        Ok(_) => serde_json::from_str(&text).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let announced = content.get("pid").and_then(Value::as_u64) == Some(u64::from(pid));
    Some(Holder { pid, socket: content.get("socket").and_then(Value::as_str).map(PathBuf::from), announced, process })
}

/// The process that holds a lock of fcntl(2) on the file.
fn named(file: &fs::File) -> Option<u32> {
    let any = Flock::from(FlockType::WriteLock);
    let pid = rustix::process::fcntl_getlk(file, &any).ok()??.pid?;
    // A process outside this one's container has no number here.
    u32::try_from(pid.as_raw_pid()).ok().filter(|pid| *pid > 1)
}

/// The system's list of locks.
fn locks() -> Option<String> {
    let mut list = fs::File::open("/proc/locks").ok()?;
    let (mut text, mut buffer) = (Vec::new(), vec![0; LIST_BUFFER]);
    loop {
        match list.read(&mut buffer).ok()? {
            0 => return String::from_utf8(text).ok(),
            read => text.extend_from_slice(buffer.get(..read)?),
        }
    }
}

/// The process that holds a lock on the file with this number, from what `/proc/locks` says.
///
/// A line is `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`; one that begins with `1: ->` only waits. The device is not
/// compared: some file systems give another one to `stat`. Two files with one number cannot be told
/// apart; if different processes lock them, the result is `None`.
fn owner(locks: &str, inode: u64) -> Option<u32> {
    let mut owners = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
        (file.rsplit(':').next()?.parse() == Ok(inode)).then(|| pid.parse::<u32>().ok())?
    });
    let owner = owners.next().filter(|pid| *pid > 1)?;
    owners.all(|other| other == owner).then_some(owner)
}

/// The parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.1
}

/// Whether there is no process with this id, also on a system that hides processes.
pub fn has_ended(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Whether a process was stopped, by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| matches!(state, 'T' | 't'))
}

/// State and parent of a process, from proc(5): `pid (name) state ppid …`, where the name may hold anything, parentheses included.
fn stat(pid: u32) -> Option<(char, Option<u32>)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next().and_then(|parent| parent.parse().ok())))
}

/// Whether a command line is a daemon's: its program's name, or what a daemon calls itself.
fn is_daemon(command: &[u8]) -> bool {
    let name = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"lingerd: ") || file.starts_with(b"lingerd")
}

#[cfg(target_os = "linux")]
fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn open(_: u32) -> Option<OwnedFd> {
    None
}

impl Holder {
    /// Its socket, as it says in the lock's file, if that is another than that of `places`.
    pub fn other_socket(&self, places: &Places) -> Option<&Path> {
        self.socket.as_deref().filter(|socket| *socket != places.socket)
    }

    /// Whether a process is the daemon of this lock: its holder, or the holder's child.
    pub fn is_daemon(&self, pid: u32) -> bool {
        self.pid == pid || parent(pid) == Some(self.pid)
    }

    /// Asks it to end (SIGTERM), even if it or the daemon below a keeper was stopped.
    pub fn terminate(&self) -> std::io::Result<()> {
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            // A child that has ended needs no signal, and one that runs ignores it.
            let _ = rustix::process::kill_process(child, Signal::CONT);
        }
        Ok(())
    }

    /// Asks it to check its socket (SIGHUP). The list names the process that took the lock, even if a
    /// child inherited it, so only a process that calls itself the daemon gets the signal.
    pub fn miss_socket(&self) -> std::io::Result<()> {
        let command = fs::read(format!("/proc/{}/cmdline", self.pid))?;
        if self.announced && is_daemon(&command) { self.signal(Signal::HUP) } else { Ok(()) }
    }

    /// Kills it.
    pub fn kill(&self) -> std::io::Result<()> {
        self.signal(Signal::KILL)
    }

    #[cfg(target_os = "linux")]
    fn signal(&self, signal: Signal) -> std::io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.process, signal)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn signal(&self, _: Signal) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Whether it ends within this time.
    pub fn ends_within(&self, time: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let limit = Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut ended, Some(&limit)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test speaks.
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_there_has_not_ended() {
        assert!(!has_ended(std::process::id()));
        // Larger than any id that Linux gives.
        assert!(has_ended(1 << 23));
    }

    #[test]
    fn the_owner_is_who_holds_the_lock_and_not_who_waits_for_it() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 12 fe:00:131 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 13 fe:00:131 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 14 fe:00:132 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fe:00:133 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 15 fe:00:1310 0 EOF\n";
        assert_eq!([131, 132, 133, 134].map(|inode| owner(locks, inode)), [Some(4711), None, None, None]);
        let twice = "1: FLOCK ADVISORY WRITE 5 fe:00:9 0 EOF\n2: FLOCK ADVISORY WRITE 6 00:21:9 0 EOF\n";
        assert_eq!(owner(twice, 9), None, "one of the two is not ours");
        assert_eq!(owner("nonsense\n\n1: FLOCK\n", 1), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_lock_that_is_held_has_its_process_and_one_that_is_not_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let places = Places { config: at("c"), data: at(""), state: at("s"), socket: at("x") };
        assert!(find(&places).is_none(), "there is no file");
        let path = dir.path().join("lingerd.lock");
        fs::write(&path, "{\"pid\":1,\"socket\":\"/old\"}").unwrap();
        assert!(find(&places).is_none(), "a file without a lock says nothing");
        let file = fs::File::open(&path).unwrap();
        file.lock().unwrap();
        let holder = find(&places).unwrap();
        assert_eq!((holder.pid, holder.socket.as_deref()), (std::process::id(), Some(std::path::Path::new("/old"))));
        assert!(!holder.ends_within(Duration::ZERO));
    }

    #[test]
    fn only_what_calls_itself_the_daemon_is_taken_for_it() {
        for own in
            ["/usr/bin/lingerd\0--background\0", "lingerd\0", "lingerd: /home/me/.local/share/linger\0--kept=1\0"]
        {
            assert!(is_daemon(own.as_bytes()), "{own}");
        }
        for other in ["", "flock\0/home/me/lingerd.lock\0sh\0", "vi\0lingerd\0", "/srv/lingerd/sh\0"] {
            assert!(!is_daemon(other.as_bytes()), "{other}");
        }
    }
}
