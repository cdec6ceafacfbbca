//! Copies sessions from a set-aside database: the readable part of each, in one transaction. A helper that was killed can be run
//! again. The report beside the file lists what could not be copied.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use linger_protocol::event::{Event, EventBody, Level, NoticeCode, TurnFinished};
use linger_protocol::id::{BlobId, CallId, MessageId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use linger_protocol::question::QuestionKind;
use rusqlite::Connection;

use super::salvage::{self, Examined};
use super::source::{Source, Unreadable};
use crate::log::Stored;
use crate::session::Draft;
use crate::session::actor::{blob_fold, environment, question_fold, spent, stored};
use crate::session::state::State;
use crate::session::state::recovery;
use crate::store::aside::{Aside, Left};
use crate::store::blob::{Blobs, Held};
use crate::store::idempotency::{Key, Outcome};
use crate::store::write::write_session;
use crate::store::{Fold, StoreError, artifact, lost_blob, parts, read, usage};
use crate::sys::clock;

/// The most sessions that a report names.
const MAX_LEFT: usize = 10_000;

/// The `by` of questions whose answer is lost.
const DAMAGE: &str = "damage";

/// The notice of a session whose stored state is not what its events give.
const REBUILT: &str = "the state of this session was made again from its events";

/// The database that sessions are copied to.
pub(super) struct Target<'a> {
    pub(super) connection: &'a Connection,
    pub(super) blobs: &'a Blobs,
    /// Lost blobs, which no session uses any more, each with its text for the user.
    pub(super) given_up: BTreeMap<BlobId, String>,
}

/// A set-aside database and the one that it is copied to.
struct Carry<'a, 't> {
    target: &'a mut Target<'t>,
    source: &'a Source,
    file: &'a Path,
}

/// Copies what can be read of a set-aside database, and saves its report. Fails if nothing can be written.
pub(super) fn carry_over(target: &mut Target<'_>, aside: &mut Aside) -> anyhow::Result<()> {
    let report = &mut aside.report;
    match Source::open(&aside.path) {
        Ok(source) => {
            let mut carry = Carry { target, source: &source, file: &aside.path };
            carry.costs()?;
            carry.artifacts()?;
            (report.carried, report.left) = carry.sessions()?;
            report.uncertain = !source.has_all;
        }
        Err(Unreadable::Newer(version)) => {
            // The linger that wrote it can copy it.
            report.schema = version;
            return Ok(aside.save()?);
        }
        Err(Unreadable::Empty) => {}
        Err(Unreadable::Nothing) => report.uncertain = true,
        Err(Unreadable::Other(error)) => return Err(error),
    }
    report.settled = true;
    tracing::info!(target: "recover", file = %aside.path.display(), carried = report.carried, "sessions were carried over");
    Ok(aside.save()?)
}

impl Carry<'_, '_> {
    /// Copies all sessions; gives how many are here whole, and the others.
    fn sessions(&mut self) -> anyhow::Result<(u32, Vec<Left>)> {
        let (mut carried, mut left) = (0, Vec::new());
        for id in &self.source.sessions {
            match self.session(id) {
                // The daemon's own log is no session; what it says of the configuration is confirmed again if it is lost.
                Ok(_) if SessionId::from(id.as_str()).is_daemon() => {}
                Ok(None) => carried += 1,
                Ok(Some(rest)) => left.push(rest),
                Err(error) if error.is_clash() => {
                    left.push(Left { session: id.clone(), events: 0, of: 0, text: error.0.to_string() });
                }
                Err(error) => return Err(error.into()),
            }
        }
        left.truncate(MAX_LEFT);
        Ok((carried, left))
    }

    /// Copies a session, unless it is here; gives what is missing of it.
    fn session(&mut self, id: &str) -> Result<Option<Left>, StoreError> {
        let connection = self.target.connection;
        let transaction = connection.unchecked_transaction()?;
        let is_in = |sql: &str| transaction.prepare_cached(sql)?.exists([id]);
        if is_in("SELECT 1 FROM removed WHERE session = ?")? {
            // The user has removed it since.
            return Ok(None);
        }
        let examined = salvage::examine(&self.source.connection, id);
        let (events, of, broken) = (examined.events, examined.known, examined.broken.clone());
        let left = |events, text| Left { session: id.to_owned(), events, of, text };
        if is_in("SELECT 1 FROM session WHERE id = ?")? {
            // An earlier run of the helper copied it.
            return Ok(broken.map(|text| left(events, text)));
        }
        let homeless = examined.state.identity.cwd.as_os_str().is_empty() && !SessionId::from(id).is_daemon();
        if events == 0 || homeless {
            return Ok(Some(left(0, broken.unwrap_or_default())));
        }
        let (mut after, mut asked, mut held) = (0, BTreeMap::new(), Vec::new());
        for (first, last) in examined.lost.iter().copied().chain([(examined.head + 1, examined.head)]) {
            self.copy(id, after, first - 1, &mut asked, &mut held)?;
            for seq in first..=last {
                let event =
                    Event { body: EventBody::Lost { first, last }, seq: Some(seq), at: clock::now(), turn: None };
                write_session(&transaction, id, &[], &[Arc::new(stored(&event)?)], &[])?;
            }
            after = last;
        }
        self.end(id, examined, asked)?;
        transaction.commit()?;
        held.iter().for_each(Held::committed);
        Ok(broken.map(|text| left(events, text)))
    }

    /// Copies the events between two numbers. Adds unanswered questions to `asked`, and used blobs to `held`.
    fn copy(
        &mut self,
        id: &str,
        mut after: u64,
        until: u64,
        asked: &mut BTreeMap<QuestionId, QuestionKind>,
        held: &mut Vec<Held>,
    ) -> Result<(), StoreError> {
        // The questions of shared events are the origin's.
        let shared = parts::shared(&self.source.connection, id).unwrap_or_default();
        while after < until {
            let (page, _) = read::page(&self.source.connection, id, after, until, salvage::PAGE, usize::MAX);
            let Some(last) = page.last() else {
                return Err(StoreError::damage(format!("session {id} cannot be read any more")));
            };
            after = last.seq;
            let mut folds = Vec::new();
            for event in page.iter().filter_map(|stored| serde_json::from_str::<Event>(&stored.data).ok()) {
                let is_own = event.seq.is_some_and(|seq| seq > shared);
                let fold = question_fold(&SessionId::from(id), &event).filter(|_| is_own);
                match &fold {
                    Some(Fold::Asked(pending)) => drop(asked.insert(pending.question.clone(), pending.asked.kind)),
                    Some(Fold::Answered { question, .. }) => drop(asked.remove(question)),
                    _ => {}
                }
                folds.extend(fold);
                for blob in event.body.blobs() {
                    let blob = self.target.hold(blob)?;
                    folds.extend(blob.clone().map(Fold::Blob));
                    held.extend(blob);
                }
                for blob in event.body.file_contents() {
                    // One that was given up is no loss.
                    let blob =
                        self.target.blobs.check(blob).ok().and_then(|()| self.target.blobs.hold(blob).ok().flatten());
                    folds.extend(blob.clone().map(|blob| blob_fold(blob, &event)));
                    held.extend(blob);
                }
            }
            let events: Vec<Arc<Stored>> = page.into_iter().map(Arc::new).collect();
            write_session(self.target.connection, id, &[], &events, &folds)?;
        }
        Ok(())
    }

    /// Ends the transaction of a session: the events that a repair adds, and its other rows.
    fn end(&self, id: &str, examined: Examined, asked: BTreeMap<QuestionId, QuestionKind>) -> Result<(), StoreError> {
        let Examined { mut state, env, results, broken, events, known, head, goes_on, rebuilt, .. } = examined;
        let (updated_at, file) = (state.progress.updated_at, self.file.display());
        let text = match &broken {
            None => format!("the database was set aside, and this session carried over whole from {file}"),
            Some(broken) => format!(
                "the session was damaged: {broken}; {events} of its {} events are left, the rest is in {file}",
                known.max(events)
            ),
        };
        let (drafts, pieces) = if goes_on {
            (Vec::new(), read::pieces(&self.source.connection, id).unwrap_or_default())
        } else {
            let why = if broken.is_some() { "a part of the session could not be read" } else { REBUILT };
            (cut_off(&state, &results, why), Vec::new())
        };
        // Their answers are lost, or what they allow is.
        let waits = |id: &QuestionId| state.open_questions().any(|asked| asked.id == *id);
        let unanswered = asked.into_iter().filter(|(id, _)| !waits(id));
        let unanswered = unanswered.map(|(id, kind)| Draft::new(kind.withdrawn(id, DAMAGE.to_owned())));
        let unanswered: Vec<Draft> = unanswered.collect();
        let turn = state.turn.as_ref().filter(|_| drafts.is_empty()).map(|turn| turn.id.clone());
        let notice =
            |code, text| Draft { turn: turn.clone(), ..Draft::new(EventBody::notice(Level::Warning, code, text)) };
        let asks_again = format!("{REBUILT}; what was permitted is asked again");
        let asks_again = rebuilt.then(|| notice(NoticeCode::Rebuilt, asks_again));
        let notice = notice(NoticeCode::Damaged, text);
        let (mut new, mut folds, session) = (Vec::new(), vec![environment(&env)], SessionId::from(id));
        for Draft { turn, body, .. } in unanswered.into_iter().chain(drafts).chain(asks_again).chain([notice]) {
            let event = Event { body, seq: Some(state.progress.head + 1), at: clock::now(), turn };
            state.apply(&event);
            folds.extend(question_fold(&session, &event).into_iter().chain(spent(&event)));
            new.push(Arc::new(stored(&event)?));
        }
        // A repair is no activity: lists keep their order.
        state.progress.updated_at = updated_at;
        let is_taken = |name: &String| {
            let others = "SELECT 1 FROM session WHERE name = ? AND id <> ?";
            self.target.connection.prepare_cached(others)?.exists([name, id])
        };
        if state.settings.name.as_ref().map(is_taken).transpose()?.unwrap_or_default() {
            // A newer session has it.
            state.give_up_name();
        }
        folds.insert(0, state.to_fold());
        // The event of an outcome may be among lost ones at the end.
        for outcome in self.source.outcomes(id).into_iter().filter(|_| head == known) {
            // A client may have repeated its request in the new database.
            if !self.is_known(&outcome.key.id)? {
                folds.push(Fold::Outcome(outcome));
            }
        }
        Ok(write_session(self.target.connection, id, &pieces, &new, &folds)?)
    }

    /// Copies the costs of all sessions, also removed ones, as far as they can be read; only once, however often a repair is begun.
    fn costs(&self) -> Result<(), StoreError> {
        let key = Key { id: format!("costs in {}", self.file.display()), params: String::new() };
        if self.is_known(&key.id)? {
            return Ok(());
        }
        let transaction = self.target.connection.unchecked_transaction()?;
        for (session, spent) in usage::all(&self.source.connection).unwrap_or_default() {
            write_session(&transaction, &session, &[], &[], &[Fold::Spent(spent)])?;
        }
        let done = Fold::Outcome(Outcome { key, result: Ok("null".to_owned()) });
        write_session(&transaction, "", &[], &[], &[done])?;
        Ok(transaction.commit()?)
    }

    /// Copies the artifacts whose bytes are there; only once, so that one that was deleted since does not come back.
    fn artifacts(&self) -> Result<(), StoreError> {
        let key = Key { id: format!("artifacts in {}", self.file.display()), params: String::new() };
        if self.is_known(&key.id)? {
            return Ok(());
        }
        let transaction = self.target.connection.unchecked_transaction()?;
        for artifact in artifact::all(&self.source.connection).unwrap_or_default() {
            let blob = artifact::blob_of(&artifact);
            if !artifact::is_there(&transaction, &artifact.id)? && self.target.blobs.check(&blob).is_ok() {
                artifact::add(&transaction, &artifact)?;
            }
        }
        let done = Fold::Outcome(Outcome { key, result: Ok("null".to_owned()) });
        write_session(&transaction, "", &[], &[], &[done])?;
        Ok(transaction.commit()?)
    }

    /// Whether the outcome of this key is stored.
    fn is_known(&self, key: &str) -> rusqlite::Result<bool> {
        self.target.connection.prepare_cached("SELECT 1 FROM outcome WHERE key = ?")?.exists([key])
    }
}

impl Target<'_> {
    /// Holds a blob that a session uses; `None` if it is lost. A file that does not match its name is set aside.
    fn hold(&mut self, blob: &BlobId) -> Result<Option<Held>, StoreError> {
        let Err(error) = self.blobs.check(blob) else { return Ok(self.blobs.hold(blob)?) };
        // An error that may pass is no damage.
        let Some(text) = lost_blob(self.blobs, blob, &error) else { return Ok(self.blobs.hold(blob)?) };
        let lies = self.blobs.set_aside(blob)?;
        let lies = lies.map(|lies| format!("; what was there is {}", lies.display())).unwrap_or_default();
        self.given_up.entry(blob.clone()).or_insert_with(|| text + &lies);
        Ok(None)
    }
}

/// Ends the running turn of a session that has lost events, so that nothing continues by itself.
fn cut_off(state: &State, results: &HashMap<CallId, ContentBlock>, why: &str) -> Vec<Draft> {
    let finished = |prompt, usage, steps| {
        EventBody::TurnFinished(TurnFinished {
            prompt,
            stop_reason: StopReason::Error,
            detail: Some(why.to_owned()),
            hint: Some("look at what it did before you go on".to_owned()),
            until_at: None,
            answer: None,
            usage,
            session_usage: Some(state.progress.usage),
            context_tokens: None,
            context_window: None,
            steps,
        })
    };
    if let Some(turn) = &*state.turn {
        let mut drafts = recovery::close(state, &[], results, why);
        drafts.push(Draft::of_turn(&turn.id, finished(turn.prompt.clone(), turn.usage, turn.steps)));
        return drafts;
    }
    let Some(queued) = state.queue.prompts.front().filter(|_| state.has_due_prompt()) else { return Vec::new() };
    // The first queued prompt would start, and may have had its turn: it is shown, and not answered. The others stay queued.
    let turn = TurnId(format!("t{}", state.progress.counts.turns + 1));
    let message = MessageId(format!("m{}", state.progress.counts.messages + 1));
    let started = EventBody::TurnStarted { prompt: queued.prompt.clone() };
    let said = || EventBody::user_message(message, queued.content.clone(), Some(queued.prompt.clone()), None);
    let bodies =
        [Some(started), (!queued.compact).then(said), Some(finished(Some(queued.prompt.clone()), Usage::default(), 0))];
    bodies.into_iter().flatten().map(|body| Draft::of_turn(&turn, body)).collect()
}
