//! The JSON-RPC of MCP: requests with their answers, progress and cancellation, whatever carries the messages.
//!
//! A [`Peer`] is shared by all who ask one server. A transport takes messages from the queue that [`Peer::new`] gives, and brings
//! what the server says to [`Peer::receive`]. Dropping a request before its answer tells the server that it is cancelled.
//! Deliberately absent: processes, HTTP, and the meaning of methods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::jsonrpc::{self, Incoming, described, id_in, number};
use crate::sys::task;
use crate::tool::text;

/// Messages that wait for the server to read them; a server that does not read makes its requests wait, and loses the rest.
const QUEUE: usize = 64;

/// Events of one request that wait for its caller; progress beyond that is dropped.
const EVENTS: usize = 16;

/// Questions of a server that wait until it is known which call they belong to, at most.
const MAX_HELD: usize = 16;

/// How long such a question waits; then it is asked in a session that may be another's.
const HOLD: Duration = Duration::from_secs(60);

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

/// A question of which it is not known which call it belongs to.
#[derive(Debug)]
struct HeldQuestion {
    id: Value,
    method: String,
    params: Value,
    /// When it waits no longer.
    until: Instant,
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
                self.question(HeldQuestion { id, method, params, until: Instant::now() + HOLD }, channel);
            }
            _ => self.refuse(id, UNKNOWN_METHOD, "this client does not have that method"),
        }
    }

    /// Asks a question where it belongs: by the stream that it came on, or because only one call is open. Else it is held.
    fn question(&self, question: HeldQuestion, channel: Channel) {
        let of_stream = match channel {
            Channel::StreamOf(id) | Channel::ReplyTo(id) => {
                self.state().open.get(&id).and_then(|open| open.events.clone())
            }
            Channel::Shared => None,
        };
        if let Some(events) = of_stream {
            return self.ask_in(&events, question, true);
        }
        let id = question.id.clone();
        {
            let mut state = self.state();
            if state.held.len() >= MAX_HELD {
                drop(state);
                return self.refuse(id, -32603, "too many questions wait");
            }
            state.held.push(question);
        }
        self.release();
        if self.state().held.iter().any(|held| held.id == id) {
            let peer = self.clone();
            task::spawn(async move {
                sleep(HOLD).await;
                peer.release();
            });
        }
    }

    /// Asks the held questions of which it is known by now which call they belong to: one call is left, or each open call has one.
    /// One that has waited long is asked as well as can be.
    fn release(&self) {
        let (asked, refused) = {
            let mut state = self.state();
            if state.held.is_empty() {
                return;
            }
            let mut calls: Vec<(u64, mpsc::Sender<CallEvent>)> =
                state.open.iter().filter_map(|(id, open)| Some((*id, open.events.clone()?))).collect();
            calls.sort_by_key(|(id, _)| *id);
            let now = Instant::now();
            let held = std::mem::take(&mut state.held);
            match calls.len() {
                0 => (Vec::new(), held),
                open => {
                    let is_due = open == 1 || held.len() >= open;
                    let (due, left): (Vec<_>, Vec<_>) = held.into_iter().partition(|it| is_due || it.until <= now);
                    state.held = left;
                    // Calls and questions come in the same order, most likely.
                    let calls = calls.into_iter().map(|(_, events)| events).cycle();
                    (
                        due.into_iter().zip(calls).map(|(question, events)| (question, events, open == 1)).collect(),
                        Vec::new(),
                    )
                }
            }
        };
        for (question, events, is_certain) in asked {
            self.ask_in(&events, question, is_certain);
        }
        for question in refused {
            self.refuse(question.id, -32603, "the question belongs to no call");
        }
    }

    fn ask_in(&self, events: &mpsc::Sender<CallEvent>, question: HeldQuestion, is_certain: bool) {
        let HeldQuestion { id, method, params, .. } = question;
        let (reply, answer) = oneshot::channel();
        let asked = CallEvent::Asked(ServerRequest { method, params, is_certain, reply });
        const LATE: &str = "the question cannot be asked now";
        if events.try_send(asked).is_err() {
            return self.refuse(id, -32603, LATE);
        }
        let peer = self.clone();
        task::spawn(async move {
            match answer.await {
                Ok(answer) => peer.say(&json!({ "jsonrpc": "2.0", "id": id, "result": answer })),
                Err(_) => peer.refuse(id, -32603, LATE),
            }
        });
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
    Failure::Unreadable(text::head(text.trim(), MAX_UNREADABLE).to_owned())
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
            assert!(peer.receive(&line, Channel::Shared).is_empty());
        }
        assert_eq!(one.await.unwrap().unwrap(), "{\"x\":\"\u{fffd}\"}");
        assert_eq!(two.await.unwrap(), Err(Failure::Refused { code: -1, message: "no".to_owned() }));
        assert!(matches!(&peer.receive("hello", Channel::Shared)[..], [Said::Garbage(_)]));
        assert!(matches!(&peer.receive("{}", Channel::Shared)[..], [Said::Garbage(_)]));
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
        assert!(peer.receive(elicit, Channel::Shared).is_empty());
        assert_eq!(asked(&mut queue).await["error"]["code"], -32603);
        peer.receive(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#, Channel::Shared);
        assert_eq!(asked(&mut queue).await["result"]["roots"][0]["uri"], "file:///w");
        peer.receive(r#"{"jsonrpc":"2.0","id":8,"method":"sampling/createMessage"}"#, Channel::Shared);
        assert_eq!(asked(&mut queue).await["error"]["code"], UNKNOWN_METHOD);
        let (events, mut heard) = Peer::events();
        let other = peer.clone();
        let call = Call { events, headers: Vec::new() };
        let call = tokio::spawn(async move { other.request("tools/call", json!({}), Some(call)).await.is_ok() });
        let id = asked(&mut queue).await["id"].clone();
        peer.receive(
            &json!({ "method": "notifications/progress", "params": { "progressToken": id, "progress": 1 } })
                .to_string(),
            Channel::Shared,
        );
        assert!(matches!(heard.recv().await, Some(CallEvent::Progress(Progress { progress: 1.0, .. }))));
        peer.receive(elicit, Channel::Shared);
        let Some(CallEvent::Asked(ServerRequest { params, reply, .. })) = heard.recv().await else {
            panic!("no question")
        };
        assert_eq!(params["message"], "who?");
        reply.send(json!({ "action": "decline" })).unwrap();
        let answer = asked(&mut queue).await;
        assert_eq!((&answer["id"], &answer["result"]["action"]), (&json!("e"), &json!("decline")));
        peer.receive(&json!({ "id": id, "result": {} }).to_string(), Channel::Shared);
        assert!(call.await.unwrap());
    }

    /// Asks `n` requests that are calls, and gives their answers, events and numbers.
    async fn calls(
        peer: &Peer,
        queue: &mut mpsc::Receiver<Outgoing>,
        n: usize,
    ) -> Vec<(tokio::task::JoinHandle<Result<String, Failure>>, mpsc::Receiver<CallEvent>, Value)> {
        let mut all = Vec::new();
        for _ in 0..n {
            let ((events, heard), other) = (Peer::events(), peer.clone());
            let call = Call { events, headers: Vec::new() };
            let call = tokio::spawn(async move {
                other.request("tools/call", json!({}), Some(call)).await.map(|raw| raw.get().to_owned())
            });
            all.push((call, heard, asked(queue).await["id"].clone()));
        }
        all
    }

    #[tokio::test]
    async fn an_answer_that_is_no_perfect_message_ends_its_call_at_once_with_its_reason() {
        let refused = |code: i64, message: &str| Err(Failure::Refused { code, message: message.to_owned() });
        let unreadable = |text: &str| Err(Failure::Unreadable(text.to_owned()));
        for (line, expect) in [
            (r#"{"id":ID,"error":"no paper"}"#, refused(0, "no paper")),
            (r#"{"id":ID,"error":["no","paper"]}"#, refused(0, r#"["no","paper"]"#)),
            (r#"{"id":"ID","error":{"code":"E_PAPER","message":"no paper"}}"#, refused(0, "E_PAPER: no paper")),
            (
                r#"{"id":ID.0,"error":{"code":-32602,"message":"no","data":["paper"]}}"#,
                refused(-32602, "no: [\"paper\"]"),
            ),
            (r#"{"id":null,"error":{"code":-32603,"message":"no paper"}}"#, refused(-32603, "no paper")),
            (r#"{"error":{"message":"no paper"}}"#, refused(0, "no paper")),
            (r#"{"id":ID,"result":{"n":-Infinity}}"#, Ok(r#"{"n":null}"#.to_owned())),
            (r#"[{"id":ID,"result":[]}]"#, Ok("[]".to_owned())),
            ("\u{feff}{\"id\":ID,\"result\":null}", Ok("null".to_owned())),
            (r#"{"id":ID,"result":{"text":"cut"#, unreadable(r#"{"id":ID,"result":{"text":"cut"#)),
            (r#"{"id":ID,"status":"no paper"}"#, unreadable(r#"{"id":ID,"status":"no paper"}"#)),
        ] {
            let (peer, mut queue) = Peer::new(json!([]));
            let (call, _heard, id) = calls(&peer, &mut queue, 1).await.remove(0);
            let (line, id) = (line.to_owned(), id.to_string());
            assert!(peer.receive(&line.replace("ID", &id), Channel::Shared).is_empty(), "{line}");
            let expect = expect.map_err(|failure| match failure {
                Failure::Unreadable(text) => Failure::Unreadable(text.replace("ID", &id)),
                other => other,
            });
            assert_eq!(call.await.unwrap(), expect, "{line}");
        }
    }

    #[tokio::test]
    async fn what_may_belong_to_several_calls_or_to_none_ends_no_call() {
        let (peer, mut queue) = Peer::new(json!([]));
        let open = calls(&peer, &mut queue, 2).await;
        for line in [r#"{"id":null,"error":"no paper"}"#, r#"{"level":"info","message":"up"}"#, "{\"id\": 99, x", "up"]
        {
            assert!(matches!(&peer.receive(line, Channel::Shared)[..], [Said::Garbage(_)]), "{line}");
        }
        // The reply to a post is that of its request, whatever its id.
        peer.receive(r#"{"id":"server-error","error":"no paper"}"#, Channel::ReplyTo(2));
        peer.receive("<html>", Channel::ReplyTo(1));
        let mut failures = Vec::new();
        for (call, ..) in open {
            failures.push(call.await.unwrap().unwrap_err().to_string());
        }
        assert_eq!(failures, ["its answer cannot be read: <html>", "no paper"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_may_be_of_several_calls_is_asked_where_it_came_from_or_waits() {
        let elicit =
            |id: &str| json!({ "id": id, "method": "elicitation/create", "params": { "message": id } }).to_string();
        let message = |event: Option<CallEvent>| match event {
            Some(CallEvent::Asked(ServerRequest { params, is_certain, .. })) => (params["message"].clone(), is_certain),
            other => panic!("{other:?}"),
        };
        let (peer, mut queue) = Peer::new(json!([]));
        let mut open = calls(&peer, &mut queue, 2).await;
        // By its stream.
        peer.receive(&elicit("streamed"), Channel::StreamOf(2));
        assert_eq!(message(open[1].1.recv().await), (json!("streamed"), true));
        // Held until the other call is over.
        peer.receive(&elicit("held"), Channel::Shared);
        assert!(open.iter_mut().all(|(_, heard, _)| heard.try_recv().is_err()));
        peer.receive(&json!({ "id": open[0].2, "result": {} }).to_string(), Channel::Shared);
        assert_eq!(message(open[1].1.recv().await), (json!("held"), true));
        // When each call has asked, none would ever be over.
        let mut more = calls(&peer, &mut queue, 1).await;
        peer.receive(&elicit("one"), Channel::Shared);
        peer.receive(&elicit("two"), Channel::Shared);
        assert_eq!(message(open[1].1.recv().await), (json!("one"), false));
        assert_eq!(message(more[0].1.recv().await), (json!("two"), false));
        // And one alone does not wait for ever; a server may take it back.
        peer.receive(&elicit("late"), Channel::Shared);
        assert_eq!(message(open[1].1.recv().await), (json!("late"), false));
        peer.receive(&elicit("back"), Channel::Shared);
        peer.receive(r#"{"method":"notifications/cancelled","params":{"requestId":"back"}}"#, Channel::Shared);
        assert!(peer.state().held.is_empty());
    }

    /// Polls once.
    fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> std::task::Poll<T> {
        future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }
}
