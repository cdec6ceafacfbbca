//! What the tests of `turn_cancel` share, whether they need a program or not.

use std::time::{Duration, UNIX_EPOCH};

use linger_tests::harness::Client;
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::Daemon;

/// I13.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

pub(crate) async fn cancel(client: &Client, session: &str) {
    let began = UNIX_EPOCH.elapsed().unwrap();
    client.call("session/cancel", json!({ "session": session })).await;
    let finished = client.first(session, "turn_finished").await;
    assert_eq!(finished.str("stop_reason"), "cancelled");
    // When it ended, and not when this test was told.
    let took = finished.after(began);
    assert!(took < LIMIT, "cancel took {took:?}");
}

/// A session with one turn cancelled and one prompt queued behind it.
pub(crate) async fn with_a_queued_prompt(daemon: &Daemon, model: &ModelServer) -> (Client, String) {
    let gate = Gate::new();
    model.push([Reply::text("so far").gate(&gate)]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "first").await;
    client.sees_text(&session, "so far").await;
    client.prompt(&session, "queued").await;
    cancel(&client, &session).await;
    (client, session)
}
