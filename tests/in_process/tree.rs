//! Forks and going back, over the wire: the log of a fork, what its model reads, what it costs, and what is left of an origin that
//! is removed.

use crate::Daemon;
use crate::shared::compaction::{SUMMARY, has, start, with_a_past};
use linger_tests::harness::Client;
use linger_tests::model::{Format, Gate, ModelServer, Reply};
use serde_json::{Value, json};

/// The raw events of a session from its beginning.
async fn log(daemon: &Daemon, session: &str) -> Vec<Value> {
    let client = daemon.client().await;
    client.call("session/attach", json!({ "session": session, "deltas": false })).await;
    client.first(session, "caught_up").await;
    let seen = client.transcript();
    seen.events().filter(|seen| seen.event["seq"].is_u64()).map(|seen| seen.event.clone()).collect()
}

async fn row(client: &Client, session: &str) -> Value {
    client.call("session/list", json!({ "matching": session })).await[0].clone()
}

/// What the last request said, without what stands before the conversation.
fn asked(model: &ModelServer) -> Vec<String> {
    let body = model.requests().pop().expect("a request");
    let said = body.list().iter().filter(|message| message["role"] != "system" && message["role"] != "developer");
    said.map(|message| format!("{}: {}", message["role"].as_str().unwrap_or_default(), message["content"])).collect()
}

#[tokio::test]
async fn a_fork_has_its_origins_events_and_goes_on_alone() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    for answer in ["one", "two", "three"] {
        model.push([Reply::text(answer).usage(10, 5, 0)]);
        client.turn(&session, &format!("say {answer}")).await;
    }
    let origin = log(&daemon, &session).await;
    let prompts = client.call("session/prompts", json!({ "session": session })).await;
    let texts: Vec<_> = prompts.as_array().unwrap().iter().map(|row| row["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["say three", "say two", "say one"]);

    // Before the third prompt.
    let made =
        client.call("session/fork", json!({ "session": session, "at": prompts[0]["prompt"], "name": "f" })).await;
    let fork = made["session"].as_str().unwrap().to_owned();
    assert_eq!((&made["text"], &made["mode"]), (&json!("say three"), &json!("auto")));
    let k = made["origin"]["seq"].as_u64().unwrap() as usize;
    let events = log(&daemon, &fork).await;
    assert_eq!(events[..k], origin[..k]);
    assert_eq!((events.len(), &events[k]["kind"]), (k + 1, &json!("forked")));
    assert_eq!(origin[k - 1]["kind"], "turn_finished");
    let of = row(&client, &fork).await;
    assert_eq!((&of["origin"]["session"], &of["usage"]["input_tokens"]), (&json!(session), &json!(0)));

    client.attach(&fork).await;
    model.push([Reply::text("four").usage(10, 5, 0)]);
    client.turn(&fork, "say four").await;
    let said = asked(&model);
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said[4].contains("say four") && said[3].contains("two"), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("three")), "{said:?}");
    // The origin has not noticed.
    assert_eq!(log(&daemon, &session).await, origin);

    // A fork of the fork, after a message of the first part, and one of its own.
    let deep = client.call("session/fork", json!({ "session": fork, "at": "m2" })).await;
    assert!((deep["origin"]["seq"].as_u64().unwrap() as usize) < k);
    let late = client.call("session/fork", json!({ "session": fork })).await["session"].as_str().unwrap().to_owned();
    let whole = log(&daemon, &fork).await;
    let of_late = log(&daemon, &late).await;
    assert_eq!(of_late[..whole.len()], whole);

    // Sums count the shared part once.
    let usage = client.call("usage/list", json!({ "by": "session" })).await;
    assert_eq!(usage["total"]["answers"], 4);

    // The origin goes, and the forks have their events.
    client.call("session/remove", json!({ "session": session })).await;
    client.call("session/remove", json!({ "session": fork })).await;
    assert_eq!(log(&daemon, &late).await, of_late);
    client.attach(&late).await;
    model.push([Reply::text("five")]);
    client.turn(&late, "say five").await;
    assert_eq!(asked(&model).len(), 7);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_fork_within_a_turn_begins_at_the_end_of_a_step_and_a_wrong_point_is_named() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([Reply::tool("bash", json!({ "command": "echo a" })), Reply::text("done")]);
    client.turn(&session, "go").await;
    // After the answer with the call: with its result.
    let fork = client.call("session/fork", json!({ "session": session, "at": "m2" })).await;
    let fork = fork["session"].as_str().unwrap().to_owned();
    let events = log(&daemon, &fork).await;
    let kinds: Vec<_> = events.iter().rev().take(3).map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["turn_finished", "forked", "message"]);
    assert_eq!(events[events.len() - 1]["stop_reason"], "cancelled");
    client.attach(&fork).await;
    model.push([Reply::text("else")]);
    client.turn(&fork, "something else").await;
    assert!(asked(&model).last().unwrap().contains("something else"));

    let error = client.refused("session/fork", json!({ "session": session, "at": "m99" })).await;
    assert!(error.message.contains("no message 'm99'"), "{error:?}");
    let error = client.refused("session/fork", json!({ "session": "nobody" })).await;
    assert!(error.message.contains("there is no session"), "{error:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_session_goes_back_and_what_it_left_is_a_fork() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    for answer in ["one", "two", "three"] {
        model.push([Reply::text(answer)]);
        client.turn(&session, &format!("say {answer}")).await;
    }
    let before = log(&daemon, &session).await;
    let key = json!({ "session": session, "to": "p2", "key": "back" });
    let done = client.call("session/rewind", key.clone()).await;
    assert_eq!((&done["prompt"], &done["text"]), (&json!("p2"), &json!("say two")));
    assert_eq!(client.call("session/rewind", key).await, done, "a repeated request happens once");
    let seen = client.first(&session, "rewound").await.event;
    assert_eq!((&seen["branch"], &seen["to"]), (&done["branch"], &done["to"]));

    model.push([Reply::text("other")]);
    client.turn(&session, "say other").await;
    let said = asked(&model);
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("say one") && said[2].contains("say other"), "{said:?}");
    let prompts = client.call("session/prompts", json!({ "session": session })).await;
    let texts: Vec<_> = prompts.as_array().unwrap().iter().map(|row| row["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["say other", "say one"]);
    // What was left cannot be gone back to here, and is in the branch.
    let error = client.refused("session/rewind", json!({ "session": session, "to": "p3" })).await;
    assert!(error.message.contains("no prompt 'p3'"), "{error:?}");
    let branch = done["branch"].as_str().unwrap().to_owned();
    assert_eq!(log(&daemon, &branch).await[..before.len()], before);
    client.attach(&branch).await;
    model.push([Reply::text("four")]);
    client.turn(&branch, "say four").await;
    assert_eq!(asked(&model).len(), 7);

    // A fork of what went back has what it went back to, and no more.
    let fork = client.call("session/fork", json!({ "session": session })).await["session"].clone();
    let fork = fork.as_str().unwrap().to_owned();
    client.attach(&fork).await;
    model.push([Reply::text("five")]);
    client.turn(&fork, "say five").await;
    let said = asked(&model);
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(!said.iter().any(|line| line.contains("two") || line.contains("three")), "{said:?}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn files_go_back_too_if_that_is_wanted_and_a_running_turn_is_left_alone() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let file = client.workspace().join("a.txt");
    for text in ["one", "two"] {
        model.push([Reply::tool("write", json!({ "path": "a.txt", "content": text })), Reply::text("done")]);
        client.turn(&session, &format!("write {text}")).await;
    }
    let done = client.call("session/rewind", json!({ "session": session, "to": "p2", "files": true })).await;
    assert_eq!(done["changes"].as_array().map(Vec::len), Some(1));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
    // Somebody else has changed it since: nothing happens.
    std::fs::write(&file, "mine").unwrap();
    let error = client.refused("session/rewind", json!({ "session": session, "files": true })).await;
    assert!(error.message.contains("a.txt changed since"), "{error:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let listed = client.call("session/list", json!({})).await;
    assert_eq!(listed.as_array().unwrap().len(), 2, "the refused one has left no fork");

    let gate = Gate::new();
    model.push([Reply::text("wait").gate(&gate).and_text("ed")]);
    client.prompt(&session, "go").await;
    client.sees_text(&session, "wait").await;
    let error = client.refused("session/rewind", json!({ "session": session })).await;
    assert!(error.message.contains("unfinished turn"), "{error:?}");
    // A fork takes what has finished.
    let fork = client.call("session/fork", json!({ "session": session })).await;
    assert_eq!(fork["text"], "go");
    gate.open();
    client.nth(&session, "turn_finished", 3).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_summary_is_taken_back_and_the_model_reads_the_messages_again() {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    let none = client.refused("session/uncompact", json!({ "session": session })).await;
    assert!(none.message.contains("no compaction to take back"), "{none:?}");
    model.push([Reply::text("the second answer"), Reply::text(SUMMARY)]);
    client.turn(&session, "the second prompt").await;
    client.call("session/compact", json!({ "session": session })).await;
    let compacted = client.first(&session, "compacted").await.event;
    client.nth(&session, "turn_finished", 3).await;
    let rows = client.call("session/compaction", json!({ "session": session })).await;
    assert_eq!((&rows[0]["summary"], &rows[0]["seq"]), (&compacted["summary"], &compacted["seq"]));
    let fork = client.call("session/fork", json!({ "session": session })).await["session"].as_str().unwrap().to_owned();

    let taken = client.call("session/uncompact", json!({ "session": session, "key": "u" })).await;
    assert_eq!(client.call("session/uncompact", json!({ "session": session, "key": "u" })).await, taken);
    let said = client.first(&session, "uncompacted").await.event;
    assert_eq!((&said["compacted"], &said["messages"]), (&compacted["seq"], &compacted["messages"]));
    model.push([Reply::text("the third answer"), Reply::text("in the fork")]);
    client.turn(&session, "the third prompt").await;
    let last = model.requests().pop().unwrap();
    assert!(has(&last, "alpha") && !has(&last, "the old goal"), "{}", last.messages());
    let rows = client.call("session/compaction", json!({ "session": session })).await;
    assert_eq!(rows[0]["undone"], true);

    // A fork from before that reads the summary.
    client.attach(&fork).await;
    client.turn(&fork, "in the fork").await;
    let last = model.requests().pop().unwrap();
    assert!(!has(&last, "alpha") && has(&last, "the old goal"), "{}", last.messages());
    daemon.check(&[&client], &model);
}
