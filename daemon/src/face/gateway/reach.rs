//! The way to the daemon: connects to its socket, proves that the daemon listens there, and waits for one that starts again.
//!
//! The gateway is a client too: before a token or a login code goes out, the listener is proven as every client does it
//! ([`linger_protocol::listener`]). A process that took the socket's place gets nothing.
//! A daemon that starts is announced by its files: the socket appears, and its lock's file names it. A watch on both exists only
//! while something waits; there is no timer but the limit of a request.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hyper::StatusCode;
use linger_protocol::listener::{self, Proof, holder};
use linger_protocol::place::Places;
use linger_protocol::transport;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::reply::Failure;
use crate::sys::peer;

/// How long a request waits for a daemon that no process starts: one may be upgraded just now.
const STOPPED: Duration = Duration::from_secs(3);

/// How long a request waits while the lock is held: a keeper that restarts a daemon pauses for up to 8 s.
const STARTING: Duration = Duration::from_secs(12);

/// The code of the failure while nothing listens.
pub(super) const ABSENT: &str = "unavailable";

/// The daemon, as the gateway finds it.
pub(super) struct Daemon {
    places: Places,
    /// The daemon that was proven last: its process id and start.
    proven: Mutex<Option<(u32, u64)>>,
    watch: Mutex<Weak<DaemonWatch>>,
}

/// Wakes when a file changes that tells of a daemon's start.
pub(super) struct DaemonWatch {
    changed: watch::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl DaemonWatch {
    fn new(places: &Places) -> notify::Result<Self> {
        let (sender, changed) = watch::channel(());
        let mut watcher = notify::recommended_watcher(move |_| {
            sender.send_replace(());
        })?;
        if let Some(directory) = places.socket.parent() {
            watcher.watch(directory, RecursiveMode::NonRecursive)?;
        }
        // It is written once the socket accepts. There is none before the first start, which the directory shows.
        let _absent = watcher.watch(&places.data.join("lingerd.lock"), RecursiveMode::NonRecursive);
        Ok(Self { changed, _watcher: watcher })
    }

    /// Wakes at each change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.clone();
        changes.borrow_and_update();
        changes
    }
}

impl Daemon {
    pub(super) fn new(places: Places) -> Self {
        Self { places, proven: Mutex::default(), watch: Mutex::default() }
    }

    /// The watch on the daemon's files, shared by all that wait.
    pub(super) fn watch(&self) -> Result<Arc<DaemonWatch>, Failure> {
        let mut shared = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = shared.upgrade() {
            return Ok(watch);
        }
        let watch = DaemonWatch::new(&self.places).map_err(|error| {
            Failure::unavailable(format!("the daemon is not running, and its start cannot be watched: {error}"))
                .hint("`linger daemon start` starts it")
        })?;
        let watch = Arc::new(watch);
        *shared = Arc::downgrade(&watch);
        Ok(watch)
    }

    /// Connects; waits for a daemon that starts.
    pub(super) async fn connect(&self) -> Result<UnixStream, Failure> {
        match self.connect_now().await {
            Err(failure) if failure.code == ABSENT => {}
            other => return other,
        }
        let wait = if holder::find(&self.places).is_some() { STARTING } else { STOPPED };
        timeout(wait, self.connect_once_there()).await.unwrap_or_else(|_| Err(self.absent()))
    }

    async fn connect_once_there(&self) -> Result<UnixStream, Failure> {
        let watch = self.watch()?;
        loop {
            let mut changes = watch.changes();
            match self.connect_now().await {
                Err(failure) if failure.code == ABSENT => {}
                other => return other,
            }
            changes.changed().await.map_err(|_| self.absent())?;
        }
    }

    /// Connects if something listens.
    pub(super) async fn connect_now(&self) -> Result<UnixStream, Failure> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match UnixStream::connect(&self.places.socket).await {
            Ok(stream) => Ok(stream),
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Err(self.absent()),
            Err(error) => Err(Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unreachable",
                format!("cannot connect to the daemon at {}: {error}", self.places.socket.display()),
            )),
        }
    }

    fn absent(&self) -> Failure {
        let socket = self.places.socket.display();
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, ABSENT, format!("no daemon listens at {socket}"))
            .hint("`linger daemon start` starts it")
    }

    /// Judges the process at the other end.
    pub(super) fn prove(&self, stream: &UnixStream) -> Proof {
        let Ok(credentials) = stream.peer_cred() else { return Proof::Unknown };
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        let is_alive = transport::peer::is_alive(stream.as_fd()) != Some(false);
        let Some(pid) = pid.filter(|_| is_alive) else { return Proof::Unknown };
        if credentials.uid() != rustix::process::geteuid().as_raw() {
            return Proof::Stranger(pid);
        }
        let process = peer::started(pid).map(|began| (pid, began));
        let mut proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_some() && *proven == process {
            return Proof::Daemon;
        }
        let proof = listener::prove(&self.places, Some(pid));
        if proof == Proof::Daemon {
            *proven = process;
        }
        proof
    }

    /// Whether the listener may be a service manager that opened the socket for a daemon yet to start, or the daemon before: it gets
    /// a hello without anything in it, and the next connection shows the daemon.
    pub(super) fn is_activated(stream: &UnixStream) -> bool {
        let pid = stream.peer_cred().ok().and_then(|credentials| credentials.pid()).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == "systemd" || transport::peer::is_alive(stream.as_fd()) == Some(false)
    }

    /// The failure for a listener that is not proven: nothing was sent to it.
    pub(super) fn unproven(&self, proof: Proof) -> Failure {
        let socket = self.places.socket.display();
        let failure = |text: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "not_the_daemon", text);
        match proof {
            Proof::Stranger(pid) => failure(listener::stranger(pid, &self.places.socket))
                .hint(format!("no token was sent; end it and delete {socket}: the daemon creates it again")),
            Proof::Daemon | Proof::Unknown => {
                failure(format!("cannot verify that {socket} belongs to your daemon, so no token is sent there"))
                    .hint("if its keeper was killed, run `linger daemon stop`; the next command starts it again")
            }
        }
    }
}
