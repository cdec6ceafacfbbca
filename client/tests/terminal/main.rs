//! The client on a pseudo-terminal: prompts, questions answered with one key, and the ways to leave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod drafts;
#[path = "../fake/mod.rs"]
mod fake;
mod questions;
mod turns;

use std::io::{Read as _, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fake::{Connection, Fake};
use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};

/// How long to wait for what the client does.
const LIMIT: Duration = Duration::from_secs(60);

/// A client on a terminal.
struct Session {
    child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: String,
    _pty: Box<dyn portable_pty::MasterPty + Send>,
}

impl Session {
    fn start(fake: &Fake, arguments: &[&str]) -> Self {
        Self::start_with(fake, arguments, &[])
    }

    /// As `start`, with more variables.
    fn start_with(fake: &Fake, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let pty = native_pty_system().openpty(PtySize { rows: 30, cols: 100, ..PtySize::default() }).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_linger"));
        command.args(arguments);
        command.env_clear();
        for (name, value) in [("HOME", fake.home()), ("LINGER_SOCKET", fake.socket()), ("XDG_STATE_HOME", fake.home())]
        {
            command.env(name, value);
        }
        for (name, value) in [("TERM", "xterm"), ("LANG", "C.UTF-8"), ("NO_COLOR", "1"), ("PATH_WE_WANT", "/bin")] {
            command.env(name, value);
        }
        variables.iter().for_each(|(name, value)| command.env(name, value));
        command.cwd(fake.home());
        let child = pty.slave.spawn_command(command).unwrap();
        let mut reader = pty.master.try_clone_reader().unwrap();
        let input = pty.master.take_writer().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut chunk) {
                if sender.send(chunk[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, input, output, screen: String::new(), _pty: pty.master }
    }

    /// Has the daemon begin to work ([`at_work`]).
    fn begin_work(&mut self) {
        self.see("> ");
        self.press("test\r");
        self.see("work");
    }

    /// Leaves at an open prompt.
    fn leave(mut self) {
        self.press("\u{4}");
        assert_eq!(self.end(), 0);
    }

    /// Waits until `text` has appeared after what was waited for before.
    fn see(&mut self, text: &str) {
        self.take_until(text);
    }

    /// As `see`; what has appeared, with `text` at its end.
    fn take_until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.screen.find(text) {
                return self.screen.drain(..at + text.len()).collect();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(chunk) => self.screen.push_str(&String::from_utf8_lossy(&chunk)),
                Err(_) => panic!("wanted {text:?}, the screen has {:?}", self.screen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Waits for the end; the exit code.
    fn end(mut self) -> u32 {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            assert!(Instant::now() < deadline, "it does not end; the screen has {:?}", self.screen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A row of `session/list`, of a session so large that what happened before its last turn is not read over a second
/// connection, and nothing happened since that began.
fn row(id: &str, state: &str, stop_reason: Option<&str>) -> Value {
    let mut row = fake::row(id, state, stop_reason);
    (row["size"], row["cursor"]) = (json!(1 << 30), row["turn_cursor"].clone());
    row
}

/// Attached to an idle session `s1`.
fn attached(daemon: &mut Connection) {
    daemon.hello();
    daemon.answer("session/list", json!([row("s1", "idle", Some("end_turn"))]));
    assert_eq!(daemon.answer("session/attach", json!({"cursor": "7"}))["after"], "3");
    daemon.message(7, "m1", "");
    daemon.event("7", json!({"kind": "caught_up"}));
}

/// A turn for the prompt that the client sends.
fn turn(daemon: &mut Connection, text: &str) {
    turn_at(daemon, 9, text);
}

fn turn_at(daemon: &mut Connection, seq: u64, text: &str) {
    assert_eq!(daemon.answer("session/prompt", json!({"prompt": "p1", "seq": seq - 1}))["content"], text);
    daemon.event("9", json!({"kind": "turn_started", "seq": seq, "turn": "t1", "prompt": "p1"}));
}

/// Attached, and at work on the prompt `test`.
fn at_work(daemon: &mut Connection) {
    attached(daemon);
    turn(daemon, "test");
    daemon.delta("9+m2.0.5", "m2", 0, "work ");
}

/// The turn under way is cancelled, and so many prompts wait.
fn cancelled(daemon: &mut Connection, seq: u64, queued: u32) {
    daemon.end(seq, "cancelled", None);
    let mut row = row("s1", "idle", Some("cancelled"));
    row["queued"] = json!(queued);
    daemon.answer("session/list", json!([row]));
}

#[test]
fn a_prompt_is_answered_and_ctrl_d_leaves() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        // What is no command of the client's may be one of a file.
        daemon.answer("command/list", json!([]));
        daemon.answer("skill/list", json!([]));
        turn(daemon, "say \nit");
        daemon.delta("9+m2.0.8", "m2", 0, "Good \u{1b}day");
        daemon.message(10, "m2", "Good \u{1b}day");
        daemon.end(11, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &[]);
    session.see("session s1 in /w, m (ask)");
    session.see("> ");
    session.press("/frob\r");
    session.see("unknown command /frob");
    session.see("> ");
    session.press("say \\\rit\r");
    session.see("Good ␛day\r\n");
    session.see("1 step");
    session.see("> ");
    session.press("\u{4}");
    session.see("detached; attach again with `linger attach s1`");
    assert_eq!(session.end(), 0);
    fake.finish();
    let state = fake.home().join("linger");
    let history = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let history = history.into_iter().find(|path| path.to_string_lossy().contains("/history-w-")).unwrap();
    assert!(std::fs::read_to_string(&history).unwrap().contains("/frob"));
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(history).unwrap()) & 0o777, 0o600);
}

#[test]
fn run_on_a_terminal_asks_and_streams() {
    let mut fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.question(4);
        assert_eq!(daemon.answer("question/answer", json!({"outcome": "won"}))["answer"], "allow_once");
        daemon.delta("5+m1.0.4", "m1", 0, "done");
        daemon.message(6, "m1", "done");
        daemon.end(7, "max_tokens", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["run", "x"]);
    session.see("n no");
    session.press("y");
    session.see("done");
    session.see("stopped: the answer reached its token limit");
    assert_eq!(session.end(), 1);
    fake.finish();
}

#[test]
fn an_answer_that_fits_a_schema_cannot_steer_the_terminal() {
    let evil = "a\u{9b}2Jb\u{7f}c\u{202e}d";
    let mut fake = Fake::one(move |daemon| {
        daemon.new_run();
        let end = json!({"kind": "turn_finished", "seq": 4, "turn": "t1", "stop_reason": "end_turn", "usage": {}, "steps": 1,
                         "answer": {"city": evil}});
        daemon.event("4", end);
    });
    std::fs::write(fake.home().join("schema.json"), r#"{"type": "object"}"#).unwrap();
    let mut session = Session::start(&fake, &["run", "--schema", "schema.json", "x"]);
    session.see("{\"city\":\"a<009b>2Jb␡c<202e>d\"}\r\n");
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn a_daemon_that_is_slow_to_answer_is_waited_for_with_a_word() {
    let (seen, is_seen) = std::sync::mpsc::channel();
    let fake = Fake::one(move |daemon| {
        is_seen.recv().unwrap();
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None)]));
    });
    let mut session = Session::start(&fake, &["ls"]);
    session.see(&format!("waiting for the daemon at {} …\r\n", fake.socket().display()));
    seen.send(()).unwrap();
    session.see("s1       idle");
}
