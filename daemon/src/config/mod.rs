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
mod shown;
mod source;
mod store;
mod values;
mod watch;
mod widening;
mod workspace;
mod written;

use std::path::Path;

use linger_protocol::place::Places;
use serde_json::Value;
use toml::de::DeTable;

pub use attention::Attention;
pub use delegation::Delegation;
pub use edit::EditError;
pub use hooks::{Hook, HookEvent};
pub use images::Images;
pub use mcp_json::MCP_JSON;
pub use own::OwnFiles;
pub use policy::{Policy, Settled};
pub use shown::ShownFile;
pub use source::ConfigError;
pub use store::{ConfigStore, Confirmed, Record, Reload, Waiting, WaitingServer, WorkspaceNow};
pub use values::{AfterRestart, AlwaysRules, Config, UnknownPrice};
pub use watch::Changes;
pub use widening::{FILES, MCP_FILES, always_line};
pub use workspace::{CONFIG as WORKSPACE_FILE, Trusted};

use crate::tool::set::Names;
use source::Source;
use written::{ConfigFile, refuse_secrets};

impl Config {
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
        let written: ConfigFile = toml::from_str(text).map_err(|error| source.explain(&error))?;
        let written = written.with_home(home);
        written.check(&source)?;
        written.into_config(&source, places, home, names)
    }

    /// The configuration with these settings, which are those of a valid file but for what is not confirmed.
    fn of_settings(settings: Value, places: &Places, home: Option<&Path>, names: &Names) -> Result<Self, ConfigError> {
        let file = places.config_file();
        let written: ConfigFile = serde_json::from_value(settings).map_err(|error| ConfigError::whole(&file, error))?;
        let nowhere = DeTable::new();
        written.with_home(home).into_config(&Source::new(&file, "", &nowhere), places, home, names)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod watch_tests;
