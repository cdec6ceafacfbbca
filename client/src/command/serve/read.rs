//! Reads what happened in a session, as entries for an agent and as text.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use linger_protocol::event::{
    Event, EventBody, MessageAdded, Notice, PermissionRequested, PromptAccepted, ToolFinished, ToolStarted,
    TurnFinished,
};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::message::{Role, text_of};
use serde_json::{Value, json};

use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};

/// Bytes of an entry's text, at most: an agent's context is small.
const MAX_TEXT: usize = 32 << 10;

/// Bytes of all texts together, at most; the oldest entries are dropped.
const MAX_ALL: usize = 256 << 10;

/// Timeout for reading a log.
const READ: Duration = Duration::from_secs(60);

/// The latest `limit` entries of a session after `cursor`, over a new connection.
pub(super) fn entries(
    session: &SessionId,
    cursor: Option<Cursor>,
    after: u64,
    limit: usize,
) -> Result<Vec<Value>, Failure> {
    let mut attachment = Attachment::start(Client::open_silent(None)?, session.clone(), cursor, false)?;
    let (mut entries, mut size) = (VecDeque::new(), 0);
    let deadline = Instant::now() + READ;
    loop {
        match attachment.next(Some(deadline))? {
            Happened::Event(notification, _) => {
                let event = &notification.event;
                if matches!(event.body, EventBody::CaughtUp {}) {
                    return Ok(entries.into_iter().map(|(_, entry)| entry).collect());
                }
                let Some(seq) = event.seq.filter(|seq| *seq > after) else { continue };
                let Some((kind, text)) = entry(event) else { continue };
                let text = clipped(text);
                size += text.len();
                entries.push_back((text.len(), json!({ "seq": seq, "at": event.at, "kind": kind, "text": text })));
                while entries.len() > limit || size > MAX_ALL {
                    let Some((gone, _)) = entries.pop_front() else { break };
                    size -= gone;
                }
            }
            Happened::Lost if attachment.reattach_soon()? => {}
            Happened::Lost => attachment.reattach()?,
            Happened::TimedOut => {
                return Err(Failure::new(Exit::FAILED, format!("session {session} cannot be read within a minute")));
            }
            _ => {}
        }
    }
}

/// Kind and text of an event that agents should know; `None` for others.
fn entry(event: &Event) -> Option<(&'static str, String)> {
    Some(match &event.body {
        EventBody::PromptAccepted(PromptAccepted { content, compact: false, .. }) => ("prompt", text_of(content)),
        EventBody::Message(MessageAdded { role: Role::Assistant, content, interrupted: false, .. }) => {
            let text = text_of(content);
            return (!text.is_empty()).then_some(("answer", text));
        }
        EventBody::ToolStarted(ToolStarted { tool, action, .. }) => ("call", format!("{tool}: {action}")),
        EventBody::ToolFinished(ToolFinished { content, is_error, .. }) => {
            (if *is_error { "failed" } else { "result" }, text_of(content))
        }
        EventBody::PermissionRequested(PermissionRequested { tool, action, .. }) => {
            ("question", format!("{tool}: {action}"))
        }
        EventBody::QuestionAsked { asked, .. } => ("question", asked.text.clone()),
        EventBody::TurnFinished(TurnFinished { stop_reason, detail, .. }) => {
            let detail = detail.iter().map(|detail| format!(": {detail}"));
            ("end", format!("{}{}", crate::render::reason(*stop_reason), detail.collect::<String>()))
        }
        EventBody::Notice(Notice { text, .. }) => ("notice", text.clone()),
        _ => return None,
    })
}

fn clipped(text: String) -> String {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}\n[{} more bytes]", text.get(..end).unwrap_or_default(), text.len() - end)
}

/// The last answer of a session, from where its latest turn begins.
pub(super) fn answer(session: &SessionId, turn: &Cursor) -> Result<Option<String>, Failure> {
    let from = Some(turn.clone()).filter(|cursor| *cursor != Cursor::default());
    let entries = entries(session, from, 0, usize::MAX)?;
    let last = entries.iter().rev().find(|entry| entry["kind"] == "answer");
    Ok(last.and_then(|entry| entry["text"].as_str()).map(str::to_owned))
}

/// Formats entries as the text of a resource.
pub(super) fn text(entries: &[Value]) -> String {
    let line = |entry: &Value| {
        let indented = entry["text"].as_str().unwrap_or_default().replace('\n', "\n  ");
        format!("{} {}\n  {indented}\n", entry["seq"], entry["kind"].as_str().unwrap_or_default())
    };
    entries.iter().map(line).collect()
}
