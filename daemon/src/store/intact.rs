//! Whether what is written can be found again: the files of the database are still those that were opened.
//!
//! SQLite goes on writing into files that somebody has deleted or put others in the place of, and what it acknowledges then is
//! gone with the process. Looked at before each synced commit, which is what somebody is told of; it takes a microsecond.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::StoreError;

/// The files of a database that is open.
#[derive(Debug)]
pub(super) struct Intact(Vec<(PathBuf, Option<Id>)>);

/// Device and inode.
type Id = (u64, u64);

impl Intact {
    /// The database at `path` and its write-ahead log, as they are now.
    pub(super) fn of(path: &Path) -> Self {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        Self([path.to_path_buf(), wal.into()].into_iter().map(|path| (path.clone(), id(&path))).collect())
    }

    /// Fails unless they are still there.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.0.iter().find(|(path, known)| known.is_some() && id(path) != *known) {
            None => Ok(()),
            Some((path, _)) => {
                let why =
                    "was deleted or replaced while the daemon had it open; put it back, or start the daemon again";
                Err(StoreError(format!("{} {why}", path.display()).into()))
            }
        }
    }
}

fn id(path: &Path) -> Option<Id> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}
