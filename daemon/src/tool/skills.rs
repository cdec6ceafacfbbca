//! The skills that a session's model can read: shared by its turns, which set them, and its calls.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use linger_protocol::agent::SkillLimit;

/// The files of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFiles {
    /// Name by which the model asks for the skill.
    pub name: String,
    /// Its SKILL.md, links resolved.
    pub file: PathBuf,
    /// The hash of that file as a person trusted it; absent for the user's own.
    pub digest: Option<String>,
    /// The limit on a turn that has read it; absent if there is none.
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
    /// Replaces the skills that the model can read.
    pub fn set(&self, places: Vec<SkillFiles>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = places.into();
    }

    pub(super) fn get(&self) -> Arc<[SkillFiles]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
