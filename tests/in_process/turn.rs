//! The turn: steps, tools, results in order, limits, and prompts that come while it runs.

use linger_tests::check::Seen;
use linger_tests::harness::Setup;
use linger_tests::model::{Format, Gate, ModelServer, Reply};
use serde_json::json;

use crate::Daemon;
use crate::{bash, last_words, story};

/// The text of every tool result in a request, in order.
fn results(request: &linger_tests::model::Recorded) -> Vec<String> {
    let messages = request.json["messages"].as_array().cloned().unwrap_or_default();
    let of_claude = |block: &serde_json::Value| match &block["content"] {
        serde_json::Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    let each = |message: &serde_json::Value| -> Vec<String> {
        if message["role"] == "tool" {
            return vec![
                message["content"].as_str().or(message["content"][0]["text"].as_str()).unwrap_or_default().to_owned(),
            ];
        }
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        blocks.iter().filter(|block| block["type"] == "tool_result").map(of_claude).collect()
    };
    messages.iter().flat_map(each).collect()
}

async fn round_trip(name: &str, format: Format) {
    let model = ModelServer::with([
        Reply::new()
            .thinking("I should look", "c2lnbmF0dXJl")
            .and_text("Looking.")
            .and_tool("bash", json!({ "command": "echo out-$((40+2))" })),
        Reply::text("It says 42."),
    ]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name })).await;
    client.attach(&session).await;
    client.turn(&session, "look").await;
    let want = [
        "prompt_accepted",
        "turn_started",
        "message",
        "message",
        "tool_started",
        "tool_finished",
        "message",
        "message",
        "turn_finished",
    ];
    assert_eq!(story(&client.transcript(), &session), want);
    let requests = model.requests();
    assert_eq!(requests.iter().map(|request| request.format).collect::<Vec<_>>(), [format, format]);
    assert_eq!(results(&requests[1]).iter().map(|text| text.contains("out-42")).collect::<Vec<_>>(), [true]);
    let started = client.first(&session, "tool_started").await;
    assert_eq!((started.str("tool"), started.str("action")), ("bash", "echo out-$((40+2))"));
    let finished = client.first(&session, "tool_finished").await;
    assert_eq!((finished.str("outcome"), &finished.event["is_error"]), ("ran", &json!(false)));
    let output: String = client.transcript().of("tool_output_delta").map(|seen| seen.str("text").to_owned()).collect();
    assert_eq!(output, "out-42\n");
    assert_eq!(client.first(&session, "turn_finished").await.event["steps"], 2);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_tool_round_trip_works_with_anthropic_messages() {
    round_trip("claude/m", Format::Anthropic).await;
}

#[tokio::test]
async fn a_tool_round_trip_works_with_chat_completions() {
    round_trip("work/m", Format::OpenAi).await;
}

#[tokio::test]
async fn calls_that_only_read_overlap() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    // So many that a search takes longer than starting the next one.
    for n in 0..3000 {
        std::fs::write(daemon.workspace().join(format!("file-{n}")), "some words\n").unwrap();
    }
    let grep = |word: &str| json!({ "pattern": word });
    model.push([
        Reply::tool("grep", grep("x+y")).and_tool("grep", grep("y+z")).and_tool("grep", grep("z+x")),
        Reply::text("done"),
    ]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "search").await;
    let starts: Vec<u64> = client.transcript().of("tool_started").filter_map(Seen::seq).collect();
    let ends: Vec<u64> = client.transcript().of("tool_finished").filter_map(Seen::seq).collect();
    assert!(
        starts[1] < ends[0] || starts[2] < ends[1],
        "none began before the one before it ended: {starts:?} {ends:?}"
    );
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn calls_that_change_something_run_alone_and_in_order() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let calls = (0..5)
        .fold(Reply::new(), |reply, n| reply.and_tool("bash", json!({ "command": daemon.effect(&format!("n{n}")) })));
    model.push([calls, Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "n0\nn1\nn2\nn3\nn4\n");
    let seen = client.transcript();
    let order: Vec<&str> =
        seen.events().map(Seen::kind).filter(|kind| kind.starts_with("tool_") && !kind.ends_with("_delta")).collect();
    assert_eq!(order, ["tool_started", "tool_finished"].repeat(5));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn an_unknown_tool_and_bad_arguments_are_results_and_not_ends() {
    let model = ModelServer::with([
        Reply::tool("bsh", json!({ "command": "ls" })),
        Reply::tool("bash", json!({ "cmd": 1 })),
        Reply::new().and_raw_tool("bash", "{\"command\": \"l"),
        Reply::new().and_raw_tool("bash", "[1,2]"),
        Reply::new().and_raw_tool("bash", ""),
        Reply::text("I give up"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    let outcomes: Vec<String> =
        client.transcript().of("tool_finished").map(|seen| seen.str("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["invalid"; 5]);
    let told = results(model.requests().last().unwrap());
    assert!(told[0].contains("bash"), "the near name is named: {told:?}");
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_turn_ends_after_as_many_steps_as_it_may_have() {
    let model = ModelServer::scripted(|_| bash("true"));
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", top: "max_steps = 3", ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "go").await;
    assert_eq!((finished.str("stop_reason"), &finished.event["steps"]), ("max_steps", &json!(3)));
    assert_eq!(model.requests().len(), 3);
    model.otherwise(|_| Reply::text("after all"));
    assert_eq!(client.turn(&session, "and now").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_call_that_was_cut_at_the_limit_does_not_run() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let effect = daemon.effect("never");
    let cut = format!("{{\"command\": \"{}", &effect[..effect.len() / 2]);
    model.push([Reply::new().and_raw_tool("bash", &cut).stop("max_tokens"), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    assert!(!daemon.side_effects().exists());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn prompts_while_busy_are_taken_up_as_they_asked_to_be() {
    let gate = Gate::new();
    let model = ModelServer::with([bash("true").gate(&gate), Reply::text("steered"), Reply::text("queued")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "start").await;
    gate.reached().await;
    let queue = json!({ "session": session, "content": "and the docs", "when": "queue" });
    let steer = json!({ "session": session, "content": "skip the slow ones", "when": "steer" });
    let queued = client.call("session/prompt", queue).await["prompt"].clone();
    let steered = client.call("session/prompt", steer).await["prompt"].clone();
    assert_eq!(client.call("session/list", json!({})).await[0]["queued"], 2);
    gate.open();
    client.nth(&session, "turn_finished", 2).await;
    let seen = client.transcript();
    let turns: Vec<&str> = seen.of("turn_started").map(|seen| seen.str("turn")).collect();
    let turn_of = |prompt: &serde_json::Value| {
        let mut messages = seen.of("message");
        messages.find(|seen| seen.event["prompt"] == *prompt).map(|seen| seen.str("turn")).unwrap()
    };
    assert_eq!((turn_of(&steered), turn_of(&queued)), (turns[0], turns[1]));
    let requests = model.requests();
    assert!(requests[1].messages().contains("skip the slow ones") && !requests[1].messages().contains("and the docs"));
    assert_eq!(last_words(&requests[2]), "and the docs");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn an_interrupt_while_a_tool_runs_gives_the_call_its_result_first() {
    let model = ModelServer::with([bash("sleep 600"), Reply::text("stopped")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "start").await;
    client.first(&session, "tool_started").await;
    client.call("session/prompt", json!({ "session": session, "content": "stop", "when": "interrupt" })).await;
    client.first(&session, "turn_finished").await;
    assert_eq!(client.first(&session, "tool_finished").await.str("outcome"), "cancelled");
    assert_eq!(client.transcript().of("turn_started").count(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn two_hundred_tool_rounds_keep_one_prefix() {
    let model = ModelServer::scripted(|request| {
        let rounds = request.number;
        if rounds < 200 {
            Reply::tool("bash", json!({ "command": format!("true {rounds}") }))
        } else {
            Reply::text("done")
        }
    });
    model.check_later();
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", top: "max_steps = 1000", ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "claude/m" })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    // All of it takes longer than anything is waited for on a machine that is busy.
    for round in (20..200).step_by(20) {
        client.nth(&session, "tool_finished", round).await;
    }
    client.first(&session, "turn_finished").await;
    assert_eq!(model.requests().len(), 201);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn sessions_run_side_by_side_and_do_not_mix() {
    let model = ModelServer::scripted(|request| Reply::text(format!("echo of {}", last_words(request))));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(client.session().await);
    }
    for (n, session) in sessions.iter().enumerate() {
        client.prompt(session, &format!("word-{n}")).await;
    }
    for (n, session) in sessions.iter().enumerate() {
        client.first(session, "turn_finished").await;
        let seen = client.transcript();
        let text: String =
            seen.of("text_delta").filter(|seen| seen.session == *session).map(|seen| seen.str("text")).collect();
        assert_eq!(text, format!("echo of word-{n}"));
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn the_key_goes_into_the_header_of_its_provider_and_nowhere_else() {
    let model = ModelServer::with([bash("env"), Reply::text("done"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let other = client.create_with(json!({ "model": "claude/m" })).await;
    client.attach(&other).await;
    client.turn(&other, "go").await;
    let requests = model.requests();
    let keys = daemon.canaries();
    assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {}", keys[0]).as_str()));
    assert_eq!(requests[2].header("x-api-key"), Some(keys[1].as_str()));
    assert!(requests.iter().all(|request| keys.iter().all(|key| !request.messages().contains(key.as_str()))));
    assert_eq!((requests[0].path.as_str(), requests[2].path.as_str()), ("/v1/chat/completions", "/v1/messages"));
    daemon.check(&[&client], &model);
}
