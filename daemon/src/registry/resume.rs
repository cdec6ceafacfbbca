//! Resuming the turns that ran when the daemon ended, and those that wait for a configuration.

use std::sync::Arc;
use std::time::Duration;

use linger_protocol::id::SessionId;
use tokio::sync::oneshot;

use super::Registry;
use crate::fault;
use crate::session::messages::{Command, WRITE_RETRY};
use crate::session::state::UNCONFIGURED;
use crate::store::StoreError;
use crate::sys::task;

/// How long clients wait until all turns are resumed: longer with thousands of sessions, or with a workspace on an unresponsive
/// disk.
const PLANS: Duration = Duration::from_secs(1);

impl Registry {
    /// Resumes the turns that ran when the daemon ended. Fails if a retry may succeed. Afterwards no session is listed as running
    /// without a task, unless resuming takes longer than clients wait.
    pub async fn resume_unfinished(self: &Arc<Self>) -> Result<(), StoreError> {
        match self.unfinished().await {
            Ok(unfinished) => {
                let woken = unfinished.iter().filter(|_| !fault::bug("I6"));
                let plans: Vec<_> = woken.map(|session| self.wake(session)).collect();
                let all = async {
                    for plan in plans {
                        // It ends without a message.
                        let _planned = plan.await;
                    }
                };
                if tokio::time::timeout(PLANS, all).await.is_err() {
                    tracing::warn!(target: "daemon", "not all turns are resumed yet");
                }
                Ok(())
            }
            Err(error) if error.is_damage() => {
                // Sessions can be served without a list of them.
                tracing::error!(target: "daemon", %error, "cannot list unfinished turns");
                self.env.store.found.database(&error.to_string());
                Ok(())
            }
            Err(error) => {
                tracing::error!(target: "daemon", %error, "cannot list unfinished turns yet");
                Err(error)
            }
        }
    }

    /// [`Self::resume_unfinished`], until it works.
    pub async fn resume_later(self: Arc<Self>) {
        let mut pause = WRITE_RETRY[0];
        loop {
            tokio::time::sleep(pause).await;
            if self.resume_unfinished().await.is_ok() {
                return;
            }
            pause = (pause * 2).min(WRITE_RETRY[1]);
        }
    }

    /// Resumes the turns that wait for a configuration.
    pub async fn resume_unconfigured(self: Arc<Self>) {
        let waiting = match self.env.store.in_state(UNCONFIGURED).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::error!(target: "daemon", %error, "cannot list turns that wait for the configuration");
                return;
            }
        };
        for session in waiting {
            self.send(&session, Command::Configured);
        }
    }

    /// The sessions whose turns are resumed without a request. Also fills the table of pending questions, which has those of unloaded
    /// sessions.
    async fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        let unfinished = self.env.store.unfinished().await?;
        let unanswered = self.env.store.unanswered().await?;
        unanswered.iter().for_each(|(question, session)| self.env.questions.add(question, session));
        Ok(unfinished)
    }

    /// Loads a session with an unfinished turn, regardless of the limit: as many were loaded before. The receiver ends when the
    /// turn's next event is stored or cannot be, or at once if the session is loaded already.
    pub fn wake(self: &Arc<Self>, id: &SessionId) -> oneshot::Receiver<()> {
        let (planned, is_planned) = oneshot::channel();
        // A client may have loaded it.
        if let Some(commands) = self.mailboxes.add_stored(id) {
            task::spawn(self.clone().load(id.clone(), commands, Some(planned)));
        }
        is_planned
    }
}
