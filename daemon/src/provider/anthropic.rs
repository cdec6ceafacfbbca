//! The codec for Anthropic's Messages format (`POST /v1/messages`, streaming).
//!
//! Where the cache markers stand changes from request to request; everything else of a request is a prefix of the next one's.
//! Source: the types of Anthropic's own SDK 2.11.
//! Deliberately absent: citations, and a request for thinking (what comes is kept and given back).

use std::borrow::Cow;

use linger_protocol::message::{ContentBlock, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalogue::Kind;
use super::encoding::{self, CallNames, Items};
use super::wire::{self, Answer, Draft, Text};
use super::{
    Codec, Decoder, Encoder, Failure, FailureClass, Framing, HttpRequest, Images, Message, Request, Stop, StreamEvent,
    ToolSpec, wellformed,
};
use crate::secret::Secret;

/// What is asked for when the request leaves it open, as the format demands a number.
const MAX_TOKENS: u32 = 32_000;

/// The wire format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic;

impl Codec for Anthropic {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::<MessagesEncoder>::default()
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("x-api-key", key.reveal().to_owned())
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<MessagesDecoder>::default()
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        wire::failure(status, body)
    }
}

/// Where the provider may look for what it has cached, at the end of a block.
const MARKER: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// The requests of one context.
#[derive(Debug, Default)]
struct MessagesEncoder {
    /// System prompt and tools; none before the first request.
    fixed: Option<(Items, Items)>,
    messages: Messages,
    /// How many messages of the context these are.
    encoded: usize,
    names: CallNames,
}

/// Messages, of which neighbours of the same role are one, in which results come first.
#[derive(Clone, Debug, Default)]
struct Messages {
    /// Those that do not change any more.
    closed: Items,
    /// Where in `closed` the last block of each of the last two user's messages ends.
    ends: [Option<usize>; 2],
    /// The last message: its role, results, and other blocks.
    open: Option<(Role, Items, Items)>,
}

impl Encoder for MessagesEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        let (system, tools) = self.fixed.get_or_insert_with(|| fixed(request));
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = wire::is_own(message, request);
            self.names.add(message, own);
            let blocks = match message.role {
                Role::User => user_blocks(message, &self.names, request.images),
                Role::Assistant => assistant_blocks(message, own, &self.names),
            };
            self.messages.add(message.role, &blocks);
        }
        self.encoded = request.messages.len();
        let messages = self.messages.marked();
        let lists = [("system", system.as_str()), ("tools", tools.as_str()), ("messages", messages.as_str())];
        let lists: Vec<_> = lists.into_iter().filter(|(_, items)| !items.is_empty()).collect();
        let head = json!({
            "model": request.model,
            "max_tokens": if request.max_tokens == 0 { MAX_TOKENS } else { request.max_tokens },
            "stream": true,
        });
        let body = encoding::object(&head, &lists);
        debug_assert_eq!(wellformed::validate_text(Kind::Anthropic, &body), Ok(()));
        HttpRequest {
            path: "/v1/messages".to_owned(),
            headers: vec![("anthropic-version", "2023-06-01".to_owned())],
            body: body.into_bytes(),
        }
    }
}

/// System prompt and tools. The tools come first in the provider's cache, so one marker covers both.
fn fixed(request: &Request<'_>) -> (Items, Items) {
    let mark = |block: &mut Value| wire::set(block, "cache_control", json!({"type": "ephemeral"}));
    let mut system = wire::visible(request.system).map(|system| json!({"type": "text", "text": system}));
    let tool = |tool: &ToolSpec| {
        wire::clean_value(
            &json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}),
        )
    };
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    system.iter_mut().chain(tools.last_mut()).take(1).for_each(mark);
    (system.into_iter().collect(), tools.into_iter().collect())
}

impl Messages {
    fn add(&mut self, role: Role, blocks: &[Value]) {
        if blocks.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|(before, ..)| *before != role) {
            self.close();
        }
        let (_, results, others) = self.open.get_or_insert_with(|| (role, Items::default(), Items::default()));
        for block in blocks {
            let place = if block["type"] == "tool_result" { &mut *results } else { &mut *others };
            place.push(block);
        }
    }

    fn close(&mut self) {
        let Some((role, mut content, others)) = self.open.take() else { return };
        content.push_text(others.as_str());
        let name = if role == Role::User { "user" } else { "assistant" };
        self.closed.push_text(&encoding::object(&json!({"role": name}), &[("content", content.as_str())]));
        if role == Role::User {
            // After the last block's fields, which a brace ends, come those that end the list and the message.
            self.ends = [self.ends[1], self.closed.as_str().len().checked_sub("}]}".len())];
        }
    }

    /// The text of the messages with markers. The provider looks for a cached prefix at each marker and 20 blocks before it; many
    /// parallel calls are more than that, so the place where the previous request ended is marked too.
    fn marked(&self) -> String {
        let mut all = self.clone();
        all.close();
        let mut text = all.closed.into_text();
        all.ends.iter().rev().flatten().for_each(|end| text.insert_str(*end, MARKER));
        text
    }
}

fn user_blocks(message: &Message, names: &CallNames, images: &Images) -> Vec<Value> {
    let plain_block = |block: &ContentBlock| plain_block(block, images);
    let blocks = message.content.iter().filter_map(|block| match block {
        ContentBlock::ToolResult { call_id, is_error, content } => {
            let content: Vec<Value> = wire::result_blocks(content).iter().filter_map(plain_block).collect();
            let mut result = json!({"type": "tool_result", "tool_use_id": names.get(call_id), "content": content});
            if *is_error {
                wire::set(&mut result, "is_error", true);
            }
            Some(result)
        }
        block => plain_block(block),
    });
    let mut blocks: Vec<Value> = blocks.collect();
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": wire::NOTHING_SAID}));
    }
    blocks
}

fn plain_block(block: &ContentBlock, images: &Images) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "text", "text": wire::visible(text)?})),
        ContentBlock::Image { media_type, source } => Some(match wire::image(source, images) {
            Ok(data) => {
                json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
            }
            Err(lost) => json!({"type": "text", "text": lost}),
        }),
        _ => None,
    }
}

fn assistant_blocks(message: &Message, own: bool, names: &CallNames) -> Vec<Value> {
    let mut blocks: Vec<Value> = message
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text { text } => Some(json!({"type": "text", "text": wire::visible(text)?})),
            ContentBlock::Thinking { text, native } if own => {
                let signature = wire::native_str(native, "signature")?;
                Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
            }
            ContentBlock::ToolUse { call_id, name, input, .. } => Some(json!({
                "type": "tool_use",
                "id": names.get(call_id),
                "name": wire::tool_name(name),
                "input": wire::arguments(input),
            })),
            ContentBlock::Opaque { native } if own => Some(native.clone()),
            _ => None,
        })
        .collect();
    // An answer that was cut may end in thinking, which the provider refuses.
    while blocks.pop_if(|last| matches!(last["type"].as_str(), Some("thinking" | "redacted_thinking"))).is_some() {}
    blocks
}

/// One response.
#[derive(Debug, Default)]
struct MessagesDecoder {
    answer: Answer,
    /// The blocks that were started.
    open: Vec<Open>,
    stop_seen: bool,
    window_exceeded: bool,
    counts: Counts,
}

/// A block that the provider has started.
#[derive(Debug)]
struct Open {
    /// The provider's index.
    index: u64,
    /// Where it is in the answer; text and thinking get a place with their first piece.
    place: Option<usize>,
}

/// Tokens as this provider counts them: what was cached is not part of `input`.
#[derive(Debug, Default)]
struct Counts {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    thinking: u64,
}

/// Every event: `type` says which of the other fields are there.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    content_block: Option<Value>,
    message: Option<Value>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
}

impl Decoder for MessagesDecoder {
    fn feed(&mut self, _event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.answer.ended {
            return;
        }
        let data = wire::mended(data);
        let event: Event<'_> = match serde_json::from_str(&data) {
            Ok(event) => event,
            Err(error) => {
                return self.answer.broken(format!("the provider sent an event that makes no sense: {error}"), out);
            }
        };
        match event.kind.as_ref() {
            "message_start" => self.count(event.message.as_ref().and_then(|message| message.get("usage"))),
            "content_block_start" => self.start(event.index, event.content_block.unwrap_or_default(), out),
            "content_block_delta" => self.delta(event.index, &event.delta.unwrap_or_default(), out),
            "message_delta" => {
                self.count(event.usage.as_ref());
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop(&reason.0);
                }
            }
            "message_stop" => self.end(out),
            "error" => self.answer.fail(wire::stream_failure(&event.error.unwrap_or_default()), out),
            // `ping`, `content_block_stop`, and what may be added.
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        if self.stop_seen {
            self.end(out);
        } else {
            self.answer.broken("the answer broke off", out);
        }
    }
}

impl MessagesDecoder {
    fn start(&mut self, index: u64, block: Value, out: &mut Vec<StreamEvent>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text("type");
        let (text_start, thinking_start, signature) = (text("text"), text("thinking"), text("signature"));
        let place = match kind.as_str() {
            "text" | "thinking" => None,
            "tool_use" => {
                let input = block.get("input").filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
                let (id, name, input) = (text("id"), text("name"), input.map(Value::to_string));
                let place = self.answer.open(Draft::Call { id, name, arguments: String::new(), keep_raw: false });
                if let Some(input) = input {
                    self.answer.append_arguments(place, &input, out);
                }
                Some(place)
            }
            _ => Some(self.answer.open(Draft::Opaque { native: block, arguments: String::new() })),
        };
        self.open.retain(|open| open.index != index);
        self.open.push(Open { index, place });
        let start = |text: String| (!text.is_empty()).then_some(Text(text.into()));
        if place.is_none() {
            let (text, thinking, signature) = (start(text_start), start(thinking_start), start(signature));
            self.delta(index, &Delta { text, thinking, signature, ..Delta::default() }, out);
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta<'_>, out: &mut Vec<StreamEvent>) {
        if let Some(Text(piece)) = &delta.text
            && let Some(place) = self.place(index, piece, || Draft::Text(String::new()))
        {
            self.answer.append(place, piece, out);
        }
        let thinking = || Draft::Thinking { text: String::new(), native: None };
        if let Some(Text(piece)) = &delta.thinking
            && let Some(place) = self.place(index, piece, thinking)
        {
            self.answer.append(place, piece, out);
        }
        if let Some(Text(piece)) = &delta.signature
            && let Some(place) = self.place(index, piece, thinking)
            && let Some(Draft::Thinking { native, .. }) = self.answer.blocks.get_mut(place)
        {
            let before = wire::native_str(native, "signature").unwrap_or_default();
            *native = Some(json!({"signature": format!("{before}{piece}")}));
        }
        if let Some(Text(piece)) = &delta.partial_json
            && let Some(Open { place: Some(place), .. }) = self.open.iter().rev().find(|open| open.index == index)
        {
            self.answer.append_arguments(*place, piece, out);
        }
    }

    /// Where the pieces of the block go; makes it if `piece` is its first. `None` if there is nothing to add or nowhere.
    fn place(&mut self, index: u64, piece: &str, make: impl Fn() -> Draft) -> Option<usize> {
        if piece.is_empty() {
            return None;
        }
        let open = self.open.iter_mut().rev().find(|open| open.index == index)?;
        Some(*open.place.get_or_insert_with(|| self.answer.open(make())))
    }

    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        wire::count(&mut self.counts.input, usage, "/input_tokens");
        wire::count(&mut self.counts.cache_read, usage, "/cache_read_input_tokens");
        wire::count(&mut self.counts.cache_write, usage, "/cache_creation_input_tokens");
        wire::count(&mut self.counts.output, usage, "/output_tokens");
        wire::count(&mut self.counts.thinking, usage, "/output_tokens_details/thinking_tokens");
        let total = &mut self.answer.usage;
        total.input_tokens =
            self.counts.input.saturating_add(self.counts.cache_read).saturating_add(self.counts.cache_write);
        total.cached_tokens = self.counts.cache_read;
        total.cache_write_tokens = self.counts.cache_write;
        total.output_tokens = self.counts.output;
        total.reasoning_tokens = self.counts.thinking;
    }

    fn stop(&mut self, reason: &str) {
        self.stop_seen = true;
        self.window_exceeded = reason == "model_context_window_exceeded";
        self.answer.stop = match reason {
            "max_tokens" | "model_context_window_exceeded" => Stop::MaxTokens,
            "refusal" => Stop::Refusal,
            // `end_turn`, `tool_use`, `stop_sequence`, `pause_turn`.
            _ => Stop::End,
        };
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) {
        if self.window_exceeded && self.answer.blocks.is_empty() {
            let message = "the context fills the model's window".to_owned();
            return self.answer.fail(Failure { class: FailureClass::TooLong, message, retry_after: None }, out);
        }
        self.answer.done(out);
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::Usage;
    use proptest::prelude::*;

    use super::super::support::{
        assistant, body, call, check_history, check_stream, history, result, text, thinking, thought, user,
    };
    use super::super::{FailureClass, Response};
    use super::*;

    fn check(events: &[Value], expect: &[StreamEvent]) {
        let stream: String = events
            .iter()
            .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
            .collect();
        check_stream(&Anthropic, &stream, expect);
    }

    fn start() -> Value {
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage":
            {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}}})
    }

    fn end(reason: &str) -> [Value; 2] {
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 42}});
        [delta, json!({"type": "message_stop"})]
    }

    fn block(index: u32, block: Value, deltas: &[Value]) -> Vec<Value> {
        let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
        events
            .extend(deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    }

    const USAGE: Usage =
        Usage { input_tokens: 115, output_tokens: 42, cached_tokens: 100, cache_write_tokens: 5, reasoning_tokens: 0 };

    fn done(content: Vec<ContentBlock>, stop: Stop) -> StreamEvent {
        StreamEvent::Done(Response { content, stop, usage: USAGE })
    }

    fn failed(class: FailureClass, message: &str) -> StreamEvent {
        StreamEvent::Failed(Failure { class, message: message.to_owned(), retry_after: None })
    }

    #[test]
    fn signed_thinking_text_and_two_calls() {
        let partial = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
        let events = [
            vec![start(), json!({"type": "ping"})],
            block(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[
                    json!({"type": "thinking_delta", "thinking": "Let me "}),
                    json!({"type": "thinking_delta", "thinking": "see."}),
                    json!({"type": "signature_delta", "signature": "EqQB"}),
                    json!({"type": "signature_delta", "signature": "CgIY"}),
                ],
            ),
            block(1, json!({"type": "redacted_thinking", "data": "EmwK"}), &[]),
            block(2, json!({"type": "text", "text": ""}), &[]),
            block(3, json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": "Zwei: ä€😀"})]),
            block(
                4,
                json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}),
                &[partial(""), partial("{\"path\": \"ä"), partial("€😀.md\"}")],
            ),
            block(5, json!({"type": "tool_use", "id": "toolu_2", "name": "ls", "input": {}}), &[]),
            end("tool_use").to_vec(),
        ]
        .concat();
        let content = vec![
            thought("Let me see.", json!({"signature": "EqQBCgIY"})),
            ContentBlock::Opaque { native: json!({"type": "redacted_thinking", "data": "EmwK"}) },
            ContentBlock::text("Zwei: ä€😀"),
            call("", "read", json!({"path": "ä€😀.md"}), Some(json!({"id": "toolu_1"}))),
            call("", "ls", json!({}), Some(json!({"id": "toolu_2"}))),
        ];
        check(&events, &[thinking(0, "Let me see."), text(2, "Zwei: ä€😀"), done(content, Stop::End)]);
    }

    #[test]
    fn a_cut_call_keeps_what_the_model_wrote() {
        let delta = json!({"type": "input_json_delta", "partial_json": "{\"path\": \"a"});
        let events = [
            vec![start()],
            block(0, json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}), &[delta]),
            end("max_tokens").to_vec(),
        ];
        let content = vec![call("", "read", json!("{\"path\": \"a"), Some(json!({"id": "toolu_1"})))];
        check(&events.concat(), &[done(content, Stop::MaxTokens)]);
    }

    #[test]
    fn stop_reasons() {
        let said = || block(0, json!({"type": "text", "text": "hi"}), &[]);
        for (reason, stop) in [
            ("end_turn", Stop::End),
            ("pause_turn", Stop::End),
            ("refusal", Stop::Refusal),
            ("max_tokens", Stop::MaxTokens),
            ("model_context_window_exceeded", Stop::MaxTokens),
        ] {
            let events = [vec![start()], said(), end(reason).to_vec()].concat();
            check(&events, &[text(0, "hi"), done(vec![ContentBlock::text("hi")], stop)]);
        }
        let events = [vec![start()], end("model_context_window_exceeded").to_vec()].concat();
        check(&events, &[failed(FailureClass::TooLong, "the context fills the model's window")]);
    }

    #[test]
    fn errors_and_cuts_in_mid_stream_are_failures() {
        let said = || [vec![start()], block(0, json!({"type": "text", "text": "hi"}), &[])].concat();
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        let events = [said(), vec![error], end("end_turn").to_vec()].concat();
        check(&events, &[text(0, "hi"), failed(FailureClass::Overloaded, "overloaded_error: Overloaded")]);
        check(&said(), &[text(0, "hi"), failed(FailureClass::Stream, "the answer broke off")]);
        check_stream(&Anthropic, "", &[failed(FailureClass::Stream, "the answer broke off")]);
    }

    #[test]
    fn bad_escapes_do_not_end_a_stream() {
        let mut stream = format!("data: {}\n\n", start());
        stream += "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
        stream += "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\ud800b\\u0000c\"}}\n\n";
        end("end_turn").iter().for_each(|event| stream += &format!("data: {event}\n\n"));
        let mended = "a\u{fffd}b\u{fffd}c";
        check_stream(&Anthropic, &stream, &[text(0, mended), done(vec![ContentBlock::text(mended)], Stop::End)]);
    }

    #[test]
    fn a_whole_request() {
        let messages = [
            user(vec![ContentBlock::text("first"), ContentBlock::text(" ")]),
            user(vec![ContentBlock::image("image/png", "AAAA")]),
            assistant(
                "p/m",
                vec![
                    thought("hm", json!({"signature": "sig"})),
                    ContentBlock::Thinking { text: "unsigned".to_owned(), native: None },
                    ContentBlock::text("I look."),
                    call("c1", "ls", json!({}), Some(json!({"id": "toolu_1"}))),
                    call("c2", "ls", json!("{bad"), Some(json!({"id": "toolu_1"}))),
                ],
            ),
            user(vec![result("c1", "a\0b"), result("c2", "")]),
            user(vec![ContentBlock::text("and this")]),
        ];
        let expect = json!({
            "model": "m",
            "max_tokens": 100,
            "stream": true,
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "ls", "description": "lists", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "first"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                     "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "c2", "name": "ls", "input": {"invalid_arguments": "{bad"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a\u{fffd}b"}]},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "(no output)"}]},
                    {"type": "text", "text": "and this", "cache_control": {"type": "ephemeral"}}]},
            ],
        });
        assert_eq!(body(&Anthropic, &messages), expect);
    }

    #[test]
    fn another_models_secrets_stay_with_it() {
        let opaque = ContentBlock::Opaque { native: json!({"type": "redacted_thinking", "data": "x"}) };
        let content = vec![
            thought("hm", json!({"signature": "sig"})),
            opaque,
            call("c1", "ls", json!({}), Some(json!({"id": "theirs"}))),
        ];
        let messages =
            [user(vec![ContentBlock::text("hi")]), assistant("p/other", content), user(vec![result("c1", "ok")])];
        let expect =
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]});
        assert_eq!(body(&Anthropic, &messages)["messages"][1], expect);
    }

    #[test]
    fn an_answer_that_ends_in_thinking_goes_back_without_it() {
        let content = vec![ContentBlock::text("so"), thought("hm", json!({"signature": "sig"}))];
        let messages =
            [user(vec![ContentBlock::text("hi")]), assistant("p/m", content), user(vec![ContentBlock::text("on")])];
        let expect = json!({"role": "assistant", "content": [{"type": "text", "text": "so"}]});
        assert_eq!(body(&Anthropic, &messages)["messages"][1], expect);
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history()) {
            check_history(Kind::Anthropic, &Anthropic, &messages);
        }
    }
}
