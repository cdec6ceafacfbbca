//! Checkpoints around the calls that may change files in a way that nothing else records: commands, programs, servers.
//!
//! One is taken before such a call, and is in the log with its start; another one after it, which is in the log only if it differs.
//! The one after it says whether the changes are surely the call's: of a longer call, somebody may have made them meanwhile.
//! Commands that are known to read alone have none, nor have file tools, whose changes are in their results. What a call did that was
//! cut off, by a cancel or a crash, is found out by what runs next: the next task of the turn, or the actor.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{EventBody, Level, NoticeCode};
use linger_protocol::id::CallId;

use crate::question::permission::reads_by_command;
use crate::session::calls::Runner;
use crate::session::messages::TurnEnded;
use crate::sys::{clock, disk};
use crate::tool::checkpoint::{Checkpoints, MAX_RESTORED, Modes, Skip, TreeChange};
use crate::tool::overlap::CommandWindow;
use crate::tool::seen::OtherWrite;
use crate::tool::{Access, Effects, Workspace};

/// Files that a checkpoint names; the rest is counted.
const NAMED: usize = 20;

/// Files of other sessions that a checkpoint names; of more, nothing that changed is certain.
const MAX_OTHERS: usize = 1000;

/// How far the times that a disk notes may differ from the clock, in milliseconds.
const CLOCK_STEP_MS: u64 = 20;

/// Whether a call may change files without saying which.
fn is_opaque(tool: &str, effects: &Effects) -> bool {
    effects.changes
        && match &effects.access {
            Access::Command(_) => !reads_by_command(tool, &effects.access),
            Access::Other { .. } => true,
            _ => false,
        }
}

/// A call that may change files, while it runs.
pub(super) struct WatchedCall {
    /// The checkpoint before it, if one could be taken.
    pub(super) before: Option<Checkpoint>,
    window: CommandWindow,
}

/// When a call ran, and whether what changed meanwhile is surely its own.
pub(in crate::session) struct CallTime {
    /// When it began, in Unix milliseconds.
    pub(in crate::session) from: u64,
    /// From when on the writes of other sessions count: before the checkpoint before it.
    pub(in crate::session) since: Instant,
    /// When it ended, in Unix milliseconds, if it was short, ended by itself, and ran alone.
    pub(in crate::session) certain_to: Option<u64>,
}

impl CallTime {
    /// The time of a call that was cut off, and that began then, in Unix milliseconds.
    pub(in crate::session) fn cut_off(from: u64) -> Self {
        let ago = Duration::from_millis(clock::now().saturating_sub(from));
        let now = Instant::now();
        Self { from, since: now.checked_sub(ago).unwrap_or(now), certain_to: None }
    }
}

impl Runner {
    /// Takes a checkpoint before a call that may change files; `None` for any other.
    pub(super) async fn checkpoint_before(
        &self,
        id: &CallId,
        tool: &str,
        effects: &Effects,
    ) -> Result<Option<WatchedCall>, TurnEnded> {
        if !is_opaque(tool, effects) {
            return Ok(None);
        }
        let root = self.workspace.root.clone();
        let window = self.services.checkpoints.overlaps.open(&root, self.session.as_str());
        let before = match self.services.checkpoints.take(&self.workspace).await {
            Ok(checkpoint) => Some(Checkpoint { checkpoint, root, call_id: id.clone(), ..Checkpoint::default() }),
            Err(Skip::NotHere) => None,
            Err(skip) => {
                tracing::warn!(target: "checkpoint", session = %self.session, call = %id, %skip, "none taken");
                if !self.warned_no_checkpoints.swap(true, Ordering::Relaxed) {
                    let text = format!(
                        "no checkpoint of {} was taken: {skip}; what the command changes cannot be undone",
                        root.display()
                    );
                    self.emit.notice(Level::Warning, NoticeCode::NoCheckpoint, text)?;
                }
                None
            }
        };
        Ok(Some(WatchedCall { before, window }))
    }

    /// Takes the checkpoint after a call that began then, in Unix milliseconds, and ran so long; records it if it differs.
    pub(super) async fn checkpoint_after(&self, call: WatchedCall, from: u64, ran: Duration) -> Result<(), TurnEnded> {
        let WatchedCall { before: Some(before), window } = call else { return Ok(()) };
        let certain_to = window.is_certain(ran).then(clock::now);
        let time = CallTime { from, since: window.began(), certain_to };
        let after = after(&self.services.checkpoints, &self.workspace, before, time).await;
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
    time: CallTime,
) -> Checkpoint {
    let Checkpoint { checkpoint: since, root, call_id, .. } = before;
    let none = Checkpoint {
        checkpoint: since.clone(),
        root: root.clone(),
        call_id,
        since: Some(since.clone()),
        ..Checkpoint::default()
    };
    let modes = checkpoints.modes(&root, &since).await;
    let taken = match checkpoints.take(workspace).await {
        Ok(taken) if taken != since => taken,
        Ok(_) => return none,
        Err(skip) => {
            tracing::warn!(target: "checkpoint", root = %root.display(), %skip, "none taken after a call");
            return none;
        }
    };
    let changes = match checkpoints.between(workspace, &root, &since, &taken).await {
        Ok(changes) => changes,
        Err(why) => {
            tracing::warn!(target: "checkpoint", root = %root.display(), why, "a checkpoint cannot be compared");
            return none;
        }
    };
    let (place, workspace) = (root.clone(), workspace.clone());
    let told =
        disk::probe(&root, disk::TIMEOUT, move || told(changes, modes.as_deref(), &place, &workspace, time)).await;
    let Some(told) = told else {
        tracing::warn!(target: "checkpoint", root = %root.display(), "the disk does not answer after a call");
        return none;
    };
    Checkpoint { checkpoint: taken, root, call_id: none.call_id, since: none.since, ..told }
}

/// The changes that a checkpoint after a call tells. Blocks.
fn told(
    mut changes: Vec<TreeChange>,
    modes: Option<&Modes>,
    root: &Path,
    workspace: &Workspace,
    time: CallTime,
) -> Checkpoint {
    let CallTime { from, since, certain_to } = time;
    let mut certain = certain_to.is_some_and(|to| changes.iter().all(|change| is_within(&change.path, from, to)));
    let name = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_path_buf();
    let mut others = Vec::new();
    changes.retain(|change| match workspace.seen.other_wrote(&change.path, since) {
        Some(OtherWrite::Left) if others.len() < MAX_OTHERS => {
            others.push(name(&change.path));
            false
        }
        Some(_) => {
            certain = false;
            true
        }
        None => true,
    });
    let modes = modes.filter(|_| changes.len() <= MAX_RESTORED).map(|modes| modes.of_changes(root, &changes));
    Checkpoint {
        changed: u32::try_from(changes.len()).unwrap_or(u32::MAX),
        files: changes.iter().take(NAMED).map(|change| name(&change.path)).collect(),
        from: Some(from),
        certain,
        others,
        modes,
        ..Checkpoint::default()
    }
}

/// Whether a file was last changed between these times, in Unix milliseconds; if there is none, the nearest directory above, from which
/// it or a directory of its went.
fn is_within(path: &Path, from: u64, to: u64) -> bool {
    let Some(status) = path.ancestors().find_map(|path| path.symlink_metadata().ok()) else { return false };
    let changed = u64::try_from(status.ctime() * 1000 + status.ctime_nsec() / 1_000_000).unwrap_or_default();
    (from.saturating_sub(CLOCK_STEP_MS)..=to.saturating_add(CLOCK_STEP_MS)).contains(&changed)
}
