//! The user's own Markdown files as part of the configuration: agents, tools, servers and commands that run something widen what may
//! happen, so they wait for a person as a change of `config.toml` does.
//!
//! `agent` finds them and says what they are ([`super::ConfigStore::survey_own`]); here they become settings: `files` with the hash of each,
//! and `mcp_files` with the servers. Deliberately absent: reading the files, and what they mean.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::widening::{FILES, MCP_FILES};

/// Files that are gone and stay confirmed, at most: editors take files away and put them back.
const MAX_GONE: usize = 500;

/// The user's own files that widen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnFiles {
    /// The hash of each, by its path below the configuration directory.
    pub files: BTreeMap<String, String>,
    /// The settings of the servers, by name.
    pub servers: Map<String, Value>,
}

impl OwnFiles {
    /// The settings of `config.toml` with those of the files.
    pub(super) fn with(&self, settings: &Value, confirmed: &Value) -> Value {
        let mut settings = settings.clone();
        let Some(table) = settings.as_object_mut() else { return settings };
        let mut files: Map<String, Value> = Map::new();
        // One that is gone stays confirmed, with that content.
        let gone = confirmed.get(FILES).and_then(Value::as_object).into_iter().flatten();
        files.extend(gone.take(MAX_GONE).map(|(path, hash)| (path.clone(), hash.clone())));
        files.extend(self.files.iter().map(|(path, hash)| (path.clone(), Value::from(hash.as_str()))));
        if !files.is_empty() {
            table.insert(FILES.to_owned(), Value::Object(files));
        }
        if !self.servers.is_empty() {
            table.insert(MCP_FILES.to_owned(), Value::Object(self.servers.clone()));
        }
        settings
    }
}

/// The settings as those of `config.toml` alone: the servers of files beside its own, which count before them.
pub(super) fn folded(mut settings: Value) -> Value {
    let Some(table) = settings.as_object_mut() else { return settings };
    table.shift_remove(FILES);
    if let Some(Value::Object(servers)) = table.shift_remove(MCP_FILES) {
        let own = table.entry("mcp").or_insert_with(|| Value::Object(Map::new()));
        if let Some(own) = own.as_object_mut() {
            for (name, server) in servers {
                own.entry(name).or_insert(server);
            }
        }
    }
    settings
}
