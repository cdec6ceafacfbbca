//! What models cost: counted in every format, kept through crashes and removals, seen as a user sees it.

pub(crate) use crate::shared::usage::{row, start, total};
use linger_tests::harness::{Daemon, Setup, comes_true, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

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
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "no usage in this time\n"));
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
            refused.stderr.contains("try `--model ollama/l:8b`").then_some(())
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

    // Doctor says which servers it has contacted, and contacts all of them if it is asked to.
    let plain = daemon.cli(&["doctor"]).run().await.stdout;
    assert!(plain.contains("✓ model gone/m; not contacted (--probe asks it)"), "{plain}");
    assert!(plain.contains("✓ provider work; ") && !plain.contains("/MODEL"), "{plain}");
    let probed = daemon.cli(&["doctor", "--probe"]).run().await.exits(1).stdout;
    for expect in ["✗ provider gone: cannot connect", "✗ provider work: ", "✓ provider claude answers: 1 models"]
    {
        assert!(probed.contains(expect), "{expect}: {probed}");
    }
    // No key goes anywhere but into its header.
    let said = [all.stderr, plain, probed].concat();
    assert!(!said.contains("canary") && !daemon.log().contains("canary"));
}
