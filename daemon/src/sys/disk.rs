//! Looking at a disk that may never answer, such as that of a file server which is gone.
//!
//! One thread runs all sessions, so none of them may wait for a disk there. A look runs on a thread of its own and is given up
//! after a while. The thread of one that was given up cannot be ended; how many may hang for one place is bounded, and looks at
//! other places go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a disk may take before whoever asked is told that it does not answer; one that has to spin up takes a few seconds.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a session waits for a disk: a cancel that comes meanwhile must be over within 2 s.
pub const SHORT: Duration = Duration::from_secs(1);

/// How long a look may take while an earlier one at the same place has been given up and has not come back: whoever asks again
/// is not held up again.
const GLANCE: Duration = Duration::from_millis(10);

/// In how many parts a limit passes: a pause is seen as the end of one of them, and what was waited for comes in the next.
const PARTS: u32 = 10;

/// Looks at one place that are under way; others wait for one of them. A step has 8 calls at once, and each takes microseconds.
const MAX_LOOKS: usize = 16;

/// The places that somebody looks at, or waits to. The process has this once: what it bounds are threads of the process, and a disk
/// that hangs does so for every daemon in it.
static PLACES: Mutex<BTreeMap<PathBuf, Place>> = Mutex::new(BTreeMap::new());

/// A place that is looked at.
struct Place {
    room: Arc<Semaphore>,
    /// The looks, and whether each was given up.
    looks: BTreeMap<u64, bool>,
}

/// The number of the next look; once, as [`PLACES`].
static NEXT: AtomicU64 = AtomicU64::new(0);

fn places() -> MutexGuard<'static, BTreeMap<PathBuf, Place>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody who looks at a place, or waits to.
struct Looking {
    place: PathBuf,
    id: u64,
    room: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Looking {
    /// One more who looks, and whether an earlier one hangs.
    fn at(path: &Path) -> (Self, bool) {
        let mut places = places();
        let new = || Place { room: Arc::new(Semaphore::new(MAX_LOOKS)), looks: BTreeMap::new() };
        let place = places.entry(path.to_path_buf()).or_insert_with(new);
        let hangs = place.looks.values().any(|given_up| *given_up);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        place.looks.insert(id, false);
        (Self { place: path.to_path_buf(), id, room: place.room.clone(), permit: None }, hangs)
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
        let mut places = places();
        if let Some(place) = places.get_mut(&self.place) {
            place.looks.remove(&self.id);
            if place.looks.is_empty() {
                places.remove(&self.place);
            }
        }
    }
}

/// Notes that a look was given up, if it is still under way.
fn give_up(path: &Path, id: u64) {
    if let Some(given_up) = places().get_mut(path).and_then(|place| place.looks.get_mut(&id)) {
        *given_up = true;
    }
}

/// What `look` sees; nothing if the disk does not answer within `limit`. `place` is the directory in whose name it is asked:
/// that of a session.
pub async fn look<T: Send + 'static>(
    place: &Path,
    limit: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (looking, hangs) = Looking::at(place);
    let id = looking.id;
    let limit = if hangs { limit.min(GLANCE) } else { limit };
    let seen = patiently(limit, async {
        let looking = looking.begin().await;
        let blocking = move || {
            let seen = look();
            drop(looking);
            seen
        };
        tokio::task::spawn_blocking(blocking).await
    });
    let seen = seen.await;
    if seen.is_none() {
        give_up(place, id);
        tracing::warn!(target: "disk", place = %place.display(), "does not answer");
    }
    seen?.ok()
}

/// What `future` gives within `limit`, of which a pause of the whole process, or of the machine, takes no more than a part.
async fn patiently<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..PARTS {
        if let Ok(seen) = timeout(limit / PARTS, &mut future).await {
            return Some(seen);
        }
    }
    None
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
        // Who asks again is told soon, however long it would wait.
        assert_eq!(look(dead, Duration::from_secs(3600), || 9).await, None);
        drop(answer);
        while places().contains_key(dead) {
            tokio::task::yield_now().await;
        }
        assert_eq!(look(dead, Duration::from_secs(60), || 8).await, Some(8), "it answers again");
    }

    #[tokio::test]
    async fn who_finds_no_room_has_its_turn_as_soon_as_another_is_back() {
        let place = Path::new("/busy");
        let (answer, busy) = mpsc::channel::<()>();
        let busy = std::sync::Arc::new(Mutex::new(busy));
        let first: Vec<_> = (0..MAX_LOOKS)
            .map(|_| {
                let busy = busy.clone();
                tokio::spawn(look(place, Duration::from_secs(60), move || busy.lock().unwrap().recv().is_ok()))
            })
            .collect();
        let waits = tokio::spawn(look(place, Duration::from_secs(60), || 9));
        tokio::task::yield_now().await;
        drop(answer);
        assert_eq!(waits.await.unwrap(), Some(9));
        for look in first {
            assert_eq!(look.await.unwrap(), Some(false));
        }
    }
}
