//! What the tests of `compaction` share, whether they need a program or not.

use linger_tests::harness::Client;
use linger_tests::model::{Format, ModelServer, Recorded, Reply};
use serde_json::json;

use crate::Daemon;
use crate::shared::providers::{name, start_with};

pub(crate) const SUMMARY: &str = "## Goal\nthe old goal\n\n## Next steps\ngo on";

/// How large the windows are that the tests' models have.
pub(crate) const WINDOW: u64 = 100_000;

/// A daemon with a provider for each format whose models have a window that is known.
pub(crate) async fn start(model: &ModelServer) -> Daemon {
    let window = |format| format!("[models.\"{}\"]\ncontext_window = {WINDOW}\n", name(format));
    start_with(model, &Format::ALL.map(window).concat()).await
}

/// A daemon whose models have windows that nobody knows.
pub(crate) async fn start_unknown(model: &ModelServer) -> Daemon {
    start_with(model, "").await
}

/// A text that is worth a summary, and a word to find it by.
pub(crate) fn long(word: &str) -> String {
    format!("{word} {}", "lorem ipsum ".repeat(500))
}

/// A session with a turn of the past: a long prompt and its answer.
pub(crate) async fn with_a_past(daemon: &Daemon, model: &ModelServer, format: Format) -> (Client, String) {
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name(format) })).await;
    client.attach(&session).await;
    model.push([Reply::text("the first answer")]);
    assert_eq!(client.turn(&session, &long("alpha")).await.str("stop_reason"), "end_turn");
    (client, session)
}

pub(crate) fn has(request: &Recorded, word: &str) -> bool {
    String::from_utf8_lossy(&request.body).contains(word)
}
