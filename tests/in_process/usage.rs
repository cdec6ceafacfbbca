//! What models cost: counted in every format, kept through crashes and removals, seen as a user sees it.

use crate::Daemon;
use crate::shared::usage::{name, row, start, total};
use linger_tests::harness::Setup;
use linger_tests::model::{Format, ModelServer, Reply};
use serde_json::{Value, json};

#[tokio::test]
async fn the_same_answer_is_counted_alike_in_every_format() {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let mut all = 0;
    for format in Format::ALL {
        let session = client.create_with(json!({ "model": name(format) })).await;
        client.attach(&session).await;
        let paid = |reply: Reply| reply.usage(60, 42, 30).details(10, 7);
        model.push([paid(Reply::tool("bash", json!({ "command": "true" }))), paid(Reply::text("done"))]);
        let finished = client.turn(&session, "go").await.event;
        // What a format does not tell apart is a part of the rest.
        let (cached, written, reasoning, cost) = match format {
            Format::Gemini => (30, 0, 7, 575),
            Format::Ollama => (0, 0, 0, 620),
            _ => (30, 10, 7, 585),
        };
        let usage = |steps: u64| {
            json!({
                "input_tokens": 100 * steps, "output_tokens": 42 * steps, "cached_tokens": cached * steps,
                "cache_write_tokens": written * steps, "reasoning_tokens": reasoning * steps, "cost_micros": cost * steps,
            })
        };
        let message = client.nth(&session, "message", 4).await.event;
        assert_eq!(message["usage"], usage(1), "{format:?}");
        assert_eq!((&finished["usage"], &finished["session_usage"]), (&usage(2), &usage(2)), "{format:?}");
        assert_eq!(row(&client, &session).await["usage"], usage(2), "{format:?}");
        all += 2 * cost;
        assert_eq!(total(&client).await["usage"]["cost_micros"], all, "{format:?}");
    }
    let by_model = client.call("usage/list", json!({ "by": "model" })).await;
    let rows: Vec<Value> = by_model["rows"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 5, "{by_model}");
    assert_eq!((&rows[0]["model"], &rows[0]["usage"]["cost_micros"]), (&json!("llama/l"), &json!(1240)));
    assert_eq!(
        (&by_model["total"]["answers"], &by_model["total"]["usage"]["output_tokens"]),
        (&json!(10), &json!(420))
    );
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_call_that_was_cut_was_paid_for_and_a_refusal_was_not() {
    for (name, cut) in [("claude/c", 210), ("work/w", 0)] {
        let model = ModelServer::start();
        let daemon = start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": name })).await;
        client.attach(&session).await;
        let paid = |reply: Reply| reply.usage(100, 10, 0);
        let good = || paid(Reply::text("Good day"));

        model.push([paid(Reply::new()).error_event("overloaded_error", "Overloaded"), good()]);
        let finished = client.turn(&session, "go").await.event;
        let usage = &finished["usage"];
        assert_eq!((&usage["cost_micros"], &usage["cost_at_least"]), (&json!(300), &json!(null)), "{name}");

        // No text of it was shown, and it has an event all the same.
        model.push([paid(Reply::tool("bash", json!({ "command": "true" }))).cut(), good()]);
        let finished = client.turn(&session, "and this").await.event;
        let usage = &finished["usage"];
        assert_eq!((&usage["cost_micros"], &usage["cost_at_least"]), (&json!(cut + 300), &json!(true)), "{name}");
        let seen = client.transcript();
        let broken: Vec<_> = seen.of("message").filter(|seen| seen.event["interrupted"] == true).collect();
        let cut_call = &broken[0].event["content"][0]["type"];
        assert_eq!((broken.len(), cut_call), (1, &json!("cut_tool_use")), "{name}");
        assert_eq!(seen.of("message_superseded").count(), 1, "{name}");
        assert_eq!(row(&client, &session).await["usage"]["cost_micros"], cut + 600, "{name}");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_session_goes_on_with_another_model_and_hears_of_one_that_nobody_knows() {
    let model = ModelServer::scripted(|_| Reply::text("hello"));
    model.list("/v1/models", json!({ "data": [{ "id": "w-small" }, { "id": "w-large" }] }));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/w-small" })).await;
    client.attach(&session).await;
    model.expect_rewrites();
    let set = |model: &str| json!({ "session": session, "model": model });

    let near = client.refused("session/set", set("wrok/w-large")).await;
    assert!(near.message.contains("did you mean `work`?"), "{near:?}");
    // Nobody knows the models of a server that was never asked.
    client.call("session/set", set("work/w-lagre")).await;
    assert_eq!(client.transcript().of("notice").count(), 0);
    let lagre = client.refused("session/set", set("w-large")).await;
    assert!(lagre.message.contains("unknown provider `w-large`"), "{lagre:?}");

    client.call("model/list", json!({ "all": true })).await;
    client.call("session/set", set("work/w-lagre")).await;
    let doubt = client.first(&session, "notice").await.event;
    assert_eq!((&doubt["code"], &doubt["level"]), (&json!("unknown_model"), &json!("warning")));
    assert!(doubt["text"].as_str().unwrap().contains("did you mean work/w-large?"), "{doubt}");
    let lagre = client.refused("session/set", set("w-lagre")).await;
    assert!(lagre.message.contains("did you mean `work/w-large`?"), "{lagre:?}");
    // A model of the provider that the session has needs no provider.
    client.call("session/set", set("w-large")).await;
    client.turn(&session, "go on").await;
    assert_eq!(row(&client, &session).await["model"], "work/w-large");
    assert_eq!(model.requests().last().unwrap().model(), "w-large");

    // One that its provider does not have either.
    model.push([Reply::status(404)]);
    client.call("session/set", set("work/w-lagre")).await;
    let failed = client.turn(&session, "and on").await.event;
    assert_eq!(failed["hint"], "did you mean work/w-large? `linger models` lists more", "{failed}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_an_image_cost_is_in_the_sums_or_at_least_that() {
    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let prices = "[models.\"work/painter\"]\ninput_price = 5\noutput_price = 40\n";
    for (prices, cost) in [(prices, Some(20 * 5 + 1000 * 40)), ("", None)] {
        let model = ModelServer::start();
        let made = json!({ "data": [{ "b64_json": PNG }], "usage": { "input_tokens": 20, "output_tokens": 1000 } });
        model.list("/v1/images/generations", made);
        let paid = |reply: Reply| reply.usage(100, 10, 0);
        let call = Reply::tool("image", json!({ "prompt": "a cat", "path": "cat.png" }));
        model.push([paid(call), paid(Reply::text("done"))]);
        let config = format!(
            "[tools]\nimage = \"work/painter\"\n{prices}[models.\"work/m\"]\ninput_price = 2\noutput_price = 10\n"
        );
        let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
        let client = daemon.client().await;
        let session = client.session().await;
        let finished = client.turn(&session, "go").await.event;
        let of_call = client.first(&session, "tool_finished").await.event["model_cost"].clone();
        assert_eq!((&of_call["model"], &of_call["usage"]["cost_micros"]), (&json!("work/painter"), &json!(cost)));
        let usage = &finished["usage"];
        let least = if cost.is_none() { json!(true) } else { Value::Null };
        let expect = (json!(220), json!(600 + cost.unwrap_or_default()), least);
        let got = (usage["input_tokens"].clone(), usage["cost_micros"].clone(), usage["cost_at_least"].clone());
        assert_eq!(got, expect, "of the turn");
        assert_eq!(row(&client, &session).await["usage"]["cost_micros"], expect.1, "of the session");
        let by_model = client.call("usage/list", json!({ "by": "model" })).await;
        let rows = by_model["rows"].as_array().unwrap();
        let painter = rows.iter().find(|row| row["model"] == "work/painter").unwrap();
        assert_eq!((&painter["answers"], &painter["usage"]["output_tokens"]), (&json!(1), &json!(1000)), "of the day");
        assert_eq!(total(&client).await["usage"]["cost_micros"], expect.1, "of all");
        daemon.check(&[&client], &model);
    }
}
