//! The daemon that owns agent sessions; see `README.md` for its architecture.
//!
//! [`run`] is the whole of it: the caller owns the listener and decides when it ends.

pub mod blob;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod inherit;
pub mod listener;
pub mod lock;
pub mod log;
pub mod peer;
pub mod permission;
pub mod process;
pub mod provider;
pub mod prune;
pub mod rpc;
pub mod secret;
pub mod session;
pub mod sessions;
pub mod store;
pub mod tool;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jsonrpsee::Extensions;
use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::place::Places;
use linger_protocol::transport::serve::{self, Outbox};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{Changes, ConfigStore, Reload};
use crate::daemon::Daemon;
use crate::listener::{Listener, Peer};
use crate::provider::catalogue::Keys;
use crate::secret::Redactor;
use crate::sessions::{Asked, Sessions};
use crate::store::Store;

/// Clients that may be connected at once; each takes a few KiB and a file descriptor.
const MAX_CONNECTIONS: usize = 512;

/// How long the daemon tries to tell a client that it is refused.
const REFUSAL: Duration = Duration::from_millis(100);

/// How long sessions may take to write down where they are when the daemon ends.
const DRAIN: Duration = Duration::from_secs(4);

/// What [`run`] is given.
pub struct Options {
    /// Where everything lies.
    pub places: Places,
    /// The configuration, read already.
    pub config: Arc<ConfigStore>,
    /// Wakes when the configuration file has changed.
    pub changes: Changes,
    /// What keeps keys out of text.
    pub redactor: Redactor,
    /// Called once everything is there and clients are about to be served; if it fails, nothing is.
    pub ready: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
}

/// Serves clients on `listener` until `shutdown`; then every session writes down where it is, and turns that are under way go
/// on when the daemon starts again.
pub async fn run(options: Options, mut listener: Listener, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Options { places, config, changes, redactor, ready } = options;
    let store = Store::open(&places.database())?;
    let daemon = Arc::new(Daemon {
        places,
        store,
        config,
        keys: Arc::new(Keys::new(redactor)),
        changed: tokio::sync::watch::channel(()).0,
        printed: std::sync::Mutex::default(),
        sessions: Sessions::default(),
        asked: Asked::default(),
        tools: tool::builtin(),
        shutdown,
        started_at: clock::now(),
        connections: AtomicU32::new(0),
        pruned_at: AtomicU64::new(0),
    });
    daemon.own_keys();
    let left_behind = process::end_left_behind(&daemon.places.database());
    if left_behind > 0 {
        tracing::warn!(target: "daemon", left_behind, "processes of a daemon that died were ended");
    }
    let unfinished = daemon.store.unfinished().await.context("the database cannot be read")?;
    unfinished.iter().for_each(|session| daemon.sessions.wake(&daemon, session));
    let watching = tokio::spawn(watch_config(daemon.clone(), changes));
    let adopting = tokio::spawn(async {
        if let Err(error) = process::adopt_orphans().await {
            tracing::warn!(target: "daemon", %error, "processes that leave their group cannot be told from others");
        }
    });
    ready()?;
    tokio::spawn(prune::sweep_outputs(daemon.clone()));
    prune::retain(&daemon);
    let mut connections = JoinSet::new();
    let methods = rpc::methods(daemon.clone())?;
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = daemon.shutdown.cancelled() => break,
        };
        if connections.len() >= MAX_CONNECTIONS {
            tracing::warn!(target: "daemon", pid = peer.pid, "refused: {MAX_CONNECTIONS} connections are open");
            refuse(stream).await;
            continue;
        }
        connections.spawn(connection(daemon.clone(), methods.clone(), stream, peer));
    }
    tracing::info!(target: "daemon", connections = connections.len(), "ending");
    drop(listener);
    if tokio::time::timeout(DRAIN, daemon.sessions.pause()).await.is_err() {
        tracing::warn!(target: "daemon", "a session did not end in time; its turn goes on from its log");
    }
    connections.shutdown().await;
    watching.abort();
    adopting.abort();
    process::end_left_behind(&daemon.places.database());
    daemon.store.close().await.context("the database could not be closed")
}

/// Tells a client that there are too many, as far as its socket takes that at once, and hangs up.
async fn refuse(mut stream: interprocess::local_socket::tokio::Stream) {
    let error = RpcError::new(Code::TooMuch, format!("{MAX_CONNECTIONS} connections are open already"));
    let error = error.hint("close some: `linger daemon status` counts them");
    let line = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string() + "\n";
    // Nothing was written to this socket before, so this does not wait; who has gone needs no answer.
    let _gone = tokio::time::timeout(REFUSAL, stream.write_all(line.as_bytes())).await;
}

/// Reads the configuration again when its file has changed.
async fn watch_config(daemon: Arc<Daemon>, mut changes: Changes) {
    while changes.next().await.is_some() {
        match daemon.config.reload() {
            Reload::Unchanged => {}
            Reload::Changed => tracing::info!(target: "config", "read again"),
            Reload::Broken(error) => {
                tracing::error!(target: "config", %error, "cannot be used; the last good one stays")
            }
        }
        daemon.own_keys();
        daemon.changed.send_replace(());
    }
}

async fn connection(
    daemon: Arc<Daemon>,
    methods: jsonrpsee::Methods,
    stream: interprocess::local_socket::tokio::Stream,
    peer: Peer,
) {
    daemon.connections.fetch_add(1, Ordering::Relaxed);
    let (outbox, outgoing) = Outbox::new();
    let mut extensions = Extensions::new();
    extensions.insert(Arc::new(rpc::Conn::new(peer, outbox.clone())));
    serve::serve(stream, methods, extensions, outbox, outgoing).await;
    daemon.connections.fetch_sub(1, Ordering::Relaxed);
}
