//! The variables of tools: what a shell has, but secrets; those that are passed stay in memory.

use std::path::Path;

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

use crate::{after_tool, bash};

/// A secret, and one that no configuration passes.
const TOKEN: &str = "canary-of-gh-token";
const OTHER: &str = "canary-of-npm-token";

/// Whether a file below `dir` has `text` in it.
fn is_in_a_file(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => is_in_a_file(&path, text),
            Ok(metadata) if metadata.is_file() => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                bytes.windows(text.len()).any(|window| window == text.as_bytes())
            }
            _ => false,
        }
    })
}

#[tokio::test]
async fn tools_get_the_variables_of_the_shell_and_secrets_only_if_they_are_passed_and_in_memory_alone() {
    // What the command says does not have the secret in it.
    let command =
        format!("test \"$GH_TOKEN\" = {} && echo passed; echo \"${{NPM_TOKEN-withheld}} $KUBECONFIG $TERM\"", {
            let (head, tail) = TOKEN.split_at(6);
            format!("{head}\"\"{tail}")
        });
    let model =
        ModelServer::scripted(move |request| if after_tool(request) { Reply::text("done") } else { bash(&command) });
    let config = "[env]\npass = [\"GH_TOKEN\"]".to_owned();
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let shell = |args: &[&str]| daemon.cli(args).env("GH_TOKEN", TOKEN).env("NPM_TOKEN", OTHER).env("KUBECONFIG", "/k");
    let started = shell(&["run", "-d", "go"]).run().await.exits(0);
    let session = started.stdout.trim().to_owned();
    shell(&["wait", &session]).run().await.exits(0);
    let client = daemon.client().await;
    client.attach(&session).await;
    let output = client.first(&session, "tool_finished").await.event["content"][0]["text"].to_string();
    assert!(output.contains("passed") && output.contains("withheld /k dumb"), "{output}\n{}", started.stderr);
    let created = client.first(&session, "session_created").await;
    assert_eq!(created.event["env"]["GH_TOKEN"], "<in memory>");
    let env = &shell(&["env", &session, "--json"]).run().await.exits(0).json()[0];
    assert_eq!((&env["secret"], &env["missing"]), (&json!(["GH_TOKEN"]), &json!([])));
    assert_eq!(env["withheld"]["NPM_TOKEN"], "looks like a secret");
    let said = shell(&["env"]).run().await.exits(0).stdout;
    assert!(said.contains("secret, only in the daemon's memory") && !said.contains("canary"), "{said}");
    let doctor = shell(&["doctor"]).run().await.stdout;
    assert!(doctor.contains("NPM_TOKEN") && !doctor.contains(OTHER), "{doctor}");

    // A client that leaves nothing out gives them no more.
    let all = json!({ "NPM_TOKEN": OTHER, "ANTHROPIC_API_KEY": OTHER, "LD_PRELOAD": "/x", "LINGER_SOCKET": "/x",
                      "KUBECONFIG": "/k" });
    let careless = client.create_with(json!({ "env": all })).await;
    let given = client.call("session/env", json!({ "session": careless })).await;
    assert_eq!((&given["variables"], &given["secret"]), (&json!(["KUBECONFIG"]), &json!([])), "{given}");

    client.hang_up();
    daemon.kill_and_restart().await;
    let client = daemon.client().await;
    let attached = client.call("session/attach", json!({ "session": session })).await;
    assert_eq!(attached["missing_env"], json!(["GH_TOKEN"]));
    let finished = client.turn(&session, "again").await;
    assert_eq!(finished.str("stop_reason"), "end_turn");
    let transcript = client.transcript();
    let missing = transcript.of("notice").find(|notice| notice.str("text").contains("do not get GH_TOKEN"));
    assert!(missing.is_some(), "no notice says so");
    let last = |n: usize| {
        let transcript = client.transcript();
        let outputs: Vec<_> =
            transcript.of("tool_finished").map(|end| end.event["content"][0]["text"].to_string()).collect();
        outputs[n].clone()
    };
    assert!(!last(1).contains("passed"), "{}", last(1));
    // A client brings it, with a prompt; one that is not passed is not taken.
    shell(&["send", &session, "once more"]).run().await.exits(0);
    client.nth(&session, "tool_finished", 3).await;
    assert!(last(2).contains("passed") && last(2).contains("withheld"), "{}", last(2));
    client.nth(&session, "turn_finished", 3).await;
    let env = &daemon.cli(&["env", &session, "--json"]).run().await.exits(0).json()[0];
    assert_eq!(env["missing"], json!([]));
    for secret in [TOKEN, OTHER] {
        assert!(!is_in_a_file(daemon.dirs.root(), secret), "{secret} is in a file");
    }
    daemon.check(&[&client], &model);
}
