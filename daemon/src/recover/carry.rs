//! Carrying sessions over from a database that was set aside: each as far as it can be read, in one transaction, so that it is
//! there or is not. A helper that dies in the middle is begun again, and goes on with those that are not here yet. What could not
//! be carried over is in the report beside the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{BlobId, CallId, MessageId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use linger_protocol::question::QuestionKind;
use rusqlite::{Connection, OptionalExtension as _};

use super::salvage::{self, Examined};
use super::source::{Source, Unreadable};
use crate::log::Stored;
use crate::session::actor::{environment, question_fold, spent, stored};
use crate::session::state::State;
use crate::session::{Draft, recovery};
use crate::store::aside::{Aside, Left};
use crate::store::blob::{Blobs, Held};
use crate::store::idempotency::{Key, Outcome};
use crate::store::write::write_session;
use crate::store::{Fold, Spent, StoreError, lost_blob};
use crate::sys::clock;

/// Sessions that a report names.
const MAX_LEFT: usize = 10_000;

/// Who has decided questions whose answer is lost.
const DAMAGE: &str = "damage";

/// The database that sessions are carried over into.
pub(super) struct Target<'a> {
    pub(super) connection: &'a Connection,
    pub(super) blobs: &'a Blobs,
    /// Blobs that are lost and used no more, each with what is said of it.
    pub(super) given_up: BTreeMap<BlobId, String>,
}

/// One database that was set aside, and what is known of it so far.
struct Carry<'a, 't> {
    target: &'a mut Target<'t>,
    file: &'a Path,
    removed: BTreeSet<String>,
    /// What each session has paid for, as far as that is written down; under the empty name those that were removed.
    paid: HashMap<String, Vec<Spent>>,
    /// Sessions that are here whole.
    whole: BTreeSet<String>,
    /// Those that are not.
    left: BTreeMap<String, Left>,
}

/// Carries over what can be of a database that was set aside, and writes down what was. Fails if nothing can be written.
///
/// If its tables can be walked, that is all there is to it. Else those sessions come first that are whole as far as the tables
/// lead, and then what is left of the others is looked for page by page.
pub(super) fn carry_over(target: &mut Target<'_>, aside: &mut Aside) -> anyhow::Result<()> {
    let (removed, paid, whole, left) = (BTreeSet::new(), HashMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut carry = Carry { target, file: &aside.path, removed, paid, whole, left };
    let mut is_all = false;
    match Source::open(&aside.path) {
        Ok(source) => {
            (carry.removed, carry.paid) = (source.removed(), source.paid());
            carry.pay_for_removed()?;
            is_all = source.is_walkable();
            aside.report.uncertain = !carry.all(&source, is_all)?;
            is_all |= !aside.report.uncertain && carry.left.is_empty();
        }
        Err(Unreadable::Newer(version)) => {
            // The linger that wrote it will.
            aside.report.schema = version;
            return Ok(aside.save()?);
        }
        Err(error) => {
            tracing::error!(target: "recover", file = %aside.path.display(), %error, "nothing can be reached in it");
            let nothing = std::fs::metadata(&aside.path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
            aside.report.uncertain = !nothing && !matches!(error, Unreadable::Empty);
        }
    }
    if !is_all {
        match Source::piece_together(&aside.path) {
            Ok(source) => drop(carry.all(&source, true)?),
            Err(Unreadable::Nothing | Unreadable::Empty) => {}
            Err(error) => return Err(error.into()),
        }
    }
    aside.report.carried = u32::try_from(carry.whole.len()).unwrap_or(u32::MAX);
    aside.report.left = carry.left.into_values().take(MAX_LEFT).collect();
    aside.report.settled = true;
    let (carried, left) = (aside.report.carried, aside.report.left.len());
    tracing::info!(target: "recover", file = %aside.path.display(), carried, left, "sessions were carried over");
    Ok(aside.save()?)
}

impl Carry<'_, '_> {
    /// Carries over the sessions of one source, only whole ones or also what is left of others (`partial`); whether there can be
    /// no others.
    fn all(&mut self, source: &Source, partial: bool) -> anyhow::Result<bool> {
        let outcomes = source.outcomes();
        let (mut ids, all) = salvage::ids(&source.connection);
        ids.retain(|id| !self.removed.contains(id));
        for id in ids {
            let done = match self.session(source, &id, outcomes.get(&id), partial) {
                // The others do without it.
                Err(error) if error.is_clash() => {
                    let text = error.0.to_string();
                    Some(Left { session: id.clone(), events: 0, of: 0, text })
                }
                done => done?,
            };
            match done {
                None => {
                    self.left.remove(&id);
                    self.whole.insert(id);
                }
                Some(left) => {
                    tracing::warn!(target: "recover", session = id, left.events, left.of, left.text, "is not whole");
                    self.left.insert(id, left);
                }
            }
        }
        Ok(all)
    }

    /// Carries one session over, unless it is here; gives what is missing of it.
    fn session(
        &mut self,
        source: &Source,
        id: &str,
        outcomes: Option<&Vec<Outcome>>,
        partial: bool,
    ) -> Result<Option<Left>, StoreError> {
        let connection = self.target.connection;
        let transaction = connection.unchecked_transaction()?;
        let is_in = |sql: &str| transaction.prepare_cached(sql)?.exists([id]);
        let is_here = is_in("SELECT 1 FROM session WHERE id = ?")?;
        if is_here && self.whole.contains(id) {
            return Ok(None);
        }
        if is_in("SELECT 1 FROM removed WHERE session = ?")? {
            // It was carried over, and the user wants it no more.
            return Ok(None);
        }
        let examined = source.examine(id);
        let (events, of, broken) = (examined.events, examined.known, examined.broken.clone());
        let left = |events| broken.clone().map(|text| Left { session: id.to_owned(), events, of, text });
        if is_here {
            // A helper that was cut short has carried it over.
            return Ok(left(events));
        }
        // Without its beginning and its state nobody knows where it works.
        let homeless = examined.state.cwd.as_os_str().is_empty() && !SessionId::from(id).is_daemon();
        if events == 0 || homeless || (broken.is_some() && !partial) {
            return Ok(left(0).or_else(|| Some(Left { session: id.to_owned(), of, ..Left::default() })));
        }
        // Of lost answers too, what they have cost is known.
        let paid = self.paid.get(id).filter(|_| !examined.lost.is_empty()).cloned().unwrap_or_default();
        let (mut after, mut asked, mut held) = (0, BTreeMap::new(), Vec::new());
        for (first, last) in examined.lost.iter().copied().chain([(examined.head + 1, examined.head)]) {
            self.copy(source, id, (after, first - 1), (&mut asked, &mut held), paid.is_empty())?;
            for seq in first..=last {
                let event =
                    Event { body: EventBody::Lost { first, last }, seq: Some(seq), at: clock::now(), turn: None };
                write_session(&transaction, id, &[], &[Arc::new(stored(&event))], &[])?;
            }
            after = last;
        }
        let paid: Vec<Fold> = paid.into_iter().map(Fold::Spent).collect();
        write_session(&transaction, id, &[], &[], &paid)?;
        let outcomes = outcomes.filter(|_| examined.head == examined.known);
        self.end(source, id, examined, asked, outcomes)?;
        transaction.commit()?;
        held.iter().for_each(Held::committed);
        Ok(left(events))
    }

    /// Copies the events between two numbers as they are; notes in `asked` which questions have no answer, and holds the blobs.
    /// What they have cost is counted anew if it is to be `counted`.
    fn copy(
        &mut self,
        source: &Source,
        id: &str,
        (mut after, until): (u64, u64),
        (asked, held): (&mut BTreeMap<QuestionId, QuestionKind>, &mut Vec<Held>),
        counted: bool,
    ) -> Result<(), StoreError> {
        while after < until {
            let page = source.page(id, after, until);
            let Some(last) = page.last() else {
                let next = after + 1;
                return Err(StoreError::damage(format!(
                    "event {next} of session {id} could be read before, and cannot now"
                )));
            };
            after = last.seq;
            let mut folds = Vec::new();
            for event in salvage::understood(&page) {
                let fold = question_fold(&SessionId::from(id), &event);
                match &fold {
                    Some(Fold::Asked(pending)) => drop(asked.insert(pending.question.clone(), pending.asked.kind)),
                    Some(Fold::Answered { question, .. }) => drop(asked.remove(question)),
                    _ => {}
                }
                folds.extend(fold.into_iter().chain(spent(&event).filter(|_| counted)));
            }
            for blob in salvage::blobs(&page) {
                let blob = self.target.hold(&blob)?;
                folds.extend(blob.clone().map(Fold::Blob));
                held.extend(blob);
            }
            let events: Vec<Arc<Stored>> = page.into_iter().map(Arc::new).collect();
            write_session(self.target.connection, id, &[], &events, &folds)?;
        }
        Ok(())
    }

    /// The end of its transaction: what it is told, and its row.
    fn end(
        &self,
        source: &Source,
        id: &str,
        examined: Examined,
        asked: BTreeMap<QuestionId, QuestionKind>,
        outcomes: Option<&Vec<Outcome>>,
    ) -> Result<(), StoreError> {
        let Examined { mut state, env, results, broken, events, known, goes_on, .. } = examined;
        let (updated_at, file) = (state.updated_at, self.file.display());
        let text = match &broken {
            None => format!("the database was set aside, and this session carried over whole from {file}"),
            Some(broken) => format!(
                "the session was damaged: {broken}; {events} of its {} events are left, the rest is in {file}",
                known.max(events)
            ),
        };
        let (drafts, pieces) = match goes_on {
            true => (Vec::new(), source.pieces(id)),
            false => (cut_off(&state, &results), Vec::new()),
        };
        // Their answers are lost, or nobody can say any more what they would allow.
        let waits = |id: &QuestionId| state.open_questions().any(|asked| asked.id == *id);
        let unanswered = asked.into_iter().filter(|(id, _)| !waits(id));
        let unanswered = unanswered.map(|(id, kind)| Draft::new(kind.withdrawn(id, DAMAGE.to_owned())));
        let unanswered: Vec<Draft> = unanswered.collect();
        let turn = state.turn.as_ref().filter(|_| drafts.is_empty()).map(|turn| turn.id.clone());
        let notice = Draft { turn, ..Draft::new(EventBody::notice(Level::Warning, NoticeCode::Damaged, text)) };
        let (mut new, mut folds, session) = (Vec::new(), vec![environment(&env)], SessionId::from(id));
        for Draft { turn, body, .. } in unanswered.into_iter().chain(drafts).chain([notice]) {
            let event = Event { body, seq: Some(state.head + 1), at: clock::now(), turn };
            state.apply(&event);
            folds.extend(question_fold(&session, &event).into_iter().chain(spent(&event)));
            new.push(Arc::new(stored(&event)));
        }
        // To be carried over is no sign of life: lists keep their order.
        state.updated_at = updated_at;
        let is_taken = |name: &String| {
            let others = "SELECT 1 FROM session WHERE name = ? AND id <> ?";
            self.target.connection.prepare_cached(others)?.exists([name, id])
        };
        if state.name.as_ref().map(is_taken).transpose()?.unwrap_or_default() {
            // A session that was made meanwhile has it.
            state.name = None;
        }
        folds.insert(0, state.to_fold());
        for outcome in outcomes.into_iter().flatten() {
            // A client may have asked again before its session was here.
            if !self.is_known(&outcome.key.id)? {
                folds.push(Fold::Outcome(outcome.clone()));
            }
        }
        Ok(write_session(self.target.connection, id, &pieces, &new, &folds)?)
    }

    /// Carries over what sessions have cost that were removed, which is in no event any more: once, however often this is begun.
    fn pay_for_removed(&mut self) -> Result<(), StoreError> {
        let key = Key { id: format!("paid in {}", self.file.display()), params: String::new() };
        let Some(spent) = self.paid.remove("").filter(|spent| !spent.is_empty()) else { return Ok(()) };
        if self.is_known(&key.id)? {
            return Ok(());
        }
        let done = Fold::Outcome(Outcome { key, result: "null".to_owned() });
        let folds: Vec<Fold> = spent.into_iter().map(Fold::Spent).chain([done]).collect();
        let transaction = self.target.connection.unchecked_transaction()?;
        write_session(&transaction, "", &[], &[], &folds)?;
        Ok(transaction.commit()?)
    }

    /// Whether the outcome of this key is written down.
    fn is_known(&self, key: &str) -> rusqlite::Result<bool> {
        let known = self.target.connection.query_row("SELECT 1 FROM outcome WHERE key = ?", [key], |_| Ok(()));
        known.optional().map(|known| known.is_some())
    }
}

impl Target<'_> {
    /// Holds a blob that a session uses. One whose file is lost is used no more; what has its name and is another is set aside.
    fn hold(&mut self, blob: &BlobId) -> Result<Option<Held>, StoreError> {
        let Err(error) = self.blobs.check(blob) else { return Ok(self.blobs.hold(blob)?) };
        // It may be as it should.
        let Some(text) = lost_blob(self.blobs, blob, &error) else { return Ok(self.blobs.hold(blob)?) };
        let lies = self.blobs.set_aside(blob)?;
        let lies = lies.map(|lies| format!("; what was there is {}", lies.display())).unwrap_or_default();
        self.given_up.entry(blob.clone()).or_insert_with(|| text + &lies);
        Ok(None)
    }
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
    let Some(queued) = state.queue.front().filter(|_| state.has_due_prompt()) else { return Vec::new() };
    // The first prompt that waits would start, and may have had its turn: it is shown, and not answered. The others wait.
    let turn = TurnId(format!("t{}", state.counts.turns + 1));
    let message = MessageId(format!("m{}", state.counts.messages + 1));
    let started = EventBody::TurnStarted { prompt: queued.prompt.clone() };
    let said = || EventBody::user_message(message, queued.content.clone(), Some(queued.prompt.clone()), None);
    let bodies = [Some(started), (!queued.compact).then(said), Some(finished(Usage::default(), 0))];
    bodies.into_iter().flatten().map(|body| Draft::of_turn(&turn, body)).collect()
}
