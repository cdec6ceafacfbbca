//! The configuration changes while the daemon runs.

use linger_tests::check::Seen;
use linger_tests::harness::{Daemon, Setup, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

pub(crate) use crate::shared::configuration::later_is_at;

#[tokio::test]
async fn a_turn_that_was_cut_goes_on_when_a_configuration_that_was_broken_at_the_start_is_mended() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (session, asks) = (client.session().await, client.create_with(json!({ "model": "work/asks" })).await);
    client.attach(&asks).await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    model.push_for("asks", [crate::bash(&daemon.effect("once")), Reply::text("done")]);
    client.prompt(&asks, "go").await;
    let asked = client.first(&asks, "permission_requested").await;
    let good = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    std::fs::write(daemon.dirs.config(), format!("{good}\nmodel =")).unwrap();
    // Twice: what was decided without a configuration is not decided for ever.
    for _ in 0..2 {
        daemon.kill_all().await;
        daemon.launch().await;
    }
    let back = daemon.client().await;
    for session in [&session, &asks] {
        back.attach(session).await;
        let waits = |seen: &&Seen| seen.session == **session && seen.str("code") == "unconfigured";
        back.wait("what it waits for", |seen| seen.of("notice").find(waits).cloned()).await;
    }
    let rows = back.call("session/list", json!({})).await;
    assert!(rows.as_array().unwrap().iter().all(|row| row["state"] == "offered"), "{rows}");
    crate::answer(&back, asked.str("permission"), "allow_once").await;
    assert!(!daemon.side_effects().exists(), "nothing runs without rules");
    assert_eq!(model.requests().len(), 2, "nothing was asked of the model");
    std::fs::write(daemon.dirs.config(), good).unwrap();
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(back.first(&asks, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_command_sees_what_was_written_into_the_configuration_before_it() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let before = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    for round in 0..10 {
        let model = ["work/one", "work/other"][round % 2];
        std::fs::write(daemon.dirs.config(), before.replace("\"work/m\"", &format!("\"{model}\""))).unwrap();
        daemon.cli(&["new"]).run().await.exits(0);
        let latest = daemon.cli(&["ls", "--json"]).run().await.exits(0).json().remove(0);
        assert_eq!(latest["model"], model);
    }
    std::fs::write(daemon.dirs.config(), "mode = \"none\"").unwrap();
    daemon.cli(&["ls"]).run().await.exits(0).says("config.toml:1");
}

#[tokio::test]
async fn a_configuration_that_is_no_text_is_named_with_its_line() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let mut text = std::fs::read(daemon.dirs.config()).unwrap();
    let line = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    text.extend(b"# caf\xe9\n");
    std::fs::write(daemon.dirs.config(), text).unwrap();
    until("the daemon has seen it", async || {
        let output = daemon.cli(&["ls"]).run().await.exits(0);
        output.stderr.contains(&format!("line {line} is not UTF-8")).then_some(())
    })
    .await;
    let output = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(
        output.stderr.contains("config.toml") && output.stderr.contains("last valid content is used"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn doctor_says_once_what_is_wrong_with_the_configuration() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let config = daemon.dirs.config();
    let knows = async |part: &str| {
        until("the daemon has looked", async || {
            let status = client.call("daemon/status", json!({})).await;
            status["config_error"].as_str()?.contains(part).then_some(())
        })
        .await;
    };
    std::fs::write(&config, "modell = \"x\"\n").unwrap();
    knows("modell").await;
    let said = daemon.cli(&["doctor"]).run().await.exits(1).stdout;
    assert_eq!((said.matches("config.toml").count(), said.matches("configuration").count()), (2, 0), "{said}");
    std::fs::remove_file(&config).unwrap();
    std::fs::create_dir(&config).unwrap();
    knows("is not a file").await;
    // One that has never read a good one says it to every question.
    daemon.kill_daemon().await;
    let said = daemon.cli(&["doctor"]).run().await.exits(1).stdout;
    assert_eq!((said.matches("is not a file").count(), said.matches("configuration").count()), (1, 0), "{said}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn doctor_names_a_workspaces_configuration_that_is_wrong_or_waits() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let dir = daemon.workspace().join(".linger");
    std::fs::create_dir(&dir).unwrap();
    let doctor = async |text: &str, code: i32| {
        std::fs::write(dir.join("config.toml"), text).unwrap();
        daemon.cli(&["doctor"]).cwd(daemon.workspace()).run().await.exits(code).stdout
    };
    let said = doctor("mode = 'auto'\n", 1).await;
    assert!(said.contains("config.toml:1:1: mode: ") && said.contains("everything in this workspace asks"), "{said}");
    let said = doctor("permissions.allow = ['bash(make:*)']\n", 0).await;
    assert!(said.contains(" wait for your trust\n  hint: run `linger trust`"), "{said}");
    let said = doctor("permissions.deny = ['bash(make:*)']\n", 0).await;
    assert!(!said.contains("everything in this workspace asks") && !said.contains("trust"), "{said}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn doctor_and_validate_name_a_program_of_attention_that_is_not_there() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let set = async |command: &str| {
        let value = json!([command, "linger"]).to_string();
        client.call("config/set", json!({ "name": "attention.command", "value": value })).await;
    };
    set("/nonexistent/push").await;
    let text = "attention.command: /nonexistent/push does not exist";
    let said = daemon.cli(&["doctor"]).run().await.exits(1).stdout;
    assert!(said.contains(text) && said.contains("hint: put the program there"), "{said}");
    daemon.cli(&["validate"]).run().await.exits(0).says("0 errors, 1 warning");
    set("true").await;
    let said = daemon.cli(&["doctor"]).run().await.exits(0).stdout;
    assert!(said.contains("attention runs true"), "{said}");
    daemon.cli(&["validate"]).run().await.exits(0).says("0 errors, 0 warnings");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_rule_that_protects_nothing_is_said_to_whoever_connects() {
    let model = ModelServer::with([Reply::text("done")]);
    let config = "[permissions]\ndeny = [\"raed(**/.env)\"]\n".to_owned();
    let daemon = Daemon::start_with(&model, Setup { config, ..Setup::default() }).await;
    let output = daemon.cli(&["run", "hi"]).run().await.exits(0);
    assert_eq!(output.stdout, "done\n");
    let said = "permissions.deny: `raed(**/.env)` never matches: no tool is called `raed`";
    assert!(output.stderr.contains("warning: config.toml:") && output.stderr.contains(said), "{}", output.stderr);
}
