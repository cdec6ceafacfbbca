//! What the tests of `provider_faults` share, whether they need a program or not.

use linger_tests::check::Transcript;
use linger_tests::harness::{Client, Setup};
use linger_tests::model::{Format, ModelServer};
use serde_json::json;

use crate::Daemon;

/// A turn against these replies: the daemon, the client, the session, and why the turn ended.
pub(crate) async fn turn(model: &ModelServer, format: Format) -> (Daemon, Client, String, String) {
    let config = format.provider("x", &model.url());
    let daemon = Daemon::start_with(model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "x/m" })).await;
    client.attach(&session).await;
    let stop = client.turn(&session, "go").await.str("stop_reason").to_owned();
    (daemon, client, session, stop)
}

pub(crate) fn notices(transcript: &Transcript) -> Vec<(String, String)> {
    transcript.of("notice").map(|seen| (seen.str("level").to_owned(), seen.str("code").to_owned())).collect()
}
