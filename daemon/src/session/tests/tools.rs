//! Tool rounds: one result a call, in the order of the calls.

use super::*;

#[tokio::test]
async fn a_tool_round_trip() {
    let write = Answer::text("Writing.").calls("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::auto([write, Answer::text("written")]).await;
    scene.turn("write").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 model: "Writing." <c1 write>
    t1 tool_started c1 write a
    t1 tool_finished c1 ran "created a, 4 bytes"
    t1 message m3 user: <c1 "created a, 4 bytes">
    t1 message m4 model: "written"
    t1 turn_finished end_turn after 2
    "#);
    assert_eq!(std::fs::read_to_string(scene.path("a")).unwrap(), "one\n");
}

#[tokio::test]
async fn results_come_in_the_order_of_the_calls() {
    let read = |answer: Answer, name: &str| answer.calls("read", json!({ "path": name }));
    let three = read(read(read(Answer::text(""), "a"), "b"), "c");
    let mut scene = Scene::auto([three, Answer::text("read")]).await;
    ["a", "b", "c"].iter().for_each(|name| std::fs::write(scene.path(name), format!("this is {name}\n")).unwrap());
    scene.turn("read").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: read
    model: <c1 read> <c2 read> <c3 read>
    user: <c1: 1	this is a
    > <c2: 1	this is b
    > <c3: 1	this is c
    >
    ");
}

#[tokio::test]
async fn an_unknown_tool_is_a_result_that_names_the_others() {
    let mut scene = Scene::auto([Answer::call("raed", json!({})), Answer::text("sorry")]).await;
    scene.turn("go").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "go"
    t1 turn_started p1
    t1 message m1 user: "go"
    t1 message m2 model: <c1 raed>
    t1 tool_finished c1 invalid "there is no tool `raed`; did you mean `read`? (the tools are bash, read, write, edit, ls, glob, grep..."
    t1 message m3 user: <c1 failed "there is no tool `raed`; did you mean `read`? (the tools are bash, read, write, edit, ls, glob, grep...">
    t1 message m4 model: "sorry"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn arguments_that_are_no_object_are_a_result() {
    let mut scene = Scene::auto([Answer::call("ls", json!("{\"path\": ")), Answer::text("sorry")]).await;
    scene.turn("go").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "go"
    t1 turn_started p1
    t1 message m1 user: "go"
    t1 message m2 model: <c1 ls>
    t1 tool_finished c1 invalid "not run: the arguments are not a JSON object: EOF while parsing a value at line 1 column 9"
    t1 message m3 user: <c1 failed "not run: the arguments are not a JSON object: EOF while parsing a value at line 1 column 9">
    t1 message m4 model: "sorry"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_a_result() {
    let mut scene = Scene::auto([Answer::call("read", json!({ "file": 1 })), Answer::text("sorry")]).await;
    scene.turn("go").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "go"
    t1 turn_started p1
    t1 message m1 user: "go"
    t1 message m2 model: <c1 read>
    t1 tool_finished c1 invalid "not run: unknown field `file`, expected one of `path`, `offset`, `limit`"
    t1 message m3 user: <c1 failed "not run: unknown field `file`, expected one of `path`, `offset`, `limit`">
    t1 message m4 model: "sorry"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn a_tool_that_fails_is_a_result() {
    let mut scene = Scene::auto([Answer::call("read", json!({ "path": "nothing" })), Answer::text("gone")]).await;
    scene.turn("read").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "read"
    t1 turn_started p1
    t1 message m1 user: "read"
    t1 message m2 model: <c1 read>
    t1 tool_started c1 read nothing
    t1 tool_finished c1 ran "nothing does not exist"
    t1 message m3 user: <c1 failed "nothing does not exist">
    t1 message m4 model: "gone"
    t1 turn_finished end_turn after 2
    "#);
}

#[tokio::test]
async fn calls_have_ids_that_go_on_from_turn_to_turn() {
    let look = || Answer::call("ls", json!({ "path": "." }));
    let mut scene = Scene::auto([look(), Answer::text("one"), look(), Answer::text("two")]).await;
    scene.turn("look").await;
    scene.turn("again").await;
    insta::assert_snapshot!(scene.last_request(), @r"
    user: look
    model: <c1 ls>
    user: <c1: [empty directory]>
    model: one
    user: again
    model: <c2 ls>
    user: <c2: [empty directory]>
    ");
}

#[tokio::test]
async fn plan_mode_refuses_what_changes_something() {
    let write = Answer::call("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::with("", "mock/m", Mode::Plan, [write, Answer::text("a plan")]).await;
    scene.turn("write").await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "write"
    t1 turn_started p1
    t1 message m1 user: "write"
    t1 message m2 user is told of the mode
    t1 message m3 model: <c1 write>
    t1 tool_finished c1 denied "not run: mode plan allows only what changes nothing"
    t1 message m4 user: <c1 failed "not run: mode plan allows only what changes nothing">
    t1 message m5 model: "a plan"
    t1 turn_finished end_turn after 2
    question_asked q1 "the plan is ready: go on?" edit|ask|not_yet
    "#);
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn more_calls_than_a_step_may_have_are_refused() {
    let many = (0..130).fold(Answer::text(""), |answer, _| answer.calls("ls", json!({ "path": "." })));
    let mut scene = Scene::auto([many, Answer::text("fine")]).await;
    scene.turn("look").await;
    let transcript = scene.transcript().await;
    let refused: Vec<&str> = transcript.lines().filter(|line| line.contains(" invalid ")).collect();
    insta::assert_snapshot!(refused.join("\n"), @r#"
    t1 tool_finished c129 invalid "not run: an answer may have 128 calls; make the others in the next one"
    t1 tool_finished c130 invalid "not run: an answer may have 128 calls; make the others in the next one"
    "#);
}

#[tokio::test]
async fn names_and_arguments_that_are_right_in_another_wrapping_are_taken() {
    let calls = [
        Answer::call("functions.write", json!({ "path": "a", "content": "one\n", "explanation": "to see" })),
        Answer::call("Read", json!({ "arguments": { "path": "a", "limit": "1" } })),
        Answer::call("read", Value::from("```json\n{\"path\": \"a\"}\n```")),
        Answer::call(
            "bash<|channel|>commentary",
            json!({ "command": "cat a", "timeout_s": "9", "security_risk": "low" }),
        ),
    ];
    let mut scene = Scene::auto(calls.into_iter().chain([Answer::text("done")])).await;
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    let finished: Vec<&str> = transcript.lines().filter(|line| line.contains("tool_finished")).collect();
    assert!(finished.len() == 4 && finished.iter().all(|line| line.contains(" ran ")), "{transcript}");
    assert_eq!(scene.count("tool_started c1 write a").await, 1, "{transcript}");
}

#[tokio::test]
async fn a_tool_whose_schema_is_refused_is_left_out_and_the_prompt_goes_on() {
    let refused =
        || Answer::fails(FailureClass::Rejected, "400: Invalid schema for function 'glob': array schema missing items");
    let mut scene = Scene::auto([refused(), Answer::text("done"), Answer::text("again")]).await;
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    assert!(transcript.ends_with("turn_finished end_turn after 1"), "{transcript}");
    assert_eq!(scene.count("asking again without the tool glob").await, 1, "{transcript}");
    // From now on, and no other tool.
    scene.turn("more").await;
    let offered = scene.env.toolbox.offered(false, 0);
    let tools = scene.env.toolbox.tools_of("mock/m", scene.dir.path(), &scene.id, None, offered);
    assert!(tools.get("glob").is_none() && tools.get("grep").is_some());
    let others = scene.env.toolbox.tools_of("other/m", scene.dir.path(), &scene.id, None, offered);
    assert!(others.get("glob").is_some());
}

#[tokio::test]
async fn a_server_that_leaves_the_tools_out_is_told_of_once() {
    let mut scene = Scene::auto([Answer::text("one").counts(120, 3), Answer::text("two").counts(140, 3)]).await;
    scene.turn("go").await;
    scene.turn("go on").await;
    assert_eq!(scene.count("seems to leave the tools out").await, 1, "{}", scene.transcript().await);
    let mut scene = Scene::auto([Answer::text("one").counts(5000, 3)]).await;
    scene.turn("go").await;
    assert_eq!(scene.count("seems to leave the tools out").await, 0);
}
