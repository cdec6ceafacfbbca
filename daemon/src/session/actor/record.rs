//! Recording: numbers events, folds them into the state, and queues both at the store.

use super::prompts::queued_size;
use super::*;
use crate::session::state::Reaction;
use crate::store::Spent;
use crate::store::blob::Held;
use crate::sys::task;
use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{
    Compacted, CompactionFailed, MessageAdded, ModelCost, Notice, PermissionResolved, QuestionResolved, SessionChanged,
    ToolFinished,
};
use linger_protocol::id::BlobId;
use linger_protocol::message::Times;

/// The consequences of appended events that wait until these are queued.
#[derive(Default)]
struct Effects {
    folds: Vec<Fold>,
    resolved: Vec<(Vec<Reply<Resolution>>, Resolution)>,
    follow_children: bool,
    close_checkpoint: bool,
}

/// Data about recorded events: results of open calls, the history, usage, and the size of the queue.
pub(super) struct Recorded {
    /// Results of open calls, until all have one and become a message.
    results: HashMap<CallId, ContentBlock>,
    /// The history, if short and known.
    past: Past,
    /// The usage of the streaming answer; not stored, so a crash loses it.
    counted: Option<Usage>,
    /// This session's share of the bound on queued prompts.
    queued: Share,
}

impl Recorded {
    /// Nothing, of a session with this share of the bound on queued prompts.
    pub(super) fn new(queued: Share) -> Self {
        Self { results: HashMap::new(), past: Past::default(), counted: None, queued }
    }

    /// Results of open calls.
    pub(super) fn results(&self) -> &HashMap<CallId, ContentBlock> {
        &self.results
    }

    /// Takes the results of open calls from the store.
    pub(super) fn set_results(&mut self, results: HashMap<CallId, ContentBlock>) {
        self.results = results;
    }

    /// The history for the next turn.
    pub(super) fn past(&self) -> Past {
        self.past.clone()
    }

    /// Takes the history that a turn has read.
    pub(super) fn set_past(&mut self, past: Past) {
        self.past = past;
    }

    /// Takes the usage of the streaming answer so far.
    pub(super) fn set_usage(&mut self, usage: Option<Usage>) {
        self.counted = usage;
    }

    /// Whether the streaming answer has used anything yet.
    pub(super) fn has_usage(&self) -> bool {
        self.counted.is_some()
    }
}

impl Actor {
    /// Queues new text of streams, each piece at its offset.
    pub(super) fn pieces(&mut self, fragments: Vec<Fragment>, done: oneshot::Sender<Result<(), StoreError>>) {
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        let (answer, calls) = (self.next_message(), self.state.progress.counts.calls);
        let mut tail = self.log.tail();
        let pieces: Vec<Piece> = fragments
            .into_iter()
            .map(|fragment| match fragment {
                Fragment::Answer { block, kind, text } => {
                    tail.queue(turn.as_ref(), answer.0.clone(), block, kind, None, text)
                }
                Fragment::Call { block, name, text } => {
                    let kind = call_kind(tail.stream(&answer.0), block, &name, calls);
                    tail.queue(turn.as_ref(), answer.0.clone(), block, kind, None, text)
                }
                Fragment::Output { call, offset, text } => {
                    tail.queue(turn.as_ref(), call.0, 0, PieceKind::Output, Some(offset), text)
                }
            })
            .collect();
        drop(tail);
        self.env.store.append(Append {
            log: self.log.clone(),
            events: Vec::new(),
            turn,
            pieces,
            folds: Vec::new(),
            sync: false,
            done: Some(done),
        });
    }

    /// Turns the shown text of a failed attempt of `model` into a message.
    pub(super) fn interrupted(&mut self, model: String, times: Option<Times>) -> MessageId {
        let id = self.next_message();
        let content = recovery::blocks(self.log.tail().stream(&id.0).into_iter().flat_map(|stream| &stream.pieces));
        let body = EventBody::assistant_message(id.clone(), content, model, None, AnswerEnd::Interrupted);
        let draft = self.in_turn(body.took(times));
        self.append(vec![draft], Vec::new(), false, None);
        id
    }

    /// Assigns numbers and ids to events, folds them, and queues them with their folds; returns them as stored.
    pub(super) fn append(
        &mut self,
        drafts: Vec<Draft>,
        mut folds: Vec<Fold>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Vec<EventBody> {
        let mut events = Vec::with_capacity(drafts.len());
        let mut written = Vec::with_capacity(drafts.len());
        let mut effects = Effects::default();
        for mut draft in drafts {
            self.name(&mut draft.body);
            self.account(&mut draft.body);
            let skipped = u64::from(fault::bug("I2") && matches!(draft.body, EventBody::TurnFinished(_)));
            let seq = Some(self.state.progress.head + 1 + skipped);
            let event = Event { body: draft.body, seq, at: clock::now(), turn: draft.turn };
            let (event, stored) = match encode(event) {
                Ok(encoded) => encoded,
                Err(why) => {
                    // The store refuses the whole append, and the actor goes on from what is stored.
                    folds.push(Fold::Unencodable(why));
                    break;
                }
            };
            let reactions = self.state.apply(&event);
            folds.extend(question_fold(&self.id, &event).into_iter().chain(spent(&event)));
            folds.extend(draft.blobs.into_iter().map(|held| blob_fold(held, &event)));
            for reaction in reactions {
                self.react(reaction, &event, &mut effects);
            }
            match &event.body {
                EventBody::Message(MessageAdded { role: Role::User, .. }) => self.recorded.results.clear(),
                body => self.recorded.results.extend(recovery::result_of(body)),
            }
            if let Some(stream) = &stored.stream {
                self.log.tail().close(stream);
            }
            self.recorded.past.follow(&event, stored.data.len());
            events.push(Arc::new(stored));
            written.push(event.body);
        }
        self.update_queue_size();
        folds.extend(effects.folds);
        folds.insert(0, self.state.take_changes());
        self.env.store.append(Append {
            log: self.log.clone(),
            events,
            turn: self.state.turn.as_ref().map(|turn| turn.id.clone()),
            pieces: Vec::new(),
            folds,
            sync,
            done,
        });
        if effects.follow_children {
            self.follow_children();
        }
        if effects.close_checkpoint {
            self.start_checkpoint();
        }
        self.answer_askers(effects.resolved);
        written
    }

    /// As [`Self::append`], synced to disk; returns the commit.
    pub(super) fn append_synced(&mut self, drafts: Vec<Draft>, folds: impl IntoIterator<Item = Fold>) -> Committed {
        let (done, committed) = oneshot::channel();
        self.append(drafts, folds.into_iter().collect(), true, Some(done));
        committed
    }

    /// Carries out a consequence of an event, or notes it until the event is queued.
    fn react(&mut self, reaction: Reaction, event: &Event, effects: &mut Effects) {
        match reaction {
            Reaction::Ask(question) => self.env.questions.add(&question, &self.id),
            Reaction::Resolve(question) => {
                self.env.questions.remove(&question);
                effects.resolved.extend(self.resolution(&question, event));
            }
            Reaction::SetDirectories(added) => self.workspace.added.set(&added),
            Reaction::ConfigureServers => self.configure_servers(),
            Reaction::GiveUpContents(seq) => effects.folds.push(Fold::GiveUp(seq)),
            Reaction::FollowChildren => effects.follow_children = true,
            Reaction::CloseCheckpoint => effects.close_checkpoint = true,
        }
    }

    /// Gives askers their answers, once these are stored.
    fn answer_askers(&self, resolved: Vec<(Vec<Reply<Resolution>>, Resolution)>) {
        for (askers, resolution) in resolved {
            let stored = self.flush();
            task::spawn(async move {
                let stored = settled(stored).await;
                let result = stored.map(|()| resolution).map_err(RpcError::from);
                for reply in askers {
                    respond(reply, result.clone());
                }
            });
        }
    }

    /// Assigns ids to a message and its calls; no other place does.
    fn name(&self, body: &mut EventBody) {
        let EventBody::Message(MessageAdded { message, content, .. }) = body else { return };
        if message.0.is_empty() {
            *message = self.next_message();
        }
        // Those that were shown while the model wrote them have an id.
        let mut known = announced(self.log.tail().stream(&message.0));
        let mut calls = self.state.progress.counts.calls + known.len() as u64;
        for (n, block) in (0u32..).zip(content) {
            if let ContentBlock::ToolUse { call_id, .. } = block
                && call_id.0.is_empty()
            {
                *call_id = known.remove(&n).unwrap_or_else(|| {
                    calls += 1;
                    CallId(format!("c{calls}"))
                });
            }
        }
    }

    /// The id of the next message, which the streaming answer will have.
    pub(super) fn next_message(&self) -> MessageId {
        MessageId(format!("m{}", self.state.progress.counts.messages + 1))
    }

    /// Updates the bound on queued prompts.
    pub(super) fn update_queue_size(&mut self) {
        self.recorded.queued.set(self.state.queue.all().map(queued_size));
    }

    /// Adds the usage so far to an interrupted answer or summary.
    fn account(&mut self, body: &mut EventBody) {
        match body {
            EventBody::Message(MessageAdded { role: Role::Assistant, interrupted, usage, .. }) => {
                let counted = self.recorded.counted.take();
                *usage = usage.or(counted.filter(|_| *interrupted));
            }
            EventBody::Compacted(_) => self.recorded.counted = None,
            EventBody::CompactionFailed(CompactionFailed { usage, .. }) => {
                let cut = self.recorded.counted.take().map(|counted| Usage { cost_at_least: true, ..counted });
                *usage = usage.or(cut);
            }
            _ => {}
        }
    }

    /// Waits until everything queued before is committed or refused.
    pub async fn barrier(&self) -> Result<(), StoreError> {
        settled(self.flush()).await
    }

    /// Resolves when everything queued before is committed or refused.
    pub(super) fn flush(&self) -> Committed {
        let (done, answered) = oneshot::channel();
        self.env.store.append(Append {
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

/// The ids of the calls that were shown of a streaming answer, by block.
fn announced(stream: Option<&OpenStream>) -> BTreeMap<u32, CallId> {
    let pieces = stream.into_iter().flat_map(|stream| &stream.pieces);
    let call = |piece: &Piece| match &piece.kind {
        PieceKind::Call(call) => Some((piece.block, call.id.clone())),
        _ => None,
    };
    pieces.filter_map(call).collect()
}

/// The kind of a piece of a call: with the id that it has, or the next one after `calls` calls.
fn call_kind(stream: Option<&OpenStream>, block: u32, name: &str, calls: u64) -> PieceKind {
    // Pieces of other blocks may have come since.
    let known = stream.and_then(|stream| stream.pieces.iter().rev().find(|piece| piece.block == block));
    match known.map(|piece| &piece.kind) {
        Some(kind @ PieceKind::Call(_)) => kind.clone(),
        _ => PieceKind::call(CallId(format!("c{}", calls + 1 + announced(stream).len() as u64)), name),
    }
}

/// The row of the questions table for an event of `session`.
pub fn question_fold(session: &SessionId, event: &Event) -> Option<Fold> {
    let (question, answer, by) = match &event.body {
        EventBody::PermissionResolved(PermissionResolved { permission, decision, by, .. }) => {
            (permission, (*decision != Decision::Cancelled).then(|| decision.name().to_owned()), by)
        }
        EventBody::QuestionResolved(QuestionResolved { question, answer, by, .. }) => (question, answer.clone(), by),
        _ => return PendingQuestion::of_event(session, event).map(|asked| Fold::Asked(Box::new(asked))),
    };
    Some(Fold::Answered { question: question.clone(), answer, by: by.clone(), at: event.at })
}

/// The row of a blob that `event` names; contents of files may be given up later.
pub fn blob_fold(held: Held, event: &Event) -> Fold {
    let is_named = |blobs: Vec<&BlobId>| blobs.contains(&held.id());
    if is_named(event.body.file_contents()) && !is_named(event.body.blobs()) {
        Fold::Content(held, event.seq.unwrap_or_default())
    } else {
        Fold::Blob(held)
    }
}

/// The usage that an answer adds to its day.
pub fn spent(event: &Event) -> Option<Fold> {
    match &event.body {
        EventBody::Message(MessageAdded { role: Role::Assistant, model, interrupted, usage, .. }) => {
            let (model, usage) = (model.clone().unwrap_or_default(), Usage::of_answer(*usage, *interrupted));
            Some(of_one(event, model, usage))
        }
        EventBody::Compacted(Compacted { model, usage, .. }) => {
            let (model, usage) = (model.clone().unwrap_or_default(), Usage::of_answer(*usage, false));
            Some(of_one(event, model, usage))
        }
        EventBody::CompactionFailed(CompactionFailed { model, usage: Some(usage), .. }) => {
            Some(of_one(event, model.clone().unwrap_or_default(), *usage))
        }
        EventBody::SessionChanged(SessionChanged { title_cost: Some(ModelCost { model, usage }), .. })
        | EventBody::ToolFinished(ToolFinished { model_cost: Some(ModelCost { model, usage }), .. }) => {
            Some(of_one(event, model.clone(), *usage))
        }
        _ => None,
    }
}

fn of_one(event: &Event, model: String, usage: Usage) -> Fold {
    Fold::Spent(Spent { day: event.at / DAY_MS, model, answers: 1, usage })
}

/// The variables of a session's tools, as they are stored.
pub fn environment(env: &BTreeMap<String, String>) -> Fold {
    match serde_json::to_string(env) {
        Ok(text) => Fold::Environment(text),
        Err(error) => Fold::Unencodable(format!("the variables cannot be encoded: {error}")),
    }
}

/// Encodes an event for the store. In the place of a result or a checkpoint that cannot be encoded it is one with the reason.
/// Fails with the reason for any other kind.
fn encode(mut event: Event) -> Result<(Event, Stored), String> {
    let why = match stored(&event) {
        Ok(stored) => return Ok((event, stored)),
        Err(error) => format!("cannot be recorded: {error}"),
    };
    event.body = in_place_of(event.body, &why)?;
    let stored = stored(&event).map_err(|error| error.to_string())?;
    Ok((event, stored))
}

/// The event that stands for one that cannot be encoded: the call ends with the reason, and nothing of it can be undone.
fn in_place_of(body: EventBody, why: &str) -> Result<EventBody, String> {
    match body {
        EventBody::ToolFinished(ToolFinished { call_id, outcome, ms, .. }) => {
            let content = vec![ContentBlock::text(format!("the call ended, but its result {why}"))];
            Ok(EventBody::ToolFinished(ToolFinished {
                call_id,
                is_error: true,
                outcome,
                content,
                output: Vec::new(),
                file: None,
                blob: None,
                diff: None,
                changes: Vec::new(),
                locations: Vec::new(),
                exit: None,
                model_cost: None,
                ms,
            }))
        }
        EventBody::Checkpoint(Checkpoint { checkpoint, call_id, since: Some(since), .. }) => {
            let taken = Checkpoint { checkpoint, call_id, since: Some(since), ..Checkpoint::default() };
            Ok(EventBody::Checkpoint(taken))
        }
        body => Err(format!("an event `{}` {why}", <&str>::from(&body))),
    }
}

/// An event as it is stored.
pub fn stored(event: &Event) -> serde_json::Result<Stored> {
    let stream = match &event.body {
        EventBody::Message(MessageAdded { message, role: Role::Assistant, .. }) => Some(message.0.clone()),
        EventBody::ToolFinished(ToolFinished { call_id, .. }) => Some(call_id.0.clone()),
        _ => None,
    };
    Ok(Stored {
        seq: event.seq.unwrap_or_default(),
        at: event.at,
        kind: <&str>::from(&event.body).to_owned(),
        stream,
        data: serde_json::to_string(event)?,
    })
}

/// The id and the content of a message.
pub(super) fn message_of(body: EventBody) -> Option<(MessageId, Vec<ContentBlock>)> {
    match body {
        EventBody::Message(MessageAdded { message, content, .. }) => Some((message, content)),
        _ => None,
    }
}

/// The notice about an unknown model.
pub fn unknown_model(warning: &str) -> EventBody {
    notice(Level::Warning, NoticeCode::UnknownModel, warning)
}

/// The notice about an effort without effect.
pub fn idle_effort(text: String) -> EventBody {
    EventBody::Notice(Notice { level: Level::Warning, code: None, text, until_at: None, since_at: None })
}

/// The notice about secret variables whose values were lost with a restart.
pub(super) fn missing_variables(missing: &[String]) -> EventBody {
    let text = format!(
        "tools do not get {} until a client brings it: the daemon was restarted, and keeps such values in memory alone; \
         attach, or prompt, from a shell that has it",
        missing.join(", ")
    );
    EventBody::Notice(Notice { level: Level::Warning, code: None, text, until_at: None, since_at: None })
}

pub(super) fn notice(level: Level, code: NoticeCode, text: &str) -> EventBody {
    EventBody::notice(level, code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_keeps_its_id_when_pieces_of_other_blocks_come_between() {
        let mut stream = OpenStream::new("m1".to_owned(), None);
        let mut ids = Vec::new();
        for block in [1, 2, 1, 0, 1, 2] {
            let kind = match block {
                0 => PieceKind::Text,
                _ => call_kind(Some(&stream), block, "ls", 3),
            };
            if let PieceKind::Call(call) = &kind {
                ids.push(call.id.0.clone());
            }
            let (offset, text) = (stream.pieces.len() as u64, "{".to_owned());
            stream.push(Piece { stream: "m1".to_owned(), block, offset, kind, text });
        }
        assert_eq!(ids, ["c4", "c5", "c4", "c4", "c5"]);
        assert_eq!(announced(Some(&stream)).len(), 2);
    }
}
