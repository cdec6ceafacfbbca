//! The codec for OpenAI's Chat Completions (`POST …/chat/completions`, streaming), which many other servers speak in their own way.
//!
//! What differs on sending is data ([`Compat`]); what differs in answers is read as it comes.
//! Source: the types of OpenAI's own SDK 3.52, and the known habits of compatible servers.
//! Deliberately absent: thinking that has a closing `</think>` but no opening one, which nothing tells from text while it streams.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use linger_protocol::message::{ContentBlock, Role};

use super::wire::{self, Answer, CallNames, Draft, Text};
use super::{Codec, Decoder, Failure, Framing, HttpRequest, Message, Request, Stop, StreamEvent};
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

    fn body(&self, request: &Request<'_>) -> Value {
        let mut body = json!({"model": request.model, "stream": true});
        if request.max_tokens > 0 {
            let name = if self.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
            body[name] = request.max_tokens.into();
        }
        if self.stream_usage {
            body["stream_options"] = json!({"include_usage": true});
        }
        if self.prompt_cache_key && !request.cache_key.is_empty() {
            body["prompt_cache_key"] = request.cache_key.into();
        }
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| {
                let function =
                    json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
                json!({"type": "function", "function": function})
            });
            body["tools"] = tools.collect();
        }
        let mut messages = Vec::new();
        if let Some(system) = wire::visible(request.system) {
            messages.push(json!({"role": if self.developer_role { "developer" } else { "system" }, "content": system}));
        }
        let names = CallNames::of(request);
        for message in request.messages {
            match message.role {
                Role::User => user_messages(message, &names, &mut messages),
                Role::Assistant => messages.extend(self.assistant_message(message, request, &names)),
            }
        }
        body["messages"] = messages.into();
        body
    }

    fn assistant_message(&self, message: &Message, request: &Request<'_>, names: &CallNames<'_>) -> Option<Value> {
        let own = wire::is_own(message, request);
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
            encoded[field] = text.into();
        }
        if !calls.is_empty() {
            encoded["tool_calls"] = calls.into();
        }
        Some(encoded)
    }
}

/// A user's message: first each result as a message of its own, then what is left. Images in results can only follow them.
fn user_messages(message: &Message, names: &CallNames<'_>, messages: &mut Vec<Value>) {
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
        messages.push(json!({"role": "tool", "tool_call_id": names.get(call_id), "content": texts.join("\n\n")}));
    }
    parts.extend(message.content.iter().filter_map(part));
    // Servers without images often know only strings.
    let only_text = match parts.as_slice() {
        [only] if only["type"] == "text" => Some(only["text"].clone()),
        _ => None,
    };
    if !parts.is_empty() {
        messages.push(json!({"role": "user", "content": only_text.unwrap_or(Value::Array(parts))}));
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
    fn encode(&self, request: &Request<'_>) -> HttpRequest {
        let body = self.body(request);
        debug_assert_eq!(super::wellformed::validate(super::catalogue::Kind::Openai, &body), Ok(()));
        HttpRequest { path: "/chat/completions".to_owned(), headers: Vec::new(), body: body.to_string().into_bytes() }
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
