//! The prompts of this client, the queue of the session and its drafts. Pure.
//!
//! Our prompt is sent, accepted and started; its start may be seen before the answer to its request. After an error it is held until
//! /continue sends it again. After a cancel of ours it comes back into the line; after one of another client it is a draft.

use linger_protocol::event::{Compacted, CompactionFailed, Event, EventBody, MessageAdded, PromptAccepted};
use linger_protocol::id::PromptId;
use linger_protocol::message::{ContentBlock, text_of};
use linger_protocol::session::When;

use crate::terminal::clean_line;

/// A prompt as the user typed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TypedPrompt {
    /// The line, with what was pasted into it.
    pub(super) line: String,
    /// The output of the user's own commands that went with it.
    pub(super) ran: Vec<ContentBlock>,
    /// Whether it comes back into the line when we cancel the turn before it: it was queued, and is no compaction.
    pub(super) comes_back: bool,
}

/// A cancel of ours whose prompts come back into the line.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// The unfinished line; absent until the editor has given it up.
    pub(super) line: Option<String>,
    /// Whether the cancel is answered.
    pub(super) cancelled: bool,
    /// Ours that the daemon was asked for, in order; whether it has given them back, once that is answered.
    pub(super) asked: Vec<(PromptId, TypedPrompt, Option<bool>)>,
}

impl Returning {
    /// How many prompts the daemon was asked for.
    pub(super) fn count(&self) -> usize {
        self.asked.len()
    }
}

/// A prompt of ours.
#[derive(Debug, Default)]
struct Own {
    prompt: PromptId,
    typed: TypedPrompt,
}

/// Our prompts that have not started, and all that are queued or drafts.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    /// Ours that are not accepted yet, by the key of their request.
    sent: Vec<(Option<String>, TypedPrompt)>,
    /// Ours that are accepted and whose turn has not started.
    mine: Vec<Own>,
    /// Ours that wait for /continue.
    held: Vec<Own>,
    /// Ours whose turn started before their request was answered.
    begun: Vec<PromptId>,
    /// The latest prompt whose turn started.
    last_begun: Option<PromptId>,
    /// How many were queued when we attached.
    queued_before: u32,
    /// How many were drafts then.
    drafts_before: u32,
    /// The queued prompts, as far as their events came, by their first lines.
    queue: Vec<(PromptId, String)>,
    /// The steering ones, likewise.
    steering: Vec<(PromptId, String)>,
    /// The drafts, likewise.
    drafts: Vec<(PromptId, String)>,
    /// Ours that the daemon was asked to give back.
    asked_back: Vec<PromptId>,
}

impl Prompts {
    /// The prompts of a session that is entered while so many are queued and so many are drafts.
    pub(super) fn new(queued_before: u32, drafts_before: u32) -> Self {
        Self { queued_before, drafts_before, ..Self::default() }
    }

    /// Whether one of ours has not started.
    pub(super) fn any_unstarted(&self) -> bool {
        !self.sent.is_empty() || !self.mine.is_empty()
    }

    /// Whether a cancel of ours brings something back into the line.
    pub(super) fn any_to_come_back(&self) -> bool {
        self.sent.iter().map(|(_, typed)| typed).chain(self.mine.iter().map(|own| &own.typed)).any(|it| it.comes_back)
    }

    /// Whether every request of ours is answered.
    pub(super) fn all_answered(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn queued_before(&self) -> u32 {
        self.queued_before
    }

    pub(super) fn drafts_before(&self) -> u32 {
        self.drafts_before
    }

    /// The queued prompts and their first lines.
    pub(super) fn queue(&self) -> &[(PromptId, String)] {
        &self.queue
    }

    /// The drafts and their first lines.
    pub(super) fn drafts(&self) -> &[(PromptId, String)] {
        &self.drafts
    }

    /// How many will be read before the next step.
    pub(super) fn steering(&self) -> usize {
        self.steering.len()
    }

    /// The daemon is asked to give this one back: its event says nothing new.
    pub(super) fn ask_back(&mut self, prompt: PromptId) {
        self.asked_back.push(prompt);
    }

    /// The daemon has not given this one back.
    pub(super) fn not_back(&mut self, prompt: &PromptId) {
        self.asked_back.retain(|asked| asked != prompt);
    }

    /// Whether the event gives back one that was asked for.
    pub(super) fn gives_back(&mut self, body: &EventBody) -> bool {
        let EventBody::PromptUnqueued { prompt, .. } = body else { return false };
        let asked = self.asked_back.iter().position(|asked| asked == prompt);
        asked.map(|at| self.asked_back.swap_remove(at)).is_some()
    }

    /// The N-th of the list that /queue prints, and whether it is a draft; from 1 on.
    pub(super) fn listed(&self, n: usize) -> Option<(&PromptId, bool)> {
        let queued = self.queue.iter().map(|(prompt, _)| (prompt, false));
        queued.chain(self.drafts.iter().map(|(prompt, _)| (prompt, true))).nth(n.checked_sub(1)?)
    }

    /// A request with this key and a prompt is sent.
    pub(super) fn send(&mut self, key: Option<String>, typed: TypedPrompt) {
        self.sent.push((key, typed));
    }

    /// Such a request is answered, or was not sent after all: what was typed.
    pub(super) fn end_request(&mut self, key: Option<&String>) -> TypedPrompt {
        let at = self.sent.iter().position(|(sent, _)| sent.as_ref() == key);
        at.map(|at| self.sent.remove(at).1).unwrap_or_default()
    }

    /// A prompt of ours is accepted.
    pub(super) fn accept(&mut self, prompt: PromptId, typed: TypedPrompt) {
        match self.begun.iter().position(|begun| *begun == prompt) {
            Some(at) => drop(self.begun.remove(at)),
            None if self.drafts.iter().any(|(draft, _)| *draft == prompt) => self.held.push(Own { prompt, typed }),
            None => self.mine.push(Own { prompt, typed }),
        }
    }

    /// The turn of a prompt started, or its compaction ended.
    pub(super) fn start(&mut self, prompt: &PromptId) {
        self.last_begun = Some(prompt.clone());
        self.held.retain(|held| held.prompt != *prompt);
        match self.mine.iter().position(|mine| mine.prompt == *prompt) {
            Some(at) => drop(self.mine.remove(at)),
            None if !self.sent.is_empty() => self.begun.push(prompt.clone()),
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

    /// Takes our drafts that come back into the line, in the order of the queue.
    pub(super) fn take_to_come_back(&mut self) -> Vec<(PromptId, TypedPrompt)> {
        let is_back = |own: &Own| own.typed.comes_back && self.drafts.iter().any(|(draft, _)| *draft == own.prompt);
        let (back, held) = std::mem::take(&mut self.held).into_iter().partition(is_back);
        self.held = held;
        back.into_iter().map(|own: Own| (own.prompt, own.typed)).collect()
    }

    /// Keeps queue and drafts up to date.
    pub(super) fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::PromptAccepted(PromptAccepted { prompt, content, when, compact, .. }) => {
                let first = text_of(content).lines().next().map(clean_line).unwrap_or_default().into_owned();
                let text = if *compact { "/compact".to_owned() } else { first };
                let list = if *when == When::Queue { &mut self.queue } else { &mut self.steering };
                list.push((prompt.clone(), text));
            }
            EventBody::PromptDrafted { prompt } => {
                let taken = take(&mut self.queue, prompt).or_else(|| take(&mut self.steering, prompt));
                self.drafts.push(taken.unwrap_or_else(|| (prompt.clone(), prompt.to_string())));
                let at = self.mine.iter().position(|mine| mine.prompt == *prompt);
                self.held.extend(at.map(|at| self.mine.remove(at)));
            }
            EventBody::DraftSent { prompt, .. } => {
                let taken = take(&mut self.drafts, prompt);
                self.queue.push(taken.unwrap_or_else(|| (prompt.clone(), prompt.to_string())));
                let at = self.held.iter().position(|held| held.prompt == *prompt);
                self.mine.extend(at.map(|at| self.held.remove(at)));
            }
            EventBody::PromptUnqueued { prompt, .. } => {
                self.forget(prompt);
                take(&mut self.drafts, prompt);
                self.mine.retain(|mine| mine.prompt != *prompt);
                self.held.retain(|held| held.prompt != *prompt);
            }
            EventBody::TurnStarted { prompt }
            | EventBody::Message(MessageAdded { prompt: Some(prompt), .. })
            | EventBody::Compacted(Compacted { prompt: Some(prompt), .. })
            | EventBody::CompactionFailed(CompactionFailed { prompt: Some(prompt), .. }) => self.forget(prompt),
            // The queued prompts are the origin's.
            EventBody::Forked(_) => {
                self.queue.clear();
                self.steering.clear();
                self.drafts.clear();
            }
            _ => {}
        }
    }

    /// A prompt is not queued any more.
    fn forget(&mut self, prompt: &PromptId) {
        take(&mut self.queue, prompt);
        take(&mut self.steering, prompt);
    }
}

/// Takes a prompt out of a list.
fn take(list: &mut Vec<(PromptId, String)>, prompt: &PromptId) -> Option<(PromptId, String)> {
    let at = list.iter().position(|(listed, _)| listed == prompt)?;
    Some(list.remove(at))
}

#[cfg(test)]
#[path = "prompts_tests.rs"]
mod tests;
