//! What a call asks a person: answered once, withdrawn with its call, and after a crash what the effects of the call say.

use linger_protocol::event::AfterCrash;
use linger_protocol::question::QuestionOption;

use super::*;
use crate::tool::set::ToolSet;
use crate::tool::{Access, BoxFuture, Call, Choice, Context, Effects, Invalid, Tool, ToolOutput, Wants, Workspace};

/// A tool whose calls ask a person, and then wait until the gate is closed, if there is one.
#[derive(Clone)]
struct Asks {
    after_crash: AfterCrash,
    gate: Option<Arc<Semaphore>>,
}

impl Tool for Asks {
    fn name(&self) -> &str {
        "ask"
    }

    fn description(&self) -> &str {
        "Asks."
    }

    fn schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn prepare(&self, _: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        Ok(Box::new(self.clone()))
    }
}

impl Call for Asks {
    fn action(&self) -> String {
        "ask".to_owned()
    }

    fn effects(&self) -> Effects {
        let access = Access::Other { server: "test".to_owned(), tool: "ask".to_owned(), version: String::new() };
        Effects { after_crash: self.after_crash, ..Effects::change(access) }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let options = vec![QuestionOption::new("tea", "Tea"), QuestionOption::new("coffee", "Coffee")];
            let chosen = (context.ask)(Choice { text: "which?".to_owned(), wants: Wants::Option(options) }).await;
            if let Some(gate) = &self.gate {
                let _closed = gate.acquire().await;
            }
            chosen.map_or_else(|why| ToolOutput::error(why.0), |chosen| ToolOutput::text(chosen.answer))
        })
    }

    fn join(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        self.run(context)
    }
}

/// A session whose model calls the tool and then says `done`; its question waits.
async fn asks(after_crash: AfterCrash, gate: Option<Arc<Semaphore>>) -> Scene {
    let tools = Tools::new(ToolSet::new([Arc::new(Asks { after_crash, gate }) as Arc<dyn Tool>]));
    let answers = [Answer::call("ask", json!({})), Answer::text("done")];
    let mut scene = Scene::with_tools(tools, "", "mock/m", Mode::Auto, answers).await;
    scene.prompt("ask", When::Queue).await;
    scene.until("question_asked", 1).await;
    scene
}

/// How many questions are listed.
async fn pending(scene: &Scene) -> usize {
    scene.env.store.pending(None, None, None).await.unwrap().len()
}

#[tokio::test]
async fn a_call_that_asks_goes_on_with_the_answer() {
    let mut scene = asks(AfterCrash::Unknown, None).await;
    assert_eq!(pending(&scene).await, 1);
    let wrong = scene.choose(1, "water", None).await.unwrap_err();
    assert_eq!(wrong.get_hint(), Some("use one of tea, coffee"));
    scene.choose(1, "tea", None).await.unwrap();
    let late = scene.choose(1, "coffee", None).await.unwrap_err();
    assert_eq!(late.message, "already answered");
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "ask"
    t1 turn_started p1
    t1 message m1 user: "ask"
    t1 message m2 model: <c1 ask>
    t1 tool_started c1 ask
    t1 question_asked q1 c1 "which?" tea|coffee
    t1 question_resolved q1 tea by someone
    t1 tool_finished c1 ran "tea"
    t1 message m3 user: <c1 "tea">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
    assert_eq!(pending(&scene).await, 0);
}

#[tokio::test]
async fn a_cancel_withdraws_what_a_call_has_asked() {
    let scene = asks(AfterCrash::Again, None).await;
    scene.cancel().await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "ask"
    t1 turn_started p1
    t1 message m1 user: "ask"
    t1 message m2 model: <c1 ask>
    t1 tool_started c1 ask
    t1 question_asked q1 c1 "which?" tea|coffee
    t1 question_resolved q1 withdrawn by cancelled by the user
    t1 tool_finished c1 cancelled "[cancelled by the user while it ran; it may have had effects]"
    t1 message m3 user: <c1 failed "[cancelled by the user while it ran; it may have had effects]">
    t1 turn_finished cancelled after 1
    "#);
    assert_eq!(scene.choose(1, "tea", None).await.unwrap_err().message, "already answered");
    assert_eq!(pending(&scene).await, 0);
}

#[tokio::test]
async fn a_session_that_is_removed_asks_nothing_any_more() {
    let scene = asks(AfterCrash::Again, None).await;
    scene.asked(|asked| Command::Remove(true, asked)).await.unwrap();
    assert_eq!(pending(&scene).await, 0);
}

#[tokio::test]
async fn after_a_crash_a_call_that_runs_again_waits_for_the_same_question() {
    let mut scene = asks(AfterCrash::Again, None).await;
    scene.crash().await;
    scene.choose(1, "coffee", None).await.unwrap();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "ask"
    t1 turn_started p1
    t1 message m1 user: "ask"
    t1 message m2 model: <c1 ask>
    t1 tool_started c1 ask
    t1 question_asked q1 c1 "which?" tea|coffee
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 question_resolved q1 coffee by someone
    t1 tool_finished c1 ran "coffee"
    t1 message m3 user: <c1 "coffee">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
    assert_eq!(pending(&scene).await, 0);
}

#[tokio::test]
async fn after_a_crash_a_call_that_is_joined_waits_for_the_same_question() {
    let mut scene = asks(AfterCrash::Join, None).await;
    scene.crash().await;
    scene.choose(1, "coffee", None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("question_asked").await, 1);
    assert_eq!(scene.count("t1 tool_finished c1 ran \"coffee\"").await, 1);
}

#[tokio::test]
async fn after_a_crash_the_question_of_a_call_that_never_runs_again_is_withdrawn() {
    let mut scene = asks(AfterCrash::Unknown, None).await;
    scene.crash().await;
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "ask"
    t1 turn_started p1
    t1 message m1 user: "ask"
    t1 message m2 model: <c1 ask>
    t1 tool_started c1 ask
    t1 question_asked q1 c1 "which?" tea|coffee
    t1 question_resolved q1 withdrawn by the daemon was restarted while this call ran
    t1 tool_finished c1 unknown "[interrupted, outcome unknown: the daemon was restarted while this call ran; it is not run again by ..."
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 message m3 user: <c1 failed "[interrupted, outcome unknown: the daemon was restarted while this call ran; it is not run again by ...">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
    assert_eq!(scene.choose(1, "tea", None).await.unwrap_err().message, "already answered");
    assert_eq!(pending(&scene).await, 0);
}

#[tokio::test]
async fn an_answer_that_was_given_before_a_crash_is_not_asked_for_again() {
    let gate = gate();
    let mut scene = asks(AfterCrash::Again, Some(gate.clone())).await;
    scene.choose(1, "tea", None).await.unwrap();
    scene.crash().await;
    gate.close();
    scene.ends(1).await;
    insta::assert_snapshot!(scene.transcript().await, @r#"
    prompt_accepted p1 queue "ask"
    t1 turn_started p1
    t1 message m1 user: "ask"
    t1 message m2 model: <c1 ask>
    t1 tool_started c1 ask
    t1 question_asked q1 c1 "which?" tea|coffee
    t1 question_resolved q1 tea by someone
    t1 notice resumed: the daemon was restarted; the turn resumes
    t1 tool_finished c1 ran "tea"
    t1 message m3 user: <c1 "tea">
    t1 message m4 model: "done"
    t1 turn_finished end_turn after 2
    "#);
}
