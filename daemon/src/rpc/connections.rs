//! The connections: how many there may be, and which one goes when there is no room for the next.
//!
//! Nothing of a session lives in a connection, so that one which does nothing can be closed and loses nothing: its client
//! connects again and reads on from its cursor. A table full of such connections must not lock a user out, whoever left them
//! there. So the next client takes the place of one that asks for nothing and is attached to nothing, or else of one that has
//! long not read what is written to it; it is refused only when all the others are at work.
//! Deliberately absent: what a connection says ([`crate::rpc`]), and how ([`linger_protocol::transport::serve`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jsonrpsee::{Extensions, Methods};
use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::Capacity;
use linger_protocol::transport::serve;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::{AbortHandle, Id, JoinSet};

use crate::rpc::Conn;
use crate::service::{Authority, Services};

/// Clients that may be connected at once; each takes a few KiB and a file descriptor.
const MAX_CONNECTIONS: usize = 512;

/// How much of the file descriptors connections may take, as one part of so many: the rest is for the database, models and tools.
const SHARE_OF_FILES: u64 = 2;

/// How long a connection may have asked for nothing before another takes its place: a client says hello within milliseconds.
const IDLE: Duration = Duration::from_secs(2);

/// How long a client may not read before another takes its place: longer than a busy machine or a slow link holds one up.
const STUCK: Duration = Duration::from_secs(10);

/// How long the daemon tries to tell a client that it is refused.
const REFUSAL: Duration = Duration::from_millis(100);

/// The open connections.
pub struct Connections {
    services: Arc<Services>,
    methods: Methods,
    /// What all of them may hold together.
    capacity: Capacity,
    tasks: JoinSet<()>,
    open: HashMap<Id, Open>,
    /// How many there may be.
    limit: usize,
}

struct Open {
    conn: Arc<Conn>,
    task: AbortHandle,
}

impl Connections {
    /// None yet.
    pub fn new(services: Arc<Services>, methods: Methods) -> Self {
        let limit = limit(getrlimit(Resource::Nofile).current);
        if limit < MAX_CONNECTIONS {
            tracing::warn!(target: "daemon", limit, "fewer connections than usual: few files may be open (`ulimit -n`)");
        }
        Self { services, methods, capacity: Capacity::default(), tasks: JoinSet::new(), open: HashMap::new(), limit }
    }

    /// Waits until one has ended; for ever while there is none.
    pub async fn ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.forget(id),
            Some(Err(error)) => self.forget(error.id()),
            None => std::future::pending().await,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn forget(&mut self, id: Id) {
        self.open.remove(&id);
        self.services.connections.store(u32::try_from(self.open.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Serves a client, if there is room or can be made.
    pub async fn add<S>(&mut self, stream: S, authority: Authority)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if self.open.len() >= self.limit && !self.make_room() {
            tracing::warn!(target: "daemon", ?authority, "refused: {} connections are at work", self.limit);
            return refuse(stream, self.limit).await;
        }
        let (outbox, outgoing) = Outbox::new(&self.capacity);
        let conn = Arc::new(Conn::new(authority, outbox.clone()));
        let mut extensions = Extensions::new();
        extensions.insert(conn.clone());
        let task = self.tasks.spawn(serve::serve(stream, self.methods.clone(), extensions, outbox, outgoing));
        self.open.insert(task.id(), Open { conn, task });
        self.services.connections.store(u32::try_from(self.open.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Closes the connection that will be missed least; whether there was one.
    fn make_room(&mut self) -> bool {
        let uses = self.open.iter().map(|(id, open)| (*id, open.conn.used()));
        let Some((id, used)) = least_used(uses) else { return false };
        let Some(open) = self.open.remove(&id) else { return false };
        tracing::warn!(target: "daemon", client = open.conn.caller().name(), ?used, "closed: another client needed its place");
        open.task.abort();
        true
    }

    /// Ends all.
    pub async fn shutdown(mut self) {
        tracing::info!(target: "daemon", connections = self.open.len(), "ending");
        self.tasks.shutdown().await;
    }
}

/// How many connections there may be when so many files may be open.
fn limit(files: Option<u64>) -> usize {
    let share = files.map_or(u64::MAX, |files| files / SHARE_OF_FILES);
    usize::try_from(share).unwrap_or(usize::MAX).clamp(1, MAX_CONNECTIONS)
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// Not at all, and for how long; whether it ever asked for anything.
    Idle(Duration, bool),
    /// It does not read what is written to it, for this long.
    Stuck(Duration),
    /// It waits for an answer, or for news of a session.
    Working,
}

/// Which of these loses its place to another: the longest idle one, first of those that never asked for anything; then the
/// longest stuck one.
fn least_used<T>(connections: impl Iterator<Item = (T, Used)>) -> Option<(T, Used)> {
    let rank = |used: &Used| match used {
        Used::Idle(time, asked) if *time >= IDLE => Some((if *asked { 1 } else { 2 }, *time)),
        Used::Stuck(time) if *time >= STUCK => Some((0, *time)),
        Used::Idle(..) | Used::Stuck(_) | Used::Working => None,
    };
    let ranked = connections.filter_map(|(connection, used)| Some((rank(&used)?, connection, used)));
    ranked.max_by_key(|(rank, ..)| *rank).map(|(_, connection, used)| (connection, used))
}

/// Tells a client that there are too many, as far as its socket takes that at once, and hangs up.
async fn refuse(mut stream: impl AsyncWrite + Unpin, limit: usize) {
    let error = RpcError::new(Code::TooMuch, format!("{limit} connections are open already"));
    let error = error.hint("close some: `linger daemon status` counts them");
    let line = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string() + "\n";
    // Nothing was written to this socket before, so this does not wait; who has gone needs no answer.
    let _gone = tokio::time::timeout(REFUSAL, stream.write_all(line.as_bytes())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(used: &[Used], expect: Option<usize>) {
        let got = least_used(used.iter().copied().enumerate()).map(|(at, _)| at);
        assert_eq!(got, expect, "{used:?}");
    }

    #[test]
    fn the_connection_that_is_missed_least_goes_first() {
        let idle = |s, asked| Used::Idle(Duration::from_secs(s), asked);
        let stuck = |s| Used::Stuck(Duration::from_secs(s));
        check(&[], None);
        check(&[Used::Working, Used::Working], None);
        check(&[idle(1, false), stuck(9), idle(0, true)], None);
        check(&[idle(3, true), idle(9, true), Used::Working], Some(1));
        check(&[idle(9, true), idle(3, false), stuck(99)], Some(1));
        check(&[stuck(11), Used::Working, stuck(40)], Some(2));
        check(&[stuck(99), idle(2, true)], Some(1));
    }

    #[test]
    fn half_of_the_files_are_left_for_other_things() {
        let limits = [None, Some(1 << 20), Some(1024), Some(64), Some(1)].map(limit);
        assert_eq!(limits, [512, 512, 512, 32, 1]);
    }
}
