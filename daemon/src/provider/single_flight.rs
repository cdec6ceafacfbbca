//! Work that runs once for all concurrent callers: a key command that asks for a fingerprint is not run
//! once for each session.
//!
//! It runs as its own task: the first caller's end does not stop it, the last caller's end does.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::sys::task;

/// Work in progress, by name.
#[derive(Debug)]
pub struct SingleFlight<T>(Arc<Mutex<HashMap<String, Slot<T>>>>);

type Slot<T> = Weak<watch::Sender<Option<T>>>;

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// The result of `work`, or of the work of this name that runs already; `None` if it panicked.
    pub async fn join(&self, name: &str, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let mut result = self.subscribe(name, work);
        let result = result.wait_for(Option::is_some).await.ok()?;
        result.clone()
    }

    fn subscribe(&self, name: &str, work: impl Future<Output = T> + Send + 'static) -> watch::Receiver<Option<T>> {
        let mut running = lock(&self.0);
        if let Some(slot) = running.get(name).and_then(Weak::upgrade) {
            return slot.subscribe();
        }
        let (slot, receiver) = watch::channel(None);
        let slot = Arc::new(slot);
        running.insert(name.to_owned(), Arc::downgrade(&slot));
        let (running, name) = (self.0.clone(), name.to_owned());
        task::spawn(async move {
            let mut work = pin!(work);
            let result = loop {
                tokio::select! {
                    result = &mut work => break Some(result),
                    // No caller can subscribe between the check and the removal.
                    () = slot.closed() => {
                        let mut running = lock(&running);
                        if slot.receiver_count() == 0 {
                            running.remove(&name);
                            break None;
                        }
                    }
                }
            };
            if result.is_some() {
                lock(&running).remove(&name);
                slot.send_replace(result);
            }
        });
        receiver
    }
}

fn lock<T>(running: &Mutex<HashMap<String, Slot<T>>>) -> MutexGuard<'_, HashMap<String, Slot<T>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn all_who_ask_meanwhile_get_one_result_and_the_next_one_another() {
        let running = SingleFlight::<u32>::default();
        let runs = Arc::new(AtomicU32::new(0));
        let work = || {
            let runs = runs.clone();
            async move {
                tokio::task::yield_now().await;
                runs.fetch_add(1, Ordering::SeqCst) + 1
            }
        };
        let (a, b, c) = tokio::join!(running.join("x", work()), running.join("x", work()), running.join("y", work()));
        assert_eq!((a, b.is_some(), c.is_some()), (b, true, true));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert_eq!(running.join("x", work()).await, Some(3));
        assert!(lock(&running.0).is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn it_ends_with_the_last_who_asked_and_not_with_the_first() {
        let running = SingleFlight::<()>::default();
        let (alive, ended) = oneshot::channel::<()>();
        let mut first = Box::pin(running.join("x", async move {
            let _alive = alive;
            std::future::pending().await
        }));
        let mut second = Box::pin(running.join("x", async {}));
        assert!(
            timeout(Duration::ZERO, &mut first).await.is_err() && timeout(Duration::ZERO, &mut second).await.is_err()
        );
        drop(first);
        assert!(timeout(Duration::from_millis(20), &mut second).await.is_err(), "the work goes on");
        drop(second);
        assert!(timeout(SOON, ended).await.unwrap().is_err());
        assert_eq!(timeout(SOON, running.join("x", async {})).await.unwrap(), Some(()));
    }

    #[tokio::test]
    async fn work_that_panics_leaves_nobody_waiting() {
        let running = SingleFlight::<()>::default();
        assert_eq!(timeout(SOON, running.join("x", async { panic!("planted") })).await.unwrap(), None);
        assert_eq!(timeout(SOON, running.join("x", async {})).await.unwrap(), Some(()));
    }
}
