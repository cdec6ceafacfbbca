//! What is known of models, and what comes of it: windows and prices that only a provider's own list has, names that are nearly
//! right.

use linger_tests::model::{Format, ModelServer, Reply};
use serde_json::json;

use crate::bash;
use crate::configuration::later_is_at;
use crate::providers::{check, name, start};

const SUMMARY: &str = "## Goal\nthe old goal\n\n## Next steps\ngo on";

#[tokio::test]
async fn a_window_and_prices_that_only_the_provider_knows_count_from_its_first_answer_and_after_a_reload() {
    let model = ModelServer::start();
    let pricing = json!({ "prompt": "0.000001", "completion": "0.000002" });
    model.list("/v1/models", json!({ "data": [{ "id": "w", "context_length": 10_000, "pricing": pricing }] }));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name(Format::OpenAi) })).await;
    client.attach(&session).await;
    model.push([Reply::text("one").usage(2000, 10, 0)]);
    let first = client.turn(&session, &"lorem ipsum ".repeat(500)).await.event;
    assert_eq!((&first["context_window"], &first["usage"]["cost_micros"]), (&json!(10_000), &json!(2020)), "{first}");
    let stored = std::fs::read_to_string(daemon.dirs.state().join("lingerd.models")).unwrap();
    assert!(stored.contains("10000"), "{stored}");

    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    later_is_at(&daemon, &client, &before, "http://127.0.0.1:1").await;

    model.push([
        bash("echo beta").usage(8100, 10, 0),
        Reply::text(SUMMARY).usage(3000, 40, 0),
        Reply::text("all good").usage(1000, 10, 0),
    ]);
    let second = client.turn(&session, "the second prompt").await.event;
    assert_eq!(second["context_window"], 10_000, "{second}");
    assert_eq!(second["usage"]["cost_micros"], (8100 + 3000 + 1000) + 2 * 60, "{second}");
    assert_eq!(client.transcript().of("compaction_started").count(), 1, "{}", client.transcript().outline());
    check(&daemon, &[&client], &model);
}

#[tokio::test]
async fn a_server_of_ones_own_is_asked_for_the_window_that_its_list_lacks() {
    let models = |owner: &str| json!({ "data": [{ "id": "w", "owned_by": owner }] });
    let known = json!({ "data": [{ "model_name": "w", "model_info": { "max_input_tokens": 11_000 } }] });
    let props = json!({ "default_generation_settings": { "n_ctx": 12_000 } });
    let shown = json!({ "model_info": { "llama.context_length": 13_000 } });
    for (format, lists, window) in [
        (Format::OpenAi, [("/v1/models", models("litellm")), ("/v1/model/info", known)], 11_000),
        (Format::OpenAi, [("/v1/models", models("llamacpp")), ("/props", props)], 12_000),
        (Format::Ollama, [("/api/tags", json!({ "models": [{ "name": "l" }] })), ("/api/show", shown)], 13_000),
    ] {
        let model = ModelServer::with([Reply::text("hello")]);
        lists.into_iter().for_each(|(path, list)| model.list(path, list));
        let daemon = start(&model).await;
        let client = daemon.client().await;
        let session = client.create_with(json!({ "model": name(format) })).await;
        client.attach(&session).await;
        let finished = client.turn(&session, "hi").await.event;
        assert_eq!(finished["context_window"], window, "{finished}");
        check(&daemon, &[&client], &model);
    }
}

#[tokio::test]
async fn a_session_that_is_made_with_a_model_that_nobody_knows_says_which_one_may_have_been_meant() {
    let model = ModelServer::scripted(|_| Reply::text("hello"));
    model.list("/v1/models", json!({ "data": [{ "id": "w-small" }, { "id": "w-large" }] }));
    let daemon = start(&model).await;
    let client = daemon.client().await;
    let create = |model: &str| json!({ "cwd": daemon.workspace(), "model": model });
    let made = client.call("session/create", create("work/w-lagre")).await;
    assert_eq!(made.get("warning"), None, "nobody knows the models of a server that was never asked: {made}");

    client.call("model/list", json!({ "all": true })).await;
    for good in ["work/w-large", "work/w-large-20260101", "work/something-else-altogether"] {
        let made = client.call("session/create", create(good)).await;
        assert_eq!(made.get("warning"), None, "{made}");
    }
    let made = client.call("session/create", create("work/w-lagre")).await;
    let expect = "unknown model work/w-lagre; did you mean work/w-large?";
    assert_eq!(made["warning"], expect, "{made}");
    let session = made["session"].as_str().unwrap();
    client.attach(session).await;
    let doubt = client.first(session, "notice").await.event;
    assert_eq!((&doubt["seq"], &doubt["code"], &doubt["text"]), (&json!(2), &json!("unknown_model"), &json!(expect)));
    assert_eq!(client.turn(session, "go").await.str("stop_reason"), "end_turn");

    let again = daemon.cli(&["new", "-m", "work/w-lagre"]).run().await.exits(0);
    assert_eq!(again.stderr, format!("warning: {expect}\n"));
    let asked = daemon.cli(&["run", "-m", "work/w-lagre", "go"]).run().await.exits(0);
    assert_eq!((asked.stdout.as_str(), asked.stderr.matches(expect).count()), ("hello\n", 1), "{}", asked.stderr);
    let left = daemon.cli(&["run", "-d", "-m", "work/w-lagre", "go"]).run().await.exits(0);
    assert_eq!(left.stderr, format!("warning: {expect}\n"));
    daemon.cli(&["wait", left.word()]).run().await.exits(0);
    // A model alone is not made out to be a provider; the first that has it is named.
    let alone = client.refused("session/create", create("w-large")).await;
    assert_eq!(alone.message, "unknown provider `w-large`; did you mean `claude/w-large`?");
    check(&daemon, &[&client], &model);
}
