//! A mutation with a key happens once, whatever is lost on the way and however often it is sent again.

use linger_tests::harness::{Daemon, comes_true, process};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::bash;

#[tokio::test]
async fn a_prompt_sent_again_after_kill_9_happens_once() {
    let model = ModelServer::scripted(|_| Reply::text("once"));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let prompt = json!({ "session": session, "content": "go", "key": "k-90" });
    let first = client.call("session/prompt", prompt.clone()).await;
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    again.attach(&session).await;
    assert_eq!(again.call("session/prompt", prompt).await, first);
    again.first(&session, "turn_finished").await;
    assert_eq!(again.transcript().of("prompt_accepted").count(), 1);
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn a_session_created_twice_with_one_key_is_one_session_also_after_a_restart() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let first = client.create_with(json!({ "key": "c1" })).await;
    assert_eq!(client.create_with(json!({ "key": "c1" })).await, first);
    assert_ne!(client.create_with(json!({ "key": "c2" })).await, first);
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    assert_eq!(again.create_with(json!({ "key": "c1" })).await, first);
    assert_eq!(again.call("session/list", json!({})).await.as_array().unwrap().len(), 2);
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn an_answer_sent_twice_with_one_key_has_won_twice() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let permission = client.first(&session, "permission_requested").await.str("permission").to_owned();
    let yes = json!({ "permission": permission, "decision": "allow_once", "key": "a1" });
    assert_eq!(client.call("permission/answer", yes.clone()).await, json!({ "outcome": "won" }));
    client.first(&session, "turn_finished").await;
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    assert_eq!(again.call("permission/answer", yes).await, json!({ "outcome": "won" }));
    let other = json!({ "permission": permission, "decision": "allow_once", "key": "a2" });
    assert_eq!(again.refused("permission/answer", other).await.code, -31001);
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_cancel_sent_again_does_not_cancel_the_next_turn() {
    let gates = [Gate::new(), Gate::new()];
    let model = ModelServer::with([
        Reply::text("one").gate(&gates[0]),
        Reply::text("two").gate(&gates[1]),
        Reply::text("three").gate(&gates[1]),
    ]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let cancel = json!({ "session": session, "key": "c-1" });
    assert_eq!(client.refused("session/cancel", cancel.clone()).await.code, -31014, "a refusal is no outcome");
    client.prompt(&session, "go").await;
    client.sees_text(&session, "one").await;
    let (one, two) = (daemon.client().await, daemon.client().await);
    let both = tokio::join!(one.call("session/cancel", cancel.clone()), two.call("session/cancel", cancel.clone()));
    assert_eq!(both, (json!({}), json!({})));
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "cancelled");
    client.prompt(&session, "and now").await;
    client.sees_text(&session, "two").await;
    assert_eq!(client.call("session/cancel", cancel.clone()).await, json!({}), "it is done");
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    again.attach(&session).await;
    again.sees_text(&session, "three").await;
    assert_eq!(again.call("session/cancel", cancel).await, json!({}), "it is still done");
    gates.iter().for_each(Gate::open);
    assert_eq!(again.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn a_continue_sent_again_does_not_take_up_what_was_stopped_since() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |_| Reply::text("so").gate(&held));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    for word in ["one", "two", "three"] {
        client.prompt(&session, word).await;
    }
    let stop = async |n| {
        client.nth(&session, "turn_started", n).await;
        client.call("session/cancel", json!({ "session": session })).await;
    };
    stop(1).await;
    let resume = json!({ "session": session, "key": "r-1" });
    assert_eq!(client.call("session/continue", resume.clone()).await, json!({}));
    stop(2).await;
    assert_eq!(client.call("session/continue", resume.clone()).await, json!({}));
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    assert_eq!(again.call("session/continue", resume).await, json!({}));
    let row = again.call("session/list", json!({})).await[0].clone();
    assert_eq!((&row["state"], &row["drafts"]), (&json!("idle"), &json!(1)), "the third still waits");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_removal_sent_again_is_done_though_nothing_is_left_of_the_session() {
    let model = ModelServer::with([Reply::text("once")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.call("session/prompt", json!({ "session": session, "content": "go", "key": "p-1" })).await;
    client.first(&session, "turn_finished").await;
    let remove = json!({ "session": session, "key": "r-1" });
    let (one, two) = (daemon.client().await, daemon.client().await);
    let both = tokio::join!(one.call("session/remove", remove.clone()), two.call("session/remove", remove.clone()));
    assert_eq!(both, (json!({}), json!({})));
    assert_eq!(client.call("session/remove", remove.clone()).await, json!({}));
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    assert_eq!(again.call("session/remove", remove.clone()).await, json!({}));
    let with = |name: &str, value: serde_json::Value| {
        let mut params = remove.clone();
        params[name] = value;
        params
    };
    assert_eq!(again.refused("session/remove", with("key", json!("r-2"))).await.code, -31002);
    assert_eq!(again.refused("session/remove", with("force", json!(true))).await.code, -31022);
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    let keys =
        || -> String { database.query_row("SELECT group_concat(key) FROM outcome", [], |row| row.get(0)).unwrap() };
    let removal = format!("session/remove {session} r-1");
    assert!(
        comes_true(linger_tests::TIMEOUT, || keys() == removal),
        "the outcomes of a session go with it: {}",
        keys()
    );
}

#[tokio::test]
async fn a_stop_sent_again_does_not_stop_the_next_daemon() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let keeper = daemon.keeper();
    let stop = json!({ "force": true, "key": "s-1" });
    assert_eq!(client.call("daemon/stop", stop.clone()).await, json!({}));
    client.closed().await;
    assert!(comes_true(linger_tests::TIMEOUT, || process::memory(keeper).0 == 0), "it ends");
    daemon.launch().await;
    let again = daemon.client().await;
    assert_eq!(again.call("daemon/stop", stop).await, json!({}));
    assert_eq!(again.refused("daemon/stop", json!({ "force": false, "key": "s-1" })).await.code, -31022);
    assert_eq!(again.call("daemon/status", json!({})).await["sessions"], 0, "it lives");
}

#[tokio::test]
async fn a_session_created_by_many_at_once_with_one_key_and_a_name_is_one_session() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let (one, two, three) = (daemon.client().await, daemon.client().await, daemon.client().await);
    let create = || json!({ "key": "c1", "name": "shared" });
    let made = tokio::join!(one.create_with(create()), two.create_with(create()), three.create_with(create()));
    assert_eq!((&made.0, &made.0), (&made.1, &made.2));
    assert_eq!(one.call("session/list", json!({})).await.as_array().unwrap().len(), 1);
    assert!(!daemon.log().contains("write failed"), "none of them ran into another");
}

#[tokio::test]
async fn a_change_sent_again_is_not_made_again_though_somebody_changed_it_back() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let set = json!({ "session": session, "name": "one", "key": "s-1" });
    client.call("session/set", set.clone()).await;
    client.call("session/set", json!({ "session": session, "name": "two", "key": "s-2" })).await;
    client.call("session/set", set.clone()).await;
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    again.call("session/set", set).await;
    assert_eq!(again.call("session/list", json!({})).await[0]["name"], "two");
    again.attach(&session).await;
    again.wait("the end", |seen| seen.of("caught_up").next().cloned()).await;
    assert_eq!(again.transcript().of("session_changed").count(), 2);
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn a_prune_sent_again_says_what_it_did_and_does_no_more() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    client.create().await;
    let prune = json!({ "older_than_ms": 0, "key": "p-1" });
    let first = client.call("session/prune", prune.clone()).await;
    assert_eq!(first["count"], 1);
    let kept = client.create().await;
    assert_eq!(client.call("session/prune", prune.clone()).await, first);
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    assert_eq!(again.call("session/prune", prune).await, first);
    let rows = again.call("session/list", json!({})).await;
    assert_eq!((rows.as_array().map(Vec::len), &rows[0]["session"]), (Some(1), &json!(kept)));
    daemon.check(&[&client, &again], &model);
}
