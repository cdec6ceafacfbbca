//! `torture`: runs what is asked for, and prints a table; exit code 1 if anything did not hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test by another name.

use linger_tests::report::Report;
use linger_tests::{power, torture};

const USAGE: &str = "usage: torture [--kills N] [--seed S] [--points [--passes N]] [--store-faults] [--bugs] [--races N] [--power N] [--jobs J]

  --kills N        kill daemon, keeper and tools N times at random moments
  --seed S         where plans come from; default 1
  --points         kill at every crash point
  --passes N       at its first N passes; default 3
  --store-faults   fail the n-th store operation, for every n, full, with an I/O error and busy
  --bugs           plant each bug, and see that it is caught
  --races N        N races for permissions, and as many of readers that come and go
  --power N        cut the power N times
  --at WHERE       with --points NAME:N, with --store-faults N:KIND:K: only this one
  --jobs J         lives at once; default 2";

fn main() {
    let (mut kills, mut seed, mut jobs, mut passes, mut races, mut cuts) = (0, 1, 2, 3, 0, 0);
    let (mut points, mut faults, mut bugs, mut at) = (false, false, false, None::<String>);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--at" {
            at = arguments.next();
            continue;
        }
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_else(|| usage());
        match argument.as_str() {
            "--kills" => kills = number(),
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
        reports.push(runtime.block_on(linger_tests::races::attachments(races, seed)));
    }
    if cuts > 0 {
        reports.push(power::power(cuts, seed));
    }
    if reports.is_empty() {
        usage();
    }
    for violation in reports.iter().flat_map(|report| &report.violations) {
        println!("{violation}\n");
    }
    println!("| what | how many | violations | seed | wall time |\n|---|---|---|---|---|");
    for Report { what, count, violated, seed, took, detail, .. } in &reports {
        println!("| {what} ({detail}) | {count} | {violated} | {seed} | {:.0} s |", took.as_secs_f64());
    }
    if reports.iter().any(|report| report.violated > 0) {
        std::process::exit(1);
    }
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2)
}
