//! How events change the unfinished turn. Pure.

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::{Asks, MessageAdded, NoticeCode, Outcome, ToolStarted};
use linger_protocol::id::{CallId, PromptId, TurnId};
use linger_protocol::message::{ContentBlock, Usage};
use linger_protocol::session::ProviderWait;
use serde_json::Value;

use super::{CallState, Compaction, Run, SchemaState, Turn};
use crate::session::state::Effort;
use crate::session::state::Queued;
use crate::session::state::circles::{CallFingerprint, Circles};
use crate::session::state::until::{CHECKS_WITH, UntilState, check_input, command_input};

impl Turn {
    pub(in super::super) fn start(id: TurnId, prompt: &PromptId, compacts: Option<PromptId>) -> Self {
        let mut turn = Self { id, prompt: Some(prompt.clone()), ..Self::default() };
        turn.room.compacts = compacts;
        turn
    }

    /// A queued prompt enters it.
    pub(in super::super) fn take_prompt(&mut self, taken: Option<Queued>) {
        if let Some(Queued { seq, schema, until, runs, limit, .. }) = taken {
            self.demands.runs.extend(runs.into_iter().map(|command| Run { command, ..Run::default() }));
            if let Some(limit) = limit {
                self.add_limit(limit);
            }
            if let Some(schema) = schema {
                self.demands.output_schema = Some(SchemaState { seq, schema, ..SchemaState::default() });
            }
            if let Some(until) = until {
                self.demands.until = Some(UntilState::new(until));
            }
        }
        // A new prompt resets the tries for the old one.
        (self.room.compacts, self.room.effort) = (None, Effort::default());
        (self.answer.broken_off, self.answer.continued) = (0, 0);
        self.circles = Circles::default();
    }

    /// The daemon sent a message to the model in the user's place.
    pub(in super::super) fn ask_model(&mut self, asks: Asks) {
        match asks {
            Asks::Check => {
                if let Some(until) = &mut self.demands.until {
                    until.count_failure();
                }
            }
            Asks::Output => self.demands.runs.clear(),
            Asks::GoOn => self.answer.continued += u32::from(self.answer.cut),
            Asks::Schema => {
                if let Some(schema) = &mut self.demands.output_schema {
                    schema.sent = true;
                }
            }
            Asks::Again => {
                if let Some(schema) = &mut self.demands.output_schema {
                    schema.misfits += 1;
                }
            }
            Asks::Ended | Asks::Child | Asks::Mode | Asks::Unknown => {}
        }
    }

    /// Adds a user's message: either the results of all calls, or a prompt after them.
    pub(in super::super) fn add_user_message(&mut self, content: &[ContentBlock]) {
        let has_result = |call: &CallState| {
            content.iter().any(|block| matches!(block, ContentBlock::ToolResult { call_id, .. } if *call_id == call.id))
        };
        self.circles.add(content.iter().filter_map(|block| match block {
            ContentBlock::ToolResult { call_id, is_error, content } => {
                let call = self.calls.iter().find(|call| call.id == *call_id)?;
                let failed = *is_error && !self.questions.iter().any(|asked| asked.denies(call_id));
                Some((&call.made, failed, content.as_slice()))
            }
            _ => None,
        }));
        self.calls.retain(|call| !call.finished && !has_result(call));
        self.forget_closed();
        self.answer.interrupted = None;
    }

    /// Adds an answer of the model; `calls` are those in it.
    pub(in super::super) fn add_answer(&mut self, said: &MessageAdded, calls: Vec<CallState>, usage: Usage) {
        self.usage += usage;
        let answer = &mut self.answer;
        if said.interrupted {
            answer.interrupted = Some(said.message.clone());
            answer.broken_off += 1;
            return;
        }
        answer.interrupted = None;
        (answer.cut, answer.paused, answer.broken_off) = (said.cut, said.paused, 0);
        answer.continued *= u32::from(said.cut);
        if let Some(until) = &mut self.demands.until {
            until.answered();
        }
        (self.wait.crashes, self.wait.provider) = (0, None);
        self.room.effort = Effort::default();
        self.steps += 1;
        self.calls = calls;
        self.forget_closed();
    }

    pub(in super::super) fn start_call(&mut self, started: &ToolStarted) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == started.call_id) {
            (call.started, call.after_crash) = (true, started.after_crash);
            call.made.describe(&started.action);
        }
        if let Some(limit) = &started.limit {
            self.add_limit(limit.clone());
        }
    }

    /// A call has its result; `asked_for` is what the tool used of a model.
    pub(in super::super) fn finish_call(&mut self, id: &CallId, outcome: Outcome, asked_for: Option<Usage>) {
        if let Some(usage) = asked_for {
            self.usage += usage;
        }
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id) {
            call.finished = true;
        }
        if let Some(until) = &mut self.demands.until {
            until.finished(id, outcome);
        }
        if let Some(run) = self.demands.runs.iter_mut().find(|run| run.call.as_ref() == Some(id)) {
            run.outcome = Some(outcome);
        }
    }

    /// The next command line of its prompt's command is announced as a call.
    pub(in super::super) fn start_command(&mut self, id: &CallId, command: &str) {
        self.add_own_call(id, &command_input(command));
        if let Some(run) = self.demands.runs.iter_mut().find(|run| run.call.is_none()) {
            run.call = Some(id.clone());
        }
    }

    /// Its check is announced as a call.
    pub(in super::super) fn start_check(&mut self, id: &CallId, command: &str) {
        self.add_own_call(id, &check_input(command));
        if let Some(until) = &mut self.demands.until {
            until.started(id);
        }
    }

    /// Adds a call that no model made, in the place of the last one.
    fn add_own_call(&mut self, id: &CallId, input: &Value) {
        self.calls.retain(|call| !call.is_check);
        let made = CallFingerprint::new(CHECKS_WITH, input);
        self.calls.push(CallState { id: id.clone(), made, is_check: true, ..CallState::default() });
    }

    pub(in super::super) fn start_compaction(&mut self, prompt: Option<&PromptId>, tokens: u64) {
        self.room.compaction = Some(Compaction { prompt: prompt.cloned(), tokens });
    }

    /// A compaction ended. One that no prompt asked for is a try to make room.
    pub(in super::super) fn end_compaction(&mut self, is_asked: bool, succeeded: bool, usage: Usage) {
        self.usage += usage;
        self.room.compaction = None;
        if !is_asked {
            self.room.effort.compacted = Some(succeeded);
        }
    }

    /// Another model answers from now on.
    pub(in super::super) fn change_model(&mut self) {
        (self.wait.provider, self.answer.broken_off) = (None, 0);
    }

    pub(in super::super) fn wait_for_provider(&mut self, reason: &str, since_at: u64, until_at: Option<u64>) {
        let until_at = until_at.unwrap_or(since_at);
        self.wait.provider = Some(ProviderWait { reason: reason.to_owned(), since_at, until_at });
    }

    pub(in super::super) fn note(&mut self, code: NoticeCode) {
        match code {
            NoticeCode::Resumed => {
                let crashes = u32::from(self.was_cut());
                let wait = &mut self.wait;
                wait.crashes += crashes;
                (wait.paused, wait.offered, wait.key_missing, wait.unconfigured) = (false, false, false, false);
            }
            NoticeCode::Paused => self.wait.paused = true,
            NoticeCode::Offered => (self.wait.offered, self.wait.unconfigured) = (true, false),
            NoticeCode::Unconfigured => (self.wait.offered, self.wait.unconfigured) = (true, true),
            NoticeCode::Continued => {
                (self.wait.offered, self.wait.unconfigured, self.wait.crashes) = (false, false, 0);
            }
            NoticeCode::KeyMissing | NoticeCode::Unconfirmed => self.wait.key_missing = true,
            NoticeCode::KeyFound => self.wait.key_missing = false,
            NoticeCode::Reached => self.wait.provider = None,
            NoticeCode::Retry
            | NoticeCode::Fallback
            | NoticeCode::Storage
            | NoticeCode::KeyPending
            | NoticeCode::Removed
            | NoticeCode::Damaged
            | NoticeCode::Rebuilt
            | NoticeCode::UnknownModel
            | NoticeCode::RuleNotStored
            | NoticeCode::Agent
            | NoticeCode::Files
            | NoticeCode::ConfigWaits
            | NoticeCode::ServerFailed
            | NoticeCode::HookFailed
            | NoticeCode::NoCheckpoint
            | NoticeCode::OutputSchema
            | NoticeCode::Unknown => {}
        }
    }

    /// An event is lost: results may be, and the context has a placeholder for each.
    pub(in super::super) fn lose(&mut self) {
        self.calls.clear();
        self.questions.clear();
        // A check may have started.
        if let Some(until) = &mut self.demands.until {
            until.lost();
        }
        for run in &mut self.demands.runs {
            run.outcome = Some(Outcome::Unknown);
        }
    }

    /// Adds the limits of a skill that it has read.
    fn add_limit(&mut self, limit: SkillLimit) {
        if !self.demands.limits.contains(&limit) {
            self.demands.limits.push(limit);
        }
    }

    /// Drops the questions of closed calls.
    fn forget_closed(&mut self) {
        let Self { calls, questions, .. } = self;
        questions.retain(|asked| asked.call.as_ref().is_none_or(|of| calls.iter().any(|call| call.id == *of)));
    }
}
