//! What a shell's prompt and a status bar wait for, `linger status` and a completion, beside `true`; and what a person waits for
//! who opens the first `linger` of the day: the daemon's start, a session, and the prompt.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use linger_tests::floors::{median, ms};
use linger_tests::harness::{Daemon, Pty};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use super::{Figure, figures};

/// Sessions that there are: a few weeks' work.
const SESSIONS: usize = 200;

/// Runs whose median is taken.
const RUNS: usize = 50;

/// What a person does not notice between Enter and the next prompt, in milliseconds.
const UNNOTICED: f64 = 10.0;

/// Cold starts whose median is taken.
const COLD: usize = 7;

/// What a cold start may take to its prompt, in milliseconds: no longer than a shell with a few lines of configuration.
const COLD_START: f64 = 60.0;

/// From the start of `linger`, where no daemon runs, to its prompt.
pub(super) async fn cold_prompt() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let (mut took, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..COLD {
        let daemon = Daemon::prepare(&model, figures::setup());
        let start = Instant::now();
        let mut terminal = daemon.pty(&[]);
        took.push(until_prompt(&terminal, start).await);
        terminal.leaves().await;
        daemon.cli(&["daemon", "stop"]).run().await.exits(0);
        let start = Instant::now();
        let echo = Pty::open(Path::new("/bin/echo"), &daemon.env(true), &daemon.workspace(), &[">"]);
        floors.push(until_prompt(&echo, start).await);
    }
    vec![
        Figure::new("start to prompt, cold: daemon and session too (median)", median(took), "ms", COLD_START)
            .over(median(floors)),
    ]
}

async fn until_prompt(terminal: &Pty, start: Instant) -> f64 {
    terminal.until_rows("the prompt", |rows| rows.last().is_some_and(|row| row == ">")).await;
    ms(start)
}

pub(super) async fn prompt() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    model.check_later();
    let daemon = Daemon::start_with(&model, figures::setup()).await;
    let client = daemon.client().await;
    for _ in 0..SESSIONS {
        client.call("session/create", json!({ "cwd": daemon.workspace() })).await;
    }
    let floor = median((0..RUNS).map(|_| of_true()).collect());
    let mut rows = Vec::new();
    let format = "{running} {waiting} {queued} {cost} {model}";
    for (name, args) in [
        ("`linger status --format` with 200 sessions (median)", ["status", "--format", format].as_slice()),
        ("names for a shell's completion (median)", ["complete", "--line", "linger attach "].as_slice()),
    ] {
        let mut took = Vec::new();
        for _ in 0..=RUNS {
            let start = Instant::now();
            daemon.cli(args).run().await.exits(0);
            took.push(ms(start));
        }
        took.remove(0);
        rows.push(Figure::new(name, median(took), "ms", UNNOTICED).over(floor));
    }
    rows
}

/// How long a program that does nothing takes, started as the others are.
#[allow(clippy::disallowed_methods)] // A bench owns the processes that it starts.
fn of_true() -> f64 {
    let start = Instant::now();
    assert!(Command::new("true").output().expect("true can be run").status.success());
    ms(start)
}
