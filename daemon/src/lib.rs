//! The daemon that owns agent sessions; see `README.md` for its architecture.
//!
//! [`run`] is the whole of it: the caller owns the listener and decides when it ends. `examples/embed.rs` is the library in a
//! program of one's own.

pub mod config;
pub mod diagnostics;
pub mod fault;
pub mod keeper;
#[cfg(test)]
mod layers;
pub mod log;
pub mod permission;
pub mod process;
pub mod provider;
pub mod question;
pub mod recover;
pub mod registry;
pub mod rpc;
pub mod service;
pub mod session;
pub mod store;
pub mod sys;
pub mod tool;

use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::config::Changes;
use crate::process::ledger::Left;
use crate::rpc::Accept;
use crate::rpc::connections::Connections;
use crate::service::{Services, Setup};

/// How long sessions may take to write down where they are when the daemon ends.
const DRAIN: Duration = Duration::from_secs(4);

/// How long no client has been there when the daemon makes itself small: a script that calls `linger` again and again does not
/// find it asleep each time.
const REST: Duration = Duration::from_secs(1);

/// What [`run`] is given.
pub struct Options {
    /// What its services are opened with.
    pub setup: Setup,
    /// Wakes when the configuration file has changed.
    pub changes: Changes,
    /// Called once everything is there and clients are about to be served; if it fails, nothing is.
    pub ready: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
    /// Called when no client has been there for a while.
    pub at_rest: fn(),
}

impl Options {
    /// For a daemon that another program runs within itself: nothing is called when it is ready or at rest.
    pub fn of(setup: Setup) -> Self {
        let changes = Changes::of(&setup.places.config_file());
        Self { setup, changes, ready: Box::new(|| Ok(())), at_rest: || {} }
    }
}

/// Serves clients on `listener` until `shutdown`; then every session writes down where it is, and turns that are under way go
/// on when the daemon starts again.
pub async fn run(options: Options, mut listener: impl Accept, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Options { setup, changes, ready, at_rest } = options;
    let keeper = setup.keeper;
    let services = Services::open(setup, shutdown)?;
    let children = services.places.children();
    let left = services.env().children.ledger.open(&children).unwrap_or_else(|error| {
        tracing::warn!(target: "daemon", %error, path = %children.display(), "children cannot be recorded");
        // Then nobody knows how the last one ended.
        Left { died: true, ended: 0 }
    });
    // To look at each process of a machine takes longer than all else that a start does.
    let strays = if left.died { process::end_left_behind(&services.places.database(), keeper) } else { 0 };
    let left_behind = left.ended + strays;
    if left_behind > 0 {
        tracing::warn!(target: "daemon", left_behind, "processes of a daemon that died were ended");
    }
    let watching = tokio::spawn(service::config::watch(services.clone(), changes));
    // Before the turns that are taken up make processes.
    let adopting = process::adopt_orphans().map(tokio::spawn).inspect_err(|error| {
        tracing::warn!(target: "daemon", %error, "processes that leave their group cannot be told from others");
    });
    let unfinished = services.registry.resume_unfinished().await;
    let later = unfinished.err().map(|_| tokio::spawn(services.registry.clone().resume_later()));
    fault::point("daemon.unfinished");
    recover::at_start(&services).await;
    ready()?;
    fault::point("daemon.ready");
    if let Some((text, options, blocks)) = fault::choice("daemon") {
        drop(services.registry.ask_for_daemon(question::choice(text, options, blocks, None)));
    }
    services.registry.retain();
    let mut connections = Connections::new(services.clone(), rpc::methods(services.clone())?);
    let mut rested = false;
    loop {
        let may_rest = !rested && connections.is_empty();
        let (stream, authority) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tokio::time::sleep(REST), if may_rest => {
                at_rest();
                rested = true;
                continue;
            }
            () = connections.ended() => continue,
            // Nothing was written, so nothing is under way that has to end; the keeper starts the next one.
            () = services.store.writable() => anyhow::bail!("the database can be written again"),
            () = services.shutdown.cancelled() => break,
        };
        rested = false;
        connections.add(stream, authority).await;
    }
    drop(listener);
    fault::point("daemon.ending");
    if tokio::time::timeout(DRAIN, services.registry.pause()).await.is_err() {
        tracing::warn!(target: "daemon", "a session did not end in time; its turn goes on from its log");
    }
    connections.shutdown().await;
    later.iter().for_each(tokio::task::JoinHandle::abort);
    watching.abort();
    adopting.iter().for_each(tokio::task::JoinHandle::abort);
    services.env().children.end().await;
    process::end_left_behind(&services.places.database(), keeper);
    if let Err(error) = services.env().children.ledger.close(&children) {
        tracing::info!(target: "daemon", %error, "the next start looks for what is left");
    }
    services.store.close().await.context("the database could not be closed")
}
