//! Requests: a message of the context becomes one or more; each result is a message of its own.

use linger_protocol::message::{ContentBlock, Role};
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::encoding::{self, CallNames, Items};
use super::super::kind::ProviderKind;
use super::super::types::{Encoder, HttpRequest, Images, Message, Request};
use super::super::{output_schema, think_tags, wire};

/// OpenRouter's reasoning, which goes back unchanged.
pub(super) const DETAILS: &str = "reasoning_details";

/// A server's addition to a call, which goes back unchanged: Google's thought signature.
pub(super) const EXTRA: &str = "extra_content";

/// The filler message of the model between a tool result and a user, for servers that need one.
const BETWEEN: &str = "(the results are read)";

/// The same, between two user messages.
const NOTED: &str = "(noted)";

/// The requests of one context.
#[derive(Debug)]
pub(super) struct ChatEncoder {
    compat: Compat,
    /// Whether the system prompt is encoded.
    began: bool,
    /// The system prompt, and the messages so far.
    messages: Items,
    /// The number of encoded messages of the context.
    encoded: usize,
    names: CallNames,
    last: Last,
}

/// The author of the last message.
#[derive(Clone, Copy, Debug)]
enum Last {
    Model,
    Tool,
    User,
}

impl ChatEncoder {
    pub(super) fn new(compat: Compat) -> Self {
        let names = if is(compat.short_call_ids) { CallNames::short() } else { CallNames::default() };
        Self { compat, began: false, messages: Items::default(), encoded: 0, names, last: Last::Model }
    }
}

fn is(flag: Option<bool>) -> bool {
    flag.unwrap_or(false)
}

impl Encoder for ChatEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        if !std::mem::replace(&mut self.began, true) {
            let role = if is(self.compat.developer_role) { "developer" } else { "system" };
            if let Some(system) = wire::visible(request.system) {
                self.messages.push(&json!({"role": role, "content": system}));
            }
        }
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = message.is_own(request);
            self.names.add(message, own);
            match message.role {
                Role::User => self.user_messages(message, request.images),
                Role::Assistant => {
                    if let Some(said) = self.assistant_message(message, own) {
                        self.messages.push(&said);
                        self.last = Last::Model;
                    }
                }
            }
        }
        self.encoded = request.messages.len();
        let (tools, messages) =
            ([request.tools.rendered(ProviderKind::Openai, encoding::function)], [self.messages.as_str()]);
        let lists = [("tools", tools.as_slice()), ("messages", &messages)];
        let lists = if tools == [""] { &lists[1..] } else { &lists };
        let head = head(&self.compat, request);
        let body = encoding::object(&head, lists);
        let body = encoding::with_own_fields(body, head, lists, request.own_fields);
        HttpRequest { path: "/chat/completions".to_owned(), headers: Vec::new(), body }
    }
}

/// The fields before tools and messages.
fn head(compat: &Compat, request: &Request<'_>) -> Value {
    let mut head = json!({"model": request.model, "stream": compat.streaming != Some(false)});
    if request.max_tokens > 0 {
        let name = if is(compat.max_completion_tokens) { "max_completion_tokens" } else { "max_tokens" };
        wire::set(&mut head, name, request.max_tokens);
    }
    if compat.stream_usage != Some(false) && compat.streaming != Some(false) {
        wire::set(&mut head, "stream_options", json!({"include_usage": true}));
    }
    if is(compat.prompt_cache_key) && !request.cache_key.is_empty() {
        wire::set(&mut head, "prompt_cache_key", request.cache_key);
    }
    if is(compat.cache_control) && request.model.starts_with("anthropic/") {
        // The server applies it to the last block, so messages stay unchanged.
        wire::set(&mut head, "cache_control", json!({"type": "ephemeral"}));
    }
    if !request.effort.is_auto() && compat.reasoning_effort != Some(false) {
        wire::set(&mut head, "reasoning_effort", request.effort.name());
    }
    if let Some(output_schema) = request.output_schema {
        let schema = wire::without_nul_in(&output_schema::json_schema(output_schema.schema, compat));
        wire::set(&mut head, "response_format", json!({"type": "json_schema", "json_schema": schema}));
    }
    head
}

impl ChatEncoder {
    fn assistant_message(&self, message: &Message, own: bool) -> Option<Value> {
        let (text, says) = think_tags::whole_text(message, own);
        let mut calls = Vec::new();
        let mut details = None;
        let mut reasoning: Option<(&str, String)> = None;
        for block in &message.content {
            match block {
                ContentBlock::ToolUse { call_id, name, input, native } => {
                    let raw = wire::native_str(native, "arguments").filter(|_| own).map(str::to_owned);
                    let arguments = raw.unwrap_or_else(|| wire::arguments(input).to_string());
                    let function = json!({"name": wire::tool_name(name), "arguments": arguments});
                    let mut call = json!({"id": self.names.get(call_id), "type": "function", "function": function});
                    if let Some(extra) = native.as_ref().filter(|_| own).and_then(|native| native.get(EXTRA)) {
                        wire::set(&mut call, EXTRA, extra.clone());
                    }
                    calls.push(call);
                }
                ContentBlock::Opaque { native } if own => details = native.get(DETAILS).or(details),
                ContentBlock::Thinking { text, native } if own => {
                    if let Some(field @ ("reasoning" | "reasoning_content")) = wire::native_str(native, "field") {
                        reasoning.get_or_insert((field, String::new())).1.push_str(text);
                    }
                }
                _ => {}
            }
        }
        if !says && calls.is_empty() {
            return None; // Some servers refuse thinking alone.
        }
        let content = if text.is_empty() { Value::Null } else { text.into() };
        let mut encoded = json!({"role": "assistant", "content": content});
        if is(self.compat.reasoning_content) && !calls.is_empty() {
            reasoning.get_or_insert(("reasoning_content", String::new()));
        }
        if let Some((field, text)) = reasoning {
            wire::set(&mut encoded, field, text);
        }
        if let Some(details) = details {
            wire::set(&mut encoded, DETAILS, details.clone());
        }
        if !calls.is_empty() {
            wire::set(&mut encoded, "tool_calls", calls);
        }
        Some(encoded)
    }

    /// A user message: first each result as a message of its own, then the rest. Images of results follow them.
    fn user_messages(&mut self, message: &Message, images: &Images) {
        let part = |block: &ContentBlock| part(block, images);
        let mut parts = Vec::new();
        let mut answers = false;
        for block in &message.content {
            let ContentBlock::ToolResult { call_id, content, is_error } = block else { continue };
            answers = true;
            let blocks = wire::marked_result_blocks(content, *is_error);
            let images = blocks.iter().filter(|block| block.as_text().is_none()).filter_map(part);
            let before = parts.len();
            parts.extend(images);
            let mut texts: Vec<&str> = blocks.iter().filter_map(ContentBlock::as_text).collect();
            if parts.len() > before {
                texts.push(wire::IMAGES_FOLLOW);
            }
            let mut result =
                json!({"role": "tool", "tool_call_id": self.names.get(call_id), "content": texts.join("\n\n")});
            if is(self.compat.tool_result_name) {
                wire::set(&mut result, "name", self.names.tool(call_id));
            }
            self.messages.push(&result);
            self.last = Last::Tool;
        }
        parts.extend(message.content.iter().filter_map(part));
        if parts.is_empty() && !answers {
            parts.push(json!({"type": "text", "text": wire::NOTHING_SAID}));
        }
        // Servers without images often accept only strings.
        let only_text = match parts.as_slice() {
            [only] if only["type"] == "text" => Some(only["text"].clone()),
            _ => None,
        };
        if parts.is_empty() {
            return;
        }
        let between = match self.last {
            Last::Tool if is(self.compat.assistant_after_tool) => Some(BETWEEN),
            Last::User if is(self.compat.assistant_after_user) => Some(NOTED),
            _ => None,
        };
        if let Some(between) = between {
            self.messages.push(&json!({"role": "assistant", "content": between}));
        }
        self.last = Last::User;
        self.messages.push(&json!({"role": "user", "content": only_text.unwrap_or(Value::Array(parts))}));
    }
}

fn part(block: &ContentBlock, images: &Images) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "text", "text": wire::visible(text)?})),
        ContentBlock::Image { media_type, source } => Some(match wire::image(source, images) {
            Ok(data) => {
                json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
            }
            Err(lost) => json!({"type": "text", "text": lost}),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::preset;
    use super::super::super::support::{
        assistant, body, call, check_history, history, request, result, thought, unshown, user,
    };
    use super::super::OpenAi;
    use super::*;

    fn codec() -> OpenAi {
        OpenAi::new(Compat::NONE)
    }

    #[test]
    fn a_whole_request() {
        let image = || ContentBlock::image("image/png", "AAAA");
        let pictured = ContentBlock::ToolResult { call_id: "c2".into(), is_error: false, content: vec![image()] };
        let messages = [
            user(vec![ContentBlock::text("look"), image()]),
            assistant(
                "p/m",
                vec![
                    thought("hm", json!({"field": "reasoning"})),
                    unshown("<think>"),
                    thought("ah", json!({"field": "content"})),
                    unshown("</think>\n"),
                    ContentBlock::text("I look"),
                    thought("hm", json!({"field": "reasoning"})),
                    ContentBlock::text("."),
                    call("c1", "ls", json!({"a": 1}), Some(json!({"id": "x", "arguments": "{\"a\": 1}"}))),
                    call("c2", "ls", json!({"a": 1}), Some(json!({"id": "x"}))),
                ],
            ),
            user(vec![result("c1", "one"), pictured]),
        ];
        let data = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let expect = json!({
            "model": "m",
            "stream": true,
            "max_tokens": 100,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "ls", "description": "lists", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "look"}, data]},
                {"role": "assistant", "content": "<think>ah</think>\nI look.", "reasoning": "hmhm", "tool_calls": [
                    {"id": "x", "type": "function", "function": {"name": "ls", "arguments": "{\"a\": 1}"}},
                    {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{\"a\":1}"}}]},
                {"role": "tool", "tool_call_id": "x", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "(the images of this result follow)"},
                {"role": "user", "content": [data]},
            ],
        });
        assert_eq!(body(&codec(), &messages), expect);
    }

    /// A prompt, a call, its result, and then a word of the user's.
    fn steered() -> [Message; 4] {
        [
            user(vec![ContentBlock::text("hi")]),
            assistant("q/n", vec![call("c1", "ls", json!({}), None)]),
            user(vec![result("c1", "x")]),
            user(vec![ContentBlock::text("and now?")]),
        ]
    }

    #[test]
    fn servers_get_what_they_understand() {
        fn check(name: &str, compat: Compat, fields: &[&str], role: &str) {
            let known = preset::named(name).map(|preset| preset.compat).unwrap_or_default();
            let body = body(&OpenAi::new(compat.or(known)), &steered());
            let mut names: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
            names.extend(body["messages"][2].get("reasoning_content").map(|_| "reasoning_content"));
            names.extend(body["messages"][3].get("name").map(|_| "name"));
            names.retain(|name| !matches!(*name, "model" | "stream" | "tools" | "messages"));
            assert_eq!((names.as_slice(), body["messages"][0]["role"].as_str()), (fields, Some(role)), "{name}");
        }
        let none = Compat::NONE;
        check("openai", none, &["max_completion_tokens", "stream_options", "prompt_cache_key"], "developer");
        for name in ["", "openrouter", "xai", "together", "alibaba", "lmstudio", "llamacpp", "vllm", "litellm"] {
            check(name, none, &["max_tokens", "stream_options"], "system");
        }
        check("deepseek", none, &["max_tokens", "stream_options", "reasoning_content"], "system");
        check("groq", none, &["max_completion_tokens", "stream_options"], "system");
        check("mistral", none, &["max_tokens", "name"], "system");
        let set = Compat { stream_usage: Some(false), developer_role: Some(true), ..none };
        check("", set, &["max_tokens"], "developer");
        check("openai", Compat { prompt_cache_key: Some(false), ..set }, &["max_completion_tokens"], "developer");
    }

    #[test]
    fn claude_is_asked_to_cache_where_it_must_be() {
        let check = |name: &str, model: &str, expect: Value| {
            let messages = [user(vec![ContentBlock::text("hi")])];
            let request = Request { model, ..request(&messages) };
            let known = preset::named(name).map(|preset| preset.compat).unwrap_or_default();
            assert_eq!(head(&known, &request)["cache_control"], expect, "{name} {model}");
        };
        check("openrouter", "anthropic/claude-sonnet-5", json!({"type": "ephemeral"}));
        check("openrouter", "openai/gpt-6", Value::Null);
        check("litellm", "anthropic/claude-sonnet-5", Value::Null);
    }

    #[test]
    fn mistral_gets_nine_letters_a_name_and_a_word_between() {
        let messages = body(&OpenAi::new(preset::named("mistral").unwrap().compat), &steered())["messages"].clone();
        let id = messages[2]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
        assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": id, "content": "x", "name": "ls"}));
        assert_eq!(messages[4], json!({"role": "assistant", "content": BETWEEN}));
        assert_eq!(messages[5], json!({"role": "user", "content": "and now?"}));
        let plain = body(&codec(), &steered())["messages"].clone();
        assert_eq!(plain[4], json!({"role": "user", "content": "and now?"}));
    }

    #[test]
    fn a_user_who_speaks_twice_is_answered_in_between_where_templates_want_it() {
        let said = |name: &str, messages: &[Message]| {
            let body = body(&OpenAi::new(preset::named(name).unwrap().compat), messages);
            let said = |message: &Value| format!("{}: {}", message["role"].as_str().unwrap(), message["content"]);
            body["messages"].as_array().unwrap().iter().skip(1).map(said).collect::<Vec<_>>()
        };
        let say = |text: &str| user(vec![ContentBlock::text(text)]);
        // What is thought alone is no answer either.
        let thinks = assistant("p/m", vec![thought("hm", json!({"field": "reasoning"}))]);
        let messages =
            [say("a"), say("b"), thinks, say("c"), assistant("p/m", vec![ContentBlock::text("d")]), say("e")];
        let plain = ["user: \"a\"", "user: \"b\"", "user: \"c\"", "assistant: \"d\"", "user: \"e\""];
        let noted = "assistant: \"(noted)\"";
        let filled = [plain[0], noted, plain[1], noted, plain[2], plain[3], plain[4]];
        for name in ["vllm", "llamacpp", "lmstudio"] {
            assert_eq!(said(name, &messages), filled, "{name}");
            assert!(said(name, &steered())[3].contains(BETWEEN), "{name}");
        }
        for name in ["openai", "openrouter", "mistral", "litellm"] {
            assert_eq!(said(name, &messages), plain, "{name}");
        }
    }

    /// What the templates insist on: leaving out calls and results, users and models take turns.
    fn alternates(body: &Value) -> bool {
        let roles = body["messages"].as_array().unwrap().iter();
        let counted = roles.filter(|message| message.get("tool_calls").is_none());
        let roles: Vec<&str> = counted.filter_map(|message| message["role"].as_str()).collect();
        let spoken = roles.iter().filter(|role| matches!(**role, "user" | "assistant"));
        spoken.enumerate().all(|(n, role)| (*role == "user") == (n % 2 == 0))
    }

    #[test]
    fn what_only_the_server_understands_goes_back_to_it_alone() {
        let extra = json!({"google": {"thought_signature": "c2ln"}});
        let details = json!([{"type": "reasoning.encrypted", "data": "x", "index": 0}]);
        let content = vec![
            thought("hm", json!({"field": "reasoning"})),
            call("c1", "ls", json!({}), Some(json!({"id": "x", "extra_content": extra}))),
            ContentBlock::Opaque { native: json!({"reasoning_details": details}) },
        ];
        let messages = |origin| {
            let said = assistant(origin, content.clone());
            body(&codec(), &[user(vec![ContentBlock::text("hi")]), said, user(vec![result("c1", "x")])])["messages"][2]
                .clone()
        };
        let own = messages("p/m");
        assert_eq!((&own["reasoning"], &own["reasoning_details"]), (&json!("hm"), &details));
        assert_eq!(own["tool_calls"][0]["extra_content"], extra);
        let function = json!({"name": "ls", "arguments": "{}"});
        let calls = json!([{"id": "c1", "type": "function", "function": function}]);
        assert_eq!(messages("q/n"), json!({"role": "assistant", "content": null, "tool_calls": calls}));
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history(), name in prop::sample::select(vec!["", "openai", "deepseek", "mistral", "vllm"])) {
            let compat = preset::named(name).map(|preset| preset.compat).unwrap_or_default();
            check_history(ProviderKind::Openai, &OpenAi::new(compat), &messages);
        }

        #[test]
        fn no_template_finds_a_user_who_speaks_twice(messages in history()) {
            let codec = OpenAi::new(preset::named("vllm").unwrap().compat);
            prop_assert!(alternates(&body(&codec, &messages)));
        }
    }
}
