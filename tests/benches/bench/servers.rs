//! MCP servers: what they cost the daemon, a first turn, a call and a request.
//!
//! The server is the scripted one of the tests. The floor of a call is the same call by a bare client of `rmcp`, to the same server.

use std::process::Stdio;
use std::time::Instant;

use linger_tests::floors::{median, ms};
use linger_tests::harness::{Client, Daemon, SCRIPTED_SERVER as SERVER, Setup};
use linger_tests::model::{ModelServer, Reply};
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
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

/// A call of a server's tool, beside the same call by a bare client.
pub(super) async fn mcp_call() -> Vec<Figure> {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() { Reply::text("ok") } else { Reply::tool("mcp__a__echo", json!({ "text": "hi" })) }
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
    let floor = median(bare().await);
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

/// The same calls by a bare client of `rmcp`, each in milliseconds.
#[allow(clippy::disallowed_methods)] // Benches own the processes that they start.
async fn bare() -> Vec<f64> {
    let mut command = tokio::process::Command::new("python3");
    command.arg(SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().expect("the scripted server");
    let pipes = (server.stdout.take().expect("a pipe"), server.stdin.take().expect("a pipe"));
    let client = ().serve(pipes).await.expect("a handshake");
    let mut took = Vec::new();
    for _ in 0..RUNS {
        let mut asked = CallToolRequestParams::new("echo");
        asked.arguments = json!({ "text": "hi" }).as_object().cloned();
        let start = Instant::now();
        let answered = client.call_tool(asked).await.expect("an answer");
        took.push(ms(start));
        assert_eq!(answered.content.len(), 1);
    }
    took
}
