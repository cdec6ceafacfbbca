//! Questions: which keys answer them, and that nothing else does.

use serde_json::json;

use super::fake::{Connection, Fake, choice};
use super::{Session, attached, turn, turn_at};

/// A turn of an interactive session, and one of `run`, in which the daemon asks by `script` and a person answers.
fn asked_in_a_turn(script: fn(&mut Connection), answer: fn(&mut Session)) {
    let mut fake = Fake::one(move |daemon| {
        attached(daemon);
        turn(daemon, "test");
        script(daemon);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    answer(&mut session);
    session.see("1 step");
    session.leave();
    fake.finish();

    let mut fake = Fake::one(move |daemon| {
        daemon.new_run();
        script(daemon);
    });
    let mut session = Session::start(&fake, &["run", "x"]);
    answer(&mut session);
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn a_question_is_answered_with_one_key_and_ctrl_d_leaves_a_turn() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.question(10);
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["answer"], &answer["digest"]), (&json!("allow_session"), &json!("sha256:9f")));
        daemon.event("11", json!({"kind": "permission_resolved", "seq": 11, "turn": "t1", "permission": "q1", "decision": "allow_session", "by": "nvim"}));
        daemon.event("12", json!({"kind": "tool_started", "seq": 12, "turn": "t1", "call_id": "c1", "tool": "bash", "action": "cargo test"}));
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see(
        "? bash wants to run in /w\r\n    cargo test\r\ny once  s this session  a always bash(cargo test)  n no  ",
    );
    session.see("? help\r\n");
    session.press("s");
    session.see("allowed in this session by nvim");
    session.see("• bash cargo test\r\n");
    session.press("\u{4}");
    session.see("detached; the work continues; attach again with `linger attach s1`");
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn a_key_answers_only_the_question_that_was_shown_when_it_was_typed() {
    fn script(daemon: &mut Connection) {
        daemon.question_about(10, "q1", "first");
        daemon.question_about(11, "q2", "second");
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["question"], &answer["answer"]), (&json!("q1"), &json!("allow_once")));
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["question"], &answer["answer"]), (&json!("q2"), &json!("reject_once")));
        daemon.end(12, "end_turn", None);
    }
    fn answer(session: &mut Session) {
        session.see("    first\r\n");
        session.see("n no");
        // The second may have been meant for the next question, and decides nothing once that is shown.
        session.press("y");
        session.see("    second\r\n");
        session.see("n no");
        session.press("n");
    }
    asked_in_a_turn(script, answer);
}

#[test]
fn an_answer_that_is_refused_leaves_its_question_open() {
    fn script(daemon: &mut Connection) {
        daemon.question(10);
        let full = json!({"hint": "allow it once"});
        daemon.refuse("question/answer", -31015, "a rule may have 8192 bytes", full);
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["question"], &answer["answer"]), (&json!("q1"), &json!("allow_once")));
        daemon.end(12, "end_turn", None);
    }
    fn answer(session: &mut Session) {
        session.see("n no");
        session.press("s");
        session.see("error: a rule may have 8192 bytes\r\nhint: allow it once\r\n");
        session.see("? bash wants to run");
        session.see("n no");
        session.press("y");
    }
    asked_in_a_turn(script, answer);
}

#[test]
fn a_question_that_another_client_answers_disappears() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.question(10);
        daemon.event("11", json!({"kind": "permission_resolved", "seq": 11, "turn": "t1", "permission": "q1", "decision": "allow_once", "by": "linger@pts/99"}));
        daemon.end(12, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see("cargo test");
    session.see("allowed by linger@pts/99");
    session.see("> ");
    session.press("\u{4}");
    session.see("detached");
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn a_choice_is_answered_by_number() {
    fn script(daemon: &mut Connection) {
        daemon.event(
            "10",
            json!({"kind": "question_asked", "seq": 10, "turn": "t1", "question": "q2", "asked": choice("turn")}),
        );
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["question"], &answer["answer"]), (&json!("q2"), &json!("stop")));
        daemon.event("11", json!({"kind": "question_resolved", "seq": 11, "turn": "t1", "question": "q2", "answer": "stop", "by": "nvim"}));
        daemon.end(12, "end_turn", None);
    }
    fn answer(session: &mut Session) {
        session.see("? go on?\r\n    1 go on (go_on)\r\n    2 stop here (stop)\r\npress a number to answer\r\n");
        session.press("2");
        session.see("stop by nvim");
    }
    asked_in_a_turn(script, answer);
}

#[test]
fn an_answer_that_came_too_late_says_who_won() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.question(10);
        let won = json!({"answer": "reject_once", "by": "linger@pts/99", "at": 1});
        daemon.refuse("question/answer", -31001, "already answered", won);
        daemon.end(12, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see("n no");
    session.press("y");
    session.see("already answered: denied by linger@pts/99");
    session.see("> ");
    session.leave();
    fake.finish();
}

#[test]
fn a_line_that_is_typed_or_pasted_at_a_question_of_run_decides_nothing() {
    let mut fake = Fake::one(|daemon| {
        daemon.new_run();
        daemon.question(10);
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["question"], &answer["answer"]), (&json!("q1"), &json!("reject_once")));
        daemon.end(12, "end_turn", None);
    });
    let mut session = Session::start(&fake, &["run", "x"]);
    session.see("n no");
    for typed in ["wait, do not do that\r", "/mode plan\r", "https://a.example/", "yy", "y\ra\r", "\u{e4}", "\u{1b}[A"]
    {
        session.press(typed);
        session.see("ignored: press one of these keys");
        session.see("n no");
    }
    // A hand writes a letter after the other; none of them is an answer, however slow it is.
    for key in "well".chars() {
        session.press(&key.to_string());
    }
    session.see("ignored: press one of these keys");
    session.see("n no");
    session.press("n\r");
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn what_is_typed_at_a_question_of_a_session_is_a_prompt_or_a_command_and_no_answer() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.question(10);
        assert_eq!(daemon.answer("session/prompt", json!({"prompt": "p2", "seq": 11}))["content"], "yes, but not so");
        assert_eq!(daemon.answer("session/set", json!({}))["mode"], "plan");
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["answer"], &answer["reason"]), (&json!("reject_once"), &json!("use the other branch")));
        daemon.end(12, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see("? help\r\n");
    // A paste: its first letter comes with the others.
    session.press("yes, but not so\r");
    session.see("> yes, but not so\r");
    session.press("/mode plan\r");
    session.see("> /mode plan\r");
    session.see("> ");
    session.press("r");
    session.see("type the reason for the model");
    session.press("use the other branch\r");
    session.see("1 step");
    session.leave();
    fake.finish();
}

#[test]
fn a_key_that_would_allow_what_was_not_shown_says_what_to_press_and_becomes_no_prompt() {
    fn script(daemon: &mut Connection) {
        let command: Vec<_> = (1..=50).map(|n| format!("echo {n}")).collect();
        daemon.question_about(10, "q1", &command.join("\n"));
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!(answer["answer"], "allow_once");
        daemon.end(11, "end_turn", None);
    }
    fn answer(session: &mut Session) {
        session.see("v show the rest before allowing");
        session.press("y");
        session.see("press v to see the rest first");
        session.see("v show the rest before allowing");
        session.press("v");
        session.see("    echo 31\r\n");
        session.see("y once");
        session.press("y");
    }
    asked_in_a_turn(script, answer);
}

#[test]
fn an_answer_of_this_run_is_not_shown_as_another_clients() {
    let mut fake = Fake::one(|daemon| {
        let (id, hello) = daemon.expect("daemon/hello");
        let welcome = json!({"protocol": 1, "version": env!("CARGO_PKG_VERSION"), "env": ["PATH_WE_WANT"], "keys": []});
        daemon.send(&json!({"jsonrpc": "2.0", "id": id, "result": welcome}));
        daemon.answer("session/create", json!({"session": "s1"}));
        daemon.answer("session/attach", json!({"cursor": "1"}));
        daemon.answer("session/prompt", json!({"prompt": "p1", "seq": 2}));
        daemon.event("3", json!({"kind": "turn_started", "seq": 3, "turn": "t1", "prompt": "p1"}));
        daemon.question(4);
        daemon.answer("question/answer", json!({"outcome": "won"}));
        daemon.event("5", json!({"kind": "permission_resolved", "seq": 5, "turn": "t1", "permission": "q1", "decision": "allow_once", "by": hello["client"]}));
        daemon.end(6, "end_turn", None);
    });
    let mut session = Session::start(&fake, &["run", "x"]);
    session.see("n no");
    session.press("y");
    session.see("\r\nallowed\r\n");
    assert_eq!(session.end(), 0);
    fake.finish();
}

#[test]
fn a_form_of_several_fields_is_written_where_it_is_asked() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}, "required": ["name"]});
        let form = json!({"kind": "question_asked", "seq": 10, "turn": "t1", "question": "q1",
            "asked": {"kind": "form", "blocks": "turn", "text": "who?", "digest": "sha256:7c", "options": [], "schema": schema}});
        daemon.event("10", form);
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["answer"], &answer["value"]), (&json!("accept"), &json!({"name": "me", "size": 3})));
        daemon.end(12, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see("w type the fields as {…}  n decline");
    session.press("w");
    session.see("type your answer, then Enter; Ctrl-C goes back");
    session.press("name: me\r");
    session.see("error: the fields are not valid JSON");
    session.see("n decline");
    session.press("w");
    session.see("type your answer, then Enter");
    session.press("{\"name\": \"me\", \"size\": 3}\r");
    session.see("1 step");
    session.leave();
    fake.finish();
}

#[test]
fn the_rule_that_always_allows_it_is_edited_before_it_is_sent() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        turn(daemon, "test");
        daemon.question(10);
        let hint = json!({"hint": "write it as bash(COMMAND)"});
        let refused = daemon.refuse("question/answer", -32602, "the rule is none", hint);
        assert_eq!(refused["rules"], json!(["bash(cargo"]));
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["answer"], &answer["digest"]), (&json!("allow_always"), &json!("sha256:9f")));
        assert_eq!(answer["rules"], json!(["bash(cargo test:*)", "read(src/**)"]));
        daemon.end(12, "end_turn", None);
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("> ");
    session.press("test\r");
    session.see("? help\r\n");
    // Ctrl-C goes back to the question, also from a line that was begun.
    session.press("A");
    session.see("type the rule (Tab: the suggested one), then Enter; Ctrl-C goes back");
    session.press("bash(");
    session.see("bash(");
    session.press("\u{3}");
    session.see("? help");
    // A line was just being typed: Enter has to follow the key, or is dropped.
    session.press("A\r");
    session.see("type the rule");
    session.press("bash(cargo\r");
    session.see("error: the rule is none\r\nhint: write it as bash(COMMAND)\r\n");
    session.see("? help");
    session.press("A\r");
    session.see("type the rule");
    session.press("\t");
    session.see("bash(cargo test)");
    session.press("\u{7f}:*) and read(src/**)\r");
    session.see("1 step");
    session.leave();
    fake.finish();
}

#[test]
fn a_number_alone_answers_no_question_that_was_set_aside_before_it_is_shown_again() {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        let asked = json!({"kind": "question_asked", "seq": 8, "question": "q2", "asked": choice("nothing")});
        daemon.event("8", asked);
        turn_at(daemon, 10, "something else first");
        daemon.end(11, "end_turn", None);
        let answer = daemon.answer("question/answer", json!({"outcome": "won"}));
        assert_eq!((&answer["question"], &answer["answer"]), (&json!("q2"), &json!("go_on")));
        daemon.event(
            "12",
            json!({"kind": "question_resolved", "seq": 12, "question": "q2", "answer": "go_on", "by": "nvim"}),
        );
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.see("press a number to answer");
    session.press("something else first\r");
    session.see("1 step");
    session.see("> ");
    session.press("1\r");
    session.see("not sent: this question is still open; press the key again to answer, or type more for a prompt");
    session.see("    1 go on (go_on)\r\n");
    session.see("press a number to answer");
    session.press("1");
    session.see("go_on by nvim");
    session.leave();
    fake.finish();
}
