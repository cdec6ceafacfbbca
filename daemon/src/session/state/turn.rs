//! The unfinished turn in a session's state: types, and queries over them; `fold` changes it. Pure.

mod fold;

use std::sync::Arc;

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::{AfterCrash, Outcome};
use linger_protocol::id::{CallId, MessageId, PromptId, TurnId};
use linger_protocol::message::Usage;
use linger_protocol::session::ProviderWait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::is_default;
use super::question::{QuestionState, STOP};
use crate::session::state::circles::{CallFingerprint, Circles};
use crate::session::state::until::UntilState;

/// After this many crashes without a finished step a turn is offered, not resumed.
const MAX_CRASHES: u32 = 3;

/// The tries of a step to make room in the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Whether the summary succeeded; absent if none was tried.
    pub compacted: Option<bool>,
    /// Whether it tried to trim older output.
    pub trimmed: bool,
    /// Whether the last trim found nothing more; reset by a restart.
    #[serde(skip)]
    pub exhausted: bool,
    /// Whether the provider was unreachable for the summary; reset by a restart.
    #[serde(skip)]
    pub unreached: bool,
    /// Whether old text was cut off without a summary; reset by a restart.
    #[serde(skip)]
    pub cut_off: bool,
}

/// An unfinished turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its id: `t` and a number.
    pub id: TurnId,
    /// The prompt that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Steps that have finished.
    pub steps: u32,
    /// Steps of children whose calls are its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub child_steps: u32,
    /// Children that it has started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delegated: u32,
    /// Tokens so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// The calls of the last assistant message, until their results are a message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallState>,
    /// Questions that block one of `calls` or the turn, with their answers if given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionState>,
    /// Its latest calls, to notice those that repeat.
    #[serde(default, skip_serializing_if = "Circles::is_empty")]
    pub circles: Circles,
    /// Why it may not run.
    #[serde(flatten)]
    pub wait: TurnWait,
    /// The answer under way, or the last one.
    #[serde(flatten)]
    pub answer: AnswerState,
    /// The demands of its prompts.
    #[serde(flatten)]
    pub demands: Demands,
    /// How it makes room in the context.
    #[serde(flatten)]
    pub room: Room,
}

/// Why a turn may not run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnWait {
    /// Crashes of the daemon since the last finished step.
    #[serde(skip_serializing_if = "is_default")]
    pub crashes: u32,
    /// Whether it waits for a user to resume it.
    #[serde(skip_serializing_if = "is_default")]
    pub offered: bool,
    /// Whether it is offered only until there is a good configuration.
    #[serde(skip_serializing_if = "is_default")]
    pub unconfigured: bool,
    /// Whether the daemon ended in good order, so that resuming counts as no crash.
    #[serde(skip_serializing_if = "is_default")]
    pub paused: bool,
    /// Whether it waits for a key, or for the confirmation of its provider.
    #[serde(skip_serializing_if = "is_default")]
    pub key_missing: bool,
    /// The reason and times while its provider cannot answer.
    #[serde(rename = "provider_wait", skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderWait>,
}

/// The answer under way, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerState {
    /// Attempts of the current step that broke off in the middle of an answer.
    #[serde(skip_serializing_if = "is_default")]
    pub broken_off: u32,
    /// Whether the last answer hit the token limit, so that its calls may be incomplete.
    #[serde(skip_serializing_if = "is_default")]
    pub cut: bool,
    /// How often that answer was continued.
    #[serde(skip_serializing_if = "is_default")]
    pub continued: u32,
    /// Whether the last answer is paused and the next step continues it.
    #[serde(rename = "goes_on", skip_serializing_if = "is_default")]
    pub paused: bool,
    /// An interrupted message that is not superseded yet; its step must be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<MessageId>,
}

/// The demands of a turn's prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demands {
    /// The output schema of its answer.
    #[serde(rename = "shape", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<SchemaState>,
    /// The check that has to pass before it ends well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilState>,
    /// The command lines that run before its next step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
    /// The limits of the skills that it has read, as they were then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<SkillLimit>,
}

/// How a turn makes room in the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Room {
    /// The compaction prompt that is the turn's only purpose, unless another prompt arrives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compacts: Option<PromptId>,
    /// The running compaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    /// The tries of the current step.
    #[serde(skip_serializing_if = "is_default")]
    pub effort: Effort,
}

/// The output schema of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchemaState {
    /// The seq of the `prompt_accepted` with the schema.
    pub seq: u64,
    /// The schema; read from that event at load.
    #[serde(skip)]
    pub schema: Arc<Value>,
    /// Whether the model was told it in a message.
    #[serde(rename = "said")]
    pub sent: bool,
    /// The number of answers that did not fit.
    pub misfits: u32,
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
pub struct CallState {
    /// Its id: `c` and a number.
    pub id: CallId,
    /// Whether it has started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started: bool,
    /// How a restart treats it after its start.
    #[serde(default, skip_serializing_if = "AfterCrash::is_unknown")]
    pub after_crash: AfterCrash,
    /// Whether it has its result.
    #[serde(default, skip_serializing_if = "is_default")]
    pub finished: bool,
    /// Its tool and arguments as a hash, to notice calls that repeat.
    #[serde(default)]
    pub made: CallFingerprint,
    /// Whether it is the check of the turn, which no model made: its result is no message.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_check: bool,
}

impl CallState {
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

    /// Whether this call has no result yet.
    pub fn is_open(&self, call: &CallId) -> bool {
        self.calls.iter().any(|open| open.id == *call && !open.finished)
    }

    /// Whether it has had too many crashes to be resumed automatically.
    pub fn is_hopeless(&self) -> bool {
        // The one that it was found after counts.
        self.was_cut() && self.wait.crashes + 1 >= MAX_CRASHES
    }

    /// Whether the daemon's end counts as a crash of this turn: not if it ended in good order, nor while the turn waits for an answer
    /// or for its provider.
    pub fn was_cut(&self) -> bool {
        !self.wait.paused && self.wait.provider.is_none() && self.waiting().next().is_none()
    }
}
