//! Children: sessions that a call of `delegate` started for another session, their parent.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, QuestionId, SessionId};
use crate::message::{StopReason, Usage};
use crate::worktree::Worktree;

/// The purpose of a child: part of its `session_created`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delegated {
    /// The call of its parent whose result it works for.
    pub call: CallId,
    /// How far it is from a session that a user started: 1 for the child of one.
    pub depth: u32,
    /// The name of its agent; `general` needs no file.
    pub agent: String,
    /// Its git worktree, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// The workspace whose files (rules, hooks, tools, agents) count for it, if that is not the one that it works in: it works in
    /// its own worktree, or in that of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub bound_by: Option<PathBuf>,
}

/// How far a child is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum ChildStatus {
    /// It was created.
    Started,
    /// It works.
    #[default]
    Working,
    /// It waits for an answer, or to be continued.
    Waiting,
    /// The turn of its task has ended.
    Finished,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// How a child gets on: an event of its parent, and a row of what its parent waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildUpdate {
    /// The child's session.
    pub child: SessionId,
    /// The call of `delegate` that started it.
    pub call_id: CallId,
    /// The name of its agent.
    pub agent: String,
    /// Whether the call had its result at once, so that what the child says comes in a prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// How far it is.
    pub status: ChildStatus,
    /// Its present work, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doing: String,
    /// Its questions that wait for an answer, and those of its own children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionId>,
    /// Steps of its task so far, those of its own children among them.
    #[serde(default)]
    pub steps: u32,
    /// Tokens of its task so far, those of its own children among them; the sums of its parent have them too.
    #[serde(default)]
    pub usage: Usage,
    /// How its task ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
}

impl ChildUpdate {
    /// Whether its task has ended.
    pub fn is_finished(&self) -> bool {
        self.status == ChildStatus::Finished
    }
}
