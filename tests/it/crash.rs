//! `kill -9` at the worst moments: what was shown is kept, what ran does not run again, and the turn goes on by itself.

use linger_tests::Rng;
use linger_tests::harness::{Client, Daemon, Raw, Setup, comes_true, process, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::{after_tool, bash, story};

/// How many turns are killed at a random moment.
const KILLS: usize = 12;

#[tokio::test]
async fn killed_in_mid_stream_the_text_is_kept_as_interrupted_and_the_step_repeated() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    daemon.kill_daemon().await;
    client.closed().await;
    let cursor = client.cursor(&session);
    let before = client.hang_up();
    let back = daemon.client().await;
    back.continues(before);
    back.attach_after(&session, &cursor).await;
    back.first(&session, "turn_finished").await;
    let seen = back.transcript();
    let kinds: Vec<String> = story(&seen, &session).into_iter().filter(|kind| kind != "notice").collect();
    let want =
        ["prompt_accepted", "turn_started", "message", "message", "message_superseded", "message", "turn_finished"];
    assert_eq!(kinds, want);
    let messages: Vec<_> = seen.of("message").collect();
    assert_eq!(messages[1].event["interrupted"], true);
    assert!(messages[1].event["content"][0]["text"].as_str().unwrap().starts_with("Good d"));
    assert_eq!(messages[2].event["content"][0]["text"], "Good day");
    assert!(
        model.requests().iter().all(|request| !request.messages().contains("Good d")),
        "superseded is not sent again"
    );
    daemon.check(&[&back], &model);
}

#[tokio::test]
async fn killed_together_with_its_keeper_the_turn_goes_on_at_the_next_start() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    daemon.kill_and_restart().await;
    // Nobody attaches: the turn goes on nevertheless.
    model.wait_requests(2).await;
    let late = daemon.client().await;
    late.attach(&session).await;
    assert_eq!(late.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &late], &model);
}

#[tokio::test]
async fn a_tool_that_ran_when_the_daemon_died_is_not_run_again_and_its_outcome_is_unknown() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let effects = daemon.side_effects();
    model.push([bash(&format!("{}; sleep 617", daemon.effect("once"))), Reply::text("so be it")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let has_run = || std::fs::read_to_string(&effects).is_ok_and(|effects| effects == "once\n");
    assert!(comes_true(linger_tests::TIMEOUT, has_run), "the tool runs");
    daemon.kill_daemon().await;
    let left =
        || process::of_directory(daemon.dirs.root()).into_iter().filter(|p| p.command.contains("sleep 617")).count();
    assert_eq!(left(), 0, "what the dead daemon left behind is ended before the next one serves");
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    let finished = back.first(&session, "tool_finished").await;
    assert_eq!((finished.str("outcome"), &finished.event["is_error"]), ("unknown", &json!(true)));
    assert_eq!(std::fs::read_to_string(&effects).unwrap(), "once\n");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn kill_9_leaves_no_process_after_the_next_start_whatever_group_it_is_in() {
    let model = ModelServer::with([bash("(setsid sleep 618 &); sleep 619"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let running =
        || process::of_directory(daemon.dirs.root()).into_iter().filter(|p| p.command.contains("sleep 61")).count();
    assert!(comes_true(linger_tests::TIMEOUT, || running() >= 2), "the tool runs");
    daemon.kill_and_restart().await;
    assert_eq!(running(), 0, "the next start ends what is left before it serves");
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn what_cleared_its_environment_and_left_its_group_is_ended_by_the_next_start_too() {
    what_left_its_group_is_ended(false).await;
}

#[tokio::test]
async fn what_was_left_is_looked_for_also_when_somebody_deleted_the_record_of_it() {
    what_left_its_group_is_ended(true).await;
}

async fn what_left_its_group_is_ended(without_record: bool) {
    let model = ModelServer::with([bash("(env -i setsid sleep 653 &) ; sleep 654"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let keeper = daemon.keeper();
    let asleep = || {
        let family = process::descendants(keeper);
        family.into_iter().filter(|child| child.command.starts_with("sleep 65")).collect::<Vec<_>>()
    };
    assert!(comes_true(linger_tests::TIMEOUT, || asleep().len() == 2), "the tool runs");
    let left = asleep();
    if without_record {
        std::fs::remove_file(daemon.dirs.log().with_file_name("lingerd.children")).unwrap();
    }
    daemon.kill_all().await;
    assert!(left.iter().all(process::is_alive), "nobody is there to end them");
    daemon.launch().await;
    assert!(!left.iter().any(process::is_alive), "the next start ends them before it serves");
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_daemon_that_a_tool_of_another_one_starts_and_loses_ends_its_own_processes_and_no_other() {
    let model = ModelServer::start();
    let outer = Daemon::auto(&model).await;
    let inner = Daemon::prepare(&model, Setup::default());
    let env: String = inner.env(true).iter().map(|(name, value)| format!(" {name}='{value}'")).collect();
    let linger = linger_tests::harness::programs().client.display();
    let left = inner.dirs.root().join("left");
    // By LINGER_OWNER the inner one sees that the outer one lives.
    let script = format!(
        "l() {{ env -i{env} LINGER_OWNER=\"$LINGER_OWNER\" {linger} \"$@\"; }}
        l daemon start && l run --model demo --mode auto 'run: (env -i setsid sleep 657 & echo $! > {left}); true' &&
        kill -9 $(l daemon status --json | tr ',' '\\n' | sed -n 's/\"keeper\"://p; s/\"pid\"://p') &&
        l daemon start && echo both live; l ls >/dev/null && echo it serves; kill -0 $(cat {left}) || echo it is gone",
        left = left.display()
    );
    model.push([bash(&script), Reply::text("done")]);
    let client = outer.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let output = client.first(&session, "tool_finished").await.raw;
    for word in ["both live", "it serves", "it is gone"] {
        assert!(output.contains(word), "{word}: {output}\n{}", inner.log_tail());
    }
    // A user's terminal is a user's there too.
    inner.cli(&["daemon", "stop"]).run().await.exits(0);
    outer.check(&[&client], &model);
}

#[tokio::test]
async fn a_child_that_cleared_its_environment_is_ended_by_the_next_start_too() {
    let model = ModelServer::with([bash("exec env -i sleep 643"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let keeper = daemon.keeper();
    let asleep = || process::descendants(keeper).into_iter().find(|child| child.command == "sleep 643");
    assert!(comes_true(linger_tests::TIMEOUT, || asleep().is_some()), "the tool runs");
    let child = asleep().unwrap();
    daemon.kill_all().await;
    assert!(process::is_alive(&child), "nobody is there to end it");
    daemon.launch().await;
    assert!(!process::is_alive(&child), "the next start ends it before it serves");
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    daemon.check(&[&client, &back], &model);
    assert_eq!(std::fs::read_to_string(daemon.dirs.log().with_file_name("lingerd.children")).unwrap(), "");
}

#[tokio::test]
async fn a_turn_that_met_three_crashes_is_offered_and_not_resumed() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::scripted(move |_| Reply::text("Good d").gate(&held));
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    for n in 1..=3 {
        model.wait_requests(n).await;
        daemon.kill_and_restart().await;
    }
    let back = daemon.client().await;
    back.attach(&session).await;
    back.wait("the offer", |seen| seen.of("notice").find(|seen| seen.str("code") == "offered").cloned()).await;
    assert_eq!(back.call("session/list", json!({})).await[0]["state"], "offered");
    assert_eq!(model.requests().len(), 3);
    gate.open();
    back.call("session/continue", json!({ "session": session })).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn where_the_configuration_says_so_a_turn_waits_for_a_word_after_a_crash() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let setup = Setup { top: "after_restart = \"offer\"", ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    daemon.kill_daemon().await;
    let back = daemon.client().await;
    let first = back.call("session/list", json!({})).await;
    assert_eq!(first[0]["state"], "offered", "nothing says that it runs, from the first moment on");
    back.attach(&session).await;
    back.wait("the offer", |seen| seen.of("notice").find(|seen| seen.str("code") == "offered").cloned()).await;
    assert_eq!(model.requests().len(), 1, "nothing was asked of the model");
    back.call("session/continue", json!({ "session": session })).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn the_answer_to_a_question_continues_a_turn_that_was_offered() {
    for (decision, ran) in [("allow_once", true), ("reject_once", false)] {
        let model = ModelServer::start();
        let setup = Setup { top: "after_restart = \"offer\"", ..Setup::default() };
        let daemon = Daemon::start_with(&model, setup).await;
        model.push([bash(&format!("echo once >> {}", daemon.side_effects().display())), Reply::text("done")]);
        let client = daemon.client().await;
        let session = client.session().await;
        client.prompt(&session, "hello").await;
        let asked = client.first(&session, "permission_requested").await.str("permission").to_owned();
        daemon.kill_daemon().await;
        let back = daemon.client().await;
        back.attach(&session).await;
        back.wait("the offer", |seen| seen.of("notice").find(|seen| seen.str("code") == "offered").cloned()).await;
        back.call("permission/answer", json!({ "permission": asked, "decision": decision })).await;
        assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
        assert_eq!(daemon.side_effects().exists(), ran);
        daemon.check(&[&client, &back], &model);
    }
}

#[tokio::test]
async fn an_answer_to_a_turn_that_was_offered_is_not_overtaken_by_what_comes_after_it() {
    let model = ModelServer::start();
    let setup = Setup { top: "after_restart = \"offer\"", ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let mut asked = Vec::new();
    for _ in 0..5 {
        model.push([bash("true")]);
        let session = client.session().await;
        client.prompt(&session, "hello").await;
        let permission = client.first(&session, "permission_requested").await.str("permission").to_owned();
        asked.push((session, permission));
    }
    daemon.kill_daemon().await;
    let back = daemon.client().await;
    for (session, permission) in asked {
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        let answer = json!({ "permission": permission, "decision": "reject_once" });
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "method": "permission/answer", "params": answer });
        let cancel = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/cancel", "params": { "session": session } });
        raw.send(format!("{answer}\n{cancel}\n")).await;
        let answers = [raw.line().await.unwrap(), raw.line().await.unwrap()];
        let answer = answers.iter().find(|answer| answer["id"] == 1).unwrap();
        assert_eq!(answer["result"]["outcome"], "won", "{answers:?}");
        back.attach(&session).await;
        let resolved = back.first(&session, "permission_resolved").await;
        assert_eq!(resolved.str("decision"), "reject_once");
    }
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn kill_9_at_random_moments_loses_nothing_that_was_seen() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let effects = daemon.side_effects().display().to_string();
    model.otherwise(move |request| {
        let text = "a few words, then a tool; ".repeat(20);
        if after_tool(request) {
            return Reply::new().text_in_deltas(&text, 5);
        }
        Reply::new()
            .text_in_deltas(&text, 3)
            .and_tool("bash", json!({ "command": format!("echo {} >> {effects}", request.number) }))
    });
    let mut rng = Rng(0x11f6e2);
    let mut client = daemon.client().await;
    let session = client.session().await;
    for turn in 1..=KILLS {
        client.prompt(&session, &format!("turn {turn}")).await;
        // A moment that is counted in events and not in milliseconds, so that a seed means something.
        let events = client.transcript().events().count() + 1 + rng.below(150);
        client
            .wait("some events", |seen| {
                let enough = seen.events().count() >= events || seen.of("turn_finished").count() >= turn;
                enough.then_some(())
            })
            .await;
        daemon.kill_and_restart().await;
        let before = client.hang_up();
        let cursor = before.cursor(&session).unwrap().to_owned();
        client = daemon.client().await;
        client.continues(before);
        client.attach_after(&session, &cursor).await;
        client.nth(&session, "turn_finished", turn).await;
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn after_sigterm_nothing_is_left_and_the_exit_code_is_0() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(process::of_directory(daemon.dirs.root()), []);
    let record = daemon.dirs.log().with_file_name("lingerd.children");
    assert!(!record.exists(), "the next start has nothing to look for");
    daemon.launch().await;
    assert!(record.exists());
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    let codes: Vec<_> = back.transcript().of("notice").map(|notice| notice.str("code").to_owned()).collect();
    assert_eq!(codes, ["paused", "resumed"], "an end in good order is no crash");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_second_daemon_does_not_start_beside_the_first() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let pid = daemon.pid().await;
    let status = daemon.cli(&["daemon", "start"]).run().await.exits(0);
    assert_eq!(daemon.pid().await, pid, "{status:?}");
}

#[tokio::test]
async fn a_socket_whose_directory_was_renamed_is_there_again_when_a_client_looks_for_it() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let pid = daemon.pid().await;
    let state = daemon.dirs.socket().parent().unwrap().to_path_buf();
    for moved in [state.with_extension("moved"), state.with_extension("moved-too")] {
        std::fs::rename(&state, moved).unwrap();
        daemon.cli(&["ls"]).run().await.exits(0);
        assert_eq!(daemon.pid().await, pid);
    }
    client.turn(&session, "and go on").await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_socket_file_that_vanishes_is_bound_again() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    std::fs::remove_file(daemon.dirs.socket()).unwrap();
    // It is there a moment before it accepts.
    let connects = async || Client::connect(&daemon.dirs, "test").await.ok();
    until("a new socket", connects).await.call("daemon/status", json!({})).await;
}
