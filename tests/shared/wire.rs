//! What the tests of `wire` share, whether they need a program or not.

use crate::Daemon;
use linger_tests::harness::Raw;
use linger_tests::model::ModelServer;

pub(crate) const STATUS: &str = r#"{"jsonrpc":"2.0","id":99,"method":"daemon/status"}"#;

pub(crate) async fn daemon() -> (ModelServer, Daemon, Raw) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let raw = daemon.raw().await;
    (model, daemon, raw)
}

pub(crate) async fn lives(raw: &mut Raw) {
    let status = raw.ask(STATUS).await;
    assert_eq!(status["id"], 99);
    assert!(status["result"]["pid"].is_u64(), "{status}");
}
