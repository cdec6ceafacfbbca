//! Connections within the daemon's own process, without a socket: for programs that embed it, and for tests.

use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

use super::Accept;
use crate::service::Authority;

/// The buffer of each direction of a connection, in bytes.
const BUFFER: usize = 64 << 10;

/// How many connections may wait to be accepted.
const BACKLOG: usize = 16;

/// Opens connections; all clones connect to the same daemon.
#[derive(Clone, Debug)]
pub struct Connector(mpsc::Sender<(DuplexStream, Authority)>);

/// The daemon's end.
#[derive(Debug)]
pub struct InProcess(mpsc::Receiver<(DuplexStream, Authority)>);

/// A listener for [`run`](crate::run), and its connector.
pub fn in_process() -> (Connector, InProcess) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    (Connector(sender), InProcess(receiver))
}

impl Connector {
    /// Opens a connection with full authority: JSON-RPC, a message a line. `None` if the daemon has ended.
    pub async fn connect(&self) -> Option<DuplexStream> {
        self.connect_as(Authority::Daemon).await
    }

    /// Opens a connection whose requests have `authority`: a session's may widen no permission and answer no question.
    pub async fn connect_as(&self, authority: Authority) -> Option<DuplexStream> {
        let (ours, theirs) = duplex(BUFFER);
        self.0.send((theirs, authority)).await.ok().map(|()| ours)
    }
}

impl Accept for InProcess {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> (DuplexStream, Authority) {
        match self.0.recv().await {
            Some(accepted) => accepted,
            // All connectors are gone.
            None => std::future::pending().await,
        }
    }
}
