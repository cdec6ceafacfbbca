//! What models cost: counted in every format, kept through crashes and removals, seen as a user sees it.

use linger_tests::harness::{Client, Daemon, Setup, comes_true, until};
use linger_tests::model::{Format, Gate, ModelServer, Reply};
use serde_json::{Value, json};

/// The provider that speaks a format, as `provider/model`.
fn name(format: Format) -> &'static str {
    match format {
        Format::Anthropic => "claude/c",
        Format::OpenAi => "work/w",
        Format::Responses => "gpt/g",
        Format::Gemini => "google/ge",
        Format::Ollama => "llama/l",
    }
}

/// A daemon with a provider for each format, whose models cost the same: 2 dollars a million tokens in, 10 out, 0.5 from the
/// cache, 3 into it.
async fn start(model: &ModelServer) -> Daemon {
    let url = model.url();
    let mut config = format!(
        "[providers.gpt]\nkind = \"openai-responses\"\nbase_url = \"{url}/v1\"\n\
         [providers.google]\nkind = \"gemini\"\nbase_url = \"{url}/v1beta\"\n\
         [providers.llama]\nkind = \"ollama\"\nbase_url = \"{url}\"\n",
    );
    for format in Format::ALL {
        config += &format!(
            "[models.\"{}\"]\ninput_price = 2\noutput_price = 10\ncache_read_price = 0.5\ncache_write_price = 3\n",
            name(format)
        );
    }
    Daemon::start_with(model, Setup { mode: "auto", config, ..Setup::default() }).await
}

/// The totals of `usage/list`.
async fn total(client: &Client) -> Value {
    client.call("usage/list", json!({})).await["total"].clone()
}

/// The row of a session.
async fn row(client: &Client, session: &str) -> Value {
    client.call("session/list", json!({ "matching": session })).await[0].clone()
}

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
async fn what_was_paid_is_counted_once_and_not_lost() {
    let model = ModelServer::start();
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "claude/c" })).await;
    client.attach(&session).await;
    let paid = |reply: Reply| reply.usage(100, 10, 0);

    // A provider that fails in mid-answer has said what the request came to.
    model.push([
        paid(Reply::text("Good d")).error_event("overloaded_error", "Overloaded"),
        paid(Reply::text("Good day")),
    ]);
    client.turn(&session, "go").await;
    // The cut answer: 100 in and the one token out that it began with.
    let usage = json!({
        "input_tokens": 200, "output_tokens": 11, "cached_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0,
        "cost_micros": 210 + 300, "cost_at_least": true,
    });
    assert_eq!(row(&client, &session).await["usage"], usage);

    // So has one whose answer the user has cut, whether or not anything was shown of it.
    for (words, cut) in [("half", Gate::new()), ("", Gate::new())] {
        let reply = if words.is_empty() { Reply::new() } else { Reply::text(words) };
        model.push([paid(reply.gate(&cut))]);
        let said = || daemon.log().lines().filter(|line| line.contains("counted")).count();
        let earlier = said();
        client.prompt(&session, "and this").await;
        cut.reached().await;
        if !words.is_empty() {
            client.sees_text(&session, words).await;
        }
        let before = row(&client, &session).await["usage"]["cost_micros"].as_u64().unwrap();
        let turns = client.transcript().of("turn_finished").count();
        assert!(comes_true(linger_tests::TIMEOUT, || said() > earlier), "the answer was never counted");
        client.call("session/cancel", json!({ "session": session })).await;
        let finished = client.nth(&session, "turn_finished", turns + 1).await.event;
        assert_eq!(
            (&finished["usage"]["cost_micros"], &finished["usage"]["cost_at_least"]),
            (&json!(210), &json!(true))
        );
        assert_eq!(finished["session_usage"]["cost_micros"], before + 210);
    }

    // After a crash nobody knows what the cut answer was.
    let gate = Gate::new();
    model.push([paid(Reply::text("once m").gate(&gate)), paid(Reply::text("once more"))]);
    let before = total(&client).await;
    client.prompt(&session, "again").await;
    gate.reached().await;
    client.sees_text(&session, "once m").await;
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    again.attach(&session).await;
    let turns = client.transcript().of("turn_finished").count();
    again.nth(&session, "turn_finished", turns + 1).await;
    let after = total(&again).await;
    let grown = |pointer: &str| {
        after.pointer(pointer).unwrap().as_u64().unwrap() - before.pointer(pointer).unwrap().as_u64().unwrap()
    };
    assert_eq!((grown("/answers"), grown("/usage/input_tokens"), grown("/usage/cost_micros")), (2, 100, 300));
    assert_eq!(row(&again, &session).await["usage"], after["usage"]);

    // And nothing is counted again by a daemon that starts.
    daemon.kill_and_restart().await;
    let last = daemon.client().await;
    assert_eq!(total(&last).await, after);
    daemon.check(&[&client, &again, &last], &model);
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

        // Nothing of it was shown, and it has an event all the same.
        model.push([paid(Reply::tool("bash", json!({ "command": "true" }))).cut(), good()]);
        let finished = client.turn(&session, "and this").await.event;
        let usage = &finished["usage"];
        assert_eq!((&usage["cost_micros"], &usage["cost_at_least"]), (&json!(cut + 300), &json!(true)), "{name}");
        let seen = client.transcript();
        let broken: Vec<_> = seen.of("message").filter(|seen| seen.event["interrupted"] == true).collect();
        assert_eq!((broken.len(), &broken[0].event["content"]), (1, &json!([])), "{name}");
        assert_eq!(seen.of("message_superseded").count(), 1, "{name}");
        assert_eq!(row(&client, &session).await["usage"]["cost_micros"], cut + 600, "{name}");
        daemon.check(&[&client], &model);
    }
}

#[tokio::test]
async fn a_price_that_nobody_knows_is_unknown_and_its_sum_a_least_one() {
    let model = ModelServer::scripted(|_| Reply::text("hello").usage(100, 10, 0));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/nobody-knows" })).await;
    client.attach(&session).await;
    let finished = client.turn(&session, "go").await.event;
    assert_eq!(finished["usage"].get("cost_micros"), None, "{finished}");
    let out = daemon.cli(&["usage"]).run().await.exits(0);
    assert!(out.stdout.contains("cost unknown"), "{}", out.stdout);
    model.expect_rewrites();
    client.call("session/set", json!({ "session": session, "model": "work/w" })).await;
    client.turn(&session, "go on").await;
    let usage = row(&client, &session).await["usage"].clone();
    assert_eq!((&usage["cost_micros"], &usage["cost_at_least"]), (&json!(300), &json!(true)));
    let list = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(list.stdout.contains("220 tokens, at least $0.0003"), "{}", list.stdout);
    let by_model = daemon.cli(&["usage", "--by", "model"]).run().await.exits(0);
    let lines: Vec<Vec<&str>> = by_model.stdout.lines().map(|line| line.split("  ").collect()).collect();
    assert!(lines[0][0] == "work/w" && lines[0].last() == Some(&"$0.0003"), "{}", by_model.stdout);
    assert!(lines[1][0] == "work/nobody-knows" && lines[1].last() == Some(&"cost unknown"), "{}", by_model.stdout);
    assert!(lines[2][0] == "total" && lines[2].last() == Some(&"at least $0.0003"), "{}", by_model.stdout);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_removed_session_leaves_its_days_behind() {
    let model = ModelServer::scripted(|_| Reply::text("hello").usage(100, 10, 0));
    let daemon = start(&model).await;
    let none = daemon.cli(&["usage"]).run().await.exits(0);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "no model has answered in this time\n"));
    let client = daemon.client().await;
    let mut sessions = Vec::new();
    for name in ["first", "second"] {
        let session = client.create_with(json!({ "model": "work/w", "name": name })).await;
        client.attach(&session).await;
        client.turn(&session, "go").await;
        sessions.push(session);
    }
    let before = daemon.cli(&["usage", "--json"]).run().await.exits(0).json();
    assert_eq!(before[0]["total"]["usage"]["cost_micros"], 600);
    client.call("session/remove", json!({ "session": sessions[0] })).await;
    assert_eq!(daemon.cli(&["usage", "--json"]).run().await.exits(0).json(), before);
    let rows = client.call("usage/list", json!({ "by": "session" })).await["rows"].clone();
    assert_eq!((&rows[0].get("session"), &rows[1]["name"]), (&None, &json!("second")), "{rows}");
    let shown = daemon.cli(&["usage", "--by", "session", "--since", "1d"]).run().await.exits(0).stdout;
    assert!(shown.starts_with("removed sessions ") && shown.contains(" second "), "{shown}");
    let later = daemon.cli(&["usage", "--since", "2999-01-01"]).run().await.exits(0);
    assert_eq!(later.stdout, "");
    daemon.cli(&["usage", "--since", "last week"]).run().await.fails_with_hint(2);
    daemon.cli(&["usage", "--by", "moon"]).run().await.exits(2);
    daemon.check(&[&client], &model);
}

/// The first word of each line.
fn names(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[tokio::test]
async fn models_lists_what_the_providers_have() {
    let model = ModelServer::start();
    model.list(
        "/v1/models",
        json!({ "object": "list", "data": [{ "id": "w", "max_model_len": 4096 }, { "id": "w-large" }] }),
    );
    model.list(
        "/v1beta/models",
        json!({ "models": [{ "name": "models/ge", "inputTokenLimit": 1_000_000,
        "supportedGenerationMethods": ["generateContent"] }] }),
    );
    model.list("/api/tags", json!({ "models": [{ "name": "l:8b" }] }));
    let daemon = start(&model).await;
    let all = daemon.cli(&["models"]).run().await.exits(0);
    let line = |name: &str| all.stdout.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap().to_owned();
    for expect in ["work/w ", "work/w-large ", "claude/w ", "gpt/w ", "google/ge ", "llama/l:8b ", "demo/demo "] {
        line(expect.trim_end());
    }
    assert!(line("work/w").contains("window 4096") && line("work/w").contains("$2 in, $10 out"), "{}", line("work/w"));
    assert!(line("work/w-large").contains("window unknown") && line("work/w-large").contains("price unknown"));
    assert!(line("google/ge").contains("window 1.0M"), "{}", line("google/ge"));
    assert!(line("llama/l:8b").contains("window 32k"), "{}", line("llama/l:8b"));
    assert!(line("openai/gpt-5").contains("needs OPENAI_API_KEY"), "{}", line("openai/gpt-5"));

    let part = daemon.cli(&["models", "work/"]).run().await.exits(0);
    assert_eq!(names(&part.stdout), ["work/w", "work/w-large"]);
    let glob = daemon.cli(&["models", "W-*"]).run().await.exits(0);
    assert!(
        names(&glob.stdout).iter().all(|name| name.ends_with("/w-large")) && glob.stdout.lines().count() == 3,
        "{}",
        glob.stdout
    );
    daemon.cli(&["models", "work/w-lagre"]).run().await.fails_with_hint(2).says("did you mean work/w-large");
    daemon.cli(&["models", "zzzzzzzz"]).run().await.fails_with_hint(2);
    let json = daemon.cli(&["models", "work/w", "--json"]).run().await.exits(0).json();
    assert_eq!(
        (&json[0]["model"], &json[0]["context_window"], &json[0]["input_price"]),
        (&json!("work/w"), &json!(4096), &json!(2.0))
    );
    assert_eq!((json[1].get("context_window"), json[1].get("input_price")), (None, None), "{}", json[1]);
}

#[tokio::test]
async fn whoever_names_no_model_is_shown_one_that_is_there() {
    let model = ModelServer::start();
    model.list("/api/tags", json!({ "models": [{ "name": "l:8b" }] }));
    let daemon = Daemon::prepare(&model, Setup::default());
    // One that never answers, and one whose key would have to be unlocked, are in nobody's way.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let asked = daemon.dirs.root().join("asked");
    let providers = format!(
        "[providers.ollama]\nbase_url = \"{url}\"\n\
         [providers.kept]\nkind = \"openai\"\nbase_url = \"{url}/v1\"\napi_key_command = \"touch {asked}\"\n\
         [providers.a]\nkind = \"openai\"\nbase_url = \"http://{silent}/v1\"\n",
        url = model.url(),
        asked = asked.display(),
        silent = silent.local_addr().unwrap(),
    );
    std::fs::write(daemon.dirs.config(), providers).unwrap();
    daemon.launch().await;
    for named in [vec!["run", "hi"], vec!["run", "-m", "ollama", "hi"]] {
        // The list is waited for a second, which is short on a machine that is busy.
        until("the hint", async || {
            let refused = daemon.cli(&named).run().await.fails_with_hint(2);
            refused.stderr.contains("`--model ollama/l:8b` is there").then_some(())
        })
        .await;
    }
    daemon.cli(&["run", "-m", "vllm", "hi"]).run().await.fails_with_hint(2).says("`linger models` lists what");
    assert!(!asked.exists(), "a key was asked for");
}

#[tokio::test]
async fn a_provider_that_does_not_list_its_models_is_named_and_the_others_are_listed() {
    let model = ModelServer::start();
    model.list("/v1/models", json!({ "data": [{ "id": "w" }] }));
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!("[providers.gone]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{gone}/v1\"\n");
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let keys = daemon.canaries();
    let [.., claude] = keys.as_slice() else { panic!("{keys:?}") };
    model.require_key(claude);
    let all = daemon.cli(&["models"]).run().await.exits(0);
    let warned =
        |provider: &str| all.stderr.lines().find(|line| line.contains(provider)).unwrap_or_default().to_owned();
    assert!(warned("gone").contains("warning: gone does not list its models: cannot connect"), "{}", all.stderr);
    assert!(warned("work").contains("invalid api key"), "{}", all.stderr);
    assert_eq!(all.stderr.lines().count(), 2, "{}", all.stderr);
    let listed = names(&all.stdout);
    assert!(listed.contains(&"claude/w") && listed.contains(&"gone/m") && listed.contains(&"work/MODEL"), "{listed:?}");
    // No key goes anywhere but into its header.
    assert!(!all.stderr.contains("canary") && !daemon.log().contains("canary"));
}

#[tokio::test]
async fn a_session_goes_on_with_another_model_and_hears_of_one_that_nobody_knows() {
    let model = ModelServer::scripted(|_| Reply::text("hello"));
    model.list("/v1/models", json!({ "data": [{ "id": "w-small" }, { "id": "w-large" }] }));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "work/w-small" })).await;
    client.attach(&session).await;
    client.turn(&session, "go").await;
    model.expect_rewrites();
    let set = |model: &str| json!({ "session": session, "model": model });

    let near = client.refused("session/set", set("wrok/w-large")).await;
    assert!(near.message.contains("did you mean `work`?"), "{near:?}");
    // Nobody knows the models of a server that was never asked.
    client.call("session/set", set("work/w-lagre")).await;
    assert_eq!(client.transcript().of("notice").count(), 0);
    let lagre = client.refused("session/set", set("w-large")).await;
    assert!(lagre.message.contains("there is no provider `w-large`"), "{lagre:?}");

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
