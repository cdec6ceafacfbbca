//! Crash points: one life that passes all of them, killed at one.
//!
//! The daemon with faults kills itself where it is told to, once over all its lives; the keeper brings up the next one, and
//! where the keeper itself was killed, this does, as a client would. That the kill came is seen by the file that it leaves, and
//! by the process that is another.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::kills::look;
use super::persona::{Persona, Wrong};
use super::{Life, script};
use crate::check::{Transcript, read};
use crate::harness::{Daemon, Setup, process};
use crate::model::ModelServer;

/// How often the watchman looks whether a keeper is there.
const LOOK: Duration = Duration::from_millis(20);

/// Where a life is killed: the point, and at which pass of it.
pub(super) type Where = (String, u64);

/// One life, killed at `at` if given; the points that were passed, and whether the kill came.
pub(super) async fn live(at: Option<Where>) -> (Life, BTreeSet<String>, bool) {
    let model = ModelServer::start();
    let setup = Setup { log: "info", top: "idle_unload_s = 0", faulty: true, ..Setup::default() };
    let daemon = Arc::new(Daemon::prepare(&model, setup));
    std::fs::write(daemon.workspace().join("notes.txt"), "a note\n").expect("a file for the tools");
    std::fs::write(daemon.workspace().join("loud.txt"), "many a line of output\n".repeat(200)).expect("another");
    let file = |name: &str| daemon.dirs.root().join(name);
    let (once, points) = (file("crashed"), file("points"));
    let text = |path: &PathBuf| path.display().to_string();
    let mut env = vec![("LINGER_POINTS".to_owned(), text(&points)), ("LINGER_CRASH_ONCE".to_owned(), text(&once))];
    env.extend(at.map(|(name, n)| ("LINGER_CRASH".to_owned(), format!("{name}:{n}"))));
    let open = Arc::new(AtomicBool::new(false));
    model.otherwise(script::on_request(daemon.side_effects(), open.clone()));
    let mut life = Life::default();
    daemon.launch_with(&env).await;
    if let Err(wrong) = run(&daemon, &model, &env, &open, &mut life).await {
        life.violations.push(wrong);
        // It did not come to be checked; why not says more.
        model.forgive();
    }
    let crashed = once.exists();
    life.kills = u64::from(crashed);
    let passed = std::fs::read_to_string(points).unwrap_or_default().lines().map(str::to_owned).collect();
    (life, passed, crashed)
}

async fn run(
    daemon: &Arc<Daemon>,
    model: &ModelServer,
    env: &[(String, String)],
    open: &AtomicBool,
    life: &mut Life,
) -> Result<(), Wrong> {
    let over = Arc::new(AtomicBool::new(false));
    let may_revive = Arc::new(AtomicBool::new(true));
    let watchman = tokio::task::spawn_local(watch(daemon.clone(), env.to_vec(), over.clone(), may_revive.clone()));
    let mut stays = Persona::new(daemon, "stays");
    let session = stays.create(json!({})).await?;
    stays.attach(&session).await?;
    let asks = tokio::task::spawn_local(allows(daemon.clone(), session.clone(), over.clone()));
    let walked = async {
        walk(daemon, model, env, (&mut stays, &session), open, &may_revive).await?;
        stays.settle(&session).await?;
        stays.reads_to_the_end(&session).await
    }
    .await;
    over.store(true, Ordering::Relaxed);
    let answered = asks.await.map_err(|error| format!("run: a client failed: {error}"))?;
    watchman.await.map_err(|error| format!("run: the daemon does not come back: {error}"))?;
    walked?;
    look(daemon, model, vec![stays.transcript(), answered?.0], life).await
}

/// Everything that passes a crash point.
async fn walk(
    daemon: &Arc<Daemon>,
    model: &ModelServer,
    env: &[(String, String)],
    (stays, session): (&mut Persona, &str),
    open: &AtomicBool,
    may_revive: &AtomicBool,
) -> Result<(), Wrong> {
    for text in ["tools please", "cut once"] {
        stays.prompt(session, text, "queue").await?;
        stays.settle(session).await?;
    }
    let key = stays.key();
    stays.must("session/set", json!({ "session": session, "name": "walk", "key": key })).await?;

    // Cancelled in mid-stream, with a prompt that steers behind it.
    stays.prompt(session, "stall here", "queue").await?;
    says(stays, "well, ", 1).await?;
    stays.prompt(session, "plain and steering", "steer").await?;
    while stays.state(session).await? != "idle" {
        let key = stays.key();
        // It may be over by now.
        let _idle = stays.request("session/cancel", json!({ "session": session, "key": key })).await?;
    }
    stays.settle(session).await?;

    // An end in good order in mid-stream.
    stays.prompt(session, "stall there", "queue").await?;
    says(stays, "well, ", 2).await?;
    may_revive.store(false, Ordering::Relaxed);
    let code = daemon.terminate();
    open.store(true, Ordering::Relaxed);
    daemon.launch_with(env).await;
    may_revive.store(true, Ordering::Relaxed);
    if code != Some(0) && !env.iter().any(|(name, _)| name == "LINGER_CRASH") {
        return Err(format!("I8: after SIGTERM lingerd ended with {code:?}"));
    }
    stays.settle(session).await?;

    // A kill in mid-stream.
    open.store(false, Ordering::Relaxed);
    stays.prompt(session, "stall again", "queue").await?;
    says(stays, "well, ", 3).await?;
    let status = stays.must("daemon/status", json!({})).await?;
    open.store(true, Ordering::Relaxed);
    process::signal(status["pid"].as_u64().unwrap_or_default() as u32, Signal::KILL);
    stays.settle(session).await?;

    // Sessions that nobody watches: one is unloaded and loaded again, one is removed.
    for _ in 0..2 {
        let other = stays.create(json!({})).await?;
        let long = format!("plain {}", "words to be summarised ".repeat(60));
        for text in [long.as_str(), "plain two"] {
            stays.prompt(&other, text, "queue").await?;
            stays.settle(&other).await?;
        }
        let key = stays.key();
        stays.must("session/compact", json!({ "session": other, "key": key })).await?;
        stays.settle(&other).await?;
        // Too long, with a summary that is no use: output is left out.
        stays.prompt(&other, "loud three", "queue").await?;
        stays.settle(&other).await?;
        // What excuses that a context changed goes with the session.
        let stored =
            read(&daemon.dirs.database()).map_err(|error| format!("run: the database cannot be read: {error}"))?;
        model.named_by(&stored);
        let key = stays.key();
        stays.must("session/remove", json!({ "session": other, "key": key })).await?;
    }
    stays.prompt(session, "tools once more", "queue").await?;
    stays.settle(session).await?;

    // A fork goes on, goes back and goes on again; then what went back is removed, and its branch has all that was left.
    let key = stays.key();
    let made = stays.must("session/fork", json!({ "session": session, "key": key })).await?;
    let fork = made["session"].as_str().unwrap_or_default().to_owned();
    stays.prompt(&fork, "plain in a fork", "queue").await?;
    stays.settle(&fork).await?;
    let key = stays.key();
    stays.must("session/rewind", json!({ "session": fork, "key": key })).await?;
    stays.prompt(&fork, "plain instead", "queue").await?;
    stays.settle(&fork).await?;
    let stored = read(&daemon.dirs.database()).map_err(|error| format!("run: the database cannot be read: {error}"))?;
    model.named_by(&stored);
    let key = stays.key();
    stays.must("session/remove", json!({ "session": fork, "key": key })).await?;
    Ok(())
}

/// Waits until so many messages began with `text`.
async fn says(stays: &mut Persona, text: &str, times: usize) -> Result<(), Wrong> {
    let begins = text.chars().take(3).collect::<String>();
    stays
        .sees(&format!("'{text}' {times} times"), |seen| {
            let first = seen.of("text_delta").filter(|seen| seen.event["offset"] == 0);
            (first.filter(|seen| seen.str("text").starts_with(&begins)).count() >= times).then_some(())
        })
        .await
}

/// Allows whatever is asked; gives what it saw, and how often it was told that the storage failed.
pub(super) async fn allows(
    daemon: Arc<Daemon>,
    session: String,
    over: Arc<AtomicBool>,
) -> Result<(Transcript, u64), Wrong> {
    let mut persona = Persona::new(&daemon, "answers");
    persona.attach(&session).await?;
    // How much it had seen when nothing was left to answer: with no more than that, nothing is.
    let mut answered = 0;
    while !over.load(Ordering::Relaxed) {
        persona.sees("anything", |_| Some(())).await?;
        let seen = persona.look(|seen| seen.0.len());
        if seen != answered && persona.answers(|_| "allow_once").await? == 0 {
            answered = seen;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    persona.reads_to_the_end(&session).await?;
    Ok((persona.transcript(), persona.told))
}

/// Starts a keeper where there is none.
async fn watch(daemon: Arc<Daemon>, env: Vec<(String, String)>, over: Arc<AtomicBool>, may: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        if may.load(Ordering::Relaxed) {
            daemon.revive(&env).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}
