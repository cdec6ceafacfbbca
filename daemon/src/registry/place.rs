//! A request's place in the mailbox of a session, from the side of its holder ([`crate::session::messages::PlaceKind`] has the rules).
//!
//! The place is taken by the first poll of [`Registry::enter`], so that requests keep the order in which they arrive. It ends with its
//! last command, or when the [`HeldPlace`] is dropped.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use tokio::sync::oneshot;

use super::Registry;
use crate::session::messages::{Began, Command, EnterRequest, PlaceId, PlaceKind, PlaceStep, Reply};

/// A place that has begun: later requests to the session wait until it ends.
pub struct HeldPlace {
    registry: Arc<Registry>,
    session: SessionId,
    id: PlaceId,
    /// Gets the error when a cancel refuses the prompt that is prepared here; `None` once it was taken.
    cancelled: Option<oneshot::Receiver<RpcError>>,
    /// Whether the session waits for a last command.
    is_open: bool,
}

impl Registry {
    /// Takes a place in a session's mailbox, and waits until it begins and all that came before is stored.
    pub async fn enter(self: &Arc<Self>, session: &SessionId, kind: PlaceKind) -> Result<HeldPlace, RpcError> {
        let (began, begins) = oneshot::channel();
        let id = PlaceId::default();
        self.send(session, Command::Enter(EnterRequest { place: id.clone(), kind, began }));
        let began = begins.await.unwrap_or_else(|_| Err(no_answer(session)))?;
        let Began { stored, cancelled } = began;
        let (registry, session) = (self.clone(), session.clone());
        let place = HeldPlace { registry, session, id, cancelled: Some(cancelled), is_open: true };
        // A write that failed is for the commands to tell.
        let _written = stored.await;
        Ok(place)
    }

    /// Sends a command in a place, or without one.
    pub(super) async fn ask_in<T>(
        self: &Arc<Self>,
        place: Option<&HeldPlace>,
        session: &SessionId,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, RpcError> {
        match place {
            Some(place) => place.ask(command).await,
            None => self.ask(session, command).await,
        }
    }
}

impl HeldPlace {
    /// The session in whose mailbox it is.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Prepares a prompt. Fails when that is cancelled meanwhile; `work` is dropped then.
    pub async fn prepare<T>(&mut self, work: impl AsyncFnOnce(&Self) -> Result<T, RpcError>) -> Result<T, RpcError> {
        let cancelled = self.cancelled.take();
        let cancelled = async {
            match cancelled {
                Some(cancelled) => cancelled.await.unwrap_or_else(|_| no_answer(&self.session)),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = cancelled => Err(error),
            done = work(self) => done,
        }
    }

    /// Says that all of the session was read that is copied: from now on only a removal waits for the end of the place.
    pub(super) fn has_read(&self) {
        self.registry.send(&self.session, Command::Placed(self.id.clone(), PlaceStep::HasRead));
    }

    /// Sends a command and waits for its answer; the place goes on.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        self.send(command, PlaceStep::Command).await
    }

    /// Sends the last command and waits for its answer. Later requests take effect after it.
    pub async fn finish<T>(mut self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        self.is_open = false;
        self.send(command, PlaceStep::Last).await
    }

    async fn send<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
        step: impl FnOnce(Box<Command>) -> PlaceStep,
    ) -> Result<T, RpcError> {
        let placed = |reply| Command::Placed(self.id.clone(), step(Box::new(command(reply))));
        self.registry.ask(&self.session, placed).await
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        if self.is_open {
            self.registry.send(&self.session, Command::Placed(self.id.clone(), PlaceStep::End));
        }
    }
}

fn no_answer(session: &SessionId) -> RpcError {
    RpcError::new(Code::Internal, format!("session {session} did not answer"))
}
