//! Builds the response in a decoder: growing blocks, their events, and bounds.
//!
//! Every decoder has one [`ResponseBuilder`], which keeps blocks, order, sizes and the one terminal event.
//! Deliberately absent: anything of a single format, and reading JSON (`wire`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, Usage};
use serde_json::{Map, Value, json};

use super::call_text::{self, CallText};
use super::failure::whole_line;
use super::types::{Failure, FailureClass, Response, Stop, StreamEvent};
use super::wire::{json_size, parse_arguments, set, with_good_escapes};

/// The most bytes of arguments in one answer: far above any file that a model writes.
const MAX_ARGUMENTS: usize = 8 << 20;

/// The most bytes of text and thinking in one answer: thirty times what the longest answers have.
const MAX_TEXT: usize = 16 << 20;

/// How much of an unreadable piece is shown, in characters.
const MAX_PIECE: usize = 120;

/// The most blocks in one answer; models write a handful, and a few dozen calls at most.
const MAX_BLOCKS: usize = 512;

/// The largest answer, in bytes of JSON: it becomes one event, which has to stay below a client's limit.
const MAX_ANSWER: usize = linger_protocol::transport::MAX_EVENT / 2;

/// A response that is being received.
#[derive(Debug, Default)]
pub(super) struct ResponseBuilder {
    /// Becomes [`Response::content`], one to one: a block is only created with content.
    pub(super) blocks: Vec<BlockBuilder>,
    pub(super) stop: Stop,
    pub(super) usage: Usage,
    /// The terminal event was emitted.
    pub(super) ended: bool,
    /// Bytes of arguments so far.
    arguments: usize,
    /// Bytes of text and thinking so far.
    text: usize,
    /// It has more than [`MAX_BLOCKS`].
    overfull: bool,
    /// Whether escapes were replaced in what is read now.
    is_altered: bool,
    /// The blocks with a piece of that. What is opaque in them is not what the provider wrote, so it does not go back.
    altered: BTreeSet<usize>,
    /// The calls that were announced, by block.
    announced: BTreeMap<usize, CallText>,
    /// The last block of which something was shown. Readers have a position in one block, so nothing before it is shown any more.
    shown: usize,
    /// Where the text of a block goes on that came when a later block had been shown.
    continued: BTreeMap<usize, usize>,
}

/// A block that is being received.
#[derive(Debug)]
pub(super) enum BlockBuilder {
    Text(String),
    Thinking {
        text: String,
        native: Option<Value>,
    },
    Call {
        id: String,
        name: String,
        arguments: String,
        keep_raw: bool,
    },
    Opaque {
        native: Value,
        arguments: String,
    },
    /// The input or output of a hosted tool.
    Hosted {
        tool: HostedTool,
        part: HostedPart,
        text: String,
        native: Option<Value>,
        arguments: String,
    },
    /// A call that came in one piece, with the provider's own data.
    Whole {
        name: String,
        arguments: String,
        native: Option<Value>,
    },
}

impl ResponseBuilder {
    /// The data that came, with bad escapes replaced.
    pub(super) fn read<'a>(&mut self, data: &'a str) -> Cow<'a, str> {
        let good = with_good_escapes(data);
        self.is_altered = matches!(good, Cow::Owned(_));
        good
    }

    /// Notes that a block has a piece of what is read now.
    pub(super) fn touch(&mut self, index: usize) {
        if self.is_altered {
            self.altered.insert(index);
        }
    }

    /// Adds a block and returns its index. A block beyond the limit is not added; the next size check fails the response.
    pub(super) fn open(&mut self, draft: BlockBuilder) -> usize {
        if self.blocks.len() >= MAX_BLOCKS {
            self.overfull = true;
        } else {
            self.blocks.push(draft);
            self.touch(self.blocks.len() - 1);
        }
        self.blocks.len() - 1
    }

    /// Adds `piece` to the last block if it is text, else to a new one.
    pub(super) fn text(&mut self, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let place = match self.blocks.len().checked_sub(1) {
            Some(last) if matches!(self.blocks.last(), Some(BlockBuilder::Text(_))) => last,
            _ => self.open(BlockBuilder::Text(String::new())),
        };
        self.append(place, piece, out);
    }

    /// Adds hidden text, which came in this field, to the last block or a new one.
    pub(super) fn hidden(&mut self, field: &str, piece: &str, out: &mut Vec<StreamEvent>) {
        self.text += piece.len();
        self.check_size(out);
        if self.ended || piece.is_empty() {
            return;
        }
        let last = self.blocks.len().saturating_sub(1);
        if let Some(BlockBuilder::Opaque { native, .. }) = self.blocks.last_mut()
            && let Some(Value::String(before)) = native.get_mut(field)
        {
            before.push_str(piece);
            return self.touch(last);
        }
        self.open(BlockBuilder::Opaque { native: json!({ field: piece }), arguments: String::new() });
    }

    /// Adds `piece` to the last block if it is thinking with this `native`, else to a new one.
    pub(super) fn thinking(&mut self, native: Option<Value>, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let place = match (self.blocks.len().checked_sub(1), self.blocks.last()) {
            (Some(last), Some(BlockBuilder::Thinking { native: known, .. })) if *known == native => last,
            _ => self.open(BlockBuilder::Thinking { text: String::new(), native }),
        };
        self.append(place, piece, out);
    }

    /// A measure of progress: blocks, and bytes of text, thinking and arguments.
    pub(super) fn gathered(&self) -> usize {
        self.blocks.len() + self.text + self.arguments
    }

    /// Fails the response if it exceeds a bound.
    pub(super) fn check_size(&mut self, out: &mut Vec<StreamEvent>) {
        let message = if self.overfull {
            format!("the answer has more than {MAX_BLOCKS} blocks")
        } else if self.text > MAX_TEXT {
            format!("the model wrote more than {} MiB of text", MAX_TEXT >> 20)
        } else if self.arguments > MAX_ARGUMENTS {
            format!("the model wrote more than {} MiB of tool arguments", MAX_ARGUMENTS >> 20)
        } else {
            return;
        };
        self.fail(Failure { class: FailureClass::Rejected, message, retry_after: None }, out);
    }

    /// The blocks whose text goes on in a later one.
    pub(super) fn split(&self) -> impl Iterator<Item = usize> {
        self.continued.keys().copied()
    }

    /// The block for the next piece of a text or thinking block: a new one where a later block has been shown, because readers
    /// are past it.
    fn end_of(&mut self, index: usize) -> usize {
        let last = self.continued.get(&index).copied().unwrap_or(index);
        if last >= self.shown {
            return last;
        }
        let draft = match self.blocks.get(index) {
            Some(BlockBuilder::Text(_)) => BlockBuilder::Text(String::new()),
            Some(BlockBuilder::Thinking { .. }) => BlockBuilder::Thinking { text: String::new(), native: None },
            _ => return index,
        };
        let new = self.open(draft);
        self.continued.insert(index, new);
        new
    }

    /// Adds `piece` to a text or thinking block, or to the block in which its text goes on, unless ended.
    pub(super) fn append(&mut self, index: usize, piece: &str, out: &mut Vec<StreamEvent>) {
        if self.ended || piece.is_empty() {
            return;
        }
        let index = self.end_of(index);
        let block = index as u32;
        self.text += piece.len();
        self.check_size(out);
        if self.ended {
            return;
        }
        self.touch(index);
        self.shown = self.shown.max(index);
        match self.blocks.get_mut(index) {
            Some(BlockBuilder::Text(text)) => {
                text.push_str(piece);
                match out.last_mut() {
                    Some(StreamEvent::Text { block: last, text }) if *last == block => text.push_str(piece),
                    _ => out.push(StreamEvent::Text { block, text: piece.to_owned() }),
                }
            }
            Some(BlockBuilder::Thinking { text, .. }) => {
                text.push_str(piece);
                match out.last_mut() {
                    Some(StreamEvent::Thinking { block: last, text }) if *last == block => text.push_str(piece),
                    _ => out.push(StreamEvent::Thinking { block, text: piece.to_owned() }),
                }
            }
            _ => {}
        }
    }

    /// Adds `piece` to the arguments of a call.
    pub(super) fn append_arguments(&mut self, index: usize, piece: &str, out: &mut Vec<StreamEvent>) {
        self.arguments += piece.len();
        self.check_size(out);
        if self.ended {
            return;
        }
        self.touch(index);
        if let Some(
            BlockBuilder::Call { arguments, .. }
            | BlockBuilder::Opaque { arguments, .. }
            | BlockBuilder::Whole { arguments, .. }
            | BlockBuilder::Hosted { arguments, .. },
        ) = self.blocks.get_mut(index)
        {
            arguments.push_str(piece);
        }
        if self.announced.contains_key(&index) {
            self.show_arguments(index, piece, out);
        } else {
            self.announce(index, out);
        }
    }

    /// Shows that a call is coming, once its name is known, with what came of its arguments before that.
    pub(super) fn announce(&mut self, index: usize, out: &mut Vec<StreamEvent>) {
        if self.ended || index < self.shown || self.announced.contains_key(&index) {
            return;
        }
        self.show(index, call_text::BEGIN, out);
        let so_far = match self.blocks.get(index) {
            Some(BlockBuilder::Call { arguments, .. } | BlockBuilder::Whole { arguments, .. }) => arguments.clone(),
            _ => return,
        };
        self.show_arguments(index, &so_far, out);
    }

    /// Shows what a piece adds to the arguments of an announced call.
    fn show_arguments(&mut self, index: usize, piece: &str, out: &mut Vec<StreamEvent>) {
        let mut text = String::new();
        if let Some(call) = self.announced.get_mut(&index).filter(|_| index >= self.shown) {
            call.push(piece, &mut text);
        }
        if !text.is_empty() {
            self.show(index, &text, out);
        }
    }

    fn show(&mut self, index: usize, piece: &str, out: &mut Vec<StreamEvent>) {
        let Some(BlockBuilder::Call { name, .. } | BlockBuilder::Whole { name, .. }) = self.blocks.get(index) else {
            return;
        };
        if !call_text::is_shown(name) {
            return;
        }
        self.announced.entry(index).or_default();
        self.shown = index;
        let block = index as u32;
        match out.last_mut() {
            Some(StreamEvent::Call { block: last, text, .. }) if *last == block => text.push_str(piece),
            _ => out.push(StreamEvent::Call { block, name: name.clone(), text: piece.to_owned() }),
        }
    }

    /// Adds the input or output of a hosted tool; `native` goes back to the provider.
    pub(super) fn hosted(
        &mut self,
        tool: HostedTool,
        part: HostedPart,
        text: &str,
        native: Option<Value>,
        out: &mut Vec<StreamEvent>,
    ) -> usize {
        if part == HostedPart::Call {
            // Providers charge for their tools, and report it in no common way.
            self.usage.cost_at_least = true;
        }
        let place =
            self.open(BlockBuilder::Hosted { tool, part, text: String::new(), native, arguments: String::new() });
        self.set_hosted_text(place, text, out);
        place
    }

    /// Sets the text of a hosted tool's block, once, and unless readers are past it.
    pub(super) fn set_hosted_text(&mut self, index: usize, said: &str, out: &mut Vec<StreamEvent>) {
        if self.ended || said.is_empty() {
            return;
        }
        self.text += said.len();
        self.check_size(out);
        if let Some(BlockBuilder::Hosted { tool, part, text, .. }) = self.blocks.get_mut(index)
            && !self.ended
            && text.is_empty()
            && index >= self.shown
        {
            text.push_str(said);
            self.shown = index;
            out.push(StreamEvent::Hosted { block: index as u32, tool: *tool, part: *part, text: said.to_owned() });
        }
    }

    /// Ends with `Done`.
    pub(super) fn done(&mut self, out: &mut Vec<StreamEvent>) {
        self.check_size(out);
        if !self.ended {
            let content: Vec<ContentBlock> = std::mem::take(&mut self.blocks)
                .into_iter()
                .enumerate()
                .map(|(index, block)| {
                    let closed = block.close();
                    if self.altered.contains(&index) { without_opaque(closed) } else { closed }
                })
                .collect();
            if json_size(&content) > MAX_ANSWER {
                let message = format!("the answer is larger than {} MiB", MAX_ANSWER >> 20);
                return self.fail(Failure { class: FailureClass::Rejected, message, retry_after: None }, out);
            }
            self.ended = true;
            let has_calls = content.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. }));
            let stop = if self.stop == Stop::NoCalls && has_calls { Stop::End } else { self.stop };
            out.push(StreamEvent::Done(Response { content, stop, usage: self.usage }));
        }
    }

    /// Ends with `Failed`.
    pub(super) fn fail(&mut self, failure: Failure, out: &mut Vec<StreamEvent>) {
        if !std::mem::replace(&mut self.ended, true) {
            out.push(StreamEvent::Failed(failure));
        }
    }

    /// Ends with `Failed`, because a piece of the stream cannot be read; says the beginning of it.
    pub(super) fn unreadable(&mut self, what: &str, error: &serde_json::Error, data: &str, out: &mut Vec<StreamEvent>) {
        let line = whole_line(data);
        let piece: String = line.chars().take(MAX_PIECE).collect();
        let more = if piece.len() < line.len() { " …" } else { "" };
        self.fail_malformed(format!("the provider sent {what} that makes no sense: {error}: {piece}{more}"), out);
    }

    /// Ends with `Failed`, because the stream is malformed.
    pub(super) fn fail_malformed(&mut self, message: impl Into<String>, out: &mut Vec<StreamEvent>) {
        self.fail(Failure { class: FailureClass::Stream, message: message.into(), retry_after: None }, out);
    }
}

impl BlockBuilder {
    fn close(self) -> ContentBlock {
        match self {
            Self::Text(text) => ContentBlock::Text { text },
            Self::Thinking { text, native } => ContentBlock::Thinking { text, native },
            Self::Call { id, name, arguments, keep_raw } => {
                let input = parse_arguments(&arguments);
                let mut native = Map::new();
                if !id.is_empty() {
                    native.insert("id".to_owned(), id.into());
                }
                let canonical = input.to_string();
                if keep_raw && input.is_object() && arguments.contains('{') && canonical != arguments {
                    native.insert("arguments".to_owned(), with_good_escapes(&arguments).into());
                }
                let native = (!native.is_empty()).then_some(Value::Object(native));
                ContentBlock::ToolUse { call_id: CallId::default(), name, input, native }
            }
            Self::Hosted { tool, part, text, mut native, arguments } => {
                if let (Some(native), Ok(input)) =
                    (&mut native, serde_json::from_str::<Value>(&with_good_escapes(&arguments)))
                {
                    set(native, "input", input);
                }
                ContentBlock::Hosted { tool, part, text, native }
            }
            Self::Opaque { mut native, arguments } => {
                if let Ok(input) = serde_json::from_str::<Value>(&arguments) {
                    set(&mut native, "input", input);
                }
                ContentBlock::Opaque { native }
            }
            Self::Whole { name, arguments, native } => {
                ContentBlock::ToolUse { call_id: CallId::default(), name, input: parse_arguments(&arguments), native }
            }
        }
    }
}

/// A block of which some came altered, without what its provider would compare with what it wrote: signed or encrypted items.
fn without_opaque(block: ContentBlock) -> ContentBlock {
    match block {
        // A field is the name of where plain thinking came.
        ContentBlock::Thinking { text, native } => {
            ContentBlock::Thinking { text, native: native.filter(|native| native.get("field").is_some()) }
        }
        ContentBlock::Opaque { .. } => ContentBlock::Opaque { native: json!({}) },
        ContentBlock::Hosted { tool, part, text, .. } => ContentBlock::Hosted { tool, part, text, native: None },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The terminal event of a response that `fill` builds.
    fn ended(fill: impl FnOnce(&mut ResponseBuilder, &mut Vec<StreamEvent>)) -> Result<usize, String> {
        let (mut answer, mut out) = (ResponseBuilder::default(), Vec::new());
        fill(&mut answer, &mut out);
        answer.done(&mut out);
        match out.pop() {
            Some(StreamEvent::Done(response)) => Ok(response.content.len()),
            Some(StreamEvent::Failed(failure)) => Err(failure.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_is_shown_once_it_has_a_name_and_never_behind_a_later_block() {
        let call = |name: &str| BlockBuilder::Call {
            id: String::new(),
            name: name.to_owned(),
            arguments: String::new(),
            keep_raw: false,
        };
        let (mut answer, mut out) = (ResponseBuilder::default(), Vec::new());
        let first = answer.open(call(""));
        answer.announce(first, &mut out);
        answer.append_arguments(first, "{\"lost", &mut out);
        assert_eq!(out, []);
        let second = answer.open(call("ls"));
        answer.append_arguments(second, "{ \"a\"", &mut out);
        answer.append_arguments(first, "\": 1}", &mut out);
        answer.append_arguments(second, " : 1 }", &mut out);
        let long = answer.open(call(&"n".repeat(1000)));
        answer.append_arguments(long, "{}", &mut out);
        let late = answer.open(call(""));
        answer.append_arguments(late, "{\"b\"", &mut out);
        if let Some(BlockBuilder::Call { name, .. }) = answer.blocks.get_mut(late) {
            *name = "late".to_owned();
        }
        answer.append_arguments(late, ":2}", &mut out);
        let shown = |block: u32, name: &str, text: &str| StreamEvent::Call {
            block,
            name: name.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(out, [shown(1, "ls", "{\"a\":1}"), shown(3, "late", "{\"b\":2}")]);
    }

    #[test]
    fn text_of_a_block_behind_a_shown_one_goes_on_in_a_new_block() {
        let (mut answer, mut out) = (ResponseBuilder::default(), Vec::new());
        let thinking = answer.open(BlockBuilder::Thinking { text: String::new(), native: None });
        answer.append(thinking, "h", &mut out);
        let text = answer.open(BlockBuilder::Text(String::new()));
        answer.append(text, "a", &mut out);
        let hosted = answer.hosted(HostedTool::WebSearch, HostedPart::Call, "", None, &mut out);
        let name = "ls".to_owned();
        let call = answer.open(BlockBuilder::Whole { name: name.clone(), arguments: String::new(), native: None });
        answer.announce(call, &mut out);
        answer.append(text, "b", &mut out);
        answer.append(thinking, "m", &mut out);
        answer.append(text, "c", &mut out);
        answer.append(text, "", &mut out);
        answer.append_arguments(call, "{}", &mut out);
        answer.set_hosted_text(hosted, "late", &mut out);
        answer.append(text, "d", &mut out);
        let shown = |block: u32, text: &str| StreamEvent::Text { block, text: text.to_owned() };
        let thought = |block: u32, text: &str| StreamEvent::Thinking { block, text: text.to_owned() };
        let called = StreamEvent::Call { block: 3, name, text: call_text::BEGIN.to_owned() };
        assert_eq!(
            out,
            [thought(0, "h"), shown(1, "a"), called, shown(4, "b"), thought(5, "m"), shown(6, "cd")],
            "no block is before the one that was shown last"
        );
        answer.done(&mut out);
        let Some(StreamEvent::Done(Response { content, .. })) = out.pop() else { panic!("it is done") };
        let texts: Vec<_> = content.iter().filter_map(ContentBlock::as_text).collect();
        assert_eq!((content.len(), texts), (7, vec!["a", "b", "cd"]));
        let ContentBlock::Hosted { text, .. } = &content[2] else { panic!("{content:?}") };
        assert_eq!(text, "", "what readers cannot be shown is not stored");
    }

    #[test]
    fn an_answer_that_is_too_large_fails_and_says_why() {
        let blocks =
            |n: usize| ended(|answer, _| (0..n).for_each(|_| _ = answer.open(BlockBuilder::Text(String::new()))));
        assert_eq!(blocks(MAX_BLOCKS), Ok(MAX_BLOCKS));
        assert_eq!(blocks(MAX_BLOCKS + 1), Err("the answer has more than 512 blocks".to_owned()));
        let text = |bytes: usize| {
            ended(|answer, out| {
                let place = answer.open(BlockBuilder::Text(String::new()));
                answer.append(place, &"x".repeat(bytes), out);
            })
        };
        assert_eq!(text(MAX_TEXT), Ok(1));
        assert_eq!(text(MAX_TEXT + 1), Err("the model wrote more than 16 MiB of text".to_owned()));
        let arguments = ended(|answer, out| {
            let call = BlockBuilder::Call {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
                keep_raw: false,
            };
            let place = answer.open(call);
            answer.append_arguments(place, &"x".repeat(MAX_ARGUMENTS + 1), out);
        });
        assert_eq!(arguments, Err("the model wrote more than 8 MiB of tool arguments".to_owned()));
        let opaque = ended(|answer, _| {
            let native = json!("x".repeat(MAX_ANSWER));
            answer.open(BlockBuilder::Opaque { native, arguments: String::new() });
        });
        assert_eq!(opaque, Err("the answer is larger than 32 MiB".to_owned()));
    }
}
