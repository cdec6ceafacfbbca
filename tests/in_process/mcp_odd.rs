//! MCP servers that are odd as real ones are: null for what is absent, answers that are no perfect messages, sessions that are lost.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use linger_tests::harness::{Client, Setup};
use linger_tests::model::{ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::mcp::calls;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/odd_mcp.py");

/// The server at an address; it ends when dropped.
struct Http {
    url: String,
    child: Child,
}

impl Http {
    /// `lost`: how it refuses a session that it does not know.
    fn start(lost: &str) -> Self {
        Self::with(&["--lost", lost])
    }

    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn with(args: &[&str]) -> Self {
        let mut command = Command::new("python3");
        let mut child = command.args([SCRIPT, "--http"]).args(args).stdout(Stdio::piped()).spawn().unwrap();
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

/// Calls the tool that the prompt names, and says when it is done.
fn obeys(request: &Recorded) -> Reply {
    match (request.after_tool(), request.last_words()) {
        (true, _) => Reply::text("done"),
        (false, tool) => calls(&tool, json!({})),
    }
}

async fn start(model: &ModelServer, server: &str) -> Daemon {
    let config = format!("[mcp.s]\ntimeout_s = 30\n{server}");
    Daemon::start_with(model, Setup { mode: "auto", config, ..Setup::default() }).await
}

fn stdio() -> String {
    format!("command = \"python3\"\nargs = [{SCRIPT:?}]\n")
}

/// Calls a tool in a turn of its own, and gives how that ended and the text of the result.
async fn call(client: &Client, session: &str, tool: &str, n: usize) -> (String, bool, String) {
    client.prompt(session, tool).await;
    ended(client, session, n).await
}

async fn ended(client: &Client, session: &str, n: usize) -> (String, bool, String) {
    let event = client.nth(session, "tool_finished", n).await.event;
    client.nth(session, "turn_finished", n).await;
    let blocks = event["content"].as_array().cloned().unwrap_or_default();
    let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("|");
    let outcome = event["outcome"].as_str().unwrap_or_default().to_owned();
    (outcome, event["is_error"] == true, text)
}

#[tokio::test]
async fn an_answer_that_is_no_perfect_message_is_told_at_once_as_what_it_is() {
    let model = ModelServer::scripted(obeys);
    let daemon = start(&model, &stdio()).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let cases = [
        ("nulls", false, "good\n{\"type\":\"image\",\"data\":null,\"mimeType\":null}"),
        ("texterror", true, "the MCP server s answered with an error: no paper"),
        ("noid", true, "the MCP server s answered with an error: no paper"),
        ("nan", false, "mean\n{\"mean\":null,\"n\":7}"),
        ("pretty", false, "over lines"),
        ("cut", true, "the MCP server s answered, but not so that the answer can be read: {"),
        ("fails", true, "[the tool failed without a reason"),
        ("data", true, "refused the call: Invalid params: {\"errors\":[\"`at` must be a date\"]}"),
    ];
    for (n, (tool, is_error, says)) in (1..).zip(cases) {
        let (outcome, failed, text) = call(&client, &session, tool, n).await;
        assert_eq!((outcome.as_str(), failed), ("ran", is_error), "{tool}: {text}");
        assert!(text.contains(says), "{tool}: {text}");
    }
    let told = model.requests().last().unwrap().json["messages"].to_string();
    assert!(told.contains("[the tool failed without a reason"), "{told}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn schemas_that_providers_refuse_are_mended_and_all_tools_are_there() {
    let model = ModelServer::with([Reply::text("done")]);
    let daemon = start(&model, &stdio()).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let request = &model.requests()[0].json;
    let tools = request["tools"].as_array().unwrap();
    let schema = |name: &str| {
        let found = tools.iter().find(|tool| tool["function"]["name"] == format!("mcp__s__{name}"));
        found.unwrap_or_else(|| panic!("{name}"))["function"]["parameters"].clone()
    };
    let empty = json!({ "type": "object", "properties": {} });
    assert_eq!(schema("count"), empty);
    let nulls = json!({ "a": {}, "b": { "type": "array", "items": {} }, "c": { "type": "string" } });
    assert_eq!((&schema("nulls")["properties"], &schema("nulls")["required"]), (&nulls, &json!(["a"])));
    assert_eq!(schema("texterror"), empty);
    assert_eq!(schema("noid")["properties"], json!({ "x": {} }));
    let others = tools.iter().filter(|tool| tool["function"]["name"].as_str().unwrap().starts_with("mcp__s____"));
    assert_eq!(others.count(), 2, "names in other scripts are two tools: {tools:?}");
    let row = &client.call("mcp/list", json!({})).await[0];
    let problems = row["problems"].as_array().unwrap();
    assert!(problems.len() <= 4 && row["problems"].to_string().contains("goes in a circle"), "{problems:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_lost_session_begins_anew_and_the_call_runs_once() {
    for lost in ["400", "plain", "404", "410", "200"] {
        let server = Http::start(lost);
        let model = ModelServer::scripted(obeys);
        let daemon = start(&model, &format!("url = {:?}\n", server.url)).await;
        let client = daemon.client().await;
        let session = client.session().await;
        for (n, (tool, says)) in (1..).zip([
            ("count", "counted 1 in handshake 1"),
            ("forget", "forget"),
            ("count", "counted 2 in handshake 2"),
            ("count", "counted 3 in handshake 2"),
        ]) {
            let expect = ("ran".to_owned(), false, says.to_owned());
            assert_eq!(call(&client, &session, tool, n).await, expect, "{lost} {tool}");
        }
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn an_error_of_an_http_exchange_is_the_answer_to_its_call() {
    let server = Http::start("404");
    let model = ModelServer::scripted(obeys);
    let daemon = start(&model, &format!("url = {:?}\n", server.url)).await;
    let client = daemon.client().await;
    let session = client.session().await;
    for (n, (tool, says)) in (1..).zip([
        ("http500", "the MCP server s answered with an error: no paper"),
        ("http429", "not run: the MCP server s did not take the call: "),
        ("plain", "the MCP server s answered, but not so that the answer can be read: no paper at all"),
        ("noid", "the MCP server s answered with an error: no paper"),
    ]) {
        let (outcome, failed, text) = call(&client, &session, tool, n).await;
        assert!(outcome == "ran" && failed && text.starts_with(says), "{tool}: {outcome} {text}");
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for_once() {
    let model = ModelServer::with([Reply::tool("ls", json!({})), Reply::text("done"), Reply::text("done")]);
    let daemon = start(&model, "command = \"sleep\"\nargs = [\"1000\"]\n").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    client.turn(&session, "go on").await;
    let waited = client.transcript().of("notice").filter(|seen| seen.str("text").contains("still starting")).count();
    assert_eq!(waited, 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_server_of_the_older_transport_is_named_as_one() {
    let server = Http::with(&["--older"]);
    let model = ModelServer::scripted(obeys);
    let daemon = start(&model, &format!("url = {:?}\n", server.url)).await;
    let client = daemon.client().await;
    let row = client.call("mcp/test", json!({ "server": "s", "cwd": daemon.workspace() })).await;
    assert!(row["error"].as_str().unwrap().contains("405"), "{row}");
    assert!(row["error"].as_str().unwrap().contains("older HTTP+SSE transport"), "{row}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_question_of_a_shared_server_is_asked_in_the_session_of_its_call() {
    let http = Http::start("404");
    for server in [stdio(), format!("url = {:?}\n", http.url)] {
        let is_http = server.starts_with("url");
        let model = ModelServer::scripted(obeys);
        let daemon = start(&model, &format!("scope = \"user\"\n{server}")).await;
        let client = daemon.client().await;
        let (one, two) = (client.session().await, client.session().await);
        client.prompt(&one, "wait").await;
        client.first(&one, "tool_started").await;
        client.prompt(&two, "ask").await;
        client.first(&two, "tool_started").await;
        if !is_http {
            // It may be of either: it waits until one call is left.
            let three = client.session().await;
            client.turn(&three, "release").await;
        }
        let asked = client.first(&two, "question_asked").await.event;
        let question = asked["question"].clone();
        let form: Value = json!({ "question": question, "answer": "accept", "value": { "name": "Ada" } });
        client.call("question/answer", form).await;
        let (outcome, _, text) = ended(&client, &two, 1).await;
        assert!(outcome == "ran" && text.contains("Ada"), "{text}");
        if is_http {
            client.turn(&client.session().await, "release").await;
        }
        assert_eq!(ended(&client, &one, 1).await.2, "waited");
        assert!(!client.transcript().of("question_asked").any(|seen| seen.session == one));
        daemon.check(&[&client], &model);
    }
}
