//! Cleans up after a refused prompt.

use linger_protocol::id::SessionId;
use linger_protocol::method::SessionRemove;
use linger_protocol::session::Remove;

use crate::connect::Client;
use crate::error::Failure;
use crate::idempotency::key;

/// Removes the session that was created for a refused prompt, and returns the failure to report.
pub(super) fn refused(client: &mut Client, unused: Option<SessionId>, failure: Failure) -> Failure {
    let Some(session) = unused else { return failure };
    let remove = |key| client.call(&SessionRemove(Remove { session: session.clone(), force: false, key: Some(key) }));
    match key().and_then(remove) {
        Ok(_) => failure,
        Err(_) => failure.and_also(format!("session {session} was created for it and stays empty")),
    }
}
