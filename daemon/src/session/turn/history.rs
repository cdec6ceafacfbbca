//! The history at the start of a turn: kept by the actor, or read from the log.
//!
//! The actor follows its own events while the history is short, so that a turn begins without a
//! query. A longer history is read from the log, page by page; after a compaction from the turn on of the last message that the
//! summary replaced, so that a turn of a long session begins as quickly as one of a short one.

use linger_protocol::event::{Compacted, Event, EventBody, Level, NoticeCode};

use super::{Opening, Turn, TurnEnded};
use crate::session::context::{self, Context, KEPT, Past};
use crate::session::messages::{TurnMessage, WRITE_RETRY};
use crate::session::state::tree::PassedOver;
use crate::store::StoreError;
use crate::sys::task;

/// Why a history cannot be read.
enum HistoryError {
    /// The storage failed, which may pass.
    ForNow(StoreError),
    /// The stored history is malformed.
    Broken(String),
}

impl From<StoreError> for HistoryError {
    fn from(error: StoreError) -> Self {
        if error.is_damage() { Self::Broken(error.0.to_string()) } else { Self::ForNow(error) }
    }
}

impl Turn {
    /// The initial context of a turn, after its first events are committed; or why it is unreadable.
    pub(super) async fn history(&self, opening: &mut Opening) -> Result<Result<Context, String>, TurnEnded> {
        self.emit.committed().await?;
        let past = std::mem::take(&mut opening.past);
        if past.after == opening.head {
            #[cfg(all(debug_assertions, not(feature = "faults")))]
            self.is_as_stored(&past, &opening.passed_over).await;
            return Ok(Ok(past.builder.finish()));
        }
        self.history_when_readable(&opening.passed_over).await
    }

    /// The history from the log; waits visibly while the storage fails.
    async fn history_when_readable(&self, passed_over: &PassedOver) -> Result<Result<Context, String>, TurnEnded> {
        let mut pause = WRITE_RETRY[0];
        loop {
            let error = match self.read(passed_over).await {
                Ok(past) => {
                    if past.bytes <= KEPT {
                        self.emit.tell(TurnMessage::Read(Box::new(past.clone())))?;
                    }
                    return Ok(Ok(past.builder.finish()));
                }
                Err(HistoryError::Broken(error)) => return Ok(Err(error)),
                Err(HistoryError::ForNow(error)) => error,
            };
            tracing::warn!(target: "turn", session = %self.session, %error, "cannot read the history for now");
            if pause == WRITE_RETRY[0] {
                let text = format!("cannot read the history: {error}; trying again");
                self.emit.notice(Level::Warning, NoticeCode::Retry, text)?;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(WRITE_RETRY[1]);
        }
    }

    /// Reads what counts of the log, without what is passed over.
    async fn read(&self, passed_over: &PassedOver) -> Result<Past, HistoryError> {
        // Without it all is read, which says what is wrong.
        let beginning = self.beginning(passed_over).await.unwrap_or_default();
        let past = self.read_after(beginning, passed_over).await?;
        #[cfg(all(debug_assertions, not(feature = "faults")))]
        if beginning > 0 {
            let whole = self.read_after(0, passed_over).await?;
            assert_eq!(past.builder.clone().finish(), whole.builder.finish(), "what was not read counts");
        }
        Ok(past)
    }

    /// The number of the event after which what counts begins. The turn of the last message that the summary replaced is a part of
    /// it, as the summary may keep prompts of that turn.
    async fn beginning(&self, passed_over: &PassedOver) -> Result<u64, StoreError> {
        let Some(compacted) = passed_over.compacted.filter(|_| !passed_over.has_refused) else { return Ok(0) };
        let stored = self.services.store.event(self.session.clone(), compacted).await?;
        let event: Option<Event> = stored.and_then(|stored| serde_json::from_str(&stored.data).ok());
        let Some(EventBody::Compacted(Compacted { through, .. })) = event.map(|event| event.body) else { return Ok(0) };
        let turn = self.services.store.turn_of(self.session.clone(), through.0, compacted).await?;
        Ok(turn.map_or(0, |turn| turn.saturating_sub(1)))
    }

    /// Reads the log page by page, so that other sessions' queries run in between.
    async fn read_after(&self, beginning: u64, passed_over: &PassedOver) -> Result<Past, HistoryError> {
        let Past { mut builder, mut bytes, .. } = Past::default();
        let mut after = beginning;
        loop {
            let read = self.services.store.events_of(self.session.clone(), context::KINDS, after, context::PAGE);
            let (mut page, more) = read.await?;
            after = page.last().map_or(after, |last| last.seq);
            page.retain(|stored| !passed_over.has(stored));
            bytes += page.iter().map(|stored| stored.data.len()).sum::<usize>();
            let parse = move || builder.add(&page).map(|()| builder);
            // A long history is parsed on a blocking thread, because one thread runs all sessions.
            let parsed = if more { task::spawn_blocking(parse).await } else { Ok(parse()) };
            let parsed = parsed.map_err(|error| HistoryError::Broken(error.to_string()))?;
            builder = parsed.map_err(|error| HistoryError::Broken(error.to_string()))?;
            if !more {
                return Ok(Past { builder, after, bytes });
            }
        }
    }

    /// Asserts that the followed history equals the stored one. Ignores errors of the store.
    #[cfg(all(debug_assertions, not(feature = "faults")))]
    async fn is_as_stored(&self, past: &Past, passed_over: &PassedOver) {
        if let Ok(stored) = self.read(passed_over).await {
            assert_eq!(past.builder.clone().finish(), stored.builder.finish(), "the history was kept and has changed");
        }
    }
}
