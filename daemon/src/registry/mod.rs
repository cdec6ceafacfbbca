//! The loaded sessions: id to mailbox. The first command to an unloaded session loads it.
//!
//! A command enters a mailbox under the lock of the map, and an idle actor leaves the map under the same lock and with an empty
//! mailbox only, so that no command reaches an actor that has ended.

mod child;
pub mod create;
mod load;
pub mod place;
pub mod prune;
mod resume;
mod tree;
mod uncompact;
mod worktree;

pub use tree::ForkAllows;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::NoticeCode;
use linger_protocol::id::SessionId;
use linger_protocol::question::Question;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::log::Log;
use crate::session::env::{Env, Host};
use crate::session::messages::Child;
use crate::session::messages::{Command, Commands, Mailbox, Reply};
use crate::session::state::Resolution;
use crate::store::idempotency::{Key, Turn, UnderWay};
use crate::sys::task;
use crate::tool::BoxFuture;

/// Characters of a session's id: 50 bits, so that a prefix of four is unique among most users' sessions.
const ID: usize = 10;

/// Sessions that may be loaded at once: about 30 KiB each while idle, 130 while they work.
const MAX_LOADED: usize = 4096;

/// The sessions of one daemon.
pub struct Registry {
    /// The services that they share.
    pub env: Arc<Env>,
    /// Keyed requests in progress that belong to no session: creating and pruning.
    pub under_way: UnderWay,
    mailboxes: Mailboxes,
    /// When old sessions were last searched for, in Unix milliseconds.
    pruned_at: AtomicU64,
    /// Cancelled when the daemon ends: no session is loaded any more.
    shutdown: CancellationToken,
}

impl Registry {
    /// A registry without loaded sessions.
    pub fn new(env: Arc<Env>, shutdown: CancellationToken) -> Self {
        let (under_way, mailboxes, pruned_at) = (UnderWay::default(), Mailboxes::default(), AtomicU64::new(0));
        Self { env, under_way, mailboxes, pruned_at, shutdown }
    }

    /// Locks the key of a request while the first value lives, and gives the answer to an earlier request with it.
    async fn locked<T: DeserializeOwned>(&self, key: Option<&Key>) -> Result<(Option<Turn<'_>>, Option<T>), RpcError> {
        let Some(key) = key else { return Ok((None, None)) };
        let turn = self.under_way.turn(key).await;
        Ok((Some(turn), self.env.store.answer_to(key).await?))
    }

    /// Sends a command to a session, and loads that if needed. The command always gets a reply.
    pub fn send(self: &Arc<Self>, id: &SessionId, command: Command) {
        if self.shutdown.is_cancelled() {
            return command.refuse(ending());
        }
        match self.mailboxes.send(id, command) {
            Ok(None) => {}
            Ok(Some(commands)) => drop(task::spawn(self.clone().load(id.clone(), commands, None))),
            Err((command, error)) => command.refuse(error),
        }
    }

    /// Sends a command to a session and waits for its answer.
    pub async fn ask<T>(
        self: &Arc<Self>,
        session: &SessionId,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, RpcError> {
        let (reply, answer) = oneshot::channel();
        self.send(session, command(reply));
        let answered = answer.await;
        fault::point("rpc.answer");
        answered.unwrap_or_else(|_| Err(RpcError::new(Code::Internal, format!("session {session} did not answer"))))
    }

    /// Asks a question that belongs to no session; the receiver gets the answer. It is pending in the daemon's own log. Asking the
    /// same question again, as after a restart, waits for the pending one.
    pub fn ask_for_daemon(self: &Arc<Self>, asked: Question) -> oneshot::Receiver<Result<Resolution, RpcError>> {
        let (reply, answered) = oneshot::channel();
        self.send(&SessionId::daemon(), Command::Ask(Box::new(asked), reply));
        answered
    }

    /// Warns the clients of every session that is loaded.
    pub fn warn_all(self: &Arc<Self>, code: NoticeCode, text: &str) {
        let loaded: Vec<SessionId> = self.mailboxes.map().keys().filter(|id| !id.is_daemon()).cloned().collect();
        loaded.iter().for_each(|id| self.send(id, Command::Warn(code, text.to_owned())));
    }

    /// Says to every session that is loaded, of the workspace with this root or of all, that Markdown files have changed.
    pub fn files_changed(self: &Arc<Self>, root: Option<&Path>, text: &str) {
        let loaded: Vec<SessionId> = self.mailboxes.map().keys().filter(|id| !id.is_daemon()).cloned().collect();
        let command = || Command::FilesChanged(root.map(Path::to_path_buf), text.to_owned());
        loaded.iter().for_each(|id| self.send(id, command()));
    }

    /// Lets every session store its state, and ends it.
    pub async fn pause(&self) {
        let mailboxes: Vec<_> = self.mailboxes.map().drain().collect();
        let mut paused = Vec::new();
        for (_, mailbox) in mailboxes {
            let (done, answer) = oneshot::channel();
            if mailbox.send(Box::new(Command::Pause(done))).is_ok() {
                // An actor with a closed mailbox does not reply.
                paused.push((mailbox, answer));
            }
        }
        for (_open, answer) in paused {
            // A session that panicked does not reply.
            let _gone = answer.await;
        }
    }
}

impl Host for Registry {
    fn unload(&self, id: &SessionId, log: &Log, commands: &Commands) -> bool {
        let mut mailboxes = self.mailboxes.map();
        let idle = commands.is_empty() && log.readers() == 0;
        if idle {
            mailboxes.remove(id);
        }
        idle
    }

    fn forget(&self, id: &SessionId) {
        self.mailboxes.forget(id);
    }

    fn warn(self: Arc<Self>, id: &SessionId, code: NoticeCode, text: String) {
        self.send(id, Command::Warn(code, text));
    }

    fn command(self: Arc<Self>, id: &SessionId, command: Command) {
        self.send(id, command);
    }

    fn child(self: Arc<Self>, wanted: Child) -> BoxFuture<'static, Result<SessionId, RpcError>> {
        Box::pin(self.child_of(wanted))
    }
}

/// The mailboxes of the sessions that are loaded, or are being loaded.
#[derive(Default)]
struct Mailboxes(Mutex<HashMap<SessionId, Mailbox>>);

impl Mailboxes {
    fn map(&self) -> MutexGuard<'_, HashMap<SessionId, Mailbox>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a command into a session's mailbox; gives the other end of the mailbox if the session is to be loaded.
    fn send(&self, id: &SessionId, command: Command) -> Result<Option<Commands>, (Box<Command>, RpcError)> {
        let mut mailboxes = self.map();
        let command = Box::new(command);
        let command = match mailboxes.get(id) {
            Some(mailbox) => match mailbox.send(command) {
                Ok(()) => return Ok(None),
                // Its actor panicked; the session is loaded again from the log.
                Err(mpsc::error::SendError(command)) => command,
            },
            None => command,
        };
        if mailboxes.len() >= MAX_LOADED && !mailboxes.contains_key(id) {
            return Err((command, too_many()));
        }
        // The channel has no bound of its own: each client has a few dozen requests under way at most, and waits for them.
        let (mailbox, commands) = mpsc::unbounded_channel();
        if let Err(mpsc::error::SendError(command)) = mailbox.send(command) {
            return Err((command, RpcError::new(Code::Internal, "the session cannot be loaded")));
        }
        mailboxes.insert(id.clone(), mailbox);
        Ok(Some(commands))
    }

    /// Adds a session, if it is not there yet, however many are loaded.
    fn add_stored(&self, id: &SessionId) -> Option<Commands> {
        let mut mailboxes = self.map();
        if mailboxes.contains_key(id) {
            return None;
        }
        let (mailbox, commands) = mpsc::unbounded_channel();
        mailboxes.insert(id.clone(), mailbox);
        Some(commands)
    }

    /// Adds a session that is being made, if there is room, and gives it its mailbox.
    fn add_new(&self, id: SessionId) -> Result<Commands, RpcError> {
        let mut mailboxes = self.map();
        if mailboxes.len() >= MAX_LOADED {
            return Err(too_many());
        }
        let (mailbox, commands) = mpsc::unbounded_channel();
        mailboxes.insert(id, mailbox);
        Ok(commands)
    }

    fn forget(&self, id: &SessionId) {
        self.map().remove(id);
    }
}

fn ending() -> RpcError {
    RpcError::new(Code::Ending, "the daemon is ending").hint("connect again: a client starts it")
}

fn too_many() -> RpcError {
    RpcError::new(Code::TooMuch, format!("{MAX_LOADED} sessions are loaded already"))
        .hint("detach from some, or wait until they are idle")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_too_many_is_not_loaded() {
        let sessions = Mailboxes::default();
        let loaded: Vec<_> = (0..MAX_LOADED).map(|n| sessions.add_new(SessionId(n.to_string())).unwrap()).collect();
        let more = SessionId("more".to_owned());
        assert_eq!(sessions.add_new(more.clone()).unwrap_err().code(), Some(Code::TooMuch));
        assert!(sessions.send(&more, Command::Configured).is_err());
        sessions.forget(&SessionId("0".to_owned()));
        assert!(sessions.add_new(more).is_ok());
        drop(loaded);
    }
}
