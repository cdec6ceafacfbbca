//! The daemon is killed under its clients, at many moments of each command: they come back, start a daemon where there is none,
//! and print and do everything once.
//!
//! Nobody but the clients starts a daemon here. A kill takes the daemon proper, or its keeper with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use linger_tests::Rng;
use linger_tests::harness::{Cli, Client, Daemon, Output, Setup, process, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{bash, last_words};

/// Kills of each command that follows a turn; each costs half a second in which a keeper is waited for.
const KILLS: usize = 12;

/// The latest moment of a kill after a command's start, in milliseconds: by then it waits for the model.
const LATEST: usize = 60;

/// Rows of a terminal that shows all of a test.
const HIGH: u16 = 500;

/// Words of an answer.
const WORDS: usize = 30;

/// A daemon that only clients start, a model that says nothing to its end before the kill, and the moments.
struct Scene {
    daemon: Daemon,
    model: ModelServer,
    /// Held closed until the daemon is dead.
    gate: Arc<Mutex<Gate>>,
    rng: Rng,
    /// `(daemon, keeper)` of the daemon that lives now.
    victims: (u32, u32),
}

/// What the model says to a prompt: words that are there once, so that whatever is lost, repeated or out of order shows.
fn answer(prompt: &str) -> String {
    (0..WORDS).map(|n| format!("{}.{n}", prompt.trim().replace(' ', "-"))).collect::<Vec<_>>().join(" ")
}

impl Scene {
    async fn new(seed: u64) -> Self {
        let model = ModelServer::start();
        let gate = Arc::new(Mutex::new(Gate::new()));
        let (held, mut cuts) = (gate.clone(), Rng(seed ^ 0x5eed));
        model.otherwise(move |request| {
            let text = answer(&last_words(request));
            let (before, after) = text.split_at(cuts.below(text.len()));
            let gate = held.lock().unwrap().clone();
            Reply::new().text_in_deltas(before, 3).gate(&gate).text_in_deltas(after, 3)
        });
        let daemon = Daemon::prepare(&model, Setup::default());
        daemon.cli(&["daemon", "start"]).run().await.exits(0);
        let mut scene = Self { daemon, model, gate, rng: Rng(seed), victims: (0, 0) };
        scene.look().await;
        scene
    }

    /// Finds out whom to kill next, and lets the model wait.
    async fn look(&mut self) {
        *self.gate.lock().unwrap() = Gate::new();
        let lock = std::fs::read_to_string(self.daemon.dirs.database().with_file_name("lingerd.lock")).unwrap();
        let lock: Value = serde_json::from_str(&lock).unwrap();
        let status = self.daemon.client().await.call("daemon/status", json!({})).await;
        let pid = |value: &Value| u32::try_from(value["pid"].as_u64().unwrap()).unwrap();
        self.victims = (pid(&status), pid(&lock));
    }

    /// Kills the daemon at a moment within `latest` milliseconds; then the model may go on.
    async fn kill(&mut self, latest: usize) {
        let moment = self.rng.below(latest * 1000 + 1) as u64;
        // No event marks the moments that are sought here.
        tokio::time::sleep(Duration::from_micros(moment)).await;
        let (daemon, keeper) = self.victims;
        // A daemon takes the place of a keeper that dies before it.
        let both = self.rng.below(2) == 0;
        if both {
            process::signal(keeper, Signal::STOP);
        }
        process::signal(daemon, Signal::KILL);
        if both {
            process::signal(keeper, Signal::KILL);
        }
        until("the daemon is dead", async || (process::memory(daemon).0 == 0).then_some(())).await;
        self.gate.lock().unwrap().open();
    }

    /// Runs a command and kills the daemon under it.
    async fn killed(&mut self, args: &[&str]) -> Output {
        self.killed_within(args, LATEST).await
    }

    async fn killed_within(&mut self, args: &[&str], latest: usize) -> Output {
        self.look().await;
        let running = self.daemon.cli(args).spawn().await;
        self.kill(latest).await;
        let output = running.end().await.exits(0);
        // A command that was done before the kill has left nobody to start the next daemon.
        self.cli(&["daemon", "start"]).run().await.exits(0);
        output
    }

    fn cli(&self, args: &[&str]) -> Cli {
        self.daemon.cli(args)
    }

    async fn sessions(&self) -> Vec<Value> {
        self.daemon.client().await.call("session/list", json!({})).await.as_array().unwrap().clone()
    }

    /// Holds everything against what must always be, each session seen by a client; then ends the daemon.
    async fn end(self) {
        let client = self.daemon.client().await;
        for row in self.sessions().await {
            let session = row["session"].as_str().unwrap();
            client.attach(session).await;
            client
                .wait("all of it", |seen| {
                    let mut events = seen.events().filter(|event| event.session == session);
                    events.any(|event| event.kind() == "caught_up").then_some(())
                })
                .await;
        }
        self.daemon.check(&[&client], &self.model);
        self.cli(&["daemon", "stop", "--force"]).run().await.exits(0);
    }
}

/// How many prompts there are in each session that this client is attached to.
fn prompts(client: &Client) -> usize {
    client.transcript().of("prompt_accepted").count()
}

#[tokio::test]
async fn run_prints_the_answer_once() {
    let mut scene = Scene::new(1).await;
    for n in 0..KILLS {
        let prompt = format!("run {n}");
        let output = scene.killed(&["run", &prompt]).await;
        assert_eq!((output.stdout, output.stderr), (answer(&prompt) + "\n", String::new()), "kill {n}");
    }
    assert_eq!(scene.sessions().await.len(), KILLS, "each session was made once");
    scene.end().await;
}

#[tokio::test]
async fn run_with_stream_says_what_of_its_text_does_not_count() {
    let mut scene = Scene::new(2).await;
    let (mut cut, mut n) = (0, 0);
    // On a slow machine many come before the answer does.
    while n < KILLS || cut == 0 {
        assert!(n < 10 * KILLS, "no kill met a stream: nothing was tried");
        n += 1;
        let prompt = format!("stream {n}");
        let output = scene.killed_within(&["run", "--stream", &prompt], LATEST * (1 + n / KILLS)).await;
        let lines: Vec<&str> = output.stdout.lines().collect();
        let (last, before) = lines.split_last().unwrap();
        assert_eq!(*last, answer(&prompt), "kill {n}: {output:?}");
        assert!(
            before.len() <= 1 && before.iter().all(|line| answer(&prompt).starts_with(line)),
            "kill {n}: {output:?}"
        );
        let told = output.stderr.contains("retrying this step; ignore the text above");
        assert!(told || before.is_empty(), "kill {n}: {output:?}");
        cut += before.len();
    }
    scene.end().await;
}

#[tokio::test]
async fn run_with_json_prints_each_event_and_each_byte_once() {
    let mut scene = Scene::new(3).await;
    for n in 0..KILLS {
        let prompt = format!("json {n}");
        let output = scene.killed(&["run", "--json", "--stream", &prompt]).await;
        let (mut seq, mut text, mut message) = (0, String::new(), Value::Null);
        for line in output.json() {
            let event = &line["event"];
            if let Some(number) = event["seq"].as_u64() {
                assert_eq!(number, seq + 1, "kill {n}: {}", output.stdout);
                seq = number;
            }
            if event["kind"] == "text_delta" {
                if message != event["message"] {
                    (message, text) = (event["message"].clone(), String::new());
                }
                assert_eq!(event["offset"], text.len(), "kill {n}: {}", output.stdout);
                text.push_str(event["text"].as_str().unwrap());
            }
        }
        assert_eq!(text, answer(&prompt), "kill {n}");
    }
    scene.end().await;
}

#[tokio::test]
async fn log_that_follows_shows_what_log_shows_afterwards_and_wait_waits() {
    let mut scene = Scene::new(4).await;
    let session = scene.cli(&["new"]).run().await.exits(0).word().to_owned();
    let log = scene.cli(&["log", "--forever", &session]).spawn().await;
    for n in 0..KILLS / 2 {
        scene.killed(&["send", &session, &format!("send {n}")]).await;
        let output = scene.killed(&["wait", &session]).await;
        assert_eq!((output.stdout, output.stderr), (String::new(), String::new()), "kill {n}");
    }
    let whole = scene.cli(&["log", &session]).run().await.exits(0).stdout;
    let client = scene.daemon.client().await;
    client.attach(&session).await;
    client.nth(&session, "turn_finished", KILLS / 2).await;
    assert_eq!(prompts(&client), KILLS / 2, "each prompt was taken once");
    let mut log = log;
    let mut seen = String::new();
    while seen.len() < whole.len() {
        let Some(line) = log.line().await else { break };
        seen.push_str(&(line + "\n"));
    }
    log.signal(Signal::INT);
    seen.push_str(&log.end().await.exits(0).stdout);
    assert_eq!(seen, whole);
    scene.end().await;
}

#[tokio::test]
async fn commands_that_change_something_change_it_once() {
    let mut scene = Scene::new(5).await;
    for n in 0..KILLS / 4 {
        let name = format!("run-no-{n}");
        scene.killed_within(&["new", "--name", &name], 15).await;
        scene.killed_within(&["run", "-d", "-s", &name, "--mode", "plan", "hello"], 25).await;
        let row = scene.sessions().await.into_iter().find(|row| row["name"] == name.as_str()).unwrap();
        assert_eq!((scene.sessions().await.len(), &row["mode"]), (n + 1, &json!("plan")));
    }
    let client = scene.daemon.client().await;
    for row in scene.sessions().await {
        let session = row["session"].as_str().unwrap();
        client.attach(session).await;
        let offered = client
            .wait("an end or an offer", |seen| {
                let of = |kind| seen.of(kind).filter(|seen| seen.session == session);
                let offer = of("notice").any(|notice| notice.str("code") == "offered");
                (offer || of("turn_finished").next().is_some()).then_some(offer)
            })
            .await;
        if offered {
            // So many kills in a row: by design it waits for a word.
            client.call("session/continue", json!({ "session": session })).await;
        }
        client.nth(session, "turn_finished", 1).await;
    }
    assert_eq!(prompts(&client), KILLS / 4);
    for n in 0..KILLS / 4 {
        scene.killed_within(&["rm", "--now", &format!("run-no-{n}")], 15).await;
        assert_eq!(scene.sessions().await.len(), KILLS / 4 - n - 1);
    }
    scene.end().await;
}

#[tokio::test]
async fn a_terminal_shows_every_word_once_and_takes_the_next_line() {
    let mut scene = Scene::new(6).await;
    let mut terminal = scene.daemon.pty(&[]);
    // So high that nothing scrolls away: what is on the screen at the end is all that was said.
    terminal.resize(HIGH, 160);
    terminal.prompts().await;
    for n in 0..KILLS / 2 {
        scene.look().await;
        terminal.line(&format!("line {n}"));
        scene.kill(LATEST).await;
        terminal.shows(&format!("line-{n}.{}", WORDS - 1)).await;
        // A line that is half typed when the daemon dies is still there, and goes where it should.
        terminal.prompts().await;
        scene.look().await;
        terminal.keys("half a ");
        scene.kill(LATEST).await;
        terminal.line(&format!("line {n}"));
        terminal.shows(&format!("half-a-line-{n}.{}", WORDS - 1)).await;
    }
    assert_eq!(terminal.leaves().await, 0);
    // The rows of an answer stand behind a gutter; a line of linger stands between two attempts. That the connection
    // was lost is said between rows too, and ends none.
    let screen = terminal.screen();
    let mut answers = vec![String::new()];
    for row in screen.lines().filter(|row| !row.starts_with("the connection to the daemon was lost")) {
        match (row.strip_prefix("  "), answers.last_mut()) {
            (Some(row), Some(last)) if !last.is_empty() => *last += &format!(" {}", row.trim_end()),
            (Some(row), Some(last)) => row.trim_end().clone_into(last),
            _ => answers.push(String::new()),
        }
    }
    answers.retain(|answer| !answer.is_empty());
    let mut said = answers.iter();
    for prompt in (0..KILLS / 2).flat_map(|n| [format!("line {n}"), format!("half a line {n}")]) {
        let whole = answer(&prompt);
        let first = said.next().unwrap_or_else(|| panic!("no answer to {prompt}:\n{screen}"));
        // One kill cuts at most one attempt; what was said of it is the beginning, and the next one is whole.
        if *first != whole {
            assert!(whole.starts_with(first.as_str()), "{prompt}: {first:?}\n{screen}");
            assert_eq!(said.next(), Some(&whole), "{prompt}\n{screen}");
        }
    }
    assert_eq!(said.next(), None, "{screen}");
    assert!(!screen.contains("writing"), "{screen}");
    scene.end().await;
}

#[tokio::test]
async fn a_question_on_the_terminal_can_be_answered_after_the_daemon_died() {
    let mut scene = Scene::new(7).await;
    let effects = ["one", "two", "three"];
    for effect in effects {
        scene.model.push([bash(&scene.daemon.effect(effect))]);
    }
    let mut terminal = scene.daemon.pty(&[]);
    terminal.prompts().await;
    terminal.line("go");
    for (n, _) in effects.iter().enumerate() {
        terminal.shows_times("this session", n + 1).await;
        scene.look().await;
        scene.kill(1).await;
        // Before, while or after it comes back.
        tokio::time::sleep(Duration::from_millis(scene.rng.below(1500) as u64)).await;
        terminal.keys("y");
    }
    terminal.shows("4 steps").await;
    assert_eq!(terminal.leaves().await, 0);
    assert_eq!(std::fs::read_to_string(scene.daemon.side_effects()).unwrap(), "one\ntwo\nthree\n");
    scene.end().await;
}

#[tokio::test]
async fn when_no_daemon_can_be_had_the_exit_code_is_5_and_says_what_to_do() {
    let scene = Scene::new(8).await;
    let mut running = scene.cli(&["run", "--json", "hello"]).spawn().await;
    running.line().await;
    let (state, (daemon, keeper)) = (scene.daemon.dirs.state(), scene.victims);
    // What stands in the way of every start. The daemon binds a socket again that has gone.
    let socket = state.join("lingerd.sock");
    linger_tests::harness::until("the socket is replaced", async || {
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
        match std::fs::create_dir(&socket) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    process::signal(keeper, Signal::STOP);
    assert!(process::kill_and_wait(daemon, linger_tests::TIMEOUT));
    process::signal(keeper, Signal::KILL);
    scene.gate.lock().unwrap().open();
    let output = running.end().await.fails_with_hint(5);
    // Its keeper may still be trying.
    let says = ["the daemon does not start", "does not accept connections"];
    assert!(says.iter().any(|what| output.stderr.contains(what)), "{}", output.stderr);
    std::fs::remove_dir(&socket).unwrap();
    scene
        .cli(&["wait", scene.cli(&["ls", "--json"]).run().await.json()[0]["session"].as_str().unwrap()])
        .run()
        .await
        .exits(0);
    scene.end().await;
}
