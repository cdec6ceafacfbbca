//! The methods: each turns a request into a command or a query, and returns. No logic lives here.
//!
//! One file a family: `daemon`, `session`, `blob`, `key`, `usage`, `permission`; what they know of whoever asks is in `conn`.

mod blob;
mod conn;
mod daemon;
mod key;
mod permission;
mod session;
mod usage;

use std::sync::Arc;

use jsonrpsee::Methods;
use linger_protocol::RpcError;
use linger_protocol::api::{
    BlobApiServer, DaemonApiServer, KeyApiServer, PermissionApiServer, SessionApiServer, UsageApiServer,
};
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use tokio::sync::oneshot;

use crate::daemon::Daemon;
use crate::fault;
use crate::session::actor::{Command, Reply};

pub use conn::Conn;
use conn::{conn, make_room};

/// The methods of the daemon.
#[derive(Clone)]
pub struct Rpc(Arc<Daemon>);

/// All methods of `daemon`.
pub fn methods(daemon: Arc<Daemon>) -> anyhow::Result<Methods> {
    let rpc = Rpc(daemon);
    let mut methods = Methods::new();
    methods.merge(DaemonApiServer::into_rpc(rpc.clone()))?;
    methods.merge(SessionApiServer::into_rpc(rpc.clone()))?;
    methods.merge(BlobApiServer::into_rpc(rpc.clone()))?;
    methods.merge(KeyApiServer::into_rpc(rpc.clone()))?;
    methods.merge(UsageApiServer::into_rpc(rpc.clone()))?;
    methods.merge(PermissionApiServer::into_rpc(rpc))?;
    Ok(methods)
}

impl Rpc {
    /// Sends a command to a session and waits for its answer.
    async fn ask<T>(&self, session: &SessionId, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        let (reply, answer) = oneshot::channel();
        self.0.sessions.send(&self.0, session, command(reply));
        let answered = answer.await;
        fault::point("rpc.answer");
        answered.unwrap_or_else(|_| Err(RpcError::new(Code::Internal, format!("session {session} did not answer"))))
    }
}
