//! Git worktrees of children: directories and branches of their own, and merging them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::Process;
use crate::id::SessionId;

/// The git worktree of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Worktree {
    /// Its directory, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// Checked out in it; merged by `session/merge`.
    pub branch: String,
    /// The commit that it was made of.
    pub base: String,
    /// Whether it is in use, merged or gone.
    #[serde(default, skip_serializing_if = "WorktreeStatus::is_there")]
    pub status: WorktreeStatus,
}

/// The state of a worktree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum WorktreeStatus {
    /// It is there.
    #[default]
    Kept,
    /// It is there, and what it had last was merged into the directory of the parent.
    Merged,
    /// It had no changes and was removed, with its branch; the next prompt makes it again.
    Removed,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

impl WorktreeStatus {
    fn is_there(&self) -> bool {
        *self == Self::Kept
    }
}

/// `session/merge`: merges what a child did in its worktree into the directory of its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merge {
    /// The child.
    pub session: SessionId,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/merge`, and an event of the parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merged {
    /// The child whose work was merged.
    pub child: SessionId,
    /// The name of its agent.
    pub agent: String,
    /// The branch that was merged.
    pub branch: String,
    /// The directory that it was merged into.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub directory: PathBuf,
    /// The commit there before: `git reset --keep` to it takes the merge back.
    pub before: String,
    /// The commit there now.
    pub commit: String,
    /// The files that differ between these, relative to the directory; 1000 at most.
    #[serde(with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub files: Vec<PathBuf>,
    /// How many there are in all.
    pub count: u32,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The process of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}
