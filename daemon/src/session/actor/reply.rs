//! Replies to commands: now, or once the effect of the command is committed.

use super::*;

use crate::sys::task;

/// The hint of a cancel that cannot be stored yet.
pub(super) const CANCELLED_LATER: &str = "the turn has stopped; its cancellation is stored when writing works";

/// Waits until a write is committed; fails if it was refused.
pub(super) async fn settled(committed: Committed) -> Result<(), StoreError> {
    committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())))
}

/// Replies once the effect of the command is committed.
pub(super) fn respond_when<T: Send + 'static>(reply: Reply<T>, committed: Committed, value: T) {
    respond_holding(reply, committed, value, ());
}

/// As [`respond_when`]; drops `held` afterwards.
pub(super) fn respond_holding<T: Send + 'static>(
    reply: Reply<T>,
    committed: Committed,
    value: T,
    held: impl Send + 'static,
) {
    task::spawn(async move {
        let result = settled(committed).await;
        drop(held);
        respond(reply, result.map(|()| value).map_err(RpcError::from));
    });
}

/// Replies to all cancel requests of a turn.
pub(super) fn respond_all(replies: Vec<Reply<()>>, committed: Committed) {
    if replies.is_empty() {
        return;
    }
    task::spawn(async move {
        let result = settled(committed).await;
        let late = |error| RpcError::from(error).hint(CANCELLED_LATER);
        for reply in replies {
            respond(reply, result.clone().map_err(late));
        }
    });
}
