//! Checkpoints of a workspace, and what a session's turns changed.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::ChangeKind;
use crate::id::{CallId, SessionId, TurnId};

/// The state of the files of a workspace at a moment: an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Its name: that of a tree of git.
    pub checkpoint: String,
    /// The directory.
    pub root: PathBuf,
    /// The call that it was taken for, before it ran or after it.
    pub call_id: CallId,
    /// The checkpoint before the call, if this one is of after it; then they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How many files differ from that one.
    #[serde(default)]
    pub changed: u32,
    /// The first 20 of these, relative to `root`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
}

/// `session/diff`: what the turns of a session changed in files, those of its children too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// The session whose changes are compared.
    pub session: SessionId,
    /// The turn, such as `t3`; without it, all turns together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Without the texts of the differences.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stat: bool,
}

/// The result of `session/diff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Differences {
    /// The files, by their paths; those of children after the session's own.
    pub files: Vec<FileDiff>,
    /// Things that are left out, a sentence each: checkpoints that are gone, more files than there is room for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// How one file differs from what it was before the turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileDiff {
    /// The file, absolute.
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// Lines that came.
    pub added: u32,
    /// Lines that went.
    pub removed: u32,
    /// A unified diff; absent if it was not asked for, for what is no text, and where there was no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Why there are no lines: it is no text, its content is not kept, only its mode differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The child whose turns changed it; absent for the session's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<DiffChild>,
}

/// A child whose turns changed a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DiffChild {
    /// The child.
    pub session: SessionId,
    /// The name of its agent.
    pub agent: String,
}
