//! Notifications of people: a program that gets what it says as arguments, once, while no terminal of a person is attached.

use linger_tests::harness::{Client, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::{Daemon, bash};

/// Makes each notification a line of arguments in a file.
async fn configure(client: &Client, file: &std::path::Path) {
    let script = format!(
        "printf '[%s]' \"$@\" \"$LINGER_ATTENTION\" \"$DISPLAY\" \"$PWD\" >> {file}; echo >> {file}",
        file = file.display()
    );
    let command = json!(["/bin/sh", "-c", script, "sh", "mine"]);
    client.call("config/set", json!({ "name": "attention.command", "value": command.to_string() })).await;
}

fn told(file: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_question_and_the_end_of_a_turn_are_told_by_a_program_and_no_word_is_read_by_a_shell() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let file = daemon.workspace().join("told");
    configure(&client, &file).await;
    let session = client.create().await;
    client.call("session/attach", json!({ "session": session, "env": { "DISPLAY": ":7", "LD_PRELOAD": "x" } })).await;
    model.push([bash("touch made"), Reply::text("model's word")]);
    client.prompt(&session, "-h $(touch pwned); `touch pwned`\u{1b}[2J\nsecond line").await;
    let asked = client.first(&session, "permission_requested").await;
    let one = until("the question is told", async || told(&file).first().cloned()).await;
    let title = "-h $(touch pwned); `touch pwned`\\u{1b}[2J";
    let line = format!("[mine][linger: a session needs an answer][session {session}: {title}][question][:7][/]");
    assert_eq!(one, line);
    // A client reads on: it learns of the end, and nobody else has to.
    crate::answer(&client, asked.str("permission"), "allow_once").await;
    client.first(&session, "turn_finished").await;
    client.call("session/detach", json!({ "session": session })).await;
    model.push([Reply::text("done")]);
    client.prompt(&session, "more").await;
    let two = until("the end is told", async || told(&file).get(1).cloned()).await;
    assert_eq!(two, format!("[mine][linger: a session has finished][session {session}: {title}][finished][:7][/]"));
    assert_eq!(told(&file).len(), 2);
    assert!(!daemon.workspace().join("pwned").exists());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_a_person_sees_at_a_terminal_is_not_told() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let file = daemon.workspace().join("told");
    configure(&client, &file).await;
    let session = client.create().await;
    let left = async || client.call("session/list", json!({ "matching": session })).await[0]["left"].clone();
    assert_eq!(left().await, json!(null), "no terminal was ever there");
    let person = daemon.named("person").await;
    person.call("session/attach", json!({ "session": session, "person": true })).await;
    assert_eq!(left().await["seq"], 1);
    model.push([bash("touch made")]);
    client.prompt(&session, "go").await;
    person.first(&session, "permission_requested").await;
    let seen = person.hang_up();
    until("that they left is known", async || (left().await["seq"] != 1).then_some(())).await;
    let last = seen.0.len();
    assert!(last > 0 && left().await["seq"].as_u64().unwrap() > 3, "{:?}", left().await);
    // Another session, after it: what was to be told of the first one would be there by now.
    let other = client.create().await;
    model.push([Reply::text("done")]);
    client.prompt(&other, "other").await;
    let first = until("the other one is told", async || told(&file).first().cloned()).await;
    assert!(first.contains(&other), "{first}");
    client.call("session/cancel", json!({ "session": session })).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_command_waits_until_it_is_confirmed_like_everything_that_runs() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let path = daemon.dirs.root().join("c/linger/config.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{before}\n[attention]\ncommand = [\"touch\", \"x\"]\nterminal = [\"osc9\"]\n"))
        .unwrap();
    let waits = until("the change is noticed", async || {
        let config = client.call("config/get", json!({})).await;
        let waits: Vec<String> = serde_json::from_value(config["waiting"]["changes"].clone()).unwrap_or_default();
        (!waits.is_empty()).then_some(waits)
    })
    .await;
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert!(waits[0].starts_with("attention.command: [\"touch\",\"x\"], new"), "{waits:?}");
    daemon.check(&[&client], &model);
}
