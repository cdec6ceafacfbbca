//! Damage: what there is, for `daemon/status`; and saving what can be read, at the start by itself and at the user's word.
//!
//! By itself only what is whole is carried over from a database that was set aside: to carry over the beginning of a session gives
//! its later numbers out again. That takes the user's word, `daemon/repair`. A database in use that is damaged is never mended in
//! place: the daemon ends, sets it aside at its next start, and carries over from there; so there is one way, and the original
//! stays as it was. (A session whose state alone cannot be read needs none of this: loading it makes the state anew.)
//! One job runs at a time, on a thread of its own; it writes as all others do, through the store's writing thread. A job that was
//! cut short by the end of the daemon is begun again at the next start: a session is there with its last commit, or not at all.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linger_protocol::daemon::{self, Damage, Damaged, Repaired};
use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, MessageId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::clock;
use crate::daemon::Daemon;
use crate::key::{Key, Outcome};
use crate::session::actor::{Command, decided, environment, spent, stored, user_message};
use crate::session::log::{Log, Piece, Stored};
use crate::session::state::State;
use crate::session::{Draft, recovery};
use crate::store::aside::{self, Aside, Kind, Left, Report};
use crate::store::salvage::{self, Examined, Source, Unreadable};
use crate::store::{Append, Fold, SCHEMA, StoreError};

/// How long `daemon/repair` waits before it says that it goes on; clients wait 30 s for an answer.
const ANSWER: Duration = Duration::from_secs(20);

/// How long looking may take when nothing is to be changed: a gigabyte or two.
const LOOK: Duration = Duration::from_secs(10);

/// How long the start waits for sessions to be carried over, so that small databases are whole when clients come.
const START: Duration = Duration::from_secs(1);

/// How many instructions of SQLite pass between two looks at the clock.
const STEPS: i32 = 10_000;

/// Sessions that a report names.
const MAX_LEFT: usize = 10_000;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Carries over what is whole.
    CarryOver,
    /// Looks for damage.
    Look,
    /// Looks for damage, and saves what can be read.
    Repair,
}

/// The jobs.
pub struct Repairs {
    running: Mutex<Option<Task>>,
    ended: watch::Sender<Repaired>,
    /// What was set aside, as of the last look.
    asides: Mutex<Vec<Aside>>,
}

impl Default for Repairs {
    fn default() -> Self {
        let ended = watch::channel(Repaired::default()).0;
        Self { running: Mutex::default(), ended, asides: Mutex::default() }
    }
}

impl Repairs {
    fn asides(&self) -> MutexGuard<'_, Vec<Aside>> {
        self.asides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Option<Task>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries over what was set aside; waits a little.
pub async fn at_start(daemon: &Arc<Daemon>) {
    let asides = aside::list(&daemon.store.path);
    let wanted = asides.iter().any(|aside| !aside.report.settled);
    *daemon.repairs.asides() = asides;
    if wanted {
        let mut ended = daemon.repairs.ended.subscribe();
        start(daemon, Task::CarryOver);
        // What is not there by then comes later.
        let _in_time = tokio::time::timeout(START, ended.changed()).await;
    }
}

/// Looks for damage, and unless this is only a `check` saves what can be read.
pub async fn repair(daemon: &Arc<Daemon>, check: bool) -> Repaired {
    if daemon.shutdown.is_cancelled() {
        // It was asked for already.
        return Repaired { restarting: true, ..Repaired::default() };
    }
    let task = if check { Task::Look } else { Task::Repair };
    let mut ended = daemon.repairs.ended.subscribe();
    let waited = tokio::time::timeout(ANSWER, async {
        loop {
            let ours = start(daemon, task);
            // The sender lives as long as the daemon.
            let _changed = ended.changed().await;
            if ours {
                return *ended.borrow_and_update();
            }
        }
    });
    let repaired = waited.await.unwrap_or(Repaired { working: true, ..Repaired::default() });
    if repaired.restarting {
        daemon.shutdown.cancel();
    }
    repaired
}

/// Starts a job unless one runs; whether the one that runs now is of this kind, so that its end is the answer.
fn start(daemon: &Arc<Daemon>, task: Task) -> bool {
    {
        let mut running = daemon.repairs.running();
        if let Some(running) = *running {
            return running == task;
        }
        *running = Some(task);
    }
    let daemon = daemon.clone();
    tokio::task::spawn_blocking(move || {
        // Also if it panics: the next one must be able to begin.
        struct End(Arc<Daemon>, Repaired);
        impl Drop for End {
            fn drop(&mut self) {
                *self.0.repairs.asides() = aside::list(&self.0.store.path);
                *self.0.repairs.running() = None;
                self.0.repairs.ended.send_replace(self.1);
            }
        }
        let mut end = End(daemon.clone(), Repaired::default());
        end.1 = work(&daemon, task);
    });
    true
}

fn work(daemon: &Arc<Daemon>, task: Task) -> Repaired {
    let (mut checked, mut stale) = (false, Vec::new());
    if task != Task::CarryOver {
        let limit = (task == Task::Look).then_some(LOOK);
        match look(daemon, limit) {
            Ok(looked) => (checked, stale) = looked,
            Err(error) => {
                tracing::error!(target: "repair", %error, "the database cannot be looked at");
                daemon.store.found.write_failed(&error);
            }
        }
    }
    if task == Task::Repair {
        stale.iter().for_each(|session| load(daemon, session));
        if let Some(reason) = in_use(daemon) {
            let report = Report { reason, at: clock::now(), partial: true, ..Report::default() };
            match aside::begin(&daemon.store.path, report) {
                Ok(to) => {
                    tracing::warn!(target: "repair", file = %to.display(), "the database is set aside at the next start");
                    return Repaired { restarting: true, checked, working: false };
                }
                Err(error) => tracing::error!(target: "repair", %error, "the database cannot be set aside"),
            }
        }
    }
    if task != Task::Look {
        for mut aside in aside::list(&daemon.store.path) {
            aside.report.partial |= task == Task::Repair;
            if !aside.report.settled && !daemon.shutdown.is_cancelled() {
                carry_over(daemon, &mut aside);
            }
        }
    }
    Repaired { checked, ..Repaired::default() }
}

/// What is wrong with the database in use, beyond what loading a session mends.
fn in_use(daemon: &Daemon) -> Option<String> {
    let (database, sessions) = daemon.store.found.all();
    let session = sessions.into_iter().next().map(|(id, met)| format!("session {id} is damaged: {}", met.text));
    database.map(|met| met.text).or(session)
}

/// Reads everything in the database that is in use; whether it got through, and the sessions whose state alone is damaged.
fn look(daemon: &Arc<Daemon>, limit: Option<Duration>) -> rusqlite::Result<(bool, Vec<SessionId>)> {
    let mut connection = Connection::open_with_flags(&*daemon.store.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let (began, shutdown) = (Instant::now(), daemon.shutdown.clone());
    let over = move || shutdown.is_cancelled() || limit.is_some_and(|limit| began.elapsed() > limit);
    connection.progress_handler(STEPS, Some(over.clone()))?;
    let found = &daemon.store.found;
    let complaint = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match complaint {
        _ if over() => return Ok((false, Vec::new())),
        Ok(text) if text == "ok" => {}
        Ok(text) => found.database(&text.replace("*** in database main ***\n", "")),
        Err(error) => found.write_failed(&error),
    }
    let mut stale = Vec::new();
    for id in salvage::ids(&connection) {
        let examined = salvage::examine(&connection, &id);
        if over() {
            return Ok((false, stale));
        }
        let id = SessionId(id);
        match (examined.row, examined.broken) {
            (Err(text), _) | (Ok(Some(_)), Some(text)) => found.session(&id, &text),
            (Ok(Some(_)), None) if examined.stale => {
                found.session(&id, "its state cannot be read; loading it makes it anew from its events");
                stale.push(id);
            }
            // Events without a session are the beginning of one that is being carried over.
            (Ok(_), _) => {}
        }
    }
    Ok((true, stale))
}

/// Loads a session, which makes its state anew.
fn load(daemon: &Arc<Daemon>, session: &SessionId) {
    let (reply, answer) = oneshot::channel();
    daemon.sessions.send(daemon, session, Command::Attach(None, reply));
    if let Ok(Err(error)) = answer.blocking_recv() {
        tracing::error!(target: "repair", %session, error = error.message, "cannot be loaded");
    }
}

/// Carries over what can be of a database that was set aside, and writes down what was.
fn carry_over(daemon: &Arc<Daemon>, aside: &mut Aside) {
    let source = match Source::open(&aside.path) {
        Ok(source) => source,
        // The linger that wrote it will.
        Err(Unreadable::Newer(_)) => return,
        Err(error) => {
            tracing::error!(target: "repair", file = %aside.path.display(), %error, "nothing can be carried over");
            // The user has been told, and asked for whatever there is; one that is only newer may well be empty.
            let told = aside.report.partial || aside.report.kind == Kind::Newer;
            aside.report.settled = told && matches!(error, Unreadable::Nothing);
            return save(aside);
        }
    };
    let outcomes = source.outcomes();
    let earlier: HashMap<String, Left> = aside.report.left.drain(..).map(|left| (left.session.clone(), left)).collect();
    aside.report.carried = 0;
    let removed = source.removed();
    let mut ids = source.with(|connection| Some(salvage::ids(connection))).unwrap_or_default();
    ids.retain(|id| !removed.contains(id));
    for id in ids {
        if daemon.shutdown.is_cancelled() {
            return;
        }
        let carried = Carry { daemon, source: &source, file: &aside.path, partial: aside.report.partial };
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
                return save(aside);
            }
        }
    }
    aside.report.settled = aside.report.partial || aside.report.left.is_empty();
    tracing::info!(
        target: "repair", file = %aside.path.display(), carried = aside.report.carried, left = aside.report.left.len(),
        "sessions were carried over"
    );
    save(aside);
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
        let Some(examined) = self.source.with(|connection| Some(salvage::examine(connection, id))) else {
            return Ok(None);
        };
        let (events, broken) = (examined.events, examined.broken.clone());
        if events == 0 || (broken.is_some() && !self.partial) {
            let text = broken.unwrap_or_default();
            return Ok(Some(Left { session: id.to_owned(), events: 0, text }));
        }
        if runtime.block_on(store.is_begun(here.clone()))? {
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
            self.daemon.sessions.wake(self.daemon, &here);
        }
        Ok(broken.map(|text| Left { session: id.to_owned(), events, text }))
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

/// What every client is told when it says hello.
pub fn warnings(daemon: &Daemon) -> Vec<String> {
    if daemon.repairs.asides().is_empty() && daemon.store.found.all() == (None, Vec::new()) {
        return Vec::new();
    }
    let told = |damage: &Damage| damage.hint.is_some() && damage.what != Damaged::Session;
    damage(daemon).into_iter().filter(told).map(|damage| damage.text).collect()
}

/// All damage, and what became of it.
pub fn damage(daemon: &Daemon) -> Vec<Damage> {
    let asides = aside::list(&daemon.store.path);
    daemon.repairs.asides().clone_from(&asides);
    let (database, sessions) = daemon.store.found.all();
    let plain = |what, at, text| Damage {
        what,
        session: None,
        file: None,
        at,
        text,
        hint: Some("`linger doctor --repair` saves what can be read".to_owned()),
        carried: 0,
        left: Vec::new(),
    };
    let set_aside = asides.into_iter().map(|aside| of_aside(aside, daemon.repairs.running().is_some()));
    let in_use =
        database.map(|met| plain(Damaged::InUse, met.at, format!("the database in use is damaged: {}", met.text)));
    let sessions = sessions.into_iter().map(|(id, met)| {
        let text = format!("session {id} is damaged: {}", met.text);
        Damage { session: Some(id), ..plain(Damaged::Session, met.at, text) }
    });
    set_aside.chain(in_use).chain(sessions).collect()
}

fn of_aside(aside: Aside, working: bool) -> Damage {
    let Aside { path, report } = aside;
    let (at, left, whole) = (report.at, report.left.len(), report.left.is_empty());
    let file: &PathBuf = &path;
    let what = match report.kind {
        Kind::Database => Damaged::Database,
        Kind::Newer => Damaged::Newer,
        Kind::Wal => Damaged::Wal,
    };
    let carried = match (report.carried, left) {
        (0, 0) => "nothing in it could be read".to_owned(),
        (carried, 0) => format!("all sessions that are in it were carried over ({carried})"),
        (carried, left) => format!("of its sessions {carried} were carried over whole, {left} not"),
    };
    let known = report.settled || report.carried > 0 || !whole;
    let (text, hint) = match (report.kind, known) {
        (Kind::Wal, _) => (format!("{}; the copy is {}", report.reason, file.display()), None),
        (Kind::Newer, false) => (
            format!("the database was set aside as {}: {}", file.display(), report.reason),
            Some(format!(
                "start the newer linger: it carries the sessions over by itself; this one knows schema {SCHEMA}"
            )),
        ),
        (_, false) if working => (
            format!(
                "the database was set aside as {}: {}; its sessions are being carried over",
                file.display(),
                report.reason
            ),
            Some("wait a little; `linger daemon status` says how far it is".to_owned()),
        ),
        _ => (
            format!("the database was set aside as {}: {}; {carried}", file.display(), report.reason),
            (!report.settled).then(|| "`linger doctor --repair` saves what can be read of the rest".to_owned()),
        ),
    };
    let left = report.left.into_iter();
    let left = left.map(|Left { session, events, text }| daemon::Left { session: SessionId(session), events, text });
    Damage { what, session: None, file: Some(path), at, text, hint, carried: report.carried, left: left.collect() }
}
