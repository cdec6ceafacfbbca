//! What a person meets: the loop in a terminal, its keys, and two terminals on one session.

use std::path::Path;

use linger_tests::TIMEOUT;
use linger_tests::harness::{Daemon, Pty, comes_true, process, programs};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::bash;

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

/// What the line under a permission's question says: from then on keys are answers.
const QUESTION: &str = "this session";

/// `linger` in a terminal, ready for a line.
async fn open(daemon: &Daemon) -> Pty {
    let terminal = daemon.pty(&[]);
    terminal.prompts().await;
    terminal
}

#[tokio::test]
async fn the_loop_takes_a_line_and_streams_the_answer() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay to you"), Reply::text("and again")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("hello");
    // A word is shown when it is complete.
    terminal.shows("  Good").await;
    assert!(!terminal.text().contains("ay to you"));
    gate.open();
    terminal.shows("Good day to you").await;
    terminal.line("more");
    terminal.shows("and again").await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_command_in_the_background_is_named_when_the_turn_ends_and_by_status() {
    let command = json!({ "command": "sleep 600; true", "background": true });
    let model = ModelServer::with([Reply::tool("bash", command), Reply::text("It runs.")]);
    let daemon = Daemon::auto(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("begin");
    terminal.shows("It runs.").await;
    terminal.shows("in the background: ").await;
    terminal.line("/status");
    terminal.shows("background").await;
    terminal.shows("sleep 600; true, for").await;
    assert_eq!(terminal.leaves().await, 0);
}

#[tokio::test]
async fn a_word_of_another_program_is_asked_about_before_it_costs_anything() {
    let model = ModelServer::with([Reply::text("I reviewed.")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = daemon.pty(&["review"]);
    terminal.shows("send it to the model as a prompt?").await;
    terminal.line("n");
    assert_eq!(terminal.exits().await, 2);
    assert_eq!(model.request_count(), 0);
    let mut terminal = daemon.pty(&["review"]);
    terminal.shows("send it to the model as a prompt?").await;
    terminal.line("y");
    terminal.shows("I reviewed.").await;
    assert_eq!(terminal.leaves().await, 0);
    let refused = daemon.cli(&["upgrade"]).run().await.fails_with_hint(2);
    refused.says("linger does not update itself").says("`linger run 'upgrade'`");
    let refused = daemon.cli(&["--yolo"]).run().await.fails_with_hint(2);
    refused.says("`--mode auto`");
    daemon.cli(&["-r"]).run().await.fails_with_hint(2).says("`linger ls` lists them");
}

#[tokio::test]
async fn a_client_that_waits_for_its_user_gives_memory_back_and_goes_on() {
    let model = ModelServer::with([Reply::text("Good day"), Reply::text("and again")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    for (prompt, answer) in [("hello", "Good day"), ("more", "and again")] {
        terminal.line(prompt);
        terminal.shows(answer).await;
        let client = terminal.pid();
        // At rest it has a third of what it had at work; a program for tests has some more.
        let shrinks = || process::memory(client).0 * 2 < process::peak(client);
        assert!(comes_true(TIMEOUT, shrinks), "{:?} KiB of {}", process::memory(client), process::peak(client));
    }
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn y_answers_a_permission() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("all done")]);
    let mut terminal = open(&daemon).await;
    terminal.line("go");
    terminal.shows(&daemon.effect("once")).await;
    let client = daemon.client().await;
    let session = client.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    client.attach(&session).await;
    client.first(&session, "permission_requested").await;
    terminal.shows(QUESTION).await;
    terminal.keys("y");
    terminal.shows("all done").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    client.first(&session, "turn_finished").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn control_d_at_a_question_of_run_leaves_the_terminal_as_it_was() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("all done")]);
    let script = "trap : QUIT; \"$0\" run go; echo \"it exits $?\"; stty -a | tr ';' '\\n'; echo over";
    let linger = &programs().client.display().to_string();
    let mut terminal = Pty::open(Path::new("/bin/sh"), &daemon.env(true), &daemon.workspace(), &["-c", script, linger]);
    terminal.shows(QUESTION).await;
    terminal.keys(CTRL_D);
    terminal.shows("over").await;
    let text = terminal.text();
    assert!(text.contains("answer with `linger answer ") && text.contains("it exits 3"), "{text}");
    let modes: Vec<&str> = text.split_whitespace().collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo") && text.contains("quit = ^\\"), "{text}");
    let client = daemon.client().await;
    let session = client.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    client.attach(&session).await;
    let asked = client.first(&session, "permission_requested").await;
    client.call("permission/answer", json!({"permission": asked.str("permission"), "decision": "allow_once"})).await;
    client.first(&session, "turn_finished").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn two_keys_at_once_do_not_answer_two_questions() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let two = bash(&daemon.effect("first")).and_tool("bash", json!({ "command": daemon.effect("second") }));
    model.push([two, Reply::text("all done")]);
    let mut terminal = open(&daemon).await;
    terminal.line("go");
    terminal.shows(QUESTION).await;
    terminal.keys("yy");
    terminal.until_rows("they are a line", |rows| rows.last().is_some_and(|row| row == "> yy")).await;
    assert!(!daemon.side_effects().exists());
    terminal.keys("\x15y\r");
    terminal.shows_times(QUESTION, 2).await;
    terminal.keys("n\r");
    terminal.shows("all done").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "first\n");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn what_is_written_at_a_question_answers_nothing_and_is_queued() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("then not"), Reply::text("so be it")]);
    let mut terminal = open(&daemon).await;
    terminal.line("go");
    terminal.shows(QUESTION).await;
    terminal.line("yes, but do not do that");
    terminal.shows("queued 1").await;
    terminal.keys("n");
    terminal.shows("then not").await;
    terminal.shows("so be it").await;
    assert!(!daemon.side_effects().exists());
    assert_eq!(terminal.leaves().await, 0);
    assert_eq!(model.requests().len(), 3);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn without_a_terminal_for_the_question_there_is_no_interactive_session() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let script = "\"$0\" 2>err.log; echo \"it exits $?\"; cat err.log; echo over";
    let linger = &programs().client.display().to_string();
    let mut terminal = Pty::open(Path::new("/bin/sh"), &daemon.env(true), &daemon.workspace(), &["-c", script, linger]);
    terminal.shows("over").await;
    terminal.shows("it exits 2").await;
    terminal.shows("needs a terminal on stdin, stdout and stderr").await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_long_command_is_not_allowed_before_it_was_shown() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let padding: String = (0..60).map(|n| format!("echo line {n}\n")).collect();
    model.push([bash(&format!("{padding}{}", daemon.effect("once"))), Reply::text("all done")]);
    let mut terminal = open(&daemon).await;
    terminal.line("go");
    terminal.shows("21 lines are not shown").await;
    terminal.shows("show the rest").await;
    assert!(!terminal.text().contains("line 35") && !terminal.text().contains(QUESTION));
    // The key that allows says what is missing, and is no letter.
    terminal.keys("y");
    terminal.shows("press v to see the rest first").await;
    terminal.until_rows("the line is empty", |rows| rows.last().is_some_and(|row| row == ">")).await;
    terminal.keys("v");
    terminal.shows("line 35").await;
    terminal.shows(QUESTION).await;
    assert!(!daemon.side_effects().exists());
    terminal.keys("y\r");
    terminal.shows("all done").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_terminal_that_cannot_move_its_cursor_will_do() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([Reply::text("Good day"), bash(&daemon.effect("once")), Reply::text("all done")]);
    let mut terminal = daemon.pty_on("dumb", &[]);
    terminal.prompts().await;
    terminal.line("hello");
    terminal.shows("Good day").await;
    terminal.line("go");
    terminal.shows(QUESTION).await;
    terminal.line("y");
    terminal.shows("all done").await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_line_that_is_no_text_is_named_and_the_next_one_is_taken() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.raw_keys(b"caf\xe9 au lait\r");
    terminal.shows("the line was not valid UTF-8").await;
    terminal.line("hello");
    terminal.shows("Good day").await;
    assert_eq!(terminal.leaves().await, 0);
    let requests = model.requests();
    assert_eq!((requests.len(), requests[0].last_words().as_str()), (1, "hello"));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn compact_takes_a_word_about_what_to_keep_and_the_prompt_comes_back() {
    let model = ModelServer::with([
        Reply::text("the first answer"),
        Reply::text("## Goal\nthe goal"),
        Reply::text("I cannot").stop("refusal"),
        Reply::text("and on"),
    ]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line(&"a long prompt ".repeat(60));
    terminal.shows("the first answer").await;
    terminal.line("/compact the two  reasons");
    terminal.shows("compacted: a summary replaces 1 older message").await;
    terminal.line("/compact");
    terminal.shows("not compacted").await;
    terminal.line("go on");
    terminal.shows("and on").await;
    assert_eq!(terminal.leaves().await, 0);
    assert!(model.requests()[1].last_words().ends_with(": the two  reasons"));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn control_c_cancels_the_turn_and_keeps_the_session() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("on and on").gate(&gate), Reply::text("still here")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("go");
    terminal.shows("on and").await;
    terminal.keys(CTRL_C);
    terminal.shows("cancelled").await;
    terminal.line("and now");
    terminal.shows("still here").await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn control_d_detaches_and_the_turn_goes_on() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("hello");
    terminal.shows("  Good").await;
    terminal.keys(CTRL_D);
    assert_eq!(terminal.exits().await, 0);
    gate.open();
    let client = daemon.client().await;
    let session = client.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    client.attach(&session).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let mut back = daemon.pty(&["attach", &session]);
    back.shows("Good day").await;
    assert_eq!(back.leaves().await, 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_window_that_is_closed_detaches_and_the_turn_goes_on() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("hello");
    terminal.shows("  Good").await;
    terminal.hang_up();
    assert_eq!(terminal.exits().await, 0, "it is detached");
    gate.open();
    let client = daemon.client().await;
    let session = client.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    client.attach(&session).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn two_terminals_on_one_session_show_the_same_and_the_other_is_told_who_answered() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("all done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    let (mut left, mut right) = (daemon.pty(&["attach", &session]), daemon.pty(&["attach", &session]));
    // Both are attached once the daemon counts them; the third is this test.
    linger_tests::harness::until("both terminals are attached", async || {
        (client.call("daemon/status", json!({})).await["connections"].as_u64() >= Some(3)).then_some(())
    })
    .await;
    client.prompt(&session, "go").await;
    left.shows(&daemon.effect("once")).await;
    right.shows(&daemon.effect("once")).await;
    left.shows(QUESTION).await;
    left.line("y");
    client.first(&session, "turn_finished").await;
    left.shows("all done").await;
    right.shows("all done").await;
    let by = client.first(&session, "permission_resolved").await.str("by").to_owned();
    assert!(by.starts_with("linger@"), "{by}");
    right.shows(&by).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn nothing_that_a_model_or_a_tool_says_controls_the_terminal() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}31m\u{202e}";
    let model = ModelServer::with([
        Reply::text(format!("before {evil}"))
            .and_tool("bash", json!({ "command": "printf '\\033]0;tool\\007 \\233' " })),
        Reply::text("after"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("go");
    terminal.shows("after").await;
    let bytes = terminal.bytes();
    for sequence in ["\u{1b}]0;", "\u{1b}]52", "\u{1b}[2J", "\u{9b}", "\u{202e}"] {
        let found = bytes.windows(sequence.len()).any(|window| window == sequence.as_bytes());
        assert!(!found, "{sequence:?} reached the terminal");
    }
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_daemon_that_dies_under_a_terminal_is_found_again_and_the_text_goes_on() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day after all")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("hello");
    terminal.shows("  Good").await;
    daemon.kill_daemon().await;
    terminal.shows("Good day after all").await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn an_attached_terminal_does_not_start_a_daemon_that_was_stopped() {
    let model = ModelServer::with([Reply::text("Good day"), Reply::text("and again")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon).await;
    terminal.line("hello");
    terminal.shows("Good day").await;
    let client = daemon.client().await;
    linger_tests::harness::until("the turn has ended", async || {
        (client.call("session/list", json!({})).await[0]["state"] == "idle").then_some(())
    })
    .await;
    daemon.cli(&["daemon", "stop", "--json"]).run().await.exits(0);
    terminal.shows("reconnecting").await;
    // It has had the time to start one: what it would do after half a second, it does before it says so.
    terminal.shows("was stopped").await;
    daemon.cli(&["daemon", "status"]).run().await.fails_with_hint(5).says("no daemon is running");
    daemon.check(&[], &model);
}
