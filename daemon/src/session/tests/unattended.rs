//! Questions that no person answers.

use linger_protocol::unattended::Unattended;

use super::outages::Clock;
use super::*;

const TEN_MINUTES: Unattended = Unattended::DenyAfter(600_000);

fn write(name: &str) -> Answer {
    Answer::call("write", json!({ "path": name, "content": "one\n" }))
}

impl Scene {
    /// A session whose model makes this call and then says `done`; what it asks is asked.
    async fn unattended(unattended: Unattended, call: Answer) -> Self {
        let mut scene = Self::ask([call, Answer::text("done")]).await;
        scene.leave(unattended).await;
        scene.prompt("go", When::Queue).await;
        scene.until("_requested q1", 1).await;
        scene
    }

    async fn leave(&self, unattended: Unattended) {
        self.set(session::Set { unattended: Some(unattended), ..session::Set::default() }).await;
    }
}

#[tokio::test]
async fn what_nobody_is_there_to_allow_is_denied_at_once_and_the_model_reads_why() {
    let mut scene = Scene::unattended(Unattended::DenyAfter(0), write("a")).await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    session_changed unattended deny
    prompt_accepted p1 queue "go"
    t1 turn_started p1
    t1 message m1 user: "go"
    t1 message m2 model: <c1 write>
    t1 permission_requested q1 c1 write a
    t1 permission_resolved q1 reject_once by unattended: no person is there to answer
    t1 tool_finished c1 denied "not run: denied by unattended: no person is there to answer"
    t1 message m3 user: <c1 failed "not run: denied by unattended: no person is there to answer">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn a_permission_is_denied_when_its_time_has_passed_and_not_before() {
    let mut scene = Scene::unattended(TEN_MINUTES, write("a")).await;
    let _clock = Clock::stop();
    tokio::time::advance(Duration::from_secs(599)).await;
    // The actor has answered a command since, so it has seen the time.
    scene.leave(TEN_MINUTES).await;
    assert_eq!(scene.count("permission_resolved").await, 0);
    tokio::time::advance(Duration::from_secs(2)).await;
    scene.until("permission_resolved q1 reject_once by unattended: no person answered (deny:10m)", 1).await;
    scene.ends(1).await;
}

#[tokio::test]
async fn an_answer_in_time_wins() {
    let mut scene = Scene::unattended(TEN_MINUTES, write("a")).await;
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert!(scene.path("a").exists());
}

#[tokio::test]
async fn a_restart_does_not_change_when_a_permission_is_denied() {
    let mut scene = Scene::unattended(TEN_MINUTES, write("a")).await;
    scene.crash().await;
    scene.until("notice resumed", 1).await;
    let _clock = Clock::stop();
    tokio::time::advance(Duration::from_secs(600)).await;
    scene.ends(1).await;
    assert_eq!(scene.count("permission_requested").await, 1);
    assert_eq!(scene.count("permission_resolved q1 reject_once by unattended").await, 1);
    assert!(!scene.path("a").exists());
}

#[tokio::test]
async fn a_change_counts_for_what_waits() {
    let mut scene = Scene::unattended(TEN_MINUTES, write("a")).await;
    scene.leave(Unattended::Hold).await;
    {
        let _clock = Clock::stop();
        tokio::time::advance(Duration::from_secs(6000)).await;
        scene.leave(Unattended::Hold).await;
        assert_eq!(scene.count("permission_resolved").await, 0);
    }
    scene.leave(Unattended::DenyAfter(0)).await;
    scene.ends(1).await;
    assert_eq!(scene.count("permission_resolved q1 reject_once by unattended").await, 1);
}

#[tokio::test]
async fn a_form_is_declined_and_no_option_of_a_call_is_chosen() {
    let ask = |input: Value| [Answer::call("ask_user", input), Answer::text("done")];
    let answers = ask(json!({ "question": "name?" }))
        .into_iter()
        .chain(ask(json!({ "question": "which?", "options": ["stop", "go"] })));
    let mut scene = Scene::ask(answers).await;
    scene.leave(Unattended::DenyAfter(0)).await;
    scene.turn("form").await;
    scene.turn("choice").await;
    assert_eq!(scene.count("question_resolved q1 decline by unattended").await, 1);
    assert_eq!(scene.count("question_resolved q2 withdrawn by unattended").await, 1);
    let said = "the question was withdrawn: no person is there to answer";
    assert_eq!(scene.count(&format!("<c2 failed \"{said}\">")).await, 1, "{}", scene.transcript().await);
}
