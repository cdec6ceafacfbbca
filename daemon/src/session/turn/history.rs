//! The history that a turn begins with: what the actor has kept of it, or what the log says.
//!
//! The actor follows its own events as long as the history is short; a turn then begins without a
//! query, and its prompt comes from the actor. A longer history is read from the log, page by page.

use linger_protocol::event::{Event, Level, NoticeCode};

use super::{Opening, Turn, TurnEnded};
use crate::session::actor::{MEND, TurnMessage};
use crate::session::context::{self, Context};
use crate::store::StoreError;

/// The longest history that a session keeps from one turn to the next, in bytes of events. A longer
/// one is read and parsed again at each turn, which takes no time that shows next to a model's.
const KEPT: usize = 64 << 10;

/// What was read of the log, or followed.
#[derive(Clone, Debug, Default)]
pub struct Past {
    builder: context::Builder,
    /// The last event that it knows.
    after: u64,
    /// The length of the events in it, in bytes.
    bytes: usize,
}

impl Past {
    /// Takes the next event of the log, of `bytes`. Lets go of everything if one was missed, or if
    /// the history is too long to be kept.
    pub fn follow(&mut self, event: &Event, kind: &str, bytes: usize) {
        let Some(seq) = event.seq.filter(|seq| *seq == self.after + 1) else { return };
        if context::KINDS.contains(&kind) {
            if self.bytes + bytes > KEPT {
                *self = Self::default();
                return;
            }
            self.builder.event(event.clone());
            self.bytes += bytes;
        }
        self.after = seq;
    }

    /// What a turn has read; nothing that matters to a history has come after it up to `head`.
    pub fn up_to(self, head: u64) -> Self {
        Self { after: head, ..self }
    }
}

/// Why a history is not there.
enum Unread {
    /// The storage failed, and may not the next time.
    ForNow(StoreError),
    /// What is stored is no history.
    Broken(String),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        if error.is_damage() { Self::Broken(error.0.to_string()) } else { Self::ForNow(error) }
    }
}

impl Turn {
    /// The context that a turn begins with; what started the turn is committed then. An error says
    /// why there is none.
    pub(super) async fn history(&self, opening: &mut Opening) -> Result<Result<Context, String>, TurnEnded> {
        self.emit.committed().await?;
        let past = std::mem::take(&mut opening.past);
        if past.after == opening.head {
            #[cfg(all(debug_assertions, not(feature = "faults")))]
            self.is_as_stored(&past).await;
            return Ok(Ok(past.builder.finish()));
        }
        self.history_when_readable().await
    }

    /// What the log says. While it cannot be read, but may be in a moment, the turn waits, visibly.
    async fn history_when_readable(&self) -> Result<Result<Context, String>, TurnEnded> {
        let mut pause = MEND[0];
        loop {
            let error = match self.read().await {
                Ok(past) => {
                    if past.bytes <= KEPT {
                        self.emit.tell(TurnMessage::Read(Box::new(past.clone())))?;
                    }
                    return Ok(Ok(past.builder.finish()));
                }
                Err(Unread::Broken(error)) => return Ok(Err(error)),
                Err(Unread::ForNow(error)) => error,
            };
            tracing::warn!(target: "turn", session = %self.session, %error, "the history cannot be read for now");
            if pause == MEND[0] {
                let text = format!("the history cannot be read: {error}; trying again");
                self.emit.notice(Level::Warning, NoticeCode::Retry, text)?;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MEND[1]);
        }
    }

    /// Reads the log to its end, a page at a time: other sessions' queries go between.
    async fn read(&self) -> Result<Past, Unread> {
        let Past { mut builder, mut after, mut bytes } = Past::default();
        loop {
            let read = self.env.store.events_of(self.session.clone(), context::KINDS, after, context::PAGE);
            let (page, more) = read.await?;
            after = page.last().map_or(after, |last| last.seq);
            bytes += page.iter().map(|stored| stored.data.len()).sum::<usize>();
            let parse = move || builder.add(&page).map(|()| builder);
            // One thread runs all sessions: a long history is parsed on another, a short one here.
            let parsed = if more { tokio::task::spawn_blocking(parse).await } else { Ok(parse()) };
            let parsed = parsed.map_err(|error| Unread::Broken(error.to_string()))?;
            builder = parsed.map_err(|error| Unread::Broken(error.to_string()))?;
            if !more {
                return Ok(Past { builder, after, bytes });
            }
        }
    }

    /// What the actor followed is what is stored. Not where store operations fail on purpose: an
    /// error of this one is passed over.
    #[cfg(all(debug_assertions, not(feature = "faults")))]
    async fn is_as_stored(&self, past: &Past) {
        if let Ok(stored) = self.read().await {
            assert_eq!(past.builder.clone().finish(), stored.builder.finish(), "the history was kept and has changed");
        }
    }
}
