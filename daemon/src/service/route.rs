//! The way of a request to its session: requests of one connection take effect in the order in which they arrive.
//!
//! A caller whose rights are known at once sends its command directly. Any other request takes a place in the session's mailbox first,
//! and is checked and prepared there; its place is taken before the first wait. The check is the method's row in [`super::need`], of
//! which the gate has seen what can be told without the store.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::id::SessionId;

use super::need::{self, Reach};
use super::{Caller, Services};
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
    /// The way of a request to call `method`.
    pub(super) async fn to(
        services: &Services,
        caller: &Caller,
        session: &SessionId,
        method: &str,
        kind: PlaceKind,
    ) -> Result<Self, RpcError> {
        match Self::direct(services, caller, session) {
            Some(direct) => Ok(direct),
            None => Ok(Self::Placed(place(services, caller, session, method, kind).await?)),
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

/// The place of a request to call `method`. It is taken first; then the caller is checked.
pub(super) async fn place(
    services: &Services,
    caller: &Caller,
    session: &SessionId,
    method: &str,
    kind: PlaceKind,
) -> Result<HeldPlace, RpcError> {
    let need = need::of(method)?;
    let place = services.registry.enter(session, kind).await;
    // Before an error that says whether there is such a session.
    caller.may_use(services, session, need).await?;
    let place = place?;
    if need.token.reach == Reach::Run {
        caller.may_run_in(services, session).await?;
    }
    Ok(place)
}
