//! Ollama's `/api/chat`.

use serde_json::Value;

use super::{Check, list};

const FIELDS: &[&str] = &["model", "stream", "think", "format", "options", "tools", "messages"];

impl Check {
    pub(super) fn ollama(&mut self, body: &Value) {
        self.fields("body", body, &["model", "messages"], FIELDS);
        self.string("model", &body["model"]);
        self.that(body["options"]["num_ctx"].as_u64().is_some_and(|n| n > 0), || {
            "options: num_ctx is missing, and the server's own is small".to_owned()
        });
        let think = &body["think"];
        if !think.is_boolean() {
            self.word("think", think, &["low", "medium", "high"]);
        }
        let format = &body["format"];
        self.that(format.is_null() || format.is_object(), || "format: no schema".to_owned());
        for tool in list(&body["tools"]) {
            self.fields("tools", tool, &["type", "function"], &["type", "function"]);
            self.name("tools", &tool["function"]["name"]);
            self.that(tool["function"]["parameters"].is_object(), || "tools: parameters are no object".to_owned());
        }
        let messages = list(&body["messages"]);
        let spoken = messages.iter().find(|message| message["role"] != "system");
        self.that(spoken.is_some_and(|first| first["role"] == "user"), || {
            "the first message is not a user's".to_owned()
        });
        let mut open: Vec<(&str, &str)> = Vec::new();
        let mut results: Vec<(&str, &str)> = Vec::new();
        for (n, message) in messages.iter().enumerate() {
            let at = format!("messages[{n}]");
            let role = message["role"].as_str().unwrap_or_default();
            if role != "tool" {
                self.in_order(&at, &mut open, std::mem::take(&mut results));
            }
            let known: &[&str] = match role {
                "tool" => &["role", "tool_name", "content"],
                "assistant" => &["role", "content", "thinking", "tool_calls"],
                "user" => &["role", "content", "images"],
                "system" => &["role", "content"],
                _ => return self.problems.push(format!("{at}: unknown role")),
            };
            self.fields(&at, message, &["role", "content"], known);
            let calls = list(&message["tool_calls"]);
            let silent = !calls.is_empty() || message.get("images").is_some();
            self.that(message.get("tool_calls").is_none() || !calls.is_empty(), || {
                format!("{at}: no calls in tool_calls")
            });
            if !(silent && message["content"] == "") {
                self.string(&at, &message["content"]);
            }
            for image in list(&message["images"]) {
                let base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
                let good = image.as_str().is_some_and(|image| !image.is_empty() && image.chars().all(base64));
                self.that(good, || format!("{at}: images are not base64"));
            }
            if role == "tool" {
                results.push((message["tool_name"].as_str().unwrap_or_default(), ""));
            }
            for call in calls {
                self.name(&at, &call["function"]["name"]);
                self.that(call["function"]["arguments"].is_object(), || format!("{at}: arguments are no object"));
                open.push((call["function"]["name"].as_str().unwrap_or_default(), ""));
            }
        }
        self.in_order("the end", &mut open, results);
    }
}
