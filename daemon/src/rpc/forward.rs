//! Forwards one attachment: turns the output of its subscription, or of a feed of all sessions, into notifications.
//!
//! The task belongs to its connection, which aborts it. It reads only when the outbox has capacity, so a client that does not read
//! holds a position and no copies.

use linger_protocol::completion::{COMPLETION_EVENT, CompletionEvent};
use linger_protocol::event::SESSION_EVENT;
use linger_protocol::events::EVENTS_EVENT;
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::transport::outbox::Outbox;
use linger_protocol::transport::room::LargeRoom;

use crate::fault;
use crate::service::completion::Completion;
use crate::session::reading::feed::{Feed, FeedItem};
use crate::session::reading::subscription::{Batch, Shown, ShownItem, Subscription};
use crate::sys::task;

/// How many copies of a large event exist on its way to the socket: its text as a delta, itself, and both as bytes.
const COPIES: usize = 4;

/// A position in a stream that reads on at the pace of its client.
pub trait EventSource: Send {
    /// One notification, before it is text.
    type Item: Send + 'static;

    /// Waits until there is something to take; false at its end.
    fn ready(&mut self) -> impl Future<Output = bool> + Send;

    /// Takes what is there, up to a bound; the size of the next event if that is large, unless `has_room`.
    fn take(&mut self, has_room: bool) -> impl Future<Output = Result<Vec<Self::Item>, usize>> + Send;

    /// Writes an item as a line.
    fn writer(&self) -> impl Fn(Self::Item) -> String + Send + 'static;
}

impl EventSource for Subscription {
    type Item = Shown;

    fn ready(&mut self) -> impl Future<Output = bool> + Send {
        self.ready()
    }

    async fn take(&mut self, has_room: bool) -> Result<Vec<Shown>, usize> {
        match self.take(has_room).await {
            Batch::Shown(shown) => Ok(shown),
            Batch::Large(size) => Err(size),
        }
    }

    fn writer(&self) -> impl Fn(Shown) -> String + Send + 'static {
        let session = self.session().clone();
        move |shown| line(&session, shown)
    }
}

impl EventSource for Feed {
    type Item = FeedItem;

    fn ready(&mut self) -> impl Future<Output = bool> + Send {
        self.ready()
    }

    fn take(&mut self, has_room: bool) -> impl Future<Output = Result<Vec<FeedItem>, usize>> + Send {
        self.take(has_room)
    }

    fn writer(&self) -> impl Fn(FeedItem) -> String + Send + 'static {
        any_line
    }
}

impl EventSource for Completion {
    type Item = CompletionEvent;

    fn ready(&mut self) -> impl Future<Output = bool> + Send {
        self.ready()
    }

    async fn take(&mut self, _: bool) -> Result<Vec<CompletionEvent>, usize> {
        // An answer is bounded by its provider's limit, and there is one.
        Ok(self.take())
    }

    fn writer(&self) -> impl Fn(CompletionEvent) -> String + Send + 'static {
        let id = self.id.clone();
        move |event| {
            let event = serde_json::to_string(&event).unwrap_or_else(|error| {
                // A client that waits for the end has to learn of it.
                let message = format!("the answer cannot be sent: {error}");
                serde_json::json!({ "kind": "failed", "message": message, "hint": "" }).to_string()
            });
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"{COMPLETION_EVENT}\",\"params\":{{\"completion\":\"{id}\",\"event\":{event}}}}}"
            )
        }
    }
}

/// Forwards a source until it ends, the client is gone, or it may have no more.
pub async fn forward(mut source: impl EventSource, outbox: Outbox, may: impl Fn() -> bool + Send) {
    // Capacity for the next event, if it is large.
    let mut large: Option<LargeRoom> = None;
    loop {
        tokio::select! {
            more = source.ready() => if !more { return },
            () = outbox.gone() => return,
        }
        let Ok(room) = outbox.room().await else { return };
        if !may() {
            return;
        }
        let items = match source.take(large.is_some()).await {
            Ok(items) => items,
            Err(size) => {
                // Release the place in the outbox: the answers that hold the capacity may need it.
                drop(room);
                large = Some(outbox.large_room(size * COPIES).await);
                continue;
            }
        };
        fault::point("subscriber.before_send");
        let write = source.writer();
        let lines = move || items.into_iter().map(write).collect::<Vec<_>>();
        let lines = match large {
            None => lines(),
            // Encoding a large event takes long: not on the runtime thread.
            Some(_) => task::spawn_blocking(lines).await.unwrap_or_default(),
        };
        match large.take() {
            _ if lines.is_empty() => drop(room),
            Some(large) => room.send_large(lines, large),
            None => room.send(lines),
        }
        fault::point("subscriber.sent");
    }
}

fn line(session: &SessionId, Shown { cursor, what, answered }: Shown) -> String {
    match what {
        // Stored events are JSON.
        ShownItem::Event(stored) => notification(session, &cursor, answered, &stored.data),
        ShownItem::Delta(event) | ShownItem::Notice(event) => notification(session, &cursor, false, &event.to_json()),
    }
}

/// A notification of the stream of all sessions.
fn any_line(FeedItem { session, cursor, event }: FeedItem) -> String {
    // Ids and cursors need no JSON escapes.
    let session = session.map(|session| format!("\"session\":\"{session}\",")).unwrap_or_default();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{EVENTS_EVENT}\",\"params\":{{{session}\"cursor\":\"{cursor}\",\"event\":{event}}}}}"
    )
}

/// A notification with an event in JSON.
fn notification(session: &SessionId, cursor: &Cursor, answered: bool, event: &str) -> String {
    let answered = if answered { ",\"answered\":true" } else { "" };
    // Ids and cursors need no JSON escapes.
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{SESSION_EVENT}\",\"params\":{{\"session\":\"{session}\",\"cursor\":\"{cursor}\"{answered},\"event\":{event}}}}}"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use linger_protocol::place::Places;
    use linger_protocol::transport::outbox::PENDING;
    use linger_protocol::transport::room::Capacity;
    use serde_json::json;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::service::{Authority, Caller, Services, Setup, session};

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(60);

    /// As many clients as there can be, and what they may hold together.
    const CLIENTS: usize = 512;
    const BOUND: usize = 80_000_000;

    fn open(dir: &Path) -> Arc<Services> {
        Services::open(Setup::of(Places::below(dir).unwrap()), CancellationToken::new()).unwrap()
    }

    /// What one client that does not read holds, of a session with six answers of `size` bytes: all of it, and the room for it.
    async fn held(services: &Services, dir: &Path, size: usize) -> (usize, usize) {
        let me = Caller::new(Authority::Daemon);
        let create = serde_json::from_value(json!({ "cwd": dir, "model": "demo" })).unwrap();
        let id = session::create(services, &me, create).await.unwrap().session;
        let attach = || serde_json::from_value(json!({ "session": id })).unwrap();
        let (_, mut live) = session::attach(services, &me, attach()).await.unwrap();
        for _ in 0..6 {
            let say = json!({ "session": id, "content": format!("say: {}", "x".repeat(size)) });
            session::prompt(services, &me, serde_json::from_value(say).unwrap()).await.unwrap();
            loop {
                let shown = timeout(SOON, live.next()).await.unwrap().unwrap();
                if matches!(&shown.what, ShownItem::Event(stored) if stored.kind == "turn_finished") {
                    break;
                }
            }
        }
        let (_, subscription) = session::attach(services, &me, attach()).await.unwrap();
        let (outbox, _unread) = Outbox::new(&Capacity::default());
        let forwarder = tokio::spawn(forward(subscription, outbox.clone(), || true));
        // It stops there: the room for the next batch comes when this has been read.
        timeout(SOON, outbox.activity().holds_more_than(PENDING)).await.unwrap();
        tokio::task::yield_now().await;
        forwarder.abort();
        (outbox.activity().held(), outbox.activity().room())
    }

    #[tokio::test]
    async fn clients_that_do_not_read_hold_little_whatever_the_size_of_a_message_is() {
        let dir = tempfile::tempdir().unwrap();
        let services = open(dir.path());
        for size in [3_000, 8_000, 15_000, 28_000, 33_000, 60_000, 125_000, 235_000, 255_000, 300_000] {
            let (held, room) = held(&services, dir.path(), size).await;
            let all = if room > 0 {
                assert!(held <= room + PENDING, "{size}: {held} bytes, and room for {room}");
                // The others wait for room.
                held * (Capacity::LARGE / room) + CLIENTS * PENDING / 2
            } else {
                held * CLIENTS
            };
            assert!(all <= BOUND, "messages of {size} bytes: each client holds {held}, all of them {all}");
        }
        services.registry.pause().await;
        services.store.close().await.unwrap();
    }
}
