//! Turns: prompts, the queue, cancelling and continuing, and compaction.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{PromptId, SessionId};
use crate::prompt::PromptContent;

/// `session/cancel`: stops the session's turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cancel {
    /// The session whose turn is stopped.
    pub session: SessionId,
    /// Also end its commands in the background.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/continue`: resumes the turn, or starts what waits for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Continue {
    /// The session that goes on.
    pub session: SessionId,
    /// Send only this draft; when absent, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// When a prompt takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// After the running turn, in a turn of its own.
    #[default]
    Queue,
    /// Before the next step of the running turn.
    Steer,
    /// Now: the running step is cancelled, and the turn continues with this prompt.
    Interrupt,
}

/// `session/prompt`: gives the session something to do; answers once the prompt is on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prompt {
    /// The session to prompt.
    pub session: SessionId,
    /// The user's content.
    pub content: PromptContent,
    /// When it takes effect; `queue` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// JSON Schema that the answer has to fit.
    #[serde(default, deserialize_with = "crate::prompt::schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A check that has to pass before the turn ends well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Whether a text that begins with `/NAME` names a command or a skill (`command/list`, `skill/list`), which the daemon puts in
    /// its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expand: bool,
    /// Whether the sender waits for the answer, as a program does: if the turn before it is cancelled, the prompt is taken back
    /// (`prompt_unqueued`), and otherwise it becomes a draft for its user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
    /// Values of secret variables that the session was created with; others are ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Idempotency key: sent twice, the prompt happens once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A check of the work of a turn: a command that the daemon runs when the turn would end, by permission like one of `bash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Until {
    /// The command; it passes if it exits with 0.
    pub command: String,
    /// How often its failure is the next prompt, from 1 to 10; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
}

impl Until {
    /// The most tries: each costs a whole turn's work, and a model that has failed so often needs a person.
    pub const MAX_TRIES: u32 = 10;

    /// The tries that it means.
    pub fn tries(&self) -> u32 {
        self.tries.unwrap_or(Self::MAX_TRIES)
    }
}

/// The result of `session/prompt` and `session/compact`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prompted {
    /// Unique in its session.
    pub prompt: PromptId,
    /// The `seq` of its `prompt_accepted`.
    pub seq: u64,
}

/// `session/compact`: has the model write a summary that stands for older messages in the context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compact {
    /// The session to compact.
    pub session: SessionId,
    /// The topic that the summary should keep in view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// Idempotency key: sent twice, it happens once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/unqueue`: takes back a prompt that waits for its turn, or a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unqueue {
    /// The session with the waiting prompts.
    pub session: SessionId,
    /// This one; when absent, the one that came last, and a draft only if none is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/unqueue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unqueued {
    /// The prompt that was taken back.
    pub prompt: PromptId,
}
