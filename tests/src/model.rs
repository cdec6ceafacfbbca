//! A scripted model server on 127.0.0.1 that speaks all five wire formats, byte for byte.
//!
//! It runs on a thread and a runtime of its own, so that a test that blocks does not stop it. Replies come from a queue (of one
//! model, or of all) or from a function; a request that nothing was scripted for is a violation. Every request is recorded and
//! checked (I4, see [`body`]); [`ModelServer::verify`] panics with what was found, and so does dropping the server.

pub mod body;
mod gate;
mod http;
mod record;
mod reply;
pub mod wellformed;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::TIMEOUT;
use crate::check::Stored;
use body::{Continuity, well_formed};
pub use gate::Gate;
use reply::Head;
pub use reply::{Reply, ReplyUsage};
pub use wire::{Format, Issued, PATIENCE, events};
use wire::{Piece, render};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Counted from 0 over all models.
    pub number: usize,
    /// The wire format, by the path.
    pub format: Format,
    /// The whole path.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as it came.
    pub body: Vec<u8>,
    /// The body read as JSON, or null; for a script null too if it is checked later.
    pub json: Value,
    /// When the whole request had arrived.
    pub at: Instant,
    /// When the last byte of the response had been written.
    pub answered_at: Option<Instant>,
}

impl Recorded {
    /// The model that was asked; one format has it in its path.
    pub fn model(&self) -> &str {
        let named = self.path.split_once("/models/").and_then(|(_, rest)| rest.split(':').next());
        self.json["model"].as_str().or(named).unwrap_or_default()
    }

    /// The messages, or what the format has in their place.
    pub fn list(&self) -> &[Value] {
        body::messages(&self.json)
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The messages, as text in which a test may look for words.
    pub fn messages(&self) -> String {
        let messages: Vec<String> = self.list().iter().map(Value::to_string).collect();
        format!("[{}]", messages.join(","))
    }

    /// Whether the last message is the result of a tool.
    pub fn after_tool(&self) -> bool {
        self.list().last().is_some_and(|last| {
            last["role"] == "tool"
                || last["type"] == "function_call_output"
                || last["content"][0]["type"] == "tool_result"
                || last["parts"][0]["functionResponse"].is_object()
        })
    }

    /// Whether a summary of older messages is asked for.
    pub fn is_summary(&self) -> bool {
        self.json["tools"].is_null() && self.last_words().starts_with("<transcript>")
    }

    /// The text of a user's last message.
    pub fn last_words(&self) -> String {
        self.texts_of_user().next().and_then(|mut texts| texts.pop()).unwrap_or_default()
    }

    /// The last words of the user, without what the daemon says of a mode after them.
    pub fn last_prompt(&self) -> String {
        let said = |texts: Vec<String>| texts.into_iter().rfind(|text| !text.is_empty() && !text.starts_with("[mode "));
        self.texts_of_user().find_map(said).unwrap_or_default()
    }

    /// The texts of the messages of the user, the last message first; an empty one in place of what is none.
    fn texts_of_user(&self) -> impl Iterator<Item = Vec<String>> {
        self.list().iter().rev().filter(|message| message["role"] == "user").map(|message| {
            match if message["parts"].is_array() { &message["parts"] } else { &message["content"] } {
                Value::String(text) => vec![text.clone()],
                Value::Array(blocks) => {
                    blocks.iter().map(|block| block["text"].as_str().unwrap_or_default().to_owned()).collect()
                }
                _ => Vec::new(),
            }
        })
    }
}

/// The share of the earlier of two requests that the later one begins with, as a prompt cache sees it (tools, system prompt, then
/// block after block), in bytes of JSON over all pairs of neighbours in `bodies`.
pub fn prefix_kept(bodies: &[Value]) -> f64 {
    let (mut kept, mut all) = (0, 0);
    for pair in bodies.windows(2) {
        let (before, after) = (wellformed::cached_parts(&pair[0]), wellformed::cached_parts(&pair[1]));
        let size = |part: &Value| part.to_string().len();
        all += before.iter().map(size).sum::<usize>();
        kept += before.iter().zip(&after).take_while(|(a, b)| a == b).map(|(part, _)| size(part)).sum::<usize>();
    }
    kept as f64 / all.max(1) as f64
}

type Script = Box<dyn FnMut(&Recorded) -> Reply + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Reply>,
    by_model: BTreeMap<String, VecDeque<Reply>>,
    script: Option<Script>,
    requests: Vec<Recorded>,
    continuity: Continuity,
    violations: Vec<String>,
    /// Requests are checked when somebody asks what was wrong with them, and not when they come.
    later: bool,
    /// How many requests are checked.
    checked: usize,
    key: Option<String>,
    /// What is answered to GET, by the path without its query.
    lists: BTreeMap<String, Value>,
}

impl State {
    /// Checks what was left for later; [`wellformed`] always is, as long turns would wait for it.
    fn check_rest(&mut self) {
        let later = self.later;
        for recorded in self.requests.iter_mut().skip(self.checked) {
            let mut wrong = Vec::new();
            if later {
                recorded.json = serde_json::from_slice(&recorded.body).unwrap_or_default();
                wrong = check(&mut self.continuity, recorded);
            }
            let own = wellformed::validate(recorded.format.kind(), &recorded.json).err();
            wrong.extend(own.into_iter().flatten());
            self.violations.extend(wrong.iter().map(|what| said(recorded, what)));
        }
        self.checked = self.requests.len();
    }
}

struct Shared {
    state: Mutex<State>,
    count: watch::Sender<usize>,
    /// Whether it should listen, and whether it does.
    wanted: watch::Sender<bool>,
    listens: watch::Sender<bool>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The server; it ends when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<tokio::runtime::Runtime>,
    verified: std::cell::Cell<bool>,
}

/// Serves connections, while that is wanted.
async fn listen(mut listener: TcpListener, shared: Arc<Shared>) {
    let Ok(address) = listener.local_addr() else { return };
    let mut wanted = shared.wanted.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let (shared, mut wanted) = (shared.clone(), shared.wanted.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        // A client that hangs up in the middle is part of many scripts.
                        _hung_up = serve(stream, &shared) => {}
                        () = becomes(&mut wanted, false) => {}
                    }
                });
            }
            () = becomes(&mut wanted, false) => {
                drop(listener);
                shared.listens.send_replace(false);
                becomes(&mut wanted, true).await;
                let Ok(again) = TcpListener::bind(address).await else { return };
                listener = again;
                shared.listens.send_replace(true);
            }
        }
    }
}

async fn becomes(wanted: &mut watch::Receiver<bool>, state: bool) {
    // The server, which has the sender, outlives its connections.
    let _ended = wanted.wait_for(|now| *now == state).await;
}

impl Default for ModelServer {
    fn default() -> Self {
        Self::start()
    }
}

impl ModelServer {
    /// Starts a server on a free port, without a script.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("model-server")
            .enable_all()
            .build()
            .expect("a runtime for the model server");
        let listener = runtime.block_on_free(TcpListener::bind("127.0.0.1:0"));
        let address = listener.local_addr().expect("the address of the model server");
        let (wanted, listens) = (watch::Sender::new(true), watch::Sender::new(true));
        let shared = Arc::new(Shared { state: Mutex::default(), count: watch::Sender::new(0), wanted, listens });
        runtime.spawn(listen(listener, shared.clone()));
        Self { address, shared, runtime: Some(runtime), verified: std::cell::Cell::new(false) }
    }

    /// Starts a server that answers these, one after the other.
    pub fn with(replies: impl IntoIterator<Item = Reply>) -> Self {
        let server = Self::start();
        server.push(replies);
        server
    }

    /// Starts a server that answers each request with what `script` gives.
    pub fn scripted(script: impl FnMut(&Recorded) -> Reply + Send + 'static) -> Self {
        let server = Self::start();
        server.otherwise(script);
        server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops listening and resets all connections, as a server that is stopped.
    pub async fn go_away(&self) {
        self.listen(false).await;
    }

    /// Listens again, at the same address.
    pub async fn come_back(&self) {
        self.listen(true).await;
    }

    async fn listen(&self, wanted: bool) {
        self.shared.wanted.send_replace(wanted);
        let mut listens = self.shared.listens.subscribe();
        let done = tokio::time::timeout(TIMEOUT, listens.wait_for(|listens| *listens == wanted)).await;
        assert!(done.is_ok(), "the model server does not listen, or does not stop");
    }

    /// More replies, for whoever asks.
    pub fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.state().queue.extend(replies);
    }

    /// More replies for one model; they go before those for all.
    pub fn push_for(&self, model: &str, replies: impl IntoIterator<Item = Reply>) {
        self.shared.state().by_model.entry(model.to_owned()).or_default().extend(replies);
    }

    /// What is answered when no queue has a reply.
    pub fn otherwise(&self, script: impl FnMut(&Recorded) -> Reply + Send + 'static) {
        self.shared.state().script = Some(Box::new(script));
    }

    /// Answers 401 to whoever does not bring this key.
    pub fn require_key(&self, key: &str) {
        self.shared.state().key = Some(key.to_owned());
    }

    /// What is answered at `path`, such as a list of models.
    pub fn list(&self, path: &str, list: Value) {
        self.shared.state().lists.insert(path.to_owned(), list);
    }

    /// From now on the prefix of a request may change: the test does something that names the change.
    pub fn expect_rewrites(&self) {
        self.shared.state().continuity.rewrites = true;
    }

    /// From now on requests are checked when they are looked at, and not when they come: a check takes longer with every
    /// request of a long turn, and leaves the caches of a machine that is measured to whoever comes next.
    pub fn check_later(&self) {
        self.shared.state().later = true;
    }

    /// Everything that was asked so far.
    pub fn requests(&self) -> Vec<Recorded> {
        let mut state = self.shared.state();
        state.check_rest();
        state.requests.clone()
    }

    /// How many requests have come so far.
    pub fn request_count(&self) -> usize {
        self.shared.state().requests.len()
    }

    /// Waits until `n` requests have come, and gives them.
    pub async fn wait_requests(&self, n: usize) -> Vec<Recorded> {
        let mut count = self.shared.count.subscribe();
        let came = tokio::time::timeout(TIMEOUT, count.wait_for(|count| *count >= n)).await.is_ok();
        let requests = self.requests();
        assert!(came, "{} of {n} model requests came within {TIMEOUT:?}", requests.len());
        requests
    }

    /// What was wrong with the requests so far.
    pub fn violations(&self) -> Vec<String> {
        let mut state = self.shared.state();
        state.check_rest();
        state.violations.iter().chain(state.continuity.unnamed()).cloned().collect()
    }

    /// Takes the events of the sessions that asked here: those that name a change of the prefix excuse it.
    pub fn named_by(&self, stored: &Stored) {
        let mut state = self.shared.state();
        state.check_rest();
        let events: Vec<&Value> = stored.0.values().flatten().map(|row| &row.event).collect();
        state.continuity.named(&events);
    }

    /// Panics with what was wrong with the requests.
    pub fn verify(&self) {
        self.verified.set(true);
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "the model server was sent what a provider would refuse:\n  {}",
            violations.join("\n  ")
        );
    }

    /// Forgets what was wrong: for tests of the server itself.
    pub fn forgive(&self) {
        let mut state = self.shared.state();
        state.violations.clear();
        state.continuity.forgive();
        state.checked = state.requests.len();
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if !std::thread::panicking() && !self.verified.get() {
            self.verify();
        }
    }
}

/// Blocks on a future although the caller may be inside a runtime already.
trait BlockOnFree {
    fn block_on_free<T: Send + 'static>(&self, future: impl Future<Output = io::Result<T>> + Send + 'static) -> T;
}

impl BlockOnFree for tokio::runtime::Runtime {
    fn block_on_free<T: Send + 'static>(&self, future: impl Future<Output = io::Result<T>> + Send + 'static) -> T {
        let (send, receive) = std::sync::mpsc::channel();
        self.spawn(async move { send.send(future.await).expect("the caller waits") });
        receive.recv().expect("the runtime answers").expect("a free port")
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = http::read_request(&mut stream).await? {
        let is_listed = shared.state().lists.contains_key(request.path.split('?').next().unwrap_or_default());
        if request.method == "GET" || is_listed {
            let (status, body) = listed(&shared.state(), &request);
            http::write_plain(&mut stream, status, &[], body.to_string().as_bytes()).await?;
            continue;
        }
        let format = Format::at(&request.path);
        let Some(format) = format.filter(|_| request.method == "POST") else {
            http::write_plain(&mut stream, 404, &[], b"{\"error\":{\"message\":\"no such path\"}}").await?;
            continue;
        };
        let (reply, number) = admit(shared, request, format);
        let Some(reply) = reply else {
            http::write_plain(&mut stream, 401, &[], b"{\"error\":{\"message\":\"invalid api key\"}}").await?;
            continue;
        };
        let go_on = answer(&mut stream, shared, &reply, format, number).await?;
        shared.state().requests[number].answered_at = Some(Instant::now());
        if !go_on {
            return Ok(());
        }
    }
    Ok(())
}

/// Records and checks a request; gives the reply, or none when its key is wrong.
fn admit(shared: &Shared, request: http::Request, format: Format) -> (Option<Reply>, usize) {
    let at = Instant::now(); // What follows takes longer with every request of a long turn.
    let mut state = shared.state();
    let state = &mut *state;
    let number = state.requests.len();
    let http::Request { path, headers, body, .. } = request;
    let json = if state.later { Value::Null } else { serde_json::from_slice(&body).unwrap_or_default() };
    let recorded = Recorded { number, format, path, headers, body, json, at, answered_at: None };
    let mut wrong = if state.later { Vec::new() } else { check(&mut state.continuity, &recorded) };
    let refused = state.key.as_deref().is_some_and(|wanted| key(&recorded.headers) != Some(wanted));
    let reply = if refused { None } else { Some(next_reply(state, &recorded, &mut wrong)) };
    state.violations.extend(wrong.iter().map(|what| said(&recorded, what)));
    state.requests.push(recorded);
    if !state.later {
        state.checked = state.requests.len();
    }
    let count = state.requests.len();
    shared.count.send_replace(count);
    (reply, number)
}

/// The key that a request brings, in whichever header.
fn key(headers: &[(String, String)]) -> Option<&str> {
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let bearer = || header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    header("x-api-key").or_else(|| header("x-goog-api-key")).or_else(bearer)
}

/// The list that a GET asks for.
fn listed(state: &State, request: &http::Request) -> (u16, Value) {
    if state.key.as_deref().is_some_and(|wanted| key(&request.headers) != Some(wanted)) {
        return (401, json!({ "error": { "message": "invalid api key" } }));
    }
    let path = request.path.split('?').next().unwrap_or_default();
    let none = || (404, json!({ "error": { "message": "no such path" } }));
    state.lists.get(path).map_or_else(none, |list| (200, list.clone()))
}

/// What is wrong with a request in the light of those before.
fn check(continuity: &mut Continuity, recorded: &Recorded) -> Vec<String> {
    record::request(recorded.format, &recorded.json);
    let mut wrong = well_formed(recorded.format, &recorded.body);
    if wrong.is_empty() {
        wrong = continuity.admit(recorded.format, recorded.model(), &recorded.json);
    }
    if !recorded.header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
        wrong.push("content-type is not application/json".to_owned());
    }
    if recorded.format == Format::Anthropic && recorded.header("anthropic-version").is_none() {
        wrong.push("no anthropic-version".to_owned());
    }
    wrong
}

fn said(recorded: &Recorded, what: &str) -> String {
    format!("request {} ({}): {what}", recorded.number, recorded.model())
}

fn next_reply(state: &mut State, recorded: &Recorded, wrong: &mut Vec<String>) -> Reply {
    let own = state.by_model.get_mut(recorded.model()).and_then(VecDeque::pop_front);
    if let Some(reply) = own.or_else(|| state.queue.pop_front()) {
        return reply;
    }
    if let Some(script) = &mut state.script {
        return script(recorded);
    }
    wrong.push("nothing was scripted for it".to_owned());
    Reply::status(400).body(r#"{"error":{"message":"the test scripted no reply"}}"#)
}

/// Writes a response; says whether the connection can be used again.
async fn answer(
    stream: &mut BufReader<TcpStream>,
    shared: &Shared,
    reply: &Reply,
    format: Format,
    number: usize,
) -> io::Result<bool> {
    let content_type = match &reply.head {
        Head::Plain { status, headers, body, error } => {
            let said =
                || format.error_body(*status, error, &format!("scripted status {status}")).to_string().into_bytes();
            let body = body.clone().unwrap_or_else(said);
            http::write_plain(stream, *status, headers, &body).await?;
            return Ok(true);
        }
        Head::Reset => {
            // With no time to linger the kernel sends RST and not FIN.
            stream.get_ref().set_zero_linger()?;
            return Ok(false);
        }
        Head::Typed(kind) => kind,
        Head::Stream => format.content_type(),
    };
    let model = shared.state().requests[number].model().to_owned();
    let (pieces, issued) = render(reply, format, &model, number);
    record::response(format, reply, &pieces);
    shared.state().continuity.issue(issued);
    http::write_head(stream, content_type).await?;
    let mut bytes = Vec::new();
    for piece in &pieces {
        match piece {
            // The events between two gates go out together: what a test measures must not be this server.
            Piece::Bytes(piece) => {
                http::chunk(piece, &mut bytes);
                if bytes.len() >= 16 << 10 {
                    stream.write_all(&bytes).await?;
                    bytes.clear();
                }
            }
            Piece::Gate(gate) => {
                stream.write_all(&bytes).await?;
                bytes.clear();
                let mut scratch = [0; 1];
                tokio::select! {
                    () = gate.pass() => {}
                    // Whoever asked has gone: there is nobody to go on for.
                    _ = stream.get_mut().read(&mut scratch) => return Ok(false),
                }
            }
            Piece::Cut => {
                stream.write_all(&bytes).await?;
                return Ok(false);
            }
            Piece::Stall => {
                stream.write_all(&bytes).await?;
                let mut scratch = [0; 1];
                let _gone = stream.get_mut().read(&mut scratch).await;
                return Ok(false);
            }
        }
    }
    http::chunk(b"", &mut bytes);
    stream.write_all(&bytes).await?;
    Ok(true)
}

#[cfg(test)]
mod tests;
