//! Answers without tools: text, thinking, hosted tools, and the ways in which an answer stops.

use super::*;
use crate::provider::Stop;

#[tokio::test]
async fn a_prompt_is_answered() {
    let mut scene = Scene::auto([Answer::text("hello").more(" there")]).await;
    scene.turn("hi").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "hi"
    t1 turn_started p1
    t1 message m1 user: "hi"
    t1 message m2 model: "hello there"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn thinking_comes_before_the_text_and_goes_back_to_its_model() {
    let mut scene = Scene::auto([Answer::text("").thinks("hm").says("yes"), Answer::text("no")]).await;
    scene.turn("is it?").await;
    scene.turn("sure?").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: is it?
    model: (hm) yes
    user: sure?
    ");
}

#[tokio::test]
async fn a_hosted_search_is_a_block_of_the_answer() {
    let mut scene = Scene::auto([Answer::text("").searches("linger").says("found")]).await;
    scene.turn("search").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "search"
    t1 turn_started p1
    t1 message m1 user: "search"
    t1 message m2 model: <web_search "linger"> "found"
    t1 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_second_turn_has_the_first_in_its_context() {
    let mut scene = Scene::auto([Answer::text("one"), Answer::text("two")]).await;
    scene.turn("first").await;
    scene.turn("second").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: first
    model: one
    user: second
    ");
}

fn cut(text: &str) -> Answer {
    Answer::text(text).stops(Stop::MaxTokens)
}

#[tokio::test]
async fn an_answer_that_is_cut_at_the_token_limit_is_continued() {
    let mut scene = Scene::auto([cut("and so on a"), Answer::text("nd on")]).await;
    scene.turn("tell me").await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "tell me"
    t1 turn_started p1
    t1 message m1 user: "tell me"
    t1 message m2 model cut: "and so on a"
    t1 message m3 user asks to go on: "Your answer was cut at the token limit. Continue it exactly where it stopped, without an introductio..."
    t1 message m4 model: "nd on"
    t1 turn_finished end_turn after 2
    user: tell me
    model: and so on a
    user: Your answer was cut at the token limit. Continue it exactly where it stopped, without an introduction and without repeating anything.
    "#);
}

#[tokio::test]
async fn an_answer_is_continued_three_times_across_crashes_too() {
    let mut scene = Scene::auto([cut("a"), cut("b"), cut("c").waits(&gate()), cut("c"), cut("d"), cut("e")]).await;
    scene.prompt("tell me", When::Queue).await;
    scene.shows("c").await;
    scene.crash().await;
    scene.ends(1).await;
    assert_eq!((scene.count("model cut").await, scene.count("asks to go on").await), (4, 3));
    assert_eq!(scene.count("turn_finished max_tokens after 4: the answer was cut at the model's token limit").await, 1);
    scene.turn("shorter").await;
    assert_eq!(scene.count("model cut").await, 5, "the next prompt's answer is continued again");
}

#[tokio::test]
async fn thinking_alone_that_is_cut_ends_the_turn() {
    let mut scene = Scene::auto([Answer::text("").thinks("hm").stops(Stop::MaxTokens)]).await;
    scene.turn("tell me").await;
    assert_eq!(scene.count("turn_finished max_tokens after 1").await, 1);
}

#[tokio::test]
async fn calls_of_an_answer_that_is_cut_are_not_run() {
    let cut = Answer::call("ls", json!({ "path": "." })).stops(Stop::MaxTokens);
    let mut scene = Scene::auto([cut, Answer::text("shorter")]).await;
    scene.turn("look").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    t1 message m2 model cut: <c1 ls>
    t1 tool_finished c1 invalid "not run: the answer was cut at the token limit; write less at once"
    t1 message m3 user: <c1 failed "not run: the answer was cut at the token limit; write less at once">
    t1 message m4 model: "shorter"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_refusal_ends_the_turn() {
    let mut scene = Scene::auto([Answer::text("I would rather not").stops(Stop::Refusal)]).await;
    scene.turn("do it").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "do it"
    t1 turn_started p1
    t1 message m1 user: "do it"
    t1 message m2 model: "I would rather not"
    t1 turn_finished refusal after 1: the model refused
    "#);
}

#[tokio::test]
async fn an_answer_that_pauses_goes_on_in_the_next_step() {
    let mut scene = Scene::auto([Answer::text("half").stops(Stop::Paused), Answer::text("whole")]).await;
    scene.turn("search").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "search"
    t1 turn_started p1
    t1 message m1 user: "search"
    t1 message m2 model paused: "half"
    t1 message m3 model: "whole"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_turn_stops_at_its_limit_of_steps() {
    let look = || Answer::call("ls", json!({ "path": "." }));
    let mut scene = Scene::with("max_steps = 2", "mock/m", Mode::Auto, [look(), look(), look()]).await;
    scene.turn("look for ever").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "look for ever"
    t1 turn_started p1
    t1 message m1 user: "look for ever"
    t1 message m2 model: <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 message m4 model: <c2 ls>
    t1 tool_started c2 ls .
    t1 tool_finished c2 ran "[empty directory]"
    t1 message m5 user: <c2 "[empty directory]">
    t1 turn_finished max_steps after 2: the turn took 2 steps, max_steps is 2
    "#);
}

#[tokio::test]
async fn an_image_is_stored_once_and_named_in_the_prompt() {
    let mut scene = Scene::auto([Answer::text("a dot")]).await;
    scene.prompted(picture(), When::Queue, None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "what is this?" <image>
    t1 turn_started p1
    t1 message m1 user: "what is this?" <image>
    t1 message m2 model: "a dot"
    t1 turn_finished end_turn after 1
    user: what is this? <image>
    "#);
}

#[tokio::test]
async fn images_that_a_model_refuses_are_left_out_and_the_step_is_repeated() {
    let refuses = Answer::fails(FailureClass::Images, "no images");
    let mut scene = Scene::auto([refuses, Answer::text("what dot?")]).await;
    scene.prompted(picture(), When::Queue, None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(format!("{}\n{}", scene.transcript().await, scene.last_request()), @r#"
    prompt_accepted p1 queue "what is this?" <image>
    t1 turn_started p1
    t1 message m1 user: "what is this?" <image>
    t1 trimmed 0 calls 1 images 0 native
    t1 message m2 model: "what dot?"
    t1 turn_finished end_turn after 1
    user: what is this? [an image was left out: the model did not take it]
    "#);
}

#[tokio::test]
async fn an_answer_that_is_none_is_asked_for_once_more() {
    let written = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}\n</tool_call>";
    for first in [
        Answer::text(""),
        Answer::text(" \n"),
        Answer::text("").thinks("hm"),
        Answer::text("").thinks(written),
        Answer::text(written),
        Answer::text("{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}"),
        Answer::text("I look at the files.").stops(Stop::NoCalls),
    ] {
        let mut scene = Scene::auto([first, Answer::text("done")]).await;
        scene.turn("go").await;
        let transcript = scene.transcript().await;
        assert!(transcript.ends_with("turn_finished end_turn after 2"), "{transcript}");
        assert_eq!(scene.count("user asks to go on").await, 1, "{transcript}");
    }
}

#[tokio::test]
async fn an_answer_that_is_none_twice_ends_the_turn_as_failed() {
    let mut scene = Scene::auto([Answer::text(""), Answer::text("").thinks("hm"), Answer::text("again")]).await;
    scene.turn("go").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "go"
    t1 turn_started p1
    t1 message m1 user: "go"
    t1 message m2 model:
    t1 message m3 user asks to go on: "Your answer was empty. If there is more to do, call a tool; otherwise give your answer as text."
    t1 message m4 model: (hm)
    t1 turn_finished error after 2: the model's answer is empty
    "#);
    scene.turn("go on").await;
    assert_eq!(scene.count("t2 turn_finished end_turn after 1").await, 1);
    let written = "[ls(path=\".\")]";
    let answers = [Answer::text(written), Answer::call("ls", json!({})), Answer::text(written), Answer::text(written)];
    let mut scene = Scene::auto(answers).await;
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    assert!(
        transcript.ends_with("error after 4: the model wrote a tool call as text, which nothing runs"),
        "{transcript}"
    );
}
