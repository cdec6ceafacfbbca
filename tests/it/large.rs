//! A session with a long history: attached at its end, listed, and started over without its history being read.
//!
//! The history is written straight into the database, which is fast. `LINGER_LARGE_MB=4000` makes it as large as one likes, and
//! prints what was measured.

use std::time::Instant;

use linger_tests::harness::{Daemon, Pty, Raw, process};
use linger_tests::model::{ModelServer, Reply};
use linger_tests::stored::{add_event, change_state};
use serde_json::json;

/// How much may be read for an attach at the end, a list or a start, in KiB: the program itself, a few pages of the database,
/// what other processes are called. A history is never a part of it.
const READ: u64 = 8 << 10;

/// Megabytes of history; as usual eight times what may be read.
fn megabytes() -> u64 {
    std::env::var("LINGER_LARGE_MB").ok().and_then(|mb| mb.parse().ok()).unwrap_or(64)
}

/// Adds messages of 125 KB each to a session whose turn has ended, as the latest thing that happened before its end.
fn grow(daemon: &Daemon, session: &str) {
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    let head: i64 =
        database.query_row("SELECT max(seq) FROM event WHERE session = ?", [session], |row| row.get(0)).unwrap();
    // Nothing is written twice, and nothing waited for.
    database.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").unwrap();
    let text = "word ".repeat(25_000);
    let events = i64::try_from(megabytes() * 8).unwrap();
    for n in 0..events {
        let (seq, id) = (head + 1 + n, format!("m{}", head + 1 + n));
        let (role, stream) = if n % 2 == 0 { ("user", None) } else { ("assistant", Some(id.clone())) };
        let content = json!([{ "type": "text", "text": text }]);
        let event = json!({ "kind": "message", "message": id, "role": role, "content": content, "seq": seq, "at": 0, "turn": "t1" });
        add_event(&database, session, seq, "message", stream.as_deref(), &event.to_string());
    }
    change_state(&database, session, |state| {
        state.progress.head += events as u64;
        state.progress.before_turn = state.progress.head - 1;
        state.progress.counts.messages += events as u64;
    });
    let size = i64::try_from(megabytes() << 20).unwrap();
    database.execute("UPDATE session SET size = size + ? WHERE id = ?", rusqlite::params![size, session]).unwrap();
    database.execute_batch("COMMIT").unwrap();
}

#[tokio::test]
async fn the_end_of_a_long_session_is_reached_without_reading_the_rest() {
    let model = ModelServer::with([Reply::text("hello")]);
    let daemon = Daemon::start(&model).await;
    let session = {
        let client = daemon.client().await;
        let session = client.session().await;
        client.turn(&session, "hi").await;
        session
    };
    assert_eq!(daemon.terminate(), Some(0));
    grow(&daemon, &session);
    let start = Instant::now();
    daemon.launch().await;
    let client = daemon.client().await;
    let pid = daemon.pid().await;
    let ready = start.elapsed();
    let Some(started) = process::read(pid) else {
        return eprintln!("not run: how much a daemon reads, only root is told");
    };
    let read = |pid| process::read(pid).expect("it could be read before");
    assert!(started < READ << 10, "{started} bytes read to start");

    let start = Instant::now();
    let row = client.call("session/list", json!({})).await[0].clone();
    let (list, listed) = (start.elapsed(), read(pid));
    assert!(listed - started < READ << 10, "{} bytes read for a list", listed - started);

    let start = Instant::now();
    let cursor = row["turn_cursor"].as_str().unwrap().to_owned();
    client.attach_after(&session, &cursor).await;
    client.first(&session, "caught_up").await;
    let (attach, attached) = (start.elapsed(), read(pid));
    assert!(attached - listed < READ << 10, "{} bytes read for an attach at the end", attached - listed);

    // The readline client shows the last turn, and not all of them.
    let mut terminal: Pty = daemon.pty(&["attach", &session]);
    terminal.shows("word word").await;
    let shown = read(pid);
    assert!(shown - attached < READ << 10, "{} bytes read for `linger attach`", shown - attached);
    if std::env::var_os("LINGER_LARGE_MB").is_some() {
        let size = std::fs::metadata(daemon.dirs.database()).unwrap().len() >> 20;
        let memory = process::memory(pid).0;
        println!(
            "{size} MiB of history: ready after {ready:?} ({} KiB read), list {list:?} ({} KiB), attach {attach:?} ({} KiB), `linger attach` ({} KiB), {memory} KiB resident",
            started >> 10,
            (listed - started) >> 10,
            (attached - listed) >> 10,
            (shown - attached) >> 10
        );
    }
    drop(terminal);
    // The measure is one: whoever asks for everything makes the daemon read.
    let mut all = Raw::connect(&daemon.dirs.socket()).await;
    all.send(format!(
        "{}\n",
        json!({ "jsonrpc": "2.0", "id": 1, "method": "session/attach", "params": { "session": session } })
    ))
    .await;
    let mut bytes = 0;
    all.drain(|line| {
        bytes += line.len() as u64;
        bytes > READ << 11
    })
    .await;
    assert!(read(pid) - shown > READ << 10);
    model.verify();
}
