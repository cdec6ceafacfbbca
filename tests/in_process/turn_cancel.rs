//! Cancel: a terminal event within two seconds from any state (I13), and what was queued waits for the user's word.

use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::Daemon;
use crate::bash;
use crate::shared::turn_cancel::{cancel, with_a_queued_prompt};

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

#[tokio::test]
async fn after_a_cancel_the_next_prompt_runs_first_and_the_queue_when_it_is_sent() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let (client, session) = with_a_queued_prompt(&daemon, &model).await;
    model.push([Reply::text("one"), Reply::text("two")]);
    client.prompt(&session, "third").await;
    client.nth(&session, "turn_finished", 2).await;
    client.call("session/continue", json!({ "session": session })).await;
    client.nth(&session, "turn_finished", 3).await;
    let requests = model.requests();
    assert!(requests[1].messages().contains("third") && !requests[1].messages().contains("queued"));
    assert!(requests[2].messages().contains("queued"));
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
    let mut raw = daemon.raw().await;
    let cancel = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/cancel", "params": { "session": session } });
    let prompt = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": { "session": session, "content": "the other" } });
    raw.send(format!("{cancel}\n{prompt}\n")).await;
    client.sees_text(&session, "the other thing").await;
    client.wait("both turns", |seen| (seen.of("turn_finished").count() == 2).then_some(())).await;
    daemon.check(&[&client], &model);
}
