//! The torture in the size that every change pays for: a fixed list of parts, each with its numbers.
//!
//! `torture --ordinary` runs them. What the same checks do by the thousand is the script `tests/nightly`.

use std::path::Path;

use memchr::memmem;

use crate::harness::{Daemon, Setup, faulty, programs};
use crate::model::ModelServer;
use crate::power::{Power, power};
use crate::races;
use crate::report::Report;

use super::{alone, bugs, kills, outages, points, store_faults};

/// Random kills.
const KILLS: u64 = 200;

/// Outages of the provider.
const OUTAGES: u64 = 24;

/// Races of each kind.
const RACES: u64 = 10_000;

/// Races for questions: each waits for a step of its turn, so they take longer than those for permissions.
const QUESTIONS: u64 = 300;

/// Power cuts.
const CUTS: u64 = 200;

/// Power cuts of a disk that ignores syncs; few of them hit nothing.
const LYING_CUTS: u64 = 12;

/// Store operations of one life, at least: with fewer the life no longer does what it should.
const OPERATIONS: u64 = 100;

/// Lives at once where they wait more than they work.
const JOBS: usize = 4;

/// Where plans come from.
const SEED: u64 = 1;

/// One part of the ordinary torture.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The name on the command line.
    pub name: &'static str,
    /// Runs it.
    pub run: fn() -> Report,
}

/// All parts, in the order in which they run.
pub const PARTS: [Part; 11] = [
    Part { name: "fault-switches", run: fault_switches },
    Part { name: "kills", run: || kills(KILLS, SEED, 2) },
    Part { name: "outages", run: || outages(OUTAGES, SEED, JOBS) },
    Part { name: "crash-points", run: || points(1, JOBS) },
    Part { name: "store-faults", run: every_store_operation },
    Part { name: "planted-bugs", run: every_bug },
    Part { name: "permission-races", run: || on_two_threads(races::permissions(RACES, SEED)) },
    Part { name: "question-races", run: || on_two_threads(races::questions(QUESTIONS, SEED)) },
    Part { name: "reader-races", run: || on_two_threads(races::attachments(RACES, SEED)) },
    Part { name: "power-cuts", run: || power(CUTS, SEED) },
    Part { name: "lying-disk", run: lying_disk },
];

/// Builds all programs under test, so that nothing is built while something is timed.
pub fn build() {
    programs();
    faulty();
}

fn every_store_operation() -> Report {
    let mut report = store_faults(false, JOBS);
    if report.count <= OPERATIONS {
        report.violation(format!("a life has more operations than {}", report.count));
    }
    report
}

fn every_bug() -> Report {
    let mut report = bugs();
    let all = bugs::ALL.len() as u64;
    if report.count != all {
        report.violation(format!("{} bugs were caught, and there are {all}", report.count));
    }
    report
}

/// A disk that ignores syncs loses what was acknowledged; the check must say so.
fn lying_disk() -> Report {
    let cuts = Power { cuts: LYING_CUTS, seed: SEED, without_syncs: true }.run();
    let lost = cuts.violations.iter().filter(|what| what.contains("which was acknowledged")).count();
    let mut report = Report { violations: Vec::new(), violated: 0, ..cuts };
    if lost == 0 {
        report.violation("a disk that ignores syncs was not noticed");
    }
    report
}

/// An ordinary build has no faults in it, and a build with faults refuses one that it does not know.
fn fault_switches() -> Report {
    let began = std::time::Instant::now();
    let mut report = Report::new("fault switches", 0);
    let words = ["LINGER_CRASH", "LINGER_POINTS", "LINGER_STORE_FAULT", "LINGER_BUG", "no such fault"];
    let found = |program: &Path| {
        let bytes = std::fs::read(program).expect("a program that was built");
        let has = |word: &&&str| memmem::find(&bytes, word.as_bytes()).is_some();
        words.iter().filter(has).copied().collect::<Vec<_>>()
    };
    for program in [&programs().daemon, &programs().client] {
        let found = found(program);
        report.count += 1;
        if !found.is_empty() {
            report.violation(format!("{} has {found:?}", program.display()));
        }
    }
    // The same search finds them where they are.
    for (program, expected) in [(&faulty().daemon, &words[..]), (&faulty().client, &["LINGER_BUG"])] {
        let found = found(program);
        report.count += 1;
        if !expected.iter().all(|word| found.contains(word)) {
            report.violation(format!("{} has only {found:?}", program.display()));
        }
    }
    alone(unknown_faults(&mut report));
    report.finish(began)
}

/// A fault that is not understood must not look like one that was survived.
async fn unknown_faults(report: &mut Report) {
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup { faulty: true, ..Setup::default() });
    for (name, value) in [
        ("LINGER_CRASH", "no.such.point:1"),
        ("LINGER_CRASH", "daemon.ready"),
        ("LINGER_STORE_FAULT", "1:odd:1"),
        ("LINGER_BUG", "I99"),
    ] {
        report.count += 1;
        if daemon.try_launch(&[(name.to_owned(), value.to_owned())]).await {
            report.violation(format!("lingerd starts with {name}={value}"));
        }
        let code = daemon.ended();
        if code != Some(2) {
            report.violation(format!("with {name}={value} lingerd ended with {code:?}"));
        }
    }
}

/// Runs a future on a runtime with two threads.
fn on_two_threads(future: impl Future<Output = Report>) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
