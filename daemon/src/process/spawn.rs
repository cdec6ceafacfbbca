//! Where and with what children start, and what they belong to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ledger::{Ledger, StartedFor};

/// The children of one daemon; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Children {
    /// The servers end.
    pub(super) ending: CancellationToken,
    /// The servers.
    pub(super) running: TaskTracker,
    /// All of them, and the record for the start that follows a death.
    pub ledger: Arc<Ledger>,
}

impl Children {
    /// The children of the daemon with the database `owner`; each has that path in its environment.
    pub fn of(owner: &Path) -> Self {
        Self { ledger: Arc::new(Ledger::of(owner)), ..Self::default() }
    }
}

/// Starts children in one directory and environment: every child starts here; part of a tool's context.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// The working directory.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: Arc<BTreeMap<String, String>>,
    /// The daemon's children.
    pub children: Children,
    /// The purpose of its children.
    pub started_for: StartedFor,
}
