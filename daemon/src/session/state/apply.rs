//! The fold of events into a session's state. Pure.
//!
//! [`State::apply`] folds live events and events from the log in the same way. It never fails: it ignores references to unknown
//! items.

use std::sync::Arc;

use linger_protocol::event::{
    Asks, BackgroundEnded, Compacted, CompactionFailed, CompactionStarted, Event, EventBody, MessageAdded, Notice,
    NoticeCode, Outcome, PromptAccepted, SessionChanged, SessionCreated, ToolFinished, ToolStarted, Trimmed,
    TurnFinished,
};
use linger_protocol::id::{CallId, MessageId, PromptId};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::Mode;
use linger_protocol::session::{ProviderWait, State as Doing, Until, When};
use linger_protocol::worktree::WorktreeStatus;
use serde_json::Value;

use super::{BackgroundState, Call, Compaction, Counts, MemoryIndex, Queued, Run, Shape, State, Turn, skills_digest};
use crate::provider::retry;
use crate::provider::tools::only;
use crate::session::circles::{Circles, Made};
use crate::session::compaction::Effort;
use crate::session::until::{CHECKS_WITH, UntilState, check_input, command_input};
use crate::tool::background::describe;

/// The most calls of an answer: the decoder's bound on blocks. Calls beyond the run limit have ids too.
const CALLS: u64 = 512;

/// The longest title, in characters: a line of a terminal.
const TITLE: usize = 72;

impl State {
    /// Folds the next event.
    pub fn apply(&mut self, event: &Event) {
        if let Some(seq) = event.seq {
            let works = self.turn.as_ref().is_some_and(|turn| !turn.paused) && self.doing() == Doing::Running;
            if works {
                self.budget.count(event, event.at.saturating_sub(self.updated_at));
            }
            self.head = seq;
            self.updated_at = event.at;
        }
        self.undo.apply(event, self.head);
        match &event.body {
            EventBody::SessionCreated(SessionCreated {
                cwd,
                model,
                mode,
                effort,
                name,
                setup,
                parent,
                delegated,
                tools,
                one_shot,
                agent,
                allow,
                system,
                ..
            }) => {
                self.grants.clone_from(allow);
                self.added_system.clone_from(system);
                self.delegated.clone_from(delegated);
                self.one_shot = *one_shot;
                self.role.clone_from(agent);
                self.parent.clone_from(parent);
                self.tools = tools.clone();
                self.setup.clone_from(setup);
                self.created_at = event.at;
                self.thinking = *effort;
                (self.cwd, self.model, self.mode, self.name) = (cwd.clone(), model.clone(), *mode, name.clone());
            }
            EventBody::Forked(begun) => self.begin_fork(begun, event.at),
            EventBody::Rewound(back) => self.go_back(back),
            EventBody::Uncompacted(taken) => self.uncompact(taken),
            EventBody::WorktreeChanged(worktree) => {
                self.delegated.iter_mut().for_each(|of| of.worktree = Some(worktree.clone()));
            }
            EventBody::SessionChanged(SessionChanged {
                model,
                mode,
                effort,
                name,
                instructions,
                skills,
                memory,
                agent,
                setup,
                stands_in_for,
                patience,
                fallback,
                unattended,
                budget,
                additional_directories,
                tools,
                mcp_servers,
                binned,
                title,
                title_cost,
            }) => {
                self.given_title = title.clone().or_else(|| self.given_title.take());
                self.usage += title_cost.as_ref().map(|cost| cost.usage).unwrap_or_default();
                self.directories =
                    additional_directories.clone().unwrap_or_else(|| std::mem::take(&mut self.directories));
                if let Some(named) = tools {
                    self.tools = only(named);
                }
                self.mcp_servers = mcp_servers.clone().unwrap_or_else(|| std::mem::take(&mut self.mcp_servers));
                budget.iter().for_each(|budget| self.budget.set(*budget));
                if let Some(binned) = binned {
                    self.binned_at = binned.then_some(event.at);
                }
                self.unattended = unattended.unwrap_or(self.unattended);
                self.thinking = effort.unwrap_or(self.thinking);
                self.outage.patience = patience.or(self.outage.patience);
                self.outage.fallback = fallback.clone().or_else(|| self.outage.fallback.take());
                if model.is_some() {
                    self.outage.own_model.clone_from(stands_in_for);
                    self.in_turn(|turn| (turn.provider_wait, turn.broken_off) = (None, 0));
                }
                self.model = model.clone().unwrap_or_else(|| std::mem::take(&mut self.model));
                self.mode = mode.unwrap_or(self.mode);
                self.name = name.clone().or_else(|| self.name.take());
                if let Some(instructions) = instructions {
                    self.instructions.clone_from(instructions);
                }
                if let Some(skills) = skills {
                    self.skills = skills_digest(skills);
                }
                if let Some(memory) = memory {
                    let text = memory.as_str().into();
                    self.memory = Some(MemoryIndex { seq: self.head, text, is_old: false });
                }
                self.role = agent.clone().or_else(|| self.role.take());
                self.setup = setup.clone().or_else(|| self.setup.take());
            }
            EventBody::PromptAccepted(PromptAccepted {
                prompt,
                content,
                when,
                compact,
                schema,
                until,
                command,
                child,
                runs,
                limit,
                ..
            }) => {
                self.prompt_accepted(prompt, content, command.as_deref(), (*when, *compact), until.clone());
                self.queue.back_mut().into_iter().for_each(|queued| queued.runs.clone_from(runs));
                if let (Some(queued), Some(schema)) = (self.queue.back_mut(), schema) {
                    queued.schema = Some(Arc::new(schema.clone()));
                }
                if let Some(queued) = self.queue.back_mut() {
                    queued.child.clone_from(child);
                    queued.limit.clone_from(limit);
                }
            }
            EventBody::PromptUnqueued { prompt, .. } => self.queue.retain(|queued| queued.prompt != *prompt),
            EventBody::TurnStarted { prompt } => {
                self.counts.turns += 1;
                self.held = false;
                self.before_turn = self.head.saturating_sub(1);
                let id = event.turn.clone().unwrap_or_default();
                let asks = |queued: &&Queued| queued.prompt == *prompt && queued.compact;
                let compacts = self.queue.iter().find(asks).map(|queued| queued.prompt.clone());
                self.turn = Some(Turn { id, prompt: Some(prompt.clone()), compacts, ..Turn::default() });
                // What it does from now on is merged anew.
                let worktree = self.delegated.as_mut().and_then(|of| of.worktree.as_mut());
                if let Some(worktree) = worktree.filter(|worktree| worktree.status == WorktreeStatus::Merged) {
                    worktree.status = WorktreeStatus::Kept;
                }
            }
            EventBody::Message(MessageAdded {
                message,
                role,
                content,
                interrupted,
                prompt,
                asks,
                usage,
                cut,
                paused,
                ..
            }) => {
                self.counts.messages += 1;
                self.model_asked(*asks);
                if *asks == Some(Asks::Mode) {
                    self.plan_told = self.mode == Mode::Plan;
                }
                if matches!(asks, Some(Asks::Ended | Asks::Mode)) {
                    self.background.retain(|job| job.ended.is_none());
                    self.undo.news.clear();
                }
                if let Some(prompt) = prompt {
                    let taken = self.queue.iter().find(|queued| queued.prompt == *prompt);
                    let until = taken.and_then(|queued| queued.until.clone());
                    let shape = taken.and_then(|queued| Some((queued.seq, queued.schema.clone()?)));
                    let limit = taken.and_then(|queued| queued.limit.clone());
                    let runs = taken.map(|queued| queued.runs.clone()).unwrap_or_default();
                    let runs = runs.into_iter().map(|command| Run { command, ..Run::default() });
                    self.in_turn(|turn| turn.runs.extend(runs));
                    if let Some(limit) = limit {
                        self.in_turn(|turn| turn.add_limit(limit));
                    }
                    if let Some((seq, schema)) = shape {
                        self.in_turn(|turn| turn.shape = Some(Shape { seq, schema, ..Shape::default() }));
                    }
                    if let Some(until) = until {
                        self.in_turn(|turn| turn.until = Some(UntilState::new(until)));
                    }
                    self.queue.retain(|queued| queued.prompt != *prompt);
                    // A new prompt resets what was tried for the old one.
                    self.in_turn(|turn| {
                        (turn.compacts, turn.effort) = (None, Effort::default());
                        (turn.broken_off, turn.continued) = (0, 0);
                        turn.circles = Circles::default();
                    });
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
            EventBody::ChildUpdated(update) => self.child_updated(update, event.turn.is_some()),
            EventBody::ToolStarted(ToolStarted { call_id, after_crash, action, limit, .. }) => {
                self.call(call_id, |call| {
                    (call.started, call.after_crash) = (true, *after_crash);
                    call.made.describe(action);
                });
                if let Some(limit) = limit {
                    self.in_turn(|turn| turn.add_limit(limit.clone()));
                }
            }
            EventBody::ToolFinished(ToolFinished { call_id, outcome, model_cost, .. }) => {
                if let Some(cost) = model_cost {
                    self.usage += cost.usage;
                    self.in_turn(|turn| turn.usage += cost.usage);
                    self.unpriced |= cost.usage.cost_micros.is_none();
                }
                self.call(call_id, |call| call.finished = true);
                self.forget_finished();
                self.in_turn(|turn| {
                    turn.until.iter_mut().for_each(|until| until.finished(call_id, *outcome));
                    let run = turn.runs.iter_mut().find(|run| run.call.as_ref() == Some(call_id));
                    run.into_iter().for_each(|run| run.outcome = Some(*outcome));
                });
            }
            EventBody::CommandStarted { call_id, command } => {
                self.counts.calls += 1;
                let made = Made::new(CHECKS_WITH, &command_input(command));
                let call = Call { id: call_id.clone(), made, is_check: true, ..Call::default() };
                self.in_turn(|turn| {
                    turn.calls.retain(|call| !call.is_check);
                    turn.calls.push(call);
                    let run = turn.runs.iter_mut().find(|run| run.call.is_none());
                    run.into_iter().for_each(|run| run.call = Some(call_id.clone()));
                });
            }
            EventBody::CheckStarted { call_id, command, .. } => {
                self.counts.calls += 1;
                let made = Made::new(CHECKS_WITH, &check_input(command));
                let call = Call { id: call_id.clone(), made, is_check: true, ..Call::default() };
                self.in_turn(|turn| {
                    turn.calls.retain(|call| !call.is_check);
                    turn.calls.push(call);
                    turn.until.iter_mut().for_each(|until| until.started(call_id));
                });
            }
            EventBody::BackgroundStarted { background, command, .. } => {
                self.counts.background += 1;
                let (id, command, started_at) = (background.clone(), command.clone(), event.at);
                self.background.push(BackgroundState { id, command, started_at, ended: None });
            }
            EventBody::BackgroundEnded(BackgroundEnded { background, exit, reason, output, file, .. }) => {
                if let Some(job) = self.background.iter_mut().find(|job| job.id == *background) {
                    let how = describe(exit.as_ref(), reason.as_deref());
                    let command = job.command.lines().next().unwrap_or_default();
                    let file = file.as_ref().map(|file| format!("; the whole output is in {}", file.display()));
                    let output = if output.trim().is_empty() { "" } else { output };
                    let file = file.unwrap_or_default();
                    job.ended = Some(format!("[{background} has ended: {how}{file} (`{command}`)]\n{output}"));
                }
            }
            EventBody::PermissionRequested(_)
            | EventBody::PermissionResolved(_)
            | EventBody::QuestionAsked { .. }
            | EventBody::QuestionResolved(_) => self.apply_question(event),
            EventBody::ConfigConfirmed { settings, workspace, .. } => match workspace {
                None => self.confirmed = Some(settings.clone()),
                Some(root) if settings.is_null() => drop(self.trusted.remove(root)),
                Some(root) => drop(self.trusted.insert(root.clone(), settings.clone())),
            },
            EventBody::CompactionStarted(CompactionStarted { prompt, tokens, .. }) => {
                let compaction = Compaction { prompt: prompt.clone(), tokens: *tokens };
                self.in_turn(|turn| turn.compaction = Some(compaction));
            }
            EventBody::Compacted(Compacted { prompt, tokens_after, usage, .. }) => {
                self.context = *tokens_after;
                self.passed_over.compacted = event.seq;
                // The summary has replaced it.
                self.plan_told = false;
                self.compaction_over(prompt.as_ref(), true, Usage::of_answer(*usage, false));
            }
            EventBody::CompactionFailed(CompactionFailed { prompt, usage, .. }) => {
                // Missing usage counts as zero.
                self.compaction_over(prompt.as_ref(), false, usage.unwrap_or_default());
            }
            EventBody::Trimmed(Trimmed { calls, native, tokens_after, .. }) => {
                self.context = *tokens_after;
                self.passed_over.has_refused |= !native.is_empty();
                let output = !calls.is_empty();
                self.in_turn(|turn| turn.effort.trimmed |= output);
            }
            EventBody::TurnFinished(TurnFinished { stop_reason, .. }) => {
                // A cancelled compaction is not resumed.
                if let Some(prompt) = self.turn.take().and_then(|turn| turn.compacts) {
                    self.queue.retain(|queued| queued.prompt != prompt);
                }
                self.stop_reason = Some(*stop_reason);
                self.held = matches!(stop_reason, StopReason::Cancelled | StopReason::Error);
            }
            EventBody::Lost { .. } => self.lost(),
            EventBody::Notice(Notice { code, text, since_at, until_at, .. }) => {
                self.notice(*code);
                if let (Some(NoticeCode::Retry), Some(since_at)) = (code, *since_at) {
                    let (reason, until_at) = (retry::reason(text).to_owned(), until_at.unwrap_or(since_at));
                    let wait = ProviderWait { reason, since_at, until_at };
                    self.in_turn(|turn| turn.provider_wait = Some(wait));
                }
            }
            EventBody::TextDelta(_)
            | EventBody::ThinkingDelta(_)
            | EventBody::HostedDelta { .. }
            | EventBody::ToolCallDelta { .. }
            | EventBody::ToolOutputDelta { .. }
            | EventBody::CaughtUp {}
            | EventBody::Plan { .. }
            | EventBody::UndoStarted(_)
            | EventBody::Checkpoint(_)
            | EventBody::Undone { .. }
            | EventBody::Merged(_)
            | EventBody::Unknown => {}
        }
    }

    fn prompt_accepted(
        &mut self,
        prompt: &PromptId,
        content: &[ContentBlock],
        command: Option<&str>,
        (when, compact): (When, bool),
        until: Option<Until>,
    ) {
        self.counts.prompts += 1;
        if self.title.is_none() && !compact {
            let text = command.or_else(|| content.iter().find_map(ContentBlock::as_text)).unwrap_or_default();
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
            until,
            child: None,
            runs: Vec::new(),
            limit: None,
        });
    }

    /// The daemon sent a message to the model in the user's place.
    fn model_asked(&mut self, asks: Option<Asks>) {
        if asks == Some(Asks::Check) {
            self.in_turn(|turn| turn.until.iter_mut().for_each(UntilState::told));
        }
        if asks == Some(Asks::Output) {
            self.in_turn(|turn| turn.runs.clear());
        }
        if asks == Some(Asks::GoOn) {
            self.in_turn(|turn| turn.continued += u32::from(turn.cut));
        }
        let Some(shape) = self.turn.as_mut().and_then(|turn| turn.shape.as_mut()) else { return };
        match asks {
            Some(Asks::Schema) => shape.said = true,
            Some(Asks::Again) => shape.misfits += 1,
            Some(Asks::GoOn | Asks::Ended | Asks::Check | Asks::Child | Asks::Mode | Asks::Output | Asks::Unknown)
            | None => {}
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
            turn.circles.add(content.iter().filter_map(|block| match block {
                ContentBlock::ToolResult { call_id, is_error, content } => {
                    let call = turn.calls.iter().find(|call| call.id == *call_id)?;
                    let failed = *is_error && !turn.questions.iter().any(|asked| asked.denies(call_id));
                    Some((&call.made, failed, content.as_slice()))
                }
                _ => None,
            }));
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
            ContentBlock::ToolUse { call_id, name, input, .. } => {
                Some(Call { id: call_id.clone(), made: Made::new(name, input), ..Call::default() })
            }
            _ => None,
        });
        let calls: Vec<Call> = calls.collect();
        let cut_calls = content.iter().filter(|block| matches!(block, ContentBlock::CutToolUse { .. })).count();
        self.counts.calls += (calls.len() + cut_calls) as u64;
        self.usage += usage;
        if usage.input_tokens > 0 {
            self.context = usage.input_tokens + usage.output_tokens;
        }
        self.in_turn(|turn| {
            turn.usage += usage;
            if interrupted {
                turn.interrupted = Some(message.clone());
                turn.broken_off += 1;
                return;
            }
            turn.interrupted = None;
            turn.until.iter_mut().for_each(UntilState::answered);
            (turn.cut, turn.goes_on) = (cut, paused);
            turn.continued *= u32::from(cut);
            turn.crashes = 0;
            (turn.provider_wait, turn.broken_off) = (None, 0);
            turn.effort = Effort::default();
            turn.steps += 1;
            turn.calls = calls;
            turn.forget_closed();
        });
    }

    /// Folds a lost event conservatively: never reuses an id, starts a prompt or keeps a permission that it may have affected.
    fn lost(&mut self) {
        let Counts { turns, messages, calls, prompts, background } = &mut self.counts;
        (*turns, *messages, *prompts, *calls) = (*turns + 1, *messages + 1, *prompts + 1, *calls + CALLS);
        *background += 1;
        self.queue.clear();
        // What it said of a child may be lost, and with it what that has used.
        self.children.clear();
        // It may have said that one counts no more.
        self.directories.clear();
        self.mcp_servers.clear();
        // It may have said that less is confirmed or trusted.
        self.trusted.clear();
        self.confirmed = self.confirmed.take().map(|_| Value::Object(serde_json::Map::new()));
        // Their results may be lost; the context has a placeholder for each.
        self.in_turn(|turn| {
            turn.calls.clear();
            turn.questions.clear();
            // A check may have started.
            turn.until.iter_mut().for_each(UntilState::lost);
            turn.runs.iter_mut().for_each(|run| run.outcome = Some(Outcome::Unknown));
        });
        if matches!(self.mode, Mode::Edit | Mode::Auto) {
            self.mode = Mode::Ask;
        }
    }

    /// Nothing is permitted any more that only events say, which another program may have written.
    fn ask_again(&mut self) {
        if matches!(self.mode, Mode::Edit | Mode::Auto) {
            self.mode = Mode::Ask;
        }
        self.grants.clear();
        self.directories.clear();
        self.mcp_servers.clear();
        self.trusted.clear();
        self.confirmed = self.confirmed.take().map(|_| Value::Object(serde_json::Map::new()));
    }

    fn notice(&mut self, code: Option<NoticeCode>) {
        if code == Some(NoticeCode::Rebuilt) {
            self.ask_again();
        }
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
            Some(NoticeCode::KeyMissing | NoticeCode::Unconfirmed) => turn.key_missing = true,
            Some(NoticeCode::KeyFound) => turn.key_missing = false,
            Some(NoticeCode::Reached) => turn.provider_wait = None,
            Some(
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
                | NoticeCode::Unknown,
            )
            | None => {}
        });
    }

    pub(super) fn in_turn(&mut self, change: impl FnOnce(&mut Turn)) {
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
