//! Delegation across `kill -9`: the parent joins its child, which goes on like any session.

use linger_tests::harness::{Daemon, Setup, programs};
use linger_tests::model::{Format, Gate, ModelServer, PATIENCE, Reply};
use serde_json::{Value, json};

use crate::shared::schema::gives;

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

/// Three agents with models of three formats.
fn spokes(model: &ModelServer) -> Setup {
    let config = format!(
        "[providers.google]\nkind = \"gemini\"\nbase_url = \"{}/v1beta\"\napi_key_env = \"GOOGLE_KEY\"\n\
         patience = \"{PATIENCE}\"\n",
        model.url()
    );
    let env = vec![("GOOGLE_KEY".to_owned(), "canary-of-google-0123456789".to_owned())];
    let agents = [("reader", "claude/c"), ("tester", "work/w"), ("writer", "google/gemini-2.5-pro")];
    let file = |(name, model): (&str, &str)| {
        let text = format!("---\nname: {name}\ndescription: a {name}\nmodel: {model}\n---\nYou are the {name}.\n");
        (format!("agents/{name}.md"), text)
    };
    Setup { config, env, user_files: agents.map(file).to_vec(), ..Setup::default() }
}

#[tokio::test]
async fn a_hub_gets_three_results_in_order_of_which_one_was_denied_one_repaired_and_one_cut_by_a_kill() {
    let (gate, model) = (Gate::new(), ModelServer::start());
    let daemon = Daemon::start_with(&model, spokes(&model)).await;
    let form = |answer: &str| json!({ "answer": answer, "sources": [], "confidence": "high", "caveats": [] });
    let task = |agent: &str, task: &str| json!({ "agent": agent, "task": task });
    let hub = Reply::tool("delegate", task("reader", "read alpha"))
        .and_tool("delegate", task("tester", "test beta"))
        .and_tool("delegate", task("writer", "write gamma"));
    model.push_for("m", [hub, Reply::text("all three are in")]);
    model.push_for(
        "c",
        [Reply::tool("bash", json!({ "command": "touch made" })), gives(Format::Anthropic, &form("alpha was denied"))],
    );
    model.push_for("w", [Reply::text("beta is fine"), gives(Format::OpenAi, &form("beta is tested"))]);
    let held = gate.clone();
    model.otherwise(move |request| match (request.model(), held.is_reached()) {
        ("gemini-2.5-pro", false) => Reply::text("{\"answer\":").gate(&held),
        ("gemini-2.5-pro", true) => gives(Format::Gemini, &form("gamma is written")),
        (other, _) => panic!("nothing was scripted for {other}"),
    });
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.wait("a question of a child", |seen| {
        let waits = seen.of("child_updated").find(|seen| seen.event["status"] == "waiting");
        waits.map(|seen| seen.event["questions"][0].clone())
    });
    let asked = asked.await;
    client.call("permission/answer", json!({ "permission": asked, "decision": "reject_once" })).await;
    let ended = client.wait("the end of two", |seen| {
        let finished = seen.of("child_updated").filter(|seen| seen.event["status"] == "finished");
        (finished.count() == 2).then_some(())
    });
    ended.await;
    gate.reached().await;
    daemon.kill_daemon().await;
    client.closed().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let seen = back.transcript();
    // As the hub's model reads them.
    let told = seen.of("message").rfind(|seen| seen.event["content"][0]["type"] == "tool_result").unwrap();
    let answer = |block: &Value| {
        let text = block["content"][0]["text"].as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()["answer"].clone()
    };
    let answers: Vec<Value> = told.event["content"].as_array().unwrap().iter().map(answer).collect();
    assert_eq!(answers, ["alpha was denied", "beta is tested", "gamma is written"]);
    assert!(!daemon.workspace().join("made").exists());
    daemon.check(&[&client, &back], &model);
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

#[tokio::test]
async fn wait_for_a_parent_waits_for_its_children_in_the_background() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |request| match request.last_words() {
        words if words.starts_with("slow") => {
            let form = json!({ "answer": "done", "sources": [], "confidence": "low", "caveats": [] }).to_string();
            Reply::text("").gate(&held).and_text(form)
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
    let late = daemon.cli(&["wait", &session, "--timeout", "1"]).run().await;
    assert_eq!(late.code, 124, "{late:?}");
    let waiting = daemon.cli(&["wait", &session]).spawn().await;
    gate.open();
    waiting.end().await.exits(0);
    client.nth(&session, "turn_finished", 2).await;
    daemon.check(&[&client], &model);
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
        words if words.starts_with("slow") && request.after_tool() => {
            if held.is_reached() {
                Reply::text(json!({ "answer": "done", "sources": [], "confidence": "low", "caveats": [] }).to_string())
            } else {
                Reply::text("{\"answer\":").gate(&held)
            }
        }
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
    assert!(listed.contains(&format!("worktree on linger/{id}: merge it with `linger merge {id}`")), "{listed}");

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

#[tokio::test]
async fn merge_at_the_prompt_offers_the_children_and_says_how_it_is_taken_back() {
    let model = ModelServer::scripted(|request| match request.last_words() {
        words if words.starts_with("improve") && request.after_tool() => {
            Reply::text(json!({ "answer": "done", "sources": [], "confidence": "low", "caveats": [] }).to_string())
        }
        words if words.starts_with("improve") => Reply::tool("write", json!({ "path": "new", "content": "new\n" })),
        _ if request.after_tool() => Reply::text("it is done"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "improve", "worktree": true })),
    });
    let daemon = Daemon::auto(&model).await;
    repository(&daemon.workspace());
    let mut terminal = daemon.pty(&[]);
    terminal.prompts().await;
    terminal.line("go");
    terminal.shows("it is done").await;
    terminal.prompts().await;
    terminal.line("/merge");
    terminal.shows("type to filter").await;
    terminal.keys("\r");
    terminal.shows("merged linger/").await;
    terminal.shows("undo it with").await;
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("new")).unwrap(), "new\n");
    terminal.prompts().await;
    terminal.line("/merge");
    terminal.shows("no child has a git worktree to merge").await;
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_childs_question_is_answered_at_the_childs_own_prompt_while_its_parent_watches() {
    let model = ModelServer::scripted(|request| match request.last_words() {
        words if words.starts_with("look") && request.after_tool() => {
            Reply::text(json!({ "answer": "seen", "sources": [], "confidence": "low", "caveats": [] }).to_string())
        }
        words if words.starts_with("look") => Reply::tool("bash", json!({ "command": "touch asked" })),
        _ if request.after_tool() => Reply::text("it is done"),
        _ => Reply::tool("delegate", json!({ "agent": "general", "task": "look" })),
    });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let mut parent = daemon.pty(&[]);
    parent.prompts().await;
    parent.line("go");
    parent.shows("general started as ").await;
    let rows = client.call("session/list", json!({})).await;
    let id = rows.as_array().unwrap().iter().find(|row| row["parent"].is_string()).unwrap()["session"].clone();
    let mut child = daemon.pty(&["attach", id.as_str().unwrap()]);
    child.shows("bash wants to run").await;
    assert!(!daemon.workspace().join("asked").exists());
    child.keys("y");
    child.shows("seen").await;
    parent.shows(&format!("general ({}) is done: 2 steps", id.as_str().unwrap())).await;
    parent.shows("it is done").await;
    assert!(daemon.workspace().join("asked").exists());
    assert_eq!((child.leaves().await, parent.leaves().await), (0, 0));
    daemon.check(&[&client], &model);
}
