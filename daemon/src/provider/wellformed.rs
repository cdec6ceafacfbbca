//! What a request must be for a provider to take it: invariant I4, as a check of the finished body.
//!
//! The codecs assert it, and the tests' scripted models check with it everything that they are sent.
//! Deliberately absent: whether the model exists and whether the schemas of the tools make sense.

#![allow(clippy::indexing_slicing)] // A field that a JSON value lacks reads as null.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::catalogue::Kind;

/// Everything that is wrong with `body`, one line each.
pub fn validate(kind: Kind, body: &Value) -> Result<(), Vec<String>> {
    let mut check = Check { problems: Vec::new() };
    match kind {
        Kind::Anthropic => check.anthropic(body),
        Kind::Openai => check.openai(body),
        Kind::Demo => {}
    }
    check.no_nul("body", body);
    if check.problems.is_empty() { Ok(()) } else { Err(check.problems) }
}

/// [`validate`], for a body that is text.
pub fn validate_text(kind: Kind, body: &str) -> Result<(), Vec<String>> {
    let body = serde_json::from_str(body).map_err(|error| vec![error.to_string()])?;
    validate(kind, &body)
}

/// Whether what is cached of `before` is a prefix of `after`: the same tools and system prompt, and the blocks of its messages
/// first, whatever the cache markers. Neighbouring messages of one role count as one.
pub fn extends(before: &Value, after: &Value) -> bool {
    let (head_before, blocks_before) = flat(before);
    let (head_after, blocks_after) = flat(after);
    head_before == head_after && blocks_after.starts_with(&blocks_before)
}

/// Tools and system prompt; then each block with its role.
fn flat(body: &Value) -> (Value, Vec<(Value, Value)>) {
    let body = without_markers(body);
    let mut blocks = Vec::new();
    for message in list(&body["messages"]) {
        match &message["content"] {
            Value::Array(content) if message["tool_calls"].is_null() => {
                blocks.extend(content.iter().map(|block| (message["role"].clone(), block.clone())));
            }
            _ => blocks.push((message["role"].clone(), message.clone())),
        }
    }
    (serde_json::json!([body["tools"], body["system"]]), blocks)
}

fn without_markers(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_markers).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "cache_control");
            Value::Object(kept.map(|(name, value)| (name.clone(), without_markers(value))).collect())
        }
        other => other.clone(),
    }
}

const ANTHROPIC_FIELDS: &[&str] = &["model", "max_tokens", "stream", "system", "tools", "messages"];
const OPENAI_FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "prompt_cache_key",
    "tools",
    "messages",
];

struct Check {
    problems: Vec<String>,
}

impl Check {
    fn that(&mut self, good: bool, problem: impl FnOnce() -> String) {
        if !good {
            self.problems.push(problem());
        }
    }

    fn fields(&mut self, at: &str, value: &Value, required: &[&str], known: &[&str]) {
        let none = Map::new();
        let fields = value.as_object().unwrap_or(&none);
        for name in required {
            self.that(fields.contains_key(*name), || format!("{at}: {name} is missing"));
        }
        for name in fields.keys() {
            self.that(known.contains(&name.as_str()), || format!("{at}: unknown field {name}"));
        }
    }

    fn string(&mut self, at: &str, value: &Value) {
        self.that(value.as_str().is_some_and(|text| !text.trim().is_empty()), || {
            format!("{at}: no text, or an empty one")
        });
    }

    fn no_nul(&mut self, at: &str, value: &Value) {
        match value {
            Value::String(text) => self.that(!text.contains('\0'), || format!("{at}: NUL")),
            Value::Array(items) => items.iter().for_each(|item| self.no_nul(at, item)),
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| self.no_nul(&format!("{at}.{name}"), value))
            }
            _ => {}
        }
    }

    fn anthropic(&mut self, body: &Value) {
        self.fields("body", body, &["model", "max_tokens", "messages"], ANTHROPIC_FIELDS);
        self.string("model", &body["model"]);
        self.that(body["max_tokens"].as_u64().is_some_and(|n| n > 0), || {
            "max_tokens: not a positive number".to_owned()
        });
        for tool in list(&body["tools"]) {
            let known = ["name", "description", "input_schema", "cache_control"];
            self.fields("tools", tool, &["name", "input_schema"], &known);
            self.name("tools", &tool["name"]);
        }
        list(&body["system"]).iter().for_each(|block| self.string("system", &block["text"]));
        let messages = list(&body["messages"]);
        self.that(messages.first().is_some_and(|first| first["role"] == "user"), || {
            "the first message is not a user's".to_owned()
        });
        let mut open: Vec<&str> = Vec::new();
        let mut ids = HashSet::new();
        for (n, message) in messages.iter().enumerate() {
            let at = format!("messages[{n}]");
            self.fields(&at, message, &["role", "content"], &["role", "content"]);
            let before = n.checked_sub(1).and_then(|n| messages.get(n));
            self.that(before.is_none_or(|before| before["role"] != message["role"]), || {
                format!("{at}: same role as before")
            });
            let content = list(&message["content"]);
            self.that(!content.is_empty(), || format!("{at}: no content"));
            let user = message["role"] == "user";
            self.results(&at, &mut open, results_of(content));
            let mut others = false;
            for block in content {
                self.anthropic_block(&at, user, block);
                let result = block["type"] == "tool_result";
                self.that(!(result && others), || format!("{at}: a result after something else"));
                others |= !result;
            }
            for call in content.iter().filter(|block| block["type"] == "tool_use") {
                let id = call["id"].as_str().unwrap_or_default();
                self.that(ids.insert(id), || format!("{at}: call {id} is not unique"));
                open.push(id);
            }
            let last = content.last().and_then(|block| block["type"].as_str()).unwrap_or_default();
            self.that(user || !last.ends_with("thinking"), || format!("{at}: ends in thinking"));
        }
        self.results("the end", &mut open, Vec::new());
    }

    fn anthropic_block(&mut self, at: &str, user: bool, block: &Value) {
        let kind = block["type"].as_str().unwrap_or_default();
        match kind {
            "text" => self.string(at, &block["text"]),
            "image" => {
                self.that(user, || format!("{at}: an image that is not a user's"));
                self.string(at, &block["source"]["data"]);
                self.string(at, &block["source"]["media_type"]);
            }
            "tool_result" => {
                self.that(user, || format!("{at}: a result that is not a user's"));
                self.that(!list(&block["content"]).is_empty(), || format!("{at}: an empty result"));
                list(&block["content"]).iter().for_each(|part| self.anthropic_block(at, true, part));
            }
            "tool_use" => {
                self.that(!user, || format!("{at}: a call of a user"));
                self.string(at, &block["id"]);
                self.name(at, &block["name"]);
                self.that(block["input"].is_object(), || format!("{at}: input is no object"));
            }
            "thinking" => self.string(at, &block["signature"]),
            _ => self.that(!user && !kind.is_empty(), || format!("{at}: unknown block {kind:?}")),
        }
    }

    fn openai(&mut self, body: &Value) {
        self.fields("body", body, &["model", "messages"], OPENAI_FIELDS);
        self.string("model", &body["model"]);
        for tool in list(&body["tools"]) {
            self.fields("tools", tool, &["type", "function"], &["type", "function"]);
            self.name("tools", &tool["function"]["name"]);
            self.that(tool["function"]["parameters"].is_object(), || "tools: parameters are no object".to_owned());
        }
        let messages = list(&body["messages"]);
        let spoken = messages.iter().find(|message| !matches!(message["role"].as_str(), Some("system" | "developer")));
        self.that(spoken.is_some_and(|first| first["role"] == "user"), || {
            "the first message is not a user's".to_owned()
        });
        let mut open: Vec<&str> = Vec::new();
        let mut ids = HashSet::new();
        for (n, message) in messages.iter().enumerate() {
            let at = format!("messages[{n}]");
            match message["role"].as_str() {
                Some("tool") => {
                    self.fields(
                        &at,
                        message,
                        &["role", "tool_call_id", "content"],
                        &["role", "tool_call_id", "content"],
                    );
                    self.openai_content(&at, &message["content"]);
                    let id = message["tool_call_id"].as_str().unwrap_or_default();
                    self.result(&at, &mut open, id);
                    continue;
                }
                Some("assistant") => {
                    let known = ["role", "content", "tool_calls", "reasoning_content", "reasoning"];
                    self.fields(&at, message, &["role", "content"], &known);
                }
                Some("user" | "system" | "developer") => {
                    self.fields(&at, message, &["role", "content"], &["role", "content"])
                }
                _ => self.problems.push(format!("{at}: unknown role")),
            }
            self.results(&at, &mut open, Vec::new());
            let calls = list(&message["tool_calls"]);
            self.that(message.get("tool_calls").is_none() || !calls.is_empty(), || {
                format!("{at}: no calls in tool_calls")
            });
            if calls.is_empty() || !message["content"].is_null() {
                self.openai_content(&at, &message["content"]);
            }
            for call in calls {
                let id = call["id"].as_str().unwrap_or_default();
                self.string(&at, &call["id"]);
                self.that(call["type"] == "function", || format!("{at}: a call that is no function"));
                self.name(&at, &call["function"]["name"]);
                let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
                let object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
                self.that(object, || format!("{at}: the arguments of {id} are no object"));
                self.that(ids.insert(id), || format!("{at}: call {id} is not unique"));
                open.push(id);
            }
        }
        self.results("the end", &mut open, Vec::new());
    }

    fn openai_content(&mut self, at: &str, content: &Value) {
        let Some(parts) = content.as_array() else { return self.string(at, content) };
        self.that(!parts.is_empty(), || format!("{at}: no content"));
        for part in parts {
            match part["type"].as_str() {
                Some("text") => self.string(at, &part["text"]),
                Some("image_url") => self.string(at, &part["image_url"]["url"]),
                other => self.problems.push(format!("{at}: unknown part {other:?}")),
            }
        }
    }

    fn result(&mut self, at: &str, open: &mut Vec<&str>, id: &str) {
        let before = open.len();
        open.retain(|call| *call != id);
        self.that(open.len() + 1 == before, || format!("{at}: a result for {id:?}, which no call waits for"));
    }

    /// Each call in `open` has exactly one result, and there are no others.
    fn results(&mut self, at: &str, open: &mut Vec<&str>, results: Vec<&str>) {
        for id in results {
            self.result(at, open, id);
        }
        for id in open.drain(..) {
            self.problems.push(format!("{at}: call {id} has no result before it"));
        }
    }

    fn name(&mut self, at: &str, name: &Value) {
        let name = name.as_str().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        self.that((1..=64).contains(&name.len()) && name.chars().all(fits), || {
            format!("{at}: {name:?} is no name for a tool")
        });
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn results_of(content: &[Value]) -> Vec<&str> {
    let results = content.iter().filter(|block| block["type"] == "tool_result");
    results.map(|block| block["tool_use_id"].as_str().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `change` on a good body gives a problem that has `problem` in it.
    fn check(kind: Kind, change: impl FnOnce(&mut Value), problem: &str) {
        let good = match kind {
            Kind::Anthropic => json!({"model": "m", "max_tokens": 1, "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "ls", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]},
                    {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "y"}]},
                    {"type": "text", "text": "go on"}]}]}),
            _ => json!({"model": "m", "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "x"},
                {"role": "tool", "tool_call_id": "b", "content": "y"}]}),
        };
        assert_eq!(validate(kind, &good), Ok(()));
        let mut bad = good;
        change(&mut bad);
        let problems = validate(kind, &bad).expect_err(problem);
        assert!(problems.iter().any(|line| line.contains(problem)), "{problem}: {problems:?}");
    }

    #[test]
    fn planted_faults_are_found_in_messages() {
        let check = |change: fn(&mut Value), problem| check(Kind::Anthropic, change, problem);
        check(|body| body["max_token"] = json!(1), "unknown field max_token");
        check(|body| drop(body["messages"][2]["content"].as_array_mut().unwrap().remove(1)), "call b has no result");
        check(|body| body["messages"][2]["content"][1]["tool_use_id"] = json!("a"), "which no call waits for");
        check(
            |body| body["messages"][2]["content"].as_array_mut().unwrap().swap(1, 2),
            "a result after something else",
        );
        check(|body| body["messages"][1]["content"][1]["id"] = json!("a"), "not unique");
        check(|body| body["messages"][0]["content"][0]["text"] = json!(" "), "no text");
        check(|body| body["messages"][0]["content"] = json!([]), "no content");
        check(|body| body["messages"][0]["content"][0]["text"] = json!("a\0"), "NUL");
        check(|body| drop(body["messages"].as_array_mut().unwrap().remove(0)), "not a user's");
        check(|body| body["messages"][1]["content"][0]["name"] = json!("a b"), "no name for a tool");
        check(|body| body["messages"][1]["content"][0]["input"] = json!("{}"), "no object");
        check(|body| drop(body["messages"].as_array_mut().unwrap().pop()), "has no result");
        let ending = |body: &mut Value| {
            body["messages"][2] =
                json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}]});
        };
        check(ending, "ends in thinking");
    }

    #[test]
    fn planted_faults_are_found_in_chat_completions() {
        let check = |change: fn(&mut Value), problem| check(Kind::Openai, change, problem);
        check(|body| body["max_token"] = json!(1), "unknown field max_token");
        check(|body| drop(body["messages"].as_array_mut().unwrap().pop()), "call b has no result");
        check(|body| body["messages"][4]["tool_call_id"] = json!("a"), "which no call waits for");
        check(|body| body["messages"][2]["tool_calls"][1]["id"] = json!("a"), "not unique");
        check(|body| body["messages"][2]["tool_calls"][1]["function"]["arguments"] = json!({}), "no object");
        check(|body| body["messages"][4]["content"] = json!(""), "no text");
        check(|body| body["messages"][2]["role"] = json!("robot"), "unknown role");
        check(|body| body["messages"].as_array_mut().unwrap().swap(3, 2), "which no call waits for");
    }

    #[test]
    fn a_changed_beginning_is_no_beginning() {
        let body = |texts: &[&str]| {
            let block = |text: &&str| json!({"type": "text", "text": text, "cache_control": {"type": text}});
            json!({"messages": [{"role": "user", "content": texts.iter().map(block).collect::<Vec<_>>()}]})
        };
        assert!(extends(&body(&["a"]), &body(&["a", "b"])));
        assert!(!extends(&body(&["a", "b"]), &body(&["a"])));
        assert!(!extends(&body(&["a"]), &body(&["b", "a"])));
        let with_tools = json!({"tools": [1], "messages": body(&["a", "b"])["messages"]});
        assert!(!extends(&body(&["a"]), &with_tools));
    }
}
