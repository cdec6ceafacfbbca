//! The lines of one attachment: what its subscription shows, as notifications.
//!
//! The task belongs to its connection, which aborts it. It reads when there is room for what it reads, so a client that does not
//! read holds a position and no copies.

use linger_protocol::event::{Event, SESSION_EVENT};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::LargeRoom;

use crate::fault;
use crate::session::subscription::{Batch, Shown, Subscription, What};

/// How many copies of a large event there are on its way to the socket: its text as a delta, itself, and both as bytes.
const COPIES: usize = 4;

/// Sends what the subscription shows until the client or the session has gone.
pub async fn forward(mut subscription: Subscription, outbox: Outbox) {
    // For the event that is read next, if it is large.
    let mut large: Option<LargeRoom> = None;
    loop {
        tokio::select! {
            more = subscription.ready() => if !more { return },
            () = outbox.gone() => return,
        }
        let Ok(room) = outbox.room().await else { return };
        let shown = match subscription.take(large.is_some()).await {
            Batch::Shown(shown) => shown,
            Batch::Large(size) => {
                // The answers that hold what is waited for may need the place in the outbox.
                drop(room);
                large = Some(outbox.large_room(size * COPIES).await);
                continue;
            }
        };
        fault::point("subscriber.before_send");
        let session = subscription.session().clone();
        let lines = match large {
            None => lines(&session, shown),
            // A large event takes a while to write: not on the thread that runs all sessions.
            Some(_) => tokio::task::spawn_blocking(move || lines(&session, shown)).await.unwrap_or_default(),
        };
        match large.take() {
            _ if lines.is_empty() => drop(room),
            Some(large) => room.send_large(lines, large),
            None => room.send(lines),
        }
        fault::point("subscriber.sent");
    }
}

fn lines(session: &SessionId, shown: Vec<Shown>) -> Vec<String> {
    shown.into_iter().map(|shown| line(session, shown)).collect()
}

fn line(session: &SessionId, Shown { cursor, what }: Shown) -> String {
    match what {
        // It is JSON already.
        What::Event(stored) => notification(session, &cursor, &stored.data),
        What::Delta(event) | What::Notice(event) => notification(session, &cursor, &json(&event)),
    }
}

fn json(event: &Event) -> String {
    serde_json::to_string(event).unwrap_or_default()
}

/// A whole notification around an event.
fn notification(session: &SessionId, cursor: &Cursor, event: &str) -> String {
    // Ids and cursors have no character that JSON would escape.
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{SESSION_EVENT}\",\"params\":{{\"session\":\"{session}\",\"cursor\":\"{cursor}\",\"event\":{event}}}}}"
    )
}
