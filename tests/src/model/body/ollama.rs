//! Ollama's messages, as its server would look at them.

use serde_json::Value;

use super::{Said, Wrong, blank, text};

pub(super) fn check(json: &Value, messages: &[Value], wrong: &mut Wrong) {
    wrong.unless(json["options"]["num_ctx"].as_u64().is_some_and(|n| n >= 8192), || "a small context".to_owned());
    let first = messages.iter().find(|m| m["role"] != "system");
    wrong.unless(first.is_some_and(|m| m["role"] == "user"), || "the first message is not a user's".to_owned());
    let last = messages.last().map(|m| text(&m["role"])).unwrap_or_default();
    wrong.unless(matches!(last.as_str(), "user" | "tool"), || format!("the last message is of role '{last}'"));
    let (mut open, mut answered): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (n, message) in messages.iter().enumerate() {
        let role = text(&message["role"]);
        if role != "tool" {
            wrong.unless(open == answered, || format!("message {n}: results of {answered:?} for the calls {open:?}"));
            open.clear();
            answered.clear();
        }
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let silent = message["images"].is_array() || !calls.is_empty();
        let spoken = if silent { message["content"].is_string() } else { !blank(&message["content"]) };
        wrong.unless(spoken, || format!("message {n} ({role}) has no content"));
        match role.as_str() {
            "system" | "user" | "assistant" => {}
            "tool" => answered.push(text(&message["tool_name"])),
            other => wrong.unless(false, || format!("message {n} has role '{other}'")),
        }
        for call in &calls {
            wrong.unless(call["function"]["arguments"].is_object(), || format!("message {n}: arguments are no object"));
            open.push(text(&call["function"]["name"]));
        }
    }
    wrong.unless(open == answered, || format!("at the end: results of {answered:?} for the calls {open:?}"));
}

pub(super) fn answers(messages: &[Value]) -> Vec<Said> {
    let own = messages.iter().filter(|message| message["role"] == "assistant");
    own.map(|message| {
        let thinking = text(&message["thinking"]);
        let thinking = if thinking.is_empty() { Vec::new() } else { vec![(thinking, String::new())] };
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let call =
            |call: &Value| (String::new(), text(&call["function"]["name"]), call["function"]["arguments"].to_string());
        (thinking, calls.map(call).collect())
    })
    .collect()
}
