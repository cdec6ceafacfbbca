//! Responses: chunks of a completion, with each server's own way of splitting and numbering them.

use linger_protocol::message::{ContentBlock, Usage};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::super::compat::Compat;
use super::super::response_builder::{BlockBuilder, ResponseBuilder};
use super::super::think_tags::ThinkTags;
use super::super::types::{Decoder, Failure, Response, Stop, StreamEvent};
use super::super::wire::{self, Text};
use super::encode::{DETAILS, EXTRA};

/// One response.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    answer: ResponseBuilder,
    /// A choice came.
    seen: bool,
    /// A `finish_reason` came; only usage follows.
    finished: bool,
    think: ThinkTags,
    /// The calls: the server's index, and the block.
    calls: Vec<(Option<u64>, usize)>,
    /// The server's additions to calls, by block.
    extras: Vec<(usize, Value)>,
    /// OpenRouter's `reasoning_details`.
    details: Vec<Value>,
    /// The server's usage has the cost.
    usage_cost: bool,
}

impl ChatDecoder {
    /// A decoder for a server with these flags.
    pub(super) fn new(compat: Compat) -> Self {
        Self {
            usage_cost: compat.usage_cost == Some(true),
            think: ThinkTags::new(compat.think_open == Some(true)),
            ..Self::default()
        }
    }
}

/// The largest plausible cost of a response, in micro-dollars.
const MAX_COST: f64 = 1e12;

/// The most items of `reasoning_details` in one answer: they come for each thought, not for each token.
const MAX_DETAILS: usize = 10_000;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Option<StreamedChoice<'a>>>>,
    usage: Option<Value>,
    error: Option<Value>,
    /// MiniMax's.
    base_resp: Option<Value>,
}

#[derive(Deserialize)]
struct StreamedChoice<'a> {
    #[serde(borrow)]
    delta: Option<MessageDelta<'a>>,
    /// In place of `delta` with servers that do not stream, or stream whole messages.
    #[serde(borrow)]
    message: Option<MessageDelta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct MessageDelta<'a> {
    /// A string, or a list of parts.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    /// A list.
    reasoning_details: Option<Value>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Option<CallDelta<'a>>>>,
    /// The one call of servers that know no lists of them.
    #[serde(borrow)]
    function_call: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    /// A number.
    index: Option<Value>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
    extra_content: Option<Value>,
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
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.answer.ended {
            return;
        }
        if data.trim() == "[DONE]" {
            if self.seen {
                return self.end(out);
            }
            return self.answer.fail_malformed("the provider ended the stream without an answer", out);
        }
        let data = self.answer.read(data);
        let chunk: Chunk<'_> = match serde_json::from_str(&data) {
            Ok(chunk) => chunk,
            Err(error) => match Failure::in_event(event, &data) {
                Some(failure) => return self.answer.fail(failure, out),
                None => return self.answer.unreadable("a chunk", &error, &data, out),
            },
        };
        let choice = chunk.choices.into_iter().flatten().flatten().next();
        // Some vendors have an error flat in the place of choices, or beside them.
        let may_fail = choice.is_none() || event == "error" || chunk.error.is_some() || chunk.base_resp.is_some();
        if let Some(failure) = may_fail.then(|| Failure::in_event(event, &data)).flatten() {
            return self.answer.fail(failure, out);
        }
        if let Some(usage) = chunk.usage {
            self.count(&usage);
        }
        if let Some(choice) = choice {
            if let Some(error) = choice.error.filter(|error| !error.is_null()) {
                return self.answer.fail(Failure::in_stream(&error), out);
            }
            self.seen = true;
            let whole = choice.message.filter(|_| self.answer.gathered() == 0);
            if let Some(delta) = choice.delta.or(whole) {
                self.delta(delta, out);
            }
            if let Some(Text(reason)) = choice.finish_reason.filter(|reason| !reason.0.is_empty()) {
                self.finished = true;
                match reason.as_ref() {
                    "length" => self.answer.stop = Stop::MaxTokens,
                    "content_filter" => self.answer.stop = Stop::Refusal,
                    "error" => self.answer.fail_malformed("the provider ended the answer with an error", out),
                    "tool_calls" | "function_call" => self.answer.stop = Stop::NoCalls,
                    // `stop`, and others.
                    _ => {}
                }
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        if self.finished {
            self.end(out);
        } else {
            self.answer.fail_malformed("the answer broke off", out);
        }
    }

    fn is_finished(&self) -> bool {
        self.finished && !self.answer.ended
    }

    fn usage(&self) -> Usage {
        self.answer.usage
    }

    fn gathered(&self) -> usize {
        self.answer.gathered()
    }
}

impl ChatDecoder {
    fn delta(&mut self, delta: MessageDelta<'_>, out: &mut Vec<StreamEvent>) {
        match (delta.reasoning_content, delta.reasoning) {
            (Some(Text(piece)), _) if !piece.is_empty() => self.reasoning("reasoning_content", &piece, out),
            (_, Some(Text(piece))) if !piece.is_empty() => self.reasoning("reasoning", &piece, out),
            _ => {}
        }
        if let Some(content) = delta.content {
            self.content(content.get(), out);
        }
        if let Some(Text(piece)) = delta.refusal.filter(|piece| !piece.0.is_empty()) {
            self.answer.stop = Stop::Refusal;
            self.answer.text(&piece, out);
        }
        if let Some(Value::Array(details)) = delta.reasoning_details {
            for detail in details {
                self.detail(detail);
            }
        }
        let only = delta.function_call.map(|function| CallDelta {
            index: None,
            id: None,
            function: Some(function),
            extra_content: None,
        });
        for call in delta.tool_calls.into_iter().flatten().flatten().chain(only) {
            self.call(call, out);
            // The search below is linear in the number of calls.
            self.answer.check_size(out);
            if self.answer.ended {
                return;
            }
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

    /// A piece of the content, which may have think tags.
    fn piece(&mut self, piece: &str, out: &mut Vec<StreamEvent>) {
        for piece in self.think.push(piece) {
            piece.append_to(&mut self.answer, out);
        }
    }

    /// Thinking in a field of its own.
    fn reasoning(&mut self, field: &str, piece: &str, out: &mut Vec<StreamEvent>) {
        self.pause(out);
        self.thinking(field, piece, out);
    }

    /// `field` is its origin, where it goes back to.
    fn thinking(&mut self, field: &str, piece: &str, out: &mut Vec<StreamEvent>) {
        self.answer.thinking(Some(json!({"field": field})), piece, out);
    }

    /// Merges pieces with the same index and type: texts are joined, other fields are replaced.
    fn detail(&mut self, detail: Value) {
        let of = |detail: &Value, name: &str| detail.get(name).filter(|value| !value.is_null()).cloned();
        let same = |last: &&mut Value| {
            of(&detail, "index").is_some() && ["index", "type"].iter().all(|name| of(last, name) == of(&detail, name))
        };
        let (Some(last), Value::Object(fields)) = (self.details.last_mut().filter(same), &detail) else {
            if self.details.len() < MAX_DETAILS && detail.is_object() {
                self.details.push(detail);
            }
            return;
        };
        for (name, value) in fields {
            match (last.get_mut(name), value) {
                (Some(Value::String(before)), Value::String(piece))
                    if matches!(name.as_str(), "text" | "summary" | "data") =>
                {
                    before.push_str(piece);
                }
                (_, Value::Null) => {}
                _ => wire::set(last, name, value.clone()),
            }
        }
    }

    fn call(&mut self, delta: CallDelta<'_>, out: &mut Vec<StreamEvent>) {
        self.pause(out);
        let function = delta.function.unwrap_or_default();
        let id = delta.id.unwrap_or_default().0;
        let name = function.name.unwrap_or_default().0;
        let index = delta.index.and_then(|index| index.as_u64().or_else(|| index.as_str()?.parse().ok()));
        let place = self.known_call(index, &id, &name).unwrap_or_else(|| {
            let draft =
                BlockBuilder::Call { id: String::new(), name: String::new(), arguments: String::new(), keep_raw: true };
            let place = self.answer.open(draft);
            self.calls.push((index, place));
            place
        });
        if let Some(BlockBuilder::Call { id: known_id, name: known_name, .. }) = self.answer.blocks.get_mut(place) {
            if known_id.is_empty() {
                *known_id = id.into_owned();
            }
            if known_name.is_empty() {
                *known_name = name.into_owned();
            }
        }
        self.answer.announce(place, out);
        self.extras.extend(delta.extra_content.map(|extra| (place, extra)));
        let Some(raw) = function.arguments.map(RawValue::get) else { return };
        match serde_json::from_str(raw) {
            Ok(Text(piece)) => self.answer.append_arguments(place, &piece, out),
            Err(_) => self.answer.append_arguments(place, raw, out),
        }
    }

    /// The call of a piece; `None` for a new one. Some servers send no index, or 0 for every call, or repeat name and id in every
    /// piece, or invent an id for each piece.
    fn known_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let mut calls = self.calls.iter().rev();
        let (_, place) = match index {
            Some(_) => calls.find(|(known, _)| *known == index)?,
            None => calls.find(|(_, place)| !id.is_empty() && self.call_id(*place) == id).or(self.calls.last())?,
        };
        let Some(BlockBuilder::Call { id: known_id, name: known_name, arguments, .. }) = self.answer.blocks.get(*place)
        else {
            return None;
        };
        let same_id = !id.is_empty() && id == known_id;
        let complete = || serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
        let goes_on = || index.is_some() && name.is_empty() && !known_name.is_empty() && !complete();
        let other_id = !id.is_empty() && !known_id.is_empty() && id != known_id && !goes_on();
        let begun_again = !same_id && !name.is_empty() && !known_name.is_empty() && (name != known_name || complete());
        (!other_id && !begun_again).then_some(*place)
    }

    fn call_id(&self, place: usize) -> &str {
        match self.answer.blocks.get(place) {
            Some(BlockBuilder::Call { id, .. }) => id,
            _ => "",
        }
    }

    fn count(&mut self, usage: &Value) {
        let total = &mut self.answer.usage;
        wire::count(&mut total.input_tokens, usage, "/prompt_tokens");
        wire::count(&mut total.cached_tokens, usage, "/prompt_tokens_details/cached_tokens");
        // DeepSeek's and Moonshot's own names.
        wire::count(&mut total.cached_tokens, usage, "/prompt_cache_hit_tokens");
        wire::count(&mut total.cached_tokens, usage, "/cached_tokens");
        wire::count(&mut total.cache_write_tokens, usage, "/prompt_tokens_details/cache_write_tokens");
        wire::count(&mut total.reasoning_tokens, usage, "/completion_tokens_details/reasoning_tokens");
        let (mut answer, mut all) = (0, 0);
        wire::count(&mut answer, usage, "/completion_tokens");
        wire::count(&mut all, usage, "/total_tokens");
        // xAI counts reasoning beside the answer, OpenAI within it; the sum tells them apart.
        let beside = total.reasoning_tokens > 0 && all == total.input_tokens + answer + total.reasoning_tokens;
        total.output_tokens = total.output_tokens.max(if beside { answer + total.reasoning_tokens } else { answer });
        if self.usage_cost {
            total.cost_micros = total.cost_micros.max(cost(usage));
        }
    }

    /// Releases text that was held back, because something else follows.
    fn pause(&mut self, out: &mut Vec<StreamEvent>) {
        if let Some(piece) = self.think.pause() {
            piece.append_to(&mut self.answer, out);
        }
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) {
        self.pause(out);
        if !self.details.is_empty() {
            let native = json!({ DETAILS: std::mem::take(&mut self.details) });
            self.answer.open(BlockBuilder::Opaque { native, arguments: String::new() });
        }
        self.answer.done(out);
        if let Some(StreamEvent::Done(response)) = out.last_mut() {
            add(std::mem::take(&mut self.extras), response);
        }
    }
}

/// Adds the server's additions to the calls.
fn add(extras: Vec<(usize, Value)>, response: &mut Response) {
    for (place, extra) in extras {
        if let Some(ContentBlock::ToolUse { native, .. }) = response.content.get_mut(place) {
            wire::set(native.get_or_insert_with(|| json!({})), EXTRA, extra);
        }
    }
}

/// OpenRouter's charge in micro-dollars; with the user's own key at the vendor, including the vendor's charge.
fn cost(usage: &Value) -> Option<u64> {
    let dollars = |pointer: &str| usage.pointer(pointer).and_then(Value::as_f64);
    let own_key = usage.get("is_byok").and_then(Value::as_bool) == Some(true);
    let vendors = if own_key { dollars("/cost_details/upstream_inference_cost")? } else { 0.0 };
    let micros = ((dollars("/cost")? + vendors) * 1e6).round();
    (0.0..=MAX_COST).contains(&micros).then_some(micros as u64)
}

#[cfg(test)]
mod tests;
