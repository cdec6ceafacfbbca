//! The line of a session's conversation, read backwards: its prompts, and the points at which a fork can start.
//!
//! A point is the number of an event after which no call is open: the end of a step, or before a prompt. Events that the session
//! left by going back are not part of the line.

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, MessageAdded, PromptAccepted, TurnFinished};
use linger_protocol::id::{PromptId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role, text_of};
use linger_protocol::tree::PromptRow;

use crate::session::context::call_ids;
use crate::session::state::State;
use crate::store::{Store, StoreError};
use crate::tool::text::one_line;

/// Events that are read at once.
const PAGE: usize = 64;

/// The kinds of event that make the line.
const KINDS: &[&str] = &["message", "turn_started", "turn_finished"];

/// The most characters of a prompt in a list: two rows of a terminal.
const SHOWN: usize = 160;

/// A point of the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The last event.
    pub seq: u64,
    /// The prompt that comes after it, if one does, and what it says.
    pub prompt: Option<(PromptId, String)>,
}

/// The turns and the context size at a point of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointInfo {
    /// The turn that has not ended there.
    pub turn: Option<(TurnId, PromptId)>,
    /// The event before the latest turn, if there was one.
    pub before_turn: Option<u64>,
    /// About how many tokens the context has.
    pub context_tokens: Option<u64>,
}

/// The line of a session.
pub struct Line<'a> {
    /// The database.
    pub store: &'a Store,
    /// The session whose log is read.
    pub id: SessionId,
    /// Its state, as it is stored.
    pub state: &'a State,
}

impl Line<'_> {
    /// The point of a fork: at a message or a prompt, or the latest one.
    pub async fn point(&self, at: Option<&str>) -> Result<Point, RpcError> {
        match at {
            Some(at) => self.at(at).await,
            None if self.state.turn.is_none() => Ok(Point { seq: self.state.progress.head, prompt: None }),
            None => self.last_step().await,
        }
    }

    /// The point before a prompt: this one, or the latest.
    pub async fn before(&self, to: Option<&PromptId>) -> Result<Point, RpcError> {
        let mut back = self.back(self.state.progress.head);
        while let Some(event) = back.next().await? {
            let EventBody::Message(MessageAdded { message, prompt: Some(prompt), content, .. }) = &event.body else {
                continue;
            };
            if to.is_none_or(|to| to == prompt || to.as_str() == message.as_str()) {
                return self.before_message(&event, prompt, content).await;
            }
        }
        Err(match to {
            Some(to) => self.unknown("prompt", to.as_str()),
            None => RpcError::new(Code::Idle, format!("session {} has no prompt to go back to", self.id)),
        })
    }

    /// The prompts of the line, the latest first.
    pub async fn prompts(&self, most: usize) -> Result<Vec<PromptRow>, RpcError> {
        let (mut rows, mut back) = (Vec::new(), self.back(self.state.progress.head));
        while rows.len() < most
            && let Some(event) = back.next().await?
        {
            if let EventBody::Message(MessageAdded { message, prompt: Some(prompt), content, .. }) = event.body {
                let text = one_line(text_of(&content).trim()).chars().take(SHOWN).collect();
                rows.push(PromptRow { prompt, message, at: event.at, text });
            }
        }
        Ok(rows)
    }

    /// The turns and the context size at a point.
    pub async fn known(&self, point: &Point) -> Result<PointInfo, StoreError> {
        if point.seq == self.state.progress.head && self.state.turn.is_none() {
            let began = (self.state.progress.counts.turns > 0).then_some(self.state.progress.before_turn);
            return Ok(PointInfo {
                turn: None,
                before_turn: began,
                context_tokens: self.state.progress.context_tokens(),
            });
        }
        let (mut known, mut ended, mut back) = (PointInfo::default(), false, self.back(point.seq));
        while let Some(event) = back.next().await? {
            match &event.body {
                EventBody::TurnStarted { prompt } if known.before_turn.is_none() => {
                    let began = event.seq.unwrap_or_default();
                    // A session goes back between turns: one that went back to within this turn had ended it.
                    let skipped = &self.state.history.passed_over.skipped;
                    ended |= skipped.iter().any(|(after, last)| began <= *after && *last <= point.seq);
                    known.before_turn = event.seq.map(|seq| seq - 1);
                    known.turn = (!ended).then(|| (event.turn.clone().unwrap_or_default(), prompt.clone()));
                }
                EventBody::TurnFinished(TurnFinished { context_tokens, .. }) => {
                    ended = true;
                    known.context_tokens = known.context_tokens.or(*context_tokens);
                }
                EventBody::Message(MessageAdded { usage: Some(usage), .. }) if usage.input_tokens > 0 => {
                    known.context_tokens = known.context_tokens.or(Some(usage.input_tokens + usage.output_tokens));
                }
                _ => {}
            }
            if known.before_turn.is_some() && (known.context_tokens.is_some() || ended) {
                break;
            }
        }
        Ok(known)
    }

    fn back(&self, until: u64) -> Back<'_> {
        Back { line: self, until, page: Vec::new() }
    }

    /// The point at a message or a prompt.
    async fn at(&self, at: &str) -> Result<Point, RpcError> {
        let mut back = self.back(self.state.progress.head);
        // The two that follow, the nearest first.
        let mut newer: [Option<Event>; 2] = [None, None];
        while let Some(event) = back.next().await? {
            if let EventBody::Message(MessageAdded { message, prompt, content, .. }) = &event.body {
                let is_prompt = prompt.as_ref().is_some_and(|prompt| prompt.as_str() == at);
                match prompt {
                    Some(prompt) if is_prompt || message.as_str() == at => {
                        return self.before_message(&event, prompt, content).await;
                    }
                    None if message.as_str() == at => return self.after_message(&event, newer),
                    _ => {}
                }
            }
            let [next, _] = newer;
            newer = [Some(event), next];
        }
        Err(self.unknown("message", at))
    }

    /// The end of the latest step that has finished, of a session with a turn.
    async fn last_step(&self) -> Result<Point, RpcError> {
        let opened = self.state.turn.as_ref().and_then(|turn| turn.prompt.clone());
        let mut back = self.back(self.state.progress.head);
        while let Some(event) = back.next().await? {
            match &event.body {
                EventBody::Message(MessageAdded { prompt: Some(prompt), content, .. })
                    if Some(prompt) == opened.as_ref() =>
                {
                    return self.before_message(&event, prompt, content).await;
                }
                EventBody::Message(MessageAdded { role: Role::Assistant, interrupted: false, content, .. })
                    if call_ids(content).next().is_none() =>
                {
                    return Ok(Point { seq: event.seq.unwrap_or_default(), prompt: None });
                }
                EventBody::Message(MessageAdded { role: Role::User, content, .. }) if has_results(content) => {
                    return Ok(Point { seq: event.seq.unwrap_or_default(), prompt: None });
                }
                EventBody::TurnFinished(_) => {
                    return Ok(Point { seq: event.seq.unwrap_or_default(), prompt: None });
                }
                _ => {}
            }
        }
        let busy = RpcError::new(Code::Busy, format!("the first step of session {} has not finished", self.id));
        Err(busy.hint("wait for it"))
    }

    /// The point before a prompt's message, and before what began its turn.
    async fn before_message(
        &self,
        event: &Event,
        prompt: &PromptId,
        content: &[ContentBlock],
    ) -> Result<Point, RpcError> {
        let mut seq = event.seq.unwrap_or_default().saturating_sub(1);
        for kind in ["turn_started", "prompt_accepted"] {
            let Some(stored) = self.store.event(self.id.clone(), seq).await? else { break };
            let is_own = match serde_json::from_str::<Event>(&stored.data).map(|event| event.body) {
                Ok(
                    EventBody::TurnStarted { prompt: of }
                    | EventBody::PromptAccepted(PromptAccepted { prompt: of, .. }),
                ) => of == *prompt,
                _ => false,
            };
            if stored.kind != kind || !is_own {
                break;
            }
            seq -= 1;
        }
        Ok(Point { seq, prompt: Some((prompt.clone(), text_of(content))) })
    }

    /// The point after an answer with the results of its calls, or after other messages; after the end of the turn, if that follows.
    fn after_message(&self, event: &Event, [next, then]: [Option<Event>; 2]) -> Result<Point, RpcError> {
        let EventBody::Message(MessageAdded { content, role, .. }) = &event.body else {
            return Err(self.unknown("message", ""));
        };
        let has_calls = *role == Role::Assistant && call_ids(content).next().is_some();
        let (last, follows) = match (has_calls, next) {
            (false, next) => (event.seq, next),
            (true, Some(Event { body: EventBody::Message(MessageAdded { content, .. }), seq, .. }))
                if has_results(&content) =>
            {
                (seq, then)
            }
            (true, _) => {
                let busy = RpcError::new(Code::Busy, "the calls of this message have not finished");
                return Err(busy.hint("wait for them, or name an earlier message"));
            }
        };
        let ended =
            follows.filter(|event| matches!(event.body, EventBody::TurnFinished(_))).and_then(|event| event.seq);
        Ok(Point { seq: ended.or(last).unwrap_or_default(), prompt: None })
    }

    fn unknown(&self, what: &str, named: &str) -> RpcError {
        let text = format!("session {} has no {what} '{named}' in its conversation", self.id);
        let hint = if self.state.history.passed_over.skipped.is_empty() {
            format!("`linger log {}` shows its messages", self.id)
        } else {
            "it went back; what it left is in its forks: `linger ls --tree`".to_owned()
        };
        RpcError::new(Code::UnknownMessage, text).hint(hint)
    }
}

/// A reader of the line from its end.
struct Back<'a> {
    line: &'a Line<'a>,
    /// The next one to read.
    until: u64,
    /// Events read ahead, the latest last.
    page: Vec<Event>,
}

impl Back<'_> {
    async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        while self.page.is_empty() {
            if self.until == 0 {
                return Ok(None);
            }
            let Line { store, id, state } = self.line;
            let (page, more) = store.events_before(id.clone(), KINDS, self.until, PAGE).await?;
            self.until = page.last().filter(|_| more).map_or(0, |last| last.seq - 1);
            let live = page.into_iter().filter(|stored| !state.history.passed_over.is_skipped(stored.seq));
            for stored in live {
                self.page.push(serde_json::from_str(&stored.data).map_err(|error| {
                    StoreError::damage(format!("event {} cannot be understood: {error}", stored.seq))
                })?);
            }
            self.page.reverse();
        }
        Ok(self.page.pop())
    }
}

/// Whether something can go on from after this event.
pub fn is_on_line(state: &State, seq: u64) -> bool {
    !state.history.passed_over.is_left(seq)
}

fn has_results(content: &[ContentBlock]) -> bool {
    content.iter().any(|block| matches!(block, ContentBlock::ToolResult { .. }))
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
