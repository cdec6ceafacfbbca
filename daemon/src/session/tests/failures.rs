//! Providers that fail: what is tried again, what is shown of it, and what ends the turn.

use super::*;
use crate::provider::parameter::Parameter;

#[tokio::test]
async fn what_fails_before_anything_came_is_tried_again() {
    let mut scene = Scene::auto([Answer::fails(FailureClass::Overloaded, "busy"), Answer::text("hello")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 notice retry: busy; trying again in N s
    t1 message m2 model: "hello"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn what_was_shown_of_an_attempt_is_superseded() {
    let cut = Answer::text("hel").then_fails(FailureClass::Stream, "the stream was cut");
    let mut scene = Scene::auto([cut, Answer::text("hello")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 message m2 model interrupted: "hel"
    t1 notice retry: the stream was cut; trying again in N s
    t1 message_superseded m2
    t1 message m3 model: "hello"
    t1 turn_finished end_turn after 1
    user: hi
    "#);
}

#[tokio::test]
async fn two_attempts_that_were_shown_have_names_of_their_own() {
    let cut = || Answer::text("hel").then_fails(FailureClass::Stream, "the stream was cut");
    let mut scene = Scene::auto([cut(), cut(), Answer::text("hello")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 message m2 model interrupted: "hel"
    t1 notice retry: the stream was cut; trying again in N s
    t1 message_superseded m2
    t1 message m3 model interrupted: "hel"
    t1 notice retry: the stream was cut; trying again in N s
    t1 message_superseded m3
    t1 message m4 model: "hello"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn what_the_provider_rejects_ends_the_turn() {
    let mut scene = Scene::auto([Answer::fails(FailureClass::Rejected, "no money left")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 turn_finished error after 0: mock: no money left
    "#);
}

#[tokio::test]
async fn a_model_that_is_not_there_ends_the_turn() {
    let mut scene = Scene::auto([Answer::fails(FailureClass::NotFound, "no such model")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 turn_finished error after 0: mock: no such model
    "#);
}

#[tokio::test]
async fn what_was_shown_stays_when_the_turn_fails() {
    let cut = Answer::text("hel").then_fails(FailureClass::Rejected, "policy");
    let mut scene = Scene::auto([cut]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 message m2 model interrupted: "hel"
    t1 turn_finished error after 0: mock: policy
    "#);
}

#[tokio::test]
async fn a_prompt_after_a_failure_has_the_one_that_failed_before_it() {
    let mut scene = Scene::auto([Answer::fails(FailureClass::Rejected, "policy"), Answer::text("now")]).await;
    scene.turn("hi").await;
    scene.turn("and now?").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: hi
    user: and now?
    ");
}

#[tokio::test]
async fn a_history_that_is_refused_goes_on_without_what_was_the_providers_own() {
    let thinks = Answer::text("").thinks("hm").says("yes");
    let refuses = Answer::fails(FailureClass::History, "bad signature");
    let mut scene = Scene::auto([thinks, refuses, Answer::text("no")]).await;
    scene.turn("is it?").await;
    scene.turn("sure?").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "is it?"
    t1 turn_started p1
    t1 message m1 user: "is it?"
    t1 message m2 model: (hm) "yes"
    t1 turn_finished end_turn after 1
    prompt_accepted p2 queue "sure?"
    t2 turn_started p2
    t2 message m3 user: "sure?"
    t2 trimmed 0 calls 0 images 1 native
    t2 message m4 model: "no"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_history_without_anything_to_leave_out_ends_the_turn() {
    let mut scene = Scene::auto([Answer::fails(FailureClass::History, "bad order")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 turn_finished error after 0: mock: bad order; cannot leave out more of the history
    "#);
}

#[tokio::test]
async fn a_refused_parameter_is_left_out_once_and_from_then_on() {
    let refuses = || Answer::fails(FailureClass::Parameter(Parameter::Effort), "400: unknown: reasoning_effort");
    let mut scene = Scene::auto([refuses(), Answer::text("one"), Answer::text("two")]).await;
    scene.turn("hi").await;
    scene.turn("again").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 notice retry: mock: 400: unknown: reasoning_effort; asking again without it, and from now on: `reasoning_effort = false` in [providers.mock.compat] settles it
    t1 session_changed setup
    t1 message m2 model: "one"
    t1 turn_finished end_turn after 1
    prompt_accepted p2 queue "again"
    t2 turn_started p2
    t2 message m3 user: "again"
    t2 message m4 model: "two"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_parameter_that_is_left_out_in_vain_ends_the_turn() {
    let refuses = || Answer::fails(FailureClass::Parameter(Parameter::StreamUsage), "no stream_options");
    let mut scene = Scene::auto([refuses(), refuses()]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 notice retry: mock: no stream_options; asking again without it, and from now on: `stream_usage = false` in [providers.mock.compat] settles it
    t1 session_changed setup
    t1 turn_finished error after 0: mock: no stream_options
    "#);
}
