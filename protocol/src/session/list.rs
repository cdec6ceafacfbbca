//! `session/list`: sessions, as lists show them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attention::LastRead;
use crate::budget::Budget;
use crate::child::{ChildUpdate, Delegated};
use crate::id::{BackgroundId, Cursor, PermissionId, QuestionId, SessionId};
use crate::message::{StopReason, Usage};
use crate::permission::Mode;
use crate::session::Effort;
use crate::tree::Origin;
use crate::unattended::Unattended;

/// `session/list`: sessions, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// Only sessions with this name or id, or whose id begins with this; a beginning has at least four characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<String>,
    /// Only sessions with this working directory.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// Only sessions in the bin; without it, only those that are not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bin: bool,
    /// Leave out sessions that were made for one prompt and have no name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lasting: bool,
    /// At most this many; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only those that come after this one: the last row of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// A row of `session/list`, of which these two fields count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Before {
    /// When it last changed, in Unix milliseconds; notices between turns do not count.
    pub updated_at: u64,
    /// Orders rows of the same time.
    pub session: SessionId,
}

/// The present activity of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No turn.
    #[default]
    Idle,
    /// A turn is running.
    Running,
    /// A turn is running and cannot continue without an answer or a key.
    Waiting,
    /// A turn was interrupted and waits; `session/continue` or a prompt resumes it.
    Offered,
}

/// A wait for a provider that cannot answer. The turn tries again by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderWait {
    /// The last failure, one line for people.
    pub reason: String,
    /// When it began, in Unix milliseconds; a restart of the daemon does not change it.
    pub since_at: u64,
    /// The next try, in Unix milliseconds; once that has passed, at most 30 s go by between two tries.
    pub until_at: u64,
}

/// A row of `session/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Info {
    /// Unique, and never used again.
    pub session: SessionId,
    /// Unique among sessions; absent until it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its working directory.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `provider/model`.
    pub model: String,
    /// The only tools that it has; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The directories that a user added, which its file tools treat like `cwd`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub additional_directories: Vec<PathBuf>,
    /// Its permission mode.
    pub mode: Mode,
    /// How a question that no person answers is treated, unless it waits.
    #[serde(default, skip_serializing_if = "Unattended::holds")]
    pub unattended: Unattended,
    /// Limits of its steps, cost and time.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// The sums at which it asks next: the budget, raised by each answer to go on.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub pauses_at: Budget,
    /// How long its turns have run, in milliseconds, as `budget` counts it; kept up to date by its events.
    #[serde(default)]
    pub worked_ms: u64,
    /// How hard its model thinks, where that was said.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
    /// Its present activity.
    pub state: State,
    /// The obstacle that its turn waits for while its provider cannot answer; `state` is `running` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait: Option<ProviderWait>,
    /// How its last turn ended, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Prompts that wait for their turn.
    pub queued: u32,
    /// Prompts that waited when a turn was cancelled, and run only when they are sent again (`session/continue`).
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub drafts: u32,
    /// Permissions that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionId>,
    /// Questions of any kind that wait for an answer, permissions among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionId>,
    /// The commands that it runs in the background.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<Background>,
    /// Its title: the one that a model gave it, else the beginning of its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The session that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session that it goes on from, and where it left it, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Its task for its parent, if a call of `delegate` started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
    /// The children whose tasks are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildUpdate>,
    /// Whether it was made for one prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// When it was put into the bin, in Unix milliseconds, if it is there; 30 days later it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binned_at: Option<u64>,
    /// Whether `retention` of the configuration put it into the bin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_retention: bool,
    /// The name of the agent that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Tokens over all its turns.
    pub usage: Usage,
    /// About how many tokens its context has, as its provider counted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// How many tokens its model takes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Bytes that it takes on the disk: its events, and the blobs that they name.
    #[serde(default)]
    pub size: u64,
    /// When it was created, in Unix milliseconds.
    pub created_at: u64,
    /// When it last changed, in Unix milliseconds.
    pub updated_at: u64,
    /// The end of its log: attach after this to see only what is new.
    pub cursor: Cursor,
    /// The beginning of its latest turn: attach after this to see that turn.
    pub turn_cursor: Cursor,
    /// How far a person had read when the last terminal left it; absent if no terminal was ever attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<LastRead>,
    /// The reason why it cannot be read; other fields may then be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// Why nothing of it can be written just now; the session resumes when writing works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
}

/// A command that runs in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Background {
    /// Its handle.
    pub background: BackgroundId,
    /// The command line.
    pub command: String,
    /// When it was started, in Unix milliseconds.
    pub started_at: u64,
}
