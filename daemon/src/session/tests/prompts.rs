//! Prompts that come while a turn runs: queued, steering, interrupting.

use super::*;

#[tokio::test]
async fn a_queued_prompt_has_a_turn_of_its_own() {
    let gate = gate();
    let mut scene = Scene::auto([Answer::text("one").waits(&gate), Answer::text("two")]).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("one").await;
    scene.prompt("second", When::Queue).await;
    gate.add_permits(1);
    scene.ends(2).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first"
    t1 turn_started p1
    t1 message m1 user: "first"
    prompt_accepted p2 queue "second"
    t1 message m2 model: "one"
    t1 turn_finished end_turn after 1
    t2 turn_started p2
    t2 message m3 user: "second"
    t2 message m4 model: "two"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_prompt_that_steers_goes_before_the_next_step() {
    let gate = gate();
    let look = Answer::text("looking").waits(&gate).calls("ls", json!({ "path": "." }));
    let mut scene = Scene::auto([look, Answer::text("as you like")]).await;
    scene.prompt("look", When::Queue).await;
    scene.shows("looking").await;
    scene.prompt("and be brief", When::Steer).await;
    gate.add_permits(1);
    scene.ends(1).await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    prompt_accepted p2 steer "and be brief"
    t1 message m2 model: "looking" <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 message m4 user: "and be brief"
    t1 message m5 model: "as you like"
    t1 turn_finished end_turn after 2
    user: look
    model: looking <c1 ls>
    user: <c1: [empty directory]>
    user: and be brief
    "#);
}

#[tokio::test]
async fn a_prompt_that_steers_keeps_a_turn_from_ending() {
    let gate = gate();
    let mut scene = Scene::auto([Answer::text("done").waits(&gate), Answer::text("that too")]).await;
    scene.prompt("do it", When::Queue).await;
    scene.shows("done").await;
    scene.prompt("and that", When::Steer).await;
    gate.add_permits(1);
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "do it"
    t1 turn_started p1
    t1 message m1 user: "do it"
    prompt_accepted p2 steer "and that"
    t1 message m2 model: "done"
    t1 message m3 user: "and that"
    t1 message m4 model: "that too"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_prompt_that_interrupts_cuts_the_answer() {
    let mut scene = Scene::auto([Answer::text("on and on").waits(&gate()), Answer::text("stopped")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("on and on").await;
    scene.prompt("enough", When::Interrupt).await;
    scene.ends(1).await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    prompt_accepted p2 interrupt "enough"
    t1 message m2 model interrupted: "on and on"
    t1 message m3 user: "enough"
    t1 message m4 model: "stopped"
    t1 turn_finished end_turn after 1
    user: talk
    model: on and on
    user: enough
    "#);
}

#[tokio::test]
async fn a_prompt_that_interrupts_a_question_closes_it() {
    let write = Answer::call("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::ask([write, Answer::text("fine")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.prompt("never mind", When::Interrupt).await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    prompt_accepted p2 interrupt "never mind"
    t1 permission_resolved q1 cancelled by interrupted by the user
    t1 tool_finished c1 cancelled "[interrupted by the user before it ran]"
    t1 message m3 user: <c1 failed "[interrupted by the user before it ran]">
    t1 message m4 user: "never mind"
    t1 message m5 model: "fine"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn an_empty_prompt_is_refused() {
    let scene = Scene::auto([]).await;
    let error = scene.prompted(PromptContent::Text("  \n".to_owned()), When::Queue, None).await.unwrap_err();
    assert_eq!(error.message, "a prompt must have text, images in base64, or resources with a `uri`");
    assert_eq!(scene.transcript().await, "");
}

#[tokio::test]
async fn queued_prompts_become_drafts_after_a_cancel_and_the_next_prompt_runs() {
    let mut scene = Scene::auto([Answer::text("one").waits(&gate()), Answer::text("two")]).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("one").await;
    scene.prompt("second", When::Queue).await;
    scene.cancel().await;
    scene.ends(1).await;
    assert_eq!(scene.count("turn_started").await, 1);
    scene.prompt("third", When::Queue).await;
    scene.ends(2).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first"
    t1 turn_started p1
    t1 message m1 user: "first"
    prompt_accepted p2 queue "second"
    t1 message m2 model interrupted: "one"
    prompt_drafted p2
    t1 turn_finished cancelled after 0
    prompt_accepted p3 queue "third"
    t2 turn_started p3
    t2 message m3 user: "third"
    t2 message m4 model: "two"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn continue_takes_up_what_was_held() {
    let mut scene = Scene::auto([Answer::text("one").waits(&gate()), Answer::text("two")]).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("one").await;
    scene.prompt("second", When::Queue).await;
    scene.cancel().await;
    scene.go_on().await.unwrap();
    scene.ends(2).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first"
    t1 turn_started p1
    t1 message m1 user: "first"
    prompt_accepted p2 queue "second"
    t1 message m2 model interrupted: "one"
    prompt_drafted p2
    t1 turn_finished cancelled after 0
    draft_sent p2
    t2 turn_started p2
    t2 message m3 user: "second"
    t2 message m4 model: "two"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn there_is_nothing_to_continue_in_an_idle_session() {
    let scene = Scene::auto([]).await;
    let error = scene.go_on().await.unwrap_err();
    assert_eq!(error.message, "session scene has nothing to continue");
}
