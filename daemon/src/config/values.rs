//! The values of a valid configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::unattended::Unattended;
use linger_protocol::variable::Choice;
use serde::Deserialize;

use super::attention::Attention;
use super::delegation::Delegation;
use super::hooks::Hook;
use super::instructions;
use crate::mcp::settings::ServerConfig;
use crate::provider::catalogue::ModelConfig;
use crate::provider::catalogue::ProviderConfig;
use crate::provider::network::NetworkConfig;
use crate::question::permission::{Rule, Rules};
use crate::store::blob;

/// How an interrupted turn continues after a restart of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterRestart {
    /// It resumes by itself, unless it has had too many crashes.
    #[default]
    Resume,
    /// It waits for `session/continue` or the next prompt.
    Offer,
}

/// How a session with a budget of cost counts a model whose price is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownPrice {
    /// It counts as nothing.
    #[default]
    Ignore,
    /// It counts as more than the budget.
    Exceeds,
}

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model of new sessions, `provider/model` or a provider alone.
    pub model: Option<String>,
    /// The model for titles of sessions, `auto` or `off`; `auto` if absent.
    pub titles: Option<String>,
    /// The mode of new sessions.
    pub mode: Mode,
    /// How new sessions treat a question that no person answers.
    pub unattended: Unattended,
    /// How a budget of cost counts a model whose price is unknown.
    pub unknown_price: UnknownPrice,
    /// The most steps of one turn.
    pub max_steps: u32,
    /// Whether sessions have notes that outlive them.
    pub memory: bool,
    /// When to compact automatically, in percent of the model's window; 0 is never.
    pub compact_at: u8,
    /// How an interrupted turn continues after a restart.
    pub after_restart: AfterRestart,
    /// How long an idle session without clients stays loaded, in seconds.
    pub idle_unload_s: u64,
    /// How long an unused session is kept, in milliseconds; forever if absent.
    pub retention_ms: Option<u64>,
    /// The directory of the blobs, which counts from the next start on; absent: `blobs` in the data directory, unchanged.
    pub blobs: Option<PathBuf>,
    /// The default timeout of a `bash` call, in seconds.
    pub bash_timeout_s: u64,
    /// How far and how much sessions may delegate.
    pub delegation: Delegation,
    /// The private hosts that `fetch` may reach.
    pub fetch_private: Vec<String>,
    /// `provider/model` that makes images; absent: a preset's whose key is there.
    pub image_model: Option<String>,
    /// Tools of MCP servers that take more than this of the model's window, in percent, are found in place of sent.
    pub mcp_direct_percent: u8,
    /// Which variables of a client's environment tools get.
    pub env: Choice,
    /// The rules for every session.
    pub rules: Rules,
    /// The rules that `allow_always` and `reject_always` answers added, by root of the workspace.
    pub workspaces: BTreeMap<PathBuf, AlwaysRules>,
    /// The providers, by name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Providers of the file of whose table something waits until a person confirms it.
    pub unconfirmed: BTreeSet<String>,
    /// Properties of models, by `provider/model`.
    pub models: BTreeMap<String, ModelConfig>,
    /// Proxies and trusted certificates.
    pub network: NetworkConfig,
    /// The MCP servers, by name.
    pub mcp: BTreeMap<String, ServerConfig>,
    /// The hooks, in the order of the file.
    pub hooks: Arc<[Hook]>,
    /// How people are told that a session needs them.
    pub attention: Attention,
    /// Where people reach the gateway's page from elsewhere.
    pub public_url: Option<String>,
    /// Settings that are valid but have no effect, one line each.
    pub warnings: Vec<String>,
}

/// Rules that answers added for a workspace.
#[derive(Clone, Debug, Default)]
pub struct AlwaysRules {
    /// Calls that run.
    pub allow: Vec<Rule>,
    /// Calls that are refused.
    pub deny: Vec<Rule>,
}

impl Config {
    /// linger's own directories, and the files in them, because those may be symlinks to elsewhere.
    pub(super) fn own(places: &Places) -> Vec<PathBuf> {
        let mut own = vec![places.config.clone(), places.data.clone(), places.state.clone()];
        own.extend([places.config_file(), places.database(), blob::directory(&places.database())]);
        own.extend([places.kept_keys(), places.model_lists(), places.reached(), places.server_tools()]);
        own.extend([places.attention(), places.gateway(), places.gateway_log()]);
        own.extend([places.children(), places.log()]);
        own.extend(instructions::NAMES.map(|name| places.config.join(name)));
        own
    }

    /// The rules that answers added for the workspace with this root.
    pub fn always(&self, root: &Path) -> Option<&AlwaysRules> {
        self.workspaces.get(root)
    }
}
