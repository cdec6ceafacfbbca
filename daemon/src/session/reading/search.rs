//! The index of all messages, kept up to date beside the work, and asked.
//!
//! One task owns the index. It is woken after commits, waits a moment for more of them, and reads the log like any other reader, a
//! page at a time with a pause after each; it writes to a database of its own. So no write of a session ever waits for it: it is
//! behind by a moment, and after a crash by what it had not read. A search first brings it up to date, for a bounded time.
//! It closes the index when there is nothing to do: an idle daemon has no timer of it and no file.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use linger_protocol::event::{Event, EventBody, MessageAdded};
use linger_protocol::id::SessionId;
use linger_protocol::message::text_of;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::log::Stored;
use crate::store::feed::{Filter, Place};
use crate::store::words::{Entry, Words};
use crate::store::{Store, StoreError};
use crate::sys::task;

/// The pause after the daemon's start: it has better things to do then.
const START: Duration = Duration::from_secs(5);

/// How long a commit waits for others to be indexed with it.
const GATHER: Duration = Duration::from_millis(200);

/// The pause between two pages, which leaves the processor to others.
const BETWEEN: Duration = Duration::from_millis(5);

/// How long the index stays open without work.
const CLOSE: Duration = Duration::from_secs(1);

/// How long a search waits until the index is up to date: it finds what there is.
const PATIENCE: Duration = Duration::from_secs(2);

/// The size of a page of the log, in bytes.
const PAGE: usize = 256 << 10;

/// The most text of one message that is indexed, in bytes; longer ones are files in a prompt.
const MAX_TEXT: usize = 256 << 10;

/// The most searches that wait.
const WAITING: usize = 64;

/// A search that waits for the task with the index.
struct SearchRequest {
    query: String,
    among: Option<Vec<SessionId>>,
    /// The most matches, after those that are skipped.
    most: usize,
    skip: usize,
    reply: oneshot::Sender<Result<Matches, StoreError>>,
}

/// The numbers of messages, the best match first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Numbers over all sessions.
    pub events: Vec<i64>,
    /// How many events the index has not seen yet.
    pub behind: u64,
}

/// The way to the index.
pub struct Search {
    asks: mpsc::Sender<SearchRequest>,
    /// For the task.
    asked: Mutex<Option<mpsc::Receiver<SearchRequest>>>,
}

impl Default for Search {
    fn default() -> Self {
        let (asks, asked) = mpsc::channel(WAITING);
        Self { asks, asked: Mutex::new(Some(asked)) }
    }
}

impl Search {
    /// Starts the task that keeps the index; once.
    pub fn start(&self, store: &Store) -> Option<JoinHandle<()>> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(task::spawn(keep(store.clone(), asked)))
    }

    /// The best matches of a query: at most `most`, after the first `skip`.
    pub async fn find(
        &self,
        query: String,
        among: Option<Vec<SessionId>>,
        most: usize,
        skip: usize,
    ) -> Result<Matches, StoreError> {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError("the index of messages has ended".into());
        self.asks.send(SearchRequest { query, among, most, skip, reply }).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// The index, and where it comes from.
struct Index {
    store: Store,
    path: PathBuf,
    words: Option<Words>,
}

async fn keep(store: Store, mut asked: mpsc::Receiver<SearchRequest>) {
    let mut grown = store.grown();
    let mut index = Index { path: Words::path(&store.path), store, words: None };
    // What was written before may not be indexed.
    let (mut is_behind, mut due) = (true, Instant::now() + START);
    loop {
        tokio::select! {
            ask = asked.recv() => {
                let Some(SearchRequest { query, among, most, skip, reply }) = ask else { return };
                let found = index.find(query, among, most, skip).await;
                // The client may be gone.
                let _unheard = reply.send(found);
                due = Instant::now() + CLOSE;
            }
            more = grown.changed(), if !is_behind => {
                if more.is_err() {
                    return;
                }
                (is_behind, due) = (true, Instant::now() + GATHER);
            }
            () = sleep_until(due), if is_behind || index.words.is_some() => {
                if !is_behind {
                    index.close().await;
                    continue;
                }
                grown.mark_unchanged();
                is_behind = match index.step().await {
                    Ok(more) => more,
                    Err(error) => {
                        // The next commit tries again.
                        tracing::warn!(target: "store", %error, "cannot index messages");
                        index.close().await;
                        false
                    }
                };
                due = Instant::now() + if is_behind { BETWEEN } else { CLOSE };
            }
        }
    }
}

impl Index {
    async fn find(
        &mut self,
        query: String,
        among: Option<Vec<SessionId>>,
        most: usize,
        skip: usize,
    ) -> Result<Matches, StoreError> {
        let until = Instant::now() + PATIENCE;
        while self.step().await? && Instant::now() < until {}
        let words = self.open().await?;
        let (words, found) = blocking(move || {
            let found = words.find(&query, among.as_deref(), most, skip);
            (words, found)
        })
        .await?;
        let at = words.at();
        self.words = Some(words);
        let events = match found {
            Err(error) if error.is_damage() => {
                self.make_again().await?;
                return Err(error);
            }
            found => found?,
        };
        Ok(Matches { events, behind: self.store.newest().await?.distance(at) })
    }

    /// Indexes a page of the log; whether there may be more.
    async fn step(&mut self) -> Result<bool, StoreError> {
        let mut words = self.open().await?;
        let kinds = ["message", "message_superseded"].map(str::to_owned).into();
        let filter = Filter { kinds: Some(kinds), ..Filter::default() };
        let at = words.at();
        let page = match self.store.feed(at, filter, PAGE, true).await {
            Ok(page) => page,
            Err(error) => {
                self.words = Some(words);
                return Err(error);
            }
        };
        let (more, moved) = (page.more, page.at != at);
        let (words, known) = blocking(move || {
            let entries = page.events.into_iter().filter_map(|(place, session, stored)| entry(place, session, &stored));
            let entries: Vec<Entry> = entries.collect();
            let added = if moved { words.add(&entries, page.at) } else { Ok(()) };
            let known = added.and_then(|()| if more { Ok(Vec::new()) } else { words.sessions() });
            (words, known)
        })
        .await?;
        self.words = Some(words);
        let done = match known {
            Ok(known) if known.is_empty() => Ok(()),
            Ok(known) => {
                let gone = self.store.gone(known).await?;
                self.forget(gone).await
            }
            Err(error) => Err(error),
        };
        match done {
            Err(error) if error.is_damage() => {
                tracing::warn!(target: "store", %error, "the index of messages is damaged, and made again");
                self.make_again().await?;
                Ok(true)
            }
            done => done.map(|()| more),
        }
    }

    /// Deletes the words of these sessions.
    async fn forget(&mut self, gone: Vec<SessionId>) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut words = self.open().await?;
        let (words, done) = blocking(move || {
            let done = words.forget(&gone);
            (words, done)
        })
        .await?;
        self.words = Some(words);
        done
    }

    /// The open index; an index of another database is made again.
    async fn open(&mut self) -> Result<Words, StoreError> {
        if let Some(words) = self.words.take() {
            return Ok(words);
        }
        let path = self.path.clone();
        let words = blocking(move || Words::open(&path)).await??;
        if self.store.knows(words.at()).await? {
            return Ok(words);
        }
        drop(words);
        self.make_again().await?;
        self.words.take().ok_or_else(|| StoreError("the index of messages is closed".into()))
    }

    async fn make_again(&mut self) -> Result<(), StoreError> {
        let (path, old) = (self.path.clone(), self.words.take());
        let words = blocking(move || {
            drop(old);
            Words::create(&path)
        })
        .await??;
        self.words = Some(words);
        Ok(())
    }

    /// Closing writes to the disk.
    async fn close(&mut self) {
        if let Some(words) = self.words.take() {
            let _closed = blocking(move || drop(words)).await;
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    task::spawn_blocking(work).await.map_err(|error| StoreError(error.to_string().into()))
}

/// The index entry of an event: the words of a person or a model, or that a message no longer counts.
fn entry(place: Place, session: SessionId, stored: &Stored) -> Option<Entry> {
    let event: Event = serde_json::from_str(&stored.data).ok()?;
    let (message, text) = match event.body {
        EventBody::Message(MessageAdded { message, content, asks: None, .. }) => {
            let mut text = text_of(&content);
            let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            (message, Some(Some(text).filter(|text| !text.trim().is_empty())?))
        }
        EventBody::MessageSuperseded { message } => (message, None),
        _ => return None,
    };
    Some(Entry { n: place.number(), session, stream: message.0, text })
}
