//! The servers of a workspace's `.mcp.json`: trusted by a person, run in its sessions alone, with the variables of the shell there.

use std::path::Path;

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::shared::mcp::{calls, server};

fn write(root: &Path, servers: Value) {
    std::fs::write(root.join(".mcp.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
}

/// The scripted server, with a variable of the shell.
fn scripted(starts: &Path) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");
    json!({
        "command": "python3",
        "args": [script, "--starts", starts],
        "env": { "MINE": "${OF_THE_SHELL}", "OTHER": "${NOT_SET:-usual}" },
    })
}

async fn auto(model: &ModelServer, config: &str) -> Daemon {
    Daemon::start_with(model, Setup { mode: "auto", config: config.to_owned(), ..Setup::default() }).await
}

#[tokio::test]
async fn servers_of_a_workspace_run_once_they_are_trusted_and_get_the_variables_of_the_shell() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("ok")
        } else if request.json["tools"].to_string().contains("mcp__s__env") {
            calls("env", json!({}))
        } else {
            Reply::text("no such tool")
        }
    });
    let daemon = auto(&model, "").await;
    let workspace = daemon.workspace();
    let starts = daemon.dirs.root().join("starts");
    let started = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
    write(&workspace, json!({ "s": scripted(&starts), "old": { "type": "sse", "url": "http://127.0.0.1:9/" } }));

    // Before: shown, and not run.
    let listed = daemon.cli(&["mcp", "list"]).run().await.exits(0).stdout;
    assert!(listed.contains("not trusted yet") && listed.contains(".mcp.json"), "{listed}");
    let run = daemon.cli(&["run", "--json", "go"]).run().await.exits(0);
    assert!(run.stdout.contains("no such tool") && run.stdout.contains("linger trust"), "{run:?}");
    assert!(run.stdout.contains("mcpServers.old.type: the type sse"), "{run:?}");
    daemon.cli(&["mcp", "test", "s"]).run().await.fails_with_hint(2);
    assert_eq!(started(), 0);

    // With what it names; a variable without a value is named.
    daemon.cli(&["trust", "--yes"]).run().await.exits(0).says("mcpServers.old.type: the type sse");
    let test = daemon.cli(&["mcp", "test", "s"]).run().await.fails_with_hint(1);
    assert!(test.says("waits for the variable OF_THE_SHELL").stdout.is_empty());
    assert_eq!(started(), 0);
    let secret = "a-value-of-the-shell";
    let run = daemon.cli(&["run", "--json", "go"]).env("OF_THE_SHELL", secret).run().await.exits(0);
    let events = run.json().into_iter().map(|line| line["event"].clone());
    let result = events.into_iter().find(|event| event["kind"] == "tool_finished").expect("a call");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("\"OTHER\": \"usual\"") && text.contains("\"MINE\": \"<redacted>\""), "{text}");
    // The shell's variables are those of the session's tools too, and event 1 lists the harmless ones.
    let mut said = run.stdout.lines().filter(|line| !line.contains("\"session_created\""));
    assert!(said.all(|line| !line.contains(secret)), "what a server says again of its variables is taken out: {run:?}");
    assert_eq!(started(), 1);

    // Elsewhere it is not there.
    let elsewhere = daemon.dirs.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let run = daemon.cli(&["run", "go"]).cwd(&elsewhere).run().await.exits(0);
    assert!(run.stdout.contains("no such tool"), "{run:?}");
    daemon.cli(&["mcp", "list"]).cwd(&elsewhere).run().await.exits(0).says("no MCP servers");

    // Another program waits again; what was trusted runs on.
    write(&workspace, json!({ "s": { "command": "touch", "args": [workspace.join("made")] } }));
    let listed = daemon.cli(&["mcp", "list"]).run().await.exits(0).stdout;
    assert!(listed.contains("changed in .mcp.json"), "{listed}");
    let difference = daemon.cli(&["trust"]).run().await;
    let shown = difference.stdout.clone() + &difference.stderr;
    assert!(shown.contains("in place of"), "{difference:?}");
    assert!(!workspace.join("made").exists());
    let trusted = daemon.cli(&["trust", "--list"]).run().await.exits(0).stdout;
    assert!(trusted.contains("mcpServers.s"), "{trusted}");
    daemon.cli(&["trust", "--revoke"]).run().await.exits(0);
    let listed = daemon.cli(&["mcp", "list"]).run().await.exits(0).stdout;
    assert!(listed.contains("not trusted yet") && !listed.contains("changed"), "{listed}");
    assert!(!daemon.log().contains(secret));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn ones_own_server_hides_that_of_a_workspace_and_a_providers_key_is_given_to_none() {
    let model = ModelServer::start();
    let daemon = auto(&model, &server(&[], "")).await;
    let key = json!({ "command": "touch", "args": ["made", "${OPENAI_API_KEY}"] });
    write(&daemon.workspace(), json!({ "s": { "command": "touch", "args": ["made"] }, "k": key }));
    daemon.cli(&["trust", "--yes"]).run().await.exits(0);
    let rows = daemon.cli(&["mcp", "list", "--json"]).run().await.exits(0).json();
    let states: Vec<Value> = rows.iter().map(|row| json!([row["server"], row["state"], row["problems"]])).collect();
    let key = "left out: OPENAI_API_KEY holds the key of a provider, which no MCP server gets";
    let hidden = "left out: your own config.toml has [mcp.s]";
    assert_eq!(
        states,
        [json!(["k", "left_out", [key]]), json!(["s", "idle", null]), json!(["s", "left_out", [hidden]])]
    );
    daemon.cli(&["mcp", "test", "k"]).env("OPENAI_API_KEY", "sk-x").run().await.fails_with_hint(2);
    daemon.cli(&["mcp", "test", "s"]).run().await.exits(0);
    assert!(!daemon.workspace().join("made").exists());
    // A broken file is named, and takes nothing else with it.
    std::fs::write(daemon.workspace().join(".mcp.json"), "{\"mcpServers\": {").unwrap();
    let listed = daemon.cli(&["mcp", "list"]).run().await.exits(0);
    assert!((listed.stdout.clone() + &listed.stderr).contains(".mcp.json:1:"), "{listed:?}");
    let doctor = daemon.cli(&["doctor"]).run().await.exits(1).stdout;
    for said in [".mcp.json:1:", "EOF", "hint: correct the file", "MCP server s: running, ", "MCP server k: left out"] {
        assert!(doctor.contains(said), "{said}: {doctor}");
    }
    daemon.cli(&["mcp", "test", "s"]).run().await.exits(0);
    daemon.check(&[], &model);
}
