//! A history without what only its provider understands: it must say the same as before, as another model would read it.
//!
//! What a provider wants back is thinking, signatures, identifiers, the exact text of arguments, and its own tools' blocks. A change
//! is one of these, in no more answers than the event names, and such an answer has none of them left.

use serde_json::{Value, json};

use super::gemini::PLACEHOLDER;
use super::text;

/// How tools that ran at a provider are told to another model.
const HOSTED: [&str; 2] = ["[web_search", "[code_execution"];

/// Whether `items` are those of a request `before` and more, but for what only the provider understands of at most `most` answers.
pub(super) fn is_made_plain(items: &[String], before: &[Vec<String>], most: usize) -> bool {
    let changed = before.iter().filter_map(|before| changed(items, before));
    changed.into_iter().any(|changed| (1..=most).contains(&changed))
}

/// How many answers have been made plain; none if something else has changed.
fn changed(items: &[String], before: &[String]) -> Option<usize> {
    let (old, new) = (runs(before), runs(items));
    let (mut changed, mut renamed) = (0, false);
    for (n, old_run) in old.iter().enumerate() {
        let new_run = *new.get(n)?;
        if old_run[0].starts_with("assistant ") {
            renamed = *old_run != new_run;
            let plain = new_run.iter().all(|item| !is_opaque(item)) && said(old_run) == said(new_run);
            if renamed && !plain {
                return None;
            }
            changed += usize::from(renamed);
        } else {
            // More may have been said since; results bear the names of their calls.
            let new_run = if n + 1 == old.len() { new_run.get(..old_run.len())? } else { new_run };
            if *old_run != new_run && !(renamed && said(old_run) == said(new_run)) {
                return None;
            }
        }
    }
    Some(changed)
}

/// The answers, and what is between them.
fn runs(items: &[String]) -> Vec<&[String]> {
    let own = |item: &String| item.starts_with("assistant ");
    items.chunk_by(|a, b| own(a) == own(b)).collect()
}

/// The JSON of an item.
fn json_of(item: &str) -> Value {
    let start = item.find(['{', '[', '"']).unwrap_or_default();
    serde_json::from_str(&item[start..]).unwrap_or_default()
}

/// What anybody reads of some items; texts that follow each other are one.
fn said(items: &[String]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for item in items.iter().filter(|item| !item.starts_with("assistant reasoning_content ")) {
        let Some(value) = readable(json_of(item)) else { continue };
        match (all.last_mut(), value) {
            (Some(Value::String(last)), Value::String(more)) => last.push_str(&more),
            (_, value) => all.push(value),
        }
    }
    all
}

/// What anybody reads of a block, item, part or message; a text is a string.
fn readable(mut value: Value) -> Option<Value> {
    if is_thinking(&value) || is_hosted(&value) {
        return None;
    }
    let message = matches!(value["role"].as_str(), None | Some("assistant")) && value["tool_calls"].is_null();
    let content = if value["type"].is_null() { &value["content"] } else { &Value::Null };
    if let (Some(text), true) = (value["text"].as_str().or(content.as_str()), message) {
        let text = without_thoughts(text);
        let hosted = HOSTED.iter().any(|tool| text.starts_with(tool));
        return (!hosted && !text.is_empty()).then(|| text.into());
    }
    for pointer in ["", "/functionCall", "/functionResponse"] {
        value.pointer_mut(pointer).into_iter().for_each(without_secrets);
    }
    for call in value.as_array_mut().into_iter().flatten() {
        without_secrets(call);
        call.get_mut("function").into_iter().for_each(without_secrets);
    }
    Some(value)
}

/// Takes the fields out of an object that stand for something else at another model.
fn without_secrets(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    for secret in ["id", "call_id", "tool_use_id", "thoughtSignature", "thinking", "phase", "extra_content"] {
        fields.shift_remove(secret);
    }
    fields.get_mut("arguments").into_iter().for_each(parse);
}

/// Arguments in a string, by what they say: an object, or something that is wrapped in one.
fn parse(arguments: &mut Value) {
    if let Value::String(raw) = arguments {
        let parsed = serde_json::from_str::<Value>(raw).ok().filter(Value::is_object);
        *arguments = parsed.unwrap_or_else(|| json!({ "invalid_arguments": raw.as_str() }));
    }
}

/// A text without the thoughts that some servers have in it.
fn without_thoughts(text: &str) -> &str {
    let rest = text.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>\n\n"));
    rest.map_or(text, |(_, rest)| without_thoughts(rest))
}

fn is_thinking(value: &Value) -> bool {
    let signature = value["text"] == "" && value["thoughtSignature"].is_string();
    matches!(text(&value["type"]).as_str(), "thinking" | "redacted_thinking" | "reasoning")
        || value["thought"] == true
        || signature
}

fn is_hosted(value: &Value) -> bool {
    let kind = text(&value["type"]);
    matches!(kind.as_str(), "server_tool_use" | "web_search_call" | "code_interpreter_call")
        || kind.ends_with("_tool_result")
        || ["toolCall", "toolResponse", "executableCode", "codeExecutionResult"]
            .iter()
            .any(|name| value[*name].is_object())
}

/// Whether an item has something in it that only its provider understands.
fn is_opaque(item: &str) -> bool {
    let value = json_of(item);
    let signed = !value["thoughtSignature"].is_null() && value["thoughtSignature"] != PLACEHOLDER;
    let thinks = value["thinking"].is_string() || text(&value["text"]).starts_with("<think>");
    let kept = |name: &str| !value[name].is_null();
    let calls_keep = value.as_array().into_iter().flatten().any(|call| !call["extra_content"].is_null());
    let reasoning = item.starts_with("assistant reasoning_content ") && value != "";
    let thinks = thinks || is_thinking(&value) || reasoning;
    thinks || is_hosted(&value) || signed || calls_keep || kept("phase") || kept("citations")
}
