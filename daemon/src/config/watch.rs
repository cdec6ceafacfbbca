//! Wakes when the configuration file may have changed.
//!
//! *Directories* are watched, because editors replace files: the file's own directory, its parent, because the whole directory may
//! be replaced, and the same for each symlink on the path ([`trail`]). After each wake-up the path is followed again before the
//! file is read, so that no change is missed.
//! `notify` has its own thread, which only sets a flag; nothing runs while nothing changes.
//! A wake-up means "may have changed": [`ConfigStore::reload`](super::ConfigStore::reload) compares.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use super::edit::make_directory;
use super::notices::{Notices, Point, trail};

use crate::sys::task;

/// The delay between a change and reading the file. Editors that truncate and write, or rename twice, are done by then; reading
/// earlier could find a file without rules.
const SETTLE: Duration = Duration::from_millis(100);

/// Watches one configuration file until dropped.
#[derive(Debug)]
pub struct Changes {
    file: PathBuf,
    sender: watch::Sender<()>,
    receiver: watch::Receiver<()>,
    watcher: Option<RecommendedWatcher>,
    /// Made together with the watcher; absent if only reading the file tells of changes.
    notices: Option<Notices>,
    error: Option<String>,
}

impl Changes {
    /// Watches `file`, which may be missing; creates its directory with mode 0700 if possible.
    pub fn of(file: &Path) -> Self {
        if let Some(Err(error)) = file.parent().map(make_directory) {
            tracing::warn!(target: "config", %error, file = %file.display(), "cannot create the configuration directory");
        }
        let (sender, receiver) = watch::channel(());
        Self { file: file.to_path_buf(), sender, receiver, watcher: None, notices: None, error: None }.watch_again()
    }

    /// Why the file cannot be watched, if so.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Takes the queue of notices since the last wake-up.
    pub fn take_notices(&mut self) -> Option<Notices> {
        self.notices.take()
    }

    /// Waits for a change and then [`SETTLE`]. The result watches from then on; `None` means that no change can come any more.
    pub async fn next(mut self) -> Option<Self> {
        self.receiver.changed().await.ok()?;
        tokio::time::sleep(SETTLE).await;
        self.receiver.mark_unchanged();
        // It blocks on the disk.
        task::spawn_blocking(|| self.watch_again()).await.ok()
    }

    /// Follows the path again. The old watcher stays until the new one works.
    fn watch_again(mut self) -> Self {
        let trail = trail(&self.file);
        self.notices = Notices::of(&self.file, &trail, self.sender.clone()).ok();
        match watcher(trail, self.sender.clone()) {
            Ok(watcher) => (self.watcher, self.error) = (Some(watcher), None),
            Err(error) => self.error = Some(error.to_string()),
        }
        self
    }
}

fn watcher(trail: Vec<Point>, sender: watch::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let names: BTreeSet<OsString> = trail.iter().flat_map(|point| &point.names).cloned().collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let concerns = match &event {
            Ok(event) if is_reading(event.kind) => false,
            // The system dropped events.
            Ok(event) if event.need_rescan() => true,
            Ok(event) => event.paths.iter().any(|path| path.file_name().is_some_and(|name| names.contains(name))),
            Err(_) => true,
        };
        if concerns {
            sender.send_replace(());
        }
    })?;
    for point in trail {
        match point.watch(&mut watcher) {
            Err(error) if !point.above => return Err(error),
            // The parent matters only if the whole directory is replaced, and many users may not read it.
            Ok(()) | Err(_) => {}
        }
    }
    Ok(watcher)
}

impl Point {
    /// Watches the directory, or its nearest existing ancestor.
    fn watch(&self, watcher: &mut RecommendedWatcher) -> notify::Result<()> {
        let mut dir = self.dir.as_path();
        loop {
            match (watcher.watch(dir, RecursiveMode::NonRecursive), dir.parent()) {
                (Err(error), Some(above)) if is_absent(&error) => dir = above,
                (watched, _) => return watched,
            }
        }
    }
}

/// Whether the directory is missing.
fn is_absent(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        _ => false,
    }
}

/// Whether the event is a read, such as our own.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}
