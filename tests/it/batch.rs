//! Batches, notifications and requests in a row: in which order they take effect, and that no answer keeps others from theirs.

use serde_json::{Value, json};

pub(crate) use crate::shared::batch::daemon;

#[tokio::test]
async fn a_request_that_is_an_array_is_none_and_a_batch_that_is_too_long_is_not_looked_at() {
    let (model, daemon, mut raw) = daemon().await;
    let answer = raw.ask(r#"[["2.0",7,"daemon/status",{}]]"#).await;
    assert_eq!((&answer[0]["id"], &answer[0]["error"]["code"]), (&Value::Null, &json!(-32600)), "{answer}");
    let before = linger_tests::harness::process::peak(daemon.pid().await);
    let many = format!("[{}1]", "1,".repeat(7 << 20));
    let answer = raw.ask(&many).await;
    assert_eq!(answer["error"]["message"], "a batch has 1 to 64 requests");
    let grown = linger_tests::harness::process::peak(daemon.pid().await).saturating_sub(before) >> 10;
    assert!(grown < 48, "{grown} MiB more for {} MiB", many.len() >> 20);
    daemon.check(&[], &model);
}
