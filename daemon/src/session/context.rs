//! Log to context: what a model is sent, built from the events of a session. Pure.
//!
//! The history is never changed: superseded messages are left out, what was compacted is replaced by its summary, output that
//! was trimmed by a word about it; and calls whose results are not a message yet are returned beside. A turn applies what it
//! does with the same functions, so that a context that was loaded and one that was lived through are the same.
//! Where events were lost to damage, what follows them is made to fit what there is ([`Context::mend`]).
//! The codecs see to the rules of their format.

use std::collections::{BTreeSet, HashMap, HashSet};

use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{CallId, MessageId, TurnId};
use linger_protocol::message::{ContentBlock, Role, Usage, text_of};

use super::recovery::result_of;
use crate::log::Stored;
use crate::provider::{Message, json_size};

/// The kinds of event that a context is built from.
pub const KINDS: &[&str] =
    &["message", "message_superseded", "tool_finished", "compacted", "compaction_failed", "trimmed", "lost"];

/// How much of a history is read and parsed at once, in bytes; it is in memory beside the context that it becomes a part of.
pub const PAGE: usize = 256 << 10;

/// What stands before a summary.
pub const SUMMARY: &str =
    "[The beginning of this session was replaced by this summary. What follows it is as it was said.]\n\n";

/// About how many bytes are a token: prose has more, code and JSON fewer.
const BYTES_A_TOKEN: u64 = 3;

/// About how many tokens an image is, whatever its size in bytes.
const IMAGE: u64 = 1600;

/// What a message costs beside its text, in tokens.
const FRAME: u64 = 6;

/// A context, and what is not a message yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// What is known of each of them.
    pub marks: Vec<Mark>,
    /// Results of calls of the last message.
    pub results: HashMap<CallId, ContentBlock>,
    /// The user's words of the latest turn that are not in a message any more.
    pub words: Vec<String>,
    /// How large the context was when it was last compacted, or could not be, in tokens, and for which model: for another one,
    /// with another window, that is no reason to wait.
    floor: (u64, Option<String>),
    /// The model whose provider refused what was brought back to it, and has taken nothing of the kind since, as far as is known.
    refused: Option<String>,
    /// The models whose providers do not take back what they gave.
    withheld: BTreeSet<String>,
    /// Events were lost after the last message: the next one may not fit it.
    gap: bool,
    measured: Measured,
}

/// What is known of a message of the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its name; a summary has none.
    pub id: Option<MessageId>,
    /// What it is.
    pub part: Part,
    /// About how many tokens it has.
    pub tokens: u64,
}

/// What a message of the context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What stands for messages that were replaced.
    Summary,
    /// A user's words; whether they are the first of a turn.
    Prompt(bool),
    /// A model's answer.
    Answer,
    /// The results of the calls of the answer before it.
    Results,
}

/// What a provider counted, or an event says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measured {
    /// How many of the first messages it is about; none if nothing was counted.
    messages: usize,
    tokens: u64,
}

impl Context {
    /// Adds a message; `opens` says that it is the first of its turn.
    pub fn push(&mut self, id: MessageId, mut message: Message, opens: bool) {
        if message.origin.as_ref().is_some_and(|origin| self.withheld.contains(origin)) {
            leave_out_native(&mut message);
        }
        if self.gap {
            self.mend(&id, &mut message);
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

    fn add(&mut self, id: MessageId, message: Message, part: Part) {
        self.marks.push(Mark { id: Some(id), part, tokens: estimate(&message) });
        self.messages.push(message);
    }

    /// Makes a message fit the last one, although what was between them is lost: calls get a word in the place of each result
    /// that is not there, results without their call are left out, and somebody speaks between two answers.
    fn mend(&mut self, id: &MessageId, message: &mut Message) {
        let calls: Vec<CallId> = call_ids(&open_calls(&self.messages)).collect();
        let had = message.content.iter().any(|block| result_for(block).is_some());
        let mut results: HashMap<CallId, ContentBlock> = HashMap::new();
        message.content.retain(|block| {
            let call = result_for(block);
            results.extend(call.map(|call| (call.clone(), block.clone())));
            call.is_none()
        });
        let all = calls.into_iter().map(|call| {
            // Only the message may be lost, and not what was to be in it.
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

    /// Notes what the provider counted for the request that the last message answers, and for that message.
    pub fn measure(&mut self, usage: Usage) {
        let Some(last) = self.messages.last() else { return };
        let thought =
            |block: &ContentBlock| matches!(block, ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. });
        // Thinking that is not kept does not come back.
        let gone = if last.content.iter().any(thought) { 0 } else { usage.reasoning_tokens };
        let tokens = usage.input_tokens + usage.output_tokens.saturating_sub(gone);
        if usage.input_tokens > 0 {
            self.measured = Measured { messages: self.messages.len(), tokens };
        }
    }

    /// About how many tokens a request with this context has; `overhead` is what tools and system prompt are estimated at, and
    /// counts only while no provider has counted anything.
    pub fn tokens(&self, overhead: u64) -> u64 {
        let since = self.marks.iter().skip(self.measured.messages).map(|mark| mark.tokens).sum::<u64>();
        since + if self.measured.messages == 0 { overhead } else { self.measured.tokens }
    }

    /// About how many tokens its messages have, by their size alone.
    pub fn estimated(&self) -> u64 {
        self.marks.iter().map(|mark| mark.tokens).sum()
    }

    /// How large the context was when `model` last compacted it, or could not; 0 if it did neither.
    pub fn floor(&self, model: &str) -> u64 {
        if self.floor.1.as_deref() == Some(model) { self.floor.0 } else { 0 }
    }

    /// Puts `summary` in the place of everything up to the message `through`; the context then has about `tokens`. `model` wrote it.
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
        // Which messages there were is not known any more.
        self.refused = None;
        self.settle(tokens);
    }

    /// Leaves out the results of `calls`, as there was no summary; the context then has about `tokens`.
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

    /// The messages that have images. A summary has none.
    pub fn with_images(&self) -> Vec<MessageId> {
        let messages = self.messages.iter().zip(&self.marks);
        messages
            .filter(|(message, _)| message.content.iter().any(has_image))
            .filter_map(|(_, mark)| mark.id.clone())
            .collect()
    }

    /// Puts a word in the place of each image of these messages.
    pub fn leave_out_images(&mut self, messages: &[MessageId]) {
        self.change(messages, |message| message.content.iter_mut().for_each(without_images));
    }

    /// The messages of which `model` gets something back that only its provider understands, or its own thinking.
    pub fn with_native(&self, model: &str) -> Vec<MessageId> {
        let own = self.messages.iter().zip(&self.marks).filter(|(message, _)| message.origin.as_deref() == Some(model));
        own.filter(|(message, _)| message.content.iter().any(has_native))
            .filter_map(|(_, mark)| mark.id.clone())
            .collect()
    }

    /// Makes these messages such as another model would read them: those of [`Context::with_native`], which were refused. If it is
    /// the second time, and nothing of the kind was taken in between, what that model says from now on is read so from the start.
    pub fn leave_out_native(&mut self, messages: &[MessageId]) {
        let meant = |mark: &Mark| mark.id.as_ref().is_some_and(|id| messages.contains(id));
        let of = |at: usize| self.messages.get(at).and_then(|message| message.origin.clone());
        let model = self.marks.iter().position(meant).and_then(of);
        // An answer that came after it would say that it was taken.
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

    /// What `model` was asked to write came to nothing while the context had about `tokens`.
    pub fn gave_up(&mut self, tokens: u64, model: String) {
        self.floor = (tokens, Some(model));
    }

    /// The user's words of the latest turn that begins before `cut` and is not over there, as far as they are before it.
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

/// What stands for the result of a call that was lost to damage.
const NO_RESULT: &str = "[the result of this call could not be read any more; whether it ran is not known]";

/// What stands for messages between two answers that were lost to damage.
const NO_MESSAGE: &str = "[what was said here could not be read any more]";

/// The call that a block is the result of.
fn result_for(block: &ContentBlock) -> Option<&CallId> {
    match block {
        ContentBlock::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    }
}

/// What stands for an image that the model did not take.
const NO_IMAGE: &str = "[an image was left out: the model did not take it]";

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

/// Takes out of a block what only its provider understands; whether anything is left.
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

/// What stands for output that is left out.
fn left_out(content: &[ContentBlock]) -> String {
    let bytes: usize = content.iter().filter_map(ContentBlock::as_text).map(str::len).sum();
    let images = content.iter().filter(|block| matches!(block, ContentBlock::Image { .. })).count();
    let images = if images > 0 { format!(" and {images} images") } else { String::new() };
    format!("[{bytes} bytes{images} of output were left out to make room; call the tool again if they are needed]")
}

/// About how many tokens a message has, by its size.
pub fn estimate(message: &Message) -> u64 {
    FRAME + message.content.iter().map(size).sum::<u64>()
}

/// About how many tokens so many bytes of text are.
pub fn of_bytes(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_A_TOKEN)
}

/// About how many bytes of text so many tokens are.
pub fn bytes(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(BYTES_A_TOKEN)).unwrap_or(usize::MAX)
}

/// About how many tokens a block has, by its size.
pub fn size(block: &ContentBlock) -> u64 {
    match block {
        ContentBlock::Text { text } => of_bytes(text.len()),
        ContentBlock::Image { .. } => IMAGE,
        ContentBlock::ToolResult { content, .. } => FRAME + content.iter().map(size).sum::<u64>(),
        other => of_bytes(json_size(other)),
    }
}

/// Builds a context from the events of [`KINDS`], a page at a time.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    context: Context,
    /// The turn of the last message.
    turn: Option<TurnId>,
}

impl Builder {
    /// Takes the next events.
    pub fn add(&mut self, page: &[Stored]) -> Result<(), serde_json::Error> {
        for stored in page {
            self.event(serde_json::from_str(&stored.data)?);
        }
        Ok(())
    }

    /// Takes the next event.
    pub fn event(&mut self, event: Event) {
        let context = &mut self.context;
        match event.body {
            // It was cut before anything was shown of it, and no provider takes an empty message.
            EventBody::Message { interrupted: true, content, .. } if content.is_empty() => {}
            EventBody::Message { message, role, content, model, usage, interrupted, .. } => {
                let opens = role == Role::User && event.turn != self.turn;
                self.turn = event.turn;
                context.push(message, Message { role, content, origin: model }, opens);
                if role == Role::User {
                    context.results.clear();
                }
                usage.filter(|_| !interrupted).into_iter().for_each(|usage| context.measure(usage));
            }
            EventBody::MessageSuperseded { message } => {
                // It is among the last ones: the step that it belongs to has not ended.
                if let Some(at) = context.marks.iter().rposition(|mark| mark.id.as_ref() == Some(&message)) {
                    context.marks.remove(at);
                    context.messages.remove(at);
                    // Room that was made meanwhile was made without it.
                    if at < context.measured.messages {
                        context.measured.messages -= 1;
                    }
                }
            }
            EventBody::Compacted { through, summary, tokens_after, model, .. } => {
                context.compact(&through, &summary, tokens_after, model);
            }
            // Where nobody was asked, nothing was old enough; the next step sees whether something is.
            EventBody::CompactionFailed { tokens, model, .. } => {
                model.into_iter().for_each(|model| context.gave_up(tokens, model));
            }
            EventBody::Trimmed { images, .. } if !images.is_empty() => context.leave_out_images(&images),
            EventBody::Trimmed { native, .. } if !native.is_empty() => context.leave_out_native(&native),
            EventBody::Trimmed { calls, tokens_after, .. } => context.trim(&calls, tokens_after),
            EventBody::Lost { .. } => context.gap = true,
            body => context.results.extend(result_of(&body)),
        }
    }

    /// The context, once there are no more events.
    pub fn finish(self) -> Context {
        self.context
    }
}

/// What stands for the result of a call that was lost to damage.
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

/// The calls of the last message, if it has any that wait for results.
pub fn open_calls(messages: &[Message]) -> Vec<ContentBlock> {
    let last = messages.last().filter(|message| message.role == Role::Assistant);
    let blocks = last.map(|message| message.content.as_slice()).unwrap_or_default();
    blocks.iter().filter(|block| matches!(block, ContentBlock::ToolUse { .. })).cloned().collect()
}
