//! The prompts of this client and the queue of the session. Pure.
//!
//! Our prompt is sent, accepted and started; its start may be seen before the answer to its request. After a cancel it is
//! held, until /continue sends it again.

use linger_protocol::event::{Compacted, CompactionFailed, Event, EventBody, MessageAdded, PromptAccepted};
use linger_protocol::id::PromptId;
use linger_protocol::message::text_of;
use linger_protocol::session::When;

use crate::terminal::clean_line;

/// Our prompts that have not started, and all that are queued.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    /// How many of ours are not accepted yet.
    sent: usize,
    /// Ours that are accepted and whose turn has not started.
    mine: Vec<PromptId>,
    /// Ours that wait for /continue.
    held: Vec<PromptId>,
    /// Ours whose turn started before their request was answered.
    begun: Vec<PromptId>,
    /// The latest prompt whose turn started.
    last_begun: Option<PromptId>,
    /// How many were queued when we attached.
    queued_before: u32,
    /// The queued prompts, as far as their events came, by their first lines.
    queue: Vec<(PromptId, String)>,
}

impl Prompts {
    /// The prompts of a session that is entered while `queued_before` are queued.
    pub(super) fn new(queued_before: u32) -> Self {
        Self { queued_before, ..Self::default() }
    }

    /// Whether one of ours has not started.
    pub(super) fn any_unstarted(&self) -> bool {
        self.sent > 0 || !self.mine.is_empty()
    }

    pub(super) fn queued_before(&self) -> u32 {
        self.queued_before
    }

    /// The queued prompts and their first lines.
    pub(super) fn queue(&self) -> &[(PromptId, String)] {
        &self.queue
    }

    /// A request with a prompt is sent.
    pub(super) fn send(&mut self) {
        self.sent += 1;
    }

    /// Such a request is answered, or was not sent after all.
    pub(super) fn end_request(&mut self) {
        self.sent = self.sent.saturating_sub(1);
    }

    /// A prompt of ours is accepted.
    pub(super) fn accept(&mut self, prompt: PromptId) {
        match self.begun.iter().position(|begun| *begun == prompt) {
            Some(at) => drop(self.begun.remove(at)),
            None => self.mine.push(prompt),
        }
    }

    /// The turn of a prompt started, or its compaction ended.
    pub(super) fn start(&mut self, prompt: &PromptId) {
        self.last_begun = Some(prompt.clone());
        self.held.retain(|held| held != prompt);
        match self.mine.iter().position(|mine| mine == prompt) {
            Some(at) => drop(self.mine.remove(at)),
            None if self.sent > 0 => self.begun.push(prompt.clone()),
            None => {}
        }
    }

    /// Whether this prompt started last.
    pub(super) fn started_last(&self, prompt: &PromptId) -> bool {
        self.last_begun.as_ref() == Some(prompt)
    }

    /// Ours wait for /continue.
    pub(super) fn hold(&mut self) {
        self.held.append(&mut self.mine);
    }

    /// The held ones are sent again.
    pub(super) fn release(&mut self) {
        self.mine.append(&mut self.held);
    }

    /// Keeps the queue up to date.
    pub(super) fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::PromptAccepted(PromptAccepted { prompt, content, when: When::Queue, compact, .. }) => {
                let first = text_of(content).lines().next().map(clean_line).unwrap_or_default().into_owned();
                let text = if *compact { "/compact".to_owned() } else { first };
                self.queue.push((prompt.clone(), text));
            }
            EventBody::TurnStarted { prompt }
            | EventBody::PromptUnqueued { prompt, .. }
            | EventBody::Message(MessageAdded { prompt: Some(prompt), .. })
            | EventBody::Compacted(Compacted { prompt: Some(prompt), .. })
            | EventBody::CompactionFailed(CompactionFailed { prompt: Some(prompt), .. }) => {
                self.queue.retain(|(queued, _)| queued != prompt);
            }
            // The queued prompts are the origin's.
            EventBody::Forked(_) => self.queue.clear(),
            _ => {}
        }
    }
}
