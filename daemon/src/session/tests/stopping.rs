//! Cancel, at each place where a turn waits.

use super::*;

#[tokio::test]
async fn cancel_in_mid_answer_keeps_what_was_shown() {
    let mut scene = Scene::auto([Answer::text("half an ans").waits(&gate()).more("wer")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("half an ans").await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 message m2 model interrupted: "half an ans"
    t1 turn_finished cancelled after 0
    "#);
}

#[tokio::test]
async fn cancel_before_anything_came_leaves_the_prompt_alone() {
    let gate = gate();
    let mut scene = Scene::auto([Answer::default().waits(&gate).says("late")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("message m1", 1).await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 turn_finished cancelled after 0
    "#);
}

#[tokio::test]
async fn cancel_while_a_permission_is_asked_for_decides_it() {
    let write = Answer::call("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::ask([write]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    t1 permission_resolved q1 cancelled by cancelled by the user
    t1 tool_finished c1 cancelled "[cancelled by the user before it ran]"
    t1 message m3 user: <c1 failed "[cancelled by the user before it ran]">
    t1 turn_finished cancelled after 1
    "#);
}

#[tokio::test]
async fn cancel_while_a_command_runs_ends_the_command() {
    let mut scene = Scene::auto([Answer::call("bash", json!({ "command": "echo begun; sleep 600" }))]).await;
    scene.prompt("run", When::Queue).await;
    scene.shows("begun").await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "run"
    t1 turn_started p1
    t1 message m1 user: "run"
    t1 message m2 model: <c1 bash>
    t1 tool_started c1 echo begun; sleep 600
    t1 tool_finished c1 cancelled "begun/" "[cancelled by the user while it ran; it may have had effects]"
    t1 message m3 user: <c1 failed "begun///[cancelled by the user while it ran; it may have had effects]">
    t1 turn_finished cancelled after 1
    "#);
}

#[tokio::test]
async fn cancel_while_a_retry_is_waited_for() {
    let mut scene = Scene::auto([Answer::fails(FailureClass::Overloaded, "busy").retry_after(50)]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("notice retry", 1).await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 notice retry: busy; trying again in N seconds
    t1 turn_finished cancelled after 0
    "#);
}

#[tokio::test]
async fn cancel_of_an_idle_session_is_an_error() {
    let scene = Scene::auto([]).await;
    let error = scene.asked(cancel).await.unwrap_err();
    assert_eq!(error.message, "session scene has no running turn");
}

#[tokio::test]
async fn two_that_cancel_both_have_an_answer() {
    let mut scene = Scene::auto([Answer::text("one").waits(&gate())]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("one").await;
    let (first, second) = tokio::join!(scene.asked(cancel), scene.asked(cancel));
    first.unwrap();
    second.unwrap();
    assert_eq!(scene.count("turn_finished").await, 1);
}

#[tokio::test]
async fn a_turn_after_a_cancel_has_what_was_said_before_it() {
    let mut scene = Scene::auto([Answer::text("half").waits(&gate()), Answer::text("whole")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("half").await;
    scene.cancel().await;
    scene.turn("go on").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: talk
    model: half
    user: go on
    ");
}

#[tokio::test]
async fn a_session_with_a_turn_is_removed_by_force_only() {
    let mut scene = Scene::auto([Answer::text("one").waits(&gate())]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("one").await;
    let error = scene.asked(|asked| Command::Remove(false, asked)).await.unwrap_err();
    assert_eq!(error.message, "session scene has a running turn");
    scene.asked(|asked| Command::Remove(true, asked)).await.unwrap();
    assert!(scene.env.store.session(scene.id.clone()).await.unwrap().is_none());
}
