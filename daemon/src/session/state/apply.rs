//! The fold of events into a session's state. Pure.
//!
//! [`State::apply`] folds live events and events from the log in the same way. It never fails: it ignores references to unknown
//! items.

use std::sync::Arc;

use linger_protocol::event::{Asks, Event, EventBody, NoticeCode};
use linger_protocol::id::{CallId, MessageId, PromptId, QuestionId};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::{Decision, Mode};
use linger_protocol::question::Blocks;
use linger_protocol::session::When;

use super::{Call, Compaction, Counts, Options, QuestionState, Queued, Resolution, Shape, State, Turn};
use crate::session::compaction::Effort;

/// The most calls of an answer: the decoder's bound on blocks. Calls beyond the run limit have ids too.
const CALLS: u64 = 512;

/// The longest title, in characters: a line of a terminal.
const TITLE: usize = 72;

impl State {
    /// Folds the next event.
    pub fn apply(&mut self, event: &Event) {
        if let Some(seq) = event.seq {
            self.head = seq;
            self.updated_at = event.at;
        }
        match &event.body {
            EventBody::SessionCreated { cwd, model, mode, effort, name, setup, parent, .. } => {
                self.parent.clone_from(parent);
                self.setup.clone_from(setup);
                self.created_at = event.at;
                self.thinking = *effort;
                (self.cwd, self.model, self.mode, self.name) = (cwd.clone(), model.clone(), *mode, name.clone());
            }
            EventBody::SessionChanged { model, mode, effort, name, instructions, setup } => {
                self.thinking = effort.unwrap_or(self.thinking);
                self.model = model.clone().unwrap_or_else(|| std::mem::take(&mut self.model));
                self.mode = mode.unwrap_or(self.mode);
                self.name = name.clone().or_else(|| self.name.take());
                if let Some(instructions) = instructions {
                    self.instructions.clone_from(instructions);
                }
                self.setup = setup.clone().or_else(|| self.setup.take());
            }
            EventBody::PromptAccepted { prompt, content, when, compact, schema, .. } => {
                self.prompt_accepted(prompt, content, *when, *compact);
                if let (Some(queued), Some(schema)) = (self.queue.back_mut(), schema) {
                    queued.schema = Some(Arc::new(schema.clone()));
                }
            }
            EventBody::TurnStarted { prompt } => {
                self.counts.turns += 1;
                self.held = false;
                self.before_turn = self.head.saturating_sub(1);
                let id = event.turn.clone().unwrap_or_default();
                let asks = |queued: &&Queued| queued.prompt == *prompt && queued.compact;
                let compacts = self.queue.iter().find(asks).map(|queued| queued.prompt.clone());
                self.turn = Some(Turn { id, compacts, ..Turn::default() });
            }
            EventBody::Message { message, role, content, interrupted, prompt, asks, usage, cut, paused, .. } => {
                self.counts.messages += 1;
                self.model_asked(*asks);
                if let Some(prompt) = prompt {
                    let taken = self.queue.iter().find(|queued| queued.prompt == *prompt);
                    let shape = taken.and_then(|queued| Some((queued.seq, queued.schema.clone()?)));
                    if let Some((seq, schema)) = shape {
                        self.in_turn(|turn| turn.shape = Some(Shape { seq, schema, ..Shape::default() }));
                    }
                    self.queue.retain(|queued| queued.prompt != *prompt);
                    // A new prompt resets what was tried for the old one.
                    self.in_turn(|turn| (turn.compacts, turn.effort) = (None, Effort::default()));
                }
                match role {
                    Role::User => self.user_message(content),
                    Role::Assistant => self.assistant_message(
                        message,
                        content,
                        [*interrupted, *cut, *paused],
                        Usage::of_answer(*usage, *interrupted),
                    ),
                }
            }
            EventBody::MessageSuperseded { .. } => self.in_turn(|turn| turn.interrupted = None),
            EventBody::ToolStarted { call_id, after_crash, .. } => {
                self.call(call_id, |call| (call.started, call.after_crash) = (true, *after_crash));
            }
            EventBody::ToolFinished { call_id, .. } => self.call(call_id, |call| call.finished = true),
            EventBody::PermissionRequested { permission, call_id, digest, grant, .. } => {
                let (id, seq, call) = (permission.clone(), self.head, Some(call_id.clone()));
                let (digest, options) = (digest.clone(), Options::Permission(grant.clone()));
                self.asked(Blocks::Call, QuestionState { id, seq, call, digest, options, answer: None });
            }
            EventBody::PermissionResolved { permission, decision, by, reason } => {
                let answer = (*decision != Decision::Cancelled).then(|| decision.name().to_owned());
                let (by, reason) = (by.clone(), reason.clone());
                self.resolved(permission, Resolution { answer, by, at: event.at, reason });
            }
            EventBody::QuestionAsked { question, asked } => {
                let options = Options::Choice(asked.options.iter().map(|option| option.name.clone()).collect());
                let (id, seq) = (question.clone(), self.head);
                let (call, digest) = (asked.call.clone(), asked.digest.clone());
                self.asked(asked.blocks, QuestionState { id, seq, call, digest, options, answer: None });
            }
            EventBody::QuestionResolved { question, answer, by, reason } => {
                let (answer, by, reason) = (answer.clone(), by.clone(), reason.clone());
                self.resolved(question, Resolution { answer, by, at: event.at, reason });
            }
            EventBody::CompactionStarted { prompt, tokens, .. } => {
                let compaction = Compaction { prompt: prompt.clone(), tokens: *tokens };
                self.in_turn(|turn| turn.compaction = Some(compaction));
            }
            EventBody::Compacted { prompt, tokens_after, usage, .. } => {
                self.context = *tokens_after;
                self.compaction_over(prompt.as_ref(), true, Usage::of_answer(*usage, false));
            }
            EventBody::CompactionFailed { prompt, usage, .. } => {
                // Missing usage counts as zero.
                self.compaction_over(prompt.as_ref(), false, usage.unwrap_or_default());
            }
            EventBody::Trimmed { calls, tokens_after, .. } => {
                self.context = *tokens_after;
                let output = !calls.is_empty();
                self.in_turn(|turn| turn.effort.trimmed |= output);
            }
            EventBody::TurnFinished { stop_reason, .. } => {
                // A cancelled compaction is not resumed.
                if let Some(prompt) = self.turn.take().and_then(|turn| turn.compacts) {
                    self.queue.retain(|queued| queued.prompt != prompt);
                }
                self.stop_reason = Some(*stop_reason);
                self.held = matches!(stop_reason, StopReason::Cancelled | StopReason::Error);
            }
            EventBody::Lost { .. } => self.lost(),
            EventBody::Notice { code, .. } => self.notice(*code),
            EventBody::TextDelta(_)
            | EventBody::ThinkingDelta(_)
            | EventBody::HostedDelta { .. }
            | EventBody::ToolOutputDelta { .. }
            | EventBody::CaughtUp {}
            | EventBody::Unknown => {}
        }
    }

    fn prompt_accepted(&mut self, prompt: &PromptId, content: &[ContentBlock], when: When, compact: bool) {
        self.counts.prompts += 1;
        if self.title.is_none() && !compact {
            let text = content.iter().find_map(ContentBlock::as_text).unwrap_or_default();
            let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            self.title = Some(line.trim().chars().take(TITLE).collect());
        }
        self.queue.push_back(Queued {
            prompt: prompt.clone(),
            seq: self.head,
            content: content.to_vec(),
            when,
            compact,
            schema: None,
        });
    }

    /// The daemon sent a message to the model in the user's place.
    fn model_asked(&mut self, asks: Option<Asks>) {
        let Some(shape) = self.turn.as_mut().and_then(|turn| turn.shape.as_mut()) else { return };
        match asks {
            Some(Asks::Schema) => shape.said = true,
            Some(Asks::Again) => shape.misfits += 1,
            Some(Asks::GoOn | Asks::Unknown) | None => {}
        }
    }

    /// A requested compaction succeeded or failed.
    fn compaction_over(&mut self, prompt: Option<&PromptId>, compacted: bool, usage: Usage) {
        self.usage += usage;
        if let Some(prompt) = prompt {
            self.queue.retain(|queued| queued.prompt != *prompt);
        }
        self.in_turn(|turn| {
            turn.usage += usage;
            turn.compaction = None;
            if prompt.is_none() {
                turn.effort.compacted = Some(compacted);
            }
        });
    }

    fn user_message(&mut self, content: &[ContentBlock]) {
        let has_result = |call: &Call| {
            content.iter().any(|block| matches!(block, ContentBlock::ToolResult { call_id, .. } if *call_id == call.id))
        };
        // Either the results of all calls, or a prompt after them.
        self.in_turn(|turn| {
            turn.calls.retain(|call| !call.finished && !has_result(call));
            turn.forget_closed();
            turn.interrupted = None;
        });
    }

    fn assistant_message(
        &mut self,
        message: &MessageId,
        content: &[ContentBlock],
        [interrupted, cut, paused]: [bool; 3],
        usage: Usage,
    ) {
        let calls = content.iter().filter_map(|block| match block {
            ContentBlock::ToolUse { call_id, .. } => Some(Call { id: call_id.clone(), ..Call::default() }),
            _ => None,
        });
        let calls: Vec<Call> = calls.collect();
        self.counts.calls += calls.len() as u64;
        self.usage += usage;
        if usage.input_tokens > 0 {
            self.context = usage.input_tokens + usage.output_tokens;
        }
        self.in_turn(|turn| {
            turn.usage += usage;
            if interrupted {
                turn.interrupted = Some(message.clone());
                return;
            }
            turn.interrupted = None;
            (turn.cut, turn.goes_on) = (cut, paused);
            turn.crashes = 0;
            turn.effort = Effort::default();
            turn.steps += 1;
            turn.calls = calls;
            turn.forget_closed();
        });
    }

    /// Adds a question, which blocks an open call, the turn, or nothing.
    fn asked(&mut self, blocks: Blocks, question: QuestionState) {
        match blocks {
            Blocks::Nothing => self.questions.push(question),
            Blocks::Turn => self.in_turn(|turn| turn.questions.push(QuestionState { call: None, ..question })),
            Blocks::Call => self.in_turn(|turn| {
                if turn.calls.iter().any(|call| question.call.as_ref() == Some(&call.id)) {
                    turn.questions.push(question);
                }
            }),
        }
    }

    fn resolved(&mut self, id: &QuestionId, resolution: Resolution) {
        self.questions.retain(|question| question.id != *id);
        let mut grant = None;
        self.in_turn(|turn| {
            if let Some(asked) = turn.questions.iter_mut().find(|asked| asked.id == *id) {
                if let Some("allow_session" | "allow_always") = resolution.answer.as_deref() {
                    grant = asked.grant().map(str::to_owned);
                }
                asked.answer = Some(resolution);
            }
        });
        self.grants.extend(grant.filter(|grant| !self.grants.contains(grant)));
    }

    /// Folds a lost event conservatively: never reuses an id, starts a prompt or keeps a permission that it may have affected.
    fn lost(&mut self) {
        let Counts { turns, messages, calls, prompts } = &mut self.counts;
        (*turns, *messages, *prompts, *calls) = (*turns + 1, *messages + 1, *prompts + 1, *calls + CALLS);
        self.queue.clear();
        // Their results may be lost; the context has a placeholder for each.
        self.in_turn(|turn| {
            turn.calls.clear();
            turn.questions.clear();
        });
        if matches!(self.mode, Mode::Edit | Mode::Auto) {
            self.mode = Mode::Ask;
        }
    }

    fn notice(&mut self, code: Option<NoticeCode>) {
        self.in_turn(|turn| match code {
            Some(NoticeCode::Resumed) => {
                turn.crashes += u32::from(turn.was_cut());
                (turn.paused, turn.offered, turn.key_missing) = (false, false, false);
                turn.unconfigured = false;
            }
            Some(NoticeCode::Paused) => turn.paused = true,
            Some(NoticeCode::Offered) => (turn.offered, turn.unconfigured) = (true, false),
            Some(NoticeCode::Unconfigured) => (turn.offered, turn.unconfigured) = (true, true),
            Some(NoticeCode::Continued) => (turn.offered, turn.unconfigured, turn.crashes) = (false, false, 0),
            Some(NoticeCode::KeyMissing) => turn.key_missing = true,
            Some(NoticeCode::KeyFound) => turn.key_missing = false,
            Some(
                NoticeCode::Retry
                | NoticeCode::Storage
                | NoticeCode::Removed
                | NoticeCode::Damaged
                | NoticeCode::UnknownModel
                | NoticeCode::RuleNotStored
                | NoticeCode::Unknown,
            )
            | None => {}
        });
    }

    fn in_turn(&mut self, change: impl FnOnce(&mut Turn)) {
        if let Some(turn) = &mut self.turn {
            change(turn);
        }
    }

    fn call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        self.in_turn(|turn| {
            if let Some(call) = turn.calls.iter_mut().find(|call| call.id == *id) {
                change(call);
            }
        });
    }
}
