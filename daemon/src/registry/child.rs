//! Creating the child of a call of `delegate`, once (the call may ask again after a restart), and what children have of their
//! parent: its mode at most, and its end.

use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Create, Set};

use super::Registry;
use super::create::Creator;
use super::place::HeldPlace;
use crate::agent::role::stricter;
use crate::agent::{FileKind, Library};
use crate::session::messages::Child;
use crate::session::messages::{Command, KeyedReply};
use crate::session::state::State;
use crate::store::idempotency::Key;
use crate::sys::disk;
use crate::sys::task;
use crate::tool::delegate::GENERAL;

impl Registry {
    /// The child of a call: the one that there is, or a new one. It goes on when the caller does not wait any more.
    pub(super) async fn child_of(self: Arc<Self>, child: Child) -> Result<SessionId, RpcError> {
        let made = task::spawn(async move {
            let key = Key { id: format!("delegate {} {}", child.parent, child.delegated.call), params: String::new() };
            let _turn = self.under_way.turn(&key).await;
            match self.env.store.child_of(child.parent.clone(), child.delegated.call.clone()).await? {
                Some(known) => Ok(known),
                None => self.make_child(child).await,
            }
        });
        made.await.unwrap_or_else(|error| Err(RpcError::new(Code::Internal, error.to_string())))
    }

    async fn make_child(self: &Arc<Self>, child: Child) -> Result<SessionId, RpcError> {
        let bound_by = child.delegated.bound_by.clone();
        let (mut create, creator) = (child.create.clone(), Creator::Call(Box::new(child)));
        // One with this name may be written, and one that does not count is no reason to go on without its rules.
        if create.agent.as_deref() == Some(GENERAL) && !self.has_agent_file(GENERAL, &create, bound_by).await? {
            create.agent = None;
        }
        self.make(create, creator, None).await.map(|created| created.session)
    }

    /// Whether there is a file of an agent with this name, also one that does not count.
    async fn has_agent_file(&self, name: &str, create: &Create, bound_by: Option<PathBuf>) -> Result<bool, RpcError> {
        let (env, cwd) = (&self.env, create.cwd.as_path());
        let (id, variables) = (SessionId::default(), create.env.clone());
        let workspace = env.workspaces.workspace_within(&id, cwd, variables, disk::TIMEOUT, bound_by).await;
        let (config, places) = (env.config.clone(), env.toolbox.agent_places(&workspace));
        let library = disk::probe(cwd, disk::TIMEOUT, move || Library::load(&config, &places)).await;
        let library = library.ok_or_else(|| RpcError::new(Code::NoWorkspace, disk::unresponsive(cwd)))?;
        Ok(library.rows(FileKind::Agent, false).iter().any(|row| row.name == name))
    }
}

impl Registry {
    /// The children of a session, and theirs, the deepest first, each with its state.
    pub async fn below(&self, session: &SessionId) -> Result<Vec<(SessionId, State)>, RpcError> {
        let mut below = Vec::new();
        for id in self.env.store.tree(session.clone()).await?.into_iter().filter(|id| id != session).rev() {
            let row = self.env.store.session(id.clone()).await?;
            let state = row.and_then(|row| State::from_stored(&row.fold));
            below.push((id, state.unwrap_or_default()));
        }
        Ok(below)
    }

    /// Before a session goes with its children: fails if one is at work, or with `force` cancels the session's turn, so that no
    /// result of theirs is waited for. Gives the children. `place`: the request's place in the session, if it has one.
    pub async fn leave(
        self: &Arc<Self>,
        session: &SessionId,
        force: bool,
        place: Option<&HeldPlace>,
    ) -> Result<Vec<SessionId>, RpcError> {
        let below = self.below(session).await?;
        if below.is_empty() {
            return Ok(Vec::new());
        }
        let row = self.env.store.session(session.clone()).await?;
        let state = row.and_then(|row| State::from_stored(&row.fold));
        if !force && state.is_some_and(|state| state.turn.is_some()) {
            let busy = RpcError::new(Code::Busy, format!("session {session} has a running turn"));
            return Err(busy.hint("cancel it first, or use force"));
        }
        let at_work = below.iter().find(|(_, state)| state.turn.is_some() && state.settings.binned_at.is_none());
        if let (Some((child, _)), false) = (at_work, force) {
            let busy = RpcError::new(Code::Busy, format!("session {session} has a child at work, {child}"));
            return Err(busy.hint("cancel it first, or use force"));
        }
        if force {
            let cancel = |reply| Command::Cancel(true, KeyedReply { key: None, reply });
            match self.ask_in(place, session, cancel).await {
                // Nothing runs, or it is in the bin, or cannot be read.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(below.into_iter().map(|(child, _)| child).collect())
    }

    /// Removes children; how many there were.
    pub async fn remove_all(self: &Arc<Self>, children: Vec<SessionId>, force: bool) -> Result<u32, RpcError> {
        let mut removed = 0;
        for child in children {
            match self.ask(&child, |reply| Command::Remove(force, KeyedReply { key: None, reply })).await {
                Ok(()) => removed += 1,
                Err(error) if error.code() == Some(Code::UnknownSession) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Makes the children of a session ask as much as it does, at least. When this returns they do.
    pub async fn tighten(self: &Arc<Self>, session: &SessionId, mode: Mode) -> Result<(), RpcError> {
        for (child, state) in self.below(session).await? {
            let most = stricter(state.settings.mode, mode);
            if state.task.delegated.is_none() || most == state.settings.mode || state.settings.binned_at.is_some() {
                continue;
            }
            let set = Set { session: child.clone(), mode: Some(most), ..Set::default() };
            match self.ask(&child, |reply| Command::Set(set, Ok(()), KeyedReply { key: None, reply })).await {
                // One that cannot be loaded now looks at its parent when it is.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Fails if a session would ask less than its parent.
    pub async fn may_be(&self, session: &SessionId, mode: Mode) -> Result<(), RpcError> {
        let state = async |id: &SessionId| {
            let row = self.env.store.session(id.clone()).await?;
            Ok::<_, RpcError>(row.and_then(|row| State::from_stored(&row.fold)))
        };
        let Some(parent) =
            state(session).await?.filter(|it| it.task.delegated.is_some()).and_then(|it| it.identity.parent.clone())
        else {
            return Ok(());
        };
        let Some(most) = state(&parent).await?.map(|parent| parent.settings.mode) else { return Ok(()) };
        if stricter(mode, most) == mode {
            return Ok(());
        }
        let text = format!("session {session} is a child of {parent}, whose mode is {most}: it may not ask less");
        Err(RpcError::new(Code::NotAllowed, text).hint(format!("change the mode of {parent} first")))
    }
}
