//! The queue of the writing thread: appends made in the same pass of the runtime are handed over together.
//!
//! An actor often writes twice without a pause: a prompt and the turn that it starts, the result of a call and the message of
//! all results. The writing thread would take up the first before the second is there, and commit twice. So what is written is
//! handed over by a task of its own, which runs when those that are about to run have.
//! Text that streams is handed over at once after a pause, and then at most every [`PACE`]: of hundreds of streams, dozens of
//! pieces share a commit, its wake-ups and a timer. Whatever else is written waits for nothing, and takes along what is there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::{StoreError, Write, ended};

/// From one hand-over of text to the next: nobody sees so short a time, and a stream of 100 tokens a second has none in it.
const PACE: Duration = Duration::from_millis(2);

/// So much text, in bytes, is handed over at once: it is worth a commit by itself.
const MUCH: usize = 1 << 10;

/// The sending end; cheap to clone.
#[derive(Clone)]
pub(super) struct Queue {
    waiting: Arc<Mutex<Waiting>>,
    writer: mpsc::Sender<Write>,
}

/// What has not been handed over.
#[derive(Default)]
struct Waiting {
    /// In order.
    writes: Vec<Write>,
    /// How much of it is text of streams, in bytes.
    text: usize,
    /// When somebody will hand it over.
    due: Option<Instant>,
    /// When text was handed over last.
    last_text: Option<Instant>,
}

impl Waiting {
    /// Puts something at the end; gives when it has to be handed over, unless somebody will have done that by then.
    fn add(&mut self, write: Write, now: Instant) -> Option<Instant> {
        let text = write.text();
        self.writes.push(write);
        self.text += text.unwrap_or_default();
        let paced = self.last_text.filter(|_| text.is_some() && self.text < MUCH).map(|last| last + PACE);
        let due = paced.map_or(now, |paced| paced.max(now));
        if self.due.is_some_and(|earlier| earlier <= due) {
            return None;
        }
        self.due = Some(due);
        Some(due)
    }

    fn take(&mut self, now: Instant) -> Vec<Write> {
        if self.text > 0 {
            self.last_text = Some(now);
        }
        (self.text, self.due) = (0, None);
        std::mem::take(&mut self.writes)
    }
}

impl Queue {
    pub(super) fn new() -> (Self, mpsc::Receiver<Write>) {
        let (writer, writes) = mpsc::channel();
        (Self { waiting: Arc::default(), writer }, writes)
    }

    /// Appends to the queue.
    pub(super) fn send(&self, write: Write) {
        let now = Instant::now();
        let Some(due) = self.waiting().add(write, now) else { return };
        match Handle::try_current() {
            Ok(runtime) => {
                let queue = self.clone();
                // It ends by itself, at once or within [`PACE`].
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
        let mut waiting = self.waiting();
        for write in waiting.take(Instant::now()) {
            if let Err(mpsc::SendError(write)) = self.writer.send(write) {
                write.refuse(&ended());
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// How much text of streams it has, in bytes, if it has nothing else.
    fn text(&self) -> Option<usize> {
        match self {
            Self::Append(append) if append.events.is_empty() && append.folds.is_empty() && !append.sync => {
                let text = append.pieces.iter().map(|piece| piece.text.len()).sum();
                (text > 0).then_some(text)
            }
            _ => None,
        }
    }

    /// Says that it was not written. Nobody may be waiting for that any more.
    fn refuse(self, error: &StoreError) {
        let done = match self {
            Self::Append(append) => {
                append.log.fail();
                append.done
            }
            Self::Remove(_, _, done) | Self::Outcome(_, done) | Self::Close(done) => Some(done),
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
        Write::Outcome(Outcome { key, result: String::new() }, oneshot::channel().0)
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
        tokio::time::sleep(PACE).await;
        tokio::task::yield_now().await;
        assert_eq!(count(), 3);
        send(text("c")).await;
        send(outcome("d")).await;
        assert_eq!(count(), 2, "what else is written takes it along");
        send(text("e")).await;
        send(text(&"f".repeat(MUCH))).await;
        assert_eq!(count(), 2, "much of it waits for nothing");
        tokio::time::sleep(PACE * 2).await;
        send(text("g")).await;
        assert_eq!(count(), 1);
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
