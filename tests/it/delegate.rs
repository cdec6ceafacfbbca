//! Delegation across `kill -9`: the parent joins its child, which goes on like any session.

use linger_tests::harness::{Daemon, programs};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::{Value, json};

/// Answers of a hub with two tasks; the answer of `slow` waits at the gate the first time.
fn script(gate: &Gate) -> impl FnMut(&linger_tests::model::Recorded) -> Reply + Send + 'static {
    let gate = gate.clone();
    let form =
        |answer: &str| json!({ "answer": answer, "sources": [], "confidence": "high", "caveats": [] }).to_string();
    move |request| match request.last_words().split(' ').next().unwrap_or_default() {
        word if word.starts_with("slow") && !gate.is_reached() => Reply::text("{\"answer\":").gate(&gate),
        word if word.starts_with("slow") => Reply::text(form("slow is done")),
        word if word.starts_with("quick") => Reply::text(form("quick is done")),
        _ if request.after_tool() => Reply::text("both are in"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "slow one" }))
            .and_tool("delegate", json!({ "agent": "general", "task": "quick one" })),
    }
}

#[tokio::test]
async fn a_parent_that_comes_back_after_a_kill_joins_its_children() {
    let gate = Gate::new();
    let model = ModelServer::scripted(script(&gate));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    gate.reached().await;
    client
        .wait("the end of the quick one", |seen| {
            seen.of("child_updated").find(|seen| seen.event["status"] == "finished").map(|_| ())
        })
        .await;
    daemon.kill_daemon().await;
    client.closed().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let seen = back.transcript();
    let mut results: Vec<(String, Value)> = seen
        .of("tool_finished")
        .map(|seen| {
            let text = seen.event["content"][0]["text"].as_str().unwrap();
            (seen.str("call_id").to_owned(), serde_json::from_str::<Value>(text).unwrap()["answer"].clone())
        })
        .collect();
    results.sort_by_key(|(call, _)| call.clone());
    let answers: Vec<&Value> = results.iter().map(|(_, answer)| answer).collect();
    assert_eq!(answers, ["slow is done", "quick is done"]);
    let rows = back.call("session/list", json!({})).await;
    let children = rows.as_array().unwrap().iter().filter(|row| row["parent"] == session);
    assert_eq!(children.count(), 2, "none was made twice");
    daemon.check(&[&back], &model);
}

#[tokio::test]
async fn a_result_from_the_background_survives_a_kill() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |request| match request.last_words() {
        words if words.starts_with("slow") && !held.is_reached() => Reply::text("{\"answer\":").gate(&held),
        words if words.starts_with("slow") => {
            Reply::text(json!({ "answer": "done", "sources": [], "confidence": "low", "caveats": [] }).to_string())
        }
        words if words.contains("not the user") => Reply::text("thanks"),
        _ if request.after_tool() => Reply::text("it works on it"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "slow", "background": true })),
    });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    gate.reached().await;
    daemon.kill_daemon().await;
    client.closed().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.nth(&session, "turn_finished", 2).await;
    let said = back.transcript().of("prompt_accepted").filter(|seen| !seen.str("child").is_empty()).count();
    assert_eq!(said, 1);
    daemon.check(&[&back], &model);
}

/// `linger` as a tool's process runs it, with the directories of this daemon.
fn linger(daemon: &Daemon) -> String {
    let variables: Vec<String> = daemon.env(false).iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    format!("env {} {}", variables.join(" "), programs().client.display())
}

/// Makes a directory a repository with a commit.
#[allow(clippy::disallowed_methods)] // As the user of the repository would.
fn repository(dir: &std::path::Path) {
    let setup = "git init -q -b main && echo a > a && git add . && git -c user.name=a -c user.email=a@b commit -q -m a";
    let made = std::process::Command::new("sh").args(["-c", setup]).current_dir(dir).status().unwrap();
    assert!(made.success());
}

#[tokio::test]
async fn a_worktree_survives_a_kill_and_a_person_merges_it_and_no_tool_does() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |request| match request.last_words() {
        words if words.starts_with("slow") && request.after_tool() => match held.is_reached() {
            false => Reply::text("{\"answer\":").gate(&held),
            true => {
                Reply::text(json!({ "answer": "done", "sources": [], "confidence": "low", "caveats": [] }).to_string())
            }
        },
        words if words.starts_with("slow") => Reply::tool("write", json!({ "path": "new", "content": "new\n" })),
        words if words.starts_with("run ") && !request.after_tool() => {
            Reply::tool("bash", json!({ "command": words.trim_start_matches("run ") }))
        }
        _ if request.after_tool() => Reply::text("so it is"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "slow", "worktree": true })),
    });
    let daemon = Daemon::auto(&model).await;
    repository(&daemon.workspace());
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    gate.reached().await;
    daemon.kill_daemon().await;
    client.closed().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    let rows = back.call("session/list", json!({})).await;
    let children: Vec<&Value> = rows.as_array().unwrap().iter().filter(|row| row["parent"] == session).collect();
    let [child] = children.as_slice() else { panic!("{children:?}") };
    let id = child["session"].as_str().unwrap();
    let place = daemon.dirs.database().with_file_name("worktrees");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1, "there is one worktree");
    let listed = daemon.cli(&["ls"]).run().await.exits(0).stdout;
    assert!(listed.contains(&format!("worktree on linger/{id}: `linger merge {id}` merges")), "{listed}");

    // A process of a tool's cannot merge; a person can.
    back.turn(&session, &format!("run {} merge {id}", linger(&daemon))).await;
    let refused = back.nth(&session, "tool_finished", 2).await.event.to_string();
    assert!(refused.contains("merge the work of a child"), "{refused}");
    assert!(!daemon.workspace().join("new").exists());
    let merged = daemon.cli(&["merge", id]).run().await.exits(0).says("`git reset --keep");
    assert_eq!(merged.stdout, "new\n");
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("new")).unwrap(), "new\n");
    daemon.cli(&["merge", id]).run().await.fails_with_hint(1).says("nothing to merge");
    let listed = daemon.cli(&["ls"]).run().await.exits(0).stdout;
    assert!(listed.contains(&format!("worktree on linger/{id}, merged")), "{listed}");
    daemon.check(&[&back], &model);
}
