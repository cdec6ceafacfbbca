//! MCP servers: their tools in the turn, and what a bad server does to it. Kills, the client's commands: `it/mcp.rs`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use linger_tests::harness::{Client, Setup, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::shared::mcp::{calls, server};
use crate::shared::permission::asked;
use crate::{Daemon, answer};

/// A server at an address; it ends when dropped.
struct Http {
    /// Where it is.
    url: String,
    child: Child,
}

impl Http {
    /// Starts it.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn start() -> Self {
        let mut command = Command::new("python3");
        command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py"), "--http"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { url: url.trim().to_owned(), child }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A daemon that asks nothing, with the server `s`.
async fn auto(model: &ModelServer, args: &[&str], more: &str) -> Daemon {
    Daemon::start_with(model, Setup { mode: "auto", config: server(args, more), ..Setup::default() }).await
}

/// The first call of the session that has finished, and the text of its result.
async fn result(client: &Client, session: &str) -> (Value, String) {
    nth_result(client, session, 1).await
}

async fn nth_result(client: &Client, session: &str, n: usize) -> (Value, String) {
    let event = client.nth(session, "tool_finished", n).await.event;
    let blocks = event["content"].as_array().cloned().unwrap_or_default();
    let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("|");
    (event, text)
}

#[tokio::test]
async fn a_servers_tool_is_asked_for_and_called_like_any_other() {
    let model = ModelServer::with([calls("echo", json!({ "text": "hi" })), Reply::text("done")]);
    let setup = Setup { config: server(&["--noise"], ""), ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (permission, event) = asked(&client, &session, 1).await;
    assert_eq!(event["tool"], "mcp__s__echo");
    let grant = event["grant"].as_str().unwrap();
    assert!(grant.starts_with("mcp__s__echo(#") && grant.len() == "mcp__s__echo(#)".len() + 16, "{grant}");
    assert_eq!(event["action"], r#"s: echo {"text":"hi"}"#);
    answer(&client, &permission, "allow_once").await;
    client.first(&session, "turn_finished").await;
    assert_eq!(result(&client, &session).await.1, "hi");
    let request = &model.requests()[0].json;
    let tools: Vec<&str> =
        request["tools"].as_array().unwrap().iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert!(tools[0] == "bash" && tools.contains(&"mcp__s__echo"), "{tools:?}");
    let listed = client.call("tool/list", json!({})).await;
    let echo = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "mcp__s__echo").unwrap();
    assert_eq!((&echo["server"], &echo["read_only"]), (&json!("s"), &json!(false)));
    let row = &client.call("mcp/list", json!({})).await[0];
    assert_eq!((&row["state"], &row["instances"][0]["name"]), (&json!("running"), &json!("scripted 1")));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn rules_name_tools_and_servers_and_plan_refuses_what_says_it_only_reads() {
    let model = ModelServer::with([
        calls("echo", json!({ "text": "a" })).and_tool("mcp__s__env", json!({})),
        Reply::text("done"),
        calls("echo", json!({ "text": "b" })),
        Reply::text("done"),
    ]);
    let rules = "[permissions]\nallow = [\"mcp__s__*\"]\ndeny = [\"mcp__s__env\"]\n";
    let setup = Setup { config: server(&[], "") + rules, ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert_eq!(nth_result(&client, &session, 1).await.0["outcome"], "denied");
    assert_eq!(nth_result(&client, &session, 2).await.1, "a");
    client.call("session/set", json!({ "session": session, "mode": "plan" })).await;
    client.turn(&session, "go").await;
    let (event, text) = nth_result(&client, &session, 3).await;
    assert_eq!((event["outcome"].as_str(), text.contains("plan")), (Some("denied"), true), "{text}");
    assert_eq!(client.transcript().of("permission_requested").count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn progress_is_shown_and_is_no_part_of_the_result() {
    let model = ModelServer::with([calls("progress", json!({})), Reply::text("done")]);
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let shown: String = client.transcript().of("tool_output_delta").map(|seen| seen.str("text").to_owned()).collect();
    assert_eq!(shown, "[1/3] part 1\n[2/3] part 2\n[3/3] part 3\nall parts");
    assert_eq!(result(&client, &session).await.1, "all parts");
    let late = daemon.named("late").await;
    late.attach(&session).await;
    late.first(&session, "turn_finished").await;
    daemon.check(&[&client, &late], &model);
}

#[tokio::test]
async fn a_long_result_is_bounded_and_an_image_is_one() {
    let model = ModelServer::with([
        calls("big", json!({})).and_tool("mcp__s__image", json!({})).and_tool("mcp__s__fail", json!({})),
        Reply::text("done"),
    ]);
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let finished = client.transcript();
    let finished: Vec<&Value> = finished.of("tool_finished").map(|seen| &seen.event).collect();
    let of = |kind: &str| finished.iter().find(|event| event["content"][0]["type"] == kind);
    let image = of("image").unwrap();
    assert_eq!(image["content"].as_array().unwrap().len(), 2);
    // It is an artifact too, which a prompt may name.
    let link = &image["content"][1];
    assert_eq!((&link["type"], &link["name"]), (&json!("resource_link"), &json!("image.png")));
    let id = link["uri"].as_str().unwrap().strip_prefix("artifact:").unwrap();
    let row = client.call("artifact/get", json!({ "id": id })).await;
    assert_eq!((&row["size"], &row["content_type"]), (&json!(9), &json!("image/png")));
    assert_eq!(row["by"], format!("mcp__s__image of {session}"));
    model.push([Reply::text("I see")]);
    client.turn(&session, &format!("look at artifact:{id}")).await;
    let prompt = client.transcript().of("prompt_accepted").last().unwrap().event.clone();
    assert_eq!((&prompt["content"][1]["type"], &prompt["content"][1]["bytes"]), (&json!("image"), &json!(9)));
    let big = finished.iter().find(|event| event["blob"].is_string()).unwrap();
    assert!(big["content"][1]["text"].as_str().unwrap().contains("bytes left out"), "{big}");
    let failed = finished.iter().find(|event| event["is_error"] == true).unwrap();
    assert_eq!((&failed["outcome"], &failed["content"][0]["text"]), (&json!("ran"), &json!("it did not work")));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_that_crashes_gives_its_call_a_result_and_is_started_again() {
    let model =
        ModelServer::with([calls("crash", json!({})), calls("echo", json!({ "text": "back" })), Reply::text("done")]);
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let (event, text) = result(&client, &session).await;
    assert_eq!((&event["outcome"], &event["is_error"]), (&json!("unknown"), &json!(true)));
    assert!(text.contains("the MCP server s is gone: it ended (exit status: 3)"), "{text}");
    assert!(text.contains("about to crash"), "{text}");
    assert_eq!(nth_result(&client, &session, 2).await.1, "back");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_call_that_hangs_times_out_and_is_cancelled() {
    let model = ModelServer::with([calls("hang", json!({})), calls("cancelled", json!({})), Reply::text("done")]);
    let daemon = auto(&model, &[], "timeout_s = 1").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let (event, text) = result(&client, &session).await;
    assert_eq!(event["outcome"], "timed_out", "{text}");
    let cancelled: Vec<u64> = serde_json::from_str(&nth_result(&client, &session, 2).await.1).unwrap();
    assert_eq!(cancelled.len(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_call_and_leaves_the_server() {
    let model = ModelServer::with([calls("hang", json!({})), calls("cancelled", json!({})), Reply::text("done")]);
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    client.call("session/cancel", json!({ "session": session })).await;
    client.first(&session, "turn_finished").await;
    client.turn(&session, "again").await;
    let finished = client.nth(&session, "tool_finished", 2).await.event;
    let text = finished["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Vec<u64>>(text).is_ok(), "the server still answers: {text}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_flood_ends_the_server_and_nothing_else() {
    let model = ModelServer::with([calls("flood", json!({})), Reply::text("done")]);
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let (event, text) = result(&client, &session).await;
    assert_eq!(event["outcome"], "unknown");
    assert!(text.contains("a message of more than 16777216 bytes"), "{text}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_tool_that_comes_is_there_at_the_next_step_and_an_event_says_so() {
    let model = ModelServer::scripted(|request| {
        let has = |name: &str| request.json["tools"].to_string().contains(name);
        match (request.messages().contains("a new tool"), has("mcp__s__grown1")) {
            (true, _) => Reply::text("done"),
            (false, true) => calls("grown1", json!({})),
            (false, false) => calls("grow", json!({})),
        }
    });
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let results: Vec<String> = client
        .transcript()
        .of("tool_finished")
        .map(|seen| seen.event["content"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(results.last().unwrap(), "a new tool: grown1", "{results:?}");
    assert!(client.transcript().of("session_changed").count() >= 2, "the tools of `s`, and the new one");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_sessions_of_a_workspace_share_one_process_which_gets_what_it_needs_and_no_more() {
    let model = ModelServer::scripted(|request| {
        if request.after_tool() {
            Reply::text("ok")
        } else {
            calls("env", json!({})).and_tool("mcp__s__roots", json!({}))
        }
    });
    let starts = tempfile::NamedTempFile::new().unwrap();
    let path = starts.path().to_str().unwrap();
    let daemon = auto(&model, &["--starts", path], "env = { OWN = \"1\" }").await;
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(client.session().await);
    }
    for (n, session) in sessions.iter().enumerate() {
        client.prompt(session, &format!("go {n}")).await;
    }
    for session in &sessions {
        client.first(session, "turn_finished").await;
    }
    let started = std::fs::read_to_string(path).unwrap();
    assert_eq!(started.lines().count(), 1, "{started}");
    let finished = client.transcript();
    let texts: Vec<&str> =
        finished.of("tool_finished").map(|seen| seen.event["content"][0]["text"].as_str().unwrap()).collect();
    let env: Value =
        texts.iter().find_map(|text| serde_json::from_str(text).ok().filter(|it: &Value| it["OWN"] == "1")).unwrap();
    assert_eq!(env["cwd"], daemon.workspace().canonicalize().unwrap().to_str().unwrap());
    assert!(env["WORK_KEY"].is_null() && env["CARGO_MANIFEST_DIR"].is_null(), "{env}");
    let roots = texts.iter().find(|text| text.contains("roots")).unwrap();
    assert!(roots.contains(daemon.workspace().canonicalize().unwrap().to_str().unwrap()), "{roots}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_that_does_not_start_is_told_once_and_the_turn_goes_on() {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = auto(&model, &["--fail"], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    assert_eq!(client.turn(&session, "one").await.str("stop_reason"), "end_turn");
    assert_eq!(client.turn(&session, "two").await.str("stop_reason"), "end_turn");
    let seen = client.transcript();
    let notices: Vec<&str> = seen.of("notice").map(|seen| seen.str("text")).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("s cannot be started") && notices[0].contains("no luck today"), "{notices:?}");
    let row = &client.call("mcp/list", json!({})).await[0];
    assert!(row["error"].as_str().unwrap().contains("no luck today"), "{row}");
    let logs = client.call("mcp/logs", json!({ "server": "s" })).await;
    assert!(logs["lines"].to_string().contains("no luck today"), "{logs}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_turn_ends_without_a_server_that_is_required() {
    let model = ModelServer::start();
    let daemon = auto(&model, &["--mute"], "required = true\nstart_timeout_s = 1").await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "go").await;
    assert_eq!(finished.str("stop_reason"), "error");
    assert!(finished.str("detail").contains("did not start within 1 s"), "{:?}", finished.event);
    assert!(model.requests().is_empty());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_changed_configuration_counts_from_the_next_step_on() {
    let model = ModelServer::scripted(|request| match (request.after_tool(), request.json["tools"].to_string()) {
        (false, tools) if tools.contains("mcp__s__echo") => calls("echo", json!({ "text": "x" })),
        _ => Reply::text("ok"),
    });
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "one").await;
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");
    let add = json!({ "server": "s", "command": "python3", "args": [script] });
    client.call("mcp/add", add.clone()).await;
    assert_eq!(client.refused("mcp/add", add).await.code, -31012);
    client.turn(&session, "two").await;
    assert_eq!(client.transcript().of("tool_started").count(), 1);
    client.call("mcp/restart", json!({ "server": "s" })).await;
    let tested = json!({ "server": "s", "cwd": daemon.workspace() });
    assert_eq!(client.call("mcp/test", tested).await["state"], "running");
    client.call("mcp/remove", json!({ "server": "s" })).await;
    client.turn(&session, "three").await;
    assert_eq!(client.transcript().of("tool_started").count(), 1);
    assert_eq!(client.refused("mcp/logs", json!({ "server": "s" })).await.code, -31029);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_that_someone_writes_into_the_file_is_started_once_a_person_confirms_it() {
    let model = ModelServer::scripted(|request| match (request.after_tool(), request.json["tools"].to_string()) {
        (false, tools) if tools.contains("mcp__s__echo") => calls("echo", json!({ "text": "x" })),
        _ => Reply::text("ok"),
    });
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let starts = tempfile::NamedTempFile::new().unwrap();
    let own = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let written = server(&["--starts", starts.path().to_str().unwrap()], "required = true");
    std::fs::write(daemon.dirs.config(), format!("{own}\n{written}")).unwrap();
    let waits = || async { client.call("config/get", json!({})).await.get("waiting").cloned() };
    let waiting = until("the server waits", waits).await;
    assert_eq!(waiting["changes"].as_array().map(Vec::len), Some(1), "{waiting:#}");
    assert_eq!(client.call("mcp/list", json!({})).await, json!([]));
    client.turn(&session, "one").await;
    assert_eq!(std::fs::read_to_string(starts.path()).unwrap(), "", "it was started");
    let again = json!({ "server": "s", "command": "python3" });
    assert!(client.refused("mcp/add", again).await.message.contains("in the file already"));

    client.call("config/confirm", json!({ "digest": waiting["digest"] })).await;
    client.turn(&session, "two").await;
    assert_eq!(result(&client, &session).await.1, "x");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_at_an_address_gets_its_token_and_is_reached_again_when_it_forgets() {
    let model = ModelServer::with([
        calls("progress", json!({})),
        calls("cut", json!({})),
        calls("forget", json!({})),
        calls("echo", json!({ "text": "back" })),
        Reply::text("done"),
    ]);
    let http = Http::start();
    let config =
        format!("[mcp.s]\nurl = \"{}\"\nheaders = {{ Authorization = \"Bearer ${{MCP_TOKEN}}\" }}\n", http.url);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let client = daemon.client().await;
    let tested = client.call("mcp/test", json!({ "server": "s", "cwd": daemon.workspace() })).await;
    assert_eq!((&tested["state"], &tested["waits_for"]), (&json!("waiting"), &json!(["MCP_TOKEN"])), "{tested}");
    let hello = client.call("daemon/hello", json!({ "client": "test", "protocol": [1, 1] })).await;
    assert!(hello["keys"].as_array().unwrap().contains(&json!("MCP_TOKEN")), "{hello}");
    client.call("daemon/keys", json!({ "keys": { "MCP_TOKEN": "open-sesame" } })).await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert_eq!(result(&client, &session).await.1, "all parts");
    let shown: String = client.transcript().of("tool_output_delta").map(|seen| seen.str("text").to_owned()).collect();
    assert!(shown.starts_with("[1/3] part 1\n"), "{shown}");
    let (event, text) = nth_result(&client, &session, 2).await;
    assert_eq!(event["outcome"], "unknown", "{text}");
    // It was not taken, also not by the new connection.
    let (event, text) = nth_result(&client, &session, 3).await;
    assert!(event["outcome"] == "ran" && event["is_error"] == true && text.starts_with("not run: "), "{text}");
    assert_eq!(nth_result(&client, &session, 4).await.1, "back");
    assert!(!daemon.log().contains("open-sesame"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_a_server_asks_is_a_form_that_a_person_answers() {
    let model =
        ModelServer::scripted(|request| if request.after_tool() { Reply::text("ok") } else { calls("ask", json!({})) });
    let daemon = auto(&model, &[], "timeout_s = 1").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let event = client.first(&session, "question_asked").await.event;
    let (question, asked) = (event["question"].clone(), &event["asked"]);
    assert_eq!((&asked["kind"], &asked["text"]), (&json!("form"), &json!("the MCP server s asks: Who are you?")));
    assert_eq!(asked["schema"]["required"], json!(["name"]));
    let answer = |value: Value| json!({ "question": question, "answer": "accept", "value": value });
    for wrong in [json!({}), json!({ "name": 5 }), Value::Null] {
        assert_eq!(client.refused("question/answer", answer(wrong)).await.code, -31030);
    }
    client.call("question/answer", answer(json!({ "name": "me" }))).await;
    client.first(&session, "turn_finished").await;
    let given: Value = serde_json::from_str(&result(&client, &session).await.1).unwrap();
    assert_eq!(given, json!({ "action": "accept", "content": { "name": "me" } }));
    client.prompt(&session, "again").await;
    let question = client.nth(&session, "question_asked", 2).await.event["question"].clone();
    client.call("question/answer", json!({ "question": question, "answer": "decline" })).await;
    assert_eq!(nth_result(&client, &session, 2).await.1, r#"{"action": "decline"}"#);
    client.prompt(&session, "once more").await;
    client.nth(&session, "question_asked", 3).await;
    client.call("session/cancel", json!({ "session": session })).await;
    client.nth(&session, "question_resolved", 3).await;
    client.nth(&session, "turn_finished", 3).await;
    daemon.check(&[&client], &model);
}

/// Waits until the tools of `s`, as they are known, say this.
async fn listed(client: &Client, said: &str) {
    let listed = async || client.call("mcp/list", json!({})).await.to_string().contains(said).then_some(());
    until("the list of tools has changed", listed).await;
}

/// Calls a tool of `s` through `call_tool`.
fn calls_found(tool: &str, input: Value) -> Reply {
    Reply::tool("call_tool", json!({ "name": format!("mcp__s__{tool}"), "input": input }))
}

#[tokio::test]
async fn of_480_tools_the_request_has_two_that_find_and_call_them() {
    let model = ModelServer::with([
        Reply::tool("find_tools", json!({ "query": "many 77" })),
        calls_found("many77", json!({ "text": "hi" })),
        calls_found("env", json!({})),
        calls_found("grow", json!({})),
        Reply::text("done"),
        calls_found("grown481", json!({})),
        Reply::text("done"),
    ]);
    let rules = "[permissions]\nallow = [\"mcp__s__*\"]\ndeny = [\"mcp__s__env\"]\n";
    let setup = Setup { config: server(&["--many", "480"], "") + rules, ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert!(model.requests()[0].json.to_string().len() < 16 << 10, "{}", model.requests()[0].json.to_string().len());
    let found = nth_result(&client, &session, 1).await.1;
    assert!(found.starts_with("mcp__s__many77\nThe tool many77.\ninput: {"), "{found}");
    let started = client.first(&session, "tool_started").await.event;
    assert_eq!(started["tool"], "find_tools");
    let started = client.nth(&session, "tool_started", 2).await.event;
    assert_eq!(
        (&started["tool"], &started["action"]),
        (&json!("mcp__s__many77"), &json!(r#"s: many77 {"text":"hi"}"#))
    );
    assert_eq!(nth_result(&client, &session, 2).await.1, "a new tool: many77");
    let (denied, text) = nth_result(&client, &session, 3).await;
    assert_eq!((denied["outcome"].as_str(), text.contains("mcp__s__env")), (Some("denied"), true), "{text}");
    listed(&client, "grown481").await;
    client.turn(&session, "again").await;
    assert_eq!(nth_result(&client, &session, 5).await.1, "a new tool: grown481");
    let tools: Vec<Value> = model.requests().iter().map(|request| request.json["tools"].clone()).collect();
    assert!(tools.iter().all(|it| *it == tools[0]), "the prefix stays when the list changes");
    assert_eq!(client.transcript().of("permission_requested").count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_tool_that_changed_after_it_was_always_allowed_asks_again() {
    let echo = || calls("echo", json!({ "text": "hi" }));
    let reword = calls("reword", json!({}));
    let model = ModelServer::with([echo(), echo(), reword, Reply::text("done"), echo(), Reply::text("done")]);
    let setup = Setup { config: server(&[], ""), ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (first, event) = asked(&client, &session, 1).await;
    answer(&client, &first, "allow_session").await;
    let (second, reword) = asked(&client, &session, 2).await;
    assert_eq!(reword["tool"], "mcp__s__reword", "the second call of echo did not ask");
    answer(&client, &second, "allow_once").await;
    client.first(&session, "turn_finished").await;
    listed(&client, "does something else").await;
    client.prompt(&session, "again").await;
    let (third, again) = asked(&client, &session, 3).await;
    assert_eq!(again["tool"], "mcp__s__echo");
    assert_ne!(again["grant"], event["grant"]);
    answer(&client, &third, "reject_once").await;
    client.nth(&session, "turn_finished", 2).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn resources_and_prompts_are_listed_and_become_content_of_a_prompt() {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    let listed = client.call("mcp/resources", json!({ "session": session })).await;
    let rows: Vec<(&Value, &Value)> =
        listed.as_array().unwrap().iter().map(|row| (&row["uri"], &row["is_template"])).collect();
    assert_eq!(rows, [(&json!("note:///one"), &Value::Null), (&json!("note:///{name}"), &json!(true))]);
    let prompts = client.call("mcp/prompts", json!({ "cwd": daemon.workspace(), "server": "s" })).await;
    assert_eq!((&prompts[0]["prompt"], &prompts[0]["arguments"][0]["required"]), (&json!("review"), &json!(true)));
    let named = |uri: &str| json!({ "session": session, "server": "s", "uri": uri });
    let read = client.call("mcp/resource", named("note:///one")).await;
    let text = "[resource @s:note:///one]\nthe text of note one";
    assert_eq!(read, json!({ "content": [{ "type": "text", "text": text }] }));
    let missing = client.refused("mcp/resource", named("note:///two")).await;
    assert!(missing.code == -31051 && missing.message.contains("no such note"), "{missing:?}");
    let prompt = |text: &str| json!({ "session": session, "server": "s", "prompt": "review", "text": text });
    let said = client.call("mcp/prompt", prompt("this with care")).await;
    let text = "[prompt /s:review]\nreview: {\"how\": \"with care\", \"what\": \"this\"}";
    assert_eq!(said["content"][0]["text"], text);
    assert!(client.refused("mcp/prompt", prompt("")).await.message.contains("needs the argument what"));
    let none = json!({ "session": session, "server": "t", "uri": "a:b" });
    assert_eq!(client.refused("mcp/resource", none).await.code, -31029);
    client.call("session/prompt", json!({ "session": session, "content": said["content"] })).await;
    client.first(&session, "turn_finished").await;
    assert!(model.requests()[0].messages().contains("with care"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_without_a_handshake_is_found_out_and_gets_its_input_in_the_next_round() {
    let model = ModelServer::with([
        calls("ask", json!({})),
        calls("progress", json!({})),
        calls("grow", json!({})),
        Reply::text("done"),
        calls("grown1", json!({})),
        Reply::text("done"),
    ]);
    let daemon = auto(&model, &["--modern"], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let event = client.first(&session, "question_asked").await.event;
    assert_eq!(event["asked"]["text"], "the MCP server s asks: Who are you?");
    let answer = json!({ "question": event["question"], "answer": "accept", "value": { "name": "me" } });
    client.call("question/answer", answer).await;
    client.first(&session, "turn_finished").await;
    let given: Value = serde_json::from_str(&result(&client, &session).await.1).unwrap();
    assert_eq!(given, json!(["s7", { "action": "accept", "content": { "name": "me" } }, 2]));
    assert_eq!(nth_result(&client, &session, 2).await.1, "all parts");
    listed(&client, "grown1").await;
    let row = &client.call("mcp/list", json!({})).await[0]["instances"][0];
    assert_eq!((&row["protocol"], &row["name"]), (&json!("2026-07-28"), &json!("modern 2")));
    client.turn(&session, "again").await;
    assert_eq!(nth_result(&client, &session, 4).await.1, "a new tool: grown1");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_sessions_own_server_at_an_address_works_for_it_alone_and_ends_with_it() {
    let own = |tool: &str| Reply::tool(&format!("mcp__own__{tool}"), json!({ "text": "hello" }));
    let model = ModelServer::with([own("echo"), own("connections"), Reply::text("done")]);
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", ..Setup::default() }).await;
    let http = Http::start();
    let brings = json!({ "mcp_servers": [{
        "server": "own", "url": http.url, "headers": { "Authorization": "Bearer open-sesame" } }] });
    let client = daemon.client().await;
    let session = client.create_with(brings.clone()).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    assert_eq!(result(&client, &session).await.1, "hello");
    assert_eq!(nth_result(&client, &session, 2).await.1, "connection-0");
    // Another session has no such tool.
    let other = client.session().await;
    model.push([own("echo"), Reply::text("done")]);
    client.turn(&other, "go").await;
    assert_eq!(result(&client, &other).await.0["outcome"], "invalid");
    client.call("session/remove", json!({ "session": session, "force": true })).await;
    // A third one, with a connection of its own, hears when the first is gone.
    let third = client.create_with(brings).await;
    client.attach(&third).await;
    let mut turns = 0;
    until("the connection of the removed session has ended", async || {
        model.push([own("connections"), Reply::text("done")]);
        client.turn(&third, "go").await;
        turns += 1;
        (nth_result(&client, &third, turns).await.1 == "connection-1").then_some(())
    })
    .await;
    assert!(!daemon.log().contains("open-sesame"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_link_in_a_result_stays_one_and_the_model_reads_it() {
    let model = ModelServer::with([calls("link", json!({})), Reply::text("done")]);
    let daemon = auto(&model, &[], "").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let (event, _) = result(&client, &session).await;
    let link =
        json!({ "type": "resource_link", "uri": "note:///one", "name": "one", "description": "The first note." });
    assert_eq!(event["content"], json!([{ "type": "text", "text": "see" }, link]));
    let asked = model.requests().pop().unwrap().messages();
    assert!(
        asked.contains("[resource note:///one, one, The first note.]") && !asked.contains("resource_link"),
        "{asked}"
    );
    daemon.check(&[&client], &model);
}
