//! Calls that would change nothing: refused before a user is asked, unless the refusal would tell what the model may not read.

use super::*;

fn write(name: &str) -> Answer {
    Answer::call("write", json!({ "path": name, "content": "one\n" }))
}

fn edit(name: &str, old: &str) -> Value {
    json!({ "path": name, "old": old, "new": "1" })
}

fn put(scene: &Scene, name: &str, content: &str) {
    std::fs::write(scene.path(name), content).unwrap();
}

/// The lines of a transcript with this kind of event.
fn lines(transcript: &str, kind: &str) -> String {
    transcript.lines().filter(|line| line.contains(kind)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_call_that_would_change_nothing_asks_nobody() {
    let calls = [
        write("a"),
        Answer::call("edit", edit("a", "x")),
        Answer::call("edit", edit("none", "x")),
        Answer::call("read", json!({ "path": "a" })),
        Answer::call("edit", edit("a", "elephant")),
    ];
    let mut scene = Scene::ask(calls.into_iter().chain([Answer::text("I see")])).await;
    put(&scene, "a", "x\n");
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    insta::assert_snapshot!(lines(&transcript, "tool_finished"), @r#"
    t1 tool_finished c1 invalid "a is not overwritten: you have not read it; read it first"
    t1 tool_finished c2 invalid "a is unchanged: you have not read it; read it first"
    t1 tool_finished c3 invalid "none does not exist"
    t1 tool_finished c4 ran "1\tx/"
    t1 tool_finished c5 invalid "a is unchanged: `old` was not found; read the file again"
    "#);
    assert!(!transcript.contains("permission_requested"), "{transcript}");
    assert_eq!(lines(&transcript, "tool_started"), "t1 tool_started c4 read a");
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_asks_nobody() {
    let mut scene = Scene::ask([
        Answer::call("read", json!({ "path": "a" })),
        Answer::text("read"),
        write("a"),
        Answer::text("I see"),
    ])
    .await;
    put(&scene, "a", "x\n");
    scene.turn("read").await;
    put(&scene, "a", "y\n");
    scene.turn("write").await;
    let transcript = scene.transcript().await;
    assert!(!transcript.contains("permission_requested"), "{transcript}");
    assert!(transcript.contains("it has changed since you read or wrote it"), "{transcript}");
}

#[tokio::test]
async fn an_image_that_would_not_be_made_asks_nobody() {
    let image = |picture: Option<&str>| {
        let pictures: Vec<&str> = picture.into_iter().collect();
        Answer::call("image", json!({ "prompt": "a cat", "path": "a.png", "pictures": pictures }))
    };
    let answers = [image(None), image(Some("b.png")), Answer::text("I see")];
    let mut scene = Scene::with("tools.image = \"mock/painter\"", "mock/m", Mode::Ask, answers).await;
    put(&scene, "a.png", "mine");
    scene.prompt("go", When::Queue).await;
    scene.until("turn_finished", 1).await;
    let transcript = scene.transcript().await;
    insta::assert_snapshot!(lines(&transcript, "tool_finished"), @r#"
    t1 tool_finished c1 invalid "no image is made: a.png is not overwritten: you have not read it; read it first"
    t1 tool_finished c2 invalid "no image is made: a.png is not overwritten: you have not read it; read it first"
    "#);
    assert!(!transcript.contains("permission_requested"), "{transcript}");
}

#[tokio::test]
async fn what_the_model_may_not_read_is_not_told_by_a_refusal() {
    let edit = || Answer::call("edit", edit(".env", "x"));
    let cases = [("ask", edit as fn() -> Answer), ("ask", || write(".env")), ("deny", || write(".env"))];
    for ((list, call), there) in cases.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        let rule = format!("permissions.{list} = [\"read(**/.env)\"]");
        let mut scene = Scene::with(&rule, "mock/m", Mode::Ask, [call(), Answer::text("I see")]).await;
        if there {
            put(&scene, ".env", "secret\n");
        }
        scene.prompt("go", When::Queue).await;
        scene.until("permission_requested", 1).await;
        scene.answer(1, Decision::RejectOnce, None).await.unwrap();
        scene.ends(1).await;
        let told = scene.last_request();
        assert!(told.ends_with("<c1: not run: denied by someone>"), "{told}");
    }
}

#[tokio::test]
async fn outside_the_workspace_a_user_is_asked_first() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("a");
    std::fs::write(&file, "x\n").unwrap();
    let mut scene = Scene::ask([write(&file.to_string_lossy()), Answer::text("I see")]).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("tool_started") && transcript.contains("you have not read it"), "{transcript}");
}

#[tokio::test]
async fn a_call_is_not_refused_for_what_an_earlier_one_of_its_step_may_change() {
    let first = Answer::call("read", json!({ "path": "a" })).calls("write", json!({ "path": "a", "content": "one\n" }));
    let mut scene = Scene::ask([first, Answer::text("done")]).await;
    put(&scene, "a", "x\n");
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(std::fs::read_to_string(scene.path("a")).unwrap(), "one\n");
}

#[tokio::test]
async fn a_call_is_refused_beside_calls_for_other_files() {
    let step = Answer::call("read", json!({ "path": "a" }))
        .calls("edit", edit("b", "x"))
        .calls("edit", edit("b", "y"))
        .calls("write", json!({ "path": "new", "content": "" }))
        .calls("edit", edit("a", "x"));
    let mut scene = Scene::ask([step, Answer::text("done")]).await;
    ["a", "b"].iter().for_each(|name| put(&scene, name, "x\n"));
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 2).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.answer(2, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    let transcript = scene.transcript().await;
    insta::assert_snapshot!(lines(&transcript, "permission_requested"), @r"
    t1 permission_requested q1 c4 write new
    t1 permission_requested q2 c5 edit a
    ");
    insta::assert_snapshot!(lines(&transcript, "tool_finished"), @r#"
    t1 tool_finished c1 ran "1\tx/"
    t1 tool_finished c2 invalid "b is unchanged: you have not read it; read it first"
    t1 tool_finished c3 invalid "b is unchanged: you have not read it; read it first"
    t1 tool_finished c4 ran "created new, 0 bytes"
    t1 tool_finished c5 ran "edited a, line 1"
    "#);
}
