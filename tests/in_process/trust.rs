//! The files of a workspace: the daemon asks about what they widen, and a person trusts it.

use linger_tests::harness::{Client, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::{Daemon, bash};

/// The open questions of the daemon's own that have this in their text.
async fn asked(client: &Client, text: &str) -> Vec<Value> {
    let rows = client.call("question/list", json!({ "session": "daemon" })).await;
    let rows = rows.as_array().cloned().unwrap_or_default();
    rows.into_iter().filter(|row| row["text"].as_str().is_some_and(|it| it.contains(text))).collect()
}

async fn asks(client: &Client, text: &str) -> Value {
    until("it is asked", async || asked(client, text).await.pop()).await
}

fn says(daemon: &Daemon, file: &str) {
    std::fs::create_dir_all(daemon.workspace().join(".linger")).unwrap();
    std::fs::write(daemon.workspace().join(".linger/config.toml"), file).unwrap();
}

#[tokio::test]
async fn the_first_session_in_a_workspace_asks_about_its_files_and_waits_for_nothing() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    says(&daemon, "mode = 'plan'\n[permissions]\nallow = ['bash(touch made)']");
    let session = client.session().await;
    assert_eq!(client.call("session/list", json!({ "matching": session })).await[0]["mode"], "plan");
    let first = asks(&client, "bash(touch made)").await;
    assert_eq!((&first["about"], &first["blocks"]), (&json!("workspace"), &json!("nothing")));
    let notice = client.first(&session, "notice").await;
    assert_eq!(notice.str("code"), "config_waits");
    let session = client.create_with(json!({ "mode": "ask" })).await;
    client.attach(&session).await;

    // Other files: another question.
    says(&daemon, "[permissions]\nallow = ['bash(touch made)', 'bash(touch more)']");
    let got = client.call("trust/get", json!({ "cwd": daemon.workspace() })).await;
    let second = asks(&client, "bash(touch more)").await;
    assert_eq!(asked(&client, "not in force").await.len(), 1);
    let waits = client.call("trust/get", json!({ "cwd": daemon.workspace() })).await["waiting"].clone();
    assert_eq!((&waits["question"], &waits["changes"]), (&second["question"], &got["waiting"]["changes"]));
    let root = got["workspace"].clone();
    let stale = client.refused("trust/confirm", json!({ "workspace": root, "digest": "sha256:0" })).await;
    assert_eq!(stale.code, -31005);
    client.call("question/answer", json!({ "question": second["question"], "answer": "confirm" })).await;
    let trusted = client.call("trust/list", json!({})).await;
    assert_eq!(trusted[0]["trusts"].as_array().map(Vec::len), Some(2), "{trusted}");
    model.push([bash("touch made"), Reply::text("done")]);
    client.turn(&session, "go").await;
    assert!(daemon.workspace().join("made").exists());

    let revoked = client.call("trust/revoke", json!({ "cwd": daemon.workspace() })).await;
    assert_eq!(revoked["revoked"], true);
    assert_eq!(client.call("trust/list", json!({})).await, json!([]));
    asks(&client, "bash(touch more)").await;
    daemon.check(&[&client], &model);
}
