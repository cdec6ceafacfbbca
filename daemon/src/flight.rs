//! Work that is done once for all who ask for it meanwhile: a command that asks its user for a finger is not run by each session.
//!
//! It runs as a task of its own, so that it does not end with the first who asked, and ends when the last one has gone.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

/// What is under way, by name.
#[derive(Debug)]
pub struct Flights<T>(Arc<Mutex<HashMap<String, Seat<T>>>>);

type Seat<T> = Weak<watch::Sender<Option<T>>>;

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// What `work` comes to, or the work of this name that is under way already; nothing if it panicked.
    pub async fn join(&self, name: &str, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let mut landed = self.board(name, work);
        let landed = landed.wait_for(Option::is_some).await.ok()?;
        landed.clone()
    }

    fn board(&self, name: &str, work: impl Future<Output = T> + Send + 'static) -> watch::Receiver<Option<T>> {
        let mut flights = lock(&self.0);
        if let Some(seat) = flights.get(name).and_then(Weak::upgrade) {
            return seat.subscribe();
        }
        let (seat, receiver) = watch::channel(None);
        let seat = Arc::new(seat);
        flights.insert(name.to_owned(), Arc::downgrade(&seat));
        let (flights, name) = (self.0.clone(), name.to_owned());
        tokio::spawn(async move {
            let mut work = pin!(work);
            let landed = loop {
                tokio::select! {
                    landed = &mut work => break Some(landed),
                    // Nobody can board between the look and the removal.
                    () = seat.closed() => {
                        let mut flights = lock(&flights);
                        if seat.receiver_count() == 0 {
                            flights.remove(&name);
                            break None;
                        }
                    }
                }
            };
            if landed.is_some() {
                lock(&flights).remove(&name);
                seat.send_replace(landed);
            }
        });
        receiver
    }
}

fn lock<T>(flights: &Mutex<HashMap<String, Seat<T>>>) -> MutexGuard<'_, HashMap<String, Seat<T>>> {
    flights.lock().unwrap_or_else(PoisonError::into_inner)
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
        let flights = Flights::<u32>::default();
        let runs = Arc::new(AtomicU32::new(0));
        let work = || {
            let runs = runs.clone();
            async move {
                tokio::task::yield_now().await;
                runs.fetch_add(1, Ordering::SeqCst) + 1
            }
        };
        let (a, b, c) = tokio::join!(flights.join("x", work()), flights.join("x", work()), flights.join("y", work()));
        assert_eq!((a, b.is_some(), c.is_some()), (b, true, true));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert_eq!(flights.join("x", work()).await, Some(3));
        assert!(lock(&flights.0).is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn it_ends_with_the_last_who_asked_and_not_with_the_first() {
        let flights = Flights::<()>::default();
        let (alive, ended) = oneshot::channel::<()>();
        let mut first = Box::pin(flights.join("x", async move {
            let _alive = alive;
            std::future::pending().await
        }));
        let mut second = Box::pin(flights.join("x", async {}));
        assert!(
            timeout(Duration::ZERO, &mut first).await.is_err() && timeout(Duration::ZERO, &mut second).await.is_err()
        );
        drop(first);
        assert!(timeout(Duration::from_millis(20), &mut second).await.is_err(), "the work goes on");
        drop(second);
        assert!(timeout(SOON, ended).await.unwrap().is_err());
        assert_eq!(timeout(SOON, flights.join("x", async {})).await.unwrap(), Some(()));
    }

    #[tokio::test]
    async fn work_that_panics_leaves_nobody_waiting() {
        let flights = Flights::<()>::default();
        assert_eq!(timeout(SOON, flights.join("x", async { panic!("planted") })).await.unwrap(), None);
        assert_eq!(timeout(SOON, flights.join("x", async {})).await.unwrap(), Some(()));
    }
}
