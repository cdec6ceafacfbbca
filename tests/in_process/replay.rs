//! Lossless replay: detach anywhere, attach again from anywhere, and have every byte.

use linger_tests::check::assemble;
use linger_tests::harness::Client;
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::Daemon;
use crate::shared::replay::read_on;
use crate::{bash, story};

#[tokio::test]
async fn a_plain_turn_is_seen_as_it_is_written_down() {
    let model = ModelServer::with([Reply::text("Good d").and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "hello").await;
    let seen = client.transcript();
    let want = ["prompt_accepted", "turn_started", "message", "message", "turn_finished"];
    assert_eq!(story(&seen, &session), want);
    assert_eq!(finished.str("stop_reason"), "end_turn");
    assert_eq!(finished.event["usage"]["input_tokens"], 10);
    assert_eq!(finished.event["steps"], 1);
    let accepted = seen.of("prompt_accepted").next().unwrap();
    assert_eq!(accepted.event["content"], json!([{ "type": "text", "text": "hello" }]));
    assert_eq!(accepted.str("when"), "queue");
    let messages: Vec<_> = seen.of("message").collect();
    assert_eq!(messages[0].str("role"), "user");
    assert_eq!(messages[0].str("prompt"), accepted.str("prompt"));
    assert_eq!(messages[1].str("role"), "assistant");
    assert_eq!(messages[1].event["content"], json!([{ "type": "text", "text": "Good day" }]));
    assert!(messages[1].event.get("interrupted").is_none());
    let created = seen.of("session_created").next().unwrap();
    assert_eq!(created.str("model"), "work/m");
    assert_eq!(created.seq(), Some(1));
    let (all, _) = assemble(&seen, &session);
    assert_eq!(all.message(messages[1].str("message")), "Good day");
    assert_eq!(seen.of("caught_up").count(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn caught_up_comes_once_between_replay_and_live() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.client().await;
    let session = first.session().await;
    first.turn(&session, "hello").await;
    let late = daemon.client().await;
    late.attach(&session).await;
    late.wait("caught_up", |seen| seen.of("caught_up").next().cloned()).await;
    late.turn(&session, "again").await;
    let kinds: Vec<String> = late.transcript().events().map(|seen| seen.kind().to_owned()).collect();
    let at = kinds.iter().position(|kind| kind == "caught_up").unwrap();
    assert_eq!(kinds[..at].iter().filter(|kind| *kind == "turn_finished").count(), 1);
    assert_eq!(kinds[at..].iter().filter(|kind| *kind == "turn_finished").count(), 1);
    assert_eq!(late.transcript().of("caught_up").count(), 1);
    daemon.check(&[&first, &late], &model);
}

#[tokio::test]
async fn reattaching_in_mid_message_continues_at_the_byte_while_the_model_still_speaks() {
    let gate = Gate::new();
    let later = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay, ").gate(&later).and_text("friend")]);
    let daemon = Daemon::start(&model).await;
    let stayed = daemon.client().await;
    let session = stayed.session().await;
    stayed.prompt(&session, "hello").await;
    let left = daemon.client().await;
    left.attach(&session).await;
    left.sees_text(&session, "Good d").await;
    let before = left.hang_up();
    gate.open();
    stayed.sees_text(&session, "ay, ").await;
    later.open();
    let back = read_on(&daemon, &session, before, 1).await;
    let after: Vec<_> = back.transcript().of("text_delta").map(|seen| seen.event["offset"].clone()).collect();
    assert!(after.iter().all(|offset| offset.as_u64().is_some()), "{after:?}");
    stayed.first(&session, "turn_finished").await;
    assert_eq!(assemble(&back.transcript(), &session).0, assemble(&stayed.transcript(), &session).0);
    daemon.check(&[&stayed, &back], &model);
}

#[tokio::test]
async fn a_client_that_comes_late_sees_the_text_so_far() {
    let gate = Gate::new();
    let model =
        ModelServer::with([Reply::new().text_in_deltas("the text so far", 4).gate(&gate).and_text(" and the rest")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.client().await;
    let session = first.session().await;
    first.prompt(&session, "hello").await;
    first.sees_text(&session, "the text so far").await;
    let late = daemon.client().await;
    late.attach(&session).await;
    late.sees_text(&session, "the text so far").await;
    gate.open();
    late.first(&session, "turn_finished").await;
    first.first(&session, "turn_finished").await;
    assert_eq!(assemble(&late.transcript(), &session).0, assemble(&first.transcript(), &session).0);
    daemon.check(&[&first, &late], &model);
}

#[tokio::test]
async fn the_cursor_in_the_list_shows_only_what_is_new() {
    let model = ModelServer::with([Reply::text("old"), Reply::text("new")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.client().await;
    let session = first.session().await;
    first.turn(&session, "one").await;
    let list = first.call("session/list", json!({})).await;
    let cursor = list[0]["cursor"].as_str().unwrap().to_owned();
    let late = daemon.client().await;
    late.attach_after(&session, &cursor).await;
    late.turn(&session, "two").await;
    let text: String = late.transcript().of("text_delta").map(|seen| seen.str("text").to_owned()).collect();
    assert_eq!(text, "new");
    let turn = first.call("session/list", json!({})).await[0]["turn_cursor"].as_str().unwrap().to_owned();
    let latest = daemon.client().await;
    latest.attach_after(&session, &turn).await;
    latest.first(&session, "turn_finished").await;
    assert_eq!(latest.transcript().of("turn_finished").count(), 1);
    first.nth(&session, "turn_finished", 2).await;
    daemon.check(&[&first, &late, &latest], &model);
}

#[tokio::test]
async fn an_unknown_cursor_is_an_error_and_never_a_silent_restart() {
    let model = ModelServer::with([Reply::text("x")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "hello").await;
    for after in ["999999", "nonsense", "4+m9.0.6", "-1", "1+", "", "18446744073709551616"] {
        let error = client.refused("session/attach", json!({ "session": session, "after": after })).await;
        assert_eq!(error.code, -31004, "{after}: {error}");
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_client_that_wants_no_deltas_gets_none_and_misses_nothing() {
    let model = ModelServer::with([bash("echo out"), Reply::text("Good d").and_text("ay")]);
    let daemon = Daemon::auto(&model).await;
    let all = daemon.client().await;
    let session = all.session().await;
    let few = daemon.client().await;
    few.call("session/attach", json!({ "session": session, "deltas": false })).await;
    all.turn(&session, "hello").await;
    few.first(&session, "turn_finished").await;
    assert!(few.transcript().events().all(|seen| !seen.is_delta()));
    let durable = |client: &Client| assemble(&client.transcript(), &session).0.events;
    assert_eq!(durable(&few), durable(&all));
    daemon.check(&[&all, &few], &model);
}

#[tokio::test]
async fn after_detach_nothing_comes_and_after_attach_everything() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("a").gate(&gate).and_text("b")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "a").await;
    client.call("session/detach", json!({ "session": session })).await;
    let before = client.transcript().events().count();
    let other = daemon.client().await;
    other.attach(&session).await;
    gate.open();
    other.first(&session, "turn_finished").await;
    client.call("daemon/status", json!({})).await;
    assert_eq!(client.transcript().events().count(), before, "events after detach");
    let cursor = client.cursor(&session);
    client.attach_after(&session, &cursor).await;
    client.first(&session, "turn_finished").await;
    assert_eq!(assemble(&client.transcript(), &session).0, assemble(&other.transcript(), &session).0);
    daemon.check(&[&client, &other], &model);
}

#[tokio::test]
async fn an_attach_that_is_refused_leaves_the_attachment_that_works() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let refused = client.refused("session/attach", json!({ "session": session, "after": "99" })).await;
    assert_eq!(refused.code, -31004);
    // Its events still come.
    client.turn(&session, "hello").await;
    daemon.check(&[&client], &model);
}
