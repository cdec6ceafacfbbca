//! What providers do to their clients, and that a turn survives it or says clearly why not.

use std::time::Duration;

use linger_tests::harness::Setup;
use linger_tests::model::{Format, ModelServer, PATIENCE, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::matrix_turns::refusal;
use crate::shared::provider_faults::{notices, turn};
use crate::shared::providers;
use crate::story;

/// A fault before anything was shown: a warning, and then the answer.
async fn recovers(fault: Reply) {
    for format in Format::ALL {
        let model = ModelServer::with([fault.clone(), Reply::text("Good day")]);
        let (daemon, client, session, stop) = turn(&model, format).await;
        let seen = client.transcript();
        assert_eq!(stop, "end_turn", "{format:?}: {}", seen.outline());
        assert_eq!(notices(&seen), [("warning".to_owned(), "retry".to_owned())]);
        let want = ["prompt_accepted", "turn_started", "message", "notice", "message", "turn_finished"];
        assert_eq!(story(&seen, &session), want);
        assert_eq!(model.requests().len(), 2);
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn too_many_requests_are_tried_again_after_the_time_that_the_provider_says() {
    recovers(Reply::status(429).header("retry-after", "1")).await;
    let model = ModelServer::with([Reply::status(429).header("retry-after", "1"), Reply::text("x")]);
    let (daemon, client, ..) = turn(&model, Format::OpenAi).await;
    let requests = model.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(1), "it came back too early");
    // When the wait ends is said, for a client that counts down.
    let seen = client.transcript();
    let notice = &seen.of("notice").next().unwrap().event;
    let wait = notice["until_at"].as_u64().unwrap() - notice["at"].as_u64().unwrap();
    assert!((1..=1000).contains(&wait), "{notice}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_wait_that_is_too_long_ends_the_turn_and_says_until_when() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::status(429).header("retry-after", "3600"), Reply::text("Good day")]);
        let (daemon, client, session, stop) = turn(&model, format).await;
        assert_eq!((stop.as_str(), model.requests().len()), ("error", 1), "{format:?}");
        let finished = client.first(&session, "turn_finished").await;
        let wait = finished.event["until_at"].as_u64().unwrap() - finished.event["at"].as_u64().unwrap();
        assert!((3_599_000..=3_600_000).contains(&wait), "{format:?}: {}", finished.raw);
        // Somebody who knows better may ask at once.
        let next = client.turn(&session, "again").await;
        assert_eq!((next.str("stop_reason"), &next.event["until_at"]), ("end_turn", &json!(null)), "{format:?}");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_server_error_is_tried_again() {
    recovers(Reply::status(500)).await;
}

#[tokio::test]
async fn an_overloaded_provider_is_tried_again() {
    recovers(Reply::status(529)).await;
}

#[tokio::test]
async fn a_connection_that_is_reset_is_tried_again() {
    recovers(Reply::reset()).await;
}

#[tokio::test]
async fn a_stream_that_begins_with_an_error_is_tried_again() {
    recovers(Reply::new().error_event("overloaded_error", "Overloaded")).await;
}

#[tokio::test]
async fn a_web_page_in_place_of_a_stream_is_a_wrong_address_and_not_tried_again() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::html(), Reply::text("Good day")]);
        let (daemon, client, session, stop) = turn(&model, format).await;
        assert_eq!((stop.as_str(), model.requests().len()), ("error", 1));
        let finished = client.first(&session, "turn_finished").await;
        assert!(
            finished.str("detail").contains("web page") && finished.str("hint").contains("base_url"),
            "{}",
            finished.raw
        );
        client.prompt(&session, "again").await;
        client.wait("the next turn", |seen| (seen.of("turn_finished").count() == 2).then_some(())).await;
        daemon.check(&[&client], &model);
    }
}

/// A fault after text was shown: the text is kept as interrupted, and superseded when the step is repeated.
async fn repeats(fault: impl Fn(Reply) -> Reply) {
    for format in Format::ALL {
        let model = ModelServer::with([fault(Reply::text("Good d")), Reply::text("Good day")]);
        let (daemon, client, session, stop) = turn(&model, format).await;
        let seen = client.transcript();
        assert_eq!(stop, "end_turn", "{format:?}: {}", seen.outline());
        let kinds = story(&seen, &session);
        let want = [
            "prompt_accepted",
            "turn_started",
            "message",
            "message",
            "notice",
            "message_superseded",
            "message",
            "turn_finished",
        ];
        assert_eq!(kinds, want, "{format:?}");
        let messages: Vec<_> = seen.of("message").collect();
        assert_eq!(messages[1].event["interrupted"], true);
        assert_eq!(messages[1].event["content"], json!([{ "type": "text", "text": "Good d" }]));
        assert_eq!(seen.of("message_superseded").next().unwrap().str("message"), messages[1].str("message"));
        assert_eq!(messages[2].event["content"], json!([{ "type": "text", "text": "Good day" }]));
        assert_ne!(messages[1].str("message"), messages[2].str("message"));
        let requests = model.requests();
        assert_eq!(requests[0].messages(), requests[1].messages(), "what was superseded is not sent again");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_in_the_middle_is_repeated() {
    repeats(Reply::cut).await;
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_repeated() {
    repeats(|reply| reply.error_event("overloaded_error", "Overloaded")).await;
}

#[tokio::test]
async fn garbage_in_the_middle_of_a_stream_is_repeated() {
    repeats(|reply| reply.garbage().cut()).await;
}

#[tokio::test]
async fn a_cut_tool_call_is_not_run() {
    for format in Format::ALL {
        let model = ModelServer::start();
        let config = format.provider("x", &model.url());
        let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
        let call = json!({ "command": daemon.effect("never") });
        model.push([Reply::text("I will").and_tool("bash", call).cut(), Reply::text("done")]);
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": "x/m" })).await;
        client.attach(&session).await;
        client.turn(&session, "go").await;
        assert_eq!(client.transcript().of("tool_started").count(), 0);
        assert!(!daemon.side_effects().exists());
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_stream_of_a_wrong_content_type_is_read_nevertheless() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::text("Good day").wrong_content_type()]);
        let (daemon, client, _, stop) = turn(&model, format).await;
        assert_eq!(stop, "end_turn");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_stream_in_single_bytes_is_the_same_stream() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::text("Grüße, 🦀").chunks_of(1)]);
        let (daemon, client, _, stop) = turn(&model, format).await;
        assert_eq!(stop, "end_turn");
        assert_eq!(client.transcript().of("message").last().unwrap().event["content"][0]["text"], "Grüße, 🦀");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_wrong_key_fails_the_turn_clearly_and_the_next_prompt_works() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::status(401), Reply::text("Good day")]);
        let (daemon, client, session, stop) = turn(&model, format).await;
        assert_eq!(stop, "error");
        let finished = client.first(&session, "turn_finished").await;
        let detail = finished.str("detail").to_owned();
        assert!(detail.contains("401") || detail.contains("key"), "{detail}");
        assert_eq!(model.requests().len(), 1, "a wrong key is not tried again");
        assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_history_that_is_refused_whatever_is_left_out_ends_the_turn_and_not_the_session() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::new().thinking("Hm.", "YWx0").and_text("eins")]);
        let daemon = providers::start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": providers::name(format) })).await;
        client.attach(&session).await;
        client.turn(&session, "eins?").await;
        model.otherwise(|request| refusal(request.format));
        // Asked twice, as something could be left out; from then on once.
        for (turn, requests) in [(2, 3), (3, 4)] {
            let finished = client.turn(&session, "und nun?").await;
            assert_eq!(finished.str("stop_reason"), "error", "{format:?}");
            assert!(finished.str("detail").contains("400") && finished.str("detail").contains("cannot leave out more"));
            assert!(finished.str("hint").contains("/compact"), "{}", finished.raw);
            assert_eq!(model.requests().len(), requests, "{format:?}: turn {turn}");
        }
        assert_eq!(client.transcript().of("trimmed").count(), 1);
        model.push([Reply::text("vier")]);
        assert_eq!(client.turn(&session, "und nun?").await.str("stop_reason"), "end_turn");
        providers::check(&daemon, &[&client], &model);
    }
}

#[tokio::test]
async fn thinking_with_what_no_request_may_have_goes_back_changed_to_none_that_signed_it() {
    let hostile =
        "\u{0}\u{7}\u{1b}[2J\u{9b} \u{202e}txt.exe\u{2066} \u{e0041} </think> <script>x</script> \\u0000 \u{feff}";
    for format in Format::ALL {
        let model = ModelServer::with([
            Reply::new().thinking(hostile, "YWx0").and_tool("bash", json!({ "command": "echo hi" })),
            Reply::new().thinking("Ja.", "bmV1").and_text("eins"),
            Reply::text("zwei"),
        ]);
        let daemon = providers::start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": providers::name(format), "mode": "auto" })).await;
        client.attach(&session).await;
        for prompt in ["eins?", "und nun?"] {
            assert_eq!(client.turn(&session, prompt).await.str("stop_reason"), "end_turn", "{format:?}");
        }
        providers::check(&daemon, &[&client], &model);
    }
}

/// A refusal with these words, as this format has them.
fn refuses_with(format: Format, said: &str) -> Reply {
    Reply::status(400).body(&format.error_body(400, "invalid_request_error", said).to_string())
}

#[tokio::test]
async fn a_model_that_must_have_thought_at_anothers_call_is_asked_without_thinking() {
    let model = ModelServer::start();
    model.expect_rewrites(); // Another model goes on.
    let daemon = providers::start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/w", "effort": "high" })).await;
    client.attach(&session).await;
    model.push([Reply::tool("ls", json!({})), Reply::status(404)]);
    assert_eq!(client.turn(&session, "eins?").await.str("stop_reason"), "error");
    client.call("session/set", json!({ "session": session, "model": "claude/claude-opus-4-1" })).await;
    model.otherwise(|request| {
        let thinks = request.json["thinking"]["type"] == "enabled";
        if thinks && !request.messages().contains("zwei!") {
            refuses_with(
                Format::Anthropic,
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
            )
        } else if request.messages().contains("drei!") {
            Reply::text("drei")
        } else {
            Reply::text("zwei!")
        }
    });
    assert_eq!(client.turn(&session, "zwei?").await.str("stop_reason"), "end_turn");
    let told = client.first(&session, "notice").await;
    assert!(told.str("text").contains("asking again without thinking"), "{}", told.raw);
    assert_eq!(client.turn(&session, "drei!").await.str("stop_reason"), "end_turn");
    let thinking: Vec<_> =
        model.requests()[2..].iter().map(|request| request.json["thinking"]["type"].clone()).collect();
    assert_eq!(thinking, ["enabled", "disabled", "enabled"], "the next turn thinks again");
    assert_eq!(client.transcript().of("trimmed").count(), 0);
    providers::check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_server_that_wants_reasoning_content_at_anothers_call_gets_it_from_then_on() {
    let model = ModelServer::start();
    model.expect_rewrites(); // Another model goes on.
    let daemon = providers::start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "claude/c" })).await;
    client.attach(&session).await;
    model.push([Reply::tool("ls", json!({})), Reply::text("eins")]);
    client.turn(&session, "eins?").await;
    client.call("session/set", json!({ "session": session, "model": "work/w" })).await;
    model.otherwise(|request| {
        if request.messages().contains("\"reasoning_content\":\"\"") {
            Reply::text("zwei")
        } else {
            refuses_with(Format::OpenAi, "The `reasoning_content` in the thinking mode must be passed back to the API.")
        }
    });
    for (n, requests) in [("zwei?", 4), ("drei?", 5)] {
        assert_eq!(client.turn(&session, n).await.str("stop_reason"), "end_turn");
        assert_eq!(model.requests().len(), requests, "refused once");
    }
    let seen = client.transcript();
    let setups: Vec<&Value> =
        seen.of("session_changed").map(|changed| &changed.event["setup"]).filter(|setup| setup.is_object()).collect();
    assert!(setups.len() == 2 && setups[0] != setups[1], "another model, and then the field: {setups:?}");
    providers::check(&daemon, &[&client], &model);

    // Who has said that it is not to be sent is told of the flag.
    let model = ModelServer::with([Reply::tool("ls", json!({}))]);
    let daemon = Daemon::start_with(
        &model,
        Setup { config: "[providers.work.compat]\nreasoning_content = false\n".to_owned(), ..Setup::default() },
    )
    .await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.otherwise(|_| refuses_with(Format::OpenAi, "Missing `reasoning_content` field in the assistant message."));
    let finished = client.turn(&session, "eins?").await;
    assert!(finished.str("hint").contains("reasoning_content = true"), "{}", finished.raw);
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn a_model_that_does_not_exist_fails_the_turn_and_another_one_can_be_set() {
    for format in Format::ALL {
        let model = ModelServer::with([Reply::status(404), Reply::text("Good day")]);
        let (daemon, client, session, stop) = turn(&model, format).await;
        assert_eq!(stop, "error");
        client.call("session/set", json!({ "session": session, "model": "claude/m" })).await;
        assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
        assert_eq!(client.first(&session, "session_changed").await.str("model"), "claude/m");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_provider_that_fails_for_good_ends_the_turn_and_is_not_asked_for_ever() {
    for format in Format::ALL {
        let model = ModelServer::scripted(|_| Reply::status(500).header("retry-after", "0"));
        let config = format.provider("x", &model.url()).replace(PATIENCE, "1s");
        let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": "x/m" })).await;
        client.attach(&session).await;
        assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "error");
        assert!((2..=4).contains(&model.requests().len()), "{} attempts", model.requests().len());
        assert!(!client.first(&session, "turn_finished").await.str("detail").is_empty());
        daemon.check(&[&client], &model);
    }
}
