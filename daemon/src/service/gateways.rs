//! The gateways that are connected. Each is known for as long as its connection lasts, which owns the entry.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use linger_protocol::gateway::RunningGateway;

/// The connected gateways, the latest last.
#[derive(Debug, Default)]
pub struct Gateways(Mutex<Vec<Weak<RunningGateway>>>);

impl Gateways {
    /// Adds one; its connection keeps `running`.
    pub(super) fn add(&self, running: &Arc<RunningGateway>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(running));
    }

    /// The one that connected last.
    pub(super) fn latest(&self) -> Option<RunningGateway> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().find_map(Weak::upgrade).map(|running| running.as_ref().clone())
    }
}
