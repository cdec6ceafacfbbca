//! Think tags in formats that have blocks for thinking: some compatible servers leave the model's text as it is.
//!
//! A [`ThinkDecoder`] wraps a decoder and splits the first text of an answer as [`think_tags`](super::think_tags) does; later
//! blocks are renumbered. [`with_original_text`] is the reverse, for the encoder.
//! Chat Completions and Ollama, whose answers have one text, do this in their decoders.

use std::borrow::Cow;

use linger_protocol::message::{ContentBlock, Role, Usage};
use serde_json::{Value, json};

use super::think_tags::{CONTENT, Piece, ThinkTags, is_within_text};
use super::types::{Decoder, Message, Response, StreamEvent};
use super::wire;

/// A decoder that splits text at think tags.
pub(super) struct ThinkDecoder<D> {
    inner: D,
    /// The latest events of the decoder.
    given: Vec<StreamEvent>,
    think: ThinkTags,
    /// The block of the first text.
    first: Option<u32>,
    /// Its parts, and their lengths in bytes.
    parts: Vec<(TextPart, usize)>,
    /// A later block has begun, so its index is fixed and there are no more parts.
    closed: bool,
}

/// The kind of a part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextPart {
    Text,
    Thinking,
    Tag,
}

impl<D: Decoder> ThinkDecoder<D> {
    /// Wraps `inner`; `open` if an answer begins with thinking.
    pub(super) fn new(inner: D, open: bool) -> Self {
        let (given, first, parts) = (Vec::new(), None, Vec::new());
        // Most of these servers have blocks for thinking, so a lone closing tag is plain text.
        let think = if open { ThinkTags::new(true) } else { ThinkTags::tagged() };
        Self { inner, given, think, first, parts, closed: false }
    }

    /// The number of extra blocks from the text.
    fn more(&self) -> u32 {
        self.parts.len().saturating_sub(1) as u32
    }

    fn pass(&mut self, out: &mut Vec<StreamEvent>) {
        let mut given = std::mem::take(&mut self.given);
        for event in given.drain(..) {
            match event {
                StreamEvent::Text { block, text } if self.first.is_none_or(|first| first == block) => {
                    self.first = Some(block);
                    self.text(text, out);
                }
                StreamEvent::Text { block, text } => {
                    let block = self.moved(block, out);
                    join(out, StreamEvent::Text { block, text });
                }
                StreamEvent::Thinking { block, text } => {
                    let block = self.moved(block, out);
                    join(out, StreamEvent::Thinking { block, text });
                }
                StreamEvent::Call { block, name, text } => {
                    let block = self.moved(block, out);
                    join(out, StreamEvent::Call { block, name, text });
                }
                StreamEvent::Hosted { block, tool, part, text } => {
                    let block = self.moved(block, out);
                    out.push(StreamEvent::Hosted { block, tool, part, text });
                }
                StreamEvent::Done(response) => {
                    self.close(out);
                    let response = self.done(response);
                    out.push(StreamEvent::Done(response));
                }
                other @ (StreamEvent::Counted | StreamEvent::Native(_) | StreamEvent::Failed(_)) => out.push(other),
            }
        }
        self.given = given;
    }

    /// The new index of a block; a block after the text ends the text.
    fn moved(&mut self, block: u32, out: &mut Vec<StreamEvent>) -> u32 {
        if self.first.is_none_or(|first| block < first) {
            return block;
        }
        self.close(out);
        block + self.more()
    }

    fn text(&mut self, text: String, out: &mut Vec<StreamEvent>) {
        if self.closed {
            let part = self.parts.last().map_or(TextPart::Text, |(part, _)| *part);
            return self.add(part, text, out);
        }
        if self.think.is_plain(&text) {
            return self.add(TextPart::Text, text, out);
        }
        for piece in self.think.push(&text) {
            self.piece(piece, out);
        }
    }

    /// Releases what was held back.
    fn close(&mut self, out: &mut Vec<StreamEvent>) {
        if !std::mem::replace(&mut self.closed, true)
            && let Some(piece) = self.think.close()
        {
            self.piece(piece, out);
        }
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<StreamEvent>) {
        match piece {
            Piece::Text(text) => self.add(TextPart::Text, text, out),
            Piece::Thinking(text) => self.add(TextPart::Thinking, text, out),
            Piece::Tag(text) => self.add(TextPart::Tag, text, out),
        }
    }

    fn add(&mut self, part: TextPart, text: String, out: &mut Vec<StreamEvent>) {
        match self.parts.last_mut() {
            Some((last, bytes)) if *last == part => *bytes += text.len(),
            _ => self.parts.push((part, text.len())),
        }
        let block = self.first.unwrap_or_default() + self.more();
        match part {
            TextPart::Text => join(out, StreamEvent::Text { block, text }),
            TextPart::Thinking => join(out, StreamEvent::Thinking { block, text }),
            TextPart::Tag => {}
        }
    }

    /// The response, with the text split into its parts.
    fn done(&mut self, mut response: Response) -> Response {
        let Some(first) = self.first.map(|first| first as usize).filter(|_| self.parts.len() > 1 || self.is_thought())
        else {
            return response;
        };
        let Some(ContentBlock::Text { text }) = response.content.get(first) else { return response };
        let mut rest = text.as_str();
        let parts: Vec<ContentBlock> = self
            .parts
            .iter()
            .map(|(part, bytes)| {
                let (text, after) = rest.split_at_checked(*bytes).unwrap_or((rest, ""));
                rest = after;
                match part {
                    TextPart::Text => ContentBlock::text(text),
                    TextPart::Thinking => {
                        ContentBlock::Thinking { text: text.to_owned(), native: Some(json!({ "field": CONTENT })) }
                    }
                    TextPart::Tag => ContentBlock::Opaque { native: json!({ CONTENT: text }) },
                }
            })
            .collect();
        response.content.splice(first..=first, parts);
        response
    }

    fn is_thought(&self) -> bool {
        self.parts.iter().any(|(part, _)| *part != TextPart::Text)
    }
}

impl<D: Decoder> Decoder for ThinkDecoder<D> {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        self.inner.feed(event, data, &mut self.given);
        self.pass(out);
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        self.inner.finish(&mut self.given);
        self.pass(out);
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn gathered(&self) -> usize {
        self.inner.gathered()
    }
}

/// Adds an event; adjacent pieces of one block are joined.
fn join(out: &mut Vec<StreamEvent>, event: StreamEvent) {
    match (&event, out.last_mut()) {
        (StreamEvent::Text { block, text }, Some(StreamEvent::Text { block: last, text: before }))
        | (StreamEvent::Thinking { block, text }, Some(StreamEvent::Thinking { block: last, text: before }))
        | (StreamEvent::Call { block, text, .. }, Some(StreamEvent::Call { block: last, text: before, .. }))
            if block == last =>
        {
            before.push_str(text);
        }
        _ => out.push(event),
    }
}

/// A model's own message with its original text.
pub(super) fn with_original_text(message: &Message, own: bool) -> Cow<'_, Message> {
    let mark = |block: &ContentBlock| match block {
        ContentBlock::Opaque { native: Value::Object(fields) } if fields.len() == 1 => {
            fields.get(CONTENT).is_some_and(Value::is_string)
        }
        _ => false,
    };
    let taken_apart = |block: &ContentBlock| mark(block) || is_within_text(block);
    if !own || message.role != Role::Assistant || !message.content.iter().any(taken_apart) {
        return Cow::Borrowed(message);
    }
    let mut content: Vec<ContentBlock> = Vec::new();
    // The next text belongs to the block before it.
    let mut within = false;
    for block in &message.content {
        let apart = taken_apart(block);
        let text = match block {
            ContentBlock::Opaque { native } if apart => native[CONTENT].as_str(),
            ContentBlock::Thinking { text, .. } if apart => Some(text.as_str()),
            ContentBlock::Text { text } if within => Some(text.as_str()),
            _ => None,
        };
        match (text, content.last_mut()) {
            (Some(piece), Some(ContentBlock::Text { text })) => text.push_str(&wire::without_nul(piece)),
            (Some(piece), _) => content.push(ContentBlock::text(wire::without_nul(piece).into_owned())),
            (None, _) => content.push(block.clone()),
        }
        within = apart;
    }
    Cow::Owned(Message { content, ..message.clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::codecs::codec;
    use super::super::compat::Compat;
    use super::super::kind::ProviderKind;
    use super::super::support::{assistant, body, decode, result, shown_is_kept, user};
    use super::super::types::{Codec, Stop};
    use super::*;

    fn codecs(compat: Compat) -> [Arc<dyn Codec>; 3] {
        [ProviderKind::Anthropic, ProviderKind::OpenaiResponses, ProviderKind::Gemini]
            .map(|kind| codec(kind, compat).unwrap())
    }

    /// An answer of `pieces`, and of a call after them, as a server of each format sends it.
    fn streams(pieces: &[&str]) -> [String; 3] {
        let sse = |events: Vec<serde_json::Value>| {
            events
                .iter()
                .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("message")))
                .collect::<String>()
        };
        let messages = [
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        let more = pieces.iter().map(
            |piece| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}),
        );
        let end = [
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "ls", "input": {}}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ];
        let anthropic = sse(messages.into_iter().chain(more).chain(end).collect());
        let item = json!({"type": "function_call", "call_id": "t", "name": "ls", "arguments": "{}"});
        let begin = [json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}})];
        let more =
            pieces.iter().map(|piece| json!({"type": "response.output_text.delta", "output_index": 0, "delta": piece}));
        let end = [
            json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "message"}}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": item}),
            json!({"type": "response.output_item.done", "output_index": 1, "item": item}),
            json!({"type": "response.completed", "response": {}}),
        ];
        let responses = sse(begin.into_iter().chain(more).chain(end).collect());
        let part = |part: serde_json::Value| json!({"candidates": [{"content": {"parts": [part]}}]});
        let more = pieces.iter().map(|piece| part(json!({ "text": piece })));
        let end = [
            part(json!({"functionCall": {"name": "ls", "args": {}}})),
            json!({"candidates": [{"finishReason": "STOP"}]}),
        ];
        [anthropic, responses, sse(more.chain(end).collect())]
    }

    /// What the answers come to: text as it is, thoughts in brackets, marks in braces, and what is shown of them.
    fn sorted(compat: Compat, pieces: &[&str]) -> Vec<String> {
        let answer = |(codec, stream): (Arc<dyn Codec>, String)| {
            let events = decode(codec.as_ref(), &stream, stream.len().max(1));
            shown_is_kept(&events);
            let Some(StreamEvent::Done(Response { content, stop: Stop::End, .. })) = events.last() else {
                panic!("{events:?}")
            };
            let mut shown = [String::new(), String::new()];
            for event in &events {
                match event {
                    StreamEvent::Text { text, .. } => shown[0].push_str(text),
                    StreamEvent::Thinking { text, .. } => shown[1].push_str(text),
                    _ => {}
                }
            }
            let written = content.iter().map(|block| match block {
                ContentBlock::Text { text } => text.clone(),
                ContentBlock::Thinking { text, .. } => format!("[{text}]"),
                ContentBlock::Opaque { native } => format!("{{{}}}", native[CONTENT].as_str().unwrap()),
                ContentBlock::ToolUse { name, .. } => format!(" +{name}"),
                other => panic!("{other:?}"),
            });
            let written: String = written.collect();
            let all = |of: fn(&ContentBlock) -> Option<&str>| content.iter().filter_map(of).collect::<String>();
            let thoughts = |block: &ContentBlock| match block {
                ContentBlock::Thinking { text, .. } => Some(text.clone()),
                _ => None,
            };
            assert_eq!(shown, [all(ContentBlock::as_text), content.iter().filter_map(thoughts).collect()], "{written}");
            written
        };
        codecs(compat).into_iter().zip(streams(pieces)).map(answer).collect()
    }

    #[track_caller]
    fn check(compat: Compat, text: &str, expect: &str) {
        for cut in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
            let (before, after) = text.split_at(cut);
            assert_eq!(sorted(compat, &[before, after]), [expect; 3], "cut at {cut}");
        }
    }

    #[test]
    fn thinking_between_tags_is_thinking_in_all_formats_wherever_it_is_cut() {
        check(Compat::NONE, "<think>Hm, ä.</think>\n\nGood day", "{<think>}[Hm, ä.]{</think>\n\n}Good day +ls");
        check(Compat::NONE, "Good day", "Good day +ls");
        check(Compat::NONE, "a <b> `<think>` is a tag", "a <b> `<think>` is a tag +ls");
        check(Compat::NONE, "<think>cut", "{<think>}[cut] +ls");
        check(Compat::NONE, "<thi", "<thi +ls");
        check(Compat::NONE, " ", "  +ls");
        check(Compat::NONE, "a</think>b", "a</think>b +ls");
        check(Compat::NONE, "</think>b", "</think>b +ls");
        let open = Compat { think_open: Some(true), ..Compat::NONE };
        check(open, "Hm.</think>Good day", "[Hm.]{</think>}Good day +ls");
    }

    proptest! {
        /// Whatever a model writes goes back to it to the letter.
        #[test]
        fn an_answer_goes_back_as_it_came(
            words in prop::collection::vec(prop::sample::select(vec!["<think>", "</think>", "Hm", " ", "\n\n", "<", "ä"]), 1..8),
        ) {
            let text = words.concat();
            for (codec, stream) in codecs(Compat::NONE).into_iter().zip(streams(&words)) {
                let events = decode(codec.as_ref(), &stream, stream.len());
                let Some(StreamEvent::Done(response)) = events.last() else { panic!("{events:?}") };
                let mut content = response.content.clone();
                for block in &mut content {
                    if let ContentBlock::ToolUse { call_id, .. } = block {
                        *call_id = "c1".into();
                    }
                }
                let plain = content.iter().filter(|block| matches!(block, ContentBlock::ToolUse { .. })).cloned();
                let plain = std::iter::once(ContentBlock::text(text.as_str())).chain(plain).collect();
                let sent = |content: Vec<ContentBlock>| {
                    let messages = [user(vec![ContentBlock::text("go")]), assistant("p/m", content), user(vec![result("c1", "x")])];
                    body(codec.as_ref(), &messages)
                };
                prop_assert_eq!(sent(content), sent(plain));
            }
        }
    }
}
