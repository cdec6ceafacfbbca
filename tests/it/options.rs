//! Options of `linger run` that one session has for itself: rules, and a text for its system prompt.

use std::fs;

use linger_tests::harness::Daemon;
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};

fn bash(command: &str) -> Reply {
    Reply::tool("bash", json!({ "command": command }))
}

/// The system prompt of the `n`th request.
fn system(model: &ModelServer, n: usize) -> String {
    let messages = model.requests()[n].json["messages"].clone();
    let first = messages.as_array().and_then(|all| all.iter().find(|it| it["role"] == "system"));
    first.map(|it| it["content"].as_str().map_or_else(|| it["content"].to_string(), str::to_owned)).unwrap_or_default()
}

#[tokio::test]
async fn a_rule_of_run_holds_in_its_session_alone() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash("echo one"), bash("echo two"), Reply::text("done")]);
    let run = daemon.cli(&["run", "--allow", "bash(echo:*)", "--allow", "bash(true)", "go"]).run().await.exits(0);
    assert_eq!(run.stdout, "done\n");
    // Nothing else is allowed there, and nothing of it elsewhere.
    model.push([bash("echo one; touch made")]);
    daemon.cli(&["run", "--allow", "bash(echo:*)", "go"]).run().await.exits(3);
    model.push([bash("echo one")]);
    daemon.cli(&["run", "go"]).run().await.exits(3);
    assert!(!daemon.workspace().join("made").exists());
    let rules = daemon.cli(&["permissions", "--json"]).run().await.exits(0).stdout;
    assert!(!rules.contains("echo"), "{rules}");
    // The session keeps it: also over a restart.
    model.push([bash("echo three"), Reply::text("still")]);
    let client = daemon.client().await;
    let rows = client.call("session/list", json!({})).await;
    let first = rows.as_array().unwrap().iter().filter(|row| row["state"] == "idle");
    let first = first.map(|row| row["session"].as_str().unwrap().to_owned()).next().unwrap();
    daemon.kill_and_restart().await;
    daemon.cli(&["run", "-s", &first, "again"]).run().await.exits(0);
    // What is no rule, or one that says too much, makes no session.
    let count = async || daemon.client().await.call("session/list", json!({})).await.as_array().map_or(0, Vec::len);
    let before = count().await;
    for (rule, why) in [("bash(echo", "bash(echo"), ("bsh(echo)", "bsh"), ("bash(sudo:*)", "bash(sudo:*)")] {
        let refused = daemon.cli(&["run", "--allow", rule, "go"]).run().await;
        assert!(refused.code != 0 && refused.stderr.contains(why), "{rule}: {refused:?}");
    }
    assert_eq!(count().await, before);
}

#[tokio::test]
async fn a_text_of_run_is_a_part_of_its_sessions_system_prompt() {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = Daemon::start(&model).await;
    fs::write(daemon.workspace().join("terse.md"), "Answer in one word.\n").unwrap();
    let run = |args: &[&str]| daemon.cli(args).cwd(daemon.workspace());
    run(&["run", "--system", "terse.md", "go"]).run().await.exits(0);
    run(&["run", "-c", "and again"]).run().await.exits(0);
    run(&["run", "go"]).run().await.exits(0);
    assert!(system(&model, 0).contains("Answer in one word."), "{}", system(&model, 0));
    assert_eq!(system(&model, 1), system(&model, 0), "the session keeps it");
    assert!(!system(&model, 2).contains("one word"), "{}", system(&model, 2));
    fs::write(daemon.workspace().join("long.md"), "x".repeat(20_000)).unwrap();
    fs::write(daemon.workspace().join("no-text"), b"\xff\xfe").unwrap();
    for (file, why) in [("gone.md", "gone.md: No such file"), ("long.md", "16384 bytes"), ("no-text", "no-text: ")] {
        run(&["run", "--system", file, "go"]).run().await.exits(2).says(why);
    }
    assert_eq!(model.requests().len(), 3);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn both_belong_to_a_session_that_is_made_and_not_to_one_that_is_there() {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = Daemon::start(&model).await;
    let made: Value = daemon.cli(&["run", "-d", "--json", "go"]).run().await.exits(0).json()[0].clone();
    let session = made["session"].as_str().unwrap();
    daemon.cli(&["wait", session]).run().await.exits(0);
    for option in [["--allow", "bash(true)"], ["--system", "/dev/null"]] {
        let [option, value] = option;
        daemon.cli(&["run", "-s", session, option, value, "go"]).run().await.exits(2).says(option);
    }
    daemon.check(&[], &model);
}
