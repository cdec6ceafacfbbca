//! The connections: their limit, and which one is closed to make room for the next.
//!
//! Nothing of a session lives in a connection, so closing an unused one loses nothing: its client connects again and continues
//! from its cursor. Unused connections must not lock a user out. So at the limit a new client replaces an idle connection
//! without attachments, or else one that has stopped reading; it is refused only if all others are working.
//! The last quarter is for users: neither processes that the daemon started nor one process with many connections get a place
//! there, so that a user can still cancel and answer.
//! Deliberately absent: the methods ([`crate::rpc`]) and the transport ([`linger_protocol::transport::serve`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jsonrpsee::{Extensions, Methods};
use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::Capacity;
use linger_protocol::transport::serve;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::{AbortHandle, Id, JoinSet};

use crate::rpc::conn::{Conn, Used};
use crate::service::{Authority, Caller, Services};

/// The most connections; each takes a few KiB and a file descriptor.
const MAX_CONNECTIONS: usize = 512;

/// Connections may take one file descriptor in this many; the rest is for the database, models and tools.
const SHARE_OF_FILES: u64 = 2;

/// One place in this many is kept for users.
const SHARE_OF_USERS: usize = 4;

/// One place in this many, of those kept for users, may go to a single process.
const SHARE_OF_PROCESS: usize = 4;

/// After this long without a request a connection may be replaced: a client sends hello within milliseconds.
const IDLE: Duration = Duration::from_secs(2);

/// After this long without reading a connection may be replaced: a busy machine or a slow link delays a client less.
const STUCK: Duration = Duration::from_secs(10);

/// How long sending a refusal may take.
const REFUSAL: Duration = Duration::from_millis(100);

/// The open connections.
pub struct Connections {
    services: Arc<Services>,
    methods: Methods,
    /// Their shared bound on memory.
    capacity: Capacity,
    tasks: JoinSet<()>,
    open: HashMap<Id, OpenConnection>,
    /// The most connections.
    limit: usize,
}

struct OpenConnection {
    conn: Arc<Conn>,
    task: AbortHandle,
}

impl Connections {
    /// An empty table; its limit follows `RLIMIT_NOFILE`.
    pub fn new(services: Arc<Services>, methods: Methods) -> Self {
        let limit = limit(getrlimit(Resource::Nofile).current);
        if limit < MAX_CONNECTIONS {
            tracing::warn!(target: "daemon", limit, "fewer connections than usual: the limit of open files is low (`ulimit -n`)");
        }
        Self { services, methods, capacity: Capacity::default(), tasks: JoinSet::new(), open: HashMap::new(), limit }
    }

    /// Waits until a connection has ended; forever while there is none.
    pub async fn ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.forget(id),
            Some(Err(error)) => self.forget(error.id()),
            None => std::future::pending().await,
        }
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn forget(&mut self, id: Id) {
        self.open.remove(&id);
        self.services.connections.store(u32::try_from(self.open.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Serves a client, after closing another connection if needed; refuses it if none can be closed.
    pub async fn add<S>(&mut self, stream: S, authority: Authority)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (outbox, outgoing) = Outbox::new(&self.capacity);
        let conn = Arc::new(Conn::new(authority, outbox.clone()));
        if let Err(limit) = self.find_place(conn.caller()) {
            let authority = conn.caller().authority();
            tracing::warn!(target: "daemon", ?authority, "refused: {limit} connections are working");
            return refuse(stream, limit).await;
        }
        let mut extensions = Extensions::new();
        extensions.insert(conn.clone());
        extensions.insert(conn.gate(&self.services));
        let serving = serve::serve(stream, self.methods.clone(), extensions, outbox, outgoing);
        let (services, of) = (self.services.clone(), conn.clone());
        let task = self.tasks.spawn(async move {
            tokio::select! {
                () = serving => {}
                () = of.lost_token(&services) => {
                    tracing::info!(target: "token", client = of.caller().name(), "closed: its token is valid no more");
                }
            }
        });
        self.open.insert(task.id(), OpenConnection { conn, task });
        self.services.connections.store(u32::try_from(self.open.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Finds a place for a caller, closing another connection if needed; fails with the number of places that it may have one of.
    fn find_place(&mut self, caller: &Caller) -> Result<(), usize> {
        let (open, limit) = (self.open.len(), self.limit);
        let common = limit - limit / SHARE_OF_USERS;
        if open < common {
            return Ok(());
        }
        let own = self.open.values().filter(|open| caller.is_same_process(open.conn.caller())).count();
        let is_favoured = own < limit / SHARE_OF_USERS / SHARE_OF_PROCESS && caller.is_user(&self.services);
        // Nobody else may close the connection of a user.
        match (is_favoured, open < limit) {
            (true, true) => Ok(()),
            (true, false) => self.make_room(|_| true).then_some(()).ok_or(limit),
            (false, _) => {
                self.make_room(|it| !it.is_known_user() || caller.is_same_process(it)).then_some(()).ok_or(common)
            }
        }
    }

    /// Closes the least used connection of these callers; false if all are working.
    fn make_room(&mut self, may_close: impl Fn(&Caller) -> bool) -> bool {
        let closable = self.open.iter().filter(|(_, open)| may_close(open.conn.caller()));
        let uses = closable.map(|(id, open)| (*id, open.conn.used()));
        let Some((id, used)) = least_used(uses) else { return false };
        let Some(open) = self.open.remove(&id) else { return false };
        tracing::warn!(target: "daemon", client = open.conn.caller().name(), ?used, "closed to make room for another client");
        open.task.abort();
        true
    }

    /// Closes all connections.
    pub async fn shutdown(mut self) {
        tracing::info!(target: "daemon", connections = self.open.len(), "ending");
        self.tasks.shutdown().await;
    }
}

/// The most connections for this limit of open files.
fn limit(files: Option<u64>) -> usize {
    let share = files.map_or(u64::MAX, |files| files / SHARE_OF_FILES);
    usize::try_from(share).unwrap_or(usize::MAX).clamp(1, MAX_CONNECTIONS)
}

/// The connection to close: the longest idle one, preferring those that never sent a request; then the longest stuck one.
fn least_used<T>(connections: impl Iterator<Item = (T, Used)>) -> Option<(T, Used)> {
    let rank = |used: &Used| match used {
        Used::Idle(time, asked) if *time >= IDLE => Some((if *asked { 1 } else { 2 }, *time)),
        Used::Stuck(time) if *time >= STUCK => Some((0, *time)),
        Used::Idle(..) | Used::Stuck(_) | Used::Working => None,
    };
    let ranked = connections.filter_map(|(connection, used)| Some((rank(&used)?, connection, used)));
    ranked.max_by_key(|(rank, ..)| *rank).map(|(_, connection, used)| (connection, used))
}

/// Sends a client that there are too many connections, without waiting for a slow one, and hangs up.
async fn refuse(mut stream: impl AsyncWrite + Unpin, limit: usize) {
    let error = RpcError::new(Code::TooMuch, format!("{limit} connections are already open"));
    let error = error.hint("close some: `linger daemon status` counts them");
    let line = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string() + "\n";
    // The socket's buffer is empty, so this does not block. It fails if the client is gone.
    let _gone = tokio::time::timeout(REFUSAL, stream.write_all(line.as_bytes())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(used: &[Used], expect: Option<usize>) {
        let got = least_used(used.iter().copied().enumerate()).map(|(at, _)| at);
        assert_eq!(got, expect, "{used:?}");
    }

    #[test]
    fn the_connection_that_is_missed_least_goes_first() {
        let idle = |s, asked| Used::Idle(Duration::from_secs(s), asked);
        let stuck = |s| Used::Stuck(Duration::from_secs(s));
        check(&[], None);
        check(&[Used::Working, Used::Working], None);
        check(&[idle(1, false), stuck(9), idle(0, true)], None);
        check(&[idle(3, true), idle(9, true), Used::Working], Some(1));
        check(&[idle(9, true), idle(3, false), stuck(99)], Some(1));
        check(&[stuck(11), Used::Working, stuck(40)], Some(2));
        check(&[stuck(99), idle(2, true)], Some(1));
    }

    #[test]
    fn half_of_the_files_are_left_for_other_things() {
        let limits = [None, Some(1 << 20), Some(1024), Some(64), Some(1)].map(limit);
        assert_eq!(limits, [512, 512, 512, 32, 1]);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod place_tests {
    use std::process::Stdio;

    use jsonrpsee::RpcModule;
    use linger_protocol::place::Places;
    use tokio::io::DuplexStream;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::service::Setup;
    use crate::sys::peer::{self, Peer};

    /// A process of this user.
    fn process(pid: u32) -> Authority {
        Authority::Peer(Peer { pid: Some(pid), began: peer::started(pid), uid: peer::user(pid).unwrap() })
    }

    /// Adds a client that waits for an answer for ever, so that it is never closed to make room; whether it has a place.
    async fn add(connections: &mut Connections, clients: &mut Vec<DuplexStream>, authority: Authority) -> bool {
        let (mut client, stream) = tokio::io::duplex(4096);
        client.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"mode/list\"}\n").await.unwrap();
        let before = connections.open.len();
        connections.add(stream, authority).await;
        while connections.open.values().any(|open| open.conn.used() != Used::Working) {
            tokio::task::yield_now().await;
        }
        clients.push(client);
        connections.open.len() > before
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "a second process of the family")]
    async fn the_last_places_are_for_users_and_no_process_takes_many_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::below(dir.path()).unwrap();
        let services = Services::open(Setup::of(places), CancellationToken::new()).unwrap();
        let mut methods = RpcModule::new(());
        let never = |_, _, _| std::future::pending::<Result<(), RpcError>>();
        methods.register_async_method("mode/list", never).unwrap();
        let mut connections = Connections::new(services.clone(), methods.into());
        connections.limit = 32;
        // It ends with its input, so with this test, however that ends.
        let piped = || std::process::Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let (mut clients, mut child) = (Vec::new(), piped().unwrap());
        let [family, child_of_it, user] = [std::process::id(), child.id(), std::os::unix::process::parent_id()];
        for n in 0..24 {
            assert!(add(&mut connections, &mut clients, process(family)).await, "{n}");
        }
        assert!(!add(&mut connections, &mut clients, process(family)).await);
        assert!(
            !add(&mut connections, &mut clients, process(child_of_it)).await,
            "it is no user, and has no connection"
        );
        for n in 0..2 {
            assert!(add(&mut connections, &mut clients, process(user)).await, "{n}");
        }
        assert!(!add(&mut connections, &mut clients, process(user)).await, "one process has enough");
        for n in 26..32 {
            assert!(add(&mut connections, &mut clients, Authority::Daemon).await, "{n}");
        }
        assert!(!add(&mut connections, &mut clients, Authority::Daemon).await, "all are working");
        child.kill().unwrap();
        child.wait().unwrap();
        connections.shutdown().await;
        services.store.close().await.unwrap();
    }
}
