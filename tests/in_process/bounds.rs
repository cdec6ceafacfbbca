//! Each bound that a client, a model or a file can reach has an error of its own beyond it, and what came before goes on.

use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use super::{answer, bash};
use crate::Daemon;

/// `Code::TooMuch`.
const TOO_MUCH: i32 = -31015;

#[tokio::test]
async fn a_request_that_is_beyond_a_bound_is_refused_with_the_bound() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create().await;
    let cwd = daemon.workspace();
    let long = |n: usize| "x".repeat(n);
    let cases = [
        ("session/create", json!({ "cwd": cwd, "model": format!("work/{}", long(256)) }), TOO_MUCH),
        ("session/create", json!({ "cwd": cwd, "env": { "PATH": long(128 << 10) } }), TOO_MUCH),
        ("session/create", json!({ "cwd": cwd, "name": long(41) }), -31012),
        ("session/create", json!({ "cwd": format!("/{}", long(5000)) }), -31011),
        ("session/set", json!({ "session": session, "model": format!("work/{}", long(256)) }), TOO_MUCH),
        ("session/set", json!({ "session": session, "name": long(41) }), -31012),
        ("session/attach", json!({ "session": session, "after": long(1 << 20) }), -31004),
        ("session/attach", json!({ "session": long(1 << 20) }), -31002),
        ("daemon/keys", json!({ "keys": { "WORK_KEY": long((64 << 10) + 1) } }), TOO_MUCH),
        (
            "permission/answer",
            json!({ "permission": "q", "decision": "reject_once", "reason": long((16 << 10) + 1) }),
            TOO_MUCH,
        ),
    ];
    for (method, params, code) in cases {
        let error = client.refused(method, params).await;
        assert_eq!(error.code, code, "{method}: {error}");
        assert!(error.message.len() < 2 << 20);
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn one_client_attaches_to_so_many_sessions_and_no_more() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    for _ in 0..256 {
        client.session().await;
    }
    let more = client.create().await;
    assert_eq!(client.refused("session/attach", json!({ "session": more })).await.code, TOO_MUCH);
    let other = daemon.client().await;
    other.attach(&more).await;
    daemon.check(&[&client, &other], &model);
}

#[tokio::test]
async fn so_many_prompts_wait_and_so_many_bytes_of_them() {
    let model = ModelServer::start();
    let gate = linger_tests::model::Gate::new();
    model.push([Reply::new().gate(&gate).and_text("first")]);
    model.push((0..256).map(|_| Reply::text("next")));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "first").await;
    gate.reached().await;
    let large = json!({ "session": session, "content": "x".repeat(12 << 20) });
    client.call("session/prompt", large.clone()).await;
    client.call("session/prompt", large.clone()).await;
    assert_eq!(client.refused("session/prompt", large).await.code, TOO_MUCH);
    for n in 2..256 {
        client.prompt(&session, &format!("p{n}")).await;
    }
    assert_eq!(client.refused("session/prompt", json!({ "session": session, "content": "more" })).await.code, TOO_MUCH);
    client.call("session/cancel", json!({ "session": session })).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn an_answer_has_so_many_calls_and_the_others_are_told_so() {
    let model = ModelServer::start();
    let call = |reply: Reply, n: usize| reply.and_tool("glob", json!({ "pattern": format!("{n}") }));
    model.push([(0..130).fold(Reply::new(), call), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let results: Vec<Value> = client.transcript().of("tool_finished").map(|seen| seen.event.clone()).collect();
    let refused: Vec<&str> = results
        .iter()
        .filter(|result| result["outcome"] == "invalid")
        .map(|result| result["content"][0]["text"].as_str().unwrap())
        .collect();
    let text = "not run: an answer may have 128 calls; make the others in the next one";
    assert_eq!((results.len(), refused), (130, vec![text; 2]));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_results_of_one_answer_have_a_size_and_what_is_beyond_is_left_out() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let mut image = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0".to_vec();
    image.resize(4 << 20, 7);
    std::fs::write(daemon.workspace().join("x.png"), image).unwrap();
    // Each is 5.6 MB in base64: the sixth no longer fits into 32 MiB.
    let call = |reply: Reply, _| reply.and_tool("read", json!({ "path": "x.png" }));
    model.push([(0..7).fold(Reply::new(), call), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "look").await;
    for n in 1..=7 {
        client.nth(&session, "tool_finished", n).await;
    }
    client.first(&session, "turn_finished").await;
    let left_out: Vec<bool> = client
        .transcript()
        .of("tool_finished")
        .map(|seen| {
            let text = seen.event["content"][0]["text"].as_str().unwrap_or_default();
            seen.event["is_error"] == true && text.contains("is left out")
        })
        .collect();
    assert_eq!((left_out.len(), left_out.iter().filter(|out| **out).count()), (7, 2), "{left_out:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn an_answer_without_end_fails_and_the_session_goes_on() {
    let model = ModelServer::start();
    let block = "x".repeat(1 << 20);
    let endless = (0..17).fold(Reply::new(), |reply, _| reply.and_text(block.clone()));
    model.push([endless, Reply::text("short")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "go").await;
    assert_eq!(finished.str("stop_reason"), "error");
    assert!(finished.str("detail").contains("more than 16 MiB of text"), "{}", finished.str("detail"));
    assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_rule_that_is_too_long_for_a_session_is_allowed_once_only() {
    let model = ModelServer::start();
    let command = format!("true {}", "x".repeat(9 << 10));
    model.push([bash(&command), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    let permission = asked.str("permission").to_owned();
    let params = json!({ "permission": permission, "decision": "allow_session" });
    assert_eq!(client.refused("permission/answer", params).await.code, TOO_MUCH);
    answer(&client, &permission, "allow_once").await;
    client.first(&session, "turn_finished").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_database_that_is_full_of_sessions_takes_no_more_and_serves_those_it_has() {
    let model = ModelServer::start();
    model.push([Reply::text("still here")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    database.busy_timeout(linger_tests::TIMEOUT).unwrap();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
               INSERT INTO session (id, name, cwd, state, updated_at, env, fold, size)
               SELECT 'z' || i, NULL, '/', 'idle', 0, '{}', '{}', 0 FROM n";
    database.execute(sql, []).unwrap();
    let error = client.refused("session/create", json!({ "cwd": daemon.workspace() })).await;
    assert_eq!(error.code, TOO_MUCH, "{error}");
    client.turn(&session, "go").await;
    database.execute("DELETE FROM session WHERE id LIKE 'z%'", []).unwrap();
    client.create().await;
    daemon.check(&[&client], &model);
}
