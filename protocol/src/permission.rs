//! Permissions: a question about one tool call, its answer, and the mode that decides what is asked.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{CallId, PermissionId, SessionId};

/// What runs without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read-only tools within the workspace; everything else asks.
    #[default]
    Ask,
    /// As `ask`, and changes to files within the workspace.
    Edit,
    /// Everything.
    Auto,
    /// Read-only tools within the workspace; everything else is refused, even if a rule allows it.
    Plan,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask => "ask",
            Self::Edit => "edit",
            Self::Auto => "auto",
            Self::Plan => "plan",
        })
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "ask" => Ok(Self::Ask),
            "edit" => Ok(Self::Edit),
            "auto" => Ok(Self::Auto),
            "plan" => Ok(Self::Plan),
            _ => Err(format!("unknown mode '{s}': one of ask, edit, auto, plan")),
        }
    }
}

/// The answer to a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    AllowOnce,
    /// This call may run, and those alike in this session.
    AllowSession,
    /// This call may run, and those alike in this workspace from now on.
    AllowAlways,
    /// This call does not run.
    RejectOnce,
    /// The turn ended before anybody answered; never an answer of a client.
    Cancelled,
}

impl Decision {
    /// The decisions that an answer may have.
    pub const ANSWERS: [Self; 4] = [Self::AllowOnce, Self::AllowSession, Self::AllowAlways, Self::RejectOnce];

    /// Its name on the wire: as an answer to a question, the option's.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowSession => "allow_session",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::Cancelled => "cancelled",
        }
    }

    /// The decision with this name, if an answer may have it.
    pub fn answer(name: &str) -> Option<Self> {
        Self::ANSWERS.into_iter().find(|decision| decision.name() == name)
    }

    /// What people read of it as an option.
    pub fn label(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow once",
            Self::AllowSession => "allow in this session",
            Self::AllowAlways => "allow always",
            Self::RejectOnce => "deny",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the call may run.
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowSession | Self::AllowAlways)
    }
}

/// `permission/list`: the permissions that wait, of one session or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// Only those of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

/// A permission that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pending {
    /// The permission; `permission/answer` takes it.
    pub permission: PermissionId,
    /// The session that waits.
    pub session: SessionId,
    /// The tool call that waits.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What will run.
    pub action: String,
    /// The arguments, whole.
    pub input: Value,
    /// Where it will run.
    pub cwd: PathBuf,
    /// The hash of tool, arguments and directory.
    pub digest: String,
    /// The rule that `allow_session` and `allow_always` would add.
    pub grant: String,
    /// When it was asked, in Unix milliseconds.
    pub at: u64,
}

/// `permission/answer`: decides one permission; the first answer wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The permission.
    pub permission: PermissionId,
    /// The decision.
    pub decision: Decision,
    /// A word to the model, mostly with `reject_once`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest that was shown; an answer to something else is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `permission/answer`; a second answer gets the error `already answered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// Always `won`.
    pub outcome: String,
}

/// The `data` of the error `already answered`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlreadyAnswered {
    /// The decision that stands.
    pub decision: Decision,
    /// The client that gave it.
    pub by: String,
    /// When, in Unix milliseconds.
    pub at: u64,
}
