//! What providers do to their clients, and that a turn survives it or says clearly why not.

use linger_tests::check::Transcript;
use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{Format, Gate, ModelServer, Reply};
use serde_json::json;

use crate::matrix_turns::refusal;
use crate::providers;
pub(crate) use crate::shared::provider_faults::{notices, turn};

#[tokio::test]
async fn a_line_without_an_end_does_not_fill_the_memory() {
    let model = ModelServer::with([Reply::text("Good d").huge_line(48 << 20), Reply::text("Good day")]);
    let (daemon, client, _, stop) = turn(&model, Format::OpenAi).await;
    // It would be as large the next time, and is paid for.
    assert_eq!((stop.as_str(), model.requests().len()), ("error", 1));
    let most = linger_tests::harness::process::peak(daemon.pid().await);
    assert!(most < 64 << 10, "{most} KiB");
    daemon.check(&[&client], &model);
}

/// A model that refuses a history with this thought in it, and says what is in `Reply` to any other.
fn refuses(model: &ModelServer, thought: &'static str, script: impl Fn() -> Reply + Send + 'static) {
    model.otherwise(
        move |request| {
            if request.messages().contains(thought) { refusal(request.format) } else { script() }
        },
    );
}

/// The messages in which a client saw thinking or something that goes back to the provider.
fn with_native(seen: &Transcript) -> Vec<String> {
    let messages = seen.of("message").filter(|message| {
        let content = message.event["content"].to_string();
        content.contains("\"native\"") || content.contains("\"type\":\"thinking\"")
    });
    messages.map(|message| message.str("message").to_owned()).collect()
}

#[tokio::test]
async fn a_history_that_its_provider_refuses_does_not_stop_a_session_for_ever() {
    for format in Format::ALL {
        let model = ModelServer::start();
        let daemon = providers::start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": providers::name(format) })).await;
        client.attach(&session).await;
        let thinks = |thought: &str, signature: &str| {
            Reply::new().thinking(thought, signature).and_text("Ich schaue.").and_tool("ls", json!({}))
        };
        model.push([thinks("Der alte Gedanke.", "YWx0"), Reply::text("eins")]);
        assert_eq!(client.turn(&session, "eins?").await.str("stop_reason"), "end_turn");
        let (old, asked) = (with_native(&client.transcript()), model.requests().len());
        assert!(model.requests()[asked - 1].messages().contains("Der alte Gedanke."), "{format:?}");

        // It is refused from now on. What comes later keeps what its provider wants back.
        let later = std::sync::atomic::AtomicBool::new(false);
        let thinks = thinks("Der neue Gedanke.", "bmV1");
        refuses(&model, "Der alte Gedanke.", move || {
            if later.swap(true, std::sync::atomic::Ordering::Relaxed) { Reply::text("zwei") } else { thinks.clone() }
        });
        assert_eq!(client.turn(&session, "zwei?").await.str("stop_reason"), "end_turn", "{format:?}");
        let requests = model.requests();
        assert_eq!(requests.len(), asked + 3, "{format:?}: refused once, asked again, and the next step");
        assert!(requests[asked + 2].messages().contains("Der neue Gedanke."), "{format:?}");
        let seen = client.transcript();
        assert_eq!(seen.of("trimmed").count(), 1, "{format:?}: {}", seen.outline());
        let trimmed = client.first(&session, "trimmed").await;
        assert_eq!(trimmed.event["native"], json!(old), "{format:?}: {}", trimmed.raw);
        assert_eq!(notices(&seen), []);

        // What was left out stays so, also for a daemon that has read it all from the log.
        daemon.kill_and_restart().await;
        let back = daemon.client().await;
        back.attach(&session).await;
        back.prompt(&session, "drei?").await;
        assert_eq!(back.nth(&session, "turn_finished", 3).await.str("stop_reason"), "end_turn");
        let requests = model.requests();
        assert_eq!(requests.len(), asked + 4, "{format:?}");
        assert!(requests[asked + 3].messages().contains("Der neue Gedanke."), "{format:?}");
        providers::check(&daemon, &[&client, &back], &model);
    }
}

#[tokio::test]
async fn a_daemon_that_dies_before_the_answer_to_a_history_without_its_parts_does_not_take_them_back() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::new().thinking("Der alte Gedanke.", "YWx0").and_text("eins")]);
        let daemon = providers::start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": providers::name(format) })).await;
        client.attach(&session).await;
        client.turn(&session, "eins?").await;
        let gate = Gate::new();
        let held = gate.clone();
        refuses(&model, "Der alte Gedanke.", move || Reply::new().gate(&held).and_text("zwei"));
        client.prompt(&session, "zwei?").await;
        gate.reached().await;
        daemon.kill_and_restart().await;
        gate.open();
        let back = daemon.client().await;
        back.attach(&session).await;
        assert_eq!(back.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
        assert_eq!(back.transcript().of("trimmed").count(), 1, "{format:?}");
        assert_eq!(model.requests().len(), 4, "{format:?}: an answer, a refusal, and one request in each life");
        providers::check(&daemon, &[&client, &back], &model);
    }
}

#[tokio::test]
async fn a_server_that_does_not_take_back_what_it_gives_is_asked_in_vain_twice_and_no_more() {
    for format in Format::ALL {
        let model = ModelServer::start();
        let daemon = providers::start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": providers::name(format) })).await;
        client.attach(&session).await;
        let step = std::sync::atomic::AtomicUsize::new(0);
        refuses(&model, "Ein Gedanke.", move || {
            let step = step.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let thinks = Reply::new().thinking("Ein Gedanke.", "YWx0").and_text("Ich schaue.");
            // Each call has arguments of its own: the same one three times would be stopped with a question.
            if matches!(step, 4 | 6) { thinks } else { thinks.and_tool("glob", json!({ "pattern": step.to_string() })) }
        });
        assert_eq!(client.turn(&session, "eins?").await.str("stop_reason"), "end_turn", "{format:?}");
        assert_eq!(model.requests().len(), 5 + 2, "{format:?}: of five steps two were refused");
        daemon.kill_and_restart().await;
        let back = daemon.client().await;
        back.attach(&session).await;
        back.prompt(&session, "zwei?").await;
        assert_eq!(back.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn", "{format:?}");
        assert_eq!(model.requests().len(), 7 + 2, "{format:?}");
        assert_eq!(back.transcript().of("trimmed").count(), 2, "{format:?}");
        providers::check(&daemon, &[&client, &back], &model);
    }
}

#[tokio::test]
async fn a_missing_key_is_waited_for_and_the_turn_goes_on_when_a_client_brings_it() {
    let model = ModelServer::with([Reply::new().stall(), Reply::text("Good day")]);
    let daemon = Daemon::start_with(&model, Setup { keys: false, ..Setup::default() }).await;
    let client = daemon.client().await;
    let hello = client.call("daemon/hello", json!({ "client": "test", "protocol": [1, 1] })).await;
    assert!(hello["keys"].as_array().unwrap().contains(&json!("WORK_KEY")), "{hello}");
    let key = daemon.canaries()[0].clone();
    let refused = client.request("session/create", json!({ "cwd": daemon.workspace() })).await.unwrap();
    assert_eq!(refused.expect_err("no turn could start").code, -31009);
    client.call("daemon/keys", json!({ "keys": { "WORK_KEY": key } })).await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    model.wait_requests(1).await;
    // The key was in the memory of the daemon that dies here; the turn outlives it.
    daemon.kill_and_restart().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.wait("the wait", |seen| seen.of("notice").find(|seen| seen.str("code") == "key_missing").cloned()).await;
    assert_eq!(back.call("session/list", json!({})).await[0]["state"], "waiting");
    back.call("daemon/keys", json!({ "keys": { "WORK_KEY": key } })).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &back], &model);
}
