//! Permissions: a question about one tool call, its answer, and the mode that decides what is asked.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::daemon::ToolDecision;
use crate::id::{CallId, PermissionId, SessionId};
use crate::question::Position;

/// Decides which calls run without being asked for.
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

impl Mode {
    /// All of them, in the order in which people are shown them.
    pub const ALL: [Self; 4] = [Self::Ask, Self::Edit, Self::Auto, Self::Plan];

    /// Its effect, in a few words for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Ask => "reads in the workspace; everything else asks",
            Self::Edit => "as ask, and changes files in the workspace",
            Self::Auto => "runs everything",
            Self::Plan => "reads and plans; everything else is refused",
        }
    }
}

/// A row of `mode/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModeInfo {
    /// The word for it in requests.
    pub mode: Mode,
    /// Its effect, in a few words for people.
    pub description: String,
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
    /// This call does not run, and those alike in this workspace are refused from now on.
    RejectAlways,
    /// The turn ended before anybody answered; never an answer of a client.
    Cancelled,
}

impl Decision {
    /// The decisions that an answer may have.
    pub const ANSWERS: [Self; 5] =
        [Self::AllowOnce, Self::AllowSession, Self::AllowAlways, Self::RejectOnce, Self::RejectAlways];

    /// Its name on the wire: as an answer to a question, the option's.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowSession => "allow_session",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
            Self::Cancelled => "cancelled",
        }
    }

    /// The decision with this name, if an answer may have it.
    pub fn answer(name: &str) -> Option<Self> {
        Self::ANSWERS.into_iter().find(|decision| decision.name() == name)
    }

    /// The text of the option, for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow once",
            Self::AllowSession => "allow in this session",
            Self::AllowAlways => "allow always",
            Self::RejectOnce => "deny",
            Self::RejectAlways => "deny always",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it adds rules.
    pub fn lasts(self) -> bool {
        matches!(self, Self::AllowSession | Self::AllowAlways | Self::RejectAlways)
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
    /// Only those that come after this one: the last row of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
}

/// A row of `permission/list`, of which these two fields count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AfterPermission")]
pub struct After {
    /// When it was asked, in Unix milliseconds.
    pub at: u64,
    /// Orders rows of the same time.
    pub permission: PermissionId,
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
    /// The name of the tool that would run.
    pub tool: String,
    /// The action in one line.
    pub action: String,
    /// The arguments, whole.
    pub input: Value,
    /// Where it will run.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The hash of tool, arguments and directory.
    pub digest: String,
    /// The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses.
    pub grant: String,
    /// The rules one by one, if the call touches several things: then `grant` names them all, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Why the mode asks about what it lets run elsewhere, behind "asks because".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its place among those of the same answer of the model; absent if it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// When it was asked, in Unix milliseconds.
    pub at: u64,
}

/// `permission/answer`: decides one permission; the first answer wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The permission to decide.
    pub permission: PermissionId,
    /// The decision: any but `cancelled`.
    #[schemars(transform = answers_only)]
    pub decision: Decision,
    /// A word to the model, mostly with `reject_once`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The digest that was shown; an answer to something else is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The rules that a lasting decision adds, in place of those that were shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Leaves the decisions that an answer may have.
fn answers_only(schema: &mut schemars::Schema) {
    let names = Decision::ANSWERS.map(Decision::name);
    *schema = schemars::json_schema!({ "description": schema.get("description"), "type": "string", "enum": names });
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

/// `permission/explain`: whether a call would run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explain {
    /// The call, written as a rule: `bash(cargo test)`, `edit(src/main.rs)`, `fetch(example.org)`, `mcp__server__tool`.
    pub call: String,
    /// In this session: with its directory, its mode and its rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// In a new session in this directory; one of the two is needed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
}

/// The result of `permission/explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// `allow`, `ask` or `deny`.
    pub verdict: ToolDecision,
    /// The reason: `rule …`, `rules …, …` or `mode …`, or which skill limits the turn that has read it, and to what.
    pub by: String,
    /// Where that rule stands; absent for a mode, and for several rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The mode that was looked at.
    pub mode: Mode,
    /// The directory that it was looked at in.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The file that the call reaches, with links resolved.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub path: Option<PathBuf>,
}

/// A rule that an `allow_always` or `reject_always` answer added to the configuration: a row of `permission/rules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlwaysRule {
    /// The root of the workspace in which it holds.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub workspace: PathBuf,
    /// As the configuration has it, such as `bash(make)`.
    pub rule: String,
    /// Whether it refuses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuses: bool,
    /// When it was added, in Unix milliseconds; absent if the daemon's log does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// `permission/remove`: takes a rule of `permission/rules` out of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveRule {
    /// The rule, as it stands there.
    pub rule: String,
    /// Only that of the workspace with this root; absent: of all workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub workspace: Option<PathBuf>,
}

/// The result of `permission/remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RulesRemoved {
    /// The rules that were removed.
    pub removed: Vec<AlwaysRule>,
}
