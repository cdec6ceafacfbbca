//! The JSON-RPC of MCP: requests with their answers, progress and cancellation, whatever carries the messages.
//!
//! A [`Peer`] is shared by all who ask one server. A transport takes messages from the queue that [`Peer::new`] gives, and brings
//! what the server says to [`Peer::receive`]. Dropping a request before its answer tells the server that it is cancelled.
//! Deliberately absent: processes, HTTP, and the meaning of methods.

mod questions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::jsonrpc::{self, Incoming, described, id_in, number};
use crate::tool::text;
use questions::HeldQuestion;

/// Messages that wait for the server to read them; a server that does not read makes its requests wait, and loses the rest.
const QUEUE: usize = 64;

/// Events of one request that wait for its caller; progress beyond that is dropped.
const EVENTS: usize = 16;

/// The most bytes of an answer that cannot be read that are shown.
const MAX_UNREADABLE: usize = 16 << 10;

/// The reason of a connection that has ended because the server has forgotten its session.
pub(super) const FORGOTTEN: &str = "it has forgotten the session";

/// JSON-RPC's code for a method that does not exist.
pub(super) const UNKNOWN_METHOD: i64 = -32601;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The server answered with an error.
    #[error("{message}")]
    Refused {
        /// JSON-RPC's.
        code: i64,
        /// The server's.
        message: String,
    },
    /// The server answered, and the answer cannot be read: it.
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
    /// The request did not reach the server, or was not taken; why.
    #[error("{0}")]
    NotTaken(String),
    /// The same, because the server has forgotten the session: another connection may do.
    #[error("{FORGOTTEN}")]
    Forgotten,
    /// No answer will come, and whether the request was taken is unknown; why.
    #[error("{0}")]
    Lost(String),
    /// The same, and the connection has ended.
    #[error("{0}")]
    Ended(Arc<str>),
}

/// A message for the server.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// JSON on one line.
    pub(super) text: String,
    /// The request that it is, if it wants an answer.
    pub(super) id: Option<u64>,
    /// Cancelled when the caller stops waiting for the answer.
    pub(super) dropped: Option<CancellationToken>,
    /// Its subject, for HTTP headers; absent with a handshake.
    pub(super) about: Option<About>,
}

/// The listener of a request that is a call.
#[derive(Debug)]
pub(super) struct Call {
    /// Gets what comes of it before its answer.
    pub(super) events: mpsc::Sender<CallEvent>,
    /// Headers that repeat some of its arguments, over HTTP and without a handshake.
    pub(super) headers: Vec<(String, String)>,
}

/// The subject of a request, which HTTP has in headers without a handshake.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// As JSON-RPC has it: `tools/call`.
    pub(super) method: String,
    /// The name or the address of what is asked for.
    pub(super) name: Option<String>,
    /// The arguments of a call that the server wants there.
    pub(super) arguments: Vec<(String, String)>,
}

/// A message about a request before its answer.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// How far it has come.
    Progress(Progress),
    /// The server asks something because of it.
    Asked(ServerRequest),
}

/// The parameters of `notifications/progress`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// How much is done.
    pub(super) progress: f64,
    /// The total, in the same unit.
    pub(super) total: Option<f64>,
    /// For people.
    pub(super) message: Option<String>,
}

/// A request of the server that belongs to one of ours.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// As JSON-RPC has it: `elicitation/create`.
    pub(super) method: String,
    /// Its parameters.
    pub(super) params: Value,
    /// Whether it is certain that it belongs to this call; it may be another session's.
    pub(super) is_certain: bool,
    /// Takes the answer; dropping it refuses.
    pub(super) reply: oneshot::Sender<Value>,
}

/// Where a message of the server came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Where messages about all requests come.
    Shared,
    /// In the stream that answers this request.
    StreamOf(u64),
    /// As the whole answer to this request.
    ReplyTo(u64),
}

/// A message of the server that answers nothing, for the owner of the connection.
#[derive(Debug)]
pub(super) enum Said {
    /// A notification: method and parameters.
    Notified(String, Value),
    /// A line that is no message.
    Garbage(String),
}

/// A connection to a server; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct Peer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    out: mpsc::Sender<Outgoing>,
    state: Mutex<PeerState>,
    /// The answer to `roots/list`.
    roots: Value,
    /// The fields about protocol and client in each request, once there is no handshake.
    said: OnceLock<Map<String, Value>>,
}

#[derive(Debug, Default)]
struct PeerState {
    last: u64,
    open: HashMap<u64, OpenRequest>,
    /// Questions that may belong to one of several calls, the oldest first.
    held: Vec<HeldQuestion>,
    ended: Option<Arc<str>>,
}

#[derive(Debug)]
struct OpenRequest {
    reply: oneshot::Sender<Result<Box<RawValue>, Failure>>,
    /// Tells the transport that the caller has stopped waiting.
    _dropped: DropGuard,
    /// Absent for requests that are no calls: a server's questions never belong to those.
    events: Option<mpsc::Sender<CallEvent>>,
}

/// A request whose answer is awaited; dropping it cancels the request.
struct Pending<'a> {
    peer: &'a Peer,
    id: u64,
    cancels: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let is_open = self.peer.state().open.remove(&self.id).is_some();
        if is_open && self.cancels {
            let params = json!({ "requestId": self.id, "reason": "cancelled" });
            self.peer.notify("notifications/cancelled", params);
        }
        if is_open {
            self.peer.release();
        }
    }
}

impl Peer {
    /// A peer whose messages a transport takes from the queue.
    pub(super) fn new(roots: Value) -> (Self, mpsc::Receiver<Outgoing>) {
        let (out, queue) = mpsc::channel(QUEUE);
        (Self(Arc::new(Shared { out, state: Mutex::default(), roots, said: OnceLock::new() })), queue)
    }

    /// Asks and waits for the answer. A call gets its progress, and what the server asks meanwhile.
    pub(super) async fn request(
        &self,
        method: &str,
        mut params: Value,
        call: Option<Call>,
    ) -> Result<Box<RawValue>, Failure> {
        let (events, arguments) = call.map(|Call { events, headers }| (events, headers)).unzip();
        let (reply, answer) = oneshot::channel();
        let dropped = CancellationToken::new();
        let id = {
            let mut state = self.state();
            match &state.ended {
                Some(why) if **why == *FORGOTTEN => return Err(Failure::Forgotten),
                Some(why) => return Err(Failure::Ended(why.clone())),
                None => {}
            }
            state.last += 1;
            let id = state.last;
            let mut meta = self.0.said.get().cloned().unwrap_or_default();
            if events.is_some() {
                meta.insert("progressToken".to_owned(), id.into());
            }
            if let Some(params) = params.as_object_mut().filter(|_| !meta.is_empty()) {
                params.insert("_meta".to_owned(), Value::Object(meta));
            }
            state.open.insert(id, OpenRequest { reply, _dropped: dropped.clone().drop_guard(), events });
            id
        };
        // A server may not cancel what begins the connection.
        let pending = Pending { peer: self, id, cancels: method != "initialize" };
        let about = self.0.said.get().map(|_| {
            let name = ["name", "uri"].iter().find_map(|key| params.get(key)?.as_str()).map(str::to_owned);
            About { method: method.to_owned(), name, arguments: arguments.unwrap_or_default() }
        });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let message = Outgoing { text: message.to_string(), id: Some(id), dropped: Some(dropped), about };
        if self.0.out.send(message).await.is_err() {
            return Err(Failure::Ended(self.why_ended()));
        }
        let answer = answer.await;
        drop(pending);
        answer.unwrap_or_else(|_| Err(Failure::Ended(self.why_ended())))
    }

    /// From now on each request says this of the protocol and this client, because there is no handshake.
    pub(super) fn say_with_each(&self, said: Map<String, Value>) {
        // It is said once: a connection has one era.
        let _first = self.0.said.set(said);
    }

    /// Whether each request says what it speaks.
    pub(super) fn is_per_request(&self) -> bool {
        self.0.said.get().is_some()
    }

    /// The answer to `roots/list`.
    pub(super) fn roots(&self) -> Value {
        json!({ "roots": self.0.roots })
    }

    /// The channel for the events of a call.
    pub(super) fn events() -> (mpsc::Sender<CallEvent>, mpsc::Receiver<CallEvent>) {
        mpsc::channel(EVENTS)
    }

    /// Says something that has no answer; nothing if the server reads nothing.
    pub(super) fn notify(&self, method: &str, params: Value) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Takes messages of the server, one or a batch; gives what is not an answer or about a call.
    pub(super) fn receive(&self, text: &str, channel: Channel) -> Vec<Said> {
        match jsonrpc::read(text) {
            Some(messages) => messages.into_iter().filter_map(|message| self.take(message, text, channel)).collect(),
            None => {
                let named = id_in(text).filter(|id| self.is_open(*id));
                match named.or_else(|| self.answered_by(channel)) {
                    Some(id) => self.settle(id, Err(unreadable(text))),
                    None => return vec![Said::Garbage(text.to_owned())],
                }
                Vec::new()
            }
        }
    }

    fn take(&self, message: Incoming, text: &str, channel: Channel) -> Option<Said> {
        match message {
            Incoming { method: Some(method), id: Some(id), params, .. } => self.answer(id, method, params, channel),
            Incoming { method: Some(method), params, .. } => match method.as_str() {
                "notifications/progress" => self.progress(&params),
                "notifications/cancelled" => {
                    let id = params.get("requestId");
                    self.state().held.retain(|held| Some(&held.id) != id);
                }
                _ => return Some(Said::Notified(method, params)),
            },
            message => return self.answered(message, text, channel),
        }
        None
    }

    /// The open request that the channel answers as a whole.
    fn answered_by(&self, channel: Channel) -> Option<u64> {
        match channel {
            Channel::ReplyTo(id) => Some(id).filter(|id| self.is_open(*id)),
            Channel::StreamOf(_) | Channel::Shared => None,
        }
    }

    /// Ends the connection: every request fails with this.
    pub(super) fn end(&self, why: impl Into<Arc<str>>) {
        let why = why.into();
        let open = {
            let mut state = self.state();
            state.ended.get_or_insert(why.clone());
            state.held.clear();
            std::mem::take(&mut state.open)
        };
        for (_, request) in open {
            let _gone = request.reply.send(Err(Failure::Ended(why.clone())));
        }
    }

    /// The server has forgotten the session: new requests fail, and those that are open get what comes of them.
    pub(super) fn forget(&self) {
        self.state().ended.get_or_insert(FORGOTTEN.into());
    }

    /// Whether this request has no answer yet.
    pub(super) fn is_open(&self, id: u64) -> bool {
        self.state().open.contains_key(&id)
    }

    /// No answer to this request will come, if none has.
    pub(super) fn lose(&self, id: u64, why: Failure) {
        self.settle(id, Err(why));
    }

    fn settle(&self, id: u64, answer: Result<Box<RawValue>, Failure>) {
        let open = self.state().open.remove(&id);
        if let Some(open) = open {
            let _gone = open.reply.send(answer);
            self.release();
        }
    }

    /// Takes an answer. One without an id belongs to the request of its channel, or if it is an error to the only open request.
    fn answered(&self, message: Incoming, text: &str, channel: Channel) -> Option<Said> {
        let Incoming { id, result, error, has_others, .. } = message;
        let named = id.as_ref().and_then(number).filter(|id| self.is_open(*id));
        let of_channel = || match channel {
            Channel::StreamOf(request) if id.is_none() => Some(request).filter(|request| self.is_open(*request)),
            _ => self.answered_by(channel),
        };
        let only = || {
            let state = self.state();
            let only = state.open.keys().next().copied().filter(|_| state.open.len() == 1);
            only.filter(|_| id.is_none() && error.is_some())
        };
        let Some(request) = named.or_else(of_channel).or_else(only) else {
            // One with an id is late, or sent twice.
            return id.is_none().then(|| Said::Garbage(text.to_owned()));
        };
        let answer = match (result, error) {
            (_, Some(error)) => {
                let (code, message) = described(&error);
                Err(Failure::Refused { code, message })
            }
            (Some(result), None) => Ok(result),
            (None, None) if has_others => Err(unreadable(text)),
            // `"result": null`.
            (None, None) => Ok(RawValue::NULL.to_owned()),
        };
        self.settle(request, answer);
        None
    }

    fn progress(&self, params: &Value) {
        let number_of = |name: &str| match params.get(name)? {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_f64(),
        };
        let token = params.get("progressToken").and_then(number);
        let message = params.get("message").and_then(Value::as_str).map(str::to_owned);
        let progress =
            Progress { progress: number_of("progress").unwrap_or_default(), total: number_of("total"), message };
        let state = self.state();
        let open = token.and_then(|token| state.open.get(&token));
        if let Some(events) = open.and_then(|open| open.events.as_ref()) {
            // A caller that is behind needs no old progress.
            let _full = events.try_send(CallEvent::Progress(progress));
        }
    }

    /// Answers a request of the server.
    fn answer(&self, id: Value, method: String, params: Value, channel: Channel) {
        match method.as_str() {
            "ping" => self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": {} })),
            "roots/list" => self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": self.roots() })),
            "elicitation/create" => {
                self.question(HeldQuestion::new(id, method, params), channel);
            }
            _ => self.refuse(id, UNKNOWN_METHOD, "this client does not have that method"),
        }
    }

    fn refuse(&self, id: Value, code: i64, text: &str) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } }));
    }

    fn say(&self, message: &Value) {
        let message = Outgoing { text: message.to_string(), id: None, dropped: None, about: None };
        if self.0.out.try_send(message).is_err() {
            tracing::debug!(target: "mcp", "a message is dropped: the server reads nothing");
        }
    }

    /// Why the connection has ended.
    pub(super) fn why_ended(&self) -> Arc<str> {
        self.state().ended.clone().unwrap_or_else(|| "the connection has ended".into())
    }

    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable(text: &str) -> Failure {
    // Without the byte order mark that some consoles write before each line.
    let text = text.trim_matches(|c: char| c == '\u{feff}' || c.is_whitespace());
    Failure::Unreadable(text::head(text, MAX_UNREADABLE).to_owned())
}

#[cfg(test)]
mod tests;
