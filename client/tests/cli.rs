//! The client as a process against a scripted daemon: what goes to stdout, what to stderr, and how it ends.

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

use fake::{Fake, Ran, choice, pending, pending_choice, row};
use serde_json::{Value, json};

#[test]
fn run_prints_the_final_message_alone_to_a_pipe() {
    let fake = Fake::one(|daemon| {
        let prompt = daemon.new_run();
        assert_eq!(prompt["content"], "say it");
        assert!(prompt["key"].as_str().unwrap().len() >= 16);
        daemon.message(4, "m1", "first I look");
        daemon.message(5, "m2", "superseded later");
        daemon.message(6, "m3", "It is\ndone");
        daemon.event("7", json!({"kind": "message_superseded", "seq": 7, "turn": "t1", "message": "m2"}));
        daemon.end(8, "end_turn", None);
        daemon.expect_end();
    });
    let ran = fake.run(&["run", "say", "it"]);
    assert_eq!(ran, Ran { code: Some(0), out: "It is\ndone\n".to_owned(), err: String::new() });
}

#[test]
fn run_with_stream_prints_the_deltas_as_they_are() {
    let fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.delta("3+m1.0.6", "m1", 0, "Good\u{1b}[");
        daemon.delta("3+m1.0.8", "m1", 6, "day");
        daemon.message(4, "m1", "Good\u{1b}[day");
        daemon.end(5, "end_turn", None);
    });
    let ran = fake.run(&["run", "--stream", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "Good\u{1b}[day\n"));
}

#[test]
fn run_with_json_prints_params_as_they_came() {
    let fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.event("4", json!({"kind": "from_the_future", "seq": 4, "x": 1.50}));
        daemon.end(5, "end_turn", None);
    });
    let ran = fake.run(&["run", "--json", "x"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let kinds: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"]["kind"].clone()).collect();
    assert_eq!(
        kinds,
        ["session_created", "caught_up", "prompt_accepted", "turn_started", "from_the_future", "turn_finished"]
    );
    assert!(ran.out.contains(r#"{"session":"s1","cursor":"4","event":{"kind":"from_the_future","seq":4,"x":1.5}}"#));
}

#[test]
fn how_the_turn_ended_is_the_exit_code() {
    for (reason, code) in [
        ("end_turn", 0),
        ("max_tokens", 1),
        ("max_steps", 1),
        ("refusal", 1),
        ("error", 1),
        ("cancelled", 4),
        ("new_one", 1),
    ] {
        let fake = Fake::one(move |daemon| {
            daemon.new_run();
            daemon.end(4, reason, Some("HTTP 500"));
        });
        let ran = fake.run(&["run", "x"]);
        assert_eq!(ran.code, Some(code), "{reason}: {ran:?}");
        assert_eq!(ran.err.contains("HTTP 500"), code != 0, "{reason}: {ran:?}");
    }
}

#[test]
fn what_does_not_exist_is_wrong_usage() {
    let ran = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([]));
        // Nor is it in the bin.
        daemon.answer("session/list", json!([]));
    })
    .run(&["cancel", "nope"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(ran.err, "error: no session is called 'nope'\nhint: `linger ls` lists the sessions\n");

    let ran = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None), row("s2", "running", None)]));
    })
    .run(&["wait", "s"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: 's' could be one of 2 sessions\ns1  idle"), "{}", ran.err);

    let ran = Fake::one(|daemon| {
        daemon.hello();
        daemon.refuse("session/create", -31007, "no model is configured", json!({"hint": "set model"}));
    })
    .run(&["run", "x"]);
    assert_eq!(
        ran,
        Ran { code: Some(2), out: String::new(), err: "error: no model is configured\nhint: set model\n".to_owned() }
    );
    assert_eq!(Fake::start(vec![]).run(&["frobnicate"]).code, Some(2));
    let ran = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("question/list", json!([pending("q1")]));
    })
    .run(&["answer", "q1", "perhaps"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: 'perhaps' is not an answer to q1\nhint: one of allow"), "{}", ran.err);
}

#[test]
fn a_prompt_on_stdin_must_be_text() {
    let run = |input: &'static [u8], fake: &Fake| {
        let mut child = fake
            .linger(&["run", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Ran::from(child.wait_with_output().unwrap())
    };
    let ran = run(b"ok \xff no", &Fake::start(vec![]));
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: stdin is not UTF-8 text: byte 3 cannot be read\nhint: "), "{}", ran.err);
    let ran = run(b" \n", &Fake::start(vec![]));
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: the prompt on stdin is empty\nhint: "), "{}", ran.err);
    let mut fake = Fake::one(|daemon| {
        assert_eq!(daemon.new_run()["content"], "from stdin\n");
        daemon.end(4, "end_turn", None);
    });
    assert_eq!(run(b"from stdin\n", &fake).code, Some(0));
    fake.finish();
}

#[test]
fn a_permission_that_cannot_be_answered_here_ends_run_and_wait_with_3() {
    let fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.question(4);
        daemon.answer("session/list", json!([row("s1", "running", None)]));
        daemon.answer("session/list", json!([row("s1", "waiting", None)]));
        daemon.answer("question/list", json!([pending("q1")]));
    });
    let ran = fake.run(&["run", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""));
    assert!(ran.err.contains("bash wants to run in /w\n    cargo test\n"), "{}", ran.err);
    assert!(ran.err.contains("`linger answer q1 allow|session|always|deny|never`"), "{}", ran.err);

    let fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "running", None)]));
        assert_eq!(daemon.answer("session/attach", json!({"cursor": "7"}))["deltas"], false);
        daemon.event("7", json!({"kind": "caught_up"}));
        daemon.answer("session/list", json!([row("s1", "waiting", None)]));
        daemon.answer("question/list", json!([pending("q1")]));
    });
    assert_eq!(fake.run(&["wait", "s1"]).code, Some(3));
}

#[test]
fn wait_says_how_the_last_turn_ended() {
    for (reason, code) in [("end_turn", 0), ("error", 1), ("cancelled", 4)] {
        let fake = Fake::one(move |daemon| {
            daemon.hello();
            daemon.answer("session/list", json!([row("s1", "running", None)]));
            daemon.answer("session/attach", json!({"cursor": "7"}));
            daemon.end(8, reason, None);
            daemon.answer("session/list", json!([row("s1", "idle", Some(reason))]));
        });
        assert_eq!(fake.run(&["wait", "s1"]).code, Some(code), "{reason}");
    }
}

#[test]
fn a_time_out_leaves_the_work_alone() {
    let fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.expect_end();
    });
    let ran = fake.run(&["run", "--timeout", "0.2", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(124), ""));
    assert!(ran.err.contains("the work continues: `linger attach s1`"), "{}", ran.err);
}

#[test]
fn ctrl_c_cancels_the_turn() {
    let mut fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.delta("3+m1.0.2", "m1", 0, "go");
        assert_eq!(daemon.answer("session/cancel", json!({}))["session"], "s1");
        daemon.end(4, "cancelled", None);
    });
    let child = fake.linger(&["run", "--stream", "x"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = child;
    let mut two = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut two).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    fake.finish();
}

/// Runs a copy of the client in a directory of its own, beside a `lingerd` that is this shell script.
#[allow(clippy::disallowed_methods)]
fn beside(lingerd: Option<&str>) -> Ran {
    use std::os::unix::fs::PermissionsExt as _;
    let fake = Fake::start(vec![]);
    let dir = fake.home().join("bin");
    std::fs::create_dir(&dir).unwrap();
    if let Some(script) = lingerd {
        let program = dir.join("lingerd");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    // By another process: whatever another test starts just now would have the file open for writing, and then it cannot be run.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_linger")).arg(dir.join("linger")).status();
    assert!(copied.unwrap().success());
    let mut command = std::process::Command::new(dir.join("linger"));
    command.arg("ls").env_clear().env("HOME", fake.home());
    Ran::from(command.output().unwrap())
}

#[test]
fn without_the_daemons_program_the_exit_code_is_5_and_says_where_it_looked() {
    let ran = beside(None);
    assert_eq!(ran.code, Some(5));
    assert!(ran.err.contains("bin (the directory of linger) or in a directory of PATH"), "{}", ran.err);
}

#[test]
fn what_a_daemon_says_that_does_not_start_is_passed_on() {
    let ran = beside(Some(
        "test \"$1\" = --background && echo 'error: the disk is full' >&2; echo 'hint: make room' >&2; exit 1",
    ));
    let err = "error: the daemon does not start: the disk is full\nhint: make room\n".to_owned();
    assert_eq!(ran, Ran { code: Some(5), out: String::new(), err });
}

#[test]
fn at_a_socket_that_was_named_no_daemon_is_started() {
    let fake = Fake::start(vec![]);
    for name in ["none", "none/none"] {
        let path = fake.home().join(name);
        let output = fake.linger(&["ls"]).env("LINGER_SOCKET", &path).output().unwrap();
        let ran = Ran::from(output);
        assert_eq!(ran.code, Some(5));
        assert!(ran.err.contains(&format!("nothing listens at {}", path.display())), "{}", ran.err);
    }
}

#[test]
fn a_daemon_of_another_protocol_is_left_alone() {
    let fake = Fake::one(|daemon| {
        daemon.refuse("daemon/hello", -31018, "this is lingerd 9, which speaks protocol 7 to 8", json!(null));
        daemon.expect_end();
    });
    let ran = fake.run(&["ls"]);
    assert_eq!(ran.code, Some(5));
    assert!(
        ran.err.contains("protocol 7 to 8; this is linger") && ran.err.contains("linger daemon restart"),
        "{}",
        ran.err
    );
}

#[test]
fn a_socket_in_a_directory_that_others_can_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let fake = Fake::start(vec![]);
    std::fs::set_permissions(fake.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = fake.run(&["ls"]);
    assert_eq!(ran.code, Some(5));
    assert!(ran.err.contains("can be entered by others (mode 755)"), "{}", ran.err);
}

#[test]
fn an_answer_carries_the_digest_of_what_was_listed() {
    let fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("question/list", json!([pending("q1abc"), pending("q2")]));
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!(
            (&answer["question"], &answer["answer"], &answer["digest"], &answer["reason"]),
            (&json!("q1abc"), &json!("reject_once"), &json!("sha256:9f"), &json!("not now"))
        );
    });
    let ran = fake.run(&["answer", "q1ab", "deny", "--reason", "not now"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""));
    assert!(ran.err.contains("cargo test\n  denied"), "{}", ran.err);
}

#[test]
fn a_choice_is_listed_with_its_options_and_answered_by_the_name_of_one() {
    let rows = || json!([pending("q1"), pending_choice("q2", Some("s1")), pending_choice("q3", None)]);
    let fake = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", rows());
    });
    let ran = fake.run(&["inbox"]);
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..2], ["q1", "s1"]);
    assert_eq!((&lines[1][..2], &lines[1][4..]), (&["q2", "s1"][..], &["choice", "go", "on?", "(go_on|stop)"][..]));
    assert_eq!(lines[2][..2], ["q3", "-"]);

    let fake = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", rows());
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!(
            (&answer["question"], &answer["answer"], &answer["digest"]),
            (&json!("q3"), &json!("stop"), &json!("sha256:7c"))
        );
    });
    let ran = fake.run(&["answer", "--json", "q3", "stop"]);
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, said), (Some(0), json!({"question": "q3", "answer": "stop"})));

    let fake = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", rows());
        daemon.expect_end();
    });
    let ran = fake.run(&["answer", "q2", "allow"]);
    let err = "error: 'allow' is not an answer to q2\nhint: one of go_on, stop\n";
    assert_eq!(ran, Ran { code: Some(2), out: String::new(), err: err.to_owned() });
}

#[test]
fn a_kind_of_question_that_is_not_known_is_listed_and_left_to_others() {
    let listed = || {
        let mut row = pending_choice("q1", Some("s1"));
        row["kind"] = json!("from_the_future");
        json!([row])
    };
    let fake = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", listed());
    });
    assert!(fake.run(&["inbox"]).out.contains("go on?"));
    let fake = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", listed());
        daemon.expect_end();
    });
    let ran = fake.run(&["answer", "q1", "stop"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("this version of linger cannot show question"), "{}", ran.err);
}

#[test]
fn a_choice_that_holds_up_the_turn_ends_run_with_3_and_one_that_does_not_waits_aside() {
    let asked =
        |blocks| json!({"kind": "question_asked", "seq": 4, "turn": "t1", "question": "q2", "asked": choice(blocks)});
    let fake = Fake::one(move |daemon| {
        daemon.new_run();
        daemon.event("4", asked("turn"));
        daemon.answer("session/list", json!([row("s1", "waiting", None)]));
        daemon.answer("question/list", json!([pending_choice("q2", Some("s1"))]));
    });
    let ran = fake.run(&["run", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""));
    assert!(ran.err.contains("? go on?\n    1 go on (go_on)\n    2 stop here (stop)\n"), "{}", ran.err);
    assert!(ran.err.contains("`linger answer q2 go_on|stop`"), "{}", ran.err);
    let fake = Fake::one(move |daemon| {
        daemon.new_run();
        daemon.event("4", asked("nothing"));
        daemon.end(5, "end_turn", None);
    });
    assert_eq!(fake.run(&["run", "x"]).code, Some(0));
}

#[test]
fn a_lost_race_says_who_won() {
    let won = json!({"answer": "allow_once", "by": "linger@pts/3", "at": 1});
    let data = won.clone();
    let ran = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", json!([pending("q1")]));
        daemon.refuse("question/answer", -31001, "already answered", data);
    })
    .run(&["answer", "q1", "deny"]);
    let err = "error: already answered: allowed by linger@pts/3\n\
               hint: that answer counts; `linger inbox` lists the questions that still wait\n";
    assert_eq!(ran, Ran { code: Some(1), out: String::new(), err: err.to_owned() });
    let ran = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("question/list", json!([]));
        daemon.refuse("question/answer", -31001, "already answered", won);
    })
    .run(&["answer", "q1", "deny"]);
    assert_eq!(ran.err, err);
}

#[test]
fn log_ends_with_the_prompts_that_are_still_queued() {
    let fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "running", None)]));
        daemon.answer("session/attach", json!({"cursor": "4"}));
        for (seq, prompt, text) in [(1, "p1", "first"), (2, "p2", "second\nline")] {
            let content = json!([{"type": "text", "text": text}]);
            let accepted =
                json!({"kind": "prompt_accepted", "seq": seq, "prompt": prompt, "content": content, "when": "queue"});
            daemon.event(&seq.to_string(), accepted);
        }
        daemon.event("3", json!({"kind": "turn_started", "seq": 3, "turn": "t1", "prompt": "p1"}));
        daemon.event("3", json!({"kind": "caught_up"}));
    });
    let ran = fake.run(&["log", "s1"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "queued: second\n"));
}

#[test]
fn keys_that_the_daemon_wants_are_brought() {
    let fake = Fake::one(|daemon| {
        daemon.answer(
            "daemon/hello",
            json!({"protocol": 1, "version": env!("CARGO_PKG_VERSION"), "env": [], "keys": ["SOME_KEY", "OTHER_KEY"]}),
        );
        assert_eq!(daemon.answer("daemon/keys", json!({}))["keys"], json!({"SOME_KEY": "secret"}));
        daemon.answer("session/list", json!([row("s1", "waiting", None)]));
    });
    let ran = fake.run(&["ls", "--json"]);
    assert_eq!((ran.code, ran.out), (Some(0), format!("{}\n", row("s1", "waiting", None))));
}

#[test]
fn log_prints_the_whole_story_on_stdout() {
    let fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None)]));
        daemon.answer("session/attach", json!({"cursor": "9"}));
        daemon.event(
            "4",
            json!({"kind": "message", "seq": 4, "message": "m1", "role": "user", "prompt": "p1",
                                 "content": [{"type": "text", "text": "hello"}]}),
        );
        daemon.message(5, "m2", "Good day");
        daemon.end(6, "cancelled", None);
        daemon.event("6", json!({"kind": "caught_up"}));
    });
    let ran = fake.run(&["log", "s1"]);
    let out = "> hello\n  Good day\ncancelled\n0 tokens in, 0 out, 1 step\n".to_owned();
    assert_eq!(ran, Ran { code: Some(0), out, err: String::new() });
}

#[test]
fn an_interactive_session_needs_a_terminal() {
    let ran = Fake::start(vec![]).run(&[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("needs a terminal") && ran.err.contains("linger run PROMPT"), "{}", ran.err);
}

#[test]
fn help_needs_no_daemon() {
    let ran = Fake::start(vec![]).run(&["help", "schema"]);
    let schema: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(schema["methods"]["session/prompt"].is_object());
    let ran = Fake::start(vec![]).run(&["help", "run"]);
    assert!(ran.code == Some(0) && ran.out.contains("--timeout"), "{ran:?}");
    assert!(Fake::start(vec![]).run(&["--version"]).out.starts_with("linger "));
}

#[test]
fn wrong_usage_shows_an_argument_that_steers_a_terminal_in_visible_characters() {
    let evil = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}";
    let option = format!("--{evil}");
    for arguments in
        [vec![option.as_str()], vec!["ls", evil], vec!["run", "--mode", evil, "hi"], vec!["wait", "--timeout", evil]]
    {
        let ran = Fake::start(vec![]).run(&arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.err.contains("␛]0;x␇<009b>2J<202e>"), "{ran:?}");
        assert!(!ran.err.contains(|c: char| c.is_control() && c != '\n'), "{ran:?}");
    }
}

#[test]
fn a_request_that_is_too_large_fails_at_once() {
    let fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None)]));
        daemon.expect_end();
    });
    let mut child = fake.linger(&["send", "s1"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Quotes are escaped on the wire: what fits into memory does not fit into a request.
    stdin.write_all(&vec![b'"'; linger_protocol::transport::MAX_REQUEST - 1000]).unwrap();
    drop(stdin);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.starts_with("error: the request cannot be sent: it has "), "{}", ran.err);
    assert!(ran.err.ends_with("\nhint: make the prompt shorter\n"), "{}", ran.err);

    let mut child = Fake::start(vec![]).linger(&["run"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It reads no more than it needs.
    let _ = stdin.write_all(&vec![b'x'; linger_protocol::transport::MAX_REQUEST + 1]);
    drop(stdin);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.ends_with("\nhint: make the prompt shorter\n"), "{}", ran.err);
}

#[test]
fn what_people_read_cannot_steer_their_terminal_through_a_pipe() {
    let evil = "a\u{1b}[2Jb";
    let inbox = || {
        Fake::one(move |daemon| {
            daemon.hello();
            let mut row = pending("q1");
            row["action"] = json!(evil);
            daemon.answer("question/list", json!([row]));
        })
    };
    assert!(inbox().run(&["inbox"]).out.ends_with("bash  a␛[2Jb\n"));
    let json: Value = serde_json::from_str(&inbox().run(&["inbox", "--json"]).out).unwrap();
    assert_eq!(json["action"], evil);

    let ran = Fake::one(move |daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None)]));
        daemon.answer("session/attach", json!({"cursor": "4"}));
        daemon.message(4, "m1", evil);
        daemon.event("4", json!({"kind": "caught_up"}));
    })
    .run(&["log", "s1"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "  a␛[2Jb\n"));
}

#[test]
fn a_broken_configuration_is_told_of_by_every_command() {
    let check = |stale: bool, hint: &str| {
        let fake = Fake::one(move |daemon| {
            let error = "config.toml:3: no such key";
            let welcome = json!({"protocol": 1, "version": env!("CARGO_PKG_VERSION"), "env": [], "keys": [], "config_error": error, "config_stale": stale});
            daemon.answer("daemon/hello", welcome);
            daemon.answer("session/list", json!([row("s1", "idle", None)]));
        });
        let ran = fake.run(&["ls", "--json"]);
        assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 1));
        assert_eq!(ran.err, format!("warning: config.toml:3: no such key\nhint: {hint}\n"));
    };
    check(true, "fix the file; until then its last valid content is used");
    check(false, "fix the file; until then sessions can be read, but no turn starts");
}

#[test]
fn a_turn_that_failed_says_once_what_to_do() {
    let end = |reason: &str| {
        json!({"kind": "turn_finished", "seq": 8, "turn": "t1", "stop_reason": reason, "detail": "no key",
               "hint": "set a key", "usage": {}, "steps": 1})
    };
    for (reason, hints) in [("error", 1), ("max_steps", 1), ("end_turn", 0)] {
        let ran = Fake::one(move |daemon| {
            daemon.new_run();
            daemon.event("8", end(reason));
        })
        .run(&["run", "x"]);
        assert_eq!(ran.err.matches("hint: set a key\n").count(), hints, "{reason}: {ran:?}");

        // Once it ends while we wait, and once it has ended long ago.
        let ran = Fake::one(move |daemon| {
            daemon.hello();
            daemon.answer("session/list", json!([row("s1", "running", None)]));
            daemon.answer("session/attach", json!({"cursor": "7"}));
            daemon.event("8", end(reason));
            daemon.answer("session/list", json!([row("s1", "idle", Some(reason))]));
        })
        .run(&["wait", "s1"]);
        assert_eq!(ran.err.matches("hint: set a key\n").count(), hints, "{reason}: {ran:?}");
        let ran = Fake::one(move |daemon| {
            daemon.hello();
            daemon.answer("session/list", json!([row("s1", "idle", Some(reason))]));
            let attach = daemon.answer("session/attach", json!({"cursor": "3"}));
            assert_eq!(attach["after"], if hints > 0 { "3" } else { "7" });
            daemon.event("8", end(reason));
        })
        .run(&["wait", "s1"]);
        assert_eq!(ran.err.matches("hint: set a key\n").count(), hints, "{reason}: {ran:?}");
    }
}

#[test]
fn an_empty_prompt_is_refused_before_anything_else() {
    for arguments in [&["run", ""][..], &["run", " ", "\t"], &["run"], &["run", "-"], &["send", "s1", " \n"]] {
        let ran = Fake::start(vec![]).run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.err.starts_with("error: the prompt ") && ran.err.contains("\nhint: "), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn a_cancel_with_nothing_under_way_has_a_hint() {
    let ran = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([row("s1", "idle", None)]));
        daemon.refuse("session/cancel", -31014, "session s1 has no running turn", Value::Null);
    })
    .run(&["cancel", "s1"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("error: session s1 has no running turn\nhint: "), "{}", ran.err);
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_has_no_name_in_utf8_is_sent_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt as _;

    let mut fake = Fake::one(|daemon| {
        daemon.hello();
        let (_, params) = daemon.expect("session/create");
        assert!(params["cwd"].as_str().unwrap().ends_with("/\u{fffd}ff"), "{params}");
    });
    let directory = fake.home().join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&directory).unwrap();
    let ran = Ran::from(fake.linger(&["new"]).current_dir(directory).output().unwrap());
    fake.finish();
    assert_eq!(ran.code, Some(5), "the fake hangs up: {ran:?}");
}
