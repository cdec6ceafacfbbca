//! Recovery from every point of a turn: what is written, and that the context is well formed afterwards.

use linger_protocol::event::{
    AfterCrash, Event, MessageAdded, Notice, PermissionRequested, PromptAccepted, ToolFinished, ToolStarted,
    TurnFinished,
};
use linger_protocol::id::{PermissionId, PromptId, TurnId};
use linger_protocol::message::{Role, StopReason};
use linger_protocol::question::{Blocks, QuestionOption};
use linger_protocol::session::When;
use serde_json::json;

use super::*;
use crate::log::{Stored, push_piece};
use crate::session::context;

/// A session that is driven by hand.
#[derive(Default)]
struct Scene {
    state: State,
    streams: Vec<OpenStream>,
    results: HashMap<CallId, ContentBlock>,
    log: Vec<Stored>,
}

impl Scene {
    fn event(&mut self, body: EventBody) {
        let turn = match &body {
            EventBody::TurnStarted { .. } => Some(TurnId::from("t1")),
            _ => self.state.turn.as_ref().map(|turn| turn.id.clone()),
        };
        let event = Event { body, seq: Some(self.state.progress.head + 1), at: 7, turn };
        self.state.apply(&event);
        self.results.extend(result_of(&event.body));
        let data = serde_json::to_string(&event).unwrap();
        self.log.push(Stored { seq: self.state.progress.head, at: 7, kind: String::new(), stream: None, data });
    }

    fn events(&mut self, drafts: Vec<Draft>) {
        drafts.into_iter().for_each(|draft| self.event(draft.body));
        self.streams.clear();
    }

    fn message(&mut self, role: Role, content: Vec<ContentBlock>) {
        let message = MessageId(format!("m{}", self.state.progress.counts.messages + 1));
        self.event(match role {
            Role::User => EventBody::user_message(message, content, None, None),
            Role::Assistant => EventBody::assistant_message(message, content, None, None, AnswerEnd::Whole),
        });
    }

    /// A turn whose model has asked for these calls.
    fn with_calls(calls: &[&str]) -> Self {
        let mut scene = Self::default();
        let content = vec![ContentBlock::text("do it")];
        scene.event(EventBody::PromptAccepted(PromptAccepted {
            runs: Vec::new(),
            prompt: PromptId::from("p1"),
            content: content.clone(),
            when: When::Queue,
            by: None,
            process: None,
            compact: false,
            schema: None,
            until: None,
            command: None,
            child: None,
            limit: None,
            awaited: false,
        }));
        scene.event(EventBody::TurnStarted { prompt: PromptId::from("p1") });
        let prompt = Some(PromptId::from("p1"));
        scene.event(EventBody::user_message(MessageId::from("m1"), content, prompt, None));
        if !calls.is_empty() {
            let call = |id: &&str| ContentBlock::ToolUse {
                call_id: CallId::from(*id),
                name: "bash".to_owned(),
                input: json!({ "command": "true" }),
                native: None,
            };
            scene.message(Role::Assistant, calls.iter().map(call).collect());
        }
        scene
    }

    fn started(&mut self, id: &str) {
        let (tool, action) = ("bash".to_owned(), "true".to_owned());
        self.event(EventBody::ToolStarted(ToolStarted {
            call_id: CallId::from(id),
            tool,
            tool_kind: linger_protocol::event::ToolKind::Other,
            action,
            locations: Vec::new(),
            input: None,
            after_crash: AfterCrash::Unknown,
            limit: None,
        }));
    }

    fn asked(&mut self, id: &str) {
        self.event(EventBody::PermissionRequested(PermissionRequested {
            permission: PermissionId::from("q1"),
            call_id: CallId::from(id),
            tool: "bash".to_owned(),
            action: "true".to_owned(),
            input: json!({}),
            cwd: "/p".into(),
            digest: "sha256:0".to_owned(),
            rule: None,
            why: None,
            position: None,
            grant: "bash(true)".to_owned(),
            grants: Vec::new(),
            options: Vec::new(),
            locations: Vec::new(),
            changes: Vec::new(),
            about: None,
        }));
    }

    fn piece(&mut self, stream: &str, kind: PieceKind, offset: u64, text: &str) {
        let piece = Piece { stream: stream.to_owned(), block: 0, offset, kind, text: text.to_owned() };
        push_piece(&mut self.streams, None, piece);
    }

    /// Every call of the context has exactly one result, in the next message.
    fn assert_paired(&self) {
        let mut builder = context::Builder::default();
        // Where a page ends does not matter.
        self.log.chunks(3).for_each(|page| builder.add(page).unwrap());
        let context = builder.finish();
        let ids = |content: &[ContentBlock], results: bool| -> Vec<String> {
            content
                .iter()
                .filter_map(|block| match block {
                    ContentBlock::ToolUse { call_id, .. } if !results => Some(call_id.0.clone()),
                    ContentBlock::ToolResult { call_id, .. } if results => Some(call_id.0.clone()),
                    _ => None,
                })
                .collect()
        };
        for pair in context.messages.windows(2) {
            assert_eq!(ids(&pair[0].content, false), ids(&pair[1].content, true), "{:#?}", context.messages);
        }
        assert!(context::open_calls(&context.messages).is_empty());
    }
}

/// One word for each event, for comparing whole plans.
fn words(drafts: &[Draft]) -> Vec<String> {
    let word = |draft: &Draft| {
        let value = serde_json::to_value(&draft.body).unwrap();
        let detail =
            ["message", "call_id", "permission", "question", "code"].iter().find_map(|field| value[field].as_str());
        format!("{} {}", value["kind"].as_str().unwrap(), detail.unwrap_or_default())
    };
    drafts.iter().map(word).collect()
}

#[test]
fn text_that_was_streamed_is_kept_marked_and_superseded() {
    let mut scene = Scene::with_calls(&[]);
    scene.piece("m2", PieceKind::Text, 0, "Good d");
    let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
    assert_eq!(words(&plan.drafts), ["message m2", "message_superseded m2", "notice resumed"]);
    assert!(plan.resume);
    let EventBody::Message(MessageAdded { content, interrupted: true, .. }) = &plan.drafts[0].body else {
        panic!("{plan:?}")
    };
    assert_eq!(content, &[ContentBlock::text("Good d")]);
}

#[test]
fn a_call_that_had_started_is_unknown_and_one_that_had_not_is_left_to_the_turn() {
    let mut scene = Scene::with_calls(&["c1", "c2", "c3"]);
    scene.asked("c2");
    scene.started("c1");
    scene.piece("c1", PieceKind::Output, 0, "so far\n");
    let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
    assert_eq!(words(&plan.drafts), ["tool_finished c1", "notice resumed"]);
    let EventBody::ToolFinished(ToolFinished { outcome: Outcome::Unknown, content, output, .. }) = &plan.drafts[0].body
    else {
        panic!("{plan:?}")
    };
    assert_eq!(content[0], ContentBlock::text("so far\n"));
    assert_eq!(output, &[OutputSegment { block: 0, offset: 0 }]);
    scene.events(plan.drafts);
    assert_eq!(scene.state.doing(), linger_protocol::session::State::Waiting, "the permission still waits");
}

#[test]
fn a_turn_that_met_three_crashes_without_a_step_is_offered() {
    let mut scene = Scene::with_calls(&[]);
    for _ in 0..2 {
        let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
        assert!(plan.resume);
        scene.events(plan.drafts);
    }
    let last = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
    assert_eq!((words(&last.drafts), last.resume), (vec!["notice offered".to_owned()], false));
    scene.events(last.drafts);
    assert_eq!(scene.state.doing(), linger_protocol::session::State::Offered);
    assert_eq!(
        plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume))),
        RecoveryPlan { drafts: Vec::new(), resume: false },
        "and stays so"
    );
}

#[test]
fn a_turn_that_waits_for_an_answer_waits_after_any_number_of_crashes() {
    let mut scene = Scene::with_calls(&["c1"]);
    scene.asked("c1");
    for _ in 0..2 * 3 {
        let plan = plan(&scene.state, &[], Cause::Restart(Some(AfterRestart::Resume)));
        assert!(plan.resume, "{plan:?}");
        scene.events(plan.drafts);
    }
    assert_eq!(scene.state.doing(), linger_protocol::session::State::Waiting);
}

#[test]
fn where_the_configuration_says_so_a_turn_is_offered_after_every_restart_also_an_orderly_one() {
    for paused in [false, true] {
        let mut scene = Scene::with_calls(&["c1"]);
        scene.started("c1");
        if paused {
            scene.event(EventBody::Notice(Notice {
                level: Level::Info,
                code: Some(NoticeCode::Paused),
                text: String::new(),
                until_at: None,
                since_at: None,
            }));
        }
        let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Offer)));
        assert_eq!(
            (words(&plan.drafts), plan.resume),
            (vec!["tool_finished c1".to_owned(), "notice offered".to_owned()], false)
        );
        scene.events(plan.drafts);
        assert_eq!(scene.state.doing(), linger_protocol::session::State::Offered);
    }
}

#[test]
fn without_a_configuration_a_turn_waits_for_one_however_often_the_daemon_is_restarted() {
    let mut scene = Scene::with_calls(&["c1"]);
    scene.started("c1");
    let plan_now = |scene: &Scene, after: Option<AfterRestart>| {
        let plan = plan(&scene.state, &scene.streams, Cause::Restart(after));
        (words(&plan.drafts), plan.resume, plan.drafts)
    };
    let (said, resume, drafts) = plan_now(&scene, None);
    assert_eq!((said, resume), (vec!["tool_finished c1".to_owned(), "notice unconfigured".to_owned()], false));
    scene.events(drafts);
    assert_eq!(scene.state.doing(), linger_protocol::session::State::Offered);
    assert_eq!(scene.state.stored_name(), "unconfigured");
    let (said, resume, _) = plan_now(&scene, None);
    assert_eq!((said, resume), (Vec::new(), false), "it is said once");
    assert!(!plan(&scene.state, &scene.streams, Cause::Storage).resume, "nor does anything else change that");
    let (said, resume, _) = plan_now(&scene, Some(AfterRestart::Offer));
    assert_eq!((said, resume), (vec!["notice offered".to_owned()], false));
    let (said, resume, drafts) = plan_now(&scene, Some(AfterRestart::Resume));
    assert_eq!((said, resume), (vec!["notice resumed".to_owned()], true));
    scene.events(drafts);
    assert_eq!(scene.state.stored_name(), "running");
}

#[test]
fn a_finished_step_and_an_orderly_end_are_no_crashes() {
    let mut scene = Scene::with_calls(&[]);
    for _ in 0..5 {
        scene.event(EventBody::Notice(Notice {
            level: Level::Info,
            code: Some(NoticeCode::Paused),
            text: String::new(),
            until_at: None,
            since_at: None,
        }));
        let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
        assert!(plan.resume);
        scene.events(plan.drafts);
    }
    for _ in 0..5 {
        let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
        assert!(plan.resume);
        scene.events(plan.drafts);
        scene.message(Role::Assistant, vec![ContentBlock::text("a step")]);
    }
}

#[test]
fn what_a_started_call_has_asked_is_withdrawn_and_what_holds_up_the_turn_still_waits() {
    let mut scene = Scene::with_calls(&["c1", "c2"]);
    scene.started("c1");
    for (id, blocks, call) in [("q7", Blocks::Call, Some("c1")), ("q8", Blocks::Turn, None)] {
        let options = vec![QuestionOption::new("yes", "yes")];
        let asked = crate::question::choice(id, options, blocks, call.map(CallId::from));
        scene.event(EventBody::QuestionAsked { question: id.into(), asked });
    }
    let plan = plan(&scene.state, &scene.streams, Cause::Restart(Some(AfterRestart::Resume)));
    assert_eq!(words(&plan.drafts), ["question_resolved q7", "tool_finished c1", "notice resumed"]);
    scene.events(plan.drafts);
    assert!(scene.state.turn.as_ref().unwrap().is_held());
    let drafts = close(&scene.state, &scene.streams, &scene.results, "cancelled by the user");
    assert_eq!(words(&drafts)[0], "question_resolved q8");
}

#[test]
fn closing_gives_every_call_one_result_whatever_it_was_doing() {
    let mut scene = Scene::with_calls(&["c1", "c2", "c3"]);
    scene.started("c1");
    scene.event(EventBody::ToolFinished(ToolFinished {
        call_id: CallId::from("c1"),
        is_error: false,
        outcome: Outcome::Ran,
        content: vec![ContentBlock::text("done")],
        output: Vec::new(),
        file: None,
        blob: None,
        diff: None,
        changes: Vec::new(),
        locations: Vec::new(),
        exit: None,
        model_cost: None,
        ms: 3,
    }));
    scene.started("c2");
    scene.asked("c3");
    let drafts = close(&scene.state, &scene.streams, &scene.results, "cancelled by the user");
    assert_eq!(words(&drafts), ["permission_resolved q1", "tool_finished c2", "tool_finished c3", "message "]);
    scene.events(drafts);
    scene.assert_paired();
    assert!(scene.state.turn.as_ref().unwrap().calls.is_empty());
    let usage = linger_protocol::message::Usage::default();
    scene.event(EventBody::TurnFinished(TurnFinished {
        prompt: None,
        stop_reason: StopReason::Cancelled,
        detail: None,
        hint: None,
        until_at: None,
        answer: None,
        usage,
        session_usage: None,
        context_tokens: None,
        context_window: None,
        steps: 1,
    }));
    assert_eq!((scene.state.turn.clone().into_value(), scene.state.queue.held), (None, true));
}

#[test]
fn closing_in_mid_message_keeps_what_was_shown() {
    let mut scene = Scene::with_calls(&[]);
    scene.piece("m2", PieceKind::Thinking, 0, "hm");
    let drafts = close(&scene.state, &scene.streams, &scene.results, "cancelled by the user");
    assert_eq!(words(&drafts), ["message m2"]);
    scene.events(drafts);
    scene.assert_paired();
}

#[test]
fn a_long_output_that_was_cut_off_keeps_its_end_at_a_character() {
    let mut scene = Scene::with_calls(&["c1"]);
    scene.started("c1");
    scene.piece("c1", PieceKind::Output, 100, &"é".repeat(OUTPUT));
    let drafts = close(&scene.state, &scene.streams, &scene.results, "cancelled by the user");
    let EventBody::ToolFinished(ToolFinished { content, output, .. }) = &drafts[0].body else { panic!("{drafts:?}") };
    let text = content[0].as_text().unwrap();
    assert_eq!((text.len(), output[0].offset), (OUTPUT, 100 + OUTPUT as u64));
}

#[test]
fn the_state_that_is_stored_is_the_state_that_was() {
    let mut scene = Scene::with_calls(&["c1"]);
    scene.asked("c1");
    assert_eq!(State::from_stored(&scene.state.to_stored()), Some(scene.state));
}
