//! Taking up what a daemon that died left behind, and starting anew after a failed write.

use super::*;
use std::collections::BTreeSet;

use crate::log::push_piece;
use crate::recover::salvage::{self, Examined};
use crate::session::recovery::Cause;
use crate::store::damage::DAMAGE;
use crate::store::{Store, Waiting};

impl Actor {
    /// Goes on with what was left behind when the daemon died, or a write failed.
    pub(super) async fn take_up(&mut self, cause: Cause) -> Result<(), StoreError> {
        self.read_queue().await?;
        self.weigh();
        let pieces = self.env.store.scratch(self.id.clone()).await?;
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        let mut streams = Vec::new();
        pieces.into_iter().for_each(|piece| push_piece(&mut streams, turn.as_ref(), piece));
        self.log.tail().streams = streams;
        let cancelled = self.take_cancelled().await?;
        let is_of = |turn: &TurnId| cancelled.as_ref().is_some_and(|it| it.turn.as_ref().is_none_or(|it| it == turn));
        let Some(turn) = &self.state.turn else {
            self.start_next(false);
            // The start of the turn was not written either.
            if self.state.turn.as_ref().is_some_and(|turn| is_of(&turn.id)) {
                self.stop(Then::Cancel(unheard(cancelled), false));
            }
            return Ok(());
        };
        self.results = self.stored_results(turn).await?;
        if is_of(&turn.id) {
            self.close_turn(unheard(cancelled), false);
            return Ok(());
        }
        let plan = recovery::plan(&self.state, &self.log.tail().open(), cause);
        fault::point("actor.recovery.planned");
        tracing::info!(target: "turn", session = %self.id, resume = plan.resume, "found unfinished");
        self.append(plan.drafts, Vec::new(), true, None);
        fault::point("actor.recovery.written");
        match plan.resume {
            // The user has said that the step which was under way is not wanted.
            true if self.state.queue.iter().any(|queued| queued.when == When::Interrupt) => self.interrupt(),
            true => self.spawn_turn(),
            false => {}
        }
        Ok(())
    }

    /// What was cancelled and has not ended, after a restart nothing. A key whose outcome is stored did what it should.
    async fn take_cancelled(&mut self) -> Result<Option<Cancelled>, StoreError> {
        let Some(cancelled) = &self.cancelled else { return Ok(None) };
        let mut keys = Vec::new();
        for key in &cancelled.keys {
            if self.env.store.outcome(key.id.clone()).await?.is_none() {
                keys.push(key.clone());
            }
        }
        Ok(self.cancelled.take().map(|cancelled| Cancelled { keys, ..cancelled }))
    }

    /// Writes down what was made anew, and says so.
    pub(super) fn say_rebuilt(&mut self, anew: Option<Anew>) {
        let Some(Anew { mut drafts, folds }) = anew else { return };
        let text =
            "what was stored of the session's state was damaged; it was made anew from its events, and nothing is lost";
        drafts.push(self.in_turn(notice(Level::Warning, NoticeCode::Damaged, text)));
        tracing::warn!(target: "session", session = %self.id, events = self.state.head, "its state was damaged and made anew");
        self.append(drafts, folds, true, None);
        self.state.waiting().iter().for_each(|(question, _)| self.env.questions.add(question, &self.id));
    }

    /// Makes anew what is kept beside the events, if it is not what they say.
    pub(super) async fn mend_beside(&mut self) -> Result<(), StoreError> {
        self.barrier().await?;
        let Some(row) = self.env.store.session(self.id.clone()).await? else { return Ok(()) };
        let known = known(&self.env.store, row).await?;
        self.say_rebuilt(known.anew);
        self.barrier().await
    }

    /// The words of the prompts that wait, and the schemas; the state has only where they stand.
    async fn read_queue(&mut self) -> Result<(), StoreError> {
        for queued in &mut self.state.queue {
            let stored = self.env.store.event(self.id.clone(), queued.seq).await?;
            let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
            match event.map(|event| event.body) {
                Some(EventBody::PromptAccepted { content, schema, .. }) => {
                    (queued.content, queued.schema) = (content, schema.map(Arc::new));
                }
                _ => {
                    let text = format!("event {} is no prompt, but one that waits", queued.seq);
                    self.env.store.found.session(&self.id, &text);
                    return Err(StoreError::damage(text));
                }
            }
        }
        let Some(shape) = self.state.turn.as_mut().and_then(|turn| turn.shape.as_mut()) else { return Ok(()) };
        let stored = self.env.store.event(self.id.clone(), shape.seq).await?;
        let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
        let Some(EventBody::PromptAccepted { schema: Some(schema), .. }) = event.map(|event| event.body) else {
            let text = format!("event {} has no schema, but a turn that asks for one", shape.seq);
            self.env.store.found.session(&self.id, &text);
            return Err(StoreError::damage(text));
        };
        shape.schema = Arc::new(schema);
        Ok(())
    }

    /// The results of a turn's open calls, as far as they are stored.
    pub(super) async fn stored_results(
        &self,
        turn: &crate::session::state::Turn,
    ) -> Result<HashMap<CallId, ContentBlock>, StoreError> {
        let mut results = HashMap::new();
        for call in turn.calls.iter().filter(|call| call.finished) {
            let stored = self.env.store.closing(self.id.clone(), call.id.0.clone()).await?;
            let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
            results.extend(event.and_then(|event| recovery::result_of(&event.body)));
        }
        Ok(results)
    }

    /// A write failed: what was folded since is not stored. Stops, and starts anew from the store after a while.
    pub(super) fn fail(&mut self) {
        self.remembered.clear();
        if let Some(why) = self.log.write_error() {
            self.env.store.found.unwritten(&self.id, &why);
        }
        // Those that are stored are asked anew.
        self.env.questions.remove_all(&self.id);
        let again = self.mended.filter(|(_, at)| at.elapsed() < CALM);
        let wait = again.map_or(MEND[0], |(wait, _)| (wait * 2).min(MEND[1]));
        match std::mem::replace(&mut self.phase, Phase::Failed(wait, Instant::now() + wait)) {
            Phase::Running(running) => running.task.abort(),
            Phase::Stopping(_, Then::Cancel(all, _)) => {
                for Asked { key, reply } in all {
                    self.note_cancel(key);
                    respond(reply, Err(self.later()));
                }
            }
            Phase::Idle | Phase::Stopping(..) | Phase::Failed(..) => {}
        }
    }

    /// Cancels a turn of which nothing can be written: nothing of it runs, and it ends when its end can be stored.
    pub(super) async fn cancel_later(&mut self, asked: Asked) {
        let Some(Asked { key, reply }) = self.first_time(asked).await else { return };
        self.note_cancel(key);
        if self.may_be_mended() {
            self.mend(true).await;
        }
        if matches!(self.phase, Phase::Failed(..)) {
            return respond(reply, Err(self.later()));
        }
        respond_when(reply, self.flush(), ());
    }

    fn note_cancel(&mut self, key: Option<Key>) {
        let cancelled = self.cancelled.get_or_insert_default();
        cancelled.turn = None;
        if cancelled.keys.len() < REMEMBERED {
            cancelled.keys.extend(key);
        }
    }

    fn later(&self) -> RpcError {
        let text = format!("session {} cannot be written just now; its turn has stopped", self.id);
        RpcError::new(Code::Storage, text).hint(CANCELLED_LATER)
    }

    /// Whether somebody who asks for something need not wait for the next try: the last one was a while ago.
    pub(super) fn may_be_mended(&self) -> bool {
        matches!(self.phase, Phase::Failed(wait, until) if Instant::now() + wait >= until + MEND[0])
    }

    /// Starts anew; if that fails the next pause is longer, but not because somebody has `asked`.
    pub(super) async fn mend(&mut self, asked: bool) {
        let Phase::Failed(waited, _) = self.phase else { return };
        if let Err(error) = self.start_anew().await {
            let wait = if asked { waited } else { (waited * 2).min(MEND[1]) };
            if error.is_damage() {
                self.log.fail();
            } else {
                self.log.fail_for_now(&error.0.to_string());
                self.env.store.found.unwritten(&self.id, &error.0.to_string());
            }
            if wait > waited {
                tracing::error!(target: "session", session = %self.id, %error, next_try_s = wait.as_secs(), "still cannot be written");
            }
            self.phase = Phase::Failed(wait, Instant::now() + wait);
        }
    }

    async fn start_anew(&mut self) -> Result<(), StoreError> {
        // It is refused, and so was everything that was queued before it.
        let _refused = self.barrier().await;
        let row = self.env.store.session(self.id.clone()).await?;
        let row = row.unwrap_or_else(|| SessionRow { id: self.id.clone(), ..SessionRow::default() });
        let Known { state, anew, .. } = known(&self.env.store, row).await?;
        let waited = if let Phase::Failed(waited, _) = self.phase { waited } else { MEND[0] };
        self.state = state;
        self.past = super::turn::Past::default();
        // Questions that were never stored are not asked.
        self.askers.retain(|question, _| self.state.question(question).is_some());
        self.log.retry(self.state.head);
        // Nothing begins before something can be written; what was cancelled stays so until then.
        let (done, written) = oneshot::channel();
        self.append(Vec::new(), Vec::new(), true, Some(done));
        written.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())))?;
        self.log.write_succeeded();
        self.env.store.found.written(&self.id);
        self.mended = Some((waited, Instant::now()));
        self.phase = Phase::Idle;
        self.say_rebuilt(anew);
        self.take_up(Cause::Storage).await
    }
}

/// The requests for a cancel, which have their answer.
fn unheard(cancelled: Option<Cancelled>) -> Vec<Asked> {
    let keys = cancelled.into_iter().flat_map(|cancelled| cancelled.keys);
    keys.map(|key| Asked { key: Some(key), reply: oneshot::channel().0 }).collect()
}

/// What is known of a session that is stored.
pub(super) struct Known {
    pub(super) state: State,
    pub(super) env: BTreeMap<String, String>,
    /// What of it was damaged and has to be written anew.
    pub(super) anew: Option<Anew>,
}

/// What has to be written so that what is stored is as the events have it.
#[derive(Default)]
pub(super) struct Anew {
    drafts: Vec<Draft>,
    folds: Vec<Fold>,
}

/// Reads what is stored of a session; what is damaged of it and follows from its events is made anew from these.
pub(super) async fn known(store: &Store, row: SessionRow) -> Result<Known, StoreError> {
    let last = store.last(row.id.clone()).await?;
    if row.id.is_daemon() && last == 0 && row.fold.is_empty() {
        return Ok(Known { state: State::default(), env: BTreeMap::new(), anew: None });
    }
    let state = State::from_stored(&row.fold);
    if let Some(state) = &state
        && state.head > last
    {
        let text = format!("its events {} to {} are missing", last + 1, state.head);
        store.found.session(&row.id, &text);
        return Err(StoreError::damage(text));
    }
    let env = serde_json::from_str(&row.env).ok();
    let mut known = match (state.filter(|state| state.head == last), env) {
        (Some(state), Some(env)) => Known { state, env, anew: None },
        _ => from_events(store, &row.id).await?,
    };
    let stored = store.waiting(row.id.clone()).await?;
    if !is_as_asked(store, &row.id, &known.state, &stored).await? {
        let asked = Asking::read(store, &row.id, 0, &stored).await?;
        // The state is what is wrong.
        if known.anew.is_none() && asked.waiting() != known.state.waiting() {
            known = from_events(store, &row.id).await?;
        }
        let anew = asked.anew(&known.state).inspect_err(|error| store.found.session(&row.id, &error.0.to_string()))?;
        known.anew.get_or_insert_default().add(anew);
    }
    if row.state != known.state.stored_name() || row.cwd != known.state.cwd.to_string_lossy() {
        // They are written with the state, whatever comes next.
        known.anew.get_or_insert_default();
    }
    if row.name != known.state.name {
        let anew = known.anew.get_or_insert_default();
        if let Some(name) = &known.state.name
            && !store.is_free(name.clone(), &row.id).await?
        {
            // While nobody could find it, another has taken its name.
            let (model, mode, effort, instructions, setup) = (None, None, None, None, None);
            let name = Some(format!("{name}-{}", row.id));
            let body = EventBody::SessionChanged { model, mode, effort, name, instructions, setup };
            anew.drafts.push(Draft::new(body));
        }
    }
    Ok(known)
}

/// Whether what is stored of questions that wait is what the state and the events since the oldest of them say.
async fn is_as_asked(store: &Store, id: &SessionId, state: &State, stored: &Waiting) -> Result<bool, StoreError> {
    if stored.is_empty() && state.waiting().is_empty() {
        return Ok(true);
    }
    let first = state.questions.iter().map(|asked| asked.seq.saturating_sub(1)).min();
    let before = first.map_or(state.before_turn, |first| first.min(state.before_turn));
    let asked = Asking::read(store, id, before, stored).await?;
    Ok(asked.waiting() == state.waiting() && salvage::are_all(stored, &asked.open))
}

async fn from_events(store: &Store, id: &SessionId) -> Result<Known, StoreError> {
    let Examined { state, env, .. } = salvage::of_store(store, id.clone()).await?;
    let folds = vec![environment(&env)];
    Ok(Known { state, env, anew: Some(Anew { folds, ..Anew::default() }) })
}

impl Anew {
    fn add(&mut self, other: Self) {
        self.drafts.extend(other.drafts);
        self.folds.extend(other.folds);
    }
}

/// What the events of a session say of its questions.
#[derive(Default)]
struct Asking {
    /// Those without an answer.
    open: BTreeMap<QuestionId, PendingQuestion>,
    /// The answers of those that are stored without one.
    answered: Vec<Fold>,
}

impl Asking {
    /// Reads the events after `after`. `stored`: the questions that are stored without an answer.
    async fn read(store: &Store, id: &SessionId, mut after: u64, stored: &Waiting) -> Result<Self, StoreError> {
        let mut asking = Self::default();
        let mut more = true;
        while more {
            let page;
            (page, more) = store.events_of(id.clone(), SPEAK_OF_THEM, after, salvage::PAGE).await?;
            after = page.last().map_or(after, |last| last.seq);
            for fold in salvage::questions(id.as_str(), &page) {
                match fold {
                    Fold::Asked(pending) => drop(asking.open.insert(pending.question.clone(), *pending)),
                    Fold::Answered { ref question, .. } => {
                        asking.open.remove(question);
                        if stored.contains_key(question) {
                            asking.answered.push(fold);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(asking)
    }

    fn waiting(&self) -> BTreeSet<(QuestionId, String)> {
        self.open.values().map(|pending| (pending.question.clone(), pending.asked.digest.clone())).collect()
    }

    /// What has to be written where `state` is good: what it waits for, and that nothing else does.
    fn anew(mut self, state: &State) -> Result<Anew, StoreError> {
        let waiting = state.waiting().into_iter().map(|(id, _)| self.open.remove(&id));
        let Some(waiting) = waiting.collect::<Option<Vec<PendingQuestion>>>() else {
            return Err(StoreError::damage("a question waits, and what was asked cannot be found"));
        };
        // Nothing is left that waits for any of these.
        let withdrawn = self.open.into_values().map(|PendingQuestion { question, asked, .. }| {
            Draft::new(asked.kind.withdrawn(question, DAMAGE.to_owned()))
        });
        let folds = self.answered.into_iter().chain([Fold::Waiting(waiting)]).collect();
        Ok(Anew { drafts: withdrawn.collect(), folds })
    }
}

/// The kinds of events that speak of questions.
const SPEAK_OF_THEM: &[&str] = &["permission_requested", "permission_resolved", "question_asked", "question_resolved"];

/// The variables of a session's tools, as they are stored.
pub fn environment(env: &BTreeMap<String, String>) -> Fold {
    Fold::Environment(serde_json::to_string(env).unwrap_or_default())
}
