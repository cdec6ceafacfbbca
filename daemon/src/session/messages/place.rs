//! A place in the mailbox of a session: how a request that has to be prepared keeps its order.

use std::sync::Arc;

use linger_protocol::RpcError;
use tokio::sync::oneshot;

use super::{Command, Committed, Reply};

/// Tells places apart: each is its own allocation.
#[derive(Clone, Debug, Default)]
pub struct PlaceId(Arc<()>);

impl PartialEq for PlaceId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The purpose of a place; decides which request waits for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// Attaches to the session.
    Attach,
    /// Reads the session.
    Read,
    /// Prepares a prompt, which may take as long as its hooks.
    Prompt,
    /// Checks whether the caller may cancel.
    Cancel,
    /// Prepares any other change.
    Change,
}

/// A request that takes its place.
pub struct EnterRequest {
    /// The place that its later commands name.
    pub place: PlaceId,
    /// Its purpose.
    pub kind: PlaceKind,
    /// Told when the place begins, or that it never will.
    pub began: Reply<Began>,
}

/// The beginning of a place.
pub struct Began {
    /// Resolves when all that came before is stored.
    pub stored: Committed,
    /// Gets the error when the request is cancelled.
    pub cancelled: oneshot::Receiver<RpcError>,
}

/// A message from the holder of a place.
pub enum PlaceStep {
    /// A command, after which the place goes on.
    Command(Box<Command>),
    /// A command, with which the place ends.
    Last(Box<Command>),
    /// All of the session has been read that the request copies: only a removal still waits for its end.
    HasRead,
    /// There is nothing more to do.
    End,
}
