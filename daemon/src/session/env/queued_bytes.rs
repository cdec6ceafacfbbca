//! The total size of queued prompts in all loaded sessions. Each session has its own bound too, but thousands may be loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smaller prompts do not count, in bytes: typed prompts are smaller and are always accepted.
const LARGE: usize = 64 << 10;

/// The bound on the total, in bytes: several of the largest requests.
pub const MAX_TOTAL: usize = 128 << 20;

/// The total; shared by all sessions.
#[derive(Clone, Debug, Default)]
pub struct QueuedBytes(Arc<AtomicUsize>);

impl QueuedBytes {
    /// Whether a prompt of `bytes` fits the bound.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes < LARGE || self.0.load(Ordering::Relaxed).saturating_add(bytes) <= MAX_TOTAL
    }

    /// The share of a session without queued prompts.
    pub fn share(&self) -> Share {
        Share { all: self.clone(), own: 0 }
    }
}

/// One session's share of the total; dropping it releases it.
#[derive(Debug)]
pub struct Share {
    all: QueuedBytes,
    own: usize,
}

impl Share {
    /// Sets the sizes of the session's queued prompts.
    pub fn set(&mut self, sizes: impl Iterator<Item = usize>) {
        let own = sizes.filter(|bytes| *bytes >= LARGE).sum();
        self.all.0.fetch_add(own, Ordering::Relaxed);
        self.all.0.fetch_sub(std::mem::replace(&mut self.own, own), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(std::iter::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_is_counted_over_all_sessions_and_no_more_when_it_is_taken_up() {
        let queued = QueuedBytes::default();
        let (mut one, mut two) = (queued.share(), queued.share());
        one.set([LARGE - 1, MAX_TOTAL / 2].into_iter());
        two.set([MAX_TOTAL / 2].into_iter());
        assert!(queued.has_room(LARGE - 1) && !queued.has_room(LARGE));
        one.set([LARGE - 1, LARGE].into_iter());
        assert!(queued.has_room(MAX_TOTAL / 2 - LARGE) && !queued.has_room(MAX_TOTAL / 2 - LARGE + 1));
        drop((one, two));
        assert!(queued.has_room(MAX_TOTAL));
    }
}
