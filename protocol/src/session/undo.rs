//! `session/undo` and `session/redo`: file changes taken back and made again.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Uncertain, UncertainChange};
use crate::event::{FileChange, NotRestored};
use crate::id::{CallId, SessionId, TurnId};

/// `session/undo`: puts files back to what they were before the model's tools changed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undo {
    /// The session that made the changes.
    pub session: SessionId,
    /// Only the changes of this call; absent: of the latest turn that changed files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Only the changes of this file, in the latest turn that changed it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
    /// Only the changes of these files, each in the latest turn that changed it. A file that is named here or in `file` is undone
    /// also where an editor or another program may have changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub files: Vec<PathBuf>,
    /// The treatment of changes that an editor or another program may have made while a command ran; absent: they stay, and the
    /// result lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<Uncertain>,
    /// Also files that were changed since, and changes that are uncertain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/redo`: makes the changes again that were undone last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redo {
    /// The session that undid the changes.
    pub session: SessionId,
    /// Also files that were changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/undo` and `session/redo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restored {
    /// The turn, if all of its changes were meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<TurnId>,
    /// The change of each file; a file that was as wanted has none.
    pub changes: Vec<FileChange>,
    /// The files that could not be put back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotRestored>,
    /// Changes that stay because an editor or another program may have made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<UncertainChange>,
}
