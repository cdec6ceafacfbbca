//! Cancel: a terminal event within two seconds from any state (I13), and what was queued waits for the user's word.

use linger_tests::TIMEOUT;
use linger_tests::harness::{Daemon, comes_true, process};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::bash;
pub(crate) use crate::shared::turn_cancel::{cancel, with_a_queued_prompt};

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
async fn queued_prompts_wait_after_a_cancel_until_continue() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let (client, session) = with_a_queued_prompt(&daemon, &model).await;
    let row = client.call("session/list", json!({})).await[0].clone();
    let counts = (row["queued"].as_u64(), row["drafts"].as_u64());
    assert_eq!((counts, row["state"].as_str()), ((Some(0), Some(1)), Some("idle")));
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
