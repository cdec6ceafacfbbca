//! The client on a connection that is lost, refused or slow, or while its output is not read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod fake;

use std::io::Write as _;
use std::process::Stdio;

use fake::{Fake, Ran, row};
use serde_json::json;

#[test]
fn a_lost_connection_is_made_again_and_nothing_is_printed_twice() {
    let fake = Fake::start(vec![
        Box::new(|daemon| {
            daemon.new_run();
            daemon.delta("3+m1.0.6", "m1", 0, "Good d");
        }),
        Box::new(|daemon| {
            daemon.hello();
            assert_eq!(daemon.answer("session/attach", json!({"cursor": "5"}))["after"], "3+m1.0.6");
            daemon.delta("3+m1.0.8", "m1", 6, "ay");
            daemon.message(4, "m1", "Good day");
            daemon.message(4, "m1", "Good day");
            daemon.end(5, "end_turn", None);
            daemon.expect_end();
        }),
    ]);
    let ran = fake.run(&["run", "--stream", "x"]);
    assert_eq!(ran, Ran { code: Some(0), out: "Good day\n".to_owned(), err: String::new() });
}

#[test]
fn a_prompt_that_a_dying_daemon_took_is_sent_again_with_the_same_key() {
    let (tell, told) = std::sync::mpsc::channel();
    let fake = Fake::start(vec![
        Box::new(move |daemon| {
            daemon.new_session();
            tell.send(daemon.expect("session/prompt").1).unwrap();
        }),
        Box::new(move |daemon| {
            daemon.hello();
            daemon.answer("session/attach", json!({"cursor": "3"}));
            daemon.event(
                "2",
                json!({"kind": "prompt_accepted", "seq": 2, "prompt": "p1", "content": [], "when": "queue"}),
            );
            daemon.event("3", json!({"kind": "turn_started", "seq": 3, "turn": "t1", "prompt": "p1"}));
            daemon.message(4, "m1", "once");
            daemon.end(5, "end_turn", None);
            assert_eq!(daemon.answer("session/prompt", json!({"prompt": "p1", "seq": 2})), told.recv().unwrap());
        }),
    ]);
    let ran = fake.run(&["run", "x"]);
    assert_eq!(ran, Ran { code: Some(0), out: "once\n".to_owned(), err: String::new() });
}

#[test]
fn a_signal_while_a_client_comes_back_is_what_it_is_at_any_other_time() {
    use rustix::process::{Pid, Signal, kill_process};
    for (signal, code) in [(Signal::HUP, 129), (Signal::TERM, 143)] {
        let (tell, told) = std::sync::mpsc::channel();
        let mut fake = Fake::start(vec![
            Box::new(|daemon| drop(daemon.new_run())),
            // It is found again, and says nothing.
            Box::new(move |daemon| {
                daemon.expect("daemon/hello");
                tell.send(()).unwrap();
                daemon.expect_end();
            }),
        ]);
        let mut child = fake.linger(&["run", "x"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        told.recv().unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        fake.finish();
    }
}

#[test]
fn a_daemon_that_reads_nothing_more_delays_no_client() {
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let mut fake = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("session/create", json!({"session": "s1"}));
        // Until the test is over.
        assert!(left.recv().is_err());
    });
    let mut run = fake.linger(&["run", "--timeout", "1"]);
    let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; 8 << 20]).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124));
    drop(leave);
    fake.finish();
}

#[test]
fn a_daemon_that_answers_nothing_delays_a_client_until_its_timeout_only() {
    for command in [["run", "--timeout", "1", "x"], ["wait", "--timeout", "1", "s1"]] {
        let fake = Fake::one(|daemon| {
            daemon.expect("daemon/hello");
            daemon.expect_end();
        });
        let ran = fake.run(&command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(124), ""), "{}", ran.err);
        assert!(ran.err.contains("did not answer before the timeout"), "{}", ran.err);
    }
}

#[test]
fn a_connection_that_the_daemon_refuses_is_tried_again_only_if_there_may_be_room() {
    let refusal = |code: i32, message: &str| json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message, "data": {"hint": "close one"}}});
    let full = refusal(-31015, "512 connections are already open");
    let crowded = Fake::start(vec![
        Box::new(move |daemon| daemon.send(&full)),
        Box::new(|daemon| {
            daemon.hello();
            daemon.answer("session/list", json!([row("s1", "idle", None)]));
        }),
    ]);
    assert_eq!(crowded.run(&["ls", "--json"]).code, Some(0));
    let closed = refusal(-31014, "it is not for you");
    let ran = Fake::one(move |daemon| daemon.send(&closed)).run(&["ls"]);
    let err = "error: it is not for you\nhint: close one\n".to_owned();
    assert_eq!(ran, Ran { code: Some(5), out: String::new(), err });
}

#[test]
fn a_client_that_reconnects_to_a_full_daemon_waits_for_a_place() {
    // More than fit into the time in which a keeper is waited for.
    const REFUSALS: usize = 14;
    let full =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -31015, "message": "512 connections are already open"}});
    let mut scripts: Vec<fake::Script> = vec![Box::new(|daemon| {
        daemon.new_run();
        daemon.delta("4+m1.0.4", "m1", 0, "done");
    })];
    for _ in 0..REFUSALS {
        let full = full.clone();
        scripts.push(Box::new(move |daemon| daemon.send(&full)));
    }
    scripts.push(Box::new(|daemon| {
        daemon.hello();
        assert_eq!(daemon.answer("session/attach", json!({"cursor": "3"}))["after"], "4+m1.0.4");
        daemon.message(4, "m1", "done");
        daemon.end(5, "end_turn", None);
    }));
    let ran = Fake::start(scripts).run(&["run", "x"]);
    assert_eq!(ran, Ran { code: Some(0), out: "done\n".to_owned(), err: String::new() });
}

#[test]
fn a_prompt_that_the_daemon_has_given_up_is_sent_again_with_the_same_key() {
    let (tell, told) = std::sync::mpsc::channel();
    let fake = Fake::start(vec![
        Box::new(move |daemon| {
            daemon.new_session();
            daemon.event("1", json!({"kind": "session_created", "seq": 1, "cwd": "/", "model": "m", "mode": "ask"}));
            tell.send(daemon.expect("session/prompt").1["key"].clone()).unwrap();
            let much = json!({"code": -31015, "message": "a large request was given up before its end"});
            daemon.send(&json!({"jsonrpc": "2.0", "id": null, "error": much}));
            // The connection would live on.
            daemon.expect_end();
        }),
        Box::new(move |daemon| {
            daemon.hello();
            assert_eq!(daemon.answer("session/attach", json!({"cursor": "1"}))["after"], "1");
            let prompt = daemon.answer("session/prompt", json!({"prompt": "p1", "seq": 2}));
            assert_eq!(prompt["key"], told.recv().unwrap());
            daemon.event("3", json!({"kind": "turn_started", "seq": 3, "turn": "t1", "prompt": "p1"}));
            daemon.message(4, "m1", "done");
            daemon.end(5, "end_turn", None);
        }),
    ]);
    let ran = fake.run(&["run", "x"]);
    assert_eq!(ran, Ran { code: Some(0), out: "done\n".to_owned(), err: String::new() });
}

#[test]
fn a_history_stays_with_the_daemon_while_our_output_is_not_read() {
    const EVENTS: usize = 500;
    let mut fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None)]));
        daemon.answer("session/attach", json!({"cursor": "7"}));
        let text = "x".repeat(64 << 10);
        let event = |n| json!({"kind": "notice", "seq": n + 1, "level": "info", "text": text});
        let taken = daemon.flood((0..EVENTS).map(event));
        assert!(taken.is_some(), "all of {EVENTS} events were taken, and nobody reads them");
    });
    let mut child =
        fake.linger(&["log", "--json", "s1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    fake.finish();
    child.kill().unwrap();
    child.wait().unwrap();
}
