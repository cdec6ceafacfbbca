//! A session with a budget: its turn waits before the next step when that is spent, over crashes, and each answer raises it.

use linger_protocol::budget::Budget;

use super::*;

/// A session whose model makes a call in each of `steps` steps, of 100 tokens each, and may use `max` tokens.
async fn spends(steps: usize, max: u64) -> Scene {
    let look = |n| Answer::call("bash", json!({ "command": format!("echo {n}") })).counts(100, 0);
    let answers = (0..steps).map(look).chain([Answer::text("done").counts(100, 0)]);
    let scene = Scene::auto(answers).await;
    scene.budget(Budget { max_tokens: Some(max), ..Budget::default() }).await;
    scene
}

impl Scene {
    /// The state as it is stored.
    async fn stored_state(&self) -> State {
        State::from_stored(&self.env.store.session(self.id.clone()).await.unwrap().unwrap().fold).unwrap()
    }

    async fn budget(&self, budget: Budget) {
        self.set(session::Set { budget, ..session::Set::default() }).await;
    }
}

#[tokio::test]
async fn a_spent_budget_holds_up_the_next_step_and_go_on_raises_it_by_its_size() {
    let mut scene = spends(4, 200).await;
    scene.prompt("look", When::Queue).await;
    scene.until("question_asked", 1).await;
    scene.choose(1, "go_on", None).await.unwrap();
    scene.until("question_asked", 2).await;
    scene.choose(2, "go_on", None).await.unwrap();
    scene.ends(1).await;
    let lines = scene.transcript().await;
    let asked: Vec<&str> = lines.lines().filter(|line| line.contains("question_")).collect();
    insta::assert_snapshot!(asked.join("\n"), @r#"
    t1 question_asked q1 "the session's budget is spent: it has used 200 tokens, its budget is 200; go on?" go_on|stop
    t1 question_resolved q1 go_on by someone
    t1 question_asked q2 "the session's budget is spent: it has used 400 tokens, its budget is 400; go on?" go_on|stop
    t1 question_resolved q2 go_on by someone
    "#);
    assert_eq!(scene.count("turn_finished end_turn after 5").await, 1);
}

#[tokio::test]
async fn the_question_about_a_budget_survives_crashes_and_is_asked_once() {
    let mut scene = spends(2, 100).await;
    scene.prompt("look", When::Queue).await;
    scene.until("question_asked", 1).await;
    for restarts in 1..=4 {
        scene.crash().await;
        scene.until("notice resumed", restarts).await;
    }
    assert_eq!(scene.count("question_asked").await, 1);
    scene.choose(1, "go_on", None).await.unwrap();
    scene.until("question_asked", 2).await;
    // What the answer has raised is in the log.
    scene.crash().await;
    scene.choose(2, "stop", None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("its budget is 200; go on?").await, 1);
    assert_eq!(
        scene.count("turn_finished cancelled after 2: the session's budget is spent; ended by someone").await,
        1
    );
}

#[tokio::test]
async fn a_session_whose_budget_is_spent_asks_before_the_first_step_of_its_next_turn() {
    let mut scene = Scene::auto([Answer::text("one").counts(500, 0), Answer::text("two").counts(1, 0)]).await;
    scene.budget(Budget { max_tokens: Some(100), ..Budget::default() }).await;
    scene.turn("first").await;
    assert_eq!(scene.count("question_asked").await, 0);
    scene.prompt("second", When::Queue).await;
    scene.until("question_asked", 1).await;
    // As often as the sum needs.
    scene.choose(1, "go_on", None).await.unwrap();
    scene.ends(2).await;
    assert_eq!(scene.stored_state().await.progress.budget.pauses_at.max_tokens, Some(600));
}

#[tokio::test]
async fn a_larger_budget_withdraws_the_question_and_the_turn_goes_on() {
    let mut scene = spends(1, 100).await;
    scene.prompt("look", When::Queue).await;
    scene.until("question_asked", 1).await;
    scene.budget(Budget { max_tokens: Some(0), ..Budget::default() }).await;
    scene.ends(1).await;
    assert_eq!(scene.count("question_resolved q1 withdrawn by the budget is another one").await, 1);
    assert_eq!(scene.count("turn_finished end_turn").await, 1);
}

#[tokio::test]
async fn an_unknown_price_is_asked_about_only_as_configured() {
    let answers = || [Answer::call("ls", json!({ "path": "." })).counts(9, 0), Answer::text("done").counts(9, 0)];
    let budget = Budget { max_cost_micros: Some(5_000_000), ..Budget::default() };
    let mut scene = Scene::auto(answers()).await;
    scene.budget(budget).await;
    scene.turn("look").await;
    assert_eq!(scene.count("question_asked").await, 0);
    let mut scene = Scene::with("unknown_price = \"exceeds\"", "mock/m", Mode::Auto, answers()).await;
    scene.budget(budget).await;
    scene.prompt("look", When::Queue).await;
    scene.until("what it has cost is unknown, its budget is $5.00; go on?", 1).await;
    scene.choose(1, "go_on", None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("question_asked").await, 1);
}

#[tokio::test]
async fn a_session_has_fewer_steps_than_the_configuration_allows() {
    let mut scene = spends(5, 0).await;
    scene.budget(Budget { max_steps: Some(2), ..Budget::default() }).await;
    scene.turn("look").await;
    assert_eq!(scene.count("turn_finished max_steps after 2: the turn took 2 steps, max_steps is 2").await, 1);
}
