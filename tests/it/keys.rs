//! Keys: from a variable, a command or the keychain, how they come there, and where they never are.

use linger_tests::check::Seen;
use linger_tests::harness::{Client, Daemon, Keychain, Setup, until};
use linger_tests::model::{ModelServer, Recorded, Reply};
use serde_json::{Value, json};

/// A key that must be nowhere but in a header and the keychain.
const KEY: &str = "canary-of-the-keychain-0123456789";

/// A daemon without any key, for which `provider` is a table `[providers.kept]` without its address.
fn prepare(model: &ModelServer, provider: &str) -> Daemon {
    let url = model.url();
    let config = format!("[providers.kept]\nkind = \"openai\"\nbase_url = \"{url}/v1\"\n{provider}\n");
    let setup = Setup { model: Some("kept/m".to_owned()), keys: false, config, ..Setup::default() };
    Daemon::prepare(model, setup)
}

async fn start(model: &ModelServer, provider: &str) -> Daemon {
    let daemon = prepare(model, provider);
    daemon.launch().await;
    daemon
}

/// Nothing that must always hold was broken, and no key is anywhere but in its header.
fn check(daemon: &Daemon, clients: &[&Client], model: &ModelServer, keys: &[&str]) {
    let mut trace = daemon.trace(clients, model);
    trace.canaries.extend([&[KEY], keys].concat().into_iter().map(str::to_owned));
    trace.files.extend([daemon.dirs.state().join("lingerd.keys"), daemon.dirs.config()]);
    linger_tests::check::assert_holds(&trace);
    model.verify();
}

fn bearer(request: &Recorded) -> &str {
    request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
}

/// The notice that a turn waits for its key, and says this of it.
async fn waits(client: &Client, says: &str) -> Seen {
    let is =
        |seen: &&Seen| matches!(seen.str("code"), "key_missing" | "key_pending") && seen.str("text").contains(says);
    client.wait("the wait", |seen| seen.of("notice").find(is).cloned()).await
}

async fn row(client: &Client, provider: &str) -> Value {
    let listed = client.call("key/list", json!({})).await;
    let rows = listed["keys"].as_array().unwrap();
    rows.iter().find(|row| row["provider"] == provider).unwrap().clone()
}

#[tokio::test]
async fn without_a_keychain_the_other_two_ways_are_named() {
    let model = ModelServer::start();
    let daemon = start(&model, "api_key_env = \"KEPT_KEY\"").await;
    let set = daemon.cli(&["key", "set", "kept"]).stdin(format!("{KEY}\n")).run().await.fails_with_hint(1);
    let set = set.says("no keychain found: no D-Bus session").says("set KEPT_KEY where you run linger");
    set.says("`api_key_command`");
    daemon.cli(&["key", "rm", "kept"]).run().await.fails_with_hint(1).says("no keychain found");
    let list = daemon.cli(&["key", "list"]).run().await.exits(0).says("no keychain found");
    assert!(list.stdout.contains("missing: KEPT_KEY is not set"), "{}", list.stdout);
    let rows = daemon.cli(&["key", "list", "--json"]).run().await.exits(0).json();
    assert!(rows.iter().any(|row| row["provider"] == "kept" && row["source"] == "missing" && row["default"] == true));
    let client = daemon.client().await;
    let refused = client.refused("key/set", json!({ "provider": "kept", "secret": KEY })).await;
    assert_eq!(refused.code, -31024);
    check(&daemon, &[&client], &model, &[]);
}

#[tokio::test]
async fn a_key_is_never_an_argument_and_wrong_input_is_named() {
    let model = ModelServer::start();
    let daemon = start(&model, "").await;
    for arguments in [["key", "set", "kept", KEY], ["key", "set", "kept", "--key=canary-of-the-keychain-0123456789"]] {
        let said = daemon.cli(&arguments).run().await.fails_with_hint(2).says("a key cannot be an argument");
        assert!(!said.stderr.contains(KEY), "{}", said.stderr);
    }
    daemon.cli(&["key", "set", "kepd"]).stdin("k").run().await.fails_with_hint(2).says("no provider called 'kepd'");
    daemon.cli(&["key"]).run().await.exits(2).says("Usage: linger key");
    let client = daemon.client().await;
    let wrong = async |params: Value| client.refused("key/set", params).await.code;
    assert_eq!(wrong(json!({ "provider": "kept", "secret": " \n" })).await, -31025);
    assert_eq!(wrong(json!({ "provider": "kept", "secret": "two words" })).await, -31025);
    assert_eq!(wrong(json!({ "provider": "kept", "secret": "x".repeat(9 << 10) })).await, -31015);
    assert_eq!(wrong(json!({ "provider": "nobody", "secret": "x" })).await, -31008);
    assert_eq!(wrong(json!({ "provider": "demo", "secret": "x" })).await, -31025);
    assert_eq!(client.refused("key/remove", json!({ "provider": "nobody" })).await.code, -31008);
    check(&daemon, &[&client], &model, &[]);
}

#[tokio::test]
async fn a_turn_that_waits_goes_on_when_the_keychain_gets_its_key() {
    let model = ModelServer::with([Reply::new().stall(), Reply::text("hi")]);
    let daemon = prepare(&model, "api_key_env = \"KEPT_KEY\"");
    let Some(keychain) = Keychain::start(&daemon.dirs, true).await else { return };
    let bus = [keychain.env()];
    let with_key = [bus[0].clone(), ("KEPT_KEY".to_owned(), "canary-of-the-environment".to_owned())];
    daemon.launch_with(&with_key).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hi").await;
    model.wait_requests(1).await;

    // The key that was in its environment is gone after a crash; the turn waits for another.
    daemon.kill_all().await;
    daemon.launch_with(&bus).await;
    let back = daemon.client().await;
    back.attach(&session).await;
    let waiting = waits(&back, "").await;
    assert!(waiting.str("text").ends_with("or `linger key set kept`"), "{}", waiting.raw);
    let set = daemon.cli(&["key", "set", "kept"]).stdin(format!("\n{KEY}\r\n\n")).run().await.exits(0);
    set.says(&format!("stored the key of kept in the keychain; it is only sent to {}", model.url()));
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(model.requests().iter().map(bearer).collect::<Vec<_>>(), ["canary-of-the-environment", KEY]);
    let stored = std::fs::read_to_string(daemon.dirs.state().join("lingerd.keys")).unwrap();
    assert_eq!(stored, format!("kept {}\n", model.url()));

    // It is there for the next daemon, with nobody attached.
    daemon.kill_all().await;
    daemon.launch_with(&bus).await;
    let third = daemon.client().await;
    assert_eq!(row(&third, "kept").await["source"], "keychain");
    model.push([Reply::text("hi")]);
    third.attach(&session).await;
    third.prompt(&session, "again").await;
    third.nth(&session, "turn_finished", 2).await;
    assert_eq!(model.requests().last().map(bearer), Some(KEY));

    // What is taken away is gone.
    daemon.cli(&["key", "rm", "kept"]).run().await.exits(0);
    daemon.cli(&["key", "rm", "kept"]).run().await.exits(1).says("the keychain has no key for kept");
    assert_eq!(row(&third, "kept").await["source"], "missing");
    check(&daemon, &[&client, &back, &third], &model, &["canary-of-the-environment"]);
}

#[tokio::test]
async fn a_locked_keychain_is_waited_for_and_a_key_stays_with_its_address() {
    let (model, elsewhere) = (ModelServer::scripted(|_| Reply::text("hi")), ModelServer::start());
    let daemon = prepare(&model, "");
    let Some(mut keychain) = Keychain::start(&daemon.dirs, true).await else { return };
    let bus = [keychain.env()];
    daemon.launch_with(&bus).await;
    daemon.cli(&["key", "set", "kept"]).stdin(KEY).run().await.exits(0);
    keychain.lock().await;
    daemon.terminate();
    daemon.launch_with(&bus).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hi").await;
    // Before that it may be said that the keychain takes its time.
    let waiting = waits(&client, "the keychain is locked").await;
    let said = waiting.str("text");
    assert!(said.ends_with("`linger key list` tries again"), "{said}");
    assert_eq!(client.call("session/list", json!({})).await[0]["state"], "waiting");
    keychain.unlock().await;
    daemon.cli(&["key", "list"]).run().await.exits(0);
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(model.requests().last().map(bearer), Some(KEY));

    // The provider moves: whoever is there now does not get the key.
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let table = format!("[providers.kept]\nkind = \"openai\"\nbase_url = \"{}/v1\"", model.url());
    let moved = table.replace(&model.url(), &elsewhere.url());
    std::fs::write(daemon.dirs.config(), config.replace(&table, &moved)).unwrap();
    let moved = until("the provider has moved", async || {
        let row = row(&client, "kept").await;
        (row["at"] == json!(elsewhere.url())).then_some(row)
    })
    .await;
    assert_eq!((&moved["source"], &moved["elsewhere"]), (&json!("none"), &json!(model.url())));
    elsewhere.expect_rewrites();
    elsewhere.push([Reply::text("from there")]);
    client.prompt(&session, "hi").await;
    client.nth(&session, "turn_finished", 2).await;
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
    check(&daemon, &[&client], &model, &[]);
}

#[tokio::test]
async fn a_typed_key_is_not_shown() {
    let model = ModelServer::start();
    let daemon = prepare(&model, "");
    let Some(keychain) = Keychain::start(&daemon.dirs, true).await else { return };
    daemon.launch_with(&[keychain.env()]).await;
    let mut terminal = daemon.pty(&["key", "set", "kept"]);
    terminal.shows("key of kept (not shown): ").await;
    terminal.keys("typo\u{15}");
    terminal.line(&format!("{KEY}x\u{7f}"));
    terminal.shows("stored the key of kept in the keychain").await;
    assert_eq!(terminal.exits().await, 0);
    assert!(!terminal.text().contains("canary") && !terminal.text().contains("typo"), "{}", terminal.text());
    let client = daemon.client().await;
    assert_eq!(row(&client, "kept").await["source"], "keychain");

    let mut terminal = daemon.pty(&["key", "set", "kept"]);
    terminal.shows("key of kept (not shown): ").await;
    terminal.keys("canary\u{3}");
    terminal.shows("nothing was stored").await;
    assert_eq!(terminal.exits().await, 4);
    check(&daemon, &[&client], &model, &[]);
}

#[tokio::test]
async fn a_command_is_run_again_once_when_its_key_is_refused() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    model.require_key("canary-command-2");
    let daemon =
        prepare(&model, "api_key_command = \"echo x >> $HOME/runs; echo canary-command-$(wc -l < $HOME/runs)\"");
    daemon.launch().await;
    let client = daemon.client().await;
    let session = client.session().await;
    assert_eq!(client.turn(&session, "hi").await.str("stop_reason"), "end_turn");
    assert_eq!(model.requests().iter().map(bearer).collect::<Vec<_>>(), ["canary-command-1", "canary-command-2"]);
    let notice = client.first(&session, "notice").await;
    assert!(notice.str("text").ends_with("asking for the key again"), "{}", notice.raw);
    assert_eq!(client.turn(&session, "hi").await.str("stop_reason"), "end_turn");

    // It is refused again and again: one run more for each step, and an error that says so.
    model.require_key("another");
    let finished = client.turn(&session, "hi").await;
    assert_eq!((finished.str("stop_reason"), finished.str("detail")), ("error", "kept: 401: invalid api key"));
    assert!(finished.str("hint").contains("`linger key list`"), "{}", finished.raw);
    assert_eq!(model.requests().len(), 5);
    check(&daemon, &[&client], &model, &["canary-command-1", "canary-command-2", "canary-command-3"]);
}

#[tokio::test]
async fn whoever_wants_a_key_that_is_only_sent_to_its_vendor_is_told_how_to_send_it() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    model.require_key("canary-of-the-vendor");
    let env = vec![("ANTHROPIC_API_KEY".to_owned(), "canary-of-the-vendor".to_owned())];
    let provider = |more: &str| format!("[providers.anthropic]\nbase_url = \"{}\"\n{more}", model.url());
    let setup = Setup { model: Some("anthropic/c".to_owned()), config: provider(""), env, ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let named = "api_key_env = \"ANTHROPIC_API_KEY\"";
    let refused = daemon.cli(&["run", "hi"]).run().await.exits(1).says("base_url is an address of your own");
    assert!(refused.stderr.contains(&format!("{named} in [providers.anthropic] sends")), "{}", refused.stderr);
    std::fs::write(daemon.dirs.config(), format!("model = \"anthropic/c\"\n{}", provider(named))).unwrap();
    let client = daemon.client().await;
    client.confirm().await;
    until("the new configuration", async || {
        (row(&client, "anthropic").await["from"] == "ANTHROPIC_API_KEY").then_some(())
    })
    .await;
    assert_eq!(daemon.cli(&["run", "hi"]).run().await.exits(0).stdout, "hi\n");
    check(&daemon, &[&client], &model, &["canary-of-the-vendor"]);
}

#[tokio::test]
async fn a_command_that_gives_the_same_refused_key_is_not_asked_for_ever() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    model.require_key("another");
    // In two parts, as what the configuration says may be anywhere.
    let daemon = start(&model, "api_key_command = \"printf %s canary-of- a-command\"").await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "hi").await;
    assert_eq!(finished.str("detail"), "kept: 401: invalid api key");
    assert_eq!(model.requests().len(), 1);
    check(&daemon, &[&client], &model, &["canary-of-a-command"]);
}

#[tokio::test]
async fn a_command_that_fails_or_takes_its_time_is_named() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    let command = "k=canary-of-; k=${k}a-command; echo $k; echo no such entry: $k >&2; exit 3";
    let daemon = start(&model, &format!("api_key_command = \"{command}\"")).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "hi").await;
    let detail = finished.str("detail");
    assert!(detail.starts_with("the key of kept: `"), "{detail}");
    assert!(
        detail.contains("(api_key_command) failed: exit status: 3: no such entry: <redacted>; try it in a terminal"),
        "{detail}"
    );

    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let fifo = daemon.dirs.root().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    std::fs::write(daemon.dirs.config(), config.replace(command, &format!("cat {}", fifo.display()))).unwrap();
    client.confirm().await;
    until("the command is another", async || {
        (row(&client, "kept").await["from"].as_str()?.starts_with("cat ")).then_some(())
    })
    .await;
    client.prompt(&session, "hi").await;
    let waiting = waits(&client, "").await;
    let expect = format!("waiting for the key of provider kept, from `cat {}`", fifo.display());
    // The session still runs: nobody has to bring the key.
    assert_eq!((waiting.str("text"), waiting.str("code")), (expect.as_str(), "key_pending"));
    let listed = client.call("session/list", json!({ "matching": session })).await;
    assert_eq!(listed[0]["state"], "running", "`run` and `wait` go on: {listed}");
    std::fs::write(&fifo, "canary-of-a-command\n").unwrap();
    client.nth(&session, "turn_finished", 2).await;
    assert_eq!(model.requests().iter().map(bearer).collect::<Vec<_>>(), ["canary-of-a-command"]);
    check(&daemon, &[&client], &model, &["canary-of-a-command"]);
}

#[tokio::test]
async fn another_model_does_not_wait_for_the_key_of_the_one_before() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    let daemon = prepare(&model, "");
    let fifo = daemon.dirs.root().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    let slow = format!(
        "{config}\n[providers.slow]\nkind = \"openai\"\nbase_url = \"{}/v1\"\napi_key_command = \"cat {}\"\n",
        model.url(),
        fifo.display()
    );
    std::fs::write(daemon.dirs.config(), slow).unwrap();
    daemon.launch().await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": "slow/s" })).await;
    client.attach(&session).await;
    client.prompt(&session, "hi").await;
    waits(&client, "").await;
    client.call("session/set", json!({ "session": session, "model": "demo/demo" })).await;
    let finished = client.first(&session, "turn_finished").await;
    assert_eq!(finished.str("stop_reason"), "end_turn", "{}", finished.raw);
    assert_eq!(model.requests().len(), 0, "the one before is not asked");
    check(&daemon, &[&client], &model, &[]);
}

#[tokio::test]
async fn a_key_of_a_client_that_was_refused_is_replaced_by_the_next_clients() {
    let model = ModelServer::scripted(|_| Reply::text("hi"));
    model.require_key("canary-of-today");
    let daemon = start(&model, "api_key_env = \"KEPT_KEY\"").await;
    let run = |key: &'static str| daemon.cli(&["run", "hi"]).env("KEPT_KEY", key).run();
    run("canary-of-yesterday").await.exits(1).says("401: invalid api key").says("linger key list");
    let client = daemon.client().await;
    assert_eq!(row(&client, "kept").await["source"], "client");
    let said = run("canary-of-today").await.exits(0);
    assert_eq!(said.stdout, "hi\n");
    check(&daemon, &[&client], &model, &["canary-of-today", "canary-of-yesterday"]);
}

#[tokio::test]
async fn a_key_in_the_configuration_is_refused_with_its_place_and_the_three_ways() {
    let model = ModelServer::start();
    let daemon = start(&model, "").await;
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    std::fs::write(daemon.dirs.config(), format!("{config}api_key = \"{KEY}\"\n")).unwrap();
    let client = daemon.client().await;
    let error = until("the error is known", async || {
        let status = client.call("daemon/status", json!({})).await;
        status["config_error"].as_str().map(str::to_owned)
    })
    .await;
    let line = config.lines().count() + 1;
    assert!(
        error.contains(&format!("config.toml:{line}:1: providers.kept.api_key: a key is never written here")),
        "{error}"
    );
    assert!(["api_key_env", "api_key_command", "linger key set"].iter().all(|way| error.contains(way)), "{error}");
    let said = daemon.cli(&["ls"]).run().await.exits(0).says("a key is never written here");
    assert!(!said.stderr.contains(KEY));
    std::fs::write(daemon.dirs.config(), config).unwrap();
    check(&daemon, &[&client], &model, &[]);
}
