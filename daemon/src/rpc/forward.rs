//! Forwards one attachment: turns the output of its subscription into notifications.
//!
//! The task belongs to its connection, which aborts it. It reads only when the outbox has capacity, so a client that does not read
//! holds a position and no copies.

use linger_protocol::event::{Event, SESSION_EVENT};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::LargeRoom;

use crate::fault;
use crate::session::subscription::{Batch, Shown, Subscription, What};

/// How many copies of a large event exist on its way to the socket: its text as a delta, itself, and both as bytes.
const COPIES: usize = 4;

/// Forwards the subscription until the client or the session is gone.
pub async fn forward(mut subscription: Subscription, outbox: Outbox) {
    // Capacity for the next event, if it is large.
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
                // Release the place in the outbox: the answers that hold the capacity may need it.
                drop(room);
                large = Some(outbox.large_room(size * COPIES).await);
                continue;
            }
        };
        fault::point("subscriber.before_send");
        let session = subscription.session().clone();
        let lines = match large {
            None => lines(&session, shown),
            // Encoding a large event takes long: not on the runtime thread.
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
        // Stored events are JSON.
        What::Event(stored) => notification(session, &cursor, &stored.data),
        What::Delta(event) | What::Notice(event) => notification(session, &cursor, &json(&event)),
    }
}

fn json(event: &Event) -> String {
    serde_json::to_string(event).unwrap_or_default()
}

/// A notification with an event in JSON.
fn notification(session: &SessionId, cursor: &Cursor, event: &str) -> String {
    // Ids and cursors need no JSON escapes.
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{SESSION_EVENT}\",\"params\":{{\"session\":\"{session}\",\"cursor\":\"{cursor}\",\"event\":{event}}}}}"
    )
}
