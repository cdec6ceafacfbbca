//! OpenAI's interface: with OpenAI's own clients for Python and Node.js, and what becomes of a turn whose caller hangs up.

use std::path::{Path, PathBuf};

use linger_tests::harness::{Cli, Daemon, until};
use linger_tests::model::{Gate, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use super::http::{get, post};
use super::{Gateway, token};

/// Where `.ci/run` puts what others wrote.
pub(super) fn place() -> PathBuf {
    let place = std::env::var_os("LINGER_MCP_SERVERS").map(PathBuf::from);
    place.unwrap_or_else(|| linger_tests::harness::profile().parent().unwrap().join("mcp-servers"))
}

/// Says that a client is not there, which is an error where all of them must be.
fn not_there(language: &str) {
    let what = format!("{} has no client of OpenAI for {language}", place().display());
    assert!(std::env::var_os("CI").is_none(), "{what}: see tests/README.md");
    eprintln!("not run: {what}; tests/README.md says how to install it");
}

/// The Python that has OpenAI's client.
fn python() -> Option<PathBuf> {
    let python = place().join("venv/bin/python");
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    let imported = std::process::Command::new(&python).args(["-c", "import openai"]).output();
    imported.is_ok_and(|output| output.status.success()).then_some(python)
}

/// What the model says to each request of the script.
fn reply(request: &Recorded) -> Reply {
    let words = request.last_words();
    let has_tool = |name: &str| {
        request.json["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["function"]["name"] == name))
    };
    match () {
        () if has_tool("weather") && request.after_tool() => Reply::text("It is sunny."),
        () if has_tool("weather") => Reply::tool("weather", json!({ "city": "Rome" })),
        () if words.contains("as json") => Reply::text("{\"answer\":42}"),
        () if words.contains("say hello") => Reply::text("hello there"),
        () if request.after_tool() => Reply::text("The command said hi."),
        () => Reply::text("I look.").and_tool("bash", json!({ "command": "echo hi" })),
    }
}

#[tokio::test]
async fn the_python_client_of_openai_gets_what_it_asks_for() {
    let Some(python) = python() else { return not_there("Python") };
    gets_what_it_asks_for(&python, "client.py", &[]).await;
}

#[tokio::test]
async fn the_node_client_of_openai_gets_what_it_asks_for() {
    let (node, library) = (place().join("node"), place().join("node_modules/openai"));
    if !library.join("index.mjs").exists() {
        return not_there("Node.js");
    }
    gets_what_it_asks_for(&node, "client.mjs", &[library.to_str().unwrap()]).await;
}

/// Runs a script of `tests/gateway`, which has `first` before its other arguments.
async fn gets_what_it_asks_for(program: &Path, script: &str, first: &[&str]) {
    let model = ModelServer::scripted(reply);
    model.list("/v1/models", json!({ "object": "list", "data": [{ "id": "m", "object": "model" }] }));
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe", "speak"]).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let url = format!("http://{}", gateway.http.host());
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("gateway").join(script);
    let args = [&[script.to_str().unwrap()], first, &[&url, &token, &session]].concat();
    let output = Cli::new(program, daemon.env(false), daemon.workspace(), &args).run().await.exits(0);
    assert!(output.stdout.contains("all is well"), "{output:?}");
    // Nothing is kept of what asked a model alone: five sessions are of its tools, one was there.
    let sessions = client.call("session/list", json!({})).await;
    assert_eq!(sessions.as_array().unwrap().len(), 6, "{sessions}");
    let log = std::fs::read_to_string(daemon.dirs.state().join("gateway.log")).unwrap();
    assert!(log.contains("POST /v1/responses 200") && !log.contains("lng_"), "{log}");
    // Each request of a program is a conversation of its own, which no event announces.
    let is_of_sessions =
        |violation: &String| violation.contains("changed at byte") || violation.contains("that no prompt has");
    let wrong: Vec<String> = model.violations().into_iter().filter(|violation| !is_of_sessions(violation)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    model.forgive();
}

#[tokio::test]
async fn a_caller_that_hangs_up_cancels_what_was_begun_for_it_alone() {
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let replies = gates.clone().map(|gate| Reply::text("begun").gate(&gate).and_text("more"));
    let model = ModelServer::with(replies);
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe", "speak"]).await;
    let client = daemon.client().await;
    let ask = |name: &str| {
        post(
            "/v1/chat/completions",
            json!({ "model": name, "stream": true, "messages": [{ "role": "user", "content": "go" }] }),
        )
        .token(&token)
    };
    // A session that was made for the request: its turn is cancelled.
    let mut stream = gateway.http.stream(ask("work/m|")).await;
    stream.until("begun").await;
    let made = stream.response.header("x-linger-session").unwrap().to_owned();
    drop(stream);
    client.attach(&made).await;
    let finished = client.first(&made, "turn_finished").await.event;
    assert_eq!(finished["stop_reason"], "cancelled");
    // One that was there: its turn goes on.
    let bound = client.session().await;
    let mut stream = gateway.http.stream(ask("work/m").header("x-linger-session", &bound)).await;
    stream.until("begun").await;
    drop(stream);
    gates[1].open();
    assert_eq!(client.first(&bound, "turn_finished").await.event["stop_reason"], "end_turn");
    // A model alone: it is asked no more.
    let mut stream = gateway.http.stream(ask("work/m")).await;
    stream.until("begun").await;
    drop(stream);
    until("the completion's connection is gone", async || {
        let status = client.call("daemon/status", json!({})).await;
        // This one and the gateway's own.
        (status["connections"] == 2).then_some(())
    })
    .await;
    model.forgive();
}

#[tokio::test]
async fn all_events_come_by_name_and_errors_in_the_form_that_clients_know() {
    let model = ModelServer::with([Reply::text("hello")]);
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe", "speak"]).await;
    let ask = |body: Value| post("/v1/chat/completions?events=all", body).token(&token);
    let messages = json!([{ "role": "user", "content": "go" }]);
    let mut stream =
        gateway.http.stream(ask(json!({ "model": "work/m|", "stream": true, "messages": messages }))).await;
    let mut names = Vec::new();
    while let Some((_, name, data)) = stream.any().await {
        if data == "[DONE]" {
            break;
        }
        let data: Value = serde_json::from_str(&data).unwrap();
        names.push(if name.is_empty() { data["object"].clone() } else { data["event"]["kind"].clone() });
    }
    for name in ["session_created", "turn_started", "chat.completion.chunk", "turn_finished"] {
        assert!(names.contains(&json!(name)), "{name}: {names:?}");
    }
    let wrong = gateway.http.send(ask(json!({ "model": "work/m", "messages": [] }))).await;
    assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    let none = gateway.http.send(get("/v1/models").token("x")).await;
    assert_eq!((none.status, &none.json()["error"]["type"]), (401, &json!("authentication_error")));
    // Agents are those of a directory.
    let anywhere = daemon.client().await.call("token/mint", json!({ "name": "anywhere" })).await["token"].clone();
    let agent = || get("/v1/models/agent/helper").token(anywhere.as_str().unwrap());
    let nowhere = gateway.http.send(agent()).await.json()["error"]["message"].to_string();
    assert!(nowhere.contains("no directory is known") && nowhere.contains("X-Linger-Directory"), "{nowhere}");
    let here = agent().header("x-linger-directory", daemon.workspace().to_str().unwrap());
    assert_eq!(gateway.http.send(here).await.status, 404);
    let observer = super::token(&daemon, &["observe"]).await;
    let refused = post("/v1/chat/completions", json!({ "model": "work/m", "messages": messages })).token(&observer);
    let refused = gateway.http.send(refused).await;
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (403, &json!("permission_error")));
}
