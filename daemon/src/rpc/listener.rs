//! The socket: bound under the lock, bound again when its file vanishes, and open to one user.
//!
//! The lock proves that no other daemon runs, so a dead one's socket file may be removed; anything else at its path is an error.
//! The file is watched (not its directory, which holds the log) and bound again if it is deleted, moved or replaced; existing
//! connections stay. A watch misses some cases, such as a renamed directory; then a client that finds no socket sends SIGHUP, which
//! the keeper forwards and which means: check the file. A socket from the service manager is used as it is.
//! Dropping the [`Listener`] removes the file, if it is still ours: drop it before the lock.

use std::fs::Metadata;
use std::future::pending;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interprocess::local_socket::tokio::{Listener as Socket, Stream};
use interprocess::local_socket::traits::StreamCommon;
use interprocess::local_socket::traits::tokio::Listener as _;
use interprocess::local_socket::{ListenerOptions, PeerCreds};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use interprocess::os::unix::uds_local_socket;
use linger_protocol::place::{PlaceError, check_socket, private_directory};
use linger_protocol::transport;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use rustix::io::Errno;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::Accept;
use crate::service::Authority;
use crate::sys::peer::{self, Peer};

/// The pause after a failed accept: without file descriptors an immediate retry fails too.
const BACKOFF: Duration = Duration::from_millis(100);

/// The pause until a lost socket is bound again after a failure; only then does a timer run.
const RETRY: Duration = Duration::from_secs(1);

/// How many connections may wait to be accepted on a socket of the service manager's: the system's usual bound.
const BACKLOG: i32 = 4096;

/// The socket of one daemon.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// Absent for a socket that the service manager owns.
    binding: Option<Binding>,
    /// SIGHUP: a client found no socket.
    missed: Signal,
    /// Whether the last accept failed; the log has it already.
    failing: bool,
}

/// Why the socket cannot be bound; nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The socket's directory or path cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The path is taken, and not by a dead daemon's socket.
    #[error("{path} {what}", path = .0.display(), what = .1)]
    Occupied(PathBuf, &'static str),
    /// The socket cannot be created.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
}

impl ListenError {
    /// The next thing for a user to do.
    pub fn hint(&self) -> String {
        match self {
            Self::Place(error) => error.hint(),
            Self::Occupied(..) => "stop that program or move the file, or set LINGER_SOCKET to another path".to_owned(),
            Self::Io(..) => "set LINGER_SOCKET to a path in a directory that you can write".to_owned(),
        }
    }
}

/// The file of our own socket.
#[derive(Debug)]
struct Binding {
    path: PathBuf,
    id: FileId,
    /// Absent if the system has no watch left: then only SIGHUP tells of a vanished file.
    watcher: Option<RecommendedWatcher>,
    /// Wakes when the file was touched.
    touched: watch::Receiver<()>,
    /// When to try again, after binding failed.
    retry: Option<Instant>,
}

/// The problem of a socket that another process listens on.
const IN_USE: &str = "is in use by another program";

/// How long a killed daemon may take to close its socket.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 1 });

/// Device and inode.
type FileId = (u64, u64);

impl Listener {
    /// Takes the socket from the service manager, or binds `path`; calls `announce` with the path in use.
    pub fn open(path: &Path, passed: Option<UnixListener>, announce: impl FnOnce(&Path)) -> Result<Self, ListenError> {
        let io = |error| ListenError::Io(path.to_path_buf(), error);
        match passed {
            Some(socket) => {
                let address = socket.local_addr().map_err(io)?;
                announce(address.as_pathname().unwrap_or(path));
                Self::passed(socket).map_err(io)
            }
            None => {
                let missed = signal(SignalKind::hangup()).map_err(io)?;
                let (socket, id) = bind_in_time(path)?;
                announce(path);
                Ok(Self { socket, binding: Some(Binding::watch(path, id)), missed, failing: false })
            }
        }
    }

    fn passed(socket: UnixListener) -> io::Result<Self> {
        // Clients ask the system who listens: from now on this process, and not the service manager.
        if let Err(error) = rustix::net::listen(&socket, BACKLOG) {
            warn!(%error, "the passed socket still shows the service manager as its listener: clients send no keys");
        }
        let socket = uds_local_socket::tokio::Listener::try_from(std::os::fd::OwnedFd::from(socket))?;
        let missed = signal(SignalKind::hangup())?;
        Ok(Self { socket: socket.into(), binding: None, missed, failing: false })
    }

    /// The next connection of the daemon's own user; others are closed unread. Cancel safe.
    pub async fn accept(&mut self) -> (Stream, Peer) {
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = lost(&mut self.binding, &mut self.missed) => {
                    self.bind_again();
                    continue;
                }
            };
            let identified = accepted.and_then(|stream| Ok((stream.peer_creds()?, stream)));
            self.failing &= identified.is_err();
            match identified {
                Ok((creds, stream)) => match admit(&creds, &stream) {
                    Some(peer) => return (stream, peer),
                    None => warn!(uid = creds.euid(), "refused a connection of another user"),
                },
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        warn!(%error, "cannot accept a connection; trying again (too few open files? `ulimit -n`)");
                    }
                    sleep(BACKOFF).await;
                }
            }
        }
    }

    fn bind_again(&mut self) {
        let Some(binding) = &mut self.binding else { return };
        match bind(&binding.path) {
            Ok((socket, id)) => {
                info!(socket = %binding.path.display(), "the socket's file vanished and was bound again");
                self.socket = socket;
                *binding = Binding::watch(&binding.path, id);
            }
            Err(error) => {
                if binding.retry.is_none() {
                    warn!(%error, "the socket's file vanished and cannot be bound again; trying again");
                }
                binding.retry = Some(Instant::now() + RETRY);
            }
        }
    }
}

impl Accept for Listener {
    type Stream = Stream;

    async fn accept(&mut self) -> (Stream, Authority) {
        let (stream, peer) = self.accept().await;
        (stream, Authority::Peer(peer))
    }
}

impl Binding {
    fn watch(path: &Path, id: FileId) -> Self {
        // Marked as touched, so that a change from before the watch is noticed too.
        let (sender, mut touched) = watch::channel(());
        touched.mark_changed();
        let watcher = notify::recommended_watcher(move |_| {
            sender.send_replace(());
        });
        let watcher =
            watcher.and_then(|mut watcher| watcher.watch(path, RecursiveMode::NonRecursive).map(|()| watcher));
        if let Err(error) = &watcher {
            warn!(%error, socket = %path.display(), "cannot watch the socket's file; if it is deleted, it is bound again when a client looks for it");
        }
        Self { path: path.to_path_buf(), id, watcher: watcher.ok(), touched, retry: None }
    }

    fn is_intact(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok_and(|meta| id(&meta) == self.id)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        // It fails if the watch is gone together with the file.
        let _ = self.watcher.iter_mut().try_for_each(|watcher| watcher.unwatch(&self.path));
        if self.is_intact() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Waits until the socket's file is no longer ours, or until the next retry.
async fn lost(binding: &mut Option<Binding>, missed: &mut Signal) {
    let Some(binding) = binding else { return pending().await };
    if let Some(retry) = binding.retry {
        return sleep_until(retry).await;
    }
    loop {
        tokio::select! {
            Ok(()) = binding.touched.changed() => {}
            Some(()) = missed.recv() => {}
            else => pending().await,
        }
        if !binding.is_intact() {
            return;
        }
    }
}

/// Binds `path` at the start. This process holds the lock, so a daemon that still listens was killed with its keeper and is about
/// to end.
fn bind_in_time(path: &Path) -> Result<(Socket, FileId), ListenError> {
    let bound = bind(path);
    if let Err(ListenError::Occupied(_, IN_USE)) = &bound {
        // The connection closes when the process ends.
        if probe(path).ok().flatten().is_none_or(|other| closes(other, CLOSE_TIMEOUT)) {
            return bind(path);
        }
    }
    bound
}

/// Binds `path`, after removing the socket of a dead daemon.
fn bind(path: &Path) -> Result<(Socket, FileId), ListenError> {
    let io = |error| ListenError::Io(path.to_path_buf(), error);
    private_directory(path.parent().unwrap_or(Path::new("/")))?;
    check_socket(path)?;
    clear(path)?;
    let options = || Ok(ListenerOptions::new().name(transport::name(path)?).reclaim_name(false));
    let socket = match options().and_then(|options: ListenerOptions<'_>| options.mode(0o600).create_tokio()) {
        // Some systems cannot create the file with a mode; there the directory keeps others out.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => options().and_then(ListenerOptions::create_tokio),
        result => result,
    };
    let socket = socket.map_err(io)?;
    let meta = std::fs::symlink_metadata(path).map_err(io)?;
    Ok((socket, id(&meta)))
}

/// Removes our own socket without a listener; fails for anything else at the path.
fn clear(path: &Path) -> Result<(), ListenError> {
    let io = |error| ListenError::Io(path.to_path_buf(), error);
    let occupied = |what| Err(ListenError::Occupied(path.to_path_buf(), what));
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    if !meta.file_type().is_socket() {
        return occupied("is not a socket");
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return occupied("belongs to another user");
    }
    if is_alive(path).map_err(io)? {
        return occupied(IN_USE);
    }
    std::fs::remove_file(path).map_err(io)
}

/// Whether a process listens on the socket; does not block.
fn is_alive(path: &Path) -> io::Result<bool> {
    Ok(probe(path)?.is_some())
}

/// A connection to the listener, if any; unconnected if its backlog is full.
fn probe(path: &Path) -> io::Result<Option<std::os::fd::OwnedFd>> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let probe = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&probe, rustix::io::FdFlags::CLOEXEC)?;
    // Non-blocking, because connecting to a full backlog would block.
    rustix::io::ioctl_fionbio(&probe, true)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        _ => Ok(Some(probe)),
    }
}

/// Waits for the peer to close a connection; whether it did in time.
fn closes(other: std::os::fd::OwnedFd, time: Duration) -> bool {
    let mut other = std::os::unix::net::UnixStream::from(other);
    let waits = other.set_nonblocking(false).and_then(|()| other.set_read_timeout(Some(time)));
    waits.is_ok()
        && match io::Read::read(&mut other, &mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
}

/// The peer, if it is this user; `None` if the system does not tell its user.
fn admit(creds: &PeerCreds, stream: &Stream) -> Option<Peer> {
    let me = rustix::process::geteuid().as_raw();
    let uid = creds.euid().filter(|uid| *uid == me)?;
    let pid = creds.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
    let began = pid.and_then(peer::started);
    let Stream::UdSocket(socket) = stream;
    // Looked at last: until now, then, the number was its own.
    let pid = pid.filter(|_| transport::peer::is_alive(socket.as_fd()) != Some(false));
    Some(Peer { pid, began, uid })
}

fn id(meta: &Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    use super::*;

    struct House {
        dir: tempfile::TempDir,
        path: PathBuf,
    }

    fn house() -> House {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/lingerd.sock");
        private_directory(path.parent().unwrap()).unwrap();
        House { dir, path }
    }

    impl House {
        fn open(&self) -> Result<Listener, ListenError> {
            Listener::open(&self.path, None, |announced| assert_eq!(announced, self.path))
        }

        fn path(&self) -> &Path {
            &self.path
        }
    }

    /// Connects as soon as somebody listens, and is accepted.
    async fn reach(listener: &mut Listener, path: &Path) -> Peer {
        let connect = async {
            loop {
                match UnixStream::connect(path) {
                    Ok(stream) => return stream,
                    Err(_) => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let both = async { tokio::join!(connect, listener.accept()) };
        let (_stream, (_, peer)) = tokio::time::timeout(Duration::from_secs(10), both).await.expect("is reached");
        peer
    }

    #[tokio::test]
    async fn the_socket_is_closed_to_others_names_its_peer_and_goes_with_the_daemon() {
        let house = house();
        let mut listener = house.open().unwrap();
        assert_eq!(std::fs::metadata(house.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let pid = Some(std::process::id());
        let me = Peer { pid, began: pid.and_then(peer::started), uid: rustix::process::geteuid().as_raw() };
        assert_eq!(reach(&mut listener, house.path()).await, me);
        drop(listener);
        assert!(!house.path().exists());
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_daemon_is_replaced() {
        let house = house();
        drop(UnixListener::bind(house.path()).unwrap());
        assert!(house.path().exists());
        let mut listener = house.open().unwrap();
        reach(&mut listener, house.path()).await;
    }

    #[tokio::test]
    async fn a_daemon_that_was_killed_lets_go_of_the_socket_a_moment_after_its_lock() {
        let house = house();
        let dying = UnixListener::bind(house.path()).unwrap();
        // Those who look whether it is there, and then who waits for its end.
        let gone = std::thread::spawn(move || {
            let waiting = [dying.accept().unwrap(), dying.accept().unwrap()];
            drop(dying);
            drop(waiting);
        });
        let mut listener = house.open().unwrap();
        gone.join().unwrap();
        reach(&mut listener, house.path()).await;
    }

    #[tokio::test]
    async fn whatever_else_is_in_its_place_is_refused_and_left_alone() {
        let house = house();
        let path = house.path();
        let refused = |why: &str| {
            let before = id(&std::fs::symlink_metadata(path).unwrap());
            let error = house.open().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(id(&std::fs::symlink_metadata(path).unwrap()), before);
        };
        std::fs::write(path, "precious").unwrap();
        refused("is not a socket");
        std::fs::remove_file(path).unwrap();

        let elsewhere = house.dir.path().join("elsewhere");
        drop(UnixListener::bind(&elsewhere).unwrap());
        symlink(&elsewhere, path).unwrap();
        refused("is not a socket");
        assert!(elsewhere.exists());
        std::fs::remove_file(path).unwrap();

        std::fs::create_dir(path).unwrap();
        refused("is not a socket");
        std::fs::remove_dir(path).unwrap();

        let alive = UnixListener::bind(path).unwrap();
        refused("is in use");
        drop(alive);
        std::fs::set_permissions(house.path().parent().unwrap(), std::fs::Permissions::from_mode(0o777)).unwrap();
        refused("can be entered by others");
        assert!(house.open().unwrap_err().hint().starts_with("chmod 700 "));
        // As /tmp is, which is not the user's to change.
        std::fs::set_permissions(house.path().parent().unwrap(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        refused("can be entered by others");
        let hint = house.open().unwrap_err().hint();
        assert!(hint.starts_with("put a directory of yours in the place of "), "{hint}");
        assert!(!["sudo", "chown", "chmod"].iter().any(|command| hint.contains(command)), "{hint}");
    }

    #[tokio::test]
    async fn a_vanished_socket_is_bound_again_and_the_old_one_takes_nothing_with_it() {
        let house = house();
        let mut listener = house.open().unwrap();
        reach(&mut listener, house.path()).await;
        std::fs::remove_file(house.path()).unwrap();
        reach(&mut listener, house.path()).await;
        std::fs::rename(house.path(), house.dir.path().join("moved")).unwrap();
        reach(&mut listener, house.path()).await;
        std::fs::remove_dir_all(house.path().parent().unwrap()).unwrap();
        reach(&mut listener, house.path()).await;
        drop(listener);
        assert!(!house.path().exists());
    }

    #[tokio::test]
    async fn what_took_the_place_of_the_socket_is_not_removed_and_the_socket_comes_back_after_it() {
        let house = house();
        let mut listener = house.open().unwrap();
        reach(&mut listener, house.path()).await;
        std::fs::remove_file(house.path()).unwrap();
        std::fs::write(house.path(), "precious").unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
        assert!(waited.is_err());
        assert_eq!(std::fs::read_to_string(house.path()).unwrap(), "precious");
        std::fs::remove_file(house.path()).unwrap();
        reach(&mut listener, house.path()).await;
        std::fs::remove_file(house.path()).unwrap();
        std::fs::write(house.path(), "precious").unwrap();
        drop(listener);
        assert_eq!(std::fs::read_to_string(house.path()).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_passed_socket_is_served_and_never_removed() {
        let house = house();
        let mut listener = Listener::passed(UnixListener::bind(house.path()).unwrap()).unwrap();
        reach(&mut listener, house.path()).await;
        drop(listener);
        assert!(house.path().exists());
    }

    #[test]
    fn a_socket_that_fails_does_not_spin() {
        use rustix::net::{AddressFamily, SocketType, socket};
        // It does not listen, so accepting fails at once, as it does without free file descriptors.
        let socket = UnixListener::from(socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let waited = runtime.block_on(async {
                let mut listener = Listener::passed(socket).unwrap();
                // On the paused clock this ends only if accepting waits for a timer.
                tokio::time::timeout(BACKOFF * 10, listener.accept()).await.is_err()
            });
            let _ = sender.send(waited);
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
