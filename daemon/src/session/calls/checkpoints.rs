//! Checkpoints around the calls that may change files in a way that nothing else records: commands, programs, servers.
//!
//! One is taken before such a call, and is in the log with its start; another one after it, which is in the log only if it differs.
//! Commands that are known to read alone have none, nor have file tools, whose changes are in their results. What a call did that was
//! cut off, by a cancel or a crash, is found out by what runs next: the next task of the turn, or the actor.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{EventBody, Level, NoticeCode};
use linger_protocol::id::CallId;

use crate::question::permission::reads_by_command;
use crate::session::calls::Runner;
use crate::session::messages::TurnEnded;
use crate::tool::checkpoint::{Checkpoints, Skip};
use crate::tool::{Access, Effects, Workspace};

/// Files that a checkpoint names; the rest is counted.
const NAMED: usize = 20;

/// Whether a call may change files without saying which.
fn is_opaque(tool: &str, effects: &Effects) -> bool {
    effects.changes
        && match &effects.access {
            Access::Command(_) => !reads_by_command(tool, &effects.access),
            Access::Other { .. } => true,
            _ => false,
        }
}

impl Runner {
    /// Takes a checkpoint before a call that may change files.
    pub(super) async fn checkpoint_before(
        &self,
        id: &CallId,
        tool: &str,
        effects: &Effects,
    ) -> Result<Option<Checkpoint>, TurnEnded> {
        if !is_opaque(tool, effects) {
            return Ok(None);
        }
        let root = self.workspace.root.clone();
        match self.services.checkpoints.take(&self.workspace).await {
            Ok(checkpoint) => Ok(Some(Checkpoint { checkpoint, root, call_id: id.clone(), ..Checkpoint::default() })),
            Err(Skip::NotHere) => Ok(None),
            Err(skip) => {
                tracing::warn!(target: "checkpoint", session = %self.session, call = %id, %skip, "none taken");
                if !self.warned_no_checkpoints.swap(true, Ordering::Relaxed) {
                    let text = format!(
                        "no checkpoint of {} was taken: {skip}; what the command changes cannot be undone",
                        root.display()
                    );
                    self.emit.notice(Level::Warning, NoticeCode::NoCheckpoint, text)?;
                }
                Ok(None)
            }
        }
    }

    /// Takes the checkpoint after a call, and records it if it differs.
    pub(super) async fn checkpoint_after(&self, before: Option<Checkpoint>) -> Result<(), TurnEnded> {
        let Some(before) = before else { return Ok(()) };
        let after = after(&self.services.checkpoints, &self.workspace, before).await;
        match after.changed {
            0 => Ok(()),
            _ => self.emit.send(vec![EventBody::Checkpoint(after)], false, None),
        }
    }
}

/// The checkpoint after the call of `before`: with no changes, if there are none, and if none can be taken.
pub(in crate::session) async fn after(
    checkpoints: &Checkpoints,
    workspace: &Workspace,
    before: Checkpoint,
) -> Checkpoint {
    let Checkpoint { checkpoint: since, root, call_id, .. } = before;
    let none = Checkpoint {
        checkpoint: since.clone(),
        root: root.clone(),
        call_id,
        since: Some(since.clone()),
        ..Checkpoint::default()
    };
    let taken = match checkpoints.take(workspace).await {
        Ok(taken) if taken != since => taken,
        Ok(_) => return none,
        Err(skip) => {
            tracing::warn!(target: "checkpoint", root = %root.display(), %skip, "none taken after a call");
            return none;
        }
    };
    match checkpoints.between(workspace, &root, &since, &taken).await {
        Ok(changes) => {
            let name = |path: &PathBuf| path.strip_prefix(&root).unwrap_or(path).to_path_buf();
            let files = changes.iter().take(NAMED).map(|change| name(&change.path)).collect();
            let changed = u32::try_from(changes.len()).unwrap_or(u32::MAX);
            Checkpoint { checkpoint: taken, changed, files, ..none }
        }
        Err(why) => {
            tracing::warn!(target: "checkpoint", root = %root.display(), why, "a checkpoint cannot be compared");
            none
        }
    }
}
