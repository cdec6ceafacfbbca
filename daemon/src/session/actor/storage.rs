//! Continuing after a crash of the daemon, and reloading after a failed write.

use super::*;
use linger_protocol::event::{PromptAccepted, SessionChanged};

use crate::log::push_piece;
use crate::session::state::recovery::Cause;
use crate::store::Store;

/// The state of the actor's writes: uncommitted outcomes, the last recovery, and a cancel that is not written yet.
#[derive(Default)]
pub(super) struct Writes {
    /// Outcomes that may not be committed yet.
    remembered: Vec<Outcome>,
    /// The wait after the last failed write, and the time when writing worked again.
    last_resync: Option<(Duration, Instant)>,
    /// A cancelled turn whose end could not be written yet; it does not run.
    cancelled: Option<Cancelled>,
}

/// A turn that a user has cancelled.
#[derive(Default)]
struct Cancelled {
    /// The turn; if absent, the unfinished turn in the store.
    turn: Option<TurnId>,
    /// Keys of the cancel requests.
    keys: Vec<Key>,
}

impl Writes {
    /// Keeps the cancel of a turn until its end is written, which may fail.
    pub(super) fn keep_cancel(&mut self, turn: Option<TurnId>, keys: Vec<Key>) {
        self.cancelled = turn.map(|turn| Cancelled { turn: Some(turn), keys });
    }
}

impl Actor {
    /// Continues the session after a restart of the daemon, or after a failed write.
    pub(super) async fn recover(&mut self, cause: Cause) -> Result<(), StoreError> {
        self.read_queue().await?;
        self.update_queue_size();
        let pieces = self.env.store.scratch(self.id.clone()).await?;
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        let mut streams = Vec::new();
        for piece in pieces {
            push_piece(&mut streams, turn.as_ref(), piece);
        }
        self.log.tail().streams = streams;
        self.end_background();
        let cancelled = self.take_cancelled().await?;
        let is_of = |turn: &TurnId| cancelled.as_ref().is_some_and(|it| it.turn.as_ref().is_none_or(|it| it == turn));
        let Some(turn) = &*self.state.turn else {
            self.start_next(false);
            // The start of the turn was not written either.
            if self.state.turn.as_ref().is_some_and(|turn| is_of(&turn.id)) {
                self.stop(Then::Cancel(answered_cancels(cancelled)));
            }
            return Ok(());
        };
        let results = self.stored_results(turn).await?;
        self.recorded.set_results(results);
        if is_of(&turn.id) {
            self.close_turn(answered_cancels(cancelled));
            return Ok(());
        }
        let plan = recovery::plan(&self.state, &self.log.tail().open(), cause);
        fault::point("actor.recovery.planned");
        tracing::info!(target: "turn", session = %self.id, resume = plan.resume, "found unfinished");
        self.append(plan.drafts, Vec::new(), true, None);
        fault::point("actor.recovery.written");
        if !plan.resume {
            return Ok(());
        }
        if self.state.queue.prompts.iter().any(|queued| queued.when == When::Interrupt) {
            // The user has said that the step which was under way is not wanted.
            self.interrupt();
        } else {
            self.spawn_turn();
        }
        Ok(())
    }

    /// The cancel that has not taken effect, after a restart none. A key whose outcome is stored has its effect.
    async fn take_cancelled(&mut self) -> Result<Option<Cancelled>, StoreError> {
        let Some(cancelled) = &self.writes.cancelled else { return Ok(None) };
        let mut keys = Vec::new();
        for key in &cancelled.keys {
            if self.env.store.outcome(key.id.clone()).await?.is_none() {
                keys.push(key.clone());
            }
        }
        Ok(self.writes.cancelled.take().map(|cancelled| Cancelled { keys, ..cancelled }))
    }

    /// Reads the content of queued prompts, the index of notes and the schema; the state has only the numbers of their events.
    async fn read_queue(&mut self) -> Result<(), StoreError> {
        let queued: Vec<u64> = self.state.queue.all().map(|queued| queued.seq).collect();
        for seq in queued {
            let Some(EventBody::PromptAccepted(PromptAccepted { content, schema, .. })) = self.body_of(seq).await?
            else {
                return Err(self.damaged(format!("event {seq} is no prompt, but one that waits")));
            };
            self.state.restore_prompt(seq, content, schema);
        }
        if let Some(seq) = self.state.memory_seq() {
            let text = match self.body_of(seq).await? {
                Some(EventBody::SessionChanged(SessionChanged { memory, .. })) => memory,
                _ => None,
            };
            self.state.restore_memory(text);
        }
        let Some(seq) = self.state.schema_seq() else { return Ok(()) };
        let Some(EventBody::PromptAccepted(PromptAccepted { schema: Some(schema), .. })) = self.body_of(seq).await?
        else {
            return Err(self.damaged(format!("event {seq} has no schema, but a turn that asks for one")));
        };
        self.state.restore_schema(schema);
        Ok(())
    }

    /// The body of a stored event; `None` if it is missing or cannot be understood.
    async fn body_of(&self, seq: u64) -> Result<Option<EventBody>, StoreError> {
        let stored = self.env.store.event(self.id.clone(), seq).await?;
        let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
        Ok(event.map(|event| event.body))
    }

    /// Notes that the session is damaged; the error that says so.
    fn damaged(&self, text: String) -> StoreError {
        self.env.store.found.session(&self.id, &text);
        StoreError::damage(text)
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

    /// A write failed: the events folded since are not stored. Stops the turn; after a while the session is loaded again.
    pub(super) fn fail(&mut self) {
        self.writes.remembered.clear();
        if let Some(why) = self.log.write_error() {
            self.env.store.found.unwritten(&self.id, &why);
        }
        // Those that are stored are asked anew.
        self.env.questions.remove_all(&self.id);
        let again = self.writes.last_resync.filter(|(_, at)| at.elapsed() < CALM);
        let wait = again.map_or(WRITE_RETRY[0], |(wait, _)| (wait * 2).min(WRITE_RETRY[1]));
        match std::mem::replace(&mut self.phase, Phase::Failed(wait, Instant::now() + wait, None)) {
            Phase::Running(running) => drop(running.abort()),
            Phase::Stopping(_, Then::Cancel(all)) => {
                for KeyedReply { key, reply } in all {
                    self.note_cancel(key);
                    respond(reply, Err(self.later()));
                }
            }
            // Git goes on: what it has begun is not left half done, and is recorded when writing works.
            Phase::Git(mut git) => {
                git.refuse_prompts(&self.unwritten());
                self.phase = Phase::Failed(wait, Instant::now() + wait, Some(git));
            }
            Phase::Idle | Phase::Stopping(..) | Phase::Failed(..) => {}
        }
    }

    /// The outcome of an earlier request with this key. Fails if the key was used for another request.
    pub(super) async fn outcome<T: serde::de::DeserializeOwned>(
        &mut self,
        key: Option<&Key>,
    ) -> Result<Option<T>, RpcError> {
        let Some(key) = key else { return Ok(None) };
        if let Phase::Stopping(_, Then::Cancel(all) | Then::Remove(all)) = &self.phase
            && let Some(earlier) = all.iter().filter_map(|asked| asked.key.as_ref()).find(|known| known.id == key.id)
        {
            key.same_as(earlier)?;
        }
        if let Some(outcome) = self.writes.remembered.iter().find(|outcome| outcome.key.id == key.id) {
            let answer = outcome.answer(key);
            // Its commit may still fail.
            self.barrier().await?;
            return answer.map(Some);
        }
        if self.writes.remembered.len() >= REMEMBERED {
            self.barrier().await?;
            self.writes.remembered.clear();
        }
        self.env.store.answer_to(key).await
    }

    /// Gives back the reply channel of a new request; a repeated one is answered with its first outcome.
    pub(super) async fn if_new<T: serde::de::DeserializeOwned>(
        &mut self,
        key: Option<&Key>,
        reply: Reply<T>,
    ) -> Option<Reply<T>> {
        match self.outcome::<T>(key).await {
            Ok(None) => return Some(reply),
            Ok(Some(outcome)) => respond(reply, Ok(outcome)),
            Err(error) => respond(reply, Err(error)),
        }
        None
    }

    /// Remembers an outcome until it is stored, in the transaction of its effect.
    pub(super) fn remember(&mut self, key: Option<Key>, result: &impl Serialize) -> Option<Fold> {
        let outcome = key?.outcome(result);
        if self.writes.remembered.iter().any(|known| known.key.id == outcome.key.id) {
            return None;
        }
        self.writes.remembered.push(outcome.clone());
        Some(Fold::Outcome(outcome))
    }

    /// The error of a request while nothing can be written.
    pub(super) fn unwritten(&self) -> RpcError {
        let error = RpcError::new(Code::Storage, format!("the last write of session {} failed", self.id));
        error.hint("check whether the disk is full, and try again in a moment")
    }

    /// Cancels a turn of which nothing can be written: nothing of it runs, and it ends when its end can be stored.
    pub(super) async fn cancel_later(&mut self, asked: KeyedReply) {
        let Some(KeyedReply { key, reply }) = self.first_time(asked).await else { return };
        self.note_cancel(key);
        if self.may_resync() {
            self.resync(true).await;
        }
        if matches!(self.phase, Phase::Failed(..)) {
            return respond(reply, Err(self.later()));
        }
        respond_when(reply, self.flush(), ());
    }

    fn note_cancel(&mut self, key: Option<Key>) {
        let cancelled = self.writes.cancelled.get_or_insert_default();
        cancelled.turn = None;
        if cancelled.keys.len() < REMEMBERED {
            cancelled.keys.extend(key);
        }
    }

    fn later(&self) -> RpcError {
        let text = format!("session {} cannot be written just now; its turn has stopped", self.id);
        RpcError::new(Code::Storage, text).hint(CANCELLED_LATER)
    }

    /// Whether a request need not wait for the next try: the last one was a while ago, and git is done.
    pub(super) fn may_resync(&self) -> bool {
        let Phase::Failed(wait, until, git) = &self.phase else { return false };
        let git_runs = git.as_ref().is_some_and(|git| !git.is_done());
        !git_runs && Instant::now() + *wait >= *until + WRITE_RETRY[0]
    }

    /// Reloads the session; if that fails, the next pause is longer, but not after a request (`asked`). Git must be done.
    pub(super) async fn resync(&mut self, asked: bool) {
        let Phase::Failed(waited, ..) = self.phase else { return };
        if let Err(error) = self.reload().await {
            let wait = if asked { waited } else { (waited * 2).min(WRITE_RETRY[1]) };
            if error.is_damage() {
                self.log.fail();
            } else {
                self.log.fail_for_now(&error.0.to_string());
                self.env.store.found.unwritten(&self.id, &error.0.to_string());
            }
            if wait > waited {
                tracing::error!(target: "session", session = %self.id, %error, next_try_s = wait.as_secs(), "still cannot be written");
            }
            let git = if let Phase::Failed(_, _, git) = &mut self.phase { git.take() } else { None };
            self.phase = Phase::Failed(wait, Instant::now() + wait, git);
        }
    }

    async fn reload(&mut self) -> Result<(), StoreError> {
        // It is refused, and so was everything that was queued before it.
        let _refused = self.barrier().await;
        let row = self.env.store.session(self.id.clone()).await?;
        let row = row.unwrap_or_else(|| SessionRow { id: self.id.clone(), ..SessionRow::default() });
        let (state, _) = known(&self.env.store, row).await?;
        let waited = if let Phase::Failed(waited, ..) = self.phase { waited } else { WRITE_RETRY[0] };
        self.state = state;
        // A move that was not stored is none.
        self.see_workspace().await;
        self.recorded.set_past(Past::default());
        // Questions that were never stored are not asked.
        self.askers.keep_only(&self.state);
        self.log.retry(self.state.progress.head);
        // Nothing begins before something can be written; what was cancelled stays so until then.
        let written = self.append_synced(Vec::new(), None);
        settled(written).await?;
        self.log.write_succeeded();
        self.env.store.found.written(&self.id);
        self.writes.last_resync = Some((waited, Instant::now()));
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.record_merge_again();
        if let Phase::Failed(_, _, Some(mut git)) = phase {
            // Git is done: an empty channel means that its task has panicked, which `record_git` reports.
            let result = git.try_next();
            self.phase = Phase::Git(git);
            self.record_git(result);
        }
        self.state.waiting().iter().for_each(|(question, _)| self.env.questions.add(question, &self.id));
        self.recover(Cause::Storage).await
    }
}

/// The keys of a cancel as requests whose replies nobody awaits: they have had an error.
fn answered_cancels(cancelled: Option<Cancelled>) -> Vec<KeyedReply> {
    let keys = cancelled.into_iter().flat_map(|cancelled| cancelled.keys);
    keys.map(|key| KeyedReply { key: Some(key), reply: oneshot::channel().0 }).collect()
}

/// The state of a stored session and the variables of its tools. It is damaged if the state is not what was written, or not that
/// of its last event.
pub(super) async fn known(store: &Store, row: SessionRow) -> Result<(State, BTreeMap<String, String>), StoreError> {
    let last = store.last(row.id.clone()).await?;
    if row.id.is_daemon() && last == 0 && row.fold.is_empty() {
        return Ok((State::default(), BTreeMap::new()));
    }
    let text = match (State::from_stored(&row.fold), serde_json::from_str(&row.env)) {
        (Some(state), Ok(env)) if state.progress.head == last => return Ok((state, env)),
        (Some(state), _) if state.progress.head > last => {
            format!("its events {} to {} are missing", last + 1, state.progress.head)
        }
        _ => "its state cannot be read, or is not that of its last event".to_owned(),
    };
    store.found.session(&row.id, &text);
    Err(StoreError::damage(text))
}
