//! Carrying sessions over from a database that was set aside, each whole or, at the user's word, what can be read of it.
//!
//! Runs on the thread of its job, and waits there for the store. A session is there with its last commit, or not at all: one that was
//! begun and not ended is cleared, and begun again. What could not be carried over is in the report beside the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, MessageId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use linger_protocol::question::QuestionKind;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::salvage::{self, Examined};
use super::source::{Source, Unreadable};
use crate::log::{Log, Piece, Stored};
use crate::service::Services;
use crate::session::actor::{environment, question_fold, spent, stored};
use crate::session::state::State;
use crate::session::{Draft, recovery};
use crate::store::aside::{Aside, Kind, Left};
use crate::store::damage::DAMAGE;
use crate::store::idempotency::{Key, Outcome};
use crate::store::{Append, Fold, Spent, StoreError};
use crate::sys::clock;

/// Lost events that are written down at once.
const LOST_AT_ONCE: u64 = 1000;

/// Sessions that a report names.
const MAX_LEFT: usize = 10_000;

/// Carries over what can be of a database that was set aside, and writes down what was.
///
/// First what its tables lead to, as far as it is whole. If that is not all of it, its pages are looked at one by one, and only then
/// the beginnings of sessions are carried over, if the user has asked for them.
pub(super) fn carry_over(daemon: &Arc<Services>, aside: &mut Aside) {
    if aside.report.searched && !aside.report.partial {
        // What is left needs the user's word.
        return;
    }
    let (mut removed, mut paid) = (BTreeSet::new(), HashMap::new());
    match Source::open(&aside.path) {
        Ok(source) => {
            (removed, paid) = (source.removed(), source.paid());
            if let Err(error) = carry_paid(daemon, &paid, aside) {
                tracing::error!(target: "repair", file = %aside.path.display(), %error, "carrying over was given up for now");
                return save(aside);
            }
            if !aside.report.searched {
                let Some(all) = carry_all(daemon, &source, aside, (&removed, &paid), false) else { return };
                aside.report.uncertain = !all;
                if !aside.report.has_rest() {
                    return settle(aside);
                }
            }
        }
        // The linger that wrote it will.
        Err(Unreadable::Newer(_)) => return,
        Err(error) => {
            tracing::error!(target: "repair", file = %aside.path.display(), %error, "nothing can be reached in it");
            let nothing = std::fs::metadata(&aside.path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
            aside.report.uncertain = !nothing && !matches!(error, Unreadable::Empty);
        }
    }
    let partial = aside.report.partial;
    match Source::piece_together(&aside.path) {
        Ok(source) => {
            if carry_all(daemon, &source, aside, (&removed, &paid), partial).is_none() {
                return;
            }
        }
        Err(Unreadable::Nothing | Unreadable::Empty) => {}
        Err(error) => {
            // Most likely there is no room for it; it is tried again at the next start.
            tracing::error!(target: "repair", file = %aside.path.display(), %error, "looking at its pages was given up for now");
            return save(aside);
        }
    }
    aside.report.searched = true;
    // That nothing is in it, the user is to be told before it is forgotten; one that is only newer may well be empty.
    let told = partial || aside.report.carried > 0 || aside.report.kind == Kind::Newer;
    if partial || (told && !aside.report.has_rest()) {
        return settle(aside);
    }
    save(aside);
}

/// All is done that can be.
fn settle(aside: &mut Aside) {
    aside.report.settled = true;
    save(aside);
}

/// Carries over all sessions of one source, whole or, if it is to be `partial`, as far as they go; whether there can be no others.
/// Nothing if it was given up.
fn carry_all(
    daemon: &Arc<Services>,
    source: &Source,
    aside: &mut Aside,
    (removed, paid): (&BTreeSet<String>, &HashMap<String, Vec<Spent>>),
    partial: bool,
) -> Option<bool> {
    let outcomes = source.outcomes();
    let (mut ids, all) = source.with(|connection| Some(salvage::all_ids(connection))).unwrap_or_default();
    ids.retain(|id| !removed.contains(id));
    let known: BTreeSet<&String> = ids.iter().collect();
    // Of those that only another way led to, what was said then still holds.
    let (earlier, others): (Vec<Left>, _) = aside.report.left.drain(..).partition(|left| known.contains(&left.session));
    let earlier: HashMap<String, Left> = earlier.into_iter().map(|left| (left.session.clone(), left)).collect();
    (aside.report.carried, aside.report.left) = (0, others);
    for id in ids {
        if daemon.shutdown.is_cancelled() {
            return None;
        }
        let carried = Carry { daemon, source, file: &aside.path, partial, paid };
        match carried.session(&id, outcomes.get(&id), earlier.get(&id)) {
            Ok(None) => aside.report.carried += 1,
            Err(error) if error.is_clash() => {
                // The others do without it.
                tracing::error!(target: "repair", file = %aside.path.display(), session = id, %error, "cannot be carried over");
                let left = Left { session: id, events: 0, of: 0, text: error.to_string() };
                aside.report.left.extend((aside.report.left.len() < MAX_LEFT).then_some(left));
                save(aside);
            }
            Ok(Some(left)) if aside.report.left.len() < MAX_LEFT => {
                aside.report.left.push(left);
                save(aside);
            }
            Ok(Some(_)) => {}
            Err(error) => {
                // Most likely there is no room for two of everything; it is tried again at the next start.
                tracing::error!(target: "repair", file = %aside.path.display(), %error, "carrying over was given up for now");
                save(aside);
                return None;
            }
        }
    }
    tracing::info!(
        target: "repair", file = %aside.path.display(), carried = aside.report.carried, left = aside.report.left.len(),
        "sessions were carried over"
    );
    Some(all)
}

/// Carries over what sessions have cost that were removed: it is in no event any more. Once, however often the job is begun.
fn carry_paid(daemon: &Arc<Services>, paid: &HashMap<String, Vec<Spent>>, aside: &mut Aside) -> Result<(), StoreError> {
    let of_removed = paid.get("").cloned().unwrap_or_default();
    if aside.report.paid || of_removed.is_empty() {
        return Ok(());
    }
    // In the same transaction: the report may not be written any more.
    let key = Key { id: format!("paid in {}", aside.path.display()), params: String::new() };
    let runtime = Handle::current();
    if runtime.block_on(daemon.store.outcome(key.id.clone()))?.is_none() {
        let done = Fold::Outcome(Outcome { key, result: "null".to_owned() });
        let folds = of_removed.into_iter().map(Fold::Spent).chain([done]).collect();
        runtime.block_on(daemon.store.fold(&SessionId::default(), folds))?;
    }
    aside.report.paid = true;
    save(aside);
    Ok(())
}

fn save(aside: &Aside) {
    if let Err(error) = aside.save() {
        tracing::error!(target: "repair", file = %aside.path.display(), %error, "its report cannot be written");
    }
}

/// Carries sessions over from one set-aside database.
struct Carry<'a> {
    daemon: &'a Arc<Services>,
    source: &'a Source,
    file: &'a Path,
    partial: bool,
    /// What each session has paid for, as far as that is written down.
    paid: &'a HashMap<String, Vec<Spent>>,
}

impl Carry<'_> {
    /// Carries one session over, unless it is here; gives what is missing of it. Fails if nothing can be written.
    fn session(
        &self,
        id: &str,
        outcomes: Option<&Vec<Outcome>>,
        earlier: Option<&Left>,
    ) -> Result<Option<Left>, StoreError> {
        let (store, here) = (&self.daemon.store, SessionId(id.to_owned()));
        let runtime = Handle::current();
        if runtime.block_on(store.session(here.clone()))?.is_some() {
            return Ok(earlier.cloned());
        }
        if runtime.block_on(store.is_removed(here.clone()))? {
            // It was carried over, and the user wants it no more.
            return Ok(None);
        }
        let Some(examined) = self.source.examine(id) else { return Ok(None) };
        let (events, of, broken) = (examined.events, examined.known, examined.broken.clone());
        // Without its beginning and its state nobody knows where it works.
        let homeless = examined.state.cwd.as_os_str().is_empty();
        if events == 0 || homeless || (broken.is_some() && !self.partial) {
            let text = broken.unwrap_or_default();
            return Ok(Some(Left { session: id.to_owned(), events: 0, of, text }));
        }
        if runtime.block_on(store.last(here.clone()))? > 0 {
            // What a job that was cut short had begun.
            runtime.block_on(store.clear(here.clone()))?;
        }
        // Of lost answers too, what they have cost is known.
        let paid = self.paid.get(id).filter(|_| !examined.lost.is_empty()).cloned().unwrap_or_default();
        let (mut after, mut asked) = (0, BTreeMap::new());
        for (first, last) in examined.lost.iter().copied().chain([(examined.head + 1, examined.head)]) {
            self.copy(&here, after, first - 1, &mut asked, paid.is_empty())?;
            self.mark_lost(&here, first, last)?;
            after = last;
        }
        self.append(&here, Vec::new(), Vec::new(), paid.into_iter().map(Fold::Spent).collect())?;
        let whole = examined.head == examined.known;
        let resumes = self.end(&here, examined, asked, outcomes.filter(|_| whole))?;
        self.daemon.repairs.carried.send_replace(());
        if resumes {
            let _planned = self.daemon.registry.wake(&here);
        }
        Ok(broken.map(|text| Left { session: id.to_owned(), events, of, text }))
    }

    /// Copies the events after `after` up to `until`, as they are; notes in `asked` which questions have no answer.
    /// What they have cost is counted anew if it is to be `counted`.
    fn copy(
        &self,
        id: &SessionId,
        mut after: u64,
        until: u64,
        asked: &mut BTreeMap<QuestionId, QuestionKind>,
        counted: bool,
    ) -> Result<(), StoreError> {
        while after < until {
            let page = self.source.page(id.as_str(), after, until);
            let Some(last) = page.last() else {
                return Err(StoreError::from(salvage_changed(id, after)));
            };
            after = last.seq;
            let mut folds = salvage::questions(id.as_str(), &page);
            for fold in &folds {
                match fold {
                    Fold::Asked(pending) => drop(asked.insert(pending.question.clone(), pending.asked.kind)),
                    Fold::Answered { question, .. } => drop(asked.remove(question)),
                    _ => {}
                }
            }
            if counted {
                folds.extend(salvage::spent(&page));
            }
            for blob in salvage::blobs(&page) {
                // One whose file is lost is not used any more.
                folds.extend(self.daemon.store.blobs.hold(&blob)?.map(Fold::Blob));
            }
            self.append(id, Vec::new(), page.into_iter().map(Arc::new).collect(), folds)?;
        }
        Ok(())
    }

    /// Puts something in the place of each of these events.
    fn mark_lost(&self, id: &SessionId, first: u64, last: u64) -> Result<(), StoreError> {
        let mark = |seq| {
            let event = Event { body: EventBody::Lost { first, last }, seq: Some(seq), at: clock::now(), turn: None };
            Arc::new(stored(&event))
        };
        let mut from = first;
        while from <= last {
            let until = last.min(from + LOST_AT_ONCE - 1);
            self.append(id, Vec::new(), (from..=until).map(mark).collect(), Vec::new())?;
            from = until + 1;
        }
        Ok(())
    }

    /// The last commit, which makes the session one; whether it has something to do.
    fn end(
        &self,
        id: &SessionId,
        examined: Examined,
        asked: BTreeMap<QuestionId, QuestionKind>,
        outcomes: Option<&Vec<Outcome>>,
    ) -> Result<bool, StoreError> {
        let Examined { row, mut state, env, results, broken, events, known, goes_on, .. } = examined;
        let updated_at = state.updated_at;
        let file = self.file.display();
        let text = match &broken {
            None => format!("the database was set aside, and this session carried over whole from {file}"),
            Some(broken) => {
                format!(
                    "the session was damaged: {broken}; {events} of its {} events are left, the rest is in {file}",
                    known.max(events)
                )
            }
        };
        let (drafts, pieces) = match goes_on {
            true => (Vec::new(), self.source.pieces(id.as_str())),
            false => (cut_off(&state, &results), Vec::new()),
        };
        // Their answers are lost, or nobody can say any more what they would allow.
        let waits = |id: &QuestionId| state.open_questions().any(|asked| asked.id == *id);
        let unanswered = asked.into_iter().filter(|(id, _)| !waits(id));
        let unanswered = unanswered.map(|(id, kind)| Draft::new(kind.withdrawn(id, DAMAGE.to_owned())));
        let unanswered: Vec<Draft> = unanswered.collect();
        let turn = state.turn.as_ref().filter(|_| drafts.is_empty()).map(|turn| turn.id.clone());
        let body = EventBody::Notice { level: Level::Warning, code: Some(NoticeCode::Damaged), text, until_at: None };
        let (mut new, mut folds) = (Vec::new(), vec![environment(&env)]);
        for Draft { turn, body, .. } in unanswered.into_iter().chain(drafts).chain([Draft { turn, ..Draft::new(body) }])
        {
            let event = Event { body, seq: Some(state.head + 1), at: clock::now(), turn };
            state.apply(&event);
            folds.extend(question_fold(id, &event).into_iter().chain(spent(&event)));
            new.push(Arc::new(stored(&event)));
        }
        // To be carried over is no sign of life: lists keep their order.
        state.updated_at = updated_at;
        state.name = state.name.filter(|name| self.is_free(id, name));
        folds.insert(
            0,
            Fold::Session {
                name: state.name.clone(),
                cwd: state.cwd.to_string_lossy().into_owned(),
                state: state.stored_name(),
                updated_at: row.ok().flatten().map_or(updated_at, |row| row.updated_at),
                fold: state.to_stored(),
                parent: state.parent.as_ref().map(ToString::to_string),
            },
        );
        for outcome in outcomes.into_iter().flatten() {
            let known = self.daemon.store.outcome(outcome.key.id.clone());
            // A client may have asked again before its session was here.
            if Handle::current().block_on(known)?.is_none() {
                folds.push(Fold::Outcome(outcome.clone()));
            }
        }
        self.append(id, pieces, new, folds)?;
        Ok(!matches!(state.stored_name(), "idle" | "offered"))
    }

    /// Whether no session that was made meanwhile has taken this name.
    fn is_free(&self, id: &SessionId, name: &str) -> bool {
        let free = self.daemon.store.is_free(name.to_owned(), id);
        Handle::current().block_on(free).unwrap_or(false)
    }

    fn append(
        &self,
        id: &SessionId,
        pieces: Vec<Piece>,
        events: Vec<Arc<Stored>>,
        folds: Vec<Fold>,
    ) -> Result<(), StoreError> {
        let (done, committed) = oneshot::channel();
        let log = Log::new(id.clone(), 0, Vec::new());
        self.daemon.store.append(Append { log, events, turn: None, pieces, folds, sync: true, done: Some(done) });
        committed.blocking_recv().unwrap_or_else(|_| Err(StoreError("the store has ended".into())))
    }
}

fn salvage_changed(id: &SessionId, after: u64) -> rusqlite::Error {
    crate::store::damage::unreadable(format!(
        "event {} of session {id} could be read before, and cannot now",
        after + 1
    ))
}

/// Closes what a session has open of which something is lost. Nothing of it goes on by itself: what is lost has happened.
fn cut_off(state: &State, results: &HashMap<CallId, ContentBlock>) -> Vec<Draft> {
    let why = "a part of the session could not be read";
    let finished = |usage, steps| EventBody::TurnFinished {
        stop_reason: StopReason::Error,
        detail: Some(why.to_owned()),
        hint: Some("look at what it did before you go on".to_owned()),
        until_at: None,
        answer: None,
        usage,
        session_usage: Some(state.usage),
        context_tokens: None,
        context_window: None,
        steps,
    };
    if let Some(turn) = &state.turn {
        let mut drafts = recovery::close(state, &[], results, why);
        drafts.push(Draft::of_turn(&turn.id, finished(turn.usage, turn.steps)));
        return drafts;
    }
    let Some(queued) = state.queue.front().filter(|_| state.is_owed()) else { return Vec::new() };
    // The first prompt that waits would start, and may have had its turn: it is shown, and not answered. The others wait.
    let turn = TurnId(format!("t{}", state.counts.turns + 1));
    let message = MessageId(format!("m{}", state.counts.messages + 1));
    let started = EventBody::TurnStarted { prompt: queued.prompt.clone() };
    let said = || EventBody::user_message(message, queued.content.clone(), Some(queued.prompt.clone()), None);
    let bodies = [Some(started), (!queued.compact).then(said), Some(finished(Usage::default(), 0))];
    bodies.into_iter().flatten().map(|body| Draft::of_turn(&turn, body)).collect()
}
