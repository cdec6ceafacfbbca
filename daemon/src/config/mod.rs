//! The configuration: `config.toml` and what follows from it.
//!
//! [`Config::parse`] is pure: text in, configuration or the first error out, with file, line and key. [`ConfigStore`] holds the
//! last good one; [`watch`](watch::Changes) wakes when the file may have changed, [`notices`] tells whether reading it again can
//! find anything new. What widens what may happen is in force once it is confirmed ([`widening`]). Only [`edit`] writes the file.
//! The file never contains a key; a value that looks like one is refused and not repeated.

mod attention;
mod delegation;
mod edit;
mod gateway;
mod hooks;
mod images;
pub mod instructions;
mod mcp_json;
mod notices;
mod own;
mod policy;
pub mod providers;
mod servers;
mod source;
mod store;
mod trust;
mod watch;
mod widening;
mod workspace;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::unattended::Unattended;
use linger_protocol::variable::Choice;
use serde::Deserialize;
use serde_json::Value;
use toml::de::DeTable;

use crate::mcp::settings::ServerConfig;
use crate::provider::catalogue::ModelConfig;
use crate::provider::catalogue::ProviderConfig;
use crate::provider::network::NetworkConfig;
pub use attention::Attention;
pub use delegation::Delegation;
pub use edit::EditError;
pub use hooks::{Hook, HookEvent};
pub use images::Images;
pub use mcp_json::MCP_JSON;
pub use own::{MCP_FILES, OwnFiles};
pub use policy::{Policy, Settled};
pub use source::ConfigError;
pub use store::{ConfigStore, Confirmed, Record, Reload, Waiting};
pub use trust::{Now as WorkspaceNow, WaitingServer};
pub use watch::Changes;
pub use widening::always_line;
pub use workspace::{CONFIG as WORKSPACE_FILE, FILES, Trusted};

use crate::question::permission::{Rule, Rules};
use crate::store::blob;
use crate::tool::set::Names;
use source::Source;
use written::{Written, refuse_secrets};

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

/// What a session with a budget of cost makes of a model whose price is unknown.
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
    /// What happens in new sessions to a question that no person answers.
    pub unattended: Unattended,
    /// What a budget of cost makes of a model whose price is unknown.
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

/// What answers settled for a workspace.
#[derive(Clone, Debug, Default)]
pub struct AlwaysRules {
    /// What runs.
    pub allow: Vec<Rule>,
    /// What is refused.
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

    /// Parses the text of `places.config_file()`; empty text gives the defaults. `home` is the meaning of `~/` in a rule.
    /// `names`: the tools that rules can name.
    pub fn parse(text: &str, places: &Places, home: Option<&Path>, names: &Names) -> Result<Self, ConfigError> {
        let file = places.config_file();
        let (tree, errors) = DeTable::parse_recoverable(text);
        let source = Source::new(&file, text, tree.get_ref());
        if let Some(error) = errors.first() {
            return Err(source.explain(error));
        }
        // First, because later errors may quote a value.
        refuse_secrets(&source)?;
        let written: Written = toml::from_str(text).map_err(|error| source.explain(&error))?;
        let written = written.with_home(home);
        written.check(&source)?;
        written.into_config(&source, places, home, names)
    }

    /// The configuration with these settings, which are those of a valid file but for what is not confirmed.
    fn of_settings(settings: Value, places: &Places, home: Option<&Path>, names: &Names) -> Result<Self, ConfigError> {
        let file = places.config_file();
        let written: Written = serde_json::from_value(settings).map_err(|error| ConfigError::whole(&file, error))?;
        let nowhere = DeTable::new();
        written.with_home(home).into_config(&Source::new(&file, "", &nowhere), places, home, names)
    }

    /// The rules that answers added for the workspace with this root.
    pub fn always(&self, root: &Path) -> Option<&AlwaysRules> {
        self.workspaces.get(root)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod watch_tests;
