//! The daemon dies at each point of a step, and the turn goes on from its log.

use super::*;

#[tokio::test]
async fn a_crash_in_mid_answer_repeats_the_step() {
    let mut scene = Scene::auto([Answer::text("half").waits(&gate()), Answer::text("whole")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("half").await;
    scene.crash().await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 message m2 model interrupted: "half"
    t1 message_superseded m2
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m3 model: "whole"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_crash_before_anything_came_repeats_the_request() {
    let mut scene = Scene::auto([Answer::default().waits(&gate()), Answer::text("whole")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.until("message m1", 1).await;
    while scene.script.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    scene.crash().await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m2 model: "whole"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_call_that_ran_when_the_daemon_died_is_not_run_again() {
    let run = Answer::call("bash", json!({ "command": "echo begun; sleep 600" }));
    let mut scene = Scene::auto([run, Answer::text("unknown, then")]).await;
    scene.prompt("run", When::Queue).await;
    scene.shows("begun").await;
    scene.crash().await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "run"
    t1 turn_started p1
    t1 message m1 user: "run"
    t1 message m2 model: <c1 bash>
    t1 tool_started c1 echo begun; sleep 600
    t1 tool_finished c1 unknown "begun/" "[interrupted, outcome unknown: the daemon was restarted while this call ran; it is not run again by ..."
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m3 user: <c1 failed "begun///[interrupted, outcome unknown: the daemon was restarted while this call ran; it is not run a...">
    t1 message m4 model: "unknown, then"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_permission_survives_a_crash_and_is_answered_after_it() {
    let write = Answer::call("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::ask([write, Answer::text("written")]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.crash().await;
    scene.until("notice resumed", 1).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 permission_resolved q1 allow_once by someone
    t1 tool_started c1 write a
    t1 tool_finished c1 ran "created a, 4 bytes"
    t1 message m3 user: <c1 "created a, 4 bytes">
    t1 message m4 model: "written"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_crash_between_two_steps_goes_on_with_the_next() {
    let look = Answer::call("ls", json!({ "path": "." }));
    let mut scene = Scene::auto([look, Answer::default().waits(&gate()), Answer::text("nothing there")]).await;
    scene.prompt("look", When::Queue).await;
    scene.until("message m3", 1).await;
    while scene.script.asked().len() < 2 {
        tokio::task::yield_now().await;
    }
    scene.crash().await;
    scene.ends(1).await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    t1 message m2 model: <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m4 model: "nothing there"
    t1 turn_finished end_turn after 2
    user: look
    model: <c1 ls>
    user: <c1: [empty directory]>
    "#);
}

#[tokio::test]
async fn a_turn_that_met_three_crashes_is_offered_and_goes_on_by_hand() {
    let hangs = || Answer::default().waits(&gate());
    let mut scene = Scene::auto([hangs(), hangs(), hangs(), Answer::text("at last")]).await;
    scene.prompt("talk", When::Queue).await;
    for crashes in 1..=3 {
        while scene.script.asked().len() < crashes {
            tokio::task::yield_now().await;
        }
        scene.crash().await;
    }
    scene.until("notice offered", 1).await;
    scene.go_on().await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 notice offered: the daemon ended 3 times without a finished step of this turn; it waits to be continued
    t1 notice continued: the turn resumes
    t1 message m2 model: "at last"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_restart_in_good_order_is_no_crash() {
    let mut scene = Scene::auto([Answer::text("half").waits(&gate()), Answer::text("whole")]).await;
    scene.prompt("talk", When::Queue).await;
    scene.shows("half").await;
    scene.restart().await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "talk"
    t1 turn_started p1
    t1 message m1 user: "talk"
    t1 notice paused: the daemon is ending; the turn resumes when it starts again
    t1 message m2 model interrupted: "half"
    t1 message_superseded m2
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m3 model: "whole"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn prompts_that_wait_survive_a_crash() {
    let answers = [Answer::text("one").waits(&gate()), Answer::text("one again"), Answer::text("two")];
    let mut scene = Scene::auto(answers).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("one").await;
    scene.prompt("second", When::Queue).await;
    scene.crash().await;
    scene.ends(2).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first"
    t1 turn_started p1
    t1 message m1 user: "first"
    prompt_accepted p2 queue "second"
    t1 message m2 model interrupted: "one"
    t1 message_superseded m2
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m3 model: "one again"
    t1 turn_finished end_turn after 1
    t2 turn_started p2
    t2 message m4 user: "second"
    t2 message m5 model: "two"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_session_that_is_loaded_again_has_its_history() {
    let mut scene = Scene::auto([Answer::text("one"), Answer::text("two")]).await;
    scene.turn("first").await;
    scene.crash().await;
    scene.turn("second").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: first
    model: one
    user: second
    ");
}
