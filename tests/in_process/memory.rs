//! Notes that outlive sessions: when a model is told of them, and that they are shown and undone like files.

use linger_tests::harness::Setup;
use linger_tests::model::{Format, ModelServer, Reply};
use serde_json::json;

use crate::Daemon;
use crate::shared::compaction::{SUMMARY, has, start, with_a_past};

#[tokio::test]
async fn the_index_is_told_when_a_session_begins_and_after_a_compaction_and_not_when_it_changes() {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let cwd = daemon.workspace().to_path_buf();
    let noting = daemon.client().await;
    let note = async |name: &str, text: &str| {
        noting.call("memory/add", json!({ "cwd": cwd, "name": name, "text": text })).await;
    };
    note("pnpm", "Use pnpm here\nNever npm.").await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    let last = || model.requests().pop().unwrap();
    assert!(has(&last(), "- workspace/pnpm: Use pnpm here") && !has(&last(), "Never npm"), "bodies on demand");
    note("tests", "Tests take an hour").await;
    model.push([Reply::text("the second answer"), Reply::text(SUMMARY), Reply::text("the third answer")]);
    client.turn(&session, "the second prompt").await;
    assert!(!has(&last(), "Tests take an hour"), "the prefix stays");
    client.call("session/compact", json!({ "session": session })).await;
    client.first(&session, "compacted").await;
    client.nth(&session, "turn_finished", 3).await;
    client.turn(&session, "the third prompt").await;
    assert!(has(&last(), "- workspace/tests: Tests take an hour"), "{}", last().messages());
    daemon.check(&[&client, &noting], &model);
}

#[tokio::test]
async fn a_note_that_a_model_writes_asks_is_shown_and_is_undone_like_a_change_of_a_file() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let write = json!({ "action": "write", "name": "style", "text": "Short answers" });
    model.push([Reply::tool("memory", write), Reply::text("noted")]);
    client.prompt(&session, "remember that").await;
    let asked = client.first(&session, "permission_requested").await.event;
    assert_eq!(asked["changes"][0]["kind"], "create", "{asked}");
    client.call("permission/answer", json!({ "permission": asked["permission"], "decision": "allow_once" })).await;
    client.first(&session, "turn_finished").await;
    let list = async || client.call("memory/list", json!({ "cwd": daemon.workspace(), "text": true })).await;
    assert_eq!(list().await[0]["text"], "Short answers\n");
    let undone = client.call("session/undo", json!({ "session": session })).await;
    assert_eq!((undone["changes"].as_array().map(Vec::len), &undone["failed"]), (Some(1), &json!(null)), "{undone}");
    assert_eq!(list().await, json!([]));
    client.call("session/redo", json!({ "session": session })).await;
    assert_eq!(list().await[0]["about"], "Short answers");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_line_of_the_configuration_turns_notes_off() {
    let model = ModelServer::with([Reply::text("hello")]);
    let daemon = Daemon::start_with(&model, Setup { top: "memory = false\n", ..Setup::default() }).await;
    let client = daemon.client().await;
    let refused = client.refused("memory/add", json!({ "cwd": daemon.workspace(), "text": "x" })).await;
    assert_eq!(refused.message, "notes are off");
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert!(!has(&model.requests()[0], "\"memory\""), "there is no such tool");
    daemon.check(&[&client], &model);
}
