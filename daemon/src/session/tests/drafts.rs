//! After a cancel the user's next prompt runs first; what was queued is a draft until it is sent again.

use super::*;

fn answers<const N: usize>(texts: [&str; N]) -> Vec<Answer> {
    let begun = Answer::text("begun").waits(&gate());
    std::iter::once(begun).chain(texts.map(Answer::text)).collect()
}

/// A session whose first turn is cancelled, with these prompts behind it.
async fn cancelled<const N: usize>(prompts: [(&str, When); N], texts: Vec<Answer>) -> Scene {
    let mut scene = Scene::auto(texts).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("begun").await;
    for (text, when) in prompts {
        scene.prompt(text, when).await;
    }
    scene.cancel().await;
    scene
}

async fn awaited(scene: &Scene, text: &str) {
    let session = scene.id.clone();
    let prompt: session::Prompt =
        serde_json::from_value(json!({ "session": session, "content": text, "awaited": true })).unwrap();
    scene.send(|reply| PromptRequest::command(prompt, None, "a program", reply)).await.unwrap();
}

async fn unqueue(scene: &Scene, prompt: Option<&str>) -> Result<session::Unqueued, RpcError> {
    let prompt = prompt.map(Into::into);
    scene.send(|reply| Command::Unqueue(prompt, None, Author::named("someone"), reply)).await
}

#[tokio::test]
async fn the_next_prompt_runs_first_and_the_queue_waits_as_drafts() {
    let mut scene = cancelled([("commit", When::Queue), ("steered", When::Steer)], answers(["one"])).await;
    scene.prompt("do not commit", When::Queue).await;
    scene.ends(2).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first"
    t1 turn_started p1
    t1 message m1 user: "first"
    prompt_accepted p2 queue "commit"
    prompt_accepted p3 steer "steered"
    t1 message m2 model interrupted: "begun"
    prompt_drafted p2
    prompt_drafted p3
    t1 turn_finished cancelled after 0
    prompt_accepted p4 queue "do not commit"
    t2 turn_started p4
    t2 message m3 user: "do not commit"
    t2 message m4 model: "one"
    t2 turn_finished end_turn after 1
    "#);
    assert_eq!(scene.state().await.info(scene.id.clone()).drafts, 2);
}

#[tokio::test]
async fn continue_sends_all_drafts_in_their_order_and_a_steer_is_a_turn_of_its_own() {
    let mut scene = cancelled([("a", When::Queue), ("b", When::Steer)], answers(["one", "two"])).await;
    scene.go_on().await.unwrap();
    scene.ends(3).await;
    let transcript = scene.transcript().await;
    let said: Vec<_> = transcript.lines().filter(|line| line.contains("user:")).collect();
    assert_eq!(said, ["t1 message m1 user: \"first\"", "t2 message m3 user: \"a\"", "t3 message m5 user: \"b\""]);
    assert_eq!(scene.go_on().await.unwrap_err().message, "session scene has nothing to continue");
}

#[tokio::test]
async fn one_draft_is_sent_alone_and_another_is_taken_back() {
    let mut scene = cancelled([("a", When::Queue), ("b", When::Queue), ("c", When::Queue)], answers(["one"])).await;
    scene.send_draft("p3").await.unwrap();
    scene.ends(2).await;
    assert_eq!(unqueue(&scene, None).await.unwrap().prompt, "p4".into(), "the last one");
    assert_eq!(unqueue(&scene, Some("p2")).await.unwrap().prompt, "p2".into());
    let error = scene.send_draft("p2").await.unwrap_err();
    assert_eq!(error.message, "prompt p2 is no draft of session scene");
    assert!(scene.send_draft("p3").await.is_err(), "it was sent");
    assert!(unqueue(&scene, None).await.is_err());
    assert_eq!(scene.count("user: \"b\"").await, 1);
    assert_eq!(scene.count("draft_sent p3").await, 1);
}

#[tokio::test]
async fn drafts_survive_a_crash_with_what_they_say() {
    let mut scene = cancelled([("a", When::Queue)], answers(["one"])).await;
    scene.crash().await;
    assert_eq!(scene.count("turn_started").await, 1, "none starts by itself");
    scene.send_draft("p2").await.unwrap();
    scene.ends(2).await;
    assert_eq!(scene.count("user: \"a\"").await, 1);
}

#[tokio::test]
async fn a_draft_that_is_sent_while_a_turn_runs_is_queued() {
    let mut texts = answers(["late"]);
    texts.insert(1, Answer::text("works").waits(&gate()));
    let mut scene = cancelled([("a", When::Queue)], texts).await;
    scene.prompt("second", When::Queue).await;
    scene.shows("works").await;
    scene.go_on().await.unwrap();
    assert_eq!(scene.state().await.info(scene.id.clone()).queued, 1);
    scene.cancel().await;
    let info = scene.state().await.info(scene.id.clone());
    assert_eq!((info.queued, info.drafts), (0, 1), "it is a draft again");
}

#[tokio::test]
async fn a_prompt_whose_sender_waits_ends_with_the_cancel() {
    let mut scene = Scene::auto(answers(["one"])).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("begun").await;
    awaited(&scene, "of a program").await;
    scene.prompt("of a user", When::Queue).await;
    scene.cancel().await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("prompt_unqueued p2\nprompt_drafted p3\nt1 turn_finished cancelled"), "{transcript}");
}

#[tokio::test]
async fn an_interrupt_that_a_cancel_overtakes_is_a_draft() {
    let write = Answer::call("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::ask([write]).await;
    scene.prompt("write", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.prompt("behind it", When::Queue).await;
    scene.cancel().await;
    assert_eq!(scene.count("prompt_drafted p2").await, 1);
    assert_eq!(scene.state().await.info(scene.id.clone()).permissions, []);
}

#[tokio::test]
async fn after_an_error_the_queue_stays_a_queue() {
    let open = gate();
    let failing = Answer::text("begun").waits(&open).then_fails(FailureClass::Rejected, "no");
    let mut scene = Scene::auto([failing, Answer::text("one"), Answer::text("two")]).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("begun").await;
    scene.prompt("second", When::Queue).await;
    open.add_permits(1);
    scene.ends(1).await;
    let info = scene.state().await.info(scene.id.clone());
    assert_eq!((info.queued, info.drafts), (1, 0));
    scene.prompt("third", When::Queue).await;
    scene.ends(3).await;
    let transcript = scene.transcript().await;
    let said: Vec<_> = transcript.lines().filter_map(|line| line.split_once("user: ")).map(|(_, text)| text).collect();
    assert_eq!(said, ["\"first\"", "\"second\"", "\"third\""]);
}

#[tokio::test]
async fn a_full_list_of_drafts_does_not_keep_the_next_prompt_out() {
    let mut scene = Scene::auto(answers(["one"])).await;
    scene.prompt("first", When::Queue).await;
    scene.shows("begun").await;
    for n in 0..256 {
        scene.prompt(&format!("{n}"), When::Queue).await;
    }
    scene.cancel().await;
    scene.turn("next").await;
    assert_eq!(scene.count("user: \"next\"").await, 1);
    assert_eq!(scene.state().await.info(scene.id.clone()).drafts, 256);
}
