//! The bin, and what is deleted for good.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::session::Info;
use crate::worktree::Worktree;

/// `session/bin`: puts a session into the bin, where it stays for 30 days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// The session to put into the bin.
    pub session: SessionId,
    /// Also while a turn is running; it is cancelled first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutOfBin {
    /// The name that it has now: another one than before where a session has taken that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `session/remove`: deletes a session and everything that was stored for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remove {
    /// The session to delete.
    pub session: SessionId,
    /// Also while a turn is running; it is cancelled first.
    #[serde(default)]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/remove` and `session/bin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// How many children went with it.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub children: u32,
    /// The git worktrees of removed children that stay, because they have changes that are nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worktrees: Vec<Worktree>,
}

/// `session/prune`: deletes sessions that were not used for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prune {
    /// Only sessions that have not changed for longer than this, in milliseconds.
    pub older_than_ms: u64,
    /// Delete nothing, and say what would be deleted.
    #[serde(default)]
    pub dry_run: bool,
    /// Also sessions with a running turn, such as one that waits for an answer.
    #[serde(default)]
    pub force: bool,
    /// Put them into the bin in place of deleting them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub into_bin: bool,
    /// Delete the sessions that are in the bin, whatever their age, and no others; `older_than_ms` does not count then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bin: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/prune`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pruned {
    /// The sessions that were deleted, or would be, the oldest first; 1000 at most.
    pub sessions: Vec<Info>,
    /// How many there are in all.
    pub count: u32,
    /// Bytes that they took.
    pub size: u64,
}
