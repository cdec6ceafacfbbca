//! Permissions: durable, answered once, by whoever is first; and the modes that decide what is asked. Races: `races.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linger_tests::harness::{Cli, Daemon, Raw, Setup, comes_true, process};
use linger_tests::model::{ModelServer, Reply};
use rustix::process::Signal;
use serde_json::json;

pub(crate) use crate::shared::permission::{asked, swapped};
use crate::{after_tool, answer, bash, story};

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
async fn a_hook_that_prompts_its_own_session_is_refused_at_once_and_does_not_wait_for_itself() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let (socket, linger) = (daemon.dirs.socket(), &linger_tests::harness::programs().client);
    let send = format!("LINGER_SOCKET={} {} send {session} mine >out 2>&1", socket.display(), linger.display());
    let hooks = format!("[{{ event = 'prompt', command = '{send}; true', timeout_s = 600 }}]");
    client.call("config/set", json!({ "name": "hooks", "value": hooks })).await;
    model.push([Reply::text("done")]);
    client.turn(&session, "go").await;
    let output = std::fs::read_to_string(daemon.workspace().join("out")).unwrap();
    assert!(output.contains("a process started by the daemon may not"), "{output}");
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
    assert_eq!(output.matches("a process started by the daemon may not").count(), 3, "{output}");
    assert_eq!(story(&other.transcript(), &waiting).last().unwrap(), "permission_requested");
    model.push([Reply::text("done")]);
    answer(&other, &permission, "reject_once").await;
    other.first(&waiting, "turn_finished").await;
    assert!(!daemon.side_effects().exists());
    daemon.check(&[&client, &other], &model);
}

#[tokio::test]
async fn a_tool_that_kills_the_daemon_gets_no_other_that_takes_it_for_a_user() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let other = daemon.client().await;
    let waiting = other.session().await;
    model.push([bash(&daemon.effect("stolen"))]);
    other.prompt(&waiting, "go").await;
    let (permission, _) = asked(&other, &waiting, 1).await;
    let (keeper, pid) = (daemon.keeper(), daemon.pid().await);
    let env: String = daemon.env(true).iter().map(|(name, value)| format!("export {name}='{value}'; ")).collect();
    let answer = format!("{} answer {permission} allow", linger_tests::harness::programs().client.display());
    // A dead keeper stays a zombie until its parent, this test, waits for it.
    let gone = "gone() { ! [ -e /proc/$1/stat ] || grep -q ') Z ' /proc/$1/stat; }";
    // A daemon that sees its keeper die ends the tool before that has tried.
    let kill =
        format!("{gone}; kill -STOP {pid}; kill -9 {keeper} {pid}; until gone {pid} && gone {keeper}; do :; done");
    // As it is, between two levels of marks, and lowered.
    let tries = format!("{answer}; ulimit -x {}; {answer}; ulimit -x 3; {answer}; echo over", (125u64 << 56) + 12345);
    std::fs::write(daemon.workspace().join("steal"), format!("{env}{kill}; ({tries}) >tried 2>&1; mv tried out\n"))
        .unwrap();
    let client = daemon.client().await;
    let session = client.create_with(json!({ "mode": "auto", "model": "work/thief" })).await;
    model.push_for(
        "thief",
        [bash("setsid -f bash ./steal </dev/null >/dev/null 2>&1; sleep 1000"), Reply::text("done")],
    );
    client.prompt(&session, "go").await;
    let out = daemon.workspace().join("out");
    assert!(comes_true(linger_tests::TIMEOUT, || out.exists()), "it has tried");
    let out = std::fs::read_to_string(out).unwrap();
    assert!(out.ends_with("over\n") && !out.contains("allowed"), "{out}");
    assert!(!daemon.side_effects().exists(), "{out}");
    // A person starts it: the question stands.
    daemon.revive(&[]).await;
    let back = daemon.client().await;
    let row = &back.call("permission/list", json!({ "session": waiting })).await[0];
    assert_eq!(row["permission"], json!(permission), "{out}");
    model.push([Reply::text("done")]);
    back.attach(&waiting).await;
    self::answer(&back, &permission, "reject_once").await;
    back.first(&waiting, "turn_finished").await;
    assert!(!daemon.side_effects().exists());
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
    assert!(refused.stderr.contains("its limit of file locks"), "{refused:?}");
    assert!(refused.stderr.contains("ulimit -Hx"), "{refused:?}");
    // What a tool could do, it cannot do either.
    let script = format!("ulimit -x 7 && exec {} rm --force {session}", linger.display());
    let low = Cli::new("/bin/bash".as_ref(), daemon.env(true), daemon.workspace(), &["-c", &script]);
    let refused = low.run().await.fails_with_hint(1);
    assert!(refused.stderr.contains("its limit of file locks"), "{refused:?}");
    daemon.cli(&["answer", &permission, "allow"]).run().await.exits(0);
    client.first(&session, "turn_finished").await;
    let resolved = client.first(&session, "permission_resolved").await;
    assert_eq!(resolved.event["process"]["family"], false);
    assert!(resolved.event["process"]["pid"].is_u64());
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_link_that_was_turned_while_the_daemon_was_gone_is_not_followed() {
    swapped(async |daemon| daemon.kill_and_restart().await).await;
}

#[tokio::test]
async fn the_rest_of_an_answer_is_allowed_from_elsewhere_by_the_digests_of_what_was_printed() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let call = |line: &str| json!({ "command": daemon.effect(line) });
    let calls = Reply::tool("bash", call("one")).and_tool("bash", call("two")).and_tool("bash", call("three"));
    model.push([calls, Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let (first, _) = asked(&client, &session, 1).await;
    asked(&client, &session, 3).await;
    let rows = client.call("question/list", json!({})).await;
    let rows = rows.as_array().unwrap();
    let positions: Vec<_> = rows.iter().map(|row| row["position"].clone()).collect();
    let expect = [1, 2, 3].map(|number| json!({ "number": number, "of": 3, "first": first }));
    assert_eq!(positions, expect);
    let inbox = daemon.cli(&["inbox"]).run().await.exits(0);
    assert!(inbox.stdout.contains("[2 of 3]"), "{}", inbox.stdout);
    // Nothing is allowed before all of it was shown.
    let shown = daemon.cli(&["answer", &first, "allow", "--rest"]).run().await;
    assert!(
        ["one", "two", "three"].iter().all(|line| shown.stderr.contains(&format!("echo {line} >> "))),
        "{}",
        shown.stderr
    );
    assert!(!daemon.side_effects().exists());
    let digests: Vec<&str> = rows.iter().map(|row| row["digest"].as_str().unwrap()).collect();
    for wrong in [digests[..2].join(","), format!("{},sha256:0", digests.join(","))] {
        daemon.cli(&["answer", &first, "allow", "--rest", "--digest", &wrong]).run().await.fails_with_hint(1);
    }
    daemon.cli(&["answer", &first, "session", "--rest"]).run().await.fails_with_hint(2);
    assert!(!daemon.side_effects().exists());
    daemon.cli(&["answer", &first, "allow", "--rest", "--digest", &digests.join(",")]).run().await.exits(0);
    client.first(&session, "turn_finished").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "one\ntwo\nthree\n");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn commands_that_only_read_run_unasked_in_the_workspace_and_ask_where_the_configuration_says_so() {
    let command = |command: &str| Reply::tool("bash", json!({ "command": command }));
    let model = ModelServer::with([
        command("cat notes.txt | head -1 && ls *.txt 2>/dev/null"),
        Reply::text("read"),
        command("cat ../outside.txt"),
        Reply::text("so be it"),
    ]);
    let daemon = Daemon::start_with(&model, Setup { ask_reads: false, ..Setup::default() }).await;
    let root = daemon.dirs.workspace();
    std::fs::write(root.join("notes.txt"), "first line\nsecond\n").unwrap();
    std::fs::write(root.parent().unwrap().join("outside.txt"), "not yours\n").unwrap();
    daemon.cli(&["run", "--name", "x", "look"]).run().await.exits(0);
    assert!(model.requests()[1].messages().contains("first line\\nnotes.txt"), "{}", model.requests()[1].messages());
    let decided = daemon.cli(&["permissions", "explain", "bash(head -1 notes.txt)"]).run().await.exits(0);
    assert!(decided.stdout.contains("mode ask, which lets these read: head"), "{}", decided.stdout);
    let asks = daemon.cli(&["run", "-s", "x", "look elsewhere"]).run().await.exits(3);
    assert!(asks.stderr.contains("cat ../outside.txt"), "{}", asks.stderr);
    daemon.cli(&["answer", "deny"]).run().await.exits(0);
    daemon.cli(&["wait", "x"]).run().await.exits(0);
    daemon.check(&[], &model);
}
