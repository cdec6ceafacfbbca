//! Programs that strangers wrote for OpenAI's interface, each in its default mode.

use std::path::{Path, PathBuf};

use linger_tests::harness::{Cli, Daemon, Output, Setup};
use linger_tests::model::{Format, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use super::openai::place;
use super::{Gateway, token};

/// Says that a program is not there, which is an error where all of them must be.
fn not_there(program: &str) {
    let what = format!("{program} is not in {}", place().display());
    assert!(std::env::var_os("CI").is_none(), "{what}: see tests/README.md");
    eprintln!("not run: {what}; tests/README.md says how to install it");
}

/// The names of the tools of a request.
fn tools(request: &Recorded) -> Vec<&str> {
    let tools = request.json["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str().or(tool["name"].as_str())).collect()
}

/// What the model says: it calls a tool where it must, or where it has one and has no result.
fn reply(request: &Recorded) -> Reply {
    let words = request.last_words();
    let city = || json!({ "name": "Rome", "sunny": true });
    let choice = &request.json["tool_choice"];
    let named = choice["function"]["name"].as_str().or(choice["name"].as_str());
    let is_forced = named.is_some() || choice == "required";
    let tools = tools(request);
    let weather = tools.contains(&"weather") && !request.after_tool();
    let other = tools.iter().copied().find(|tool| *tool != "weather").filter(|_| is_forced);
    match named.or(weather.then_some("weather")).or(other) {
        Some("weather") => Reply::tool("weather", json!({ "city": "Rome" })),
        Some(other) => Reply::tool(other, city()),
        None if request.after_tool() => Reply::text("It is sunny."),
        None if words.contains("as json") => Reply::text(city().to_string()),
        None if words.contains("think aloud") => {
            Reply::new().text_in_deltas("Action: look\nObservation: nothing of this may be seen", 5)
        }
        None => Reply::text("hello there"),
    }
}

/// A gateway whose daemon has the provider `work`, and `resp` that speaks Responses.
struct Place {
    gateway: Gateway,
    token: String,
    daemon: Daemon,
    model: ModelServer,
}

impl Place {
    async fn new(script: impl FnMut(&Recorded) -> Reply + Send + 'static) -> Self {
        let model = ModelServer::scripted(script);
        let config = Format::Responses.provider("resp", &model.url());
        let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
        let gateway = Gateway::start(&daemon).await;
        let token = token(&daemon, &["observe", "speak"]).await;
        Self { model, daemon, gateway, token }
    }

    fn url(&self) -> String {
        format!("http://{}", self.gateway.http.host())
    }

    /// Runs a program that reaches the gateway alone: it has a home directory of its own, and a proxy that is not there.
    async fn run(&self, program: &Path, args: &[&str], more: &[(&str, &str)]) -> Output {
        let mut env = self.daemon.env(false);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            env.push((name.to_owned(), "http://127.0.0.1:9".to_owned()));
        }
        env.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), "127.0.0.1".to_owned())));
        env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Cli::new(program, env, self.daemon.workspace(), args).run().await
    }

    async fn is_well(&self, program: &Path, args: &[&str]) {
        let output = self.run(program, args, &[]).await.exits(0);
        assert!(output.stdout.contains("all is well"), "{output:?}");
        // Each request is a conversation of its own, which no event announces, in the words of its program.
        self.model.forgive();
    }
}

fn script(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("gateway").join(name).to_str().unwrap().to_owned()
}

/// Runs the script of the libraries for Python with one of them.
async fn python(library: &str, module: &str) {
    let python = place().join("strangers/bin/python");
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    let imported = std::process::Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if !imported.is_ok_and(|output| output.status.success()) {
        return not_there(library);
    }
    let place = Place::new(reply).await;
    place.is_well(&python, &[&script("stranger.py"), library, &place.url(), &place.token]).await;
}

#[tokio::test]
async fn instructor_gets_an_object_from_a_tool_that_it_forces() {
    python("instructor", "instructor").await;
}

#[tokio::test]
async fn pydantic_ai_gets_a_typed_answer_after_a_call() {
    python("pydantic-ai", "pydantic_ai").await;
}

#[tokio::test]
async fn langchain_forces_calls_stops_texts_and_begins_with_the_model() {
    python("langchain", "langchain_openai").await;
}

#[tokio::test]
async fn the_ai_sdk_forces_calls_loops_and_stops_texts() {
    let (node, modules) = (place().join("node"), place().join("node_modules"));
    if !modules.join("ai").exists() {
        return not_there("ai");
    }
    let place = Place::new(reply).await;
    place.is_well(&node, &[&script("ai.mjs"), modules.to_str().unwrap(), &place.url(), &place.token]).await;
}

/// What the model says to codex: it runs a command, and then it is done.
fn coding(request: &Recorded) -> Reply {
    let tools = tools(request);
    match () {
        () if request.after_tool() => Reply::text("The command was run."),
        () if tools.contains(&"exec_command") => Reply::tool("exec_command", json!({ "cmd": "echo from-codex" })),
        () if tools.contains(&"shell_command") => Reply::tool("shell_command", json!({ "command": "echo from-codex" })),
        () if tools.contains(&"shell") => Reply::tool("shell", json!({ "command": ["echo", "from-codex"] })),
        () => Reply::text("I have no tool to run commands."),
    }
}

/// Runs codex with a model; gives what the model was asked.
async fn codex(model: &str) -> Option<Vec<Value>> {
    let (node, program) = (place().join("node"), place().join("node_modules/@openai/codex/bin/codex.js"));
    if !program.exists() {
        not_there("codex");
        return None;
    }
    let place = Place::new(coding).await;
    let home = place.daemon.workspace().join(".codex-home");
    std::fs::create_dir(&home).unwrap();
    let url = place.url();
    let config = format!(
        "model = '{model}'\nmodel_provider = 'linger'\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n\
         [model_providers.linger]\nname = 'linger'\nbase_url = '{url}/v1'\nenv_key = 'TOKEN'\nwire_api = 'responses'\n\
         request_max_retries = 0\nstream_max_retries = 0\n"
    );
    std::fs::write(home.join("config.toml"), config).unwrap();
    let args = [program.to_str().unwrap(), "exec", "--skip-git-repo-check", "run the command"];
    let env = [("CODEX_HOME", home.to_str().unwrap()), ("TOKEN", place.token.as_str())];
    let output = place.run(&node, &args, &env).await.exits(0);
    assert!(output.stdout.contains("The command was run."), "{output:?}");
    let requests: Vec<Value> = place.model.requests().into_iter().map(|request| request.json).collect();
    place.model.forgive();
    Some(requests)
}

#[tokio::test]
async fn codex_runs_a_command_with_a_provider_of_its_own_format() {
    let Some(requests) = codex("resp/m").await else { return };
    let (first, last) = (&requests[0], requests.last().unwrap());
    let kinds: Vec<&str> = first["tools"].as_array().unwrap().iter().filter_map(|tool| tool["type"].as_str()).collect();
    assert!(kinds.iter().any(|kind| *kind != "function"), "its own kinds of tools are passed on: {kinds:?}");
    assert_eq!((&first["store"], &first["model"]), (&json!(false), &json!("m")));
    let output = last["input"].as_array().unwrap().iter().find(|item| item["type"] == "function_call_output");
    assert!(output.is_some(), "{last}");
}

#[tokio::test]
async fn codex_runs_a_command_with_any_other_provider() {
    let Some(requests) = codex("work/m").await else { return };
    let last = requests.last().unwrap();
    let is_result = |message: &Value| message["role"] == "tool" || message["content"][0]["type"] == "tool_result";
    assert!(last["messages"].as_array().unwrap().iter().any(is_result), "{last}");
}
