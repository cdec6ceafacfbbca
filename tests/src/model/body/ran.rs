//! Tools that run at the provider: what came back of them, and whether a call and its result are where they must be.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::wire::Format;
use super::{Wrong, messages, text};

/// Each block, item or part that is of such a tool.
pub(super) fn all(format: Format, json: &Value) -> Vec<Value> {
    let is_one = |value: &Value| match format {
        Format::Anthropic => {
            let kind = text(&value["type"]);
            kind == "server_tool_use" || kind.ends_with("_tool_result")
        }
        Format::Responses => matches!(value["type"].as_str(), Some("web_search_call" | "code_interpreter_call")),
        Format::Gemini => ["toolCall", "toolResponse", "executableCode", "codeExecutionResult"]
            .iter()
            .any(|name| value[name].is_object()),
        Format::OpenAi | Format::Ollama => false,
    };
    let blocks = messages(json).iter().flat_map(|message| match (&message["content"], &message["parts"]) {
        (Value::Array(blocks), _) | (_, Value::Array(blocks)) => blocks.clone(),
        _ => vec![message.clone()],
    });
    let mut all: Vec<Value> = blocks.filter(is_one).collect();
    all.iter_mut().for_each(super::without_cache_control);
    all
}

/// What stands for a result that never came.
pub(super) fn is_given_up(block: &Value) -> bool {
    block["content"]["error_code"] == "unavailable"
}

/// In Anthropic's Messages every call has one result. It may come in the next answer, with nothing but results of ours between.
pub(super) fn anthropic(messages: &[Value], wrong: &mut Wrong) {
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (n, message) in messages.iter().enumerate() {
        let late = open.clone();
        for block in super::blocks(&message["content"]) {
            let (kind, id) = (text(&block["type"]), text(&block["tool_use_id"]));
            if message["role"] == "user" {
                let result = kind == "tool_result";
                wrong.unless(open.is_empty() || result, || format!("message {n}: {open:?} is left open by {kind}"));
            } else if kind == "server_tool_use" {
                let id = text(&block["id"]);
                wrong.unless(id.starts_with("srvtoolu_"), || format!("message {n}: bad call id '{id}'"));
                wrong.unless(open.insert(id), || format!("message {n}: the same call twice"));
            } else if kind.ends_with("_tool_result") {
                wrong.unless(open.remove(&id), || format!("message {n}: a result of '{id}', which is not called"));
            } else {
                let missing: Vec<_> = late.intersection(&open).collect();
                wrong.unless(missing.is_empty(), || {
                    format!("message {n}: {kind} comes before the results of {missing:?}")
                });
            }
        }
    }
}
