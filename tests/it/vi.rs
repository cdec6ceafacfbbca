//! Lines that are edited with vi's keys: what Esc does in each mode, and which keys answer a question among vi's commands.

use std::fs;

use linger_tests::harness::{Daemon, Pty, programs};
use linger_tests::model::{Gate, ModelServer, Reply};

use crate::bash;

const ESC: &str = "\x1b";
const ALT_S: &str = "\x1bs";

/// `linger` with vi's keys, ready for a line.
async fn open(daemon: &Daemon, args: &[&str]) -> Pty {
    let inputrc = daemon.workspace().join("inputrc");
    fs::write(&inputrc, "set editing-mode vi\n").unwrap();
    let env = daemon.env(true).into_iter().chain([("INPUTRC".to_owned(), inputrc.display().to_string())]);
    let terminal = Pty::open(&programs().client, &env.collect::<Vec<_>>(), &daemon.workspace(), args);
    terminal.prompts().await;
    terminal
}

async fn has(terminal: &Pty, row: &str) -> Vec<String> {
    terminal.until_rows(&format!("a row '{row}'"), |rows| rows.iter().any(|it| it == row)).await
}

/// Waits until the status above this prompt ends so.
async fn status(terminal: &Pty, end: &str, prompt: &str) {
    let fits = |rows: &[String]| {
        rows.last().is_some_and(|row| row == prompt) && rows.iter().nth_back(1).is_some_and(|row| row.ends_with(end))
    };
    terminal.until_rows(&format!("the status ends in '{end}' above '{prompt}'"), fits).await;
}

#[tokio::test]
async fn esc_leaves_vis_insert_mode_and_stops_in_command_mode_and_the_status_says_which() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("one ").gate(&gate), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, &[]).await;
    terminal.line("go");
    status(&terminal, " · Esc Esc stops", ">").await;
    terminal.keys("kept");
    status(&terminal, " · Esc Esc stops", "> kept").await;
    terminal.keys(ESC);
    status(&terminal, " · Esc stops", "> kept").await;
    // Back to insert mode: the turn runs on.
    for insert in ["a", "i", "I", "A"] {
        terminal.keys(insert);
        status(&terminal, " · Esc Esc stops", "> kept").await;
        terminal.keys(ESC);
        status(&terminal, " · Esc stops", "> kept").await;
    }
    assert!(!terminal.screen().contains("cancelled"), "{}", terminal.screen());
    terminal.keys(ESC);
    has(&terminal, "cancelled").await;
    terminal.keys("\r");
    has(&terminal, "  two").await;
    assert_eq!(model.requests()[1].last_words(), "kept");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn alt_s_steers_in_both_modes_of_vi() {
    let gate = Gate::new();
    let model = ModelServer::with([
        Reply::text("working ").gate(&gate).and_tool("bash", serde_json::json!({ "command": "true" })),
        Reply::text("steered"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let mut terminal = open(&daemon, &[]).await;
    terminal.line("go");
    status(&terminal, " · Esc Esc stops", ">").await;
    terminal.keys(&format!("this{ALT_S}"));
    has(&terminal, "> this").await;
    status(&terminal, " · Esc Esc stops", ">").await;
    terminal.keys("that");
    terminal.keys(ESC);
    status(&terminal, " · Esc stops", "> that").await;
    terminal.keys(ALT_S);
    has(&terminal, "> that").await;
    gate.open();
    has(&terminal, "  steered").await;
    let sent = model.requests()[1].messages();
    assert!(sent.contains("this") && sent.contains("that"), "{sent}");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_digit_answers_a_choice_among_vis_commands_and_is_a_count_where_more_follows() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("the plan ").gate(&gate), Reply::text("again").gate(&gate)]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, &["--mode", "plan"]).await;
    terminal.line("go");
    status(&terminal, " · Esc Esc stops", ">").await;
    terminal.keys(ESC);
    status(&terminal, " · Esc stops", ">").await;
    gate.open();
    has(&terminal, "press a number to answer").await;
    // Two keys are no answer.
    terminal.keys("3k");
    terminal.until_rows("the line before", |rows| rows.last().is_some_and(|row| row == "> go")).await;
    terminal.keys("dd");
    terminal.prompts().await;
    terminal.keys("3");
    let rows = has(&terminal, "not_yet").await;
    assert!(!rows.iter().any(|row| row.contains("arg:")), "{rows:#?}");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_letter_answers_a_permission_among_vis_commands() {
    let gate = Gate::new();
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let call = serde_json::json!({ "command": daemon.effect("once") });
    model.push([
        Reply::text("wait ").gate(&gate).and_tool("bash", call),
        bash(&daemon.effect("twice")),
        Reply::text("all done"),
    ]);
    let mut terminal = open(&daemon, &[]).await;
    terminal.line("go");
    status(&terminal, " · Esc Esc stops", ">").await;
    terminal.keys(ESC);
    status(&terminal, " · Esc stops", ">").await;
    gate.open();
    terminal.until_rows("a question", |rows| rows.iter().any(|row| row.starts_with("y once"))).await;
    terminal.keys("y");
    terminal.until_rows("another", |rows| rows.iter().filter(|row| row.starts_with("y once")).count() == 2).await;
    terminal.keys("n");
    has(&terminal, "  all done").await;
    assert_eq!(fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}
