//! `session/create` and `session/env`: a new session, and the variables of its tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::id::SessionId;
use crate::mcp::SessionServer;
use crate::patience::Patience;
use crate::permission::Mode;
use crate::session::Effort;
use crate::unattended::Unattended;

/// `session/create`: a new session in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Create {
    /// The working directory, absolute, or `~` and `~/DIR` for the home directory of the daemon's user; it must exist.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `provider/model`, or a provider alone for its default model; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The permission mode; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How hard the model thinks; the configuration's default for the model when absent.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
    /// How long a turn waits while its provider cannot answer; the provider's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in, in order, while the session's own cannot answer; the configuration's of that model when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// How a question that no person answers is treated; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Unattended>,
    /// The sums at which it asks before it goes on.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Directories beside `cwd` in which its file tools may do what they may in `cwd`, absolute; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub additional_directories: Vec<PathBuf>,
    /// MCP servers of this session alone, at most 16, with those of the configuration and of its workspace. They take a process of
    /// the user's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<SessionServer>,
    /// The only tools that the session has, and of those that its provider runs; `mcp__NAME__*` is all of a server. All tools
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The name of the agent that the session is (`agent/list`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Rules of calls that run in this session without asking, as `permissions.allow` has them; at most 64. Like a mode that asks
    /// less, they take a process of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Text that is added to the system prompt, at most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A name, unique among sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it is for one prompt, as `linger run` makes them: lists can leave it out while it has no name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// Variables for the session's tools; what looks like a secret is left out unless the configuration passes it, and is in
    /// the daemon's memory alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether its tools get, beside `env`, the login variables of the daemon's own user (`HOME`, `PATH`, `USER`, `LANG` …): for a
    /// client on another machine, whose own would be wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login_env: bool,
    /// The file mode creation mask of the session's commands; the daemon's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// The new session.
    pub session: SessionId,
    /// The model that it took, `provider/model`.
    #[serde(default)]
    #[schemars(!default)]
    pub model: String,
    /// The mode that it took.
    #[serde(default)]
    #[schemars(!default)]
    pub mode: Mode,
    /// For people: its model is unknown, and which one may be meant. A notice in the session says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The result of `session/env`: the names of the variables of a session's tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Names of variables with values that are stored.
    pub variables: Vec<String>,
    /// Names of variables with secrets, which are in the daemon's memory alone.
    pub secret: Vec<String>,
    /// Names in `secret` whose values the daemon lacks since it was restarted.
    pub missing: Vec<String>,
}
