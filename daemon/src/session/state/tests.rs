//! The fold of questions and of children.

use linger_protocol::event::{EventBody, MessageAdded, QuestionResolved};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::question::{Blocks, QuestionOption};
use linger_protocol::session;

use super::*;
use crate::question;

/// A session whose turn has one call open.
fn in_a_call() -> State {
    let mut state = State::default();
    apply(&mut state, EventBody::TurnStarted { prompt: "p1".into() });
    let call = ContentBlock::ToolUse {
        call_id: "c1".into(),
        name: "x".to_owned(),
        input: serde_json::json!({}),
        native: None,
    };
    message(&mut state, Role::Assistant, vec![call]);
    state
}

fn apply(state: &mut State, body: EventBody) {
    let event = linger_protocol::event::Event { body, seq: Some(state.head + 1), at: 7, turn: Some("t1".into()) };
    state.apply(&event);
}

fn message(state: &mut State, role: Role, content: Vec<ContentBlock>) {
    let (message, prompt, asks, model, usage) = ("m1".into(), None, None, None, None);
    let (interrupted, cut, paused) = (false, false, false);
    apply(
        state,
        EventBody::Message(MessageAdded {
            message,
            role,
            content,
            interrupted,
            prompt,
            asks,
            model,
            usage,
            cut,
            paused,
            times: None,
        }),
    );
}

fn ask(state: &mut State, id: &str, blocks: Blocks) {
    let options = ["yes", "no"].map(|name| QuestionOption::new(name, name)).to_vec();
    let call = (blocks == Blocks::Call).then(|| "c1".into());
    let asked = question::choice(format!("{id}?"), options, blocks, call);
    apply(state, EventBody::QuestionAsked { question: id.into(), asked });
}

fn resolve(state: &mut State, id: &str, answer: Option<&str>) {
    let (question, answer, by) = (id.into(), answer.map(str::to_owned), "a".to_owned());
    apply(
        state,
        EventBody::QuestionResolved(QuestionResolved {
            question,
            answer,
            value: None,
            by,
            process: None,
            reason: None,
        }),
    );
}

fn open(state: &State) -> Vec<&str> {
    state.open_questions().map(|asked| asked.id.as_str()).collect()
}

#[test]
fn what_is_asked_holds_up_what_it_says() {
    let mut state = in_a_call();
    let held = |state: &State| (state.doing(), state.turn.as_ref().unwrap().is_held());
    ask(&mut state, "q1", Blocks::Nothing);
    assert_eq!(held(&state), (session::State::Running, false));
    ask(&mut state, "q2", Blocks::Call);
    assert_eq!(held(&state), (session::State::Waiting, false));
    ask(&mut state, "q3", Blocks::Turn);
    assert_eq!(held(&state), (session::State::Waiting, true));
    assert_eq!(open(&state), ["q2", "q3", "q1"]);
    let info = state.info("s1".into());
    assert_eq!((info.permissions.len(), info.questions.len()), (0, 3));
    assert_eq!(State::from_stored(&state.to_stored()).as_ref(), Some(&state));
    resolve(&mut state, "q3", Some("yes"));
    assert_eq!(held(&state), (session::State::Waiting, false));
    assert_eq!(state.question(&"q3".into()).unwrap().answer.as_ref().unwrap().answer.as_deref(), Some("yes"));
    resolve(&mut state, "q2", None);
    assert_eq!(held(&state), (session::State::Running, false));
}

#[test]
fn an_answer_is_kept_as_long_as_what_it_held_up() {
    let mut state = in_a_call();
    for (id, blocks) in [("q1", Blocks::Nothing), ("q2", Blocks::Call), ("q3", Blocks::Turn)] {
        ask(&mut state, id, blocks);
        resolve(&mut state, id, Some("no"));
    }
    let known = |state: &State| state.questions().map(|asked| asked.id.0.clone()).collect::<Vec<_>>();
    assert_eq!(known(&state), ["q2", "q3"]);
    let result = ContentBlock::ToolResult { call_id: "c1".into(), is_error: false, content: Vec::new() };
    message(&mut state, Role::User, vec![result]);
    assert_eq!(known(&state), ["q3"]);
    ask(&mut state, "q4", Blocks::Nothing);
    apply(&mut state, finished());
    assert_eq!(known(&state), ["q4"]);
    // Nothing is there that these would hold up.
    ask(&mut state, "q5", Blocks::Turn);
    ask(&mut state, "q6", Blocks::Call);
    assert_eq!(known(&state), ["q4"]);
    assert_eq!(state.doing(), session::State::Idle);
}

fn finished() -> EventBody {
    let value = serde_json::json!({"kind": "turn_finished", "stop_reason": "end_turn", "usage": {}, "steps": 1});
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_child_names_its_parent() {
    let created = |parent: serde_json::Value| {
        let value =
            serde_json::json!({"kind": "session_created", "cwd": "/", "model": "m", "mode": "ask", "parent": parent});
        let mut state = State::default();
        apply(&mut state, serde_json::from_value(value).unwrap());
        state.info("s1".into()).parent
    };
    assert_eq!(created("s0".into()), Some("s0".into()));
    assert_eq!(created(serde_json::Value::Null), None);
}
