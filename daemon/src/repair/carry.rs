//! Carrying sessions over from a database that was set aside, each whole or, at the user's word, its beginning.
//!
//! Runs on the thread of its job, and waits there for the store. A session is there with its last commit, or not at all: one that was
//! begun and not ended is cleared, and begun again. What could not be carried over is in the report beside the file.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, MessageId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock;
use crate::daemon::Daemon;
use crate::key::{Key, Outcome};
use crate::session::actor::{decided, environment, spent, stored, user_message};
use crate::session::log::{Log, Piece, Stored};
use crate::session::state::State;
use crate::session::{Draft, recovery};
use crate::store::aside::{Aside, Kind, Left};
use crate::store::salvage::{self, Examined, Source, Unreadable};
use crate::store::{Append, Fold, StoreError};

/// Sessions that a report names.
const MAX_LEFT: usize = 10_000;

/// Carries over what can be of a database that was set aside, and writes down what was.
///
/// First what its tables lead to, as far as it is whole. If that is not all of it, its pages are looked at one by one, and only then
/// the beginnings of sessions are carried over, if the user has asked for them.
pub(super) fn carry_over(daemon: &Arc<Daemon>, aside: &mut Aside) {
    if aside.report.searched && !aside.report.partial {
        // What is left needs the user's word.
        return;
    }
    let mut removed = BTreeSet::new();
    match Source::open(&aside.path) {
        Ok(source) => {
            removed = source.removed();
            if !aside.report.searched {
                let Some(all) = carry_all(daemon, &source, aside, &removed, false) else { return };
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
            if carry_all(daemon, &source, aside, &removed, partial).is_none() {
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
    daemon: &Arc<Daemon>,
    source: &Source,
    aside: &mut Aside,
    removed: &BTreeSet<String>,
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
        let carried = Carry { daemon, source, file: &aside.path, partial };
        match carried.session(&id, outcomes.get(&id), earlier.get(&id)) {
            Ok(None) => aside.report.carried += 1,
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

fn save(aside: &Aside) {
    if let Err(error) = aside.save() {
        tracing::error!(target: "repair", file = %aside.path.display(), %error, "its report cannot be written");
    }
}

/// Carries sessions over from one set-aside database.
struct Carry<'a> {
    daemon: &'a Arc<Daemon>,
    source: &'a Source,
    file: &'a Path,
    partial: bool,
}

impl Carry<'_> {
    /// Carries one session over, unless it is here; gives what is missing of it. Fails if nothing can be written.
    fn session(
        &self,
        id: &str,
        outcomes: Option<&Vec<(String, String)>>,
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
        if events == 0 || (broken.is_some() && !self.partial) {
            let text = broken.unwrap_or_default();
            return Ok(Some(Left { session: id.to_owned(), events: 0, of, text }));
        }
        if runtime.block_on(store.last(here.clone()))? > 0 {
            // What a job that was cut short had begun.
            runtime.block_on(store.clear(here.clone()))?;
        }
        let mut after = 0;
        while after < events {
            let page = self.source.page(id, after, events);
            let Some(last) = page.last() else {
                return Err(StoreError::from(salvage_changed(id, after)));
            };
            after = last.seq;
            let mut folds = salvage::permissions(id, &page);
            folds.extend(salvage::spent(&page));
            for blob in salvage::blobs(&page) {
                // One whose file is lost is not used any more.
                folds.extend(store.blobs.hold(&blob)?.map(Fold::Blob));
            }
            let events = page.into_iter().map(Arc::new).collect();
            self.append(&here, Vec::new(), events, folds)?;
        }
        let resumes = self.end(&here, examined, outcomes.filter(|_| broken.is_none()))?;
        if resumes {
            let _planned = self.daemon.sessions.wake(self.daemon, &here);
        }
        Ok(broken.map(|text| Left { session: id.to_owned(), events, of, text }))
    }

    /// The last commit, which makes the session one; whether it has something to do.
    fn end(
        &self,
        id: &SessionId,
        examined: Examined,
        outcomes: Option<&Vec<(String, String)>>,
    ) -> Result<bool, StoreError> {
        let Examined { row, mut state, env, results, broken, events, .. } = examined;
        let updated_at = state.updated_at;
        let (drafts, pieces, text) = match &broken {
            None => {
                let text = format!(
                    "the database was set aside, and this session carried over whole from {}",
                    self.file.display()
                );
                (Vec::new(), self.source.pieces(id.as_str()), text)
            }
            Some(broken) => {
                let text = format!(
                    "the session was damaged: {broken}; what is left of it are its first {events} events, the rest is in {}",
                    self.file.display()
                );
                (cut_off(&state, &results), Vec::new(), text)
            }
        };
        let turn = state.turn.as_ref().filter(|_| drafts.is_empty()).map(|turn| turn.id.clone());
        let body = EventBody::Notice { level: Level::Warning, code: Some(NoticeCode::Damaged), text, until_at: None };
        let (mut new, mut folds) = (Vec::new(), vec![environment(&env)]);
        for Draft { turn, body, .. } in drafts.into_iter().chain([Draft { turn, ..Draft::new(body) }]) {
            let event = Event { body, seq: Some(state.head + 1), at: clock::now(), turn };
            state.apply(&event);
            folds.extend(decided(&event).into_iter().chain(spent(&event)));
            new.push(Arc::new(stored(&event)));
        }
        // To be carried over is no sign of life: lists keep their order.
        state.updated_at = updated_at;
        state.name = state.name.filter(|name| self.is_free(name));
        folds.insert(
            0,
            Fold::Session {
                name: state.name.clone(),
                cwd: state.cwd.to_string_lossy().into_owned(),
                state: state.stored_name(),
                updated_at: row.ok().flatten().map_or(updated_at, |row| row.updated_at),
                fold: serde_json::to_string(&state).unwrap_or_default(),
            },
        );
        for (key, result) in outcomes.into_iter().flatten() {
            let known = self.daemon.store.outcome(key.clone());
            // A client may have asked again before its session was here.
            if Handle::current().block_on(known)?.is_none() {
                // What it stood for is not carried over: the key fits whatever comes.
                let key = Key { id: key.clone(), params: String::new() };
                folds.push(Fold::Outcome(Outcome { key, result: result.clone() }));
            }
        }
        self.append(id, pieces, new, folds)?;
        Ok(matches!(state.stored_name(), "running" | "waiting" | "owed"))
    }

    /// Whether no session that was made meanwhile has taken this name.
    fn is_free(&self, name: &str) -> bool {
        let named = self.daemon.store.sessions(Some(name.to_owned()), None, u32::MAX, |row| row);
        let rows = Handle::current().block_on(named);
        rows.is_ok_and(|rows| rows.iter().all(|row| row.name.as_deref() != Some(name)))
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

fn salvage_changed(id: &str, after: u64) -> rusqlite::Error {
    crate::store::damage::unreadable(format!(
        "event {} of session {id} could be read before, and cannot now",
        after + 1
    ))
}

/// Closes what the beginning of a session has open. Nothing of it goes on by itself: what comes next has happened, and is lost.
fn cut_off(state: &State, results: &HashMap<CallId, ContentBlock>) -> Vec<Draft> {
    let why = "the rest of the session could not be read";
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
    let said = || user_message(message, queued.content.clone(), Some(queued.prompt.clone()));
    let bodies = [Some(started), (!queued.compact).then(said), Some(finished(Usage::default(), 0))];
    bodies.into_iter().flatten().map(|body| Draft::of_turn(&turn, body)).collect()
}
