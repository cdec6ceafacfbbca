//! Messages that wait to be written to one client, and the activity of its connection.
//!
//! Bounded: senders wait while the client does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, mpsc, watch};

use super::room::{Capacity, Holder, LargeRoom};

/// Requests of one connection that wait for their result, those of batches too; reading stops beyond. An editor has a handful
/// at a time.
pub(super) const MAX_WAITING: u32 = 64;

/// Batches of lines that wait for the socket: one being filled, one waiting, keeps a fast client busy. Hundreds of clients that
/// do not read each hold as many.
const OUTBOX: usize = 2;

/// How much may wait for a client when the next events are read for it, in bytes. One that does not read holds this and one batch
/// more, also when it is attached to many sessions.
pub const PENDING: usize = 32 << 10;

/// Lines that go out together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) lines: Vec<String>,
    pub(super) rooms: Vec<LargeRoom>,
}

impl Batch {
    /// Its size in bytes.
    pub(super) fn size(&self) -> usize {
        self.lines.iter().map(String::len).sum()
    }
}

/// Where lines for one client go in.
#[derive(Clone, Debug)]
pub struct Outbox {
    lines: mpsc::Sender<Batch>,
    pub(super) activity: Arc<Activity>,
}

/// Where the connection takes them out.
#[derive(Debug)]
pub struct Outgoing {
    pub(super) lines: mpsc::Receiver<Batch>,
    pub(super) activity: Arc<Activity>,
}

/// The activity of one connection, for choosing which one to close; times are in milliseconds after it
/// began, 0 is never.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    pub(super) asked: AtomicU64,
    pub(super) writing: AtomicU64,
    /// Room for requests that wait for their result.
    pub(super) waiting: Arc<Semaphore>,
    /// Its share of the capacity for large answers.
    pub(super) holder: Holder,
    /// How much waits for the client, in bytes.
    held: watch::Sender<usize>,
    /// Held while the next events are read for the client.
    reading: Arc<Mutex<()>>,
}

impl Activity {
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn since(&self, at: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(at))
    }

    /// How much waits for the client, in bytes: lines in the outbox, and those that are being written.
    pub fn held(&self) -> usize {
        *self.held.borrow()
    }

    /// How much it holds of the room for what is large, in bytes.
    pub fn room(&self) -> usize {
        self.holder.bytes()
    }

    /// Waits until this much waits for the client, or less.
    pub async fn holds_at_most(&self, bytes: usize) {
        // Fails when the sender has gone, which is here.
        let _ = self.held.subscribe().wait_for(|held| *held <= bytes).await;
    }

    /// Waits until more than this waits for the client.
    pub async fn holds_more_than(&self, bytes: usize) {
        let _ = self.held.subscribe().wait_for(|held| *held > bytes).await;
    }

    /// Takes off what has been written.
    pub(super) fn written(&self, bytes: usize) {
        self.held.send_modify(|held| *held = held.saturating_sub(bytes));
    }

    /// Whether it ever made a request.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// How long ago it made a request, or began.
    pub fn silent(&self) -> Duration {
        self.since(self.asked.load(Ordering::Relaxed))
    }

    /// How long it has not read what is being written to it.
    pub fn stuck(&self) -> Option<Duration> {
        let writing = self.writing.load(Ordering::Relaxed);
        (writing > 0).then(|| self.since(writing))
    }

    /// Whether a request of it waits for its result.
    pub fn is_waiting(&self) -> bool {
        self.waiting.available_permits() < MAX_WAITING as usize
    }
}

/// Room for one batch of lines; free again when it is dropped.
#[derive(Debug)]
pub struct OutboxRoom {
    permit: mpsc::OwnedPermit<Batch>,
    activity: Arc<Activity>,
    _reading: OwnedMutexGuard<()>,
}

impl OutboxRoom {
    /// Sends messages, each of which becomes a line.
    pub fn send(self, lines: Vec<String>) {
        self.send_batch(Batch { lines, rooms: Vec::new() });
    }

    /// Sends messages that take this room until they are written.
    pub fn send_large(self, lines: Vec<String>, room: LargeRoom) {
        self.send_batch(Batch { lines, rooms: vec![room] });
    }

    fn send_batch(self, batch: Batch) {
        self.activity.held.send_modify(|held| *held += batch.size());
        self.permit.send(batch);
    }
}

/// The client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Outbox {
    /// An outbox and its other end, which [`serve`](super::serve::serve) takes.
    pub fn new(capacity: &Capacity) -> (Self, Outgoing) {
        let (sender, receiver) = mpsc::channel(OUTBOX);
        let activity = Arc::new(Activity {
            began: Instant::now(),
            asked: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            waiting: Arc::new(Semaphore::new(MAX_WAITING as usize)),
            holder: Holder::of(capacity.clone()),
            held: watch::Sender::new(0),
            reading: Arc::default(),
        });
        (Self { lines: sender, activity: activity.clone() }, Outgoing { lines: receiver, activity })
    }

    /// Sends messages, each of which becomes a line; waits while the client does not read.
    pub async fn send(&self, messages: Vec<String>) -> Result<(), Gone> {
        self.send_batch(Batch { lines: messages, rooms: Vec::new() }).await
    }

    pub(super) async fn send_batch(&self, batch: Batch) -> Result<(), Gone> {
        let permit = self.lines.reserve().await.map_err(|_| Gone)?;
        self.activity.held.send_modify(|held| *held += batch.size());
        permit.send(batch);
        Ok(())
    }

    /// Waits until there is room for one more batch and at most [`PENDING`] bytes wait, so that a batch is made only when it can
    /// be sent; one at a time.
    pub async fn room(&self) -> Result<OutboxRoom, Gone> {
        let activity = self.activity.clone();
        let reading = activity.reading.clone().lock_owned().await;
        tokio::select! {
            () = activity.holds_at_most(PENDING) => {}
            () = self.gone() => return Err(Gone),
        }
        let permit = self.lines.clone().reserve_owned().await.map_err(|_| Gone)?;
        Ok(OutboxRoom { permit, activity, _reading: reading })
    }

    /// Waits until there is room for something large of about `bytes`.
    pub async fn large_room(&self, bytes: usize) -> LargeRoom {
        LargeRoom::of(bytes, &self.activity.holder).await
    }

    /// Waits until the client has gone.
    pub async fn gone(&self) {
        self.lines.closed().await;
    }

    /// The connection's present activity.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }
}
