//! The figures, one function a scene: a daemon and a model server of its own each.

use std::time::{Duration, Instant};

use linger_tests::floors::{Awake, asked, curl, echo, median, ms};
use linger_tests::harness::{Client, Daemon, Raw, Setup, process};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use super::bare::BareTurn;
use super::{Figure, TRIES, least};

/// Runs whose median is taken.
const RUNS: usize = 50;

/// Cold starts whose median is taken.
const COLD: usize = 7;

/// Tokens of the long stream.
const TOKENS: usize = 20_000;

/// Round trips over the socket.
const TRIPS: usize = 2000;

/// How long nothing happens when idle wake-ups are counted.
const IDLE: Duration = Duration::from_secs(3);

pub(super) fn setup() -> Setup {
    Setup { mode: "auto", top: "max_steps = 1000", log: "info", ..Setup::default() }
}

/// The address of the chat completions and the body of the first request that the daemon made.
fn request(model: &ModelServer) -> (String, Vec<u8>) {
    let first = model.requests().first().cloned().expect("a request was made");
    (format!("{}{}", model.url(), first.path), first.body)
}

pub(super) async fn warm_run() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    model.check_later();
    let daemon = Daemon::start_with(&model, setup()).await;
    let mut took = Vec::new();
    for _ in 0..=RUNS {
        let start = Instant::now();
        let output = daemon.cli(&["run", "say ok"]).run().await;
        took.push(ms(start));
        assert_eq!(output.stdout, "ok\n", "{output:?}");
    }
    took.remove(0);
    let (url, body) = request(&model);
    let floor = median((0..RUNS).map(|_| curl(&url, &body, daemon.dirs.root())).collect());
    let size = body.len() as f64 / 1024.0;
    vec![
        Figure::new("warm `linger run` answering ok (median)", median(took), "ms", floor + 3.0).over(floor),
        Figure::new("body of the first request", size, "KiB", 10.0),
    ]
}

/// A turn of a session that is there, over a connection that is there: from the prompt to `turn_finished`.
pub(super) async fn warm_turn() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    model.check_later();
    let daemon = Daemon::start_with(&model, setup()).await;
    let session = daemon.client().await.session().await;
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    let call = |method: &str, params: serde_json::Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    raw.ask(&call("session/attach", json!({ "session": session }))).await;
    let prompt = call("session/prompt", json!({ "session": session, "content": "say ok" })) + "\n";
    let mut once = async || {
        let start = Instant::now();
        raw.send(&prompt).await;
        raw.until("turn_finished").await;
        ms(start)
    };
    once().await;
    let (url, body) = request(&model);
    let mut bare = BareTurn::new(&daemon.dirs.root().join("floor.db"), &url, &body);
    let (mut took, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let mut turns = Vec::new();
        for _ in 0..RUNS {
            turns.push(once().await);
        }
        took.push(median(turns));
        floors.push(median((0..RUNS).map(|_| bare.turn()).collect()));
    }
    vec![Figure::new("warm turn over the socket (median)", least(took), "ms", 2.0).over(least(floors))]
}

pub(super) async fn cold_start() -> Vec<Figure> {
    let mut took = Vec::new();
    let mut floors = Vec::new();
    for _ in 0..COLD {
        let model = ModelServer::scripted(|_| Reply::text("ok"));
        let daemon = Daemon::prepare(&model, setup());
        let start = Instant::now();
        daemon.cli(&["run", "say ok"]).run().await.exits(0);
        took.push(model.requests()[0].at.duration_since(start).as_secs_f64() * 1000.0);
        let (url, body) = request(&model);
        let start = Instant::now();
        curl(&url, &body, daemon.dirs.root());
        floors.push(model.requests()[1].at.duration_since(start).as_secs_f64() * 1000.0);
        daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    }
    let floor = median(floors);
    vec![Figure::new("cold start to the first request (median)", median(took), "ms", 20.0).over(floor)]
}

pub(super) async fn stream() -> Vec<Figure> {
    let long = || Reply::new().text_in_deltas(&"word ".repeat(TOKENS), 5);
    let model = ModelServer::scripted(move |_| long());
    let daemon = Daemon::start_with(&model, setup()).await;
    let pid = daemon.pid().await;
    let before = process::cpu(pid);
    let start = Instant::now();
    let output = daemon.cli(&["run", "--stream", "go"]).run().await.exits(0);
    let took = ms(start);
    let cpu = (process::cpu(pid) - before) * 1e6 / TOKENS as f64;
    assert_eq!(output.stdout.matches("word").count(), TOKENS);
    let (url, body) = request(&model);
    let floor = median((0..5).map(|_| curl(&url, &body, daemon.dirs.root())).collect());
    vec![
        Figure::new("20,000 streamed tokens, wall", took, "ms", floor * 2.0).over(floor),
        Figure::new("the same, CPU of the daemon a token", cpu, "us", 4.0),
    ]
}

/// Waits until the memory of a process, in MiB (RSS and PSS), has not changed for longer than it takes to give back what it can.
pub(super) async fn settled(pid: u32) -> (f64, f64) {
    let (mut last, mut same) = (process::memory(pid), 0);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = process::memory(pid);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        if same >= 15 {
            break;
        }
    }
    (last.0 as f64 / 1024.0, last.1 as f64 / 1024.0)
}

async fn idle_sessions(client: &Client, count: usize) {
    for _ in 0..count {
        let session = client.session().await;
        client.turn(&session, "say ok").await;
        client.call("session/detach", json!({ "session": session })).await;
    }
}

pub(super) async fn memory() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = Daemon::start_with(&model, setup()).await;
    let pid = daemon.pid().await;
    let idle = settled(pid).await;
    if idle.1 == 0.0 {
        eprintln!("memory is not measured: how much of a daemon's is its own, only root is told");
        return Vec::new();
    }
    let keeper = process::own_memory(daemon.keeper()).unwrap_or_default();
    let client = daemon.client().await;
    idle_sessions(&client, 1).await;
    let one = settled(pid).await;
    idle_sessions(&client, 99).await;
    let hundred = settled(pid).await;
    let session = client.create().await;
    let mut terminal = daemon.pty(&["attach", &session]);
    client.attach(&session).await;
    client.turn(&session, "say ok").await;
    terminal.shows("ok").await;
    let attached = settled(terminal.pid()).await;
    terminal.leaves().await;
    let gate = Gate::new();
    let held = gate.clone();
    model.otherwise(move |_| Reply::new().text_in_deltas(&"word ".repeat(200), 5).gate(&held));
    let mut working = Vec::new();
    for _ in 0..10 {
        let session = client.session().await;
        client.prompt(&session, "go").await;
        client.sees_text(&session, &"word ".repeat(10)).await;
        working.push(session);
    }
    let ten = settled(pid).await;
    gate.open();
    for session in &working {
        client.first(session, "turn_finished").await;
    }
    vec![
        Figure::new("daemon idle, PSS", idle.1, "MiB", 7.0),
        Figure::new("its keeper, of its own", keeper as f64, "KiB", 1000.0),
        Figure::new("each of 99 further idle sessions, PSS", (hundred.1 - one.1) * 1024.0 / 99.0, "KiB", 30.0),
        Figure::new("each of 10 working sessions, PSS", (ten.1 - hundred.1) * 1024.0 / 10.0, "KiB", 300.0),
        Figure::new("a client attached, PSS", attached.1, "MiB", 4.0),
    ]
}

pub(super) async fn round_trip() -> Vec<Figure> {
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, setup()).await;
    // Answered from memory, if only by an error; a hello asks the system besides whether the configuration has changed.
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"session/detach","params":{"session":"nobody"}}"#;
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"daemon/hello","params":{"client":"bench","protocol":[1,1]}}"#;
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    let mut bare = echo(daemon.dirs.root()).await;
    asked(&mut raw, request, TRIPS / 10).await;
    let mut tries = async || {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..TRIES {
            ours.push(asked(&mut raw, request, TRIPS).await);
            floors.push(asked(&mut bare, request, TRIPS).await);
        }
        [ours, floors].map(|tries| (least(tries.iter().map(|(p50, _)| *p50)), least(tries.iter().map(|(_, p99)| *p99))))
    };
    let [(asleep, _), (floor_asleep, _)] = tries().await;
    let awake = Awake::keep();
    let [(p50, p99), (floor50, floor99)] = tries().await;
    let (hello, _) = asked(&mut raw, hello, TRIPS).await;
    drop(awake);
    vec![
        Figure::told("a hello, p50", hello, "us").over(floor50),
        Figure::new("round trip over the socket, p50", p50, "us", 40.0).over(floor50),
        Figure::new("round trip over the socket, p99", p99, "us", floor99 * 4.0).over(floor99),
        Figure::told("the same, p50, by processors that sleep in between", asleep, "us").over(floor_asleep),
    ]
}

/// The index of `linger search` is opened 5 s after the start, once.
const INDEXED: Duration = Duration::from_secs(6);

pub(super) async fn idle() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = Daemon::start_with(&model, setup()).await;
    let client = daemon.client().await;
    idle_sessions(&client, 3).await;
    let pid = daemon.pid().await;
    tokio::time::sleep(INDEXED).await;
    settled(pid).await;
    let both = || process::wakeups(pid) + process::wakeups(daemon.keeper());
    let before = both();
    tokio::time::sleep(IDLE).await;
    let count = (both() - before) as f64;
    vec![Figure::new("wake-ups in 3 s of idleness, daemon and keeper", count, "", 0.0)]
}
