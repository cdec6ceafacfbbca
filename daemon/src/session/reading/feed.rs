//! A feed: a cursor that reads the events of all sessions at its own pace.
//!
//! Everything comes from the store, old events and new ones by the same query: a commit only says that there may be more. A reader
//! that does not read costs a position. Deltas are not part of it; for them attach to a session.
//! Deliberately absent: lines, sockets and clients, and who may read what.

use linger_protocol::event::{Event, EventBody, Level, Notice};
use linger_protocol::id::{Cursor, SessionId};
use tokio::sync::watch;

use crate::store::Store;
use crate::store::feed::{Filter, Place};
use crate::sys::clock;

/// The size of a batch, in bytes: a client that does not read holds a few of these.
const BATCH: usize = 16 << 10;

/// One reader's view of all sessions.
pub struct Feed {
    store: Store,
    filter: Filter,
    /// The position after what was read.
    at: Place,
    /// Wakes when there may be more.
    grown: watch::Receiver<()>,
    phase: FeedPhase,
    /// Whether `caught_up` was given.
    caught_up: bool,
}

enum FeedPhase {
    /// There may be more after the position.
    Behind,
    /// Everything was given.
    AtHead,
    /// The events cannot be read.
    Ended,
}

/// An event of any session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedItem {
    /// Its session; absent for what is only for this reader.
    pub session: Option<SessionId>,
    /// The position to continue from.
    pub cursor: Cursor,
    /// The event in JSON.
    pub event: String,
}

impl Feed {
    /// A reader of what is wanted after a position.
    pub fn new(store: Store, at: Place, filter: Filter) -> Self {
        let grown = store.grown();
        Self { store, filter, at, grown, phase: FeedPhase::Behind, caught_up: false }
    }

    /// Waits until there may be more; false at its end. Cancel safe.
    pub async fn ready(&mut self) -> bool {
        match self.phase {
            FeedPhase::Behind => true,
            FeedPhase::AtHead => {
                let more = self.grown.changed().await.is_ok();
                self.phase = if more { FeedPhase::Behind } else { FeedPhase::Ended };
                more
            }
            FeedPhase::Ended => false,
        }
    }

    /// The next events, up to a bound; there may be none. The size of the next one if that is large, unless `has_room`.
    pub async fn take(&mut self, has_room: bool) -> Result<Vec<FeedItem>, usize> {
        // What is committed from here on wakes it again.
        self.grown.mark_unchanged();
        let page = match self.store.feed(self.at, self.filter.clone(), BATCH, has_room).await {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(target: "attach", %error, "reading the events of all sessions failed");
                self.phase = FeedPhase::Ended;
                let text = format!("cannot read the events: {error}; subscribe again");
                return Ok(vec![self.notice(EventBody::Notice(Notice {
                    level: Level::Error,
                    code: None,
                    text,
                    until_at: None,
                    since_at: None,
                }))]);
            }
        };
        self.at = page.at;
        if let (Some(size), true) = (page.large, page.events.is_empty()) {
            return Err(size);
        }
        let item = |(place, session, stored): (Place, SessionId, crate::log::Stored)| FeedItem {
            session: Some(session),
            cursor: place.cursor(),
            event: stored.data,
        };
        let mut items: Vec<FeedItem> = page.events.into_iter().map(item).collect();
        if !page.more {
            self.phase = FeedPhase::AtHead;
            if !std::mem::replace(&mut self.caught_up, true) {
                items.push(self.notice(EventBody::CaughtUp {}));
            }
        }
        Ok(items)
    }

    fn notice(&self, body: EventBody) -> FeedItem {
        let event = Event { body, seq: None, at: clock::now(), turn: None };
        FeedItem { session: None, cursor: self.at.cursor(), event: event.to_json() }
    }
}
