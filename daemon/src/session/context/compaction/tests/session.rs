//! A session that is lived through and whose log is kept beside it, for tests of what a context becomes.

use std::collections::HashMap;

use linger_protocol::event::{
    AfterCrash, Compacted, CompactionFailed, Event, EventBody, MessageAdded, PromptAccepted, ToolStarted, Trimmed,
};
use linger_protocol::id::{MessageId, PromptId, TurnId};
use linger_protocol::message::{AnswerEnd, ContentBlock, Role, Usage};
use linger_protocol::session::When;
use proptest::prelude::*;
use serde_json::Value;

use super::super::{cut, trim, with_words};
use crate::config::AfterRestart;
use crate::provider::catalogue::{self, ProviderKind};
use crate::provider::compat::Compat;
use crate::provider::support::{KINDS, request};
use crate::provider::wellformed::{extends, validate};
use crate::provider::{Encoding, Message, Request};
use crate::session::Draft;
use crate::session::actor::stored;
use crate::session::context::{self, Builder, Context};
use crate::session::state::State;
use crate::session::state::recovery::{self, Cause};

/// A session as its log and its context, side by side.
#[derive(Default)]
pub(super) struct Session {
    events: Vec<Event>,
    pub(super) context: Context,
    turns: u64,
    /// The messages of the last request, and whether an event has named a change since.
    before: Vec<Message>,
    named: bool,
    /// What each format was sent last, since an event has named a change.
    sent: HashMap<&'static str, Value>,
    /// What was encoded before; a restart forgets it.
    encoding: Encoding,
}

impl Session {
    fn event(&mut self, body: EventBody) {
        let seq = Some(self.events.len() as u64 + 1);
        self.events.push(Event { body, seq, at: 0, turn: Some(TurnId(format!("t{}", self.turns))) });
    }

    /// Whether calls wait for their results.
    pub(super) fn is_open(&self) -> bool {
        !context::open_calls(&self.context.messages).is_empty()
    }

    pub(super) fn says(&mut self, mut message: Message) {
        let result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult { .. });
        // Every other prompt steers the turn under way.
        let prompt = message.role == Role::User && !message.content.iter().any(result);
        let opens = prompt && (self.turns == 0 || self.events.len().is_multiple_of(2));
        if prompt && self.events.len().is_multiple_of(3) {
            message.content.push(ContentBlock::image("image/png", "iVBORw0KGgo="));
        }
        self.turns += u64::from(opens);
        let id = self.next_message();
        if opens {
            let prompt = PromptId(format!("p{}", self.turns));
            let (content, when) = (message.content.clone(), When::Queue);
            self.event(EventBody::PromptAccepted(PromptAccepted {
                runs: Vec::new(),
                prompt: prompt.clone(),
                content,
                when,
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
            self.event(EventBody::TurnStarted { prompt });
        }
        let usage = (message.role == Role::Assistant).then(|| Usage {
            input_tokens: self.context.tokens(0),
            output_tokens: 5,
            ..Usage::default()
        });
        let content = message.content.clone();
        self.event(match message.role {
            Role::User => EventBody::user_message(id.clone(), content, None, None),
            Role::Assistant => {
                EventBody::assistant_message(id.clone(), content, message.origin.clone(), usage, AnswerEnd::Whole)
            }
        });
        self.context.push(id, message, opens);
        usage.into_iter().for_each(|usage| self.context.measure(usage));
    }

    /// An answer that broke off, and whose step is repeated; `meanwhile` makes room for that, if it broke off for want of it.
    pub(super) fn breaks_off(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        let message = self.next_message();
        let (content, end) = (vec![ContentBlock::text("half an ans")], AnswerEnd::Interrupted);
        self.event(EventBody::assistant_message(message.clone(), content, None, None, end));
        meanwhile(self);
        self.event(EventBody::MessageSuperseded { message });
    }

    pub(super) fn compact(&mut self, room: u64) {
        self.compact_by("p/m", room);
    }

    /// A compaction that comes to nothing; `model` was asked.
    pub(super) fn gives_up(&mut self, model: Option<&str>) {
        let (tokens, model) = (self.context.tokens(0), model.map(str::to_owned));
        self.event(EventBody::CompactionFailed(CompactionFailed {
            prompt: None,
            reason: "no".to_owned(),
            tokens,
            model,
            usage: None,
        }));
    }

    pub(super) fn compact_by(&mut self, model: &str, room: u64) {
        let Some(cut) = cut(&self.context.marks, room.min(self.context.estimated()), room.is_multiple_of(2)) else {
            return;
        };
        let through = self.context.marks[cut - 1].id.clone().expect("a summary is never the last that is replaced");
        let summary = with_words("## Goal\nto be done", &self.context.words_before(cut));
        let (tokens_before, model) = (self.context.tokens(0), Some(model.to_owned()));
        self.event(EventBody::Compacted(Compacted {
            prompt: None,
            through: through.clone(),
            messages: cut as u32,
            summary: summary.clone(),
            tokens_before,
            tokens_after: tokens_before / 2,
            model: model.clone(),
            usage: None,
        }));
        self.context.compact(&through, &summary, tokens_before / 2, model);
        self.rewritten();
    }

    /// An event has named a change: what was encoded is no more.
    fn rewritten(&mut self) {
        self.named = true;
        self.encoding = Encoding::default();
    }

    pub(super) fn trim(&mut self, goal: u64) {
        let (calls, _) = trim(&self.context.messages, &self.context.marks, goal, goal.is_multiple_of(2));
        let tokens_before = self.context.tokens(0);
        self.context.trim(&calls, tokens_before / 2);
        self.event(EventBody::Trimmed(Trimmed {
            calls,
            images: Vec::new(),
            native: Vec::new(),
            tokens_before,
            tokens_after: tokens_before / 2,
        }));
        self.rewritten();
    }

    pub(super) fn leave_out_images(&mut self) {
        let (images, tokens_before) = (self.context.with_images(), self.context.tokens(0));
        if images.is_empty() {
            return;
        }
        self.context.leave_out_images(&images);
        let tokens_after = self.context.tokens(0);
        self.event(EventBody::Trimmed(Trimmed {
            calls: Vec::new(),
            images,
            native: Vec::new(),
            tokens_before,
            tokens_after,
        }));
        self.rewritten();
    }

    pub(super) fn leave_out_native(&mut self, model: &str) -> Result<(), TestCaseError> {
        let (native, tokens_before) = (self.context.with_native(model), self.context.tokens(0));
        if native.is_empty() {
            return Ok(());
        }
        let as_another = self.body_for(model, &as_another_reads(&self.context.messages, model));
        self.context.leave_out_native(&native);
        prop_assert_eq!(self.context.with_native(model), [] as [MessageId; 0], "there is nothing left to refuse");
        prop_assert_eq!(self.body_for(model, &self.context.messages), as_another);
        let (calls, images, tokens_after) = (Vec::new(), Vec::new(), self.context.tokens(0));
        self.event(EventBody::Trimmed(Trimmed { calls, images, native, tokens_before, tokens_after }));
        self.rewritten();
        Ok(())
    }

    /// What `model`, named by its format, is sent of these messages.
    fn body_for(&self, model: &str, messages: &[Message]) -> Vec<u8> {
        let kind = KINDS.into_iter().find(|kind| kind.name() == model).unwrap();
        let codec = catalogue::codec(kind, Compat::NONE).unwrap();
        let request = Request { origin: model, ..request(messages) };
        Encoding::default().encode(codec.as_ref(), &request).body
    }

    /// What the log says of the turn under way.
    fn state(&self) -> State {
        let mut state = State::default();
        self.events.iter().for_each(|event| drop(state.apply(event)));
        state
    }

    fn next_message(&self) -> MessageId {
        MessageId(format!("m{}", self.state().progress.counts.messages + 1))
    }

    /// The turn is cancelled with its calls open: the first of them was denied before, and has its result.
    pub(super) fn cancelled(&mut self) {
        let state = self.state();
        let denied = state.turn.iter().flat_map(|turn| &turn.calls).take(1).map(|call| {
            let content = vec![ContentBlock::text("denied by the user")];
            (call.id.clone(), ContentBlock::ToolResult { call_id: call.id.clone(), is_error: true, content })
        });
        let drafts = recovery::close(&state, &[], &denied.collect(), "the turn was cancelled");
        self.follow(drafts);
    }

    /// The daemon dies while calls run, and takes the turn up again; they are reported and not run again.
    pub(super) fn cut_by_a_crash(&mut self, all_started: bool) {
        let calls = self.state().turn.into_value().map(|turn| turn.calls).unwrap_or_default();
        for call in calls.iter().take(if all_started { calls.len() } else { 1 }) {
            let (call_id, tool, action) = (call.id.clone(), "ls".to_owned(), "ls".to_owned());
            self.event(EventBody::ToolStarted(ToolStarted {
                call_id,
                tool,
                tool_kind: linger_protocol::event::ToolKind::Other,
                action,
                locations: Vec::new(),
                input: None,
                after_crash: AfterCrash::Unknown,
                limit: None,
            }));
        }
        let plan = recovery::plan(&self.state(), &[], Cause::Restart(Some(AfterRestart::Resume)));
        self.follow(plan.drafts);
        // What had not started is cancelled then.
        let state = self.state();
        let results = self.loaded().results;
        self.follow(recovery::close(&state, &[], &results, "the turn was cancelled"));
        self.encoding = Encoding::default();
    }

    /// What was written about the turn by others than the model.
    fn follow(&mut self, drafts: Vec<Draft>) {
        drafts.into_iter().for_each(|draft| self.event(draft.body));
        self.context = self.loaded();
    }

    /// Each event is lost for which this is said, and what is open is closed as a repair does it.
    pub(super) fn loses(&mut self, lost: impl Fn(usize) -> bool) {
        for (at, event) in self.events.iter_mut().enumerate().skip(1).filter(|(at, _)| lost(*at)) {
            let seq = at as u64 + 1;
            *event = Event { body: EventBody::Lost { first: seq, last: seq }, seq: Some(seq), at: 0, turn: None };
        }
        let mut results = HashMap::new();
        for event in &self.events {
            match &event.body {
                EventBody::Message(MessageAdded { role: Role::User, .. }) | EventBody::Lost { .. } => results.clear(),
                body => results.extend(recovery::result_of(body)),
            }
        }
        self.follow(recovery::close(&self.state(), &[], &results, "a part of the session could not be read"));
        self.rewritten();
    }

    pub(super) fn loaded(&self) -> Context {
        let mut builder = Builder::default();
        let page: Vec<_> = self.events.iter().map(|event| stored(event).unwrap()).collect();
        builder.add(&page).unwrap();
        builder.finish()
    }

    pub(super) fn ask(&mut self, kind: ProviderKind) -> Result<(), TestCaseError> {
        let messages = &self.context.messages;
        prop_assert!(
            self.named || messages.starts_with(&self.before),
            "{messages:#?}\ndo not continue\n{:#?}",
            self.before
        );
        let codec = catalogue::codec(kind, Compat::NONE).unwrap();
        let request = Request { origin: kind.name(), ..request(messages) };
        let body: Value = serde_json::from_slice(&self.encoding.encode(codec.as_ref(), &request).body).unwrap();
        prop_assert_eq!(validate(kind.name(), &body), Ok(()), "{:#}", body);
        if self.named {
            self.sent.clear();
        }
        if let Some(before) = self.sent.insert(kind.name(), body.clone()) {
            prop_assert!(extends(&before, &body), "{:#}\n is no prefix of\n{:#}", before, body);
        }
        self.before = messages.clone();
        self.named = false;
        Ok(())
    }
}

/// These messages if another model than `model` had written what it wrote.
fn as_another_reads(messages: &[Message], model: &str) -> Vec<Message> {
    let mut messages = messages.to_vec();
    for message in messages.iter_mut().filter(|message| message.origin.as_deref() == Some(model)) {
        message.origin = Some("another/model".to_owned());
    }
    messages
}
