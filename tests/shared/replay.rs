//! What the tests of `replay` share, whether they need a program or not.

use linger_tests::check::Transcript;
use linger_tests::harness::Client;

use crate::Daemon;

/// Attaches a new client where `before` ended, and waits until it has seen the end of the turn.
pub(crate) async fn read_on(daemon: &Daemon, session: &str, before: Transcript, finished: usize) -> Client {
    let client = daemon.client().await;
    let cursor = before.cursor(session).map(str::to_owned);
    client.continues(before);
    match cursor {
        Some(cursor) => client.attach_after(session, &cursor).await,
        None => client.attach(session).await,
    }
    client.nth(session, "turn_finished", finished).await;
    client
}
