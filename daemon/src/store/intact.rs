//! Whether what is written can be found again: the files of the database are still those that were opened, and can be written.
//!
//! SQLite goes on writing into files that somebody has deleted or put others in the place of, and what it acknowledges then is
//! gone with the process. Looked at before each synced commit, which is what somebody is told of; it takes a microsecond.
//! A database that could only be read when it was opened, as on a file system that cannot be written, stays so: once it can be
//! written, the daemon has to start anew ([`Intact::writable`]).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::sync::Notify;

use super::error::StoreError;

/// The files of a database that is open.
#[derive(Debug)]
pub(super) struct Intact {
    database: PathBuf,
    files: Vec<(PathBuf, Option<Id>)>,
    /// It could only be read when it was opened.
    fixed: bool,
    writable: Notify,
}

/// Device and inode.
type Id = (u64, u64);

impl Intact {
    /// The database at `path` and its write-ahead log, as they are now; `fixed`: it can only be read.
    pub(super) fn of(path: &Path, fixed: bool) -> Self {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let files = [path.to_path_buf(), wal.into()].map(|path| (path.clone(), id(&path))).into();
        Self { database: path.to_path_buf(), files, fixed, writable: Notify::new() }
    }

    /// Fails unless they are still there, and can be written. For a commit: it wakes those that wait for [`Intact::writable`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.is_writable_again() {
            self.writable.notify_one();
        }
        self.look()
    }

    /// As [`Intact::check`], without waking [`Intact::writable`].
    pub(super) fn look(&self) -> Result<(), StoreError> {
        let fail = |path: &Path, why: &str| Err(StoreError(format!("{} {why}", path.display()).into()));
        if let Some((path, _)) = self.files.iter().find(|(path, known)| known.is_some() && id(path) != *known) {
            return fail(
                path,
                "was deleted or replaced while the daemon had it open; put it back, or start the daemon again",
            );
        }
        if !self.fixed {
            return Ok(());
        }
        fail(
            &self.database,
            if self.is_writable_again() {
                "can be written again: the daemon restarts with the next prompt"
            } else {
                "cannot be written; its file system may be mounted read-only"
            },
        )
    }

    /// Asks for the file and not for its directory: one that is locked alone (`chattr +i`) would be tried for ever.
    fn is_writable_again(&self) -> bool {
        self.fixed && rustix::fs::access(&self.database, rustix::fs::Access::WRITE_OK).is_ok()
    }

    /// Waits until a database that was opened to be read alone is found to be writable.
    pub(super) async fn writable(&self) {
        self.writable.notified().await;
    }
}

fn id(path: &Path) -> Option<Id> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}
