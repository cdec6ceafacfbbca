//! Turns that others began, that were cancelled, and that were left unfinished.

use serde_json::json;

use super::fake::{Connection, Fake};
use super::{Session, at_work, attached, cancelled, turn, turn_at};

#[test]
fn another_clients_turn_is_seen_above_the_open_prompt_and_its_question_answered() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        daemon.event("9", json!({"kind": "turn_started", "seq": 9, "turn": "t1", "prompt": "p7"}));
        daemon.event(
            "10",
            json!({"kind": "message", "seq": 10, "turn": "t1", "message": "m5", "role": "user", "prompt": "p7",
                                  "content": [{"type": "text", "text": "from elsewhere"}]}),
        );
        daemon.question(11);
        assert_eq!(daemon.answer("question/answer", json!({"outcome": "won"}))["answer"], "reject_once");
        daemon.end(12, "end_turn", None);
        turn_at(daemon, 14, "no more");
        daemon.delta("14+m6.0.5", "m6", 0, "busy ");
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> from elsewhere");
    session.see("? help");
    session.see("> ");
    // The beginning of a line, maybe: a key alone answers nothing here.
    session.press("a\u{7f}n\r");
    session.see("1 step");
    session.press("no more\r");
    session.see("  busy");
    session.leave();
    fake.finish();
}

#[test]
fn what_arrives_while_a_line_is_sent_is_shown_in_order_and_once() {
    const LINES: usize = 3000;
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        daemon.event("9", json!({"kind": "turn_started", "seq": 9, "turn": "t1", "prompt": "p7"}));
        let mut text = String::new();
        for n in 0..LINES {
            let line = format!("line {n}.\n");
            daemon.delta(&format!("9+m5.0.{}", text.len() + line.len()), "m5", text.len() as u64, &line);
            text += &line;
        }
        assert_eq!(daemon.answer("session/prompt", json!({"prompt": "p8", "seq": 10}))["content"], "hello");
        daemon.message(11, "m5", &text);
        daemon.end(12, "end_turn", None);
        daemon.event("13", json!({"kind": "turn_started", "seq": 13, "turn": "t2", "prompt": "p8"}));
        daemon.delta("13+m6.0.7", "m6", 0, "the end");
        daemon.end(15, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    let seen = session.take_until("line 20.");
    session.press("hello\r");
    let seen = seen + &session.take_until("the end");
    let lines: Vec<&str> =
        seen.split("line ").skip(1).filter_map(|rest| rest.split_once('.')).map(|(n, _)| n).collect();
    let expect: Vec<String> = (0..LINES).map(|n| n.to_string()).collect();
    assert_eq!(lines, expect);
    session.see("> ");
    session.leave();
    fake.finish();
}

#[test]
fn a_removed_session_ends_its_terminals_also_in_mid_line() {
    for open in [false, true] {
        let mut fake = Fake::one(move |daemon| {
            attached(daemon);
            if !open {
                turn(daemon, "test");
                daemon.delta("9+m2.0.4", "m2", 0, "half ");
            }
            let text = "the session was removed";
            let gone = json!({"kind": "notice", "level": "warning", "code": "removed", "text": text});
            daemon.event("9", gone);
            daemon.expect_end();
        });
        let mut session = Session::start(&fake, &["attach", "s1"]);
        if !open {
            session.see("> ");
            session.press("test\r");
            session.see("half\r\n");
        }
        session.see("warning: the session was removed\r\n");
        assert_eq!(session.end(), 1);
        fake.finish();
    }
}

#[test]
fn ctrl_c_cancels_the_turn_and_the_prompt_comes_back() {
    let mut fake = Fake::one(|daemon| {
        at_work(daemon);
        daemon.answer("session/cancel", json!({}));
        cancelled(daemon, 10, 2);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.begin_work();
    session.press("\u{3}");
    session.see("cancelled");
    session.see("2 prompts are still queued; /continue or a new prompt starts them\r\n");
    session.see("> ");
    session.press("/detach\r");
    session.see("detached");
    assert_eq!(session.end(), 0);
    fake.finish();
}

/// A turn of another client's, in the middle of a line.
fn of_another(daemon: &mut Connection) {
    daemon.event("9", json!({"kind": "turn_started", "seq": 9, "turn": "t1", "prompt": "p7"}));
    daemon.delta("9+m5.0.10", "m5", 0, "whole\nhalf");
}

#[test]
fn ctrl_c_at_an_empty_prompt_cancels_another_clients_turn() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        of_another(daemon);
        daemon.answer("session/cancel", json!({}));
        cancelled(daemon, 10, 0);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("whole\r\n");
    session.press("typed");
    session.see("typed");
    session.press("\u{3}");
    session.see("press Ctrl-C again to cancel the turn, Ctrl-D to leave\r\n");
    session.see("> ");
    session.press("\u{3}");
    session.see("half\r\ncancelled");
    session.see("> ");
    session.leave();
    fake.finish();
}

#[test]
fn what_is_said_at_a_prompt_leaves_the_models_line_whole() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        of_another(daemon);
        assert_eq!(daemon.refuse("session/set", -32602, "no such model", json!({}))["model"], "x/y");
        daemon.delta("9+m5.0.16", "m5", 10, " a line\n");
        daemon.end(10, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("whole\r\n");
    session.press("/mode\r");
    session.see("mode: ask\r\n");
    session.see("> ");
    session.press("/model x/y\r");
    session.see("error: no such model\r\n");
    session.see("half a line\r\n");
    session.see("1 step");
    session.see("> ");
    session.leave();
    fake.finish();
}

#[test]
fn continue_counts_like_a_prompt() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        daemon.refuse("session/continue", -31014, "session s1 has nothing to continue", json!({}));
        daemon.answer("session/continue", json!({}));
        daemon.event("9", json!({"kind": "turn_started", "seq": 9, "turn": "t1", "prompt": "p7"}));
        daemon.delta("9+m5.0.5", "m5", 0, "half ");
        daemon.answer("session/cancel", json!({}));
        cancelled(daemon, 10, 0);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("/continue\r");
    session.see("error: session s1 has nothing to continue\r\n");
    session.see("> ");
    session.press("/continue\r");
    // The line is not whole.
    session.see("half");
    session.press("\u{3}");
    session.see("cancelled");
    session.see("> ");
    session.leave();
    fake.finish();
}

/// The turn under way is left unfinished.
fn offered(daemon: &mut Connection, seq: u64) {
    let text = "the daemon was restarted; the turn waits to be continued";
    let notice =
        json!({"kind": "notice", "seq": seq, "turn": "t1", "level": "warning", "code": "offered", "text": text});
    daemon.event(&seq.to_string(), notice);
}

fn continued(daemon: &mut Connection, seq: u64) {
    let notice = json!({"kind": "notice", "seq": seq, "turn": "t1", "level": "info", "code": "continued", "text": "the turn resumes"});
    daemon.event(&seq.to_string(), notice);
}

#[test]
fn a_turn_that_is_offered_gives_a_prompt_and_continue_takes_it_up() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.delta("9+m2.0.4", "m2", 0, "half");
        offered(daemon, 10);
        daemon.answer("session/continue", json!({}));
        continued(daemon, 11);
        daemon.delta("11+m3.0.4", "m3", 0, "more ");
        daemon.answer("session/cancel", json!({}));
        cancelled(daemon, 12, 0);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see("half\r\nwarning: the daemon was restarted; the turn waits to be continued\r\n");
    // It may be drawn a moment later, below the status.
    session.see("hint: /continue");
    session.see("> ");
    session.press("\u{3}");
    session.see("the turn was interrupted: /continue resumes it");
    session.see("> ");
    session.press("/continue\r");
    session.see("the turn resumes\r\n");
    session.see("  more");
    session.press("\u{3}");
    session.see("cancelled");
    session.see("> ");
    session.press("\u{4}");
    session.see("detached; attach again");
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn who_attaches_to_an_offered_turn_has_a_prompt_and_its_question() {
    let mut fake = Fake::one(|daemon| {
        daemon.hello();
        daemon.answer("session/list", json!([super::row("s1", "offered", None)]));
        daemon.answer("session/attach", json!({"cursor": "7"}));
        daemon.event("4", json!({"kind": "turn_started", "seq": 4, "turn": "t1", "prompt": "p1"}));
        offered(daemon, 5);
        continued(daemon, 6);
        daemon.question(7);
        offered(daemon, 8);
        daemon.event("8", json!({"kind": "caught_up"}));
        assert_eq!(daemon.answer("question/answer", json!({"outcome": "won"}))["answer"], "allow_once");
        continued(daemon, 9);
        daemon.end(10, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    let seen = session.take_until("hint: /continue");
    assert_eq!(seen.matches("the turn waits to be continued").count(), 2, "{seen}");
    session.see("? help");
    session.see("> ");
    session.press("y\r");
    session.see("1 step");
    session.see("> ");
    session.leave();
    fake.finish();
}

#[test]
fn ctrl_c_in_the_users_editor_or_pager_is_that_programs_and_cancels_nothing() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.event(
            "10",
            json!({"kind": "tool_started", "seq": 10, "turn": "t1", "call_id": "c1", "tool": "bash", "action": "ls"}),
        );
        let text = json!([{"type": "text", "text": "all of it"}]);
        let finished = json!({"kind": "tool_finished", "seq": 11, "turn": "t1", "call_id": "c1", "content": text, "is_error": false, "outcome": "ran", "ms": 3});
        daemon.event("11", finished);
        daemon.delta("11+m2.0.5", "m2", 0, "work ");
        assert_eq!(daemon.answer("session/prompt", json!({"prompt": "p2", "seq": 12}))["content"], "more");
        daemon.delta("12+m2.5.9", "m2", 5, "on ");
        daemon.expect_end();
    });
    let program = "trap 'echo caught' INT; echo begins; read line </dev/tty || read line </dev/tty; :";
    let variables = [("VISUAL", program), ("PAGER", program)];
    let mut session = Session::start_with(&fake, &["attach", "s1"], &variables);
    session.begin_work();
    for opens in ["/output\r", "more\u{18}\u{5}"] {
        session.press(opens);
        session.see("begins");
        session.press("\u{3}");
        session.see("caught");
        session.press("\r");
        session.see("> ");
    }
    session.press("\r");
    session.see("work on");
    session.leave();
    fake.finish();
}
