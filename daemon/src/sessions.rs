//! The sessions that are loaded: id to mailbox. A session that is not loaded is loaded by the first command for it.
//!
//! A command goes into the mailbox under the lock of the map, and an idle actor leaves the map under the same lock only with an
//! empty mailbox, so that no command is ever sent to an actor that has gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::{PermissionId, SessionId};
use tokio::sync::{mpsc, oneshot};

use crate::daemon::Daemon;
use crate::session::actor::{Actor, Asked as AskedFor, Command, MEND};
use crate::session::log::Log;
use crate::store::StoreError;
use crate::{prune, repair};

/// Sessions that may be loaded at once: about 16 KiB each while idle, a few hundred while they work.
const MAX_LOADED: usize = 4096;

type Mailboxes = HashMap<SessionId, mpsc::UnboundedSender<Command>>;

/// The loaded sessions.
#[derive(Default)]
pub struct Sessions(Mutex<Mailboxes>);

impl Sessions {
    fn mailboxes(&self) -> MutexGuard<'_, Mailboxes> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sends a command to a session, loading it if need be. The command is answered in any case.
    pub fn send(&self, daemon: &Arc<Daemon>, id: &SessionId, command: Command) {
        if daemon.shutdown.is_cancelled() {
            return command.refuse(ending());
        }
        let mut mailboxes = self.mailboxes();
        let command = match mailboxes.get(id) {
            Some(mailbox) => match mailbox.send(command) {
                Ok(()) => return,
                // Its actor panicked; the session is loaded anew from the log.
                Err(mpsc::error::SendError(command)) => command,
            },
            None => command,
        };
        if mailboxes.len() >= MAX_LOADED && !mailboxes.contains_key(id) {
            return command.refuse(too_many());
        }
        let (mailbox, commands) = mpsc::unbounded_channel();
        if let Err(mpsc::error::SendError(command)) = mailbox.send(command) {
            return command.refuse(RpcError::new(Code::Internal, "the session cannot be loaded"));
        }
        mailboxes.insert(id.clone(), mailbox);
        tokio::spawn(load(daemon.clone(), id.clone(), commands, None));
    }

    /// Loads a session whose turn is unfinished, however many are loaded: there were as many before. What it gives ends
    /// when it is stored what becomes of the turn, or cannot be for now; at once if it is loaded already.
    pub fn wake(&self, daemon: &Arc<Daemon>, id: &SessionId) -> oneshot::Receiver<()> {
        let (planned, is_planned) = oneshot::channel();
        let mut mailboxes = self.mailboxes();
        if mailboxes.contains_key(id) {
            // A client was first.
            return is_planned;
        }
        let (mailbox, commands) = mpsc::unbounded_channel();
        mailboxes.insert(id.clone(), mailbox);
        tokio::spawn(load(daemon.clone(), id.clone(), commands, Some(planned)));
        is_planned
    }

    /// Adds a session that is being made, if there is room, and gives it its mailbox.
    pub fn add(&self, id: SessionId) -> Result<mpsc::UnboundedReceiver<Command>, RpcError> {
        let mut mailboxes = self.mailboxes();
        if mailboxes.len() >= MAX_LOADED {
            return Err(too_many());
        }
        // The channel has no bound of its own: each client has a few dozen requests under way at most, and waits for them.
        let (mailbox, commands) = mpsc::unbounded_channel();
        mailboxes.insert(id, mailbox);
        Ok(commands)
    }

    /// Takes an idle session out if nobody has asked anything of it meanwhile; whether it did.
    pub fn unload(&self, id: &SessionId, log: &Log, commands: &mpsc::UnboundedReceiver<Command>) -> bool {
        let mut mailboxes = self.mailboxes();
        let idle = commands.is_empty() && log.readers() == 0;
        if idle {
            mailboxes.remove(id);
        }
        idle
    }

    /// Takes a session out that is no more.
    pub fn forget(&self, id: &SessionId) {
        self.mailboxes().remove(id);
    }

    /// Lets every session write down where it is, and ends it.
    pub async fn pause(&self) {
        let mailboxes: Vec<_> = self.mailboxes().drain().collect();
        let mut paused = Vec::new();
        for (_, mailbox) in mailboxes {
            let (done, answer) = oneshot::channel();
            if mailbox.send(Command::Pause(done)).is_ok() {
                // An actor whose mailbox is closed ends without a word.
                paused.push((mailbox, answer));
            }
        }
        for (_open, answer) in paused {
            // A session that panicked has nothing to say; its log has.
            let _gone = answer.await;
        }
    }
}

fn ending() -> RpcError {
    RpcError::new(Code::Ending, "the daemon is ending").hint("connect again: a client starts it anew")
}

fn too_many() -> RpcError {
    RpcError::new(Code::TooMuch, format!("{MAX_LOADED} sessions are loaded already"))
        .hint("detach from some, or wait until they are idle")
}

/// Which session asked for which permission, as far as they wait: an answer then goes to its session at once, in the order in
/// which the requests of its connection came.
#[derive(Default)]
pub struct Asked(Mutex<HashMap<PermissionId, SessionId>>);

impl Asked {
    fn map(&self) -> MutexGuard<'_, HashMap<PermissionId, SessionId>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// `session` waits for an answer to this.
    pub fn remember(&self, permission: &PermissionId, session: &SessionId) {
        self.map().insert(permission.clone(), session.clone());
    }

    /// It has its answer.
    pub fn forget(&self, permission: &PermissionId) {
        self.map().remove(permission);
    }

    /// A session waits for none, or is no more.
    pub fn forget_all(&self, session: &SessionId) {
        self.map().retain(|_, waits| waits != session);
    }

    /// The session that waits.
    pub fn session(&self, permission: &PermissionId) -> Option<SessionId> {
        self.map().get(permission).cloned()
    }
}

/// Loads a session and runs it. `planned`: it has a turn to take up also if nobody asks, so what cannot be read now is tried
/// again. Whatever is asked meanwhile is tried at once, and answered.
async fn load(
    daemon: Arc<Daemon>,
    id: SessionId,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mut planned: Option<oneshot::Sender<()>>,
) {
    let unfinished = planned.is_some();
    let mut asked = None;
    let mut pause = MEND[0];
    loop {
        let (error, may_pass) = match loaded(&daemon, &id).await {
            Ok(actor) => {
                if let Some(planned) = planned {
                    // What cannot be stored now, the actor stores when it can.
                    let _later = actor.barrier().await;
                    drop(planned);
                }
                return actor.run(asked, commands).await;
            }
            Err(error) => error,
        };
        planned = None;
        if let Some(command) = asked.take() {
            refuse(&daemon, &id, command, error.clone()).await;
        }
        if !unfinished || !may_pass {
            daemon.sessions.forget(&id);
            commands.close();
            while let Some(command) = commands.recv().await {
                refuse(&daemon, &id, command, error.clone()).await;
            }
            return;
        }
        tracing::error!(target: "session", session = %id, %error, "its turn cannot be taken up for now");
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => asked = Some(command),
                // The daemon ends.
                None => return,
            },
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(MEND[1]),
        }
    }
}

/// Says why there is nobody to do what is asked. One thing can be done with a session that is damaged, by force.
async fn refuse(daemon: &Daemon, id: &SessionId, command: Command, error: RpcError) {
    match command {
        Command::Remove(false, asked) if error.code() == Some(Code::Damaged) => {
            let hint = "`linger doctor --repair` saves what can be read, `linger rm --force` removes it as it is";
            Command::Remove(false, asked).refuse(error.hint(hint));
        }
        Command::Remove(true, AskedFor { key, reply }) if error.code() == Some(Code::Damaged) => {
            let outcomes = key.into_iter().map(|key| key.outcome(&())).collect();
            let log = Log::new(id.clone(), 0, Vec::new());
            let removed = daemon.store.remove(log, outcomes).await;
            if removed.is_ok() {
                tracing::info!(target: "session", session = %id, "removed, damaged as it was");
                daemon.store.found.mended(id);
                prune::remove_outputs(daemon, id).await;
            }
            // The client may have gone.
            let _gone = reply.send(removed.map_err(RpcError::from));
        }
        command => command.refuse(error),
    }
}

/// The actor of a stored session; or why there is none, and whether there may be in a moment.
async fn loaded(daemon: &Arc<Daemon>, id: &SessionId) -> Result<Actor, (RpcError, bool)> {
    let failed = |error: StoreError| {
        let may_pass = !error.is_damage();
        (RpcError::from(error), may_pass)
    };
    let row = repair::find(daemon, || daemon.store.session(id.clone())).await.map_err(failed)?;
    let Some(row) = row else {
        if daemon.shutdown.is_cancelled() {
            return Err((ending(), false));
        }
        let error = RpcError::new(Code::UnknownSession, format!("there is no session '{id}'"));
        let hint = match daemon.repairs.carry_over() {
            true => "sessions are still being carried over from the database that was set aside; ask again later",
            false => "`linger ls` or session/list shows those there are",
        };
        return Err((error.hint(hint), false));
    };
    let actor = Actor::load(daemon.clone(), row).await.map_err(failed)?;
    daemon.store.found.mended(id);
    Ok(actor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_too_many_is_not_loaded() {
        let sessions = Sessions::default();
        let loaded: Vec<_> = (0..MAX_LOADED).map(|n| sessions.add(SessionId(n.to_string())).unwrap()).collect();
        assert_eq!(sessions.add(SessionId("more".to_owned())).unwrap_err().code(), Some(Code::TooMuch));
        sessions.forget(&SessionId("0".to_owned()));
        assert!(sessions.add(SessionId("more".to_owned())).is_ok());
        drop(loaded);
    }
}
