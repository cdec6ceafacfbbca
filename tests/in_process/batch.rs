//! Batches, notifications and requests in a row: in which order they take effect, and that no answer keeps others from theirs.

use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::bash;
use crate::shared::batch::daemon;

/// More than the daemon has room for in answers of `blob/get`, which take 1.5 MiB each.
const CROWD: usize = 50;

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn attach(id: u32, session: &str) -> Value {
    request(id, "session/attach", &json!({ "session": session }))
}

/// How often a line is sent until it is answered: a daemon that hangs up on all who read fails the test.
const ATTEMPTS: usize = 5;

/// Sends a line until it is answered. A client that could not read for two seconds, because its machine is busy, is hung up where
/// others wait for what it holds.
async fn answer(daemon: &Daemon, line: &str) -> Value {
    for _ in 0..ATTEMPTS {
        let mut raw = daemon.raw().await;
        raw.send(format!("{line}\n")).await;
        if let Some(answer) = raw.line().await {
            return answer;
        }
    }
    panic!("the daemon hung up {ATTEMPTS} times before it had answered");
}

/// Stores two megabytes, and gives their name.
async fn blob(daemon: &Daemon, model: &ModelServer) -> String {
    model.push([bash("yes 0123456 | head -c 2000000"), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "auto" })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    let seen = client.transcript();
    let finished = seen.of("tool_finished").next().unwrap().event.clone();
    finished["blob"].as_str().unwrap_or_else(|| panic!("{finished}")).to_owned()
}

#[tokio::test]
async fn batches_of_large_answers_keep_no_room_from_others_while_they_wait_for_more() {
    let (model, daemon, mut raw) = daemon().await;
    let blob = blob(&daemon, &model).await;
    let batch = |method: &str, params: &Value| {
        let requests: Vec<Value> = (0..64).map(|id| request(id, method, params)).collect();
        Value::from(requests).to_string()
    };
    let sessions = batch("session/list", &json!({}));
    let permissions = batch("permission/list", &json!({}));
    let blobs = batch("blob/get", &json!({ "blob": blob }));
    let (one, two) = tokio::join!(
        async { tokio::join!(answer(&daemon, &sessions), answer(&daemon, &permissions), answer(&daemon, &blobs)) },
        async { tokio::join!(answer(&daemon, &sessions), answer(&daemon, &permissions), answer(&daemon, &blobs)) },
    );
    for (n, answer) in [one.0, one.1, one.2, two.0, two.1, two.2].iter().enumerate() {
        let answers = answer.as_array().unwrap();
        let results =
            answers.iter().filter(|answer| answer["result"].is_object() || answer["result"].is_array()).count();
        let refused = answers.iter().filter(|answer| answer["error"]["code"] == -31015).count();
        // A batch whose answers have no room side by side is told so, one by one.
        let complete = if n % 3 == 2 { results >= 1 && results + refused == 64 } else { results == 64 };
        assert!(complete, "{results} results, {refused} refused: {:.300}", answer.to_string());
    }
    let list = raw.ask(&request(1, "session/list", &json!({})).to_string()).await;
    assert_eq!(list["result"].as_array().map(Vec::len), Some(1), "{list}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn clients_that_do_not_read_what_is_small_give_up_the_room_of_what_is_large() {
    let (model, daemon, _) = daemon().await;
    let blob = blob(&daemon, &model).await;
    let get = request(1, "blob/get", &json!({ "blob": blob }));
    let small = format!("{}\n", request(2, "tool/list", &json!({}))).repeat(62);
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let mut stuck = daemon.raw().await;
        // The small ones fill the socket while the large one is made.
        stuck.send(format!("{get}\n{small}")).await;
        crowd.push(stuck);
    }
    for _ in 0..3 {
        assert!(answer(&daemon, &get.to_string()).await["result"]["data"].is_string());
    }
    drop(crowd);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn the_requests_of_a_batch_take_effect_before_what_comes_after_it() {
    let (model, daemon, mut raw) = daemon().await;
    let client = daemon.client().await;
    let session = client.session().await;
    let set = |n: u32| request(n, "session/set", &json!({ "session": session, "name": format!("n{n}") }));
    let mut names = Vec::new();
    for round in 0..10 {
        let at = round * 100;
        let batch: Vec<Value> = (at..at + 60).map(set).collect();
        raw.send(format!("{}\n{}\n", Value::from(batch), set(at + 60))).await;
        names.extend((at..at + 61).map(|n| format!("n{n}")));
    }
    client.nth(&session, "session_changed", names.len()).await;
    let seen = client.transcript();
    let order: Vec<&str> = seen.of("session_changed").map(|seen| seen.event["name"].as_str().unwrap()).collect();
    assert_eq!(order, names);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_is_attached_by_a_notification_is_sent() {
    let (model, daemon, mut raw) = daemon().await;
    let client = daemon.client().await;
    let session = client.session().await;
    let attach = json!({ "jsonrpc": "2.0", "method": "session/attach", "params": { "session": session } });
    raw.send(format!("{attach}\n")).await;
    raw.until("caught_up").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn attaching_and_detaching_in_one_breath_leaves_the_last_attach_and_no_other() {
    let (model, daemon, mut raw) = daemon().await;
    let client = daemon.client().await;
    let session = client.session().await;
    let detach = |id| request(id, "session/detach", &json!({ "session": session }));
    let wrong = request(5, "session/attach", &json!({ "session": session, "after": "nowhere" }));
    let (one, two) = (attach(1, &session), attach(3, &session));
    raw.send(format!("{one}\n{}\n{two}\n", detach(2))).await;
    raw.until("caught_up").await;
    raw.send(format!("{}\n{wrong}\n{}\n{}\n", detach(4), detach(6), attach(7, &session))).await;
    raw.until("caught_up").await;
    client.call("session/set", json!({ "session": session, "name": "once" })).await;
    raw.until("session_changed").await;
    raw.send(format!("{}\n", detach(8))).await;
    let answer = raw.any_line().await.unwrap();
    assert_eq!(answer["id"], 8, "it came once: {answer}");
    client.call("session/set", json!({ "session": session, "name": "later" })).await;
    let status = request(9, "daemon/status", &json!({}));
    raw.send(format!("{status}\n")).await;
    let line = raw.any_line().await.unwrap();
    assert_eq!(line["id"], 9, "nobody sends what happens after the detach: {line}");
    daemon.check(&[&client], &model);
}
