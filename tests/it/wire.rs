//! The wire by hand: whatever is sent, the answer is an error and the connection lives on.

pub(crate) use crate::shared::wire::{daemon, lives};
use linger_tests::harness::Daemon;
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

#[tokio::test]
async fn a_line_that_is_too_long_is_skipped_and_costs_no_memory() {
    let (_model, daemon, mut raw) = daemon().await;
    let before = linger_tests::harness::process::memory(daemon.pid().await).0;
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..40 {
        raw.send(&piece).await;
    }
    raw.send("\n").await;
    assert_eq!(raw.line().await.unwrap()["error"]["code"], -32007);
    lives(&mut raw).await;
    let after = linger_tests::harness::process::memory(daemon.pid().await).0;
    assert!(after < before + (24 << 10), "{before} KiB before, {after} after");
}

#[tokio::test]
async fn the_typed_client_of_jsonrpsee_speaks_the_same_protocol() {
    use linger_protocol::api::{DaemonApiClient, SessionApiClient};
    let (_model, daemon, _raw) = daemon().await;
    let client = daemon.typed().await;
    let hello = linger_protocol::daemon::Hello {
        client: "typed".into(),
        protocol: linger_protocol::PROTOCOL,
        ..Default::default()
    };
    assert_eq!(client.hello(hello).await.unwrap().version, linger_protocol::VERSION);
    let create = linger_protocol::session::Create { cwd: daemon.workspace(), ..Default::default() };
    let created = client.create(create).await.unwrap();
    let list = client.list(linger_protocol::session::List::default()).await.unwrap();
    assert_eq!(list[0].session, created.session);
}

#[tokio::test]
async fn of_two_sessions_that_are_named_alike_at_once_one_gets_the_name_and_both_go_on() {
    let (one, two) = (Gate::new(), Gate::new());
    let model = ModelServer::with([Reply::text("one").gate(&one), Reply::text("two").gate(&two)]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let sessions = [client.session().await, client.session().await];
    for session in &sessions {
        client.prompt(session, "go").await;
    }
    model.wait_requests(2).await;
    let set = |session: &String| client.request("session/set", json!({ "session": session, "name": "same" }));
    let named = tokio::join!(set(&sessions[0]), set(&sessions[1]));
    let refused: Vec<_> = [named.0, named.1].into_iter().filter_map(|answer| answer.unwrap().err()).collect();
    assert_eq!(refused.iter().map(|error| error.code).collect::<Vec<_>>(), [-31012], "{refused:?}");
    [one, two].iter().for_each(Gate::open);
    for session in &sessions {
        assert_eq!(client.first(session, "turn_finished").await.str("stop_reason"), "end_turn");
    }
    assert_eq!(model.requests().len(), 2, "no step was repeated");
    assert!(!daemon.log().contains("write failed"));
    daemon.check(&[&client], &model);
}
