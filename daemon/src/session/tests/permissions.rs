//! Permissions: asked, answered in any order, denied, answered late, taken back by mode and rules.

use super::*;

fn write(name: &str) -> Answer {
    Answer::call("write", json!({ "path": name, "content": "one\n" }))
}

#[tokio::test]
async fn what_is_allowed_runs() {
    let mut scene = Scene::ask([write("a"), Answer::text("written")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    assert!(!scene.path("a").exists());
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    t1 permission_resolved q1 allow_once by someone
    t1 tool_started c1 write a
    t1 tool_finished c1 ran "created a, 4 bytes"
    t1 message m3 user: <c1 "created a, 4 bytes">
    t1 message m4 model: "written"
    t1 turn_finished end_turn after 2
    "#);
    assert!(scene.path("a").exists());
}

#[tokio::test]
async fn what_is_denied_does_not_run_and_the_model_reads_why() {
    let mut scene = Scene::ask([write("a"), Answer::text("I see")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::RejectOnce, Some("not there")).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    t1 permission_resolved q1 reject_once by someone: not there
    t1 tool_finished c1 denied "not run: denied by someone: not there"
    t1 message m3 user: <c1 failed "not run: denied by someone: not there">
    t1 message m4 model: "I see"
    t1 turn_finished end_turn after 2
    "#);
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn the_first_answer_wins() {
    let mut scene = Scene::ask([write("a"), Answer::text("I see")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::RejectOnce, None).await.unwrap();
    let late = scene.answer(1, Decision::AllowOnce, None).await.unwrap_err();
    assert_eq!(late.message, "already answered");
    scene.ends(1).await;
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn an_answer_after_the_turn_is_too_late() {
    let mut scene = Scene::ask([write("a"), Answer::text("I see")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.cancel().await;
    scene.ends(1).await;
    let late = scene.answer(1, Decision::AllowOnce, None).await.unwrap_err();
    assert_eq!(late.message, "already answered");
}

#[tokio::test]
async fn calls_of_one_step_ask_at_once_and_are_answered_in_any_order() {
    let two = write("a").calls("write", json!({ "path": "b", "content": "two\n" }));
    let mut scene = Scene::ask([two, Answer::text("done")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 2).await;
    scene.answer(2, Decision::AllowOnce, None).await.unwrap();
    scene.answer(1, Decision::RejectOnce, None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write> <c2 write>
    t1 permission_requested q1 c1 write a
    t1 permission_requested q2 c2 write b
    t1 permission_resolved q2 allow_once by someone
    t1 permission_resolved q1 reject_once by someone
    t1 tool_finished c1 denied "not run: denied by someone"
    t1 tool_started c2 write b
    t1 tool_finished c2 ran "created b, 4 bytes"
    t1 message m3 user: <c1 failed "not run: denied by someone"> <c2 "created b, 4 bytes">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn what_is_allowed_for_the_session_is_not_asked_again() {
    let mut scene = Scene::ask([write("a"), write("a"), Answer::text("twice")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::AllowSession, None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    t1 permission_resolved q1 allow_session by someone
    t1 tool_started c1 write a
    t1 tool_finished c1 ran "created a, 4 bytes"
    t1 message m3 user: <c1 "created a, 4 bytes">
    t1 message m4 model: <c2 write>
    t1 tool_started c2 write a
    t1 tool_finished c2 ran "wrote a, 4 bytes"
    t1 message m5 user: <c2 "wrote a, 4 bytes">
    t1 message m6 model: "twice"
    t1 turn_finished end_turn after 3
    "#);
}

#[tokio::test]
async fn a_mode_that_changes_answers_what_waits() {
    let mut scene = Scene::ask([write("a"), Answer::text("done")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.set(session::Set { mode: Some(Mode::Auto), ..session::Set::default() }).await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    session_changed auto
    t1 permission_resolved q1 allow_once by mode auto
    t1 tool_started c1 write a
    t1 tool_finished c1 ran "created a, 4 bytes"
    t1 message m3 user: <c1 "created a, 4 bytes">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn reading_in_the_workspace_needs_no_permission() {
    let mut scene = Scene::ask([Answer::call("read", json!({ "path": "a" })), Answer::text("read")]).await;
    std::fs::write(scene.path("a"), "words\n").unwrap();
    scene.turn("read").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "read"
    t1 turn_started p1
    t1 message m1 user: "read"
    t1 message m2 model: <c1 read>
    t1 tool_started c1 read a
    t1 tool_finished c1 ran "1\twords/"
    t1 message m3 user: <c1 "1\twords/">
    t1 message m4 model: "read"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_rule_denies_without_asking() {
    let rules = "permissions.deny = [\"read(**/.env)\"]\n";
    let read = Answer::call("read", json!({ "path": ".env" }));
    let mut scene = Scene::with("", "mock/m", Mode::Auto, [read, Answer::text("no")]).await;
    std::fs::write(scene.path(".env"), "secret\n").unwrap();
    let file = scene.env.places.config_file();
    std::fs::write(&file, format!("{rules}{}", std::fs::read_to_string(&file).unwrap())).unwrap();
    scene.env.config.reload();
    scene.turn("read").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "read"
    t1 turn_started p1
    t1 message m1 user: "read"
    t1 message m2 model: <c1 read>
    t1 tool_finished c1 denied "not run: the rule read(**/.env) forbids it"
    t1 message m3 user: <c1 failed "not run: the rule read(**/.env) forbids it">
    t1 message m4 model: "no"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_permission_to_run_tests_is_for_the_command_that_was_found() {
    let mut scene = Scene::ask([Answer::call("test_run", json!({})), Answer::text("fine")]).await;
    std::fs::write(scene.path("Makefile"), "test:\n\t@echo tested\n").unwrap();
    scene.prompt("test it", When::Queue).await;
    scene.until("permission_requested", 1).await;
    // It would be found first.
    std::fs::write(scene.path("Cargo.toml"), "").unwrap();
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("permission_requested q1 c1 make test"), "{transcript}");
    assert!(transcript.contains("tool_finished c1 ran \"tested"), "{transcript}");
}
