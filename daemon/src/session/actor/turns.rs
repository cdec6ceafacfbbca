//! The life of turns: started, steered, stopped, closed.

use linger_protocol::event::{Asks, TurnFinished};
use linger_protocol::message::text_of;
use linger_protocol::question::Subject;

use super::*;
use crate::config::HookEvent;
use crate::session::state::until::UntilState;
use crate::session::state::{QuestionState, Run};
use crate::sys::task;

impl Actor {
    /// Between two steps: steering prompts become messages of the turn; without any, a turn with an `ending` ends.
    /// A user's answer may have ended it.
    pub(super) fn boundary(&mut self, ending: Option<TurnEnding>, reply: oneshot::Sender<NextStep>) {
        if let Some(asked) = self.state.turn.as_ref().and_then(|turn| turn.ended_by_answer().cloned()) {
            // Without a reply the turn's task ends.
            return self.end_as_answered(asked);
        }
        let may_go_on = ending.as_ref().is_none_or(|ending| ending.reason == StopReason::EndTurn);
        let prompts: Vec<Queued> = if may_go_on { self.state.queue.steering().cloned().collect() } else { Vec::new() };
        let wanted = self.state.queue.prompts.iter().find(|queued| queued.compact && ending.is_none());
        let compact =
            wanted.map(|queued| CompactionRequest { prompt: queued.prompt.clone(), focus: text_of(&queued.content) });
        fault::point("turn.boundary");
        let ends = ending.is_some();
        if prompts.is_empty()
            && let Some(ending) = ending
        {
            // A turn with an unreadable history leaves calls open, which providers refuse.
            let open = self.close("the turn failed");
            if !open.is_empty() {
                self.append(open, Vec::new(), false, None);
            }
            self.finish_turn(ending, Vec::new());
        }
        let prompts = prompts.into_iter().filter_map(|prompt| self.prompt_message(prompt)).collect();
        // A stopped turn does not wait for the reply.
        let output_schema = self.state.turn.as_ref().and_then(|turn| turn.demands.output_schema.clone());
        let (model, setup, thinking) =
            (self.state.settings.model.clone(), self.state.prefix.setup.clone(), self.state.settings.thinking);
        let (outage, max_steps) = (self.state.settings.outage.clone(), self.state.progress.budget.size.max_steps);
        let compacts = self.state.turn.as_ref().is_none_or(|turn| turn.room.compacts.is_some());
        let news = if ends || compacts { None } else { self.tell_ended() };
        let tools = self.state.settings.tools.clone();
        let next = NextStep { prompts, news, model, setup, compact, output_schema, thinking, outage, max_steps, tools };
        let _gone = reply.send(next);
    }

    /// The check of the turn; announces it if the latest answer has none yet.
    pub(super) fn check(&mut self, reply: oneshot::Sender<Option<UntilState>>) {
        let until = |actor: &Self| actor.state.turn.as_ref().and_then(|turn| turn.demands.until.clone());
        if let Some(UntilState { command, tries, failed, .. }) = until(self).filter(UntilState::is_due) {
            let call_id = CallId(format!("c{}", self.state.progress.counts.calls + 1));
            let draft = self.in_turn(EventBody::CheckStarted { call_id, command, failed, tries });
            self.append(vec![draft], Vec::new(), false, None);
        }
        // A stopped turn does not wait for the reply.
        let _gone = reply.send(until(self));
    }

    /// The command lines of the prompt's command; announces the next one if none is under way.
    pub(super) fn runs(&mut self, reply: oneshot::Sender<Vec<Run>>) {
        let runs = |actor: &Self| actor.state.turn.as_ref().map(|turn| turn.demands.runs.clone()).unwrap_or_default();
        let now = runs(self);
        let is_open = now.iter().any(|run| run.call.is_some() && run.outcome.is_none());
        if let Some(run) = now.into_iter().find(|run| run.call.is_none() && run.outcome.is_none()).filter(|_| !is_open)
        {
            let call_id = CallId(format!("c{}", self.state.progress.counts.calls + 1));
            let draft = self.in_turn(EventBody::CommandStarted { call_id, command: run.command });
            self.append(vec![draft], Vec::new(), false, None);
        }
        // A stopped turn does not wait for the reply.
        let _gone = reply.send(runs(self));
    }

    /// Ends a turn that a user has ended with the answer to a question.
    fn end_as_answered(&mut self, asked: QuestionState) {
        let by = asked.answer.map(|given| given.by).unwrap_or_default();
        let why = match asked.about {
            Some(Subject::Budget) => "the session's budget is spent; ",
            Some(Subject::Circles) => "the model went in circles; ",
            _ => "",
        };
        let open = self.close("the turn was ended");
        self.append(open, Vec::new(), false, None);
        let detail = Some(format!("{why}ended by {by}"));
        self.finish_turn(TurnEnding { detail, ..TurnEnding::plain(StopReason::Cancelled) }, Vec::new());
    }

    /// Another model stands in for the session's own until the next turn.
    pub(super) fn fall_back(&mut self, resolved: &Resolved, why: &str) {
        let own = self.state.settings.outage.own_model.clone().unwrap_or_else(|| self.state.settings.model.clone());
        let setup = self.setup(resolved, self.state.settings.tools.as_deref());
        let text = format!("{why}; the turn continues with {}", resolved.origin);
        let changed = EventBody::model_changed(resolved.origin.clone(), setup, Some(own));
        let drafts = [notice(Level::Warning, NoticeCode::Fallback, &text), changed].map(|body| self.in_turn(body));
        self.append(drafts.into(), Vec::new(), false, None);
    }

    /// The change back to the session's own model, if another one stands in for it and its provider is still configured.
    fn own_model(&self) -> Option<EventBody> {
        let resolved = self.env.providers.model(Some(self.state.settings.outage.own_model.as_ref()?)).ok()?;
        let setup = self.setup(&resolved, self.state.settings.tools.as_deref());
        Some(EventBody::model_changed(resolved.origin, setup, None))
    }

    /// Adds a prompt to the history; returns its message.
    pub(super) fn prompt_message(&mut self, queued: Queued) -> Option<(MessageId, Vec<ContentBlock>)> {
        let asks = of_child(queued.child);
        let body = EventBody::user_message(MessageId::default(), queued.content, Some(queued.prompt), asks);
        let draft = self.in_turn(body);
        self.append(vec![draft], Vec::new(), false, None).pop().and_then(message_of)
    }

    /// Events that close the turn's open items. An answer without shown text becomes an event if it has usage.
    pub(super) fn close(&self, why: &str) -> Vec<Draft> {
        let drafts = recovery::close(&self.state, &self.log.tail().open(), self.recorded.results(), why);
        if !drafts.is_empty() || !self.recorded.has_usage() {
            return drafts;
        }
        vec![self.in_turn(recovery::cut(MessageId::default(), Vec::new(), &self.state))]
    }

    /// Ends the turn and starts the next one, after a cancel or an error only with `word`, a new prompt.
    pub(super) fn finish_turn(&mut self, ending: TurnEnding, asked: Vec<KeyedReply>) {
        let Some(turn) = &*self.state.turn else { return };
        let TurnEnding { reason: stop_reason, detail, hint, until_at, answer } = ending;
        tracing::info!(target: "turn", session = %self.id, turn = %turn.id, ?stop_reason, steps = turn.steps, detail, "finished");
        let compacts = turn.room.compacts.is_some();
        let (usage, session_usage) = (turn.usage, Some(self.state.progress.usage));
        let steps = turn.steps.saturating_add(turn.child_steps);
        let (context_tokens, context_window) =
            (self.state.progress.context_tokens(), self.env.providers.window(&self.state.settings.model));
        let finished = EventBody::TurnFinished(TurnFinished {
            prompt: turn.prompt.clone(),
            stop_reason,
            detail,
            hint,
            until_at,
            answer,
            usage,
            session_usage,
            context_tokens,
            context_window,
            steps,
        });
        let overtaken = if stop_reason == StopReason::Cancelled { self.overtaken() } else { Vec::new() };
        let draft = self.in_turn(finished);
        let drafts = overtaken.into_iter().chain([draft]).chain(self.plan_question(stop_reason, compacts)).collect();
        let (keys, replies): (Vec<_>, Vec<_>) = asked.into_iter().map(|asked| (asked.key, asked.reply)).unzip();
        let outcomes: Vec<Fold> = keys.into_iter().filter_map(|key| self.remember(key, &())).collect();
        let committed = self.append_synced(drafts, outcomes);
        respond_all(replies, committed);
        self.start_hooks(HookEvent::TurnFinished, || {
            [("stop_reason".to_owned(), serde_json::json!(stop_reason))].into_iter().collect()
        });
        self.phase = Phase::Idle;
        self.ask_for_title(stop_reason);
        self.start_next(false);
        self.notify_of_end(stop_reason, compacts);
    }

    /// The fate of the prompts that were queued behind a cancelled turn: a draft for its user, and for a sender that waits for the
    /// answer a prompt that is taken back. They are part of the append that ends the turn.
    fn overtaken(&self) -> Vec<Draft> {
        let Some(turn) = &*self.state.turn else { return Vec::new() };
        let compaction = turn.room.compaction.as_ref().and_then(|compaction| compaction.prompt.as_ref());
        let own: Vec<_> =
            [turn.prompt.as_ref(), turn.room.compacts.as_ref(), compaction].into_iter().flatten().collect();
        let becomes = |queued: &Queued| {
            let prompt = queued.prompt.clone();
            if queued.awaited {
                EventBody::PromptUnqueued { prompt, by: None, process: None }
            } else {
                EventBody::PromptDrafted { prompt }
            }
        };
        self.state.queue.overtaken(&own).map(becomes).map(Draft::new).collect()
    }

    /// Starts a turn for the next queued prompt; a held one only with `word`, a new prompt.
    pub(super) fn start_next(&mut self, word: bool) {
        if self.state.turn.is_none() && (word || !self.state.queue.held) {
            drop(self.start_first(Vec::new(), false));
        }
    }

    /// Starts a turn for the next queued prompt. Without one, the receiver gets an error.
    pub(super) fn start_first(&mut self, folds: Vec<Fold>, sync: bool) -> Committed {
        let (done, committed) = oneshot::channel();
        if self.announce_turn(folds, sync, done) {
            self.spawn_turn();
        }
        committed
    }

    /// Records the start of a turn for the next queued prompt; false without one.
    pub(super) fn announce_turn(
        &mut self,
        folds: Vec<Fold>,
        sync: bool,
        done: oneshot::Sender<Result<(), StoreError>>,
    ) -> bool {
        let Some(queued) = self.state.next_prompt().cloned() else { return false };
        if let Some(back) = self.own_model() {
            self.append(vec![Draft::new(back)], Vec::new(), false, None);
        }
        if self.state.progress.counts.turns == 0 && !queued.compact {
            self.titles.begin(text_of(&queued.content));
        }
        let turn = TurnId(format!("t{}", self.state.progress.counts.turns + 1));
        tracing::info!(target: "turn", session = %self.id, %turn, prompt = %queued.prompt, model = %self.state.settings.model, "started");
        let started = EventBody::TurnStarted { prompt: queued.prompt.clone() };
        let user = |queued: Queued| {
            EventBody::user_message(MessageId::default(), queued.content, Some(queued.prompt), of_child(queued.child))
        };
        let message = (!queued.compact).then(|| user(queued));
        let drafts = std::iter::once(started).chain(message).map(|body| Draft::of_turn(&turn, body));
        self.append(drafts.collect(), folds, sync, Some(done));
        true
    }

    pub(super) fn spawn_turn(&mut self) {
        let missing = self.environment().missing;
        if !missing.is_empty() {
            let draft = self.in_turn(missing_variables(&missing));
            self.append(vec![draft], Vec::new(), false, None);
        }
        let now = clock::now();
        if self.env.days.is_new(now) {
            let days = self.env.days.clone();
            drop(task::spawn_blocking(move || days.note(now)));
        }
        let (sender, messages) = mpsc::unbounded_channel();
        let streams = self.log.tail().open();
        let nudge = Arc::new(Notify::new());
        let handles = turn::TurnHandles {
            session: self.id.clone(),
            services: self.env.turns.clone(),
            host: self.host.clone(),
            workspace: self.workspace.clone(),
            jobs: self.background.jobs(),
            messages: sender,
            nudge: nudge.clone(),
        };
        let task = task::spawn(turn::Turn::run(handles, &self.state, self.recorded.past(), &streams));
        fault::point("actor.turn.spawned");
        self.phase = Phase::Running(Box::new(RunningTurn::new(task, messages, nudge)));
    }

    /// Ends the turn after its task panicked; the session stays.
    pub(super) fn turn_vanished(&mut self) {
        if !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        self.phase = Phase::Idle;
        tracing::error!(target: "turn", session = %self.id, "internal error in the daemon");
        let drafts = self.close("the turn failed");
        self.append(drafts, Vec::new(), false, None);
        let detail = Some("internal error in the daemon".to_owned());
        let hint = Some("see lingerd.log for details; prompt again to continue".to_owned());
        self.finish_turn(TurnEnding { detail, hint, ..TurnEnding::plain(StopReason::Error) }, Vec::new());
    }

    /// Offers the turn after its task ended because of `why`: it keeps its questions and waits for a user to resume it.
    pub(super) fn offer(&mut self, why: &str) {
        self.phase = Phase::Idle;
        tracing::error!(target: "turn", session = %self.id, why, "cannot continue the turn");
        let text = format!("{why}; run `linger doctor --repair`, then continue the turn");
        let draft = self.in_turn(notice(Level::Error, NoticeCode::Offered, &text));
        self.append(vec![draft], Vec::new(), true, None);
    }

    /// Stops the turn's task; [`Self::stopped`] then does what `then` says.
    pub(super) fn stop(&mut self, then: Then) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Running(running) => self.phase = Phase::Stopping(running.abort(), then),
            Phase::Stopping(task, earlier) => {
                let then = match (earlier, then) {
                    (Then::Cancel(all), then @ Then::Remove(_)) => {
                        for asked in all {
                            respond(asked.reply, Ok(()));
                        }
                        then
                    }
                    (Then::Remove(mut all), Then::Remove(more)) => {
                        all.extend(more);
                        Then::Remove(all)
                    }
                    (Then::Remove(all), then) => {
                        let error = RpcError::new(Code::Ending, "the daemon is ending");
                        for asked in all {
                            respond(asked.reply, Err(error.clone()));
                        }
                        then
                    }
                    (_, then) => then,
                };
                self.phase = Phase::Stopping(task, then);
            }
            Phase::Git(git) | Phase::Failed(_, _, Some(git)) => {
                // Git works in a directory that outlives the session, so it goes on; it has had its while if the daemon ends.
                let task = git.into_task();
                if matches!(then, Then::Pause(_)) {
                    task.abort();
                }
                self.phase = Phase::Stopping(task, then);
            }
            Phase::Idle | Phase::Failed(_, _, None) => {
                // Nothing runs; use a finished task instead.
                self.phase = Phase::Stopping(task::spawn(std::future::ready(())), then);
            }
        }
    }

    /// Leaves the turn unfinished for the next start of the daemon, unless the user has cancelled it.
    pub(super) async fn pause(&mut self, done: oneshot::Sender<()>) {
        let ending = RpcError::new(Code::Ending, "the daemon is ending").hint("connect again: a client starts it");
        self.places.refuse_all(&ending);
        if self.attendance.has_person() {
            self.person_left();
        }
        // What the turn has said counts, such as the result of a call that has just ended.
        while let Some(message) = self.running_mut().and_then(RunningTurn::try_next) {
            self.turn_message(*message);
        }
        self.finish_git().await;
        if let Phase::Stopping(task, Then::Cancel(..)) = &mut self.phase {
            // On timeout the task is abandoned.
            let _late = tokio::time::timeout(STOP_GRACE, task).await;
            self.stopped().await;
        }
        self.stop(Then::Pause(done));
    }

    /// Continues after the turn's task has ended; true if the actor ends.
    pub(super) async fn stopped(&mut self) -> bool {
        let Phase::Stopping(..) = self.phase else { return false };
        let Phase::Stopping(_, then) = std::mem::replace(&mut self.phase, Phase::Idle) else { return false };
        fault::point("actor.stopped");
        match then {
            Then::Cancel(asked) => self.close_turn(asked),
            Then::Interrupt => self.interrupt(),
            Then::Remove(asked) => {
                let (outcomes, replies) = outcomes(asked);
                let removed = self.env.store.remove(self.log.clone(), outcomes).await;
                let gone = removed.is_ok();
                if gone {
                    self.host.forget(&self.id);
                    self.env.questions.remove_all(&self.id);
                    self.env.forget_secrets(&self.id);
                    self.env.remove_empty(&self.id);
                    self.env.store.found.readable(&self.id);
                }
                let result = removed.map_err(RpcError::from);
                for reply in replies {
                    respond(reply, result.clone());
                }
                if !gone {
                    // The session still exists, and its turn was stopped.
                    self.close_turn(Vec::new());
                }
                return gone;
            }
            Then::Pause(done) => {
                self.background.end("the daemon is ending").await;
                if self.state.turn.as_ref().is_some_and(|turn| !turn.wait.offered) && !self.log.failed() {
                    let notice = notice(
                        Level::Info,
                        NoticeCode::Paused,
                        "the daemon is ending; the turn resumes when it starts again",
                    );
                    let draft = self.in_turn(notice);
                    // The log file has a failed write.
                    let _logged = self.append_synced(vec![draft], None).await;
                    fault::point("actor.paused");
                }
                let _gone = done.send(());
                return true;
            }
        }
        false
    }

    pub(super) fn close_turn(&mut self, asked: Vec<KeyedReply>) {
        let keys = asked.iter().filter_map(|asked| asked.key.clone()).collect();
        self.writes.keep_cancel(self.state.turn.as_ref().map(|turn| turn.id.clone()), keys);
        let drafts = self.close("cancelled by the user");
        self.append(drafts, Vec::new(), false, None);
        self.finish_turn(TurnEnding::plain(StopReason::Cancelled), asked);
    }

    /// Ends the step; the turn continues with the interrupting prompts.
    pub(super) fn interrupt(&mut self) {
        let drafts = self.close("interrupted by the user");
        self.append(drafts, Vec::new(), false, None);
        let prompts: Vec<Queued> = self.state.queue.steering().cloned().collect();
        for prompt in prompts {
            drop(self.prompt_message(prompt));
        }
        self.spawn_turn();
    }
}

/// The mark of a message whose prompt has a child's words.
fn of_child(child: Option<SessionId>) -> Option<Asks> {
    child.map(|_| Asks::Child)
}

/// The outcomes of requests done together, each key once, and their reply channels.
fn outcomes(asked: Vec<KeyedReply>) -> (Vec<Outcome>, Vec<Reply<()>>) {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut replies = Vec::new();
    for KeyedReply { key, reply } in asked {
        let new = key.filter(|key| !outcomes.iter().any(|known| known.key.id == key.id));
        outcomes.extend(new.map(|key| key.outcome(&())));
        replies.push(reply);
    }
    (outcomes, replies)
}
