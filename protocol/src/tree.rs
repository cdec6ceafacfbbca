//! Sessions as a tree: forks, going back to a prompt, and what a compaction replaced.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::Role;
use crate::budget::Budget;
use crate::checkpoint::Uncertain;
use crate::event::{FileChange, Process};
use crate::id::{MessageId, PromptId, SessionId};
use crate::mcp::SessionServer;
use crate::patience::Patience;
use crate::permission::Mode;
use crate::session::Effort;
use crate::unattended::Unattended;

/// Where a fork left its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// The session that it goes on from; it may have been removed since.
    pub session: SessionId,
    /// The last event that both have.
    pub seq: u64,
}

/// `session/fork`: a new session that goes on from a point of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fork {
    /// The session to fork.
    pub session: SessionId,
    /// The id of a message or of a prompt. After an answer the fork goes on from its end, with the results of its calls; of a
    /// prompt it goes on from before it. The latest finished step when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// A name, unique among sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the fork works, absolute; the session's directory when absent. It takes a process that is known to be the user's.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// Idempotency key: sent twice, there is one fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/fork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkMade {
    /// The fork.
    pub session: SessionId,
    /// Where it left its origin.
    pub origin: Origin,
    /// Its model, `provider/model`.
    pub model: String,
    /// Its mode: the stricter of the origin's and the configuration's.
    pub mode: Mode,
    /// Text of the prompt that the fork starts before, to edit and resend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// `session/rewind`: a session goes on from before one of its prompts; what it leaves stays, as a fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rewind {
    /// The session to rewind.
    pub session: SessionId,
    /// The prompt, or its message; the latest prompt when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<PromptId>,
    /// Also put back the files that its turns changed since, as `session/undo` does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
    /// With `files`: what becomes of changes that an editor or another program may have made while a command ran; absent: `ask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<Uncertain>,
    /// Whether to undo files too that somebody changed since, and changes that are uncertain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/rewind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RewindDone {
    /// The fork that has what the session left.
    pub branch: SessionId,
    /// The last event that still counts.
    pub to: u64,
    /// The prompt that it went back to.
    pub prompt: PromptId,
    /// The text of that prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The change of each file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
}

/// `session/prompts`: the prompts that a session can go back to, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prompts {
    /// The session whose prompts are listed.
    pub session: SessionId,
    /// At most this many; 100 when absent, and at most 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A row of `session/prompts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptRow {
    /// The prompt to go back to.
    pub prompt: PromptId,
    /// The user message of the prompt.
    pub message: MessageId,
    /// When it entered the history, in Unix milliseconds.
    pub at: u64,
    /// The beginning of what it says, in one line.
    pub text: String,
}

/// The beginning of a fork: everything that it has not from the events before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// Where it left its origin: `seq` is the number of the event before this one.
    pub origin: Origin,
    /// The working directory, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `provider/model`.
    pub model: String,
    /// The permission mode. What the origin's answers allowed is not allowed here.
    pub mode: Mode,
    /// A name that a user gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The beginning of its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How hard the model thinks, where that was said.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
    /// The only tools that it has; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The agent that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Role>,
    /// Its own part of the system prompt, beside the daemon's, as the creator of the first one wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The directories that a user added.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub additional_directories: Vec<PathBuf>,
    /// The MCP servers that a client brought for the origin, and which are the fork's too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<SessionServer>,
    /// Its budget, of which nothing is spent.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// How a question that no person answers is treated.
    #[serde(default, skip_serializing_if = "Unattended::holds")]
    pub unattended: Unattended,
    /// How long a turn waits while its provider cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in while its provider cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// About how many tokens its context has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// When the conversation was started, in Unix milliseconds: when the session without an origin was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// The event before its latest turn.
    #[serde(default)]
    pub before_turn: u64,
    /// How many of each the origin had: the fork's own ids come after these.
    pub counts: IdCounts,
}

/// How many turns, messages, calls, prompts and commands in the background a session had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdCounts {
    /// Turns of the session.
    pub turns: u64,
    /// Messages of the session.
    pub messages: u64,
    /// Tool calls.
    pub calls: u64,
    /// Prompts of the session.
    pub prompts: u64,
    /// Commands in the background.
    #[serde(default)]
    pub background: u64,
}

/// A session went back: the events between `to` and this one are no part of its conversation any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rewound {
    /// The last event that still counts.
    pub to: u64,
    /// The prompt that comes after it.
    pub prompt: PromptId,
    /// The fork that has what was left.
    pub branch: SessionId,
    /// Whether the files that were changed since were put back before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
    /// About how many tokens the context has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The client that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The process that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

/// `session/compaction`: the compactions of a session's conversation, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compactions {
    /// The session whose compactions are listed.
    pub session: SessionId,
}

/// A row of `session/compaction`: what was replaced in the context, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionRow {
    /// The number of its `compacted`.
    pub seq: u64,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// The last message that it replaces; all before it are too.
    pub through: MessageId,
    /// How many messages it replaces; an earlier summary counts as one.
    pub messages: u32,
    /// The summary that the model reads in their place.
    pub summary: String,
    /// About how many tokens the context had.
    pub tokens_before: u64,
    /// About how many it had then.
    pub tokens_after: u64,
    /// Whether it was taken back: the model reads the messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
}

/// `session/uncompact`: takes back the latest compaction, while the messages fit the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Uncompact {
    /// The session whose compaction is undone.
    pub session: SessionId,
    /// Idempotency key: sent twice, it happens once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A compaction was taken back: the model reads the messages again that it had replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Uncompacted {
    /// The number of its `compacted`.
    pub compacted: u64,
    /// How many messages it had replaced.
    pub messages: u32,
    /// About how many tokens the context has now.
    pub tokens: u64,
    /// The client that asked for it; absent in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The process that asked for it; absent in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}
