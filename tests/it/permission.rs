//! Permissions: durable, answered once, by whoever is first; and the modes that decide what is asked. Races: `races.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linger_tests::harness::{Cli, Client, Daemon, Raw, Setup, process};
use linger_tests::model::{ModelServer, Reply};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{after_tool, answer, bash, story};

/// Waits for the `n`th permission of a session.
async fn asked(client: &Client, session: &str, n: usize) -> (String, Value) {
    let seen = client.nth(session, "permission_requested", n).await;
    (seen.str("permission").to_owned(), seen.event)
}

#[tokio::test]
async fn a_permission_raised_while_nobody_is_attached_survives_kill_9_and_its_answer_continues_the_turn() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.create().await;
    client.prompt(&session, "go").await;
    client.hang_up();
    model.wait_requests(1).await;
    let watcher = daemon.client().await;
    watcher.attach(&session).await;
    watcher.first(&session, "permission_requested").await;
    let before = watcher.hang_up();
    daemon.kill_and_restart().await;
    let client = daemon.client().await;
    let rows = client.call("permission/list", json!({})).await;
    let row = &rows.as_array().unwrap()[0];
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_eq!(row["session"], json!(session));
    assert_eq!(row["tool"], "bash");
    assert!(row["call"].is_string() && row["digest"].as_str().unwrap().starts_with("sha256:"), "{row}");
    let list = client.call("session/list", json!({})).await;
    assert_eq!(list[0]["state"], "waiting");
    client.continues(before);
    let cursor = client.cursor(&session);
    client.attach_after(&session, &cursor).await;
    client
        .call(
            "permission/answer",
            json!({ "permission": row["permission"], "decision": "allow_once", "digest": row["digest"] }),
        )
        .await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    assert_eq!(client.call("permission/list", json!({})).await, json!([]));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn an_answer_to_something_else_than_what_was_shown_is_refused() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (permission, event) = asked(&client, &session, 1).await;
    let wrong = json!({ "permission": permission, "decision": "allow_once", "digest": "sha256:0000" });
    assert_eq!(client.refused("permission/answer", wrong).await.code, -31005);
    let unknown = json!({ "permission": "q-nope", "decision": "allow_once" });
    assert_eq!(client.refused("permission/answer", unknown).await.code, -31003);
    let cancelled = json!({ "permission": permission, "decision": "cancelled" });
    client.refused("permission/answer", cancelled).await;
    assert!(!daemon.side_effects().exists(), "nothing has run");
    assert_eq!(event["input"]["command"], daemon.effect("once"));
    let won = answer(&client, &permission, "allow_once").await;
    assert_eq!(won, json!({ "outcome": "won" }));
    client.first(&session, "turn_finished").await;
    let resolved = client.first(&session, "permission_resolved").await;
    assert_eq!((resolved.str("decision"), resolved.str("by")), ("allow_once", "test"));
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_call_that_is_refused_has_a_result_that_the_model_can_read() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("never")), Reply::text("understood")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (permission, _) = asked(&client, &session, 1).await;
    let no = json!({ "permission": permission, "decision": "reject_once", "reason": "use the staging host" });
    client.call("permission/answer", no).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    let finished = client.first(&session, "tool_finished").await;
    assert_eq!((finished.str("outcome"), &finished.event["is_error"]), ("denied", &json!(true)));
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    assert!(model.requests()[1].messages().contains("use the staging host"));
    assert!(!daemon.side_effects().exists());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_is_allowed_for_the_session_is_not_asked_again_there_and_is_elsewhere() {
    let model = ModelServer::scripted(|request| if after_tool(request) { Reply::text("ok") } else { bash("uname -s") });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "one").await;
    let (permission, _) = asked(&client, &session, 1).await;
    answer(&client, &permission, "allow_session").await;
    client.first(&session, "turn_finished").await;
    client.turn(&session, "two").await;
    assert_eq!(client.transcript().of("permission_requested").count(), 1);
    assert_eq!(client.transcript().of("tool_started").count(), 2);
    daemon.kill_and_restart().await;
    let again = daemon.client().await;
    again.attach(&session).await;
    again.nth(&session, "turn_finished", 2).await;
    again.turn(&session, "three, after a restart").await;
    assert_eq!(again.transcript().of("permission_requested").count(), 1);
    let other = again.session().await;
    again.prompt(&other, "one").await;
    let (permission, _) = asked(&again, &other, 1).await;
    answer(&again, &permission, "reject_once").await;
    again.first(&other, "turn_finished").await;
    daemon.check(&[&client, &again], &model);
}

#[tokio::test]
async fn what_is_allowed_always_is_not_asked_in_the_next_session_of_the_workspace() {
    let model = ModelServer::scripted(|request| if after_tool(request) { Reply::text("ok") } else { bash("uname -s") });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "one").await;
    let (permission, _) = asked(&client, &session, 1).await;
    answer(&client, &permission, "allow_always").await;
    client.first(&session, "turn_finished").await;
    let other = client.session().await;
    client.turn(&other, "one").await;
    let asked = client.transcript().of("permission_requested").filter(|seen| seen.session == other).count();
    assert_eq!(asked, 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_rule_that_cannot_be_stored_is_told_and_holds_in_the_session() {
    let model = ModelServer::scripted(|request| if after_tool(request) { Reply::text("ok") } else { bash("uname -s") });
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "one").await;
    let (permission, _) = asked(&client, &session, 1).await;
    let good = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    std::fs::write(daemon.dirs.config(), format!("max_steps = 0\n{good}")).unwrap();
    answer(&client, &permission, "allow_always").await;
    let told = client.first(&session, "notice").await;
    assert_eq!((told.str("code"), told.str("level")), ("rule_not_stored", "warning"));
    assert!(told.str("text").starts_with("allowed in this session only: cannot store the rule"), "{:?}", told.event);
    client.first(&session, "turn_finished").await;
    client.turn(&session, "two").await;
    assert_eq!(client.transcript().of("permission_requested").count(), 1);
    daemon.check(&[&client], &model);
}

/// A turn that reads, writes and runs, in `mode`: what was asked, and what came of it.
async fn in_mode(mode: &str) -> (Vec<String>, Vec<String>) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    std::fs::write(daemon.workspace().join("there"), "text\n").unwrap();
    let path = |name: &str| daemon.workspace().join(name).display().to_string();
    model.push([
        Reply::tool("read", json!({ "path": path("there") })),
        Reply::tool("write", json!({ "path": path("new"), "content": "x\n" })),
        bash("true"),
        Reply::text("done"),
    ]);
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": mode })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let mut answered = 0;
    loop {
        let next = client
            .wait("a permission or the end", |seen| {
                let asked = seen.of("permission_requested").nth(answered).map(|seen| seen.str("permission").to_owned());
                asked.map(Some).or_else(|| seen.of("turn_finished").next().map(|_| None))
            })
            .await;
        let Some(permission) = next else { break };
        answer(&client, &permission, "reject_once").await;
        answered += 1;
    }
    let seen = client.transcript();
    let asked = seen.of("permission_requested").map(|seen| seen.str("tool").to_owned()).collect();
    let outcomes = seen.of("tool_finished").map(|seen| seen.str("outcome").to_owned()).collect();
    daemon.check(&[&client], &model);
    (asked, outcomes)
}

#[tokio::test]
async fn each_mode_asks_for_what_it_should() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(in_mode("ask").await, (words(&["write", "bash"]), words(&["ran", "denied", "denied"])));
    assert_eq!(in_mode("edit").await, (words(&["bash"]), words(&["ran", "ran", "denied"])));
    assert_eq!(in_mode("auto").await, (words(&[]), words(&["ran", "ran", "ran"])));
    assert_eq!(in_mode("plan").await, (words(&[]), words(&["ran", "denied", "denied"])));
}

#[tokio::test]
async fn rules_come_before_the_mode_and_deny_before_allow() {
    let rules = "[permissions]\nallow = [\"bash(echo fine)\", \"bash(echo deny me)\"]\nask = [\"bash(echo ask:*)\"]\ndeny = [\"bash(echo deny:*)\"]\n";
    let model = ModelServer::with([bash("echo fine"), bash("echo deny me"), bash("echo ask me"), Reply::text("done")]);
    let daemon = Daemon::start_with(&model, Setup { config: rules.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "ask" })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    let (permission, event) = asked(&client, &session, 1).await;
    assert_eq!((event["action"].as_str(), event["rule"].is_string()), (Some("echo ask me"), true));
    answer(&client, &permission, "allow_once").await;
    client.first(&session, "turn_finished").await;
    let outcomes: Vec<String> =
        client.transcript().of("tool_finished").map(|seen| seen.str("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["ran", "denied", "ran"]);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_command_that_chains_is_not_covered_by_a_rule_for_its_first_word() {
    let rules = "[permissions]\nallow = [\"bash(echo:*)\"]\n";
    let commands = [
        "echo a; id",
        "echo a && id",
        "echo $(id)",
        "echo `id`",
        "echo a | sh",
        "echo a > x",
        "A=1 echo a",
        "echo a\nid",
    ];
    let model = ModelServer::with(commands.map(bash).into_iter().chain([Reply::text("done")]));
    let daemon = Daemon::start_with(&model, Setup { config: rules.to_owned(), ..Setup::default() }).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    for n in 1..=commands.len() {
        let (permission, event) = asked(&client, &session, n).await;
        assert_eq!(event["input"]["command"], commands[n - 1]);
        answer(&client, &permission, "reject_once").await;
    }
    client.first(&session, "turn_finished").await;
    assert_eq!(client.transcript().of("tool_started").count(), 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_user_is_one_also_while_children_of_the_daemon_end_all_the_time() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let pid = daemon.pid().await;
    let over = Arc::new(AtomicBool::new(false));
    let storm = std::thread::spawn({
        let over = over.clone();
        move || {
            while !over.load(Ordering::Relaxed) {
                process::signal(pid, Signal::CHILD);
            }
        }
    });
    let set = json!({ "session": session, "mode": "edit" });
    let set = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/set", "params": set }).to_string();
    let mut refused = 0;
    for _ in 0..200 {
        let answer = Raw::connect(&daemon.dirs.socket()).await.ask(&set).await;
        refused += usize::from(answer["error"]["code"] == -31006);
    }
    over.store(true, Ordering::Relaxed);
    storm.join().unwrap();
    assert_eq!(refused, 0, "of 200");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_tool_cannot_answer_its_own_permission() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let other = daemon.client().await;
    let waiting = other.session().await;
    model.push([bash(&daemon.effect("stolen"))]);
    other.prompt(&waiting, "go").await;
    let (permission, _) = asked(&other, &waiting, 1).await;
    // Another session's tool, in a process group of its own, tries to answer.
    let (socket, linger) = (daemon.dirs.socket(), &linger_tests::harness::programs().client);
    let steal = format!(
        "export LINGER_SOCKET={} LINGER={}; (env -i PATH=\"$PATH\" HOME=\"$HOME\" LINGER_SOCKET=\"$LINGER_SOCKET\" setsid -f sh -c \"sleep 0.3; $LINGER answer {permission} allow; $LINGER answer {permission} allow; touch done\" >out 2>&1) ; setsid -w $LINGER answer {permission} allow; until [ -e done ]; do sleep 0.05; done; cat out",
        socket.display(),
        linger.display()
    );
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "auto", "model": "work/thief" })).await;
    client.attach(&session).await;
    model.push_for("thief", [bash(&steal), Reply::text("done")]);
    client.turn(&session, "go").await;
    let output = client.first(&session, "tool_finished").await.raw;
    assert_eq!(output.matches("may not answer a question").count(), 3, "{output}");
    assert_eq!(story(&other.transcript(), &waiting).last().unwrap(), "permission_requested");
    model.push([Reply::text("done")]);
    answer(&other, &permission, "reject_once").await;
    other.first(&waiting, "turn_finished").await;
    assert!(!daemon.side_effects().exists());
    daemon.check(&[&client, &other], &model);
}

#[tokio::test]
async fn who_may_have_lowered_an_inherited_limit_cannot_answer_and_is_told_why() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    model.push([bash(&daemon.effect("allowed")), Reply::text("done")]);
    client.prompt(&session, "go").await;
    let (permission, _) = asked(&client, &session, 1).await;
    let linger = &linger_tests::harness::programs().client;
    let script = format!("ulimit -x 7 && exec {} answer {permission} allow", linger.display());
    let low = Cli::new("/bin/bash".as_ref(), daemon.env(true), daemon.workspace(), &["-c", &script]);
    let refused = low.run().await.fails_with_hint(1);
    assert!(refused.stderr.contains("this process may not answer a question: its limit of file locks"), "{refused:?}");
    assert!(refused.stderr.contains("ulimit -Hx"), "{refused:?}");
    daemon.cli(&["answer", &permission, "allow"]).run().await.exits(0);
    client.first(&session, "turn_finished").await;
    daemon.check(&[&client], &model);
}

/// Swaps a link while a question about a file behind it waits; `between` is what happens before the answer.
async fn swapped(between: impl AsyncFnOnce(&Daemon)) {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let dir = daemon.workspace();
    let link = |to: &str| {
        let _first = std::fs::remove_file(dir.join("link"));
        std::os::unix::fs::symlink(dir.join(to), dir.join("link")).unwrap();
    };
    std::fs::create_dir(dir.join("shown")).unwrap();
    std::fs::create_dir(dir.join("other")).unwrap();
    link("shown");
    model.push([Reply::tool("write", json!({ "path": "link/f", "content": "x" })), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let asked = client.first(&session, "permission_requested").await;
    assert!(asked.str("action").contains("shown/f"), "{}", asked.str("action"));
    link("other");
    between(&daemon).await;
    let client = daemon.client().await;
    client.attach(&session).await;
    let answer = json!({ "permission": asked.str("permission"), "decision": "allow_once" });
    // After a restart the daemon has answered itself.
    let _won_or_late = client.request("permission/answer", answer).await;
    let result = client.first(&session, "tool_finished").await;
    assert_eq!(result.str("outcome"), "denied", "{}", result.event);
    client.first(&session, "turn_finished").await;
    assert!(!dir.join("other/f").exists() && !dir.join("shown/f").exists());
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_link_that_was_turned_after_the_question_is_not_followed() {
    swapped(async |_| {}).await;
}

#[tokio::test]
async fn a_link_that_was_turned_while_the_daemon_was_gone_is_not_followed() {
    swapped(async |daemon| daemon.kill_and_restart().await).await;
}

#[tokio::test]
async fn a_stricter_mode_holds_for_what_has_not_begun() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let fifo = daemon.dirs.root().join("fifo");
    let first = format!("mkfifo {0} && {1} && read line < {0}", fifo.display(), daemon.effect("first"));
    let second = json!({ "command": daemon.effect("second") });
    model.push([bash(&first).and_tool("bash", second.clone()).and_tool("bash", second), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    assert!(linger_tests::harness::comes_true(linger_tests::TIMEOUT, || daemon.side_effects().exists()));
    client.call("session/set", json!({ "session": session, "mode": "ask" })).await;
    std::fs::write(&fifo, "go on\n").unwrap();
    let (permission, _) = asked(&client, &session, 1).await;
    client.call("session/set", json!({ "session": session, "mode": "plan" })).await;
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "first\n");
    let decided = client.first(&session, "permission_resolved").await;
    assert_eq!((decided.str("permission"), decided.str("decision")), (permission.as_str(), "reject_once"));
    let outcomes: Vec<String> =
        client.transcript().of("tool_finished").map(|finished| finished.str("outcome").to_owned()).collect();
    assert_eq!(outcomes, ["ran", "denied", "denied"]);
    daemon.check(&[&client], &model);
}
