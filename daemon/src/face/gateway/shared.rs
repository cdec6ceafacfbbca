//! The state of the process that all requests share.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::access::Hosts;
use super::log::AccessLog;
use super::reach::Daemon;

/// The gateway's parts that every request uses.
pub(super) struct Gateway {
    pub(super) daemon: Daemon,
    pub(super) hosts: Hosts,
    pub(super) log: AccessLog,
    /// Models by the other names that requests may have for them.
    pub(super) models: BTreeMap<String, String>,
    /// For responses that stream.
    pub(super) streams: Arc<Semaphore>,
    /// For connections to the daemon that wait for another request.
    pub(super) idle: Arc<Semaphore>,
}
