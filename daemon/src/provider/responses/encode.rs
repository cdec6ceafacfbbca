//! Requests: a message of the context becomes items: texts, reasoning, calls and results.

use linger_protocol::message::{ContentBlock, Role};
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::encoding::{self, CallNames, Items};
use super::super::hosted::{Hosted, readable};
use super::super::kind::ProviderKind;
use super::super::think_decoder;
use super::super::types::{Encoder, HttpRequest, Images, Message, Request, ToolJson};
use super::super::{output_schema, wire};
use super::hosted;

/// In the `native` part of thinking: the original item.
pub(super) const ITEM: &str = "item";

/// In an opaque block: the `phase` of the text before it.
pub(super) const PHASE: &str = "phase";

/// The requests of one context.
#[derive(Debug)]
pub(super) struct ResponsesEncoder {
    compat: Compat,
    /// The items so far.
    input: Items,
    /// The number of encoded messages of the context.
    encoded: usize,
    names: CallNames,
}

impl ResponsesEncoder {
    pub(super) fn new(compat: Compat) -> Self {
        Self { compat, input: Items::default(), encoded: 0, names: CallNames::default() }
    }
}

impl Encoder for ResponsesEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = message.is_own(request);
            self.names.add(message, own);
            let message = &*think_decoder::with_original_text(message, own);
            match message.role {
                Role::User => user_items(message, &self.names, request.images, &mut self.input),
                Role::Assistant => assistant_items(message, own, self.compat.hosted, &self.names, &mut self.input),
            }
        }
        self.encoded = request.messages.len();
        let mut tools = Items::default();
        tools.push_text(request.tools.rendered(ProviderKind::OpenaiResponses, tool));
        for tool in &hosted::tools(switched_on(&self.compat, request)) {
            tools.push(tool);
        }
        let (tools, input) = ([tools.as_str()], [self.input.as_str()]);
        let lists = [("tools", tools.as_slice()), ("input", &input)];
        let lists = if tools == [""] { &lists[1..] } else { &lists };
        let head = head(&self.compat, request);
        let body = encoding::object(&head, lists);
        let body = encoding::with_own_fields(body, head, lists, request.own_fields);
        HttpRequest { path: "/responses".to_owned(), headers: Vec::new(), body }
    }
}

/// A tool as the format has it. Where `strict` is absent the server takes it to be true, and then refuses most schemas.
fn tool(tool: &ToolJson) -> String {
    let ToolJson { name, description, schema } = tool;
    format!(r#"{{"type":"function","name":{name},"description":{description},"parameters":{schema},"strict":false}}"#)
}

/// The hosted tools of a request; none if it has no tools.
fn switched_on(compat: &Compat, request: &Request<'_>) -> Hosted {
    if request.tools.is_empty() { Hosted::NONE } else { compat.hosted }
}

/// The fields before tools and items.
fn head(compat: &Compat, request: &Request<'_>) -> Value {
    let mut head = json!({"model": request.model, "stream": compat.streaming != Some(false), "store": false});
    let reasoning = (compat.encrypted_reasoning != Some(false)).then_some("reasoning.encrypted_content");
    let include: Vec<&str> = reasoning.into_iter().chain(hosted::include(switched_on(compat, request))).collect();
    if !include.is_empty() {
        wire::set(&mut head, "include", include);
    }
    let mut reasoning = json!({});
    if compat.thinking == Some(true) {
        wire::set(&mut reasoning, "summary", "auto");
    }
    if !request.effort.is_auto() && compat.reasoning_effort != Some(false) {
        wire::set(&mut reasoning, "effort", request.effort.name());
    }
    if reasoning.as_object().is_some_and(|reasoning| !reasoning.is_empty()) {
        wire::set(&mut head, "reasoning", reasoning);
    }
    if let Some(output_schema) = request.output_schema {
        let mut format = wire::without_nul_in(&output_schema::json_schema(output_schema.schema, compat));
        wire::set(&mut format, "type", "json_schema");
        wire::set(&mut head, "text", json!({"format": format}));
    }
    if request.max_tokens > 0 {
        wire::set(&mut head, "max_output_tokens", request.max_tokens);
    }
    if compat.prompt_cache_key == Some(true) && !request.cache_key.is_empty() {
        wire::set(&mut head, "prompt_cache_key", request.cache_key);
    }
    if let Some(system) = wire::visible(request.system) {
        wire::set(&mut head, "instructions", system);
    }
    head
}

/// First the results, each an item, then the rest as one message.
fn user_items(message: &Message, names: &CallNames, images: &Images, input: &mut Items) {
    let part = |block: &ContentBlock| part(block, images);
    let mut answers = false;
    for block in &message.content {
        let ContentBlock::ToolResult { call_id, content, is_error } = block else { continue };
        answers = true;
        let blocks = wire::marked_result_blocks(content, *is_error);
        let texts: Vec<&str> = blocks.iter().filter_map(ContentBlock::as_text).collect();
        let has_only_texts = texts.len() == blocks.len();
        let output =
            if has_only_texts { texts.join("\n\n").into() } else { blocks.iter().filter_map(part).collect::<Value>() };
        input.push(&json!({"type": "function_call_output", "call_id": names.get(call_id), "output": output}));
    }
    let mut parts: Vec<Value> = message.content.iter().filter_map(part).collect();
    if parts.is_empty() && !answers {
        parts.push(json!({"type": "input_text", "text": wire::NOTHING_SAID}));
    }
    if !parts.is_empty() {
        input.push(&json!({"role": "user", "content": parts}));
    }
}

fn part(block: &ContentBlock, images: &Images) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "input_text", "text": wire::visible(text)?})),
        ContentBlock::Image { media_type, source } => Some(match wire::image(source, images) {
            Ok(data) => {
                let url = format!("data:{media_type};base64,{data}");
                json!({"type": "input_image", "image_url": url, "detail": "auto"})
            }
            Err(lost) => json!({"type": "input_text", "text": lost}),
        }),
        _ => None,
    }
}

/// The items of an answer. Reasoning is refused without the item that follows it, so it is held until then.
fn assistant_items(message: &Message, own: bool, on: Hosted, names: &CallNames, input: &mut Items) {
    let mut waiting: Vec<&Value> = Vec::new();
    for (n, block) in message.content.iter().enumerate() {
        let item = match block {
            ContentBlock::Thinking { native, .. } if own => {
                waiting.extend(native.as_ref().and_then(|native| native.get(ITEM)).filter(|item| is_whole(item)));
                continue;
            }
            ContentBlock::Text { text } => wire::visible(text).map(|text| {
                let mut item = text_item(&text);
                if let Some(ContentBlock::Opaque { native }) = message.content.get(n + 1).filter(|_| own)
                    && let Some(phase) = native.get(PHASE)
                {
                    wire::set(&mut item, PHASE, phase.clone());
                }
                item
            }),
            ContentBlock::ToolUse { call_id, name, input, native } => {
                let raw = wire::native_str(native, "arguments").filter(|_| own).map(str::to_owned);
                let arguments = raw.unwrap_or_else(|| wire::arguments(input).to_string());
                let (call_id, name) = (names.get(call_id), wire::tool_name(name));
                Some(json!({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}))
            }
            ContentBlock::Opaque { native } if own => native.get(ITEM).cloned(),
            ContentBlock::Hosted { tool, native: Some(native), .. } if own && on.has(*tool) => {
                native.get(ITEM).cloned()
            }
            ContentBlock::Hosted { .. } => readable(block).map(|text| text_item(&text)),
            _ => None,
        };
        if let Some(item) = item {
            for reasoning in waiting.drain(..) {
                input.push(reasoning);
            }
            input.push(&item);
        }
    }
}

/// Text of the model as an item. llama.cpp refuses an assistant's message without `type`.
fn text_item(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

/// Whether a reasoning item has content: an identifier alone refers to a stored item.
fn is_whole(item: &Value) -> bool {
    let has = |name: &str| item.get(name).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
    has("encrypted_content") && has("id") && item.get("summary").is_some_and(Value::is_array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::support::{assistant, body, call, check_history, history_of, result, thought, user};
    use super::super::Responses;
    use super::*;

    fn codec() -> Responses {
        Responses::default()
    }

    fn reasoning(id: &str) -> Value {
        json!({"id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": format!("gAAAA{id}"), "status": null})
    }

    #[test]
    fn a_whole_request() {
        let image = || ContentBlock::image("image/png", "AAAA");
        let pictured = ContentBlock::ToolResult {
            call_id: "c2".into(),
            is_error: false,
            content: vec![ContentBlock::text("see"), image()],
        };
        let messages = [
            user(vec![ContentBlock::text("look"), image()]),
            assistant(
                "p/m",
                vec![
                    thought("hm", json!({"item": reasoning("rs_1")})),
                    ContentBlock::text("I look."),
                    ContentBlock::Opaque { native: json!({"phase": "commentary"}) },
                    thought("", json!({"item": reasoning("rs_2")})),
                    call("c1", "ls", json!({"a": 1}), Some(json!({"id": "call_x", "arguments": "{\"a\": 1}"}))),
                    call("c2", "ls", json!({"a": 1}), Some(json!({"id": "call_y"}))),
                ],
            ),
            user(vec![result("c1", "one"), pictured]),
        ];
        let data = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"});
        let expect = json!({
            "model": "m",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 100,
            "instructions": "be brief",
            "tools": [{"type": "function", "name": "ls", "description": "lists", "parameters": {"type": "object"}, "strict": false}],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "look"}, data]},
                reasoning("rs_1"),
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}], "phase": "commentary"},
                reasoning("rs_2"),
                {"type": "function_call", "call_id": "call_x", "name": "ls", "arguments": "{\"a\": 1}"},
                {"type": "function_call", "call_id": "call_y", "name": "ls", "arguments": "{\"a\":1}"},
                {"type": "function_call_output", "call_id": "call_x", "output": "one"},
                {"type": "function_call_output", "call_id": "call_y", "output": [{"type": "input_text", "text": "see"}, data]},
            ],
        });
        assert_eq!(body(&codec(), &messages), expect);
    }

    #[test]
    fn reasoning_goes_back_whole_with_what_it_led_to_or_not_at_all() {
        fn check(origin: &str, content: Vec<ContentBlock>, expect: &[Value]) {
            let messages = [
                user(vec![ContentBlock::text("hi")]),
                assistant(origin, content),
                user(vec![ContentBlock::text("on")]),
            ];
            let input = body(&codec(), &messages)["input"].as_array().unwrap().clone();
            assert_eq!(&input[1..input.len() - 1], expect);
        }
        let item = |id| thought("hm", json!({"item": reasoning(id)}));
        let said = text_item("so");
        check("p/m", vec![item("rs_1"), ContentBlock::text("so")], &[reasoning("rs_1"), said.clone()]);
        check("p/other", vec![item("rs_1"), ContentBlock::text("so")], std::slice::from_ref(&said));
        check("p/m", vec![ContentBlock::text("so"), item("rs_1")], std::slice::from_ref(&said));
        check(
            "p/m",
            vec![item("rs_1"), ContentBlock::text(" "), ContentBlock::text("so")],
            &[reasoning("rs_1"), said.clone()],
        );
        let bare = json!({"item": {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": null}});
        check("p/m", vec![thought("", bare), ContentBlock::text("so")], &[said]);
        check("p/m", vec![item("rs_1")], &[]);
    }

    #[test]
    fn servers_get_what_they_understand() {
        fn check(compat: Compat, expect: &[&str]) {
            let body = body(&Responses::new(compat), &[user(vec![ContentBlock::text("hi")])]);
            let names = ["include", "reasoning", "prompt_cache_key"];
            let there: Vec<&str> = names.into_iter().filter(|name| body.get(name).is_some()).collect();
            assert_eq!(there, expect);
        }
        check(Compat::NONE, &["include"]);
        check(Compat { thinking: Some(true), ..Compat::NONE }, &["include", "reasoning"]);
        check(Compat { prompt_cache_key: Some(true), ..Compat::NONE }, &["include", "prompt_cache_key"]);
        check(Compat { encrypted_reasoning: Some(false), ..Compat::NONE }, &[]);
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history_of(ProviderKind::OpenaiResponses)) {
            check_history(ProviderKind::OpenaiResponses, &codec(), &messages);
            let compat = Compat { hosted: Hosted::ALL, ..Compat::NONE };
            check_history(ProviderKind::OpenaiResponses, &Responses::new(compat), &messages);
        }
    }
}
