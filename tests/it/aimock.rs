//! Turns against a model server that others wrote, in all five formats: what its authors read in the vendors' documentation.
//!
//! Where it departs from what the vendors send, the test says so.

use linger_tests::check::Seen;
use linger_tests::harness::{Aimock, Client, Daemon, Dirs, Setup};
use linger_tests::model::{Format, ModelServer};
use serde_json::{Value, json};

use crate::providers::PICTURE;

const WORDS: &str = "Grüß Gott, Welt 😀 – und noch ein paar Worte mehr.";

/// Milliseconds between two pieces, where it matters that they come one by one.
const SLOWLY: u64 = 40;

/// What it answers, first match first.
fn fixtures(format: Format, effect: &str) -> Value {
    let say = |words: &str, says: Value| json!({ "match": { "userMessage": words }, "response": says });
    let nth = |words: &str, n: u64, says: Value| json!({ "match": { "userMessage": words, "sequenceIndex": n }, "response": says });
    let error = |status: u64, kind: &str, message: &str| json!({ "error": { "message": message, "type": kind }, "status": status });
    let cut = |mut fixture: Value| {
        // In Responses the text begins after several events that have none.
        fixture["latency"] = json!(SLOWLY);
        fixture["truncateAfterChunks"] = json!(if format == Format::Responses { 9 } else { 5 });
        fixture
    };
    let bern = json!({ "city": "Bern", "n": 134 });
    let usage = json!({ "prompt_tokens": 90, "completion_tokens": 42, "total_tokens": 132 });
    json!({ "fixtures": [
        { "match": { "userMessage": "greet" }, "latency": 4 * SLOWLY,
            "response": { "content": WORDS, "reasoning": "Zuerst grüßen.", "usage": usage } },
        // The results of both calls, as it reads them.
        { "match": { "userMessage": "look", "toolResultContains": "zwei-ä€😀" }, "response": { "content": "Two things." } },
        { "match": { "userMessage": "look", "hasToolResult": false }, "response": {
            "content": "Let me look.",
            "toolCalls": [
                { "name": "bash", "arguments": { "command": format!("{effect}; echo eins") } },
                { "name": "bash", "arguments": { "command": "echo zwei-ä€😀" } },
            ],
        } },
        // A prompt that failed stands before the next one; where they become one message, the last of them counts.
        say("long", json!({ "content": "too lo", "finishReason": "length" })),
        say("nobody", error(401, "authentication_error", "who are you?")),
        say("wrong", error(400, "invalid_request_error", "this request is no good")),
        nth("busy", 0, json!({ "error": { "message": "slow down", "type": "rate_limit_error" }, "status": 429, "retryAfter": 0 })),
        nth("busy", 1, error(500, "server_error", "something broke")),
        say("busy", json!({ "content": "Now." })),
        cut(nth("cut", 0, json!({ "content": WORDS }))),
        say("cut", json!({ "content": "Whole." })),
        say("picture", json!({ "content": "One pixel." })),
        { "match": { "userMessage": "city", "toolName": "final_answer" },
            "response": { "toolCalls": [{ "name": "final_answer", "arguments": bern }] } },
        say("city", json!({ "content": bern.to_string() })),
    ] })
}

fn texts(message: &Seen, kind: &str) -> String {
    let blocks = message.event["content"].as_array().unwrap();
    blocks.iter().filter(|block| block["type"] == kind).filter_map(|block| block["text"].as_str()).collect()
}

/// Gives a prompt; what the turn's last message says, and how it ended.
async fn turn(client: &Client, session: &str, words: &str) -> (String, Seen) {
    let finished = client.turn(session, words).await;
    let last = client.transcript().of("message").last().cloned().unwrap();
    (texts(&last, "text"), finished)
}

async fn turns_in(format: Format) {
    let model = ModelServer::start();
    let place = Dirs::default();
    let effects = place.root().join("effects");
    let effect = format!("echo eins >> {}", effects.display());
    let Some(mock) = Aimock::start(&place, &fixtures(format, &effect)) else { return };
    let config = format!("{}api_key_env = \"OTHER_KEY\"\n", format.provider("other", mock.url()));
    let env = vec![("OTHER_KEY".to_owned(), Aimock::KEY.to_owned())];
    let setup = Setup { model: Some("other/gemini-3-pro".to_owned()), mode: "auto", config, env, ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;

    // Text in pieces, and thinking where it sends any as the vendor does.
    let (said, finished) = turn(&client, &session, "greet").await;
    assert_eq!((said.as_str(), finished.str("stop_reason")), (WORDS, "end_turn"), "{}", finished.raw);
    let seen = client.transcript();
    let thought = texts(seen.of("message").last().unwrap(), "thinking");
    // In its Ollama thinking has the name that it has in Chat Completions.
    assert_eq!(thought, if format == Format::Ollama { "" } else { "Zuerst grüßen." });
    assert!(seen.of("text_delta").count() > 1, "{}", seen.outline());
    // Its Ollama counts nothing.
    if format != Format::Ollama {
        let usage = &finished.event["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(90), &json!(42)), "{usage}");
    }

    // Two calls at once with their arguments in pieces; it says more only when it finds the result of the second.
    let (said, finished) = turn(&client, &session, "look").await;
    assert_eq!((said.as_str(), finished.str("stop_reason")), ("Two things.", "end_turn"), "{}", finished.raw);
    assert_eq!(std::fs::read_to_string(&effects).unwrap(), "eins\n");

    // What passes is tried again; what does not is said in its words, and the next prompt works.
    let (said, _) = turn(&client, &session, "busy").await;
    assert_eq!(said, "Now.");
    let retries = client.transcript().of("notice").filter(|seen| seen.str("code") == "retry").count();
    assert_eq!(retries, 2);
    for (words, complaint) in [("wrong", "this request is no good"), ("nobody", "who are you?")] {
        let finished = client.turn(&session, words).await;
        assert_eq!(finished.str("stop_reason"), "error", "{}", finished.raw);
        assert!(finished.str("detail").contains(complaint), "{}", finished.raw);
    }
    let before = client.transcript().of("message").count();
    let finished = client.turn(&session, "long").await;
    let said = texts(client.transcript().of("message").nth(before + 1).unwrap(), "text");
    // An answer that is cut at the limit goes on by itself.
    assert_eq!((said.as_str(), finished.str("stop_reason")), ("too lo", "end_turn"), "{}", finished.raw);

    // An answer that is cut is asked for again.
    let (said, finished) = turn(&client, &session, "cut").await;
    assert_eq!((said.as_str(), finished.str("stop_reason")), ("Whole.", "end_turn"), "{}", finished.raw);
    assert!(client.transcript().of("message").any(|seen| seen.event["interrupted"] == true));

    // A picture, and an answer that fits a schema, by the command line.
    let image = json!({ "type": "image", "media_type": "image/png", "data": PICTURE });
    let content = json!([{ "type": "text", "text": "a picture" }, image]);
    client.call("session/prompt", json!({ "session": session, "content": content })).await;
    client.wait("the picture's turn", |seen| (seen.of("turn_finished").count() == 8).then_some(())).await;
    assert_eq!(texts(client.transcript().of("message").last().unwrap(), "text"), "One pixel.");
    let schema = daemon.workspace().join("schema.json");
    std::fs::write(&schema, json!({ "type": "object", "required": ["city", "n"] }).to_string()).unwrap();
    let run = daemon.cli(&["run", "-s", &session, "--schema", schema.to_str().unwrap(), "which city?"]).run().await;
    assert_eq!(run.exits(0).stdout, "{\"city\":\"Bern\",\"n\":134}\n");
    let run = daemon.cli(&["run", "greet"]).run().await;
    assert_eq!(run.exits(0).stdout, format!("{WORDS}\n"));

    let mut trace = daemon.trace(&[&client], &model);
    trace.canaries.push(Aimock::KEY.to_owned());
    linger_tests::check::assert_holds(&trace);
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn turns_against_a_mock_of_others_in_anthropic_messages() {
    turns_in(Format::Anthropic).await;
}

#[tokio::test]
async fn turns_against_a_mock_of_others_in_chat_completions() {
    turns_in(Format::OpenAi).await;
}

#[tokio::test]
async fn turns_against_a_mock_of_others_in_responses() {
    turns_in(Format::Responses).await;
}

#[tokio::test]
async fn turns_against_a_mock_of_others_in_gemini() {
    turns_in(Format::Gemini).await;
}

#[tokio::test]
async fn turns_against_a_mock_of_others_in_ollama() {
    turns_in(Format::Ollama).await;
}
