//! What is sent: a message of the context becomes one or more, results each one of their own.

use linger_protocol::message::{ContentBlock, Role};
use serde_json::{Value, json};

use super::super::catalogue::Kind;
use super::super::encoding::{self, CallNames, Items};
use super::super::{Encoder, HttpRequest, Message, Request, ToolSpec, wellformed, wire};
use super::OpenAi;
use crate::fault;

/// The requests of one context.
#[derive(Debug)]
pub(super) struct ChatEncoder {
    codec: OpenAi,
    /// The tools; none before the first request.
    tools: Option<Items>,
    /// The system prompt, and the messages so far.
    messages: Items,
    /// How many messages of the context these are.
    encoded: usize,
    names: CallNames,
}

impl ChatEncoder {
    pub(super) fn new(codec: OpenAi) -> Self {
        Self { codec, tools: None, messages: Items::default(), encoded: 0, names: CallNames::default() }
    }
}

impl Encoder for ChatEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        let tools = self.tools.get_or_insert_with(|| {
            let role = if self.codec.developer_role { "developer" } else { "system" };
            wire::visible(request.system)
                .into_iter()
                .for_each(|system| self.messages.push(&json!({"role": role, "content": system})));
            request.tools.iter().map(tool).collect()
        });
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = wire::is_own(message, request);
            self.names.add(message, own);
            match message.role {
                Role::User => user_messages(message, &self.names, &mut self.messages),
                Role::Assistant => {
                    let said = self.codec.assistant_message(message, own, &self.names);
                    said.iter().for_each(|message| self.messages.push(message));
                }
            }
        }
        self.encoded = request.messages.len();
        let (tools, messages) = ([tools.as_str()], [self.messages.as_str()]);
        let lists = [("tools", tools.as_slice()), ("messages", &messages)];
        let lists = if tools == [""] { &lists[1..] } else { &lists };
        let body = encoding::object(&self.codec.head(request), lists);
        if !fault::bug("I4") {
            debug_assert_eq!(wellformed::validate_text(Kind::Openai, &body), Ok(()));
        }
        HttpRequest { path: "/chat/completions".to_owned(), headers: Vec::new(), body: body.into_bytes() }
    }
}

impl OpenAi {
    /// What comes before the tools and the messages.
    fn head(&self, request: &Request<'_>) -> Value {
        let mut head = json!({"model": request.model, "stream": true});
        if request.max_tokens > 0 {
            let name = if self.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
            wire::set(&mut head, name, request.max_tokens);
        }
        if self.stream_usage {
            wire::set(&mut head, "stream_options", json!({"include_usage": true}));
        }
        if self.prompt_cache_key && !request.cache_key.is_empty() {
            wire::set(&mut head, "prompt_cache_key", request.cache_key);
        }
        head
    }

    fn assistant_message(&self, message: &Message, own: bool, names: &CallNames) -> Option<Value> {
        let (mut thought, mut texts, mut calls) = (String::new(), Vec::new(), Vec::new());
        let mut reasoning: Option<(&str, String)> = None;
        for block in &message.content {
            match block {
                ContentBlock::Text { text } => texts.extend(wire::visible(text)),
                ContentBlock::ToolUse { call_id, name, input, native } => {
                    let raw = wire::native_str(native, "arguments").filter(|_| own).map(str::to_owned);
                    let arguments = raw.unwrap_or_else(|| wire::arguments(input).to_string());
                    let function = json!({"name": wire::tool_name(name), "arguments": arguments});
                    calls.push(json!({"id": names.get(call_id), "type": "function", "function": function}));
                }
                ContentBlock::Thinking { text, native } if own => match wire::native_str(native, "field") {
                    Some("think") => thought = format!("{thought}<think>{text}</think>\n\n"),
                    Some(field @ ("reasoning" | "reasoning_content")) => {
                        reasoning.get_or_insert((field, String::new())).1.push_str(text);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        if texts.is_empty() && calls.is_empty() {
            return None; // Thinking alone is no answer, and some servers refuse it.
        }
        let text = thought + &texts.join("\n\n");
        let mut encoded =
            json!({"role": "assistant", "content": if text.is_empty() { Value::Null } else { text.into() }});
        if self.reasoning_content && !calls.is_empty() {
            reasoning.get_or_insert(("reasoning_content", String::new()));
        }
        if let Some((field, text)) = reasoning {
            wire::set(&mut encoded, field, text);
        }
        if !calls.is_empty() {
            wire::set(&mut encoded, "tool_calls", calls);
        }
        Some(encoded)
    }
}

fn tool(tool: &ToolSpec) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
    wire::clean_value(&json!({"type": "function", "function": function}))
}

/// A user's message: first each result as a message of its own, then what is left. Images in results can only follow them.
fn user_messages(message: &Message, names: &CallNames, messages: &mut Items) {
    let mut parts = Vec::new();
    for block in &message.content {
        let ContentBlock::ToolResult { call_id, content, .. } = block else { continue };
        let blocks = wire::result_blocks(content);
        let images = blocks.iter().filter(|block| block.as_text().is_none()).filter_map(part);
        let before = parts.len();
        parts.extend(images);
        let mut texts: Vec<&str> = blocks.iter().filter_map(ContentBlock::as_text).collect();
        if parts.len() > before {
            texts.push("(the images of this result follow)");
        }
        messages.push(&json!({"role": "tool", "tool_call_id": names.get(call_id), "content": texts.join("\n\n")}));
    }
    parts.extend(message.content.iter().filter_map(part));
    let answers = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult { .. });
    if parts.is_empty() && !message.content.iter().any(answers) {
        parts.push(json!({"type": "text", "text": wire::NOTHING_SAID}));
    }
    // Servers without images often know only strings.
    let only_text = match parts.as_slice() {
        [only] if only["type"] == "text" => Some(only["text"].clone()),
        _ => None,
    };
    if !parts.is_empty() {
        messages.push(&json!({"role": "user", "content": only_text.unwrap_or(Value::Array(parts))}));
    }
}

fn part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "text", "text": wire::visible(text)?})),
        ContentBlock::Image { media_type, data } => {
            Some(json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}}))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::support::{assistant, body, call, check_history, history, result, thought, user};
    use super::super::Compat;
    use super::*;

    fn codec() -> OpenAi {
        OpenAi::new("127.0.0.1", Compat::default())
    }

    #[test]
    fn a_whole_request() {
        let image = || ContentBlock::Image { media_type: "image/png".to_owned(), data: "AAAA".to_owned() };
        let pictured = ContentBlock::ToolResult { call_id: "c2".into(), is_error: false, content: vec![image()] };
        let messages = [
            user(vec![ContentBlock::text("look"), image()]),
            assistant(
                "p/m",
                vec![
                    thought("hm", json!({"field": "reasoning"})),
                    thought("ah", json!({"field": "think"})),
                    ContentBlock::text("I look."),
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
                {"role": "assistant", "content": "<think>ah</think>\n\nI look.", "reasoning": "hm", "tool_calls": [
                    {"id": "x", "type": "function", "function": {"name": "ls", "arguments": "{\"a\": 1}"}},
                    {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{\"a\":1}"}}]},
                {"role": "tool", "tool_call_id": "x", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "(the images of this result follow)"},
                {"role": "user", "content": [data]},
            ],
        });
        assert_eq!(body(&codec(), &messages), expect);
    }

    #[test]
    fn servers_get_what_they_understand() {
        fn check(host: &str, compat: Compat, fields: &[&str], role: &str) {
            let messages = [
                user(vec![ContentBlock::text("hi")]),
                assistant("p/m", vec![call("c1", "ls", json!({}), None)]),
                user(vec![result("c1", "x")]),
            ];
            let body = body(&OpenAi::new(host, compat), &messages);
            let mut names: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
            names.extend(body["messages"][2].get("reasoning_content").map(|_| "reasoning_content"));
            names.retain(|name| !matches!(*name, "model" | "stream" | "tools" | "messages"));
            assert_eq!((names.as_slice(), body["messages"][0]["role"].as_str()), (fields, Some(role)), "{host}");
        }
        let none = Compat::default();
        check("api.openai.com", none, &["max_completion_tokens", "stream_options", "prompt_cache_key"], "developer");
        check("10.0.0.1", none, &["max_tokens", "stream_options"], "system");
        check("api.deepseek.com", none, &["max_tokens", "stream_options", "reasoning_content"], "system");
        let set = Compat { stream_usage: Some(false), developer_role: Some(true), ..none };
        check("10.0.0.1", set, &["max_tokens"], "developer");
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history()) {
            check_history(Kind::Openai, &codec(), &messages);
        }
    }
}
