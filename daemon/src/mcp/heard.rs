//! Takes what a server sends: answers, requests and notifications go to the peer, log lines to the log.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::lines::Log;
use super::peer::{Channel, Peer, Said};

/// Takes what a server says.
pub(super) struct Heard {
    pub(super) peer: Peer,
    pub(super) log: Log,
    /// How many warnings of the server are in the daemon's log.
    pub(super) logged: AtomicU32,
    pub(super) changed: Arc<Notify>,
    pub(super) ended: CancellationToken,
}

impl Heard {
    /// Takes what came on a channel: a message, or a batch of them.
    pub(super) fn line(&self, line: &[u8], channel: Channel) {
        for said in self.peer.receive(&String::from_utf8_lossy(line), channel) {
            self.said(said);
        }
    }

    /// The server has forgotten the session: the next request makes a new connection.
    pub(super) fn forget(&self) {
        self.peer.forget();
        self.ended.cancel();
    }

    fn said(&self, said: Said) {
        match said {
            Said::Garbage(line) => self.log.add(&line),
            Said::Notified(method, params) => match method.as_str() {
                "notifications/tools/list_changed" => self.changed.notify_one(),
                "notifications/message" => {
                    let level = params.get("level").and_then(Value::as_str).unwrap_or("info");
                    let data = params.get("data").unwrap_or(&Value::Null);
                    let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
                    self.log.said(level, &data, &self.logged);
                }
                _ => {}
            },
        }
    }
}
