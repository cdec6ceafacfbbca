//! Cancel: a terminal event within two seconds from any state (I13), and what was queued waits for the user's word.

use std::time::{Duration, UNIX_EPOCH};

use linger_tests::TIMEOUT;
use linger_tests::harness::{Client, Daemon, comes_true, process};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::bash;

/// I13.
const LIMIT: Duration = Duration::from_secs(2);

async fn cancel(client: &Client, session: &str) {
    let began = UNIX_EPOCH.elapsed().unwrap();
    client.call("session/cancel", json!({ "session": session })).await;
    let finished = client.first(session, "turn_finished").await;
    assert_eq!(finished.str("stop_reason"), "cancelled");
    // When it ended, and not when this test was told.
    let took = finished.after(began);
    assert!(took < LIMIT, "cancel took {took:?}");
}

#[tokio::test]
async fn cancel_while_the_model_streams_keeps_what_was_shown() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("so far").gate(&gate), Reply::text("again")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.sees_text(&session, "so far").await;
    cancel(&client, &session).await;
    let cut = client.transcript().of("message").last().unwrap().clone();
    assert_eq!((&cut.event["interrupted"], cut.event["content"][0]["text"].as_str()), (&json!(true), Some("so far")));
    assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn cancel_before_the_model_has_said_a_word() {
    let model = ModelServer::with([Reply::new().stall(), Reply::text("again")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    model.wait_requests(1).await;
    cancel(&client, &session).await;
    assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn cancel_while_a_tool_runs_ends_its_whole_group() {
    let model = ModelServer::with([bash("trap '' TERM; (sleep 611 &) ; sleep 612 & sleep 613"), Reply::text("again")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let pid = daemon.pid().await;
    assert!(comes_true(TIMEOUT, || daemon.children(pid).iter().any(|p| p.command.contains("613"))), "the tool runs");
    cancel(&client, &session).await;
    assert_eq!(client.first(&session, "tool_finished").await.str("outcome"), "cancelled");
    let left = || process::of_directory(daemon.dirs.root()).into_iter().filter(|p| p.command.contains("sleep 61"));
    assert!(comes_true(TIMEOUT, || left().next().is_none()), "left: {:?}", left().collect::<Vec<_>>());
    assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn cancel_while_a_permission_waits_resolves_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("never")), Reply::text("again")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let permission = client.first(&session, "permission_requested").await;
    cancel(&client, &session).await;
    assert_eq!(client.first(&session, "permission_resolved").await.str("decision"), "cancelled");
    let late = json!({ "permission": permission.str("permission"), "decision": "allow_once" });
    assert_eq!(client.refused("permission/answer", late).await.code, -31001);
    assert_eq!(client.call("permission/list", json!({})).await, json!([]));
    assert!(!daemon.side_effects().exists());
    assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn cancel_while_the_provider_is_being_waited_for_wakes_at_once() {
    let model = ModelServer::with([Reply::status(429).header("retry-after", "30"), Reply::text("again")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "notice").await;
    cancel(&client, &session).await;
    assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn with_nothing_to_cancel_or_to_continue_there_is_an_error() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    assert_eq!(client.refused("session/cancel", json!({ "session": session })).await.code, -31014);
    assert_eq!(client.refused("session/continue", json!({ "session": session })).await.code, -31014);
    daemon.check(&[&client], &model);
}

/// A session with one turn cancelled and one prompt queued behind it.
async fn with_a_queued_prompt(daemon: &Daemon, model: &ModelServer) -> (Client, String) {
    let gate = Gate::new();
    model.push([Reply::text("so far").gate(&gate)]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "first").await;
    client.sees_text(&session, "so far").await;
    client.prompt(&session, "queued").await;
    cancel(&client, &session).await;
    (client, session)
}

#[tokio::test]
async fn queued_prompts_wait_after_a_cancel_until_continue() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let (client, session) = with_a_queued_prompt(&daemon, &model).await;
    let row = client.call("session/list", json!({})).await[0].clone();
    assert_eq!((row["queued"].as_u64(), row["state"].as_str()), (Some(1), Some("idle")));
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    again.attach(&session).await;
    again.wait("caught_up", |seen| seen.of("caught_up").next().cloned()).await;
    assert_eq!(again.transcript().of("turn_started").count(), 1, "a restart is no word of the user's");
    model.push([Reply::text("now")]);
    again.call("session/continue", json!({ "session": session })).await;
    assert_eq!(again.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    assert!(model.requests()[1].messages().contains("queued"));
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn queued_prompts_wait_after_a_cancel_until_the_next_prompt() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let (client, session) = with_a_queued_prompt(&daemon, &model).await;
    model.push([Reply::text("one"), Reply::text("two")]);
    client.prompt(&session, "third").await;
    client.nth(&session, "turn_finished", 3).await;
    let requests = model.requests();
    assert!(requests[1].messages().contains("queued") && !requests[1].messages().contains("third"));
    assert!(requests[2].messages().contains("third"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_prompt_that_follows_a_cancel_at_once_is_the_users_word_and_runs() {
    let model = ModelServer::with([Reply::text("Good d").stall(), Reply::text("the other thing")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "one thing").await;
    client.sees_text(&session, "Good d").await;
    let mut raw = linger_tests::harness::Raw::connect(&daemon.dirs.socket()).await;
    let cancel = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/cancel", "params": { "session": session } });
    let prompt = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": { "session": session, "content": "the other" } });
    raw.send(format!("{cancel}\n{prompt}\n")).await;
    client.sees_text(&session, "the other thing").await;
    client.wait("both turns", |seen| (seen.of("turn_finished").count() == 2).then_some(())).await;
    daemon.check(&[&client], &model);
}
