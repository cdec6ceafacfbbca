//! The configuration changes while the daemon runs.

use linger_tests::harness::{Client, until};
use linger_tests::model::{Format, Gate, ModelServer, Reply};
use serde_json::{Value, json};

use crate::Daemon;
use crate::shared::configuration::later_is_at;
use crate::shared::providers::name;

#[tokio::test]
async fn a_session_asks_its_provider_where_the_configuration_says_it_is_now() {
    let [model, first, second] = [(); 3].map(|()| ModelServer::start());
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();

    later_is_at(&daemon, &client, &before, &first.url()).await;
    first.push([Reply::text("from the first")]);
    let session = client.create_with(json!({ "model": "later/m" })).await;
    client.attach(&session).await;
    client.turn(&session, "hello").await;

    later_is_at(&daemon, &client, &before, &second.url()).await;
    second.expect_rewrites(); // What came before was said to another server.
    second.push([Reply::text("from the second")]);
    client.turn(&session, "and now?").await;
    let asked = [&model, &first, &second].map(|server| server.requests().len());
    assert_eq!(asked, [0, 1, 1]);
    daemon.check(&[&client], &second);
}

#[tokio::test]
async fn a_hello_reads_no_file_while_the_configuration_stays_as_it_is() {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};

    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    daemon.client().await;
    let queue = init(CreateFlags::NONBLOCK).unwrap();
    add_watch(&queue, daemon.dirs.config().parent().unwrap(), WatchFlags::OPEN | WatchFlags::ACCESS).unwrap();
    let opened = || {
        let mut room = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&queue, &mut room);
        std::iter::from_fn(|| reader.next().ok().map(drop)).count()
    };
    for _ in 0..20 {
        daemon.client().await;
    }
    assert_eq!(opened(), 0);
    std::fs::read(daemon.dirs.config()).unwrap();
    assert!(opened() > 0, "a reader is seen");
}

/// Has `line` in the table of the provider with the name `table`, and waits until the daemon knows.
async fn configure(daemon: &Daemon, client: &Client, before: &str, (table, line): (&str, &str), nth: usize) {
    let head = format!("[providers.{table}]\n");
    let config = if before.contains(&head) {
        before.replace(&head, &format!("{head}{line}\n"))
    } else {
        format!("{before}\n{head}{line}\n")
    };
    later_is_at(daemon, client, &config, &format!("http://127.0.0.1:{nth}")).await;
}

/// What the events that name another setup say of hosted tools.
fn setups(client: &Client, session: &str) -> Vec<Value> {
    let seen = client.transcript();
    let changed = seen.of("session_changed").filter(|seen| seen.session == *session);
    changed.map(|seen| seen.event["setup"]["hosted_tools"].clone()).collect()
}

#[tokio::test]
async fn a_provider_that_is_configured_to_do_something_else_is_an_event_before_it_is_asked() {
    let model = ModelServer::start();
    model.push([Reply::text("hi"), Reply::text("nothing new")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let session = client.create_with(json!({ "model": name(Format::Anthropic) })).await;
    client.attach(&session).await;
    let created = client.first(&session, "session_created").await;
    assert_eq!(created.event["setup"]["kind"], "anthropic");
    client.turn(&session, "hello").await;
    configure(&daemon, &client, &before, ("other", "kind = \"openai\"\nbase_url = \"http://127.0.0.1:1\""), 2).await;
    client.turn(&session, "and now?").await;
    assert_eq!(setups(&client, &session), Vec::<Value>::new(), "another provider's table is nothing to this session");

    // In the middle of a turn: the step that follows is asked in the new way, and the event comes before it.
    let gate = Gate::new();
    model.push([Reply::tool("ls", json!({ "path": "." })).gate(&gate), Reply::text("done"), Reply::text("more")]);
    model.push([Reply::text("as before")]);
    client.prompt(&session, "look").await;
    gate.reached().await;
    configure(&daemon, &client, &before, ("claude", "hosted_tools = [\"web_search\"]"), 3).await;
    gate.open();
    client.nth(&session, "turn_finished", 3).await;
    assert_eq!(setups(&client, &session), [json!(["web_search"])]);
    let requests = model.requests();
    let tools = |nth: usize| requests[nth].json.to_string().contains("web_search");
    assert_eq!([tools(2), tools(3)], [false, true]);

    // It is not said again, and said when it is taken back; also after a restart.
    client.turn(&session, "more").await;
    assert_eq!(setups(&client, &session).len(), 1);
    configure(&daemon, &client, &before, ("claude", ""), 4).await;
    client.turn(&session, "and without?").await;
    assert_eq!(setups(&client, &session), [json!(["web_search"]), Value::Null]);
    daemon.check(&[&client], &model);
}

/// The daemon's own questions.
async fn asked(client: &Client) -> Vec<Value> {
    client.call("question/list", json!({ "session": "daemon" })).await.as_array().unwrap().clone()
}

/// The question about the configuration that lists `change`.
async fn asks_about(client: &Client, change: &str) -> Value {
    until("the daemon asks", async || {
        let rows = asked(client).await;
        let about = |row: &&Value| row["text"].as_str().is_some_and(|text| text.contains(change));
        rows.iter().find(about).cloned()
    })
    .await
}

/// The mode that a new session has.
async fn mode(client: &Client) -> Value {
    let session = client.create().await;
    let rows = client.call("session/list", json!({ "matching": session })).await;
    rows[0]["mode"].clone()
}

#[tokio::test]
async fn a_change_that_widens_is_asked_and_in_force_once_it_is_answered() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let with = |mode: &str, rules: &str| {
        before.replace("\"ask\"", &format!("\"{mode}\"")).replace("[permissions]\n", &format!("[permissions]\n{rules}"))
    };

    std::fs::write(daemon.dirs.config(), with("edit", "allow = [\"bash(x)\"]\n")).unwrap();
    let first = asks_about(&client, "mode: \"edit\" in place of \"ask\"").await;
    assert_eq!(
        (&first["about"], &first["session"], &first["blocks"]),
        (&json!("configuration"), &Value::Null, &json!("nothing"))
    );
    assert!(first["text"].as_str().unwrap().contains("permissions.allow: add \"bash(x)\""), "{first}");
    let notice = client.first(&session, "notice").await;
    assert_eq!((notice.str("code"), mode(&client).await), ("config_waits", json!("ask")));

    // The file changes again: the question is another one, and an answer to the first has no effect.
    std::fs::write(daemon.dirs.config(), with("auto", "")).unwrap();
    let answer =
        |row: &Value, name: &str| json!({ "question": row["question"], "digest": row["digest"], "answer": name });
    assert_eq!(client.refused("question/answer", answer(&first, "confirm")).await.code, -31001);
    let second = asks_about(&client, "mode: \"auto\"").await;
    assert_eq!((asked(&client).await.len(), mode(&client).await), (1, json!("ask")));
    let waits = client.call("config/get", json!({})).await;
    assert_eq!(waits["waiting"]["question"], second["question"]);
    assert_eq!(waits["settings"]["mode"], "ask");
    client.call("question/answer", answer(&second, "confirm")).await;
    assert_eq!((asked(&client).await, mode(&client).await), (vec![], json!("auto")), "in force at once");
    assert!(client.call("config/get", json!({})).await.get("waiting").is_none());

    // Less counts at once, and what was given up has to be confirmed again.
    std::fs::write(daemon.dirs.config(), with("ask", "")).unwrap();
    until("the mode is ask", async || (mode(&client).await == "ask").then_some(())).await;
    std::fs::write(daemon.dirs.config(), with("auto", "")).unwrap();
    let third = asks_about(&client, "mode: \"auto\"").await;
    client.call("question/answer", answer(&third, "keep")).await;
    assert_eq!((asked(&client).await, mode(&client).await), (vec![], json!("ask")));
    let waits = client.call("config/get", json!({})).await;
    assert!(waits["waiting"]["question"].is_null() && waits["waiting"]["changes"].is_array(), "{waits}");
    let digest = &waits["waiting"]["digest"];
    assert_eq!(client.refused("config/confirm", json!({ "digest": "sha256:0" })).await.code, -31005);
    let confirmed = client.call("config/confirm", json!({ "digest": digest })).await;
    assert_eq!((&confirmed["confirmed"], mode(&client).await), (&waits["waiting"]["changes"], json!("auto")));
    assert_eq!(client.call("config/confirm", json!({ "digest": digest })).await["confirmed"], json!([]));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_a_client_sets_is_in_force_at_once_and_a_provider_that_waits_says_so() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let set = |name: &str, value: &str| json!({ "name": name, "value": value });
    let confirmed = client.call("config/set", set("mode", "auto")).await["confirmed"].clone();
    assert_eq!(confirmed, json!(["mode: \"auto\" in place of \"ask\" (everything runs without asking)"]));
    assert_eq!((mode(&client).await, asked(&client).await), (json!("auto"), vec![]));
    assert_eq!(client.refused("config/set", set("mode", "oops")).await.code, -31010);

    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let evil = format!(
        "{before}\n[providers.evil]\nkind = \"openai\"\nbase_url = \"{}/v1\"\napi_key_env = \"WORK_KEY\"\n",
        model.url()
    );
    std::fs::write(daemon.dirs.config(), evil).unwrap();
    asks_about(&client, "providers.evil.api_key_env").await;
    let refused = client.refused("session/create", json!({ "cwd": daemon.workspace(), "model": "evil/m" })).await;
    assert!(refused.message.contains("waits until you confirm it"), "{}", refused.message);
    client.confirm().await;
    client.create_with(json!({ "model": "evil/m" })).await;
    daemon.check(&[&client], &model);
}
