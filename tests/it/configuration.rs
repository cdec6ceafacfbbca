//! The configuration changes while the daemon runs.

use linger_tests::harness::{Client, Daemon, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

/// Adds the provider `later` at `url` to what the configuration said `before`, and waits until the daemon knows.
async fn later_is_at(daemon: &Daemon, client: &Client, before: &str, url: &str) {
    let config = format!("{before}\n[providers.later]\nkind = \"openai\"\nbase_url = \"{url}/v1\"\n");
    std::fs::write(daemon.dirs.config(), config).unwrap();
    let wanted = json!(format!("{url}/v1"));
    until("the daemon knows the provider", async || {
        let models = client.call("model/list", json!({})).await;
        models.as_array()?.iter().any(|model| model["base_url"] == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_asks_its_provider_where_the_configuration_says_it_is_now() {
    let [model, first, second] = [(); 3].map(|()| ModelServer::start());
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();

    later_is_at(&daemon, &client, &before, &first.url()).await;
    first.push([Reply::text("from the first")]);
    let session = client.create_with(json!({ "model": "later/m" })).await;
    client.attach(&session).await;
    client.turn(&session, "hello").await;

    later_is_at(&daemon, &client, &before, &second.url()).await;
    second.expect_rewrites(); // What came before was said to another server.
    second.push([Reply::text("from the second")]);
    client.turn(&session, "and now?").await;
    let asked = [&model, &first, &second].map(|server| server.requests().len());
    assert_eq!(asked, [0, 1, 1]);
    daemon.check(&[&client], &second);
}
