//! Checkpoints of a workspace, and what a session's turns changed.

use std::collections::BTreeMap;
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
    #[serde(with = "crate::path::PathText::<PathBuf>")]
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
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub files: Vec<PathBuf>,
    /// When the call began to run, in Unix milliseconds; of a checkpoint after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Whether the differences are surely the call's: it ended by itself, it was short, and no command of another session ran
    /// meanwhile. Others may be of an editor or another program, which `session/undo` asks about.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub certain: bool,
    /// Files that another session wrote meanwhile, relative to `root`: they differ too, are not in `changed`, and are no change of
    /// the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub others: Vec<PathBuf>,
    /// The modes before the call of the files that differ and of directories above them, relative to `root`, where they are not
    /// 0644, or 0755 for directories and for what may be executed; absent if none of them is known.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::path::PathText::<Option<BTreeMap<PathBuf, u32>>>"
    )]
    pub modes: Option<BTreeMap<PathBuf, u32>>,
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
    #[serde(with = "crate::path::PathText::<PathBuf>")]
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
    /// Whether an editor or another program may have made some of its changes, while a command ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// The child whose turns changed it; absent for the session's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<DiffChild>,
}

/// A change of a file while a command ran, which an editor or another program may have made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UncertainChange {
    /// The file, absolute and without links.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The call that ran meanwhile.
    pub call_id: CallId,
    /// When the file was last written, in Unix milliseconds; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// When the call began to run, in Unix milliseconds; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// When it had ended, in Unix milliseconds.
    pub to: u64,
}

/// The treatment of changes that an editor or another program may have made while a command ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uncertain {
    /// They are undone with the others.
    Undo,
    /// They are kept for good: the turn counts as undone without them.
    Keep,
    /// If there are any, nothing is done: error −31052, whose `data` lists them.
    Ask,
}

/// A child whose turns changed a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DiffChild {
    /// The child.
    pub session: SessionId,
    /// The name of its agent.
    pub agent: String,
}
