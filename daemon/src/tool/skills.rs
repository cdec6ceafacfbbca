//! The skills that a session's model can read: shared by its turns, which set them, and its calls.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use linger_protocol::agent::SkillLimit;

/// The files of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFiles {
    /// The skill's name.
    pub name: String,
    /// Its SKILL.md, links resolved.
    pub file: PathBuf,
    /// The hash of that file as a person trusted it; absent for the user's own.
    pub digest: Option<String>,
    /// What it limits a turn to that has read it; absent if to nothing.
    pub limit: Option<SkillLimit>,
}

/// The skills of a session; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Skills(Arc<Mutex<Arc<[SkillFiles]>>>);

impl PartialEq for Skills {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Skills {}

impl Skills {
    /// The model can read these from now on.
    pub fn set(&self, places: Vec<SkillFiles>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = places.into();
    }

    pub(super) fn get(&self) -> Arc<[SkillFiles]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
