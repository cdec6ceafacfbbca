//! A second model: it stands in at once for an account that is empty, and after `fallback_after` for a server that is busy; the next
//! turn is the first model's again, also for another daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

/// What the first model's server does.
const GOOD: u8 = 0;
const EMPTY: u8 = 1;
const BUSY: u8 = 2;

const QUOTA: &str = r#"{"error":{"code":"insufficient_quota","message":"pay first"}}"#;

#[tokio::test]
async fn a_second_model_stands_in_until_the_next_turn() {
    let state = Arc::new(AtomicU8::new(GOOD));
    let now = state.clone();
    let model = ModelServer::scripted(move |asked| match (asked.model(), now.load(Ordering::SeqCst)) {
        ("m", EMPTY) => Reply::status(429).body(QUOTA),
        ("m", BUSY) => Reply::status(503),
        (model, _) => Reply::text(format!("said by {model}")),
    });
    let config = "[models.\"work/m\"]\nfallback = [\"claude/spare\"]\nfallback_after = \"2s\"\n".to_owned();
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create().await;
    client.attach(&session).await;
    let mut turns = 0;
    for (first, expect) in [(EMPTY, "claude/spare"), (GOOD, "work/m"), (BUSY, "claude/spare"), (GOOD, "work/m")] {
        state.store(first, Ordering::SeqCst);
        let finished = client.turn(&session, "go").await;
        assert_eq!(finished.str("stop_reason"), "end_turn", "{:?}", finished.event);
        turns += 1;
        let seen = client.transcript();
        let said = seen.of("message").rfind(|seen| seen.event["role"] == "assistant").unwrap();
        assert_eq!(said.str("model"), expect, "turn {turns}");
        let row = client.call("session/list", json!({})).await[0].clone();
        assert_eq!(row["model"], expect, "{row}");
    }
    let seen = client.transcript();
    let changed: Vec<(String, String)> = seen
        .of("session_changed")
        .filter(|seen| seen.event["model"].is_string())
        .map(|seen| (seen.str("model").to_owned(), seen.event["stands_in_for"].as_str().unwrap_or("").to_owned()))
        .collect();
    let pair = |model: &str, own: &str| (model.to_owned(), own.to_owned());
    let once = [pair("claude/spare", "work/m"), pair("work/m", "")];
    assert_eq!(changed, [once.clone(), once].concat());
    let told: Vec<String> = seen
        .of("notice")
        .filter(|seen| seen.event["code"] == "fallback")
        .map(|seen| seen.str("text").to_owned())
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("pay first") && told[0].ends_with("the turn continues with claude/spare"), "{told:?}");
    assert!(told[1].contains("gave up after"), "{told:?}");
    daemon.check(&[&client], &model);
}
