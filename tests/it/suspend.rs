//! Ctrl-Z and `fg`: a shell uses the terminal in between, and has it as shells do.

use std::path::Path;

use linger_tests::harness::{Daemon, Pty, programs};
use linger_tests::model::{Gate, ModelServer, Reply};

use crate::bash;

const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";

/// `linger` with `arguments` under a shell that takes it up again, once for each line that it reads.
fn under_a_shell(daemon: &Daemon, arguments: &str) -> Pty {
    let resume = "stty sane; echo it stands still; read line; fg";
    let script = format!("set -m; \"$0\" {arguments}; {resume}; {resume}; echo \"it exits $?\"");
    let linger = &programs().client.display().to_string();
    Pty::open(Path::new("/bin/bash"), &daemon.env(true), &daemon.workspace(), &["-c", &script, linger])
}

#[tokio::test]
async fn after_fg_a_question_is_asked_again_and_a_key_answers_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("all done")]);
    let mut terminal = under_a_shell(&daemon, "run go");
    for n in 1..=2 {
        terminal.shows_times("this session", n).await;
        terminal.keys(CTRL_Z);
        terminal.shows_times("it stands still", n).await;
        terminal.line("");
    }
    terminal.shows_times("this session", 3).await;
    terminal.keys("y");
    terminal.shows("all done").await;
    terminal.shows("it exits 0").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn after_fg_there_is_a_prompt_and_control_d_leaves_a_turn() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = under_a_shell(&daemon, "");
    terminal.shows("> ").await;
    terminal.keys(CTRL_Z);
    terminal.shows("it stands still").await;
    let prompts = terminal.text().matches("> ").count();
    terminal.line("");
    terminal.shows_times("> ", prompts + 1).await;
    terminal.line("hello");
    terminal.shows("  Good").await;
    terminal.keys(CTRL_Z);
    terminal.shows_times("it stands still", 2).await;
    terminal.line("");
    linger_tests::harness::until("a keyboard that is set again", async || (!terminal.echoes()).then_some(())).await;
    terminal.keys(CTRL_D);
    terminal.shows("detached; the work continues").await;
    terminal.shows("it exits 0").await;
    gate.open();
    daemon.check(&[], &model);
}
