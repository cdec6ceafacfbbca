//! Looking at a disk that may never answer, such as that of a file server which is gone.
//!
//! One thread runs all sessions, so none of them may wait for a disk there. A look runs on a thread of its own and is given up
//! after a while. The thread of one that was given up cannot be ended; how many may hang for one place is bounded, and looks at
//! other places go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a disk may take before whoever asked is told that it does not answer; one that has to spin up takes a few seconds.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a session waits for a disk: a cancel that comes meanwhile must be over within 2 s.
pub const SHORT: Duration = Duration::from_secs(1);

/// Looks at one place that are under way; others wait for one of them. A step has 8 calls at once, and each takes microseconds.
const MAX_LOOKS: usize = 16;

/// Room for looks, by place, as long as somebody looks there.
static LOOKS: Mutex<BTreeMap<PathBuf, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

fn looks() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<Semaphore>>> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody who looks at a place, or waits to.
struct Looking {
    place: PathBuf,
    room: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Looking {
    fn at(place: &Path) -> Self {
        let room = looks().entry(place.to_path_buf()).or_insert_with(|| Arc::new(Semaphore::new(MAX_LOOKS))).clone();
        Self { place: place.to_path_buf(), room, permit: None }
    }

    /// Waits for its turn.
    async fn begin(mut self) -> Self {
        // It is never closed.
        self.permit = self.room.clone().acquire_owned().await.ok();
        self
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let mut looks = looks();
        // The permit knows the room too.
        self.permit = None;
        // Who comes, comes by the map, which is held.
        if Arc::strong_count(&self.room) == 2 {
            looks.remove(&self.place);
        }
    }
}

/// What `look` sees; nothing if the disk does not answer within `limit`. `place` is the directory in whose name it is asked:
/// that of a session.
pub async fn look<T: Send + 'static>(
    place: &Path,
    limit: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let looking = Looking::at(place).begin();
    let seen = timeout(limit, async {
        let looking = looking.await;
        let blocking = move || {
            let seen = look();
            drop(looking);
            seen
        };
        tokio::task::spawn_blocking(blocking).await
    });
    let seen = seen.await;
    if seen.is_err() {
        tracing::warn!(target: "disk", place = %place.display(), "does not answer");
    }
    seen.ok()?.ok()
}

/// That a disk does not answer, for people and models.
pub fn silent(place: &Path) -> String {
    format!("the file system of {} does not answer", place.display())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_is_given_up_takes_a_bounded_number_of_threads_and_no_other_place_waits() {
        let (dead, alive) = (Path::new("/dead"), Path::new("/alive"));
        let (answer, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(Mutex::new(hangs));
        for _ in 0..MAX_LOOKS {
            let hangs = hangs.clone();
            let seen = look(dead, Duration::from_millis(1), move || hangs.lock().unwrap().recv().is_ok()).await;
            assert_eq!(seen, None);
        }
        let begun = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let begins = begun.clone();
        let more = move || begins.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(look(dead, Duration::from_millis(1), more).await, None, "no thread more");
        assert!(!begun.load(std::sync::atomic::Ordering::SeqCst));
        assert_eq!(look(alive, Duration::from_secs(60), || 7).await, Some(7));
        // Who waits has its turn as soon as one of them is back.
        let waits = tokio::spawn(look(dead, Duration::from_secs(60), || 9));
        tokio::task::yield_now().await;
        drop(answer);
        assert_eq!(waits.await.unwrap(), Some(9));
        while looks().contains_key(dead) {
            tokio::task::yield_now().await;
        }
        assert_eq!(look(dead, Duration::from_secs(60), || 8).await, Some(8), "it answers again");
    }
}
