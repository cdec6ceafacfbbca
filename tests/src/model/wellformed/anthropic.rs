//! Anthropic's Messages.

use std::collections::HashSet;

use serde_json::Value;

use super::{Check, list};

const FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "stream",
    "thinking",
    "output_config",
    "tool_choice",
    "container",
    "system",
    "tools",
    "messages",
];

/// The tools that run at the provider: kind and name.
const HOSTED: [(&str, &str); 2] =
    [("web_search_20250305", "web_search"), ("code_execution_20250825", "code_execution")];

impl Check {
    /// What the model is made to call is there; it is not made to call anything while it thinks, and thinks within its limit.
    fn choice(&mut self, body: &Value) {
        let (choice, thinking) = (&body["tool_choice"], &body["thinking"]);
        let thinks = matches!(thinking["type"].as_str(), Some("enabled" | "adaptive" | "between_tools"));
        match choice["type"].as_str() {
            None => self.that(choice.is_null(), || "tool_choice: no type".to_owned()),
            Some("any" | "tool") => {
                self.that(!thinks, || "tool_choice: a call is demanded of a model that thinks".to_owned());
                let named = |tool: &Value| choice["type"] == "any" || tool["name"] == choice["name"];
                self.that(list(&body["tools"]).iter().any(named), || "tool_choice: no such tool".to_owned());
            }
            Some(other) => self.that(other == "auto", || format!("tool_choice: unknown type {other}")),
        }
        if thinking["type"] == "enabled" {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
            let fits = (1024..body["max_tokens"].as_u64().unwrap_or_default()).contains(&budget);
            self.that(fits, || format!("thinking: a budget of {budget} tokens"));
        }
        self.fields("thinking", thinking, &[], &["type", "budget_tokens", "display"]);
        self.word("thinking", &thinking["type"], &["enabled", "disabled", "adaptive", "between_tools"]);
        self.word("thinking", &thinking["display"], &["summarized", "omitted"]);
        let efforts = ["low", "medium", "high", "xhigh", "max"];
        self.word("output_config", &body["output_config"]["effort"], &efforts);
    }

    pub(super) fn anthropic(&mut self, body: &Value) {
        self.fields("body", body, &["model", "max_tokens", "messages"], FIELDS);
        self.string("model", &body["model"]);
        self.that(body["max_tokens"].as_u64().is_some_and(|n| n > 0), || {
            "max_tokens: not a positive number".to_owned()
        });
        for tool in list(&body["tools"]) {
            if tool.get("type").is_some() {
                self.fields("tools", tool, &["type", "name"], &["type", "name", "cache_control"]);
                let known = HOSTED.iter().any(|(kind, name)| tool["type"] == *kind && tool["name"] == *name);
                self.that(known, || format!("tools: unknown kind {}", tool["type"]));
                continue;
            }
            let known = ["name", "description", "input_schema", "cache_control"];
            self.fields("tools", tool, &["name", "input_schema"], &known);
            self.name("tools", &tool["name"]);
        }
        self.choice(body);
        list(&body["system"]).iter().for_each(|block| self.string("system", &block["text"]));
        let messages = list(&body["messages"]);
        self.that(messages.first().is_some_and(|first| first["role"] == "user"), || {
            "the first message is not a user's".to_owned()
        });
        let mut open: Vec<&str> = Vec::new();
        let mut ids = HashSet::new();
        let mut waiting: Vec<&str> = Vec::new();
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
            self.at_provider(&at, user, &mut waiting, content);
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

    /// Calls that ran at the provider have one result each, in the same answer or at the beginning of the next; between the two
    /// there is nothing from the user but results.
    fn at_provider<'a>(&mut self, at: &str, user: bool, waiting: &mut Vec<&'a str>, content: &'a [Value]) {
        let mut late = waiting.len();
        for block in content {
            let (kind, id) = (text(&block["type"]), text(&block["tool_use_id"]));
            if kind == "server_tool_use" {
                waiting.push(text(&block["id"]));
                continue;
            }
            if kind.ends_with("_tool_result") {
                let before = waiting.len();
                waiting.retain(|call| *call != id);
                self.that(waiting.len() + 1 == before, || format!("{at}: {kind} for {id:?}, which no call waits for"));
                late = late.saturating_sub(1);
                continue;
            }
            let results = user && kind == "tool_result";
            self.that(late == 0 || results, || format!("{at}: call {waiting:?} has no result before {kind:?}"));
            self.that(waiting.is_empty() || !user || results, || format!("{at}: call {waiting:?} was left open"));
        }
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
            "server_tool_use" => {
                self.string(at, &block["id"]);
                self.name(at, &block["name"]);
                self.that(block["input"].is_object(), || format!("{at}: input is no object"));
                self.that(!user, || format!("{at}: a call of a user"));
            }
            _ => self.that(!user && !kind.is_empty(), || format!("{at}: unknown block {kind:?}")),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn results_of(content: &[Value]) -> Vec<&str> {
    let results = content.iter().filter(|block| block["type"] == "tool_result");
    results.map(|block| block["tool_use_id"].as_str().unwrap_or_default()).collect()
}
