//! What the tests of `permission` share, whether they need a program or not.

use linger_tests::harness::Client;
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::Daemon;

/// Waits for the `n`th permission of a session.
pub(crate) async fn asked(client: &Client, session: &str, n: usize) -> (String, Value) {
    let seen = client.nth(session, "permission_requested", n).await;
    (seen.str("permission").to_owned(), seen.event)
}

/// Swaps a link while a question about a file behind it waits; `between` is what happens before the answer.
pub(crate) async fn swapped(between: impl AsyncFnOnce(&Daemon)) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let dir = daemon.workspace();
    let link = |to: &str| {
        let _first = std::fs::remove_file(dir.join("link"));
        std::os::unix::fs::symlink(dir.join(to), dir.join("link")).unwrap();
    };
    std::fs::create_dir(dir.join("shown")).unwrap();
    std::fs::create_dir(dir.join("other")).unwrap();
    link("shown");
    model.push([Reply::tool("write", json!({ "path": "link/f", "content": "x" })), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    assert!(asked.str("action").contains("shown/f"), "{}", asked.str("action"));
    link("other");
    between(&daemon).await;
    let client = daemon.client().await;
    client.attach(&session).await;
    let answer = json!({ "permission": asked.str("permission"), "decision": "allow_once" });
    // After a restart the daemon has answered itself.
    let _won_or_late = client.request("permission/answer", answer).await;
    let result = client.first(&session, "tool_finished").await;
    assert_eq!(result.str("outcome"), "denied", "{}", result.event);
    client.first(&session, "turn_finished").await;
    assert!(!dir.join("other/f").exists() && !dir.join("shown/f").exists());
    daemon.check(&[], &model);
}
