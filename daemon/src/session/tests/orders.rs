//! The life of a permission in every order: two clients answer, one cancels, the daemon dies. Through the real actor and its store.
//!
//! A step is a message in the mailbox, or the death. Between two steps the actor handles nothing, a little or everything, so a death
//! finds each step waiting, under way and done.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Answer(Decision),
    Cancel,
    Die,
}

/// All orders of these steps.
fn orders(steps: &[Step]) -> Vec<Vec<Step>> {
    let Some((last, rest)) = steps.split_last() else { return vec![Vec::new()] };
    let place = |order: Vec<Step>| (0..=order.len()).map(move |at| [&order[..at], &[*last], &order[at..]].concat());
    orders(rest).into_iter().flat_map(place).collect()
}

/// A reply that is on its way, with the decision of an answer.
type Awaited = (Option<Decision>, oneshot::Receiver<Result<(), RpcError>>);

impl Scene {
    /// Waits until everything queued at the store is written: here it outlives the actor.
    async fn written(&self) {
        let (done, written) = oneshot::channel();
        let log = Log::new(self.id.clone(), 0, Vec::new());
        let (events, pieces, folds) = (Vec::new(), Vec::new(), Vec::new());
        self.env.store.append(Append { log, events, turn: None, pieces, folds, sync: false, done: Some(done) });
        written.await.unwrap().unwrap();
    }

    /// Sends a step, and does not wait for its reply.
    async fn begin(&mut self, step: Step, question: &QuestionId) -> Option<Awaited> {
        let (reply, answered) = oneshot::channel();
        let keyed = KeyedReply { key: None, reply };
        match step {
            Step::Die => {
                self.actor.abort();
                let _dead = (&mut self.actor).await;
                self.written().await;
                self.load().await;
                return None;
            }
            Step::Cancel => self.commands.send(Box::new(cancel(keyed))).unwrap(),
            Step::Answer(decision) => {
                let (question, answer) = (question.clone(), decision.name().to_owned());
                let answer = question::Answer {
                    question,
                    answer,
                    value: None,
                    reason: None,
                    digest: None,
                    rules: Vec::new(),
                    key: None,
                };
                let command = Command::Answer(answer, Author::named(decision.name()), AnswerLimit::None, keyed);
                self.commands.send(Box::new(command)).unwrap();
                return Some((Some(decision), answered));
            }
        }
        Some((None, answered))
    }
}

/// Takes the steps in this order, with `pause` turns of the other tasks after each, and checks what came of it.
async fn live(order: &[Step], pause: usize) {
    let what = format!("{order:?} with pauses of {pause}");
    let run = Answer::call("bash", json!({ "command": "echo x >> ran" }));
    let mut scene = Scene::ask([run].into_iter().chain((0..3).map(|_| Answer::text("done")))).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    let asked = scene.events().await.into_iter().find_map(|event| match event.body {
        EventBody::PermissionRequested(PermissionRequested { permission, .. }) => Some(permission),
        _ => None,
    });
    let (question, mut awaited) = (asked.unwrap(), Vec::new());
    for step in order {
        awaited.extend(scene.begin(*step, &question).await);
        for _ in 0..pause {
            tokio::task::yield_now().await;
        }
    }
    // The death may have come before any answer was stored.
    drop(scene.answer(1, Decision::RejectOnce, None).await);
    scene.ends(1).await;
    scene.restart().await;

    let events = scene.events().await;
    let decided: Vec<Decision> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::PermissionResolved(PermissionResolved { decision, .. }) => Some(*decision),
            _ => None,
        })
        .collect();
    assert_eq!(decided.len(), 1, "a permission has one decision: {what}");
    let mut winners = Vec::new();
    for (decision, answered) in awaited {
        // One that hears nothing was sent to a daemon that died.
        if let (Some(decision), Ok(Ok(()))) = (decision, timeout(LONG, answered).await.expect("a reply in time")) {
            winners.push(decision);
        }
    }
    assert!(winners.iter().all(|won| *won == decided[0]), "{winners:?} were told to have won: {what}");
    assert!(winners.len() <= 1, "two clients won: {what}");
    let runs = std::fs::read_to_string(scene.path("ran")).unwrap_or_default().lines().count();
    let starts = scene.count("tool_started").await;
    assert!(runs <= starts && starts <= 1, "it ran {runs} times and was started {starts} times: {what}");
    assert!(runs == 0 || decided[0] == Decision::AllowOnce, "a call ran that was not allowed: {what}");
    assert_eq!(scene.count("turn_finished").await, 1, "{what}");
}

#[tokio::test]
async fn a_permission_has_one_decision_and_one_run_in_every_order() {
    let steps = [Step::Answer(Decision::AllowOnce), Step::Answer(Decision::RejectOnce), Step::Cancel, Step::Die];
    for order in orders(&steps) {
        for pause in [0, 3, 200] {
            live(&order, pause).await;
        }
    }
}

#[tokio::test]
async fn without_a_cancel_the_first_of_two_answers_wins() {
    let steps = [Step::Answer(Decision::AllowOnce), Step::Answer(Decision::RejectOnce), Step::Die];
    for order in orders(&steps) {
        for pause in [0, 3, 200] {
            live(&order, pause).await;
        }
    }
}
