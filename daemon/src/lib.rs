//! The daemon that owns agent sessions; see `README.md` for its architecture.
//!
//! [`run`] is the whole of it: the caller owns the listener and decides when it ends.

pub mod clock;
pub mod config;
pub mod daemon;
pub mod listener;
pub mod lock;
pub mod log;
pub mod peer;
pub mod permission;
pub mod process;
pub mod provider;
pub mod rpc;
pub mod secret;
pub mod session;
pub mod sessions;
pub mod store;
pub mod tool;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jsonrpsee::Extensions;
use linger_protocol::place::Places;
use linger_protocol::transport::serve::{self, Outbox};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::ConfigStore;
use crate::daemon::Daemon;
use crate::listener::{Listener, Peer};
use crate::provider::catalogue::Keys;
use crate::sessions::Sessions;
use crate::store::Store;

/// Clients that may be connected at once; each takes a few KiB and a file descriptor.
const MAX_CONNECTIONS: usize = 512;

/// How long sessions may take to write down where they are when the daemon ends.
const DRAIN: Duration = Duration::from_secs(4);

/// What [`run`] is given.
pub struct Options {
    /// Where everything lies.
    pub places: Places,
    /// The configuration, read already.
    pub config: Arc<ConfigStore>,
    /// The keys that the daemon's own environment has.
    pub keys: Keys,
}

/// Serves clients on `listener` until `shutdown`; then every session writes down where it is, and turns that are under way go
/// on when the daemon starts again.
pub async fn run(options: Options, mut listener: Listener, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Options { places, config, keys } = options;
    let store = Store::open(&places.database())?;
    let daemon = Arc::new(Daemon {
        places,
        store,
        config,
        keys,
        sessions: Sessions::default(),
        tools: tool::builtin(),
        shutdown,
        started_at: clock::now(),
        connections: AtomicU32::new(0),
    });
    let unfinished = daemon.store.unfinished().await.context("the database cannot be read")?;
    unfinished.iter().for_each(|session| daemon.sessions.wake(&daemon, session));
    let mut connections = JoinSet::new();
    let methods = rpc::methods(daemon.clone())?;
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted?,
            Some(_) = connections.join_next() => continue,
            () = daemon.shutdown.cancelled() => break,
        };
        connections.spawn(connection(daemon.clone(), methods.clone(), stream, peer));
    }
    tracing::info!(target: "daemon", connections = connections.len(), "ending");
    drop(listener);
    if tokio::time::timeout(DRAIN, daemon.sessions.pause()).await.is_err() {
        tracing::warn!(target: "daemon", "a session did not end in time; its turn goes on from its log");
    }
    connections.shutdown().await;
    drop(methods);
    match Arc::try_unwrap(daemon) {
        Ok(daemon) => tokio::task::spawn_blocking(move || daemon.store.close()).await.context("the store did not end")?,
        Err(_) => tracing::debug!(target: "daemon", "something still holds the store; what it acknowledged is on disk"),
    }
    Ok(())
}

async fn connection(daemon: Arc<Daemon>, methods: jsonrpsee::Methods, stream: listener::Stream, peer: Peer) {
    daemon.connections.fetch_add(1, Ordering::Relaxed);
    let (outbox, outgoing) = Outbox::new();
    let mut extensions = Extensions::new();
    extensions.insert(Arc::new(rpc::Conn::new(peer, outbox.clone())));
    serve::serve(stream, methods, extensions, outbox, outgoing).await;
    daemon.connections.fetch_sub(1, Ordering::Relaxed);
}
