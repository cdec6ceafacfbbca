//! The conversation with the host: a line of JSON each way.
//!
//! A host of either era of the protocol is served on the same pipe (`linger_protocol::mcp_revision`). One task reads, one writes, and one runs each call; a call that is cancelled
//! is dropped, which ends what it started.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::mcp_revision::{Era, RefusedRevision, agreed, discovered, takes_forms};
use linger_protocol::transport::both::Message;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Permission, Prepared, refused};
use crate::mcp::{MAX_MESSAGE, next_line};
use crate::sys::task;

/// Messages that wait for the host to read them; beyond that calls wait.
const QUEUE: usize = 64;

/// Pieces of output that wait to be shown as progress.
const SHOWN: usize = 16;

/// The most calls at once: a model makes a dozen.
const MAX_CALLS: usize = 32;

/// How long calls may take once the host has closed our input.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The name of the only input that a call may want.
const PERMISSION: &str = "permission";

/// The answers that a person can choose, as everywhere in linger. The session is this server's life.
const ALLOW: &str = "allow_once";
const ALWAYS: &str = "allow_session";
const DENY: &str = "reject_once";

/// One host; all clones are one.
#[derive(Clone)]
struct Host(Arc<Shared>);

struct Shared {
    calls: Arc<Calls>,
    out: mpsc::Sender<String>,
    state: Mutex<HostState>,
    last: AtomicU64,
}

#[derive(Default)]
struct HostState {
    /// Whether a host of the handshake can ask its user.
    can_ask: bool,
    /// Ends the calls that run, by the id of their request.
    running: HashMap<String, CancellationToken>,
    /// Our questions that wait for an answer.
    asked: HashMap<String, oneshot::Sender<Value>>,
}

/// How a request ends that fails.
struct Failed {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl From<RefusedRevision> for Failed {
    fn from(RefusedRevision { code, message, data }: RefusedRevision) -> Self {
        Self { code, message, data }
    }
}

impl Failed {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Serves a host until its messages end.
pub(super) async fn serve(
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    calls: Arc<Calls>,
) -> io::Result<()> {
    let (out, queue) = mpsc::channel(QUEUE);
    let writing = task::spawn(write(queue, output));
    let host = Host(Arc::new(Shared { calls, out, state: Mutex::default(), last: AtomicU64::new(0) }));
    let (mut input, mut running) = (BufReader::new(input), JoinSet::new());
    loop {
        tokio::select! {
            line = next_line(&mut input, MAX_MESSAGE) => match line? {
                None => break,
                Some(line) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(line) => host.take(&line, &mut running).await,
            },
            Some(_) = running.join_next() => {}
        }
    }
    // What the host has asked for before it left is answered, if that takes no time.
    let _late = timeout(LAST_ANSWERS, async { while running.join_next().await.is_some() {} }).await;
    running.shutdown().await;
    drop(host);
    writing.await.map_err(io::Error::other)?
}

async fn write(mut queue: mpsc::Receiver<String>, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
    while let Some(mut line) = queue.recv().await {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

impl Host {
    /// Takes a message; calls run in a task of their own.
    async fn take(&self, line: &[u8], running: &mut JoinSet<()>) {
        let Ok(message) = serde_json::from_slice::<Message>(line) else {
            let failed = Failed::new(-32700, "the line is no JSON-RPC message");
            return self.answer(&Value::Null, Err(failed)).await;
        };
        match message {
            Message { method: Some(method), id: Some(id), params, .. } if method == "tools/call" => {
                if running.len() >= MAX_CALLS {
                    let failed = Failed::new(-32000, format!("{MAX_CALLS} calls run already"));
                    return self.answer(&id, Err(failed)).await;
                }
                let (host, token) = (self.clone(), CancellationToken::new());
                let key = id.to_string();
                self.state().running.insert(key.clone(), token.clone());
                running.spawn(async move {
                    tokio::select! {
                        called = host.call(&params) => host.answer(&id, called).await,
                        // A request that was cancelled has no answer.
                        () = token.cancelled() => {}
                    }
                    host.state().running.remove(&key);
                });
            }
            Message { method: Some(method), id: Some(id), params, .. } => {
                let answer = self.request(&method, &params);
                self.answer(&id, answer).await;
            }
            Message { method: Some(method), params, .. } if method == "notifications/cancelled" => {
                let id = params.get("requestId").map(Value::to_string).unwrap_or_default();
                if let Some(token) = self.state().running.get(&id) {
                    token.cancel();
                }
            }
            Message { id: Some(id), result, .. } => {
                let asked = id.as_str().and_then(|id| self.state().asked.remove(id));
                // Absent when its call has ended; null when the client refused.
                if let Some(asked) = asked {
                    let _unheard = asked.send(result.unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    /// A request that is answered at once.
    fn request(&self, method: &str, params: &Value) -> Result<Value, Failed> {
        let capabilities = json!({ "tools": {} });
        let info = json!({ "name": "linger", "version": linger_protocol::VERSION });
        let era = Era::of(params)?;
        match method {
            // A host that says its version with each request has neither.
            "initialize" | "ping" if era == Era::PerRequest => {
                Err(Failed::new(-32601, format!("there is no method {method}")))
            }
            "initialize" => {
                self.state().can_ask = takes_forms(params);
                Ok(json!({ "protocolVersion": agreed(params), "capabilities": capabilities, "serverInfo": info }))
            }
            "ping" => Ok(json!({})),
            "server/discover" => Ok(discovered(&capabilities, &info, None)),
            "tools/list" => Ok(era.listed(&self.tools())),
            _ => Err(Failed::new(-32601, format!("there is no method {method}"))),
        }
    }

    fn tools(&self) -> Value {
        let tools = self.0.calls.tools.iter().map(|tool| {
            let annotations = json!({ "readOnlyHint": !tool.changes(), "openWorldHint": false });
            json!({ "name": tool.name(), "description": tool.description(), "inputSchema": tool.schema(),
                "annotations": annotations })
        });
        tools.collect()
    }

    /// Calls a tool.
    async fn call(&self, params: &Value) -> Result<Value, Failed> {
        let era = Era::of(params)?;
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        if self.0.calls.tools.get(name).is_none() {
            let known = self.0.calls.tools.find(name).err().map(|unknown| unknown.0);
            return Err(Failed::new(-32602, known.unwrap_or_default()));
        }
        let input = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let prepared = match self.0.calls.prepare(name, &input).await {
            Ok(prepared) => prepared,
            Err(invalid) => return Ok(era.complete(refused(&invalid.0))),
        };
        match self.0.calls.permission(&prepared) {
            Permission::Given => {}
            Permission::Refused(why) => return Ok(era.complete(refused(&why))),
            Permission::Asked { action, grants } => match self.ask(era, params, &prepared, &action).await {
                Answer::Decided(decision, _) if decision == ALLOW => {}
                Answer::Decided(decision, _) if decision == ALWAYS => {
                    grants.iter().for_each(|grant| self.0.calls.grant(grant));
                }
                Answer::Decided(_, reason) => {
                    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                    return Ok(era.complete(refused(&format!("the user does not allow it{why}"))));
                }
                Answer::Later(wanted) => return Ok(wanted),
                Answer::Nobody => {
                    let allow: Vec<String> = grants.iter().map(|grant| format!("--allow '{grant}'")).collect();
                    let why = format!(
                        "it needs permission, and this host cannot ask for it; start the server with {}",
                        allow.join(" ")
                    );
                    return Ok(era.complete(refused(&why)));
                }
            },
        }
        let token = params.pointer("/_meta/progressToken").cloned();
        let (shown, pieces) = mpsc::channel(SHOWN);
        let showing = self.show(token, pieces);
        let (result, ()) = tokio::join!(self.0.calls.run(prepared, shown), showing);
        Ok(era.complete(result))
    }

    /// Sends output as progress, if the host wants to see any.
    async fn show(&self, token: Option<Value>, mut pieces: mpsc::Receiver<String>) {
        let mut progress = 0;
        while let Some(text) = pieces.recv().await {
            let Some(token) = &token else { continue };
            progress += 1;
            let params = json!({ "progressToken": token, "progress": progress, "message": text.trim_end() });
            self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        }
    }

    /// Asks the host's user for a permission.
    async fn ask(&self, era: Era, params: &Value, prepared: &Prepared, action: &str) -> Answer {
        let property = json!({ "type": "string", "title": "Answer", "enum": [ALLOW, ALWAYS, DENY] });
        let reason = json!({ "type": "string", "title": "Reason (optional)" });
        let properties = json!({ "answer": property, "reason": reason });
        let schema = json!({ "type": "object", "properties": properties, "required": ["answer"] });
        let message = format!("May linger run this?\n\n{action}\n\n{ALWAYS} allows its kind until this server ends");
        let question = json!({ "mode": "form", "message": message, "requestedSchema": schema });
        match era {
            Era::PerRequest => {
                // What it was shown is the call that it is the state of.
                if params.get("requestState").and_then(Value::as_str) == Some(&prepared.digest)
                    && let Some(answer) = params.pointer("/inputResponses").and_then(|all| all.get(PERMISSION))
                {
                    return decided(answer);
                }
                if !takes_forms(params) {
                    return Answer::Nobody;
                }
                let wanted = json!({ PERMISSION: { "method": "elicitation/create", "params": question } });
                Answer::Later(
                    json!({ "resultType": "input_required", "inputRequests": wanted, "requestState": prepared.digest }),
                )
            }
            Era::Handshake if self.state().can_ask => {
                let id = format!("q{}", self.0.last.fetch_add(1, Ordering::Relaxed));
                let (reply, answer) = oneshot::channel();
                self.state().asked.insert(id.clone(), reply);
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": question }))
                    .await;
                // Gone with the host.
                answer.await.map_or_else(|_| Answer::Decided(String::new(), String::new()), |answer| decided(&answer))
            }
            Era::Handshake => Answer::Nobody,
        }
    }

    async fn answer(&self, id: &Value, answer: Result<Value, Failed>) {
        let message = match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(Failed { code, message, data }) => {
                let mut error = json!({ "code": code, "message": message });
                if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
                    error.insert("data".to_owned(), data);
                }
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.send(&message).await;
    }

    async fn send(&self, message: &Value) {
        // A host that reads no more ends this process by closing its input.
        let _gone = self.0.out.send(message.to_string()).await;
    }

    fn state(&self) -> MutexGuard<'_, HostState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a question.
enum Answer {
    /// The user's answer and reason; anything but the two answers that allow is a no.
    Decided(String, String),
    /// The host asks, and calls again; the result that says so.
    Later(Value),
    /// The host cannot ask.
    Nobody,
}

/// The choice and the reason in an answer to our question; empty if it was declined.
fn decided(answer: &Value) -> Answer {
    let accepted = answer.get("action").and_then(Value::as_str) == Some("accept");
    let field = |path| answer.pointer(path).and_then(Value::as_str).filter(|_| accepted).unwrap_or_default().to_owned();
    Answer::Decided(field("/content/answer"), field("/content/reason"))
}
