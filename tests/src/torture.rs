//! Torture: linger's claim that it loses nothing, as numbers that anyone can repeat.
//!
//! Each part does something many times and gives a [`Report`]; `cargo run --release -p linger-tests --bin torture` runs them and
//! prints a table. Real programs, real processes, real SQLite; every run ends in the one [`crate::check::check`].

mod kills;
mod persona;
mod script;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use tokio::task::LocalSet;

use crate::report::Report;

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
    let (mut events, mut requests, mut effects) = (0, 0, 0);
    at_once(
        jobs,
        lives,
        async |(seed, kills)| kills::live(seed, kills).await,
        |(seed, _), life| {
            report.count += life.kills;
            (events, requests, effects) = (events + life.events, requests + life.requests, effects + life.effects);
            life.violations
                .iter()
                .for_each(|what| report.violation(format!("--kills {} --seed {seed}: {what}", kills::KILLS)));
        },
    );
    report.detail = format!("{events} events, {requests} requests to the model, {effects} side effects");
    report.finish(began)
}

/// Runs lives, some at once, each on a thread and a runtime of its own; one that panics is a violation.
fn at_once<P: Clone + Send>(
    jobs: usize,
    plans: impl Iterator<Item = P> + Send,
    live: impl AsyncFn(P) -> Life + Sync,
    mut ended: impl FnMut(P, Life),
) {
    let plans = Mutex::new(plans);
    let (sender, lives) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, plans, live) = (sender.clone(), &plans, &live);
            scope.spawn(move || {
                while let Some(plan) = { plans.lock().unwrap_or_else(PoisonError::into_inner).next() } {
                    let life = catch_unwind(AssertUnwindSafe(|| alone(live(plan.clone()))));
                    let life = life.unwrap_or_else(|panic| Life {
                        violations: vec![format!("run: {}", panic_text(&*panic))],
                        ..Life::default()
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
