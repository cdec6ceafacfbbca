//! Whether so many streams are under way that it is worth a nap to hear several of them at one wake-up.
//!
//! To wake up costs as much as to take a token up. With hundreds of streams the thread that runs all sessions would do so for
//! each token; when it has nothing to do it rests for a millisecond instead, and then finds twenty of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pieces of text that share a commit when there is a crowd: some 5,000 tokens a second.
const CROWD: usize = 20;

/// How long a crowd is taken to last after it was seen: a few commits.
const LASTS: Duration = Duration::from_millis(20);

/// How long the thread rests.
const NAP: Duration = Duration::from_millis(1);

/// Until when there is a crowd, in microseconds since [`start`].
static UNTIL: AtomicU64 = AtomicU64::new(0);

fn now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_micros().try_into().unwrap_or(u64::MAX)
}

/// So many pieces of text were written together.
pub fn saw(pieces: usize) {
    if pieces >= CROWD {
        UNTIL.store(now() + LASTS.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Rests if there is a crowd; called when the thread has nothing to do.
pub fn rest() {
    if is_here() {
        std::thread::sleep(NAP);
    }
}

fn is_here() -> bool {
    let until = UNTIL.load(Ordering::Relaxed);
    until > 0 && now() < until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_streams_are_no_crowd_and_one_that_has_gone_is_forgotten() {
        saw(CROWD - 1);
        assert!(!is_here());
        saw(CROWD);
        let seen = Instant::now();
        while is_here() {
            assert!(seen.elapsed() < Duration::from_secs(60), "it is never forgotten");
            std::thread::yield_now();
        }
        assert!(seen.elapsed() > LASTS / 2);
    }
}
