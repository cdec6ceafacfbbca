//! OpenAI's interface with raw HTTP: what a request asks for reaches every kind of provider, or is named.

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{Format, Gate, ModelServer, Recorded, Reply};
use serde_json::{Value, json};

use super::http::{Events, Response, post};
use super::{Gateway, token};

/// A gateway whose daemon has a provider of each format, called like its kind, with one model `m`.
struct Place {
    gateway: Gateway,
    token: String,
    _daemon: Daemon,
    model: ModelServer,
}

impl Place {
    async fn new(script: impl FnMut(&Recorded) -> Reply + Send + 'static, config: &str) -> Self {
        let model = ModelServer::scripted(script);
        model.list("/v1/models", json!({ "object": "list", "data": [{ "id": "m", "object": "model" }] }));
        let providers: String =
            Format::ALL.iter().map(|format| format.provider(&name(*format), &model.url())).collect();
        let setup = Setup { config: providers + config, ..Setup::default() };
        let daemon = Daemon::start_with(&model, setup).await;
        let gateway = Gateway::start(&daemon).await;
        let token = token(&daemon, &["observe", "speak"]).await;
        Self { model, _daemon: daemon, gateway, token }
    }

    async fn send(&self, path: &str, body: Value) -> Response {
        self.gateway.http.send(post(path, body).token(&self.token)).await
    }

    async fn chat(&self, model: &str, more: Value) -> Response {
        self.send("/v1/chat/completions", chat(model, more)).await
    }

    async fn stream(&self, path: &str, body: Value) -> Events {
        self.gateway.http.stream(post(path, body).token(&self.token)).await
    }

    /// The last request to the model.
    fn last(&self) -> Recorded {
        self.model.requests().pop().unwrap()
    }

    /// The requests here are conversations of their own, in forms that no session has.
    fn end(&self) {
        self.model.forgive();
    }
}

/// The name of the provider that speaks a format.
fn name(format: Format) -> String {
    format!("{}-kind", format.kind())
}

fn chat(model: &str, more: Value) -> Value {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "go" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The text of a stream of Chat Completions.
async fn text(events: &mut Events) -> String {
    let mut text = String::new();
    while let Some((.., data)) = events.any().await {
        if data == "[DONE]" {
            return text;
        }
        let data: Value = serde_json::from_str(&data).unwrap();
        text.push_str(data["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
    }
    panic!("the stream has no end after {text:?}")
}

fn functions(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "type": "function", "function": { "name": name } })).collect()
}

#[tokio::test]
async fn a_forced_call_reaches_every_kind_of_provider_in_its_own_words() {
    let script = |request: &Recorded| match request.format {
        // It cannot be forced, and is held to the form of the call.
        Format::Ollama if request.json["format"]["anyOf"].is_array() => {
            Reply::text(r#"{"name":"g","arguments":{"x":1}}"#)
        }
        Format::Ollama => Reply::text(r#"{"x":1}"#),
        _ => Reply::tool("g", json!({ "x": 1 })),
    };
    let place = Place::new(script, "").await;
    let shapes = [
        json!("required"),
        json!({ "type": "function", "function": { "name": "g" } }),
        json!({ "type": "function", "name": "g" }),
        json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required", "tools": functions(&["g"]) } }),
    ];
    for format in Format::ALL {
        for shape in &shapes {
            let more = json!({ "tools": functions(&["f", "g"]), "tool_choice": shape });
            let answer = place.chat(&format!("{}/m", name(format)), more).await;
            assert_eq!(answer.status, 200, "{format:?} {shape}: {answer:?}");
            let choice = &answer.json()["choices"][0];
            let call = &choice["message"]["tool_calls"][0];
            assert_eq!(call["function"], json!({ "name": "g", "arguments": "{\"x\":1}" }), "{format:?} {shape}");
            assert_eq!(choice["finish_reason"], "tool_calls");
            let is_named = shape.pointer("/function/name").or(shape.get("name")).is_some();
            let body = place.last().json;
            let expect = match (format, is_named) {
                (Format::OpenAi | Format::Responses, false) => json!("required"),
                (Format::OpenAi, true) => json!({ "type": "function", "function": { "name": "g" } }),
                (Format::Responses, true) => json!({ "type": "function", "name": "g" }),
                (Format::Anthropic, false) => json!({ "type": "any" }),
                (Format::Anthropic, true) => json!({ "type": "tool", "name": "g" }),
                (Format::Gemini, false) => json!({ "functionCallingConfig": { "mode": "ANY" } }),
                (Format::Gemini, true) => {
                    json!({ "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": ["g"] } })
                }
                (Format::Ollama, _) => Value::Null,
            };
            let field = if format == Format::Gemini { "toolConfig" } else { "tool_choice" };
            assert_eq!(body[field], expect, "{format:?} {shape}");
            assert!(format != Format::Ollama || body["format"].is_object() && body["tools"].is_null(), "{body}");
        }
    }
    // The same from Responses, and as a stream.
    let body = json!({ "model": "anthropic-kind/m", "input": "go", "tool_choice": { "type": "function", "name": "g" },
        "tools": [{ "type": "function", "name": "g" }] });
    let answer = place.send("/v1/responses", body.clone()).await.json();
    assert_eq!((&answer["output"][0]["type"], &answer["output"][0]["name"]), (&json!("function_call"), &json!("g")));
    assert_eq!(place.last().json["tool_choice"], json!({ "type": "tool", "name": "g" }));
    place.end();
}

#[tokio::test]
async fn a_choice_that_cannot_be_is_refused_before_a_model_is_asked() {
    let place = Place::new(|_| Reply::text("ok"), "").await;
    let refused = async |tools: Value, choice: Value, words: &str| {
        let answer = place.chat("work/m", json!({ "tools": tools, "tool_choice": choice })).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")), "{choice}: {error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{choice}: {error}");
    };
    let tools = || functions(&["f"]);
    refused(tools(), json!("always"), "`tool_choice` cannot be 'always'").await;
    refused(tools(), json!({ "type": "custom", "custom": { "name": "f" } }), "cannot be 'custom'").await;
    refused(tools(), json!(7), "`tool_choice` cannot be").await;
    refused(tools(), json!({ "type": "function", "function": { "name": "h" } }), "'h'").await;
    refused(json!([]), json!("required"), "no function").await;
    refused(json!(null), json!({ "type": "function", "name": "f" }), "not in `tools`").await;
    assert_eq!(place.model.requests().len(), 0);
    // What asks for nothing is no fault.
    for choice in [json!(null), json!("auto"), json!("none")] {
        assert_eq!(place.chat("work/m", json!({ "tools": [], "tool_choice": choice })).await.status, 200, "{choice}");
    }
    let none = place.chat("work/m", json!({ "tools": tools(), "tool_choice": "none" })).await;
    assert_eq!((none.status, &place.last().json["tool_choice"]), (200, &json!("none")));
    place.end();
}

#[tokio::test]
async fn an_answer_of_one_call_is_asked_for_and_kept() {
    let place = Place::new(|_| Reply::tool("f", json!({ "n": 1 })).and_tool("f", json!({ "n": 2 })), "").await;
    for format in Format::ALL {
        let calls = async |more: Value| {
            let answer = place.chat(&format!("{}/m", name(format)), more).await.json();
            answer["choices"][0]["message"]["tool_calls"].as_array().unwrap().len()
        };
        assert_eq!(calls(json!({ "tools": functions(&["f"]) })).await, 2, "{format:?}");
        assert_eq!(calls(json!({ "tools": functions(&["f"]), "parallel_tool_calls": false })).await, 1, "{format:?}");
    }
    place.end();
}

#[tokio::test]
async fn a_stop_text_ends_the_answer_with_every_kind_of_provider() {
    // No provider heeds it here: wherever its pieces are cut, nothing after it comes through.
    let said = "Überlegung: ja\nObservation: 42 🛑 end";
    let place = Place::new(move |_| Reply::new().text_in_deltas(said, 3), "").await;
    let cases = [
        (json!("\nObservation:"), "Überlegung: ja"),
        (json!(["🛑"]), "Überlegung: ja\nObservation: 42 "),
        (json!(["q", "x", "zz", "w", "42"]), "Überlegung: ja\nObservation: "),
        (json!(["Ü"]), ""),
        (json!("nowhere"), said),
        (json!(""), said),
        (json!([]), said),
        (json!(null), said),
    ];
    for format in Format::ALL {
        let model = format!("{}/m", name(format));
        for (stop, expect) in &cases {
            let whole = place.chat(&model, json!({ "stop": stop })).await.json();
            let choice = &whole["choices"][0];
            assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(expect), &json!("stop")));
            let more = json!({ "stop": stop, "stream": true });
            let mut events = place.stream("/v1/chat/completions", chat(&model, more)).await;
            assert_eq!(&text(&mut events).await, expect, "{format:?} {stop}");
        }
        let sent = place.chat(&model, json!({ "stop": ["x", "y"] })).await;
        assert_eq!((sent.status, sent.header("x-linger-warning")), (200, None));
        let (body, both) = (place.last().json, json!(["x", "y"]));
        let field = match format {
            Format::OpenAi => &body["stop"],
            Format::Anthropic => &body["stop_sequences"],
            Format::Gemini => &body["generationConfig"]["stopSequences"],
            Format::Ollama => &body["options"]["stop"],
            Format::Responses => &both,
        };
        assert_eq!(field, &both, "{format:?}: {body}");
    }
    for stop in [json!(7), json!([1]), json!({}), json!(vec!["x"; 17])] {
        assert_eq!(place.chat("work/m", json!({ "stop": stop })).await.status, 400, "{stop}");
    }
    place.end();
}

#[tokio::test]
async fn what_is_not_passed_on_is_named_in_a_header() {
    let place = Place::new(|_| Reply::text("ok"), "").await;
    let more = json!({ "temperature": 0.5, "top_p": 0.25, "seed": 7, "presence_penalty": 1, "verbosity": "low",
        "tools": [{ "type": "custom", "custom": { "name": "x" } }] });
    let warning = async |model: &str| {
        let answer = place.chat(model, more.clone()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("x-linger-warning").unwrap_or_default().to_owned()
    };
    let common = "not passed on: tools[0] (custom), verbosity";
    assert_eq!(warning("openai-kind/m").await, common);
    let body = place.last().json;
    assert_eq!((&body["temperature"], &body["seed"]), (&json!(0.5), &json!(7)));
    assert_eq!(warning("gemini-kind/m").await, common);
    assert_eq!(place.last().json["generationConfig"]["topP"], 0.25);
    assert_eq!(warning("ollama-kind/m").await, common);
    assert_eq!(place.last().json["options"]["temperature"], 0.5);
    assert_eq!(warning("openai-responses-kind/m").await, format!("{common}, seed, presence_penalty"));
    assert_eq!(warning("anthropic-kind/m").await, format!("{common}, top_p, seed, presence_penalty"));
    assert!(warning("work/m|read").await.contains("temperature"), "a session has its own settings");
    for wrong in [json!({ "temperature": "hot" }), json!({ "seed": 0.5 }), json!({ "parallel_tool_calls": 1 })] {
        assert_eq!(place.chat("work/m", wrong.clone()).await.status, 400, "{wrong}");
    }
    place.end();
}

#[tokio::test]
async fn a_providers_limit_stays_one_with_the_wait_that_it_asks_for() {
    let script = |request: &Recorded| match request.model() {
        "slow" => Reply::status(429).header("retry-after", "7"),
        "busy" => Reply::status(503),
        _ => Reply::status(401),
    };
    let place = Place::new(script, "").await;
    for (model, status, code) in
        [("slow", 429, "rate_limit_exceeded"), ("busy", 503, "provider_failed"), ("key", 502, "provider_failed")]
    {
        for kind in ["openai-kind", "anthropic-kind", "openai-responses-kind"] {
            for is_stream in [false, true] {
                let model = format!("{kind}/{model}");
                let chat = place.chat(&model, json!({ "stream": is_stream })).await;
                let body = json!({ "model": model, "input": "go", "stream": is_stream });
                let responses = place.send("/v1/responses", body).await;
                for answer in [chat, responses] {
                    assert_eq!(answer.status, status, "{model}: {answer:?}");
                    assert_eq!(answer.json()["error"]["code"], code);
                    assert_eq!(answer.header("retry-after"), (status == 429).then_some("7"), "{model}");
                }
            }
        }
    }
    place.end();
}

#[tokio::test]
async fn conversations_of_every_shape_are_taken() {
    let place = Place::new(|_| Reply::text("ok"), "").await;
    let call =
        |id: &str, name: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } });
    let user = json!({ "role": "user", "content": "go" });
    let tool = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "x" });
    let good = [
        json!([{ "role": "assistant", "content": "Hello!" }, user]),
        json!([{ "role": "system", "content": "Say something." }]),
        json!([{ "role": "developer", "content": "Say something." }]),
        json!([user, { "role": "assistant", "content": "so: " }]),
        json!([{ "role": "assistant", "content": "so:" }]),
        json!([user, { "role": "assistant", "content": null, "function_call": { "name": "f", "arguments": "{}" } },
            { "role": "function", "name": "f", "content": "x" }]),
        json!([user, { "role": "function", "name": "f", "content": "x" }]),
        json!([user, { "role": "assistant", "tool_calls": [call("", "f"), call("", "g")] }, tool(""), tool("")]),
        json!([user, { "role": "assistant", "tool_calls": [call("a/ü:1", "f"), call("a/ü:1", "f")] }, tool("a/ü:1"), tool("a/ü:1")]),
        json!([user, { "role": "assistant", "tool_calls": [call("0", "f")] }, tool("0"),
            { "role": "assistant", "tool_calls": [call("0", "f")] }, tool("0"), user]),
    ];
    for format in Format::ALL {
        for messages in &good {
            let answer = place.chat(&format!("{}/m", name(format)), json!({ "messages": messages })).await;
            assert_eq!(answer.status, 200, "{format:?} {messages}: {answer:?}");
        }
    }
    for (messages, words) in [
        (json!([]), "there is none"),
        (json!([user, tool("b")]), "messages[1]: no call before it has the id 'b'"),
        (json!([user, { "role": "assistant", "tool_calls": [call("a", "f")] }]), "the call a has no result"),
        (json!([user, { "role": "assistant", "tool_calls": [call("a", "f")] }, user]), "the call a has no result"),
    ] {
        let answer = place.chat("work/m", json!({ "messages": messages })).await;
        let error = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && error.contains(words), "{messages}: {error}");
    }
    place.end();
}

#[tokio::test]
async fn a_model_is_found_by_an_alias_or_without_its_provider() {
    let config = "[gateway.models]\n\"gpt-4o\" = \"anthropic-kind/m\"\n\"tools\" = \"work/m|read\"\n[models.\"work/m\"]\n\
                  context_window = 4321\nmax_output = 99\n";
    let place = Place::new(|_| Reply::text("ok"), config).await;
    let answers = async |asked: &str, model: &str, is_session: bool| {
        let answer = place.chat(asked, json!({})).await;
        assert_eq!((answer.status, &answer.json()["model"]), (200, &json!(model)), "{asked}: {answer:?}");
        assert_eq!(answer.header("x-linger-session").is_some(), is_session, "{asked}");
    };
    answers("gpt-4o", "anthropic-kind/m", false).await;
    answers("m", "work/m", false).await;
    answers("m|read", "work/m", true).await;
    answers("tools", "work/m", true).await;
    let unknown = place.chat("gpt-9", json!({})).await;
    assert!(unknown.status == 400 && unknown.json()["error"]["message"].as_str().unwrap().contains("gpt-9"));
    // The rows have the sizes that clients read.
    let rows = place.gateway.http.send(super::http::get("/v1/models").token(&place.token)).await.json();
    let row = |id: &str| rows["data"].as_array().unwrap().iter().find(|row| row["id"] == id).cloned().unwrap();
    let work = row("work/m");
    assert_eq!((&work["context_length"], &work["max_output_tokens"]), (&json!(4321), &json!(99)), "{work}");
    assert_eq!(row("gpt-4o")["object"], "model");
    place.end();
}

#[tokio::test]
async fn a_provider_of_responses_gets_what_linger_does_not_know_and_its_events_come_back() {
    const EVENT: &str = r#"{"type":"response.novel.delta", "delta":"\u00e4","n":1e2}"#;
    let script = |_: &Recorded| {
        Reply::new().raw(format!("event: response.novel.delta\ndata: {EVENT}\n\n").as_bytes()).and_text("hello")
    };
    let place = Place::new(script, "").await;
    let items = json!([
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "go" }, { "type": "input_file", "file_id": "f" }] },
        { "type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x" },
        { "type": "custom_tool_call_output", "call_id": "c", "output": "y" },
        { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA" },
        { "type": "novel", "deep": { "a": [1, 2.50, null] } },
    ]);
    let tools = json!([{ "type": "namespace", "name": "n", "tools": [] }, { "type": "function", "name": "f" }, { "type": "web_search" }]);
    let body = |model: &str, more: Value| {
        let mut body = json!({ "model": model, "input": items, "tools": tools, "tool_choice": { "type": "custom", "name": "patch" },
            "text": { "verbosity": "low" }, "store": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let model = "openai-responses-kind/m";
    let mut events = place.stream("/v1/responses", body(model, json!({ "stream": true }))).await;
    assert_eq!(events.response.header("x-linger-warning"), None);
    let (mut kinds, mut text) = (Vec::new(), String::new());
    while let Some((_, kind, data)) = events.any().await {
        assert!(kind != "response.novel.delta" || data == EVENT, "{data}");
        let data: Value = serde_json::from_str(&data).unwrap();
        text.push_str(data["delta"].as_str().filter(|_| kind == "response.output_text.delta").unwrap_or_default());
        kinds.push(kind);
    }
    assert!(kinds.contains(&"response.novel.delta".to_owned()) && text == "hello", "{kinds:?} {text}");
    assert_eq!(kinds.last().map(String::as_str), Some("response.completed"));
    let sent = String::from_utf8(place.last().body).unwrap();
    assert!(sent.contains(&format!("\"input\":{items}")) && sent.contains(&format!("\"tools\":{tools}")), "{sent}");
    let sent: Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(
        (&sent["model"], &sent["store"], &sent["text"]["verbosity"]),
        (&json!("m"), &json!(false), &json!("low"))
    );
    // As a whole.
    let whole = place.send("/v1/responses", body(model, json!({}))).await.json();
    assert_eq!((&whole["status"], &whole["output"][0]["content"][0]["text"]), (&json!("completed"), &json!("hello")));
    // Another provider is told what it can be told, or the caller why it cannot.
    let answer = place.send("/v1/responses", body("work/m", json!({}))).await;
    assert!(
        answer.status == 400 && answer.json()["error"]["message"].as_str().unwrap().contains("input_file"),
        "{answer:?}"
    );
    let plain =
        json!([{ "role": "user", "content": "go" }, items[1], items[2], items[4], { "role": "user", "content": "on" }]);
    let more = json!({ "input": plain, "tool_choice": "auto" });
    let answer = place.send("/v1/responses", body("work/m", more)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let left_out = "not passed on: input[1] (custom_tool_call), input[2] (custom_tool_call_output), input[3] (novel), \
                    tools[0] (namespace), tools[2] (web_search)";
    assert_eq!(answer.header("x-linger-warning"), Some(left_out));
    // What refers to a store has none here, whoever is asked.
    let reference = json!({ "input": [{ "type": "item_reference", "id": "x" }] });
    assert_eq!(place.send("/v1/responses", body(model, reference)).await.status, 400);
    place.end();
}

#[tokio::test]
async fn an_answer_that_must_be_json_is_json_or_an_error() {
    let place = Place::new(
        |request| match request.model() {
            "good" => Reply::text("```json\n{\"a\":1}\n```"),
            "cut" => Reply::text("{\"a\":").stop("max_tokens"),
            _ => Reply::text("Certainly! Here you are."),
        },
        "",
    )
    .await;
    let asked = json!({ "response_format": { "type": "json_object" } });
    let good = place.chat("openai-kind/good", asked.clone()).await;
    assert_eq!(good.json()["choices"][0]["message"]["content"], "{\"a\":1}");
    let bad = place.chat("openai-kind/bad", asked.clone()).await;
    assert_eq!((bad.status, &bad.json()["error"]["code"]), (502, &json!("no_json")));
    let mut events = place.stream("/v1/chat/completions", chat("openai-kind/slow", json!({ "stream": true }))).await;
    assert_eq!(text(&mut events).await, "Certainly! Here you are.");
    place.end();
}

#[tokio::test]
async fn what_there_is_not_is_said_in_a_sentence() {
    let place = Place::new(|_| Reply::text("ok"), "").await;
    for (path, words) in [
        ("/v1/embeddings", "no embeddings"),
        ("/v1/completions", "/v1/chat/completions"),
        ("/v1/moderations", "no moderation"),
        ("/v1/messages", "Anthropic"),
        ("/v1/messages/count_tokens", "Anthropic"),
        ("/v1/audio/speech", "no audio"),
        ("/v1/responses/resp_1/cancel", "stores no responses"),
        ("/v1/nowhere", "nothing under this path"),
    ] {
        let answer = place.send(path, json!({})).await;
        let error = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 404 && error.contains(words), "{path}: {error}");
    }
    place.end();
}

/// What a stream of a session has after the daemon was killed in the middle of its text, and the text began anew as `again`.
async fn after_a_crash(again: &'static str) -> Vec<Value> {
    let gate = Gate::new();
    let begun = Reply::text("one two ").gate(&gate).and_text("lost");
    let model = ModelServer::with([begun, Reply::new().text_in_deltas(again, 3)]);
    let daemon = Daemon::start(&model).await;
    let gateway = Gateway::start(&daemon).await;
    let token = token(&daemon, &["observe", "speak"]).await;
    let ask = post("/v1/chat/completions", chat("work/m|", json!({ "stream": true }))).token(&token);
    let mut events = gateway.http.stream(ask).await;
    let mut seen = vec![events.until("one two").await.1];
    daemon.kill_daemon().await;
    while let Some((.., data)) = events.any().await {
        seen.extend(serde_json::from_str(&data));
    }
    gate.open();
    model.forgive();
    seen
}

#[tokio::test]
async fn no_text_comes_twice_after_a_crash() {
    let text = |events: &[Value]| {
        let piece = |event: &Value| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned();
        events.iter().map(piece).collect::<String>()
    };
    let same = after_a_crash("one two three").await;
    assert_eq!(text(&same), "one two three", "{same:?}");
    assert_eq!(same.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let other = after_a_crash("one more thing").await;
    assert_eq!(text(&other), "one two ");
    assert_eq!(other.last().unwrap()["error"]["code"], "superseded", "{other:?}");
}
