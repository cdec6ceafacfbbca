//! One daemon per user: a lock file next to the database, held for the daemon's life.
//!
//! The lock is a `flock`, which the daemon shares with its keeper; the keeper adds a lock of fcntl(2), by which clients find it.
//! The system releases both however the processes end. The file stays; while a daemon runs, it holds one line of JSON with the
//! daemon's process id and socket. Only the holder of the lock may remove a socket.
//! A helper that repairs the database holds the lock too, and says so in that line.
//! Otherwise the line is blank. Its length is fixed, because overwriting works even on a full disk.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linger_protocol::place::{PlaceError, Places, private_directory};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, test_kill_process};
use serde_json::json;

use crate::process::mark::TooLow;
use crate::sys::peer;

/// How much of the file is read, in bytes: a process id and a path are far shorter.
const MAX_CONTENT: u64 = 16 << 10;

/// The length of the line, in bytes: a socket's path has about a hundred, and JSON escapes each with at most six.
const RECORD: usize = 1024;

/// How long to wait for the lock of a dead daemon: a freshly forked child keeps it until it runs its own program.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 1 });

/// The interval between two tries to lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The lock; dropping it releases it.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// Whether the previous holder died without clearing the file.
    pub follows_a_death: bool,
}

/// Another daemon holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Its process id, once announced.
    pub pid: Option<u32>,
    /// Its socket, once announced.
    pub socket: Option<PathBuf>,
    /// It is no daemon, but repairs the database.
    pub repairs: bool,
}

/// The text for clients during a repair.
const REPAIRING: &str = "the database is being repaired";

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon holds it.
    #[error("{}{}", if .0.repairs { REPAIRING } else { "already running" }, .0.pid.map_or_else(String::new, |pid| format!(" (process {pid})")))]
    Held(Held),
    /// The data directory cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A daemon may not start in this process.
    #[error(transparent)]
    TooLow(#[from] TooLow),
    /// The file cannot be used.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
}

impl Lock {
    /// Takes the lock, or returns its holder. Never waits for a live one.
    pub fn take(places: &Places) -> Result<Self, LockError> {
        private_directory(&places.data)?;
        let path = path(places);
        let io = |error| LockError::Io(path.clone(), error);
        let (mut file, fixed) = open(&path).map_err(io)?;
        match try_lock(&mut file) {
            Ok(()) => {
                // A line that is left means a death. On a full disk a new file stays empty.
                let follows_a_death = read(&mut file).pid.is_some();
                if !fixed {
                    overwrite(&file, "").or_else(|_| file.set_len(0)).map_err(io)?;
                }
                Ok(Self { file, follows_a_death })
            }
            Err(TryLockError::WouldBlock) => Err(LockError::Held(read(&mut file))),
            Err(TryLockError::Error(error)) => Err(io(error)),
        }
    }

    /// The lock that the keeper took and passed on; released when both processes have dropped it.
    pub fn inherited(file: File) -> Self {
        Self { file, follows_a_death: false }
    }

    /// Whether this is the lock of these directories, and this process or its keeper has taken it.
    pub fn is_held(&self, places: &Places) -> bool {
        let id = |file: std::fs::Metadata| (file.dev(), file.ino());
        // The directory may have been removed since.
        let is_same =
            std::fs::metadata(path(places)).is_ok_and(|file| self.file.metadata().is_ok_and(|own| id(own) == id(file)));
        let is_gone = || !path(places).exists();
        // Another descriptor of the same file: it is locked unless this one is not.
        let again =
            File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())).or_else(|_| File::open(path(places)));
        let is_taken = again.is_ok_and(|again| matches!(again.try_lock(), Err(TryLockError::WouldBlock)));
        (is_same || is_gone()) && is_taken && self.file.try_lock().is_ok()
    }

    /// The same lock, taken by this process: the system names who took it, and that was the dead keeper. Another process can come
    /// between only within a few instructions; then it fails.
    pub fn taken_again(self) -> Result<Self, LockError> {
        match self.file.try_lock_shared().and_then(|()| self.file.try_lock()) {
            Ok(()) => Ok(self),
            Err(TryLockError::WouldBlock) => Err(LockError::Held(Held::default())),
            Err(TryLockError::Error(error)) => Err(LockError::Io(PathBuf::from("lingerd.lock"), error)),
        }
    }

    /// Lets the system tell clients that this process holds the lock (`F_GETLK` in fcntl(2)): their other source, `/proc/locks`,
    /// makes each of them wait for milliseconds. This lock stays over `exec`, is not inherited by children, and ends when this
    /// process closes *any* descriptor of the file. A file system without such locks leaves clients their other source.
    pub fn name_this_process(&self) {
        let _unnamed = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive);
    }

    /// Prepares for a program that takes this process's place: the descriptor stays open, and the line no longer names the holder.
    pub fn pass_on(&self) -> io::Result<RawFd> {
        fcntl_setfd(&self.file, FdFlags::empty())?;
        overwrite(&self.file, "")?;
        Ok(self.file.as_raw_fd())
    }

    /// Writes the process that takes signals for the whole daemon, and the bound socket, into the file.
    pub fn announce(&self, pid: u32, socket: &Path) -> io::Result<()> {
        let line = json!({ "pid": pid, "socket": socket.to_string_lossy() });
        overwrite(&self.file, &line.to_string())
    }

    /// Says that this process repairs the database.
    pub fn announce_repair(&self) -> io::Result<()> {
        overwrite(&self.file, &json!({ "pid": std::process::id(), "repairs": true }).to_string())
    }

    /// As [`Self::announce`], but only warns: without the line a client merely cannot end the daemon by force.
    pub fn announce_or_warn(&self, pid: u32, socket: &Path) {
        if let Err(error) = self.announce(pid, socket) {
            tracing::warn!(%error, "cannot write the process id into the lock file");
        }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A line that is left means a live daemon or a crash. If this fails, the line names a process that is gone.
        let _stale = overwrite(&self.file, "");
    }
}

/// The path of the lock file.
pub fn path(places: &Places) -> PathBuf {
    path_in(&places.data)
}

fn path_in(data: &Path) -> PathBuf {
    data.join("lingerd.lock")
}

/// Whether the daemon of this data directory lives above this process, as its lock file says.
pub fn is_above(data: &Path) -> bool {
    let keeper = File::open(path_in(data)).ok().and_then(|mut file| read(&mut file).pid);
    keeper.is_some_and(|keeper| peer::line(std::process::id()).any(|pid| pid == keeper))
}

/// Replaces the content with `text`, padded to [`RECORD`].
fn overwrite(file: &File, text: &str) -> io::Result<()> {
    let line = format!("{text:<width$}\n", width = RECORD - 1);
    file.write_all_at(line.as_bytes(), 0)?;
    file.set_len(line.len() as u64)
}

/// Opens the file; true if it is read-only, which still allows a lock.
fn open(path: &Path) -> io::Result<(File, bool)> {
    // Non-blocking, because opening a pipe of that name would block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).mode(0o600).custom_flags(flags.bits() as i32);
    let (file, fixed) = match options.clone().write(true).create(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => (options.open(path)?, true),
        opened => (opened?, false),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    Ok((file, fixed))
}

/// Tries to lock; retries for [`RELEASE_TIMEOUT`] if the holder is dead.
fn try_lock(file: &mut File) -> Result<(), TryLockError> {
    let until = Instant::now() + RELEASE_TIMEOUT;
    loop {
        let result = file.try_lock();
        if !matches!(result, Err(TryLockError::WouldBlock)) || !read(file).is_dead() || Instant::now() >= until {
            return result;
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

impl LockError {
    /// The next thing to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Held(held) if held.repairs => Some("try again when that is done"),
            Self::Held(_) => Some("`linger doctor --repair` stops the daemon first"),
            Self::TooLow(low) => Some(low.hint()),
            _ => None,
        }
    }
}

impl Held {
    /// Whether the named process is gone.
    fn is_dead(&self) -> bool {
        let pid = self.pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

fn read(file: &mut File) -> Held {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(MAX_CONTENT).read_to_string(&mut text));
    let value: serde_json::Value = read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
    Held {
        pid: value.get("pid").and_then(serde_json::Value::as_u64).and_then(|pid| u32::try_from(pid).ok()),
        socket: value.get("socket").and_then(serde_json::Value::as_str).map(PathBuf::from),
        repairs: value.get("repairs").is_some_and(|repairs| repairs == true),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn places(dir: &Path) -> Places {
        let at = |name: &str| dir.join(name);
        Places { config: at("config"), data: at("data"), state: at("state"), socket: at("state/lingerd.sock") }
    }

    #[test]
    fn the_second_is_told_who_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let lock = Lock::take(&places).unwrap();
        let held = || match Lock::take(&places) {
            Err(LockError::Held(held)) => held,
            other => panic!("{other:?}"),
        };
        assert_eq!(held(), Held::default(), "before it is announced");
        lock.announce(7, &places.socket).unwrap();
        lock.announce(7, &places.socket).unwrap();
        assert_eq!(held(), Held { pid: Some(7), socket: Some(places.socket.clone()), repairs: false });
        lock.announce_repair().unwrap();
        let repairs = held();
        assert_eq!((repairs.pid, repairs.repairs), (Some(std::process::id()), true));
        assert!(LockError::Held(repairs).to_string().starts_with("the database is being repaired (process "));
        assert_eq!(std::fs::metadata(path(&places)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(lock.is_held(&places));
        let other = Lock::inherited(open(&path(&places)).unwrap().0);
        assert!(!other.is_held(&places), "another descriptor of the file");
        // It would overwrite the line.
        std::mem::forget(other);
        drop(lock);
        let said = std::fs::read_to_string(path(&places)).unwrap();
        assert_eq!((said.trim(), said.len()), ("", RECORD), "the length is kept: the disk may be full next time");
        Lock::take(&places).unwrap();
    }

    #[test]
    fn what_a_dead_daemon_said_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        private_directory(&places.data).unwrap();
        std::fs::write(path(&places), "{\"pid\":1,\"socket\":\"/old\"}").unwrap();
        let _lock = Lock::take(&places).unwrap();
        assert!(matches!(Lock::take(&places), Err(LockError::Held(held)) if held == Held::default()));
    }

    #[test]
    fn what_a_dead_daemon_leaves_locked_for_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        private_directory(&places.data).unwrap();
        // Beyond the largest number that Linux gives.
        let dead = json!({ "pid": 1 << 30, "socket": "/old" });
        std::fs::write(path(&places), dead.to_string()).unwrap();
        let (remnant, _) = open(&path(&places)).unwrap();
        remnant.try_lock().unwrap();
        let began = Instant::now();
        assert!(matches!(Lock::take(&places), Err(LockError::Held(_))), "but not for ever");
        assert!(began.elapsed() >= RELEASE_TIMEOUT);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| Lock::take(&places));
            drop(remnant);
            next.join().unwrap().unwrap();
        });
    }

    #[test]
    fn of_a_hundred_at_once_exactly_one_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(|| Lock::take(&places))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.iter().filter(|lock| lock.is_ok()).count(), 1);
    }

    #[test]
    fn a_link_a_pipe_or_an_open_directory_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        private_directory(&places.data).unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, path(&places)).unwrap();
        assert!(matches!(Lock::take(&places), Err(LockError::Io(..))));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");

        std::fs::remove_file(path(&places)).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path(&places), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(Lock::take(&places), Err(LockError::Io(..))));

        std::fs::remove_file(path(&places)).unwrap();
        std::fs::set_permissions(&places.data, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Lock::take(&places), Err(LockError::Place(_))));
    }
}
