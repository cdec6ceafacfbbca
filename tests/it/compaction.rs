//! Room in the context: summaries, what is left out, and that a session goes on whatever becomes of them.

use linger_tests::model::{Format, ModelServer, Reply};
use serde_json::{Value, json};

use crate::bash;
use crate::providers::check;
pub(crate) use crate::shared::compaction::{SUMMARY, WINDOW, has, start, start_unknown, with_a_past};

#[tokio::test]
async fn a_compaction_goes_on_after_kill_9_and_its_summary_outlives_the_next() {
    for by_hand in [true, false] {
        let model = ModelServer::start();
        let daemon = start(&model).await;
        let (client, session) = with_a_past(&daemon, &model, Format::Anthropic).await;
        let before = if by_hand { 1 } else { 2 };
        let full = bash("echo beta").usage(WINDOW * 85 / 100, 10, 0);
        model
            .push((!by_hand).then_some(full).into_iter().chain([Reply::text("## Goal").stall(), Reply::text(SUMMARY)]));
        model.otherwise(|_| Reply::text("on").usage(2000, 10, 0));
        if by_hand {
            client.call("session/compact", json!({ "session": session })).await;
        } else {
            client.prompt(&session, "go").await;
        }
        client.first(&session, "compaction_started").await;
        model.wait_requests(before + 1).await;
        daemon.kill_daemon().await;
        let next = daemon.client().await;
        next.attach(&session).await;
        assert_eq!(next.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
        let seen = next.transcript();
        assert_eq!((seen.of("compaction_started").count(), seen.of("compacted").count()), (2, 1), "{}", seen.outline());
        daemon.kill_daemon().await;
        let last = daemon.client().await;
        last.attach(&session).await;
        last.prompt(&session, "and now").await;
        assert_eq!(last.nth(&session, "turn_finished", 3).await.str("stop_reason"), "end_turn");
        let requests = model.requests();
        let end = requests.last().unwrap();
        assert!(has(end, "the old goal") && !has(end, "alpha"), "{}", end.messages());
        check(&daemon, &[&client, &next, &last], &model);
    }
}

#[tokio::test]
async fn a_compaction_that_meets_three_crashes_is_offered() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.otherwise(|_| Reply::text("## Goal").stall());
    client.call("session/compact", json!({ "session": session })).await;
    for n in 2..5 {
        model.wait_requests(n).await;
        daemon.kill_daemon().await;
    }
    let next = daemon.client().await;
    next.attach(&session).await;
    next.wait("an offer", |seen| seen.of("notice").find(|seen| seen.str("code") == "offered").cloned()).await;
    assert_eq!(next.refused("session/compact", json!({ "session": session })).await.code, -31013);
    model.otherwise(|_| Reply::text(SUMMARY));
    next.call("session/continue", json!({ "session": session })).await;
    assert_eq!(next.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    assert_eq!(next.transcript().of("compacted").count(), 1);
    check(&daemon, &[&client, &next], &model);
}

#[tokio::test]
async fn the_command_says_what_was_replaced_and_so_does_the_log() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([Reply::text(SUMMARY)]);
    let done = daemon.cli(&["compact", &session, "the", "reasons"]).run().await;
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{}", done.stderr);
    assert!(done.stderr.contains("compacted: a summary replaces 1 older message; "), "{}", done.stderr);
    assert!(model.requests()[1].last_words().ends_with("the reasons"));
    let log = daemon.cli(&["log", &session]).run().await;
    assert!(log.stdout.contains("compacted: a summary replaces 1 older message; "), "{}", log.stdout);
    model.push([Reply::text("I will not").stop("refusal")]);
    let vain = daemon.cli(&["compact", &session]).run().await;
    assert_eq!(vain.code, 1, "{}", vain.stderr);
    assert!(vain.stderr.contains("not compacted"), "{}", vain.stderr);
    let none: Value = client.call("session/list", json!({ "matching": session })).await;
    assert_eq!(none[0]["state"], "idle");
    client.nth(&session, "turn_finished", 3).await;
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn the_command_does_not_wait_behind_a_turn_that_waits_for_an_answer() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([crate::bash("true"), Reply::text(SUMMARY), Reply::text("done")]);
    daemon.cli(&["run", "--mode", "ask", "-s", &session, "go"]).run().await.exits(3);
    let output = daemon.cli(&["compact", &session]).run().await.exits(3);
    let asked = client.first(&session, "permission_requested").await.str("permission").to_owned();
    let output = output.says(&format!("linger answer {asked}")).says("the compaction runs after that");
    assert_eq!(output.stdout, "");
    daemon.cli(&["answer", &asked, "deny"]).run().await.exits(0);
    client.first(&session, "compacted").await;
    client.nth(&session, "turn_finished", 2).await;
    check(&daemon, &[&client], &model);
}
