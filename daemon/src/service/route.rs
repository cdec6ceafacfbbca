//! How a request reaches its session: requests of one connection take effect in the order in which they arrive.
//!
//! A caller whose rights are known at once sends its command directly. Any other request takes a place in the session's mailbox first,
//! and is checked and prepared there; its place is taken before the first wait.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::id::SessionId;

use super::{Authority, Caller, Services};
use crate::registry::Registry;
use crate::registry::place::HeldPlace;
use crate::session::messages::{Command, PlaceKind, Reply};

/// The way of one request to its session.
pub(super) enum Route {
    /// Nothing has to be awaited before its command.
    Direct(Arc<Registry>, SessionId),
    /// The session holds later requests back until this ends.
    Placed(HeldPlace),
}

impl Route {
    /// The way of a caller who may change the session.
    pub(super) async fn to_change(
        services: &Services,
        caller: &Caller,
        session: &SessionId,
        what: &str,
    ) -> Result<Self, RpcError> {
        match Self::direct(services, caller, session) {
            Some(direct) => Ok(direct),
            None => Ok(Self::Placed(place_to_change(services, caller, session, PlaceKind::Change, what).await?)),
        }
    }

    /// The way of a caller who may change the session and starts something in it.
    pub(super) async fn to_run(
        services: &Services,
        caller: &Caller,
        session: &SessionId,
        what: &str,
    ) -> Result<Self, RpcError> {
        let route = Self::to_change(services, caller, session, what).await?;
        caller.may_run_in(services, session).await?;
        Ok(route)
    }

    /// The way of a caller who may read the session.
    pub(super) async fn to_read(
        services: &Services,
        caller: &Caller,
        session: &SessionId,
        kind: PlaceKind,
    ) -> Result<Self, RpcError> {
        match Self::direct(services, caller, session) {
            Some(direct) => Ok(direct),
            None => Ok(Self::Placed(place_to_read(services, caller, session, kind).await?)),
        }
    }

    /// The way of a caller who needs no check that waits.
    pub(super) fn direct(services: &Services, caller: &Caller, session: &SessionId) -> Option<Self> {
        let is_free = caller.is_plain() && caller.is_user(services);
        is_free.then(|| Self::Direct(services.registry.clone(), session.clone()))
    }

    /// Sends the command of the request, and waits for its answer.
    pub(super) async fn send<T>(self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        match self {
            Self::Direct(registry, session) => registry.ask(&session, command).await,
            Self::Placed(place) => place.finish(command).await,
        }
    }
}

/// A place for a caller who may change the session.
pub(super) async fn place_to_change(
    services: &Services,
    caller: &Caller,
    session: &SessionId,
    kind: PlaceKind,
    what: &str,
) -> Result<HeldPlace, RpcError> {
    let is_session = matches!(caller.authority(), Authority::Session(_));
    if caller.is_plain() && !is_session {
        // Known at once. A hook that prompts its own session would wait for itself.
        caller.may_change(services, session, what).await?;
    }
    let place = services.registry.enter(session, kind).await;
    // Before an error that says whether there is such a session.
    caller.may_change(services, session, what).await?;
    place
}

/// A place for a caller who may read the session.
pub(super) async fn place_to_read(
    services: &Services,
    caller: &Caller,
    session: &SessionId,
    kind: PlaceKind,
) -> Result<HeldPlace, RpcError> {
    let place = services.registry.enter(session, kind).await;
    caller.may_read(services, session).await?;
    place
}
