//! The services of a turn, and of its calls.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::Toolbox;
use crate::config::providers::Providers;
use crate::config::{ConfigStore, Policy};
use crate::process::server::Children;
use crate::store::Store;
use crate::tool::checkpoint::Checkpoints;

/// The part of the shared services that a turn uses.
pub struct TurnServices {
    /// The database of all sessions.
    pub store: Store,
    /// The configuration.
    pub config: Arc<ConfigStore>,
    /// Models and keys.
    pub providers: Arc<Providers>,
    /// Reads what decides on calls.
    pub policy: Arc<Policy>,
    /// The tools and MCP servers that it can call.
    pub toolbox: Arc<Toolbox>,
    /// The services of its tool calls.
    pub calls: Arc<CallServices>,
}

/// The part of the shared services that tool calls use.
pub struct CallServices {
    /// Keeps large output and artifacts.
    pub store: Store,
    /// Decides on calls.
    pub policy: Arc<Policy>,
    /// Fetches pages for tools.
    pub providers: Arc<Providers>,
    /// The checkpoints of workspaces.
    pub checkpoints: Checkpoints,
    /// Has an empty directory for each session whose own is gone, by its id.
    pub empty: PathBuf,
    /// Starts processes.
    pub children: Children,
    /// The calls that run.
    pub running: RunningCalls,
}

/// Counts the tool calls of all sessions that run, so that a daemon that is told to stop can wait for them.
pub struct RunningCalls(Semaphore);

impl RunningCalls {
    /// More than ever run: each holds a place until its result is recorded.
    const MAX: u32 = 1 << 20;

    /// Waits until calls may begin; the call runs while the permit lives.
    pub async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.0.acquire().await.ok()
    }

    /// Waits until no call runs. None begins while this waits, or while the permit lives.
    pub async fn none(&self) -> Option<SemaphorePermit<'_>> {
        self.0.acquire_many(Self::MAX).await.ok()
    }
}

impl Default for RunningCalls {
    fn default() -> Self {
        Self(Semaphore::new(Self::MAX as usize))
    }
}
