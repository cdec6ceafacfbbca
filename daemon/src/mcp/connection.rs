//! One connection to a server: its start, its tools, and calls.
//!
//! A [`Connection`] owns the child. It ends when it is closed or dropped, or when the server ends; every open request fails then.
//! Deliberately absent: when a server is started, and who shares it.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use serde::Deserialize;
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
use super::lines::{Log, MAX_MESSAGE, next_line};
use super::listing::{Listing, MAX_TOOLS, ToolInfo};
use super::peer::{Call, CallEvent, Failure, Outgoing, Peer, Progress, ServerRequest, UNKNOWN_METHOD};
use super::result::CallResult;
use super::settings::{PER_REQUEST, PROTOCOL, ServerConfig};
use crate::process::server::{Life, Server as Child, Spawn};
use crate::sys::clock;
use crate::sys::task;
use crate::tool::BoxFuture;

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

/// The most pages of a list of tools.
const MAX_PAGES: usize = 64;

/// The server's description of itself, from the handshake.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Info {
    /// The revision of the protocol that both speak.
    pub(super) protocol_version: String,
    /// Its name and version.
    pub(super) server_info: Implementation,
    capabilities: Capabilities,
}

/// A program's name and version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Implementation {
    pub(super) name: String,
    pub(super) version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Capabilities {
    tools: Option<Value>,
}

/// The answer to `server/discover`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

/// How a call ended that has no result.
#[derive(Debug)]
pub(super) enum CallError {
    /// The server refused it.
    Refused(String),
    /// Nothing was heard of it for too long.
    TimedOut,
    /// The connection ended.
    Ended(String),
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
        connection.begin(config).await?;
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
                Err(refused @ Failure::Refused { .. }) => self.discover().await.map_err(|_| refused),
                hello => hello,
            },
        };
        self.info = hello.map_err(|failure| failure.to_string())?;
        let tells = self.info.capabilities.tools.as_ref().and_then(|tools| tools.get("listChanged"));
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
        let answer = answer?;
        let unreadable = |why: String| Failure::Ended(format!("its answer to `server/discover` {why}").into());
        let found: Discovered =
            serde_json::from_str(answer.get()).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
        if !found.supported_versions.iter().any(|version| version == PER_REQUEST) {
            return Err(unreadable(format!("names no protocol that linger speaks ({PER_REQUEST})")));
        }
        let server_info = found.meta.get(key("serverInfo")).and_then(|info| Implementation::deserialize(info).ok());
        let (server_info, capabilities) = (server_info.unwrap_or_default(), found.capabilities);
        Ok(Info { protocol_version: PER_REQUEST.to_owned(), server_info, capabilities })
    }

    /// The handshake.
    async fn hello(&self) -> Result<Info, Failure> {
        let params = json!({ "protocolVersion": PROTOCOL, "capabilities": capabilities(), "clientInfo": client() });
        let answer = self.peer.request("initialize", params, None).await?;
        self.peer.notify("notifications/initialized", json!({}));
        serde_json::from_str(answer.get())
            .map_err(|error| Failure::Ended(format!("its answer to `initialize` cannot be read: {error}").into()))
    }

    /// Asks for its tools.
    pub(super) async fn list(&self, server: &str) -> Result<Listing, String> {
        if self.info.capabilities.tools.is_none() {
            return Ok(Listing::default());
        }
        match self.pages("tools/list", "tools", MAX_TOOLS + 1).await {
            Ok((items, whole)) => {
                let mut listing = Listing::of(server, &items);
                if !whole {
                    listing.problems.push(format!("its tools after the first {MAX_PAGES} pages are left out"));
                }
                Ok(listing)
            }
            Err(Failure::Refused { code: UNKNOWN_METHOD, .. }) => Ok(Listing::default()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// The items of a list that comes in pages, at most `max`, and whether that was all of its pages.
    pub(super) async fn pages(&self, method: &str, key: &str, max: usize) -> Result<(Vec<Value>, bool), Failure> {
        let (mut items, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let params = cursor.map_or_else(|| json!({}), |cursor: Value| json!({ "cursor": cursor }));
            let page: Value = serde_json::from_str(&self.ask(method, params).await?).unwrap_or_default();
            let Some(listed) = page.get(key).and_then(Value::as_array) else {
                return Err(Failure::Refused { code: 0, message: format!("its list of {key} cannot be read") });
            };
            items.extend(listed.iter().take(max.saturating_sub(items.len())).cloned());
            cursor = page.get("nextCursor").filter(|cursor| !cursor.is_null()).cloned();
            if cursor.is_none() || items.len() >= max {
                return Ok((items, true));
            }
        }
        Ok((items, false))
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
            let Some(wanted) = wanted else { return CallResult::parse(answer.get()).map_err(CallError::Refused) };
            let responses = self.inputs(wanted.input_requests, heard).await?;
            if let Some(params) = params.as_object_mut() {
                params.insert("inputResponses".to_owned(), Value::Object(responses));
                params.extend(wanted.request_state.map(|state| ("requestState".to_owned(), state)));
            }
        }
        Err(CallError::Refused(format!("it wanted input more than {MAX_ROUNDS} times")))
    }

    /// The input that a server wants before a call can go on; people may have to give it.
    async fn inputs(&self, wanted: Map<String, Value>, heard: &mut dyn Hears) -> Result<Map<String, Value>, CallError> {
        if wanted.len() > MAX_INPUTS {
            return Err(CallError::Refused(format!("it wanted {} inputs at once", wanted.len())));
        }
        let mut given = Map::new();
        for (name, mut request) in wanted {
            let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
            let answer = match method.as_str() {
                "roots/list" => self.peer.roots(),
                "elicitation/create" => {
                    let params = request.get_mut("params").map(Value::take).unwrap_or_default();
                    let (reply, answer) = oneshot::channel();
                    heard.asked(ServerRequest { method, params, reply }).await;
                    answer.await.unwrap_or_else(|_| json!({ "action": "cancel" }))
                }
                _ => return Err(CallError::Refused("it wanted an input that linger does not give".to_owned())),
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
                            answer = &mut request => return answered(answer),
                        },
                    }
                    deadline = Instant::now() + limit;
                }
                answer = &mut request => return answered(answer),
                () = sleep_until(deadline) => return Err(CallError::TimedOut),
            }
        }
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

/// A result that is none yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired {
    result_type: String,
    #[serde(default)]
    input_requests: Map<String, Value>,
    #[serde(default)]
    request_state: Option<Value>,
}

/// The input that a result wants, if it is none yet.
fn wanted(result: &str) -> Option<InputRequired> {
    serde_json::from_str(result).ok().filter(|wanted: &InputRequired| wanted.result_type == "input_required")
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
            Ok(_) | Err(Failure::Ended(_)) => sleep(LISTEN_PAUSE).await,
        }
    }
}

fn answered(answer: Result<Box<RawValue>, Failure>) -> Result<Box<RawValue>, CallError> {
    match answer {
        Ok(result) => Ok(result),
        Err(Failure::Refused { message, .. }) => Err(CallError::Refused(message)),
        Err(Failure::Ended(why)) => Err(CallError::Ended(why.to_string())),
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

/// Reads messages to the end; fails on what is no message.
async fn read(output: pipe::Receiver, heard: Arc<Heard>) -> std::io::Result<()> {
    let mut output = BufReader::new(output);
    loop {
        match next_line(&mut output, MAX_MESSAGE).await? {
            Some(line) if line.iter().all(u8::is_ascii_whitespace) => {}
            Some(line) => heard.line(&line),
            None => return Ok(()),
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
