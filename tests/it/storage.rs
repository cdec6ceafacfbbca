//! Writes that fail: a trigger in the database refuses events of one kind, until it is taken away.

use linger_tests::harness::{Daemon, comes_true};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

pub(crate) use crate::shared::storage::{refuse, refuse_with, take_again};
use crate::{answer, bash, story};

/// Makes the database refuse all events, and whatever else is written of a session: so it seems at no try to be well again.
fn refuse_all(daemon: &Daemon) {
    refuse_states(daemon);
    let sql = "CREATE TRIGGER refused BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'refused'); END";
    rusqlite::Connection::open(daemon.dirs.database()).unwrap().execute_batch(sql).unwrap();
}

/// Makes the database refuse what else is written of a session.
fn refuse_states(daemon: &Daemon) {
    let sql = "CREATE TRIGGER refused_too BEFORE UPDATE ON session BEGIN SELECT RAISE(ABORT, 'refused'); END";
    rusqlite::Connection::open(daemon.dirs.database()).unwrap().execute_batch(sql).unwrap();
}

fn failed(daemon: &Daemon) -> bool {
    std::fs::read_to_string(daemon.dirs.log()).unwrap_or_default().contains("write failed")
}

#[tokio::test]
async fn a_tool_whose_start_cannot_be_written_does_not_run_and_the_turn_goes_on_when_it_can() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    refuse(&daemon, "tool_started");
    client.prompt(&session, "go").await;
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the write is refused");
    assert!(!daemon.side_effects().exists(), "nothing ran");
    // Nor is anything written when it is tried again.
    refuse_states(&daemon);
    // Reading goes on; what would write is told why it cannot.
    let reader = daemon.client().await;
    reader.attach(&session).await;
    let refused = reader.request("session/prompt", json!({ "session": session, "content": "more" })).await.unwrap();
    assert_eq!(refused.expect_err("nothing can be written").code, -31016);
    take_again(&daemon);
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(client.call("daemon/status", json!({})).await["damage"], json!(null), "it can be written again");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&client, &reader], &model);
}

#[tokio::test]
async fn a_question_that_cannot_be_written_is_asked_when_it_can() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    refuse(&daemon, "permission_requested");
    client.prompt(&session, "go").await;
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the question is refused");
    take_again(&daemon);
    let asked = client.first(&session, "permission_requested").await;
    answer(&client, asked.str("permission"), "allow_once").await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn who_asks_for_something_need_not_wait_until_a_failed_write_is_tried_again() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let count = |what: &str| daemon.log().matches(what).count();
    let set = json!({ "session": session, "effort": "low" });
    refuse(&daemon, "session_changed");
    // Each failure makes the pause before the next try longer; nothing is tried more than once a second.
    rusqlite::Connection::open(daemon.dirs.database())
        .unwrap()
        .execute_batch("ALTER TABLE session RENAME TO away")
        .unwrap();
    client.request("session/set", set.clone()).await.unwrap().expect_err("it cannot be stored");
    assert!(comes_true(linger_tests::TIMEOUT, || count("still cannot be written") == 3), "the pauses are 1, 2 and 4 s");
    rusqlite::Connection::open(daemon.dirs.database())
        .unwrap()
        .execute_batch("ALTER TABLE away RENAME TO session")
        .unwrap();
    take_again(&daemon);
    linger_tests::harness::until("the effort is set", async || {
        client.request("session/set", set.clone()).await.unwrap().ok()
    })
    .await;
    assert_eq!(count("still cannot be written"), 3, "it came before the next try");
    client.turn(&session, "hello").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn an_accepted_prompt_whose_turn_had_not_started_when_the_daemon_died_gets_its_turn() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    refuse(&daemon, "turn_started");
    client.prompt(&session, "hello").await;
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the start of the turn is refused");
    daemon.kill_all().await;
    take_again(&daemon);
    daemon.launch().await;
    // Nobody says anything more.
    model.wait_requests(1).await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    assert_eq!(story(&back.transcript(), &session).last().unwrap(), "turn_finished");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_turn_that_was_cut_between_its_last_answer_and_its_end_only_ends() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    refuse(&daemon, "turn_finished");
    client.prompt(&session, "hello").await;
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the end of the turn is refused");
    daemon.kill_all().await;
    take_again(&daemon);
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(model.requests().len(), 1, "the model is not asked for what it has said");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn what_a_user_adds_to_a_turn_reaches_the_model_once_it_is_written_down() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("red").gate(&gate), Reply::text("blue")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "a colour").await;
    client.sees_text(&session, "red").await;
    client.call("session/prompt", json!({ "session": session, "content": "another", "when": "steer" })).await;
    refuse_with(&daemon, "message", "another");
    gate.open();
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the message is refused");
    take_again(&daemon);
    client.first(&session, "turn_finished").await;
    assert_eq!(model.requests().len(), 2, "nobody was asked about what was not stored");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_turn_is_cancelled_of_which_nothing_can_be_written_whatever_was_cancelled_before() {
    let (first, second) = (Gate::new(), Gate::new());
    let model = ModelServer::with([
        Reply::text("one").gate(&first),
        Reply::text("two").gate(&second).and_text("more"),
        Reply::text("done"),
    ]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let cancel = |key: &str| json!({ "session": session, "key": key });
    client.prompt(&session, "one").await;
    client.sees_text(&session, "one").await;
    client.call("session/cancel", cancel("c-1")).await;
    client.prompt(&session, "two").await;
    client.sees_text(&session, "two").await;
    refuse_all(&daemon);
    second.open();
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the answer is refused");
    let refused = client.request("session/cancel", cancel("c-2")).await.unwrap().unwrap_err();
    assert_eq!(refused.code, -31016, "{refused}");
    take_again(&daemon);
    assert_eq!(client.nth(&session, "turn_finished", 2).await.str("stop_reason"), "cancelled");
    // Both are what they were.
    client.call("session/cancel", cancel("c-1")).await;
    client.call("session/cancel", cancel("c-2")).await;
    assert_eq!(client.turn(&session, "three").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_session_of_which_nothing_can_be_written_can_be_removed_by_force() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("one").gate(&gate).and_text("more")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.sees_text(&session, "one").await;
    refuse_all(&daemon);
    gate.open();
    assert!(comes_true(linger_tests::TIMEOUT, || failed(&daemon)), "the answer is refused");
    let refused = client.request("session/remove", json!({ "session": session })).await.unwrap().unwrap_err();
    assert_eq!(refused.code, -31016, "{refused}");
    // Whoever looks is told.
    let damage = client.call("daemon/status", json!({})).await["damage"].clone();
    assert!(damage[0]["what"] == "unwritten" && damage[0]["text"].as_str().unwrap().contains("refused"), "{damage}");
    let listed = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(listed.stdout.contains("stalled") && listed.stderr.contains("cannot write events"), "{listed:?}");
    let doctor = daemon.cli(&["doctor"]).run().await.exits(1);
    assert!(doctor.stdout.contains("✗ cannot write events of a session"), "{doctor:?}");
    client.call("session/remove", json!({ "session": session, "force": true })).await;
    // Its rows are deleted in the background, and later if the database is locked then.
    let is_gone = || {
        let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
        database.query_row("SELECT NOT EXISTS (SELECT 1 FROM removed)", [], |row| row.get(0)).unwrap()
    };
    assert!(comes_true(linger_tests::TIMEOUT, is_gone), "its rows are deleted");
    take_again(&daemon);
    assert_eq!(client.call("session/list", json!({})).await, json!([]));
    assert_eq!(client.call("daemon/status", json!({})).await["damage"], json!(null), "nobody waits for that any more");
    daemon.check(&[&client], &model);
}
