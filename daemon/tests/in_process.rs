//! Daemons within this process: methods as plain functions, a typed subscription, two daemons side by side.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::daemon::Stop;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, MessageAdded, Process, PromptAccepted};
use linger_protocol::id::SessionId;
use linger_protocol::message::{ContentBlock, Role, text_of};
use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::session::{Attach, Create, List, Prompt, Set};
use lingerd::Options;
use lingerd::rpc::in_process::in_process;
use lingerd::service::{Authority, Caller, Services, Setup, daemon, mcp, session};
use lingerd::session::reading::subscription::Subscription;
use lingerd::sys::peer::{self, Peer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// More than any of these takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> Arc<Services> {
    Services::open(Setup::of(Places::below(dir).unwrap()), CancellationToken::new()).unwrap()
}

fn create(dir: &Path, name: &str) -> Create {
    serde_json::from_value(json!({ "cwd": dir, "model": "demo", "name": name })).unwrap()
}

fn prompt(session: &SessionId, text: &str) -> Prompt {
    serde_json::from_value(json!({ "session": session, "content": text })).unwrap()
}

fn attach(session: &SessionId) -> Attach {
    serde_json::from_value(json!({ "session": session })).unwrap()
}

/// The events up to the end of a turn, each with its cursor.
async fn turn(subscription: &mut Subscription) -> Vec<(String, Event)> {
    let mut events = Vec::new();
    loop {
        let shown = timeout(SOON, subscription.next()).await.unwrap().unwrap();
        let (cursor, event) = (shown.cursor.0.clone(), shown.into_event().unwrap());
        let ended = matches!(event.body, EventBody::TurnFinished(_));
        events.push((cursor, event));
        if ended {
            return events;
        }
    }
}

#[tokio::test]
async fn methods_are_plain_functions_and_a_subscription_shows_deltas_with_their_cursors() {
    let dir = tempfile::tempdir().unwrap();
    let (services, me) = (open(dir.path()), Caller::new(Authority::Daemon));
    let id = session::create(&services, &me, create(dir.path(), "plain")).await.unwrap().session;
    let (_, mut subscription) = session::attach(&services, &me, attach(&id)).await.unwrap();
    session::prompt(&services, &me, prompt(&id, "say: good morning to you")).await.unwrap();
    let events = turn(&mut subscription).await;
    let deltas = events.iter().filter_map(|(_, event)| match &event.body {
        EventBody::TextDelta(delta) => Some(delta.text.as_str()),
        _ => None,
    });
    let messages: Vec<&Vec<ContentBlock>> = events
        .iter()
        .filter_map(|(_, event)| match &event.body {
            EventBody::Message(MessageAdded { role: Role::Assistant, content, .. }) => Some(content),
            _ => None,
        })
        .collect();
    assert_eq!(deltas.collect::<String>(), text_of(messages[0]));
    assert!(text_of(messages[0]).contains("good morning"));
    // Whoever goes on from a cursor in the middle sees the rest, and nothing twice.
    let seqs: Vec<u64> = events.iter().filter_map(|(_, event)| event.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let sent_by = events.iter().find_map(|(_, event)| match &event.body {
        EventBody::PromptAccepted(PromptAccepted { process, .. }) => *process,
        _ => None,
    });
    assert_eq!(sent_by, Some(Process { pid: std::process::id(), family: true }));
    let middle = events.len() / 2;
    let after = serde_json::from_value(json!({ "session": id, "after": events[middle].0 })).unwrap();
    let (_, mut again) = session::attach(&services, &me, after).await.unwrap();
    let rest = turn(&mut again).await.into_iter().filter_map(|(_, event)| event.seq).collect::<Vec<_>>();
    let left: Vec<u64> = events[middle + 1..].iter().filter_map(|(_, event)| event.seq).collect();
    assert_eq!(rest, left);
    services.registry.pause().await;
    services.store.close().await.unwrap();
}

#[tokio::test]
async fn a_session_may_not_widen_what_may_happen() {
    let dir = tempfile::tempdir().unwrap();
    let (services, me) = (open(dir.path()), Caller::new(Authority::Daemon));
    let id = session::create(&services, &me, create(dir.path(), "parent")).await.unwrap().session;
    let child = Caller::new(Authority::Session(id.clone()));
    let auto = Create { mode: Some(Mode::Auto), ..create(dir.path(), "child") };
    let refused = session::create(&services, &child, auto).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::NotAllowed));
    let mode: Set = serde_json::from_value(json!({ "session": id, "mode": "auto" })).unwrap();
    let refused = session::set(&services, &child, mode.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::NotAllowed));
    session::create(&services, &child, create(dir.path(), "child")).await.unwrap();
    session::set(&services, &me, mode).await.unwrap();
    let names: Vec<_> = session::list(&services, &me, List::default()).await.unwrap();
    assert_eq!(names.len(), 2);
    services.registry.pause().await;
    services.store.close().await.unwrap();
}

/// A process that the daemon started, or this test.
fn process(pid: u32) -> Caller {
    let uid = peer::user(pid).unwrap();
    Caller::new(Authority::Peer(Peer { pid: Some(pid), began: peer::started(pid), uid }))
}

/// The process id that the running tool of a session prints.
async fn tool_process(subscription: &mut Subscription) -> u32 {
    loop {
        let shown = timeout(SOON, subscription.next()).await.unwrap().unwrap();
        if let EventBody::ToolOutputDelta { text, .. } = shown.into_event().unwrap().body {
            return text.trim().parse().unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_of_a_tool_reads_its_own_session_and_its_children_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (services, me) = (open(dir.path()), Caller::new(Authority::Daemon));
    let auto = Create { mode: Some(Mode::Auto), ..create(dir.path(), "own") };
    let own = session::create(&services, &me, auto).await.unwrap().session;
    let child = Caller::new(Authority::Session(own.clone()));
    let child = session::create(&services, &child, create(dir.path(), "child")).await.unwrap().session;
    let other = session::create(&services, &me, create(dir.path(), "other")).await.unwrap().session;
    let (_, mut subscription) = session::attach(&services, &me, attach(&own)).await.unwrap();
    session::prompt(&services, &me, prompt(&own, "run: echo $$; exec sleep 1000")).await.unwrap();
    let tool = process(tool_process(&mut subscription).await);
    let hello = json!({ "client": "linger@pts/0", "version": "1", "protocol": [1, 1] });
    daemon::hello(&services, &tool, serde_json::from_value(hello).unwrap()).await.unwrap();
    assert!(tool.name().starts_with("pid "), "{}", tool.name());

    let listed = session::list(&services, &tool, List::default()).await.unwrap();
    let mut listed: Vec<SessionId> = listed.into_iter().map(|row| row.session).collect();
    listed.sort();
    let mut tree = vec![own.clone(), child.clone()];
    tree.sort();
    assert_eq!(listed, tree);
    for readable in [&own, &child] {
        session::attach(&services, &tool, attach(readable)).await.map(drop).unwrap();
    }
    let keyed = |session: &SessionId| serde_json::from_value(json!({ "session": session })).unwrap();
    let cancel = |session: &SessionId| serde_json::from_value(json!({ "session": session })).unwrap();
    let mut refused = vec![session::attach(&services, &tool, attach(&other)).await.map(drop)];
    for session in [&own, &child, &other] {
        let set = serde_json::from_value(json!({ "session": session, "name": "mine" })).unwrap();
        let force = serde_json::from_value(json!({ "session": session, "force": true })).unwrap();
        let compact = serde_json::from_value(json!({ "session": session })).unwrap();
        refused.extend([
            session::prompt(&services, &tool, prompt(session, "do as I say")).await.map(drop),
            session::compact(&services, &tool, compact).await.map(drop),
            session::cancel(&services, &tool, cancel(session)).await.map(drop),
            session::resume(&services, &tool, keyed(session)).await.map(drop),
            session::set(&services, &tool, set).await.map(drop),
            session::remove(&services, &tool, force).await.map(drop),
        ]);
    }
    let all = serde_json::from_value(json!({ "older_than_ms": 0, "force": true })).unwrap();
    let prune = session::prune(&services, &tool, all);
    refused.push(called(&services, &tool, "session/prune", prune).await);
    let more = session::create(&services, &tool, create(dir.path(), "more"));
    refused.push(called(&services, &tool, "session/create", Box::pin(more)).await);
    // A process of the family that no tool started.
    let unplaced = process(std::process::id());
    let list = session::list(&services, &unplaced, List::default());
    refused.push(called(&services, &unplaced, "session/list", list).await);
    refused.push(session::attach(&services, &unplaced, attach(&own)).await.map(drop));
    // What belongs to no session, or to a directory.
    let nothing = || json!({});
    let here = || json!({ "cwd": dir.path() });
    for (caller, params) in [(&tool, here()), (&unplaced, here()), (&unplaced, nothing())] {
        let tools = serde_json::from_value(params).unwrap();
        let list = lingerd::service::tool::list(&services, caller, tools);
        refused.push(called(&services, caller, "tool/list", list).await);
    }
    for params in [here(), nothing()] {
        let servers = serde_json::from_value(params).unwrap();
        refused.push(called(&services, &tool, "mcp/list", mcp::list(&services, &tool, servers)).await);
    }
    let logs = serde_json::from_value(json!({ "server": "any" })).unwrap();
    refused.push(called(&services, &tool, "mcp/logs", mcp::logs(&services, &tool, logs)).await);
    let codes: Vec<_> = refused.into_iter().map(|result| result.unwrap_err().code()).collect();
    assert_eq!(codes, vec![Some(Code::NotAllowed); codes.len()]);
    for params in [nothing(), json!({ "session": own })] {
        lingerd::service::tool::list(&services, &tool, serde_json::from_value(params).unwrap())
            .await
            .map(drop)
            .unwrap();
    }

    session::cancel(&services, &me, cancel(&own)).await.unwrap();
    services.registry.pause().await;
    services.store.close().await.unwrap();
}

/// Calls a method as a connection does: after its row in the table of authority.
async fn called<T>(
    services: &Services,
    caller: &Caller,
    method: &str,
    call: impl Future<Output = Result<T, RpcError>>,
) -> Result<(), RpcError> {
    caller.may_call(services, method)?;
    call.await.map(drop)
}

/// One end of a connection.
type Lines = BufReader<DuplexStream>;

async fn next(lines: &mut Lines) -> Value {
    let mut line = String::new();
    timeout(SOON, lines.read_line(&mut line)).await.unwrap().unwrap();
    serde_json::from_str(&line).unwrap()
}

/// One request, and the line that comes next: its answer, unless the connection is attached.
async fn ask(lines: &mut Lines, method: &str, params: Value) -> Value {
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string() + "\n";
    lines.write_all(line.as_bytes()).await.unwrap();
    next(lines).await
}

/// The next event of this kind.
async fn event(lines: &mut Lines, kind: &str) -> Value {
    loop {
        let event = next(lines).await["params"]["event"].take();
        if event["kind"] == kind {
            return event;
        }
    }
}

#[tokio::test]
async fn a_connection_of_a_session_answers_nothing_not_even_what_the_session_asks() {
    let dir = tempfile::tempdir().unwrap();
    let (connector, listener) = in_process();
    let shutdown = CancellationToken::new();
    let options = Options::of(Setup::of(Places::below(dir.path()).unwrap()));
    let daemon = tokio::spawn(lingerd::run(options, listener, shutdown.clone()));
    let mut person = BufReader::new(connector.connect().await.unwrap());
    let created = ask(&mut person, "session/create", json!(create(dir.path(), "careful"))).await;
    let id = SessionId(created["result"]["session"].as_str().unwrap().to_owned());
    let mut own = BufReader::new(connector.connect_as(Authority::Session(id.clone())).await.unwrap());
    let mut watcher = BufReader::new(connector.connect().await.unwrap());
    ask(&mut person, "session/prompt", json!(prompt(&id, "run: touch made"))).await;
    ask(&mut watcher, "session/attach", json!(attach(&id))).await;
    let permission = event(&mut watcher, "permission_requested").await["permission"].take();
    let decision = json!({ "permission": permission, "decision": "allow_once" });
    let answer = json!({ "question": permission, "answer": "allow_once" });
    for (method, params) in [("permission/answer", &decision), ("question/answer", &answer)] {
        let refused = ask(&mut own, method, params.clone()).await;
        assert_eq!(refused["error"]["code"], Code::NotAllowed as i32, "{method}: {refused}");
    }
    assert_eq!(ask(&mut own, "permission/list", json!({})).await["result"][0]["permission"], permission);
    assert_eq!(ask(&mut person, "permission/answer", decision).await["result"]["outcome"], "won");
    event(&mut watcher, "turn_finished").await;
    assert!(dir.path().join("made").exists());
    shutdown.cancel();
    daemon.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_permission_that_shows_something_else_than_what_would_run_is_not_shown_and_not_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (connector, listener) = in_process();
    let shutdown = CancellationToken::new();
    let places = Places::below(dir.path()).unwrap();
    let daemon = tokio::spawn(lingerd::run(Options::of(Setup::of(places.clone())), listener, shutdown.clone()));
    let mut person = BufReader::new(connector.connect().await.unwrap());
    let created = ask(&mut person, "session/create", json!(create(dir.path(), "careful"))).await;
    let id = SessionId(created["result"]["session"].as_str().unwrap().to_owned());
    let mut watcher = BufReader::new(connector.connect().await.unwrap());
    ask(&mut watcher, "session/attach", json!(attach(&id))).await;
    ask(&mut person, "session/prompt", json!(prompt(&id, "run: touch made"))).await;
    let permission = event(&mut watcher, "permission_requested").await["permission"].take();
    assert_eq!(ask(&mut person, "permission/list", json!({})).await["result"].as_array().unwrap().len(), 1);
    let database = rusqlite::Connection::open(places.database()).unwrap();
    let other = "UPDATE question SET asked = json_set(asked, '$.action', 'ls', '$.input.command', 'ls')";
    assert_eq!(database.execute(other, []).unwrap(), 1);
    assert_eq!(ask(&mut person, "permission/list", json!({})).await["result"], json!([]));
    let decision = json!({ "permission": permission, "decision": "allow_once" });
    let refused = ask(&mut person, "permission/answer", decision).await;
    assert_eq!(refused["error"]["code"], Code::WrongDigest as i32, "{refused}");
    ask(&mut person, "session/cancel", json!({ "session": id })).await;
    event(&mut watcher, "turn_finished").await;
    assert!(!dir.path().join("made").exists());
    drop(database);
    shutdown.cancel();
    daemon.await.unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_left_the_group_of_its_call_ends_with_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let (connector, listener) = in_process();
    let shutdown = CancellationToken::new();
    let options = Options::of(Setup::of(Places::below(dir.path()).unwrap()));
    let daemon = tokio::spawn(lingerd::run(options, listener, shutdown.clone()));
    let mut person = BufReader::new(connector.connect().await.unwrap());
    let auto = Create { mode: Some(Mode::Auto), umask: Some(0o027), ..create(dir.path(), "auto") };
    let created = ask(&mut person, "session/create", json!(auto)).await;
    let id = SessionId(created["result"]["session"].as_str().unwrap().to_owned());
    // Whoever has it open for writing is alive.
    let witness = dir.path().join("witness");
    rustix::fs::mkfifoat(rustix::fs::CWD, &witness, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mut alive = tokio::net::unix::pipe::OpenOptions::new().open_receiver(&witness).unwrap();
    let leave = "exec >witness; touch up; setsid -f sleep 1000; exec sleep 1000";
    let run = format!("run: umask >mask; setsid -f sh -c '{leave}' </dev/null; until [ -e up ]; do sleep 0.01; done");
    ask(&mut person, "session/prompt", json!(prompt(&id, &run))).await;
    ask(&mut person, "session/attach", json!(attach(&id))).await;
    event(&mut person, "turn_finished").await;
    assert!(dir.path().join("up").exists());
    assert_eq!(std::fs::read_to_string(dir.path().join("mask")).unwrap(), "0027\n", "as the client sent it");
    timeout(SOON, alive.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    shutdown.cancel();
    daemon.await.unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stop_lets_a_running_call_end_unless_it_is_to_be_now() {
    for now in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (services, me) = (open(dir.path()), Caller::new(Authority::Daemon));
        let auto = Create { mode: Some(Mode::Auto), ..create(dir.path(), "auto") };
        let id = session::create(&services, &me, auto).await.unwrap().session;
        let (_, mut subscription) = session::attach(&services, &me, attach(&id)).await.unwrap();
        session::prompt(&services, &me, prompt(&id, "run: echo $$; exec sleep 1000")).await.unwrap();
        tool_process(&mut subscription).await;
        let stop = Stop { force: true, now, key: None };
        daemon::stop(&services, &me, stop).await.unwrap();
        assert_eq!(services.shutdown.is_cancelled(), now, "the call runs");
        if !now {
            session::cancel(&services, &me, serde_json::from_value(json!({ "session": id })).unwrap()).await.unwrap();
            timeout(SOON, services.shutdown.cancelled()).await.unwrap();
        }
        services.registry.pause().await;
        services.store.close().await.unwrap();
    }
}

#[tokio::test]
async fn two_daemons_in_one_process_know_nothing_of_each_other() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (mut ends, mut daemons, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    for dir in &dirs {
        let (connector, listener) = in_process();
        let shutdown = CancellationToken::new();
        let options = Options::of(Setup::of(Places::below(dir.path()).unwrap()));
        daemons.push(tokio::spawn(lingerd::run(options, listener, shutdown.clone())));
        streams.push(BufReader::new(connector.connect().await.unwrap()));
        ends.push(shutdown);
    }
    for (stream, dir) in streams.iter_mut().zip(&dirs) {
        // The same name in each.
        let created = ask(stream, "session/create", json!(create(dir.path(), "fox"))).await;
        assert!(created["result"]["session"].is_string(), "{created}");
        let status = ask(stream, "daemon/status", json!({})).await;
        assert_eq!(status["result"]["sessions"], 1, "{status}");
        assert_eq!(status["result"]["connections"], 1, "{status}");
        assert_eq!(status["result"]["database"], json!(dir.path().join("data/linger.db")));
    }
    // One ends, and the other goes on.
    ends[0].cancel();
    daemons.remove(0).await.unwrap().unwrap();
    let mut rest = Vec::new();
    timeout(SOON, streams[0].read_to_end(&mut rest)).await.unwrap().unwrap();
    let listed = ask(&mut streams[1], "session/list", json!({})).await;
    assert_eq!(listed["result"][0]["name"], "fox", "{listed}");
    ends[1].cancel();
    daemons.remove(0).await.unwrap().unwrap();
}
