//! One connection, as the methods see it: who is there, what it is attached to, and its turn among the queries of others.
//!
//! The forwarder of an attachment is a task of its own; it ends when the attachment is dropped, with its connection at the latest.
//! Deliberately absent: reading and writing lines, and when a connection is closed ([`crate::rpc::connections`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jsonrpsee::Extensions;
use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::AnswerRoom;
use tokio::task::AbortHandle;

use crate::rpc::connections::Used;
use crate::service::{Authority, Caller};

/// Sessions that one client may be attached to; an editor has a window each.
const MAX_ATTACHED: usize = 256;

/// What the daemon knows of one connection; in the extensions of each of its requests.
pub struct Conn {
    caller: Caller,
    pub(super) outbox: Outbox,
    /// The forwarders of the sessions that it is attached to.
    attached: Mutex<HashMap<SessionId, Attachment>>,
    /// How many attaches there have been.
    attaches: AtomicU64,
    /// Held by the query that it has among those of others.
    querying: tokio::sync::Mutex<()>,
}

/// What sends the events of one session to one client.
struct Attachment {
    /// Tells this attach from every other one of the connection.
    generation: u64,
    /// The task, once the session has answered.
    forwarder: Option<AbortHandle>,
}

impl Attachment {
    /// Whether it has not ended.
    fn is_live(&self) -> bool {
        self.forwarder.as_ref().is_none_or(|task| !task.is_finished())
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.abort();
        }
    }
}

impl Conn {
    /// A connection whose requests are asked on the strength of `authority`.
    pub fn new(authority: Authority, outbox: Outbox) -> Self {
        Self {
            caller: Caller::new(authority),
            outbox,
            attached: Mutex::default(),
            attaches: AtomicU64::new(0),
            querying: tokio::sync::Mutex::default(),
        }
    }

    /// Who asks over it.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What it is used for.
    pub fn used(&self) -> Used {
        let activity = self.outbox.activity();
        let attached = self.attached().values().any(Attachment::is_live);
        match activity.stuck() {
            Some(stuck) => Used::Stuck(stuck),
            None if attached || activity.is_waiting() => Used::Working,
            None => Used::Idle(activity.silent(), activity.has_asked()),
        }
    }

    /// Runs a query for this connection: one at a time, and none once the client has gone. However many requests a client
    /// sends at once, it has one query among those of the others.
    pub(super) async fn query<T>(&self, query: impl Future<Output = Result<T, RpcError>>) -> Result<T, RpcError> {
        tokio::select! {
            biased;
            result = async {
                let _turn = self.querying.lock().await;
                query.await
            } => result,
            () = self.outbox.gone() => Err(RpcError::new(Code::Internal, "the client has gone")),
        }
    }

    /// As [`Self::query`], for what may give a large answer: it is made when there is room for it.
    pub(super) async fn query_large<T>(
        &self,
        extensions: &Extensions,
        bytes: usize,
        query: impl Future<Output = Result<T, RpcError>>,
    ) -> Result<T, RpcError> {
        self.query(async {
            make_room(extensions, bytes).await?;
            query.await
        })
        .await
    }

    fn attached(&self) -> MutexGuard<'_, HashMap<SessionId, Attachment>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an attach is under way, so that a detach that comes after it ends it. What was attached before is not any more.
    pub(super) fn begin_attach(&self, session: &SessionId) -> Result<u64, RpcError> {
        let mut attached = self.attached();
        attached.retain(|_, attachment| attachment.is_live());
        if attached.len() >= MAX_ATTACHED && !attached.contains_key(session) {
            let error = RpcError::new(Code::TooMuch, format!("attached to {MAX_ATTACHED} sessions already"));
            return Err(error.hint("detach from some, or open another connection"));
        }
        let generation = self.attaches.fetch_add(1, Ordering::Relaxed);
        attached.insert(session.clone(), Attachment { generation, forwarder: None });
        Ok(generation)
    }

    /// Starts the forwarder of an attach, unless it was detached or attached anew meanwhile.
    pub(super) fn end_attach(&self, session: &SessionId, generation: u64, forward: impl FnOnce() -> AbortHandle) {
        if let Some(attachment) = self.attached().get_mut(session).filter(|now| now.generation == generation) {
            attachment.forwarder = Some(forward());
        }
    }

    /// Takes back an attach that failed.
    pub(super) fn forget_attach(&self, session: &SessionId, generation: u64) {
        let mut attached = self.attached();
        if attached.get(session).is_some_and(|now| now.generation == generation) {
            attached.remove(session);
        }
    }

    /// Ends an attach.
    pub(super) fn detach(&self, session: &SessionId) -> Result<Empty, RpcError> {
        let detached = self.attached().remove(session).map(|_| Empty {});
        detached.ok_or_else(|| RpcError::new(Code::NotAttached, format!("not attached to session {session}")))
    }
}

/// Waits for room for a large answer, which keeps it until it is on its way.
pub(super) async fn make_room(extensions: &Extensions, bytes: usize) -> Result<(), RpcError> {
    match extensions.get::<AnswerRoom>() {
        Some(answer) => Ok(answer.make(bytes).await?),
        None => Ok(()),
    }
}

/// The connection that a request came over. Every connection has one in its extensions.
pub(super) fn conn(extensions: &Extensions) -> Result<&Arc<Conn>, RpcError> {
    extensions.get::<Arc<Conn>>().ok_or_else(|| RpcError::new(Code::Internal, "the connection is not known"))
}
