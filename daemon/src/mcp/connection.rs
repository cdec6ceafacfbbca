//! One connection to a server: its start, its tools, and calls.
//!
//! A [`Connection`] owns the child. It ends when it is closed or dropped, or when the server ends; every open request fails then.
//! Deliberately absent: when a server is started, and who shares it.

use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::heard::Heard;
use super::http::Address;
use super::jsonrpc::Assembler;
use super::lines::{Log, MAX_MESSAGE, next_line};
use super::listing::{Listing, MAX_TOOLS, ToolInfo};
use super::peer::{Call, CallEvent, Channel, Failure, Outgoing, Peer, Progress, ServerRequest, UNKNOWN_METHOD};
use super::result::CallResult;
use super::settings::{PER_REQUEST, PROTOCOL, ServerConfig};
use crate::process::server::{Life, Server as Child, Spawn};
use crate::sys::clock;
use crate::sys::task;
use crate::tool::BoxFuture;

/// The hint for a server of the transport before Streamable HTTP.
const OLDER: &str = "it speaks the older HTTP+SSE transport, which linger does not: `mcp-proxy` or `mcp-remote` translates, \
    or the server has another address for Streamable HTTP, often /mcp";

/// JSON-RPC's code for a revision of the protocol that a server does not speak.
const UNSUPPORTED_VERSION: i64 = -32022;

/// How often a server may want input for one call, and how much at once: forms for a person.
const MAX_ROUNDS: usize = 16;
const MAX_INPUTS: usize = 8;

/// The pause before a server is asked again to say when its tools change.
const LISTEN_PAUSE: Duration = Duration::from_secs(60);

/// The longest line of standard error, in bytes.
const MAX_ERROR_LINE: usize = 64 << 10;

/// How long a server that has ended may take to be read to its end, and one that has closed its output to end.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long the rest of a message may take that was printed over several lines.
const REST: Duration = Duration::from_secs(1);

/// The most pages of a list of tools.
const MAX_PAGES: usize = 64;

/// The server's description of itself, from the handshake.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Info {
    /// The revision of the protocol that both speak.
    pub(super) protocol_version: String,
    /// Its name and version.
    pub(super) server_info: Implementation,
    /// The `tools` of its capabilities; absent if it has none.
    tools: Option<Value>,
}

/// A program's name and version; empty where it does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Implementation {
    pub(super) name: String,
    pub(super) version: String,
}

impl Implementation {
    fn of(info: &Value) -> Self {
        let text = |name: &str| match info.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        Self { name: text("name"), version: text("version") }
    }
}

/// The `tools` of the capabilities in an answer.
fn tools_of(answer: &Value) -> Option<Value> {
    answer.pointer("/capabilities/tools").filter(|tools| !tools.is_null() && **tools != false).cloned()
}

/// How a call ended that has no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The server, or its answer, or the connection.
    Failure(Failure),
    /// It cannot go on: the server wants what linger does not give.
    Unfit(String),
    /// Nothing was heard of it for too long.
    TimedOut,
}

/// Gets what comes of a call before its result.
pub(super) trait Hears: Send {
    /// Shows how far the call has come; the next event waits for it.
    fn progress(&mut self, progress: Progress) -> BoxFuture<'_, ()>;
    /// Answers a question of the server; takes days if need be.
    fn asked(&mut self, asked: ServerRequest) -> BoxFuture<'static, ()>;
}

/// A running server.
#[derive(Debug)]
pub(super) struct Connection {
    /// The server's description of itself.
    pub(super) info: Info,
    /// Its process.
    pub(super) pid: Option<u32>,
    /// Its tools may have changed.
    pub(super) changed: Arc<Notify>,
    /// How many calls run.
    pub(super) calls: watch::Sender<usize>,
    peer: Peer,
    ended: CancellationToken,
    tasks: Vec<AbortOnDropHandle<()>>,
    /// A connection that is dropped has ended.
    _ends: DropGuard,
}

impl Connection {
    /// Starts a child and agrees on a protocol. Dropping the future ends the child.
    pub(super) async fn start(
        config: &ServerConfig,
        command: &str,
        spawn: &Spawn,
        roots: Value,
        log: &Log,
    ) -> Result<Self, String> {
        let began = clock::now();
        let Child { input, output, errors, life } = spawn
            .server(command, &config.args)
            .await
            .map_err(|error| format!("{command} could not be started: {error}"))?;
        let (mut connection, queue, heard) = Self::new(Some(life.pid), roots, log);
        let reading = task::spawn(read(output, heard.clone()));
        let errors = task::spawn(read_errors(errors, log.clone()));
        let (peer, ended, log) = (heard.peer.clone(), heard.ended.clone(), log.clone());
        connection.run(write(queue, input));
        connection.run(keep(reading, errors, life, peer, ended, move || log.tail(began)));
        connection.begin(config).await?;
        Ok(connection)
    }

    /// Agrees on a protocol with the server at an address.
    pub(super) async fn reach(
        config: &ServerConfig,
        address: Address,
        roots: Value,
        log: &Log,
    ) -> Result<Self, String> {
        let (mut connection, queue, heard) = Self::new(None, roots, log);
        connection.run(address.clone().carry(queue, heard.clone()));
        if let Err(why) = connection.begin(config).await {
            return Err(if address.is_older().await { format!("{why}; {OLDER}") } else { why });
        }
        if !connection.peer.is_per_request() {
            address.agreed(&connection.info.protocol_version);
            // It outlives the connection.
            task::spawn(address.clone().end_session(connection.ended.clone()));
            connection.run(address.listen(heard));
        }
        Ok(connection)
    }

    fn new(pid: Option<u32>, roots: Value, log: &Log) -> (Self, mpsc::Receiver<Outgoing>, Arc<Heard>) {
        let (peer, queue) = Peer::new(roots);
        let (changed, ended) = (Arc::new(Notify::new()), CancellationToken::new());
        let (logged, log) = (AtomicU32::new(0), log.clone());
        let heard = Heard { peer: peer.clone(), log, logged, changed: changed.clone(), ended: ended.clone() };
        let (info, calls) = (Info::default(), watch::Sender::new(0));
        let _ends = ended.clone().drop_guard();
        (Self { info, pid, changed, calls, peer, ended, tasks: Vec::new(), _ends }, queue, Arc::new(heard))
    }

    /// Runs a task as long as the connection lives.
    fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(AbortOnDropHandle::new(task::spawn(task)));
    }

    /// Agrees on a protocol. A handshake comes first, because nearly every server knows it; one that refuses it may be of the era
    /// without.
    async fn begin(&mut self, config: &ServerConfig) -> Result<(), String> {
        let hello = match config.protocol.as_deref() {
            Some(PER_REQUEST) => self.discover().await,
            Some(_) => self.hello().await,
            None => match self.hello().await {
                Err(refused @ (Failure::Refused { .. } | Failure::Unreadable(_) | Failure::NotTaken(_))) => {
                    self.discover().await.map_err(|_| refused)
                }
                hello => hello,
            },
        };
        self.info = hello.map_err(|failure| failure.to_string())?;
        let tells = self.info.tools.as_ref().and_then(|tools| tools.get("listChanged"));
        if self.peer.is_per_request() && tells == Some(&Value::Bool(true)) {
            self.run(listen(self.peer.clone()));
        }
        Ok(())
    }

    /// Asks a server of the era without a handshake what it speaks. From then on each request says what we speak.
    async fn discover(&self) -> Result<Info, Failure> {
        let key = |name: &str| format!("io.modelcontextprotocol/{name}");
        let said =
            [("protocolVersion", json!(PER_REQUEST)), ("clientCapabilities", capabilities()), ("clientInfo", client())];
        self.peer.say_with_each(said.into_iter().map(|(name, value)| (key(name), value)).collect());
        let mut answer = self.peer.request("server/discover", json!({}), None).await;
        if matches!(answer, Err(Failure::Refused { code: UNSUPPORTED_VERSION, .. })) {
            // One that speaks several revisions may have to be asked again; we speak this one alone.
            answer = self.peer.request("server/discover", json!({}), None).await;
        }
        let answer: Value = serde_json::from_str(answer?.get()).unwrap_or_default();
        let versions = answer.get("supportedVersions").and_then(Value::as_array);
        if !versions.is_some_and(|versions| versions.iter().any(|version| version == PER_REQUEST)) {
            let why = format!("its answer to `server/discover` names no protocol that linger speaks ({PER_REQUEST})");
            return Err(Failure::Ended(why.into()));
        }
        let server_info = answer.get("_meta").and_then(|meta| meta.get(key("serverInfo"))).map(Implementation::of);
        let (server_info, tools) = (server_info.unwrap_or_default(), tools_of(&answer));
        Ok(Info { protocol_version: PER_REQUEST.to_owned(), server_info, tools })
    }

    /// The handshake.
    async fn hello(&self) -> Result<Info, Failure> {
        let params = json!({ "protocolVersion": PROTOCOL, "capabilities": capabilities(), "clientInfo": client() });
        let answer = self.peer.request("initialize", params, None).await?;
        self.peer.notify("notifications/initialized", json!({}));
        let answer: Value = serde_json::from_str(answer.get()).unwrap_or_default();
        if !answer.is_object() {
            return Err(Failure::Ended(format!("its answer to `initialize` is no object: {answer}").into()));
        }
        let protocol_version = answer.get("protocolVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let server_info = answer.get("serverInfo").map(Implementation::of).unwrap_or_default();
        Ok(Info { protocol_version, server_info, tools: tools_of(&answer) })
    }

    /// Asks for its tools.
    pub(super) async fn list(&self, server: &str) -> Result<Listing, String> {
        if self.info.tools.is_none() {
            return Ok(Listing::default());
        }
        match self.pages("tools/list", "tools", MAX_TOOLS + 1).await {
            Ok((items, end)) => {
                let mut listing = Listing::of(server, &items);
                listing.problems.extend(match end {
                    ListEnd::Whole => None,
                    ListEnd::TooLong => Some(format!("its tools after the first {MAX_PAGES} pages are left out")),
                    ListEnd::Circle => {
                        Some("its list of tools goes in a circle: a page names itself as the next".to_owned())
                    }
                });
                Ok(listing)
            }
            Err(Failure::Refused { code: UNKNOWN_METHOD, .. }) => Ok(Listing::default()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// The items of a list that comes in pages, at most `max`, and how it ended.
    pub(super) async fn pages(&self, method: &str, key: &str, max: usize) -> Result<(Vec<Value>, ListEnd), Failure> {
        let mut items = Vec::new();
        let mut cursors: Vec<Value> = Vec::new();
        for _ in 0..MAX_PAGES {
            let params = cursors.last().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page: Value = serde_json::from_str(&self.ask(method, params).await?).unwrap_or_default();
            let Some(listed) = page.get_mut(key).map(Value::take).and_then(items_of) else {
                return Err(Failure::Unreadable(format!("its list of {key} is no list")));
            };
            items.extend(listed.into_iter().take(max.saturating_sub(items.len())));
            let cursor = page.get("nextCursor").filter(|cursor| !cursor.is_null() && **cursor != "").cloned();
            let Some(cursor) = cursor.filter(|_| items.len() < max) else { return Ok((items, ListEnd::Whole)) };
            if cursors.contains(&cursor) {
                return Ok((items, ListEnd::Circle));
            }
            cursors.push(cursor);
        }
        Ok((items, ListEnd::TooLong))
    }

    /// Asks for something that is no call of a tool, and gives the JSON of the answer.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<String, Failure> {
        Ok(self.peer.request(method, params, None).await?.get().to_owned())
    }

    /// While the guard lives, the server is not idle.
    pub(super) fn used(&self) -> impl Drop + use<'_> {
        Counted::new(&self.calls)
    }

    /// Calls a tool; `heard` gets what comes before the result. Fails when nothing is heard of it for `limit`.
    pub(super) async fn call(
        &self,
        tool: &ToolInfo,
        arguments: &Value,
        limit: Duration,
        heard: &mut dyn Hears,
    ) -> Result<CallResult, CallError> {
        let _counted = Counted::new(&self.calls);
        let mut params = json!({ "name": tool.tool, "arguments": arguments });
        let headers = tool.headers_of(arguments);
        for _ in 0..MAX_ROUNDS {
            let answer = self.call_once(params.clone(), headers.clone(), limit, heard).await?;
            let wanted = if self.peer.is_per_request() { wanted(answer.get()) } else { None };
            let Some(wanted) = wanted else { return Ok(CallResult::parse(answer.get())) };
            let responses = self.inputs(wanted.input_requests, heard).await?;
            if let Some(params) = params.as_object_mut() {
                params.insert("inputResponses".to_owned(), Value::Object(responses));
                params.extend(wanted.request_state.map(|state| ("requestState".to_owned(), state)));
            }
        }
        Err(CallError::Unfit(format!("it wanted input more than {MAX_ROUNDS} times")))
    }

    /// The input that a server wants before a call can go on; people may have to give it.
    async fn inputs(&self, wanted: Map<String, Value>, heard: &mut dyn Hears) -> Result<Map<String, Value>, CallError> {
        if wanted.len() > MAX_INPUTS {
            return Err(CallError::Unfit(format!("it wanted {} inputs at once", wanted.len())));
        }
        let mut given = Map::new();
        for (name, mut request) in wanted {
            let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
            let answer = match method.as_str() {
                "roots/list" => self.peer.roots(),
                "elicitation/create" => {
                    let params = request.get_mut("params").map(Value::take).unwrap_or_default();
                    let (reply, answer) = oneshot::channel();
                    heard.asked(ServerRequest { method, params, is_certain: true, reply }).await;
                    answer.await.unwrap_or_else(|_| json!({ "action": "cancel" }))
                }
                _ => return Err(CallError::Unfit("it wanted an input that linger does not give".to_owned())),
            };
            given.insert(name, answer);
        }
        Ok(given)
    }

    async fn call_once(
        &self,
        params: Value,
        headers: Vec<(String, String)>,
        limit: Duration,
        heard: &mut dyn Hears,
    ) -> Result<Box<RawValue>, CallError> {
        let (events, mut hears) = Peer::events();
        let request = self.peer.request("tools/call", params, Some(Call { events, headers }));
        tokio::pin!(request);
        let mut deadline = Instant::now() + limit;
        loop {
            tokio::select! {
                biased;
                Some(event) = hears.recv() => {
                    match event {
                        CallEvent::Progress(progress) => heard.progress(progress).await,
                        CallEvent::Asked(asked) => tokio::select! {
                            () = heard.asked(asked) => {}
                            answer = &mut request => return answer.map_err(CallError::Failure),
                        },
                    }
                    deadline = Instant::now() + limit;
                }
                answer = &mut request => return answer.map_err(CallError::Failure),
                () = sleep_until(deadline) => return Err(CallError::TimedOut),
            }
        }
    }

    /// Whether it takes no requests any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Waits until the server has ended, and says why.
    pub(super) async fn ended(&self) -> String {
        self.ended.cancelled().await;
        self.peer.why_ended().to_string()
    }

    /// Ends the server; its open calls fail with this.
    pub(super) fn close(&self, why: &str) {
        self.peer.end(why);
        self.ended.cancel();
    }
}

/// This client's name and version, for a server.
fn client() -> Value {
    json!({ "name": "linger", "version": linger_protocol::VERSION })
}

/// The requests that a server may send to this client.
fn capabilities() -> Value {
    json!({ "roots": {}, "elicitation": { "form": {} } })
}

/// The end of a list in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListEnd {
    /// It came to its end, or has as many items as are wanted.
    Whole,
    /// It has more pages than are read.
    TooLong,
    /// A page names one that was read as the next.
    Circle,
}

/// The items of a list. Some languages write an empty one as an object, and one that is not as an object with numbers for keys.
fn items_of(list: Value) -> Option<Vec<Value>> {
    let items = match list {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        Value::Object(fields) if fields.keys().all(|key| key.parse::<u64>().is_ok()) => {
            let mut numbered: Vec<(u64, Value)> =
                fields.into_iter().filter_map(|(key, value)| Some((key.parse().ok()?, value))).collect();
            numbered.sort_by_key(|(number, _)| *number);
            numbered.into_iter().map(|(_, value)| value).collect()
        }
        _ => return None,
    };
    Some(items.into_iter().filter(|item| !item.is_null()).collect())
}

/// The input that a result wants which is none yet.
struct InputRequired {
    input_requests: Map<String, Value>,
    request_state: Option<Value>,
}

/// The input that a result wants, if it is none yet.
fn wanted(result: &str) -> Option<InputRequired> {
    let mut result: Value = serde_json::from_str(result).ok()?;
    if result.get("resultType")? != "input_required" {
        return None;
    }
    let mut take = |name: &str| result.get_mut(name).map(Value::take).filter(|value| !value.is_null());
    let input_requests = match take("inputRequests") {
        Some(Value::Object(requests)) => requests,
        _ => Map::new(),
    };
    Some(InputRequired { input_requests, request_state: take("requestState") })
}

/// Has a server without a handshake say when its tools change, as long as it does.
async fn listen(peer: Peer) {
    loop {
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        match peer.request("subscriptions/listen", wanted, None).await {
            Err(Failure::Refused { message, .. }) => {
                tracing::debug!(target: "mcp", message, "a server does not say when its tools change");
                return;
            }
            Ok(_) | Err(_) => sleep(LISTEN_PAUSE).await,
        }
    }
}

/// Counts a call while it runs.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn new(calls: &'a watch::Sender<usize>) -> Self {
        calls.send_modify(|calls| *calls += 1);
        Self(calls)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

async fn write(mut queue: mpsc::Receiver<Outgoing>, mut input: pipe::Sender) {
    while let Some(Outgoing { text: mut line, .. }) = queue.recv().await {
        line.push('\n');
        if input.write_all(line.as_bytes()).await.is_err() {
            // The reader reports its end.
            return;
        }
    }
}

/// Reads messages to the end.
async fn read(output: pipe::Receiver, heard: Arc<Heard>) -> std::io::Result<()> {
    let mut output = BufReader::new(output);
    let mut messages = Assembler::default();
    loop {
        let line = {
            let mut next = pin!(next_line(&mut output, MAX_MESSAGE));
            match timeout(if messages.holds() { REST } else { Duration::MAX }, &mut next).await {
                Ok(line) => line?,
                Err(_) => {
                    messages.take().iter().for_each(|text| heard.line(text, Channel::Shared));
                    next.await?
                }
            }
        };
        match line {
            Some(line) if !messages.holds() && line.iter().all(u8::is_ascii_whitespace) => {}
            Some(line) => messages.push(line).iter().for_each(|text| heard.line(text, Channel::Shared)),
            None => {
                messages.take().iter().for_each(|text| heard.line(text, Channel::Shared));
                return Ok(());
            }
        }
    }
}

async fn read_errors(errors: pipe::Receiver, log: Log) {
    let mut errors = BufReader::new(errors);
    // A line that is too long is no reason to stop reading: the server would block.
    loop {
        match next_line(&mut errors, MAX_ERROR_LINE).await {
            Ok(Some(line)) => log.add(&String::from_utf8_lossy(&line)),
            Ok(None) => return,
            Err(error) if error.kind() == std::io::ErrorKind::Other => {
                if drain(&mut errors).await.is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// Takes what is there of a line that is too long.
async fn drain(input: &mut BufReader<pipe::Receiver>) -> std::io::Result<()> {
    use tokio::io::AsyncBufReadExt as _;
    let length = input.fill_buf().await?.len();
    input.consume(length);
    Ok(())
}

/// Owns the child: ends it when it is closed or says nothing any more, and tells why it ended.
async fn keep(
    reading: JoinHandle<std::io::Result<()>>,
    errors: JoinHandle<()>,
    mut life: Life,
    peer: Peer,
    ended: CancellationToken,
    tail: impl Fn() -> String,
) {
    let (mut reading, errors) = (AbortOnDropHandle::new(reading), AbortOnDropHandle::new(errors));
    let of_status = |status: Option<ExitStatus>| status.map(|status| format!("it ended ({status})"));
    let why = tokio::select! {
        // A child of its own may hold the pipes when it has ended.
        status = life.ended() => {
            let _late = timeout(LAST_WORDS, &mut reading).await;
            of_status(status).unwrap_or_else(|| "it ended".to_owned())
        }
        end = &mut reading => match end.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            // If it is about to end, its status says more.
            Ok(()) => {
                let status = timeout(LAST_WORDS, life.ended()).await.ok();
                status.and_then(of_status).unwrap_or_else(|| "it closed its output".to_owned())
            }
            Err(error) => error.to_string(),
        },
        () = ended.cancelled() => return,
    };
    let _late = timeout(LAST_WORDS, errors).await;
    peer.end(format!("{why}{}", tail()));
    drop(life);
    ended.cancel();
}
