//! `linger acp`: an editor on one side, the daemon on the other.
//!
//! The editor is one of ours here, and the clients of the two official SDKs where `.ci/run` has put them (`tests/acp`).

mod foreign;
mod servers;

use std::collections::HashMap;
use std::path::PathBuf;

use linger_tests::harness::{Cli, Daemon, Running, Setup, profile, programs};
use linger_tests::model::{Gate, ModelServer, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;

/// An editor with its bridge.
struct Editor {
    bridge: Running,
    stdin: ChildStdin,
    last: u64,
    /// What came that nobody has waited for.
    seen: Vec<Value>,
    answers: HashMap<u64, Value>,
}

impl Editor {
    async fn start(daemon: &Daemon, capabilities: Value) -> Self {
        Self::start_as(daemon, &["acp"], capabilities).await
    }

    async fn start_as(daemon: &Daemon, args: &[&str], capabilities: Value) -> Self {
        let (bridge, stdin) = daemon.cli(args).talk().await;
        let mut editor = Self { bridge, stdin, last: 0, seen: Vec::new(), answers: HashMap::new() };
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        assert_eq!(editor.ask("initialize", params).await["result"]["protocolVersion"], 1);
        editor
    }

    async fn write(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.write(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    async fn read(&mut self) {
        let line = self.bridge.line().await.expect("the bridge goes on");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        match (message.get("method"), message["id"].as_u64()) {
            (None, Some(id)) => drop(self.answers.insert(id, message)),
            _ => self.seen.push(message),
        }
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            self.read().await;
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Waits for a message for which `look` has a value.
    async fn until<T>(&mut self, look: impl Fn(&Value) -> Option<T>) -> T {
        loop {
            if let Some(found) = self.seen.iter().find_map(&look) {
                return found;
            }
            self.read().await;
        }
    }

    /// Waits for a request of the bridge, and takes it.
    async fn asked(&mut self, method: &str) -> Value {
        self.until(|message| (message["method"] == method).then_some(())).await;
        let at = self.seen.iter().position(|message| message["method"] == method).unwrap();
        self.seen.remove(at)
    }

    async fn new_session(&mut self, daemon: &Daemon) -> String {
        let params = json!({ "cwd": daemon.workspace(), "mcpServers": [] });
        let answer = self.ask("session/new", params).await;
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let content = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", json!({ "sessionId": session, "prompt": content })).await
    }

    async fn load(&mut self, daemon: &Daemon, session: &str) -> Value {
        self.seen.clear();
        self.ask("session/load", json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] })).await
    }

    fn updates(&self) -> impl Iterator<Item = &Value> {
        self.seen.iter().filter(|it| it["method"] == "session/update").map(|it| &it["params"]["update"])
    }

    /// What the editor shows in the end: texts joined, each call as it is at last.
    fn shown(&self) -> Vec<(String, Value)> {
        let mut shown: Vec<(String, Value)> = Vec::new();
        for update in self.updates() {
            let kind = update["sessionUpdate"].as_str().unwrap();
            match kind {
                "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                    let name = format!("{kind} {}", update["messageId"]);
                    let text = update["content"]["text"].as_str().unwrap();
                    match shown.last_mut() {
                        Some((last, Value::String(said))) if *last == name => said.push_str(text),
                        _ => shown.push((name, json!(text))),
                    }
                }
                "tool_call" | "tool_call_update" => {
                    let name = format!("call {}", update["toolCallId"]);
                    let fields = update.as_object().unwrap().clone();
                    match shown.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, Value::Object(known))) => known.extend(fields),
                        _ => shown.push((name, Value::Object(fields))),
                    }
                }
                _ => {}
            }
        }
        for (_, value) in &mut shown {
            value.as_object_mut().map(|fields| fields.remove("sessionUpdate"));
        }
        shown
    }
}

fn text_of(shown: &[(String, Value)]) -> String {
    let said = shown.iter().filter(|(name, _)| name.starts_with("agent_message_chunk"));
    said.filter_map(|(_, text)| text.as_str()).collect()
}

#[tokio::test]
async fn an_editor_sees_a_diff_before_it_allows_a_change_and_a_replay_shows_the_same() {
    let model = ModelServer::with([
        Reply::text("I look.").and_tool("read", json!({ "path": "note.txt" })),
        Reply::tool("edit", json!({ "path": "note.txt", "old": "old", "new": "new" })),
        Reply::text("Changed."),
    ]);
    let daemon = Daemon::start(&model).await;
    std::fs::write(daemon.workspace().join("note.txt"), "old\n").unwrap();
    let mut editor = Editor::start(&daemon, json!({})).await;
    let session = editor.new_session(&daemon).await;
    let prompt = editor.prompt(&session, "change it").await;
    let asked = editor.asked("session/request_permission").await;
    let call = &asked["params"]["toolCall"];
    let diff = &call["content"][0];
    let path = daemon.workspace().join("note.txt").canonicalize().unwrap();
    assert_eq!(diff["type"], "diff", "{asked}");
    assert_eq!((&diff["oldText"], &diff["newText"]), (&json!("old\n"), &json!("new\n")), "{asked}");
    assert_eq!(diff["path"], json!(path), "{asked}");
    assert_eq!(call["locations"][0]["path"], json!(path), "{asked}");
    let kinds: Vec<_> = asked["params"]["options"].as_array().unwrap().iter().map(|it| it["kind"].clone()).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "allow_always", "reject_once", "reject_always"]);
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    editor.write(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": outcome })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");

    let live: Vec<_> = editor.shown();
    assert!(live.iter().any(|(_, it)| it["status"] == "completed" && it["content"][0]["type"] == "diff"), "{live:?}");
    // Another editor loads it: the same, and the user's words, which the first one knows by itself.
    let mut other = Editor::start(&daemon, json!({})).await;
    let loaded = other.load(&daemon, &session).await;
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "ask", "{loaded}");
    let (words, rest): (Vec<_>, Vec<_>) = other.shown().into_iter().partition(|(name, _)| name.starts_with("user_"));
    assert_eq!(rest, live);
    assert_eq!(words.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>(), ["change it"]);
    // It can be listed, changed and put into the bin.
    let listed = other.ask("session/list", json!({ "cwd": daemon.workspace() })).await;
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], json!(session), "{listed}");
    let set = other.ask("session/set_mode", json!({ "sessionId": session, "modeId": "plan" })).await;
    assert!(set["result"].is_object(), "{set}");
    editor.until(|it| (it["params"]["update"]["currentModeId"] == "plan").then_some(())).await;
    let wrong = other.ask("session/set_mode", json!({ "sessionId": session, "modeId": "none" })).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    let deleted = other.ask("session/delete", json!({ "sessionId": session })).await;
    assert!(deleted["result"].is_object(), "{deleted}");
    let gone = other.load(&daemon, "nosuch").await;
    assert_eq!(gone["error"]["code"], -32002, "{gone}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_bridge_that_is_killed_leaves_the_turn_at_work_and_the_next_one_shows_all_of_it() {
    let gate = Gate::new();
    let model = ModelServer::with([
        Reply::new()
            .text_in_deltas("The first half, ", 3)
            .gate(&gate)
            .and_text("and the second.")
            .and_tool("bash", json!({ "command": "echo hi" })),
        Reply::text("It said hi."),
    ]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let session = editor.new_session(&daemon).await;
    editor.prompt(&session, "go").await;
    editor.until(|it| it["params"]["update"]["content"]["text"].as_str().map(|_| ())).await;
    editor.bridge.signal(Signal::KILL);
    drop(editor);
    gate.open();
    // The question waits for whoever comes; another daemon does not lose it.
    let client = daemon.client().await;
    client.attach(&session).await;
    client.first(&session, "permission_requested").await;
    daemon.kill_daemon().await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    editor.load(&daemon, &session).await;
    assert_eq!(text_of(&editor.shown()), "The first half, and the second.");
    let asked = editor.asked("session/request_permission").await;
    assert_eq!(asked["params"]["toolCall"]["title"], "echo hi", "{asked}");
    // Somebody answers elsewhere: the editor is told that its question is over.
    let id = asked["id"].clone();
    let inbox = daemon.cli(&["inbox", "--json"]).run().await.exits(0).json();
    let question = inbox[0]["question"].as_str().unwrap().to_owned();
    daemon.cli(&["answer", &question, "allow"]).run().await.exits(0);
    let cancelled = editor.asked("$/cancel_request").await;
    assert_eq!(cancelled["params"]["requestId"], id);
    // As the protocol wants it, the editor answers that too; nothing comes of it.
    editor.write(json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": { "outcome": "cancelled" } } })).await;
    editor.until(|it| (it["params"]["update"]["content"]["text"] == "It said hi.").then_some(())).await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_prompt_ends_when_it_is_cancelled_and_outlives_the_daemon() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::new().text_in_deltas("begun", 2).stall()]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let session = editor.new_session(&daemon).await;
    let prompt = editor.prompt(&session, "go").await;
    editor.until(|it| it["params"]["update"]["content"]["text"].as_str().map(|_| ())).await;
    editor.write(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");

    model.push([Reply::text("one").gate(&gate), Reply::text("two")]);
    let prompt = editor.prompt(&session, "again").await;
    model.wait_requests(2).await;
    daemon.kill_daemon().await;
    gate.open();
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    // Closing cancels nothing that is over; the bridge ends with its editor.
    assert!(editor.ask("session/close", json!({ "sessionId": session })).await["result"].is_object());
    let refused = editor.ask("session/prompt", json!({ "sessionId": session, "prompt": [] })).await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    let Editor { bridge, stdin, .. } = editor;
    drop(stdin);
    bridge.end().await.exits(0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn what_is_wrong_is_said_in_the_editors_terms() {
    let model = ModelServer::start();
    let config =
        "[providers.locked]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key_env = \"NOT_SET_HERE\"\n";
    let daemon = Daemon::start_with(&model, Setup { config: config.to_owned(), ..Setup::default() }).await;
    let mut editor = Editor::start_as(&daemon, &["acp", "-m", "locked/x"], json!({})).await;
    let answer = editor.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] })).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("linger key set locked"), "{answer}");
    // A session that has a model whose key is gone: the turn does not wait for what the editor has to bring.
    let mut editor = Editor::start(&daemon, json!({})).await;
    let session = editor.new_session(&daemon).await;
    let set = json!({ "sessionId": session, "configId": "model", "value": "locked/x" });
    let set = editor.ask("session/set_config_option", set).await;
    assert_eq!(set["error"]["code"], -32000, "{set}");
    // What is no request, and what no bridge knows.
    editor.stdin.write_all(b"no json\n").await.unwrap();
    editor.until(|it| (it["error"]["code"] == -32700).then_some(())).await;
    assert_eq!(editor.ask("terminal/none", json!({})).await["error"]["code"], -32601);
    assert_eq!(editor.ask("session/new", json!({ "cwd": 5 })).await["error"]["code"], -32602);
    let nowhere = editor.ask("session/new", json!({ "cwd": "/nowhere", "mcpServers": [] })).await;
    assert_eq!(nowhere["error"]["code"], -32602, "{nowhere}");
    let audio = json!([{ "type": "audio", "data": "", "mimeType": "audio/wav" }]);
    let refused = editor.ask("session/prompt", json!({ "sessionId": session, "prompt": audio })).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn a_form_is_asked_where_the_editor_takes_forms_and_said_where_it_does_not() {
    let ask = json!({ "question": "Which port?" });
    let model = ModelServer::with([
        Reply::tool("ask_user", ask.clone()),
        Reply::text("Fine."),
        Reply::tool("ask_user", ask),
        Reply::text("Fine too."),
    ]);
    let daemon = Daemon::auto(&model).await;
    let mut editor = Editor::start(&daemon, json!({ "elicitation": { "form": {} } })).await;
    let session = editor.new_session(&daemon).await;
    let prompt = editor.prompt(&session, "go").await;
    let asked = editor.asked("elicitation/create").await;
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["answer"]["type"], "string", "{asked}");
    let result = json!({ "action": "accept", "content": { "answer": "8080" } });
    editor.write(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert!(model.requests()[1].messages().contains("8080"));

    let mut plain = Editor::start(&daemon, json!({})).await;
    plain.load(&daemon, &session).await;
    let prompt = plain.prompt(&session, "again").await;
    let said = plain.until(|it| {
        let text = it["params"]["update"]["content"]["text"].as_str()?;
        text.contains("this editor cannot show").then(|| text.to_owned())
    });
    let said = said.await;
    let question = said.split("linger answer ").nth(1).unwrap().split('`').next().unwrap().to_owned();
    daemon.cli(&["answer", &question, "--json", r#"{"answer":"1"}"#]).run().await.exits(0);
    assert_eq!(plain.answer(prompt).await["result"]["stopReason"], "end_turn");
    daemon.check(&[], &model);
}

/// Where `.ci/run` puts what others wrote; nothing where it is not, which is said.
fn installed() -> Option<PathBuf> {
    let place = std::env::var_os("LINGER_MCP_SERVERS").map(PathBuf::from);
    let place = place.unwrap_or_else(|| profile().parent().unwrap().join("mcp-servers"));
    if place.join("node_modules/@agentclientprotocol/sdk").exists() {
        return Some(place);
    }
    assert!(std::env::var_os("CI").is_none(), "{} has no SDK of ACP: see tests/README.md", place.display());
    eprintln!("not run: {} has no SDK of ACP; tests/README.md says how to install it", place.display());
    None
}

#[tokio::test]
async fn the_clients_of_both_sdks_take_every_message_and_see_a_whole_turn() {
    let Some(place) = installed() else { return };
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("acp");
    let schema = place.join("node_modules/@agentclientprotocol/sdk/schema/v1/schema.json");
    for (program, script) in [("venv/bin/python", "client.py"), ("node", "client.mjs")] {
        let model = ModelServer::scripted(|request| {
            if request.after_tool() {
                Reply::text("The command said hi.")
            } else {
                Reply::new().thinking("Hm.", "").and_text("I look.").and_tool("bash", json!({ "command": "echo hi" }))
            }
        });
        let daemon = Daemon::start(&model).await;
        let linger = &programs().client;
        let script = scripts.join(script);
        let args = [script.to_str().unwrap(), linger.to_str().unwrap(), schema.to_str().unwrap()];
        let cli = Cli::new(&place.join(program), daemon.env(true), daemon.workspace(), &args);
        let output = cli.run().await.exits(0);
        assert!(output.stdout.contains("all is well"), "{output:?}");
        daemon.check(&[], &model);
    }
}

#[tokio::test]
async fn a_call_is_pending_while_the_model_writes_it_and_its_arguments_grow() {
    let gate = Gate::new();
    let input = json!({ "path": "note.txt", "content": "words ".repeat(100) });
    let call = Reply::text("I write.").and_tool_with_gate("write", &input.to_string(), &gate);
    let model = ModelServer::with([call, Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let mut editor = Editor::start_as(&daemon, &["acp", "--model", "claude/m"], json!({})).await;
    let session = editor.new_session(&daemon).await;
    let prompt = editor.prompt(&session, "write it").await;
    gate.reached().await;
    let grown = |message: &Value| {
        let update = &message["params"]["update"];
        (update["rawInput"]["content"].as_str().unwrap_or_default().len() > 100).then_some(())
    };
    editor.until(grown).await;
    let calls: Vec<&Value> = editor.updates().filter(|it| it["toolCallId"] == "c1").collect();
    assert_eq!((&calls[0]["sessionUpdate"], &calls[0]["title"]), (&json!("tool_call"), &json!("write")), "{calls:?}");
    assert!(calls.iter().all(|it| it["status"].is_null() || it["status"] == "pending"), "{calls:?}");
    assert_eq!(calls.last().unwrap()["rawInput"]["path"], "note.txt");
    assert!(!daemon.workspace().join("note.txt").exists());
    gate.open();
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    let live = editor.shown();
    let (_, call) = live.iter().find(|(name, _)| name.starts_with("call")).unwrap();
    assert_eq!((&call["rawInput"], &call["status"]), (&input, &json!("completed")));
    let mut other = Editor::start(&daemon, json!({})).await;
    other.load(&daemon, &session).await;
    let again: Vec<_> = other.shown().into_iter().filter(|(name, _)| !name.starts_with("user_")).collect();
    assert_eq!(again, live);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_link_of_the_editor_stays_one_and_the_efforts_are_those_of_the_model() {
    let model = ModelServer::with([Reply::text("I see.")]);
    let daemon = Daemon::start(&model).await;
    let mut editor = Editor::start(&daemon, json!({})).await;
    let params = json!({ "cwd": daemon.workspace(), "mcpServers": [] });
    let made = editor.ask("session/new", params).await["result"].clone();
    let session = made["sessionId"].as_str().unwrap().to_owned();
    let efforts = made["configOptions"].as_array().unwrap().iter().find(|it| it["id"] == "effort").unwrap();
    let values: Vec<_> = efforts["options"].as_array().unwrap().iter().map(|it| it["value"].clone()).collect();
    assert_eq!(values, ["auto", "none", "minimal", "low", "medium", "high", "xhigh", "max"], "{made}");
    let link = json!({ "type": "resource_link", "uri": "file:///p/a.rs", "name": "a.rs", "mimeType": "text/x-rust" });
    let text = json!({ "type": "resource", "resource": { "uri": "file:///p/b.rs", "text": "fn b() {}" } });
    let content = json!([{ "type": "text", "text": "look at" }, link, text]);
    let prompt = editor.send("session/prompt", json!({ "sessionId": session, "prompt": content })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    let asked = model.requests().pop().unwrap().messages();
    assert!(asked.contains("@/p/a.rs"), "{asked}");
    assert!(asked.contains("/p/b.rs:\\n```\\nfn b() {}\\n```") && !asked.contains("resource_link"), "{asked}");
    let mut other = Editor::start(&daemon, json!({})).await;
    other.load(&daemon, &session).await;
    let said: Vec<&Value> =
        other.updates().filter(|it| it["sessionUpdate"] == "user_message_chunk").map(|it| &it["content"]).collect();
    assert_eq!((said[1], said[2]), (&link, &text));
    daemon.check(&[], &model);
}
