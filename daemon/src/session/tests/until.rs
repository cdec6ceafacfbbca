//! A turn with a check: its failure is the next prompt until it passes, by permission, over crashes.

use linger_protocol::event::{MessageAdded, Outcome, PermissionRequested, ToolFinished};
use linger_protocol::question::Subject;

use super::*;

impl Scene {
    /// Prompts with a check that may send back so many failures.
    async fn until_passes(&self, command: &str, tries: u32) {
        self.checked(command, Some(tries)).await.unwrap();
    }

    /// The words of the checks.
    async fn said(&self) -> String {
        texts_of_checks(self.events().await).collect::<Vec<_>>().join("\n")
    }

    async fn checked(&self, command: &str, tries: Option<u32>) -> Result<Prompted, RpcError> {
        let (session, content) = (self.id.clone(), PromptContent::Text("mend it".to_owned()));
        let until = Some(session::Until { command: command.to_owned(), tries });
        let (when, schema, env) = (Some(When::Queue), None, BTreeMap::new());
        let prompt =
            session::Prompt { session, content, when, schema, until, expand: false, awaited: false, env, key: None };
        self.send(|reply| PromptRequest::command(prompt, None, "someone", reply)).await
    }
}

fn texts_of_checks(events: Vec<Event>) -> impl Iterator<Item = String> {
    events.into_iter().filter_map(|event| match event.body {
        EventBody::Message(MessageAdded { asks: Some(Asks::Check), content, .. }) => Some(text_of(&content)),
        _ => None,
    })
}

/// A check that passes once `done` is there, and counts how often it ran.
const DONE: &str = "echo ran >> runs; test -e done || { echo no file; exit 3; }";

fn writes() -> Answer {
    Answer::call("write", json!({ "path": "done", "content": "x" }))
}

#[tokio::test]
async fn a_failed_check_is_the_next_prompt_and_one_that_passes_ends_the_turn() {
    let mut scene = Scene::auto([Answer::text("it works"), writes(), Answer::text("now it does")]).await;
    scene.until_passes(DONE, 2).await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "mend it"
    t1 turn_started p1
    t1 message m1 user: "mend it"
    t1 message m2 model: "it works"
    t1 check_started c1 echo ran >> runs; test -e done || { echo no file; exit 3; } 0/2
    t1 tool_started c1 echo ran >> runs; test -e done || { echo no file; exit 3; }
    t1 tool_finished c1 ran "no file/" "[exit code 3]"
    t1 message m3 user asks to pass the check: "[This is not the user, but the check of your work: `echo ran >> runs; test -e done || { echo no file..."
    t1 message m4 model: <c2 write>
    t1 tool_started c2 write done
    t1 tool_finished c2 ran "created done, 1 bytes"
    t1 message m5 user: <c2 "created done, 1 bytes">
    t1 message m6 model: "now it does"
    t1 check_started c3 echo ran >> runs; test -e done || { echo no file; exit 3; } 1/2
    t1 tool_started c3 echo ran >> runs; test -e done || { echo no file; exit 3; }
    t1 tool_finished c3 ran "[no output]"
    t1 turn_finished end_turn after 3
    "#);
    assert_eq!(std::fs::read_to_string(scene.path("runs")).unwrap(), "ran\nran\n");
    let said = scene.said().await;
    assert!(said.starts_with("[This is not the user, but the check of your work: `echo ran"), "{said}");
    assert!(said.ends_with("\nno file\n[exit code 3]"), "{said}");
}

#[tokio::test]
async fn a_check_that_still_fails_after_its_tries_ends_the_turn_with_an_error() {
    let mut scene = Scene::auto([Answer::text("one"), Answer::text("two"), Answer::text("three")]).await;
    scene.until_passes("false", 2).await;
    scene.ends(1).await;
    assert_eq!(scene.count("asks to pass the check").await, 2);
    assert_eq!(scene.count("check_started").await, 3);
    assert_eq!(scene.count("turn_finished error after 3: the check `false` still fails after 2 tries").await, 1);
}

#[tokio::test]
async fn a_check_asks_like_any_command_and_a_denied_one_ends_the_turn() {
    let mut scene = Scene::ask([Answer::text("done")]).await;
    scene.until_passes("true", 3).await;
    scene.until("permission_requested q1 c1 true", 1).await;
    // The question is there after a crash, about the same call.
    scene.crash().await;
    scene.until("notice resumed", 1).await;
    scene.answer(1, Decision::RejectOnce, Some("not here")).await.unwrap();
    scene.ends(1).await;
    assert_eq!((scene.count("permission_requested").await, scene.count("check_started").await), (1, 1));
    let end = "turn_finished error after 1: the check `true` was not run: denied by someone: not here";
    assert_eq!(scene.count(end).await, 1);
}

#[tokio::test]
async fn an_allowed_check_runs_and_its_digest_is_that_of_the_call() {
    let mut scene = Scene::ask([Answer::text("done")]).await;
    scene.until_passes("true", 3).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("turn_finished end_turn after 1").await, 1);
    let asked = scene.events().await.into_iter().find_map(|event| match event.body {
        EventBody::PermissionRequested(PermissionRequested { digest, input, tool, cwd, about, .. }) => {
            assert_eq!(about, Some(Subject::Check));
            Some((digest, tool, input, cwd))
        }
        _ => None,
    });
    let (digest, tool, input, cwd) = asked.unwrap();
    assert_eq!((tool.as_str(), &input["command"]), ("bash", &json!("true")));
    assert_eq!(digest, crate::question::permission::digest("bash", &input, &cwd));
}

#[tokio::test]
async fn mode_plan_and_a_deny_rule_hold_for_a_check() {
    let mut scene = Scene::with("", "mock/m", Mode::Plan, [Answer::text("done")]).await;
    scene.until_passes("true", 3).await;
    scene.ends(1).await;
    assert_eq!(scene.count("was not run: mode plan allows only what changes nothing").await, 1);
    assert_eq!(scene.count("tool_started").await, 0);
}

#[tokio::test]
async fn a_check_that_ran_when_the_daemon_died_is_not_repeated_and_the_model_is_told() {
    let mut scene = Scene::auto([Answer::text("it works"), Answer::text("I looked")]).await;
    scene.until_passes("test -e go || sleep 600", 2).await;
    scene.until("tool_started c1", 1).await;
    scene.crash().await;
    std::fs::write(scene.path("go"), "").unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("tool_finished c1 unknown").await, 1);
    assert_eq!(scene.said().await.matches("was interrupted, and whether it passes is unknown").count(), 1);
    assert_eq!((scene.count("check_started c1").await, scene.count("check_started c2").await), (1, 1));
    assert_eq!(scene.count("turn_finished end_turn after 2").await, 1);
}

/// The end of the check, as the dead daemon has written it last.
fn ended(is_error: bool, says: &str) -> EventBody {
    EventBody::ToolFinished(ToolFinished {
        call_id: "c1".into(),
        is_error,
        outcome: Outcome::Ran,
        content: vec![ContentBlock::text(says)],
        output: Vec::new(),
        file: None,
        blob: None,
        diff: None,
        changes: Vec::new(),
        locations: Vec::new(),
        exit: None,
        model_cost: None,
        ms: 1,
    })
}

#[tokio::test]
async fn a_crash_after_a_check_has_failed_tells_the_model_and_repeats_nothing() {
    let mut scene = Scene::auto([Answer::text("it works"), Answer::text("now it does")]).await;
    scene.until_passes("test -e done && exit 0; echo ran >> runs; sleep 600", 1).await;
    scene.until("tool_started c1", 1).await;
    std::fs::write(scene.path("done"), "").unwrap();
    scene.crash_after(ended(true, "no file")).await;
    scene.ends(1).await;
    assert_eq!(scene.count("asks to pass the check").await, 1);
    assert!(scene.last_request().contains("no file"), "{}", scene.last_request());
    assert_eq!(scene.count("check_started").await, 2);
    assert_eq!(scene.count("turn_finished end_turn after 2").await, 1);
}

#[tokio::test]
async fn a_crash_after_a_check_has_passed_ends_the_turn() {
    let mut scene = Scene::auto([Answer::text("it works")]).await;
    scene.until_passes("sleep 600", 1).await;
    scene.until("tool_started c1", 1).await;
    scene.crash_after(ended(false, "ok")).await;
    scene.ends(1).await;
    assert_eq!((scene.count("check_started").await, scene.count("asks to pass").await), (1, 0));
    assert_eq!(scene.count("turn_finished end_turn after 1").await, 1);
}

#[tokio::test]
async fn a_cancel_ends_the_check_with_a_result_and_the_history_stays_well_formed() {
    let mut scene = Scene::auto([Answer::text("it works"), Answer::text("yes")]).await;
    scene.until_passes("echo going; sleep 600", 2).await;
    scene.until("tool_started c1", 1).await;
    scene.cancel().await;
    scene.ends(1).await;
    assert_eq!(scene.count("tool_finished c1 cancelled").await, 1);
    // The scripted provider checks each request.
    scene.turn("go on").await;
    assert_eq!(scene.count("turn_finished end_turn after 1").await, 1);
}

#[tokio::test]
async fn an_interrupt_ends_the_check_and_the_answer_to_it_is_checked_again() {
    let mut scene = Scene::auto([Answer::text("it works"), Answer::text("yes")]).await;
    scene.until_passes("test -e done && exit 0; echo going; sleep 600", 2).await;
    scene.until("tool_started c1", 1).await;
    std::fs::write(scene.path("done"), "").unwrap();
    scene.prompt("what is it?", When::Interrupt).await;
    scene.ends(1).await;
    assert_eq!(scene.count("asks to pass the check").await, 0);
    assert_eq!(scene.count("check_started c2").await, 1);
    assert_eq!(scene.count("turn_finished end_turn after 2").await, 1);
}

#[tokio::test]
async fn a_check_that_cannot_be_meant_is_refused_before_anything_starts() {
    let scene = Scene::auto([]).await;
    for (command, tries, says) in [
        (" ", None, "is empty"),
        ("a\0b", None, "NUL"),
        ("true", Some(0), "`tries` must be from 1 to 10"),
        ("true", Some(11), "`tries` must be from 1 to 10"),
    ] {
        let error = scene.checked(command, tries).await.unwrap_err();
        assert!(error.message.contains(says), "{}", error.message);
    }
    assert!(scene.checked(&"x".repeat(5000), None).await.unwrap_err().message.contains("longer than 4096 bytes"));
    assert_eq!(scene.count("prompt_accepted").await, 0);
}
