//! Questions that are no permissions: asked in a session or without one, durable, answered once, by the first client.

use linger_tests::harness::{Client, Daemon, Setup};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::bash;

/// A daemon that asks what lies in its directory of choices.
async fn daemon(model: &ModelServer, choices: &[(&str, &str)]) -> Daemon {
    let daemon = Daemon::prepare(model, Setup { faulty: true, ..Setup::default() });
    lay(&daemon, choices);
    launch(&daemon).await;
    daemon
}

/// Lays choices ready: by `daemon` or the next `session`, and what they hold up.
fn lay(daemon: &Daemon, choices: &[(&str, &str)]) {
    let dir = daemon.dirs.root().join("choices");
    std::fs::create_dir_all(&dir).unwrap();
    for (whose, blocks) in choices {
        let options = json!([{ "name": "go_on", "label": "go on" }, { "name": "stop", "label": "stop here" }]);
        let choice = json!({ "text": format!("{whose}: go on?"), "options": options, "blocks": blocks });
        std::fs::write(dir.join(format!("{whose}.json")), choice.to_string()).unwrap();
    }
}

async fn launch(daemon: &Daemon) {
    let dir = daemon.dirs.root().join("choices").display().to_string();
    daemon.launch_with(&[("LINGER_ASK".to_owned(), dir)]).await;
}

async fn kill_and_restart(daemon: &Daemon) {
    daemon.kill_all().await;
    launch(daemon).await;
}

async fn pending(client: &Client) -> Vec<Value> {
    client.call("question/list", json!({})).await.as_array().unwrap().clone()
}

#[tokio::test]
async fn a_choice_that_holds_up_the_turn_waits_through_kill_9_and_another_client_answers_it() {
    let model = ModelServer::start();
    let daemon = daemon(&model, &[("session", "turn")]).await;
    model.push([Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.create().await;
    client.prompt(&session, "go").await;
    let watcher = daemon.client().await;
    watcher.attach(&session).await;
    let asked = watcher.first(&session, "question_asked").await;
    assert_eq!((&asked.event["asked"]["kind"], &asked.event["asked"]["blocks"]), (&json!("choice"), &json!("turn")));
    let before = watcher.hang_up();
    kill_and_restart(&daemon).await;
    let client = daemon.client().await;
    let rows = pending(&client).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["session"], &rows[0]["kind"]), (&json!(session), &json!("choice")));
    assert_eq!(rows[0]["digest"], asked.event["asked"]["digest"]);
    let list = client.call("session/list", json!({})).await;
    assert_eq!((&list[0]["state"], &list[0]["questions"]), (&json!("waiting"), &json!([asked.str("question")])));
    assert_eq!(model.requests().len(), 0, "the turn waits before its first step");
    client.continues(before);
    let cursor = client.cursor(&session);
    client.attach_after(&session, &cursor).await;
    let answer = |name: &str| json!({ "question": asked.str("question"), "answer": name, "key": format!("k-{name}") });
    let wrong = client.refused("question/answer", answer("maybe")).await;
    assert_eq!((wrong.code, wrong.get_hint()), (-31028, Some("use one of go_on, stop")));
    let other = daemon.named("other").await;
    assert_eq!(other.call("question/answer", answer("go_on")).await["outcome"], "won");
    assert_eq!(other.call("question/answer", answer("go_on")).await["outcome"], "won", "the same request again");
    let late = client.refused("question/answer", answer("stop")).await;
    let data = late.data.unwrap();
    assert_eq!((late.code, &data["answer"], &data["by"]), (-31001, &json!("go_on"), &json!("other")));
    assert_eq!(client.first(&session, "question_resolved").await.str("answer"), "go_on");
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let late = client.refused("question/answer", answer("stop")).await;
    assert_eq!((late.code, late.data.unwrap()), (-31001, data), "also when its turn is over");
    assert_eq!(pending(&client).await, [json!(null); 0]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_question_of_no_session_lives_in_the_daemons_log_and_survives_kill_9() {
    let model = ModelServer::start();
    let daemon = daemon(&model, &[("daemon", "nothing")]).await;
    let client = daemon.client().await;
    client.attach("daemon").await;
    let asked = client.first("daemon", "question_asked").await;
    let question = asked.str("question").to_owned();
    assert_eq!(asked.event["seq"], 2, "after what the first start took for confirmed");
    let before = client.hang_up();
    kill_and_restart(&daemon).await;
    let client = daemon.client().await;
    client.continues(before);
    let rows = pending(&client).await;
    assert_eq!((rows.len(), &rows[0]["question"]), (1, &json!(question)));
    assert_eq!((&rows[0]["session"], &rows[0]["text"]), (&Value::Null, &json!("daemon: go on?")));
    assert_eq!(client.call("question/list", json!({ "session": "daemon" })).await.as_array().unwrap().len(), 1);
    assert_eq!(client.call("permission/list", json!({})).await, json!([]));
    // It is no session.
    assert_eq!(client.call("session/list", json!({})).await, json!([]));
    assert_eq!(client.call("session/list", json!({ "matching": "daemon" })).await, json!([]));
    let status = client.call("daemon/status", json!({})).await;
    let counts = [&status["sessions"], &status["permissions"], &status["questions"]];
    assert_eq!(counts, [&json!(0), &json!(0), &json!(1)]);
    for (method, more) in [("session/prompt", json!({ "content": "x" })), ("session/remove", json!({ "force": true }))]
    {
        let mut params = json!({ "session": "daemon" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(client.refused(method, params).await.code, -31002, "{method}");
    }
    let pruned = client.call("session/prune", json!({ "older_than_ms": 0, "force": true })).await;
    assert_eq!(pruned["count"], 0);
    let permission = json!({ "permission": question, "decision": "allow_once" });
    assert_eq!(client.refused("permission/answer", permission).await.code, -31003);
    let cursor = client.cursor("daemon");
    client.attach_after("daemon", &cursor).await;
    client.call("question/answer", json!({ "question": question, "answer": "stop", "reason": "not now" })).await;
    let resolved = client.first("daemon", "question_resolved").await;
    assert_eq!((resolved.str("answer"), resolved.str("by"), resolved.str("reason")), ("stop", "test", "not now"));
    let before = client.hang_up();
    kill_and_restart(&daemon).await;
    let client = daemon.client().await;
    client.continues(before);
    let cursor = client.cursor("daemon");
    client.attach_after("daemon", &cursor).await;
    assert_eq!(pending(&client).await, [json!(null); 0]);
    let late = client.refused("question/answer", json!({ "question": question, "answer": "go_on" })).await;
    assert_eq!((late.code, &late.data.unwrap()["answer"]), (-31001, &json!("stop")));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_choice_that_holds_up_nothing_outlives_the_turn_and_its_session_rests() {
    let model = ModelServer::start();
    let daemon = daemon(&model, &[("session", "nothing")]).await;
    model.push([Reply::text("done"), Reply::text("again")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let asked = client.first(&session, "question_asked").await;
    assert_eq!(asked.event["turn"], Value::Null);
    let list = client.call("session/list", json!({})).await;
    assert_eq!((&list[0]["state"], list[0]["questions"].as_array().unwrap().len()), (&json!("idle"), 1));
    let before = client.hang_up();
    kill_and_restart(&daemon).await;
    let client = daemon.client().await;
    client.continues(before);
    let cursor = client.cursor(&session);
    client.attach_after(&session, &cursor).await;
    client.turn(&session, "again").await;
    client.call("question/answer", json!({ "question": asked.str("question"), "answer": "go_on" })).await;
    client.first(&session, "question_resolved").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_cancel_withdraws_the_choice_that_held_up_the_turn() {
    let model = ModelServer::start();
    let daemon = daemon(&model, &[("session", "turn")]).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "question_asked").await;
    client.call("session/cancel", json!({ "session": session })).await;
    assert_eq!(client.first(&session, "question_resolved").await.event["answer"], Value::Null);
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "cancelled");
    let late = client.refused("question/answer", json!({ "question": asked.str("question"), "answer": "stop" })).await;
    assert_eq!((late.code, &late.data.unwrap()["by"]), (-31001, &json!("cancelled by the user")));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_permission_is_listed_and_answered_as_a_question_too() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    let rows = pending(&client).await;
    let row = &rows[0];
    assert_eq!(
        (&row["kind"], &row["blocks"], &row["call"]),
        (&json!("permission"), &json!("call"), &asked.event["call_id"])
    );
    assert_eq!((&row["question"], &row["permission"]), (&asked.event["permission"], &asked.event["permission"]));
    let names: Vec<&Value> = row["options"].as_array().unwrap().iter().map(|option| &option["name"]).collect();
    assert_eq!(json!(names), asked.event["options"]);
    let listed = client.call("permission/list", json!({})).await;
    for (field, value) in listed[0].as_object().unwrap() {
        assert_eq!(&row[field], value, "{field}");
    }
    let answer = |digest: &Value| json!({ "question": row["question"], "answer": "allow_once", "digest": digest });
    assert_eq!(client.refused("question/answer", answer(&json!("sha256:0"))).await.code, -31005);
    client.call("question/answer", answer(&row["digest"])).await;
    assert_eq!(client.first(&session, "permission_resolved").await.str("decision"), "allow_once");
    client.first(&session, "turn_finished").await;
    let late = json!({ "permission": row["question"], "decision": "reject_once" });
    assert_eq!(client.refused("permission/answer", late).await.data.unwrap()["decision"], "allow_once");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_tool_cannot_answer_a_question_of_the_daemon() {
    let model = ModelServer::start();
    let setup = Setup { faulty: true, mode: "auto", ..Setup::default() };
    let daemon = Daemon::prepare(&model, setup);
    lay(&daemon, &[("daemon", "nothing")]);
    launch(&daemon).await;
    let client = daemon.client().await;
    client.attach("daemon").await;
    let question = client.first("daemon", "question_asked").await.str("question").to_owned();
    let linger = linger_tests::harness::programs().client.display().to_string();
    let socket = daemon.dirs.socket().display().to_string();
    let home = daemon.dirs.root().display().to_string();
    let command = format!("HOME={home} LINGER_SOCKET={socket} {linger} answer {question} stop; echo \"code $?\"");
    model.push([bash(&command), Reply::text("done")]);
    let session = client.session().await;
    client.turn(&session, "go").await;
    let finished = client.first(&session, "tool_finished").await;
    let said = finished.event["content"].to_string();
    assert!(said.contains("may not answer a question") && said.contains("code 1"), "{said}");
    assert_eq!(pending(&client).await.len(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_person_lists_and_answers_choices_with_the_client() {
    let model = ModelServer::start();
    let daemon = daemon(&model, &[("daemon", "nothing"), ("session", "turn")]).await;
    model.push([Reply::text("the answer")]);
    let ran = daemon.cli(&["run", "go"]).run().await.exits(3).says("session: go on?").says("go_on|stop");
    assert_eq!(ran.stdout, "");
    let rows = daemon.cli(&["inbox", "--json"]).run().await.exits(0).json();
    assert_eq!(rows.len(), 2);
    let of = |session: bool| {
        let row = rows.iter().find(|row| row["session"].is_string() == session).unwrap();
        row["question"].as_str().unwrap().to_owned()
    };
    let listed = daemon.cli(&["inbox"]).run().await.exits(0);
    let of_daemon = listed.stdout.lines().find(|line| line.starts_with(&of(false))).unwrap();
    assert_eq!(of_daemon.split_whitespace().nth(1), Some("-"));
    daemon.cli(&["answer", &of(false), "allow"]).run().await.fails_with_hint(2).says("go_on, stop");
    daemon.cli(&["answer", &of(false), "stop"]).run().await.exits(0);
    let session = rows.iter().find_map(|row| row["session"].as_str()).unwrap();
    daemon.cli(&["wait", session]).run().await.exits(3);
    daemon.cli(&["answer", &of(true), "go_on"]).run().await.exits(0);
    daemon.cli(&["wait", session]).run().await.exits(0);
    daemon.cli(&["answer", &of(true), "stop"]).run().await.exits(1).says("already answered: go_on by linger@");
    daemon.check(&[], &model);
}
