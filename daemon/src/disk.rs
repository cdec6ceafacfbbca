//! Looking at a disk that may never answer, such as that of a file server which is gone.
//!
//! One thread runs all sessions, so none of them may wait for a disk there. A look runs on a thread of its own and is given up
//! after a while. The thread of one that was given up cannot be ended; how many may hang for one place is bounded, and looks at
//! other places go on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

/// How long a disk may take before whoever asked is told that it does not answer; one that has to spin up takes a few seconds.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a session waits for a disk: a cancel that comes meanwhile must be over within 2 s.
pub const SHORT: Duration = Duration::from_millis(500);

/// Looks at one place that may be under way: a step has 8 calls at once, and each takes microseconds.
const MAX_LOOKS: usize = 16;

/// Looks under way, by place.
static LOOKS: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

fn looks() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A look that has not come back.
struct UnderWay(PathBuf);

impl UnderWay {
    fn at(place: &Path) -> Option<Self> {
        let mut looks = looks();
        let count = looks.entry(place.to_path_buf()).or_default();
        (*count < MAX_LOOKS).then(|| {
            *count += 1;
            Self(place.to_path_buf())
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut looks = looks();
        if let Some(count) = looks.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                looks.remove(&self.0);
            }
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
    let under_way = UnderWay::at(place)?;
    let looking = tokio::task::spawn_blocking(move || {
        let seen = look();
        drop(under_way);
        seen
    });
    let seen = timeout(limit, looking).await;
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
        let start = std::time::Instant::now();
        assert_eq!(look(dead, Duration::from_secs(600), || ()).await, None, "no thread more");
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(look(alive, Duration::from_secs(60), || 7).await, Some(7));
        drop(answer);
        while looks().contains_key(dead) {
            tokio::task::yield_now().await;
        }
        assert_eq!(look(dead, Duration::from_secs(60), || 8).await, Some(8), "it answers again");
    }
}
