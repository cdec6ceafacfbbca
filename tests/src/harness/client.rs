//! A raw client: JSON lines over the daemon's socket, every notification kept verbatim.
//!
//! A task reads; it keeps what came in a [`Transcript`] and answers by `id`. Dropping the client hangs up.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use linger_protocol::RpcError;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Dirs, while_working};
use crate::TIMEOUT;
use crate::check::{Entry, Seen, Transcript};

type Answered = Result<Value, RpcError>;
/// What a successful answer means for the transcript.
type Meaning = Box<dyn FnOnce(&Value) -> Entry + Send>;

#[derive(Default)]
struct State {
    transcript: Transcript,
    answers: HashMap<u64, Answered>,
    meanings: HashMap<u64, Meaning>,
    next_id: u64,
    closed: bool,
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A connection to the daemon.
pub struct Client {
    shared: Shared,
    write: tokio::sync::Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
    reader: JoinHandle<()>,
    workspace: PathBuf,
    env: Value,
}

impl Client {
    /// Connects and says hello.
    pub async fn connect(dirs: &Dirs, name: &str) -> io::Result<Self> {
        let (read, write) = UnixStream::connect(dirs.socket()).await?.into_split();
        Self::over(read, write, dirs, name).await
    }

    /// Says hello over a connection.
    pub async fn over(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        dirs: &Dirs,
        name: &str,
    ) -> io::Result<Self> {
        let write: Box<dyn AsyncWrite + Send + Unpin> = Box::new(write);
        let shared = Shared { state: Arc::default(), changed: Arc::new(watch::Sender::new(0)) };
        let reader = tokio::spawn(read_lines(read, shared.clone()));
        let wanted = ["PATH", "HOME", "LANG"];
        let env = dirs.env().into_iter().filter(|(name, _)| wanted.contains(&name.as_str()));
        let env = env.map(|(name, value)| (name, Value::from(value))).collect();
        let client = Self { shared, write: write.into(), reader, workspace: dirs.workspace(), env: Value::Object(env) };
        match client.request("daemon/hello", json!({ "client": name, "protocol": linger_protocol::PROTOCOL })).await {
            Some(Ok(_)) => Ok(client),
            Some(Err(error)) => panic!("hello is refused: {error}"),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Sends a request and gives its number, without waiting.
    pub async fn send(&self, method: &str, params: Value) -> io::Result<u64> {
        let id = {
            let mut state = self.shared.state();
            state.next_id += 1;
            let id = state.next_id;
            if let Some(meaning) = meaning(method, &params) {
                state.meanings.insert(id, meaning);
            }
            id
        };
        let line = format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.write.lock().await.write_all(line.as_bytes()).await?;
        Ok(id)
    }

    /// Waits for the answer to a request; nothing when the daemon has hung up.
    pub async fn answer(&self, id: u64) -> Option<Answered> {
        self.until(&format!("an answer to request {id}"), |state| match state.answers.remove(&id) {
            Some(answer) => Some(Some(answer)),
            None => state.closed.then_some(None),
        })
        .await
    }

    /// Sends a request and waits for its answer; nothing when the daemon has hung up.
    pub async fn request(&self, method: &str, params: Value) -> Option<Answered> {
        let id = self.send(method, params).await.ok()?;
        self.answer(id).await
    }

    /// Sends a request that must succeed.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        match self.request(method, params.clone()).await {
            Some(Ok(result)) => result,
            Some(Err(error)) => panic!("{method} {params} failed: {} {error} {:?}", error.code, error.data),
            None => panic!("{method} {params}: the daemon hung up"),
        }
    }

    /// Sends a request that must fail.
    pub async fn refused(&self, method: &str, params: Value) -> RpcError {
        match self.request(method, params.clone()).await {
            Some(Err(error)) => error,
            Some(Ok(result)) => panic!("{method} {params} was to fail and gave {result}"),
            None => panic!("{method} {params}: the daemon hung up"),
        }
    }

    /// Confirms the changes of the configuration that wait, once there are some.
    pub async fn confirm(&self) {
        let waiting = super::until("changes of the configuration wait", async || {
            let got = self.call("config/get", json!({})).await;
            got.get("waiting").cloned()
        })
        .await;
        self.call("config/confirm", json!({ "digest": waiting["digest"] })).await;
    }

    /// Creates a session of the default model and mode.
    pub async fn create(&self) -> String {
        self.create_with(json!({})).await
    }

    /// Creates a session with these parameters beside directory and environment.
    pub async fn create_with(&self, more: Value) -> String {
        let mut params = json!({ "cwd": self.workspace, "env": self.env });
        for (key, value) in more.as_object().expect("an object of parameters") {
            params[key] = value.clone();
        }
        self.call("session/create", params).await["session"].as_str().expect("a session").to_owned()
    }

    /// Attaches from the beginning.
    pub async fn attach(&self, session: &str) {
        self.call("session/attach", json!({ "session": session })).await;
    }

    /// Attaches after a cursor.
    pub async fn attach_after(&self, session: &str, cursor: &str) {
        self.call("session/attach", json!({ "session": session, "after": cursor })).await;
    }

    /// Creates a session and attaches to it.
    pub async fn session(&self) -> String {
        let session = self.create().await;
        self.attach(&session).await;
        session
    }

    /// Sends a prompt; gives the prompt's identifier.
    pub async fn prompt(&self, session: &str, text: &str) -> String {
        let result = self.call("session/prompt", json!({ "session": session, "content": text })).await;
        result["prompt"].as_str().expect("a prompt").to_owned()
    }

    /// Sends a prompt and waits until its turn has finished; gives `turn_finished`. What is still being replayed is no such end.
    pub async fn turn(&self, session: &str, text: &str) -> Seen {
        let prompt = self.prompt(session, text).await;
        let mut turn = None;
        self.scan(&format!("the end of the turn of {prompt}"), |seen| match seen.kind() {
            _ if seen.session != session => None,
            "turn_started" if seen.str("prompt") == prompt => {
                turn = Some(seen.str("turn").to_owned());
                None
            }
            "turn_finished" if turn.as_deref() == Some(seen.str("turn")) => Some(seen.clone()),
            _ => None,
        })
        .await
    }

    /// Waits for the `n`th event of a kind, counted from 1.
    pub async fn nth(&self, session: &str, kind: &str, n: usize) -> Seen {
        let mut left = n.max(1);
        self.scan(&format!("{kind} number {n}"), |seen| {
            left -= usize::from(seen.session == session && seen.kind() == kind);
            (left == 0).then(|| seen.clone())
        })
        .await
    }

    /// Waits for the first event of a kind.
    pub async fn first(&self, session: &str, kind: &str) -> Seen {
        self.nth(session, kind, 1).await
    }

    /// Waits until the text of assistants' messages that was streamed contains `text`.
    pub async fn sees_text(&self, session: &str, text: &str) {
        let mut all = String::new();
        self.scan(&format!("the text '{text}'"), |seen| {
            if seen.session != session || seen.kind() != "text_delta" {
                return None;
            }
            all.push_str(seen.str("text"));
            all.contains(text).then_some(())
        })
        .await;
    }

    /// Shows every event once to `look`, in order, until it finds something; for streams that are long.
    async fn scan<T>(&self, what: &str, mut look: impl FnMut(&Seen) -> Option<T>) -> T {
        let mut next = 0;
        self.wait(what, |transcript| {
            let new = transcript.0[next..].iter();
            next = transcript.0.len();
            new.filter_map(|entry| if let Entry::Event(seen) = entry { Some(seen) } else { None }).find_map(&mut look)
        })
        .await
    }

    /// Waits until `look` finds something in what was seen so far.
    pub async fn wait<T>(&self, what: &str, mut look: impl FnMut(&Transcript) -> Option<T>) -> T {
        self.until(what, |state| {
            let found = look(&state.transcript);
            assert!(
                found.is_some() || !state.closed,
                "{what}: the daemon hung up; seen so far:\n{}",
                state.transcript.outline()
            );
            found
        })
        .await
    }

    /// Whether the last event is one that `look` looks for.
    pub fn last(&self, look: impl FnOnce(&Seen) -> bool) -> bool {
        let state = self.shared.state();
        matches!(state.transcript.0.last(), Some(Entry::Event(seen)) if look(seen))
    }

    /// Whether the daemon has hung up.
    pub fn has_hung_up(&self) -> bool {
        self.shared.state().closed
    }

    /// Waits until the daemon has hung up.
    pub async fn closed(&self) {
        self.until("the daemon hangs up", |state| state.closed.then_some(())).await;
    }

    async fn until<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changed = self.shared.changed.subscribe();
        let search = async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = look(&mut self.shared.state()) {
                    return found;
                }
                // The sender lives in `self.shared`: this cannot fail.
                let _changed = changed.changed().await;
            }
        };
        match while_working(search).await {
            Some(found) => found,
            None => panic!("{what}: not within {TIMEOUT:?}; seen so far:\n{}", self.transcript().outline()),
        }
    }

    /// What was done and seen so far.
    pub fn transcript(&self) -> Transcript {
        self.shared.state().transcript.clone()
    }

    /// Gives `look` what was done and seen so far, without a copy of it.
    pub fn look<T>(&self, look: impl FnOnce(&Transcript) -> T) -> T {
        look(&self.shared.state().transcript)
    }

    /// The cursor of the last event of a session.
    pub fn cursor(&self, session: &str) -> String {
        self.look(|seen| seen.cursor(session).expect("a cursor").to_owned())
    }

    /// The working directory of its sessions.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Hangs up, and gives what was seen until now.
    pub fn hang_up(self) -> Transcript {
        self.reader.abort();
        self.transcript()
    }

    /// Begins with what another connection of the same user saw, so that both are one transcript.
    pub fn continues(&self, before: Transcript) {
        let mut state = self.shared.state();
        let mut all = before;
        all.0.append(&mut state.transcript.0);
        state.transcript = all;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

#[cfg(test)]
mod tests;

fn meaning(method: &str, params: &Value) -> Option<Meaning> {
    let text = |name: &str| params[name].as_str().map(str::to_owned);
    let session = text("session").unwrap_or_default();
    Some(match method {
        "session/attach" => {
            let after = text("after");
            let deltas = params["deltas"] != false;
            Box::new(move |_| Entry::Attached { session, after, deltas })
        }
        "session/prompt" => {
            let key = text("key");
            Box::new(move |result| Entry::Accepted {
                session,
                prompt: result["prompt"].as_str().unwrap_or_default().to_owned(),
                seq: result["seq"].as_u64().unwrap_or_default(),
                key,
            })
        }
        "session/remove" => Box::new(move |_| Entry::Removed { session }),
        "permission/answer" => {
            let (permission, decision) = (text("permission").unwrap_or_default(), text("decision").unwrap_or_default());
            let (digest, key) = (text("digest"), text("key"));
            Box::new(move |_| Entry::Won { permission, decision, digest, key })
        }
        "question/answer" => {
            let (permission, decision) = (text("question").unwrap_or_default(), text("answer").unwrap_or_default());
            let (digest, key) = (text("digest"), text("key"));
            Box::new(move |_| Entry::Won { permission, decision, digest, key })
        }
        _ => return None,
    })
}

#[derive(Deserialize)]
struct Line<'a> {
    id: Option<u64>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct Params<'a> {
    session: String,
    cursor: String,
    #[serde(borrow)]
    event: &'a RawValue,
}

async fn read_lines(read: impl AsyncRead + Unpin, shared: Shared) {
    let mut lines = BufReader::new(read);
    let mut line = String::new();
    while lines.read_line(&mut line).await.is_ok_and(|n| n > 0) {
        take(&line, &mut shared.state());
        line.clear();
        shared.changed.send_modify(|version| *version += 1);
    }
    shared.state().closed = true;
    shared.changed.send_modify(|version| *version += 1);
}

fn take(line: &str, state: &mut State) {
    let read: Line<'_> =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("not a line of the protocol: {error}: {line}"));
    if let (Some("session/event"), Some(params)) = (read.method.as_deref(), read.params) {
        let params: Params<'_> =
            serde_json::from_str(params.get()).unwrap_or_else(|error| panic!("bad event: {error}: {line}"));
        state.transcript.0.push(Entry::Event(Seen::new(&params.session, &params.cursor, params.event.get())));
        return;
    }
    let Some(id) = read.id else { return };
    let answer = match (read.error, read.result) {
        (Some(error), _) => Err(error),
        (None, result) => Ok(result.and_then(|result| serde_json::from_str(result.get()).ok()).unwrap_or_default()),
    };
    let meaning = state.meanings.remove(&id);
    if let (Some(meaning), Ok(result)) = (meaning, &answer) {
        let entry = meaning(result);
        state.transcript.0.push(entry);
    }
    state.answers.insert(id, answer);
}
