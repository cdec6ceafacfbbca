//! Notifications of people, with the real daemon: what was told is not told again by its next life.

use linger_tests::harness::{Daemon, until};
use linger_tests::model::ModelServer;
use serde_json::json;

use crate::bash;

#[tokio::test]
async fn a_notification_leads_a_phone_to_its_question() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let file = daemon.dirs.root().join("told");
    let client = daemon.client().await;
    let command = json!(["/bin/sh", "-c", format!("echo \"$LINGER_ATTENTION $LINGER_URL\" >> {}", file.display())]);
    client.call("config/set", json!({ "name": "attention.command", "value": command.to_string() })).await;
    client.call("config/set", json!({ "name": "gateway.public_url", "value": "\"https://box.example/\"" })).await;
    let session = client.create().await;
    model.push([bash("touch made")]);
    client.prompt(&session, "go").await;
    let told = until("the question is told", async || {
        std::fs::read_to_string(&file).ok().and_then(|text| Some(text.strip_suffix('\n')?.to_owned()))
    });
    let told = told.await;
    let questions = client.call("question/list", json!({ "session": session })).await;
    assert_eq!(told, format!("question https://box.example/#question={}", questions[0]["question"].as_str().unwrap()));
    client.call("session/cancel", json!({ "session": session })).await;
}

#[tokio::test]
async fn what_was_told_is_not_repeated_after_kill_9() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let file = daemon.dirs.root().join("told");
    let told = || std::fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let client = daemon.client().await;
    let script = format!("echo \"$2\" >> {}", file.display());
    let command = json!(["/bin/sh", "-c", script, "sh"]);
    client.call("config/set", json!({ "name": "attention.command", "value": command.to_string() })).await;
    let session = client.create().await;
    model.push([bash("touch made")]);
    client.prompt(&session, "the first").await;
    until("the question is told", async || told().first().cloned()).await;
    let notes = daemon.dirs.root().join("s/linger/lingerd.attention");
    until("it is on disk", async || std::fs::read_to_string(&notes).ok().filter(|text| text.contains("told_at"))).await;
    daemon.kill_all().await;
    daemon.launch().await;
    let client = daemon.client().await;
    // Attached, so that its actor is there, and not as a person.
    client.attach(&session).await;
    let other = client.create().await;
    model.push([bash("touch made")]);
    client.prompt(&other, "the second").await;
    until("the question of another session is told", async || told().get(1).cloned()).await;
    assert_eq!(told(), [format!("session {session}: the first"), format!("session {other}: the second")]);
    for session in [&session, &other] {
        client.call("session/cancel", json!({ "session": session })).await;
    }
}
