//! The files of the daemon's own database, which no tool opens.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::Stat;
use rustix::process::geteuid;

use crate::store::aside::{PARTS, with};

/// The databases that this process has open, of all its daemons: their locks are the process's.
static OWN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// From now on no tool opens this database.
pub(crate) fn keep_shut(database: &Path) {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).insert(database.to_path_buf());
}

/// The error for a file of the daemon's own database.
pub(super) const OWN_DATABASE: &str = "is the database of the daemon itself; look at it with `sqlite3 -readonly`";

/// The facts that tell a file from others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    mode: u32,
    uid: u32,
    inode: (u64, u64),
}

impl From<&Metadata> for Identity {
    fn from(metadata: &Metadata) -> Self {
        Self { mode: metadata.mode(), uid: metadata.uid(), inode: (metadata.dev(), metadata.ino()) }
    }
}

impl From<&Stat> for Identity {
    // The types of these fields depend on the system.
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, clippy::cast_lossless)]
    fn from(status: &Stat) -> Self {
        let inode = (status.st_dev as u64, status.st_ino as u64);
        Self { mode: status.st_mode as u32, uid: status.st_uid, inode }
    }
}

/// Whether it is a file of the daemon's own database. To close any descriptor of one takes away the locks that SQLite has on it
/// in this process (fcntl(2)), and another process would then take its WAL for left behind.
pub(super) fn is_own(file: &Identity) -> bool {
    // No other mode is theirs, and few files have it.
    let may_be = file.mode & 0o777 == 0o600 && file.uid == geteuid().as_raw();
    let same = |path: PathBuf| path.metadata().is_ok_and(|own| Identity::from(&own).inode == file.inode);
    let own = || OWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    may_be && own().iter().any(|database| PARTS.into_iter().any(|part| same(with(database, part))))
}
