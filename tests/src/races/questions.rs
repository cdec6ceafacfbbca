//! Questions that two to eight clients answer at once, each in its own way: choices and forms of `ask_user`, forms of an MCP server,
//! circles and budgets.
//!
//! What a client was told, what the log says and what the model reads must be the same answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::lean::{Answer, Connection, Incoming, Line, PATIENCE, Racer};
use super::permissions::{contradictions, rows};
use crate::Rng;
use crate::check::{Stored, Trace, check};
use crate::harness::{Daemon, Setup, programs, scripted_server};
use crate::model::{ModelServer, Recorded, Reply};
use crate::report::Report;

/// Sessions at a time.
const SESSIONS: u64 = 4;

/// Clients that answer.
const RACERS: usize = 8;

/// Calls of one step: as many as run at the same time, so their questions wait together.
const CALLS: usize = 8;

/// Steps that ask; then the model goes in circles.
const STEPS: usize = 3;

/// Steps that repeat one call: after three of them the daemon asks.
const CIRCLES: usize = 4;

/// Tokens of two steps of the scripted model, so that its budget is spent in every session.
const BUDGET: u64 = 40;

/// The kind of a form that an MCP server asks for.
const ELICITED: &str = "elicitation";

/// Whether an MCP server asks: its form has a field of its own.
fn is_elicited(asked: &Value) -> bool {
    asked["schema"]["properties"]["name"].is_object()
}

/// What the clients were told about one question.
struct Told {
    question: String,
    /// Who answered, what it wanted, what it was told.
    answers: Vec<(String, &'static str, Option<Answer>)>,
}

/// Lets clients race for `count` questions.
pub async fn questions(count: u64, seed: u64) -> Report {
    programs();
    let began = Instant::now();
    let mut report = Report::new("question races", seed);
    let model = ModelServer::start();
    // A server for each session: what one asks that several use belongs to none while several calls are open.
    let config = scripted_server(&[], "scope = \"session\"\n[permissions]\nallow = [\"mcp__s__ask\"]");
    let daemon = Arc::new(Daemon::start_with(&model, Setup { log: "warn", config, ..Setup::default() }).await);
    model.otherwise(reply);
    let mut racers = Vec::new();
    for n in 0..RACERS {
        racers.push(Racer::connect(&daemon.dirs.socket(), &format!("r{n}")).await);
    }
    let (racers, done) = (Arc::new(racers), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for worker in 0..SESSIONS {
        let (daemon, racers, done) = (daemon.clone(), racers.clone(), done.clone());
        let mut rng = Rng(seed.wrapping_mul(SESSIONS).wrapping_add(worker) | 1);
        workers.spawn(async move {
            let (mut wrong, mut kinds) = (Vec::new(), BTreeMap::new());
            while done.load(Ordering::Relaxed) < count {
                done.fetch_add(session(&daemon, &racers, &mut rng, &mut wrong, &mut kinds).await, Ordering::Relaxed);
            }
            (wrong, kinds)
        });
    }
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(ended) = workers.join_next().await {
        let (wrong, of) = ended.expect("a worker goes on to the end");
        wrong.into_iter().for_each(|what: String| report.violation(what));
        of.into_iter().for_each(|(kind, times)| *kinds.entry(kind).or_default() += times);
    }
    for kind in ["choice", "form", ELICITED, "circles", "budget"] {
        if !kinds.contains_key(kind) {
            report.violation(format!("no question was about {kind}"));
        }
    }
    report.count = done.load(Ordering::Relaxed);
    model.violations().into_iter().for_each(|what| report.violation(format!("I4: {what}")));
    model.forgive();
    report.detail = kinds.iter().map(|(kind, times)| format!("{times} {kind}")).collect::<Vec<_>>().join(", ");
    report.finish(began)
}

/// What the model says: steps with questions, then the same call until it is stopped.
fn reply(request: &Recorded) -> Reply {
    let steps = request.json["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let steps = steps.iter().filter(|message| message["role"] == "assistant").count();
    if steps >= STEPS + CIRCLES {
        return Reply::text("enough");
    }
    if steps >= STEPS {
        return Reply::tool("ls", json!({ "path": "." }));
    }
    let ask = |n: usize| match n % 2 {
        0 => json!({ "question": format!("{steps}-{n}: which?"), "options": ["left", "right"] }),
        _ => json!({ "question": format!("{steps}-{n}: what?") }),
    };
    let reply = (0..CALLS).fold(Reply::new(), |reply, n| reply.and_tool("ask_user", ask(n)));
    reply.and_tool("mcp__s__ask", json!({ "text": steps }))
}

/// One session; gives how many questions it had.
async fn session(
    daemon: &Daemon,
    racers: &Arc<Vec<Racer>>,
    rng: &mut Rng,
    wrong: &mut Vec<String>,
    kinds: &mut BTreeMap<String, u64>,
) -> u64 {
    let mut watcher = Connection::connect(&daemon.dirs.socket(), "watcher").await;
    let params = json!({ "cwd": daemon.workspace(), "mode": "ask", "budget": { "max_tokens": BUDGET } });
    let made = watcher.call("session/create", params).await;
    let session = made["session"].as_str().expect("a session").to_owned();
    watcher.call("session/attach", json!({ "session": session, "deltas": false })).await;
    // Words of its own, so that the model's server can tell its conversation from the others.
    watcher.send("session/prompt", json!({ "session": session, "content": session })).await;
    let mut races = JoinSet::new();
    let mut asked = 0;
    loop {
        let Line::Event(event) = watcher.line().await else { continue };
        match event.str("kind") {
            "question_asked" => {
                asked += 1;
                let of = &event.event["asked"];
                let kind = of["about"].as_str().or(of["kind"].as_str()).unwrap_or_default();
                let kind = if is_elicited(of) { ELICITED } else { kind };
                *kinds.entry(kind.to_owned()).or_default() += 1;
                race(&event, racers, rng, &mut races);
            }
            "turn_finished" => break,
            _ => {}
        }
    }
    let mut told = Vec::new();
    while let Some(race) = races.join_next().await {
        told.push(race.expect("a race ends"));
    }
    verify(daemon, &session, &told, wrong);
    watcher.call("session/remove", json!({ "session": session, "force": true })).await;
    asked
}

/// Lets some racers answer at once, each with an answer of its own.
fn race(event: &Incoming, racers: &Arc<Vec<Racer>>, rng: &mut Rng, races: &mut JoinSet<Told>) {
    let (question, asked) = (event.str("question").to_owned(), event.event["asked"].clone());
    let names: [&'static str; 2] = match (asked["about"].is_string(), asked["kind"] == "form") {
        // Seldom the end of the turn, or there is nothing more to race for.
        (true, _) if rng.below(8) == 0 => ["go_on", "stop"],
        (true, _) => ["go_on", "go_on"],
        (_, true) => ["accept", "decline"],
        _ => ["left", "right"],
    };
    let first = rng.below(RACERS);
    let answers: Vec<&'static str> = (0..2 + rng.below(RACERS - 1)).map(|_| names[rng.below(2)]).collect();
    let (racers, digest) = (racers.clone(), asked["digest"].clone());
    let field = if is_elicited(&asked) { "name" } else { "answer" };
    races.spawn(async move {
        let mut sent = Vec::new();
        for (n, answer) in answers.into_iter().enumerate() {
            let racer = &racers[(first + n) % RACERS];
            let mut params = json!({ "question": question, "answer": answer, "digest": digest });
            if answer == "accept" {
                params["value"] = json!({ field: racer.name });
            }
            sent.push((racer.name.clone(), answer, racer.send("question/answer", params).await));
        }
        let mut answers = Vec::new();
        for (name, answer, told) in sent {
            let told = tokio::time::timeout(PATIENCE, told).await.expect("every answer is answered");
            answers.push((name, answer, told.ok()));
        }
        Told { question, answers }
    });
}

/// Holds what everybody was told against the log, and the log against what the model reads.
fn verify(daemon: &Daemon, session: &str, told: &[Told], wrong: &mut Vec<String>) {
    let rows = rows(&daemon.dirs.database(), session);
    for Told { question, answers } in told {
        let of = |kind: &str| {
            let of = rows.iter().filter(|row| row.kind == kind && row.str("question") == question);
            of.collect::<Vec<_>>()
        };
        let (asked, resolved) = (of("question_asked"), of("question_resolved"));
        let ([asked], [resolved]) = (asked.as_slice(), resolved.as_slice()) else {
            let times = (asked.len(), resolved.len());
            wrong.push(format!("{session}: {question} was asked {} times and has {} answers", times.0, times.1));
            continue;
        };
        for what in contradictions(answers, resolved, "answer") {
            wrong.push(format!("{session}: {question}: {what}; the log has {}", resolved.raw));
        }
        let Some(call) = asked.event["asked"]["call"].as_str() else { continue };
        let read = rows.iter().find(|row| row.kind == "tool_finished" && row.str("call_id") == call);
        let read = read.map(|row| row.event["content"][0]["text"].clone()).unwrap_or_default();
        if is_elicited(&asked.event["asked"]) {
            let told: Value = serde_json::from_str(read.as_str().unwrap_or_default()).unwrap_or_default();
            let (action, name) = (resolved.str("answer"), &resolved.event["value"]["name"]);
            if told["action"] != action || told["content"]["name"] != *name {
                wrong.push(format!(
                    "{session}: {question} was answered {action} {name}, and the server was told {told}"
                ));
            }
            continue;
        }
        let due = match resolved.str("answer") {
            "accept" => resolved.event["value"]["answer"].clone(),
            "decline" => Value::from("[the user gives no answer]"),
            chosen => Value::from(chosen),
        };
        if read != due {
            wrong.push(format!("{session}: {question} was answered {due}, and the model reads {read}"));
        }
    }
    let stored = Stored(BTreeMap::from([(session.to_owned(), rows)]));
    let found = check(&Trace { stored, settled: true, ..Trace::default() });
    wrong.extend(found.iter().map(|found| format!("{session}: {found}")));
}
