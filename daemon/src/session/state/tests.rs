//! The fold of questions and of children.

use linger_protocol::event::{self, EventBody, MessageAdded, QuestionResolved};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::question::{Blocks, QuestionOption};
use linger_protocol::session;

use super::*;
use crate::question;
use crate::store::Fold;

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
    let event =
        linger_protocol::event::Event { body, seq: Some(state.progress.head + 1), at: 7, turn: Some("t1".into()) };
    state.apply(&event);
}

#[test]
fn a_notice_between_turns_is_no_use_of_the_session() {
    let notice = |code| EventBody::notice(event::Level::Info, code, "files changed");
    let at = |state: &mut State, at: u64, turn: Option<&str>, body: EventBody| {
        let seq = Some(state.progress.head + 1);
        state.apply(&event::Event { body, seq, at, turn: turn.map(Into::into) });
        (state.progress.head, state.progress.updated_at)
    };
    let mut state = State::default();
    assert_eq!(at(&mut state, 10, None, EventBody::changed(|_| {})), (1, 10));
    for code in [event::NoticeCode::Files, event::NoticeCode::ConfigWaits, event::NoticeCode::Agent] {
        assert_eq!(at(&mut state, 20, None, notice(code)).1, 10);
    }
    assert_eq!(at(&mut state, 30, Some("t1"), EventBody::TurnStarted { prompt: "p1".into() }), (5, 30));
    assert_eq!(at(&mut state, 40, None, notice(event::NoticeCode::Files)), (6, 40), "a turn is at work");
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

/// What an append would write: the head, and the names of the rows with whether they are deleted.
fn changes(state: &mut State) -> (String, Vec<(&'static str, bool)>) {
    let Fold::Session { head, rows, .. } = state.take_changes() else { panic!("the state is folded") };
    (head, rows.into_iter().map(|(name, text)| (name, text.is_none())).collect())
}

#[test]
fn an_append_writes_only_the_families_that_changed() {
    let mut state = in_a_call();
    // The first one writes all; there is nothing to delete yet.
    assert_eq!(changes(&mut state).1.into_iter().filter(|(_, gone)| !gone).count(), 1, "the turn");
    let (before, rows) = changes(&mut state);
    assert_eq!(rows, []);
    apply(&mut state, EventBody::Plan { entries: Vec::new() });
    let (after, rows) = changes(&mut state);
    assert_eq!(rows, []);
    assert_ne!(before, after, "the head has the number of the last event");
    apply(&mut state, EventBody::mode_changed(linger_protocol::permission::Mode::Plan));
    assert_eq!(changes(&mut state).1, [("settings", false)]);
    ask(&mut state, "q1", Blocks::Nothing);
    assert_eq!(changes(&mut state).1, [("questions", false)]);
    resolve(&mut state, "q1", None);
    assert_eq!(changes(&mut state).1, [("turn", false), ("questions", true)]);
    apply(&mut state, finished());
    assert_eq!(changes(&mut state).1, [("turn", true)]);
}

#[test]
fn a_state_with_a_missing_stale_changed_or_unknown_row_is_not_loaded() {
    let mut state = in_a_call();
    ask(&mut state, "q1", Blocks::Nothing);
    let text = state.to_stored();
    assert_eq!(State::from_stored(&text), Some(state.clone()));
    let [head, turn, questions] = text.split('\n').collect::<Vec<_>>()[..] else { panic!("{text}") };
    for wrong in [
        head.to_owned(),
        format!("{head}\n{turn}"),
        format!("{text}\n{questions}"),
        format!("{text}\nnews {{}}"),
        text.replace("\"q1\"", "\"q2\""),
        text.replace("\"head\":3", "\"head\":4"),
    ] {
        assert_eq!(State::from_stored(&wrong), None, "{wrong}");
    }
    ask(&mut state, "q2", Blocks::Nothing);
    let newer = state.to_stored();
    let stale = newer.split('\n').next().unwrap().to_owned() + "\n" + turn + "\n" + questions;
    assert_eq!(State::from_stored(&stale), None, "{stale}");
}
