//! MCP servers: what they cost the daemon, a first turn, a call and a request.
//!
//! The server is the scripted one of the tests. The floor of a call is the same call over bare pipes, by the same server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use linger_tests::floors::{median, ms};
use linger_tests::harness::{Client, Daemon, SCRIPTED_SERVER as SERVER, Setup};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use super::Figure;
use super::figures::{settled, setup};

/// Runs whose median is taken.
const RUNS: usize = 50;

/// Sessions whose first turns are measured.
const FIRST: usize = 30;

/// A daemon with these servers.
async fn with_servers(model: &ModelServer, names: &[&str], args: &[&str]) -> Daemon {
    let args: Vec<&str> = std::iter::once(SERVER).chain(args.iter().copied()).collect();
    let table = |name: &&str| format!("[mcp.{name}]\ncommand = \"python3\"\nargs = {}\n", json!(args));
    let config = names.iter().map(table).collect();
    Daemon::start_with(model, Setup { config, ..setup() }).await
}

/// Starts a server, and waits until its tools are known.
async fn seen(daemon: &Daemon, client: &Client, names: &[&str]) {
    for server in names {
        let tested = client.call("mcp/test", json!({ "server": server, "cwd": daemon.workspace() })).await;
        assert_eq!(tested["state"], "running", "{tested}");
    }
}

/// The memory of the daemon with three servers connected, beside that without.
pub(super) async fn mcp_memory() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let names = ["a", "b", "c"];
    let daemon = with_servers(&model, &names, &[]).await;
    let client = daemon.client().await;
    let pid = daemon.pid().await;
    let without = settled(pid).await.1;
    if without == 0.0 {
        eprintln!("memory is not measured: how much of a daemon's is its own, only root is told");
        return Vec::new();
    }
    seen(&daemon, &client, &names).await;
    let with = settled(pid).await.1;
    vec![Figure::new("three MCP servers connected, PSS of the daemon", (with - without) * 1024.0, "KiB", 1024.0)]
}

/// The first turns of new sessions, from the prompt to the end.
async fn first_turns(daemon: &Daemon) -> f64 {
    let client = daemon.client().await;
    let mut took = Vec::new();
    for _ in 0..FIRST {
        let session = client.session().await;
        let start = Instant::now();
        client.turn(&session, "say ok").await;
        took.push(ms(start));
    }
    median(took)
}

/// The first turn of a session with a server that was seen before, beside one without servers.
pub(super) async fn mcp_first_turn() -> Vec<Figure> {
    let [model, model_of_cached] = [(); 2].map(|()| ModelServer::scripted(|_| Reply::text("ok")));
    model.check_later();
    model_of_cached.check_later();
    let (none, cached) = (Daemon::start_with(&model, setup()).await, with_servers(&model_of_cached, &["a"], &[]).await);
    seen(&cached, &cached.client().await, &["a"]).await;
    let floor = first_turns(&none).await;
    vec![Figure::new("first turn with a cached MCP server", first_turns(&cached).await, "ms", floor + 1.0).over(floor)]
}

/// A call of a server's tool, beside the same call over bare pipes.
pub(super) async fn mcp_call() -> Vec<Figure> {
    let model = ModelServer::scripted(|request| match request.after_tool() {
        true => Reply::text("ok"),
        false => Reply::tool("mcp__a__echo", json!({ "text": "hi" })),
    });
    let daemon = with_servers(&model, &["a"], &[]).await;
    let client = daemon.client().await;
    seen(&daemon, &client, &["a"]).await;
    let mut took = Vec::new();
    for _ in 0..=RUNS {
        let session = client.session().await;
        client.turn(&session, "go").await;
        let finished = client.first(&session, "tool_finished").await.event;
        let started = client.first(&session, "tool_started").await.event;
        let at = |event: &Value| event["at"].as_u64().unwrap_or_default() as f64;
        took.push(at(&finished) - at(&started));
    }
    took.remove(0);
    let mut bare = Bare::start();
    let floor = median((0..RUNS).map(|_| bare.echo()).collect());
    vec![Figure::new("call of an MCP server's tool, started to finished", median(took), "ms", floor + 3.0).over(floor)]
}

/// The first request of a session for which 500 tools are configured.
pub(super) async fn mcp_tools() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = with_servers(&model, &["a"], &["--many", "486"]).await;
    let client = daemon.client().await;
    seen(&daemon, &client, &["a"]).await;
    let session = client.session().await;
    client.turn(&session, "say ok").await;
    let size = model.requests()[0].body.len() as f64 / 1024.0;
    vec![Figure::new("body of the first request with 500 MCP tools", size, "KiB", 12.0)]
}

/// The server over bare pipes.
struct Bare {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Bare {
    #[allow(clippy::disallowed_methods)] // Benches own the processes that they start.
    fn start() -> Self {
        let mut command = Command::new("python3");
        let mut child = command.arg(SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut bare = Self { child, input, output };
        bare.ask("initialize", &json!({ "protocolVersion": "2025-11-25" }));
        bare
    }

    fn ask(&mut self, method: &str, params: &Value) {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert!(answer.contains("result"), "{answer}");
    }

    /// One call, in milliseconds.
    fn echo(&mut self) -> f64 {
        let start = Instant::now();
        self.ask("tools/call", &json!({ "name": "echo", "arguments": { "text": "hi" } }));
        ms(start)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
