//! What the tests of `batch` share, whether they need a program or not.

use linger_tests::harness::Raw;
use linger_tests::model::ModelServer;

use crate::Daemon;

pub(crate) async fn daemon() -> (ModelServer, Daemon, Raw) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let raw = daemon.raw().await;
    (model, daemon, raw)
}
