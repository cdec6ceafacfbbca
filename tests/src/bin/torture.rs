//! `torture`: runs what is asked for, and prints a table; exit code 1 if anything did not hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test by another name.

use linger_tests::report::Report;
use linger_tests::torture;

const USAGE: &str = "usage: torture [--kills N] [--seed S] [--jobs J]

  --kills N   kill daemon, keeper and tools N times at random moments
  --seed S    where plans come from; default 1
  --jobs J    lives at once; default 2";

fn main() {
    let (mut kills, mut seed, mut jobs) = (0, 1, 2);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_else(|| usage());
        match argument.as_str() {
            "--kills" => kills = number(),
            "--seed" => seed = number(),
            "--jobs" => jobs = number() as usize,
            _ => usage(),
        }
    }
    let mut reports: Vec<Report> = Vec::new();
    if kills > 0 {
        reports.push(torture::kills(kills, seed, jobs));
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
