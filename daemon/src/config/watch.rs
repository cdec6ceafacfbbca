//! Wakes when the configuration file may have changed.
//!
//! *Directories* are watched, because editors put a new file in the place of the old one: the file's own, the one above it, for
//! the whole directory may be exchanged, and the same for whatever a link on the way leads to ([`trail`]). After each wake-up the
//! way is gone anew, before anybody reads the file, so that a change in between is not missed.
//! `notify` has a thread of its own that only sets a flag; nothing runs while nothing changes.
//! A wake-up says "look", not "changed": [`ConfigStore::reload`](super::ConfigStore::reload) compares.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use super::grant::make_directory;
use super::notices::Notices;

/// How long the file is left alone after the first sign of a change. An editor that empties it and then writes it, or moves it
/// away and then puts the new one there, is through by then; in between, no rule would be in force.
const SETTLE: Duration = Duration::from_millis(100);

/// Links that are followed, as many as the system follows.
const MAX_LINKS: usize = 40;

/// Wake-ups for one configuration file; dropping it ends the watching.
#[derive(Debug)]
pub struct Changes {
    file: PathBuf,
    sender: watch::Sender<()>,
    receiver: watch::Receiver<()>,
    watcher: Option<RecommendedWatcher>,
    /// As old as the watcher; none where the file has to be looked at.
    notices: Option<Notices>,
    trouble: Option<String>,
}

impl Changes {
    /// Watches `file`, which need not be there; its directory is made, 0700, if it is absent and can be.
    pub fn of(file: &Path) -> Self {
        if let Some(Err(error)) = file.parent().map(make_directory) {
            tracing::warn!(target: "config", %error, file = %file.display(), "its directory cannot be made");
        }
        let (sender, receiver) = watch::channel(());
        Self { file: file.to_path_buf(), sender, receiver, watcher: None, notices: None, trouble: None }.watch_anew()
    }

    /// Why changes are not noticed, if so.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The queue that tells of each change after the last wake-up, given once.
    pub fn take_notices(&mut self) -> Option<Notices> {
        self.notices.take()
    }

    /// Waits until the file may have changed and has been left alone for a moment. What this gives tells of what changes
    /// after it was given; `None`: there is nothing more to wait for.
    pub async fn next(mut self) -> Option<Self> {
        self.receiver.changed().await.ok()?;
        tokio::time::sleep(SETTLE).await;
        self.receiver.mark_unchanged();
        // It looks at the disk, which may be far away.
        tokio::task::spawn_blocking(|| self.watch_anew()).await.ok()
    }

    /// Goes the way to the file again. The old watcher stays until the new one is there.
    fn watch_anew(mut self) -> Self {
        let trail = trail(&self.file);
        self.notices = Notices::of(&self.file, &trail, self.sender.clone()).ok();
        match watcher(trail, self.sender.clone()) {
            Ok(watcher) => (self.watcher, self.trouble) = (Some(watcher), None),
            Err(error) => self.trouble = Some(error.to_string()),
        }
        self
    }
}

fn watcher(trail: Vec<Point>, sender: watch::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let names: BTreeSet<OsString> = trail.iter().flat_map(|point| &point.names).cloned().collect();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let concerns = match &event {
            Ok(event) if is_reading(event.kind) => false,
            // The system lost count: look.
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
            // It matters only if the whole directory is exchanged, and many may not list what is above theirs.
            Ok(()) | Err(_) => {}
        }
    }
    Ok(watcher)
}

/// A directory on the way to the file.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) dir: PathBuf,
    /// What in it the way leads over, and what leads to it from the nearest directory that is there.
    pub(super) names: Vec<OsString>,
    /// Whether the file, or a link to it, lies in a directory of this one, and not in itself.
    pub(super) above: bool,
}

impl Point {
    /// Watches the directory, or the nearest one above it that is there.
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

/// The directories where a change can make `file` another one, the first its own.
fn trail(file: &Path) -> Vec<Point> {
    let (mut trail, mut links) = (Vec::new(), vec![file.to_path_buf()]);
    let mut followed = 0;
    while let Some(path) = links.pop() {
        for (above, at) in [false, true].into_iter().zip(path.ancestors()) {
            let (Some(dir), Some(name)) = (at.parent(), at.file_name()) else { continue };
            let from = dir.ancestors().filter_map(Path::file_name);
            let names = [name].into_iter().chain(from).map(OsStr::to_owned).collect();
            trail.push(Point { dir: dir.to_path_buf(), names, above });
            if let Ok(target) = at.read_link()
                && followed < MAX_LINKS
            {
                followed += 1;
                links.push(dir.join(target));
            }
        }
    }
    trail
}

/// Whether there is no such directory.
fn is_absent(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        _ => false,
    }
}

/// Whether the event is a look at the file, such as our own.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}
