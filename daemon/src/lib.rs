//! The daemon that owns agent sessions; see `README.md` for its architecture.
//!
//! [`run`] is the whole of it: the caller owns the listener and decides when it ends.

pub mod blob;
pub mod clock;
pub mod config;
pub mod connections;
pub mod daemon;
pub mod disk;
pub mod fault;
pub mod flight;
pub mod inherit;
pub mod keeper;
pub mod key;
pub mod key_source;
pub mod keychain;
pub mod listener;
pub mod lock;
pub mod log;
pub mod models;
pub mod peer;
pub mod permission;
pub mod process;
pub mod provider;
pub mod prune;
pub mod repair;
pub mod rpc;
pub mod schema;
pub mod secret;
pub mod session;
pub mod sessions;
pub mod store;
pub mod tool;

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use tokio_util::sync::CancellationToken;

use crate::config::{Changes, ConfigStore, Reload};
use crate::connections::Connections;
use crate::daemon::Daemon;
use crate::key::UnderWay;
use crate::key_source::KeySources;
use crate::keychain::Keychain;
use crate::listener::Listener;
use crate::process::ledger::Left;
use crate::provider::keys::Keys;
use crate::provider::network::Variables;
use crate::secret::Redactor;
use crate::session::actor::MEND;
use crate::session::waiting::Waiting;
use crate::sessions::{Asked, Sessions};
use crate::store::{Store, StoreError};

/// How long sessions may take to write down where they are when the daemon ends.
const DRAIN: Duration = Duration::from_secs(4);

/// How long clients are kept waiting for what becomes of the turns that were under way: thousands of sessions, or a workspace on a
/// disk that does not answer.
const PLANS: Duration = Duration::from_secs(1);

/// How long no client has been there when the daemon makes itself small: a script that calls `linger` again and again does not
/// find it asleep each time.
const REST: Duration = Duration::from_secs(1);

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
    /// The keeper's process, if there is one.
    pub keeper: Option<u32>,
    /// How often a daemon of this keeper died before.
    pub restarts: u32,
    /// Called once everything is there and clients are about to be served; if it fails, nothing is.
    pub ready: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
    /// Called when no client has been there for a while.
    pub at_rest: fn(),
}

/// Serves clients on `listener` until `shutdown`; then every session writes down where it is, and turns that are under way go
/// on when the daemon starts again.
pub async fn run(options: Options, mut listener: Listener, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Options { places, config, changes, redactor, keeper, restarts, ready, at_rest } = options;
    let store = Store::open(&places.database())?;
    tool::keep_shut(&places.database());
    let keychain = Keychain::new(places.kept_keys(), places.database());
    let keys = Arc::new(Keys::new(redactor, keychain.accounts()));
    let daemon = Arc::new(Daemon {
        places,
        store,
        config,
        keys: keys.clone(),
        catalogue: std::sync::Mutex::default(),
        changed: tokio::sync::watch::channel(()).0,
        own: std::sync::OnceLock::new(),
        key_sources: KeySources::new(Arc::new(keychain), keys),
        variables: Variables::read(|name| std::env::var(name).ok()),
        sessions: Sessions::default(),
        asked: Asked::default(),
        waiting: Waiting::default(),
        naming: Mutex::default(),
        under_way: UnderWay::default(),
        tools: tool::builtin(),
        shutdown,
        started_at: clock::now(),
        keeper,
        restarts,
        connections: AtomicU32::new(0),
        repairs: repair::Repairs::default(),
        pruned_at: AtomicU64::new(0),
    });
    daemon.own_keys();
    let children = daemon.places.children();
    let left = process::ledger::open(&children).unwrap_or_else(|error| {
        tracing::warn!(target: "daemon", %error, path = %children.display(), "children cannot be recorded");
        // Then nobody knows how the last one ended.
        Left { died: true, ended: 0 }
    });
    // To look at each process of a machine takes longer than all else that a start does.
    let strays = if left.died { process::end_left_behind(&daemon.places.database(), keeper) } else { 0 };
    let left_behind = left.ended + strays;
    if left_behind > 0 {
        tracing::warn!(target: "daemon", left_behind, "processes of a daemon that died were ended");
    }
    let watching = tokio::spawn(watch_config(daemon.clone(), changes));
    // Before the turns that are taken up make processes.
    let adopting = process::adopt_orphans().map(tokio::spawn).inspect_err(|error| {
        tracing::warn!(target: "daemon", %error, "processes that leave their group cannot be told from others");
    });
    let later = wake_unfinished(&daemon).await.map(|error| {
        tracing::error!(target: "daemon", %error, "unfinished turns cannot be found for now");
        tokio::spawn(wake_later(daemon.clone()))
    });
    fault::point("daemon.unfinished");
    repair::at_start(&daemon).await;
    ready()?;
    fault::point("daemon.ready");
    tokio::spawn(prune::sweep_outputs(daemon.clone()));
    prune::retain(&daemon);
    let mut connections = Connections::new(daemon.clone(), rpc::methods(daemon.clone())?);
    let mut rested = false;
    loop {
        let may_rest = !rested && connections.is_empty();
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tokio::time::sleep(REST), if may_rest => {
                at_rest();
                rested = true;
                continue;
            }
            () = connections.ended() => continue,
            // Nothing was written, so nothing is under way that has to end; the keeper starts the next one.
            () = daemon.store.writable() => anyhow::bail!("the database can be written again"),
            () = daemon.shutdown.cancelled() => break,
        };
        rested = false;
        connections.add(stream, peer).await;
    }
    drop(listener);
    fault::point("daemon.ending");
    if tokio::time::timeout(DRAIN, daemon.sessions.pause()).await.is_err() {
        tracing::warn!(target: "daemon", "a session did not end in time; its turn goes on from its log");
    }
    connections.shutdown().await;
    later.iter().for_each(tokio::task::JoinHandle::abort);
    watching.abort();
    adopting.iter().for_each(tokio::task::JoinHandle::abort);
    process::end_left_behind(&daemon.places.database(), keeper);
    if let Err(error) = process::ledger::close(&children) {
        tracing::info!(target: "daemon", %error, "the next start looks for what is left");
    }
    daemon.store.close().await.context("the database could not be closed")
}

/// Takes up the turns that were under way when the daemon ended; gives why not, if it may work in a moment. When it is done, no
/// session says that it runs because it once did, unless that takes longer than clients are kept waiting.
async fn wake_unfinished(daemon: &Arc<Daemon>) -> Option<StoreError> {
    match unfinished(daemon).await {
        Ok(unfinished) => {
            let woken = unfinished.iter().filter(|_| !fault::bug("I6"));
            let plans: Vec<_> = woken.map(|session| daemon.sessions.wake(daemon, session)).collect();
            let all = async {
                for plan in plans {
                    // Nothing is said, it only ends.
                    let _planned = plan.await;
                }
            };
            if tokio::time::timeout(PLANS, all).await.is_err() {
                tracing::warn!(target: "daemon", "not all turns have been taken up yet");
            }
            None
        }
        Err(error) if error.is_damage() => {
            // Sessions can be served that nobody could list.
            tracing::error!(target: "daemon", %error, "unfinished turns cannot be found");
            daemon.store.found.database(&error.to_string());
            None
        }
        Err(error) => Some(error),
    }
}

/// The sessions whose turns go on by themselves. Of those that wait for an answer it is known from now on which question is whose,
/// also if nobody has loaded them.
async fn unfinished(daemon: &Daemon) -> Result<Vec<SessionId>, StoreError> {
    let unfinished = daemon.store.unfinished().await?;
    let unanswered = daemon.store.unanswered().await?;
    unanswered.iter().for_each(|(permission, session)| daemon.asked.remember(permission, session));
    Ok(unfinished)
}

/// [`wake_unfinished`], until it works.
async fn wake_later(daemon: Arc<Daemon>) {
    let mut pause = MEND[0];
    loop {
        tokio::time::sleep(pause).await;
        let Some(error) = wake_unfinished(&daemon).await else { return };
        tracing::error!(target: "daemon", %error, "unfinished turns cannot be found for now");
        pause = (pause * 2).min(MEND[1]);
    }
}

/// How long a configuration that was emptied, or is gone, stays in force: whoever writes it anew may be held up, and in between no
/// rule would be in force.
const EMPTIED: Duration = Duration::from_secs(1);

/// Reads the configuration again when its file has changed.
async fn watch_config(daemon: Arc<Daemon>, mut changes: Changes) {
    loop {
        daemon.config.set_unwatched(changes.trouble());
        let Some(next) = changes.next().await else { return };
        changes = next;
        let config = daemon.config.clone();
        if tokio::task::spawn_blocking(move || config.is_emptied()).await.unwrap_or(false) {
            tokio::time::sleep(EMPTIED).await;
        }
        let config = daemon.config.clone();
        match tokio::task::spawn_blocking(move || config.reload()).await {
            Ok(Reload::Unchanged) => {}
            Ok(Reload::Changed) => tracing::info!(target: "config", "read again"),
            Ok(Reload::Broken(error)) => {
                tracing::error!(target: "config", %error, "cannot be used; the last good one stays")
            }
            Err(error) => tracing::error!(target: "config", %error, "cannot be read again"),
        }
        daemon.config_was_read();
    }
}
