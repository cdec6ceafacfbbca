//! `linger mcp serve --sessions`: another agent, made of the Python SDK of MCP, works through sessions.

use std::path::PathBuf;

use linger_tests::harness::{Cli, Daemon, Running, Setup, profile, programs, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;

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
        let model = ModelServer::scripted(|request| {
            if request.after_tool() {
                Reply::text("It said hi.")
            } else {
                Reply::tool("bash", json!({ "command": "echo hi" }))
            }
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

/// A host that speaks to the server by hand.
struct Host {
    server: Running,
    stdin: ChildStdin,
    last: u64,
    /// Notifications that came.
    told: Vec<Value>,
}

impl Host {
    async fn start(cli: Cli) -> Self {
        let (server, stdin) = cli.talk().await;
        Self { server, stdin, last: 0, told: Vec::new() }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.stdin.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.server.line().await.expect("the server goes on");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.last {
                return message;
            }
            self.told.push(message);
        }
    }

    async fn call(&mut self, tool: &str, arguments: Value, more: Value) -> Value {
        let mut params = json!({ "name": tool, "arguments": arguments });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ask("tools/call", params).await["result"].clone()
    }
}

#[tokio::test]
async fn both_servers_speak_the_same_revisions() {
    let daemon = Daemon::start(&ModelServer::start()).await;
    for args in [&["mcp", "serve"][..], &["mcp", "serve", "--sessions"]] {
        let mut host = Host::start(daemon.cli(args)).await;
        let found = host.ask("server/discover", json!({})).await;
        let known = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
        assert_eq!(found["result"]["supportedVersions"], json!(known), "{args:?}: {found}");
        for revision in &known[1..] {
            let hello = json!({ "protocolVersion": revision, "capabilities": {} });
            assert_eq!(host.ask("initialize", hello).await["result"]["protocolVersion"], *revision, "{args:?}");
        }
        let unknown = host.ask("initialize", json!({ "protocolVersion": "1999-01-01", "capabilities": {} })).await;
        assert_eq!(unknown["result"]["protocolVersion"], "2025-11-25", "{args:?}");
        let later = json!({ "io.modelcontextprotocol/protocolVersion": "2031-01-01" });
        let refused = host.ask("tools/list", json!({ "_meta": later })).await;
        assert_eq!(
            (&refused["error"]["code"], &refused["error"]["data"]["supported"]),
            (&json!(-32022), &json!(["2026-07-28"]))
        );
    }
}

#[tokio::test]
async fn a_wait_is_shorter_than_hosts_are_patient_and_tells_how_it_stands_where_a_host_wants_to_know() {
    let gate = Gate::new();
    let model = ModelServer::with([
        Reply::text("I look.").gate(&gate).and_tool("bash", json!({ "command": "echo hi" })),
        Reply::text("done"),
    ]);
    let daemon = Daemon::start(&model).await;
    let mut host = Host::start(daemon.cli(&["mcp", "serve", "--sessions"])).await;
    host.ask("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} })).await;
    let tools = host.ask("tools/list", json!({})).await["result"]["tools"].clone();
    let wait = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "session_wait").unwrap();
    assert!(wait["inputSchema"]["properties"]["timeout_s"]["description"].as_str().unwrap().contains("default 45"));
    host.call("session_create", json!({ "name": "helper" }), json!({})).await;
    host.call("session_prompt", json!({ "session": "helper", "prompt": "go" }), json!({})).await;
    let arguments = json!({ "session": "helper", "timeout_s": 1 });
    host.call("session_wait", arguments.clone(), json!({})).await;
    assert!(host.told.is_empty(), "no token, no progress: {:?}", host.told);
    let token = json!({ "_meta": { "progressToken": "t1" } });
    let waited = host.call("session_wait", arguments, token.clone()).await;
    assert_eq!(waited["structuredContent"]["timed_out"], true, "{waited}");
    let told = host.told.remove(0);
    assert_eq!(told["method"], "notifications/progress", "{told}");
    let expect = json!({ "progressToken": "t1", "progress": 1, "message": "running" });
    assert_eq!(told["params"], expect);
    gate.open();
    let waited = host.call("session_wait", json!({ "session": "helper" }), token).await;
    assert_eq!(waited["structuredContent"]["questions"].as_array().unwrap().len(), 1, "{waited}");
    host.call("session_cancel", json!({ "session": "helper" }), json!({})).await;
}

#[tokio::test]
async fn a_host_without_a_handshake_is_told_what_to_ask_and_calls_again_with_the_answer() {
    let model = ModelServer::with([
        Reply::tool("bash", json!({ "command": "echo one" })),
        Reply::tool("bash", json!({ "command": "echo two" })),
        Reply::text("done"),
    ]);
    let daemon = Daemon::start(&model).await;
    let mut host = Host::start(daemon.cli(&["mcp", "serve", "--sessions"])).await;
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } });
    let with = |more: Value| {
        let mut params = json!({ "_meta": meta });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    assert_eq!(host.ask("initialize", with(json!({}))).await["error"]["code"], -32601);
    assert_eq!(host.ask("tools/list", with(json!({}))).await["result"]["resultType"], "complete");
    host.call("session_create", json!({ "name": "helper", "mode": "ask" }), with(json!({}))).await;
    host.call("session_prompt", json!({ "session": "helper", "prompt": "go" }), with(json!({}))).await;
    let arguments = json!({ "session": "helper", "timeout_s": 30 });
    let wanted = host.call("session_wait", arguments.clone(), with(json!({}))).await;
    assert_eq!(wanted["resultType"], "input_required", "{wanted}");
    let (question, form) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert!(form["params"]["message"].as_str().unwrap().contains("echo one"), "{wanted}");
    let respond = |wanted: &Value, question: &str, answer: Value| {
        with(json!({ "inputResponses": { question: answer }, "requestState": wanted["requestState"] }))
    };
    let allow = json!({ "action": "accept", "content": { "answer": "allow_once" } });
    let second = host.call("session_wait", arguments.clone(), respond(&wanted, question, allow)).await;
    assert_eq!(second["resultType"], "input_required", "{second}");
    let (question, form) = second["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert!(form["params"]["message"].as_str().unwrap().contains("echo two"), "{second}");
    // A question that its user does not answer waits for another client.
    let declined =
        host.call("session_wait", arguments.clone(), respond(&second, question, json!({ "action": "cancel" }))).await;
    assert_eq!(declined["structuredContent"]["questions"][0]["action"], "echo two", "{declined}");
    let deny = json!({ "action": "accept", "content": { "answer": "reject_once", "reason": "no" } });
    let done = host.call("session_wait", arguments, respond(&second, question, deny)).await;
    assert_eq!(
        (&done["resultType"], &done["structuredContent"]["answer"]),
        (&json!("complete"), &json!("done")),
        "{done}"
    );
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_server_that_had_to_start_a_daemon_says_whose_sessions_it_lists() {
    let daemon = Daemon::start(&ModelServer::start()).await;
    let mut host = Host::start(daemon.cli(&["mcp", "serve", "--sessions"])).await;
    let listed = host.call("session_list", json!({}), json!({})).await;
    assert!(listed["structuredContent"]["note"].is_null(), "{listed}");
    // A host that gives its servers another environment.
    let elsewhere = tempfile::tempdir().unwrap();
    let there = |args: &[&str]| {
        let [state, data, config] = ["state", "data", "config"].map(|name| elsewhere.path().join(name));
        let cli = daemon.cli(args).env("XDG_STATE_HOME", state.to_str().unwrap());
        cli.env("XDG_DATA_HOME", data.to_str().unwrap()).env("XDG_CONFIG_HOME", config.to_str().unwrap())
    };
    let mut host = Host::start(there(&["mcp", "serve", "--sessions"])).await;
    let listed = host.call("session_list", json!({}), json!({})).await;
    let note = listed["structuredContent"]["note"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let state = elsewhere.path().join("state/linger");
    assert!(note.contains(state.to_str().unwrap()) && note.contains("LINGER_SOCKET"), "{note}");
    there(&["daemon", "stop"]).run().await.exits(0);
}
