//! Directories that a user added to a session: its file tools treat them like the workspace.
//!
//! Shared by the session's actor, which sets them as its events say, and its running turn, whose next call sees them. The paths are
//! stored without links and not resolved again: behind a link that has taken the place of one nothing is added.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The most directories of a session: each path of a call is compared with all of them.
pub const MAX_ADDED: usize = 32;

/// The added directories of a session, absolute and without links.
#[derive(Clone, Debug, Default)]
pub struct AddedDirs(Arc<RwLock<Arc<[PathBuf]>>>);

impl AddedDirs {
    /// Begins with these directories.
    pub fn new(dirs: &[PathBuf]) -> Self {
        let added = Self::default();
        added.set(dirs);
        added
    }

    /// The directories at present.
    pub fn now(&self) -> Arc<[PathBuf]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces all of them.
    pub fn set(&self, dirs: &[PathBuf]) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = dirs.into();
    }

    /// Whether a path without links lies in one of them.
    pub fn has(&self, resolved: &Path) -> bool {
        self.now().iter().any(|dir| resolved.starts_with(dir))
    }
}

impl PartialEq for AddedDirs {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

impl Eq for AddedDirs {}
