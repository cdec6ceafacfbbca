//! The questions that this daemon has asked in its own log: about changes of the configuration, and about workspaces.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::QuestionId;

use crate::config::Waiting;

/// The longest list of changes that a question shows, in bytes: users read it all.
pub(super) const MAX_SHOWN: usize = 32 << 10;

/// The answer that puts the changes into force.
pub(super) const CONFIRM: &str = "confirm";

/// The answer that leaves them out until the file changes again.
pub(super) const KEEP: &str = "keep";

/// The question about changes that wait, as far as this daemon has asked it.
#[derive(Debug, Default)]
pub struct ConfigQuestion(Mutex<ConfigQuestionState>);

#[derive(Debug, Default)]
pub(super) struct ConfigQuestionState {
    pub(super) question: Option<(QuestionId, Arc<Waiting>)>,
    /// The changes that a person has left out.
    pub(super) kept: Option<Arc<Waiting>>,
    /// Whether an earlier daemon may have left a question open.
    pub(super) is_stale: bool,
}

impl ConfigQuestion {
    pub(super) fn state(&self) -> MutexGuard<'_, ConfigQuestionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The question about these changes.
    pub(super) fn about(&self, waiting: &Waiting) -> Option<QuestionId> {
        self.state().question.as_ref().filter(|(_, about)| **about == *waiting).map(|(question, _)| question.clone())
    }
}

/// The questions about workspaces, as far as this daemon has asked them.
#[derive(Debug, Default)]
pub struct WorkspaceQuestions(Mutex<ByRoot>);

/// For each root of a workspace the question, unless it was answered with `keep`, and the changes that it lists.
type ByRoot = HashMap<PathBuf, (Option<QuestionId>, Arc<Waiting>)>;

impl WorkspaceQuestions {
    pub(super) fn state(&self) -> MutexGuard<'_, ByRoot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The workspace that a question is about, and what it lists.
    pub(super) fn about(&self, question: &QuestionId) -> Option<(PathBuf, Arc<Waiting>)> {
        let state = self.state();
        let (root, (_, waiting)) = state.iter().find(|(_, (asked, _))| asked.as_ref() == Some(question))?;
        Some((root.clone(), waiting.clone()))
    }

    pub(super) fn question(&self, root: &Path, waiting: &Waiting) -> Option<QuestionId> {
        self.state().get(root).filter(|(_, about)| **about == *waiting)?.0.clone()
    }
}
