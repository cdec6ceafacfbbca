//! Model, mode and effort that change between two steps.

use super::*;

#[tokio::test]
async fn another_model_is_asked_from_the_next_step_on() {
    let gate = gate();
    let look = Answer::text("looking").waits(&gate).calls("ls", json!({ "path": "." }));
    let mut scene = Scene::auto([look, Answer::text("done")]).await;
    scene.prompt("look", When::Queue).await;
    scene.shows("looking").await;
    scene.set(session::Set { model: Some("mock/other".to_owned()), ..session::Set::default() }).await;
    gate.add_permits(1);
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    session_changed mock/other setup
    t1 message m2 model: "looking" <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn other_tools_count_from_the_next_step_on_and_after_a_crash() {
    let gate = gate();
    let ls = || Answer::call("ls", json!({ "path": "." }));
    let look = Answer::text("looking").waits(&gate).calls("ls", json!({ "path": "." }));
    let answers = [look, ls(), Answer::text("no"), ls(), Answer::text("no"), ls(), Answer::text("yes")];
    let mut scene = Scene::auto(answers).await;
    let only = |tools: &[&str]| session::Set {
        tools: Some(tools.iter().map(|it| (*it).to_owned()).collect()),
        ..session::Set::default()
    };
    scene.prompt("look", When::Queue).await;
    scene.shows("looking").await;
    scene.set(only(&["read", "grep"])).await;
    gate.add_permits(1);
    // The step under way has the tools that its request named.
    scene.ends(1).await;
    scene.crash().await;
    scene.turn("again").await;
    scene.set(only(&["*"])).await;
    scene.turn("once more").await;
    let none = session::Set { session: scene.id.clone(), ..only(&[]) };
    let error = scene.asked(|asked| Command::Set(none, Ok(()), asked)).await.unwrap_err();
    assert!(error.message.contains("one tool at least"), "{}", error.message);
    let unknown = session::Set { session: scene.id.clone(), ..only(&["raed"]) };
    let error = scene.asked(|asked| Command::Set(unknown, Ok(()), asked)).await.unwrap_err();
    assert!(error.message.contains("did you mean `read`"), "{}", error.message);
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "look"
    t1 turn_started p1
    t1 message m1 user: "look"
    session_changed tools read grep
    t1 message m2 model: "looking" <c1 ls>
    t1 tool_started c1 ls .
    t1 tool_finished c1 ran "[empty directory]"
    t1 message m3 user: <c1 "[empty directory]">
    t1 session_changed setup
    t1 message m4 model: <c2 ls>
    t1 tool_finished c2 invalid "there is no tool `ls` (the tools are read, grep)"
    t1 message m5 user: <c2 failed "there is no tool `ls` (the tools are read, grep)">
    t1 message m6 model: "no"
    t1 turn_finished end_turn after 3
    prompt_accepted p2 queue "again"
    t2 turn_started p2
    t2 message m7 user: "again"
    t2 message m8 model: <c3 ls>
    t2 tool_finished c3 invalid "there is no tool `ls` (the tools are read, grep)"
    t2 message m9 user: <c3 failed "there is no tool `ls` (the tools are read, grep)">
    t2 message m10 model: "no"
    t2 turn_finished end_turn after 2
    session_changed tools *
    prompt_accepted p3 queue "once more"
    t3 turn_started p3
    t3 message m11 user: "once more"
    t3 session_changed setup
    t3 message m12 model: <c4 ls>
    t3 tool_started c4 ls .
    t3 tool_finished c4 ran "[empty directory]"
    t3 message m13 user: <c4 "[empty directory]">
    t3 message m14 model: "yes"
    t3 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn another_mode_holds_for_the_next_call() {
    let write = |name: &str| Answer::call("write", json!({ "path": name, "content": "one\n" }));
    let mut scene = Scene::auto([write("a"), Answer::text("one"), write("b"), Answer::text("two")]).await;
    scene.turn("write").await;
    scene.set(session::Set { mode: Some(Mode::Plan), ..session::Set::default() }).await;
    scene.turn("again").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: <c1 write>
    t1 tool_started c1 write a
    t1 tool_finished c1 ran "created a, 4 bytes"
    t1 message m3 user: <c1 "created a, 4 bytes">
    t1 message m4 model: "one"
    t1 turn_finished end_turn after 2
    session_changed plan
    prompt_accepted p2 queue "again"
    t2 turn_started p2
    t2 message m5 user: "again"
    t2 message m6 user is told of the mode
    t2 message m7 model: <c2 write>
    t2 tool_finished c2 denied "not run: mode plan allows only what changes nothing"
    t2 message m8 user: <c2 failed "not run: mode plan allows only what changes nothing">
    t2 message m9 model: "two"
    t2 turn_finished end_turn after 2
    question_asked q1 "the plan is ready: go on?" edit|ask|not_yet
    "#);
}

#[tokio::test]
async fn an_effort_that_changes_is_an_event() {
    let mut scene = Scene::auto([Answer::text("quick"), Answer::text("slow")]).await;
    scene.turn("think").await;
    scene.set(session::Set { effort: Some(Effort::High), ..session::Set::default() }).await;
    scene.turn("harder").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "think"
    t1 turn_started p1
    t1 message m1 user: "think"
    t1 message m2 model: "quick"
    t1 turn_finished end_turn after 1
    session_changed effort high
    prompt_accepted p2 queue "harder"
    t2 turn_started p2
    t2 message m3 user: "harder"
    t2 message m4 model: "slow"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn instructions_that_are_written_between_two_turns_are_named() {
    let mut scene = Scene::auto([Answer::text("one"), Answer::text("two")]).await;
    scene.turn("first").await;
    std::fs::write(scene.path("AGENTS.md"), "be brief\n").unwrap();
    scene.turn("second").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "first"
    t1 turn_started p1
    t1 message m1 user: "first"
    t1 message m2 model: "one"
    t1 turn_finished end_turn after 1
    prompt_accepted p2 queue "second"
    t2 turn_started p2
    t2 message m3 user: "second"
    t2 session_changed 1 instructions
    t2 message m4 model: "two"
    t2 turn_finished end_turn after 1
    "#);
}

#[tokio::test]
async fn a_skill_that_is_written_between_two_turns_is_named_and_read_without_asking() {
    let read = Answer::call("skill", json!({ "name": "pdf" }));
    let mut scene = Scene::ask([Answer::text("one"), read, Answer::text("two")]).await;
    scene.turn("first").await;
    let skill = scene.env.places.config.join("skills/pdf");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: pdf\ndescription: Fills forms\n---\nUse pdftk.\n").unwrap();
    scene.turn("second").await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("t2 session_changed 1 skills\nt2 session_changed setup\n"), "{transcript}");
    assert!(transcript.contains("Use pdftk.") && !transcript.contains("permission_requested"), "{transcript}");
}

#[tokio::test]
async fn a_rule_that_denies_reading_holds_for_the_files_of_a_skill() {
    let read = Answer::call("skill", json!({ "name": "pdf", "file": "secret.txt" }));
    let config = "permissions.deny = [\"read(**/secret.txt)\"]\n";
    let mut scene = Scene::with(config, "mock/m", Mode::Auto, [read, Answer::text("no")]).await;
    let skill = scene.env.places.config.join("skills/pdf");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: pdf\ndescription: d\n---\nx\n").unwrap();
    std::fs::write(skill.join("secret.txt"), "key").unwrap();
    scene.turn("read it").await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("the rule read(**/secret.txt) forbids it"), "{transcript}");
}

#[tokio::test]
async fn a_question_without_a_usable_model_is_refused() {
    let scene = Scene::with("", "locked/m", Mode::Auto, []).await;
    let error = scene.prompted(PromptContent::Text("hi".to_owned()), When::Queue, None).await.unwrap_err();
    assert!(error.message.contains("LINGER_TEST_KEY_OF_NOBODY"), "{}", error.message);
}
