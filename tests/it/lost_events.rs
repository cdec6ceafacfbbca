//! Events of a session that cannot be read any more: the replay ends before them, and what a repair makes of the rest.

use std::collections::BTreeMap;
use std::path::Path;

use linger_tests::check::{Seen, Trace, assert_holds};
use linger_tests::harness::{Client, Daemon};
use linger_tests::model::{Gate, ModelServer, Reply};
use rusqlite::Connection;
use serde_json::json;

use crate::answer;
use crate::damage::{damage, doctor, said, stop, talk};

/// Makes one event of a session unreadable, and its state too if that is wanted.
fn spoil(path: &Path, session: &str, seq: u64, state: bool) {
    let connection = Connection::open(path).unwrap();
    let sql = "UPDATE event SET data = '{\"kind\":' WHERE session = ? AND seq = ?";
    assert_eq!(connection.execute(sql, (session, seq as i64)).unwrap(), 1);
    if state {
        connection.execute("UPDATE session SET fold = '{' WHERE id = ?", [session]).unwrap();
    }
}

#[tokio::test]
async fn a_row_that_is_no_event_ends_the_replay_before_it_and_nothing_after_it_runs_again() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([crate::bash(&daemon.effect("once")), Reply::text("done")]);
    client.turn(&session, "go").await;
    let (good, started) = (talk(&client, &model, "good", 1).await, client.first(&session, "tool_started").await);
    let broken = started.seq().unwrap();
    damage(&daemon, |path| {
        let sql = format!("UPDATE event SET data = '{{\"kind\":' WHERE session = '{session}' AND seq = {broken}");
        Connection::open(path).unwrap().execute_batch(&sql).unwrap();
    })
    .await;
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    let end = back.first(&session, "notice").await;
    assert_eq!((end.str("code"), end.seq()), ("damaged", None));
    assert!(end.str("text").contains(&format!("event {broken} cannot be read")), "{end:?}");
    let seen = back.transcript();
    assert_eq!(seen.events().filter_map(Seen::seq).max(), Some(broken - 1));
    assert_eq!(said(&back).await[0]["session"], session);
    back.attach(&good).await;
    back.first(&good, "turn_finished").await;
    doctor(&daemon, &["--repair", "--force"], false, "set aside").await;
    let after = daemon.client().await;
    after.attach(&session).await;
    // Everything else is where it was, and its turn is over.
    assert_eq!(after.first(&session, "lost").await.seq(), Some(broken));
    assert_eq!(after.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    model.push([Reply::text("Good day")]);
    assert_eq!(after.turn(&session, "hello").await.str("stop_reason"), "end_turn");
    // The start of the call is what the damage took away; that it ran once is asserted above.
    assert_holds(&Trace { side_effects: None, ..daemon.trace(&[&after], &model) });
    stop(&daemon).await;
}

#[tokio::test]
async fn repair_leaves_out_what_is_lost_and_nothing_that_waits_or_came_later() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = talk(&client, &model, "three", 3).await;
    let lost = client.nth(&session, "message", 2).await.seq().unwrap();
    model.push([crate::bash(&daemon.effect("once")), Reply::text("done"), Reply::text("and more")]);
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    client.prompt(&session, "and then").await;
    let paid = client.call("usage/list", json!({ "by": "session" })).await;
    damage(&daemon, |path| spoil(path, &session, lost, false)).await;
    daemon.launch().await;
    doctor(&daemon, &["--repair", "--force"], false, "carried over").await;
    let after = daemon.client().await;
    assert_eq!(
        after.call("usage/list", json!({ "by": "session" })).await,
        paid,
        "lost answers have cost something too"
    );
    let left = said(&after).await.remove(0)["left"][0].clone();
    assert_eq!(left["events"].as_u64().map(|events| events + 1), left["of"].as_u64(), "{left}");
    after.attach(&session).await;
    let gap = after.first(&session, "lost").await;
    assert_eq!((gap.seq(), &gap.event["first"], &gap.event["last"]), (Some(lost), &json!(lost), &json!(lost)));
    after.nth(&session, "notice", 2).await;
    // The numbers that a client had are those of the same events.
    let had = |client: &Client| -> BTreeMap<u64, String> {
        let seen = client.transcript();
        seen.events().filter_map(|seen| Some((seen.seq()?, seen.raw.clone()))).filter(|(seq, _)| *seq != lost).collect()
    };
    let (before, now) = (had(&client), had(&after));
    assert!(before.iter().all(|(seq, raw)| now.get(seq) == Some(raw)), "{before:#?} {now:#?}");
    // Whom was asked before is answered now; what was queued has its turn.
    model.expect_rewrites();
    answer(&after, asked.str("permission"), "allow_once").await;
    assert_eq!(after.nth(&session, "turn_finished", 4).await.str("stop_reason"), "end_turn");
    assert_eq!(after.nth(&session, "turn_finished", 5).await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&after], &model);
    let log = daemon.cli(&["log", &session]).run().await.exits(0);
    assert!(log.stdout.contains(&format!("event {lost} can no longer be read")), "{log:?}");
    stop(&daemon).await;
}

#[tokio::test]
async fn a_letter_that_changed_within_an_event_is_noticed_and_reaches_nobody() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (changed, good) = (talk(&client, &model, "changed", 2).await, talk(&client, &model, "good", 1).await);
    let answer = client.nth(&changed, "message", 2).await;
    let lost = answer.seq().unwrap();
    damage(&daemon, |path| {
        // A bit of one letter: "and" becomes "aod"; also where its deltas were, which are deleted.
        let mut bytes = std::fs::read(path).unwrap();
        let text = b"changed-0 and so on";
        let places = bytes.windows(text.len()).enumerate().filter(|(_, found)| found == text).map(|(at, _)| at);
        let places: Vec<usize> = places.collect();
        assert!(!places.is_empty());
        places.iter().for_each(|at| bytes[at + "changed-0 a".len()] ^= 1);
        std::fs::write(path, bytes).unwrap();
    })
    .await;
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&changed).await;
    let end = back.first(&changed, "notice").await;
    assert_eq!((end.str("code"), end.seq()), ("damaged", None));
    assert!(end.str("text").contains(&format!("event {lost} cannot be read: it is not what was written")), "{end:?}");
    assert_eq!(back.transcript().events().filter_map(Seen::seq).max(), Some(lost - 1));
    doctor(&daemon, &[], false, "not what was written").await;
    doctor(&daemon, &["--repair", "--force"], false, "carried over").await;
    let after = daemon.client().await;
    after.attach(&changed).await;
    assert_eq!(after.first(&changed, "lost").await.seq(), Some(lost));
    model.expect_rewrites();
    for session in [&changed, &good] {
        after.attach(session).await;
        model.push([Reply::text("Good day")]);
        assert_eq!(after.turn(session, "hello").await.str("stop_reason"), "end_turn");
    }
    assert_holds(&daemon.trace(&[&after], &model));
    stop(&daemon).await;
}

#[tokio::test]
async fn a_session_whose_row_or_beginning_is_lost_is_there_after_a_repair() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let rowless = talk(&client, &model, "rowless", 2).await;
    let headless = talk(&client, &model, "headless", 2).await;
    damage(&daemon, |path| {
        let connection = Connection::open(path).unwrap();
        assert_eq!(connection.execute("DELETE FROM session WHERE id = ?", [&rowless]).unwrap(), 1);
        drop(connection);
        spoil(path, &headless, 1, true);
    })
    .await;
    daemon.launch().await;
    doctor(&daemon, &[], false, "its row is missing").await;
    doctor(&daemon, &["--repair", "--force"], false, "carried over").await;
    let after = daemon.client().await;
    let rows = after.call("session/list", json!({})).await;
    for (session, name) in [(&rowless, Some("rowless")), (&headless, Some("headless"))] {
        let row = rows.as_array().unwrap().iter().find(|row| row["session"] == **session).expect("it is there");
        assert_eq!((row["name"].as_str(), row["cwd"].as_str()), (name, daemon.workspace().to_str()), "{row}");
        after.attach(session).await;
        after.nth(session, "turn_finished", 2).await;
    }
    assert_eq!(after.first(&headless, "lost").await.seq(), Some(1));
    stop(&daemon).await;
}

#[tokio::test]
async fn without_its_state_too_nothing_of_a_session_goes_on_by_itself_or_twice() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "auto" })).await;
    client.attach(&session).await;
    model.push([crate::bash(&daemon.effect("once")), Reply::text("done").gate(&Gate::new())]);
    client.prompt(&session, "go").await;
    client.prompt(&session, "and then").await;
    client.nth(&session, "message", 3).await;
    let results = client.nth(&session, "message", 3).await.seq().unwrap();
    let finished = client.first(&session, "tool_finished").await.seq().unwrap();
    // The gated reply is used up in this life.
    model.wait_requests(2).await;
    damage(&daemon, |path| {
        spoil(path, &session, finished, false);
        spoil(path, &session, results, true);
    })
    .await;
    daemon.launch().await;
    doctor(&daemon, &["--repair", "--force"], false, "carried over").await;
    let after = daemon.client().await;
    after.attach(&session).await;
    assert_eq!(after.first(&session, "turn_finished").await.str("stop_reason"), "error");
    let rows = after.call("session/list", json!({})).await;
    assert_eq!((&rows[0]["mode"], &rows[0]["queued"]), (&json!("ask"), &json!(0)), "{rows}");
    model.expect_rewrites();
    model.otherwise(|_| Reply::text("Good day"));
    after.prompt(&session, "hello").await;
    assert_eq!(after.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    let body = String::from_utf8(model.requests().last().unwrap().body.clone()).unwrap();
    assert!(body.contains("the result of this call is lost; it may have run"), "{body}");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    stop(&daemon).await;
}

#[tokio::test]
async fn a_call_whose_result_is_lost_does_not_run_again_for_a_compaction() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([crate::bash(&daemon.effect("once")), Reply::text("done")]);
    let end = client.turn(&session, "go").await.seq().unwrap();
    let finished = client.first(&session, "tool_finished").await.seq().unwrap();
    damage(&daemon, |path| (finished..=end).for_each(|seq| spoil(path, &session, seq, false))).await;
    daemon.launch().await;
    doctor(&daemon, &["--repair", "--force"], false, "carried over").await;
    let after = daemon.client().await;
    after.attach(&session).await;
    model.expect_rewrites();
    model.otherwise(|_| Reply::text("## Goal\nto be done"));
    after.call("session/compact", json!({ "session": session })).await;
    after.first(&session, "turn_finished").await;
    assert_eq!(after.turn(&session, "hello").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    stop(&daemon).await;
}

#[tokio::test]
async fn a_turn_of_which_something_is_lost_is_closed_with_what_is_known_of_its_calls() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (session, other) = (client.session().await, talk(&client, &model, "other", 3).await);
    let lost_too = client.nth(&other, "message", 2).await.seq().unwrap();
    model.push([Reply::tool("ls", json!({})).and_tool("bash", json!({ "command": "echo" })), Reply::text("done")]);
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    // One of the two has its result.
    client.first(&session, "tool_finished").await;
    damage(&daemon, |path| {
        spoil(path, &session, asked.seq().unwrap(), false);
        spoil(path, &other, lost_too, false);
    })
    .await;
    daemon.launch().await;
    doctor(&daemon, &["--repair", "--force"], false, "of its 2 sessions 0 were carried over whole").await;
    let after = daemon.client().await;
    after.attach(&session).await;
    after.attach(&other).await;
    assert_eq!(after.first(&session, "turn_finished").await.str("stop_reason"), "error");
    after.nth(&other, "turn_finished", 3).await;
    assert_eq!(after.call("permission/list", json!({})).await, json!([]));
    model.expect_rewrites();
    model.otherwise(|_| Reply::text("Good day"));
    assert_eq!(after.turn(&session, "hello").await.str("stop_reason"), "end_turn");
    assert_eq!(after.turn(&other, "hello").await.str("stop_reason"), "end_turn");
    stop(&daemon).await;
}
