//! Tools that run at the provider: shown, kept, and sent back as they came, whatever becomes of the answer.

use linger_tests::model::{Format, Gate, ModelServer, Reply};
use serde_json::json;

pub(crate) use crate::shared::hosted::{FOUND, HOSTED, kinds_of, pauses, ran, searches, session, start};

#[tokio::test]
async fn after_kill_9_in_mid_search_the_turn_goes_on() {
    for format in HOSTED {
        let gate = Gate::new();
        let model = ModelServer::start();
        let daemon = start(&model, "auto").await;
        let (client, session) = session(&daemon, format).await;
        model.push([searches(), searches().gate(&gate), searches().and_text("whole")]);
        client.turn(&session, "look it up").await;
        client.prompt(&session, "and again").await;
        gate.reached().await;
        client.wait("the search", |seen| (seen.of("hosted_delta").count() >= 6).then_some(())).await;
        let cursor = client.cursor(&session);
        daemon.kill_and_restart().await;
        let back = daemon.client().await;
        back.attach_after(&session, &cursor).await;
        back.first(&session, "turn_finished").await;
        gate.open();
        let all = daemon.client().await;
        all.attach(&session).await;
        all.wait("both turns", |seen| (seen.of("turn_finished").count() == 2).then_some(())).await;
        assert_eq!(ran(&model.requests()[2]), kinds_of(format), "what was there before the crash");
        daemon.check(&[&client, &back, &all], &model);
    }
}

#[tokio::test]
async fn after_kill_9_between_two_halves_of_a_turn_the_second_comes() {
    let gate = Gate::new();
    let model = ModelServer::with([
        pauses(),
        Reply::new().gate(&gate),
        Reply::new().and_search_done("rust 2026", FOUND).and_text("It is so."),
    ]);
    let daemon = start(&model, "auto").await;
    let (client, session) = session(&daemon, Format::Anthropic).await;
    client.prompt(&session, "look it up").await;
    gate.reached().await;
    daemon.kill_and_restart().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    assert_eq!(back.first(&session, "turn_finished").await.str("stop_reason"), "end_turn");
    gate.open();
    assert_eq!(model.requests().len(), 3);
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_terminal_and_a_log_show_lines_for_what_ran_elsewhere_even_in_plan_mode() {
    let found = &[("Ru\u{1b}[2Jst", "https://rust-lang.org")];
    let model = ModelServer::with([Reply::text("I look.").and_search("rust 2026", found).and_text("So.")]);
    let daemon = start(&model, "plan").await;
    let mut pty = daemon.pty(&["run", "-m", "claude/c", "look it up"]);
    for line in ["I look.", "web_search rust 2026", "1 source", "https://rust-lang.org", "So."] {
        pty.shows(line).await;
    }
    assert_eq!(pty.exits().await, 0);
    let screen = pty.text();
    assert!(!String::from_utf8_lossy(&pty.bytes()).contains("\u{1b}[2J"), "{screen}");
    let client = daemon.client().await;
    let sessions = client.call("session/list", json!({})).await;
    let session = sessions[0]["session"].as_str().unwrap();
    let log = daemon.cli(&["log", session]).run().await.exits(0);
    let (mut rest, text) = (log.stdout.as_str(), &log.stdout);
    for line in ["I look.", "web_search rust 2026", "1 source", "So."] {
        let at = rest.find(line).unwrap_or_else(|| panic!("{line}: {text}"));
        rest = &rest[at..];
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    daemon.check(&[&client], &model);
}
