//! The codec for OpenAI's Chat Completions (`POST …/chat/completions`, streaming), which many other servers speak in their own way.
//!
//! What differs on sending is data ([`Compat`]); what differs in answers is read as it comes.
//! Source: the types of OpenAI's own SDK 3.52, and the known habits of compatible servers.
//! Deliberately absent: thinking that has a closing `</think>` but no opening one, which nothing tells from text while it streams.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use linger_protocol::message::{ContentBlock, Role};

use super::catalogue::Kind;
use super::encoding::{self, CallNames, Items};
use super::wire::{self, Answer, Draft, Text};
use super::{
    Codec, Decoder, Encoder, Failure, Framing, HttpRequest, Message, Request, Stop, StreamEvent, ToolSpec, wellformed,
};
use crate::secret::Secret;

/// How a server departs from the format; what is not set depends on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Compat {
    /// The limit of an answer is called `max_completion_tokens`, not `max_tokens`. Only at api.openai.com unless set.
    pub max_completion_tokens: Option<bool>,
    /// The system prompt has the role `developer`, not `system`. Only at api.openai.com unless set.
    pub developer_role: Option<bool>,
    /// The server takes `prompt_cache_key`. Only api.openai.com unless set.
    pub prompt_cache_key: Option<bool>,
    /// The server takes `stream_options.include_usage`. All unless set.
    pub stream_usage: Option<bool>,
    /// A message with tool calls must have `reasoning_content`, even an empty one. Only at api.deepseek.com unless set.
    pub reasoning_content: Option<bool>,
}

/// The wire format.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAi {
    max_completion_tokens: bool,
    developer_role: bool,
    prompt_cache_key: bool,
    stream_usage: bool,
    reasoning_content: bool,
}

impl OpenAi {
    /// The format as it is spoken at `host`, with what the configuration says about it.
    pub fn new(host: &str, compat: Compat) -> Self {
        let original = host == "api.openai.com";
        Self {
            max_completion_tokens: compat.max_completion_tokens.unwrap_or(original),
            developer_role: compat.developer_role.unwrap_or(original),
            prompt_cache_key: compat.prompt_cache_key.unwrap_or(original),
            stream_usage: compat.stream_usage.unwrap_or(true),
            reasoning_content: compat.reasoning_content.unwrap_or(host == "api.deepseek.com"),
        }
    }

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

/// The requests of one context.
#[derive(Debug)]
struct ChatEncoder {
    codec: OpenAi,
    /// The tools; none before the first request.
    tools: Option<Items>,
    /// The system prompt, and the messages so far.
    messages: Items,
    /// How many messages of the context these are.
    encoded: usize,
    names: CallNames,
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
        let tools = (!tools.is_empty()).then_some(("tools", tools.as_str()));
        let lists: Vec<_> = tools.into_iter().chain([("messages", self.messages.as_str())]).collect();
        let body = encoding::object(&self.codec.head(request), &lists);
        debug_assert_eq!(wellformed::validate_text(Kind::Openai, &body), Ok(()));
        HttpRequest { path: "/chat/completions".to_owned(), headers: Vec::new(), body: body.into_bytes() }
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

impl Codec for OpenAi {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(ChatEncoder {
            codec: *self,
            tools: None,
            messages: Items::default(),
            encoded: 0,
            names: CallNames::default(),
        })
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<ChatDecoder>::default()
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        wire::failure(status, body)
    }
}

/// One response.
#[derive(Debug, Default)]
struct ChatDecoder {
    answer: Answer,
    /// A choice came, so this is an answer.
    seen: bool,
    /// A `finish_reason` came: what follows is usage.
    finished: bool,
    think: Think,
    /// The calls: the index that the server gave, and where it is in the answer.
    calls: Vec<(Option<u64>, usize)>,
}

/// Where the content is with respect to `<think>…</think>`, which counts at its beginning only.
#[derive(Debug)]
enum Think {
    /// At the beginning; this much may still become the opening tag.
    Before(String),
    /// Between the tags; this much may still become the closing tag.
    Inside(String),
    /// Just after the closing tag, where white space belongs to nothing.
    After,
    /// In the answer.
    Outside,
}

impl Default for Think {
    fn default() -> Self {
        Self::Before(String::new())
    }
}

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    /// A string, or a list of parts.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    /// A string of JSON, or JSON itself.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Decoder for ChatDecoder {
    fn feed(&mut self, _event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.answer.ended {
            return;
        }
        if data.trim() == "[DONE]" {
            if self.seen {
                return self.end(out);
            }
            return self.answer.broken("the provider ended the stream without an answer", out);
        }
        let data = wire::mended(data);
        let chunk: Chunk<'_> = match serde_json::from_str(&data) {
            Ok(chunk) => chunk,
            Err(error) => {
                return self.answer.broken(format!("the provider sent a chunk that makes no sense: {error}"), out);
            }
        };
        if let Some(error) = chunk.error {
            return self.answer.fail(wire::stream_failure(&error), out);
        }
        if let Some(usage) = chunk.usage {
            self.count(&usage);
        }
        for choice in chunk.choices.unwrap_or_default().into_iter().take(1) {
            self.seen = true;
            if let Some(delta) = choice.delta {
                self.delta(delta, out);
            }
            if let Some(Text(reason)) = choice.finish_reason.filter(|reason| !reason.0.is_empty()) {
                self.finished = true;
                match reason.as_ref() {
                    "length" => self.answer.stop = Stop::MaxTokens,
                    "content_filter" => self.answer.stop = Stop::Refusal,
                    "error" => self.answer.broken("the provider ended the answer with an error", out),
                    // `stop`, `tool_calls`, and whatever else servers say.
                    _ => {}
                }
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        if self.finished {
            self.end(out);
        } else {
            self.answer.broken("the answer broke off", out);
        }
    }
}

impl ChatDecoder {
    fn delta(&mut self, delta: Delta<'_>, out: &mut Vec<StreamEvent>) {
        match (delta.reasoning_content, delta.reasoning) {
            (Some(Text(piece)), _) if !piece.is_empty() => self.thinking("reasoning_content", &piece, out),
            (_, Some(Text(piece))) => self.thinking("reasoning", &piece, out),
            _ => {}
        }
        if let Some(content) = delta.content {
            self.content(content.get(), out);
        }
        if let Some(Text(piece)) = delta.refusal.filter(|piece| !piece.0.is_empty()) {
            self.answer.stop = Stop::Refusal;
            self.text(&piece, out);
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call, out);
        }
    }

    /// `content` is JSON: a string, or a list of parts with text or thinking in them.
    fn content(&mut self, content: &str, out: &mut Vec<StreamEvent>) {
        if let Ok(Text(piece)) = serde_json::from_str(content) {
            return self.piece(&piece, out);
        }
        let parts: Vec<Value> = serde_json::from_str(content).unwrap_or_default();
        for part in &parts {
            match (part["text"].as_str(), &part["thinking"]) {
                (Some(text), _) => self.piece(text, out),
                (None, Value::String(text)) => self.thinking("parts", text, out),
                (None, Value::Array(texts)) => {
                    let texts = texts.iter().filter_map(|part| part["text"].as_str());
                    texts.for_each(|text| self.thinking("parts", text, out));
                }
                _ => {}
            }
        }
    }

    /// A piece of the content, in which thinking may hide.
    fn piece(&mut self, piece: &str, out: &mut Vec<StreamEvent>) {
        match std::mem::replace(&mut self.think, Think::Outside) {
            Think::Before(held) => {
                let held = held + piece;
                let begun = held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPENING) {
                    self.think = Think::Inside(String::new());
                    self.piece(rest, out);
                } else if OPENING.starts_with(begun) {
                    self.think = Think::Before(held);
                } else {
                    self.text(&held, out);
                }
            }
            Think::Inside(held) => {
                let held = held + piece;
                if let Some((thought, rest)) = held.split_once(CLOSING) {
                    self.thinking("think", thought, out);
                    self.think = Think::After;
                    self.piece(rest, out);
                } else {
                    let lengths = (1..CLOSING.len()).rev();
                    let kept =
                        lengths.filter_map(|n| CLOSING.get(..n)).find(|tag| held.ends_with(tag)).unwrap_or_default();
                    self.thinking("think", held.strip_suffix(kept).unwrap_or(&held), out);
                    self.think = Think::Inside(kept.to_owned());
                }
            }
            Think::After => match piece.trim_start() {
                "" => self.think = Think::After,
                text => self.text(text, out),
            },
            Think::Outside => self.text(piece, out),
        }
    }

    fn text(&mut self, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let last = self.answer.blocks.len().checked_sub(1);
        let place = match (last, self.answer.blocks.last()) {
            (Some(last), Some(Draft::Text(_))) => last,
            _ => self.answer.open(Draft::Text(String::new())),
        };
        self.answer.append(place, piece, out);
    }

    /// `field` is where it came, to be sent back there.
    fn thinking(&mut self, field: &str, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let last = self.answer.blocks.len().checked_sub(1);
        let place = match (last, self.answer.blocks.last()) {
            (Some(last), Some(Draft::Thinking { native, .. })) if wire::native_str(native, "field") == Some(field) => {
                last
            }
            _ => self.answer.open(Draft::Thinking { text: String::new(), native: Some(json!({"field": field})) }),
        };
        self.answer.append(place, piece, out);
    }

    fn call(&mut self, delta: CallDelta<'_>, out: &mut Vec<StreamEvent>) {
        let function = delta.function.unwrap_or_default();
        let id = delta.id.unwrap_or_default().0;
        let name = function.name.unwrap_or_default().0;
        let place = self.known_call(delta.index, &id, &name).unwrap_or_else(|| {
            let draft =
                Draft::Call { id: String::new(), name: String::new(), arguments: String::new(), keep_raw: true };
            let place = self.answer.open(draft);
            self.calls.push((delta.index, place));
            place
        });
        if let Some(Draft::Call { id: known_id, name: known_name, .. }) = self.answer.blocks.get_mut(place) {
            if known_id.is_empty() {
                *known_id = id.into_owned();
            }
            if known_name.is_empty() {
                *known_name = name.into_owned();
            }
        }
        let Some(raw) = function.arguments.map(RawValue::get) else { return };
        match serde_json::from_str(raw) {
            Ok(Text(piece)) => self.answer.append_arguments(place, &piece, out),
            Err(_) => self.answer.append_arguments(place, raw, out),
        }
    }

    /// The call that a piece belongs to; `None` if it begins one. Some servers give no index, or 0 to every call, or repeat name
    /// and id in every piece.
    fn known_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let mut calls = self.calls.iter().rev();
        let (_, place) = match index {
            Some(_) => calls.find(|(known, _)| *known == index)?,
            None => calls.find(|(_, place)| !id.is_empty() && self.call_id(*place) == id).or(self.calls.last())?,
        };
        let Some(Draft::Call { id: known_id, name: known_name, arguments, .. }) = self.answer.blocks.get(*place) else {
            return None;
        };
        let other_id = !id.is_empty() && !known_id.is_empty() && id != known_id;
        let same_id = !id.is_empty() && id == known_id;
        let complete = || serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
        let begun_again = !same_id && !name.is_empty() && !known_name.is_empty() && (name != known_name || complete());
        (!other_id && !begun_again).then_some(*place)
    }

    fn call_id(&self, place: usize) -> &str {
        match self.answer.blocks.get(place) {
            Some(Draft::Call { id, .. }) => id,
            _ => "",
        }
    }

    fn count(&mut self, usage: &Value) {
        let total = &mut self.answer.usage;
        wire::count(&mut total.input_tokens, usage, "/prompt_tokens");
        wire::count(&mut total.output_tokens, usage, "/completion_tokens");
        wire::count(&mut total.cached_tokens, usage, "/prompt_tokens_details/cached_tokens");
        wire::count(&mut total.cache_write_tokens, usage, "/prompt_tokens_details/cache_write_tokens");
        wire::count(&mut total.reasoning_tokens, usage, "/completion_tokens_details/reasoning_tokens");
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) {
        match std::mem::replace(&mut self.think, Think::Outside) {
            Think::Before(held) if !held.trim().is_empty() => self.text(&held, out),
            Think::Inside(held) => self.thinking("think", &held, out),
            _ => {}
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

    fn codec() -> OpenAi {
        OpenAi::new("127.0.0.1", Compat::default())
    }

    fn check(chunks: &[Value], tail: &str, expect: &[StreamEvent]) {
        let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        check_stream(&codec(), &(stream + tail), expect);
    }

    const DONE: &str = "data: [DONE]\n\n";

    fn delta(delta: Value) -> Value {
        json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    fn content(text: &str) -> Value {
        delta(json!({"content": text}))
    }

    fn end(reason: &str) -> Value {
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    }

    fn done(content: Vec<ContentBlock>) -> StreamEvent {
        StreamEvent::Done(Response { content, ..Response::default() })
    }

    fn failed(class: FailureClass, message: &str) -> StreamEvent {
        StreamEvent::Failed(Failure { class, message: message.to_owned(), retry_after: None })
    }

    #[test]
    fn text_and_usage() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 7, "total_tokens": 97,
            "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 3}}});
        let chunks =
            [delta(json!({"role": "assistant", "content": ""})), content("Guten "), content("Täg"), end("stop"), usage];
        let usage =
            Usage { input_tokens: 90, output_tokens: 7, cached_tokens: 64, cache_write_tokens: 0, reasoning_tokens: 3 };
        let response = Response { content: vec![ContentBlock::text("Guten Täg")], stop: Stop::End, usage };
        check(&chunks, DONE, &[text(0, "Guten Täg"), StreamEvent::Done(response.clone())]);
        check(&chunks, ": keep-alive\n\n", &[text(0, "Guten Täg"), StreamEvent::Done(response)]);
    }

    fn piece(index: Option<u32>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
        let mut piece = json!({"function": {"arguments": arguments}});
        index.into_iter().for_each(|index| piece["index"] = index.into());
        id.into_iter().for_each(|id| piece["id"] = id.into());
        name.into_iter().for_each(|name| piece["function"]["name"] = name.into());
        delta(json!({"content": null, "tool_calls": [piece]}))
    }

    fn read(id: Option<&str>) -> ContentBlock {
        call("", "read", json!({"path": "ä€😀"}), id.map(|id| json!({"id": id})))
    }

    fn ls(id: Option<&str>) -> ContentBlock {
        call("", "ls", json!({}), id.map(|id| json!({"id": id})))
    }

    #[test]
    fn parallel_calls_however_servers_number_them() {
        let one = |index, again: Option<&str>| {
            [
                piece(index, Some("a"), Some("read"), ""),
                piece(index, again, None, "{\"path\":\"ä"),
                piece(index, again, None, "€😀\"}"),
            ]
        };
        let both = [done(vec![read(Some("a")), ls(Some("b"))])];
        for (first, second) in [(Some(0), Some(1)), (Some(0), Some(0)), (None, None)] {
            for again in [None, Some("a")] {
                let rest = [piece(second, Some("b"), Some("ls"), "{}"), end("tool_calls")];
                check(&[one(first, again).as_slice(), &rest].concat(), DONE, &both);
            }
        }
        // Whole calls in one piece, without ids.
        for index in [None, Some(0)] {
            let whole = piece(index, None, Some("read"), "{\"path\":\"ä€😀\"}");
            check(
                &[whole.clone(), piece(index, None, Some("ls"), ""), end("stop")],
                DONE,
                &[done(vec![read(None), ls(None)])],
            );
            check(&[whole.clone(), whole, end("stop")], DONE, &[done(vec![read(None), read(None)])]);
        }
        let bare = |id| piece(Some(0), Some(id), Some("ls"), "");
        check(&[bare("a"), bare("b"), end("stop")], DONE, &[done(vec![ls(Some("a")), ls(Some("b"))])]);
        // The name in every piece.
        let named = |arguments| piece(Some(0), None, Some("read"), arguments);
        check(&[named(""), named("{\"path\":\""), named("ä€😀\"}"), end("stop")], DONE, &[done(vec![read(None)])]);
        // Arguments that are an object.
        let object =
            delta(json!({"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": {"path": "ä€😀"}}}]}));
        check(&[object, end("stop")], DONE, &[done(vec![read(None)])]);
    }

    #[test]
    fn arguments_are_kept_as_written_where_they_are_not_canonical() {
        let native = json!({"id": "a", "arguments": "{ \"a\": 1 }"});
        let chunks =
            [piece(Some(0), Some("a"), Some("ls"), "{ \"a\""), piece(Some(0), None, None, ": 1 }"), end("tool_calls")];
        check(&chunks, DONE, &[done(vec![call("", "ls", json!({"a": 1}), Some(native))])]);
        let chunks = [piece(Some(0), Some("a"), Some("ls"), "{\"a\":"), end("length")];
        let response = Response {
            content: vec![call("", "ls", json!("{\"a\":"), Some(json!({"id": "a"})))],
            stop: Stop::MaxTokens,
            ..Response::default()
        };
        check(&chunks, DONE, &[StreamEvent::Done(response)]);
    }

    #[test]
    fn thinking_wherever_servers_put_it() {
        for field in ["reasoning_content", "reasoning"] {
            let chunks =
                [delta(json!({field: "h"})), delta(json!({field: "m", "content": null})), content("so"), end("stop")];
            let blocks = vec![thought("hm", json!({"field": field})), ContentBlock::text("so")];
            check(&chunks, DONE, &[thinking(0, "hm"), text(1, "so"), done(blocks)]);
        }
        let both = [thinking(0, "h<m</"), text(1, "so <think>")];
        let blocks = vec![thought("h<m</", json!({"field": "think"})), ContentBlock::text("so <think>")];
        let expect = [both.as_slice(), &[done(blocks)]].concat();
        let whole = "\n<think>h<m</</think>\n\nso <think>";
        check(&[content(whole), end("stop")], DONE, &expect);
        let letters: Vec<Value> = whole.chars().map(|c| content(&c.to_string())).chain([end("stop")]).collect();
        check(&letters, DONE, &expect);
        let blocks = vec![thought("cut</thi", json!({"field": "think"}))];
        check(
            &[content("<think>cut</thi"), end("length")],
            DONE,
            &[
                thinking(0, "cut</thi"),
                StreamEvent::Done(Response { content: blocks, stop: Stop::MaxTokens, ..Response::default() }),
            ],
        );
        let parts =
            json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "so"}]);
        let blocks = vec![thought("hm", json!({"field": "parts"})), ContentBlock::text("so")];
        check(
            &[delta(json!({"content": parts})), end("stop")],
            DONE,
            &[thinking(0, "hm"), text(1, "so"), done(blocks)],
        );
    }

    #[test]
    fn what_only_looks_like_a_tag_is_text() {
        for said in ["<thin", "<b>bold</b>", "  <think", "a <think>b</think>"] {
            check(&[content(said), end("stop")], DONE, &[text(0, said), done(vec![ContentBlock::text(said)])]);
        }
    }

    #[test]
    fn ends_good_and_bad() {
        let hi = || vec![text(0, "hi")];
        let good = [hi(), vec![done(vec![ContentBlock::text("hi")])]].concat();
        check(&[content("hi")], DONE, &good);
        check(&[content("hi"), end("stop")], "", &good);
        let cut = failed(FailureClass::Stream, "the answer broke off");
        check(&[content("hi")], "", &[hi(), vec![cut.clone()]].concat());
        check(&[], "", &[cut]);
        check(&[], DONE, &[failed(FailureClass::Stream, "the provider ended the stream without an answer")]);
        let error = json!({"error": {"code": 502, "message": "upstream"}, "choices": []});
        check(&[content("hi"), error], DONE, &[hi(), vec![failed(FailureClass::Overloaded, "upstream")]].concat());
        let refused = Response { content: vec![ContentBlock::text("no")], stop: Stop::Refusal, ..Response::default() };
        check(&[delta(json!({"refusal": "no"})), end("stop")], DONE, &[text(0, "no"), StreamEvent::Done(refused)]);
    }

    #[test]
    fn a_chunk_that_is_no_json_is_a_failure_but_a_bad_escape_is_not() {
        let bad = "data: {\"choices\":[{\"delta\":{\"content\":\"a\\udc00\"},\"finish_reason\":\"stop\"}]}\n\n";
        check(&[], bad, &[text(0, "a\u{fffd}"), done(vec![ContentBlock::text("a\u{fffd}")])]);
        let events = super::super::support::decode(&codec(), "data: oops\n\n", 100);
        assert!(
            matches!(&events[..], [StreamEvent::Failed(Failure { class: FailureClass::Stream, .. })]),
            "{events:?}"
        );
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
