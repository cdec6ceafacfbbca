//! The queue of the writing thread: appends made in the same pass of the runtime are handed over together.
//!
//! An actor often writes twice without a pause: a prompt and the turn that it starts, the result of a call and the message of
//! all results. So that both share a commit, a separate task hands writes over, after the tasks that are ready to run.
//! Streamed text is handed over immediately after a pause, and then at a [`pace`] that grows with the number of streams: with
//! hundreds of them, each commit has a piece of most, and each piece has several tokens. Other writes are handed over immediately,
//! with all that are queued.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::append::Write;
use super::error::{StoreError, ended};

/// The shortest time between two hand-overs of text: shorter than between the tokens of one stream.
const SHORTEST: Duration = Duration::from_millis(2);

/// The longest: two frames of a screen.
const LONGEST: Duration = Duration::from_millis(32);

/// The pause that each stream adds: about the cost of its piece of a commit, so that text takes at most half a processor.
const EACH: Duration = Duration::from_micros(160);

/// A write with this many bytes of text is handed over immediately: it is worth a commit by itself.
const MUCH: usize = 1 << 10;

/// From a hand-over with pieces of so many streams to the next.
fn pace(streams: u32) -> Duration {
    (EACH * streams).clamp(SHORTEST, LONGEST)
}

/// The sending end; cheap to clone.
#[derive(Clone)]
pub(super) struct Queue {
    pending: Arc<Mutex<PendingWrites>>,
    writer: mpsc::Sender<Write>,
}

/// Writes that are not handed over yet.
#[derive(Default)]
struct PendingWrites {
    /// In order.
    writes: Vec<Write>,
    /// How many of them are text: one a stream, as the next piece of a stream comes when this one is committed.
    texts: u32,
    /// When a task will hand them over.
    due: Option<Instant>,
    /// When text may be handed over again.
    next_text: Option<Instant>,
}

impl PendingWrites {
    /// Appends a write; gives when it must be handed over, unless a task will have done that by then.
    fn add(&mut self, write: Write, now: Instant) -> Option<Instant> {
        let text = write.text();
        self.writes.push(write);
        self.texts += u32::from(text.is_some());
        let paced = self.next_text.filter(|_| text.is_some_and(|bytes| bytes < MUCH));
        let due = paced.map_or(now, |paced| paced.max(now));
        if self.due.is_some_and(|earlier| earlier <= due) {
            return None;
        }
        self.due = Some(due);
        Some(due)
    }

    fn take(&mut self, now: Instant) -> Vec<Write> {
        if self.texts > 0 {
            self.next_text = Some(now + pace(self.texts));
        }
        (self.texts, self.due) = (0, None);
        std::mem::take(&mut self.writes)
    }
}

impl Queue {
    pub(super) fn new() -> (Self, mpsc::Receiver<Write>) {
        let (writer, writes) = mpsc::channel();
        (Self { pending: Arc::default(), writer }, writes)
    }

    /// Appends to the queue.
    pub(super) fn send(&self, write: Write) {
        let now = Instant::now();
        let Some(due) = self.pending().add(write, now) else { return };
        match Handle::try_current() {
            Ok(runtime) => {
                let queue = self.clone();
                // It ends by itself, at once or within [`LONGEST`].
                drop(runtime.spawn(async move {
                    if due > now {
                        sleep_until(due).await;
                    }
                    queue.hand_over();
                }));
            }
            Err(_) => self.hand_over(),
        }
    }

    /// Hands over in order: the lock is held until the last one, which never blocks.
    fn hand_over(&self) {
        let mut pending = self.pending();
        for write in pending.take(Instant::now()) {
            if let Err(mpsc::SendError(write)) = self.writer.send(write) {
                write.refuse(&ended());
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingWrites> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// Its bytes of streamed text, if it has nothing else.
    fn text(&self) -> Option<usize> {
        match self {
            Self::Append(append) if append.events.is_empty() && append.folds.is_empty() && !append.sync => {
                let text = append.pieces.iter().map(|piece| piece.text.len()).sum();
                (text > 0).then_some(text)
            }
            _ => None,
        }
    }

    /// Fails the write; the caller may be gone.
    fn refuse(self, error: &StoreError) {
        let done = match self {
            Self::Append(append) => {
                append.log.fail();
                append.done
            }
            Self::Remove(_, _, done) | Self::Outcome(_, done) | Self::Change(_, _, done) | Self::Close(done) => {
                Some(done)
            }
        };
        if let Some(done) = done {
            let _unheard = done.send(Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, Piece, PieceKind};
    use crate::store::Append;
    use crate::store::idempotency::{Key, Outcome};
    use linger_protocol::id::SessionId;
    use tokio::sync::oneshot;

    fn outcome(id: &str) -> Write {
        let key = Key { id: id.to_owned(), params: String::new() };
        Write::Outcome(Outcome { key, result: Ok(String::new()) }, oneshot::channel().0)
    }

    fn names(writes: &mpsc::Receiver<Write>) -> Vec<String> {
        let name = |write| match write {
            Write::Outcome(outcome, _) => outcome.key.id,
            _ => "?".to_owned(),
        };
        writes.try_iter().map(name).collect()
    }

    #[tokio::test]
    async fn what_is_written_without_a_pause_is_handed_over_together_and_in_order() {
        let (queue, writes) = Queue::new();
        for id in ["a", "b", "c"] {
            queue.send(outcome(id));
        }
        assert_eq!(names(&writes), Vec::<String>::new());
        tokio::task::yield_now().await;
        assert_eq!(names(&writes), ["a", "b", "c"]);
        queue.send(outcome("d"));
        tokio::task::yield_now().await;
        assert_eq!(names(&writes), ["d"]);
    }

    fn text(text: &str) -> Write {
        let piece =
            Piece { stream: "m1".to_owned(), block: 0, offset: 0, kind: PieceKind::Text, text: text.to_owned() };
        let log = Log::new(SessionId("s".to_owned()), 0, Vec::new());
        let (events, folds, pieces) = (Vec::new(), Vec::new(), vec![piece]);
        Write::Append(Box::new(Append { log, events, turn: None, pieces, folds, sync: false, done: None }))
    }

    #[tokio::test(start_paused = true)]
    async fn text_that_follows_text_waits_for_more_and_nothing_else_does() {
        let (queue, writes) = Queue::new();
        let count = || writes.try_iter().count();
        let send = async |write| {
            queue.send(write);
            tokio::task::yield_now().await;
        };
        send(text("a")).await;
        assert_eq!(count(), 1, "after a pause it waits for nothing");
        for _ in 0..3 {
            send(text("b")).await;
        }
        assert_eq!(count(), 0);
        tokio::time::sleep(SHORTEST).await;
        tokio::task::yield_now().await;
        assert_eq!(count(), 3);
        send(text("c")).await;
        send(outcome("d")).await;
        assert_eq!(count(), 2, "what else is written takes it along");
        send(text("e")).await;
        send(text(&"f".repeat(MUCH))).await;
        assert_eq!(count(), 2, "much of it waits for nothing");
        tokio::time::sleep(LONGEST).await;
        send(text("g")).await;
        assert_eq!(count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_streams_the_longer_the_pace() {
        let (queue, writes) = Queue::new();
        let count = || writes.try_iter().count();
        (0..100).for_each(|_| queue.send(text("a")));
        tokio::task::yield_now().await;
        assert_eq!(count(), 100);
        queue.send(text("b"));
        tokio::time::sleep(pace(100) - Duration::from_millis(1)).await;
        assert_eq!(count(), 0);
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        assert_eq!(count(), 1);
        assert_eq!([pace(1), pace(100), pace(1000)], [SHORTEST, Duration::from_millis(16), LONGEST]);
    }

    #[test]
    fn without_a_runtime_it_is_handed_over_at_once() {
        let (queue, writes) = Queue::new();
        queue.send(outcome("a"));
        assert_eq!(names(&writes), ["a"]);
    }

    #[tokio::test]
    async fn what_comes_after_the_end_is_refused() {
        let (queue, writes) = Queue::new();
        drop(writes);
        let (done, answer) = oneshot::channel();
        queue.send(Write::Close(done));
        assert!(answer.await.unwrap().is_err());
    }
}
