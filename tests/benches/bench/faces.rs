//! The faces: the first token through `linger acp` and through the gateway, compared with the socket; and readers of server-sent events.

use std::time::Instant;

use linger_tests::floors::{median, ms};
use linger_tests::harness::{Daemon, Running, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixStream};

use super::{Figure, figures};

/// Turns whose median is taken, of each face.
const TURNS: usize = 50;

/// What a face may add to the first token, in milliseconds.
const ADDED: f64 = 1.0;

/// Readers of one stream.
const READERS: usize = 64;

/// Tokens that they read.
const TOKENS: usize = 2000;

/// The memory of a gateway without clients, in MiB.
const IDLE: f64 = 6.0;

/// What the model says first, which no prompt has.
const TOKEN: &str = "first-token";

/// Lines to a face and lines from it.
struct Lines {
    to: Box<dyn AsyncWrite + Unpin>,
    from: Box<dyn AsyncBufRead + Unpin>,
}

impl Lines {
    fn of<S: AsyncRead + AsyncWrite + 'static>(stream: S) -> Self {
        let (from, to) = tokio::io::split(stream);
        Self { to: Box::new(to), from: Box::new(BufReader::new(from)) }
    }

    async fn write(&mut self, text: &str) {
        self.to.write_all(text.as_bytes()).await.expect("a face reads");
    }

    /// Reads up to a line with these words.
    async fn until(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.from.read_line(&mut line).await.expect("a face writes") > 0, "no line has {words}");
        }
        line
    }
}

/// A gateway, its address, and a token.
struct Gateway {
    _process: Running,
    pid: u32,
    address: String,
    token: String,
}

impl Gateway {
    async fn start(daemon: &Daemon) -> Self {
        let process = daemon.cli(&["gateway", "start", "--foreground"]).spawn().await;
        let status = until("the gateway listens", async || {
            let status = daemon.cli(&["gateway", "status", "--json"]).run().await;
            status.json().first().filter(|row| row["listen"].is_string()).cloned()
        });
        let status = status.await;
        let params = json!({ "name": "bench", "can": ["observe", "speak"] });
        let token = daemon.client().await.call("token/mint", params).await["token"].as_str().unwrap().to_owned();
        let pid = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
        Self { _process: process, pid, address: status["listen"].as_str().unwrap().to_owned(), token }
    }

    /// A connection with a request on it.
    async fn asks(&self, method: &str, path: &str, body: &str) -> Lines {
        let mut lines = Lines::of(TcpStream::connect(&self.address).await.unwrap());
        lines.write(&self.request(method, path, body)).await;
        lines
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let Self { address, token, .. } = self;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    /// A reader of a session's events.
    async fn reads(&self, session: &str) -> Lines {
        let mut lines = self.asks("GET", &format!("/events?session={session}"), "").await;
        lines.until("\"caught_up\"").await;
        lines
    }
}

fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// From a prompt to the model's first word, over each face in turn.
pub(super) async fn first_token() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text(TOKEN));
    model.check_later();
    let daemon = Daemon::start_with(&model, figures::setup()).await;
    let gateway = Gateway::start(&daemon).await;
    let (prompt, client) = (|session: &str| json!({ "session": session, "content": "go" }), daemon.client().await);
    let sessions = [client.create().await, client.create().await];

    let mut socket = Lines::of(UnixStream::connect(daemon.dirs.socket()).await.unwrap());
    let hello = request("daemon/hello", json!({ "client": "bench", "protocol": [1, 1] }));
    let attach = request("session/attach", json!({ "session": sessions[0] }));
    socket.write(&format!("{hello}\n{attach}\n")).await;
    socket.until("\"caught_up\"").await;

    let (mut bridge, stdin) = daemon.cli(&["acp"]).talk().await;
    let mut editor = Lines { to: Box::new(stdin), from: Box::new(BufReader::new(tokio::io::empty())) };
    let initialize = request("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let new = request("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
    editor.write(&format!("{initialize}\n{new}\n")).await;
    let made = bridge_line(&mut bridge, "sessionId").await;
    let of_editor = serde_json::from_str::<Value>(&made).unwrap();
    let of_editor = of_editor["result"]["sessionId"].as_str().or(of_editor["params"]["sessionId"].as_str()).unwrap();
    let asked = json!({ "sessionId": of_editor, "prompt": [{ "type": "text", "text": "go" }] });

    let mut events = gateway.reads(&sessions[1]).await;
    let mut calls = gateway.asks("GET", "/me", "").await;
    // Its body has no end of line.
    calls.until("200 OK").await;

    let mut took = [const { Vec::new() }; 3];
    for _ in 0..=TURNS {
        let start = Instant::now();
        socket.write(&format!("{}\n", request("session/prompt", prompt(&sessions[0])))).await;
        socket.until(TOKEN).await;
        took[0].push(ms(start));
        socket.until("\"turn_finished\"").await;

        let start = Instant::now();
        editor.write(&format!("{}\n", request("session/prompt", asked.clone()))).await;
        bridge_line(&mut bridge, TOKEN).await;
        took[1].push(ms(start));
        bridge_line(&mut bridge, "stopReason").await;

        let body = request("session/prompt", prompt(&sessions[1]));
        let start = Instant::now();
        calls.write(&gateway.request("POST", "/rpc", &body)).await;
        events.until(TOKEN).await;
        took[2].push(ms(start));
        events.until("\"turn_finished\"").await;
    }
    let [socket, acp, http] = took.map(|mut took| {
        took.remove(0);
        median(took)
    });
    vec![
        Figure::told("first token over the socket (median)", socket, "ms"),
        Figure::new("first token through `linger acp` (median)", acp, "ms", socket + ADDED).over(socket),
        Figure::new("first token through the gateway (median)", http, "ms", socket + ADDED).over(socket),
    ]
}

/// Reads up to a line of the bridge with these words.
async fn bridge_line(bridge: &mut Running, words: &str) -> String {
    loop {
        let line = bridge.line().await.expect("the bridge goes on");
        if line.contains(words) {
            return line;
        }
    }
}

/// One stream for one reader of the gateway, and for 64; and the gateway's memory.
pub(super) async fn readers() -> Vec<Figure> {
    let gates: [Gate; 2] = Default::default();
    let held = gates.clone();
    let long = move |gate: &Gate| Reply::text("begun ").gate(gate).and_text("word ".repeat(TOKENS));
    let model = ModelServer::with(held.iter().map(long));
    let daemon = Daemon::start_with(&model, figures::setup()).await;
    let gateway = Gateway::start(&daemon).await;
    let idle = figures::settled(gateway.pid).await.1;
    let client = daemon.client().await;
    let mut took = Vec::new();
    let mut with_all = 0.0;
    for (gate, count) in gates.iter().zip([1, READERS]) {
        let session = client.create().await;
        let mut readers = Vec::new();
        for _ in 0..count {
            readers.push(gateway.reads(&session).await);
        }
        client.prompt(&session, "go").await;
        for reader in &mut readers {
            reader.until("begun").await;
        }
        with_all = figures::settled(gateway.pid).await.1;
        let start = Instant::now();
        gate.open();
        let mut all = tokio::task::JoinSet::new();
        let local = tokio::task::LocalSet::new();
        for mut reader in readers {
            all.spawn_local_on(async move { drop(reader.until("\"turn_finished\"").await) }, &local);
        }
        local.run_until(async { while all.join_next().await.is_some() {} }).await;
        took.push(ms(start));
    }
    let mut rows = vec![Figure::told("a stream of 2,000 tokens for 64 readers of events", took[1], "ms").over(took[0])];
    if idle > 0.0 {
        rows.extend([
            Figure::new("gateway idle, PSS", idle, "MiB", IDLE),
            Figure::told("gateway with 64 readers of a stream, PSS", with_all, "MiB").over(idle),
        ]);
    } else {
        eprintln!("the gateway's memory is not measured: only root is told");
    }
    rows
}
