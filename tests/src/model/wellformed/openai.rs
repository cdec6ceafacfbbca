//! OpenAI's Chat Completions, with what compatible servers add.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Check, EFFORTS, list};

const FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "prompt_cache_key",
    "cache_control",
    "reasoning_effort",
    "response_format",
    "tools",
    "messages",
];

impl Check {
    pub(super) fn openai(&mut self, body: &Value) {
        self.fields("body", body, &["model", "messages"], FIELDS);
        self.string("model", &body["model"]);
        self.word("reasoning_effort", &body["reasoning_effort"], EFFORTS);
        let format = &body["response_format"];
        if !format.is_null() {
            self.fields("response_format", format, &["type", "json_schema"], &["type", "json_schema"]);
            self.that(format["type"] == "json_schema", || "response_format: unknown type".to_owned());
            self.json_schema("response_format", &format["json_schema"], &["name", "schema", "strict"]);
        }
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
                        &["role", "tool_call_id", "content", "name"],
                    );
                    self.openai_content(&at, &message["content"]);
                    let id = message["tool_call_id"].as_str().unwrap_or_default();
                    self.result(&at, &mut open, id);
                    continue;
                }
                Some("assistant") => {
                    let known =
                        ["role", "content", "tool_calls", "reasoning_content", "reasoning", "reasoning_details"];
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
                self.fields(&at, call, &["id", "type", "function"], &["id", "type", "function", "extra_content"]);
                self.fields(&at, &call["function"], &["name", "arguments"], &["name", "arguments"]);
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
}
