//! How a turn whose task is gone is closed or taken up again: pure, from the state and the open streams alone.
//!
//! A crash, a cancel and an interrupt leave the same things open: a message in mid-stream, calls without a result,
//! permissions without an answer.

use std::collections::HashMap;

use linger_protocol::event::{EventBody, Level, NoticeCode, Outcome, OutputSegment};
use linger_protocol::id::{CallId, MessageId};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::permission::Decision;

use super::Draft;
use super::log::{OpenStream, Piece, PieceKind};
use super::state::{Call, Compaction, State};
use crate::config::AfterRestart;
use crate::fault;

/// How much of an unfinished call's output goes into its result, in bytes: the end of it.
const OUTPUT: usize = 16 << 10;

/// What a daemon does with a turn that it finds unfinished.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is written first.
    pub drafts: Vec<Draft>,
    /// Whether the turn then goes on by itself.
    pub resume: bool,
}

/// Why a turn has to be taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The daemon was restarted; without a configuration nobody knows what is wanted then.
    Restart(Option<AfterRestart>),
    /// A write failed.
    Storage,
}

/// Plans how to go on with the turn of `state`.
pub fn plan(state: &State, streams: &[OpenStream], cause: Cause) -> Plan {
    let Some(turn) = &state.turn else { return Plan { drafts: Vec::new(), resume: false } };
    let may = match cause {
        Cause::Restart(Some(AfterRestart::Resume)) => !turn.is_hopeless(),
        Cause::Restart(Some(AfterRestart::Offer) | None) => false,
        Cause::Storage => true,
    };
    let unconfigured = cause == Cause::Restart(None);
    // What was decided without a configuration is decided again with one.
    let offered = turn.offered && !(turn.unconfigured && matches!(cause, Cause::Restart(Some(_))));
    let resume = may && !offered;
    let mut bodies: Vec<EventBody> = interrupted(state, streams).into_iter().collect();
    if resume {
        let shown = bodies.iter().find_map(|body| match body {
            EventBody::Message { message, .. } => Some(message.clone()),
            _ => None,
        });
        bodies
            .extend(shown.or_else(|| turn.interrupted.clone()).map(|message| EventBody::MessageSuperseded { message }));
    }
    for call in turn.calls.iter().filter(|call| call.started && !call.finished && !fault::bug("I7")) {
        let text = match cause {
            Cause::Restart(_) => "the daemon was restarted while this call ran",
            Cause::Storage => "the storage failed while this call ran",
        };
        let text = format!("interrupted, outcome unknown: {text}; it is not run again by itself");
        bodies.push(finished(call, streams, Outcome::Unknown, &text));
    }
    if resume {
        bodies.push(match cause {
            Cause::Restart(_) => notice(NoticeCode::Resumed, Level::Info, "the daemon was restarted; the turn goes on"),
            Cause::Storage => {
                notice(NoticeCode::Continued, Level::Warning, "the storage failed for a while; the turn goes on")
            }
        });
    } else if unconfigured && !offered && !turn.is_hopeless() {
        let text = "the daemon was restarted, and its configuration cannot be used; the turn goes on when it is mended";
        bodies.push(notice(NoticeCode::Unconfigured, Level::Warning, text));
    } else if !offered {
        let text = if turn.is_hopeless() {
            format!(
                "the turn met {} ends of the daemon without finishing a step; continue it by hand",
                turn.crashes + 1
            )
        } else {
            "the daemon was restarted; continue the turn by hand".to_owned()
        };
        bodies.push(notice(NoticeCode::Offered, Level::Warning, &text));
    }
    Plan { drafts: bodies.into_iter().map(|body| Draft::of_turn(&turn.id, body)).collect(), resume }
}

/// What takes an interrupted message out of the context before its step is repeated.
pub fn supersede(state: &State) -> Option<Draft> {
    let turn = state.turn.as_ref()?;
    let message = turn.interrupted.clone()?;
    Some(Draft::of_turn(&turn.id, EventBody::MessageSuperseded { message }))
}

/// Closes everything that the turn of `state` has open, because of `why`: every call gets its result.
pub fn close(state: &State, streams: &[OpenStream], results: &HashMap<CallId, ContentBlock>, why: &str) -> Vec<Draft> {
    let Some(turn) = &state.turn else { return Vec::new() };
    let mut bodies: Vec<EventBody> = interrupted(state, streams).into_iter().collect();
    let mut messages = state.counts.messages + bodies.len() as u64;
    if let Some(Compaction { prompt, tokens }) = turn.compaction.clone() {
        let (reason, model) = (why.to_owned(), Some(state.model.clone()));
        bodies.push(EventBody::CompactionFailed { prompt, reason, tokens, model, usage: None });
    }
    for asked in turn.waiting() {
        let (permission, by) = (asked.id.clone(), why.to_owned());
        bodies.push(EventBody::PermissionResolved { permission, decision: Decision::Cancelled, by, reason: None });
    }
    let mut content = Vec::new();
    for call in &turn.calls {
        if let Some(result) = results.get(&call.id) {
            content.push(result.clone());
            continue;
        }
        let text = if call.started {
            format!("{why} while it ran; it may have had effects")
        } else {
            format!("{why} before it ran")
        };
        let body = finished(call, streams, Outcome::Cancelled, &text);
        content.extend(result_of(&body).map(|(_, result)| result));
        bodies.push(body);
    }
    if !content.is_empty() {
        messages += 1;
        bodies.push(EventBody::Message {
            message: MessageId(format!("m{messages}")),
            role: Role::User,
            content,
            interrupted: false,
            prompt: None,
            asks: None,
            model: None,
            usage: None,
            cut: false,
            paused: false,
        });
    }
    bodies.into_iter().map(|body| Draft::of_turn(&turn.id, body)).collect()
}

/// The result that a `tool_finished` is for the model.
pub fn result_of(body: &EventBody) -> Option<(CallId, ContentBlock)> {
    match body {
        EventBody::ToolFinished { call_id, is_error, content, .. } => {
            let (is_error, content) = (*is_error, content.clone());
            Some((call_id.clone(), ContentBlock::ToolResult { call_id: call_id.clone(), is_error, content }))
        }
        _ => None,
    }
}

/// The message that was being streamed, as far as anybody may have seen it.
fn interrupted(state: &State, streams: &[OpenStream]) -> Option<EventBody> {
    let stream = streams.iter().find(|stream| stream.pieces.iter().any(|piece| piece.kind != PieceKind::Output))?;
    Some(cut(MessageId(stream.id.clone()), blocks(stream.pieces.iter()), state))
}

/// An answer that was cut.
pub fn cut(message: MessageId, content: Vec<ContentBlock>, state: &State) -> EventBody {
    let (role, model) = (Role::Assistant, Some(state.model.clone()));
    let (prompt, asks, usage) = (None, None, None);
    EventBody::Message {
        message,
        role,
        content,
        interrupted: true,
        prompt,
        asks,
        model,
        usage,
        cut: false,
        paused: false,
    }
}

/// The blocks that pieces add up to; block indices stay what they were.
pub fn blocks<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Vec<ContentBlock> {
    let mut blocks: Vec<ContentBlock> = Vec::new();
    for piece in pieces {
        while blocks.len() <= piece.block as usize {
            blocks.push(match piece.kind {
                PieceKind::Thinking => ContentBlock::Thinking { text: String::new(), native: None },
                PieceKind::Hosted(tool, part) if blocks.len() == piece.block as usize => {
                    ContentBlock::Hosted { tool, part, text: String::new(), native: None }
                }
                PieceKind::Text | PieceKind::Hosted(..) | PieceKind::Output => ContentBlock::text(""),
            });
        }
        if let Some(
            ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } | ContentBlock::Hosted { text, .. },
        ) = blocks.get_mut(piece.block as usize)
        {
            text.push_str(&piece.text);
        }
    }
    blocks
}

/// The result of a call that nobody can finish any more, with the end of its output.
fn finished(call: &Call, streams: &[OpenStream], outcome: Outcome, why: &str) -> EventBody {
    let pieces = streams.iter().find(|stream| stream.id == call.id.0).map(|stream| &stream.pieces);
    let mut content = Vec::new();
    let mut output = Vec::new();
    let mut room = OUTPUT;
    for piece in pieces.into_iter().flatten().rev() {
        let from = piece.text.len().saturating_sub(room);
        let from = (from..=piece.text.len()).find(|at| piece.text.is_char_boundary(*at)).unwrap_or_default();
        let Some(text) = piece.text.get(from..).filter(|text| !text.is_empty()) else { break };
        room -= text.len().min(room);
        content.insert(0, ContentBlock::text(text));
        output.insert(0, OutputSegment { block: 0, offset: piece.offset + from as u64 });
    }
    (0u32..).zip(&mut output).for_each(|(block, segment)| segment.block = block);
    content.push(ContentBlock::text(format!("[{why}]")));
    EventBody::ToolFinished {
        call_id: call.id.clone(),
        is_error: true,
        outcome,
        content,
        output,
        file: None,
        blob: None,
        diff: None,
        ms: 0,
    }
}

fn notice(code: NoticeCode, level: Level, text: &str) -> EventBody {
    EventBody::Notice { level, code: Some(code), text: text.to_owned(), until_at: None }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
