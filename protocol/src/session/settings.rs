//! `session/set`: what can be changed of a session.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::id::SessionId;
use crate::mcp::SessionServer;
use crate::message::HostedTool;
use crate::patience::Patience;
use crate::permission::Mode;
use crate::unattended::Unattended;

/// `session/set`: changes a session from its next step on; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// The session to change.
    pub session: SessionId,
    /// `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The permission mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How hard the model thinks; `auto` is the default of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// How long a turn waits while its provider cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in, in order, while the session's own cannot answer; an empty list is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// How a question that no person answers is treated from now on, also questions that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Unattended>,
    /// The sums at which it asks before it goes on; 0 takes one away. What was raised by answers begins again.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// The directory where it works from now on, absolute; it must exist. Refused while a turn runs or prompts wait, for a child, and
    /// for processes that are not known to be the user's: other files say what may run there. Rules that answers added for the
    /// session are gone with it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// More directories in which its file tools may do what they may in `cwd`, absolute; each must exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub add_directories: Vec<PathBuf>,
    /// The additional directories to take away.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub remove_directories: Vec<PathBuf>,
    /// All MCP servers of this session alone from now on, as in `session/create`; an empty list is none. Those that it has already
    /// go on, and get the values that come with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<SessionServer>>,
    /// The only tools from the next step on, as in `session/create`; `["*"]` is all. A session can only take some away from its
    /// children, and a token gives more only where its own mode reaches as far as that of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The constant part of a session's requests: all but the conversation. While it stays the same, each
/// request begins like the one before, and a provider's prompt cache hits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixFingerprint {
    /// The wire format: `anthropic`, `openai`, `openai-responses`, `gemini`, `ollama` or `demo`.
    pub kind: String,
    /// The tools that the provider runs itself, where any are switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosted_tools: Vec<HostedTool>,
    /// Another one whenever these or anything else of it changes: the provider's flags, how hard the model thinks by
    /// configuration, linger's own prompt and tools.
    pub digest: String,
}

/// How hard a model thinks before it answers. Each provider knows some of these; the nearest is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// The configured effort of the model; if none is set, the provider's own default.
    #[default]
    Auto,
    /// It does not think.
    None,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// Very much.
    Xhigh,
    /// As much as it can.
    Max,
}

impl Effort {
    /// All of them, from what a provider does by itself to the most.
    pub const ALL: [Self; 8] =
        [Self::Auto, Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// Whether nothing is said.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// Its name, as it is written everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl std::fmt::Display for Effort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Effort {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|effort| effort.name() == name);
        known.ok_or_else(|| format!("unknown effort '{name}': none, minimal, low, medium, high, xhigh, max or auto"))
    }
}
