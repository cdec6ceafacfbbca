//! Taking up the turns that were under way when the daemon ended, and those that waited for a configuration.

use std::sync::Arc;
use std::time::Duration;

use linger_protocol::id::SessionId;
use tokio::sync::oneshot;

use super::Registry;
use crate::fault;
use crate::session::actor::{Command, MEND};
use crate::session::state::UNCONFIGURED;
use crate::store::StoreError;

/// How long clients are kept waiting for what becomes of the turns that were under way: thousands of sessions, or a workspace on
/// a disk that does not answer.
const PLANS: Duration = Duration::from_secs(1);

impl Registry {
    /// Takes up the turns that were under way when the daemon ended; gives why not, if it may work in a moment. When it is
    /// done, no session says that it runs because it once did, unless that takes longer than clients are kept waiting.
    pub async fn resume_unfinished(self: &Arc<Self>) -> Result<(), StoreError> {
        match self.unfinished().await {
            Ok(unfinished) => {
                let woken = unfinished.iter().filter(|_| !fault::bug("I6"));
                let plans: Vec<_> = woken.map(|session| self.wake(session)).collect();
                let all = async {
                    for plan in plans {
                        // Nothing is said, it only ends.
                        let _planned = plan.await;
                    }
                };
                if tokio::time::timeout(PLANS, all).await.is_err() {
                    tracing::warn!(target: "daemon", "not all turns have been taken up yet");
                }
                Ok(())
            }
            Err(error) if error.is_damage() => {
                // Sessions can be served that cannot be listed.
                tracing::error!(target: "daemon", %error, "unfinished turns cannot be found");
                self.env.store.found.database(&error.to_string());
                Ok(())
            }
            Err(error) => {
                tracing::error!(target: "daemon", %error, "unfinished turns cannot be found for now");
                Err(error)
            }
        }
    }

    /// [`Self::resume_unfinished`], until it works.
    pub async fn resume_later(self: Arc<Self>) {
        let mut pause = MEND[0];
        loop {
            tokio::time::sleep(pause).await;
            if self.resume_unfinished().await.is_ok() {
                return;
            }
            pause = (pause * 2).min(MEND[1]);
        }
    }

    /// Resumes the turns that wait for a configuration.
    pub async fn resume_unconfigured(self: Arc<Self>) {
        let waiting = match self.env.store.in_state(UNCONFIGURED).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::error!(target: "daemon", %error, "turns that wait for the configuration cannot be found");
                return;
            }
        };
        for session in waiting {
            self.send(&session, Command::Configured);
        }
    }

    /// The sessions whose turns are resumed without a request. From now on it is known which pending permission is of which
    /// session, also of those that are not loaded.
    async fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        let unfinished = self.env.store.unfinished().await?;
        let unanswered = self.env.store.unanswered().await?;
        unanswered.iter().for_each(|(question, session)| self.env.questions.add(question, session));
        Ok(unfinished)
    }

    /// Loads a session whose turn is unfinished, however many are loaded: there were as many before. What it gives ends
    /// when it is stored what becomes of the turn, or cannot be for now; at once if it is loaded already.
    pub fn wake(self: &Arc<Self>, id: &SessionId) -> oneshot::Receiver<()> {
        let (planned, is_planned) = oneshot::channel();
        // Or a client was first.
        if let Some(commands) = self.mailboxes.add_stored(id) {
            tokio::spawn(self.clone().load(id.clone(), commands, Some(planned)));
        }
        is_planned
    }
}
