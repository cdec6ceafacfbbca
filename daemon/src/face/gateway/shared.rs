//! The state of the process that all requests share.

use std::sync::Arc;

use linger_protocol::place::Places;
use tokio::sync::Semaphore;

use super::access::Hosts;
use super::log::AccessLog;

/// The gateway's parts that every request uses.
pub(super) struct Gateway {
    pub(super) places: Places,
    pub(super) hosts: Hosts,
    pub(super) log: AccessLog,
    /// For responses that stream.
    pub(super) streams: Arc<Semaphore>,
    /// For connections to the daemon that wait for another request.
    pub(super) idle: Arc<Semaphore>,
}
