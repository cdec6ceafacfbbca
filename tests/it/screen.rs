//! What a person sees while a turn runs and a line is typed: whole screens, in an emulated terminal.
//!
//! Rows of a model stand behind a gutter of two blanks. A word is shown once it is complete: a text that
//! is to be seen before it goes on ends in a blank.

use linger_tests::harness::{Daemon, Pty};
use linger_tests::model::{Gate, ModelServer, Reply};

use crate::bash;

const CTRL_C: &str = "\x03";
const CTRL_U: &str = "\x15";
const ESC: &str = "\x1b";
const ALT_S: &str = "\x1bs";
const SHIFT_TAB: &str = "\x1b[Z";

/// `linger` in a terminal of this width, ready for a line.
async fn open(daemon: &Daemon, columns: u16) -> Pty {
    let mut terminal = daemon.pty(&[]);
    terminal.resize(40, columns);
    terminal.prompts().await;
    terminal
}

/// Whether the last rows of the screen are these; a status row matches what it begins with, up to `*`.
fn ends(rows: &[String], last: &[&str]) -> bool {
    let Some(from) = rows.len().checked_sub(last.len()) else { return false };
    rows.iter().skip(from).zip(last).all(|(row, last)| match last.strip_suffix('*') {
        Some(begin) => row.starts_with(begin),
        None => row == last,
    })
}

/// The rows of a text in words: each takes as much as fits, behind the gutter and up to the last column, which
/// stays free. The terminal is so wide where the word of that number is placed. A row may end on either side of a
/// wide character.
fn laid_out(words: &[String], columns: impl Fn(usize) -> usize) -> Vec<String> {
    let columns_of = |text: &str| text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>();
    let mut rows = vec![" ".to_owned()];
    for (n, word) in words.iter().enumerate() {
        let wide = word.chars().take_while(|c| !c.is_ascii()).map(String::from);
        let narrow: String = word.chars().skip_while(|c| !c.is_ascii()).collect();
        for (at, piece) in wide.chain([narrow]).enumerate() {
            let row = rows.last_mut().unwrap();
            let piece_behind = if at == 0 { format!(" {piece}") } else { piece.clone() };
            if columns_of(row) + columns_of(&piece_behind) < columns(n) {
                row.push_str(&piece_behind);
            } else {
                rows.push(format!("  {piece}"));
            }
        }
    }
    rows
}

async fn shows(terminal: &Pty, last: &[&str]) {
    terminal.until_rows(&format!("the screen ends in {last:#?}"), |rows| ends(rows, last)).await;
}

#[tokio::test]
async fn words_stream_above_the_line_that_is_being_typed_and_nothing_of_the_status_stays() {
    let (first, second) = (Gate::new(), Gate::new());
    let reply = Reply::text("Good ").gate(&first).and_text("day ").gate(&second).and_text("to you\nand more");
    let model = ModelServer::with([reply]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, 100).await;
    terminal.line("hello");
    shows(&terminal, &["> hello", "  Good", "… writing*", ">"]).await;
    terminal.keys("half a li");
    shows(&terminal, &["> hello", "  Good", "… writing*", "> half a li"]).await;
    first.open();
    shows(&terminal, &["> hello", "  Good day", "… writing*", "> half a li"]).await;
    terminal.keys("ne");
    second.open();
    let rows = terminal.until_rows("the turn ends", |rows| rows.iter().any(|row| row.contains("1 step"))).await;
    let at = rows.iter().position(|row| row == "> hello").unwrap();
    assert_eq!(&rows[at..at + 3], ["> hello", "  Good day to you", "  and more"], "{rows:#?}");
    shows(&terminal, &["> half a line"]).await;
    assert!(!terminal.screen().contains("writing"), "{}", terminal.screen());
    terminal.keys(CTRL_U);
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn one_who_comes_in_mid_stream_sees_what_was_said_and_what_follows() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good day ").gate(&gate).and_text("to you")]);
    let daemon = Daemon::start(&model).await;
    let mut first = open(&daemon, 100).await;
    first.line("hello");
    shows(&first, &["> hello", "  Good day", "… writing*", ">"]).await;
    let sessions = daemon.client().await.call("session/list", serde_json::json!({})).await;
    let mut second = daemon.pty(&["attach", sessions[0]["session"].as_str().unwrap()]);
    shows(&second, &["> hello", "  Good day", "… writing*", ">"]).await;
    gate.open();
    for terminal in [&mut first, &mut second] {
        let rows = terminal.until_rows("the turn ends", |rows| rows.iter().any(|row| row.contains("1 step"))).await;
        let at = rows.iter().position(|row| row == "> hello").unwrap();
        assert_eq!(rows[at + 1], "  Good day to you", "{rows:#?}");
        assert_eq!(terminal.leaves().await, 0);
    }
    daemon.check(&[], &model);
}

#[tokio::test]
async fn enter_queues_and_alt_s_steers_while_the_turn_runs() {
    let gate = Gate::new();
    let model = ModelServer::with([
        Reply::text("working ").gate(&gate).and_tool("bash", serde_json::json!({ "command": "true" })),
        Reply::text("steered"),
        Reply::text("and the next"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let mut terminal = open(&daemon, 100).await;
    terminal.line("go");
    shows(&terminal, &["  working", "… writing*", ">"]).await;
    terminal.line("later");
    shows(&terminal, &["> later", "queued 1; /queue lists, /unqueue takes back", "  working", "… writing*", ">"]).await;
    terminal.keys(&format!("now{ALT_S}"));
    shows(&terminal, &["> now", "will be read before the next step", "  working", "… writing*", ">"]).await;
    terminal.line("/queue");
    shows(&terminal, &["> /queue", "1 later", "  working", "… writing*", ">"]).await;
    gate.open();
    let rows = terminal.until_rows("both turns end", |rows| rows.iter().any(|row| row == "  and the next")).await;
    let at = |row: &str| rows.iter().rposition(|it| it == row);
    assert!(at("> now") < at("  steered") && at("  steered") < at("> later"), "{rows:#?}");
    assert!(model.requests()[1].last_words().ends_with("now"));
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn esc_brings_what_was_queued_back_into_the_line_and_it_does_not_run() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("working ").gate(&gate), Reply::text("right")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, 100).await;
    terminal.line("go");
    shows(&terminal, &["  working", "… writing*", ">"]).await;
    terminal.line("then commit");
    shows(&terminal, &["queued 1; /queue lists, /unqueue takes back", "  working", "… writing*", ">"]).await;
    terminal.keys("half");
    shows(&terminal, &["… writing*", "> half"]).await;
    terminal.keys(ESC);
    shows(&terminal, &["1 queued prompt is back in the line", "> then commit", "half"]).await;
    terminal.line(" a thought");
    terminal.until_rows("the next prompt is answered", |rows| rows.iter().any(|row| row == "  right")).await;
    assert!(model.requests()[1].last_words().ends_with("then commit\n\nhalf a thought"));
    assert_eq!(model.requests().len(), 2);
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn esc_and_control_c_stop_the_turn_and_the_line_is_kept_or_dropped() {
    let gate = Gate::new();
    let model =
        ModelServer::with([Reply::text("one ").gate(&gate), Reply::text("two ").gate(&gate), Reply::text("three")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, 100).await;
    terminal.keys(ESC);
    terminal.line("go");
    shows(&terminal, &["  one", "… writing*", ">"]).await;
    terminal.keys("kept");
    shows(&terminal, &["… writing*", "> kept"]).await;
    terminal.keys(ESC);
    terminal.until_rows("the turn is cancelled", |rows| rows.iter().any(|row| row == "cancelled")).await;
    shows(&terminal, &["> kept"]).await;
    terminal.line("");
    shows(&terminal, &["  two", "… writing*", ">"]).await;
    terminal.keys("dropped");
    shows(&terminal, &["> dropped"]).await;
    terminal.keys(CTRL_C);
    shows(&terminal, &["press Ctrl-C again to cancel the turn, Ctrl-D to leave", "  two", "… writing*", ">"]).await;
    terminal.keys(CTRL_C);
    let cancelled = |rows: &[String]| rows.iter().filter(|row| *row == "cancelled").count() == 2;
    terminal.until_rows("the turn is cancelled", cancelled).await;
    terminal.line("on");
    terminal.until_rows("the session goes on", |rows| rows.iter().any(|row| row == "  three")).await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_question_that_comes_while_a_line_is_typed_leaves_it_and_wants_enter() {
    let gate = Gate::new();
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let call = serde_json::json!({ "command": daemon.effect("once") });
    model.push([Reply::text("wait ").gate(&gate).and_tool("bash", call), Reply::text("all done")]);
    let mut terminal = open(&daemon, 150).await;
    terminal.line("go");
    shows(&terminal, &["  wait", "… writing*", ">"]).await;
    terminal.keys("sa");
    shows(&terminal, &["> sa"]).await;
    gate.open();
    shows(&terminal, &["y once*", "… waiting for your answer*", "> sa"]).await;
    assert!(terminal.screen().contains("? help, then Enter"), "{}", terminal.screen());
    terminal.keys("y");
    shows(&terminal, &["> say"]).await;
    assert!(!daemon.side_effects().exists());
    terminal.keys(CTRL_U);
    shows(&terminal, &[">"]).await;
    terminal.line("y");
    terminal.until_rows("the turn ends", |rows| rows.iter().any(|row| row == "  all done")).await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_change_is_shown_as_a_difference_and_e_lets_all_edits_run() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    std::fs::write(daemon.workspace().join("f.txt"), "one\ntwo\nthree\n").unwrap();
    let write = |text: &str| Reply::tool("write", serde_json::json!({ "path": "f.txt", "content": text }));
    model.push([Reply::tool("read", serde_json::json!({ "path": "f.txt" }))]);
    model.push([write("one\nTWO\nthree\n"), write("1\n"), Reply::text("all done")]);
    let mut terminal = open(&daemon, 150).await;
    terminal.line("go");
    let difference = ["    replaces 1 line of 3", "    @@ line 1 @@", "     one", "    -two", "    +TWO", "     three"];
    let asked = [&difference[..], &["y once*", "… waiting for your answer*", ">"]].concat();
    shows(&terminal, &asked).await;
    terminal.keys("e");
    terminal.until_rows("both changes are made", |rows| rows.iter().any(|row| row == "  all done")).await;
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("f.txt")).unwrap(), "1\n");
    terminal.keys(SHIFT_TAB);
    terminal.until_rows("the next mode", |rows| rows.iter().any(|row| row == "mode: plan")).await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn rows_break_at_spaces_in_narrow_and_wide_terminals_and_wide_characters_stay_whole() {
    let words: Vec<String> =
        (0..60).map(|n| if n % 3 == 0 { format!("漢字{n}") } else { format!("word{n}") }).collect();
    for columns in [40, 200] {
        let gate = Gate::new();
        let (left, right) = words.split_at(30);
        let reply = Reply::text(left.join(" ") + " ").gate(&gate).and_text(right.join(" "));
        let model = ModelServer::with([reply]);
        let daemon = Daemon::start(&model).await;
        let mut terminal = open(&daemon, columns).await;
        terminal.line("go");
        terminal.until_rows("half of it", |rows| rows.iter().any(|row| row.contains("word29"))).await;
        terminal.keys("字を打つ");
        shows(&terminal, &["> 字を打つ"]).await;
        gate.open();
        let rows = terminal.until_rows("the end", |rows| rows.iter().any(|row| row.contains("1 step"))).await;
        let from = rows.iter().position(|row| row == "> go").unwrap() + 1;
        let to = rows.iter().position(|row| row.contains("tokens in")).unwrap();
        assert_eq!(rows[from..to], laid_out(&words, |_| columns.into()));
        shows(&terminal, &["> 字を打つ"]).await;
        terminal.keys(CTRL_U);
        assert_eq!(terminal.leaves().await, 0);
        daemon.check(&[], &model);
    }
}

#[tokio::test]
async fn a_width_that_changes_in_mid_stream_leaves_one_prompt_and_all_of_the_text() {
    let (first, second) = (Gate::new(), Gate::new());
    let words: Vec<String> = (0..36).map(|n| format!("word{n}")).collect();
    let part = |n: usize| words[n * 12..(n + 1) * 12].join(" ") + " ";
    let reply = Reply::text(part(0)).gate(&first).and_text(part(1)).gate(&second).and_text(part(2));
    let model = ModelServer::with([reply]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, 60).await;
    terminal.line("go");
    terminal.until_rows("a third of it", |rows| rows.iter().any(|row| row.contains("word11"))).await;
    terminal.resize(40, 100);
    first.open();
    terminal.until_rows("two thirds", |rows| rows.iter().any(|row| row.contains("word23"))).await;
    terminal.resize(40, 120);
    second.open();
    let rows = terminal.until_rows("the end", |rows| rows.iter().any(|row| row.contains("1 step"))).await;
    let from = rows.iter().position(|row| row == "> go").unwrap() + 1;
    let to = rows.iter().position(|row| row.contains("tokens in")).unwrap();
    assert_eq!(rows[from..to], laid_out(&words, |n| [60, 100, 120][n / 12]));
    shows(&terminal, &[">"]).await;
    assert!(!terminal.screen().contains("writing"), "{rows:#?}");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_running_command_shows_its_last_lines_and_a_failed_one_its_end() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let command = "mkfifo gate; seq 1 20; cat gate; echo broken; exit 3";
    model.push([bash(command), Reply::text("all done")]);
    let mut terminal = open(&daemon, 100).await;
    terminal.line("go");
    shows(&terminal, &["  │ 18", "  │ 19", "  │ 20", "… bash mkfifo gate*", ">"]).await;
    std::fs::write(daemon.workspace().join("gate"), "").unwrap();
    let rows = terminal.until_rows("the turn ends", |rows| rows.iter().any(|row| row == "  all done")).await;
    let at = rows.iter().position(|row| row.starts_with("✗ exit code 3")).unwrap();
    assert_eq!((rows[at + 1].as_str(), rows[at + 15].as_str()), ("    7", "    broken"), "{rows:#?}");
    assert!(!terminal.screen().contains("│ 20"), "{}", terminal.screen());
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn exit_leaves_and_costs_no_call_and_control_j_continues_a_line() {
    let model = ModelServer::with([Reply::text("seen")]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = open(&daemon, 100).await;
    terminal.keys("one");
    shows(&terminal, &["> one"]).await;
    terminal.keys("\x1b\rtwo");
    terminal.line("");
    terminal.until_rows("the answer", |rows| rows.iter().any(|row| row == "  seen")).await;
    terminal.prompts().await;
    terminal.line(":q");
    assert_eq!(terminal.exits().await, 0);
    let requests = model.requests();
    assert_eq!((requests.len(), requests[0].last_words().as_str()), (1, "one\ntwo"));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn the_rest_of_an_answer_is_shown_and_allowed_by_two_keys() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let calls = ["two", "three"].iter().fold(
        Reply::text("three things ").and_tool("bash", serde_json::json!({ "command": daemon.effect("one") })),
        |reply, line| reply.and_tool("bash", serde_json::json!({ "command": daemon.effect(line) })),
    );
    model.push([calls, Reply::text("all done")]);
    let mut terminal = open(&daemon, 200).await;
    terminal.line("go");
    shows(&terminal, &["y once  t the rest of this answer*", "… waiting for your answer*", ">"]).await;
    assert!(terminal.screen().contains("? 1 of 3: bash wants to run in "), "{}", terminal.screen());
    assert!(!terminal.screen().contains("echo two"), "{}", terminal.screen());
    terminal.keys("t");
    shows(&terminal, &["y allow these 3, this once  n back to the first", "… waiting for your answer*", ">"]).await;
    for part in ["? 2 of 3: ", "echo two >> ", "? 3 of 3: ", "echo three >> "] {
        assert!(terminal.screen().contains(part), "{part}: {}", terminal.screen());
    }
    assert!(!daemon.side_effects().exists());
    terminal.keys("y");
    terminal.until_rows("the turn ends", |rows| rows.iter().any(|row| row == "  all done")).await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}
