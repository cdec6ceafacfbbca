//! MCP servers as processes: none is left over after any kill, none is waited for that was seen before; `linger mcp`.

use linger_tests::harness::{Client, Daemon, Setup, process, until};
use linger_tests::model::{ModelServer, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::shared::mcp::{calls, server};

/// A daemon that asks nothing, with the server `s`.
async fn auto(model: &ModelServer, args: &[&str]) -> Daemon {
    Daemon::start_with(model, Setup { mode: "auto", config: server(args, ""), ..Setup::default() }).await
}

/// Has the server start a process that leaves its group and session; gives all processes below the daemon then.
async fn with_child(model: &ModelServer, daemon: &Daemon, client: &Client) -> Vec<process::Process> {
    model.push([calls("child", json!({})), Reply::text("ok")]);
    let session = client.session().await;
    client.turn(&session, "go").await;
    let family = daemon.children(daemon.pid().await);
    assert_eq!(family.iter().filter(|it| it.command.contains("mcp.py")).count(), 1, "{family:?}");
    assert_eq!(family.iter().filter(|it| it.command.contains("sleep 1000")).count(), 1, "{family:?}");
    family
}

async fn none_is_left(family: &[process::Process]) {
    until("no process of a server is left", async || (!family.iter().any(process::is_alive)).then_some(())).await;
}

#[tokio::test]
async fn no_process_of_a_server_survives_the_daemon_the_keeper_or_both() {
    let model = ModelServer::start();
    let daemon = auto(&model, &[]).await;
    let client = daemon.client().await;
    let family = with_child(&model, &daemon, &client).await;
    daemon.kill_daemon().await;
    none_is_left(&family).await;
    let client = daemon.client().await;
    let family = with_child(&model, &daemon, &client).await;
    daemon.kill_and_restart().await;
    none_is_left(&family).await;
    let client = daemon.client().await;
    let family = with_child(&model, &daemon, &client).await;
    assert_eq!(daemon.terminate(), Some(0));
    none_is_left(&family).await;
}

#[tokio::test]
async fn fifty_sessions_share_three_servers_and_no_kill_leaves_one_over() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("ok")
        } else {
            ["t", "u"].iter().fold(calls("echo", json!({ "text": "hi" })), |reply, server| {
                reply.and_tool(&format!("mcp__{server}__echo"), json!({ "text": "hi" }))
            })
        }
    });
    let starts = tempfile::NamedTempFile::new().unwrap();
    let (script, path) = (concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py"), starts.path().display());
    // As `npx` does it: a program that starts a shell that starts the server, and waits.
    let wrapped = format!("sh -c 'python3 {script} --starts {path}; exit'; exit");
    let more = format!(
        "[mcp.t]\ncommand = \"sh\"\nargs = [\"-c\", {wrapped:?}]\n[mcp.u]\ncommand = \"python3\"\nargs = [{script:?}, \"--starts\", \"{path}\"]\n"
    );
    let config = server(&["--starts", &path.to_string()], &more);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let turns = async |count: usize| {
        let client = daemon.client().await;
        let mut sessions = Vec::new();
        for n in 0..count {
            let session = client.session().await;
            client.prompt(&session, &format!("go {n}")).await;
            sessions.push(session);
        }
        for session in &sessions {
            client.first(session, "turn_finished").await;
        }
        let results = client.transcript();
        let texts = results.of("tool_finished").map(|seen| seen.event["content"][0]["text"].clone());
        assert_eq!(texts.filter(|text| text == "hi").count(), 3 * count);
        let family = daemon.children(daemon.pid().await);
        let is_server = |it: &&process::Process| it.command.contains("mcp.py") && !it.command.starts_with("sh ");
        let servers = family.iter().filter(is_server);
        assert_eq!(servers.count(), 3, "{family:?}");
        family
    };
    let family = turns(50).await;
    assert_eq!(std::fs::read_to_string(starts.path()).unwrap().lines().count(), 3);
    daemon.kill_daemon().await;
    none_is_left(&family).await;
    let family = turns(1).await;
    daemon.kill_and_restart().await;
    none_is_left(&family).await;
    let family = turns(1).await;
    let old = daemon.pid().await;
    daemon.kill_keeper().await;
    none_is_left(&family).await;
    // The old daemon is the keeper of the next one, and of no test.
    until("the next daemon serves", async || Client::connect(&daemon.dirs, "test").await.ok().map(drop)).await;
    process::signal(old, Signal::TERM);
}

#[tokio::test]
async fn a_server_that_was_seen_before_is_not_waited_for() {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let mute = tempfile::tempdir().unwrap();
    let mute = mute.path().join("mute");
    let daemon = auto(&model, &["--mute-if", mute.to_str().unwrap()]).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    std::fs::write(&mute, "").unwrap();
    daemon.kill_and_restart().await;
    let client = daemon.client().await;
    client.attach(&session).await;
    client.turn(&session, "go on").await;
    assert!(model.requests()[1].json["tools"].to_string().contains("mcp__s__echo"));
    let seen = client.transcript();
    assert_eq!(seen.of("notice").filter(|seen| seen.str("code") == "server_failed").count(), 0, "it was waited for");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn servers_are_added_tested_and_removed_from_the_command_line() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");
    daemon.cli(&["mcp", "list"]).run().await.exits(0).says("no MCP servers");
    let added = daemon.cli(&["mcp", "add", "s", "--env", "A=b", "--", "python3", script]).run().await.exits(0);
    assert!(added.stdout.contains("mcp__s__echo"), "{added:?}");
    assert!(std::fs::read_to_string(daemon.dirs.config()).unwrap().contains("[mcp.s]"));
    daemon.cli(&["mcp", "add", "s", "--", "python3", script]).run().await.fails_with_hint(2);
    let row = &daemon.cli(&["mcp", "list", "--json"]).run().await.exits(0).json()[0];
    assert_eq!((&row["server"], &row["state"]), (&json!("s"), &json!("running")));
    assert!(row["instances"][0]["memory"].as_u64().unwrap() > 0, "{row}");
    daemon.cli(&["mcp", "restart", "s"]).run().await.exits(0);
    let tools = daemon.cli(&["mcp", "test", "s"]).run().await.exits(0).stdout;
    assert!(tools.contains("mcp__s__echo"), "{tools}");
    daemon.cli(&["mcp", "remove", "s"]).run().await.exits(0);
    daemon.cli(&["mcp", "remove", "s"]).run().await.fails_with_hint(2);
    let broken = daemon.cli(&["mcp", "add", "s", "--", "python3", script, "--fail"]).run().await.fails_with_hint(1);
    broken.says("no luck today");
    let logs = daemon.cli(&["mcp", "logs", "s"]).run().await.exits(0).stdout;
    assert!(logs.contains("no luck today"), "{logs}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_prompt_names_a_resource_of_a_server() {
    let model = ModelServer::scripted(|_| Reply::text("read it"));
    let daemon = auto(&model, &[]).await;
    let run = daemon.cli(&["run", "what does @s:note:///one say?"]).run().await.exits(0);
    assert!(run.stdout.contains("read it"), "{run:?}");
    assert!(model.requests()[0].messages().contains("the text of note one"));
    daemon.cli(&["run", "and @s:note:///two?"]).run().await.fails_with_hint(2);
    daemon.cli(&["run", "write to @nobody:note:///two"]).run().await.exits(0);
    let listed = daemon.cli(&["mcp", "resources"]).run().await.exits(0).stdout;
    assert!(listed.contains("@s:note:///one") && listed.contains("The first note."), "{listed}");
    let listed = daemon.cli(&["mcp", "prompts", "s"]).run().await.exits(0).stdout;
    assert!(listed.contains("/s:review what [how]  Reviews something."), "{listed}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn lingers_tools_are_a_server_for_other_programs_without_a_daemon() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    std::fs::write(daemon.workspace().join("note"), "a note").unwrap();
    let of_workspace = daemon.workspace().join(".linger");
    std::fs::create_dir(&of_workspace).unwrap();
    let rules = "[permissions]\ndeny = [\"read(secret)\"]\nallow = [\"bash\"]\n";
    std::fs::write(of_workspace.join("config.toml"), rules).unwrap();
    let call = |id: u32, name: &str, arguments: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": arguments } });
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-11-25", "capabilities": {} } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
        call(2, "read", json!({ "path": "note" })),
        call(3, "bash", json!({ "command": "echo allowed" })),
        call(4, "bash", json!({ "command": "touch made" })),
        call(6, "read", json!({ "path": "secret" })),
        call(5, "write", json!({ "path": "made", "content": "x" })),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let serve = daemon.cli(&["mcp", "serve", "--tools", "bash,read", "--allow", "bash(echo:*)"]).stdin(input);
    let served = serve.run().await.exits(0);
    let answers: Vec<Value> = served.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: u32| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(of(1)["result"]["tools"].as_array().unwrap().len(), 2);
    assert!(of(2)["result"]["content"][0]["text"].as_str().unwrap().contains("a note"));
    assert!(of(3)["result"]["content"][0]["text"].as_str().unwrap().contains("allowed"));
    assert!(of(4)["result"]["content"][0]["text"].as_str().unwrap().contains("--allow 'bash(touch made)'"));
    assert!(of(6)["result"]["content"][0]["text"].as_str().unwrap().contains("the rule read(secret) forbids it"));
    assert_eq!(of(5)["error"]["code"], -32602);
    assert!(!daemon.workspace().join("made").exists());
    daemon.cli(&["mcp", "serve", "--allow", "bash("]).run().await.exits(2);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_process_that_the_daemon_started_brings_no_servers_for_a_session() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let marker = daemon.workspace().join("started");
    let server =
        json!({ "server": "own", "command": "/bin/sh", "args": ["-c", format!("touch {}", marker.display())] });
    let cwd = daemon.workspace();
    let requests = [
        ("session/create", json!({ "cwd": cwd, "model": "work/m", "mcp_servers": [server] })),
        ("session/set", json!({ "session": session, "mcp_servers": [server] })),
    ];
    let lines = (1..).zip(requests).map(|(id, (method, params))| {
        format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    });
    std::fs::write(cwd.join("lines"), lines.collect::<String>()).unwrap();
    let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rw')\n\
        for line in open('lines'): f.write(line); f.flush(); print(f.readline(), end='')\n";
    std::fs::write(cwd.join("ask.py"), script).unwrap();
    let command = format!("setsid -w python3 ask.py {} > out", daemon.dirs.socket().display());
    model.push([Reply::tool("bash", json!({ "command": command })), Reply::text("done")]);
    client.turn(&session, "try").await;
    let out = std::fs::read_to_string(cwd.join("out")).unwrap();
    let answers: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes: Vec<&Value> = answers.iter().map(|answer| &answer["error"]["code"]).collect();
    assert_eq!(codes, [-31006, -31006], "{out}");
    assert!(answers[1]["error"]["message"].as_str().unwrap().contains("may not change a session"), "{out}");
    assert!(!marker.exists());
    daemon.check(&[&client], &model);
}
