//! What a fork of a long session costs: time, and room in the database.

use std::time::Instant;

use linger_tests::harness::Daemon;
use linger_tests::model::{ModelServer, Reply};
use linger_tests::stored::{add_event, change_state};
use serde_json::json;

use super::{Figure, median_between};

/// Events of the session.
const EVENTS: i64 = 100_000;

/// Forks that are made.
const FORKS: usize = 40;

pub(super) async fn forks() -> Vec<Figure> {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = Daemon::start(&model).await;
    let session = {
        let client = daemon.client().await;
        let session = client.session().await;
        client.turn(&session, "say ok").await;
        session
    };
    daemon.terminate();
    grow(&daemon, &session);
    daemon.launch().await;
    let client = daemon.client().await;
    let used = || {
        let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
        let pages: i64 = database.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let free: i64 = database.pragma_query_value(None, "freelist_count", |row| row.get(0)).unwrap();
        (pages - free) * 4096
    };
    // The first opens what is opened once.
    client.call("session/fork", json!({ "session": session })).await;
    let (before, mut at_end, mut before_last) = (used(), Vec::new(), Vec::new());
    for n in 0..FORKS {
        let at = (n % 2 == 1).then_some("p1");
        let start = Instant::now();
        client.call("session/fork", json!({ "session": session, "at": at })).await;
        let took = start.elapsed().as_secs_f64() * 1e3;
        if at.is_none() { at_end.push(took) } else { before_last.push(took) }
    }
    let each = (used() - before) as f64 / FORKS as f64 / 1024.0;
    vec![
        Figure::new("a fork of a session of 100,000 events", median_between(at_end).0, "ms", 10.0),
        Figure::told("a fork of it from before its first prompt", median_between(before_last).0, "ms"),
        Figure::new("what a fork takes in the database", each, "KiB", 16.0),
    ]
}

/// Adds messages to a session whose turn has ended.
fn grow(daemon: &Daemon, session: &str) {
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    let head: i64 =
        database.query_row("SELECT max(seq) FROM event WHERE session = ?", [session], |row| row.get(0)).unwrap();
    database.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").unwrap();
    for n in 0..EVENTS {
        let (seq, id) = (head + 1 + n, format!("m{}", head + 1 + n));
        let (role, stream) = if n % 2 == 0 { ("user", None) } else { ("assistant", Some(id.clone())) };
        let content = json!([{ "type": "text", "text": "a few words" }]);
        let event = json!({ "kind": "message", "message": id, "role": role, "content": content, "seq": seq, "at": 0 });
        add_event(&database, session, seq, "message", stream.as_deref(), &event.to_string());
    }
    change_state(&database, session, |state| {
        state.progress.head += EVENTS as u64;
        state.progress.counts.messages += EVENTS as u64;
    });
    database.execute_batch("COMMIT").unwrap();
}
