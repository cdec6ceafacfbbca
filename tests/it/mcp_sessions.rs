//! `linger mcp serve --sessions`: another agent, made of the Python SDK of MCP, works through sessions.

use std::path::PathBuf;

use linger_tests::harness::{Cli, Daemon, Setup, profile, programs, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

/// Where `.ci/run` puts what others wrote; nothing where it is not, which is said.
fn python() -> Option<PathBuf> {
    let place = std::env::var_os("LINGER_MCP_SERVERS").map(PathBuf::from);
    let place = place.unwrap_or_else(|| profile().parent().unwrap().join("mcp-servers")).join("venv/bin/python");
    if place.exists() {
        return Some(place);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is not there: see tests/README.md", place.display());
    eprintln!("not run: {} is not there; tests/README.md says how to install it", place.display());
    None
}

#[tokio::test]
async fn an_agent_has_a_session_work_and_its_question_goes_to_a_person_unless_the_agent_may_answer() {
    let Some(python) = python() else { return };
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients/mcp_sessions.py");
    for answerer in ["person", "answer", "none", "edits", "speak"] {
        let has_token = ["edits", "speak"].contains(&answerer);
        let model = ModelServer::scripted(|request| match request.after_tool() {
            true => Reply::text("It said hi."),
            false => Reply::tool("bash", json!({ "command": "echo hi" })),
        });
        let daemon = Daemon::start(&model).await;
        let args = [script.to_str().unwrap(), programs().client.to_str().unwrap(), answerer];
        let mut cli = Cli::new(&python, daemon.env(true), daemon.workspace(), &args);
        if has_token {
            let can: &[&str] = if answerer == "edits" { &["speak", "answer_edits"] } else { &["speak"] };
            let mint = json!({ "name": "agent", "directory": daemon.workspace(), "can": can });
            let minted = daemon.client().await.call("token/mint", mint).await;
            cli = cli.env("LINGER_TOKEN", minted["token"].as_str().unwrap());
        }
        let output = cli.run().await;
        assert!(output.stdout.contains("all is well"), "{answerer}: {output:?}");
        if has_token {
            let log = daemon.cli(&["log", "helper", "--json"]).run().await.exits(0);
            assert!(log.stdout.contains(r#""by":"agent""#), "the log names the grant: {log:?}");
        }
        daemon.check(&[], &model);
    }
}

#[tokio::test]
async fn a_server_that_a_tool_started_reads_its_own_session_and_changes_nothing() {
    let call = |tool: &str, arguments: serde_json::Value| json!({ "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let other = client.session().await;
    let session = client.session().await;
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-11-25" } }),
        call("session_list", json!({})),
        call("session_read", json!({ "session": session })),
        call("session_prompt", json!({ "session": session, "prompt": "as the user" })),
        call("session_create", json!({})),
        call("session_read", json!({ "session": other })),
        call("session_answer", json!({ "question": "q1", "digest": "x", "answer": "allow_once" })),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(daemon.workspace().join("lines"), text).unwrap();
    let (socket, linger) = (daemon.dirs.socket(), &programs().client);
    let command =
        format!("LINGER_SOCKET={} {} mcp serve --sessions --answer < lines > out", socket.display(), linger.display());
    model.push([Reply::tool("bash", json!({ "command": command })), Reply::text("done")]);
    client.turn(&session, "try").await;
    let out = std::fs::read_to_string(daemon.workspace().join("out")).unwrap();
    let answers: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |tool: &str, n: usize| {
        let found = answers.iter().filter(|it| it["id"] == tool).nth(n);
        let result = &found.unwrap_or_else(|| panic!("no answer to {tool}: {out}"))["result"];
        (result["isError"] == true, result["content"][0]["text"].as_str().unwrap().to_owned())
    };
    let (failed, listed) = of("session_list", 0);
    assert!(!failed && listed.contains(&session) && !listed.contains(&other), "{listed}");
    assert!(!of("session_read", 0).0);
    for tool in ["session_prompt", "session_create", "session_answer"] {
        let (failed, words) = of(tool, 0);
        assert!(failed && words.contains("it can only read"), "{tool}: {words}");
    }
    assert!(of("session_read", 1).0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_of_the_configuration_speaks_in_its_directory_if_that_grants_it_and_never_answers() {
    for can in ["", "can = [\"speak\"]\n"] {
        // A prompt names a tool of the server and its arguments; any other has a command run.
        let model = ModelServer::scripted(|request| {
            let prompt = request.last_prompt();
            match (request.after_tool(), prompt.split_once(' ')) {
                (true, _) => Reply::text("done"),
                (false, Some((tool, input))) => {
                    Reply::tool(&format!("mcp__others__{tool}"), serde_json::from_str(input).unwrap())
                }
                (false, None) => Reply::tool("bash", json!({ "command": "echo hi" })),
            }
        });
        let linger = programs().client.to_str().unwrap();
        let config = format!(
            "[mcp.others]\ncommand = {linger:?}\nargs = [\"mcp\", \"serve\", \"--sessions\", \"--answer\"]\n{can}"
        );
        let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
        let client = daemon.client().await;
        // As a terminal gives them: where the daemon is follows from these.
        let env: serde_json::Map<String, serde_json::Value> =
            daemon.env(true).into_iter().map(|(name, value)| (name, json!(value))).collect();
        let (session, elsewhere) = (client.create_with(json!({ "env": env })).await, tempfile::tempdir().unwrap());
        client.attach(&session).await;
        let outside = client.create_with(json!({ "cwd": elsewhere.path(), "mode": "ask" })).await;
        let tool = async |tool: &str, arguments: serde_json::Value| {
            client.turn(&session, &format!("{tool} {arguments}")).await;
            let transcript = client.transcript();
            let seen = transcript.of("tool_finished").last().unwrap();
            (seen.event["is_error"] == true, seen.event["content"][0]["text"].as_str().unwrap().to_owned())
        };
        if can.is_empty() {
            let said = daemon.cli(&["mcp", "test", "others"]).run().await.fails_with_hint(1);
            said.says("may not read a session").says("`can` in [mcp.NAME]");
            continue;
        }
        let (failed, made) = tool("session_create", json!({ "name": "other", "mode": "ask" })).await;
        assert!(!failed, "{made}");
        let (failed, text) = tool("session_create", json!({ "mode": "auto" })).await;
        assert!(failed && text.contains("looser than ask"), "{text}");
        let (failed, text) = tool("session_prompt", json!({ "session": outside, "prompt": "go" })).await;
        assert!(failed && text.contains("no session"), "{text}");
        let (failed, text) = tool("session_prompt", json!({ "session": session, "prompt": "go" })).await;
        assert!(failed && text.contains("has mode auto"), "{text}");
        let (failed, text) = tool("session_prompt", json!({ "session": "other", "prompt": "go" })).await;
        assert!(!failed, "{text}");
        let waiting = until("the other session asks", async || {
            let list = client.call("permission/list", json!({})).await;
            list[0]["permission"].as_str().map(|permission| (permission.to_owned(), list[0]["digest"].clone()))
        });
        let (question, digest) = waiting.await;
        let answer = json!({ "question": question, "digest": digest, "answer": "allow_once" });
        let (failed, text) = tool("session_answer", answer).await;
        assert!(failed && text.contains("a process started by the daemon may not"), "{text}");
        let (failed, text) = tool("session_cancel", json!({ "session": "other" })).await;
        assert!(!failed, "{text}");
        daemon.cli(&["wait", "other"]).run().await.exits(4);
        let log = daemon.cli(&["log", "other", "--json"]).run().await.exits(0);
        assert!(log.stdout.contains(r#""by":"mcp others""#), "{log:?}");
        daemon.check(&[&client], &model);
    }
}
