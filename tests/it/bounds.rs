//! Each bound that a client, a model or a file can reach has an error of its own beyond it, and what came before goes on.

use linger_tests::harness::{Client, Daemon, process, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use super::bash;

/// A command that waits in each of as many sessions as commands may run.
async fn full_house(client: &Client, model: &ModelServer, n: usize) -> Vec<String> {
    let mut sessions = Vec::new();
    for _ in 0..n {
        sessions.push(client.create().await);
    }
    model.push((0..n).map(|_| bash("exec sleep 3141")));
    for session in &sessions {
        client.prompt(session, "wait").await;
    }
    sessions
}

#[tokio::test]
async fn so_many_commands_run_at_once_and_the_next_one_is_told_so() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let pid = daemon.pid().await;
    let sessions = full_house(&client, &model, 256).await;
    let running = || process::descendants(pid).iter().filter(|process| process.command.contains("3141")).count();
    until("all commands run", async || (running() == 256).then_some(())).await;
    model.push([bash("echo one more"), Reply::text("done")]);
    let session = client.session().await;
    client.turn(&session, "one more").await;
    let result = client.first(&session, "tool_finished").await;
    let text = result.event["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("256 commands are already running"), "{text}");
    for session in &sessions {
        client.call("session/cancel", json!({ "session": session })).await;
    }
    until("all commands have ended", async || (running() == 0).then_some(())).await;
    model.push([bash("echo one more"), Reply::text("done")]);
    client.turn(&session, "again").await;
    let result = client.nth(&session, "tool_finished", 2).await;
    assert_eq!(result.event["is_error"], false, "{}", result.event);
    daemon.check(&[&client], &model);
}
