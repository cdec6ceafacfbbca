//! Every wire format through the same story, and from each to each other in mid-turn.

use linger_tests::check::Seen;
use linger_tests::model::{Format, Gate, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::last_words;
pub(crate) use crate::shared::providers::{GOOGLE_KEY, GPT_KEY, check, name, start, start_with};

fn model_of(format: Format) -> &'static str {
    name(format).split_once('/').unwrap().1
}

/// The results in a request, in order.
fn results(request: &Recorded) -> Vec<String> {
    let mut results = Vec::new();
    for message in request.list() {
        let blocks = message["content"].as_array().or(message["parts"].as_array()).cloned().unwrap_or_default();
        results.extend(message["output"].as_str().map(str::to_owned));
        results.extend(message["content"].as_str().filter(|_| message["role"] == "tool").map(str::to_owned));
        for block in blocks {
            results.extend(block["content"][0]["text"].as_str().map(str::to_owned));
            results.extend(block["functionResponse"]["response"]["output"].as_str().map(str::to_owned));
        }
    }
    results
}

fn bash(line: &str) -> Value {
    json!({ "command": format!("echo {line}") })
}

fn thinking_of(message: &Value) -> Vec<&str> {
    let blocks = message["content"].as_array().unwrap();
    blocks.iter().filter(|block| block["type"] == "thinking").filter_map(|block| block["text"].as_str()).collect()
}

fn texts_of(message: &Value) -> Vec<&str> {
    message["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

/// A picture of one pixel.
pub(crate) const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Thinking, text, two calls at once, a picture, an error, a cut, a crash in mid-answer: one story in one format.
async fn story_in(format: Format) {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name(format) })).await;
    client.attach(&session).await;

    // A picture; thoughts, words in pieces, and two calls.
    let asks = Reply::new()
        .thinking("Zuerst schauen.", "c2lnbmF0dXJl")
        .text_in_deltas("Ich schaue: ä€😀.", 3)
        .and_tool("bash", bash("eins-ä€😀"))
        .and_tool("bash", bash("zwei"))
        .usage(90, 42, 10);
    model.push([asks.chunks_of(7), Reply::text("Zwei Dinge.")]);
    let image = json!({ "type": "image", "media_type": "image/png", "data": PICTURE });
    let content = json!([{ "type": "text", "text": "was ist das?" }, image]);
    client.call("session/prompt", json!({ "session": session, "content": content })).await;
    client.first(&session, "turn_finished").await;
    let requests = model.requests();
    assert!(requests.iter().all(|request| request.format == format && request.model() == model_of(format)));
    assert!(requests[0].messages().contains(PICTURE), "the picture is not there: {}", requests[0].messages());
    let both = results(&requests[1]);
    assert!(both.len() == 2 && both[0].contains("eins-ä€😀") && both[1].contains("zwei"), "{both:?}");
    let seen = client.transcript();
    let messages: Vec<Seen> = seen.of("message").cloned().collect();
    assert_eq!(thinking_of(&messages[1].event), ["Zuerst schauen."]);
    assert!(texts_of(&messages[1].event).contains(&"Ich schaue: ä€😀."), "{}", messages[1].raw);
    let usage = &messages[1].event["usage"];
    let cached = if format == Format::Ollama { 0 } else { 10 };
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(100), &json!(42)), "{usage}");
    assert_eq!(usage["cached_tokens"], cached, "{usage}");

    // A server that fails in mid-answer, and one whose answer is cut.
    for fault in [Reply::text("Good d").error_event("overloaded_error", "Overloaded"), Reply::text("Good d").cut()] {
        model.push([fault, Reply::text("Good day")]);
        assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn");
        let messages: Vec<Seen> = client.transcript().of("message").cloned().collect();
        let [.., shown, last] = messages.as_slice() else { panic!("{messages:?}") };
        assert_eq!((&shown.event["interrupted"], texts_of(&shown.event)), (&json!(true), vec!["Good d"]));
        assert_eq!(texts_of(&last.event), ["Good day"]);
    }

    // An answer that stops at the limit, and one that is refused, where the format knows such a thing.
    model.push((0..4).map(|_| Reply::text("too lo").stop("max_tokens")));
    assert_eq!(client.turn(&session, "at length").await.str("stop_reason"), "max_tokens");
    if format != Format::Ollama {
        model.push([Reply::text("no").stop("refusal")]);
        assert_eq!(client.turn(&session, "something bad").await.str("stop_reason"), "refusal");
    }

    // A crash while it speaks after a call: the turn goes on by itself.
    let gate = Gate::new();
    model.push([
        Reply::new().thinking("Noch einmal.", "bm9jaG1hbA==").and_tool("bash", bash("drei")),
        Reply::text("half").gate(&gate),
        Reply::text("whole"),
    ]);
    client.prompt(&session, "and on").await;
    gate.reached().await;
    daemon.kill_and_restart().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    let turns = seen.of("turn_finished").count() + if format == Format::Ollama { 4 } else { 5 };
    back.wait("the last turn", |seen| (seen.of("turn_finished").count() == turns).then_some(())).await;
    let seen = back.transcript();
    assert_eq!(texts_of(&seen.of("message").last().unwrap().event), ["whole"], "{}", seen.outline());
    gate.open();
    check(&daemon, &[&client, &back], &model);
}

#[tokio::test]
async fn one_story_in_anthropic_messages() {
    story_in(Format::Anthropic).await;
}

#[tokio::test]
async fn one_story_in_chat_completions() {
    story_in(Format::OpenAi).await;
}

#[tokio::test]
async fn one_story_in_responses() {
    story_in(Format::Responses).await;
}

#[tokio::test]
async fn one_story_in_gemini() {
    story_in(Format::Gemini).await;
}

#[tokio::test]
async fn one_story_in_ollama() {
    story_in(Format::Ollama).await;
}

#[tokio::test]
async fn a_session_goes_from_any_format_to_any_other_in_mid_turn_and_back() {
    let model = ModelServer::start();
    // Each switch is named by an event.
    model.expect_rewrites();
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let pairs = Format::ALL.into_iter().flat_map(|from| Format::ALL.map(|to| (from, to))).filter(|(a, b)| a != b);
    for (from, to) in pairs {
        let what = format!("{from:?} to {to:?}");
        let session = client.create_with(json!({ "model": name(from) })).await;
        client.attach(&session).await;
        let before = model.requests().len();
        let gate = Gate::new();
        model.push_for(
            model_of(from),
            [
                Reply::new()
                    .thinking("first thoughts", "Zmlyc3Q=")
                    .and_text("I look.")
                    .gate(&gate)
                    .and_tool("bash", bash("eins"))
                    .and_tool("bash", bash("zwei")),
                Reply::text("back again"),
            ],
        );
        model.push_for(
            model_of(to),
            [
                Reply::new().thinking("other thoughts", "b3RoZXI=").and_tool("bash", bash("drei")),
                Reply::text("all seen"),
            ],
        );
        client.prompt(&session, "look around").await;
        gate.reached().await;
        client.call("session/set", json!({ "session": session, "model": name(to) })).await;
        gate.open();
        assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn", "{what}");
        client.call("session/set", json!({ "session": session, "model": name(from) })).await;
        client.turn(&session, "and now?").await;
        let requests = model.requests()[before..].to_vec();
        let asked: Vec<Format> = requests.iter().map(|request| request.format).collect();
        assert_eq!(asked, [from, to, to, from], "{what}");
        // The one that takes over has the results of calls that it did not make, and none of another's secrets.
        let taken = results(&requests[1]);
        assert!(taken.len() == 2 && taken[0].contains("eins") && taken[1].contains("zwei"), "{what}: {taken:?}");
        let body = requests[1].messages();
        assert!(
            body.contains("I look.") && !body.contains("Zmlyc3Q=") && !body.contains("first thoughts"),
            "{what}: {body}"
        );
        // The first has everything when it is its turn again, and its own secrets.
        let body = requests[3].messages();
        assert_eq!(results(&requests[3]).len(), 3, "{what}");
        assert!(
            body.contains("all seen") && !body.contains("b3RoZXI=") && !body.contains("other thoughts"),
            "{what}: {body}"
        );
        let signed = matches!(from, Format::Anthropic | Format::Responses | Format::Gemini);
        assert_eq!(body.contains("Zmlyc3Q="), signed, "{what}: {body}");
    }
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn keys_go_where_each_format_wants_them() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    for format in Format::ALL {
        let session = client.create_with(json!({ "model": name(format) })).await;
        client.attach(&session).await;
        client.turn(&session, "hi").await;
    }
    let requests = model.requests();
    let header = |n: usize, name: &str| requests[n].header(name).map(str::to_owned);
    let canaries = daemon.canaries();
    assert_eq!(header(0, "x-api-key"), Some(canaries[1].clone()));
    assert_eq!(header(1, "authorization"), Some(format!("Bearer {}", canaries[0])));
    assert_eq!(header(2, "authorization"), Some(format!("Bearer {GPT_KEY}")));
    assert_eq!((header(3, "x-goog-api-key"), header(3, "authorization")), (Some(GOOGLE_KEY.to_owned()), None));
    assert_eq!(header(4, "authorization"), None);
    assert_eq!(requests[3].path, "/v1beta/models/ge:streamGenerateContent?alt=sse");
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_provider_says_in_its_own_words_what_is_wrong() {
    for format in Format::ALL {
        let model =
            ModelServer::with([Reply::status(429).header("retry-after", "0"), Reply::status(401), Reply::text("hi")]);
        let daemon = start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": name(format) })).await;
        client.attach(&session).await;
        let finished = client.turn(&session, "hi").await;
        assert_eq!(finished.str("stop_reason"), "error", "{format:?}");
        assert!(finished.str("detail").contains("scripted status 401"), "{format:?}: {}", finished.raw);
        assert_eq!(client.transcript().of("notice").next().unwrap().str("code"), "retry", "{format:?}");
        assert_eq!(client.turn(&session, "again").await.str("stop_reason"), "end_turn", "{format:?}");
        check(&daemon, &[&client], &model);
    }
}

#[tokio::test]
async fn thinking_without_an_opening_tag_is_no_answer_where_the_configuration_says_so() {
    let words = "They ask for the capital.\n</think>\n\nBern";
    let model = ModelServer::scripted(move |_| Reply::new().text_in_deltas(words, 3));
    let daemon = start_with(&model, "[providers.work.compat]\nthink_open = true\n").await;
    let run = |format| daemon.cli(&["run", "-m", name(format), "the capital?"]);
    assert_eq!(run(Format::OpenAi).run().await.exits(0).stdout, "Bern\n");
    // Where it does not, what was shown stays, without the tag.
    assert_eq!(run(Format::Ollama).run().await.exits(0).stdout, "They ask for the capital.\n\n\nBern\n");
    check(&daemon, &[], &model);
}

/// What a template of Mistral's or Google's insists on: leaving out calls and results, user and model take turns.
fn takes_turns(request: &Recorded) -> bool {
    let messages = request.json["messages"].as_array().unwrap().iter();
    let counted = messages.filter(|message| message.get("tool_calls").is_none());
    let roles =
        counted.filter_map(|message| message["role"].as_str()).filter(|role| ["user", "assistant"].contains(role));
    roles.enumerate().all(|(n, role)| (role == "user") == n.is_multiple_of(2))
}

#[tokio::test]
async fn a_server_with_a_strict_template_answers_after_a_cancel_where_the_configuration_says_so() {
    let said = "Jinja Exception: conversation roles must alternate user/assistant/user/assistant/...";
    let refusal = Format::OpenAi.error_body(500, "server_error", said).to_string();
    let model = ModelServer::scripted(move |request| match last_words(request).as_str() {
        _ if !takes_turns(request) => Reply::status(500).body(&refusal),
        "go" => Reply::new().stall(),
        _ => Reply::text("Good day"),
    });
    let plain = Format::OpenAi.provider("plain", &model.url());
    let more = format!("{plain}[providers.work.compat]\nassistant_after_user = true\nassistant_after_tool = true\n");
    let daemon = start_with(&model, &more).await;
    let client = daemon.client().await;
    for (n, (name, end)) in [("work/w", "end_turn"), ("plain/w", "error")].into_iter().enumerate() {
        let session = client.create_with(json!({ "model": name })).await;
        client.attach(&session).await;
        client.prompt(&session, "go").await;
        model.wait_requests(2 * n + 1).await;
        client.call("session/cancel", json!({ "session": session })).await;
        client.first(&session, "turn_finished").await;
        let finished = client.turn(&session, "again").await;
        // It is asked once: what the template refuses it would refuse again.
        assert_eq!((finished.str("stop_reason"), model.requests().len()), (end, 2 * n + 2), "{}", finished.raw);
        assert_eq!(finished.raw.contains("assistant_after_user = true"), end == "error", "{}", finished.raw);
        assert_eq!(client.transcript().of("trimmed").count(), 0);
    }
    check(&daemon, &[&client], &model);
}
