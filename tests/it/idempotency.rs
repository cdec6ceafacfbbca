//! A mutation with a key happens once, whatever is lost on the way and however often it is sent again.

use linger_tests::harness::Daemon;
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

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
