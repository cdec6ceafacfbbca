//! Gates: a place in a scripted stream where the server waits for the test, and the test for the server.

use std::sync::Arc;

use tokio::sync::watch;

use crate::TIMEOUT;

/// A place where a stream stops until the test opens it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Inner { reached: watch::Sender::new(false), open: watch::Sender::new(false) }))
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the stream go on, now or when it arrives.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Waits until a stream has arrived; everything before the gate has been written to the socket by then.
    pub async fn reached(&self) {
        let mut reached = self.0.reached.subscribe();
        let arrived = tokio::time::timeout(TIMEOUT, reached.wait_for(|reached| *reached)).await;
        assert!(arrived.is_ok(), "no model stream has reached the gate within {TIMEOUT:?}");
    }

    /// Whether a stream has arrived.
    pub fn is_reached(&self) -> bool {
        *self.0.reached.borrow()
    }

    /// The server's side: says that it is here, and waits.
    pub(super) async fn pass(&self) {
        self.0.reached.send_replace(true);
        let mut open = self.0.open.subscribe();
        // The sender lives as long as `self`: this cannot fail.
        let _opened = open.wait_for(|open| *open).await;
    }
}
