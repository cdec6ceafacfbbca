//! Which session asks which pending question: an answer then goes to its session at once, in the order in which the requests of
//! its connection came.

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

    /// `session` waits for an answer to this.
    pub fn add(&self, question: &QuestionId, session: &SessionId) {
        self.map().insert(question.clone(), session.clone());
    }

    /// It has its answer, or was withdrawn.
    pub fn remove(&self, question: &QuestionId) {
        self.map().remove(question);
    }

    /// A session waits for none, or is no more.
    pub fn remove_all(&self, session: &SessionId) {
        self.map().retain(|_, waits| waits != session);
    }

    /// The session that waits.
    pub fn session(&self, question: &QuestionId) -> Option<SessionId> {
        self.map().get(question).cloned()
    }
}
