//! What was queued comes back into the line when this terminal stops the turn, each prompt once.

use serde_json::json;

use super::fake::{Connection, Fake};
use super::{Session, at_work, cancelled};

/// Takes a prompt that is queued behind the running turn.
fn queued(daemon: &mut Connection, prompt: &str, seq: u64, text: &str) {
    let asked = daemon.answer("session/prompt", json!({"prompt": prompt, "seq": seq}));
    assert_eq!(asked["content"], text);
    let when = asked["when"].as_str().unwrap_or("queue").to_owned();
    let content = json!([{"type": "text", "text": text}]);
    let accepted = json!({"kind": "prompt_accepted", "seq": seq, "prompt": prompt, "content": content, "when": when,
                          "by": daemon.client()});
    daemon.event(&seq.to_string(), accepted);
}

/// The turn is cancelled, and these prompts are drafts.
fn stopped(daemon: &mut Connection, mut seq: u64, drafts: &[&str]) {
    daemon.answer("session/cancel", json!({}));
    for draft in drafts {
        daemon.event(&seq.to_string(), json!({"kind": "prompt_drafted", "seq": seq, "prompt": draft}));
        seq += 1;
    }
    cancelled(daemon, seq, 0);
}

/// Gives a draft back.
fn back(daemon: &mut Connection, seq: u64, draft: &str) {
    assert_eq!(daemon.answer("session/unqueue", json!({"prompt": draft}))["prompt"], draft);
    daemon.event(
        &seq.to_string(),
        json!({"kind": "prompt_unqueued", "seq": seq, "prompt": draft, "by": daemon.client()}),
    );
}

#[test]
fn esc_brings_the_queue_back_before_what_is_being_typed() {
    let mut fake = Fake::one(|daemon| {
        at_work(daemon);
        queued(daemon, "p2", 10, "then commit");
        queued(daemon, "p3", 11, "and push");
        stopped(daemon, 12, &["p2", "p3"]);
        back(daemon, 15, "p2");
        back(daemon, 16, "p3");
        let sent = daemon.answer("session/prompt", json!({"prompt": "p4", "seq": 17}));
        assert_eq!(sent["content"], "then commit\n\nand push\n\nwait, half a thought");
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.begin_work();
    session.press("then commit\r");
    session.see("queued 1");
    session.press("and push\r");
    session.see("queued 2");
    session.press("wait, half");
    session.see("wait, half");
    session.press("\u{1b}");
    session.see("cancelled");
    session.see("2 queued prompts are back in the line");
    session.see("and push");
    session.see("wait, half");
    session.press(" a thought\r");
    session.leave();
    fake.finish();
}

#[test]
fn what_another_client_has_sent_meanwhile_and_a_steer_do_not_come_back() {
    let mut fake = Fake::one(|daemon| {
        at_work(daemon);
        queued(daemon, "p2", 10, "one");
        queued(daemon, "p3", 11, "steered");
        queued(daemon, "p4", 12, "two");
        stopped(daemon, 13, &["p2", "p3", "p4"]);
        daemon.refuse("session/unqueue", -31014, "prompt p2 is not queued in session s1", json!({}));
        back(daemon, 17, "p4");
        let sent = daemon.answer("session/prompt", json!({"prompt": "p5", "seq": 18}));
        assert_eq!(sent["content"], "two");
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.begin_work();
    session.press("one\r");
    session.see("queued 1");
    session.press("/steer steered\r");
    session.see("will be read before the next step");
    session.press("two\r");
    session.see("queued 2");
    // Ctrl-C at an empty line stops too.
    session.press("\u{3}");
    session.see("1 queued prompt is now a draft; /queue shows it, /continue sends it");
    session.see("1 queued prompt is back in the line");
    session.see("> two");
    session.press("\r");
    session.leave();
    fake.finish();
}

#[test]
fn esc_without_a_queue_keeps_the_line_and_a_cancel_that_is_refused_gives_it_back() {
    let mut fake = Fake::one(|daemon| {
        at_work(daemon);
        queued(daemon, "p2", 10, "one");
        daemon.refuse("session/cancel", -31014, "session s1 has no running turn", json!({}));
        daemon.end(11, "end_turn", None);
        let sent = daemon.answer("session/prompt", json!({"prompt": "p5", "seq": 18}));
        assert_eq!(sent["content"], "kept");
        daemon.expect_end();
    });
    let mut session = Session::start(&fake, &["attach", "s1"]);
    session.begin_work();
    session.press("one\r");
    session.see("queued 1");
    session.press("kept\u{1b}");
    session.see("error: session s1 has no running turn");
    session.see("kept");
    session.press("\r");
    session.leave();
    fake.finish();
}
