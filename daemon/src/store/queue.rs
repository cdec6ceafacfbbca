//! The way to the writing thread: what is written before the runtime comes round again goes there together.
//!
//! An actor often writes twice without a pause: a prompt and the turn that it starts, the result of a call and the message of
//! all results. The writing thread would take up the first before the second is there, and commit twice. So what is written is
//! handed over by a task of its own, which runs when those that are about to run have; nobody waits for more to come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use tokio::runtime::Handle;

use super::{StoreError, Write, ended};

/// The sending end; cheap to clone.
#[derive(Clone)]
pub(super) struct Queue {
    /// What has not been handed over, in order.
    waiting: Arc<Mutex<Vec<Write>>>,
    writer: mpsc::Sender<Write>,
}

impl Queue {
    pub(super) fn new() -> (Self, mpsc::Receiver<Write>) {
        let (writer, writes) = mpsc::channel();
        (Self { waiting: Arc::default(), writer }, writes)
    }

    /// Puts something at the end of the queue.
    pub(super) fn send(&self, write: Write) {
        let mut waiting = self.waiting();
        waiting.push(write);
        if waiting.len() > 1 {
            // Who came first has seen to it.
            return;
        }
        drop(waiting);
        match Handle::try_current() {
            Ok(runtime) => {
                let queue = self.clone();
                // It ends by itself, at once.
                drop(runtime.spawn(async move { queue.hand_over() }));
            }
            Err(_) => self.hand_over(),
        }
    }

    /// In order, whoever else does the same: the lock is held until the last one is handed over, which never blocks.
    fn hand_over(&self) {
        for write in self.waiting().drain(..) {
            if let Err(mpsc::SendError(write)) = self.writer.send(write) {
                write.refuse(&ended());
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Write>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
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
    use crate::store::idempotency::{Key, Outcome};
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
