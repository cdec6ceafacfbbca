//! The command line as a script meets it: exit codes, data on stdout, talk on stderr, every wrong input with a hint.

use std::os::unix::fs::PermissionsExt;

use linger_tests::harness::{Daemon, Setup};
use linger_tests::model::{Gate, ModelServer, Reply};
use rustix::process::Signal;
use serde_json::json;

use crate::bash;

#[tokio::test]
async fn run_prints_the_final_message_alone_and_exits_0() {
    let model = ModelServer::with([
        Reply::text("Looking.").and_tool("bash", json!({ "command": "true" })),
        Reply::text("Good day"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let output = daemon.cli(&["run", "hello"]).run().await.exits(0);
    assert_eq!(output.stdout, "Good day\n");
    model.push([Reply::text("again")]);
    let output = daemon.cli(&["run", "-m", "claude/x", "hello"]).run().await.exits(0);
    assert_eq!(output.stdout, "again\n");
    assert_eq!(model.requests()[2].model(), "x");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn run_reads_its_prompt_from_standard_input_too() {
    let model = ModelServer::with([Reply::text("ok"), Reply::text("ok")]);
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["run"]).stdin("explain this\nline of a log\n").run().await.exits(0);
    assert!(model.requests()[0].messages().contains("line of a log"));
    daemon.cli(&["run", "-"]).stdin("the whole prompt").run().await.exits(0);
    assert!(model.requests()[1].messages().contains("the whole prompt"));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn run_json_prints_one_value_a_line() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let output = daemon.cli(&["run", "--json", "hello"]).run().await.exits(0);
    let last = output.json().pop().unwrap();
    assert!(last.to_string().contains("turn_finished") || last.to_string().contains("end_turn"), "{last}");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn run_stream_prints_the_text_as_it_comes() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("first line\n").gate(&gate).and_text("second line")]);
    let daemon = Daemon::start(&model).await;
    let mut running = daemon.cli(&["run", "--stream", "hello"]).spawn().await;
    assert_eq!(running.line().await.as_deref(), Some("first line"));
    gate.open();
    assert_eq!(running.line().await.as_deref(), Some("second line"));
    assert_eq!(running.end().await.code, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn an_answer_without_a_word_twice_is_a_failure_and_a_wait_is_told() {
    let model = ModelServer::with([Reply::status(503), Reply::text(""), Reply::text("")]);
    let daemon = Daemon::start(&model).await;
    let output = daemon.cli(&["run", "hello"]).run().await.exits(1);
    assert_eq!(output.stdout, "");
    assert!(output.stderr.contains("; trying again in"), "{}", output.stderr);
    assert!(output.stderr.contains("the model's answer is empty"), "{}", output.stderr);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_log_that_follows_a_session_ends_when_that_is_removed() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let session = daemon.cli(&["run", "-d", "hello"]).run().await.exits(0).word().to_owned();
    gate.reached().await;
    let mut log = daemon.cli(&["log", "--forever", &session]).spawn().await;
    assert!(log.line().await.is_some(), "it follows");
    daemon.cli(&["rm", "--now", "--force", &session]).run().await.exits(0);
    let output = log.end().await.exits(0);
    assert!(output.stdout.contains("the session was removed"), "{output:?}");
    model.forgive();
}

#[tokio::test]
async fn run_in_the_background_prints_the_session_and_wait_gives_its_exit_code() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let output = daemon.cli(&["run", "-d", "hello"]).run().await.exits(0);
    let session = output.word().to_owned();
    assert_eq!(output.stdout, format!("{session}\n"));
    gate.reached().await;
    for no_more in ["1", "0"] {
        daemon.cli(&["wait", "--timeout", no_more, &session]).run().await.exits(124);
    }
    let waiting = daemon.cli(&["wait", &session]).spawn().await;
    gate.open();
    waiting.end().await.exits(0);
    daemon.cli(&["wait", "--timeout", "0", &session]).run().await.exits(0);
    let log = daemon.cli(&["log", &session]).run().await.exits(0);
    assert!(log.stdout.contains("hello") && log.stdout.contains("Good day"), "{}", log.stdout);
    let list = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(list.stdout.contains(&session[..6.min(session.len())]), "{}", list.stdout);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_prefix_and_a_name_are_as_good_as_an_id() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create_with(json!({ "name": "docs" })).await;
    daemon.cli(&["send", "docs", "hello"]).run().await.exits(0);
    daemon.cli(&["wait", &session[..session.len() - 1]]).run().await.exits(0);
    daemon.cli(&["run", "-s", "docs", "again"]).run().await.exits(0);
    assert_eq!(model.requests().len(), 2);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn run_exits_3_as_soon_as_a_permission_waits_and_answer_lets_it_go_on() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let output = daemon.cli(&["run", "go"]).run().await.exits(3).says("linger answer ");
    assert!(!daemon.side_effects().exists());
    let inbox = daemon.cli(&["inbox", "--json"]).run().await.exits(0).json();
    let permission = inbox[0]["permission"].as_str().unwrap().to_owned();
    let session = inbox[0]["session"].as_str().unwrap().to_owned();
    assert!(output.stderr.contains(&permission), "{}", output.stderr);
    daemon.cli(&["wait", &session]).run().await.exits(3);
    daemon.cli(&["answer", &permission, "perhaps"]).run().await.exits(2);
    daemon.cli(&["answer", &permission, "allow"]).run().await.exits(0);
    daemon.cli(&["wait", &session]).run().await.exits(0);
    daemon.cli(&["answer", &permission, "deny"]).run().await.exits(1).says("already answered");
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_script_reads_what_each_command_came_to_as_json() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let json = async |args: &[&str], code| daemon.cli(args).run().await.exits(code).json();
    let made = json(&["new", "--name", "scripted", "--json"], 0).await;
    let session = made[0]["session"].as_str().unwrap();
    assert_eq!(made, [json!({ "session": session, "model": "work/m", "mode": "ask" })]);
    model.push([bash(&daemon.effect("once")), Reply::text("done")]);
    let sent = json(&["send", "--json", "scripted", "go"], 0).await;
    assert_eq!(sent, [json!({ "session": session, "prompt": "p1", "seq": 2 })]);
    let waits = json(&["wait", "--json", session], 3).await.remove(0);
    assert_eq!((&waits["session"], &waits["state"]), (&json!(session), &json!("waiting")));
    let permission = waits["permissions"][0].as_str().unwrap();
    let answered = json(&["answer", "--json", permission, "allow"], 0).await;
    let expected = json!({
        "session": session, "question": permission, "answer": "allow_once",
        "permission": permission, "decision": "allow_once",
    });
    assert_eq!(answered, [expected]);
    let over = json(&["wait", "--json", "scripted"], 0).await.remove(0);
    assert_eq!((&over["state"], &over["stop_reason"]), (&json!("idle"), &json!("end_turn")));
    assert_eq!(over, json(&["ls", "--json"], 0).await[0]);
    let gate = Gate::new();
    model.push([Reply::text("so far").gate(&gate)]);
    json(&["send", "--json", "scripted", "and on"], 0).await;
    gate.reached().await;
    assert_eq!(json(&["wait", "--json", "--timeout", "0", session], 124).await[0]["state"], "running");
    assert_eq!(json(&["cancel", "--json", "scripted"], 0).await, [json!({ "session": session })]);
    assert_eq!(json(&["wait", "--json", "scripted"], 4).await[0]["stop_reason"], "cancelled");
    model.push([Reply::text("## Goal\nto go on")]);
    let kinds = json(&["compact", "--json", "scripted"], 1).await;
    let kinds: Vec<&str> = kinds.iter().map(|line| line["event"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.last(), Some(&"compaction_failed"), "{kinds:?}");
    let findings = json(&["doctor", "--json"], 0).await;
    assert!(findings.iter().all(|finding| finding["ok"] != false && finding["text"].is_string()), "{findings:?}");
    model.expect_rewrites();
    daemon.check(&[], &model);
    assert_eq!(json(&["rm", "--json", "scripted"], 0).await, [json!({ "session": session })]);
    // What is wrong is told to people.
    daemon.cli(&["cancel", "--json", "scripted"]).run().await.exits(2).says("is in the bin");
}

#[tokio::test]
async fn deny_takes_a_reason_which_the_model_reads() {
    let model = ModelServer::with([bash("true"), Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["run", "go"]).run().await.exits(3);
    let row = daemon.cli(&["inbox", "--json"]).run().await.exits(0).json().remove(0);
    let (permission, session) = (row["permission"].as_str().unwrap(), row["session"].as_str().unwrap());
    daemon.cli(&["answer", permission, "deny", "--reason", "not on a friday"]).run().await.exits(0);
    daemon.cli(&["wait", session]).run().await.exits(0);
    assert!(model.requests()[1].messages().contains("not on a friday"));
    daemon.check(&[], &model);
}

#[tokio::test]
async fn cancel_ends_the_turn_and_whoever_waits_exits_4() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("so far").gate(&gate)]);
    let daemon = Daemon::start(&model).await;
    let session = daemon.cli(&["run", "-d", "go"]).run().await.exits(0).word().to_owned();
    gate.reached().await;
    let waiting = daemon.cli(&["wait", &session]).spawn().await;
    daemon.cli(&["cancel", &session]).run().await.exits(0);
    let output = waiting.end().await;
    assert_eq!(output.code, 4, "{}", output.stderr);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn prompts_that_stay_queued_behind_a_cancel_are_told_of() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("so far").gate(&gate)]);
    let daemon = Daemon::start(&model).await;
    let session = daemon.cli(&["run", "-d", "go"]).run().await.exits(0).word().to_owned();
    gate.reached().await;
    daemon.cli(&["send", &session, "and then"]).run().await.exits(0);
    daemon.cli(&["cancel", &session]).run().await.exits(0).says("1 queued prompt is a draft");
    daemon.cli(&["wait", &session]).run().await.exits(4).says("--run` sends it");
    let listed = daemon.cli(&["ls"]).run().await.exits(0);
    assert!(listed.stdout.contains("cancelled, 1 draft"), "{listed:?}");
    let listed = daemon.cli(&["queue", &session]).run().await.exits(0);
    assert_eq!(listed.stdout, "p2  draft: and then\n");
    let listed = daemon.cli(&["queue", &session, "--json"]).run().await.exits(0);
    assert_eq!(listed.stdout, "{\"prompt\":\"p2\",\"text\":\"and then\",\"draft\":true}\n");
    let mut terminal = daemon.pty(&["attach", &session]);
    terminal.shows("1 queued prompt is now a draft").await;
    assert_eq!(terminal.leaves().await, 0);
    model.push([Reply::text("what first"), Reply::text("and that")]);
    daemon.cli(&["run", "-s", &session, "first this"]).run().await.exits(0).says("");
    assert!(!model.requests()[1].messages().contains("and then"));
    daemon.cli(&["queue", &session, "--send", "p9"]).run().await.exits(1).says("no draft");
    daemon.cli(&["queue", &session, "--send", "p2"]).run().await.exits(0);
    daemon.cli(&["wait", &session]).run().await.exits(0);
    assert!(model.requests()[2].messages().contains("and then"));
    daemon.cli(&["queue", &session]).run().await.exits(0).says("nothing is queued");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn sigint_cancels_a_run_and_sighup_leaves_it_running() {
    let gate = Gate::new();
    let model =
        ModelServer::with([Reply::text("first\n").gate(&gate), Reply::text("second\n").gate(&gate).and_text("done")]);
    let daemon = Daemon::start(&model).await;
    let mut running = daemon.cli(&["run", "--stream", "go"]).spawn().await;
    running.line().await.unwrap();
    running.signal(Signal::INT);
    assert_eq!(running.end().await.code, 4);
    let mut running = daemon.cli(&["run", "--stream", "go"]).spawn().await;
    assert_eq!(running.line().await.as_deref(), Some("second"));
    running.signal(Signal::HUP);
    assert_eq!(running.end().await.code, 129);
    gate.open();
    let client = daemon.client().await;
    let latest = client.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    client.attach(&latest).await;
    assert_eq!(client.first(&latest, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn run_exits_1_when_the_turn_fails_and_124_when_it_takes_too_long() {
    let cut = |text: &str| Reply::text(text).stop("max_tokens");
    let model = ModelServer::with([cut("a whole wo"), cut("rd, and "), Reply::text("the end")]);
    let daemon = Daemon::start(&model).await;
    for args in [&["run", "one"][..], &["run", "--stream", "one"]] {
        assert_eq!(daemon.cli(args).run().await.exits(0).stdout, "a whole word, and the end\n");
        model.push([cut("a whole wo"), cut("rd, and "), Reply::text("the end")]);
    }
    daemon.cli(&["run", "one"]).run().await.exits(0);
    model.push([cut("h"), cut("al"), cut("f"), cut("."), Reply::status(401), Reply::new().stall()]);
    assert_eq!(daemon.cli(&["run", "one"]).run().await.exits(1).stdout, "half.\n");
    let refused = daemon.cli(&["run", "two"]).run().await.exits(1);
    assert!(refused.stderr.contains("scripted status 401") || refused.stderr.contains("key"), "{}", refused.stderr);
    daemon.cli(&["run", "--timeout", "1", "three"]).run().await.exits(124);
    model.wait_requests(15).await;
    let client = daemon.client().await;
    let latest = client.call("session/list", json!({ "limit": 1 })).await[0]["session"].clone();
    client.attach(latest.as_str().unwrap()).await;
    client.call("session/cancel", json!({ "session": latest })).await;
    client.first(latest.as_str().unwrap(), "turn_finished").await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn set_changes_a_session_without_a_prompt_and_says_what_it_cannot_change() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["new", "--name", "fox"]).run().await.exits(0);
    let more = daemon.workspace().parent().unwrap().join("more");
    std::fs::create_dir(&more).unwrap();
    let options = ["--mode", "edit", "--unattended", "deny", "--max-cost", "2", "--add-dir", "../more", "--json"];
    let set = daemon.cli(&[&["set", "fox"], &options[..]].concat()).run().await.exits(0).json();
    assert_eq!((&set[0]["mode"], &set[0]["model"]), (&json!("edit"), &json!("work/m")));
    let client = daemon.client().await;
    let row = client.call("session/list", json!({ "limit": 1 })).await[0].clone();
    assert_eq!((&row["mode"], &row["unattended"]), (&json!("edit"), &json!("deny")), "{row}");
    assert_eq!(row["budget"]["max_cost_micros"], 2_000_000, "{row}");
    assert_eq!(row["additional_directories"], json!([more.canonicalize().unwrap()]), "{row}");
    daemon.cli(&["set", "fox", "--remove-dir", "../more"]).run().await.exits(0);
    assert!(client.call("session/list", json!({ "limit": 1 })).await[0]["additional_directories"].is_null());
    daemon.cli(&["set", "fox"]).run().await.fails_with_hint(2).says("nothing to change");
    daemon.cli(&["set", "fox", "--mode", "all"]).run().await.exits(2).says("invalid value 'all'");
    daemon.cli(&["set", "fox", "-m", "wrok/m"]).run().await.fails_with_hint(2).says("wrok");
    daemon.cli(&["set", "dog", "--mode", "ask"]).run().await.fails_with_hint(2).says("'dog'");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn rm_puts_a_session_into_the_bin_and_refuses_one_that_works() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("x").gate(&gate)]);
    let daemon = Daemon::start(&model).await;
    let session = daemon.cli(&["run", "-d", "go"]).run().await.exits(0).word().to_owned();
    gate.reached().await;
    daemon.cli(&["rm", &session]).run().await.exits(1);
    daemon.cli(&["rm", "--force", &session]).run().await.exits(0);
    daemon.cli(&["log", &session]).run().await.fails_with_hint(2).says("linger rm --restore");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_session_comes_back_from_the_bin_and_its_name_was_free_meanwhile() {
    let model = ModelServer::with([Reply::text("first")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.cli(&["run", "-d", "--name", "fox", "hello"]).run().await.exits(0).word().to_owned();
    daemon.cli(&["wait", &first]).run().await.exits(0);
    // A prefix names it for reading alone.
    daemon.cli(&["rename", &first[..3], "dog"]).run().await.fails_with_hint(2).says("at least 4 characters");
    daemon.cli(&["rm", &first[..6]]).run().await.fails_with_hint(2).says("--yes");
    daemon.cli(&["rm", "fox"]).run().await.exits(0);
    assert_eq!(daemon.cli(&["ls", "--json"]).run().await.exits(0).json().len(), 0);
    assert_eq!(daemon.cli(&["ls", "--bin", "--json"]).run().await.exits(0).json()[0]["session"], json!(first));
    daemon.cli(&["send", &first, "more"]).run().await.fails_with_hint(2);
    let client = daemon.client().await;
    let refused = client.refused("session/prompt", json!({ "session": first, "content": "more" })).await;
    assert_eq!(refused.code, -31060, "the daemon refuses it too");
    daemon.cli(&["new", "--name", "fox"]).run().await.exits(0);
    assert_eq!(daemon.terminate(), Some(0));
    daemon.launch().await;
    daemon.cli(&["restore", "fox"]).run().await.exits(0).says("it is now called fox-2");
    assert!(daemon.cli(&["log", "fox-2"]).run().await.exits(0).stdout.contains("first"), "all of it is there");
    daemon.cli(&["rm", "--now", "fox-2"]).run().await.exits(0);
    daemon.cli(&["restore", &first]).run().await.fails_with_hint(2);
    daemon.cli(&["prune", "--now"]).run().await.fails_with_hint(2).says("--yes");
    daemon.cli(&["prune", "--now", "--yes"]).run().await.exits(0).says("the bin is empty");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn piped_input_goes_with_the_prompt_and_names_no_files() {
    let model = ModelServer::scripted(|_| Reply::text("ok"));
    let daemon = Daemon::start(&model).await;
    let run = daemon.cli(&["run", "review this"]).stdin("the diff @x.png").run().await.exits(0);
    assert!(!run.stderr.contains("x.png"), "what is piped names no file: {}", run.stderr);
    daemon.cli(&["run", "-c", "is", "-", "good?"]).stdin("the text").run().await.exits(0);
    let missing = "@src/nosuch.rs: no such file, sent as plain text";
    daemon.cli(&["run", "-c", "nothing piped, see @src/nosuch.rs"]).run().await.exits(0).says(missing);
    let asked = model.requests();
    let said = |n: usize| String::from_utf8_lossy(&asked[n].body).into_owned();
    assert!(said(0).contains("review this") && said(0).contains("the diff @x.png"), "{}", said(0));
    let (before, after) = (said(1).find("the text").unwrap(), said(1).find("good?").unwrap());
    assert!(before < after && said(1).contains("review this"), "-c goes on with the session: {}", said(1));
    assert!(said(2).contains("nothing piped"));
    daemon.cli(&["run", "--rm", "once"]).run().await.exits(0);
    assert_eq!(daemon.cli(&["ls", "--json"]).run().await.exits(0).json().len(), 1, "--rm leaves none");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_queued_prompt_is_listed_and_taken_back() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("x").gate(&gate)]);
    let daemon = Daemon::start(&model).await;
    let session = daemon.cli(&["run", "-d", "go"]).run().await.exits(0).word().to_owned();
    gate.reached().await;
    for prompt in ["second", "third"] {
        daemon.cli(&["send", &session, prompt]).run().await.exits(0);
    }
    let queued = daemon.cli(&["queue", &session]).run().await.exits(0).stdout;
    assert_eq!(queued, "p2  second\np3  third\n");
    daemon.cli(&["unqueue", &session]).run().await.exits(0).says("dropped p3");
    daemon.cli(&["unqueue", &session, "p2"]).run().await.exits(0);
    daemon.cli(&["unqueue", &session]).run().await.fails_with_hint(1).says("no queued prompts");
    gate.open();
    assert_eq!(daemon.cli(&["wait", "--answer", &session]).run().await.exits(0).stdout, "x\n");
    assert_eq!(daemon.cli(&["log", "-f", &session]).run().await.exits(0).stdout.matches("> ").count(), 1);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_log_tells_every_turn_also_while_it_is_followed() {
    let model = ModelServer::with([Reply::text("x"), Reply::text("y")]);
    let daemon = Daemon::start(&model).await;
    let session = daemon.cli(&["new"]).run().await.exits(0).word().to_owned();
    for prompt in ["first", "second"] {
        daemon.cli(&["run", "-s", &session, prompt]).run().await.exits(0);
    }
    // The end of an earlier turn is not the end of what there is to tell.
    for follow in [[].as_slice(), &["-f"]] {
        let args = [&["log"], follow, &[session.as_str()]].concat();
        assert_eq!(daemon.cli(&args).run().await.exits(0).stdout.matches("> ").count(), 2, "{args:?}");
    }
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_mistyped_command_is_no_prompt_and_habits_are_named() {
    let model = ModelServer::with([]);
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["atach", "x"]).run().await.fails_with_hint(2).says("did you mean `linger attach`");
    daemon.cli(&["login"]).run().await.fails_with_hint(2).says("linger key set");
    let renamed = daemon.cli(&["renam"]).run().await.fails_with_hint(2).says("`linger rename`");
    assert!(!renamed.stderr.contains("prune"), "{renamed:?}");
    daemon.cli(&["resume", "nobody"]).run().await.fails_with_hint(2);
    daemon.cli(&["fix the test"]).run().await.fails_with_hint(2).says("needs a terminal");
    let status = daemon.cli(&["status", "--format", "{running}/{waiting} {model}"]).run().await.exits(0);
    assert_eq!(status.stdout, "0/0 \n");
    daemon.cli(&["status", "--format", "{nope}"]).run().await.fails_with_hint(2);
}

#[tokio::test]
async fn without_a_model_the_user_is_told_how_to_name_one() {
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, Setup { model: None, ..Setup::default() }).await;
    daemon.cli(&["run", "hello"]).run().await.fails_with_hint(2).says("model");
}

#[tokio::test]
async fn a_provider_that_nobody_configured_is_named() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    daemon.cli(&["run", "-m", "nobody/m", "hello"]).run().await.fails_with_hint(2).says("nobody");
}

#[tokio::test]
async fn a_missing_key_is_named_by_its_variable() {
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, Setup { keys: false, ..Setup::default() }).await;
    let output = daemon.cli(&["run", "hello"]).without("WORK_KEY").run().await;
    assert_ne!(output.code, 0);
    assert!(output.stderr.contains("WORK_KEY"), "{}", output.stderr);
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn the_key_of_the_clients_environment_is_brought_to_the_daemon() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start_with(&model, Setup { keys: false, ..Setup::default() }).await;
    let output = daemon.cli(&["run", "hello"]).run().await.exits(0);
    assert_eq!(output.stdout, "Good day\n");
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_provider_that_is_down_is_named_with_its_address() {
    let model = ModelServer::start();
    let down = "[providers.down]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"WORK_KEY\"\npatience = 0\n";
    let daemon = Daemon::start_with(&model, Setup { config: down.to_owned(), ..Setup::default() }).await;
    let output = daemon.cli(&["run", "-m", "down/m", "hello"]).run().await.exits(1);
    assert!(output.stderr.contains("127.0.0.1:1"), "{}", output.stderr);
}

#[tokio::test]
async fn an_unknown_session_and_a_prefix_that_is_too_short_are_named() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let session = daemon.client().await.create().await;
    daemon.cli(&["log", "nope"]).run().await.fails_with_hint(2).says("nope");
    daemon.cli(&["log", &session[..3]]).run().await.fails_with_hint(2).says("at least 4 characters");
    daemon.cli(&["log", &session[..4]]).run().await.exits(0);
}

#[tokio::test]
async fn a_socket_directory_that_others_can_enter_is_refused() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    std::fs::set_permissions(daemon.dirs.state(), std::fs::Permissions::from_mode(0o777)).unwrap();
    daemon.cli(&["ls"]).run().await.fails_with_hint(5).says(&format!("chmod 700 {}", daemon.dirs.state().display()));
    std::fs::set_permissions(daemon.dirs.state(), std::fs::Permissions::from_mode(0o700)).unwrap();
    daemon.cli(&["ls"]).run().await.exits(0);
}

#[tokio::test]
async fn a_typing_error_in_the_configuration_is_shown_with_file_line_and_key() {
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup::default());
    let config = std::fs::read_to_string(daemon.dirs.config()).unwrap();
    std::fs::write(daemon.dirs.config(), config.replace("base_url", "base_ulr")).unwrap();
    daemon.launch().await;
    let output = daemon.cli(&["run", "hello"]).run().await;
    assert_ne!(output.code, 0);
    assert!(output.stderr.contains("config.toml:") && output.stderr.contains("base_ulr"), "{}", output.stderr);
    daemon.cli(&["ls"]).run().await.exits(0);
    std::fs::write(daemon.dirs.config(), config).unwrap();
    model.push([Reply::text("Good day")]);
    let client = daemon.client().await;
    linger_tests::harness::until("the configuration is read again", async || {
        client.call("daemon/status", json!({})).await.get("config_error").is_none().then_some(())
    })
    .await;
    assert_eq!(daemon.cli(&["run", "hello"]).run().await.exits(0).stdout, "Good day\n");
}

#[tokio::test]
async fn standard_input_that_is_no_text_is_refused() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let output = daemon.cli(&["run", "-"]).stdin(b"\xff\xfe\x00".to_vec()).run().await.exits(2);
    assert!(output.stderr.contains("UTF-8"), "{}", output.stderr);
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn a_session_whose_workspace_has_vanished_takes_prompts_and_says_where_its_commands_run() {
    let model = ModelServer::with([bash("pwd"), Reply::text("gone"), Reply::text("there again")]);
    let daemon = Daemon::auto(&model).await;
    let workspace = daemon.workspace().join("sub");
    std::fs::create_dir(&workspace).unwrap();
    let client = daemon.client().await;
    let session = client.create_with(json!({ "cwd": workspace })).await;
    client.attach(&session).await;
    std::fs::remove_dir(&workspace).unwrap();
    assert_eq!(client.turn(&session, "go").await.str("stop_reason"), "end_turn");
    let told = model.requests()[1].messages();
    assert!(told.contains("the session's directory is gone; this ran in"), "{told}");
    std::fs::create_dir(&workspace).unwrap();
    let sent = daemon.cli(&["run", "-s", &session, "again"]).run().await.exits(0);
    assert_eq!(sent.stdout, "there again\n");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_workspace_that_vanishes_during_a_turn_is_named_in_the_results_of_its_calls() {
    let gate = Gate::new();
    let model = ModelServer::with([
        Reply::new().gate(&gate).and_tool("bash", json!({ "command": "pwd" })),
        Reply::text("gone"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let workspace = daemon.workspace().join("sub");
    std::fs::create_dir(&workspace).unwrap();
    let client = daemon.client().await;
    let session = client.create_with(json!({ "cwd": workspace })).await;
    client.attach(&session).await;
    client.prompt(&session, "go").await;
    model.wait_requests(1).await;
    std::fs::remove_dir(&workspace).unwrap();
    gate.open();
    let finished = client.first(&session, "tool_finished").await;
    assert!(finished.raw.contains("the session's directory is gone; this ran in"), "{}", finished.raw);
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn wrong_usage_exits_2_and_help_exits_0() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    for args in [&["nonsense"][..], &["run"], &["run", "--mode", "wild", "x"], &["answer"], &["wait"], &["--nope"]] {
        let output = daemon.cli(args).run().await.exits(2);
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}: {output:?}");
    }
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert!(!daemon.cli(args).run().await.exits(0).stdout.is_empty());
    }
    daemon.cli(&["run", "--", "--help"]).run().await;
    model.forgive(); // The last one is a prompt, and nothing was scripted for it.
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_started_and_daemon_stop_ends_it() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::prepare(&model, Setup::default());
    assert_eq!(daemon.cli(&["run", "hello"]).run().await.exits(0).stdout, "Good day\n");
    let status = daemon.cli(&["daemon", "status", "--json"]).run().await.exits(0).json();
    assert_eq!(status[0]["socket"], json!(daemon.dirs.socket()));
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    assert!(
        linger_tests::harness::comes_true(linger_tests::TIMEOUT, || !daemon.dirs.socket().exists()),
        "it still serves"
    );
}

#[tokio::test]
async fn the_demo_provider_needs_no_key_and_makes_real_tool_calls() {
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, Setup { model: None, keys: false, ..Setup::default() }).await;
    let output = daemon.cli(&["run", "-m", "demo", "--mode", "auto", "hello"]).run().await.exits(0);
    assert!(!output.stdout.is_empty());
    let client = daemon.client().await;
    let session = client.call("session/list", json!({})).await[0]["session"].as_str().unwrap().to_owned();
    client.attach(&session).await;
    client.first(&session, "turn_finished").await;
    assert!(client.transcript().of("tool_finished").count() > 0);
    daemon.check(&[&client], &model);
}

#[tokio::test]
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
async fn a_configuration_that_others_may_read_is_read_and_one_that_is_no_file_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    assert_eq!(daemon.terminate(), Some(0));
    let config = daemon.dirs.config();
    let dir = config.parent().unwrap().to_path_buf();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    daemon.launch().await;
    daemon.cli(&["run", "hello"]).run().await.exits(0);
    assert_eq!(daemon.terminate(), Some(0));
    std::fs::remove_file(&config).unwrap();
    // A pipe: whoever opens it carelessly waits for ever.
    let status = std::process::Command::new("mkfifo").arg(&config).status().unwrap();
    assert!(status.success());
    daemon.launch().await;
    let refused = daemon.cli(&["run", "hello"]).run().await.exits(2);
    assert!(refused.stderr.contains("config.toml"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_session_of_a_renamed_project_is_named_there_takes_prompts_and_moves() {
    let model = ModelServer::with([Reply::text("one"), bash("pwd"), Reply::text("two"), Reply::text("three")]);
    let daemon = Daemon::start(&model).await;
    let (old, new) = (daemon.dirs.root().join("project"), daemon.dirs.root().join("project2"));
    std::fs::create_dir(&old).unwrap();
    daemon.cli(&["run", "hello"]).cwd(&old).run().await.exits(0);
    let session = daemon.cli(&["ls", "--json"]).run().await.exits(0).json()[0]["session"].as_str().unwrap().to_owned();
    daemon.cli(&["set", &session, "--mode", "auto"]).run().await.exits(0);
    std::fs::rename(&old, &new).unwrap();
    // Talking needs no directory, and a command says where it ran.
    let said = daemon.cli(&["run", "-s", &session, "again"]).run().await.exits(0);
    assert_eq!(said.stdout, "two\n");
    assert!(model.requests()[2].messages().contains("the session's directory is gone; this ran in"));
    let named = daemon.cli(&["run", "-c", "there?"]).cwd(&new).run().await.exits(2);
    assert!(named.stderr.contains(&format!("linger set {session} --dir .")), "{named:?}");
    daemon.cli(&["set", &session, "--dir", "nowhere"]).cwd(&new).run().await.exits(2);
    daemon.cli(&["set", &session, "--dir", "."]).cwd(&new).run().await.exits(0);
    let said = daemon.cli(&["run", "-c", "here?"]).cwd(&new).run().await.exits(0);
    assert_eq!(said.stdout, "three\n");
    let row = daemon.cli(&["ls", "--json"]).run().await.exits(0).json().remove(0);
    assert_eq!(row["cwd"].as_str(), new.canonicalize().unwrap().to_str());
    let elsewhere = daemon.cli(&["fork", &session, "--dir", "/", "--json"]).run().await.exits(0).json().remove(0);
    let rows = daemon.cli(&["ls", "--json"]).run().await.exits(0).json();
    let fork = rows.iter().find(|row| row["session"] == elsewhere["session"]).unwrap();
    assert_eq!(fork["cwd"], "/");
    daemon.check(&[], &model);
}
