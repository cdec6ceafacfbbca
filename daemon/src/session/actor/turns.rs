//! The life of turns: started, steered, stopped, closed.

use linger_protocol::message::text_of;

use super::*;

impl Actor {
    /// Between two steps: prompts that steer become messages of the turn; without any, a turn that wants to end does.
    pub(super) fn boundary(&mut self, ending: Option<Ending>, reply: oneshot::Sender<NextStep>) {
        let may_go_on = ending.as_ref().is_none_or(|ending| ending.reason == StopReason::EndTurn);
        let prompts: Vec<Queued> = if may_go_on { self.state.steering().cloned().collect() } else { Vec::new() };
        let wanted = self.state.queue.iter().find(|queued| queued.compact && ending.is_none());
        let compact = wanted.map(|queued| Wanted { prompt: queued.prompt.clone(), focus: text_of(&queued.content) });
        fault::point("turn.boundary");
        if prompts.is_empty()
            && let Some(ending) = ending
        {
            // A turn that could not even read what it had begun leaves calls open, which no provider would take.
            let open = self.close("the turn failed");
            if !open.is_empty() {
                self.append(open, Vec::new(), false, None);
            }
            self.finish_turn(ending, Vec::new(), false);
        }
        let prompts = prompts.into_iter().filter_map(|prompt| self.prompt_message(prompt)).collect();
        // A turn that was stopped does not wait for the answer.
        let shape = self.state.turn.as_ref().and_then(|turn| turn.shape.clone());
        let (model, setup, thinking) = (self.state.model.clone(), self.state.setup.clone(), self.state.thinking);
        let _gone = reply.send(NextStep { prompts, model, setup, compact, shape, thinking });
    }

    /// Puts a prompt into the history, and gives the message that it became.
    pub(super) fn prompt_message(&mut self, queued: Queued) -> Option<(MessageId, Vec<ContentBlock>)> {
        let body = EventBody::user_message(MessageId::default(), queued.content, Some(queued.prompt), None);
        let draft = self.in_turn(body);
        self.append(vec![draft], Vec::new(), false, None).pop().and_then(message_of)
    }

    /// What the turn has open, closed. An answer of which nothing was shown is an event if it was paid for.
    fn close(&self, why: &str) -> Vec<Draft> {
        let drafts = recovery::close(&self.state, &self.log.tail().open(), &self.results, why);
        if !drafts.is_empty() || self.counted.is_none() {
            return drafts;
        }
        vec![self.in_turn(recovery::cut(MessageId::default(), Vec::new(), &self.state))]
    }

    /// Ends the turn; the next one follows, after a cancel or an error only at the user's `word`.
    pub(super) fn finish_turn(&mut self, ending: Ending, asked: Vec<Asked>, word: bool) {
        let Some(turn) = &self.state.turn else { return };
        let Ending { reason: stop_reason, detail, hint, until_at, answer } = ending;
        tracing::info!(target: "turn", session = %self.id, turn = %turn.id, ?stop_reason, steps = turn.steps, detail, "finished");
        let (usage, steps, session_usage) = (turn.usage, turn.steps, Some(self.state.usage));
        let (context_tokens, context_window) =
            (self.state.context_tokens(), self.env.providers.window(&self.state.model));
        let finished = EventBody::TurnFinished {
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
        };
        let draft = self.in_turn(finished);
        let (keys, replies): (Vec<_>, Vec<_>) = asked.into_iter().map(|asked| (asked.key, asked.reply)).unzip();
        let outcomes = keys.into_iter().filter_map(|key| self.remember(key, &())).collect();
        let (done, committed) = oneshot::channel();
        self.append(vec![draft], outcomes, true, Some(done));
        respond_all(replies, committed);
        self.phase = Phase::Idle;
        self.start_next(word);
    }

    /// Starts a turn for the next prompt, if there is one and it need not wait for the user's `word`.
    pub(super) fn start_next(&mut self, word: bool) {
        if self.state.turn.is_none() && (word || !self.state.held) {
            drop(self.start_first(Vec::new(), false));
        }
    }

    /// Starts a turn for the next prompt; without one, nothing is ever heard from what this gives.
    pub(super) fn start_first(&mut self, folds: Vec<Fold>, sync: bool) -> oneshot::Receiver<Result<(), StoreError>> {
        let (done, committed) = oneshot::channel();
        let Some(queued) = self.state.queue.front().cloned() else { return committed };
        let turn = TurnId(format!("t{}", self.state.counts.turns + 1));
        tracing::info!(target: "turn", session = %self.id, %turn, prompt = %queued.prompt, model = %self.state.model, "started");
        let started = EventBody::TurnStarted { prompt: queued.prompt.clone() };
        let user =
            |queued: Queued| EventBody::user_message(MessageId::default(), queued.content, Some(queued.prompt), None);
        let message = (!queued.compact).then(|| user(queued));
        let drafts = std::iter::once(started).chain(message).map(|body| Draft::of_turn(&turn, body));
        self.append(drafts.collect(), folds, sync, Some(done));
        self.spawn_turn();
        committed
    }

    pub(super) fn spawn_turn(&mut self) {
        let (sender, messages) = mpsc::unbounded_channel();
        let streams = self.log.tail().open();
        let known = (&self.state, self.past.clone(), streams.as_slice());
        let turn = turn::Turn::run(self.id.clone(), self.env.clone(), self.workspace.clone(), known, sender);
        let task = tokio::spawn(turn);
        fault::point("actor.turn.spawned");
        self.phase = Phase::Running(Running { task, messages, waiting: HashMap::new(), held: None });
    }

    /// The turn's task has ended without a word: it panicked. That ends the turn, and nothing else.
    pub(super) fn turn_vanished(&mut self) {
        if !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        self.phase = Phase::Idle;
        tracing::error!(target: "turn", session = %self.id, "the turn met an error of the daemon's own");
        let drafts = self.close("the turn failed");
        self.append(drafts, Vec::new(), false, None);
        let detail = Some("the turn met an error of the daemon's own".to_owned());
        let hint = Some("lingerd.log says more; prompt again to go on".to_owned());
        self.finish_turn(Ending { detail, hint, ..Ending::plain(StopReason::Error) }, Vec::new(), false);
    }

    /// The turn's task has ended, because of `why`; the turn stays as it is, with what it has asked for, until a user takes it up.
    pub(super) fn offer(&mut self, why: &str) {
        self.phase = Phase::Idle;
        tracing::error!(target: "turn", session = %self.id, why, "the turn cannot go on");
        let text = format!("{why}; `linger doctor --repair` saves what can be read; then continue the turn by hand");
        let draft = self.in_turn(notice(Level::Error, NoticeCode::Offered, &text));
        self.append(vec![draft], Vec::new(), true, None);
    }

    /// Ends the turn's task; what comes then happens in [`Self::stopped`].
    pub(super) fn stop(&mut self, then: Then) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Running(running) => {
                running.task.abort();
                self.phase = Phase::Stopping(running.task, then);
            }
            Phase::Stopping(task, earlier) => {
                let then = match (earlier, then) {
                    (Then::Cancel(all, _), then @ Then::Remove(_)) => {
                        all.into_iter().for_each(|asked| respond(asked.reply, Ok(())));
                        then
                    }
                    (Then::Remove(mut all), Then::Remove(more)) => {
                        all.extend(more);
                        Then::Remove(all)
                    }
                    (Then::Remove(all), then) => {
                        let error = RpcError::new(Code::Ending, "the daemon is ending");
                        all.into_iter().for_each(|asked| respond(asked.reply, Err(error.clone())));
                        then
                    }
                    (_, then) => then,
                };
                self.phase = Phase::Stopping(task, then);
            }
            Phase::Idle | Phase::Failed(..) => {
                // Nothing runs: a task that has ended already stands in for it.
                self.phase = Phase::Stopping(tokio::spawn(std::future::ready(())), then);
            }
        }
    }

    /// The daemon ends: the turn is left where it is, unless the user has stopped it.
    pub(super) async fn pause(&mut self, done: oneshot::Sender<()>) {
        if let Phase::Stopping(task, Then::Cancel(..)) = &mut self.phase {
            // It is gone, or is left behind.
            let _late = tokio::time::timeout(STOP_GRACE, task).await;
            self.stopped().await;
        }
        self.stop(Then::Pause(done));
    }

    /// The turn's task is gone; whether the actor is done.
    pub(super) async fn stopped(&mut self) -> bool {
        let Phase::Stopping(..) = self.phase else { return false };
        let Phase::Stopping(_, then) = std::mem::replace(&mut self.phase, Phase::Idle) else { return false };
        fault::point("actor.stopped");
        match then {
            Then::Cancel(asked, word) => self.close_turn(asked, word),
            Then::Interrupt => self.interrupt(),
            Then::Remove(asked) => {
                let (outcomes, replies) = outcomes(asked);
                let removed = self.env.store.remove(self.log.clone(), outcomes).await;
                let gone = removed.is_ok();
                if gone {
                    self.host.forget(&self.id);
                    self.env.questions.remove_all(&self.id);
                    self.env.store.found.readable(&self.id);
                }
                let result = removed.map_err(RpcError::from);
                replies.into_iter().for_each(|reply| respond(reply, result.clone()));
                if !gone {
                    // It is still there, and its turn was stopped.
                    self.close_turn(Vec::new(), false);
                }
                return gone;
            }
            Then::Pause(done) => {
                if self.state.turn.as_ref().is_some_and(|turn| !turn.offered) && !self.log.failed() {
                    let notice = notice(
                        Level::Info,
                        NoticeCode::Paused,
                        "the daemon ends; the turn goes on when it starts again",
                    );
                    let draft = self.in_turn(notice);
                    let (written, committed) = oneshot::channel();
                    self.append(vec![draft], Vec::new(), true, Some(written));
                    // A write that failed is in the log file.
                    let _logged = committed.await;
                    fault::point("actor.paused");
                }
                let _gone = done.send(());
                return true;
            }
        }
        false
    }

    pub(super) fn close_turn(&mut self, asked: Vec<Asked>, word: bool) {
        // Until that is written, which may fail.
        let keys = asked.iter().filter_map(|asked| asked.key.clone()).collect();
        self.cancelled = self.state.turn.as_ref().map(|turn| Cancelled { turn: Some(turn.id.clone()), keys });
        let drafts = self.close("cancelled by the user");
        self.append(drafts, Vec::new(), false, None);
        self.finish_turn(Ending::plain(StopReason::Cancelled), asked, word);
    }

    /// The step is over; the turn goes on with the prompts that interrupted it.
    pub(super) fn interrupt(&mut self) {
        let drafts = self.close("interrupted by the user");
        self.append(drafts, Vec::new(), false, None);
        let prompts: Vec<Queued> = self.state.steering().cloned().collect();
        prompts.into_iter().for_each(|prompt| drop(self.prompt_message(prompt)));
        self.spawn_turn();
    }
}

/// What requests come to that are done together, each key once, and where they are answered.
fn outcomes(asked: Vec<Asked>) -> (Vec<Outcome>, Vec<Reply<()>>) {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut replies = Vec::new();
    for Asked { key, reply } in asked {
        let new = key.filter(|key| !outcomes.iter().any(|known| known.key.id == key.id));
        outcomes.extend(new.map(|key| key.outcome(&())));
        replies.push(reply);
    }
    (outcomes, replies)
}
