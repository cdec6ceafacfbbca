//! Tells the daemon where the gateway listens, for `linger gateway url` and `status`: over a connection of its own, and over
//! another one after each start of a daemon.

use std::sync::Arc;

use linger_protocol::VERSION;
use linger_protocol::gateway::RunningGateway;

use super::reach::ABSENT;
use super::reply::Failure;
use super::shared::Gateway;
use super::wire::Wire;
use crate::sys::clock;

/// A gateway that tells the daemon of itself.
pub(super) struct Registration {
    gateway: Arc<Gateway>,
    running: RunningGateway,
    wire: Option<Wire>,
}

impl Registration {
    /// Registers at the daemon, or later if none runs. Fails if another process listens in its place, or if it refuses.
    pub(super) async fn begin(gateway: &Arc<Gateway>, listen: &str) -> Result<Self, Failure> {
        let (pid, version, started_at) = (std::process::id(), VERSION.to_owned(), clock::now());
        let running = RunningGateway { pid, listen: listen.to_owned(), url: gateway.hosts.url(), version, started_at };
        let wire = match Wire::register(&gateway.daemon, &running).await {
            Ok(wire) => Some(wire),
            Err(failure) if failure.code == ABSENT => None,
            Err(failure) => return Err(failure),
        };
        Ok(Self { gateway: gateway.clone(), running, wire })
    }

    /// Stays registered, for ever. Ends if the daemon's files cannot be watched; requests are served all the same, and the log has
    /// the reason.
    pub(super) async fn keep(mut self) {
        loop {
            if let Some(mut wire) = self.wire.take() {
                while wire.next().await.is_some() {}
            }
            let watch = match self.gateway.daemon.watch() {
                Ok(watch) => watch,
                Err(failure) => return self.warn(&failure),
            };
            let mut changes = watch.changes();
            match Wire::register(&self.gateway.daemon, &self.running).await {
                Ok(wire) => self.wire = Some(wire),
                Err(failure) => {
                    if failure.code != ABSENT {
                        self.warn(&failure);
                    }
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn warn(&self, failure: &Failure) {
        self.gateway.log.warn(&format!("the daemon does not know where the gateway listens: {}", failure.message));
    }
}
