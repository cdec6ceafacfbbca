//! Torture: linger's claim that it loses nothing, as numbers that anyone can repeat.
//!
//! Each part does something many times and gives a [`Report`]; `cargo run --release -p linger-tests --bin torture` runs them and
//! prints a table. Real programs, real processes, real SQLite; every run ends in the one [`crate::check::check`].

mod bugs;
mod delegation;
mod faults;
mod kills;
pub mod ordinary;
mod outages;
mod persona;
mod points;
mod questions;
mod script;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use tokio::task::LocalSet;

use crate::report::Report;

/// After how many kills a long run says that it lives.
const PROGRESS: u64 = 500;

/// In so many kills, an MCP server has asked something.
const ELICITS: u64 = 100;

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// What was wrong.
    pub(crate) violations: Vec<String>,
    /// Processes that were killed.
    pub(crate) kills: u64,
    /// Events in the database at the end.
    pub(crate) events: u64,
    /// Requests that the model got.
    pub(crate) requests: u64,
    /// Lines in the side-effect file.
    pub(crate) effects: u64,
    /// Questions that are no permissions.
    pub(crate) questions: u64,
    /// Questions of an MCP server.
    pub(crate) elicited: u64,
    /// Sessions that a call of `delegate` made.
    pub(crate) children: u64,
}

impl From<Life> for (Life, bool) {
    /// A life that panicked: what was asked for came, or nobody would know more.
    fn from(life: Life) -> Self {
        (life, true)
    }
}

/// Kills what runs `count` times at random moments, in lives whose plans come from `seed`, `jobs` of them at once.
pub fn kills(count: u64, seed: u64, jobs: usize) -> Report {
    let lives = (0..count.div_ceil(kills::KILLS)).map(|n| {
        let kills = kills::KILLS.min(count - n * kills::KILLS);
        let seed = seed + n;
        (seed, kills)
    });
    let began = Instant::now();
    let mut report = Report::new("random kills", seed);
    let (mut events, mut requests, mut effects, mut questions, mut elicited, mut children) = (0, 0, 0, 0, 0, 0);
    at_once(
        jobs,
        lives,
        async |(seed, kills)| kills::live(seed, kills).await,
        |(seed, _), life| {
            let before = report.count / PROGRESS;
            report.count += life.kills;
            if report.count / PROGRESS > before {
                let took = began.elapsed().as_secs();
                eprintln!("{} kills, {} violations, {took} s", report.count, report.violated);
            }
            (events, requests, effects) = (events + life.events, requests + life.requests, effects + life.effects);
            (questions, children) = (questions + life.questions, children + life.children);
            elicited += life.elicited;
            life.violations
                .iter()
                .for_each(|what| report.violation(format!("--kills {} --seed {seed}: {what}", kills::KILLS)));
        },
    );
    report.detail = format!(
        "{events} events, {requests} requests to the model, {effects} side effects, {questions} questions, {elicited} of an MCP server, {children} children"
    );
    if count >= ELICITS && elicited == 0 {
        report.violation("no MCP server has asked anything");
    }
    report.finish(began)
}

/// Takes the provider away `count` times at random moments, in lives whose plans come from `seed`, `jobs` of them at once.
pub fn outages(count: u64, seed: u64, jobs: usize) -> Report {
    let began = Instant::now();
    let mut report = Report::new("outages of the provider", seed);
    let lives =
        (0..count.div_ceil(outages::OUTAGES)).map(|n| (seed + n, outages::OUTAGES.min(count - n * outages::OUTAGES)));
    let (mut requests, mut effects) = (0, 0);
    at_once(
        jobs,
        lives,
        async |(seed, outages)| outages::live(seed, outages).await,
        |(seed, outages), life| {
            report.count += life.kills;
            (requests, effects) = (requests + life.requests, effects + life.effects);
            let said = |what: &String| format!("--outages {outages} --seed {seed}: {what}");
            life.violations.iter().for_each(|what| report.violation(said(what)));
        },
    );
    report.detail = format!("{requests} requests to the model, {effects} side effects");
    report.finish(began)
}

/// Kills at every crash point, at its first `passes` passes; first without a kill, to see that all points are passed.
pub fn points(passes: u64, jobs: usize) -> Report {
    let began = Instant::now();
    let mut report = Report::new("crash points", 0);
    // Built before anything is timed.
    crate::harness::faulty();
    let (calm, passed, _) = alone(points::live(None));
    calm.violations.iter().for_each(|what| report.violation(format!("without a kill: {what}")));
    let missing: Vec<_> = lingerd::fault::points().into_iter().filter(|name| !passed.contains(name)).collect();
    if !missing.is_empty() {
        report.violation(format!("points that no life passes: {}", missing.join(", ")));
    }
    let plans = (1..=passes).flat_map(|n| lingerd::fault::points().into_iter().map(move |name| (name, n)));
    let (mut hit, mut rare) = (BTreeSet::new(), 0);
    at_once(
        jobs,
        plans,
        async |at| {
            let (life, _, came) = points::live(Some(at)).await;
            (life, came)
        },
        |(name, n), (life, came)| {
            report.count += life.kills;
            life.violations.iter().for_each(|what| report.violation(format!("--points --at {name}:{n}: {what}")));
            if came {
                hit.insert(name);
            } else if n > 1 {
                // Some points are passed once in a life of the daemon.
                rare += 1;
            } else {
                report.violation(format!("--points --at {name}:{n}: the kill never came"));
            }
        },
    );
    report.detail = format!("{} points; {rare} times a process passed one less often than asked", hit.len());
    report.finish(began)
}

/// Kills at one point.
pub fn point(name: &str, n: u64) -> Report {
    let began = Instant::now();
    let mut report = Report::new("one crash point", 0);
    let (life, _, came) = alone(points::live(Some((name.to_owned(), n))));
    report.count = life.kills;
    life.violations.iter().for_each(|what| report.violation(what));
    if !came {
        report.violation("the kill never came");
    }
    report.finish(began)
}

/// Fails the n-th store operation for every n, in each of `kinds` ways; with one way, in turn.
pub fn store_faults(every_kind: bool, jobs: usize) -> Report {
    let began = Instant::now();
    let mut report = Report::new("store faults", 0);
    crate::harness::faulty();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let last = std::sync::atomic::AtomicU64::new(0);
    let kinds = faults::KINDS;
    let plans = (1u64..)
        .flat_map(move |n| {
            let one = kinds[(n % kinds.len() as u64) as usize];
            let these = if every_kind { kinds.to_vec() } else { vec![one] };
            these.into_iter().map(move |(kind, times)| (n, kind, times))
        })
        .take_while(|_| !ended.load(std::sync::atomic::Ordering::Relaxed));
    at_once(
        jobs,
        plans,
        async |fault| {
            let (life, came) = faults::live(fault).await;
            if !came {
                ended.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            (life, came)
        },
        |(n, kind, times), (life, came)| {
            report.count += u64::from(came);
            if came {
                last.fetch_max(n, std::sync::atomic::Ordering::Relaxed);
            }
            life.violations
                .iter()
                .for_each(|what| report.violation(format!("--store-faults --at {n}:{kind}:{times}: {what}")));
        },
    );
    report.detail = format!("operations 1 to {} of a life", last.into_inner());
    report.finish(began)
}

/// Plants each bug in turn: the check must find the invariant broken, and nothing where the bug is not there.
/// With what found which: the detail is a line a bug.
pub fn bugs() -> Report {
    let began = Instant::now();
    let mut report = Report::new("planted bugs", 0);
    crate::harness::faulty();
    let plans = bugs::ALL.into_iter().flat_map(|bug| [(bug, true), (bug, false)]);
    let mut caught = Vec::new();
    at_once(
        2,
        plans,
        async |(bug, planted)| {
            let found = bugs::play(bug, planted).await;
            Life { violations: found.iter().map(ToString::to_string).collect(), ..Life::default() }
        },
        |(bug, planted), life| {
            let finds = life.violations.iter().find(|what| what.starts_with(&format!("{}: ", bugs::invariant_of(bug))));
            match (planted, finds) {
                (true, Some(what)) => {
                    report.count += 1;
                    caught.push(format!("{bug} by: {}", what.chars().take(160).collect::<String>()));
                }
                (true, None) => {
                    report.violation(format!("the bug {bug} is not caught; found was {:?}", life.violations));
                }
                (false, _) => life
                    .violations
                    .iter()
                    .for_each(|what| report.violation(format!("the scene of {bug} without its bug: {what}"))),
            }
        },
    );
    caught.sort();
    report.detail = "each caught, and nothing found without it".to_owned();
    caught.iter().for_each(|line| eprintln!("{line}"));
    report.finish(began)
}

/// Fails one store operation.
pub fn store_fault(n: u64, kind: &str, times: u64) -> Report {
    let began = Instant::now();
    let mut report = Report::new("one store fault", 0);
    let Some((kind, _)) = faults::KINDS.into_iter().find(|(known, _)| *known == kind) else {
        report.violation(format!("no such kind: {kind}"));
        return report;
    };
    let (life, came) = alone(faults::live((n, kind, times)));
    report.count = u64::from(came);
    life.violations.iter().for_each(|what| report.violation(what));
    report.finish(began)
}

/// Runs lives, some at once, each on a thread and a runtime of its own; one that panics is a violation.
fn at_once<P: Clone + Send, L: From<Life> + Send>(
    jobs: usize,
    plans: impl Iterator<Item = P> + Send,
    live: impl AsyncFn(P) -> L + Sync,
    mut ended: impl FnMut(P, L),
) {
    let plans = Mutex::new(plans);
    let (sender, lives) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, plans, live) = (sender.clone(), &plans, &live);
            scope.spawn(move || {
                while let Some(plan) = { plans.lock().unwrap_or_else(PoisonError::into_inner).next() } {
                    let life = catch_unwind(AssertUnwindSafe(|| alone(live(plan.clone()))));
                    let life = life.unwrap_or_else(|panic| {
                        let violations = vec![format!("run: {}", panic_text(&*panic))];
                        Life { violations, ..Life::default() }.into()
                    });
                    // The other end lives as long as this scope.
                    let _heard = sender.send((plan, life));
                }
            });
        }
        drop(sender);
        lives.iter().for_each(|(plan, life)| ended(plan, life));
    });
}

/// Runs a future on a runtime of its own.
fn alone<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, future)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
