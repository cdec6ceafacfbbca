//! The session of each pending question, so that answers reach it without a query, in the order of their connection's requests.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linger_protocol::id::{QuestionId, SessionId};

/// The pending questions of all sessions, loaded or not, and of the daemon's own log.
#[derive(Debug, Default)]
pub struct PendingQuestions(Mutex<HashMap<QuestionId, SessionId>>);

impl PendingQuestions {
    fn map(&self) -> MutexGuard<'_, HashMap<QuestionId, SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a question of `session`.
    pub fn add(&self, question: &QuestionId, session: &SessionId) {
        self.map().insert(question.clone(), session.clone());
    }

    /// Removes a question that is answered or withdrawn.
    pub fn remove(&self, question: &QuestionId) {
        self.map().remove(question);
    }

    /// Removes all questions of a session.
    pub fn remove_all(&self, session: &SessionId) {
        self.map().retain(|_, waits| waits != session);
    }

    /// The session of a pending question.
    pub fn session(&self, question: &QuestionId) -> Option<SessionId> {
        self.map().get(question).cloned()
    }
}
