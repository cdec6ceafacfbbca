//! The JSON-RPC of MCP: requests with their answers, progress and cancellation, whatever carries the messages.
//!
//! A [`Peer`] is shared by all who ask one server. A transport takes messages from the queue that [`Peer::new`] gives, and brings
//! what the server says to [`Peer::receive`]. Dropping a request before its answer tells the server that it is cancelled.
//! Deliberately absent: processes, HTTP, and the meaning of methods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use linger_protocol::transport::both;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::provider::with_good_escapes;
use crate::sys::task;

/// Messages that wait for the server to read them; a server that does not read makes its requests wait, and loses the rest.
const QUEUE: usize = 64;

/// Events of one request that wait for its caller; progress beyond that is dropped.
const EVENTS: usize = 16;

/// JSON-RPC's code for a method that does not exist.
pub(super) const UNKNOWN_METHOD: i64 = -32601;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// The server refused it.
    #[error("{message}")]
    Refused {
        /// JSON-RPC's.
        code: i64,
        /// The server's.
        message: String,
    },
    /// The connection has ended; why.
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
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
    /// Takes the answer; dropping it refuses.
    pub(super) reply: oneshot::Sender<Value>,
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

/// A message of the server.
type Message = both::Message<Box<RawValue>, RpcError>;

#[derive(Deserialize)]
#[serde(default)]
struct RpcError {
    code: i64,
    message: String,
}

impl Default for RpcError {
    fn default() -> Self {
        Self { code: 0, message: "the server gave no reason".to_owned() }
    }
}

/// A request whose answer is awaited; dropping it cancels the request.
struct Pending<'a> {
    peer: &'a Peer,
    id: u64,
    cancels: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.peer.state().open.remove(&self.id).is_some() && self.cancels {
            let params = json!({ "requestId": self.id, "reason": "cancelled" });
            self.peer.notify("notifications/cancelled", params);
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
            if let Some(why) = &state.ended {
                return Err(Failure::Ended(why.clone()));
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

    /// Takes a message of the server; gives what is not an answer or about a call.
    pub(super) fn receive(&self, line: &str) -> Option<Said> {
        let Ok(message) = serde_json::from_str::<Message>(&with_good_escapes(line)) else {
            return Some(Said::Garbage(line.to_owned()));
        };
        match message {
            Message { method: Some(method), id: Some(id), params, .. } => self.answer(id, method, params),
            Message { method: Some(method), params, .. } if method == "notifications/progress" => {
                self.progress(&params);
            }
            Message { method: Some(method), params, .. } => return Some(Said::Notified(method, params)),
            Message { id: Some(id), result, error, .. } => self.answered(&id, result, error),
            _ => return Some(Said::Garbage(line.to_owned())),
        }
        None
    }

    /// Ends the connection: every request fails with this.
    pub(super) fn end(&self, why: impl Into<Arc<str>>) {
        let why = why.into();
        let open = {
            let mut state = self.state();
            state.ended.get_or_insert(why.clone());
            std::mem::take(&mut state.open)
        };
        for (_, request) in open {
            let _gone = request.reply.send(Err(Failure::Ended(why.clone())));
        }
    }

    /// Whether this request has no answer yet.
    pub(super) fn is_open(&self, id: u64) -> bool {
        self.state().open.contains_key(&id)
    }

    /// No answer to this request will come, if none has.
    pub(super) fn lose(&self, id: u64, why: Failure) {
        if let Some(open) = self.state().open.remove(&id) {
            let _gone = open.reply.send(Err(why));
        }
    }

    fn answered(&self, id: &Value, result: Option<Box<RawValue>>, error: Option<RpcError>) {
        // Some servers give the number back as text. An unknown one is late, or sent twice.
        let id = id.as_u64().or_else(|| id.as_str()?.parse().ok());
        let Some(open) = id.and_then(|id| self.state().open.remove(&id)) else { return };
        let answer = match (result, error) {
            (_, Some(RpcError { code, message })) => Err(Failure::Refused { code, message }),
            (Some(result), None) => Ok(result),
            // `"result": null`.
            (None, None) => Ok(RawValue::NULL.to_owned()),
        };
        let _gone = open.reply.send(answer);
    }

    fn progress(&self, params: &Value) {
        let token =
            params.get("progressToken").and_then(|token| token.as_u64().or_else(|| token.as_str()?.parse().ok()));
        let Ok(progress) = Progress::deserialize(params) else { return };
        let state = self.state();
        let open = token.and_then(|token| state.open.get(&token));
        if let Some(events) = open.and_then(|open| open.events.as_ref()) {
            // A caller that is behind needs no old progress.
            let _full = events.try_send(CallEvent::Progress(progress));
        }
    }

    /// Answers a request of the server.
    fn answer(&self, id: Value, method: String, params: Value) {
        let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let error =
            |code: i64, text: &str| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": text } });
        match method.as_str() {
            "ping" => self.say(&result(json!({}))),
            "roots/list" => self.say(&result(self.roots())),
            "elicitation/create" => match self.only_call() {
                Some(events) => {
                    let (reply, answer) = oneshot::channel();
                    let asked = CallEvent::Asked(ServerRequest { method, params, reply });
                    let refused = error(-32603, "the question cannot be asked now");
                    if events.try_send(asked).is_err() {
                        return self.say(&refused);
                    }
                    let peer = self.clone();
                    task::spawn(async move {
                        let answer = answer.await;
                        peer.say(
                            &answer.map_or(refused, |answer| json!({ "jsonrpc": "2.0", "id": id, "result": answer })),
                        );
                    });
                }
                None => self.say(&error(-32603, "the question belongs to no call, or to one of several")),
            },
            _ => self.say(&error(UNKNOWN_METHOD, "this client does not do that")),
        }
    }

    /// The events of the only open call.
    fn only_call(&self) -> Option<mpsc::Sender<CallEvent>> {
        let state = self.state();
        let mut calls = state.open.values().filter_map(|open| open.events.as_ref());
        let only = calls.next()?.clone();
        calls.next().is_none().then_some(only)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks, and gives what the server was sent.
    async fn asked(queue: &mut mpsc::Receiver<Outgoing>) -> Value {
        serde_json::from_str(&queue.recv().await.unwrap().text).unwrap()
    }

    #[tokio::test]
    async fn each_request_gets_its_own_answer_once() {
        let (peer, mut queue) = Peer::new(json!([]));
        let ask = |method: &'static str| {
            let peer = peer.clone();
            tokio::spawn(async move { peer.request(method, json!({}), None).await.map(|raw| raw.get().to_owned()) })
        };
        let (one, two) = (ask("one"), ask("two"));
        let ids = [asked(&mut queue).await["id"].clone(), asked(&mut queue).await["id"].clone()];
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"no"}}}}"#, ids[1]),
            format!(r#"{{"jsonrpc":"2.0","id":"{}","result":{{"x":"\ud800"}}}}"#, ids[0]),
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":2}}"#, ids[0]),
            r#"{"jsonrpc":"2.0","id":99,"result":2}"#.to_owned(),
        ] {
            assert!(peer.receive(&line).is_none());
        }
        assert_eq!(one.await.unwrap().unwrap(), "{\"x\":\"\u{fffd}\"}");
        assert_eq!(two.await.unwrap(), Err(Failure::Refused { code: -1, message: "no".to_owned() }));
        assert!(matches!(peer.receive("hello"), Some(Said::Garbage(_))));
        assert!(matches!(peer.receive("{}"), Some(Said::Garbage(_))));
        peer.end("gone");
        assert_eq!(peer.request("x", json!({}), None).await.unwrap_err(), Failure::Ended("gone".into()));
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_is_cancelled_and_an_ended_connection_answers_all() {
        let (peer, mut queue) = Peer::new(json!([]));
        let (events, _progress) = Peer::events();
        let call = Call { events, headers: Vec::new() };
        let mut call = Box::pin(peer.request("tools/call", json!({}), Some(call)));
        assert!(futures_poll(&mut call).is_pending());
        let sent = asked(&mut queue).await;
        assert_eq!(sent["params"]["_meta"]["progressToken"], sent["id"]);
        drop(call);
        let cancelled = asked(&mut queue).await;
        assert_eq!(
            (&cancelled["method"], &cancelled["params"]["requestId"]),
            (&json!("notifications/cancelled"), &sent["id"])
        );
        assert!(peer.state().open.is_empty());
        let other = peer.clone();
        let waits = tokio::spawn(async move { other.request("x", json!({}), None).await.unwrap_err() });
        asked(&mut queue).await;
        peer.end("it crashed");
        assert_eq!(waits.await.unwrap(), Failure::Ended("it crashed".into()));
    }

    #[tokio::test]
    async fn what_a_server_asks_belongs_to_its_only_open_call() {
        let (peer, mut queue) = Peer::new(json!([{ "uri": "file:///w" }]));
        let elicit = r#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"who?"}}"#;
        assert!(peer.receive(elicit).is_none());
        assert_eq!(asked(&mut queue).await["error"]["code"], -32603);
        peer.receive(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#);
        assert_eq!(asked(&mut queue).await["result"]["roots"][0]["uri"], "file:///w");
        peer.receive(r#"{"jsonrpc":"2.0","id":8,"method":"sampling/createMessage"}"#);
        assert_eq!(asked(&mut queue).await["error"]["code"], UNKNOWN_METHOD);
        let (events, mut heard) = Peer::events();
        let other = peer.clone();
        let call = Call { events, headers: Vec::new() };
        let call = tokio::spawn(async move { other.request("tools/call", json!({}), Some(call)).await.is_ok() });
        let id = asked(&mut queue).await["id"].clone();
        peer.receive(
            &json!({ "method": "notifications/progress", "params": { "progressToken": id, "progress": 1 } })
                .to_string(),
        );
        assert!(matches!(heard.recv().await, Some(CallEvent::Progress(Progress { progress: 1.0, .. }))));
        peer.receive(elicit);
        let Some(CallEvent::Asked(ServerRequest { params, reply, .. })) = heard.recv().await else {
            panic!("no question")
        };
        assert_eq!(params["message"], "who?");
        reply.send(json!({ "action": "decline" })).unwrap();
        let answer = asked(&mut queue).await;
        assert_eq!((&answer["id"], &answer["result"]["action"]), (&json!("e"), &json!("decline")));
        peer.receive(&json!({ "id": id, "result": {} }).to_string());
        assert!(call.await.unwrap());
    }

    /// Polls once.
    fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> std::task::Poll<T> {
        future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }
}
