//! Tools that run at the provider: shown, kept, and sent back as they came, whatever becomes of the answer.

use linger_tests::check::Seen;
use linger_tests::harness::Client;
use linger_tests::model::{Format, Gate, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::shared::hosted::{FOUND, HOSTED, kinds_of, pauses, ran, searches, session, start};
use crate::shared::matrix_turns::refusal;
use crate::shared::providers::name;

/// What only the provider reads of the search for "rust 2026".
const SECRET: &str = "RW5jcnlwdGVkrust2026";

fn bash(line: &str) -> Value {
    json!({ "command": format!("echo {line}") })
}

/// The hosted blocks of a message: tool, part and text.
fn hosted(message: &Seen) -> Vec<(String, String, String)> {
    let field = |block: &Value, name: &str| block[name].as_str().unwrap_or_default().to_owned();
    let blocks = message.event["content"].as_array().unwrap().iter().filter(|block| block["type"] == "hosted");
    blocks.map(|block| (field(block, "tool"), field(block, "part"), field(block, "text"))).collect()
}

fn nth_message(client: &Client, n: usize) -> Seen {
    client.transcript().of("message").nth(n).unwrap().clone()
}

async fn story_in(format: Format) {
    let model = ModelServer::start();
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, format).await;
    model.push([searches().and_tool("bash", bash("eins")).chunks_of(11), Reply::text("done"), Reply::text("more")]);
    assert_eq!(client.turn(&session, "look it up").await.str("stop_reason"), "end_turn");
    assert_eq!(client.turn(&session, "and now?").await.str("stop_reason"), "end_turn");

    // Asked for, beside the tools that run here.
    let requests = model.requests();
    let tools = requests[0].json["tools"].to_string();
    let switched_on = match format {
        Format::Anthropic => ["web_search_20250305", "code_execution_20250825"],
        Format::Responses => ["{\"type\":\"web_search\"}", "code_interpreter"],
        _ => ["googleSearch", "codeExecution"],
    };
    assert!(switched_on.iter().all(|word| tools.contains(word)) && tools.contains("\"bash\""), "{tools}");

    // Shown while it came, and kept.
    let answer = nth_message(&client, 1);
    let (search, code) = ("web_search".to_owned(), "code_execution".to_owned());
    let kept = hosted(&answer);
    let has = |tool: &String, part: &str, text: &str| {
        kept.iter().any(|(t, p, said)| (t, p.as_str()) == (tool, part) && said.contains(text))
    };
    assert!(has(&search, "call", "rust 2026") && has(&search, "result", "https://b.example/ä"), "{kept:?}");
    assert!(has(&code, "call", "print(4)") && has(&code, "result", "4"), "{kept:?}");
    let seen = client.transcript();
    let shown = seen.of("hosted_delta").filter(|seen| seen.str("message") == answer.str("message"));
    assert_eq!(shown.count(), kept.iter().filter(|(.., text)| !text.is_empty()).count(), "{}", seen.outline());
    assert_eq!(answer.event["usage"]["cost_at_least"], true, "what was searched for is not in any price");
    let texts: Vec<&str> = answer.event["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|b| b["type"] == "text")
        .filter_map(|b| b["text"].as_str())
        .collect();
    assert_eq!(texts, ["I look.", "It is so."], "what cites something is no line of its own");

    // Sent back in the next step and in the next turn; the server looks whether it is the same to the byte.
    for request in &requests[1..] {
        assert_eq!(ran(request), kinds_of(format));
    }
    let cited = requests[2].messages().contains("encrypted_index");
    assert_eq!(cited, format == Format::Anthropic);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_search_and_code_are_shown_kept_and_sent_back_in_anthropic_messages() {
    story_in(Format::Anthropic).await;
}

#[tokio::test]
async fn a_search_and_code_are_shown_kept_and_sent_back_in_responses() {
    story_in(Format::Responses).await;
}

#[tokio::test]
async fn a_search_and_code_are_shown_kept_and_sent_back_in_gemini() {
    story_in(Format::Gemini).await;
}

#[tokio::test]
async fn another_model_reads_what_was_found_and_none_of_the_secrets() {
    let model = ModelServer::start();
    model.expect_rewrites();
    let daemon = start(&model, "auto").await;
    for from in HOSTED {
        for to in Format::ALL.into_iter().filter(|to| *to != from) {
            let what = format!("{from:?} to {to:?}");
            let (client, session) = session(&daemon, from).await;
            let before = model.requests().len();
            model.push([searches(), Reply::text("I see"), Reply::text("back")]);
            client.turn(&session, "look it up").await;
            client.call("session/set", json!({ "session": session, "model": name(to) })).await;
            client.turn(&session, "and you?").await;
            client.call("session/set", json!({ "session": session, "model": name(from) })).await;
            client.turn(&session, "and now?").await;
            let requests = model.requests()[before..].to_vec();
            let body = requests[1].messages();
            assert!(
                body.contains("[web_search: rust 2026]") && body.contains("https://rust-lang.org"),
                "{what}: {body}"
            );
            assert!(body.contains("[code_execution gave: 4]"), "{what}: {body}");
            assert!(!body.contains(SECRET) && ran(&requests[1]).is_empty(), "{what}: {body}");
            assert_eq!(ran(&requests[2]), kinds_of(from), "{what}");
            daemon.check(&[&client], &model);
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_keeps_what_was_shown_and_is_repeated() {
    for format in HOSTED {
        let model = ModelServer::start();
        let daemon = start(&model, "auto").await;
        let (client, session) = session(&daemon, format).await;
        model.push([searches().cut(), searches().and_text("whole"), Reply::text("on")]);
        assert_eq!(client.turn(&session, "look it up").await.str("stop_reason"), "end_turn");
        client.turn(&session, "on").await;
        let (cut, whole) = (nth_message(&client, 1), nth_message(&client, 2));
        assert_eq!(cut.event["interrupted"], true);
        let kept = hosted(&cut);
        assert!(kept.iter().any(|(_, part, text)| part == "call" && text == "rust 2026"), "{kept:?}");
        assert!(!cut.raw.contains(SECRET), "what was cut cannot go back: {}", cut.raw);
        assert!(whole.raw.contains(SECRET) || format == Format::Responses, "{}", whole.raw);
        let requests = model.requests();
        assert!(ran(&requests[1]).is_empty(), "the repeated step goes on from what was there before");
        assert_eq!(ran(&requests[2]), kinds_of(format));
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_summary_stands_for_searches_and_the_session_goes_on() {
    for format in HOSTED {
        let model = ModelServer::start();
        let daemon = start(&model, "auto").await;
        let (client, session) = session(&daemon, format).await;
        let long = "lorem ipsum ".repeat(500);
        model.push([searches().and_text(&long), searches(), Reply::text("## Goal\nrust"), Reply::text("on")]);
        client.turn(&session, "look it up").await;
        client.turn(&session, "and again").await;
        client.call("session/compact", json!({ "session": session })).await;
        client.first(&session, "compacted").await;
        client.nth(&session, "turn_finished", 3).await;
        assert_eq!(client.turn(&session, "on").await.str("stop_reason"), "end_turn");
        let requests = model.requests();
        let summary = String::from_utf8_lossy(&requests[2].body).into_owned();
        assert!(requests[2].is_summary() && summary.contains("[web_search: rust 2026]"), "{summary}");
        assert!(!summary.contains(SECRET) && requests[2].json["tools"].is_null(), "{summary}");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_turn_that_is_paused_goes_on_in_the_next_step() {
    let model = ModelServer::with([
        pauses(),
        Reply::new().and_search_done("rust 2026", FOUND).and_search_begun("more").stop("pause_turn"),
        Reply::new().and_search_done("more", FOUND).and_text("It is so."),
        Reply::text("on"),
    ]);
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, Format::Anthropic).await;
    let finished = client.turn(&session, "look it up").await;
    assert_eq!((finished.str("stop_reason"), &finished.event["steps"]), ("end_turn", &json!(3)));
    client.turn(&session, "on").await;
    let seen = client.transcript();
    let paused: Vec<bool> = seen.of("message").map(|message| message.event["paused"] == true).collect();
    assert_eq!(paused, [false, true, true, false, false, false]);
    let roles = |request: &Recorded| -> Vec<String> {
        request.list().iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(roles(&model.requests()[1]), ["user", "assistant"], "the answer goes back as it is");
    assert_eq!(roles(&model.requests()[3]), ["user", "assistant", "user"], "and is one answer in the end");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_search_beside_a_call_of_ours_is_done_when_the_result_is_there() {
    let model = ModelServer::with([
        Reply::text("Both.").and_search_begun("rust 2026").and_tool("bash", bash("eins")),
        Reply::new().and_search_done("rust 2026", FOUND).and_text("It is so."),
        Reply::text("on"),
    ]);
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, Format::Anthropic).await;
    assert_eq!(client.turn(&session, "look it up").await.str("stop_reason"), "end_turn");
    client.turn(&session, "on").await;
    assert_eq!(ran(&model.requests()[1]), ["server_tool_use"]);
    assert_eq!(ran(&model.requests()[2]), ["server_tool_use", "web_search_tool_result"]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_search_that_nobody_goes_on_with_is_over_and_the_history_stays_good() {
    // Cancelled while it goes on; and a user who steers.
    let gate = Gate::new();
    let model = ModelServer::with([
        pauses(),
        Reply::text("half").gate(&gate),
        Reply::text("then not"),
        Reply::text("Both.").and_search_begun("more").and_tool("bash", json!({ "command": "sleep 600" })),
        Reply::text("as you say"),
        Reply::text("on"),
    ]);
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, Format::Anthropic).await;
    client.prompt(&session, "look it up").await;
    gate.reached().await;
    client.call("session/cancel", json!({ "session": session })).await;
    client.first(&session, "turn_finished").await;
    assert_eq!(client.turn(&session, "never mind").await.str("stop_reason"), "end_turn");
    client.prompt(&session, "once more").await;
    client.first(&session, "tool_started").await;
    let steer = json!({ "session": session, "content": "stop that", "when": "interrupt" });
    client.call("session/prompt", steer).await;
    client.nth(&session, "turn_finished", 3).await;
    client.turn(&session, "on").await;
    let requests = model.requests();
    let given_up = |n: usize| requests[n].messages().matches("\"error_code\":\"unavailable\"").count();
    assert_eq!([1, 2, 3, 4, 5].map(given_up), [0, 1, 1, 2, 2]);
    gate.open();
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn another_model_is_asked_to_go_on_with_what_was_paused() {
    for to in Format::ALL.into_iter().filter(|to| *to != Format::Anthropic) {
        let gate = Gate::new();
        let model = ModelServer::with([
            Reply::text("I look.").and_search_begun("rust 2026").gate(&gate).stop("pause_turn"),
            Reply::text("as another"),
            Reply::text("back"),
        ]);
        model.expect_rewrites();
        let daemon = start(&model, "auto").await;
        let (client, session) = session(&daemon, Format::Anthropic).await;
        client.prompt(&session, "look it up").await;
        gate.reached().await;
        client.call("session/set", json!({ "session": session, "model": name(to) })).await;
        gate.open();
        assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn", "{to:?}");
        let asked = client.transcript().of("message").find(|message| message.str("asks") == "go_on").cloned();
        assert!(asked.is_some(), "{to:?}: {}", client.transcript().outline());
        client.call("session/set", json!({ "session": session, "model": name(Format::Anthropic) })).await;
        assert_eq!(client.turn(&session, "and now?").await.str("stop_reason"), "end_turn", "{to:?}");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_paused_answer_that_its_provider_refuses_to_take_back_is_gone_on_with_in_words() {
    let model = ModelServer::with([pauses(), refusal(Format::Anthropic), Reply::text("It is so."), Reply::text("on")]);
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, Format::Anthropic).await;
    assert_eq!(client.turn(&session, "look it up").await.str("stop_reason"), "end_turn");
    let seen = client.transcript();
    let kinds: Vec<&str> = seen.of("message").map(|message| message.str("asks")).collect();
    assert_eq!(kinds, ["", "", "go_on", ""], "{}", seen.outline());
    assert_eq!(client.first(&session, "trimmed").await.event["native"], json!(["m2"]));
    let again = model.requests()[2].messages();
    assert!(again.contains("[web_search: rust 2026]") && !again.contains("server_tool_use"), "{again}");
    assert_eq!(client.turn(&session, "on").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn code_goes_on_in_its_container_until_the_turn_is_over() {
    let model = ModelServer::with([
        Reply::new().and_code("x = 4", "").and_tool("bash", bash("eins")),
        Reply::new().and_code("print(x)", "4"),
        Reply::text("on"),
    ]);
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, Format::Anthropic).await;
    client.turn(&session, "compute").await;
    client.turn(&session, "on").await;
    let containers: Vec<Value> = model.requests().iter().map(|request| request.json["container"].clone()).collect();
    assert_eq!(containers, [json!(null), json!("container_000000"), json!(null)]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_model_that_takes_no_search_beside_other_tools_is_refused_with_the_way_out() {
    let model = ModelServer::start();
    let daemon = start(&model, "auto").await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "google/ge" })).await;
    client.attach(&session).await;
    let refused = client.refused("session/set", json!({ "session": session, "model": "google/gemini-2.5-pro" })).await;
    let why = "gemini-2.5-pro cannot combine web_search with other tools: choose a model from Gemini 3 on, or remove \
               `hosted_tools` from [providers.google]";
    assert_eq!((refused.code, refused.message.as_str()), (-31010, why));
    model.push([Reply::text("hi")]);
    assert_eq!(client.turn(&session, "go on, then").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}
