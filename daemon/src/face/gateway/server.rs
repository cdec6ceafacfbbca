//! Connections of clients: where they come in, how many there may be, and how long one may take to send a request.

use std::convert::Infallible;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use linger_protocol::gateway::Listen;
use linger_protocol::place::check_socket;
use linger_protocol::transport;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::client::Connection;
use super::peer::Ends;
use super::route;
use super::shared::Gateway;
use super::stream::{Socket, Timed};

use crate::sys::{peer, task};

/// How long a client may take for the head of a request, also for the next one on its connection: browsers open another.
const HEAD: Duration = Duration::from_secs(10);

/// The longest head of a request, in bytes: browsers send some hundred.
const MAX_HEAD: usize = 32 << 10;

/// The pause after the system has no descriptor left: another process may free one, which nothing announces.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client that is turned away may take to read why.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// The response to a client that is turned away.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 70\r\n\
                      connection: close\r\nretry-after: 1\r\n\r\n{\"error\":{\"code\":\"too_much\",\"message\":\"too many connections at once\"}}";

/// Where clients come in.
pub(super) struct Listener {
    socket: ListenerSocket,
    /// An address and a port, or `unix:` and a path.
    pub(super) address: String,
}

enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds the address or the socket, whose directory must be the user's alone.
    pub(super) async fn open(listen: &Listen) -> anyhow::Result<Self> {
        match listen {
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
                let address = socket.local_addr()?.to_string();
                Ok(Self { socket: ListenerSocket::Tcp(socket), address })
            }
            Listen::Unix(path) => {
                check_socket(path)?;
                // The lock is ours: a socket that is left has no gateway any more.
                let is_left = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
                if is_left && std::os::unix::net::UnixStream::connect(path).is_err() {
                    std::fs::remove_file(path).with_context(|| format!("{} cannot be removed", path.display()))?;
                }
                let socket =
                    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                let address = format!("unix:{}", path.display());
                Ok(Self { socket: ListenerSocket::Unix(socket, path.clone()), address })
            }
        }
    }

    async fn accept(&self) -> std::io::Result<(Socket, Ends)> {
        match &self.socket {
            ListenerSocket::Tcp(listener) => {
                let (socket, client) = listener.accept().await?;
                // Pieces of an answer are small, and wanted at once.
                socket.set_nodelay(true)?;
                let own = socket.local_addr()?;
                Ok((Socket::Tcp(socket), Ends::Tcp(client, own)))
            }
            ListenerSocket::Unix(listener, _) => {
                let (socket, _) = listener.accept().await?;
                let pid = socket.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
                let process = pid.and_then(|pid| Some((pid, peer::started(pid)?)));
                // Looked at last: until now, then, the number was its own.
                let process = process.filter(|_| transport::peer::is_alive(socket.as_fd()) != Some(false));
                Ok((Socket::Unix(socket), Ends::Unix(process)))
            }
        }
    }

    /// Removes the socket.
    pub(super) fn close(self) {
        if let ListenerSocket::Unix(_, path) = self.socket {
            // The next start removes it otherwise.
            let _left = std::fs::remove_file(path);
        }
    }
}

/// Lets this process have as many descriptors as the system allows it: each connection and each stream has one.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Fewer connections then; the accept loop waits for one to end.
    let _as_it_is = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// Accepts clients for ever.
pub(super) async fn serve(gateway: &Arc<Gateway>, listener: &Listener, max_connections: usize) {
    let room = Arc::new(Semaphore::new(max_connections));
    let mut failing = false;
    loop {
        let (mut socket, ends) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    gateway.log.warn(&format!("cannot accept a connection, trying again: {error}"));
                }
                sleep(PAUSE).await;
                continue;
            }
        };
        failing = false;
        let Ok(permit) = room.clone().try_acquire_owned() else {
            task::spawn(timeout(TURNED_AWAY, async move {
                let _gone = match &mut socket {
                    Socket::Tcp(socket) => socket.write_all(FULL).await,
                    Socket::Unix(socket) => socket.write_all(FULL).await,
                };
            }));
            continue;
        };
        let connection = Arc::new(Connection::new(gateway.clone(), ends));
        task::spawn(async move {
            let service = service_fn(|request| {
                let connection = connection.clone();
                async move { Ok::<_, Infallible>(route::answer(&connection, request).await) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD).half_close(false);
            // However it ends, the client knows.
            let _ended = http.serve_connection(TokioIo::new(Timed::new(socket)), service).await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_client_gets_that_is_turned_away_is_whole() {
        let text = std::str::from_utf8(super::FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
