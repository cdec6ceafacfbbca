//! Titles: a cheap model gives a session its title after the first turn, beside everything else, and it costs what it costs.

use linger_tests::harness::Setup;
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::Daemon;

/// A model that is known to be cheap.
const CHEAP: &str = "[models.\"work/m\"]\ninput_price = 1\noutput_price = 2\n";

#[tokio::test]
async fn a_cheap_model_gives_the_session_its_title_after_the_first_turn() {
    let model = ModelServer::start();
    // A title is no part of the conversation.
    model.expect_rewrites();
    let daemon = Daemon::start_with(&model, Setup { config: CHEAP.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let title = Reply::text("\"Good days\u{1b}[2J.\"\nand more").usage(100, 10, 0);
    model.push([Reply::text("Good day").usage(50, 5, 0), title]);
    client.turn(&session, "please say it\nin full").await;
    let titled = client.wait("a title", |seen| {
        seen.of("session_changed").find(|it| it.event["title"].is_string()).map(|it| it.event.clone())
    });
    let titled = titled.await;
    assert_eq!((&titled["title"], &titled["title_cost"]["model"]), (&json!("Good days[2J"), &json!("work/m")));
    let asked = &model.requests()[1];
    assert!(asked.last_words().contains("please say it\nin full"), "{}", asked.last_words());
    let row = client.call("session/list", json!({})).await[0].clone();
    assert_eq!((&row["title"], &row["usage"]["cost_micros"]), (&json!("Good days[2J"), &json!(180)), "{row}");
    let total = client.call("usage/list", json!({ "by": "model" })).await["total"].clone();
    assert_eq!((&total["answers"], &total["usage"]["cost_micros"]), (&json!(2), &json!(180)), "{total}");
    model.push([Reply::text("again")]);
    client.turn(&session, "again").await;
    assert_eq!(model.requests().len(), 3, "a session is asked about once");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_failure_and_what_speaks_against_it_leave_the_first_prompt() {
    let model = ModelServer::start();
    model.expect_rewrites();
    let daemon = Daemon::start_with(&model, Setup { config: CHEAP.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    model.push([Reply::text("one"), Reply::status(500)]);
    let failed = client.session().await;
    client.turn(&failed, "the first").await;
    model.wait_requests(2).await;
    let limited = client.create_with(json!({ "budget": { "max_cost_micros": 1_000_000 } })).await;
    let once = client.create_with(json!({ "one_shot": true })).await;
    for session in [&limited, &once] {
        client.attach(session).await;
        model.push([Reply::text("done")]);
        client.turn(session, "another").await;
    }
    client.call("config/set", json!({ "name": "titles", "value": "\"off\"" })).await;
    let off = client.session().await;
    model.push([Reply::text("done")]);
    client.turn(&off, "the last").await;
    assert_eq!(model.requests().len(), 5);
    let rows = client.call("session/list", json!({})).await;
    let titles: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["the last", "another", "another", "the first"]);
    let bad = client.refused("config/set", json!({ "name": "titles", "value": "\"cheap\"" })).await;
    assert!(bad.message.contains("titles"), "{}", bad.message);
    daemon.check(&[&client], &model);
}
