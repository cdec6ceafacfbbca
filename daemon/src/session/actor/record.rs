//! Writing down: events get their numbers, the state is folded, and both are queued at the store.

use super::requests::weight;
use super::*;
use crate::store::Spent;

impl Actor {
    pub(super) fn pieces(&mut self, pieces: Vec<Piece>, done: oneshot::Sender<Result<(), StoreError>>) {
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        for piece in &pieces {
            push_piece(&mut self.streams, turn.as_ref(), piece.clone());
        }
        self.daemon.store.append(Append {
            log: self.log.clone(),
            events: Vec::new(),
            turn,
            pieces,
            folds: Vec::new(),
            sync: false,
            done: Some(done),
        });
    }

    /// Numbers events, folds them, and queues them with what is folded from them.
    pub(super) fn append(
        &mut self,
        drafts: Vec<Draft>,
        mut folds: Vec<Fold>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) {
        let mut events = Vec::with_capacity(drafts.len());
        for mut draft in drafts {
            self.account(&mut draft.body);
            let skipped = u64::from(fault::bug("I2") && matches!(draft.body, EventBody::TurnFinished { .. }));
            let seq = Some(self.state.head + 1 + skipped);
            let event = Event { body: draft.body, seq, at: clock::now(), turn: draft.turn };
            self.state.apply(&event);
            folds.extend(decided(&event).into_iter().chain(spent(&event)));
            folds.extend(draft.blobs.into_iter().map(Fold::Blob));
            if let EventBody::PermissionResolved { permission, .. } = &event.body {
                self.daemon.asked.forget(permission);
            }
            match &event.body {
                EventBody::Message { role: Role::User, .. } => self.results.clear(),
                body => self.results.extend(recovery::result_of(body)),
            }
            let stored = stored(&event);
            if let Some(stream) = &stored.stream {
                self.streams.retain(|open| open.id != *stream);
            }
            events.push(Arc::new(stored));
        }
        self.weigh();
        folds.insert(
            0,
            Fold::Session {
                name: self.state.name.clone(),
                cwd: self.state.cwd.to_string_lossy().into_owned(),
                state: self.state.stored_name(),
                updated_at: self.state.updated_at,
                fold: self.state.to_stored(),
            },
        );
        self.daemon.store.append(Append {
            log: self.log.clone(),
            events,
            turn: self.state.turn.as_ref().map(|turn| turn.id.clone()),
            pieces: Vec::new(),
            folds,
            sync,
            done,
        });
    }

    /// Counts the prompts that wait.
    pub(super) fn weigh(&mut self) {
        self.waits.set(self.state.queue.iter().map(weight));
    }

    /// An answer that is cut has what was counted of it until then, and so has a summary.
    fn account(&mut self, body: &mut EventBody) {
        match body {
            EventBody::Message { role: Role::Assistant, interrupted, usage, .. } => {
                let counted = self.counted.take();
                *usage = usage.or(counted.filter(|_| *interrupted));
            }
            EventBody::Compacted { .. } => self.counted = None,
            EventBody::CompactionFailed { usage, .. } => {
                let cut = self.counted.take().map(|counted| Usage { cost_at_least: true, ..counted });
                *usage = usage.or(cut);
            }
            _ => {}
        }
    }

    /// Waits until everything that was queued before is committed, or was refused.
    pub async fn barrier(&self) -> Result<(), StoreError> {
        self.flush().await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())))
    }

    /// Answered when everything that was queued before is committed, or was refused.
    pub(super) fn flush(&self) -> oneshot::Receiver<Result<(), StoreError>> {
        let (done, answered) = oneshot::channel();
        self.daemon.store.append(Append {
            log: self.log.clone(),
            events: Vec::new(),
            turn: None,
            pieces: Vec::new(),
            folds: Vec::new(),
            sync: false,
            done: Some(done),
        });
        answered
    }

    pub(super) fn in_turn(&self, body: EventBody) -> Draft {
        Draft { turn: self.state.turn.as_ref().map(|turn| turn.id.clone()), ..Draft::new(body) }
    }
}

/// A decision that nobody gave, such as of a turn that was cancelled, belongs in the table of permissions too.
pub fn decided(event: &Event) -> Option<Fold> {
    match &event.body {
        EventBody::PermissionResolved { permission, decision: Decision::Cancelled, by, .. } => Some(Fold::Decided {
            permission: permission.0.clone(),
            decision: Decision::Cancelled,
            by: by.clone(),
            at: event.at,
        }),
        _ => None,
    }
}

/// What an answer adds to its day.
pub fn spent(event: &Event) -> Option<Fold> {
    match &event.body {
        EventBody::Message { role: Role::Assistant, model, interrupted, usage, .. } => {
            let (model, usage) = (model.clone().unwrap_or_default(), Usage::of_answer(*usage, *interrupted));
            Some(of_one(event, model, usage))
        }
        EventBody::Compacted { model, usage, .. } => {
            let (model, usage) = (model.clone().unwrap_or_default(), Usage::of_answer(*usage, false));
            Some(of_one(event, model, usage))
        }
        EventBody::CompactionFailed { model, usage: Some(usage), .. } => {
            Some(of_one(event, model.clone().unwrap_or_default(), *usage))
        }
        _ => None,
    }
}

fn of_one(event: &Event, model: String, usage: Usage) -> Fold {
    Fold::Spent(Spent { day: event.at / DAY_MS, model, answers: 1, usage })
}

/// An event as it is stored.
pub fn stored(event: &Event) -> Stored {
    let stream = match &event.body {
        EventBody::Message { message, role: Role::Assistant, .. } => Some(message.0.clone()),
        EventBody::ToolFinished { call_id, .. } => Some(call_id.0.clone()),
        _ => None,
    };
    let value = serde_json::to_string(event).unwrap_or_default();
    Stored {
        seq: event.seq.unwrap_or_default(),
        at: event.at,
        kind: kind_name(&event.body).to_owned(),
        stream,
        data: value,
    }
}

/// The kind as it stands in the event.
pub(super) fn kind_name(body: &EventBody) -> &'static str {
    match body {
        EventBody::SessionCreated { .. } => "session_created",
        EventBody::SessionChanged { .. } => "session_changed",
        EventBody::PromptAccepted { .. } => "prompt_accepted",
        EventBody::TurnStarted { .. } => "turn_started",
        EventBody::Message { .. } => "message",
        EventBody::MessageSuperseded { .. } => "message_superseded",
        EventBody::ToolStarted { .. } => "tool_started",
        EventBody::ToolFinished { .. } => "tool_finished",
        EventBody::PermissionRequested { .. } => "permission_requested",
        EventBody::PermissionResolved { .. } => "permission_resolved",
        EventBody::TurnFinished { .. } => "turn_finished",
        EventBody::CompactionStarted { .. } => "compaction_started",
        EventBody::Compacted { .. } => "compacted",
        EventBody::CompactionFailed { .. } => "compaction_failed",
        EventBody::Trimmed { .. } => "trimmed",
        EventBody::Lost { .. } => "lost",
        EventBody::Notice { .. } => "notice",
        EventBody::TextDelta(_) => "text_delta",
        EventBody::ThinkingDelta(_) => "thinking_delta",
        EventBody::HostedDelta { .. } => "hosted_delta",
        EventBody::ToolOutputDelta { .. } => "tool_output_delta",
        EventBody::CaughtUp {} => "caught_up",
        EventBody::Unknown => "unknown",
    }
}

/// What is said of a model that nobody knows of.
pub fn unknown_model(doubt: &str) -> EventBody {
    notice(Level::Warning, NoticeCode::UnknownModel, doubt)
}

/// What is said of an effort that changes nothing.
pub fn idle_effort(text: String) -> EventBody {
    EventBody::Notice { level: Level::Warning, code: None, text, until_at: None }
}

pub(super) fn notice(level: Level, code: NoticeCode, text: &str) -> EventBody {
    EventBody::Notice { level, code: Some(code), text: text.to_owned(), until_at: None }
}
