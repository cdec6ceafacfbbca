//! How large the prompts are that wait, in all loaded sessions together: each has a bound of its own, and thousands may be loaded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From this size on a prompt counts, in bytes: what people type is smaller, and waits in any case.
const LARGE: usize = 64 << 10;

/// How large those may be together, in bytes: some of the largest that a request can carry, in several sessions.
pub const MAX_WAITING: usize = 128 << 20;

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    /// Whether a prompt of `bytes` may wait beside the others.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes < LARGE || self.0.load(Ordering::Relaxed).saturating_add(bytes) <= MAX_WAITING
    }

    /// The part of one session, which has none yet.
    pub fn share(&self) -> Share {
        Share { all: self.clone(), own: 0 }
    }
}

/// What waits in one session; nothing any more when it is dropped.
#[derive(Debug)]
pub struct Share {
    all: Waiting,
    own: usize,
}

impl Share {
    /// These are the sizes of the prompts that wait now.
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
        let waiting = Waiting::default();
        let (mut one, mut two) = (waiting.share(), waiting.share());
        one.set([LARGE - 1, MAX_WAITING / 2].into_iter());
        two.set([MAX_WAITING / 2].into_iter());
        assert!(waiting.has_room(LARGE - 1) && !waiting.has_room(LARGE));
        one.set([LARGE - 1, LARGE].into_iter());
        assert!(waiting.has_room(MAX_WAITING / 2 - LARGE) && !waiting.has_room(MAX_WAITING / 2 - LARGE + 1));
        drop((one, two));
        assert!(waiting.has_room(MAX_WAITING));
    }
}
