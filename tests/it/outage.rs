//! Turns that outlive their network: a provider that restarts, a name that is gone, a route that is gone.

#![allow(clippy::disallowed_methods)] // A network of its own is made by other programs.

use std::process::Command;
use std::time::Duration;

use linger_tests::harness::{Client, Daemon, Setup, comes_true, process};
use linger_tests::model::{Format, ModelServer, PATIENCE, Reply};
use serde_json::{Value, json};

/// Set in the process that runs in a network of its own.
const INSIDE: &str = "LINGER_TEST_OWN_NETWORK";

/// How long an outage lasts, in seconds, unless `LINGER_TEST_OUTAGE_S` says otherwise: longer than a wait that is none of the
/// turn's states.
const OUTAGE_S: u64 = 4;

fn outage() -> Duration {
    let seconds = std::env::var("LINGER_TEST_OUTAGE_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(OUTAGE_S))
}

/// Each step answers with a call that leaves a line, so that whatever happened twice shows.
async fn works(daemon: &Daemon, model: &ModelServer, name: &str) -> (Client, String) {
    works_after(daemon, model, name, []).await
}

/// The same, after these answers.
async fn works_after(
    daemon: &Daemon,
    model: &ModelServer,
    name: &str,
    first: impl IntoIterator<Item = Reply>,
) -> (Client, String) {
    let client = daemon.client().await;
    let session = client.create_with(json!({ "model": name })).await;
    client.attach(&session).await;
    model.push([Reply::text("hello")]);
    assert_eq!(client.turn(&session, "hi").await.str("stop_reason"), "end_turn");
    let call = |line: &str| Reply::tool("bash", json!({ "command": daemon.effect(line) }));
    model.push(first);
    model.push([call("one"), call("two"), Reply::text("done")]);
    (client, session)
}

async fn ended_well(daemon: &Daemon, client: &Client, session: &str) {
    assert_eq!(client.nth(session, "turn_finished", 2).await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "one\ntwo\n");
}

async fn row(client: &Client) -> Value {
    client.call("session/list", json!({})).await[0].clone()
}

/// Waits until the turn waits for its provider; gives since when.
async fn waits(client: &Client, session: &str) -> u64 {
    let lasts = |seen: &linger_tests::check::Transcript| {
        let mut notices = seen.of("notice").filter(|seen| seen.str("code") == "retry");
        notices.find_map(|seen| seen.event["since_at"].as_u64())
    };
    let since = client.wait("a wait that lasts", lasts).await;
    let row = row(client).await;
    assert_eq!((&row["session"], &row["state"]), (&json!(session), &json!("running")));
    assert_eq!(row["provider_wait"]["since_at"], since, "{row}");
    since
}

#[tokio::test]
async fn a_provider_that_restarts_and_a_daemon_that_is_killed_meanwhile_cost_nothing() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let (client, session) = works(&daemon, &model, "work/m").await;
    model.go_away().await;
    client.prompt(&session, "go").await;
    let since = waits(&client, &session).await;
    let listed = daemon.cli(&["ls"]).run().await.exits(0).stdout;
    assert!(listed.contains("waiting: provider") && listed.contains("Connection refused"), "{listed}");
    let before = client.hang_up();
    daemon.kill_daemon().await;
    let client = daemon.client().await;
    client.continues(before);
    client.attach_after(&session, &client.cursor(&session)).await;
    client.wait("the turn resumes", |seen| seen.of("notice").find(|seen| seen.str("code") == "resumed").cloned()).await;
    assert_eq!(row(&client).await["provider_wait"]["since_at"], since);
    model.come_back().await;
    ended_well(&daemon, &client, &session).await;
    assert!(client.transcript().of("notice").any(|seen| seen.str("code") == "reached"));
    assert!(row(&client).await["provider_wait"].is_null());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn run_in_a_terminal_says_how_to_leave_a_turn_that_waits_and_control_d_leaves_it() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let (client, session) = works(&daemon, &model, "work/m").await;
    model.go_away().await;
    let mut terminal = daemon.pty(&["run", "-s", &session, "go"]);
    terminal.shows("Ctrl-C cancels, Ctrl-D detaches").await;
    terminal.keys("\x04");
    terminal.shows("detached; the work continues").await;
    assert_eq!(terminal.exits().await, 143);
    model.come_back().await;
    ended_well(&daemon, &client, &session).await;
    daemon.check(&[&client], &model);
}

/// Runs the test of this name once more in a network and with a table of hosts of its own; whether this is that process.
fn in_own_network(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    let own = std::env::current_exe().unwrap();
    command.args(["-n", "-m", "--"]).arg(own).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    let may = Command::new("unshare").args(["-n", "-m", "ip", "link", "set", "lo", "up"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no network of its own here (unshare, ip, root)");
        return false;
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn does(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The next life of the daemon, which has no open connection to the provider, and knows that it has answered.
async fn next_life(daemon: &Daemon, client: Client, session: &str) -> Client {
    let reached = daemon.dirs.state().join("lingerd.reached");
    let known = || std::fs::read_to_string(&reached).is_ok_and(|text| text.ends_with('\n'));
    assert!(comes_true(linger_tests::TIMEOUT, known), "it is not written that the provider has answered");
    let before = client.hang_up();
    daemon.kill_and_restart().await;
    let client = daemon.client().await;
    client.continues(before);
    client.attach_after(session, &client.cursor(session)).await;
    client
}

/// The daemon's time on the processor, in seconds, while `for_long` goes by.
async fn cpu_during(daemon: &Daemon, for_long: Duration) -> f64 {
    let pid = daemon.pid().await;
    let before = process::cpu(pid);
    tokio::time::sleep(for_long).await;
    process::cpu(pid) - before
}

#[tokio::test]
async fn a_route_that_is_gone_and_a_name_that_is_gone_are_waited_for() {
    if !in_own_network("outage::a_route_that_is_gone_and_a_name_that_is_gone_are_waited_for") {
        return;
    }
    does("ip", &["link", "set", "lo", "up"]);
    let hosts = tempfile::NamedTempFile::new().unwrap();
    let here = "127.0.0.1 localhost model.test\n";
    std::fs::write(hosts.path(), here).unwrap();
    does("mount", &["--bind", hosts.path().to_str().unwrap(), "/etc/hosts"]);
    let model = ModelServer::start();
    let named = model.url().replace("127.0.0.1", "model.test");
    // Packets to an interface that is down get no answer.
    let config = Format::OpenAi.provider("named", &named).replace(PATIENCE, "1h")
        + "connect_timeout_ms = 500\nidle_timeout_ms = 1000\n";
    let setup = Setup { mode: "auto", config, ..Setup::default() };
    for (what, pull, put_back) in outages(hosts.path().to_str().unwrap()) {
        let daemon = Daemon::start_with(&model, setup.clone()).await;
        let begins = what == MIDST;
        let (client, session) =
            works_after(&daemon, &model, "named/m", begins.then(|| Reply::text("half an ans").stall())).await;
        let client = next_life(&daemon, client, &session).await;
        if begins {
            client.prompt(&session, "go").await;
            let is_part = |seen: &linger_tests::check::Seen| seen.str("text").starts_with("half");
            client.wait("a part of the answer", |seen| seen.of("text_delta").find(|seen| is_part(seen)).cloned()).await;
            pull();
        } else {
            pull();
            client.prompt(&session, "go").await;
        }
        let since = waits(&client, &session).await;
        let cpu = cpu_during(&daemon, outage()).await;
        eprintln!("{what}: {cpu:.3} s on the processor in {:?}", outage());
        // A try takes a few milliseconds; an outage has a dozen of them, and then two a minute.
        assert!(cpu <= 0.05 + outage().as_secs_f64() / 3000.0, "{what}: {cpu} s");
        put_back();
        // Someone is there: it tries at once.
        client.call("session/continue", json!({ "session": session })).await;
        ended_well(&daemon, &client, &session).await;
        let tries = client.transcript().of("notice").filter(|seen| seen.str("code") == "retry").count();
        let most = 12 + outage().as_secs() / 15;
        assert!((2..most as usize).contains(&tries), "{what}: {tries} notices since {since}");
        daemon.check(&[&client], &model);
    }
}

/// The route goes in the middle of an answer.
const MIDST: &str = "route in the middle of a step";

type Switch = Box<dyn Fn()>;

/// The outages, with how each begins and ends.
fn outages(hosts: &str) -> [(&'static str, Switch, Switch); 3] {
    let route = |up: &'static str| move || does("ip", &["link", "set", "lo", up]);
    let (gone, back) = (hosts.to_owned(), hosts.to_owned());
    [
        ("route", Box::new(route("down")), Box::new(route("up"))),
        (MIDST, Box::new(route("down")), Box::new(route("up"))),
        (
            "name",
            Box::new(move || std::fs::write(&gone, "127.0.0.1 localhost\n").unwrap()),
            Box::new(move || std::fs::write(&back, "127.0.0.1 localhost model.test\n").unwrap()),
        ),
    ]
}
