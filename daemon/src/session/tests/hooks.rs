//! Hooks around calls: they refuse, change and add, and allow nothing.

use super::*;

fn touch(name: &str) -> Answer {
    Answer::call("bash", json!({ "command": format!("touch {name}") }))
}

impl Scene {
    /// A session with this line of configuration, whose model makes a call and then says `done`.
    async fn hooked(mode: Mode, config: &str, call: Answer) -> Self {
        let scene = Self::with(config, "mock/m", mode, [call, Answer::text("done")]).await;
        scene.prompt("go", When::Queue).await;
        scene
    }
}

#[tokio::test]
async fn a_hook_refuses_a_call_and_the_model_reads_why() {
    let hooks = "hooks = [{ event = 'before_call', matcher = 'bash(touch b:*)', command = 'exit 1' }, \
                 { event = 'before_call', matcher = 'bash', command = 'grep -q PreToolUse && echo no >&2 && exit 2' }]";
    let mut scene = Scene::hooked(Mode::Auto, hooks, touch("a")).await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "go"
    t1 turn_started p1
    t1 message m1 user: "go"
    t1 message m2 model: <c1 bash>
    t1 tool_finished c1 denied "not run: no"
    t1 message m3 user: <c1 failed "not run: no">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn a_hook_that_fails_refuses() {
    let mut scene =
        Scene::hooked(Mode::Auto, "hooks = [{ event = 'before_call', command = 'exit 1' }]", touch("a")).await;
    scene.ends(1).await;
    let why = "not run: the hook `exit 1` failed with exit code 1";
    assert_eq!(scene.count(&format!("tool_finished c1 denied \"{why}")).await, 1, "{}", scene.transcript().await);
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn what_a_hook_changes_is_what_is_asked_and_what_runs() {
    let hooks = "hooks = [{ event = 'before_call', command = \"sed 's/touch a/touch b/'\" }]";
    let mut scene = Scene::hooked(Mode::Ask, hooks, touch("a")).await;
    scene.until("permission_requested q1 c1 touch b", 1).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert!(scene.path("b").exists() && !scene.path("a").exists());
    assert_eq!(scene.count("[a hook changed the arguments: ").await, 2, "{}", scene.transcript().await);
}

#[tokio::test]
async fn a_hook_changes_no_call_into_one_that_is_denied() {
    let hooks = "permissions.deny = ['bash(touch b)']\n\
                 hooks = [{ event = 'before_call', command = \"sed 's/touch a/touch b/'\" }]";
    let mut scene = Scene::hooked(Mode::Auto, hooks, touch("a")).await;
    scene.ends(1).await;
    assert_eq!(scene.count("c1 denied \"not run: the rule bash(touch b) forbids it").await, 1);
    assert!(!scene.path("b").exists());
}

#[tokio::test]
async fn what_a_hook_says_after_a_call_is_a_part_of_its_result() {
    let hooks = "hooks = [{ event = 'after_call', matcher = 'edit(*.rs)', command = 'exit 2' }, \
                 { event = 'after_call', matcher = 'bash', command = 'grep -o \"is_error.*\"' }]";
    let call = Answer::call("bash", json!({ "command": "echo out" }));
    let mut scene = Scene::hooked(Mode::Auto, hooks, call).await;
    scene.ends(1).await;
    assert_eq!(scene.count("[a hook says]").await, 2, "{}", scene.transcript().await);
}

#[tokio::test]
async fn a_hook_that_fails_after_a_call_is_a_notice() {
    let mut scene =
        Scene::hooked(Mode::Auto, "hooks = [{ event = 'after_call', command = 'exit 3' }]", touch("a")).await;
    scene.ends(1).await;
    assert_eq!(scene.count("notice hook_failed: the hook `exit 3` failed with exit code 3").await, 1);
    assert_eq!(scene.count("tool_finished c1 ran").await, 1);
}

#[tokio::test]
async fn a_hook_runs_again_for_a_call_that_had_not_started_and_the_question_is_the_same() {
    let hooks = "hooks = [{ event = 'before_call', command = 'echo x >> ran' }]";
    let mut scene = Scene::hooked(Mode::Ask, hooks, touch("a")).await;
    scene.until("permission_requested", 1).await;
    scene.crash().await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("permission_requested").await, 1);
    assert_eq!(std::fs::read_to_string(scene.path("ran")).unwrap(), "x\nx\n");
    assert_eq!(scene.count("tool_started").await, 1);
}

#[tokio::test]
async fn a_cancel_ends_a_hook() {
    let hooks = "hooks = [{ event = 'before_call', command = 'sleep 1000', timeout_s = 600 }]";
    let mut scene = Scene::hooked(Mode::Auto, hooks, touch("a")).await;
    scene.until("message m2", 1).await;
    scene.cancel().await;
    scene.ends(1).await;
    assert!(!scene.path("a").exists());
}
