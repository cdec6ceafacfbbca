//! Ten typical moments of an interactive session, as text: `screens/*.txt` are what an emulated terminal shows. A screen that is
//! another than its file fails; `UPDATE_SCREENS=1 cargo test -p linger --test screens` writes the files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod fake;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fake::{Connection, Fake};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};

const SIZE: PtySize = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };

/// How long a screen is watched that is written.
const SETTLED: Duration = Duration::from_millis(700);

/// How long to wait for what a screen is to have.
const LIMIT: Duration = Duration::from_secs(60);

/// Keys, and the row that shows that they were taken; it may end in `*`.
type Step = (&'static str, &'static str);

/// Plays a moment, and compares its screen with the file.
#[track_caller]
fn screen(name: &str, script: impl FnOnce(&mut Connection) + Send + 'static, steps: &[Step]) {
    let (home, is_home) = channel::<std::path::PathBuf>();
    let mut fake = Fake::one(move |daemon| {
        attached(daemon, &is_home.recv().unwrap());
        script(daemon);
        daemon.expect_end();
    });
    home.send(fake.home()).unwrap();
    for file in ["src/main.rs", "src/model.rs", "notes.md"] {
        let path = fake.home().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "one\ntwo\nthree\n").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("screens").join(format!("{name}.txt"));
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let is_update = std::env::var_os("UPDATE_SCREENS").is_some();
    let shown = play(&fake, steps, (!is_update).then_some(&kept));
    fake.finish();
    if is_update {
        std::fs::write(&path, &shown).unwrap();
        return;
    }
    assert_eq!(shown, kept, "the screen of {name} is another; UPDATE_SCREENS=1 writes it");
}

/// The screen after the steps, once it is as `kept`; without that, once nothing more comes.
fn play(fake: &Fake, steps: &[Step], kept: Option<&String>) -> String {
    let pty = native_pty_system().openpty(SIZE).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_linger"));
    command.env_clear();
    for (name, value) in [("HOME", fake.home()), ("LINGER_SOCKET", fake.socket()), ("XDG_STATE_HOME", fake.home())] {
        command.env(name, value);
    }
    for (name, value) in [("TERM", "xterm"), ("LANG", "C.UTF-8"), ("PATH_WE_WANT", "/bin"), ("SHELL", "/bin/sh")] {
        command.env(name, value);
    }
    command.cwd(fake.home());
    let mut child = pty.slave.spawn_command(command).unwrap();
    let mut reader = pty.master.try_clone_reader().unwrap();
    let mut input = pty.master.take_writer().unwrap();
    let (sender, output) = channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = reader.read(&mut chunk) {
            if sender.send(chunk[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut terminal = vt100::Parser::new(SIZE.rows, SIZE.cols, 0);
    for (keys, row) in [("", "> *")].iter().chain(steps) {
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).unwrap();
        until(&mut terminal, &output, row);
    }
    // The rows above the prompt are drawn a moment after what they tell of.
    let deadline = Instant::now() + kept.map_or(SETTLED, |_| LIMIT);
    let mut shown = rows(&terminal).join("\n") + "\n";
    while kept != Some(&shown) {
        let Ok(chunk) = output.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { break };
        terminal.process(&chunk);
        shown = rows(&terminal).join("\n") + "\n";
    }
    child.kill().unwrap();
    child.wait().unwrap();
    shown
}

fn until(terminal: &mut vt100::Parser, output: &Receiver<Vec<u8>>, row: &str) {
    let deadline = Instant::now() + LIMIT;
    let is = |shown: &String| match row.strip_suffix('*') {
        Some(begin) => format!("{shown} ").starts_with(begin),
        None => shown == row,
    };
    while !rows(terminal).iter().any(is) {
        match output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(chunk) => terminal.process(&chunk),
            Err(_) => panic!("no row {row:?}; the screen has\n{}", rows(terminal).join("\n")),
        }
    }
}

/// The rows of the screen; what the clock says is left out of the status.
fn rows(terminal: &vt100::Parser) -> Vec<String> {
    let is_time = |part: &&str| !part.chars().all(|c| c.is_ascii_digit() || " hmins".contains(c));
    let screen = terminal.screen();
    let rows = screen.rows(0, SIZE.cols).map(|row| {
        if row.starts_with("… ") {
            row.trim_end().split(" · ").filter(is_time).collect::<Vec<_>>().join(" · ")
        } else {
            row.trim_end().to_owned()
        }
    });
    let mut rows: Vec<String> = rows.collect();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}

fn now() -> u64 {
    #[allow(clippy::disallowed_methods)] // What the fake daemon says of the time.
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Attached to an idle session `s1`, so large that what happened before its last turn is not read over a second connection,
/// and nothing happened since that began.
fn attached(daemon: &mut Connection, cwd: &Path) {
    daemon.hello();
    let mut row = fake::row("s1", "idle", None);
    row["cursor"] = row["turn_cursor"].clone();
    (row["size"], row["model"], row["cwd"]) = (json!(1 << 30), json!("anthropic/large"), json!(cwd));
    daemon.answer("session/list", json!([row]));
    daemon.answer("session/attach", json!({"cursor": "7"}));
    daemon.event("7", json!({"kind": "caught_up"}));
}

/// A turn for the prompt that the client sends.
fn turn(daemon: &mut Connection) -> Value {
    let sent = daemon.answer("session/prompt", json!({"prompt": "p1", "seq": 8}));
    accepted(daemon, 8, "p1", "");
    daemon.event("9", json!({"kind": "turn_started", "seq": 9, "at": now(), "turn": "t1", "prompt": "p1"}));
    sent
}

fn accepted(daemon: &mut Connection, seq: u64, prompt: &str, text: &str) {
    let by = daemon.client().to_owned();
    let content = json!([{"type": "text", "text": text}]);
    let event =
        json!({"kind": "prompt_accepted", "seq": seq, "prompt": prompt, "content": content, "when": "queue", "by": by});
    daemon.event(&seq.to_string(), event);
}

fn tool(daemon: &mut Connection, seq: u64, action: &str, output: &str, code: i32) {
    let started = json!({"kind": "tool_started", "seq": seq, "at": now(), "turn": "t1", "call_id": "c1", "tool": "bash", "action": action});
    daemon.event(&seq.to_string(), started);
    let finished = json!({"kind": "tool_finished", "seq": seq + 1, "turn": "t1", "call_id": "c1", "outcome": "ran", "ms": 3100,
        "is_error": code != 0, "exit": {"code": code}, "content": [{"type": "text", "text": output}]});
    daemon.event(&(seq + 1).to_string(), finished);
}

const ANSWER: &str = "## Summary\n\nI fixed the **off-by-one** in `parse_header()`; the end of a field is now the byte before the line end, \
as RFC 9110 has it.\n\n- a test for the last field\n- the old test counted the line end\n\n| File | Lines |\n|---|--:|\n| src/main.rs | 3 |\n\n";

#[test]
fn an_answer_is_drawn_and_its_cost_is_below_it() {
    let script = |daemon: &mut Connection| {
        turn(daemon);
        daemon.delta("9+m2.0.8", "m2", 0, ANSWER);
        daemon.message(10, "m2", ANSWER);
        daemon.end(11, "end_turn", None);
    };
    screen("answer", script, &[("what did you change?\r", "0 tokens in*")]);
}

#[test]
fn a_turn_streams_above_the_line_that_is_being_typed() {
    let script = |daemon: &mut Connection| {
        turn(daemon);
        daemon.delta("9+m2.0.8", "m2", 0, "Let me look at the parser first, and at what the tests say about ");
    };
    screen("streaming", script, &[("fix the parser\r", "  Let me look*"), ("and the tes", "> and the tes*")]);
}

#[test]
fn a_failed_command_shows_its_end() {
    let script = |daemon: &mut Connection| {
        turn(daemon);
        let lines: String = (1..=20).map(|n| format!("test case_{n} ... ok\n")).collect();
        tool(daemon, 10, "cargo test", &format!("{lines}test case_21 ... FAILED\n"), 101);
    };
    screen("failed", script, &[("run the tests\r", "    test case_21 ... FAILED")]);
}

#[test]
fn a_question_shows_what_would_run_and_its_keys() {
    let script = |daemon: &mut Connection| {
        turn(daemon);
        daemon.question(10);
    };
    screen("question", script, &[("run the tests\r", "y once*"), ("?", "v  show all*")]);
}

#[test]
fn tab_lists_commands_and_what_they_do() {
    let script = |daemon: &mut Connection| {
        daemon.answer("command/list", json!([]));
        daemon.answer("skill/list", json!([]));
    };
    screen("commands", script, &[("/re\t", "  /rename*"), ("\t", " ▸/redo*")]);
}

#[test]
fn tab_lists_files_and_a_file_goes_with_the_line() {
    let script = |daemon: &mut Connection| {
        let sent = turn(daemon);
        assert_eq!(sent["content"][1]["text"], "[file src/main.rs, lines 2 to 3 of 3]\n2\ttwo\n3\tthree\n");
    };
    let steps = [("review @src/m\t", "  src/main.rs*"), ("a\t", "> review @src/main.rs*")];
    screen("files", script, &[steps[0], steps[1], (":2-3\r", "with file src/main.rs*"), ("@src/m\t", "> @src/m*")]);
}

#[test]
fn a_list_is_narrowed_by_letters() {
    let script = |daemon: &mut Connection| {
        let model = |name: &str, window: u64| json!({"model": name, "kind": "x", "ready": true, "context_window": window, "default": false});
        let rows = [("anthropic/large", 200_000), ("anthropic/small", 200_000), ("openai/large", 400_000)];
        daemon.answer("model/list", json!(rows.map(|(name, window)| model(name, window))));
    };
    screen(
        "models",
        script,
        &[("/model\r", "  anthropic/small*"), ("lar", "model> lar*"), ("\x1b[B", " ▸openai/large*")],
    );
}

#[test]
fn a_paste_is_short_and_a_command_of_ones_own_is_shown() {
    let paste: &str = Box::leak(format!("see \x1b[200~{}\x1b[201~", "a line\r".repeat(42)).into_boxed_str());
    screen(
        "paste",
        |_| {},
        &[("!printf 'one\\ntwo\\n'; exit 3\r", "exit code 3; its output*"), (paste, "> see [42 lines pasted]*")],
    );
}

#[test]
fn a_prompt_is_queued_while_a_turn_runs() {
    let script = |daemon: &mut Connection| {
        turn(daemon);
        daemon.delta("9+m2.0.8", "m2", 0, "I am still at it. ");
        daemon.answer("session/prompt", json!({"prompt": "p2", "seq": 10}));
        accepted(daemon, 10, "p2", "and then commit it");
    };
    let steps =
        [("fix the parser\r", "  I am still*"), ("and then commit it\r", "queued 1;*"), ("/queue\r", "1 and then*")];
    screen("queued", script, &steps);
}

#[test]
fn help_has_the_commands_and_the_keys() {
    screen("help", |_| {}, &[("/help\r", "Ctrl-D, exit, quit or :q leave*")]);
}

#[test]
fn the_readme_shows_three_of_these_screens_as_they_are() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let readme = read("../README.md");
    let (_, rest) = readme.split_once("```text\n").expect("a block of screens");
    let (block, _) = rest.split_once("```").expect("its end");
    let kept: Vec<String> = ["streaming", "files", "models"].map(|name| read(&format!("screens/{name}.txt"))).to_vec();
    assert_eq!(block, kept.join("\n"));
}
