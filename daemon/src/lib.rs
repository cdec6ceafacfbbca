//! The daemon that owns agent sessions; see `README.md` for its architecture.
//!
//! [`run`] is the entry point: the caller owns the listener and decides when it ends. `examples/embed.rs` shows the library in
//! another program.

pub mod agent;
pub mod config;
pub mod diagnostics;
pub mod face;
pub mod fault;
pub mod keeper;
pub mod log;
pub mod mcp;
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
#[cfg(test)]
mod tests;
pub mod tool;

use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::config::Changes;
use crate::process::ledger::LeftBehind;
use crate::rpc::Accept;
use crate::rpc::connections::Connections;
use crate::service::{Services, Setup};
use crate::sys::task;

/// How long sessions may take to store their state when the daemon ends.
const DRAIN: Duration = Duration::from_secs(4);

/// How long without clients until the daemon releases idle memory: long enough for a script that calls `linger` repeatedly.
const IDLE: Duration = Duration::from_secs(1);

/// The arguments of [`run`].
pub struct Options {
    /// The arguments of [`Services::open`].
    pub setup: Setup,
    /// Wakes when the configuration file has changed.
    pub changes: Changes,
    /// Called before the first client is served; an error ends the daemon.
    pub ready: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
    /// Called after [`IDLE`] without clients.
    pub on_idle: fn(),
}

impl Options {
    /// Options for a daemon inside another program: both callbacks do nothing.
    pub fn of(setup: Setup) -> Self {
        let changes = Changes::of(&setup.places.config_file());
        Self { setup, changes, ready: Box::new(|| Ok(())), on_idle: || {} }
    }
}

/// Serves clients on `listener` until `shutdown`. Then every session stores its state, and running turns resume at the next
/// start. Fails if the store cannot be opened or closed, or when a read-only database becomes writable.
pub async fn run(options: Options, mut listener: impl Accept, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Options { setup, changes, ready, on_idle } = options;
    let keeper = setup.keeper;
    let services = Services::open(setup, shutdown)?;
    let children = services.places.children();
    let left = services.env().calls.children.ledger.open(&children).unwrap_or_else(|error| {
        tracing::warn!(target: "daemon", %error, path = %children.display(), "cannot record children");
        // Without the ledger, assume that the last daemon crashed.
        LeftBehind { died: true, ended: 0 }
    });
    // Only after a crash: examining every process of the machine takes longer than the rest of a start.
    let strays = if left.died { process::end_left_behind(&services.places.database(), keeper) } else { 0 };
    let left_behind = left.ended + strays;
    if left_behind > 0 {
        tracing::warn!(target: "daemon", left_behind, "killed processes of a daemon that died");
    }
    service::config::begin(&services, left.died).await;
    let watching = task::spawn(service::config::watch(services.clone(), changes));
    let files = services.env().workspaces.to_watch().map(|it| task::spawn(service::files::watch(services.clone(), it)));
    let asking = services.config.trust_changes().map(|it| task::spawn(service::trust::watch(services.clone(), it)));
    // Before resumed turns start processes.
    let adopting = process::adopt_orphans().map(tokio::spawn).inspect_err(|error| {
        tracing::warn!(target: "daemon", %error, "cannot become sub-reaper: processes that leave their group are not recognised");
    });
    let unfinished = services.registry.resume_unfinished().await;
    let later = unfinished.err().map(|_| task::spawn(services.registry.clone().resume_later()));
    fault::point("daemon.unfinished");
    ready()?;
    fault::point("daemon.ready");
    if let Some((text, options, blocks)) = fault::choice("daemon") {
        drop(services.registry.ask_for_daemon(question::choice(text, options, blocks, None)));
    }
    services.registry.retain();
    let indexing = services.search.start(&services.store);
    let mut connections = Connections::new(services.clone(), rpc::methods(services.clone())?);
    let mut idle = false;
    loop {
        let may_idle = !idle && connections.is_empty();
        let (stream, authority) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = tokio::time::sleep(IDLE), if may_idle => {
                on_idle();
                idle = true;
                continue;
            }
            () = connections.ended() => continue,
            // A read-only database has no running turns, so nothing needs to end in order. The keeper restarts the daemon.
            () = services.store.writable() => anyhow::bail!("the database is writable again"),
            () = services.shutdown.cancelled() => break,
        };
        idle = false;
        connections.add(stream, authority).await;
    }
    drop(listener);
    fault::point("daemon.ending");
    if tokio::time::timeout(DRAIN, services.registry.pause()).await.is_err() {
        tracing::warn!(target: "daemon", "a session did not stop in time; the next start resumes its turn from the log");
    }
    connections.shutdown().await;
    later.iter().for_each(tokio::task::JoinHandle::abort);
    watching.abort();
    indexing.iter().for_each(tokio::task::JoinHandle::abort);
    files.iter().for_each(tokio::task::JoinHandle::abort);
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    adopting.iter().for_each(tokio::task::JoinHandle::abort);
    services.env().calls.children.end().await;
    process::end_left_behind(&services.places.database(), keeper);
    if let Err(error) = services.env().calls.children.ledger.close(&children) {
        tracing::info!(target: "daemon", %error, "cannot remove the ledger; the next start checks for left processes");
    }
    services.store.close().await.context("cannot close the database")
}
