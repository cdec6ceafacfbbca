//! Mode `plan`: told to the model, reads with commands, and ends with a question that any client answers.

use super::*;

async fn planned(more: impl IntoIterator<Item = Answer>) -> Scene {
    let answers = std::iter::once(Answer::text("a plan")).chain(more);
    let mut scene = Scene::with("", "mock/m", Mode::Plan, answers).await;
    scene.turn("make it").await;
    scene
}

#[tokio::test]
async fn an_answer_to_the_plan_sets_the_mode_and_starts_the_next_turn() {
    let write = Answer::call("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = planned([write, Answer::text("made")]).await;
    let planned = scene.last_request();
    assert!(planned.contains("[mode plan] The user wants a plan first"), "{planned}");
    scene.crash().await;
    scene.choose(1, "edit", Some("but name it a")).await.unwrap();
    scene.ends(2).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "make it"
    t1 turn_started p1
    t1 message m1 user: "make it"
    t1 message m2 user is told of the mode
    t1 message m3 model: "a plan"
    t1 turn_finished end_turn after 1
    question_asked q1 "the plan is ready: go on?" edit|ask|not_yet
    question_resolved q1 edit by someone
    session_changed edit
    prompt_accepted p2 queue "The plan is accepted: carry it out.//but name it a"
    t2 turn_started p2
    t2 message m4 user: "The plan is accepted: carry it out.//but name it a"
    t2 message m5 user is told of the mode
    t2 message m6 model: <c1 write>
    t2 tool_started c1 write a
    t2 tool_finished c1 ran "created a, 4 bytes"
    t2 message m7 user: <c1 "created a, 4 bytes">
    t2 message m8 model: "made"
    t2 turn_finished end_turn after 2
    "#);
    let said = scene.last_request();
    assert!(said.contains("Mode plan is over") && said.contains("[mode plan] The user wants a plan first"), "{said}");
    assert_eq!(scene.choose(1, "ask", None).await.unwrap_err().message, "already answered");
}

#[tokio::test]
async fn a_plan_that_has_to_wait_goes_on_only_with_a_word() {
    let mut scene = planned([Answer::text("another plan")]).await;
    assert!(scene.choose(1, "auto", None).await.unwrap_err().message.contains("is not an answer"));
    scene.choose(1, "not_yet", Some("smaller steps")).await.unwrap();
    scene.ends(2).await;
    assert_eq!(scene.count("question_asked").await, 2);
    assert_eq!((scene.count("session_changed").await, scene.count("is told of the mode").await), (0, 1));
    scene.choose(2, "not_yet", None).await.unwrap();
    assert_eq!(scene.count("turn_started").await, 2);
}

#[tokio::test]
async fn another_prompt_or_mode_withdraws_the_question() {
    let mut scene = planned([Answer::text("another plan"), Answer::text("made")]).await;
    scene.turn("think again").await;
    assert_eq!(scene.count("question_resolved q1 withdrawn").await, 1, "{}", scene.transcript().await);
    scene.set(session::Set { mode: Some(Mode::Ask), ..session::Set::default() }).await;
    assert_eq!(scene.count("question_resolved q2 withdrawn").await, 1, "{}", scene.transcript().await);
    scene.turn("now").await;
    assert_eq!((scene.count("question_asked").await, scene.count("is told of the mode").await), (2, 2));
}

#[tokio::test]
async fn a_command_that_only_reads_is_asked_about_and_any_other_is_refused() {
    let bash = |command: &str| Answer::call("bash", json!({ "command": command }));
    let mut scene = Scene::with(
        "",
        "mock/m",
        Mode::Plan,
        [bash("sort -o a b"), bash("wc -l < a"), bash("echo x | wc -c"), Answer::text("so")],
    )
    .await;
    scene.prompt("look", When::Queue).await;
    scene.until("permission_requested", 1).await;
    assert_eq!((scene.count("c1 denied").await, scene.count("c2 denied").await), (1, 1));
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("tool_finished c3 ran \"2/\"").await, 1, "{}", scene.transcript().await);
}
