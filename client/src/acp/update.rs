//! An event of a session as what ACP calls updates; pure.
//!
//! The same events give the same updates, replayed or live. What ACP v1 has no word for (a notice) is a thought, so that no
//! editor takes it for the answer; text of an answer that is superseded is marked in the answer itself.

use std::collections::HashMap;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    Content, ContentBlock as Block, ContentChunk, CurrentModeUpdate, Diff, EmbeddedResource, EmbeddedResourceResource,
    ImageContent, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, ResourceLink, SessionInfoUpdate, SessionUpdate,
    TextResourceContents, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use linger_protocol::event::{
    self, Asks, Compacted, Event, EventBody, FileChange, Level, Location, MessageAdded, Notice, NoticeCode, PlanStatus,
    SessionChanged, ToolFinished, ToolStarted,
};
use linger_protocol::id::{BlobId, CallId, MessageId, PromptId};
use linger_protocol::message::{ContentBlock, HostedPart, ImageSource, Role, text_of};
use serde_json::json;

use super::arguments::so_far;

/// How much of the output of a running call an editor is shown, in bytes: its end.
const TAIL: usize = 4 << 10;

/// How many bytes of new output make another update: each has the whole tail.
const EVERY: usize = 1 << 10;

/// How many bytes of arguments make the first update of a call that the model writes.
const FIRST: usize = 256;

/// The mark below text whose step is repeated.
const SUPERSEDED: &str = "retrying this step; ignore the text above";

/// Gives the bytes of a blob, unless they are too many.
pub(super) type Blobs<'a> = dyn FnMut(&BlobId) -> Option<Vec<u8>> + 'a;

/// The state of a session that an editor knows.
#[derive(Debug, Default)]
pub(super) struct Shown {
    calls: HashMap<CallId, Output>,
    /// The calls that the model still writes.
    written: HashMap<CallId, ArgumentText>,
    /// The last message with text that the editor has.
    spoken: Option<MessageId>,
    /// Whether a user gave the session a name, which goes before the title of a model.
    is_named: bool,
}

/// The arguments of a call that the model writes.
#[derive(Debug, Default)]
struct ArgumentText {
    text: String,
    /// Bytes of it that the editor has.
    told: usize,
}

/// The output of a call that runs.
#[derive(Debug, Default)]
struct Output {
    tail: String,
    /// Bytes that the editor does not have yet.
    new: usize,
}

impl Shown {
    /// The updates of an event. A message that is one of `own` prompts is known to the editor.
    pub(super) fn updates(&mut self, event: &Event, own: &[PromptId], blobs: &mut Blobs<'_>) -> Vec<SessionUpdate> {
        match &event.body {
            EventBody::TextDelta(delta) => {
                self.spoken = Some(delta.message.clone());
                vec![chunk(SessionUpdate::AgentMessageChunk, &delta.message, &delta.text)]
            }
            EventBody::ThinkingDelta(delta) => {
                vec![chunk(SessionUpdate::AgentThoughtChunk, &delta.message, &delta.text)]
            }
            EventBody::ToolCallDelta { call_id, name, delta } => self.writes(call_id, name, &delta.text),
            EventBody::Message(MessageAdded { role: Role::User, content, message, prompt: Some(prompt), .. }) => {
                if own.contains(prompt) { Vec::new() } else { user(message, content, blobs) }
            }
            EventBody::Message(MessageAdded { role: Role::User, content, asks: Some(Asks::Check), .. }) => {
                vec![note(&text_of(content))]
            }
            EventBody::Message(MessageAdded { role: Role::Assistant, content, message, .. }) => {
                self.answer(message, content)
            }
            EventBody::MessageSuperseded { message } => vec![self.superseded(message)],
            EventBody::CheckStarted { call_id, command, .. } => {
                self.calls.entry(call_id.clone()).or_default();
                let call = ToolCall::new(call_id.to_string(), format!("check: {command}")).kind(ToolKind::Execute);
                vec![SessionUpdate::ToolCall(call)]
            }
            EventBody::ToolStarted(ToolStarted { call_id, tool, tool_kind, action, locations: at, input, .. }) => {
                let known = self.calls.insert(call_id.clone(), Output::default()).is_some();
                if known {
                    let fields = ToolCallUpdateFields::new()
                        .title(action.clone())
                        .kind(kind(*tool_kind))
                        .status(ToolCallStatus::InProgress)
                        .locations(locations(at));
                    return vec![update(call_id, fields)];
                }
                let call = ToolCall::new(call_id.to_string(), action.clone())
                    .name(tool.clone())
                    .kind(kind(*tool_kind))
                    .status(ToolCallStatus::InProgress)
                    .locations(locations(at))
                    .raw_input(input.clone());
                vec![SessionUpdate::ToolCall(call)]
            }
            EventBody::ToolOutputDelta { call_id, text, .. } => self.output(call_id, text),
            EventBody::ToolFinished(ToolFinished {
                call_id, is_error, content, changes, locations: at, exit, ..
            }) => {
                self.calls.remove(call_id);
                let status = if *is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
                let mut fields = ToolCallUpdateFields::new().status(status).content(result(content, changes, blobs));
                if !at.is_empty() {
                    fields = fields.locations(locations(at));
                }
                if let Some(exit) = exit {
                    fields = fields.raw_output(json!({ "exit_code": exit.code, "signal": exit.signal }));
                }
                vec![update(call_id, fields)]
            }
            EventBody::Plan { entries } => vec![SessionUpdate::Plan(Plan::new(entries.iter().map(entry).collect()))],
            EventBody::SessionChanged(SessionChanged { mode, name, title, .. }) => {
                let mode = mode.map(|mode| SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.to_string())));
                self.is_named |= name.is_some();
                let title = name.clone().or_else(|| title.clone().filter(|_| !self.is_named));
                let title = title.map(|title| SessionInfoUpdate::new().title(title));
                mode.into_iter().chain(title.map(SessionUpdate::SessionInfoUpdate)).collect()
            }
            EventBody::Compacted(Compacted { tokens_before, tokens_after, .. }) => {
                vec![note(&format!("the context was compacted: {tokens_before} tokens to {tokens_after}"))]
            }
            EventBody::Notice(Notice { level: Level::Warning | Level::Error, code, text, .. })
                if *code != Some(NoticeCode::KeyMissing) =>
            {
                vec![note(text)]
            }
            _ => Vec::new(),
        }
    }

    /// A piece of a call that the model writes. Each update has all of the arguments so far, so each has twice as much as the last.
    fn writes(&mut self, call: &CallId, name: &str, piece: &str) -> Vec<SessionUpdate> {
        let is_new = !self.written.contains_key(call);
        let written = self.written.entry(call.clone()).or_default();
        written.text.push_str(piece);
        if !is_new && written.text.len() < (2 * written.told).max(FIRST) {
            return Vec::new();
        }
        written.told = written.text.len();
        let input = so_far(&written.text);
        if !is_new {
            return vec![update(call, ToolCallUpdateFields::new().raw_input(input))];
        }
        let call = ToolCall::new(call.to_string(), name).name(name.to_owned()).status(ToolCallStatus::Pending);
        vec![SessionUpdate::ToolCall(call.raw_input(input))]
    }

    /// The mark of a message whose step is repeated. Text that was shown is marked where it stands, in the answer: an editor
    /// keeps it, and the same text comes again.
    fn superseded(&self, message: &MessageId) -> SessionUpdate {
        if self.spoken.as_ref() != Some(message) {
            return note(SUPERSEDED);
        }
        chunk(SessionUpdate::AgentMessageChunk, message, &format!("\n\n[linger] {SUPERSEDED}\n\n"))
    }

    /// A finished message: its text was shown as it came, its calls perhaps.
    fn answer(&mut self, message: &MessageId, content: &[ContentBlock]) -> Vec<SessionUpdate> {
        let calls = content.iter().enumerate().filter_map(|(at, block)| match block {
            ContentBlock::ToolUse { call_id, name, input, .. } => {
                self.calls.entry(call_id.clone()).or_default();
                if self.written.remove(call_id).is_some() {
                    return Some(update(call_id, ToolCallUpdateFields::new().raw_input(input.clone())));
                }
                let call = ToolCall::new(call_id.to_string(), name.clone()).name(name.clone()).raw_input(input.clone());
                Some(SessionUpdate::ToolCall(call))
            }
            ContentBlock::CutToolUse { call_id, .. } => {
                self.written.remove(call_id)?;
                Some(update(call_id, ToolCallUpdateFields::new().status(ToolCallStatus::Failed)))
            }
            ContentBlock::Hosted { tool, part, text, .. } => {
                let failed = *part == HostedPart::Error;
                let status = if failed { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
                let call = ToolCall::new(format!("{message}.{at}"), format!("{} {}", tool.name(), part.name()))
                    .kind(ToolKind::Fetch)
                    .status(status)
                    .content(vec![text_content(text)]);
                Some(SessionUpdate::ToolCall(call))
            }
            _ => None,
        });
        calls.collect()
    }

    fn output(&mut self, call: &CallId, text: &str) -> Vec<SessionUpdate> {
        let Some(output) = self.calls.get_mut(call) else { return Vec::new() };
        output.tail.push_str(text);
        if output.tail.len() > TAIL {
            let from = output.tail.len() - TAIL;
            let cut = (from..).find(|at| output.tail.is_char_boundary(*at)).unwrap_or_default();
            output.tail.drain(..cut);
        }
        // The first output is shown at once, later output in pieces: each update has the whole tail.
        let is_first = output.new == 0 && output.tail.len() == text.len();
        output.new += text.len();
        if !is_first && output.new < EVERY {
            return Vec::new();
        }
        output.new = 1;
        vec![update(call, ToolCallUpdateFields::new().content(vec![text_content(&output.tail)]))]
    }
}

/// The changes of a call, done or planned, in files that are text and not too long.
pub(super) fn diffs(changes: &[FileChange], blobs: &mut Blobs<'_>) -> Vec<ToolCallContent> {
    let mut text = |blob: &Option<BlobId>| match blob {
        None => Some(None),
        Some(blob) => blobs(blob).and_then(|bytes| String::from_utf8(bytes).ok()).map(Some),
    };
    let diff = |change: &FileChange| {
        let (before, after) = (text(&change.before)?, text(&change.after)?);
        // A file whose content is not kept has neither.
        if before.is_none() && after.is_none() {
            return None;
        }
        Some(ToolCallContent::Diff(Diff::new(change.path.clone(), after.unwrap_or_default()).old_text(before)))
    };
    changes.iter().filter_map(diff).collect()
}

/// The places of a call.
pub(super) fn locations(at: &[Location]) -> Vec<ToolCallLocation> {
    let place = |at: &Location| {
        ToolCallLocation::new(PathBuf::clone(&at.path)).line(at.line.and_then(|line| u32::try_from(line).ok()))
    };
    at.iter().map(place).collect()
}

fn result(content: &[ContentBlock], changes: &[FileChange], blobs: &mut Blobs<'_>) -> Vec<ToolCallContent> {
    let mut shown = diffs(changes, blobs);
    for block in content {
        match block {
            ContentBlock::Text { text } if shown.is_empty() || changes.is_empty() => shown.push(text_content(text)),
            block => shown.extend(other(block, blobs).map(|other| ToolCallContent::Content(Content::new(other)))),
        }
    }
    shown
}

/// Content other than text: an image, a resource, or a link to one.
fn other(block: &ContentBlock, blobs: &mut Blobs<'_>) -> Option<Block> {
    match block {
        ContentBlock::ResourceLink { uri, name, media_type, description } => Some(Block::ResourceLink(
            ResourceLink::new(name.clone(), uri.clone()).mime_type(media_type.clone()).description(description.clone()),
        )),
        ContentBlock::Resource { uri, media_type, text } => {
            let text = TextResourceContents::new(text.clone(), uri.clone()).mime_type(media_type.clone());
            let text = EmbeddedResourceResource::TextResourceContents(text);
            Some(Block::Resource(EmbeddedResource::new(text)))
        }
        block => image(block, blobs),
    }
}

fn image(block: &ContentBlock, blobs: &mut Blobs<'_>) -> Option<Block> {
    use base64::Engine as _;
    let ContentBlock::Image { media_type, source } = block else { return None };
    let data = match source {
        ImageSource::Data { data } => data.clone(),
        ImageSource::Blob { blob, .. } => base64::engine::general_purpose::STANDARD.encode(blobs(blob)?),
    };
    Some(Block::Image(ImageContent::new(data, media_type.clone())))
}

fn user(message: &MessageId, content: &[ContentBlock], blobs: &mut Blobs<'_>) -> Vec<SessionUpdate> {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => Some(Block::from(text.clone())),
        block => other(block, blobs),
    };
    let chunk = |block| SessionUpdate::UserMessageChunk(ContentChunk::new(block).message_id(id(message)));
    content.iter().filter_map(block).map(chunk).collect()
}

fn chunk(kind: fn(ContentChunk) -> SessionUpdate, message: &MessageId, text: &str) -> SessionUpdate {
    kind(ContentChunk::new(Block::from(text.to_owned())).message_id(id(message)))
}

fn id(message: &MessageId) -> agent_client_protocol_schema::v1::MessageId {
    agent_client_protocol_schema::v1::MessageId::new(message.to_string())
}

/// Something that linger says itself.
pub(super) fn note(text: &str) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(ContentChunk::new(Block::from(format!("[linger] {text}\n"))))
}

fn update(call: &CallId, fields: ToolCallUpdateFields) -> SessionUpdate {
    SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call.to_string(), fields))
}

fn text_content(text: &str) -> ToolCallContent {
    ToolCallContent::Content(Content::new(Block::from(text.to_owned())))
}

fn kind(kind: event::ToolKind) -> ToolKind {
    match kind {
        event::ToolKind::Read => ToolKind::Read,
        event::ToolKind::Edit => ToolKind::Edit,
        event::ToolKind::Delete => ToolKind::Delete,
        event::ToolKind::Move => ToolKind::Move,
        event::ToolKind::Search => ToolKind::Search,
        event::ToolKind::Execute => ToolKind::Execute,
        event::ToolKind::Think => ToolKind::Think,
        event::ToolKind::Fetch => ToolKind::Fetch,
        event::ToolKind::Other => ToolKind::Other,
    }
}

fn entry(entry: &event::PlanEntry) -> PlanEntry {
    let status = match entry.status {
        PlanStatus::InProgress => PlanEntryStatus::InProgress,
        PlanStatus::Completed => PlanEntryStatus::Completed,
        PlanStatus::Pending => PlanEntryStatus::Pending,
    };
    PlanEntry::new(entry.content.clone(), PlanEntryPriority::Medium, status)
}
