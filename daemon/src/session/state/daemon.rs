//! The settings that users confirmed and trusted; only the daemon's own log has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings that users confirmed and trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSettings {
    /// The confirmed settings of the configuration; absent before the first confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Value>,
    /// The trusted settings of the files of workspaces, by root.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        with = "linger_protocol::path::PathText::<BTreeMap<PathBuf, Value>>"
    )]
    pub trusted: BTreeMap<PathBuf, Value>,
}

impl DaemonSettings {
    /// Confirms the configuration's settings, or those of a workspace; `null` trusts nothing of the workspace any more.
    pub(super) fn confirm(&mut self, settings: &Value, workspace: Option<&Path>) {
        match workspace {
            None => self.confirmed = Some(settings.clone()),
            Some(root) if settings.is_null() => drop(self.trusted.remove(root)),
            Some(root) => drop(self.trusted.insert(root.to_path_buf(), settings.clone())),
        }
    }

    /// An event is lost, which may have said that less is confirmed or trusted.
    pub(super) fn lose(&mut self) {
        self.trusted.clear();
        self.confirmed = self.confirmed.take().map(|_| Value::Object(Map::new()));
    }
}
