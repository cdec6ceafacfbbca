//! Notices that Markdown files of the user or of a workspace have changed.
//!
//! `notify` has its own thread, which only wakes the task that asked; nothing runs while nothing changes. What a change means is found
//! out by reading the files again. Each directory is watched, or its nearest one above that exists: it may be made later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::{FileKind, Places};

/// The delay between a change and reading the files: editors that truncate and write, or rename twice, are done by then.
pub const SETTLE: Duration = Duration::from_millis(150);

/// The most directories that are watched for all workspaces: a user has 8192 watches or more in all.
const MAX_DIRECTORIES: usize = 1000;

/// The deepest directories below those of skills that are watched.
const MAX_DEPTH: usize = 4;

/// Watches the files of some places until dropped.
#[derive(Default)]
pub struct Watch {
    changed: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Woken by each change.
    pub fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Watches the directories that exist now. Blocks on the disk.
    pub fn again(&mut self, all: &[Places]) {
        let mut names = BTreeMap::new();
        all.iter().for_each(|places| directories(places, &mut names));
        let (changed, concerned) = (self.changed.clone(), names.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerns = match &event {
                Ok(event) if is_reading(event.kind) => false,
                Ok(event) if event.need_rescan() => true,
                Ok(event) => event.paths.iter().any(|path| is_concerned(path, &concerned)),
                Err(_) => true,
            };
            if concerns {
                changed.notify_one();
            }
        });
        let watcher = match watcher {
            Ok(watcher) => self.watcher.insert(watcher),
            Err(error) => {
                self.watcher = None;
                tracing::warn!(target: "agent", %error, "cannot watch files: changes count from the next prompt, unsaid");
                return;
            }
        };
        for directory in names.keys() {
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                tracing::debug!(target: "agent", %error, directory = %directory.display(), "cannot watch");
            }
        }
    }
}

/// Whether a change of this path is one of files that count: everything in their directories, and what leads to them above.
fn is_concerned(path: &Path, directories: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> bool {
    let Some(parent) = path.parent() else { return true };
    match directories.get(parent) {
        Some(only) => only.is_empty() || only.contains(path),
        // The directory itself was moved or removed.
        None => directories.contains_key(path),
    }
}

/// The directories to watch, each with the paths in it that matter; empty for all.
fn directories(places: &Places, directories: &mut BTreeMap<PathBuf, BTreeSet<PathBuf>>) {
    for (directory, deep) in FileKind::watched(places) {
        if directories.len() >= MAX_DIRECTORIES {
            break;
        }
        if directory.is_dir() {
            whole(&directory, if deep { MAX_DEPTH } else { 0 }, directories);
            continue;
        }
        let missing = directory.ancestors().zip(directory.ancestors().skip(1));
        if let Some((missing, above)) = missing.into_iter().find(|(_, above)| above.is_dir()) {
            let only =
                directories.entry(above.to_path_buf()).or_insert_with(|| BTreeSet::from([missing.to_path_buf()]));
            if !only.is_empty() {
                only.insert(missing.to_path_buf());
            }
        }
    }
}

fn whole(directory: &Path, depth: usize, directories: &mut BTreeMap<PathBuf, BTreeSet<PathBuf>>) {
    if directories.len() >= MAX_DIRECTORIES {
        return;
    }
    directories.insert(directory.to_path_buf(), BTreeSet::new());
    if depth == 0 {
        return;
    }
    let below = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| path.is_dir()).for_each(|path| whole(&path, depth - 1, directories));
}

/// Whether the event is a read, such as our own.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_in_a_directory_that_is_made_later_is_noticed_and_another_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let root = at.join("w");
        std::fs::create_dir_all(at.join("config")).unwrap();
        std::fs::create_dir_all(&root).unwrap();
        let all = [Places { config: at.join("config"), home: None, root: root.clone(), cwd: root.clone() }];
        let mut watch = Watch::default();
        watch.again(&all);
        let changed = watch.changed();
        let soon = || tokio::time::timeout(Duration::from_secs(20), changed.notified());
        std::fs::write(root.join("unrelated"), "x").unwrap();
        std::fs::create_dir_all(root.join(".linger")).unwrap();
        soon().await.unwrap();
        watch.again(&all);
        std::fs::create_dir_all(root.join(".linger/agents")).unwrap();
        soon().await.unwrap();
        watch.again(&all);
        std::fs::write(root.join(".linger/agents/a.md"), "x").unwrap();
        soon().await.unwrap();
        let mut names = BTreeMap::new();
        directories(&all[0], &mut names);
        assert!(!is_concerned(&root.join("unrelated"), &names));
        assert!(is_concerned(&root.join(".linger/agents/b.md"), &names));
        assert!(is_concerned(&root.join(".claude"), &names));
    }
}
