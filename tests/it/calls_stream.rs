//! A call of a tool is seen while the model writes it: live, from any cursor, and after a crash.

use linger_tests::check::{Entry, Transcript};
use linger_tests::harness::{Client, Daemon};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::{Value, json};

use crate::shared::replay::read_on;

/// As models write it: with blanks, and escapes that JSON does not need. Chat Completions gets it back so.
const WRITTEN: &str = r#"{ "path" : "notes.txt", "content": "one\u0021\ntwo" }"#;

/// The same as it streams.
const STREAMED: &str = r#"{"path":"notes.txt","content":"one!\ntwo"}"#;

/// What a client has seen of the arguments of a call.
fn seen(transcript: &Transcript, call: &str) -> String {
    transcript.of("tool_call_delta").filter(|seen| seen.str("call_id") == call).map(|seen| seen.str("text")).collect()
}

/// A client that watches a turn up to the middle of a call.
async fn watches(daemon: &Daemon, gate: &Gate) -> (Client, String) {
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/m" })).await;
    client.attach(&session).await;
    client.prompt(&session, "note it").await;
    gate.reached().await;
    client.wait("half of the call", |transcript| (seen(transcript, "c1").len() > 1).then_some(())).await;
    (client, session)
}

/// Everything up to a delta of the call, and the cursor there.
fn up_to(transcript: &Transcript, delta: usize) -> Transcript {
    let is_delta = |entry: &Entry| matches!(entry, Entry::Event(seen) if seen.kind() == "tool_call_delta");
    let at = transcript.0.iter().enumerate().filter(|(_, entry)| is_delta(entry)).nth(delta).unwrap().0;
    Transcript(transcript.0[..=at].to_vec())
}

#[tokio::test]
async fn a_call_is_seen_as_it_is_written_and_from_any_cursor_reads_the_same() {
    let gate = Gate::new();
    let call = Reply::text("I note it.").and_tool_with_gate("write", WRITTEN, &gate);
    let model = ModelServer::with([call, Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let (client, session) = watches(&daemon, &gate).await;
    let early = client.transcript();
    let first = early.of("tool_call_delta").next().unwrap();
    assert_eq!((first.str("name"), first.str("call_id")), ("write", "c1"));
    let half = seen(&early, "c1");
    assert!(half.len() > 1 && half.len() < STREAMED.len() && STREAMED.starts_with(&half), "{half}");
    assert_eq!(early.of("message").filter(|seen| seen.str("role") == "assistant").count(), 0);
    // One that comes late sees as much, from the beginning and from the middle.
    let late = daemon.client().await;
    late.attach(&session).await;
    late.first(&session, "caught_up").await;
    assert_eq!(seen(&late.transcript(), "c1"), half);
    let in_the_middle = read_late(&daemon, &session, up_to(&early, 0)).await;
    assert_eq!(seen(&in_the_middle.transcript(), "c1"), half);
    gate.open();
    for client in [&client, &late, &in_the_middle] {
        client.first(&session, "turn_finished").await;
        assert_eq!(seen(&client.transcript(), "c1"), STREAMED);
    }
    let whole = client.transcript();
    let stored = whole.of("message").find(|seen| seen.str("role") == "assistant").unwrap();
    assert_eq!(stored.event["content"][1]["input"].to_string(), STREAMED);
    let times: Vec<Option<u64>> =
        ["first_byte_ms", "total_ms"].iter().map(|name| stored.event["times"][name].as_u64()).collect();
    assert!(times[0].is_some() && times[0] <= times[1], "{times:?}");
    // And when the message is stored, from each of the places in it.
    for delta in 0..whole.of("tool_call_delta").count() {
        let back = read_on(&daemon, &session, up_to(&whole, delta), 1).await;
        assert_eq!(seen(&back.transcript(), "c1"), STREAMED);
        daemon.check(&[&back], &model);
    }
    daemon.check(&[&client, &late, &in_the_middle], &model);
}

/// Attaches where `before` ends, and waits until it has all there is.
async fn read_late(daemon: &Daemon, session: &str, before: Transcript) -> Client {
    let client = daemon.client().await;
    let (cursor, caught_up) = (before.cursor(session).map(str::to_owned), before.of("caught_up").count());
    client.continues(before);
    client.attach_after(session, &cursor.unwrap()).await;
    client.nth(session, "caught_up", caught_up + 1).await;
    client
}

#[tokio::test]
async fn a_call_that_the_daemon_dies_in_is_kept_as_cut_and_the_next_has_another_id() {
    let gate = Gate::new();
    let cut = Reply::new().and_tool_with_gate("write", WRITTEN, &gate);
    let model = ModelServer::with([cut, Reply::new().and_raw_tool("write", WRITTEN), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let (client, session) = watches(&daemon, &gate).await;
    let half = seen(&client.transcript(), "c1");
    let before = client.hang_up();
    daemon.kill_daemon().await;
    let back = read_on(&daemon, &session, before, 1).await;
    let seen_by_it = back.transcript();
    let blocks: Vec<Value> = seen_by_it
        .of("message")
        .filter(|seen| seen.str("role") == "assistant")
        .map(|seen| seen.event["content"][0].clone())
        .collect();
    let was_cut = json!({ "type": "cut_tool_use", "call_id": "c1", "name": "write", "text": half });
    assert_eq!(blocks[0], was_cut);
    assert_eq!((&blocks[1]["type"], &blocks[1]["call_id"]), (&json!("tool_use"), &json!("c2")));
    assert_eq!((seen(&seen_by_it, "c1"), seen(&seen_by_it, "c2")), (half.clone(), STREAMED.to_owned()));
    let started: Vec<&str> = seen_by_it.of("tool_started").map(|seen| seen.str("call_id")).collect();
    assert_eq!(started, ["c2"]);
    // The cut call is no part of a request, and neither is an empty message in its place.
    assert!(model.requests().iter().all(|request| !request.messages().contains("cut_tool_use")));
    let late = daemon.client().await;
    late.attach(&session).await;
    late.first(&session, "turn_finished").await;
    assert_eq!(seen(&late.transcript(), "c1"), half);
    daemon.check(&[&back, &late], &model);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_is_written_never_runs() {
    let gate = Gate::new();
    let cut = Reply::text("I note it.").and_tool_with_gate("write", WRITTEN, &gate);
    let model = ModelServer::with([cut, Reply::text("so be it")]);
    let daemon = Daemon::auto(&model).await;
    let (client, session) = watches(&daemon, &gate).await;
    client.call("session/cancel", json!({ "session": session })).await;
    client.first(&session, "turn_finished").await;
    assert!(!daemon.workspace().join("notes.txt").exists());
    // The text before it stays in the context, and the call does not.
    client.turn(&session, "go on").await;
    let last = model.requests().pop().unwrap().messages();
    assert!(last.contains("I note it.") && !last.contains("notes.txt"), "{last}");
    daemon.check(&[&client], &model);
}
