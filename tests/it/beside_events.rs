//! What is kept beside the events of a session: its state, and rows that are looked up. A lost state is folded again by a repair.

use linger_tests::check::Seen;
use linger_tests::harness::{Client, Daemon, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use lingerd::store::event_sum;
use rusqlite::Connection;
use serde_json::json;

use crate::answer;
use crate::damage::{damage, doctor, stop, told};

/// Changes one row of the database while no daemon runs.
async fn change(daemon: &Daemon, sql: &str, parameters: &[&str]) {
    damage(daemon, |path| {
        let connection = Connection::open(path).unwrap();
        assert_eq!(connection.execute(sql, rusqlite::params_from_iter(parameters)).unwrap(), 1, "{sql}");
    })
    .await;
}

/// A daemon with a session that asks whether a command with an effect may run.
async fn asking(model: &ModelServer) -> (Daemon, Client, String, Seen) {
    let daemon = Daemon::start(model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([crate::bash(&daemon.effect("once")), Reply::text("done")]);
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    (daemon, client, session, asked)
}

#[tokio::test]
async fn a_permission_waits_although_the_state_of_its_session_has_changed() {
    for sql in [
        "UPDATE family SET data = replace(data, '\"digest\":\"', '\"digest\":\"0') WHERE data LIKE '%' || ? || '%'",
        "UPDATE family SET data = json_set(data, '$.mode', 'auto') WHERE name = 'settings'
         AND session IN (SELECT session FROM family WHERE data LIKE '%' || ? || '%')",
    ] {
        let model = ModelServer::start();
        let (daemon, client, session, asked) = asking(&model).await;
        let before = client.call("permission/list", json!({})).await;
        change(&daemon, sql, &[asked.str("permission")]).await;
        daemon.launch().await;
        doctor(&daemon, &[], false, "session").await;
        doctor(&daemon, &["--repair", "--force"], true, "carried over (1)").await;
        let back = daemon.client().await;
        // A start waits a second for what it finds under way.
        let listed = async || Some(back.call("permission/list", json!({})).await).filter(|rows| rows[0]["at"].is_u64());
        assert_eq!(until("the permission is listed", listed).await, before, "{sql}");
        back.attach(&session).await;
        told(&back, &session).await;
        answer(&back, asked.str("permission"), "allow_once").await;
        assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn", "{sql}");
        daemon.check(&[&client, &back], &model);
        assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
        stop(&daemon).await;
    }
}

/// Puts an event after the last one of a session, as a program with the database can.
fn forge(path: &std::path::Path, session: &str, event: serde_json::Value) {
    let connection = Connection::open(path).unwrap();
    let last = "SELECT max(seq) + 1, (SELECT max(n) + 1 FROM event), max(at) FROM event WHERE session = ?";
    let (seq, n, at): (i64, i64, i64) =
        connection.query_row(last, [session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let mut event = event;
    (event["seq"], event["at"]) = (json!(seq), json!(at));
    let (kind, data) = (event["kind"].as_str().unwrap().to_owned(), event.to_string());
    let insert = "INSERT INTO event (n, session, seq, at, kind, data, sum) VALUES (?, ?, ?, ?, ?, ?, ?)";
    let with = |sum: Option<i64>| connection.execute(insert, (n, session, seq, at, &kind, &data, sum));
    assert!(with(None).is_err(), "no event is without a sum");
    assert_eq!(with(Some(event_sum(session.as_bytes(), &data))).unwrap(), 1);
}

#[tokio::test]
async fn an_answer_that_only_the_log_has_permits_nothing_after_a_repair() {
    for mode in [false, true] {
        let model = ModelServer::start();
        let (daemon, client, session, asked) = asking(&model).await;
        damage(&daemon, |path| {
            if mode {
                forge(path, &session, json!({ "kind": "session_changed", "mode": "auto" }));
            }
            let answer = json!({ "kind": "permission_resolved", "turn": "t1", "permission": asked.str("permission"),
                                 "decision": "allow_session", "by": "linger@pts/0" });
            forge(path, &session, answer);
            let confirmed = json!({ "kind": "config_confirmed", "by": "linger@pts/0", "changes": [],
                                    "digest": "sha256:0", "settings": { "mode": "auto" } });
            forge(path, "daemon", confirmed);
        })
        .await;
        daemon.launch().await;
        doctor(&daemon, &["--repair", "--force"], true, "carried over (1)").await;
        let back = daemon.client().await;
        back.attach(&session).await;
        let ended = back.first(&session, "turn_finished").await;
        assert_eq!(ended.str("stop_reason"), "error", "{:?}", ended.event);
        let said = |code: &str| back.look(|seen| seen.of("notice").any(|notice| notice.str("code") == code));
        assert!(said("rebuilt") && said("damaged"));
        assert!(!daemon.side_effects().exists(), "nobody has allowed it");
        let row = back.call("session/list", json!({ "matching": session })).await[0].clone();
        assert_eq!(row["mode"], "ask");

        // What is confirmed is asked again too.
        let waiting = back.call("config/get", json!({})).await["waiting"].clone();
        assert!(waiting["changes"].as_array().is_some_and(|changes| !changes.is_empty()), "{waiting}");
        daemon.cli(&["config", "confirm", "--yes"]).run().await.exits(0);
        // The call asks again; the model's answer to the first one comes before it.
        assert_eq!(back.turn(&session, "hello").await.str("stop_reason"), "end_turn");
        model.push([crate::bash(&daemon.effect("once")), Reply::text("done")]);
        back.prompt(&session, "go on").await;
        let again = back.nth(&session, "permission_requested", 2).await;
        answer(&back, again.str("permission"), "allow_once").await;
        assert_eq!(back.nth(&session, "turn_finished", 3).await.str("stop_reason"), "end_turn");
        assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
        drop(client);
        stop(&daemon).await;
    }
}

#[tokio::test]
async fn a_turn_goes_on_whose_column_has_an_unknown_state() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([Reply::text("Good day").gate(&Gate::new()), Reply::text("Good day")]);
    client.prompt(&session, "hello").await;
    model.wait_requests(1).await;
    change(&daemon, "UPDATE session SET state = 'runnin' WHERE id = ?", &[&session]).await;
    daemon.launch().await;
    let back = daemon.client().await;
    model.wait_requests(2).await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &back], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn a_state_that_was_changed_makes_nothing_run_twice_and_loses_no_prompt() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let command = format!("{}; sleep 60", daemon.effect("once"));
    model.push([crate::bash(&command), Reply::text("done"), Reply::text("and more")]);
    client.prompt(&session, "go").await;
    client.prompt(&session, "and then").await;
    client.first(&session, "tool_started").await;
    let has_run = || std::fs::read_to_string(daemon.side_effects()).is_ok_and(|effects| effects == "once\n");
    until("it has run", async || has_run().then_some(())).await;
    let changed = "UPDATE family SET data = json_set(data, '$.calls[0].started', json('false')) WHERE session = ? AND name = 'turn'";
    change(&daemon, changed, &[&session]).await;
    daemon.launch().await;
    doctor(&daemon, &[], false, "its state cannot be read").await;
    // What cannot be loaded does not run.
    doctor(&daemon, &["--repair"], true, "carried over (1)").await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&client, &back], &model);
    stop(&daemon).await;
}

#[tokio::test]
async fn without_its_state_and_its_last_events_a_session_goes_on_only_at_a_users_word() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([crate::bash(&format!("{}; sleep 60", daemon.effect("once")))]);
    client.prompt(&session, "go").await;
    let started = client.first(&session, "tool_started").await.seq().unwrap();
    let has_run = || std::fs::read_to_string(daemon.side_effects()).is_ok_and(|effects| effects == "once\n");
    until("it has run", async || has_run().then_some(())).await;
    damage(&daemon, |path| {
        let connection = Connection::open(path).unwrap();
        let gone = "DELETE FROM event WHERE session = ? AND seq >= ?";
        assert!(connection.execute(gone, (&session, started as i64)).unwrap() >= 1);
        assert_eq!(connection.execute("UPDATE session SET fold = 'x' WHERE id = ?", [&session]).unwrap(), 1);
    })
    .await;
    daemon.launch().await;
    doctor(&daemon, &[], false, "may be missing").await;
    doctor(&daemon, &["--repair"], false, "carried over").await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "error");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    assert_eq!(model.requests().len(), 1, "nothing goes on by itself");
    stop(&daemon).await;
}

#[tokio::test]
async fn rows_that_no_linger_has_written_harm_no_session() {
    let model = ModelServer::start();
    let (daemon, client, session, asked) = asking(&model).await;
    damage(&daemon, |path| {
        let connection = Connection::open(path).unwrap();
        let all = [
            // Of one that is there.
            format!("INSERT INTO removed VALUES ('{session}')"),
            // Of an answer that is over.
            format!("INSERT INTO scratch VALUES ('{session}', 'm2', 0, 5, 'text', 'odd')"),
            // Of nobody.
            "INSERT INTO question SELECT 'q0', 'nobody', asked, NULL, NULL, NULL FROM question".to_owned(),
        ];
        all.iter().for_each(|sql| assert_eq!(connection.execute(sql, []).unwrap(), 1, "{sql}"));
    })
    .await;
    daemon.launch().await;
    doctor(&daemon, &[], true, "completely readable").await;
    let back = daemon.client().await;
    assert_eq!(back.call("permission/list", json!({})).await.as_array().unwrap().len(), 1);
    back.attach(&session).await;
    answer(&back, asked.str("permission"), "allow_once").await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    back.call("session/list", json!({})).await;
    let clean = "DELETE FROM scratch; DELETE FROM question WHERE id = 'q0'";
    Connection::open(daemon.dirs.database()).unwrap().execute_batch(clean).unwrap();
    daemon.check(&[&client, &back], &model);
    stop(&daemon).await;
}
