//! Writes that fail: a trigger in the database refuses events of one kind, until it is taken away.

use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::Daemon;
use crate::shared::storage::{refuse, take_again};

#[tokio::test]
async fn a_prompt_that_was_refused_is_not_said_to_be_accepted_when_it_is_sent_again() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let prompt = json!({ "session": session, "content": "hello", "key": "k-1" });
    refuse(&daemon, "prompt_accepted");
    let first = client.request("session/prompt", prompt.clone()).await.unwrap();
    assert_eq!(first.expect_err("it is not stored").code, -31016);
    let again = client.request("session/prompt", prompt.clone()).await.unwrap();
    assert_eq!(again.expect_err("it is still not stored").code, -31016);
    take_again(&daemon);
    let accepted = linger_tests::harness::until("the prompt is taken", async || {
        client.request("session/prompt", prompt.clone()).await.unwrap().ok()
    });
    assert_eq!(accepted.await["prompt"], "p1");
    client.first(&session, "turn_finished").await;
    assert_eq!(client.transcript().of("prompt_accepted").count(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_daemons_own_database_is_opened_by_no_tool() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let database = daemon.dirs.database();
    let link = daemon.workspace().join("innocent");
    std::os::unix::fs::symlink(&database, &link).unwrap();
    let wal = format!("{}-wal", database.display());
    model.push([
        Reply::tool("read", json!({ "path": link })).and_tool("grep", json!({ "pattern": "x", "path": wal })),
        Reply::text("done"),
    ]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let results: Vec<String> =
        client.transcript().of("tool_finished").map(|finished| finished.event["content"].to_string()).collect();
    assert!(results.len() == 2 && results.iter().all(|text| text.contains("database of the daemon")), "{results:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn nothing_is_acknowledged_that_goes_into_a_database_that_was_deleted_and_it_goes_on_when_that_is_back() {
    let model = ModelServer::scripted(|_| Reply::text("so"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "before").await;
    let data = daemon.dirs.database().parent().unwrap().to_path_buf();
    let away = data.with_file_name("away");
    std::fs::rename(&data, &away).unwrap();
    let prompt = json!({ "session": session, "content": "meanwhile", "key": "p" });
    let refused = client.refused("session/prompt", prompt.clone()).await;
    assert!(refused.code == -31016 && refused.message.contains("was deleted or replaced"), "{refused:?}");
    let listed = client.call("session/list", json!({})).await;
    assert_eq!(listed[0]["session"], session.as_str(), "what is there can be read");
    std::fs::rename(&away, &data).unwrap();
    // The same prompt, sent again, is the one.
    loop {
        match client.request("session/prompt", prompt.clone()).await.unwrap() {
            Ok(_) => break,
            Err(error) => assert_eq!(error.code, -31016, "{error:?}"),
        }
    }
    client.nth(&session, "turn_finished", 2).await;
    daemon.check(&[&client], &model);
}
