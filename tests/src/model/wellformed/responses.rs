//! OpenAI's Responses, without state on the server.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Check, EFFORTS, list};

const FIELDS: &[&str] = &[
    "model",
    "stream",
    "store",
    "include",
    "instructions",
    "input",
    "tools",
    "max_output_tokens",
    "prompt_cache_key",
    "reasoning",
    "text",
];

/// What the server may be asked for.
const INCLUDE: &[&str] =
    &["reasoning.encrypted_content", "web_search_call.action.sources", "code_interpreter_call.outputs"];

impl Check {
    pub(super) fn responses(&mut self, body: &Value) {
        self.fields("body", body, &["model", "input", "stream", "store"], FIELDS);
        self.string("model", &body["model"]);
        self.that(body["store"] == false, || "store: is not false, and nothing refers to what is stored".to_owned());
        self.fields("reasoning", &body["reasoning"], &[], &["effort", "summary"]);
        self.word("reasoning", &body["reasoning"]["effort"], EFFORTS);
        let format = &body["text"]["format"];
        if body.get("text").is_some() {
            self.that(format["type"] == "json_schema", || "text: unknown format".to_owned());
            self.json_schema("text", format, &["type", "name", "schema", "strict"]);
        }
        for tool in list(&body["tools"]) {
            match tool["type"].as_str() {
                Some("web_search") => self.fields("tools", tool, &["type"], &["type"]),
                Some("code_interpreter") => {
                    self.fields("tools", tool, &["type", "container"], &["type", "container"]);
                    self.that(tool["container"]["type"] == "auto", || "tools: an unknown container".to_owned());
                }
                _ => self.function(tool),
            }
        }
        let include = list(&body["include"]).iter().filter_map(Value::as_str);
        include.for_each(|name| self.word("include", &name.into(), INCLUDE));
        self.input(body);
    }

    fn function(&mut self, tool: &Value) {
        let known = ["type", "name", "description", "parameters", "strict"];
        self.fields("tools", tool, &["type", "name", "parameters", "strict"], &known);
        self.name("tools", &tool["name"]);
        self.that(tool["parameters"].is_object(), || "tools: parameters are no object".to_owned());
    }

    /// An item of a tool that runs at the provider.
    fn hosted(&mut self, at: &str, item: &Value) {
        self.string(&format!("{at}: id"), &item["id"]);
        match item["type"].as_str() {
            Some("web_search_call") => self.string(&format!("{at}: action"), &item["action"]["type"]),
            _ => {
                let whole = item.get("code").is_some() && item.get("outputs").is_some();
                self.that(whole, || format!("{at}: code or outputs are missing"));
                self.string(&format!("{at}: container_id"), &item["container_id"]);
            }
        }
    }

    fn input(&mut self, body: &Value) {
        let input = list(&body["input"]);
        self.that(input.first().is_some_and(|first| first["role"] == "user"), || {
            "the first message is not a user's".to_owned()
        });
        let mut open: Vec<&str> = Vec::new();
        let mut answered = false;
        let mut ids = HashSet::new();
        let mut reasoning = false;
        for (n, item) in input.iter().enumerate() {
            let at = format!("input[{n}]");
            let kind = item["type"].as_str().unwrap_or("message");
            let of_user = item["role"] == "user" || kind == "function_call_output";
            self.that(!(reasoning && of_user), || format!("{at}: reasoning without what it led to"));
            reasoning = kind == "reasoning";
            if kind == "function_call_output" {
                self.fields(&at, item, &["call_id", "output"], &["type", "call_id", "output"]);
                self.parts(&at, &item["output"], "input_text");
                self.result(&at, &mut open, item["call_id"].as_str().unwrap_or_default());
                answered = true;
                continue;
            }
            if of_user || std::mem::take(&mut answered) {
                self.results(&at, &mut open, Vec::new());
            }
            match kind {
                "function_call" => {
                    self.call(&at, item);
                    let id = item["call_id"].as_str().unwrap_or_default();
                    self.that(ids.insert(id), || format!("{at}: call {id} is not unique"));
                    open.push(id);
                }
                "message" => {
                    self.fields(&at, item, &["role", "content"], &["type", "role", "content", "phase"]);
                    self.that(matches!(item["role"].as_str(), Some("user" | "assistant")), || {
                        format!("{at}: unknown role")
                    });
                    let kind = if item["role"] == "assistant" { "output_text" } else { "input_text" };
                    self.parts(&at, &item["content"], kind);
                }
                "reasoning" => {
                    self.that(item["summary"].is_array(), || format!("{at}: summary is missing"));
                    self.string(&format!("{at}: encrypted_content"), &item["encrypted_content"]);
                }
                "web_search_call" | "code_interpreter_call" => self.hosted(&at, item),
                // What the server alone understands.
                other => self.that(!other.is_empty(), || format!("{at}: unknown item")),
            }
        }
        self.that(!reasoning, || "the end: reasoning without what it led to".to_owned());
        self.results("the end", &mut open, Vec::new());
    }

    fn call(&mut self, at: &str, item: &Value) {
        self.fields(at, item, &["call_id", "name", "arguments"], &["type", "call_id", "name", "arguments"]);
        self.string(at, &item["call_id"]);
        self.name(at, &item["name"]);
        let arguments = item["arguments"].as_str().unwrap_or_default();
        let object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
        self.that(object, || format!("{at}: the arguments are no object"));
    }

    /// `text`: the type of the parts that are text.
    fn parts(&mut self, at: &str, content: &Value, text: &str) {
        let Some(parts) = content.as_array() else { return self.string(at, content) };
        self.that(!parts.is_empty(), || format!("{at}: no content"));
        for part in parts {
            match part["type"].as_str() {
                Some(kind) if kind == text => self.string(at, &part["text"]),
                Some("input_image") => {
                    self.string(at, &part["image_url"]);
                    self.string(at, &part["detail"]);
                }
                other => self.problems.push(format!("{at}: unknown part {other:?}")),
            }
        }
    }
}
