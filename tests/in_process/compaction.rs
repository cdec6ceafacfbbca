//! Room in the context: summaries, what is left out, and that a session goes on whatever becomes of them.

use linger_tests::check::Seen;
use linger_tests::harness::Client;
use linger_tests::model::{Format, Gate, ModelServer, Recorded, Reply};
use serde_json::json;

use crate::Daemon;
use crate::shared::compaction::{SUMMARY, WINDOW, has, long, start, start_unknown, with_a_past};
use crate::shared::providers::{check, start_with};
use crate::{bash, story};

fn summaries(requests: &[Recorded]) -> Vec<bool> {
    requests.iter().map(Recorded::is_summary).collect()
}

fn one(client: &Client, kind: &str) -> Seen {
    let seen = client.transcript();
    let found: Vec<&Seen> = seen.of(kind).collect();
    assert_eq!(found.len(), 1, "{kind}: {}", seen.outline());
    found[0].clone()
}

async fn compacts_by_itself(format: Format) {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let (client, session) = with_a_past(&daemon, &model, format).await;
    model.push([
        bash("echo beta-$((1+1))").usage(WINDOW * 81 / 100, 10, 0),
        Reply::text(SUMMARY).usage(3000, 40, 0),
        Reply::text("all good").usage(2000, 10, 0),
        Reply::text("as before").usage(2100, 10, 0),
    ]);
    assert_eq!(client.turn(&session, "the second prompt").await.str("stop_reason"), "end_turn");
    assert_eq!(client.turn(&session, "the third prompt").await.str("stop_reason"), "end_turn");
    let requests = model.requests();
    assert_eq!(summaries(&requests), [false, false, true, false, false]);
    let transcript = requests[2].last_words();
    assert!(transcript.contains("alpha") && transcript.contains("the first answer"), "{transcript}");
    assert!(!transcript.contains("the second prompt") && !transcript.contains("beta-2"), "the latest turn stays whole");
    for request in &requests[3..] {
        assert!(!has(request, "alpha") && has(request, "the old goal"), "{}", request.messages());
        assert!(has(request, "the second prompt") && has(request, "beta-2"), "{}", request.messages());
    }
    assert!(has(&requests[4], "the third prompt"));
    let started = one(&client, "compaction_started");
    assert_eq!((started.str("trigger"), &started.event["messages"]), ("full", &json!(2)));
    let compacted = one(&client, "compacted");
    let tokens = |field: &str| compacted.event[field].as_u64().unwrap();
    assert!(
        tokens("tokens_before") >= WINDOW * 81 / 100 && tokens("tokens_after") < tokens("tokens_before") * 3 / 4,
        "{}",
        compacted.raw
    );
    assert_eq!((compacted.str("through"), compacted.str("summary")), ("m2", SUMMARY));
    assert_eq!(compacted.event["usage"]["input_tokens"], 3000);
    let finished = client.nth(&session, "turn_finished", 2).await;
    assert_eq!(
        (&finished.event["steps"], &finished.event["usage"]["output_tokens"]),
        (&json!(2), &json!(60)),
        "{}",
        finished.raw
    );
    let messages = client.transcript().of("message").count();
    assert_eq!(messages, 8, "the summary is no message, and none is gone");
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_full_context_is_compacted_before_the_next_step_with_anthropic_messages() {
    compacts_by_itself(Format::Anthropic).await;
}

#[tokio::test]
async fn a_full_context_is_compacted_before_the_next_step_with_chat_completions() {
    compacts_by_itself(Format::OpenAi).await;
}

#[tokio::test]
async fn a_full_context_is_compacted_before_the_next_step_with_responses() {
    compacts_by_itself(Format::Responses).await;
}

#[tokio::test]
async fn a_full_context_is_compacted_before_the_next_step_with_gemini() {
    compacts_by_itself(Format::Gemini).await;
}

#[tokio::test]
async fn a_full_context_is_compacted_before_the_next_step_with_ollama() {
    compacts_by_itself(Format::Ollama).await;
}

/// What a provider of this format says when the context is too long.
fn too_long(format: Format) -> Reply {
    let claude = "prompt is too long: 213462 tokens > 200000 maximum";
    let chat = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.";
    let google = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).";
    let error = match format {
        Format::Anthropic => {
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": claude } })
        }
        Format::OpenAi => {
            json!({ "error": { "message": chat, "type": "invalid_request_error", "param": "messages", "code": null } })
        }
        Format::Responses => {
            return Reply::new()
                .error_event("context_length_exceeded", "Your input exceeds the context window of this model.");
        }
        Format::Gemini => json!({ "error": { "code": 400, "message": google, "status": "INVALID_ARGUMENT" } }),
        Format::Ollama => json!({ "error": "prompt too long; exceeded max context length by 4 tokens" }),
    };
    Reply::status(400).body(&error.to_string())
}

#[tokio::test]
async fn a_context_that_is_too_long_leads_to_one_compaction_in_each_format() {
    for format in Format::ALL {
        let model = ModelServer::start();
        let daemon = start_unknown(&model).await;
        let (client, session) = with_a_past(&daemon, &model, format).await;
        model.push([too_long(format), Reply::text(SUMMARY), Reply::text("it fits")]);
        assert_eq!(client.turn(&session, "the second prompt").await.str("stop_reason"), "end_turn", "{format:?}");
        let requests = model.requests();
        assert_eq!(summaries(&requests), [false, false, true, false], "{format:?}");
        assert!(has(&requests[3], "the old goal") && !has(&requests[3], "alpha"), "{format:?}");
        assert_eq!(one(&client, "compaction_started").str("trigger"), "too_long");
        check(&daemon, &[&client], &model);
    }
}

/// An answer of which something was shown when there was no room for more.
async fn does_not_fit(format: Format, half: Reply) {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let (client, session) = with_a_past(&daemon, &model, format).await;
    model.push([half, Reply::text(SUMMARY), Reply::text("the whole answer"), Reply::text("more")]);
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    assert_eq!(client.turn(&session, "more").await.str("stop_reason"), "end_turn");
    let superseded = one(&client, "message_superseded");
    let interrupted =
        client.transcript().of("message").find(|seen| seen.event["interrupted"] == true).cloned().unwrap();
    assert_eq!(superseded.str("message"), interrupted.str("message"));
    let requests = model.requests();
    assert!(requests[3..].iter().all(|request| !has(request, "half an ans")));
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn what_was_shown_of_an_answer_that_did_not_fit_is_superseded() {
    let error = ("context_length_exceeded", "the context length is exceeded");
    does_not_fit(Format::OpenAi, Reply::text("half an ans").error_event(error.0, error.1)).await;
    does_not_fit(Format::Anthropic, Reply::text("half an ans").stop("model_context_window_exceeded")).await;
}

#[tokio::test]
async fn a_compaction_by_hand_keeps_in_view_what_it_is_told_and_happens_once_for_a_key() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([Reply::text(SUMMARY), Reply::text("on")]);
    let asked = json!({ "session": session, "focus": "the two reasons", "key": "k-1" });
    let first = client.call("session/compact", asked.clone()).await;
    assert_eq!(client.call("session/compact", asked.clone()).await, first);
    let finished = client.nth(&session, "turn_finished", 2).await;
    assert_eq!((finished.str("stop_reason"), &finished.event["steps"]), ("end_turn", &json!(0)));
    assert_eq!(client.call("session/compact", asked).await, first, "also when it is done");
    let compacted = one(&client, "compacted");
    assert_eq!(compacted.str("prompt"), first["prompt"].as_str().unwrap());
    let kinds = story(&client.transcript(), &session);
    let own = ["prompt_accepted", "turn_started", "compaction_started", "compacted", "turn_finished"];
    assert_eq!(kinds[kinds.len() - 5..], own);
    client.turn(&session, "and now").await;
    let requests = model.requests();
    assert_eq!(summaries(&requests), [false, true, false]);
    assert!(requests[1].last_words().ends_with("in view above all: the two reasons"));
    assert!(
        has(&requests[2], "the old goal") && has(&requests[2], "and now") && !has(&requests[2], "lorem ipsum lorem")
    );
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_compaction_by_hand_without_a_summary_leaves_out_the_oldest_output() {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([bash("for i in $(seq 400); do echo beta-line-$i; done"), Reply::text("done")]);
    client.turn(&session, "go").await;
    model.push([Reply::new(), Reply::text("on")]);
    client.call("session/compact", json!({ "session": session })).await;
    assert_eq!(client.nth(&session, "turn_finished", 3).await.str("stop_reason"), "end_turn");
    one(&client, "compaction_failed");
    assert_eq!(one(&client, "trimmed").event["calls"], json!(["c1"]));
    client.turn(&session, "and now").await;
    let last = model.requests().pop().unwrap();
    assert!(has(&last, "alpha") && has(&last, "left out to make room") && !has(&last, "beta-line-7\\n"));
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_compaction_that_is_asked_for_in_mid_turn_comes_before_the_next_step() {
    let gate = Gate::new();
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::Anthropic).await;
    model.push([
        Reply::text("Looking.").gate(&gate).and_tool("bash", json!({ "command": "echo x" })),
        Reply::text(SUMMARY),
        Reply::text("done"),
    ]);
    client.prompt(&session, "go").await;
    client.sees_text(&session, "Looking.").await;
    client.call("session/compact", json!({ "session": session })).await;
    let refused = client.refused("session/compact", json!({ "session": session })).await;
    assert_eq!(refused.code, -31013, "one at a time: {refused:?}");
    gate.open();
    let finished = client.nth(&session, "turn_finished", 2).await;
    assert_eq!((finished.str("stop_reason"), &finished.event["steps"]), ("end_turn", &json!(2)));
    assert_eq!(summaries(&model.requests()), [false, false, true, false]);
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn there_is_nothing_to_compact_in_a_new_session_and_a_short_one_says_so() {
    let model = ModelServer::with([Reply::text("x")]);
    let daemon = start_unknown(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    assert_eq!(client.refused("session/compact", json!({ "session": session })).await.code, -31014);
    client.turn(&session, "hi").await;
    model.push([Reply::text("## Goal\nThe user said hi; this summary is longer than that.")]);
    client.call("session/compact", json!({ "session": session })).await;
    let finished = client.nth(&session, "turn_finished", 2).await;
    assert_eq!(finished.str("stop_reason"), "error");
    assert!(
        finished.str("detail").contains("hardly shorter") && finished.str("hint").contains("/model"),
        "{}",
        finished.raw
    );
    model.push([Reply::text("still here")]);
    assert_eq!(client.turn(&session, "are you there?").await.str("stop_reason"), "end_turn");
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_second_summary_is_of_the_first_and_what_came_since() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::Gemini).await;
    model.push([Reply::text(SUMMARY), Reply::text("so"), Reply::text("## Goal\nboth goals"), Reply::text("on")]);
    client.call("session/compact", json!({ "session": session })).await;
    client.nth(&session, "turn_finished", 2).await;
    client.turn(&session, &long("gamma")).await;
    client.call("session/compact", json!({ "session": session })).await;
    client.nth(&session, "turn_finished", 4).await;
    assert_eq!(client.transcript().of("compacted").count(), 2);
    client.turn(&session, "and now").await;
    let requests = model.requests();
    assert_eq!(summaries(&requests), [false, true, false, true, false]);
    let second = requests[3].last_words();
    assert!(second.contains("the old goal") && second.contains("gamma"), "{second}");
    assert!(has(&requests[4], "both goals") && !has(&requests[4], "the old goal"));
    check(&daemon, &[&client], &model);
}

/// What goes wrong with a summary.
async fn in_vain(summary: Reply) {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    let output = "for i in $(seq 400); do echo beta-line-$i; done";
    model.push([
        bash(output),
        bash("echo small").usage(WINDOW * 90 / 100, 10, 0),
        summary,
        Reply::text("on without it").usage(WINDOW / 2, 10, 0),
        Reply::text("and on").usage(WINDOW / 2, 10, 0),
    ]);
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    assert_eq!(client.turn(&session, "more").await.str("stop_reason"), "end_turn");
    one(&client, "compaction_failed");
    let trimmed = one(&client, "trimmed");
    assert_eq!(trimmed.event["calls"], json!(["c1"]));
    assert!(trimmed.event["tokens_after"].as_u64() < trimmed.event["tokens_before"].as_u64());
    let requests = model.requests();
    assert_eq!(summaries(&requests), [false, false, false, true, false, false]);
    for request in &requests[4..] {
        assert!(
            has(request, "alpha") && has(request, "small") && !has(request, "beta-line-7\\n"),
            "{}",
            request.messages()
        );
        assert!(has(request, "left out to make room"));
    }
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn without_a_summary_the_oldest_output_is_left_out() {
    in_vain(Reply::new()).await;
    in_vain(Reply::text("I cannot").stop("refusal")).await;
    in_vain(Reply::text("## Goal\nhalf of").stop("max_tokens")).await;
    in_vain(Reply::text(long("no shorter").repeat(3))).await;
    in_vain(too_long(Format::OpenAi)).await;
    in_vain(Reply::status(422)).await;
}

#[tokio::test]
async fn a_context_that_never_fits_ends_in_a_clear_error_and_the_next_prompt_works() {
    for format in Format::ALL {
        let model = ModelServer::start();
        let daemon = start_unknown(&model).await;
        let (client, session) = with_a_past(&daemon, &model, format).await;
        let never = || too_long(format);
        // A summary, and it is too long still; what there is of output goes, and it is too long still.
        model.push([
            bash("for i in $(seq 400); do echo beta-line-$i; done"),
            never(),
            Reply::text(SUMMARY),
            never(),
            never(),
        ]);
        let finished = client.turn(&session, "go").await;
        assert_eq!(finished.str("stop_reason"), "error", "{format:?}");
        assert!(finished.str("detail").contains("cannot make more room"), "{}", finished.raw);
        assert!(finished.str("hint").contains("larger window"), "{}", finished.raw);
        assert_eq!((one(&client, "compacted").kind(), one(&client, "trimmed").kind()), ("compacted", "trimmed"));
        assert_eq!(model.requests().len(), 6, "{format:?}");
        // Not even a summary, and nothing to leave out.
        model.push([never(), never()]);
        assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "error");
        assert_eq!(model.requests().len(), 8, "{format:?}");
        model.push([Reply::text("it fits now")]);
        assert_eq!(client.turn(&session, "once more").await.str("stop_reason"), "end_turn");
        check(&daemon, &[&client], &model);
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_alone_does_not_spoil_the_session() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::Anthropic).await;
    model.push([too_long(Format::Anthropic)]);
    let huge = "huge-word ".repeat(60_000);
    assert_eq!(client.turn(&session, &huge).await.str("stop_reason"), "error");
    // The error has named the window, so what exceeds it is not sent again.
    model.push([Reply::text("## Goal\nsomething huge"), Reply::text("better")]);
    assert_eq!(client.turn(&session, "a short one").await.str("stop_reason"), "end_turn");
    let requests = model.requests();
    let last = requests.last().unwrap();
    assert!(last.body.len() < 40_000 && has(last, "something huge") && has(last, "a short one"), "{}", last.body.len());
    let asked = requests.iter().rfind(|request| request.is_summary()).unwrap();
    assert!(asked.body.len() < 450_000, "a summary is asked for with what may fit: {}", asked.body.len());
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_provider_that_fails_for_a_while_is_asked_again_for_the_summary() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([Reply::status(503), Reply::text("## Goal\nhalf").cut(), Reply::text(SUMMARY)]);
    client.call("session/compact", json!({ "session": session })).await;
    client.nth(&session, "compacted", 1).await;
    let seen = client.transcript();
    assert_eq!(seen.of("notice").filter(|seen| seen.str("code") == "retry").count(), 2);
    assert_eq!(seen.of("text_delta").filter(|seen| seen.str("text").contains("half")).count(), 0, "it is no message");
    client.nth(&session, "turn_finished", 2).await;
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn cancel_stops_a_compaction_and_it_does_not_come_back() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([Reply::text("## Goal").stall(), Reply::text("on")]);
    client.call("session/compact", json!({ "session": session })).await;
    model.wait_requests(2).await;
    client.call("session/cancel", json!({ "session": session })).await;
    assert_eq!(client.nth(&session, "turn_finished", 2).await.str("stop_reason"), "cancelled");
    assert_eq!(client.turn(&session, "go on").await.str("stop_reason"), "end_turn");
    assert_eq!(client.transcript().of("compacted").count(), 0);
    assert!(one(&client, "compaction_failed").str("reason").contains("cancelled"));
    assert!(has(model.requests().last().unwrap(), "alpha"), "nothing was replaced");
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_prompt_that_interrupts_a_compaction_is_answered_without_it() {
    let model = ModelServer::start();
    let daemon = start_unknown(&model).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([Reply::text("## Goal").stall(), Reply::text("at once")]);
    client.call("session/compact", json!({ "session": session })).await;
    model.wait_requests(2).await;
    client.call("session/prompt", json!({ "session": session, "content": "wait", "when": "interrupt" })).await;
    assert_eq!(client.nth(&session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    assert!(one(&client, "compaction_failed").str("reason").contains("interrupted"));
    assert!(has(model.requests().last().unwrap(), "wait") && has(model.requests().last().unwrap(), "alpha"));
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_model_with_a_smaller_window_gets_a_summary_first() {
    let model = ModelServer::start();
    let small = "[models.\"work/w\"]\ncontext_window = 1000000\n[models.\"claude/c\"]\ncontext_window = 20000\n";
    let daemon = start_with(&model, small).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/w" })).await;
    client.attach(&session).await;
    model.push([Reply::text("one").usage(90_000, 10, 0), Reply::text(SUMMARY), Reply::text("two").usage(3000, 10, 0)]);
    client.turn(&session, &long("alpha")).await;
    client.call("session/set", json!({ "session": session, "model": "claude/c" })).await;
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    let requests = model.requests();
    assert_eq!(summaries(&requests), [false, true, false]);
    assert!(requests[1..].iter().all(|request| request.format == Format::Anthropic));
    assert!(has(&requests[2], "the old goal") && !has(&requests[2], "alpha"));
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_summary_for_one_model_does_not_put_off_that_of_another_with_a_smaller_window() {
    let model = ModelServer::start();
    let windows = "[models.\"work/w\"]\ncontext_window = 100000\n[models.\"llama/l\"]\ncontext_window = 20000\n";
    let daemon = start_with(&model, windows).await;
    let (client, session) = with_a_past(&daemon, &model, Format::OpenAi).await;
    model.push([
        bash("true").usage(81_000, 10, 0),
        Reply::text(SUMMARY).usage(3000, 40, 0),
        Reply::text("two").usage(40_000, 10, 0),
    ]);
    client.turn(&session, &long("beta").repeat(3)).await;
    assert_eq!(summaries(&model.requests()), [false, false, true, false]);
    client.call("session/set", json!({ "session": session, "model": "llama/l" })).await;
    model.push([Reply::text(SUMMARY).usage(3000, 40, 0), Reply::text("three").usage(3000, 10, 0)]);
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    let requests = model.requests();
    assert_eq!(summaries(&requests[4..]), [true, false], "it does not fit");
    assert!(requests[4..].iter().all(|request| request.json["options"]["num_ctx"] == 20_000));
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn with_compact_at_zero_nothing_is_compacted_unless_it_must_be() {
    let model = ModelServer::start();
    let setup = linger_tests::harness::Setup {
        top: "compact_at = 0",
        config: format!("[models.\"work/m\"]\ncontext_window = {WINDOW}\n"),
        ..Default::default()
    };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([Reply::text("one").usage(WINDOW, 10, 0), Reply::text("two")]);
    client.turn(&session, &long("alpha")).await;
    client.turn(&session, "go").await;
    assert_eq!(summaries(&model.requests()), [false, false]);
    daemon.check(&[&client], &model);
}
