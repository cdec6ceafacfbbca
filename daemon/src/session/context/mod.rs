//! Log to context: builds the messages for a model from a session's events. Pure.
//!
//! The history never changes: superseded messages are dropped, compacted ones replaced by their summary, trimmed output by a
//! placeholder; results that are not a message yet are returned separately. A turn applies its own changes with the same functions,
//! so that a loaded context equals a live one.
//! After events lost to damage, the next message is adapted to the last one ([`Context::fill_gap`]).
//! The codecs apply the rules of their formats.

pub mod compaction;
mod past;

use std::collections::{BTreeSet, HashMap, HashSet};

use linger_protocol::event::{Compacted, CompactionFailed, Event, EventBody, MessageAdded, Trimmed};
use linger_protocol::id::{CallId, MessageId, TurnId};
use linger_protocol::message::{ContentBlock, Role, Usage, text_of};

use crate::log::Stored;
use crate::provider::{Message, json_size};
use crate::session::state::recovery::result_of;
pub(super) use past::KEPT;
pub use past::Past;

/// Declares which kinds of event make a context; the compiler names a kind that stands in neither list.
macro_rules! kinds {
    (read: $($read:ident = $name:literal),*; passed_over: $($passed:ident),*;) => {
        /// The kinds of event that make a context.
        pub const KINDS: &[&str] = &[$($name),*];

        /// Whether an event is of one of [`KINDS`].
        pub fn is_read(body: &EventBody) -> bool {
            match body {
                $(EventBody::$read { .. })|* => true,
                $(EventBody::$passed { .. })|* => false,
            }
        }
    };
}

kinds! {
    read:
        Message = "message",
        MessageSuperseded = "message_superseded",
        ToolFinished = "tool_finished",
        Compacted = "compacted",
        CompactionFailed = "compaction_failed",
        Trimmed = "trimmed",
        Lost = "lost",
        Uncompacted = "uncompacted";
    passed_over:
        SessionCreated, Forked, Rewound, SessionChanged, PromptAccepted, PromptUnqueued, PromptDrafted, DraftSent, TurnStarted,
        CommandStarted, CheckStarted, ChildUpdated, ToolStarted, Checkpoint, Merged, WorktreeChanged, UndoStarted, Undone, Plan,
        BackgroundStarted, BackgroundEnded, PermissionRequested, PermissionResolved, QuestionAsked, QuestionResolved,
        ConfigConfirmed, TurnFinished, CompactionStarted, Notice, TextDelta, ThinkingDelta, ToolCallDelta, HostedDelta,
        ToolOutputDelta, CaughtUp, Unknown;
}

/// The size of a page of history, in bytes; a page and the context are in memory together.
pub const PAGE: usize = 256 << 10;

/// The heading of a summary.
pub const SUMMARY: &str =
    "[The beginning of this session was replaced by this summary. What follows it is as it was said.]\n\n";

/// Bytes per token for estimates: prose has more, code and JSON fewer.
const BYTES_A_TOKEN: u64 = 3;

/// The estimate for an image of any size, in tokens.
const IMAGE: u64 = 1600;

/// The overhead of a message, in tokens.
const FRAME: u64 = 6;

/// A context, and results that are not a message yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// The mark of each message.
    pub marks: Vec<Mark>,
    /// Results of calls of the last message.
    pub results: HashMap<CallId, ContentBlock>,
    /// Prompts of the latest turn whose messages were compacted.
    pub words: Vec<String>,
    /// The size in tokens at the last try to compact, and the model: another model may have another window.
    floor: (u64, Option<String>),
    /// The model whose provider refused its own items, and has accepted none since, as far as known.
    refused: Option<String>,
    /// The models whose providers do not accept their own items.
    withheld: BTreeSet<String>,
    /// Whether events were lost after the last message, so that the next may not fit it.
    gap: bool,
    measured: Measured,
}

/// Properties of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its id; absent for a summary.
    pub id: Option<MessageId>,
    /// Its role in the context.
    pub part: Part,
    /// Its approximate size, in tokens.
    pub tokens: u64,
}

/// The role of a message in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A summary of compacted messages.
    Summary,
    /// A prompt; true if it is the first of its turn.
    Prompt(bool),
    /// A model's answer.
    Answer,
    /// The results of the calls in the answer before it.
    Results,
}

/// A size counted by a provider or stated by an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measured {
    /// The number of first messages that it covers; 0 if nothing was counted.
    messages: usize,
    tokens: u64,
}

impl Context {
    /// Adds a message; `opens`: it is the first of its turn.
    pub fn push(&mut self, id: MessageId, mut message: Message, opens: bool) {
        if message.origin.as_ref().is_some_and(|origin| self.withheld.contains(origin)) {
            leave_out_native(&mut message);
        }
        if self.gap {
            self.fill_gap(&id, &mut message);
            if message.content.is_empty() {
                return;
            }
            self.gap = false;
        }
        let part = match message.role {
            Role::Assistant => Part::Answer,
            Role::User if message.content.iter().any(|block| result_for(block).is_some()) => Part::Results,
            Role::User => Part::Prompt(opens),
        };
        if opens {
            self.words.clear();
        }
        self.add(id, message, part);
    }

    fn add(&mut self, id: MessageId, mut message: Message, part: Part) {
        message.content.iter_mut().for_each(resource_to_text);
        self.marks.push(Mark { id: Some(id), part, tokens: estimate(&message) });
        self.messages.push(message);
    }

    /// Adapts a message to the last one after lost events: missing results get a placeholder, results without a call are dropped, and
    /// a placeholder separates two answers.
    fn fill_gap(&mut self, id: &MessageId, message: &mut Message) {
        let calls: Vec<CallId> = call_ids(&open_calls(&self.messages)).collect();
        let had = message.content.iter().any(|block| result_for(block).is_some());
        let mut results: HashMap<CallId, ContentBlock> = HashMap::new();
        message.content.retain(|block| {
            let call = result_for(block);
            results.extend(call.map(|call| (call.clone(), block.clone())));
            call.is_none()
        });
        let all = calls.into_iter().map(|call| {
            // The message may be lost while its results are known.
            let known = results.remove(&call).or_else(|| self.results.remove(&call));
            known.unwrap_or_else(|| lost_result(call))
        });
        let all: Vec<ContentBlock> = all.collect();
        if had {
            message.content.splice(0..0, all);
            return;
        }
        let (content, part) = match (message.role, self.messages.last().map(|last| last.role)) {
            _ if !all.is_empty() => (all, Part::Results),
            (Role::Assistant, None | Some(Role::Assistant)) => {
                (vec![ContentBlock::text(NO_MESSAGE)], Part::Prompt(false))
            }
            _ => return,
        };
        let between = Message { role: Role::User, content, origin: None };
        self.add(MessageId(format!("{id}-lost")), between, part);
    }

    /// Records the provider's count for the last answer and its request.
    pub fn measure(&mut self, usage: Usage) {
        let Some(last) = self.messages.last() else { return };
        let thought =
            |block: &ContentBlock| matches!(block, ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. });
        // Thinking that is not kept is not sent back.
        let gone = if last.content.iter().any(thought) { 0 } else { usage.reasoning_tokens };
        let tokens = usage.input_tokens + usage.output_tokens.saturating_sub(gone);
        if usage.input_tokens > 0 {
            self.measured = Measured { messages: self.messages.len(), tokens };
        }
    }

    /// The approximate size of a request, in tokens; `overhead` is the estimate for tools and system prompt, used only until a provider
    /// has counted.
    pub fn tokens(&self, overhead: u64) -> u64 {
        let since = self.marks.iter().skip(self.measured.messages).map(|mark| mark.tokens).sum::<u64>();
        since + if self.measured.messages == 0 { overhead } else { self.measured.tokens }
    }

    /// The estimate for its messages, in tokens, by size alone.
    pub fn estimated(&self) -> u64 {
        self.marks.iter().map(|mark| mark.tokens).sum()
    }

    /// The size when `model` last tried to compact, in tokens; 0 if never.
    pub fn floor(&self, model: &str) -> u64 {
        if self.floor.1.as_deref() == Some(model) { self.floor.0 } else { 0 }
    }

    /// Replaces everything up to the message `through` by `summary`, written by `model`; the context then has about `tokens`.
    pub fn compact(&mut self, through: &MessageId, summary: &str, tokens: u64, model: Option<String>) {
        let Some(last) = self.marks.iter().position(|mark| mark.id.as_ref() == Some(through)) else { return };
        let cut = last + 1;
        let words = self.words_before(cut);
        self.words = words;
        self.marks.drain(..cut);
        self.messages.drain(..cut);
        let content = vec![ContentBlock::text(format!("{SUMMARY}{summary}"))];
        let message = Message { role: Role::User, content, origin: None };
        self.marks.insert(0, Mark { id: None, part: Part::Summary, tokens: estimate(&message) });
        self.messages.insert(0, message);
        self.floor.1 = model;
        // The messages that it referred to may be gone.
        self.refused = None;
        self.settle(tokens);
    }

    /// Trims the results of `calls`; the context then has about `tokens`.
    pub fn trim(&mut self, calls: &[CallId], tokens: u64) {
        let calls: HashSet<&CallId> = calls.iter().collect();
        for (message, mark) in
            self.messages.iter_mut().zip(&mut self.marks).filter(|(_, mark)| mark.part == Part::Results)
        {
            for block in &mut message.content {
                if let ContentBlock::ToolResult { call_id, content, .. } = block
                    && calls.contains(call_id)
                {
                    *content = vec![ContentBlock::text(left_out(content))];
                }
            }
            mark.tokens = estimate(message);
        }
        self.settle(tokens);
    }

    /// The messages with images.
    pub fn with_images(&self) -> Vec<MessageId> {
        let messages = self.messages.iter().zip(&self.marks);
        messages
            .filter(|(message, _)| message.content.iter().any(has_image))
            .filter_map(|(_, mark)| mark.id.clone())
            .collect()
    }

    /// Replaces each image of these messages by a placeholder.
    pub fn leave_out_images(&mut self, messages: &[MessageId]) {
        self.change(messages, |message| message.content.iter_mut().for_each(without_images));
    }

    /// The messages with opaque items or thinking of `model`.
    pub fn with_native(&self, model: &str) -> Vec<MessageId> {
        let own = self.messages.iter().zip(&self.marks).filter(|(message, _)| message.origin.as_deref() == Some(model));
        own.filter(|(message, _)| message.content.iter().any(has_native))
            .filter_map(|(_, mark)| mark.id.clone())
            .collect()
    }

    /// Strips opaque items and thinking from these messages, found by [`Context::with_native`] and refused by the provider. After the
    /// second refusal without an acceptance in between, the model's later messages are stripped from the start.
    pub fn leave_out_native(&mut self, messages: &[MessageId]) {
        let meant = |mark: &Mark| mark.id.as_ref().is_some_and(|id| messages.contains(id));
        let of = |at: usize| self.messages.get(at).and_then(|message| message.origin.clone());
        let model = self.marks.iter().position(meant).and_then(of);
        // A later answer would prove that the items were accepted.
        let latest = self.messages.iter().rposition(|message| message.origin == model);
        let at_once = messages.len() == 1 && latest.and_then(|at| self.marks.get(at)).is_some_and(meant);
        if at_once && self.refused == model {
            self.withheld.extend(model.clone());
        }
        self.refused = model;
        self.change(messages, leave_out_native);
    }

    fn change(&mut self, messages: &[MessageId], with: impl Fn(&mut Message)) {
        let meant: HashSet<&MessageId> = messages.iter().collect();
        for (at, (message, mark)) in self.messages.iter_mut().zip(&mut self.marks).enumerate() {
            if mark.id.as_ref().is_some_and(|id| meant.contains(id)) {
                with(message);
                let before = std::mem::replace(&mut mark.tokens, estimate(message));
                if at < self.measured.messages {
                    self.measured.tokens = self.measured.tokens.saturating_sub(before.saturating_sub(mark.tokens));
                }
            }
        }
    }

    /// Records that `model` failed to write a summary when the context had about `tokens`.
    pub fn gave_up(&mut self, tokens: u64, model: String) {
        self.floor = (tokens, Some(model));
    }

    /// The prompts before `cut` of the turn that `cut` divides.
    pub fn words_before(&self, cut: usize) -> Vec<String> {
        let opens = |mark: &Mark| mark.part == Part::Prompt(true);
        if self.marks.get(cut).is_some_and(opens) {
            return Vec::new();
        }
        let before = self.marks.get(..cut).unwrap_or_default();
        let opened = before.iter().rposition(opens);
        let kept = if opened.is_some() { Vec::new() } else { self.words.clone() };
        let of_turn = before.iter().zip(&self.messages).skip(opened.unwrap_or_default());
        let prompts = of_turn.filter(|(mark, _)| matches!(mark.part, Part::Prompt(_)));
        kept.into_iter().chain(prompts.map(|(_, message)| text_of(&message.content))).collect()
    }

    fn settle(&mut self, tokens: u64) {
        self.measured = Measured { messages: self.messages.len(), tokens };
        self.floor.0 = tokens;
    }
}

/// The placeholder of a result that was lost to damage.
const NO_RESULT: &str = "[the result of this call is lost; it may have run]";

/// The placeholder of messages between two answers that were lost to damage.
const NO_MESSAGE: &str = "[the messages here are lost]";

/// The call that a block is the result of.
fn result_for(block: &ContentBlock) -> Option<&CallId> {
    match block {
        ContentBlock::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    }
}

/// The placeholder of an image that the model refused.
const NO_IMAGE: &str = "[an image was left out: the model did not take it]";

/// Replaces resources, and links to them, by the text that a model reads.
fn resource_to_text(block: &mut ContentBlock) {
    match block {
        ContentBlock::ToolResult { content, .. } => content.iter_mut().for_each(resource_to_text),
        other => {
            if let Some(text) = other.resource_text() {
                *other = ContentBlock::text(text);
            }
        }
    }
}

fn is_cut_call(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::CutToolUse { .. })
}

fn has_image(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Image { .. } => true,
        ContentBlock::ToolResult { content, .. } => content.iter().any(has_image),
        _ => false,
    }
}

fn without_images(block: &mut ContentBlock) {
    match block {
        ContentBlock::Image { .. } => *block = ContentBlock::text(NO_IMAGE),
        ContentBlock::ToolResult { content, .. } => content.iter_mut().for_each(without_images),
        _ => {}
    }
}

fn has_native(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } => true,
        ContentBlock::ToolUse { native, .. } | ContentBlock::Hosted { native, .. } => native.is_some(),
        _ => false,
    }
}

fn leave_out_native(message: &mut Message) {
    message.origin = None;
    message.content.retain_mut(is_left_without_native);
}

/// Strips a block of its provider's opaque items; false if nothing is left.
fn is_left_without_native(block: &mut ContentBlock) -> bool {
    match block {
        ContentBlock::Thinking { native, .. }
        | ContentBlock::ToolUse { native, .. }
        | ContentBlock::Hosted { native, .. } => {
            *native = None;
            true
        }
        ContentBlock::Opaque { .. } => false,
        _ => true,
    }
}

/// The placeholder of trimmed output.
fn left_out(content: &[ContentBlock]) -> String {
    let bytes: usize = content.iter().filter_map(ContentBlock::as_text).map(str::len).sum();
    let images = content.iter().filter(|block| matches!(block, ContentBlock::Image { .. })).count();
    let images = if images > 0 { format!(" and {images} images") } else { String::new() };
    format!("[{bytes} bytes{images} of output were left out to make room; call the tool again if they are needed]")
}

/// The estimate for a message, in tokens.
pub fn estimate(message: &Message) -> u64 {
    FRAME + message.content.iter().map(size).sum::<u64>()
}

/// The estimate for text of this size, in tokens.
pub fn of_bytes(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_A_TOKEN)
}

/// The estimate for this many tokens, in bytes.
pub fn bytes(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(BYTES_A_TOKEN)).unwrap_or(usize::MAX)
}

/// The estimate for a block, in tokens.
pub fn size(block: &ContentBlock) -> u64 {
    match block {
        ContentBlock::Text { text } => of_bytes(text.len()),
        ContentBlock::Image { .. } => IMAGE,
        ContentBlock::ToolResult { content, .. } => FRAME + content.iter().map(size).sum::<u64>(),
        other => of_bytes(json_size(other)),
    }
}

/// Builds a context from the events of [`KINDS`], page by page.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    context: Context,
    /// The last message's turn.
    turn: Option<TurnId>,
}

impl Builder {
    /// Adds the next events; fails if one is malformed.
    pub fn add(&mut self, page: &[Stored]) -> Result<(), serde_json::Error> {
        for stored in page {
            self.event(serde_json::from_str(&stored.data)?);
        }
        Ok(())
    }

    /// Adds the next event.
    pub fn event(&mut self, event: Event) {
        let context = &mut self.context;
        match event.body {
            // Interrupted before any text was shown: no provider accepts an empty message, or half a call.
            EventBody::Message(MessageAdded { interrupted: true, content, .. }) if content.iter().all(is_cut_call) => {}
            EventBody::Message(MessageAdded { message, role, mut content, model, usage, interrupted, .. }) => {
                content.retain(|block| !is_cut_call(block));
                let opens = role == Role::User && event.turn != self.turn;
                self.turn = event.turn;
                context.push(message, Message { role, content, origin: model }, opens);
                if role == Role::User {
                    context.results.clear();
                }
                if let Some(usage) = usage.filter(|_| !interrupted) {
                    context.measure(usage);
                }
            }
            EventBody::MessageSuperseded { message } => {
                // Search from the end: its step is the latest.
                if let Some(at) = context.marks.iter().rposition(|mark| mark.id.as_ref() == Some(&message)) {
                    context.marks.remove(at);
                    context.messages.remove(at);
                    // The count may have been made without it.
                    if at < context.measured.messages {
                        context.measured.messages -= 1;
                    }
                }
            }
            EventBody::Compacted(Compacted { through, summary, tokens_after, model, .. }) => {
                context.compact(&through, &summary, tokens_after, model);
            }
            // Without a model nothing was old enough; the next step checks again.
            EventBody::CompactionFailed(CompactionFailed { tokens, model, .. }) => {
                if let Some(model) = model {
                    context.gave_up(tokens, model);
                }
            }
            EventBody::Trimmed(Trimmed { images, .. }) if !images.is_empty() => context.leave_out_images(&images),
            EventBody::Trimmed(Trimmed { native, .. }) if !native.is_empty() => context.leave_out_native(&native),
            EventBody::Trimmed(Trimmed { calls, tokens_after, .. }) => context.trim(&calls, tokens_after),
            // The counts since are of a context with the summary.
            EventBody::Uncompacted(_) => context.measured = Measured::default(),
            EventBody::Lost { .. } => context.gap = true,
            body @ EventBody::ToolFinished(_) => context.results.extend(result_of(&body)),
            body => debug_assert!(!is_read(&body), "a kind that makes a context is ignored"),
        }
    }

    /// Finishes the context after the last event.
    pub fn finish(self) -> Context {
        self.context
    }
}

/// The placeholder result of a call whose result was lost to damage.
pub fn lost_result(call_id: CallId) -> ContentBlock {
    ContentBlock::ToolResult { call_id, is_error: true, content: vec![ContentBlock::text(NO_RESULT)] }
}

/// The calls among these blocks.
pub fn call_ids(blocks: &[ContentBlock]) -> impl Iterator<Item = CallId> {
    blocks.iter().filter_map(|block| match block {
        ContentBlock::ToolUse { call_id, .. } => Some(call_id.clone()),
        _ => None,
    })
}

/// The calls of the last message, if they have no results yet.
pub fn open_calls(messages: &[Message]) -> Vec<ContentBlock> {
    let last = messages.last().filter(|message| message.role == Role::Assistant);
    let blocks = last.map(|message| message.content.as_slice()).unwrap_or_default();
    blocks.iter().filter(|block| matches!(block, ContentBlock::ToolUse { .. })).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_kinds_that_make_a_context_are_named_as_on_the_wire() {
        for name in KINDS {
            // A known kind lacks its fields.
            let read = serde_json::from_value::<EventBody>(json!({ "kind": name }));
            assert!(read.is_err(), "{name} is no kind of event");
        }
        let lost = EventBody::Lost { first: 1, last: 1 };
        assert!(is_read(&lost) && KINDS.contains(&<&str>::from(&lost)));
    }
}
