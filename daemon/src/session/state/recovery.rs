//! Closing or resuming a turn whose task is gone: pure, from state and open streams alone.
//!
//! Crash, cancel and interrupt leave the same open items: a message in mid-stream, calls without a result, permissions without an
//! answer.

use std::collections::HashMap;

use linger_protocol::event::{
    CompactionFailed, EventBody, Level, MessageAdded, NoticeCode, Outcome, OutputSegment, ToolFinished,
};
use linger_protocol::id::{CallId, MessageId};
use linger_protocol::message::{AnswerEnd, ContentBlock};

use crate::config::AfterRestart;
use crate::fault;
use crate::log::{OpenStream, Piece, PieceKind};
use crate::session::Draft;
use crate::session::state::{CallState, Compaction, State, Turn};

/// How much of an unfinished call's output its result contains, in bytes, from its end.
const OUTPUT: usize = 16 << 10;

/// How to continue an unfinished turn.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveryPlan {
    /// The events to write first.
    pub drafts: Vec<Draft>,
    /// Whether the turn then resumes automatically.
    pub resume: bool,
}

/// Why a turn is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The daemon was restarted; absent without a configuration.
    Restart(Option<AfterRestart>),
    /// A write failed.
    Storage,
}

/// Plans how to continue the turn of `state`.
pub fn plan(state: &State, streams: &[OpenStream], cause: Cause) -> RecoveryPlan {
    let Some(turn) = &*state.turn else { return RecoveryPlan { drafts: Vec::new(), resume: false } };
    let may = match cause {
        Cause::Restart(Some(AfterRestart::Resume)) => !turn.is_hopeless(),
        Cause::Restart(Some(AfterRestart::Offer) | None) => false,
        Cause::Storage => true,
    };
    let unconfigured = cause == Cause::Restart(None);
    // A decision made without a configuration is made again with one.
    let offered = turn.wait.offered && !(turn.wait.unconfigured && matches!(cause, Cause::Restart(Some(_))));
    let resume = may && !offered;
    let mut bodies: Vec<EventBody> = interrupted(state, streams).into_iter().collect();
    if resume {
        let shown = bodies.iter().find_map(|body| match body {
            EventBody::Message(MessageAdded { message, .. }) => Some(message.clone()),
            _ => None,
        });
        bodies.extend(
            shown.or_else(|| turn.answer.interrupted.clone()).map(|message| EventBody::MessageSuperseded { message }),
        );
    }
    // Calls that are joined or run again stay open for the resumed turn.
    for call in turn.calls.iter().filter(|call| call.is_lost() && !fault::bug("I7")) {
        let text = match cause {
            Cause::Restart(_) => "the daemon was restarted while this call ran",
            Cause::Storage => "the storage failed while this call ran",
        };
        // Its questions are moot.
        bodies.extend(withdrawn(turn, &call.id, text));
        let text = format!("interrupted, outcome unknown: {text}; it is not run again by itself");
        bodies.push(finished(call, streams, Outcome::Unknown, &text));
    }
    if resume {
        bodies.push(match cause {
            Cause::Restart(_) => notice(NoticeCode::Resumed, Level::Info, "the daemon was restarted; the turn resumes"),
            Cause::Storage => {
                notice(NoticeCode::Continued, Level::Warning, "the storage failed for a while; the turn resumes")
            }
        });
    } else if unconfigured && !offered && !turn.is_hopeless() {
        let text = "the daemon was restarted with a broken configuration; the turn resumes when it is corrected";
        bodies.push(notice(NoticeCode::Unconfigured, Level::Warning, text));
    } else if !offered {
        let text = if turn.is_hopeless() {
            format!(
                "the daemon ended {} times without a finished step of this turn; it waits to be continued",
                turn.wait.crashes + 1
            )
        } else {
            "the daemon was restarted; the turn waits to be continued".to_owned()
        };
        bodies.push(notice(NoticeCode::Offered, Level::Warning, &text));
    }
    RecoveryPlan { drafts: bodies.into_iter().map(|body| Draft::of_turn(&turn.id, body)).collect(), resume }
}

/// Withdraws the questions of a finished call, because of `why`.
pub fn withdrawn(turn: &Turn, call: &CallId, why: &str) -> Vec<EventBody> {
    let open = turn.waiting().filter(|asked| asked.call.as_ref() == Some(call));
    open.map(|asked| asked.withdrawn(why)).collect()
}

/// The event that removes an interrupted message from the context before its step is repeated.
pub fn supersede(state: &State) -> Option<Draft> {
    let turn = state.turn.as_ref()?;
    let message = turn.answer.interrupted.clone()?;
    Some(Draft::of_turn(&turn.id, EventBody::MessageSuperseded { message }))
}

/// Closes all open items of the turn, because of `why`: every call gets its result. The actor assigns the id of the message with
/// the results.
pub fn close(state: &State, streams: &[OpenStream], results: &HashMap<CallId, ContentBlock>, why: &str) -> Vec<Draft> {
    let Some(turn) = &*state.turn else { return Vec::new() };
    let mut bodies: Vec<EventBody> = interrupted(state, streams).into_iter().collect();
    if let Some(Compaction { prompt, tokens }) = turn.room.compaction.clone() {
        let (reason, model) = (why.to_owned(), Some(state.settings.model.clone()));
        bodies.push(EventBody::CompactionFailed(CompactionFailed { prompt, reason, tokens, model, usage: None }));
    }
    bodies.extend(turn.waiting().map(|asked| asked.withdrawn(why)));
    let mut content = Vec::new();
    for call in &turn.calls {
        if let Some(result) = results.get(&call.id) {
            content.extend(Some(result.clone()).filter(|_| !call.is_check));
            continue;
        }
        let text = if call.started {
            format!("{why} while it ran; it may have had effects")
        } else {
            format!("{why} before it ran")
        };
        let body = finished(call, streams, Outcome::Cancelled, &text);
        content.extend(result_of(&body).map(|(_, result)| result).filter(|_| !call.is_check));
        bodies.push(body);
    }
    if !content.is_empty() {
        bodies.push(EventBody::user_message(MessageId::default(), content, None, None));
    }
    bodies.into_iter().map(|body| Draft::of_turn(&turn.id, body)).collect()
}

/// The result that a `tool_finished` is for the model.
pub fn result_of(body: &EventBody) -> Option<(CallId, ContentBlock)> {
    match body {
        EventBody::ToolFinished(ToolFinished { call_id, is_error, content, .. }) => {
            let (is_error, content) = (*is_error, content.clone());
            Some((call_id.clone(), ContentBlock::ToolResult { call_id: call_id.clone(), is_error, content }))
        }
        _ => None,
    }
}

/// The streaming message, as far as clients may have seen it.
fn interrupted(state: &State, streams: &[OpenStream]) -> Option<EventBody> {
    let stream = streams.iter().find(|stream| stream.pieces.iter().any(|piece| piece.kind != PieceKind::Output))?;
    Some(cut(MessageId(stream.id.clone()), blocks(stream.pieces.iter()), state))
}

/// An interrupted answer.
pub fn cut(message: MessageId, content: Vec<ContentBlock>, state: &State) -> EventBody {
    EventBody::assistant_message(message, content, state.settings.model.clone(), None, AnswerEnd::Interrupted)
}

/// Joins pieces to blocks; block indices stay.
pub fn blocks<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Vec<ContentBlock> {
    let mut blocks: Vec<ContentBlock> = Vec::new();
    for piece in pieces {
        while blocks.len() <= piece.block as usize {
            let is_its_own = blocks.len() == piece.block as usize;
            blocks.push(match &piece.kind {
                PieceKind::Thinking => ContentBlock::Thinking { text: String::new(), native: None },
                PieceKind::Hosted(tool, part) if is_its_own => {
                    ContentBlock::Hosted { tool: *tool, part: *part, text: String::new(), native: None }
                }
                PieceKind::Call(call) if is_its_own => {
                    let (call_id, name) = (call.id.clone(), call.name.clone());
                    ContentBlock::CutToolUse { call_id, name, text: String::new() }
                }
                PieceKind::Text | PieceKind::Call(_) | PieceKind::Hosted(..) | PieceKind::Output => {
                    ContentBlock::text("")
                }
            });
        }
        if let Some(
            ContentBlock::Text { text }
            | ContentBlock::Thinking { text, .. }
            | ContentBlock::Hosted { text, .. }
            | ContentBlock::CutToolUse { text, .. },
        ) = blocks.get_mut(piece.block as usize)
        {
            text.push_str(&piece.text);
        }
    }
    blocks
}

/// The result of an abandoned call, with the end of its output.
fn finished(call: &CallState, streams: &[OpenStream], outcome: Outcome, why: &str) -> EventBody {
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
    EventBody::ToolFinished(ToolFinished {
        call_id: call.id.clone(),
        is_error: true,
        outcome,
        content,
        output,
        file: None,
        blob: None,
        diff: None,
        changes: Vec::new(),
        locations: Vec::new(),
        exit: None,
        model_cost: None,
        ms: 0,
    })
}

fn notice(code: NoticeCode, level: Level, text: &str) -> EventBody {
    EventBody::notice(level, code, text)
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
