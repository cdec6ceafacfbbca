//! Removing what is old: checkpoints of a workspace by age and size, and the private directories of workspaces that are not used.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::directory::{CheckpointGit, REFS};
use super::{RootState, Skip};
use crate::store::days::Days;
use crate::sys::clock;

/// How long checkpoints are kept, in milliseconds: as long as git keeps objects of a repository that nothing names.
const MAX_AGE_MS: u64 = 14 * clock::DAY_MS;

/// The most bytes of one private directory; half of its checkpoints, the older ones, give way.
const MAX_ROOT: u64 = 512 << 20;

/// The most bytes of all of them; those that were not used for longest give way.
const MAX_ALL: u64 = 2 << 30;

/// How often a directory is tidied.
pub(super) const EVERY: Duration = Duration::from_secs(6 * 3600);

/// Whether it is time.
pub(super) fn is_due(state: &RootState) -> bool {
    state.pruned_at.is_none_or(|at| at.elapsed() >= EVERY)
}

/// The time before which a checkpoint is old.
pub(super) fn before(days: &Days) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(days.before(MAX_AGE_MS, clock::now(), None))
}

/// Removes old checkpoints of one workspace, those before a time, and the objects that only they name.
pub(super) async fn prune(git: &CheckpointGit, state: &mut RootState, before: SystemTime) {
    state.pruned_at = Some(Instant::now());
    let removed = git.blocking(move |git| forget(&git.dir, before, MAX_ROOT)).await.unwrap_or_default();
    if removed == 0 {
        return;
    }
    // Trees of it may be gone.
    state.last = None;
    match git.run(&["prune", "--expire=now"], Vec::new()).await {
        Ok(_) => tracing::info!(target: "checkpoint", root = %git.root.display(), removed, "old checkpoints removed"),
        Err(Skip::NotHere) => {}
        Err(why) => tracing::warn!(target: "checkpoint", root = %git.root.display(), %why, "tidying failed"),
    }
}

/// Removes the names of old checkpoints; how many. Blocks.
pub(super) fn forget(dir: &Path, before: SystemTime, max: u64) -> usize {
    let Ok(names) = fs::read_dir(dir.join(REFS)) else { return 0 };
    let time = |entry: &fs::DirEntry| entry.metadata().and_then(|meta| meta.modified()).ok();
    let mut names: Vec<(SystemTime, PathBuf)> =
        names.flatten().filter_map(|entry| Some((time(&entry)?, entry.path()))).collect();
    names.sort();
    let mut give_way = names.iter().filter(|(at, _)| *at < before).count();
    if size(dir) > max {
        give_way = give_way.max(names.len().div_ceil(2));
    }
    names.iter().take(give_way).filter(|(_, path)| fs::remove_file(path).is_ok()).count()
}

/// Removes the private directories that were last used before a time, and more while they take too much. Blocks.
pub(super) fn sweep(all: &Path, before: SystemTime) {
    let Ok(entries) = fs::read_dir(all) else { return };
    let used = |dir: &Path| fs::metadata(dir.join("used")).and_then(|meta| meta.modified()).ok();
    let mut dirs: Vec<(Option<SystemTime>, PathBuf)> =
        entries.flatten().map(|entry| (used(&entry.path()), entry.path())).collect();
    dirs.sort();
    let mut total: u64 = dirs.iter().map(|(_, dir)| size(dir)).fold(0, u64::saturating_add);
    // The one that was used last may be in use.
    dirs.pop();
    for (used, dir) in dirs {
        // One that is being made has no stamp yet; the next time it has.
        let Some(used) = used else { continue };
        if used >= before && total <= MAX_ALL {
            continue;
        }
        total = total.saturating_sub(size(&dir));
        if let Err(error) = fs::remove_dir_all(&dir) {
            tracing::warn!(target: "checkpoint", dir = %dir.display(), %error, "old checkpoints cannot be removed");
        }
    }
}

/// The bytes of the files below a directory.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of).fold(0, u64::saturating_add)
}
