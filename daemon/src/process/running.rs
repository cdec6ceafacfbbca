//! The children that a `Group` waits for. Process-wide: the reaper must know the children of every daemon in the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::sync::Notify;

/// A child with a [`super::child::Group`].
#[derive(Debug)]
pub(super) struct RunningChild {
    pub(super) pid: Pid,
    /// The value of `strays::CALL` in its environment.
    pub(super) call: String,
}

static RUNNING: Mutex<Vec<RunningChild>> = Mutex::new(Vec::new());

/// Wakes the reaper when a child has ended.
pub(super) static ENDED: Notify = Notify::const_new();

/// The list, locked.
pub(super) fn lock() -> MutexGuard<'static, Vec<RunningChild>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a `Group` waits for this child.
pub(super) fn is_own(child: Pid) -> bool {
    lock().iter().any(|running| running.pid == child)
}
