//! A client that notes, with each line that it gets, how long the journal was by then.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Acknowledged, Told};
use crate::TIMEOUT;

/// Events that are on disk when they are shown; of a call that changes nothing the start is not.
const SYNCED: [&str; 5] =
    ["session_created", "prompt_accepted", "permission_requested", "permission_resolved", "turn_finished"];

/// What came.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<Acknowledged>,
    events: Vec<(String, Value)>,
    answers: Vec<Value>,
    /// What a good answer to a request will mean, of those that mean something.
    meanings: HashMap<u64, (String, Told)>,
}

/// The client; a thread of its own reads.
pub(super) struct Recorder {
    stream: UnixStream,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    next: u64,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Recorder {
    /// Connects; what is acknowledged to it is noted with the length of `journal`.
    pub(super) fn connect(socket: &Path, journal: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the daemon listens");
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let (lines, shared, journal) = (stream.try_clone().expect("a stream"), seen.clone(), journal.to_path_buf());
        std::thread::spawn(move || read(lines, &shared, &journal));
        let mut recorder = Self { stream, seen, next: 0 };
        recorder.call("daemon/hello", json!({ "client": "recorder", "protocol": linger_protocol::PROTOCOL }));
        recorder
    }

    /// Sends a request and gives its number.
    pub(super) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        let told = match method {
            "session/create" => Some((String::new(), Told::Written { seq: 1, kind: "session_created" })),
            "session/prompt" => Some((text("session"), Told::Written { seq: 0, kind: "prompt_accepted" })),
            "permission/answer" => {
                let (permission, decision) = (text("permission"), text("decision"));
                Some((text("of"), Told::Won { permission, decision }))
            }
            _ => None,
        };
        lock(&self.seen.0).meanings.extend(told.map(|told| (self.next, told)));
        let line = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.stream.write_all(format!("{line}\n").as_bytes()).expect("the daemon reads");
        self.next
    }

    /// Sends a request that must succeed.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.wait(method, |seen| seen.answers.iter().find(|answer| answer["id"] == id).cloned());
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The `n`th event of a session and a kind, counted from 1.
    pub(super) fn nth(&self, session: &str, kind: &str, n: usize) -> Value {
        self.wait(kind, |seen| {
            let of = seen.events.iter().filter(|(of, event)| of == session && event["kind"] == kind);
            of.map(|(_, event)| event.clone()).nth(n - 1)
        })
    }

    fn wait<T>(&self, what: &str, look: impl Fn(&Seen) -> Option<T>) -> T {
        let (seen, grown) = &*self.seen;
        let began = Instant::now();
        let mut seen = lock(seen);
        loop {
            if let Some(found) = look(&seen) {
                return found;
            }
            assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
            seen = grown.wait_timeout(seen, TIMEOUT).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// What was acknowledged so far.
    pub(super) fn acknowledged(&self) -> Vec<Acknowledged> {
        lock(&self.seen.0).acknowledged.clone()
    }
}

#[derive(Deserialize)]
struct Params<'a> {
    session: String,
    #[serde(borrow)]
    event: &'a RawValue,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

fn read(stream: UnixStream, shared: &(Mutex<Seen>, Condvar), journal: &PathBuf) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let at = std::fs::metadata(journal).map_or(0, |journal| journal.len() as usize);
        let parsed: Line<'_> = serde_json::from_str(&line).expect("a line of the protocol");
        let mut seen = lock(&shared.0);
        match parsed.params.map(|params| serde_json::from_str::<Params<'_>>(params.get())) {
            Some(params) => {
                let params = params.expect("an event");
                let event: Value = serde_json::from_str(params.event.get()).expect("an event");
                let kind = event["kind"].as_str().unwrap_or_default();
                if let Some(seq) = event["seq"].as_u64()
                    && (SYNCED.contains(&kind) || (kind == "tool_started" && event["tool"] == "bash"))
                {
                    let what = Told::Event { seq, raw: params.event.get().to_owned() };
                    seen.acknowledged.push(Acknowledged { at, session: params.session.clone(), what });
                }
                seen.events.push((params.session, event));
            }
            None => {
                let answer: Value = serde_json::from_str(&line).expect("an answer");
                let meaning = answer["id"].as_u64().and_then(|id| seen.meanings.remove(&id));
                if let Some((mut session, mut what)) = meaning.filter(|_| answer["error"].is_null()) {
                    if let Some(made) = answer["result"]["session"].as_str() {
                        made.clone_into(&mut session);
                    }
                    if let (Told::Written { seq, .. }, Some(given)) = (&mut what, answer["result"]["seq"].as_u64()) {
                        *seq = given;
                    }
                    seen.acknowledged.push(Acknowledged { at, session, what });
                }
                seen.answers.push(answer);
            }
        }
        shared.1.notify_all();
    }
}
