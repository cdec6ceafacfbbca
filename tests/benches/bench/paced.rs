//! What many sessions cost that stream at the pace of a model: each token comes by itself, and none waits for another.
//!
//! The model server is a thread that writes one token to one session after the other, evenly over time. One client is attached
//! to all sessions and reads their events, as an editor does; a second scene has nobody attached.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use linger_tests::harness::{Client, Daemon, Raw, Setup, process};
use linger_tests::model::ModelServer;
use serde_json::json;

use super::Figure;
use super::figures::setup;

/// Sessions that stream at once.
const SESSIONS: usize = 200;

/// Tokens of each session.
const TOKENS: usize = 600;

/// Tokens of each session before the measured ones.
const WARM: usize = 100;

/// From one token of a session to its next.
const PACE: Duration = Duration::from_millis(10);

/// How long the server sleeps at least: below this it is early by no more than the system wakes it late.
const NAP: Duration = Duration::from_micros(200);

/// What the model says, a token at a time.
const TOKEN: &str = "word ";

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// CPU time of the daemon while the tokens came, and how long that took.
struct Spent {
    cpu_ms: f64,
    took: Duration,
}

/// A model server that streams to all sessions at once, and measures the daemon meanwhile.
struct Paced {
    url: String,
    begin: Sender<u32>,
    spent: Receiver<Spent>,
}

impl Paced {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let ((begin, begun), (tell, spent)) = (channel(), channel());
        std::thread::spawn(move || {
            let mut streams: Vec<TcpStream> = (0..SESSIONS).map(|_| accept(&listener)).collect();
            let daemon: u32 = begun.recv().expect("the bench says when");
            send_tokens(&mut streams, WARM);
            let (start, cpu) = (Instant::now(), process::cpu_of_threads(daemon));
            send_tokens(&mut streams, TOKENS - WARM);
            let cpu_ms = process::cpu_of_threads(daemon) - cpu;
            tell.send(Spent { cpu_ms, took: start.elapsed() }).expect("the bench waits");
            streams.iter_mut().for_each(end);
        });
        Self { url, begin, spent }
    }
}

/// Takes a request to its end and begins the answer.
fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a request");
    stream.set_nodelay(true).expect("no delay");
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().expect("a number"),
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).expect("a body");
    let mut stream = reader.into_inner();
    stream.write_all(HEAD.as_bytes()).expect("the daemon reads");
    stream
}

/// Sends `count` tokens to each stream, spread evenly.
fn send_tokens(streams: &mut [TcpStream], count: usize) {
    let token = chunk(&json!({ "choices": [{ "index": 0, "delta": { "content": TOKEN } }] }).to_string());
    let (start, each) = (Instant::now(), PACE / u32::try_from(streams.len()).expect("a few"));
    let mut due = Duration::ZERO;
    for _ in 0..count {
        for stream in &mut *streams {
            let early = due.saturating_sub(start.elapsed());
            if early > NAP {
                std::thread::sleep(early);
            }
            stream.write_all(&token).expect("the daemon reads");
            due += each;
        }
    }
}

fn end(stream: &mut TcpStream) {
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }).to_string();
    let bytes = [chunk(&last), chunk("[DONE]"), b"0\r\n\r\n".to_vec()].concat();
    stream.write_all(&bytes).expect("the daemon reads");
}

/// An event of the stream as a chunk of HTTP.
fn chunk(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// Makes the sessions, has each prompted, and gives what the tokens cost and the daemon's peak, in MiB.
async fn scene(is_attached: bool) -> (Spent, f64) {
    let model = ModelServer::start();
    let Paced { url, begin, spent } = Paced::start();
    let config = format!("[providers.paced]\nkind = \"openai\"\nbase_url = \"{url}\"\n");
    let daemon = Daemon::start_with(&model, Setup { config, ..setup() }).await;
    let pid = daemon.pid().await;
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(client.create_with(json!({ "model": "paced/m" })).await);
    }
    let reader = if is_attached { Some(read_all(&daemon, &sessions).await) } else { None };
    for session in &sessions {
        client.prompt(session, "go").await;
    }
    begin.send(pid).expect("the server waits");
    let spent =
        tokio::task::spawn_blocking(move || spent.recv()).await.expect("it waits").expect("the server measures");
    if let Some(reader) = reader {
        reader.await.expect("each turn ends");
    }
    is_whole(&client, &sessions).await;
    (spent, process::peak(pid) as f64 / 1024.0)
}

/// Attaches a client to all sessions, which reads until each turn has ended.
async fn read_all(daemon: &Daemon, sessions: &[String]) -> tokio::task::JoinHandle<()> {
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    for session in sessions {
        let params = json!({ "session": session });
        raw.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/attach", "params": params }).to_string()).await;
    }
    let count = sessions.len();
    tokio::spawn(async move {
        for _ in 0..count {
            raw.until("turn_finished").await;
        }
    })
}

/// Waits until every session has the whole answer.
async fn is_whole(client: &Client, sessions: &[String]) {
    for session in sessions {
        client.attach(session).await;
        client.sees_text(session, &TOKEN.repeat(TOKENS)).await;
        client.first(session, "turn_finished").await;
    }
}

pub(super) async fn paced() -> Vec<Figure> {
    let mut figures = Vec::new();
    let scenes = [
        (
            true,
            ["200 sessions at 100 tokens/s, read: CPU of the daemon", "the same, a token", "the same, its peak memory"],
        ),
        (false, ["the same, nobody reads: CPU of the daemon", "the same, a token", "the same, its peak memory"]),
    ];
    for (is_attached, [of_core, of_token, memory]) in scenes {
        let (Spent { cpu_ms, took }, peak) = scene(is_attached).await;
        let tokens = (SESSIONS * (TOKENS - WARM)) as f64;
        eprintln!("{tokens} tokens in {took:?}");
        figures.extend([
            Figure::new(of_core, cpu_ms / 10.0 / took.as_secs_f64(), "%", 40.0),
            Figure::told(of_token, cpu_ms * 1000.0 / tokens, "us"),
            Figure::new(memory, peak, "MiB", 30.0),
        ]);
    }
    figures
}
