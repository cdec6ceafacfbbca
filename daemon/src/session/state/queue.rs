//! The queued prompts of a session.

use std::collections::VecDeque;
use std::sync::Arc;

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::PromptAccepted;
use linger_protocol::id::{PromptId, SessionId};
use linger_protocol::message::{ContentBlock, StopReason};
use linger_protocol::session::{Until, When};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::State;

/// The queued prompts of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptQueue {
    /// The prompts, in order.
    #[serde(rename = "queue", skip_serializing_if = "VecDeque::is_empty")]
    pub prompts: VecDeque<Queued>,
    /// Whether they wait for the user, because the last turn was cancelled or failed.
    pub held: bool,
    /// The prompts that were queued when a turn was cancelled, in order: each runs only when it is sent again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<Queued>,
}

/// A queued prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// Its id: `p` and a number.
    pub prompt: PromptId,
    /// The seq of its `prompt_accepted`.
    pub seq: u64,
    /// The content; stored in that event, and read from it at load.
    #[serde(skip)]
    pub content: Vec<ContentBlock>,
    /// When it starts.
    pub when: When,
    /// Whether it is a compaction, which does not become a message.
    #[serde(default)]
    pub compact: bool,
    /// The output schema; stored like the content.
    #[serde(skip)]
    pub schema: Option<Arc<Value>>,
    /// The check that has to pass before its turn ends well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// The child whose words it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<SessionId>,
    /// The command lines that run first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// The limits of the skill that it names, for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<SkillLimit>,
    /// Whether its sender waits for the answer: a cancel takes it back.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub awaited: bool,
}

impl PromptQueue {
    /// The prompts that do not wait for the end of the turn.
    pub fn steering(&self) -> impl Iterator<Item = &Queued> {
        self.prompts.iter().filter(|queued| queued.when != When::Queue && !queued.compact)
    }

    /// Adds a prompt, which the event `seq` has.
    pub(super) fn push(&mut self, accepted: &PromptAccepted, seq: u64) {
        self.prompts.push_back(Queued {
            prompt: accepted.prompt.clone(),
            seq,
            content: accepted.content.clone(),
            when: accepted.when,
            compact: accepted.compact,
            schema: accepted.schema.clone().map(Arc::new),
            until: accepted.until.clone(),
            child: accepted.child.clone(),
            runs: accepted.runs.clone(),
            limit: accepted.limit.clone(),
            awaited: accepted.awaited,
        });
    }

    /// The prompts and the drafts: all whose content is kept.
    pub fn all(&self) -> impl Iterator<Item = &Queued> {
        self.prompts.iter().chain(&self.drafts)
    }

    /// The prompts that a cancel takes out of the queue, but for that of the turn itself; words of children stay, which no user said.
    pub fn overtaken(&self, own: &[&PromptId]) -> impl Iterator<Item = &Queued> {
        self.prompts.iter().filter(|queued| queued.child.is_none() && !own.contains(&&queued.prompt))
    }

    /// A queued prompt becomes a draft.
    pub(super) fn draft(&mut self, prompt: &PromptId) {
        if let Some(queued) = self.take(prompt) {
            self.drafts.push(queued);
        }
    }

    /// A draft is queued again. A turn that it was to steer is over.
    pub(super) fn send(&mut self, prompt: &PromptId) {
        if let Some(at) = self.drafts.iter().position(|draft| draft.prompt == *prompt) {
            let draft = self.drafts.remove(at);
            let when = if draft.compact { draft.when } else { When::Queue };
            self.prompts.push_back(Queued { when, ..draft });
        }
    }

    /// Forgets a prompt that was taken back.
    pub(super) fn take_back(&mut self, prompt: &PromptId) {
        if self.take(prompt).is_none() {
            self.drafts.retain(|draft| draft.prompt != *prompt);
        }
    }

    /// Takes a prompt out, if it is there.
    pub(super) fn take(&mut self, prompt: &PromptId) -> Option<Queued> {
        let at = self.prompts.iter().position(|queued| queued.prompt == *prompt)?;
        self.prompts.remove(at)
    }
}

impl State {
    /// Whether a queued prompt should start a turn: after a crash the next daemon must start it.
    pub fn has_due_prompt(&self) -> bool {
        self.turn.is_none() && !self.queue.held && !self.queue.prompts.is_empty()
    }

    /// The prompt that starts the next turn. After a cancel the user's next words come before those of children, which wait for them.
    pub fn next_prompt(&self) -> Option<&Queued> {
        let mut prompts = self.queue.prompts.iter();
        let waits_for_user = self.queue.held && self.progress.stop_reason == Some(StopReason::Cancelled);
        let of_user = if waits_for_user { prompts.find(|queued| queued.child.is_none()) } else { None };
        of_user.or_else(|| self.queue.prompts.front())
    }

    pub(super) fn hold_queue(&mut self, held: bool) {
        if self.queue.held != held {
            self.queue.edit().held = held;
        }
    }

    /// Forgets the prompts whose event is lost: their content is in it.
    pub fn retain_prompts(&mut self, keep: impl Fn(u64) -> bool) {
        let queue = self.queue.edit();
        queue.prompts.retain(|queued| keep(queued.seq));
        queue.drafts.retain(|queued| keep(queued.seq));
    }

    /// Restores a queued prompt's content and schema, which are stored in the event `seq` alone.
    pub fn restore_prompt(&mut self, seq: u64, content: Vec<ContentBlock>, schema: Option<Value>) {
        let queue = self.queue.edit();
        if let Some(queued) = queue.prompts.iter_mut().chain(&mut queue.drafts).find(|queued| queued.seq == seq) {
            (queued.content, queued.schema) = (content, schema.map(Arc::new));
        }
    }
}
