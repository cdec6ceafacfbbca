//! The unfinished turn and the queued prompts in a session's state: types, and queries over them. Pure.

use std::sync::Arc;

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::{AfterCrash, Outcome};
use linger_protocol::id::{CallId, MessageId, PromptId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Usage};
use linger_protocol::session::{self, Until, When};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::question::{QuestionState, STOP};
use crate::session::circles::{Circles, Made};
use crate::session::compaction::Effort;
use crate::session::until::UntilState;

/// After this many crashes without a finished step a turn is offered, not resumed.
const MAX_CRASHES: u32 = 3;

/// A queued prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The prompt.
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
    /// What the skill that it names limits its turn to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<SkillLimit>,
}

/// The output schema of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The seq of the `prompt_accepted` with the schema.
    pub seq: u64,
    /// The schema; read from that event at load.
    #[serde(skip)]
    pub schema: Arc<Value>,
    /// Whether the model was told it in a message.
    pub said: bool,
    /// The number of answers that did not fit.
    pub misfits: u32,
}

/// An unfinished turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The turn.
    pub id: TurnId,
    /// The prompt that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Steps that have finished.
    pub steps: u32,
    /// How many steps children took whose calls are its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub child_steps: u32,
    /// Tokens so far.
    pub usage: Usage,
    /// The calls of the last assistant message, until their results are a message.
    pub calls: Vec<Call>,
    /// Questions that block one of `calls` or the turn, with their answers if given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionState>,
    /// Crashes of the daemon since the last finished step.
    pub crashes: u32,
    /// Whether it waits for a user to resume it.
    pub offered: bool,
    /// Whether it is offered only until there is a good configuration.
    #[serde(default)]
    pub unconfigured: bool,
    /// Whether the daemon ended in good order, so that resuming counts as no crash.
    pub paused: bool,
    /// Whether it waits for a key, or for the confirmation of its provider.
    pub key_missing: bool,
    /// What it waits for while its provider cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait: Option<session::ProviderWait>,
    /// Attempts of the current step that broke off in the middle of an answer.
    #[serde(default)]
    pub broken_off: u32,
    /// Whether the last answer hit the token limit, so that its calls may be incomplete.
    pub cut: bool,
    /// How often that answer was continued.
    #[serde(default)]
    pub continued: u32,
    /// Whether the last answer is paused and the next step continues it.
    #[serde(default)]
    pub goes_on: bool,
    /// An interrupted message that is not superseded yet; its step must be repeated.
    pub interrupted: Option<MessageId>,
    /// The compaction prompt that is the turn's only purpose, unless another prompt arrives.
    #[serde(default)]
    pub compacts: Option<PromptId>,
    /// The running compaction.
    #[serde(default)]
    pub compaction: Option<Compaction>,
    /// What the current step did to make room.
    #[serde(default)]
    pub effort: Effort,
    /// The output schema of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// The check that has to pass before it ends well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilState>,
    /// The command lines that run before its next step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
    /// Its latest calls, to notice those that repeat.
    #[serde(default, skip_serializing_if = "Circles::is_empty")]
    pub circles: Circles,
    /// How many children it has started.
    #[serde(default)]
    pub delegated: u32,
    /// What the skills limit it to that it has read, as they were then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<SkillLimit>,
}

/// A command line that a prompt's command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// Its call, once it was announced.
    pub call: Option<CallId>,
    /// How that ended.
    pub outcome: Option<Outcome>,
}

/// A running compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// The prompt that requested it, if any.
    pub prompt: Option<PromptId>,
    /// The approximate size of the context, in tokens.
    pub tokens: u64,
}

/// A tool call of the current step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The call.
    pub id: CallId,
    /// Whether it has started.
    pub started: bool,
    /// How a restart treats it after its start.
    #[serde(default, skip_serializing_if = "AfterCrash::is_unknown")]
    pub after_crash: AfterCrash,
    /// Whether it has its result.
    pub finished: bool,
    /// What it is, to notice calls that repeat.
    #[serde(default)]
    pub made: Made,
    /// Whether it is the check of the turn, which no model made: its result is no message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_check: bool,
}

impl Call {
    /// Whether it ran when the turn's task ended, so that its outcome is unknown.
    pub fn is_lost(&self) -> bool {
        self.started && !self.finished && self.after_crash.is_unknown()
    }
}

impl Turn {
    /// The unanswered questions of the turn.
    pub fn waiting(&self) -> impl Iterator<Item = &QuestionState> {
        self.questions.iter().filter(|asked| asked.answer.is_none())
    }

    /// The question about the turn that a user answered with the end of it.
    pub fn ended_by_answer(&self) -> Option<&QuestionState> {
        let is_end = |asked: &&QuestionState| asked.about.is_some() && asked.call.is_none() && asked.is_answered(STOP);
        self.questions.iter().find(is_end)
    }

    /// Whether its next step waits for an answer.
    pub fn is_held(&self) -> bool {
        self.waiting().any(|asked| asked.call.is_none())
    }

    /// The permission that a call needed.
    pub fn permission(&self, call: &CallId) -> Option<&QuestionState> {
        self.questions.iter().find(|asked| asked.grant().is_some() && asked.call.as_ref() == Some(call))
    }

    /// Notes what a skill limits it to that it has read.
    pub(super) fn add_limit(&mut self, limit: SkillLimit) {
        if !self.limits.contains(&limit) {
            self.limits.push(limit);
        }
    }

    /// Drops the questions of closed calls.
    pub(super) fn forget_closed(&mut self) {
        let Self { calls, questions, .. } = self;
        questions.retain(|asked| asked.call.as_ref().is_none_or(|of| calls.iter().any(|call| call.id == *of)));
    }

    /// Whether it has had too many crashes to be resumed automatically.
    pub fn is_hopeless(&self) -> bool {
        // The one that it was found after counts.
        self.was_cut() && self.crashes + 1 >= MAX_CRASHES
    }

    /// Whether the daemon's end counts as a crash of this turn: not if it ended in good order, nor while the turn waits for an answer
    /// or for its provider.
    pub fn was_cut(&self) -> bool {
        !self.paused && self.provider_wait.is_none() && self.waiting().next().is_none()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
