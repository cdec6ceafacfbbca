//! A model that goes in circles: its turn waits for a person, over crashes, and goes on or ends as that says.

use super::*;
use linger_protocol::event::QuestionResolved;

/// A session whose model lists the same empty directory `times` times and then says `done`.
async fn circles(times: usize) -> Scene {
    let look = || Answer::call("ls", json!({ "path": "." }));
    let answers = (0..times).map(|_| look()).chain([Answer::text("done")]);
    let mut scene = Scene::auto(answers).await;
    scene.prompt("look", When::Queue).await;
    scene.until("question_asked", 1).await;
    scene
}

#[tokio::test]
async fn a_turn_that_repeats_itself_waits_and_goes_on_when_it_is_told_to() {
    let mut scene = circles(5).await;
    scene.choose(1, "go_on", None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    t1 message m2 model: <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 message m4 model: <c2 ls>
    t1 tool_started c2 ls .
    t1 tool_finished c2 ran "[empty directory]"
    t1 message m5 user: <c2 "[empty directory]">
    t1 message m6 model: <c3 ls>
    t1 tool_started c3 ls .
    t1 tool_finished c3 ran "[empty directory]"
    t1 message m7 user: <c3 "[empty directory]">
    t1 question_asked q1 "the same call has had the same result 3 times in a row: `ls .`; go on?" go_on|stop
    t1 question_resolved q1 go_on by someone
    t1 message m8 model: <c4 ls>
    t1 tool_started c4 ls .
    t1 tool_finished c4 ran "[empty directory]"
    t1 message m9 user: <c4 "[empty directory]">
    t1 message m10 model: <c5 ls>
    t1 tool_started c5 ls .
    t1 tool_finished c5 ran "[empty directory]"
    t1 message m11 user: <c5 "[empty directory]">
    t1 message m12 model: "done"
    t1 turn_finished end_turn after 6
    "#);
    assert_eq!(scene.choose(1, "stop", None).await.unwrap_err().message, "already answered");
}

#[tokio::test]
async fn it_is_asked_again_when_it_goes_on_repeating_itself() {
    let mut scene = circles(6).await;
    scene.choose(1, "go_on", None).await.unwrap();
    scene.until("question_asked", 2).await;
    scene.choose(2, "stop", None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("turn_finished cancelled after 6: the model went in circles; ended by someone").await, 1);
}

#[tokio::test]
async fn the_answer_to_stop_ends_the_turn_and_the_session_goes_on() {
    let mut scene = circles(3).await;
    scene.choose(1, "stop", None).await.unwrap();
    scene.ends(1).await;
    scene.turn("say it").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    t1 message m2 model: <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 message m4 model: <c2 ls>
    t1 tool_started c2 ls .
    t1 tool_finished c2 ran "[empty directory]"
    t1 message m5 user: <c2 "[empty directory]">
    t1 message m6 model: <c3 ls>
    t1 tool_started c3 ls .
    t1 tool_finished c3 ran "[empty directory]"
    t1 message m7 user: <c3 "[empty directory]">
    t1 question_asked q1 "the same call has had the same result 3 times in a row: `ls .`; go on?" go_on|stop
    t1 question_resolved q1 stop by someone
    t1 turn_finished cancelled after 3: the model went in circles; ended by someone
    prompt_accepted p2 queue "say it"
    t2 turn_started p2
    t2 message m8 user: "say it"
    t2 message m9 model: "done"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn the_question_survives_crashes_and_is_asked_once() {
    let mut scene = circles(3).await;
    for restarts in 1..=4 {
        scene.crash().await;
        scene.until("notice resumed", restarts).await;
    }
    scene.restart().await;
    scene.choose(1, "go_on", None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("question_asked").await, 1);
    assert_eq!(scene.count("turn_finished end_turn after 4").await, 1);
}

#[tokio::test]
async fn a_turn_that_was_told_to_stop_ends_after_a_crash_too() {
    let mut scene = circles(3).await;
    // The answer is all that the dead daemon has written.
    let (answer, by) = (Some("stop".to_owned()), "someone".to_owned());
    let question = scene.asked_first().await;
    let resolved = EventBody::QuestionResolved(QuestionResolved {
        question,
        answer,
        value: None,
        by,
        process: None,
        reason: None,
    });
    scene.crash_after(resolved).await;
    scene.ends(1).await;
    assert_eq!(scene.count("turn_finished cancelled after 3: the model went in circles; ended by someone").await, 1);
}

#[tokio::test]
async fn a_cancel_withdraws_the_question() {
    let mut scene = circles(3).await;
    scene.cancel().await;
    scene.ends(1).await;
    assert_eq!(scene.count("question_resolved q1 withdrawn by cancelled by the user").await, 1);
    assert_eq!(scene.env.store.pending(None, None, None).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_word_with_the_answer_goes_to_the_model() {
    let mut scene = circles(3).await;
    scene.choose(1, "go_on", Some("read the file instead")).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await.split_once("go_on|stop\n").unwrap().1, @r#"
    prompt_accepted p2 steer "read the file instead"
    t1 question_resolved q1 go_on by someone
    t1 message m8 user: "read the file instead"
    t1 message m9 model: "done"
    t1 turn_finished end_turn after 4
    "#);
}

#[tokio::test]
async fn a_prompt_that_steers_is_an_answer() {
    let mut scene = circles(3).await;
    scene.prompt("read the file instead", When::Steer).await;
    scene.ends(1).await;
    assert_eq!(scene.count("question_resolved q1 go_on by someone").await, 1);
    assert_eq!(scene.count("user: \"read the file instead\"").await, 1);
}
