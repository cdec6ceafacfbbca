//! Bad MCP servers beside good sessions: one that hangs, floods or is killed concerns its own call; and servers of a workspace's files.

use linger_tests::harness::{Client, Setup, process, until};
use linger_tests::model::{ModelServer, Recorded, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::mcp::{calls, server};

/// The servers `s` and `t`, which are alike.
fn two_servers() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");
    server(&[], &format!("[mcp.t]\ncommand = \"python3\"\nargs = [{script:?}]"))
}

/// Calls the tool of `s` that the prompt names, or `echo` of the other server, and says when it is done.
fn obeys(request: &Recorded) -> Reply {
    match (request.after_tool(), request.last_words().as_str()) {
        (true, _) => Reply::text("done"),
        (false, "other") => Reply::tool("mcp__t__echo", json!({ "text": "hi" })),
        (false, tool) => calls(tool, json!({})),
    }
}

/// The text of a session's only result.
async fn result(client: &Client, session: &str) -> (Value, String) {
    let event = client.first(session, "tool_finished").await.event;
    let text = event["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    (event, text)
}

/// The process of the server `s`, which runs.
async fn pid_of_s(client: &Client) -> u32 {
    until("the server s runs", async || {
        let rows = client.call("mcp/list", json!({})).await;
        let row = rows.as_array().into_iter().flatten().find(|row| row["server"] == "s").cloned();
        row.and_then(|row| u32::try_from(row["instances"][0]["pid"].as_u64()?).ok())
    })
    .await
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_no_other_session() {
    let model = ModelServer::scripted(obeys);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config: two_servers(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let (hangs, other) = (client.session().await, client.session().await);
    client.prompt(&hangs, "hang").await;
    client.first(&hangs, "tool_started").await;
    client.turn(&other, "other").await;
    assert_eq!(result(&client, &other).await.1, "hi");
    assert!(!client.transcript().of("tool_finished").any(|seen| seen.session == hangs));
    client.call("session/cancel", json!({ "session": hangs })).await;
    client.first(&hangs, "turn_finished").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_flood_or_a_kill_in_mid_call_is_a_result_and_other_servers_answer_meanwhile() {
    let model = ModelServer::scripted(obeys);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config: two_servers(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let (floods, other, killed) = (client.session().await, client.session().await, client.session().await);
    client.prompt(&floods, "flood").await;
    client.first(&floods, "tool_started").await;
    client.turn(&other, "other").await;
    assert_eq!(result(&client, &other).await.1, "hi");
    assert_eq!(result(&client, &floods).await.0["outcome"], "unknown");
    client.first(&floods, "turn_finished").await;

    client.prompt(&killed, "hang").await;
    client.first(&killed, "tool_started").await;
    process::signal(pid_of_s(&client).await, Signal::KILL);
    let (event, text) = result(&client, &killed).await;
    assert_eq!(event["outcome"], "unknown");
    assert!(text.contains("the MCP server s is gone: it ended (signal: 9"), "{text}");
    client.first(&killed, "turn_finished").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn servers_of_a_workspaces_files_run_once_they_are_trusted_and_end_with_the_trust() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("done")
        } else if request.json["tools"].to_string().contains("mcp__s__echo") {
            calls("echo", json!({ "text": "hi" }))
        } else {
            Reply::text("no such tool")
        }
    });
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", ..Setup::default() }).await;
    let client = daemon.client().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");
    let file = json!({ "mcpServers": { "s": { "command": "python3", "args": [script] } } }).to_string();
    std::fs::write(daemon.workspace().join(".mcp.json"), &file).unwrap();
    let here = json!({ "cwd": daemon.workspace() });
    let state = async || client.call("mcp/list", here.clone()).await[0]["state"].clone();

    let before = client.session().await;
    client.turn(&before, "go").await;
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    assert_eq!(state().await, "untrusted");

    let waiting = client.call("trust/get", here.clone()).await;
    let confirm = json!({ "workspace": waiting["workspace"], "digest": waiting["waiting"]["digest"] });
    client.call("trust/confirm", confirm).await;
    client.turn(&before, "go again").await;
    assert_eq!(result(&client, &before).await.1, "hi");
    assert_eq!(state().await, "running");

    // A broken file is named with its line, and takes no server that is trusted with it.
    std::fs::write(daemon.workspace().join(".mcp.json"), "{\n  \"mcpServers\": {").unwrap();
    let problems = client.call("trust/get", here.clone()).await["problems"].to_string();
    assert!(problems.contains(".mcp.json:2:"), "{problems}");
    assert_eq!(state().await, "running");

    std::fs::write(daemon.workspace().join(".mcp.json"), &file).unwrap();
    client.call("trust/revoke", here.clone()).await;
    assert_eq!(state().await, "untrusted");
    daemon.check(&[&client], &model);
}
