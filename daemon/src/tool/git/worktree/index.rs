//! Holding the index of a repository during a merge.
//!
//! Git's own lock looks the same whichever process left it, so a kill of a git that holds it blocks the repository until a person
//! removes it. A merge works on a copy of the index instead, behind an `index.lock` with the name of this daemon in it. A kill
//! leaves that: the next merge knows it, and removes it. One of another program is never removed.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sys::disk;

/// The file that keeps other git processes from the index.
const LOCK: &str = "index.lock";

/// The copy that git works on, in the directory of the index so that it can take its place in one step.
const COPY: &str = "linger-index";

/// The lock of an index; dropping it removes it.
#[derive(Debug)]
pub(super) struct IndexLock {
    /// The directory of the index.
    dir: PathBuf,
}

impl IndexLock {
    /// Takes the lock of the index in `dir` for `owner`, of which one merge at a time runs here, and makes the copy. Fails with the
    /// reason.
    pub(super) async fn take(root: &Path, dir: PathBuf, owner: String) -> Result<Arc<Self>, String> {
        let take = move || {
            let (lock, text) = (dir.join(LOCK), format!("held by linger: {owner}\n"));
            if holds(&lock, &text) {
                tracing::info!(target: "worktree", lock = %lock.display(), "removed: a merge that was cut off left it");
                fs::remove_file(&lock).map_err(|error| error.to_string())?;
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).open(&lock).map_err(|error| match error.kind() {
                    ErrorKind::AlreadyExists => {
                        format!("another git process is at work, or was killed: {} exists", lock.display())
                    }
                    _ => format!("{} cannot be made: {error}", lock.display()),
                })?;
            let this = Self { dir };
            file.write_all(text.as_bytes()).and_then(|()| this.copy()).map_err(|error| error.to_string())?;
            Ok(Arc::new(this))
        };
        disk::probe(root, disk::TIMEOUT, take).await.unwrap_or_else(|| Err(disk::unresponsive(root)))
    }

    /// The index that git is to work on.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(COPY)
    }

    /// Makes the copy anew.
    pub(super) async fn renew(self: &Arc<Self>, root: &Path) -> Result<(), String> {
        self.on_disk(root, Self::copy).await
    }

    /// Puts the copy in the place of the index.
    pub(super) async fn install(self: &Arc<Self>, root: &Path) -> Result<(), String> {
        self.on_disk(root, |this| fs::rename(this.path(), this.dir.join("index"))).await
    }

    /// Removes the lock.
    pub(super) async fn release(self: Arc<Self>, root: &Path) {
        // A disk that hangs keeps it until it answers.
        let _late = disk::probe(root, disk::TIMEOUT, move || drop(self)).await;
    }

    async fn on_disk(
        self: &Arc<Self>,
        root: &Path,
        act: impl FnOnce(&Self) -> io::Result<()> + Send + 'static,
    ) -> Result<(), String> {
        let this = self.clone();
        let acted = move || act(&this).map_err(|error| format!("the index cannot be written: {error}"));
        disk::probe(root, disk::TIMEOUT, acted).await.unwrap_or_else(|| Err(disk::unresponsive(root)))
    }

    fn copy(&self) -> io::Result<()> {
        self.clear();
        let mut index = match fs::File::open(self.dir.join("index")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            index => index?,
        };
        let mut copy = OpenOptions::new().write(true).create_new(true).open(self.path())?;
        io::copy(&mut index, &mut copy)?;
        // Git looks again at files that are as new as the index.
        copy.set_modified(index.metadata()?.modified()?)
    }

    fn clear(&self) {
        for name in [COPY.to_owned(), format!("{COPY}.lock")] {
            // There may be none.
            let _none = fs::remove_file(self.dir.join(name));
        }
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        self.clear();
        if let Err(error) = fs::remove_file(self.dir.join(LOCK)) {
            tracing::warn!(target: "worktree", dir = %self.dir.display(), %error, "the lock of its index stays");
        }
    }
}

/// Whether a lock has this text, whole: a file, and no longer.
fn holds(lock: &Path, text: &str) -> bool {
    let len = text.len() as u64;
    if !fs::symlink_metadata(lock).is_ok_and(|status| status.is_file() && status.len() == len) {
        return false;
    }
    let mut found = Vec::new();
    let read = fs::File::open(lock).and_then(|file| file.take(len).read_to_end(&mut found));
    read.is_ok() && found == text.as_bytes()
}
