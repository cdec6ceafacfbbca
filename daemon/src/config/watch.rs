//! Wakes when the configuration file may have changed.
//!
//! The *directory* is watched, because editors put a new file in the place of the old one, and, when the file is a link, the
//! directory that it leads to. `notify` has a thread of its own that only sets a flag; nothing runs while nothing changes.
//! A wake-up says "look", not "changed": [`ConfigStore::reload`](super::ConfigStore::reload) compares.

use std::path::Path;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use super::grant::make_directory;

/// How long the file is left alone after the first sign of a change. An editor that empties it and then writes it, or moves it
/// away and then puts the new one there, is through by then; in between, no rule would be in force.
const SETTLE: Duration = Duration::from_millis(100);

/// Wake-ups for one configuration file; dropping it ends the watching.
#[derive(Debug)]
pub struct Changes {
    receiver: watch::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    /// Watches `file`, which need not be there; its directory is made, 0700, if it is absent.
    pub fn of(file: &Path) -> notify::Result<Self> {
        let dir = file.parent().unwrap_or(Path::new("/"));
        make_directory(dir)?;
        let target = file.canonicalize().ok().filter(|target| target.parent() != dir.canonicalize().ok().as_deref());
        let names: Vec<_> = [Some(file), target.as_deref()]
            .into_iter()
            .flatten()
            .filter_map(|path| path.file_name())
            .map(ToOwned::to_owned)
            .collect();
        let (sender, receiver) = watch::channel(());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerns = match &event {
                Ok(event) if is_reading(event.kind) => false,
                Ok(event) => event
                    .paths
                    .iter()
                    .any(|path| path.file_name().is_some_and(|name| names.iter().any(|own| own == name))),
                // The system lost count: look.
                Err(_) => true,
            };
            if concerns {
                sender.send_replace(());
            }
        })?;
        watcher.watch(dir, RecursiveMode::NonRecursive)?;
        if let Some(target) = target.as_deref().and_then(Path::parent) {
            watcher.watch(target, RecursiveMode::NonRecursive)?;
        }
        Ok(Self { receiver, _watcher: watcher })
    }

    /// Waits until the file may have changed and has been left alone for a moment. `None`: there is nothing more to wait for.
    pub async fn next(&mut self) -> Option<()> {
        self.receiver.changed().await.ok()?;
        tokio::time::sleep(SETTLE).await;
        self.receiver.mark_unchanged();
        Some(())
    }
}

/// Whether the event is a look at the file, such as our own.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}
