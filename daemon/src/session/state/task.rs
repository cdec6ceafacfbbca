//! The task of a session that a call of `delegate` started, and the git worktree that it works in.

use std::path::PathBuf;

use linger_protocol::child::Delegated;
use linger_protocol::worktree::{Worktree, WorktreeStatus};
use serde::{Deserialize, Serialize};

/// The task of a session for its parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// The task; absent for a session that a user started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
}

impl Task {
    /// How far it is from a session that a user started.
    pub fn depth(&self) -> u32 {
        self.delegated.as_ref().map_or(0, |delegated| delegated.depth)
    }

    /// The workspace whose files count for it, if that is not the one that it works in.
    pub fn bound_by(&self) -> Option<PathBuf> {
        self.delegated.as_ref()?.bound_by.clone()
    }

    /// Its git worktree, if it has one of its own.
    pub fn worktree(&self) -> Option<&Worktree> {
        self.delegated.as_ref()?.worktree.as_ref()
    }

    pub(super) fn change_worktree(&mut self, worktree: &Worktree) {
        if let Some(delegated) = &mut self.delegated {
            delegated.worktree = Some(worktree.clone());
        }
    }

    /// A turn starts: what it does is not merged yet.
    pub(super) fn start_turn(&mut self) {
        let worktree = self.delegated.as_mut().and_then(|delegated| delegated.worktree.as_mut());
        if let Some(worktree) = worktree.filter(|worktree| worktree.status == WorktreeStatus::Merged) {
            worktree.status = WorktreeStatus::Kept;
        }
    }
}
