//! A client that does not read holds a position, not a buffer, and slows nobody (I10).

use std::time::Duration;

use linger_tests::harness::{Daemon, Raw, comes_true, process};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

/// How many deltas are streamed past the client that does not read.
const DELTAS: usize = 60_000;

/// How much the daemon may grow meanwhile, in KiB: far less than one copy of the stream as JSON (10 MB) for each client.
const GROWTH: u64 = 8 << 10;

/// How long a daemon is watched that might grow.
const MOMENT: Duration = Duration::from_secs(2);

/// How many clients do not read.
const STUCK: usize = 8;

fn long() -> Reply {
    Reply::new().text_in_deltas(&"word ".repeat(DELTAS), 5)
}

/// Attaches and never reads again.
async fn stuck(daemon: &Daemon, session: &str) -> Raw {
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    raw.ask(r#"{"jsonrpc":"2.0","id":1,"method":"daemon/hello","params":{"client":"stuck","protocol":[1,1]}}"#).await;
    let attach = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/attach", "params": { "session": session } });
    raw.send(format!("{attach}\n")).await;
    raw
}

#[tokio::test]
async fn clients_that_stop_reading_neither_slow_another_nor_fill_the_memory() {
    let model = ModelServer::with([long(), long()]);
    let daemon = Daemon::start(&model).await;
    let fast = daemon.client().await;
    let session = fast.session().await;
    fast.turn(&session, "without").await;
    let pid = daemon.pid().await;
    let before = process::memory(pid).0;
    let mut clients = Vec::new();
    for _ in 0..STUCK {
        clients.push(stuck(&daemon, &session).await);
    }
    // Who waited for a stuck one would wait for ever; how fast it is a bench says.
    fast.turn(&session, "with").await;
    let after = || process::memory(pid).0;
    assert!(
        comes_true(linger_tests::TIMEOUT, || after() < before + GROWTH),
        "{before} KiB before, {} after {DELTAS} deltas and {STUCK} stuck clients",
        after()
    );
    // Whoever reads again gets everything.
    let mut back = clients.remove(0);
    let mut turns = 0;
    back.drain(|line| {
        turns += usize::from(line.contains("\"kind\":\"turn_finished\""));
        turns == 2
    })
    .await;
    daemon.check(&[&fast], &model);
}

#[tokio::test]
async fn the_others_are_answered_while_one_sends_and_does_not_read() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let mut flood = Raw::connect(&daemon.dirs.socket()).await;
    let line = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tool/list\"}\n".repeat(64);
    // The daemon stops reading from it sooner or later; then the socket is full, and this waits.
    let flooding = async {
        for _ in 0..2000 {
            if flood.try_send(&line).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let answered = async {
        for _ in 0..200 {
            client.call("daemon/status", json!({})).await;
        }
    };
    tokio::select! {
        () = flooding => {}
        () = answered => {}
    }
    let rss = process::memory(daemon.pid().await).0;
    assert!(rss < 64 << 10, "{rss} KiB");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_terminal_whose_prompt_cannot_be_drawn_reads_on_when_it_can() {
    const CTRL_R: &str = "\x12";
    const CTRL_G: &str = "\x07";
    /// Some 4 MiB in all, of which the client may take a megabyte in advance.
    const LINES: usize = 30_000;
    let line = format!("{}\n", "words ".repeat(23));
    let much = Reply::new().text_in_deltas(&line.repeat(LINES), 10 * line.len()).and_text("so much for that");
    let model = ModelServer::with([Reply::text("first"), much]);
    let daemon = Daemon::start(&model).await;
    let mut terminal = daemon.pty(&[]);
    terminal.prompts().await;
    terminal.line("go");
    terminal.shows("first").await;
    let other = daemon.client().await;
    let session = other.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    terminal.prompts().await;
    terminal.keys(CTRL_R);
    terminal.shows("reverse-i-search").await;
    let before = process::memory(terminal.pid()).0;
    other.attach(&session).await;
    other.turn(&session, "much").await;
    let grown = || process::memory(terminal.pid()).0.saturating_sub(before);
    assert!(!comes_true(MOMENT, || grown() > GROWTH / 2), "{} KiB more after {LINES} lines", grown());
    assert!(!terminal.text().contains("words words"), "nothing is drawn while the history is searched");
    terminal.keys(CTRL_G);
    assert!(
        comes_true(linger_tests::TIMEOUT, || terminal.screen().contains("so much for that")),
        "it is not all drawn"
    );
    assert_eq!(terminal.text().matches(line.trim()).count(), LINES);
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[&other], &model);
}
