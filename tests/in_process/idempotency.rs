//! A mutation with a key happens once, whatever is lost on the way and however often it is sent again.

use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::Daemon;
use crate::bash;

#[tokio::test]
async fn a_prompt_sent_twice_with_one_key_happens_once() {
    let model = ModelServer::with([Reply::text("once")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let prompt = json!({ "session": session, "content": "go", "key": "k-81" });
    let first = client.call("session/prompt", prompt.clone()).await;
    let second = client.call("session/prompt", prompt.clone()).await;
    assert_eq!(first, second);
    client.first(&session, "turn_finished").await;
    assert_eq!(client.call("session/prompt", prompt).await, first, "also when it is done");
    assert_eq!(client.transcript().of("prompt_accepted").count(), 1);
    assert_eq!(model.requests().len(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_prompt_sent_by_many_at_once_with_one_key_happens_once() {
    let model = ModelServer::with([Reply::text("once")]);
    let daemon = Daemon::start(&model).await;
    let (one, two, three) = (daemon.client().await, daemon.client().await, daemon.client().await);
    let session = one.session().await;
    let prompt = || json!({ "session": session, "content": "go", "key": "k" });
    let answers = tokio::join!(
        one.call("session/prompt", prompt()),
        two.call("session/prompt", prompt()),
        three.call("session/prompt", prompt())
    );
    assert_eq!((&answers.0, &answers.0), (&answers.1, &answers.2));
    one.first(&session, "turn_finished").await;
    daemon.check(&[&one, &two, &three], &model);
}

#[tokio::test]
async fn keys_of_two_sessions_have_nothing_to_do_with_each_other() {
    let model = ModelServer::with([Reply::text("a"), Reply::text("b")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    for _ in 0..2 {
        let session = client.session().await;
        client.call("session/prompt", json!({ "session": session, "content": "go", "key": "same" })).await;
        client.first(&session, "turn_finished").await;
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_key_that_was_used_for_something_else_is_refused_and_nothing_happens() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.create_with(json!({ "key": "k", "name": "one" })).await;
    client.attach(&session).await;
    let directory = daemon.workspace();
    let other = json!({ "cwd": directory, "key": "k", "name": "two" });
    let error = client.refused("session/create", other).await;
    assert_eq!((error.code, error.message.as_str()), (-31022, "the key was used for another request"));

    // A key counts within its method and its session: this is another.
    let prompt = |text: &str| json!({ "session": session, "content": text, "key": "k" });
    client.call("session/prompt", prompt("go")).await;
    assert_eq!(client.refused("session/prompt", prompt("no")).await.code, -31022);
    let permission = client.first(&session, "permission_requested").await.str("permission").to_owned();
    let answer = |decision: &str| json!({ "permission": permission, "decision": decision, "key": "k" });
    client.call("permission/answer", answer("allow_once")).await;
    assert_eq!(client.refused("permission/answer", answer("reject_once")).await.code, -31022);
    client.first(&session, "turn_finished").await;
    let set = |mode: &str| json!({ "session": session, "mode": mode, "key": "k" });
    client.call("session/set", set("plan")).await;
    assert_eq!(client.refused("session/set", set("auto")).await.code, -31022);

    let row = client.call("session/list", json!({})).await;
    assert_eq!((row.as_array().unwrap().len(), &row[0]["mode"]), (1, &json!("plan")));
    assert_eq!(client.transcript().of("prompt_accepted").count(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_key_has_1_to_128_bytes() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    for (length, fits) in [(0, false), (1, true), (128, true), (129, false)] {
        let create = json!({ "cwd": daemon.workspace(), "key": "k".repeat(length) });
        let answer = client.request("session/create", create).await.unwrap();
        assert_eq!(answer.map_err(|error| error.code).err(), (!fits).then_some(-31022), "{length}");
    }
}

#[tokio::test]
async fn the_oldest_outcome_is_forgotten_when_there_are_too_many() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let first = client.create_with(json!({ "key": "c1" })).await;
    assert_eq!(client.create_with(json!({ "key": "c1" })).await, first);
    // As if others had come meanwhile; one more makes the first one too many.
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    let other = "INSERT INTO outcome (n, key, session, params, result, at) VALUES (20000, 'x', '', '', '{}', 0)";
    database.execute(other, []).unwrap();
    client.create_with(json!({ "key": "c2" })).await;
    let keys: String = database
        .query_row("SELECT group_concat(key) FROM (SELECT key FROM outcome ORDER BY n)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(keys, "x,session/create c2");
    assert_ne!(client.create_with(json!({ "key": "c1" })).await, first);
}
