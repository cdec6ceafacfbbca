//! What the tests of `hosted` share, whether they need a program or not.

use linger_tests::harness::{Client, Setup};
use linger_tests::model::{Format, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::providers::name;

/// The formats that have such tools.
pub(crate) const HOSTED: [Format; 3] = [Format::Anthropic, Format::Responses, Format::Gemini];

pub(crate) const FOUND: &[(&str, &str)] = &[("Rust", "https://rust-lang.org"), ("Über", "https://b.example/ä")];

/// A daemon whose providers run everything that they can.
pub(crate) async fn start(model: &ModelServer, mode: &'static str) -> Daemon {
    let (url, on) = (model.url(), "hosted_tools = [\"web_search\", \"code_execution\"]\n");
    // What comes first belongs to the table of `claude`.
    let config = format!(
        "{on}[providers.gpt]\nkind = \"openai-responses\"\nbase_url = \"{url}/v1\"\napi_key_env = \"GPT_KEY\"\n{on}\
         [providers.google]\nkind = \"gemini\"\nbase_url = \"{url}/v1beta\"\napi_key_env = \"GPT_KEY\"\nmodel = \"gemini-2.5-pro\"\n{on}\
         [providers.llama]\nkind = \"ollama\"\nbase_url = \"{url}\"\n",
    );
    let env = vec![("GPT_KEY".to_owned(), "canary-of-gpt-0123456789".to_owned())];
    Daemon::start_with(model, Setup { mode, config, env, ..Setup::default() }).await
}

pub(crate) async fn session(daemon: &Daemon, format: Format) -> (Client, String) {
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name(format) })).await;
    client.attach(&session).await;
    (client, session)
}

/// What a request has of tools that run at the provider: kinds, in order.
pub(crate) fn ran(request: &Recorded) -> Vec<String> {
    let kind = |block: &Value| match block["type"].as_str() {
        Some(kind) => Some(kind.to_owned()),
        None => block.as_object()?.keys().next().cloned(),
    };
    let blocks =
        request.list().iter().flat_map(|message| match message["content"].as_array().or(message["parts"].as_array()) {
            Some(blocks) => blocks.clone(),
            None => vec![message.clone()],
        });
    let at_provider = |kind: &String| {
        [
            "server_tool",
            "_tool_result",
            "web_search_call",
            "code_inter",
            "toolCall",
            "toolResponse",
            "executable",
            "codeExec",
        ]
        .iter()
        .any(|word| kind.contains(word) && kind != "tool_result")
    };
    blocks.filter_map(|block| kind(&block)).filter(at_provider).collect()
}

pub(crate) fn kinds_of(format: Format) -> Vec<&'static str> {
    match format {
        Format::Anthropic => {
            vec!["server_tool_use", "web_search_tool_result", "server_tool_use", "bash_code_execution_tool_result"]
        }
        Format::Responses => vec!["web_search_call", "code_interpreter_call"],
        _ => vec!["toolCall", "toolResponse", "executableCode", "codeExecutionResult"],
    }
}

pub(crate) fn searches() -> Reply {
    Reply::new()
        .thinking("Hm.", "c2lnbmF0dXJl")
        .and_text("I look.")
        .and_search("rust 2026", FOUND)
        .and_text("It is ")
        .and_text("so.")
        .and_code("print(4)", "4\n")
}

/// A turn that Anthropic stops in the middle of a search.
pub(crate) fn pauses() -> Reply {
    Reply::text("I look.").and_search_begun("rust 2026").stop("pause_turn")
}
