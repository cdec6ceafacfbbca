//! Probes of a disk that may hang, such as the mount of a file server that is gone.
//!
//! One thread runs all sessions, so no session may block on a disk. A probe runs on a blocking thread and is abandoned after a
//! timeout. An abandoned thread cannot be ended; the number of probes of one place is bounded, and other places are unaffected.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::sys::task;

/// How long a disk may take before it counts as unresponsive; one that has to spin up takes a few seconds.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// How long a session's actor waits for a disk: a cancel in the meantime must finish within 2 s.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout while an abandoned probe of the same place still hangs, so that repeated probes fail fast.
const REPEAT_TIMEOUT: Duration = Duration::from_millis(10);

/// A timeout runs in this many parts: a pause of the process uses up one part, and the result arrives in the next.
const PARTS: u32 = 10;

/// Concurrent probes of one place; more wait for a slot. A step has 8 calls at once, and each takes microseconds.
const MAX_PROBES: usize = 16;

/// The places with probes that run or wait. Process-wide: it bounds threads of the process, and a hung disk hangs for every daemon
/// in it.
static PLACES: Mutex<BTreeMap<PathBuf, Place>> = Mutex::new(BTreeMap::new());

/// As [`Path::canonicalize`]; a file that does not exist costs one system call, not one for each directory above it.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    path.symlink_metadata()?;
    path.canonicalize()
}

/// A directory that is probed.
struct Place {
    slots: Arc<Semaphore>,
    /// Probes by id; true if abandoned.
    probes: BTreeMap<u64, bool>,
}

/// The id of the next probe; process-wide as [`PLACES`].
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

fn places() -> MutexGuard<'static, BTreeMap<PathBuf, Place>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A probe that runs or waits for a slot.
struct Probe {
    place: PathBuf,
    id: u64,
    slots: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Probe {
    /// Registers a probe; true if an abandoned one still hangs there.
    fn at(path: &Path) -> (Self, bool) {
        let mut places = places();
        let new = || Place { slots: Arc::new(Semaphore::new(MAX_PROBES)), probes: BTreeMap::new() };
        let place = places.entry(path.to_path_buf()).or_insert_with(new);
        let hangs = place.probes.values().any(|abandoned| *abandoned);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        place.probes.insert(id, false);
        (Self { place: path.to_path_buf(), id, slots: place.slots.clone(), permit: None }, hangs)
    }

    /// Waits for a slot.
    async fn begin(mut self) -> Self {
        // The semaphore is never closed.
        self.permit = self.slots.clone().acquire_owned().await.ok();
        self
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut places = places();
        if let Some(place) = places.get_mut(&self.place) {
            place.probes.remove(&self.id);
            if place.probes.is_empty() {
                places.remove(&self.place);
            }
        }
    }
}

/// Marks a probe as abandoned, if it still runs.
fn abandon(path: &Path, id: u64) {
    if let Some(abandoned) = places().get_mut(path).and_then(|place| place.probes.get_mut(&id)) {
        *abandoned = true;
    }
}

/// Runs `read` on a blocking thread; `None` if it takes longer than `limit`. `place` groups probes: a session's directory.
pub async fn probe<T: Send + 'static>(
    place: &Path,
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (probe, hangs) = Probe::at(place);
    let id = probe.id;
    let limit = if hangs { limit.min(REPEAT_TIMEOUT) } else { limit };
    let result = timeout_in_parts(limit, async {
        let probe = probe.begin().await;
        let blocking = move || {
            let result = read();
            drop(probe);
            result
        };
        task::spawn_blocking(blocking).await
    });
    let result = result.await;
    if result.is_none() {
        abandon(place, id);
        tracing::warn!(target: "disk", place = %place.display(), "does not answer");
    }
    result?.ok()
}

/// A timeout of which a pause of the whole process, or of the machine, uses up at most one part.
async fn timeout_in_parts<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..PARTS {
        if let Ok(result) = timeout(limit / PARTS, &mut future).await {
            return Some(result);
        }
    }
    None
}

/// The message, for people and models, that a file system does not answer.
pub fn unresponsive(place: &Path) -> String {
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
        for _ in 0..MAX_PROBES {
            let hangs = hangs.clone();
            let seen = probe(dead, Duration::from_millis(1), move || hangs.lock().unwrap().recv().is_ok()).await;
            assert_eq!(seen, None);
        }
        let begun = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let begins = begun.clone();
        let more = move || begins.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(probe(dead, Duration::from_millis(1), more).await, None, "no thread more");
        assert!(!begun.load(std::sync::atomic::Ordering::SeqCst));
        assert_eq!(probe(alive, Duration::from_secs(60), || 7).await, Some(7));
        // A repeated probe fails fast, whatever its limit.
        assert_eq!(probe(dead, Duration::from_secs(3600), || 9).await, None);
        drop(answer);
        while places().contains_key(dead) {
            tokio::task::yield_now().await;
        }
        assert_eq!(probe(dead, Duration::from_secs(60), || 8).await, Some(8), "it answers again");
    }

    #[tokio::test]
    async fn who_finds_no_room_has_its_turn_as_soon_as_another_is_back() {
        let place = Path::new("/busy");
        let (answer, busy) = mpsc::channel::<()>();
        let busy = std::sync::Arc::new(Mutex::new(busy));
        let first: Vec<_> = (0..MAX_PROBES)
            .map(|_| {
                let busy = busy.clone();
                tokio::spawn(probe(place, Duration::from_secs(60), move || busy.lock().unwrap().recv().is_ok()))
            })
            .collect();
        let waits = tokio::spawn(probe(place, Duration::from_secs(60), || 9));
        tokio::task::yield_now().await;
        drop(answer);
        assert_eq!(waits.await.unwrap(), Some(9));
        for probe in first {
            assert_eq!(probe.await.unwrap(), Some(false));
        }
    }
}
