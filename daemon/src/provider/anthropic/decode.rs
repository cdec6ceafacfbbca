//! Decoding: events that start blocks, add to them, and end the answer.

use std::borrow::Cow;
use std::collections::VecDeque;

use linger_protocol::message::{HostedPart, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::response_builder::{BlockBuilder, ResponseBuilder};
use super::super::types::{Decoder, Failure, FailureClass, Stop, StreamEvent};
use super::super::wire::{self, Text};
use super::hosted::{self, CONTAINER, CitedParts};

/// The most open blocks. A real server has one at a time; the bound keeps the lookup of each piece cheap.
pub(super) const MAX_OPEN: usize = 64;

/// One response.
#[derive(Debug, Default)]
pub(super) struct MessagesDecoder {
    answer: ResponseBuilder,
    /// The open blocks, newest last.
    open: VecDeque<OpenBlock>,
    stop_seen: bool,
    window_exceeded: bool,
    counts: Counts,
    /// The parts of the text at the end of the answer.
    parts: CitedParts,
    container: Option<String>,
}

/// A block that the provider has started.
#[derive(Debug)]
struct OpenBlock {
    /// The provider's index.
    index: u64,
    /// Its index in the answer; text and thinking get one with their first piece.
    place: Option<usize>,
}

/// Tokens as this provider counts them: `input` excludes cached tokens.
#[derive(Debug, Default)]
struct Counts {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    thinking: u64,
}

/// Any event: `type` tells which other fields are present.
#[derive(Deserialize)]
struct MessagesEvent<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<BlockDelta<'a>>,
    content_block: Option<Value>,
    message: Option<Value>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
struct BlockDelta<'a> {
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
    citation: Option<Value>,
    container: Option<Value>,
}

impl Decoder for MessagesDecoder {
    fn feed(&mut self, name: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.answer.ended {
            return;
        }
        let data = self.answer.read(data);
        let event: MessagesEvent<'_> = match serde_json::from_str(&data) {
            Ok(event) => event,
            Err(error) => match Failure::in_event(name, &data) {
                Some(failure) => return self.answer.fail(failure, out),
                None => return self.answer.unreadable("an event", &error, &data, out),
            },
        };
        match event.kind.as_ref() {
            "message_start" => self.count(event.message.as_ref().and_then(|message| message.get("usage"))),
            "content_block_stop" => self.whole(event.index, out),
            "content_block_start" => self.start(event.index, event.content_block.unwrap_or_default(), out),
            "content_block_delta" => self.delta(event.index, &event.delta.unwrap_or_default(), out),
            "message_delta" => {
                self.count(event.usage.as_ref());
                let delta = event.delta.unwrap_or_default();
                if let Some(id) = delta.container.as_ref().and_then(|container| container.get("id")?.as_str()) {
                    self.container = Some(id.to_owned());
                }
                if let Some(reason) = delta.stop_reason {
                    self.stop(&reason.0);
                }
            }
            "message_stop" => self.end(out),
            "error" => self.answer.fail(Failure::in_stream(&event.error.unwrap_or_default()), out),
            // llama.cpp's errors have a name and no `type`, or another one.
            kind if kind.is_empty() || name == "error" => {
                if let Some(failure) = Failure::in_event(name, &data) {
                    self.answer.fail(failure, out);
                }
            }
            // `ping`, and what may be added.
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        if self.stop_seen {
            self.end(out);
        } else {
            self.answer.fail_malformed("the answer broke off", out);
        }
    }

    fn usage(&self) -> Usage {
        self.answer.usage
    }

    fn gathered(&self) -> usize {
        self.answer.gathered()
    }
}

impl MessagesDecoder {
    fn start(&mut self, index: u64, block: Value, out: &mut Vec<StreamEvent>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text("type");
        let (text_start, thinking_start, signature) = (text("text"), text("thinking"), text("signature"));
        if !matches!(kind.as_str(), "text" | "") {
            self.end_text();
        } else {
            let citations = block.get("citations").and_then(Value::as_array).cloned().unwrap_or_default();
            self.parts.begin(index, citations);
        }
        let hosted = match kind.strip_suffix("_tool_result") {
            Some(name) => hosted::tool(name),
            None => hosted::tool(&text("name")).filter(|_| kind == "server_tool_use"),
        };
        let place = match kind.as_str() {
            // Text gets its content from deltas. A block without a kind, or of a user's kind, could not be sent back.
            "text" | "thinking" | "" | "image" | "tool_result" => None,
            "tool_use" => {
                let input = block.get("input").filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
                let (id, name, input) = (text("id"), text("name"), input.map(Value::to_string));
                let place =
                    self.answer.open(BlockBuilder::Call { id, name, arguments: String::new(), keep_raw: false });
                self.answer.announce(place, out);
                if let Some(input) = input {
                    self.answer.append_arguments(place, &input, out);
                }
                Some(place)
            }
            _ => Some(match (hosted, kind.as_str()) {
                (Some(tool), "server_tool_use") => self.answer.hosted(tool, HostedPart::Call, "", Some(block), out),
                (Some(tool), _) => {
                    let (part, said) = hosted::gave(&block);
                    self.answer.hosted(tool, part, &said, Some(block), out)
                }
                (None, _) => self.answer.open(BlockBuilder::Opaque { native: block, arguments: String::new() }),
            }),
        };
        self.open.retain(|open| open.index != index);
        if self.open.len() >= MAX_OPEN {
            self.open.pop_front();
        }
        self.open.push_back(OpenBlock { index, place });
        let start = |text: String| (!text.is_empty()).then_some(Text(text.into()));
        if place.is_none() {
            let (text, thinking, signature) = (start(text_start), start(thinking_start), start(signature));
            self.delta(index, &BlockDelta { text, thinking, signature, ..BlockDelta::default() }, out);
        }
    }

    fn delta(&mut self, index: u64, delta: &BlockDelta<'_>, out: &mut Vec<StreamEvent>) {
        if let Some(Text(piece)) = &delta.text
            && let Some(place) = self.place(index, piece, || BlockBuilder::Text(String::new()))
        {
            self.answer.append(place, piece, out);
            self.parts.add(index, piece.len());
        }
        if let Some(citation) = &delta.citation {
            self.parts.cite(index, citation.clone());
        }
        let thinking = || BlockBuilder::Thinking { text: String::new(), native: None };
        if let Some(Text(piece)) = &delta.thinking
            && let Some(place) = self.place(index, piece, thinking)
        {
            self.answer.append(place, piece, out);
        }
        if let Some(Text(piece)) = &delta.signature
            && let Some(place) = self.place(index, piece, thinking)
            && let Some(BlockBuilder::Thinking { native, .. }) = self.answer.blocks.get_mut(place)
        {
            match native.as_mut().and_then(|native| native.get_mut("signature")) {
                Some(Value::String(before)) => before.push_str(piece),
                _ => *native = Some(json!({"signature": piece})),
            }
            self.answer.touch(place);
        }
        if let Some(Text(piece)) = &delta.partial_json
            && let Some(OpenBlock { place: Some(place), .. }) = self.open.iter().rev().find(|open| open.index == index)
        {
            self.answer.append_arguments(*place, piece, out);
        }
    }

    /// The index for pieces of a block; creates the block for its first. `None` if the piece is empty or the block unknown.
    fn place(&mut self, index: u64, piece: &str, make: impl Fn() -> BlockBuilder) -> Option<usize> {
        if piece.is_empty() {
            return None;
        }
        let open = self.open.iter_mut().rev().find(|open| open.index == index)?;
        let answer = &mut self.answer;
        Some(*open.place.get_or_insert_with(|| {
            let draft = make();
            match (answer.blocks.last(), &draft) {
                // Citations split a text into blocks; join them without a line break.
                (Some(BlockBuilder::Text(_)), BlockBuilder::Text(_)) => answer.blocks.len() - 1,
                _ => answer.open(draft),
            }
        }))
    }

    /// Ends the text at the end of the answer; keeps its division if it has citations.
    fn end_text(&mut self) {
        let cited = std::mem::take(&mut self.parts).cited();
        if let (Some(native), Some(BlockBuilder::Text(_))) = (cited, self.answer.blocks.last()) {
            self.answer.open(BlockBuilder::Opaque { native, arguments: String::new() });
        }
    }

    /// Completes a block: the request of a hosted tool can be shown.
    fn whole(&mut self, index: u64, out: &mut Vec<StreamEvent>) {
        let open = self.open.iter().rev().find(|open| open.index == index);
        let Some(place) = open.and_then(|open| open.place) else { return };
        let Some(BlockBuilder::Hosted { part: HostedPart::Call, native: Some(block), arguments, .. }) =
            self.answer.blocks.get(place)
        else {
            return;
        };
        let input = if arguments.is_empty() { block["input"].clone() } else { wire::parse_arguments(arguments) };
        self.answer.set_hosted_text(place, &hosted::asked(&input), out);
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
            "max_tokens" => Stop::MaxTokens,
            "refusal" => Stop::Refusal,
            "pause_turn" => Stop::Paused,
            // `end_turn`, `tool_use`, `stop_sequence`.
            _ => Stop::End,
        };
    }

    fn end(&mut self, out: &mut Vec<StreamEvent>) {
        if self.window_exceeded {
            // Even after some text: the next request would only be longer.
            let message = "the context fills the model's window".to_owned();
            return self.answer.fail(Failure { class: FailureClass::TooLong, message, retry_after: None }, out);
        }
        self.end_text();
        // A signature is of the whole thinking, so it does not go back with a part.
        let split: Vec<usize> = self.answer.split().collect();
        for place in split {
            if let Some(BlockBuilder::Thinking { native, .. }) = self.answer.blocks.get_mut(place) {
                *native = None;
            }
        }
        if let Some(container) = self.container.take() {
            let native = json!({ CONTAINER: container });
            self.answer.open(BlockBuilder::Opaque { native, arguments: String::new() });
        }
        self.answer.done(out);
    }
}

#[cfg(test)]
mod tests;
