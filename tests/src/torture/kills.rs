//! Random kills: a session under work, three clients, and somebody who kills what is there at random moments.
//!
//! One client stays and prompts, one comes and goes, two answer permissions and questions, those of an MCP server among them, each
//! in its own way. The plan of a life (what is prompted, what is killed, after how long) comes from its seed; the moments are real time, so a seed repeats the plan and not each interleaving.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::persona::{AGAIN, PATIENCE, Persona, Wrong, accepted};
use super::questions::{BUDGET, is_elicited};
use super::{Life, script};
use crate::Rng;
use crate::check::{Transcript, check};
use crate::harness::process::Process;
use crate::harness::{Daemon, SCRIPTED_SERVER, Setup, comes_true, process, scripted_server};
use crate::model::ModelServer;

/// Kills in one life: a life has a start and an end, which cost as much as several kills.
pub(super) const KILLS: u64 = 5;

/// The first words of prompts, each as often as it is to be drawn: a form of a server needs its permission first.
const FIRST: [&str; 12] = [
    "prompt", "prompt", "prompt", "prompt", "ask", "ask", "circle", "delegate", "delegate", "elicit", "elicit",
    "elicit",
];

/// The longest pause before a kill, in microseconds: as long as a step with its tools takes.
const PAUSE: usize = 40_000;

/// One life; gives what was wrong with it.
pub(super) async fn live(seed: u64, kills: u64) -> Life {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let model = ModelServer::start();
    let setup = Setup { log: "info", config: scripted_server(&[], ""), ..Setup::default() };
    let daemon = Arc::new(Daemon::start_with(&model, setup).await);
    std::fs::write(daemon.workspace().join("notes.txt"), "a note\n").expect("a file for the tools");
    model.otherwise(script::answers(daemon.side_effects()));
    let mut life = Life::default();
    if let Err(wrong) = run(&mut rng, kills, &model, &daemon, &mut life).await {
        life.violations.push(wrong);
    }
    life
}

async fn run(
    rng: &mut Rng,
    kills: u64,
    model: &ModelServer,
    daemon: &Arc<Daemon>,
    life: &mut Life,
) -> Result<(), Wrong> {
    let mut stays = Persona::new(daemon, "stays");
    // Its tools are known from then on: no turn waits for its start.
    stays.must("mcp/test", json!({ "server": "s", "cwd": daemon.workspace() })).await?;
    let session = stays.create(json!({ "budget": { "max_tokens": BUDGET } })).await?;
    stays.attach(&session).await?;
    let over = Arc::new(AtomicBool::new(false));
    let comes =
        tokio::task::spawn_local(comes_and_goes(daemon.clone(), session.clone(), over.clone(), Rng(rng.next_u64())));
    let asks = ["answers", "answers too"].map(|name| {
        let rng = Rng(rng.next_u64());
        tokio::task::spawn_local(answers(daemon.clone(), name, session.clone(), over.clone(), rng))
    });
    let killer = tokio::task::spawn_local(kill(daemon.clone(), kills, Rng(rng.next_u64())));
    let worked = work(rng, &mut stays, &session, || killer.is_finished()).await;
    let (killed, orphan) = killer.await.map_err(|error| format!("run: the killer failed: {error}"))??;
    life.kills = killed;
    let settled = async {
        worked?;
        stays.settle(&session).await?;
        stays.reads_to_the_end(&session).await
    }
    .await;
    over.store(true, Ordering::Relaxed);
    let visits = comes.await.map_err(|error| format!("run: a client failed: {error}"))?;
    let mut answered = Vec::new();
    for asks in asks {
        answered.push(asks.await.map_err(|error| format!("run: a client failed: {error}"))?);
    }
    settled?;
    let mut clients = vec![stays.transcript()];
    for seen in answered {
        clients.push(seen?);
    }
    clients.extend(visits?);
    look(daemon, model, clients, life).await?;
    if let Some(keeper) = orphan {
        // It has no parent here that could end it.
        process::signal(keeper, Signal::TERM);
    }
    Ok(())
}

/// What must hold at rest.
pub(super) async fn look(
    daemon: &Daemon,
    model: &ModelServer,
    clients: Vec<Transcript>,
    life: &mut Life,
) -> Result<(), Wrong> {
    let pid = daemon.pid().await;
    let rests = comes_true(PATIENCE / 4, || processes(daemon, pid).is_none());
    if let Some(wrong) = processes(daemon, pid).filter(|_| !rests) {
        life.violations.push(format!("I8: at rest there are {wrong}"));
    }
    let mut trace = daemon.trace(&[], model);
    trace.clients = clients;
    life.events += trace.stored.0.values().map(|rows| rows.len() as u64).sum::<u64>();
    let asked = trace.stored.0.values().flatten().filter(|row| row.kind == "question_asked");
    let (elicited, asked): (Vec<_>, Vec<_>) = asked.partition(|row| is_elicited(&row.event["asked"]));
    (life.questions, life.elicited) = (life.questions + asked.len() as u64, life.elicited + elicited.len() as u64);
    let created = trace.stored.0.values().flatten().filter(|row| row.kind == "session_created");
    life.children += created.filter(|row| row.event["delegated"].is_object()).count() as u64;
    life.requests += model.request_count() as u64;
    life.effects += std::fs::read_to_string(daemon.side_effects()).unwrap_or_default().lines().count() as u64;
    life.violations.extend(check(&trace).iter().map(ToString::to_string));
    Ok(())
}

/// What is wrong with the processes at rest: an MCP server stays for a while, one for its workspace and below the daemon, and
/// nothing else does.
fn processes(daemon: &Daemon, pid: u32) -> Option<String> {
    let is_server = |process: &Process| process.command.contains(SCRIPTED_SERVER);
    let (servers, others): (Vec<_>, Vec<_>) = process::descendants(pid).into_iter().partition(is_server);
    let strays = process::of_directory(daemon.dirs.root()).into_iter().filter(is_server);
    let strays: Vec<_> = strays.filter(|stray| !servers.contains(stray)).collect();
    let is_good = others.is_empty() && strays.is_empty() && servers.len() <= 1;
    (!is_good).then(|| format!("{others:?}, servers {servers:?}, and servers of a daemon that is gone {strays:?}"))
}

/// Prompts, until all kills are done and a few prompts have been given.
async fn work(rng: &mut Rng, stays: &mut Persona, session: &str, over: impl Fn() -> bool) -> Result<(), Wrong> {
    let mut round = 0;
    while round < 2 || !over() {
        round += 1;
        let first = FIRST[rng.below(FIRST.len())];
        let text = format!("{first} {round} of {session}");
        let key = stays.prompt(session, &text, "queue").await?;
        match rng.below(10) {
            0 | 1 => drop(stays.prompt(session, &format!("steer {round} of {session}"), "steer").await?),
            2 => drop(stays.prompt(session, &format!("interrupt {round} of {session}"), "interrupt").await?),
            3 => {
                tokio::time::sleep(Duration::from_micros(rng.below(PAUSE / 2) as u64)).await;
                let key = stays.key();
                // There may be nothing to cancel by now.
                let _idle = stays.request("session/cancel", json!({ "session": session, "key": key })).await?;
            }
            4 | 5 => {
                // Sent again, as after a lost answer.
                let params = json!({ "session": session, "content": text, "when": "queue", "key": key });
                stays.must("session/prompt", params).await?;
                let prompts = accepted(&stays.transcript(), &key);
                if prompts.iter().any(|prompt| prompt != &prompts[0]) {
                    return Err(format!("I5: one key gave several prompts: {prompts:?}"));
                }
            }
            _ => {}
        }
        if rng.below(3) > 0 {
            stays.settle(session).await?;
        }
    }
    Ok(())
}

/// Attaches for a moment, at its cursor or from the beginning, again and again; what each client saw.
async fn comes_and_goes(
    daemon: Arc<Daemon>,
    session: String,
    over: Arc<AtomicBool>,
    mut rng: Rng,
) -> Result<Vec<Transcript>, Wrong> {
    let mut persona = Persona::new(&daemon, "comes and goes");
    let mut seen = Vec::new();
    while !over.load(Ordering::Relaxed) {
        persona.attach(&session).await?;
        tokio::time::sleep(Duration::from_micros(rng.below(PAUSE / 2) as u64)).await;
        if rng.below(3) == 0 {
            seen.push(persona.forget());
        } else {
            persona.hang_up();
        }
    }
    seen.push(persona.forget());
    Ok(seen)
}

/// Answers permissions and questions after a while; gives what it saw.
async fn answers(
    daemon: Arc<Daemon>,
    name: &str,
    session: String,
    over: Arc<AtomicBool>,
    mut rng: Rng,
) -> Result<Transcript, Wrong> {
    let mut persona = Persona::new(&daemon, name);
    persona.attach(&session).await?;
    while !over.load(Ordering::Relaxed) {
        persona.sees("anything", |_| Some(())).await?;
        tokio::time::sleep(Duration::from_micros(rng.below(PAUSE / 4) as u64)).await;
        let decision = if rng.below(4) == 0 { "reject_once" } else { "allow_once" };
        persona.answers(|_| decision).await?;
    }
    persona.reads_to_the_end(&session).await?;
    Ok(persona.transcript())
}

/// Kills; gives how often, and the keeper that has no parent here, if there is one.
async fn kill(daemon: Arc<Daemon>, kills: u64, mut rng: Rng) -> Result<(u64, Option<u32>), Wrong> {
    let mut orphan = None;
    let mut killed = 0;
    while killed < kills {
        tokio::time::sleep(Duration::from_micros(rng.below(PAUSE) as u64)).await;
        match rng.below(20) {
            // A tool's process, if one runs: no kill of a daemon, and not counted as one.
            0 | 1 => {
                let pid = daemon.pid().await;
                process::descendants(pid).iter().for_each(|child| process::signal(child.pid, Signal::KILL));
                continue;
            }
            2..=4 => daemon.kill_and_restart().await,
            5 => {
                // An end in good order: no kill, and not counted as one.
                daemon.terminate();
                daemon.launch().await;
                continue;
            }
            // The last one, because the keeper that follows is no child of ours.
            6 if killed + 1 == kills => {
                orphan = Some(kill_keeper(&daemon).await?);
            }
            _ => daemon.kill_daemon().await,
        }
        killed += 1;
    }
    Ok((killed, orphan))
}

/// Kills the keeper; gives the number of the next one, which is what the daemon becomes.
async fn kill_keeper(daemon: &Arc<Daemon>) -> Result<u32, Wrong> {
    let mut persona = Persona::new(daemon, "looks");
    let before = persona.must("daemon/status", json!({})).await?;
    daemon.kill_keeper().await;
    let until = Instant::now() + PATIENCE;
    loop {
        let now = persona.must("daemon/status", json!({})).await?;
        if now["keeper"] == before["pid"] || now["started_at"] != before["started_at"] {
            return Ok(now["keeper"].as_u64().unwrap_or_default() as u32);
        }
        if Instant::now() > until {
            return Err(format!("I14: the daemon without a keeper becomes none: {now}"));
        }
        tokio::time::sleep(AGAIN).await;
    }
}
