//! Requests of one connection take effect in the order in which they were sent (I15).
//!
//! Each ordered pair of session methods is sent three ways: over two connections, the second request after the answer to the first;
//! on one connection in one write; as a batch. Answers and effects must be those of the first way. A connection with a token is
//! tried too, because its rights are looked up before a request takes effect.

use std::cell::Cell;
use std::rc::Rc;

use linger_protocol::error::Code;
use linger_protocol::method::{Visitor, each_method};
use linger_tests::check::Seen;
use linger_tests::harness::{Client, Raw, Setup, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};

use crate::{Daemon, bash};

/// Sessions that are tried at once.
const AT_ONCE: usize = 8;

/// Session methods that the pairs leave out, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("session/create", "there is no session yet"),
    ("session/list", "reads all sessions"),
    ("session/search", "reads all sessions"),
    ("session/prune", "changes all sessions"),
    ("session/detach", "changes the connection, not the session"),
];

/// The events that requests make by themselves; a turn adds others at its own pace.
const EFFECTS: &[&str] = &[
    "session_created",
    "session_changed",
    "prompt_accepted",
    "prompt_unqueued",
    "prompt_drafted",
    "draft_sent",
    "turn_started",
    "turn_finished",
    "permission_resolved",
    "question_resolved",
    "undo_started",
    "undone",
    "rewound",
    "uncompacted",
];

/// A request of a pair: a method, and a word that tells its variants apart.
type Request = (&'static str, &'static str);

/// Requests to a session at rest after one turn that wrote a file.
const AT_REST: &[Request] = &[
    ("session/attach", ""),
    ("session/env", ""),
    ("session/prompt", "plain"),
    ("session/prompt", "command"),
    ("session/cancel", ""),
    ("session/continue", ""),
    ("session/compact", ""),
    ("session/unqueue", ""),
    ("session/undo", ""),
    ("session/redo", ""),
    ("session/diff", ""),
    ("session/fork", ""),
    ("session/rewind", ""),
    ("session/prompts", ""),
    ("session/compaction", ""),
    ("session/uncompact", ""),
    ("session/merge", ""),
    ("session/set", "mode"),
    ("session/set", "name"),
    ("session/bin", ""),
    ("session/restore", ""),
    ("session/remove", ""),
];

/// Requests to a session whose turn waits for an answer.
const WAITING: &[Request] = &[
    ("session/attach", ""),
    ("session/prompt", "plain"),
    ("session/prompt", "command"),
    ("session/cancel", ""),
    ("session/compact", ""),
    ("session/unqueue", ""),
    ("session/undo", ""),
    ("session/rewind", ""),
    ("session/set", "mode"),
    ("session/bin", "force"),
    ("session/remove", "force"),
    ANSWER,
];

const ANSWER: Request = ("permission/answer", "");

/// How a pair is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Over two connections, with an answer in between.
    Acknowledged,
    /// In one write.
    Pipelined,
    /// In one batch.
    Batch,
}

/// What came of a pair: whether each request succeeded or its error code, and the effects in their order.
#[derive(Debug, PartialEq)]
struct Outcome {
    answers: [Value; 2],
    effects: Vec<String>,
}

/// A daemon whose model answers the first prompt of each session and no other.
struct Bench {
    _model: ModelServer,
    daemon: Daemon,
    client: Client,
    /// A token for all sessions, if the pairs are sent with it.
    token: Option<String>,
    /// The number of sessions so far.
    sessions: Cell<usize>,
}

impl Bench {
    async fn new(with_token: bool) -> Rc<Self> {
        let model = ModelServer::start();
        // The sessions work in different directories, beside each other.
        model.expect_rewrites();
        let go = "---\ndescription: goes\n---\nGo.\n".to_owned();
        let user_files = vec![("commands/go.md".to_owned(), go)];
        let daemon = Daemon::start_with(&model, Setup { user_files, ..Setup::default() }).await;
        let client = daemon.client().await;
        let grant = json!({
            "name": "order", "mode": "auto",
            "can": ["observe", "speak", "steer", "answer_edits", "answer_commands", "administer"],
        });
        let token = if with_token {
            Some(client.call("token/mint", grant).await["token"].as_str().unwrap().to_owned())
        } else {
            None
        };
        let never = Gate::new();
        model.otherwise(move |request| match request.last_prompt().as_str() {
            "write" if !request.after_tool() => Reply::tool("write", json!({ "path": "file.txt", "content": "x" })),
            "write" => Reply::text("done"),
            "ask" if !request.after_tool() => bash("true"),
            _ => Reply::new().gate(&never),
        });
        Rc::new(Self { _model: model, daemon, client, token, sessions: Cell::new(0) })
    }

    /// A session at rest after a turn, or, with `waits`, one whose turn waits for an answer; and the question.
    async fn session(&self, waits: bool) -> (String, String) {
        let mode = if waits { "ask" } else { "auto" };
        // A directory of its own, for what the model writes.
        self.sessions.set(self.sessions.get() + 1);
        let dir = self.daemon.workspace().join(self.sessions.get().to_string());
        std::fs::create_dir(&dir).unwrap();
        let session = self.client.create_with(json!({ "mode": mode, "cwd": dir })).await;
        self.client.attach(&session).await;
        if !waits {
            self.client.turn(&session, "write").await;
            return (session, String::new());
        }
        self.client.prompt(&session, "ask").await;
        let asked = self.client.first(&session, "permission_requested").await;
        (session, asked.str("permission").to_owned())
    }

    async fn raw(&self) -> Raw {
        let mut raw = self.daemon.raw().await;
        let hello = json!({ "client": "order", "protocol": [1, 1], "token": self.token });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "daemon/hello", "params": hello });
        let answer = raw.ask(&hello.to_string()).await;
        assert!(answer["result"].is_object(), "{answer}");
        raw
    }

    /// Sends a pair to a session of its own.
    async fn outcome(&self, pair: [Request; 2], waits: bool, way: Way) -> Outcome {
        let (session, question) = self.session(waits).await;
        let lines = [0, 1].map(|n| {
            let (method, _) = pair[n];
            let params = params(pair[n], &session, &question);
            json!({ "jsonrpc": "2.0", "id": n + 1, "method": method, "params": params })
        });
        let mut raw = self.raw().await;
        let mut answers = match way {
            Way::Acknowledged => {
                let first = raw.ask(&lines[0].to_string()).await;
                let second = self.raw().await.ask(&lines[1].to_string()).await;
                vec![first, second]
            }
            Way::Pipelined => {
                raw.send(format!("{}\n{}\n", lines[0], lines[1])).await;
                vec![raw.line().await.unwrap(), raw.line().await.unwrap()]
            }
            Way::Batch => {
                raw.send(format!("[{},{}]\n", lines[0], lines[1])).await;
                raw.line().await.unwrap().as_array().unwrap().clone()
            }
        };
        answers.sort_by_key(|answer| answer["id"].as_u64());
        let answers: Vec<Value> = answers.iter().map(|answer| answer["error"]["code"].clone()).collect();
        let effects = self.effects(&session).await;
        let _end = self.client.request("session/remove", json!({ "session": session, "force": true })).await;
        Outcome { answers: answers.try_into().unwrap(), effects }
    }

    /// The effects in the log of a session.
    async fn effects(&self, session: &str) -> Vec<String> {
        let reader = self.daemon.client().await;
        // Answered once all that came before is stored.
        let _stored = reader.request("session/prompts", json!({ "session": session })).await;
        let Some(Ok(_)) = reader.request("session/attach", json!({ "session": session })).await else {
            return vec!["gone".to_owned()];
        };
        reader.first(session, "caught_up").await;
        let all = reader.transcript();
        // A turn also ends by itself, at its own pace.
        let is_effect = |seen: &&Seen| {
            EFFECTS.contains(&seen.kind()) && (seen.kind() != "turn_finished" || seen.str("stop_reason") == "cancelled")
        };
        all.events().filter(is_effect).map(|seen| described(&seen.event)).collect()
    }

    /// How a pair differs when it is sent without waiting for the first answer.
    async fn differences(&self, pair: [Request; 2], waits: bool) -> Vec<String> {
        let expect = self.outcome(pair, waits, Way::Acknowledged).await;
        let mut wrong = Vec::new();
        let has_read = pair.iter().any(|(method, _)| READS.contains(method));
        let ways: &[Way] = if has_read { &[Way::Pipelined] } else { &[Way::Pipelined, Way::Batch] };
        for way in ways.iter().copied() {
            let found = self.outcome(pair, waits, way).await;
            if found != expect && !is_documented(pair, &found) {
                wrong.push(format!("{pair:?} {way:?}: {found:#?}, expected {expect:#?}"));
            }
        }
        wrong
    }

    /// Fails for every pair that is not as if its first request had been answered before the second was sent.
    async fn holds(self: &Rc<Self>, pairs: Vec<[Request; 2]>, waits: bool) {
        let mut wrong = Vec::new();
        for some in pairs.chunks(AT_ONCE) {
            let (local, mut tries) = (LocalSet::new(), JoinSet::new());
            for pair in some.iter().copied() {
                let bench = self.clone();
                tries.spawn_local_on(async move { bench.differences(pair, waits).await }, &local);
            }
            wrong.extend(local.run_until(tries.join_all()).await.into_iter().flatten());
        }
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Whether a difference is one that the protocol promises: a cancel does not wait for the prompt before it, and two cancels in a row
/// end one turn.
fn is_documented([first, second]: [Request; 2], found: &Outcome) -> bool {
    match (first, second) {
        (("session/prompt", _), ("session/cancel", _)) => {
            let was_accepted = found.effects.iter().any(|effect| effect.contains("Go.") || effect.contains("plain"));
            found.answers == [json!(-31014), Value::Null] && !was_accepted
        }
        (("session/cancel", _), ("session/cancel", _)) => found.answers == [Value::Null, Value::Null],
        _ => false,
    }
}

fn described(event: &Value) -> String {
    let kind = event["kind"].as_str().unwrap();
    let detail = match kind {
        "prompt_accepted" => &event["content"],
        // The name itself differs in each session.
        "session_changed" if event["name"].is_string() => return "session_changed name".to_owned(),
        "session_changed" => &event["mode"],
        "turn_finished" => &event["stop_reason"],
        _ => &Value::Null,
    };
    format!("{kind} {detail}")
}

fn params((method, variant): Request, session: &str, question: &str) -> Value {
    let prompt = |content: &str| json!({ "session": session, "content": content, "expand": true });
    match (method, variant) {
        ("session/prompt", "plain") => prompt("plain"),
        ("session/prompt", _) => prompt("/go"),
        ("session/set", "mode") => json!({ "session": session, "mode": "plan" }),
        ("session/set", _) => json!({ "session": session, "name": format!("n-{session}") }),
        ("permission/answer", _) => json!({ "permission": question, "decision": "allow_once" }),
        (_, "force") => json!({ "session": session, "force": true }),
        _ => json!({ "session": session }),
    }
}

/// Requests that change nothing: in which order two of them run cannot be told.
const READS: &[&str] = &["session/attach", "session/env", "session/diff", "session/prompts", "session/compaction"];

fn pairs(of: &[Request]) -> Vec<[Request; 2]> {
    let all = of.iter().flat_map(|first| of.iter().map(move |second| [*first, *second]));
    all.filter(|pair| !pair.iter().all(|(method, _)| READS.contains(method))).collect()
}

#[test]
fn the_pairs_have_every_method_of_a_session() {
    #[derive(Default)]
    struct Names(Vec<&'static str>);
    impl Visitor for Names {
        fn method<P: schemars::JsonSchema, R: schemars::JsonSchema>(&mut self, name: &'static str) {
            self.0.push(name);
        }
    }
    let mut names = Names::default();
    each_method(&mut names);
    let known = |name: &str| {
        AT_REST.iter().any(|(method, _)| *method == name) || LEFT_OUT.iter().any(|(method, _)| *method == name)
    };
    let missing: Vec<_> = names.0.iter().filter(|name| name.starts_with("session/") && !known(name)).collect();
    assert!(missing.is_empty(), "no pair has {missing:?}");
}

#[tokio::test]
async fn two_requests_to_a_session_at_rest_take_effect_in_their_order() {
    Bench::new(false).await.holds(pairs(AT_REST), false).await;
}

#[tokio::test]
async fn two_requests_to_a_session_that_waits_for_an_answer_take_effect_in_their_order() {
    Bench::new(false).await.holds(pairs(WAITING), true).await;
}

#[tokio::test]
async fn two_requests_with_a_token_take_effect_in_their_order() {
    let changes = ["prompt", "cancel", "compact", "unqueue", "undo", "set", "attach", "rewind"];
    let of: Vec<Request> =
        AT_REST.iter().copied().filter(|(method, _)| changes.iter().any(|change| method.ends_with(change))).collect();
    Bench::new(true).await.holds(pairs(&of), false).await;
}

/// A daemon with a hook that holds up prompts with the words `hold-this-up` until a file is there, and notes that it ran.
async fn with_slow_hook() -> (ModelServer, Daemon, Client, String) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let hook =
        "grep -q hold-this-up || exit 0; touch began; until [ -e go ]; do sleep 0.01; done; echo added; touch ended";
    let hooks = format!("[{{ event = 'prompt', command = '{hook}' }}]");
    client.call("config/set", json!({ "name": "hooks", "value": hooks })).await;
    let session = client.session().await;
    (model, daemon, client, session)
}

async fn hook_began(daemon: &Daemon) {
    let began = daemon.workspace().join("began");
    until("the hook runs", async || began.exists().then_some(())).await;
}

#[tokio::test]
async fn a_slow_hook_holds_up_its_session_and_no_other_and_keeps_the_order() {
    let (model, daemon, client, session) = with_slow_hook().await;
    model.push([Reply::text("one"), Reply::text("two"), Reply::text("three")]);
    let first = client.send("session/prompt", json!({ "session": session, "content": "hold-this-up" })).await.unwrap();
    let named = client.send("session/set", json!({ "session": session, "name": "later" })).await.unwrap();
    let second = client.send("session/prompt", json!({ "session": session, "content": "fast" })).await.unwrap();
    hook_began(&daemon).await;
    // The session can be read meanwhile, and another one works.
    let reader = daemon.client().await;
    reader.attach(&session).await;
    let other = client.session().await;
    client.turn(&other, "fast").await;
    assert_eq!(reader.transcript().of("prompt_accepted").count(), 0);
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    for id in [first, named, second] {
        assert!(client.answer(id).await.unwrap().is_ok());
    }
    client.nth(&session, "turn_finished", 2).await;
    let seen = reader.transcript();
    let order: Vec<String> = seen
        .events()
        .filter(|seen| ["prompt_accepted", "session_changed"].contains(&seen.kind()))
        .map(|seen| seen.event["content"][0]["text"].as_str().unwrap_or("name").to_owned())
        .collect();
    assert_eq!(order, ["hold-this-up", "name", "fast"]);
    daemon.check(&[&client, &reader], &model);
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_a_hook_and_cancels_the_prompt_that_it_holds_up() {
    let (model, daemon, client, session) = with_slow_hook().await;
    let prompt = json!({ "session": session, "content": "hold-this-up" });
    let first = client.send("session/prompt", prompt).await.unwrap();
    let behind = json!({ "session": session, "content": "behind" });
    let second = client.send("session/prompt", behind).await.unwrap();
    hook_began(&daemon).await;
    // From another terminal.
    daemon.client().await.call("session/cancel", json!({ "session": session })).await;
    for id in [first, second] {
        assert_eq!(client.answer(id).await.unwrap().unwrap_err().code, -31014);
    }
    assert_eq!(model.request_count(), 0);
    // The hook was ended, and the session works on.
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    model.push([Reply::text("done")]);
    client.turn(&session, "fast").await;
    assert!(!daemon.workspace().join("ended").exists());
    assert!(client.transcript().of("prompt_accepted").all(|seen| seen.event["content"][0]["text"] == "fast"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_cancel_in_the_same_write_cancels_the_prompt_before_it() {
    let (model, daemon, client, session) = with_slow_hook().await;
    let mut raw = daemon.raw().await;
    let request = |id: u32, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    };
    let prompt = request(1, "session/prompt", json!({ "session": session, "content": "hold-this-up" }));
    let cancel = request(2, "session/cancel", json!({ "session": session }));
    raw.send(format!("{prompt}\n{cancel}\n")).await;
    let mut answers = [raw.line().await.unwrap(), raw.line().await.unwrap()];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["error"]["code"], -31014, "{answers:?}");
    assert!(answers[1]["result"].is_object(), "{answers:?}");
    assert_eq!(model.request_count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_its_prompt_is_prepared_leaves_the_session_usable() {
    let (model, daemon, client, session) = with_slow_hook().await;
    let gone = daemon.client().await;
    gone.send("session/prompt", json!({ "session": session, "content": "hold-this-up" })).await.unwrap();
    hook_began(&daemon).await;
    gone.hang_up();
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    model.otherwise(|_| Reply::text("done"));
    client.turn(&session, "fast").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_prompt_that_is_prepared_while_the_daemon_ends_is_told_so() {
    let (model, daemon, client, session) = with_slow_hook().await;
    let prompt = json!({ "session": session, "content": "hold-this-up" });
    let id = client.send("session/prompt", prompt).await.unwrap();
    hook_began(&daemon).await;
    client.send("daemon/stop", json!({})).await.unwrap();
    assert_eq!(client.answer(id).await.unwrap().unwrap_err().code, Code::Ending as i32);
    assert_eq!(model.request_count(), 0);
    daemon.check(&[&client], &model);
}
