//! One connection, as the methods see it: its caller, its attachments, and its query lock.
//!
//! The forwarder of an attachment is a task; it ends when the attachment is dropped, at the latest with its connection.
//! Deliberately absent: reading and writing lines, and closing connections ([`crate::rpc::connections`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonrpsee::Extensions;
use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::{CompletionId, SessionId};
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::AnswerRoom;
use linger_protocol::transport::serve::Gate;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::service::{Authority, Caller, Services};

/// The most sessions that one connection may be attached to; an editor needs one a window.
const MAX_ATTACHED: usize = 256;

/// The state of one connection; in the extensions of each of its requests.
pub struct Conn {
    caller: Caller,
    pub(super) outbox: Outbox,
    /// At most one for each source.
    attached: Mutex<HashMap<Attached, Attachment>>,
    /// The number of attaches so far.
    attaches: AtomicU64,
    /// The number of completions so far.
    completions: AtomicU64,
    /// Held by the query that runs.
    querying: tokio::sync::Mutex<()>,
    /// Told when its token has expired.
    expired: Notify,
}

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// Without requests and attachments for this long; true if it ever sent a request.
    Idle(Duration, bool),
    /// Not reading for this long.
    Stuck(Duration),
    /// Waiting for an answer, attached to a session, or the gateway's.
    Working,
}

/// The source of an attachment's events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Attached {
    /// One session.
    Session(SessionId),
    /// All sessions: `events/subscribe`.
    All,
    /// A completion without a session.
    Completion(CompletionId),
}

/// Forwards events to one client.
struct Attachment {
    /// The number of this attach within the connection.
    generation: u64,
    /// The task; absent until the session has answered.
    forwarder: Option<AbortHandle>,
    /// The attachment that this one replaces once the session has answered; a refusal leaves it.
    earlier: Option<Box<Attachment>>,
}

impl Attachment {
    /// Whether the forwarder runs or is about to.
    fn is_live(&self) -> bool {
        self.forwarder.as_ref().is_none_or(|task| !task.is_finished())
    }

    /// It, or the one that it was to replace, if that one has a forwarder.
    fn working(mut self) -> Option<Self> {
        match self.forwarder {
            Some(_) => Some(self),
            None => self.earlier.take().map(|earlier| *earlier),
        }
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
    /// A connection whose requests have this authority.
    pub fn new(authority: Authority, outbox: Outbox) -> Self {
        Self {
            caller: Caller::new(authority),
            outbox,
            attached: Mutex::default(),
            attaches: AtomicU64::new(0),
            completions: AtomicU64::new(0),
            querying: tokio::sync::Mutex::default(),
            expired: Notify::new(),
        }
    }

    /// The caller of its requests.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether something may be sent to it without being asked for; when it may not, the connection ends.
    pub(super) fn may_send(self: &Arc<Self>, services: &Arc<Services>) -> impl Fn() -> bool + Send + use<> {
        // Its forwarders do not keep it.
        let (conn, services) = (Arc::downgrade(self), services.clone());
        move || {
            let Some(conn) = conn.upgrade() else { return false };
            let has_lost = conn.caller.has_lost_token(&services);
            if has_lost {
                conn.expired.notify_one();
            }
            !has_lost
        }
    }

    /// Waits until its token is revoked, or was found to have expired.
    pub(super) async fn lost_token(&self, services: &Services) {
        let mut revoked = services.tokens.revoked();
        loop {
            tokio::select! {
                () = self.expired.notified() => {}
                // The sender lives as long as the services.
                changed = revoked.changed() => if changed.is_err() { return },
            }
            if self.caller.has_lost_token(services) {
                return;
            }
        }
    }

    /// Decides which methods it may call.
    pub(super) fn gate(self: &Arc<Self>, services: &Arc<Services>) -> Gate {
        let (conn, services) = (Arc::downgrade(self), services.clone());
        Gate(Arc::new(move |method| match conn.upgrade() {
            Some(conn) => conn.caller.may_call(&services, method),
            None => Err(RpcError::new(Code::Internal, "unknown connection")),
        }))
    }

    /// Its activity.
    pub fn used(&self) -> Used {
        let activity = self.outbox.activity();
        let attached = self.attached().values().any(Attachment::is_live) || self.caller.is_gateway();
        match activity.stuck() {
            Some(stuck) => Used::Stuck(stuck),
            None if attached || activity.is_waiting() => Used::Working,
            None => Used::Idle(activity.silent(), activity.has_asked()),
        }
    }

    /// Runs a query: one at a time for each connection, so that a client with many requests delays no other. Fails once the client
    /// is gone.
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

    /// As [`Self::query`], for a large answer of up to `bytes`: first waits for capacity.
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

    fn attached(&self) -> MutexGuard<'_, HashMap<Attached, Attachment>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a completion of this connection.
    pub(super) fn next_completion(&self) -> u64 {
        self.completions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Registers an attach in progress, so that a later detach ends it. An earlier attachment to the session stays until then.
    pub(super) fn begin_attach(&self, to: &Attached) -> Result<u64, RpcError> {
        let mut attached = self.attached();
        attached.retain(|_, attachment| attachment.is_live());
        if attached.len() >= MAX_ATTACHED && !attached.contains_key(to) {
            let error = RpcError::new(Code::TooMuch, format!("already attached to {MAX_ATTACHED} sessions"));
            return Err(error.hint("detach from some, or open another connection"));
        }
        let generation = self.attaches.fetch_add(1, Ordering::Relaxed);
        // Of several attaches that wait, only the attachment that works is kept.
        let earlier = attached.remove(to).and_then(Attachment::working).map(Box::new);
        attached.insert(to.clone(), Attachment { generation, forwarder: None, earlier });
        Ok(generation)
    }

    /// Starts the forwarder of an attach, unless it was detached or replaced in the meantime.
    pub(super) fn end_attach(&self, to: &Attached, generation: u64, forward: impl FnOnce() -> AbortHandle) {
        if let Some(attachment) = self.attached().get_mut(to).filter(|now| now.generation == generation) {
            drop(attachment.earlier.take());
            attachment.forwarder = Some(forward());
        }
    }

    /// Removes an attach that failed; the attachment before it stays.
    pub(super) fn forget_attach(&self, to: &Attached, generation: u64) {
        let mut attached = self.attached();
        if attached.get(to).is_some_and(|now| now.generation == generation)
            && let Some(mut failed) = attached.remove(to)
            && let Some(earlier) = failed.earlier.take()
        {
            attached.insert(to.clone(), *earlier);
        }
    }

    /// Ends an attachment; fails if there is none.
    pub(super) fn detach(&self, to: &Attached) -> Result<Empty, RpcError> {
        let detached = self.attached().remove(to).map(|_| Empty {});
        detached.ok_or_else(|| {
            let text = match to {
                Attached::Session(session) => format!("not attached to session {session}"),
                Attached::All => "not subscribed to events".to_owned(),
                Attached::Completion(completion) => format!("no completion '{completion}' is under way"),
            };
            RpcError::new(Code::NotAttached, text)
        })
    }
}

/// Waits for capacity for a large answer; the answer holds it until it is sent.
pub(super) async fn make_room(extensions: &Extensions, bytes: usize) -> Result<(), RpcError> {
    match extensions.get::<AnswerRoom>() {
        Some(answer) => Ok(answer.make(bytes).await?),
        None => Ok(()),
    }
}

/// The connection of a request, from its extensions.
pub(super) fn conn(extensions: &Extensions) -> Result<&Arc<Conn>, RpcError> {
    extensions.get::<Arc<Conn>>().ok_or_else(|| RpcError::new(Code::Internal, "unknown connection"))
}
