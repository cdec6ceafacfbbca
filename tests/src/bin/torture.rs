//! `torture`: runs what is asked for, and prints a table; exit code 1 if anything did not hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test by another name.

use std::panic::catch_unwind;

use linger_tests::report::Report;
use linger_tests::torture::ordinary::{self, PARTS, Part};
use linger_tests::{power, torture};

const USAGE: &str = "usage: torture --ordinary [--list] [PART...]
       torture --build
       torture [--kills N] [--outages N] [--seed S] [--points [--passes N]] [--store-faults] [--bugs] [--races N] [--power N] [--jobs J]

  --ordinary       all parts at the size that every change pays for, or only these; a line each
  --list           name the parts
  --build          build the programs that are tortured, and do nothing else
  --kills N        kill daemon, keeper and tools N times at random moments
  --outages N      take the provider away N times at random moments
  --seed S         where plans come from; default 1
  --points         kill at every crash point
  --passes N       at its first N passes; default 3
  --store-faults   fail the n-th store operation, for every n, full, with an I/O error and busy
  --bugs           plant each bug, and see that it is caught
  --races N        N races for permissions, a tenth as many for questions, and N of readers that come and go
  --power N        cut the power N times
  --at WHERE       with --points NAME:N, with --store-faults N:KIND:K: only this one
  --jobs J         lives at once; default 2";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let clean = match arguments.first().map(String::as_str) {
        Some("--ordinary") => ordinary(&arguments[1..]),
        Some("--build") => {
            ordinary::build();
            true
        }
        _ => table(&long(arguments.into_iter())),
    };
    if !clean {
        std::process::exit(1);
    }
}

/// Runs parts of the ordinary torture; whether all held. It speaks as libtest does (`--list`, `--exact`, a line
/// `test NAME ... ok`), so that what reads the output of tests can read this as well.
fn ordinary(arguments: &[String]) -> bool {
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let names: Vec<&String> = arguments.iter().filter(|name| !["--list", "--exact"].contains(&name.as_str())).collect();
    if names.iter().any(|name| PARTS.iter().all(|part| part.name != **name)) {
        usage();
    }
    let parts = PARTS.iter().filter(|part| names.is_empty() || names.iter().any(|name| *name == part.name));
    if flag("--list") {
        parts.for_each(|part| println!("{}: test", part.name));
        return true;
    }
    ordinary::build();
    let failed = parts.filter_map(|part| failure(part).map(|text| (part.name, text))).collect::<Vec<_>>();
    if !failed.is_empty() {
        println!("\nfailures:\n");
        failed.iter().for_each(|(name, text)| println!("---- {name} stdout ----\n{text}\n"));
        println!("failures:");
        failed.iter().for_each(|(name, _)| println!("    {name}"));
    }
    failed.is_empty()
}

/// Runs a part, prints its line, and gives what did not hold, if anything.
fn failure(part: &Part) -> Option<String> {
    let report = catch_unwind(part.run).unwrap_or_else(|_| {
        let mut report = Report::new(part.name, 0);
        report.violation("it panicked: see above");
        report
    });
    let clean = report.violated == 0;
    println!("{report}\ntest {} ... {}", part.name, if clean { "ok" } else { "FAILED" });
    (!clean).then(|| format!("{report}\n{}", report.violations.join("\n")))
}

/// Runs what the arguments ask for.
fn long(mut arguments: impl Iterator<Item = String>) -> Vec<Report> {
    let (mut kills, mut outages, mut seed, mut jobs, mut passes, mut races, mut cuts) = (0, 0, 1, 2, 3, 0, 0);
    let (mut points, mut faults, mut bugs, mut at) = (false, false, false, None::<String>);
    while let Some(argument) = arguments.next() {
        if argument == "--at" {
            at = arguments.next();
            continue;
        }
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_else(|| usage());
        match argument.as_str() {
            "--kills" => kills = number(),
            "--outages" => outages = number(),
            "--seed" => seed = number(),
            "--jobs" => jobs = number() as usize,
            "--passes" => passes = number(),
            "--races" => races = number(),
            "--power" => cuts = number(),
            "--points" => points = true,
            "--store-faults" => faults = true,
            "--bugs" => bugs = true,
            _ => usage(),
        }
    }
    let mut reports: Vec<Report> = Vec::new();
    if kills > 0 {
        reports.push(torture::kills(kills, seed, jobs));
    }
    if outages > 0 {
        reports.push(torture::outages(outages, seed, jobs));
    }
    let at: Option<Vec<&str>> = at.as_deref().map(|at| at.split(':').collect());
    let read = |text: &str| text.parse::<u64>().unwrap_or_else(|_| usage());
    match at.as_deref() {
        None if points => reports.push(torture::points(passes, jobs)),
        Some([name, n]) if points => reports.push(torture::point(name, read(n))),
        Some(_) if points => usage(),
        _ => {}
    }
    match at.as_deref() {
        None if faults => reports.push(torture::store_faults(true, jobs)),
        Some([n, kind, times]) if faults => reports.push(torture::store_fault(read(n), kind, read(times))),
        Some(_) if faults => usage(),
        _ => {}
    }
    if bugs {
        reports.push(torture::bugs());
    }
    if races > 0 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        reports.push(runtime.block_on(linger_tests::races::permissions(races, seed)));
        reports.push(runtime.block_on(linger_tests::races::questions(races / 10, seed)));
        reports.push(runtime.block_on(linger_tests::races::attachments(races, seed)));
    }
    if cuts > 0 {
        reports.push(power::power(cuts, seed));
    }
    if reports.is_empty() {
        usage();
    }
    reports
}

/// Prints the violations and a table; whether all held.
fn table(reports: &[Report]) -> bool {
    for violation in reports.iter().flat_map(|report| &report.violations) {
        println!("{violation}\n");
    }
    println!("| what | how many | violations | seed | wall time |\n|---|---|---|---|---|");
    for Report { what, count, violated, seed, took, detail, .. } in reports {
        println!("| {what} ({detail}) | {count} | {violated} | {seed} | {:.0} s |", took.as_secs_f64());
    }
    reports.iter().all(|report| report.violated == 0)
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2)
}
