//! Deadlines of commands with `--timeout`.

use std::time::{Duration, Instant};

/// The least time for the daemon's answers, whatever `--timeout` says.
const ANSWER: Duration = Duration::from_secs(2);

/// When `--timeout` ends the wait; none without it.
pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

/// The deadline for the daemon's answers: even `--timeout 0` leaves time to read how a session stands.
pub(super) fn answer_deadline(deadline: Option<Instant>) -> Option<Instant> {
    deadline.map(|deadline| deadline.max(Instant::now() + ANSWER))
}
