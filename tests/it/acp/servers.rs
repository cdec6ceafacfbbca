//! The editor's own MCP servers, with real ones.

use std::path::Path;

use linger_tests::check::assert_holds;

use super::*;

/// What the editor gives to its server, and to nothing else.
const VALUE: &str = "s3cret-of-the-editor";

/// An editor's setting of the reference server, with a variable.
fn everything(place: &Path) -> Value {
    let script = place.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    json!([{ "name": "My server", "command": place.join("node"), "args": [script, "stdio"],
             "env": [{ "name": "EDITOR_TOKEN", "value": VALUE }] }])
}

/// How the server of the session is.
async fn row(daemon: &Daemon, session: &str) -> Value {
    let output = daemon.cli(&["mcp", "list", "-s", session, "--json"]).run().await.exits(0);
    let rows = output.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.into_iter().find(|row| row["server"] == "My_server").unwrap_or_else(|| panic!("{output:?}"))
}

/// The variable, as the server's process has it.
async fn value_of(daemon: &Daemon, session: &str) -> String {
    let row = row(daemon, session).await;
    let pid = row["instances"][0]["pid"].as_u64().unwrap_or_else(|| panic!("{row}"));
    let env = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let env = String::from_utf8(env).unwrap();
    env.split('\0').find_map(|it| it.strip_prefix("EDITOR_TOKEN=")).unwrap_or_else(|| panic!("{env:?}")).to_owned()
}

#[tokio::test]
async fn the_editors_servers_work_in_its_session_and_wait_for_their_secrets_after_a_restart() {
    let Some(place) = installed() else { return };
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("done")
        } else {
            Reply::tool("mcp__My_server__echo", json!({ "message": "hi" }))
        }
    });
    let daemon = Daemon::auto(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let answer =
        editor.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": everything(&place) })).await;
    let session = answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let turn = |editor: &Editor| editor.shown().iter().map(|(_, value)| value.to_string()).collect::<String>();
    let prompt = editor.prompt(&session, "one").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert!(turn(&editor).contains("Echo: hi"), "{}", turn(&editor));
    assert_eq!(value_of(&daemon, &session).await, VALUE);
    // Another session has none of it.
    let other = editor.new_session(&daemon).await;
    let none = daemon.cli(&["mcp", "list", "-s", &other]).run().await.exits(0);
    assert!(!none.stdout.contains("My_server"), "{none:?}");
    // The bridge brings the values to the daemon that comes after a killed one.
    daemon.kill_daemon().await;
    let prompt = editor.prompt(&session, "two").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(value_of(&daemon, &session).await, VALUE);
    let Editor { bridge, stdin, .. } = editor;
    drop(stdin);
    bridge.end().await.exits(0);
    // Without the editor the server waits, and says so; nothing has kept the value.
    daemon.kill_and_restart().await;
    let waits = daemon.cli(&["mcp", "list", "-s", &session]).run().await.exits(0);
    assert!(waits.stdout.contains("waiting for EDITOR_TOKEN"), "{waits:?}");
    assert!(waits.stdout.contains(&format!("only for session {session}")), "{waits:?}");
    daemon.cli(&["run", "-s", &session, "three"]).run().await.exits(0);
    let log = daemon.cli(&["log", &session]).run().await.exits(0);
    assert!(log.stdout.contains("waiting for EDITOR_TOKEN"), "{log:?}");
    let mut editor = Editor::start(&daemon, json!({})).await;
    let load = json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": everything(&place) });
    let loaded = editor.ask("session/load", load).await;
    assert!(loaded["result"].is_object(), "{loaded}");
    let prompt = editor.prompt(&session, "four").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(value_of(&daemon, &session).await, VALUE);
    // An editor without servers of its own takes none away.
    assert!(editor.load(&daemon, &session).await["result"].is_object());
    assert_eq!(value_of(&daemon, &session).await, VALUE);
    let mut trace = daemon.trace(&[], &model);
    trace.canaries.push(VALUE.to_owned());
    assert_holds(&trace);
    model.verify();
}

#[tokio::test]
async fn servers_that_cannot_be_used_are_left_out_with_a_note_and_the_thread_opens() {
    let model = ModelServer::with([Reply::text("here")]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let good = |name: &str| json!({ "name": name, "command": format!("/none/{name}"), "args": [], "env": [] });
    let servers = json!([
        good("日本"), good("a b"), good("a_b"),
        { "type": "sse", "name": "old", "url": "http://h/", "headers": [] },
        { "name": "none", "args": [], "env": [] },
        { "name": "rel", "command": "./x", "args": [], "env": [] },
        { "type": "http", "name": "far", "url": "no address", "headers": [] },
    ]);
    let params = json!({ "cwd": daemon.workspace(), "mcpServers": servers });
    let answer = editor.ask("session/new", params).await;
    let session = answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    for note in [
        "日本 is called server here",
        "old is left out: it uses SSE",
        "none is left out",
        "rel is left out",
        "far is left out",
    ] {
        editor.until(|it| it["params"]["update"]["content"]["text"].as_str()?.contains(note).then_some(())).await;
    }
    let listed = daemon.cli(&["mcp", "list", "-s", &session, "--json"]).run().await.exits(0);
    let rows = listed.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut names: Vec<String> = rows.map(|row| row["server"].as_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["a_b", "a_b_2", "server"], "{listed:?}");
    // Loading is no different.
    let load = json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [{ "name": "rel", "command": "./x" }, good("new")] });
    assert!(editor.ask("session/load", load).await["result"].is_object());
    editor
        .until(|it| it["params"]["update"]["content"]["text"].as_str()?.contains("rel is left out").then_some(()))
        .await;
}
