//! Requests: a message of the context becomes one or more; each result is a message of its own.

use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::session::Effort;
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::encoding::{self, CallNames, Items};
use super::super::kind::ProviderKind;
use super::super::types::{Encoder, HttpRequest, Images, Message, Request};
use super::super::{think_tags, wire};

/// The default context window in tokens. The server's own is 4096 on most machines, which instructions, tools and two files fill;
/// the excess is silently dropped from the beginning. Ollama advises 64000 for agents, but a model of eight billion parameters
/// needs 128 KiB of memory per token, so a machine with 16 GB can hold half of that.
/// It is the same in every request: a change reloads the model.
pub(super) const NUM_CTX: u32 = 32_768;

/// The requests of one context.
#[derive(Debug)]
pub(super) struct OllamaEncoder {
    compat: Compat,
    /// Whether the system prompt is encoded.
    began: bool,
    /// The system prompt, and the messages so far.
    messages: Items,
    /// The number of encoded messages of the context.
    encoded: usize,
    names: CallNames,
}

impl OllamaEncoder {
    pub(super) fn new(compat: Compat) -> Self {
        Self { compat, began: false, messages: Items::default(), encoded: 0, names: CallNames::default() }
    }
}

impl Encoder for OllamaEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        if !std::mem::replace(&mut self.began, true)
            && let Some(system) = wire::visible(request.system)
        {
            self.messages.push(&json!({"role": "system", "content": system}));
        }
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = message.is_own(request);
            self.names.add(message, own);
            match message.role {
                Role::User => user_messages(message, &self.names, request.images, &mut self.messages),
                Role::Assistant => {
                    if let Some(said) = assistant_message(message, own) {
                        self.messages.push(&said);
                    }
                }
            }
        }
        self.encoded = request.messages.len();
        let (tools, messages) =
            ([request.tools.rendered(ProviderKind::Ollama, encoding::function)], [self.messages.as_str()]);
        let lists = [("tools", tools.as_slice()), ("messages", &messages)];
        let lists = if tools == [""] { &lists[1..] } else { &lists };
        let head = head(&self.compat, request);
        let body = encoding::object(&head, lists);
        let body = encoding::with_own_fields(body, head, lists, request.own_fields);
        HttpRequest { path: "/api/chat".to_owned(), headers: Vec::new(), body }
    }
}

/// The fields before tools and messages.
fn head(compat: &Compat, request: &Request<'_>) -> Value {
    let mut options = json!({"num_ctx": compat.num_ctx.unwrap_or(NUM_CTX)});
    if request.max_tokens > 0 {
        wire::set(&mut options, "num_predict", request.max_tokens);
    }
    let mut head = json!({"model": request.model, "stream": compat.streaming != Some(false), "options": options});
    if let Some(think) = think(request.effort, compat) {
        wire::set(&mut head, "think", think);
    }
    if let Some(output_schema) = request.output_schema {
        wire::set(&mut head, "format", wire::without_nul_in(output_schema.schema));
    }
    head
}

/// The field `think`; absent if neither effort nor flag asks for something.
fn think(effort: Effort, compat: &Compat) -> Option<Value> {
    Some(match effort {
        Effort::Auto => return compat.thinking.map(Value::from),
        Effort::None => false.into(),
        Effort::Minimal | Effort::Low => "low".into(),
        Effort::Medium => "medium".into(),
        Effort::High | Effort::Xhigh | Effort::Max => "high".into(),
    })
}

/// First each result as a message of its own, then the rest. Images of results follow them.
fn user_messages(message: &Message, names: &CallNames, known: &Images, messages: &mut Items) {
    let (mut texts, mut images, mut answers) = (Vec::new(), Vec::new(), false);
    for block in &message.content {
        match block {
            ContentBlock::ToolResult { call_id, content, is_error } => {
                answers = true;
                let blocks = wire::marked_result_blocks(content, *is_error);
                let mut said: Vec<&str> = blocks.iter().filter_map(ContentBlock::as_text).collect();
                let before = images.len();
                for image in blocks.iter().filter_map(|block| image(block, known)) {
                    match image {
                        Ok(data) => images.push(data.to_owned()),
                        Err(lost) => said.push(lost),
                    }
                }
                if images.len() > before {
                    said.push(wire::IMAGES_FOLLOW);
                }
                messages.push(&json!({"role": "tool", "tool_name": names.tool(call_id), "content": said.join("\n\n")}));
            }
            ContentBlock::Text { text } => texts.extend(wire::visible(text)),
            block => match image(block, known) {
                Some(Ok(data)) => images.push(data.to_owned()),
                Some(Err(lost)) => texts.push(lost.into()),
                None => {}
            },
        }
    }
    if texts.is_empty() && images.is_empty() {
        if answers {
            return;
        }
        texts.push(wire::NOTHING_SAID.into());
    }
    let mut encoded = json!({"role": "user", "content": texts.join("\n\n")});
    if !images.is_empty() {
        wire::set(&mut encoded, "images", images);
    }
    messages.push(&encoded);
}

/// The image of a block, if it is one, or the text in place of a lost one.
fn image<'a>(block: &'a ContentBlock, images: &'a Images) -> Option<Result<&'a str, &'static str>> {
    match block {
        ContentBlock::Image { source, .. } => Some(wire::image(source, images)),
        _ => None,
    }
}

fn assistant_message(message: &Message, own: bool) -> Option<Value> {
    let (text, says) = think_tags::whole_text(message, own);
    let (mut thoughts, mut calls) = (Vec::new(), Vec::new());
    for block in &message.content {
        match block {
            ContentBlock::Thinking { text, .. } if own && !think_tags::is_within_text(block) => {
                thoughts.extend(wire::visible(text));
            }
            ContentBlock::ToolUse { name, input, .. } => {
                let function = json!({"name": wire::tool_name(name), "arguments": wire::arguments(input)});
                calls.push(json!({"function": function}));
            }
            _ => {}
        }
    }
    if !says && calls.is_empty() {
        return None; // Thinking alone is no answer.
    }
    let mut encoded = json!({"role": "assistant", "content": text});
    if !thoughts.is_empty() {
        wire::set(&mut encoded, "thinking", thoughts.join("\n\n"));
    }
    if !calls.is_empty() {
        wire::set(&mut encoded, "tool_calls", calls);
    }
    Some(encoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::support::{
        assistant, body, call, check_history, history_of, result, thought, unshown, user,
    };
    use super::super::Ollama;
    use super::*;

    #[test]
    fn a_whole_request() {
        let image = || ContentBlock::image("image/png", "AAAA");
        let pictured = ContentBlock::ToolResult { call_id: "c2".into(), is_error: false, content: vec![image()] };
        let messages = [
            user(vec![ContentBlock::text("look"), image()]),
            assistant(
                "p/m",
                vec![
                    ContentBlock::Thinking { text: "hm".to_owned(), native: None },
                    unshown("<think>"),
                    thought("ah", json!({"field": "content"})),
                    unshown("</think>\n"),
                    ContentBlock::text("I look."),
                    call("c1", "ls", json!({"b": 1, "a": 2}), None),
                    call("c2", "read", json!("{bad"), None),
                ],
            ),
            user(vec![result("c1", "one"), pictured]),
            assistant("q/n", vec![thought("theirs", json!({"signature": "x"})), ContentBlock::text("so")]),
            user(vec![ContentBlock::text(" ")]),
        ];
        let invalid = json!({"invalid_arguments": "{bad"});
        let expect = json!({
            "model": "m",
            "stream": true,
            "options": {"num_ctx": 32768, "num_predict": 100},
            "tools": [{"type": "function", "function": {"name": "ls", "description": "lists", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "look", "images": ["AAAA"]},
                {"role": "assistant", "content": "<think>ah</think>\nI look.", "thinking": "hm", "tool_calls": [
                    {"function": {"name": "ls", "arguments": {"b": 1, "a": 2}}},
                    {"function": {"name": "read", "arguments": invalid}}]},
                {"role": "tool", "tool_name": "ls", "content": "one"},
                {"role": "tool", "tool_name": "read", "content": "(the images of this result follow)"},
                {"role": "user", "content": "", "images": ["AAAA"]},
                {"role": "assistant", "content": "so"},
                {"role": "user", "content": "(an empty message)"},
            ],
        });
        assert_eq!(body(&Ollama::default(), &messages), expect);
    }

    #[test]
    fn context_and_thinking_can_be_set() {
        let hi = [user(vec![ContentBlock::text("hi")])];
        let set = body(&Ollama::new(Compat { num_ctx: Some(8192), thinking: Some(false), ..Compat::NONE }), &hi);
        assert_eq!((&set["options"]["num_ctx"], &set["think"]), (&json!(8192), &json!(false)));
        assert_eq!(body(&Ollama::default(), &hi).get("think"), None);
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history_of(ProviderKind::Ollama)) {
            check_history(ProviderKind::Ollama, &Ollama::default(), &messages);
        }
    }
}
