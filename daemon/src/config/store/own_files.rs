//! The user's own Markdown files as the store knows them: which are there, and which are in force.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ConfigStore;
use crate::config::own::OwnFiles;
use crate::config::shown::ShownFile;
use crate::config::widening::{FILES, MCP_FILES};

impl ConfigStore {
    /// Says what these files of a place are, and their whole text: of the workspace with this root, or of the configuration
    /// directory. Others of the place stay.
    pub fn show_files(&self, root: &Path, files: BTreeMap<String, ShownFile>) {
        self.shown.take(root, files);
    }

    /// The place of the user's own files.
    pub fn own_files(&self) -> PathBuf {
        self.places().config.clone()
    }

    /// Takes the user's own files as they are now. `is_whole`: all kinds were looked at; else files of others stay while they are
    /// there. Gives whether anything changed; what is to be confirmed then waits. Blocks on the disk.
    pub fn survey_own(&self, own: OwnFiles, is_whole: bool) -> bool {
        let config = self.places().config.clone();
        self.take_own(|before| {
            let mut now = own;
            if !is_whole {
                let others = before.files.iter().filter(|(path, _)| config.join(path).is_file());
                for (path, hash) in others {
                    now.files.entry(path.clone()).or_insert_with(|| hash.clone());
                }
            }
            now
        })
    }

    /// Whether one of the user's own files is in force with this content.
    pub fn own_in_force(&self, path: &str, digest: &str) -> bool {
        self.confirmed_key(FILES, path).as_ref().and_then(Value::as_str) == Some(digest)
    }

    /// Whether a server of the user's own files is in force with these settings.
    pub fn own_server_in_force(&self, name: &str, settings: &Value) -> bool {
        self.confirmed_key(MCP_FILES, name).as_ref() == Some(settings)
    }

    /// Whether `config.toml` has a server of this name, in force or not.
    pub fn configures_server(&self, name: &str) -> bool {
        let has = |settings: Value| settings.get("mcp").is_some_and(|all| all.get(name).is_some());
        self.settings().is_some_and(has)
    }

    /// The path of a file below the configuration directory; whole if it lies elsewhere.
    pub fn path_of_own(&self, path: &Path) -> String {
        path.strip_prefix(&self.places().config).unwrap_or(path).to_string_lossy().into_owned()
    }
}
