//! Permissions that two to eight clients answer at once, each with a decision of its own, while turns are cancelled and
//! interrupted, modes change, and clients hang up and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use linger_protocol::error::Code;
use rusqlite::Connection as Database;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::batches;
use super::lean::{Answer, Connection, Incoming, Line, PATIENCE, Racer, Wrong};
use crate::Rng;
use crate::check::{Row, Stored, Trace, check};
use crate::harness::{Daemon, Setup, programs};
use crate::model::{ModelServer, Recorded, Reply};
use crate::report::Report;

/// Sessions at a time.
const SESSIONS: u64 = 8;

/// Clients that answer.
const RACERS: usize = 8;

/// Calls of one step: their permissions are asked for all at once.
const CALLS: usize = 16;

/// Steps of a session; then it is removed, so that what a race costs does not grow.
const STEPS: usize = 4;

/// `-31001`: somebody was first.
const ALREADY_ANSWERED: i32 = -31001;

/// What the clients were told about one permission.
#[derive(Default)]
struct Told {
    permission: String,
    /// Who asked, what it wanted, what it was told; nothing for one that hung up and was not told.
    answers: Vec<(String, &'static str, Option<Answer>)>,
}

/// Lets clients race for `count` permissions.
pub async fn permissions(count: u64, seed: u64) -> Report {
    // Built now, so that no rate counts it.
    programs();
    let began = Instant::now();
    let mut report = Report::new("permission races", seed);
    let disturbed = AtomicU64::new(0);
    for (n, size) in batches(count).enumerate() {
        batch(size, seed.wrapping_add(n as u64), &mut report, &disturbed).await;
    }
    report.detail = format!(
        "{} a second; {} of them cancelled, interrupted, decided by a mode or answered twice",
        (report.count as f64 / began.elapsed().as_secs_f64()) as u64,
        disturbed.into_inner()
    );
    report.finish(began)
}

async fn batch(size: u64, seed: u64, report: &mut Report, disturbed: &AtomicU64) {
    let model = ModelServer::start();
    let daemon = Arc::new(Daemon::start_with(&model, Setup { log: "warn", ..Setup::default() }).await);
    let (workspace, effects) = (daemon.workspace(), daemon.side_effects());
    let script = (workspace.display().to_string(), effects.display().to_string());
    model.otherwise(move |request| reply(request, &script.0, &script.1));
    let socket = daemon.dirs.socket();
    let mut racers = Vec::new();
    for n in 0..RACERS {
        racers.push(Racer::connect(&socket, &format!("r{n}")).await);
    }
    let racers = Arc::new(racers);
    let (wrong, mut found) = mpsc::unbounded_channel();
    let done = Arc::new(AtomicU64::new(0));
    let (mut workers, hard) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for worker_number in 0..SESSIONS {
        let (daemon, racers, wrong, done, hard) =
            (daemon.clone(), racers.clone(), wrong.clone(), done.clone(), hard.clone());
        let rng = Rng(seed.wrapping_mul(SESSIONS).wrapping_add(worker_number));
        workers.spawn(async move {
            let mut worker = Worker { daemon: &daemon, racers, wrong, rng, name: String::new(), hard };
            let mut n = 0;
            while done.load(Ordering::Relaxed) < size {
                n += 1;
                worker.name = format!("w{worker_number}x{n}");
                done.fetch_add(worker.session().await, Ordering::Relaxed);
            }
        });
    }
    drop(wrong);
    while let Some(ended) = workers.join_next().await {
        ended.expect("a worker goes on to the end");
    }
    while let Some(what) = found.recv().await {
        report.violation(what);
    }
    report.count += done.load(Ordering::Relaxed);
    disturbed.fetch_add(hard.load(Ordering::Relaxed), Ordering::Relaxed);
    model.violations().into_iter().for_each(|what| report.violation(format!("I4: {what}")));
    model.forgive();
}

/// What the model says to a session called `name`: calls, each of which leaves a line that no other leaves, until it has had
/// enough of them.
fn reply(request: &Recorded, workspace: &str, effects: &str) -> Reply {
    let name = request.last_prompt();
    let step = request.messages().matches("\"tool_call_id\"").count() / CALLS;
    if step >= STEPS {
        return Reply::text("enough");
    }
    let path = format!("{workspace}/{name}");
    // A file is edited once it was read, which needs no permission.
    let first = if step == 0 { Reply::new().and_tool("read", json!({ "path": path })) } else { Reply::new() };
    // A shell takes longer than all the rest; one step of each session has some.
    let call = |n: usize| match (step, n) {
        (0, 0..2) => ("bash", json!({ "command": format!("echo {name}-{step}-{n} >> {effects}") })),
        _ => ("edit", json!({ "path": path, "old": "END", "new": format!("{name}-{step}-{n}\nEND") })),
    };
    (0..CALLS).map(call).fold(first, |reply, (tool, input)| reply.and_tool(tool, input))
}

/// Runs one session after the other.
struct Worker<'a> {
    daemon: &'a Daemon,
    racers: Arc<Vec<Racer>>,
    wrong: Wrong,
    rng: Rng,
    /// The session's name, which is also what its user says.
    name: String,
    /// How many permissions were not simply raced for.
    hard: Arc<AtomicU64>,
}

impl Worker<'_> {
    /// One session; gives how many permissions it asked for.
    async fn session(&mut self) -> u64 {
        let file = self.daemon.workspace().join(&self.name);
        std::fs::write(&file, "END\n").expect("a file for the edits");
        let mut watcher = Connection::connect(&self.daemon.dirs.socket(), "watcher").await;
        let params = json!({ "cwd": self.daemon.workspace(), "env": { "PATH": "/usr/bin:/bin" }, "mode": "ask" });
        let made = watcher.call("session/create", params).await;
        let session = made["session"].as_str().expect("a session").to_owned();
        watcher.call("session/attach", json!({ "session": session, "deltas": false })).await;
        let prompt = json!({ "session": session, "content": self.name });
        let mut prompted = watcher.send("session/prompt", prompt.clone()).await;
        let mut races = JoinSet::new();
        // What was done to the session as a whole.
        let (mut stopped, mut asked) = (false, 0);
        loop {
            let event = match watcher.line().await {
                Line::Event(event) => event,
                Line::Answer(id, Err(error)) if id == prompted => {
                    // A machine that is busy with much else may take its disk for one that is gone.
                    assert_eq!(error.code(), Some(Code::NoWorkspace), "{error:?}");
                    prompted = watcher.send("session/prompt", prompt.clone()).await;
                    continue;
                }
                Line::Answer(..) => continue,
            };
            match event.str("kind") {
                "permission_requested" => {
                    asked += 1;
                    stopped |= self.race(&session, &event, &mut races).await;
                }
                // Ten calls in a row that a mode refuses stop the turn.
                "question_asked" => {
                    let answer = json!({ "question": event.str("question"), "answer": "go_on" });
                    watcher.send("question/answer", answer).await;
                }
                "turn_finished" => break,
                _ => {}
            }
        }
        let mut told = Vec::new();
        while let Some(race) = races.join_next().await {
            told.extend(race.expect("a race ends"));
        }
        // An interrupt that came too late is the prompt of a turn of its own.
        let late = watcher.ask("session/cancel", json!({ "session": session })).await.is_ok();
        self.verify(&session, &told, stopped || late, &file);
        watcher.call("session/remove", json!({ "session": session, "force": true })).await;
        std::fs::remove_file(&file).expect("the file of the edits");
        asked
    }

    /// Lets some racers answer at once, and now and then something else happen; whether the turn was stopped.
    async fn race(&mut self, session: &str, event: &Incoming, races: &mut JoinSet<Option<Told>>) -> bool {
        let permission = event.str("permission").to_owned();
        let first = self.rng.below(RACERS);
        let many = 2 + self.rng.below(RACERS - 1);
        let decisions: Vec<&'static str> =
            (0..many).map(|_| if self.rng.below(2) == 0 { "allow_once" } else { "reject_once" }).collect();
        let digest = event.event["digest"].clone();
        let racers = self.racers.clone();
        let (answered, comes_back) = (permission.clone(), self.rng.below(32) == 0);
        let socket = self.daemon.dirs.socket();
        races.spawn(async move {
            let answer = |decision| json!({ "permission": answered, "decision": decision, "digest": digest });
            let mut sent = Vec::new();
            for (n, decision) in decisions.into_iter().enumerate() {
                let racer = &racers[(first + n) % RACERS];
                sent.push((racer.name.clone(), decision, racer.send("permission/answer", answer(decision)).await));
            }
            let mut told = Told { permission: answered.clone(), answers: Vec::new() };
            if comes_back {
                told.answers.push(twice(&socket, &answered, answer("allow_once")).await);
            }
            for (name, decision, answer) in sent {
                let answer = tokio::time::timeout(PATIENCE, answer).await;
                told.answers.push((name, decision, answer.expect("every answer is answered").ok()));
            }
            Some(told)
        });
        let what = self.rng.below(256);
        let (racers, session, name) = (self.racers.clone(), session.to_owned(), self.name.clone());
        let (method, params, stops) = match what {
            0 => ("session/cancel", json!({ "session": session }), true),
            1 => ("session/prompt", json!({ "session": session, "content": name, "when": "interrupt" }), true),
            2..5 => ("session/set", json!({ "session": session, "mode": "auto" }), false),
            5..8 => ("session/set", json!({ "session": session, "mode": "plan" }), false),
            _ => ("", json!({}), false),
        };
        self.hard.fetch_add(u64::from(what < 8) + u64::from(comes_back), Ordering::Relaxed);
        if what < 8 {
            races.spawn(async move {
                // It may come when the turn is over: then it is refused.
                let _refused = racers[first].ask(method, params).await;
                if method == "session/set" {
                    let _set = racers[first].ask(method, json!({ "session": session, "mode": "ask" })).await;
                }
                None
            });
        }
        stops
    }

    /// Holds what everybody was told against the log and the side effects.
    fn verify(&self, session: &str, told: &[Told], stopped: bool, file: &Path) {
        let say =
            |what: String| self.wrong.send(format!("{session} ({}): {what}", self.name)).expect("somebody listens");
        let rows = rows(&self.daemon.dirs.database(), session);
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let effects = std::fs::read_to_string(self.daemon.side_effects()).unwrap_or_default();
        let own = format!("{}-", self.name);
        let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
        for line in text.lines().chain(effects.lines()).filter(|line| line.starts_with(&own)) {
            *lines.entry(line).or_default() += 1;
        }
        lines.iter().filter(|(_, times)| **times > 1).for_each(|(line, times)| say(format!("'{line}' {times} times")));
        let mut of: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
        for row in &rows {
            let key = if row.kind.starts_with("permission") { row.str("permission") } else { row.str("call_id") };
            of.entry((row.kind.as_str(), key)).or_default().push(row);
        }
        let all = |kind: &'static str, key: &str| of.get(&(kind, key)).cloned().unwrap_or_default();
        for told in told {
            let Told { permission, answers } = told;
            let (asked, resolved) = (all("permission_requested", permission), all("permission_resolved", permission));
            let ([asked], [resolved]) = (asked.as_slice(), resolved.as_slice()) else {
                say(format!("{permission} was asked {} times and has {} decisions", asked.len(), resolved.len()));
                continue;
            };
            for what in contradictions(answers, resolved, "decision") {
                say(format!("{permission}: {what}; the log has {}", resolved.raw));
            }
            let call = asked.str("call_id");
            let started = all("tool_started", call).len();
            let allowed = resolved.str("decision").starts_with("allow");
            let due = if !allowed {
                0..=0
            } else if stopped {
                0..=1
            } else {
                1..=1
            };
            if !due.contains(&started) {
                say(format!("{permission} was {}, and started {started} times", resolved.str("decision")));
            }
            let input = &asked.event["input"];
            let name = input["command"].as_str().and_then(|command| command.split(' ').nth(1));
            let name = name.or_else(|| input["new"].as_str().and_then(|new| new.lines().next())).unwrap_or_default();
            let happened = lines.contains_key(name);
            // An interrupt may come before the file was read; then its edits fail.
            let done = |row: &&Row| row.str("outcome") == "ran" && !(stopped && row.event["is_error"] == true);
            let ran = all("tool_finished", call).iter().any(done);
            if (happened && started == 0) || (ran && !happened) {
                say(format!("{permission}: started {started} times, ran {ran}, '{name}' happened: {happened}"));
            }
        }
        let stored = Stored(BTreeMap::from([(session.to_owned(), rows.clone())]));
        check(&Trace { stored, settled: true, ..Trace::default() }).iter().for_each(|found| say(found.to_string()));
    }
}

/// One that hangs up before it was told, comes back and sends the same again under the same key.
async fn twice(socket: &Path, permission: &str, mut answer: Value) -> (String, &'static str, Option<Answer>) {
    let name = format!("back-{permission}");
    answer["key"] = json!(format!("k-{permission}"));
    let first = Racer::connect(socket, &name).await;
    let _untold = first.send("permission/answer", answer.clone()).await;
    drop(first);
    let again = Racer::connect(socket, &name).await;
    (name, "allow_once", again.ask("permission/answer", answer).await)
}

/// Where the clients were told something else than what is in the log; `field` is what the answer is called there.
pub(super) fn contradictions(
    answers: &[(String, &'static str, Option<Answer>)],
    resolved: &Row,
    field: &str,
) -> Vec<String> {
    let (decision, by) = (resolved.str(field), resolved.str("by"));
    let mut wrong = Vec::new();
    let mut winners = BTreeSet::new();
    for (name, wanted, answer) in answers {
        match answer {
            None => wrong.push(format!("{name} was told nothing")),
            Some(Ok(won)) => {
                winners.insert(name.as_str());
                if won["outcome"].as_str().is_some_and(|outcome| outcome != "won") || by != name || decision != *wanted
                {
                    wrong.push(format!("{name} was told that its {wanted} won"));
                }
            }
            Some(Err(error)) => {
                let told = error.data.clone().unwrap_or_default();
                if error.code != ALREADY_ANSWERED || told[field] != decision || told["by"] != by {
                    wrong.push(format!("{name} was told {} {error} {told}", error.code));
                }
            }
        }
    }
    let raced = answers.iter().any(|(name, ..)| name == by);
    if winners.len() > 1 || winners.is_empty() == raced {
        wrong.push(format!("{} were told that they won", winners.len()));
    }
    wrong
}

/// The log of one session.
pub(super) fn rows(database: &Path, session: &str) -> Vec<Row> {
    let database = Database::open_with_flags(database, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    database.busy_timeout(PATIENCE).expect("a time-out");
    let mut query = database.prepare("SELECT data FROM event WHERE session = ? ORDER BY seq").expect("a query");
    let rows = query.query_map([session], |row| row.get::<_, String>(0)).expect("rows");
    rows.map(|raw| Row::new(&raw.expect("a row"))).collect()
}
