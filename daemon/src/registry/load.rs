//! Loading a session: its actor is created from the store and runs, or its commands are refused.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use tokio::sync::oneshot;

use super::{Commands, Registry, ending};
use crate::log::Log;
use crate::session::actor::Actor;
use crate::session::messages::{Command, KeyedReply, WRITE_RETRY};
use crate::store::{SessionRow, StoreError};
use crate::sys::task;

impl Registry {
    /// Loads a session and runs it. `planned`: it has a turn to resume without a request, so a failed load is repeated; a command
    /// that arrives meanwhile repeats it immediately.
    pub(super) async fn load(
        self: Arc<Self>,
        id: SessionId,
        mut commands: Commands,
        mut planned: Option<oneshot::Sender<()>>,
    ) {
        let unfinished = planned.is_some();
        let mut asked = None;
        let mut pause = WRITE_RETRY[0];
        loop {
            let (error, may_pass) = match self.loaded(&id).await {
                Ok(actor) => {
                    if let Some(planned) = planned {
                        // The actor retries failed writes.
                        let _later = actor.barrier().await;
                        drop(planned);
                    }
                    // A task of its own: this one is much larger than what an idle session needs.
                    task::spawn(Box::new(actor).run(asked, commands));
                    return;
                }
                Err(error) => error,
            };
            planned = None;
            if let Some(command) = asked.take() {
                self.refuse(&id, command, error.clone()).await;
            }
            if !unfinished || !may_pass {
                self.mailboxes.forget(&id);
                commands.close();
                while let Some(command) = commands.recv().await {
                    self.refuse(&id, command, error.clone()).await;
                }
                return;
            }
            tracing::error!(target: "session", session = %id, %error, "cannot resume its turn yet");
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => asked = Some(command),
                    // The daemon ends.
                    None => return,
                },
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(WRITE_RETRY[1]),
            }
        }
    }

    /// Refuses a command of a session that cannot be loaded. A damaged session can only be removed, with force.
    async fn refuse(&self, id: &SessionId, command: Box<Command>, error: RpcError) {
        match *command {
            Command::Remove(false, asked) if error.code() == Some(Code::Damaged) => {
                let hint = "`linger doctor --repair` saves what can be read, `linger rm --force` removes it as it is";
                Command::Remove(false, asked).refuse(error.hint(hint));
            }
            Command::Remove(true, KeyedReply { key, reply }) if error.code() == Some(Code::Damaged) => {
                let outcomes = key.into_iter().map(|key| key.outcome(&())).collect();
                let log = Log::new(id.clone(), 0, Vec::new());
                let removed = self.env.store.remove(log, outcomes).await;
                if removed.is_ok() {
                    tracing::info!(target: "session", session = %id, "removed a damaged session");
                    self.env.store.found.readable(id);
                }
                // The client may be gone.
                let _gone = reply.send(removed.map_err(RpcError::from));
            }
            command => command.refuse(error),
        }
    }

    /// The actor of a stored session; or the error, and whether a retry may succeed.
    async fn loaded(self: &Arc<Self>, id: &SessionId) -> Result<Actor, (RpcError, bool)> {
        let failed = |error: StoreError| {
            let may_pass = !error.is_damage();
            (RpcError::from(error), may_pass)
        };
        let store = &self.env.store;
        let row = store.session(id.clone()).await.map_err(failed)?;
        // The daemon's own log is created by its first event.
        let row = row.or_else(|| id.is_daemon().then(|| SessionRow { id: id.clone(), ..SessionRow::default() }));
        let Some(row) = row else {
            if self.shutdown.is_cancelled() {
                return Err((ending(), false));
            }
            let error = RpcError::new(Code::UnknownSession, format!("there is no session '{id}'"));
            return Err((error.hint("`linger ls` or session/list shows those there are"), false));
        };
        let actor = Actor::load(self.env.clone(), self.clone(), row).await.map_err(failed)?;
        store.found.readable(id);
        Ok(actor)
    }
}
