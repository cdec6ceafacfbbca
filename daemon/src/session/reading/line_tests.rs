//! Forks of generated histories: whatever was said, and wherever a fork leaves it, its context is that of a session that never went
//! further, and its log can be read from any cursor.

use linger_protocol::event::{Compacted, MessageAdded, PromptAccepted, SessionCreated, TurnFinished};
use std::sync::Arc;

use linger_protocol::id::{CallId, MessageId};
use linger_protocol::message::{AnswerEnd, StopReason, Usage};
use linger_protocol::permission::Mode;
use linger_protocol::session::{Effort, When};
use linger_protocol::tree::{Origin, Rewound};
use proptest::prelude::*;

use super::*;
use crate::log::Log;
use crate::log::Stored;
use crate::session::actor::stored;
use crate::session::context::{self, Builder, Context};
use crate::store::{Append, Fold};

/// What happens in a session.
#[derive(Clone, Debug)]
enum Op {
    /// A turn with so many steps that have calls; whether it ends well.
    Turn { calls: Vec<u8>, ends: bool },
    /// It goes back to before its N-th last prompt.
    Back(u8),
    /// What stands for the older messages from then on.
    Compacted,
}

fn op() -> impl Strategy<Value = Op> {
    let turn = (prop::collection::vec(1..3u8, 0..3), any::<bool>()).prop_map(|(calls, ends)| Op::Turn { calls, ends });
    prop_oneof![5 => turn, 2 => (0..4u8).prop_map(Op::Back), 1 => Just(Op::Compacted)]
}

/// A session that is being made: its events, and those that its conversation is made of, as a list that is cut.
#[derive(Clone, Default)]
struct Session {
    state: State,
    events: Vec<Event>,
    live: Vec<Event>,
}

impl Session {
    fn add(&mut self, turn: Option<&str>, body: EventBody) -> u64 {
        let seq = self.state.progress.head + 1;
        let event = Event { body, seq: Some(seq), at: 1000 + seq, turn: turn.map(TurnId::from) };
        self.state.apply(&event);
        self.events.push(event.clone());
        self.live.push(event);
        seq
    }

    fn message(&self) -> MessageId {
        MessageId(format!("m{}", self.state.progress.counts.messages + 1))
    }

    fn create(&mut self) {
        let (model, name, parent, setup, tools, agent) = ("mock/m".to_owned(), None, None, None, None, None);
        let (cwd, mode, effort, env) = ("/w".into(), Mode::Ask, Effort::Auto, Default::default());
        let one_shot = false;
        self.add(
            None,
            EventBody::SessionCreated(SessionCreated {
                cwd,
                model,
                mode,
                name,
                parent,
                delegated: None,
                effort,
                setup,
                tools,
                one_shot,
                agent,
                allow: Vec::new(),
                system: None,
                env,
            }),
        );
    }

    fn turn(&mut self, calls: &[u8], ends: bool) {
        let n = self.state.progress.counts.turns + 1;
        let (turn, prompt) = (format!("t{n}"), PromptId(format!("p{}", self.state.progress.counts.prompts + 1)));
        let turn = Some(turn.as_str());
        let content = vec![ContentBlock::text(format!("prompt {n}"))];
        let (when, by, process, compact) = (When::Queue, None, None, false);
        let (schema, until, command) = (None, None, None);
        let accepted = EventBody::PromptAccepted(PromptAccepted {
            prompt: prompt.clone(),
            content: content.clone(),
            when,
            by,
            process,
            compact,
            schema,
            until,
            command,
            child: None,
            runs: Vec::new(),
            limit: None,
            awaited: false,
        });
        self.add(None, accepted);
        self.add(turn, EventBody::TurnStarted { prompt: prompt.clone() });
        self.add(turn, EventBody::user_message(self.message(), content, Some(prompt.clone()), None));
        for count in calls {
            let first = self.state.progress.counts.calls + 1;
            let ids: Vec<CallId> = (first..first + u64::from(*count)).map(|n| CallId(format!("c{n}"))).collect();
            let asked = ids.iter().map(|id| ContentBlock::ToolUse {
                call_id: id.clone(),
                name: "ls".to_owned(),
                input: serde_json::json!({}),
                native: None,
            });
            let model = "mock/m".to_owned();
            let usage =
                Some(Usage { input_tokens: 10 * self.state.progress.head, output_tokens: 1, ..Usage::default() });
            let body = EventBody::assistant_message(self.message(), asked.collect(), model, usage, AnswerEnd::Whole);
            self.add(turn, body);
            let results = ids.iter().map(|id| ContentBlock::ToolResult {
                call_id: id.clone(),
                is_error: false,
                content: vec![ContentBlock::text(format!("result of {id}"))],
            });
            self.add(turn, EventBody::user_message(self.message(), results.collect(), None, None));
        }
        let stop_reason = if ends { StopReason::EndTurn } else { StopReason::Cancelled };
        if ends {
            let content = vec![ContentBlock::text(format!("answer {n}"))];
            let body =
                EventBody::assistant_message(self.message(), content, "mock/m".to_owned(), None, AnswerEnd::Whole);
            self.add(turn, body);
        }
        self.add(
            turn,
            EventBody::TurnFinished(TurnFinished {
                prompt: Some(prompt),
                stop_reason,
                detail: None,
                hint: None,
                until_at: None,
                answer: None,
                usage: Usage::default(),
                session_usage: None,
                context_tokens: None,
                context_window: None,
                steps: 0,
            }),
        );
    }

    /// The seqs of the messages of prompts in its conversation, and the points before them, the latest first.
    fn prompts(&self) -> Vec<(PromptId, u64)> {
        let prompts = self.live.iter().rev().filter_map(|event| match &event.body {
            EventBody::Message(MessageAdded { prompt: Some(prompt), .. }) => {
                Some((prompt.clone(), event.seq.unwrap() - 3))
            }
            _ => None,
        });
        prompts.collect()
    }

    fn back(&mut self, n: u8) {
        let prompts = self.prompts();
        let Some((prompt, to)) = prompts.get(usize::from(n).min(prompts.len().saturating_sub(1))).cloned() else {
            return;
        };
        self.add(None, EventBody::Rewound(Rewound { to, prompt, ..Rewound::default() }));
        self.live.retain(|event| event.seq.unwrap() <= to);
    }

    fn compacted(&mut self) {
        let messages: Vec<MessageId> = self
            .live
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::Message(MessageAdded { message, role: Role::User, prompt: Some(_), .. }) => {
                    Some(message.clone())
                }
                _ => None,
            })
            .collect();
        let Some(through) = messages.last().cloned() else { return };
        let (prompt, summary, model) = (None, "a summary".to_owned(), Some("mock/m".to_owned()));
        let (tokens_before, tokens_after, usage) = (100, 10, None);
        let body = EventBody::Compacted(Compacted {
            prompt,
            through,
            messages: 1,
            summary,
            tokens_before,
            tokens_after,
            model,
            usage,
        });
        self.add(None, body);
    }

    fn of(ops: &[Op]) -> Self {
        let mut session = Self::default();
        session.create();
        for op in ops {
            match op {
                Op::Turn { calls, ends } => session.turn(calls, *ends),
                Op::Back(n) => session.back(*n),
                Op::Compacted => session.compacted(),
            }
        }
        session
    }

    /// The context of a session that never went further than this event, by a list that is cut where it goes back.
    fn context_at(&self, seq: u64) -> Context {
        let mut live: Vec<Event> = Vec::new();
        for event in self.events.iter().filter(|event| event.seq.unwrap() <= seq) {
            if let EventBody::Rewound(back) = &event.body {
                live.retain(|event| event.seq.unwrap() <= back.to);
            } else if context::is_read(&event.body) {
                live.push(event.clone());
            }
        }
        let mut builder = Builder::default();
        live.into_iter().for_each(|event| builder.event(event));
        builder.finish()
    }
}

async fn write(store: &Store, id: &str, events: &[Event], folds: Vec<Fold>) {
    let events: Vec<Arc<Stored>> = events.iter().map(|event| Arc::new(stored(event).unwrap())).collect();
    let head = events.first().map_or(0, |event| event.seq - 1);
    let (done, committed) = tokio::sync::oneshot::channel();
    let log = Log::new(id.into(), head, Vec::new());
    store.append(Append { log, events, turn: None, pieces: Vec::new(), folds, sync: false, done: Some(done) });
    committed.await.unwrap().unwrap();
}

/// The context that a turn of the session would read.
async fn context_of(store: &Store, id: &str, state: &State) -> Context {
    let (page, more) = store.events_of(id.into(), context::KINDS, 0, usize::MAX).await.unwrap();
    assert!(!more);
    let mut builder = Builder::default();
    let live: Vec<Stored> = page.into_iter().filter(|stored| !state.history.passed_over.has(stored)).collect();
    builder.add(&live).unwrap();
    builder.finish()
}

/// Forks `origin` at a point, as a daemon does; gives the fork.
async fn forked(store: &Store, (from, origin): (&str, &Session), seq: u64, id: &str) -> Session {
    let mut fork = Session { state: origin.state.before_fork(seq), ..Session::default() };
    let events = origin.events.iter().filter(|event| event.seq.unwrap() <= seq).cloned().collect();
    let whole = origin.state.forked();
    let begun = linger_protocol::tree::Forked { origin: Origin { session: from.into(), seq }, ..whole };
    fork.add(None, EventBody::Forked(Box::new(begun)));
    let folds = vec![fork.state.to_fold(), Fold::Shared(from.to_owned(), seq)];
    write(store, id, &fork.events, folds).await;
    fork.events = [events, fork.events].concat();
    fork
}

/// Each page of its log after each cursor is what it should be.
async fn reads(store: &Store, id: &str, session: &Session) {
    let all: Vec<Stored> = session.events.iter().map(|event| stored(event).unwrap()).collect();
    for after in 0..=all.len() {
        let until = all.len() as u64;
        for bytes in [1, 600, usize::MAX] {
            let page = store.events(id.into(), after as u64, until, bytes, false).await.unwrap().unwrap();
            assert_eq!(page, all[after..after + page.len()], "{id} after {after}");
            assert!(!page.is_empty() || after == all.len(), "{id} after {after}");
        }
    }
    assert_eq!(store.last(id.into()).await.unwrap(), all.len() as u64);
    for event in all.iter().filter(|event| event.stream.is_some()) {
        let found = store.closing(id.into(), event.stream.clone().unwrap()).await.unwrap();
        assert_eq!(found.as_ref(), Some(event));
    }
}

async fn check(ops: &[Op]) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = Store::open(&dir.path().join("linger.db")).unwrap();
    let origin = Session::of(ops);
    write(&store, "origin", &origin.events, vec![origin.state.to_fold()]).await;
    let line = Line { store: &store, id: "origin".into(), state: &origin.state };
    assert_eq!(context_of(&store, "origin", &origin.state).await, origin.context_at(origin.state.progress.head));
    let mut points: Vec<u64> = vec![origin.state.progress.head];
    for (prompt, before) in origin.prompts() {
        let point = line.before(Some(&prompt)).await.unwrap();
        assert_eq!(point.seq, before, "{prompt}");
        assert_eq!(line.point(Some(prompt.as_str())).await.unwrap(), point);
        points.push(point.seq);
    }
    for event in &origin.live {
        if let EventBody::Message(MessageAdded { message, prompt: None, .. }) = &event.body {
            points.push(line.point(Some(message.as_str())).await.unwrap().seq);
        }
    }
    let listed: Vec<PromptId> = line.prompts(99).await.unwrap().into_iter().map(|row| row.prompt).collect();
    assert_eq!(listed, origin.prompts().into_iter().map(|(prompt, _)| prompt).collect::<Vec<_>>());
    points.sort_unstable();
    points.dedup();
    for (n, seq) in points.into_iter().enumerate() {
        let id = format!("fork{n}");
        let mut fork = forked(&store, ("origin", &origin), seq, &id).await;
        let expect = origin.context_at(seq);
        let open = context::open_calls(&expect.messages);
        assert!(open.is_empty(), "a call is open at {seq}");
        assert_eq!(context_of(&store, &id, &fork.state).await, expect, "at {seq}");
        // What is folded from its whole log is its state.
        let mut folded = State::default();
        fork.events.iter().for_each(|event| drop(folded.apply(event)));
        assert_eq!(folded, fork.state, "at {seq}");
        // It goes on, and so does a fork of it, at a point that both have, or that only it has.
        let own = fork.events.len();
        fork.turn(&[1], true);
        write(&store, &id, &fork.events[own..], vec![fork.state.to_fold()]).await;
        reads(&store, &id, &fork).await;
        for (at, deep) in [(seq, format!("{id}a")), (fork.state.progress.head, format!("{id}b"))] {
            let deep_fork = forked(&store, (&id, &fork), at, &deep).await;
            reads(&store, &deep, &deep_fork).await;
            // The system prompt has the day of it, and a fork's has to begin as its origin's does.
            assert_eq!(deep_fork.state.identity.started_at, Some(origin.state.identity.created_at));
            assert_ne!(deep_fork.state.identity.created_at, origin.state.identity.created_at);
            assert_eq!(context_of(&store, &deep, &deep_fork.state).await, fork.context_at(at));
        }
    }
    store.close().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_context_of_a_fork_is_that_of_a_session_that_never_went_further(ops in prop::collection::vec(op(), 0..7)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&ops));
    }
}

#[tokio::test]
async fn a_fork_of_a_long_session_adds_two_rows_and_its_origin_can_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let store = Store::open(&path).unwrap();
    let mut origin = Session::default();
    origin.create();
    for _ in 0..300 {
        origin.turn(&[1, 2], true);
    }
    write(&store, "origin", &origin.events, vec![origin.state.to_fold()]).await;
    let rows = || {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = "SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM shared)";
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let before = rows();
    let fork = forked(&store, ("origin", &origin), 100, "fork").await;
    assert_eq!(rows(), before + 2);
    // An origin that was removed cannot be forked any more; its events stay for the fork, and no others.
    store.remove(Log::new("origin".into(), origin.state.progress.head, Vec::new()), Vec::new()).await.unwrap();
    while rows() > 102 {
        tokio::task::yield_now().await;
    }
    reads(&store, "fork", &fork).await;
    let again = [fork.state.to_fold(), Fold::Shared("origin".to_owned(), 5)];
    let (done, refused) = tokio::sync::oneshot::channel();
    let log = Log::new("late".into(), 5, Vec::new());
    let folds = again.into();
    store.append(Append {
        log,
        events: Vec::new(),
        turn: None,
        pieces: Vec::new(),
        folds,
        sync: false,
        done: Some(done),
    });
    assert!(refused.await.unwrap().is_err());
    store.remove(Log::new("fork".into(), fork.state.progress.head, Vec::new()), Vec::new()).await.unwrap();
    while rows() > 0 {
        tokio::task::yield_now().await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_turn_that_a_session_went_back_into_has_ended_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("linger.db")).unwrap();
    let mut session = Session::default();
    session.create();
    session.turn(&[1], true);
    // After the results of its call, as before a prompt that was steered into it.
    let within = session.state.progress.head - 2;
    let went = session.add(None, EventBody::Rewound(Rewound { to: within, ..Rewound::default() }));
    session.turn(&[], true);
    write(&store, "s", &session.events, vec![session.state.to_fold()]).await;
    let line = Line { store: &store, id: "s".into(), state: &session.state };
    for (seq, is_open) in [(within, true), (went, false), (went + 1, false)] {
        let known = line.known(&Point { seq, prompt: None }).await.unwrap();
        assert_eq!((known.turn.is_some(), known.before_turn), (is_open, Some(2)), "at {seq}");
    }
    store.close().await.unwrap();
}
