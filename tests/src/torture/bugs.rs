//! Planted bugs: for each invariant a scene that would show it broken, played with the bug and without.
//!
//! What a scene shows goes through the one [`check`]; a scene is worth something only if it is clean without its bug.
//! Nothing here may hang or panic where a bug makes the daemon do what no daemon should: what never comes is waited for no
//! longer than [`PATIENCE`].

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::json;

use crate::check::{Trace, Violation, check};
use crate::harness::{Client, Daemon, Setup, comes_true, process};
use crate::model::{Gate, ModelServer, Reply};

/// The bugs, by the invariant that they break.
pub(super) const ALL: [&str; 15] =
    ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I9 choice", "I10", "I11", "I12", "I13", "I14"];

/// The invariant of a scene; some have two.
pub(super) fn invariant_of(scene: &str) -> &str {
    scene.split(' ').next().unwrap_or_default()
}

/// How long something is waited for that a bug may keep from coming.
const PATIENCE: Duration = Duration::from_secs(8);

/// How many prompts of how many bytes make a long history: each is in two events.
const PROMPTS: usize = 10;
const PROMPT: usize = 1 << 20;

/// What the check finds in a scene, with its bug or without.
pub(super) async fn play(invariant: &str, planted: bool) -> Vec<Violation> {
    let model = ModelServer::start();
    let bug = if planted { invariant_of(invariant) } else { "" };
    let mode = if invariant == "I9" { "ask" } else { "auto" };
    let env = vec![("LINGER_BUG".to_owned(), bug.to_owned())];
    let daemon = Daemon::prepare(&model, Setup { mode, env, faulty: true, ..Setup::default() });
    daemon.launch().await;
    let scene = Scene { daemon: &daemon, model: &model };
    let trace = match invariant {
        "I1" => scene.a_write_fails().await,
        "I2" => scene.a_turn().await,
        "I3" => scene.back_in_mid_message().await,
        "I4" => scene.two_calls().await,
        "I5" => scene.a_prompt_sent_twice().await,
        "I6" => scene.killed_with_nobody_there().await,
        "I7" => scene.killed_while_a_call_runs().await,
        "I8" => scene.cancelled_while_a_call_runs().await,
        "I9" => scene.two_answers().await,
        "I9 choice" => scene.two_choices().await,
        "I10" => scene.a_long_history().await,
        "I11" => scene.a_call_that_shows_its_environment().await,
        "I12" => scene.a_model_that_writes_escapes().await,
        "I13" => scene.cancelled_in_mid_stream().await,
        _ => scene.a_damaged_database().await,
    };
    // What a bug did to the model's requests is in the trace.
    model.forgive();
    check(&trace)
}

struct Scene<'a> {
    daemon: &'a Daemon,
    model: &'a ModelServer,
}

/// Waits for something that may never come; whether it did.
async fn comes<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE, future).await.ok()
}

fn bash(command: &str) -> Reply {
    Reply::tool("bash", json!({ "command": command }))
}

impl Scene<'_> {
    fn trace(&self, clients: &[&Client]) -> Trace {
        self.daemon.trace(clients, self.model)
    }

    async fn a_turn(self) -> Trace {
        self.model.push([Reply::text("Good day")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "hello").await;
        comes(client.first(&session, "turn_finished")).await;
        self.trace(&[&client])
    }

    async fn a_write_fails(self) -> Trace {
        self.model.push([bash(&self.daemon.effect("once")), Reply::text("done")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        let database = rusqlite::Connection::open(self.daemon.dirs.database()).expect("the database");
        let refuse = "CREATE TRIGGER refused BEFORE INSERT ON event WHEN NEW.kind = 'tool_started' BEGIN SELECT RAISE(ABORT, 'refused'); END";
        database.execute_batch(refuse).expect("a trigger");
        client.prompt(&session, "go").await;
        comes_true(PATIENCE, || self.daemon.log().contains("write failed"));
        database.execute_batch("DROP TRIGGER refused").expect("no trigger");
        comes(client.first(&session, "turn_finished")).await;
        self.trace(&[&client])
    }

    async fn back_in_mid_message(self) -> Trace {
        let gate = Gate::new();
        self.model.push([Reply::text("Good d").gate(&gate).and_text("ay to you")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "hello").await;
        client.sees_text(&session, "Good d").await;
        let cursor = client.cursor(&session);
        let before = client.hang_up();
        gate.open();
        let back = self.daemon.client().await;
        until_idle(&back, &session).await;
        back.continues(before);
        back.attach_after(&session, &cursor).await;
        comes(back.first(&session, "turn_finished")).await;
        self.trace(&[&back])
    }

    async fn two_calls(self) -> Trace {
        std::fs::write(self.daemon.workspace().join("notes.txt"), "a note\n").expect("a file");
        let read = json!({ "path": "notes.txt" });
        let both = Reply::tool("ls", json!({ "path": "." })).and_tool("read", read);
        self.model.push([both, Reply::text("done")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "look").await;
        comes(client.first(&session, "turn_finished")).await;
        self.trace(&[&client])
    }

    async fn a_prompt_sent_twice(self) -> Trace {
        self.model.push([Reply::text("one"), Reply::text("two")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        for _ in 0..2 {
            client.call("session/prompt", json!({ "session": session, "content": "hello", "key": "k" })).await;
            until_idle(&client, &session).await;
        }
        comes(client.first(&session, "turn_finished")).await;
        self.trace(&[&client])
    }

    async fn killed_with_nobody_there(self) -> Trace {
        let gate = Gate::new();
        self.model.push([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "hello").await;
        client.sees_text(&session, "Good d").await;
        self.daemon.kill_daemon().await;
        let late = self.daemon.client().await;
        until_idle(&late, &session).await;
        self.trace(&[&client])
    }

    async fn killed_while_a_call_runs(self) -> Trace {
        self.model.push([bash(&format!("{}; sleep 2", self.daemon.effect("once"))), Reply::text("done")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "go").await;
        let effects = self.daemon.side_effects();
        assert!(comes_true(crate::TIMEOUT, || effects.exists()), "the call runs");
        self.daemon.kill_daemon().await;
        let back = self.daemon.client().await;
        back.attach(&session).await;
        comes(back.first(&session, "turn_finished")).await;
        self.trace(&[&client, &back])
    }

    async fn cancelled_while_a_call_runs(self) -> Trace {
        self.model.push([bash("sleep 651 & sleep 652; true")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "go").await;
        let pid = self.daemon.pid().await;
        let sleeps = || {
            let all = process::descendants(pid).into_iter().map(|process| process.command);
            all.filter(|command| command.starts_with("sleep 65")).collect::<Vec<_>>()
        };
        assert!(comes_true(crate::TIMEOUT, || sleeps().len() == 2), "the call runs");
        client.call("session/cancel", json!({ "session": session })).await;
        comes(client.first(&session, "turn_finished")).await;
        comes_true(PATIENCE / 2, || sleeps().is_empty());
        Trace { left: sleeps(), ..self.trace(&[&client]) }
    }

    async fn two_answers(self) -> Trace {
        self.model.push([bash(&format!("{}; sleep 2", self.daemon.effect("once"))), Reply::text("done")]);
        let (one, two) = (self.daemon.named("one").await, self.daemon.named("two").await);
        let session = one.session().await;
        two.attach(&session).await;
        one.prompt(&session, "go").await;
        let asked = one.first(&session, "permission_requested").await;
        let params = json!({ "permission": asked.str("permission"), "decision": "allow_once" });
        for client in [&one, &two] {
            // The second is refused, or should be.
            let _either = client.request("permission/answer", params.clone()).await;
        }
        comes(one.first(&session, "turn_finished")).await;
        self.trace(&[&one, &two])
    }

    async fn two_choices(self) -> Trace {
        let asks = |which: &str| json!({ "question": which, "options": ["left", "right"] });
        // A step is open, and its questions with it, until all its calls have a result.
        self.model
            .push([Reply::tool("ask_user", asks("one?")).and_tool("ask_user", asks("two?")), Reply::text("done")]);
        let (one, two) = (self.daemon.named("one").await, self.daemon.named("two").await);
        let session = one.session().await;
        two.attach(&session).await;
        one.prompt(&session, "go").await;
        let asked = [one.nth(&session, "question_asked", 1).await, one.nth(&session, "question_asked", 2).await];
        let [first, last] = asked.map(|asked| asked.str("question").to_owned());
        for (client, question, answer) in [(&one, &first, "left"), (&two, &first, "right"), (&one, &last, "left")] {
            let params = json!({ "question": question, "answer": answer });
            // The second is refused, or should be.
            let _either = client.request("question/answer", params).await;
        }
        comes(one.first(&session, "turn_finished")).await;
        self.trace(&[&one, &two])
    }

    async fn a_long_history(self) -> Trace {
        self.model.otherwise(|_| Reply::text("I see"));
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.turn(&session, "hello").await;
        let pid = self.daemon.pid().await;
        let before = process::memory(pid).0;
        for _ in 0..PROMPTS {
            client.turn(&session, &"word ".repeat(PROMPT / 5)).await;
        }
        // What a turn takes is given back a moment later.
        comes_true(PATIENCE, || process::memory(pid).0 < before + PROMPT as u64 / 1024);
        Trace { grown: Some((before, process::memory(pid).0)), ..self.trace(&[&client]) }
    }

    async fn a_call_that_shows_its_environment(self) -> Trace {
        self.model.push([bash("env"), Reply::text("done")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "go").await;
        comes(client.first(&session, "turn_finished")).await;
        self.trace(&[&client])
    }

    async fn a_model_that_writes_escapes(self) -> Trace {
        self.model.push([Reply::text("a \u{1b}[2J\u{1b}]0;title\u{7} b \u{9b}31m\r\n")]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "go").await;
        comes(client.first(&session, "turn_finished")).await;
        let log = self.daemon.cli(&["log", &session]).env("NO_COLOR", "1").run().await;
        assert!(log.stdout.contains(" b "), "the message is printed: {log:?}");
        Trace { printed: vec![log.stdout, log.stderr], ..self.trace(&[&client]) }
    }

    async fn cancelled_in_mid_stream(self) -> Trace {
        let gate = Gate::new();
        self.model.push([Reply::text("Good d").gate(&gate)]);
        let client = self.daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "hello").await;
        client.sees_text(&session, "Good d").await;
        let (began, waited) = (UNIX_EPOCH.elapsed().unwrap_or_default(), Instant::now());
        client.call("session/cancel", json!({ "session": session })).await;
        // When it ended, and not when this was told; if it does not, how long that is.
        let took = match comes(client.first(&session, "turn_finished")).await {
            Some(finished) => finished.after(began),
            None => waited.elapsed(),
        };
        Trace { cancels: vec![took], ..self.trace(&[&client]) }
    }

    async fn a_damaged_database(self) -> Trace {
        self.daemon.terminate();
        std::fs::write(self.daemon.dirs.database(), "no database at all\n".repeat(500)).expect("the database");
        if !self.daemon.try_launch(&[]).await {
            // It has ended by itself: there is nothing else to see.
            self.daemon.ended();
            return Trace { refused: vec!["its database is damaged".to_owned()], ..Trace::default() };
        }
        self.a_turn().await
    }
}

/// Waits until the session has nothing to do, without attaching to it; not for ever.
async fn until_idle(client: &Client, session: &str) {
    let rest = async {
        loop {
            let rows = client.call("session/list", json!({ "matching": session })).await;
            if rows[0]["state"] == "idle" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    comes(rest).await;
}
