//! What the tests of `configuration` share, whether they need a program or not.

use linger_tests::harness::{Client, until};
use serde_json::json;

use crate::Daemon;

/// Adds the provider `later` at `url` to what the configuration said `before`, and waits until the daemon knows.
pub(crate) async fn later_is_at(daemon: &Daemon, client: &Client, before: &str, url: &str) {
    let config = format!("{before}\n[providers.later]\nkind = \"openai\"\nbase_url = \"{url}/v1\"\n");
    std::fs::write(daemon.dirs.config(), config).unwrap();
    let wanted = json!(format!("{url}/v1"));
    until("the daemon knows the provider", async || {
        let models = client.call("model/list", json!({})).await;
        models.as_array()?.iter().any(|model| model["base_url"] == wanted).then_some(())
    })
    .await;
}
