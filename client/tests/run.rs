//! `run`: an interrupted turn, and what it prints when it leaves a turn running.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod fake;

use fake::{Fake, row};
use serde_json::json;

#[test]
fn run_ends_when_its_turn_is_offered() {
    let fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.event(
            "4",
            json!({"kind": "notice", "seq": 4, "turn": "t1", "level": "warning", "code": "offered", "text": "continue it by hand"}),
        );
        daemon.answer("session/list", json!([row("s1", "offered", None)]));
        daemon.expect_end();
    });
    let ran = fake.run(&["run", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let expect = "error: the turn of session s1 was interrupted\nhint: `linger queue s1 --run` resumes it\n";
    assert!(ran.err.ends_with(expect), "{}", ran.err);
}

#[test]
fn detached_run_prints_json_if_it_is_to() {
    let fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/create", json!({"session": "s1"}));
        daemon.answer("session/prompt", json!({"prompt": "p1", "seq": 2}));
        daemon.expect_end();
    });
    let ran = fake.run(&["run", "-d", "--json", "x"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "{\"session\":\"s1\",\"prompt\":\"p1\"}\n"));
}
