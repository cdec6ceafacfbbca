//! Answers that fit a schema: asked for in each format's own way, repaired once, and durable like every other turn.

use linger_tests::check::Seen;
use linger_tests::harness::{Client, Daemon, Setup};
use linger_tests::model::{Format, Gate, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use crate::providers::{check, name, start_with};
pub(crate) use crate::shared::schema::gives;
use crate::{bash, last_words};

pub(crate) fn schema() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["city", "n"], "additionalProperties": false})
}

pub(crate) fn bern() -> Value {
    json!({"city": "Bern", "n": 134})
}

/// Which schema a request holds its answer to, by the means of its format.
fn held_to(request: &Recorded) -> Value {
    let body = &request.json;
    match request.format {
        Format::Anthropic => {
            let tools = body["tools"].as_array().cloned().unwrap_or_default();
            let answer = tools.iter().find(|tool| tool["name"] == "final_answer");
            let kind = &body["tool_choice"]["type"];
            answer.filter(|_| kind == "any" || kind == "tool").map_or(Value::Null, |tool| tool["input_schema"].clone())
        }
        Format::OpenAi => {
            let shape = &body["response_format"]["json_schema"];
            if shape["strict"] == true { shape["schema"].clone() } else { Value::Null }
        }
        Format::Responses => {
            let shape = &body["text"]["format"];
            if shape["strict"] == true { shape["schema"].clone() } else { Value::Null }
        }
        Format::Gemini => body["generationConfig"]["responseJsonSchema"].clone(),
        Format::Ollama => body["format"].clone(),
    }
}

/// Whether a request has the tools of every other.
fn has_tools(request: &Recorded) -> bool {
    request.json["tools"].to_string().contains("\"bash\"")
}

/// Sends a prompt with a schema.
async fn ask(client: &Client, session: &str, schema: &Value) {
    let prompt = json!({ "session": session, "content": "what is it?", "schema": schema });
    client.call("session/prompt", prompt).await;
}

/// Sends a prompt with a schema and waits for the end of its turn.
async fn answered(client: &Client, session: &str) -> Seen {
    let before = client.transcript().of("turn_finished").count();
    ask(client, session, &schema()).await;
    client.nth(session, "turn_finished", before + 1).await
}

#[tokio::test]
async fn a_model_that_is_chosen_while_a_key_is_waited_for_is_asked_in_its_own_way() {
    let model = ModelServer::with([Reply::new().stall(), Reply::text(bern().to_string())]);
    let config = Format::Ollama.provider("llama", &model.url());
    let daemon = Daemon::start_with(&model, Setup { keys: false, config, ..Setup::default() }).await;
    let client = daemon.client().await;
    client.call("daemon/keys", json!({ "keys": { "WORK_KEY": daemon.canaries()[0] } })).await;
    let session = client.session().await;
    ask(&client, &session, &schema()).await;
    model.wait_requests(1).await;
    assert_eq!(held_to(&model.requests()[0]), schema());
    // The key was in the memory of the daemon that dies here.
    daemon.kill_and_restart().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    let noticed = async |code: &str| {
        back.wait(code, |seen| seen.of("notice").find(|seen| seen.str("code") == code).cloned()).await;
    };
    noticed("key_missing").await;
    model.expect_rewrites();
    back.call("session/set", json!({ "session": session, "model": "llama/l" })).await;
    noticed("key_found").await;
    let end = back.first(&session, "turn_finished").await;
    assert_eq!((end.str("stop_reason"), &end.event["answer"]), ("end_turn", &bern()));
    // A schema and tools exclude each other there, and it was told in words.
    let asked = &model.requests()[1];
    assert_eq!((asked.format, held_to(asked), has_tools(asked)), (Format::Ollama, Value::Null, true));
    assert!(asked.messages().contains("JSON Schema"), "{}", asked.messages());
    daemon.check(&[&client, &back], &model);
}

/// One model through everything that can become of an answer. `apart`: it takes a schema only in requests without tools.
async fn story(format: Format, model_name: &str, apart: bool) {
    let model = ModelServer::start();
    let daemon = start_with(&model, "").await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": model_name })).await;
    client.attach(&session).await;
    let count = || model.requests().len();

    // It fits at once.
    model.push([if apart {
        Reply::text("```json\n{\"city\":\"Bern\",\"n\":134}\n```")
    } else {
        gives(format, &bern())
    }]);
    let end = answered(&client, &session).await;
    assert_eq!((end.str("stop_reason"), &end.event["answer"]), ("end_turn", &bern()));
    let first = &model.requests()[0];
    assert_eq!(held_to(first), if apart { Value::Null } else { schema() }, "{}", first.json);
    assert!(has_tools(first));
    assert_eq!(first.messages().contains("JSON Schema"), apart, "{}", first.messages());

    // Calls come first.
    model.push([bash("echo tief"), gives(format, &bern())]);
    let end = answered(&client, &session).await;
    assert_eq!((&end.event["answer"], count()), (&bern(), 3));
    assert!(model.requests()[2].after_tool() || apart);

    // It is repaired; where tools are in the way, the next request has none.
    model.push([gives(format, &json!({"city": 1, "n": 134})), gives(format, &bern())]);
    let end = answered(&client, &session).await;
    assert_eq!((&end.event["answer"], count()), (&bern(), 5));
    let again = &model.requests()[4];
    assert_eq!(held_to(again), schema(), "{}", again.json);
    assert_eq!(has_tools(again), !apart);
    assert!(last_words(again).contains("/city: 1 is not of type"), "{}", last_words(again));
    if format == Format::Anthropic {
        assert_eq!(again.json["tool_choice"], json!({"type": "tool", "name": "final_answer"}));
    }

    // It never fits.
    let tries = if apart { 3 } else { 2 };
    model.push((0..tries).map(|_| gives(format, &json!({"city": "Bern"}))));
    let end = answered(&client, &session).await;
    assert_eq!((end.str("stop_reason"), &end.event["answer"]), ("error", &Value::Null));
    assert!(end.str("detail").contains("\"n\" is a required property"), "{}", end.raw);
    assert_eq!(count(), 5 + tries);

    // The session goes on as if nothing had been.
    model.push([Reply::text("Good day")]);
    assert_eq!(client.turn(&session, "hello").await.str("stop_reason"), "end_turn");
    let plain = &model.requests()[5 + tries];
    assert!(has_tools(plain) && held_to(plain) == Value::Null);

    // A crash before the answer, and one after an answer that did not fit.
    let gate = Gate::new();
    model.push([bash("echo drei"), Reply::new().gate(&gate).and_text("lost")]);
    ask(&client, &session, &schema()).await;
    gate.reached().await;
    let again = Gate::new();
    model.push([gives(format, &json!([])), Reply::new().gate(&again).and_text("lost"), gives(format, &bern())]);
    if format == Format::Anthropic {
        // Arguments that are no object are not sent at all.
        assert_eq!(held_to(&model.requests()[7 + tries]), schema());
    }
    daemon.kill_and_restart().await;
    again.reached().await;
    daemon.kill_and_restart().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    let end = back.nth(&session, "turn_finished", 6).await;
    assert_eq!((end.str("stop_reason"), &end.event["answer"]), ("end_turn", &bern()), "{}", end.raw);
    assert_eq!(held_to(model.requests().last().unwrap()), schema());
    check(&daemon, &[&client, &back], &model);
}

#[tokio::test]
async fn anthropic_gives_its_answer_with_a_tool_that_it_is_made_to_call() {
    story(Format::Anthropic, name(Format::Anthropic), false).await;
}

#[tokio::test]
async fn chat_completions_is_held_to_a_json_schema() {
    story(Format::OpenAi, name(Format::OpenAi), false).await;
}

#[tokio::test]
async fn responses_is_held_to_a_text_format() {
    story(Format::Responses, name(Format::Responses), false).await;
}

#[tokio::test]
async fn gemini_is_held_to_a_response_schema() {
    story(Format::Gemini, name(Format::Gemini), false).await;
}

#[tokio::test]
async fn an_older_gemini_is_held_to_a_response_schema_without_tools() {
    story(Format::Gemini, "google/gemini-2.5-pro", true).await;
}

#[tokio::test]
async fn ollama_is_held_to_a_format_without_tools() {
    story(Format::Ollama, name(Format::Ollama), true).await;
}

#[tokio::test]
async fn a_schema_goes_along_to_another_model_in_mid_turn() {
    let model = ModelServer::start();
    let daemon = start_with(&model, "").await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name(Format::Anthropic) })).await;
    client.attach(&session).await;
    model.expect_rewrites(); // Another model.
    let gate = Gate::new();
    model.push([
        Reply::new().gate(&gate).and_tool("bash", json!({ "command": "true" })),
        gives(Format::Ollama, &json!({"city": "Bern"})),
        gives(Format::Ollama, &bern()),
    ]);
    ask(&client, &session, &schema()).await;
    gate.reached().await;
    client.call("session/set", json!({ "session": session, "model": name(Format::Ollama) })).await;
    gate.open();
    let end = client.first(&session, "turn_finished").await;
    assert_eq!(end.event["answer"], bern(), "{}", end.raw);
    let requests = model.requests();
    assert!(requests[1].messages().contains("JSON Schema") && has_tools(&requests[1]));
    assert_eq!(held_to(&requests[2]), schema());
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn an_answer_that_is_no_object_is_held_to_its_schema_too() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let around = json!({"type": "object", "properties": {"answer": list}, "required": ["answer"],
        "additionalProperties": false});
    for format in Format::ALL {
        let model = ModelServer::start();
        let daemon = start_with(&model, "").await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": name(format) })).await;
        client.attach(&session).await;
        let within = !matches!(format, Format::Gemini | Format::Ollama);
        let given = |answer: Value| gives(format, &if within { json!({ "answer": answer }) } else { answer });
        model.push([given(json!([1])), given(json!(["Bern"]))]);
        ask(&client, &session, &list).await;
        let end = client.first(&session, "turn_finished").await;
        assert_eq!(end.event["answer"], json!(["Bern"]), "{}", end.raw);
        let again = &model.requests()[1];
        assert_eq!(held_to(again), if within { around.clone() } else { list.clone() }, "{}", again.json);
        assert!(last_words(again).contains("/0: 1 is not of type"), "{}", last_words(again));
        check(&daemon, &[&client], &model);
    }
}

#[tokio::test]
async fn a_server_that_knows_no_schema_is_told_in_words() {
    let model = ModelServer::start();
    let compat = "[providers.plain]\nkind = \"openai\"\nbase_url = \"URL/v1\"\napi_key_env = \"GPT_KEY\"\ncompat = { json_schema = false }\n";
    let daemon = start_with(&model, &compat.replace("URL", &model.url())).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "plain/p" })).await;
    client.attach(&session).await;
    model.push([Reply::text("Bern has 134"), gives(Format::OpenAi, &bern())]);
    assert_eq!(answered(&client, &session).await.event["answer"], bern());
    for request in model.requests() {
        assert!(request.json.get("response_format").is_none() && has_tools(&request));
        assert_eq!(request.messages().matches("that fits this JSON Schema").count(), 1);
    }
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_bad_schema_is_refused_before_anything_starts() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create().await;
    client.attach(&session).await;
    let big = json!({ "description": "x".repeat(70_000) });
    let bad =
        [json!({"type": "strnig"}), json!({"$ref": "http://127.0.0.1:1/s.json"}), json!(7), json!({"$ref": "#"}), big];
    for schema in bad {
        let prompt = json!({ "session": session, "content": "hi", "schema": schema });
        let refused = client.refused("session/prompt", prompt).await;
        assert_eq!(refused.code, -31026, "{refused:?}");
        assert!(refused.get_hint().is_some());
    }
    assert_eq!(client.transcript().of("prompt_accepted").count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn run_with_a_schema_prints_json_alone_and_fails_with_the_reason() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    std::fs::write(daemon.workspace().join("s.json"), schema().to_string()).unwrap();
    let run = |file: &'static str| daemon.cli(&["run", "--schema", file, "what is it?"]).cwd(daemon.workspace());
    model
        .push([Reply::text("Looking.").and_tool("bash", json!({ "command": "true" })), gives(Format::OpenAi, &bern())]);
    assert_eq!(run("s.json").run().await.exits(0).stdout, format!("{}\n", bern()));
    model.push([Reply::text("no"), Reply::text("no")]);
    let failed = run("s.json").run().await.exits(1).says("not JSON alone");
    assert_eq!(failed.stdout, "");
    run("none.json").run().await.fails_with_hint(2).says("none.json");
    std::fs::write(daemon.workspace().join("null.json"), "{\"type\": [\"object\", \"null\"]}").unwrap();
    model.push([gives(Format::OpenAi, &json!({"answer": null}))]);
    assert_eq!(run("null.json").run().await.exits(0).stdout, "null\n");
    std::fs::write(daemon.workspace().join("bad.json"), "{\"type\": ").unwrap();
    run("bad.json").run().await.fails_with_hint(2).says("line 1");
    std::fs::write(daemon.workspace().join("wrong.json"), "{\"type\": \"strnig\"}").unwrap();
    run("wrong.json").run().await.fails_with_hint(2).says("strnig");
    std::fs::write(daemon.workspace().join("true.json"), "true").unwrap();
    run("true.json").run().await.fails_with_hint(2).says("has to be an object; `{}` says the same");
    let detached = daemon.cli(&["run", "-d", "--schema", "wrong.json", "what is it?"]).cwd(daemon.workspace());
    assert_eq!(detached.run().await.fails_with_hint(2).says("strnig").stdout, "");
    // What was refused has left no session behind, and one that was there stays.
    let client = daemon.client().await;
    let sessions = client.call("session/list", json!({})).await;
    assert_eq!(sessions.as_array().unwrap().len(), 3, "{sessions}");
    let there = sessions[0]["session"].as_str().unwrap();
    let refused = daemon.cli(&["run", "-s", there, "--schema", "wrong.json", "what is it?"]).cwd(daemon.workspace());
    refused.run().await.fails_with_hint(2).says("strnig");
    assert_eq!(client.call("session/list", json!({})).await.as_array().unwrap().len(), 3);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn send_with_a_schema_queues_a_prompt_whose_answer_fits() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    std::fs::write(daemon.workspace().join("s.json"), schema().to_string()).unwrap();
    std::fs::write(daemon.workspace().join("wrong.json"), "{\"type\": \"strnig\"}").unwrap();
    let gate = Gate::new();
    model.push([Reply::text("Words.").gate(&gate), gives(Format::OpenAi, &bern())]);
    client.prompt(&session, "first").await;
    gate.reached().await;
    let send = |file: &'static str| {
        daemon.cli(&["send", &session, "--schema", file, "and what is it?"]).cwd(daemon.workspace())
    };
    send("none.json").run().await.fails_with_hint(2).says("none.json");
    send("wrong.json").run().await.fails_with_hint(2).says("strnig");
    send("s.json").run().await.exits(0);
    gate.open();
    let second = client.nth(&session, "turn_finished", 2).await;
    assert_eq!(second.event["answer"], bern(), "{}", second.raw);
    assert_eq!(client.first(&session, "turn_finished").await.event["answer"], Value::Null);
    assert_eq!(held_to(&model.requests()[1]), schema());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn how_hard_to_think_is_said_in_each_formats_words_and_stays_over_a_restart() {
    let model = ModelServer::start();
    let daemon = start_with(&model, "[models.\"work/eager\"]\neffort = \"low\"\n").await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name(Format::OpenAi), "effort": "max" })).await;
    client.attach(&session).await;
    model.expect_rewrites(); // Other models.
    let effort = |request: &Recorded| match request.format {
        Format::Anthropic => json!([request.json["thinking"]["type"], request.json["output_config"]["effort"]]),
        Format::OpenAi => request.json["reasoning_effort"].clone(),
        Format::Responses => request.json["reasoning"]["effort"].clone(),
        Format::Gemini => request.json["generationConfig"]["thinkingConfig"].clone(),
        Format::Ollama => request.json["think"].clone(),
    };
    let expect = |format| match format {
        Format::Anthropic => json!(["adaptive", "max"]),
        Format::OpenAi | Format::Responses => json!("max"),
        Format::Gemini => json!({"includeThoughts": true, "thinkingLevel": "XHIGH"}),
        Format::Ollama => json!("high"),
    };
    for format in Format::ALL {
        client.call("session/set", json!({ "session": session, "model": name(format) })).await;
        model.push([Reply::text("so")]);
        client.turn(&session, "think").await;
        assert_eq!(effort(model.requests().last().unwrap()), expect(format), "{format:?}");
    }
    daemon.kill_and_restart().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    let asked = async |set: Value| {
        let mut all = json!({ "session": session });
        set.as_object().unwrap().iter().for_each(|(name, value)| all[name] = value.clone());
        back.call("session/set", all).await;
        model.push([Reply::text("so")]);
        back.turn(&session, "think").await;
        effort(model.requests().last().unwrap())
    };
    assert_eq!(asked(json!({ "model": name(Format::OpenAi) })).await, "max");
    assert_eq!(asked(json!({ "effort": "none" })).await, "none");
    assert_eq!(asked(json!({ "effort": "auto" })).await, Value::Null);
    assert_eq!(asked(json!({ "model": "work/eager" })).await, "low");
    assert_eq!(asked(json!({ "effort": "high" })).await, "high");
    check(&daemon, &[&client, &back], &model);
}
