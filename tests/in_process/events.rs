//! All sessions in one stream with one cursor, and the search over them.

use linger_tests::harness::Raw;
use linger_tests::model::{ModelServer, Reply};
use linger_tests::wire::fits_schema;
use serde_json::{Value, json};

use super::{answer, bash};
use crate::Daemon;

/// Subscribes, and gives the cursor of the answer.
async fn subscribe(raw: &mut Raw, params: Value) -> String {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "events/subscribe", "params": params });
    let answer = raw.ask(&request.to_string()).await;
    answer["result"]["cursor"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The notifications up to the one that `is_last`.
async fn read(raw: &mut Raw, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut seen = Vec::new();
    loop {
        let next = tokio::time::timeout(linger_tests::TIMEOUT, raw.any_line()).await;
        let next = next.unwrap_or_else(|_| panic!("no more came: {seen:#?}")).expect("the daemon stays");
        if next["method"] != "events/event" {
            continue;
        }
        fits_schema(&next).unwrap();
        let params = next["params"].clone();
        let ends = is_last(&params["event"]);
        seen.push(params);
        if ends {
            return seen;
        }
    }
}

fn caught_up(event: &Value) -> bool {
    event["kind"] == "caught_up"
}

fn kinds(seen: &[Value]) -> Vec<&str> {
    seen.iter().map(|params| params["event"]["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_replay_at_any_cursor_equals_what_a_reader_of_all_sessions_saw_live() {
    let model = ModelServer::with([
        Reply::text("the first answer"),
        bash("echo hello"),
        Reply::text("done"),
        Reply::text("x".repeat(40_000)),
    ]);
    let daemon = Daemon::start(&model).await;
    let mut live = daemon.raw().await;
    assert_eq!(subscribe(&mut live, json!({ "kinds": ["*"] })).await, "0");
    // The daemon's own log is there already.
    let mut seen = read(&mut live, caught_up).await;
    seen.pop();
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    client.turn(&one, "hello").await;
    client.prompt(&two, "run it").await;
    let asked = client.first(&two, "permission_requested").await;
    answer(&client, asked.str("permission"), "allow_once").await;
    client.first(&two, "turn_finished").await;
    client.turn(&one, "again").await;
    let is_last = |event: &Value| event["kind"] == "turn_finished" && event["turn"] == "t2";
    seen.extend(read(&mut live, is_last).await);
    for name in [&one, &two] {
        let seqs: Vec<u64> =
            seen.iter().filter(|it| it["session"] == **name).map(|it| it["event"]["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    }
    for from in 0..=seen.len() {
        let after = from.checked_sub(1).map(|at| seen[at]["cursor"].clone());
        let mut late = daemon.raw().await;
        subscribe(&mut late, json!({ "kinds": ["*"], "after": after })).await;
        let mut replayed = read(&mut late, caught_up).await;
        let last = replayed.pop().unwrap();
        assert_eq!(replayed, seen[from..], "after {after:?}");
        assert_eq!(last["cursor"], seen.last().unwrap()["cursor"]);
        assert!(last.get("session").is_none());
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_subscription_has_the_kinds_and_sessions_that_it_names_and_refuses_what_is_not_there() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    client.turn(&one, "hello").await;
    let mut usual = daemon.raw().await;
    subscribe(&mut usual, json!({})).await;
    let seen = read(&mut usual, caught_up).await;
    assert_eq!(kinds(&seen), ["session_created", "session_created", "turn_started", "turn_finished", "caught_up"]);
    let mut few = daemon.raw().await;
    subscribe(&mut few, json!({ "sessions": [two], "kinds": ["session_created", "message"] })).await;
    assert_eq!(kinds(&read(&mut few, caught_up).await), ["session_created", "caught_up"]);
    let mut new = daemon.raw().await;
    let now = subscribe(&mut new, json!({ "after": "now", "kinds": ["turn_finished"] })).await;
    let caught = read(&mut new, caught_up).await;
    assert_eq!((kinds(&caught), caught[0]["cursor"].as_str().unwrap()), (vec!["caught_up"], now.as_str()));
    client.turn(&two, "hello").await;
    let next = read(&mut new, |_| true).await;
    assert_eq!((kinds(&next), &next[0]["session"]), (vec!["turn_finished"], &json!(two)));
    let refused = [
        (json!({ "after": "99999.00000000" }), -31004),
        (json!({ "after": now.replace('.', ".f") }), -31004),
        (json!({ "after": "4" }), -31004),
        (json!({ "after": "x".repeat(1 << 20) }), -31004),
        (json!({ "sessions": ["nobody"] }), -31002),
        (json!({ "kinds": ["turn_finnished"] }), -31030),
        (json!({ "kinds": ["text_delta"] }), -31030),
        (json!({ "sessions": vec![&one; 257] }), -31015),
    ];
    for (params, code) in refused {
        let error = client.refused("events/subscribe", params.clone()).await;
        assert_eq!(error.code, code, "{params:.200}: {error}");
    }
    assert_eq!(client.refused("events/unsubscribe", json!({})).await.code, -31020);
    client.call("events/subscribe", json!({})).await;
    client.call("events/unsubscribe", json!({})).await;
    client.call("session/remove", json!({ "session": one })).await;
    let mut after = daemon.raw().await;
    subscribe(&mut after, json!({ "after": seen[0]["cursor"] })).await;
    let left = read(&mut after, caught_up).await;
    assert!(left.iter().all(|it| it["session"] != *one), "{left:#?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_reader_of_all_sessions_that_does_not_read_delays_nobody_and_misses_nothing() {
    let model = ModelServer::with((0..40).map(|_| Reply::text("x".repeat(100_000))));
    let daemon = Daemon::start(&model).await;
    let mut stuck = daemon.raw().await;
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "events/subscribe", "params": { "kinds": ["*"] } });
    stuck.send(format!("{request}\n")).await;
    let client = daemon.client().await;
    let session = client.session().await;
    for _ in 0..40 {
        client.turn(&session, "more").await;
    }
    let finished = |event: &Value| event["kind"] == "turn_finished" && event["turn"] == "t40";
    let seen = read(&mut stuck, finished).await;
    let own = seen.iter().filter(|it| it["session"] == *session);
    let seqs: Vec<u64> = own.filter_map(|it| it["event"]["seq"].as_u64()).collect();
    assert!(seqs.len() > 200 && seqs.iter().copied().eq(1..=seqs.len() as u64), "{seqs:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_search_finds_what_people_and_models_said_until_the_session_is_removed() {
    let model =
        ModelServer::with([Reply::text("The parser drops the last byte of a frame."), Reply::text("Nothing here.")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (one, two) = (client.session().await, client.session().await);
    client.turn(&one, "why does parse_frame fail?").await;
    client.turn(&two, "and the lexer?").await;
    let search = async |params: Value| client.call("session/search", params).await;
    let found = search(json!({ "text": "PARSER" })).await;
    assert_eq!(found["behind"], 0);
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{found}");
    assert_eq!((&rows[0]["session"], &rows[0]["role"]), (&json!(one), &json!("assistant")));
    assert_eq!(rows[0]["snippet"], "The parser drops the last byte of a frame.");
    let seq = client.look(|seen| {
        let mut messages = seen.of("message").filter(|it| it.session == one);
        messages.nth(1).and_then(linger_tests::check::Seen::seq)
    });
    assert_eq!(rows[0]["seq"].as_u64(), seq);
    let count = async |text: &str| search(json!({ "text": text })).await["rows"].as_array().unwrap().len();
    assert_eq!(count("frame").await, 2);
    assert_eq!(count("\"last byte\"").await, 1);
    assert_eq!(count("lex*").await, 1);
    assert_eq!(count("parser lexer").await, 0);
    let elsewhere = search(json!({ "text": "parser", "cwd": "/" })).await;
    assert_eq!(elsewhere["rows"], json!([]));
    let here = search(json!({ "text": "parser", "cwd": daemon.workspace() })).await;
    assert_eq!(here["rows"].as_array().unwrap().len(), 1);
    assert_eq!(client.refused("session/search", json!({ "text": "…" })).await.code, -31030);
    assert_eq!(client.refused("session/search", json!({ "text": "word ".repeat(300) })).await.code, -31015);
    client.call("session/bin", json!({ "session": one })).await;
    assert_eq!(count("parser").await, 0);
    client.call("session/restore", json!({ "session": one })).await;
    assert_eq!(count("parser").await, 1);
    client.call("session/remove", json!({ "session": one })).await;
    assert_eq!(count("parser").await, 0);
    assert_eq!(count("lexer").await, 1);
    daemon.check(&[&client], &model);
}
