//! Clients that keep nothing: one that reads its own lines in order, and one that many tasks send requests through.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linger_protocol::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long a line may take: a machine that has much to do is slow, and what is lost never comes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// What a request came to.
pub(super) type Answer = Result<Value, RpcError>;

/// An event as it came.
pub(super) struct Incoming {
    pub(super) cursor: String,
    pub(super) raw: String,
    pub(super) event: Value,
}

impl Incoming {
    pub(super) fn str(&self, field: &str) -> &str {
        self.event[field].as_str().unwrap_or_default()
    }
}

pub(super) enum Line {
    Answer(u64, Answer),
    Event(Incoming),
}

#[derive(Deserialize)]
struct Read<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct Params<'a> {
    cursor: String,
    #[serde(borrow)]
    event: &'a RawValue,
}

fn parse(line: &[u8]) -> Line {
    let read: Read<'_> = serde_json::from_slice(line)
        .unwrap_or_else(|error| panic!("not a line of the protocol: {error}: {}", String::from_utf8_lossy(line)));
    match read {
        Read { params: Some(params), .. } => {
            let raw = params.event.get().to_owned();
            let event = serde_json::from_str(&raw).expect("an event is JSON");
            Line::Event(Incoming { cursor: params.cursor, raw, event })
        }
        Read { id, error: Some(error), .. } => Line::Answer(id.unwrap_or_default(), Err(error)),
        Read { id, result, .. } => Line::Answer(id.unwrap_or_default(), Ok(result.unwrap_or_default())),
    }
}

fn request(id: u64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn hello(name: &str) -> Value {
    json!({ "client": name, "protocol": linger_protocol::PROTOCOL })
}

/// A connection whose lines are read one by one.
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    next: u64,
}

impl Connection {
    /// Connects and says hello.
    pub(super) async fn connect(socket: &Path, name: &str) -> Self {
        let stream = UnixStream::connect(socket).await.expect("the daemon listens");
        let mut connection = Self { stream: BufReader::new(stream), partial: Vec::new(), next: 0 };
        connection.call("daemon/hello", hello(name)).await;
        connection
    }

    /// Sends a request and gives its number.
    pub(super) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let line = request(self.next, method, &params);
        self.stream.get_mut().write_all(line.as_bytes()).await.expect("the daemon reads");
        self.next
    }

    /// The next line.
    pub(super) async fn line(&mut self) -> Line {
        let line = tokio::time::timeout(PATIENCE, self.read()).await;
        line.unwrap_or_else(|_| panic!("no line within {PATIENCE:?}"))
    }

    /// The next line, if it comes soon.
    pub(super) async fn line_within(&mut self, limit: Duration) -> Option<Line> {
        tokio::time::timeout(limit, self.read()).await.ok()
    }

    async fn read(&mut self) -> Line {
        // What was read of a line stays in `partial` when nobody waits for the rest.
        let n = self.stream.read_until(b'\n', &mut self.partial).await.expect("the connection lives");
        assert!(n > 0, "the daemon hung up");
        let line = parse(&self.partial);
        self.partial.clear();
        line
    }

    /// A request that must succeed; events that come before its answer are not looked at.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.unwrap_or_else(|error| panic!("{method}: {error} {:?}", error.data))
    }

    /// As [`Self::call`], for a request that may be refused.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Answer {
        let id = self.send(method, params).await;
        loop {
            match self.line().await {
                Line::Answer(answered, answer) if answered == id => return answer,
                _ => {}
            }
        }
    }
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

/// A connection that many tasks share; it gets no events.
pub(super) struct Racer {
    pub(super) name: String,
    write: tokio::sync::Mutex<(OwnedWriteHalf, u64)>,
    waiting: Waiting,
    reader: JoinHandle<()>,
}

impl Racer {
    /// Connects and says hello.
    pub(super) async fn connect(socket: &Path, name: &str) -> Self {
        let (read, write) = UnixStream::connect(socket).await.expect("the daemon listens").into_split();
        let waiting = Waiting::default();
        let answered = waiting.clone();
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(read);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).await.is_ok_and(|n| n > 0) {
                if let Line::Answer(id, answer) = parse(&line) {
                    let waiting = answered.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                    // Whoever asked may not wait for the answer.
                    waiting.into_iter().for_each(|waiting| drop(waiting.send(answer.clone())));
                }
                line.clear();
            }
            answered.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        let racer = Self { name: name.to_owned(), write: (write, 0).into(), waiting, reader };
        racer.ask("daemon/hello", hello(name)).await.expect("the daemon answers").expect("hello is accepted");
        racer
    }

    /// Sends a request; the answer comes to the receiver, unless the connection ends.
    pub(super) async fn send(&self, method: &str, params: Value) -> oneshot::Receiver<Answer> {
        let (sender, answer) = oneshot::channel();
        let mut write = self.write.lock().await;
        write.1 += 1;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(write.1, sender);
        let line = request(write.1, method, &params);
        write.0.write_all(line.as_bytes()).await.expect("the daemon reads");
        answer
    }

    /// Sends a request and waits for its answer; nothing when the connection ends.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Option<Answer> {
        let answer = self.send(method, params).await;
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{method}: no answer")).ok()
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A mailbox of violations that tasks share.
pub(super) type Wrong = mpsc::UnboundedSender<String>;
