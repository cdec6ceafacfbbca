//! The life of a permission, and the mailbox that answers go through, as models: loom runs every interleaving of their steps.
//!
//! A step is what the real code does without anything else coming between; what state it makes is computed by the real
//! [`State::apply`] and [`recovery`]. Which step stands for what:
//!
//! | step | real code |
//! |---|---|
//! | [`Mailbox::send`], all under the lock of the map | `Sessions::send` |
//! | [`Mailbox::unload`], all under the same lock | `Sessions::unload`, `Wake::Idle` in `session/actor/mod.rs` |
//! | [`Life::step`] | one turn of the loop in `Actor::run`: a command or a turn's message, handled alone |
//! | [`Life::answer`]: check, fold, queue, wake | `Actor::answer` and `Actor::decide` in `session/actor/questions.rs` |
//! | [`Life::cancel`]: abort, close, queue | `Actor::stop` and `Actor::close_turn` in `session/actor/turns.rs` |
//! | [`Life::call`]: compared, started, run, finished | `Runner::run_one` in `session/calls.rs`, `Actor::permit` after a restart |
//! | [`Life::commit`] | a group of the writing thread, `store/write.rs`: in order, or not at all |
//! | [`Life::crash`], before the step of this number | `kill -9`: what is queued is gone, nothing more is written, run or answered |
//!
//! Deliberately absent: time, several calls at once, and what a client does when it is refused.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use linger_protocol::event::{
    AfterCrash, Event, EventBody, Outcome, PermissionRequested, PermissionResolved, ToolFinished, ToolStarted,
    TurnFinished,
};
use linger_protocol::id::{CallId, MessageId, PermissionId, PromptId, TurnId};
use linger_protocol::message::{AnswerEnd, ContentBlock, StopReason};
use linger_protocol::permission::Decision;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Mutex, MutexGuard};
use loom::thread;

use crate::config::AfterRestart;
use crate::session::recovery::{self, Cause};
use crate::session::state::State;

/// A fault that a test plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// An actor checks for an empty mailbox and unloads in two steps.
    UnloadInTwoSteps,
    /// Checking for an answer and deciding are two steps.
    CheckThenSet,
    /// The winner hears before its decision is on disk.
    WonBeforeCommit,
    /// The loser hears the winner's name before the decision is on disk.
    LostBeforeCommit,
    /// A call runs before its start is on disk.
    RunBeforeCommit,
    /// The call is not compared with the one that was shown.
    DigestIgnored,
    /// After a restart a call that had started runs again.
    StartedRunsAgain,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---- the mailbox ----

/// The map of loaded sessions, with one session.
struct Mailbox {
    plant: Plant,
    /// The queue of the loaded actor, if one is.
    map: Mutex<Option<Arc<Mutex<Vec<u32>>>>>,
    /// How many actors are loaded, and the commands that were handled.
    handled: Mutex<(u32, Vec<u32>)>,
}

impl Mailbox {
    fn send(mailbox: &Arc<Self>, command: u32) -> Option<thread::JoinHandle<()>> {
        let mut map = lock(&mailbox.map);
        if let Some(queue) = &*map {
            lock(queue).push(command);
            return None;
        }
        let queue = Arc::new(Mutex::new(vec![command]));
        *map = Some(queue.clone());
        let mailbox = mailbox.clone();
        Some(thread::spawn(move || mailbox.actor(&queue)))
    }

    fn actor(&self, queue: &Mutex<Vec<u32>>) {
        lock(&self.handled).0 += 1;
        loop {
            let command = {
                let mut queue = lock(queue);
                if queue.is_empty() { None } else { Some(queue.remove(0)) }
            };
            let mut handled = lock(&self.handled);
            assert_eq!(handled.0, 1, "two actors own one session");
            match command {
                Some(command) => handled.1.push(command),
                None => {
                    // The next actor may start as soon as this one is out of the map.
                    handled.0 -= 1;
                    drop(handled);
                    if self.unload(queue) {
                        return;
                    }
                    lock(&self.handled).0 += 1;
                }
            }
        }
    }

    fn unload(&self, queue: &Mutex<Vec<u32>>) -> bool {
        if self.plant == Plant::UnloadInTwoSteps {
            let idle = lock(queue).is_empty();
            if idle {
                *lock(&self.map) = None;
            }
            return idle;
        }
        let mut map = lock(&self.map);
        let idle = lock(queue).is_empty();
        if idle {
            *map = None;
        }
        idle
    }
}

fn mailbox(plant: Plant) {
    loom::model(move || {
        let mailbox = Arc::new(Mailbox { plant, map: Mutex::new(None), handled: Mutex::new((0, Vec::new())) });
        let other = mailbox.clone();
        let sender = thread::spawn(move || Mailbox::send(&other, 2));
        let actors = [Mailbox::send(&mailbox, 1), sender.join().expect("a sender ends")];
        actors.into_iter().flatten().for_each(|actor| actor.join().expect("an actor ends"));
        let mut handled = lock(&mailbox.handled).1.clone();
        handled.sort_unstable();
        assert_eq!(handled, [1, 2], "a command was never answered");
    });
}

#[test]
fn no_command_goes_to_an_actor_that_has_gone() {
    mailbox(Plant::Nothing);
}

#[test]
#[should_panic(expected = "a command was never answered")]
fn an_unload_that_looks_and_leaves_in_two_steps_is_noticed() {
    mailbox(Plant::UnloadInTwoSteps);
}

// ---- the permission ----

/// What the user is shown, and what runs, unless something went wrong in between.
const SHOWN: &str = "sha256:shown";

/// What is on disk, and what was done to the world.
struct Disk {
    alive: bool,
    log: Vec<Event>,
    /// Digests of what ran.
    runs: Vec<String>,
}

/// The state of the actor.
struct Session {
    state: State,
    /// Events that were folded and wait for the writing thread.
    queue: Vec<Event>,
    /// The turn's task was told to stop.
    stopped: bool,
}

/// The verdict on its way to the waiting call.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Waits,
    /// It may run if it has this digest.
    Yes(String),
    No,
    /// The turn ended; no answer can come.
    Gone,
}

/// The reply to a client.
#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Won(Decision),
    Already(Decision, String),
    Nothing,
}

/// Everything that threads share.
struct Life {
    plant: Plant,
    /// The digest of what would run.
    runs: &'static str,
    /// Counts steps. It is the only part that loom sees, so only steps interleave, in every order.
    clock: AtomicUsize,
    /// Before which step the daemon is killed.
    crash: usize,
    world: std::sync::Mutex<World>,
    /// The call's thread, once woken.
    woken: std::sync::Mutex<Option<thread::JoinHandle<()>>>,
}

struct World {
    actor: Session,
    verdict: Verdict,
    disk: Disk,
}

impl Session {
    /// `Actor::append`: numbers, folds and queues.
    fn append(&mut self, body: EventBody) {
        let turn = Some(TurnId::from("t1"));
        let event = Event { body, seq: Some(self.state.progress.head + 1), at: 7, turn };
        self.state.apply(&event);
        self.queue.push(event);
    }

    fn answered(&self) -> Option<(Decision, String)> {
        let given = self.state.turn.as_ref()?.permission(&CallId::from("c1"))?.answer.as_ref()?;
        let decision = given.answer.as_deref().and_then(Decision::answer).unwrap_or(Decision::Cancelled);
        Some((decision, given.by.clone()))
    }
}

impl Life {
    /// A turn whose one call has asked for permission, with the events so far.
    fn begun() -> Session {
        let mut session = Session { state: State::default(), queue: Vec::new(), stopped: false };
        let call_id = CallId::from("c1");
        let input = serde_json::json!({});
        let call = ContentBlock::ToolUse {
            call_id: call_id.clone(),
            name: "x".to_owned(),
            input: input.clone(),
            native: None,
        };
        session.append(EventBody::TurnStarted { prompt: PromptId::from("p1") });
        let message = MessageId::from("m1");
        session.append(EventBody::assistant_message(message, vec![call], None, None, AnswerEnd::Whole));
        session.append(EventBody::PermissionRequested(PermissionRequested {
            permission: PermissionId::from("q1"),
            call_id,
            tool: "x".to_owned(),
            action: "x".to_owned(),
            input,
            cwd: "/".into(),
            digest: SHOWN.to_owned(),
            rule: None,
            grant: "x".to_owned(),
            grants: Vec::new(),
            options: Vec::new(),
            locations: Vec::new(),
            changes: Vec::new(),
            about: None,
        }));
        session
    }

    /// The same, all of it on disk.
    fn asked(plant: Plant, runs: &'static str, crash: usize) -> Arc<Self> {
        // On a stack of its own: loom's are small.
        let mut session = std::thread::spawn(Self::begun).join().unwrap();
        let log = std::mem::take(&mut session.queue);
        Arc::new(Self {
            plant,
            runs,
            clock: AtomicUsize::new(0),
            crash,
            world: std::sync::Mutex::new(World {
                actor: session,
                verdict: Verdict::Waits,
                disk: Disk { alive: true, log, runs: Vec::new() },
            }),
            woken: std::sync::Mutex::new(None),
        })
    }

    /// One step: nothing comes between its beginning and its end.
    fn step<T>(&self, step: impl FnOnce(&mut World) -> T) -> T {
        let world = || self.world.lock().unwrap_or_else(PoisonError::into_inner);
        // After a crash the order of steps makes no difference.
        if world().disk.alive && self.clock.fetch_add(1, Ordering::AcqRel) == self.crash {
            world().disk.alive = false;
        }
        step(&mut world())
    }

    /// Everything that is queued goes to disk, in order; whether the daemon lives.
    fn commit(&self) -> bool {
        self.step(|World { actor, disk, .. }| {
            if disk.alive {
                disk.log.append(&mut actor.queue);
            }
            disk.alive
        })
    }

    fn resolve(actor: &mut Session, decision: Decision, by: &str) {
        let (permission, by) = (PermissionId::from("q1"), by.to_owned());
        actor.append(EventBody::PermissionResolved(PermissionResolved {
            permission,
            decision,
            by,
            process: None,
            reason: None,
            rules: Vec::new(),
        }));
    }

    /// A client answers.
    fn answer(life: &Arc<Self>, decision: Decision, by: &str) -> Reply {
        let look = |world: &World| {
            let over = world.actor.state.turn.is_none();
            if over { Err(None) } else { world.actor.answered().map_or(Ok(()), |given| Err(Some(given))) }
        };
        let decide = |world: &mut World| {
            Self::resolve(&mut world.actor, decision, by);
            // A oneshot is sent once.
            let waits = world.verdict == Verdict::Waits;
            if waits {
                world.verdict = if decision.allows() { Verdict::Yes(SHOWN.to_owned()) } else { Verdict::No };
            }
            waits
        };
        let decided = if life.plant == Plant::CheckThenSet {
            life.step(|world| look(world)).map(|()| life.step(decide))
        } else {
            life.step(|world| look(world).map(|()| decide(world)))
        };
        match decided {
            Ok(wakes) => {
                if wakes {
                    let call = life.clone();
                    let call = thread::spawn(move || call.call());
                    *life.woken.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
                }
                let told = life.plant == Plant::WonBeforeCommit || life.commit();
                if told { Reply::Won(decision) } else { Reply::Nothing }
            }
            Err(Some((decision, by))) => {
                let told = life.plant == Plant::LostBeforeCommit || life.commit();
                if told { Reply::Already(decision, by) } else { Reply::Nothing }
            }
            // The turn is over: what was decided is in the store, or on its way there.
            Err(None) if life.commit() => life.step(|world| {
                let resolved = resolutions(&world.disk.log).into_iter().next();
                resolved.map_or(Reply::Nothing, |(decision, by)| Reply::Already(decision, by))
            }),
            Err(None) => Reply::Nothing,
        }
    }

    fn cancel(&self) {
        let cancelled = self.step(|World { actor, verdict, .. }| {
            if actor.state.turn.is_none() {
                return false;
            }
            if *verdict == Verdict::Waits {
                *verdict = Verdict::Gone;
            }
            actor.stopped = true;
            for draft in recovery::close(&actor.state, &[], &HashMap::new(), "cancelled by the user") {
                actor.append(draft.body);
            }
            Self::finish(actor, StopReason::Cancelled);
            true
        });
        if cancelled {
            self.commit();
        }
    }

    fn finish(actor: &mut Session, stop_reason: StopReason) {
        let usage = linger_protocol::message::Usage::default();
        actor.append(EventBody::TurnFinished(TurnFinished {
            prompt: None,
            stop_reason,
            detail: None,
            hint: None,
            until_at: None,
            answer: None,
            usage,
            session_usage: None,
            context_tokens: None,
            context_window: None,
            steps: 1,
        }));
    }

    /// The call was woken, and runs if it may.
    fn call(&self) {
        let may = self.step(|world| match &world.verdict {
            Verdict::Yes(shown) => *shown == self.runs || self.plant == Plant::DigestIgnored,
            Verdict::No | Verdict::Waits | Verdict::Gone => false,
        });
        if may && !self.start() {
            return;
        }
        let finished = self.step(|World { actor, .. }| {
            if !actor.stopped {
                actor.append(finished(if may { Outcome::Ran } else { Outcome::Denied }));
                Self::finish(actor, StopReason::EndTurn);
            }
            !actor.stopped
        });
        if finished {
            self.commit();
        }
    }

    /// Writes the start down and runs; whether the turn goes on.
    fn start(&self) -> bool {
        let started = self.step(|World { actor, .. }| {
            if !actor.stopped {
                let (tool, action) = ("x".to_owned(), "x".to_owned());
                actor.append(EventBody::ToolStarted(ToolStarted {
                    call_id: CallId::from("c1"),
                    tool,
                    tool_kind: linger_protocol::event::ToolKind::Other,
                    action,
                    locations: Vec::new(),
                    input: None,
                    after_crash: AfterCrash::Unknown,
                    limit: None,
                }));
            }
            !actor.stopped
        });
        if !started || (self.plant != Plant::RunBeforeCommit && !self.commit()) {
            return false;
        }
        self.step(|World { disk, .. }| {
            if disk.alive {
                disk.runs.push(self.runs.to_owned());
            }
            disk.alive
        })
    }

    /// Waits for the call, if it was woken.
    fn join(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner).take();
        woken.into_iter().for_each(|call| call.join().expect("a call ends"));
    }

    /// The next life of the daemon: from what is on disk alone, with a client that allows whatever still waits.
    fn restart(life: &Arc<Self>) -> Reply {
        life.world.lock().unwrap_or_else(PoisonError::into_inner).disk.alive = true;
        let (call, answered) = life.step(|world| {
            let mut state = State::default();
            world.disk.log.iter().for_each(|event| drop(state.apply(event)));
            let plan = recovery::plan(&state, &[], Cause::Restart(Some(AfterRestart::Resume)));
            world.actor = Session { state, queue: Vec::new(), stopped: false };
            plan.drafts.into_iter().for_each(|draft| world.actor.append(draft.body));
            let answered = world.actor.answered();
            world.verdict = match &answered {
                Some((decision, _)) if decision.allows() => Verdict::Yes(SHOWN.to_owned()),
                Some(_) => Verdict::No,
                None => Verdict::Waits,
            };
            (world.actor.state.turn.as_ref().and_then(|turn| turn.calls.first()).cloned(), answered)
        });
        life.commit();
        let Some(call) = call else { return Reply::Nothing };
        if call.finished && life.plant != Plant::StartedRunsAgain {
            return Reply::Nothing;
        }
        if answered.is_none() {
            return Self::answer(life, Decision::AllowOnce, "later");
        }
        life.call();
        Reply::Nothing
    }
}

fn finished(outcome: Outcome) -> EventBody {
    EventBody::ToolFinished(ToolFinished {
        call_id: CallId::from("c1"),
        is_error: false,
        outcome,
        content: Vec::new(),
        output: Vec::new(),
        file: None,
        blob: None,
        diff: None,
        changes: Vec::new(),
        locations: Vec::new(),
        exit: None,
        model_cost: None,
        ms: 0,
    })
}

fn resolutions(log: &[Event]) -> Vec<(Decision, String)> {
    let resolved = log.iter().filter_map(|event| match &event.body {
        EventBody::PermissionResolved(PermissionResolved { decision, by, .. }) => Some((*decision, by.clone())),
        _ => None,
    });
    resolved.collect()
}

/// What must hold at the end, whatever came between.
fn verify(life: &Life, told: &[(&str, Reply)], disturbed: bool) {
    let disk = &life.world.lock().unwrap_or_else(PoisonError::into_inner).disk;
    let resolved = resolutions(&disk.log);
    assert_eq!(resolved.len(), 1, "a permission has one decision: {resolved:?}");
    let (decision, by) = &resolved[0];
    let won: Vec<&str> = told.iter().filter(|(_, told)| matches!(told, Reply::Won(_))).map(|(name, _)| *name).collect();
    assert!(won.len() <= 1, "two clients won: {won:?}");
    for (name, told) in told {
        match told {
            Reply::Won(won) => assert!((won, *name) == (decision, by), "{name} was told that it won, {by} did"),
            Reply::Already(was, who) => assert!((was, who) == (decision, by), "{name} was told of {who}, {by} won"),
            Reply::Nothing => {}
        }
    }
    assert!(disk.runs.len() <= 1, "a call ran twice");
    assert!(disk.runs.iter().all(|ran| ran == SHOWN), "what ran is not what was shown");
    assert!(disk.runs.is_empty() || decision.allows(), "a call ran that was not allowed");
    let started = disk.log.iter().filter(|event| matches!(event.body, EventBody::ToolStarted(_))).count();
    assert!(started <= 1 && started >= disk.runs.len(), "a call ran whose start is not on disk");
    if !disturbed && life.runs == SHOWN {
        assert_eq!(disk.runs.len(), usize::from(decision.allows()), "what was allowed ran");
        assert!(told.iter().all(|(_, told)| *told != Reply::Nothing), "everybody was told: {told:?}");
    }
    let seqs: Vec<u64> = disk.log.iter().filter_map(|event| event.seq).collect();
    assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
}

/// Steps of a run in which nothing is cut short, and some more.
const STEPS: usize = 12;

/// No step is the one before which the daemon is killed.
const NEVER: usize = usize::MAX;

/// Two clients answer in every order; with `crash` the daemon is killed before that step, and started again.
fn answers(plant: Plant, runs: &'static str, crash: usize) {
    loom::model(move || {
        let life = Life::asked(plant, runs, crash);
        let other = life.clone();
        let other = thread::spawn(move || Life::answer(&other, Decision::RejectOnce, "two"));
        let one = Life::answer(&life, Decision::AllowOnce, "one");
        let mut told = vec![("one", one), ("two", other.join().expect("a client ends"))];
        life.join();
        if crash != NEVER {
            told.push(("later", Life::restart(&life)));
            life.join();
        }
        verify(&life, &told, crash != NEVER);
    });
}

/// As [`answers`], with the kill before each step.
fn killed(plant: Plant) {
    (0..STEPS).for_each(|crash| answers(plant, SHOWN, crash));
}

#[test]
fn an_answer_and_a_cancel_at_once_are_one_decision() {
    loom::model(|| {
        let life = Life::asked(Plant::Nothing, SHOWN, NEVER);
        let other = life.clone();
        let other = thread::spawn(move || other.cancel());
        let told = Life::answer(&life, Decision::AllowOnce, "one");
        other.join().expect("a cancel ends");
        life.join();
        verify(&life, &[("one", told)], true);
    });
}

#[test]
fn one_of_two_answers_wins_and_what_was_allowed_runs_once() {
    answers(Plant::Nothing, SHOWN, NEVER);
}

#[test]
fn a_crash_at_any_step_takes_back_nothing_that_anybody_was_told_and_repeats_nothing() {
    killed(Plant::Nothing);
}

#[test]
fn what_is_not_what_was_shown_does_not_run() {
    answers(Plant::Nothing, "sha256:other", NEVER);
}

#[test]
#[should_panic(expected = "a permission has one decision")]
fn a_check_and_a_decision_in_two_steps_are_noticed() {
    answers(Plant::CheckThenSet, SHOWN, NEVER);
}

#[test]
#[should_panic(expected = "two clients won")]
fn a_winner_that_is_told_too_early_is_noticed() {
    killed(Plant::WonBeforeCommit);
}

#[test]
#[should_panic(expected = "was told of")]
fn a_loser_that_is_told_too_early_is_noticed() {
    killed(Plant::LostBeforeCommit);
}

#[test]
#[should_panic(expected = "a call ran")]
fn a_call_that_runs_before_its_start_is_on_disk_is_noticed() {
    killed(Plant::RunBeforeCommit);
}

#[test]
#[should_panic(expected = "what ran is not what was shown")]
fn a_digest_that_nobody_compares_is_noticed() {
    answers(Plant::DigestIgnored, "sha256:other", NEVER);
}

#[test]
#[should_panic(expected = "a call ran")]
fn a_call_that_runs_again_after_a_restart_is_noticed() {
    killed(Plant::StartedRunsAgain);
}
