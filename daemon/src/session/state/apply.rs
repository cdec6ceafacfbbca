//! The fold of events into a session's state. Pure.
//!
//! [`State::apply`] folds live events and events from the log in the same way. It never fails: it ignores references to unknown
//! items. An event that concerns one family is folded by it; one that concerns several is taken apart here.

use linger_protocol::event::{
    Asks, Compacted, CompactionFailed, Event, EventBody, MessageAdded, Notice, NoticeCode, PromptAccepted,
    SessionChanged, SessionCreated, ToolFinished, Trimmed, TurnFinished,
};
use linger_protocol::id::{PromptId, TurnId};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::Mode;
use linger_protocol::session::State as Doing;

use super::reaction::Reaction;
use super::{Background, CallState, State, Task, Turn};
use crate::provider::retry;
use crate::session::state::circles::CallFingerprint;

impl State {
    /// Folds the next event; gives its consequences outside the state.
    pub fn apply(&mut self, event: &Event) -> Vec<Reaction> {
        let given_up = self.undo.given_up;
        let works = self.turn.as_ref().is_some_and(|turn| !turn.wait.paused) && self.doing() == Doing::Running;
        self.progress.advance(event, works);
        self.fold(event);
        self.reactions(event, given_up)
    }

    fn fold(&mut self, event: &Event) {
        let (at, head) = (event.at, self.progress.head);
        match &event.body {
            EventBody::SessionCreated(made) => self.create(made, at),
            EventBody::Forked(begun) => self.begin_fork(begun, at),
            EventBody::Rewound(back) => self.go_back(back),
            EventBody::Uncompacted(taken) => self.uncompact(taken),
            EventBody::WorktreeChanged(worktree) => self.task.edit().change_worktree(worktree),
            EventBody::SessionChanged(changed) => self.change(changed, at),
            EventBody::PromptAccepted(accepted) => self.accept_prompt(accepted),
            EventBody::PromptUnqueued { prompt, .. } => self.queue.edit().take_back(prompt),
            EventBody::PromptDrafted { prompt } => self.queue.edit().draft(prompt),
            EventBody::DraftSent { prompt, .. } => self.queue.edit().send(prompt),
            EventBody::TurnStarted { prompt } => self.start_turn(prompt, event.turn.as_ref()),
            EventBody::Message(message) => self.add_message(message),
            EventBody::MessageSuperseded { .. } => self.in_turn(|turn| turn.answer.interrupted = None),
            EventBody::ChildUpdated(update) => self.update_child(update, event.turn.is_some()),
            EventBody::ToolStarted(started) => self.in_turn(|turn| turn.start_call(started)),
            EventBody::ToolFinished(finished) => self.finish_call(finished, event),
            EventBody::CommandStarted { call_id, command } => {
                self.start_own_call(|turn| turn.start_command(call_id, command));
            }
            EventBody::CheckStarted { call_id, command, .. } => {
                self.start_own_call(|turn| turn.start_check(call_id, command));
            }
            EventBody::BackgroundStarted { background, command, .. } => {
                self.progress.counts.background += 1;
                self.background.edit().start(background, command, at);
            }
            EventBody::BackgroundEnded(ended) => self.background.edit().end(ended),
            EventBody::PermissionRequested(asked) => self.ask_permission(asked, at),
            EventBody::PermissionResolved(resolved) => self.resolve_permission(resolved, at),
            EventBody::QuestionAsked { question, asked } => self.ask_question(question, asked, at),
            EventBody::QuestionResolved(resolved) => self.resolve_question(resolved, at),
            EventBody::ConfigConfirmed { settings, workspace, .. } => {
                self.daemon.edit().confirm(settings, workspace.as_deref());
            }
            EventBody::CompactionStarted(started) => {
                self.in_turn(|turn| turn.start_compaction(started.prompt.as_ref(), started.tokens));
            }
            EventBody::Compacted(compacted) => self.compact(compacted),
            EventBody::CompactionFailed(failed) => self.fail_compaction(failed),
            EventBody::Trimmed(trimmed) => self.trim(trimmed),
            EventBody::TurnFinished(finished) => self.finish_turn(finished),
            EventBody::Lost { .. } => self.lose(event),
            EventBody::Notice(notice) => self.note(notice, event),
            EventBody::Checkpoint(_) | EventBody::UndoStarted(_) | EventBody::Undone { .. } | EventBody::Merged(_) => {
                self.undo.edit().apply(event, head)
            }
            EventBody::Plan { .. }
            | EventBody::TextDelta(_)
            | EventBody::ThinkingDelta(_)
            | EventBody::HostedDelta { .. }
            | EventBody::ToolCallDelta { .. }
            | EventBody::ToolOutputDelta { .. }
            | EventBody::CaughtUp {}
            | EventBody::Unknown => {}
        }
    }

    fn create(&mut self, made: &SessionCreated, at: u64) {
        self.identity.edit().create(made, at);
        self.settings.edit().create(made);
        self.prefix.edit().setup.clone_from(&made.setup);
        self.task.edit().delegated.clone_from(&made.delegated);
    }

    fn change(&mut self, changed: &SessionChanged, at: u64) {
        let head = self.progress.head;
        self.progress.change(changed);
        self.settings.update(|settings| settings.change(changed, at));
        self.identity.update(|identity| identity.change(changed, head));
        self.prefix.update(|prefix| prefix.change(changed, head));
        self.title.update(|title| title.change(changed));
        if changed.model.is_some() {
            self.in_turn(Turn::change_model);
        }
    }

    fn accept_prompt(&mut self, accepted: &PromptAccepted) {
        self.progress.counts.prompts += 1;
        if self.title.title.is_none() && !accepted.compact {
            self.title.edit().begin(accepted);
        }
        self.queue.edit().push(accepted, self.progress.head);
    }

    fn start_turn(&mut self, prompt: &PromptId, turn: Option<&TurnId>) {
        self.progress.start_turn();
        self.hold_queue(false);
        let compacts = self.queue.prompts.iter().any(|queued| queued.prompt == *prompt && queued.compact);
        let compacts = compacts.then(|| prompt.clone());
        *self.turn.edit() = Some(Turn::start(turn.cloned().unwrap_or_default(), prompt, compacts));
        self.task.update(Task::start_turn);
    }

    fn add_message(&mut self, message: &MessageAdded) {
        self.progress.counts.messages += 1;
        if let Some(asks) = message.asks {
            self.ask_model(asks);
        }
        if let Some(prompt) = &message.prompt {
            let taken = self.queue.edit().take(prompt);
            self.in_turn(|turn| turn.take_prompt(taken));
        }
        match message.role {
            Role::User => self.in_turn(|turn| turn.add_user_message(&message.content)),
            Role::Assistant => self.add_answer(message),
        }
    }

    /// The daemon sent a message to the model in the user's place.
    fn ask_model(&mut self, asks: Asks) {
        self.in_turn(|turn| turn.ask_model(asks));
        if asks == Asks::Mode {
            self.history.edit().plan_told = self.settings.mode == Mode::Plan;
        }
        if matches!(asks, Asks::Ended | Asks::Mode) {
            self.background.update(Background::forget_ended);
            if !self.undo.news.is_empty() {
                self.undo.edit().news.clear();
            }
        }
    }

    fn add_answer(&mut self, answer: &MessageAdded) {
        let calls = answer.content.iter().filter_map(|block| match block {
            ContentBlock::ToolUse { call_id, name, input, .. } => {
                Some(CallState { id: call_id.clone(), made: CallFingerprint::new(name, input), ..CallState::default() })
            }
            _ => None,
        });
        let calls: Vec<CallState> = calls.collect();
        let cut = answer.content.iter().filter(|block| matches!(block, ContentBlock::CutToolUse { .. })).count();
        let usage = Usage::of_answer(answer.usage, answer.interrupted);
        self.progress.add_answer(calls.len() + cut, usage);
        self.in_turn(|turn| turn.add_answer(answer, calls, usage));
    }

    /// A call that no model made is announced.
    fn start_own_call(&mut self, start: impl FnOnce(&mut Turn)) {
        self.progress.counts.calls += 1;
        self.in_turn(start);
    }

    fn finish_call(&mut self, finished: &ToolFinished, event: &Event) {
        if self.undo.concerns(finished) {
            self.undo.edit().apply(event, self.progress.head);
        }
        let asked_for = finished.model_cost.as_ref().map(|cost| cost.usage);
        if let Some(usage) = asked_for {
            self.progress.usage += usage;
            self.progress.unpriced |= usage.cost_micros.is_none();
        }
        self.in_turn(|turn| turn.finish_call(&finished.call_id, finished.outcome, asked_for));
        self.forget_finished();
    }

    fn compact(&mut self, compacted: &Compacted) {
        self.progress.context = compacted.tokens_after;
        let history = self.history.edit();
        history.passed_over.compacted = Some(self.progress.head);
        // The summary has replaced it.
        history.plan_told = false;
        self.end_compaction(compacted.prompt.as_ref(), true, Usage::of_answer(compacted.usage, false));
    }

    fn fail_compaction(&mut self, failed: &CompactionFailed) {
        // Missing usage counts as zero.
        self.end_compaction(failed.prompt.as_ref(), false, failed.usage.unwrap_or_default());
    }

    fn end_compaction(&mut self, prompt: Option<&PromptId>, succeeded: bool, usage: Usage) {
        self.progress.usage += usage;
        if let Some(prompt) = prompt {
            self.queue.edit().take(prompt);
        }
        self.in_turn(|turn| turn.end_compaction(prompt.is_some(), succeeded, usage));
    }

    fn trim(&mut self, trimmed: &Trimmed) {
        self.progress.context = trimmed.tokens_after;
        if !trimmed.native.is_empty() {
            self.history.edit().passed_over.has_refused = true;
        }
        if !trimmed.calls.is_empty() {
            self.in_turn(|turn| turn.room.effort.trimmed = true);
        }
    }

    fn finish_turn(&mut self, finished: &TurnFinished) {
        // A cancelled compaction is not resumed.
        if let Some(prompt) = self.turn.edit().take().and_then(|turn| turn.room.compacts) {
            self.queue.edit().take(&prompt);
        }
        self.progress.stop_reason = Some(finished.stop_reason);
        self.hold_queue(matches!(finished.stop_reason, StopReason::Cancelled | StopReason::Error));
    }

    /// Folds a lost event conservatively: never reuses an id, starts a prompt or keeps a permission that it may have affected.
    fn lose(&mut self, event: &Event) {
        self.progress.lose();
        self.undo.edit().apply(event, self.progress.head);
        let queue = self.queue.edit();
        queue.prompts.clear();
        // It may have told that a draft was sent, or taken back.
        queue.drafts.clear();
        // It may have told the end of a child, and the usage of it.
        self.children.edit().under_way.clear();
        self.settings.edit().lose();
        self.daemon.edit().lose();
        self.in_turn(Turn::lose);
    }

    fn note(&mut self, notice: &Notice, event: &Event) {
        let Some(code) = notice.code else { return };
        match code {
            // Another program may have written the events.
            NoticeCode::Rebuilt => {
                self.settings.edit().forget_permitted();
                self.daemon.edit().lose();
            }
            NoticeCode::NoCheckpoint => self.undo.edit().apply(event, self.progress.head),
            NoticeCode::Retry => {
                if let Some(since_at) = notice.since_at {
                    let reason = retry::reason(&notice.text);
                    self.in_turn(|turn| turn.wait_for_provider(reason, since_at, notice.until_at));
                }
            }
            _ => self.in_turn(|turn| turn.note(code)),
        }
    }

    pub(super) fn in_turn(&mut self, change: impl FnOnce(&mut Turn)) {
        if self.turn.is_some()
            && let Some(turn) = self.turn.edit()
        {
            change(turn);
        }
    }
}
