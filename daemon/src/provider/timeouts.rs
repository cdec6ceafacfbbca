//! The timeouts of one answer: for its first byte, the next byte, the next content, and the whole.
//!
//! Pure: the time comes in from outside. Deliberately absent: waiting, and the connect timeout, which belongs to the HTTP client.

use std::time::Duration;

use tokio::time::Instant;

use super::transport_error::failed;
use super::types::{Failure, FailureClass};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a provider may be silent; by default also before its response begins.
const IDLE: Duration = Duration::from_secs(120);
/// How long a provider may send keep-alives without content. No model thinks longer without showing
/// anything, and a request that hangs behind a proxy would otherwise take the whole of [`TOTAL`].
const CONTENT: Duration = Duration::from_secs(15 * 60);
/// How long one answer may take in all: the longest that models give take less.
const TOTAL: Duration = Duration::from_secs(3600);

/// How long a provider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The time that connecting may take.
    pub connect: Duration,
    /// Deadline a response begins; on a slow machine a model reads its prompt meanwhile.
    pub first_byte: Duration,
    /// For the next byte.
    pub idle: Duration,
    /// For the next piece of the answer; keep-alives do not count.
    pub content: Duration,
    /// For a whole answer.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: CONNECT, first_byte: IDLE, idle: IDLE, content: CONTENT, total: TOTAL }
    }
}

impl Timeouts {
    /// These, with at least as much time for content as for silence: a provider that may be silent for so
    /// long may as well send keep-alives for so long.
    pub(super) fn consistent(self) -> Self {
        Self { content: self.content.max(self.idle).max(self.first_byte), ..self }
    }
}

/// When the timeouts of one answer expire.
#[derive(Debug)]
pub(super) struct Deadlines {
    limits: Timeouts,
    /// When the silence becomes too long. Kept here, so that dropping a call does not extend it.
    silence_ends: Option<Instant>,
    /// When the next content is due.
    content_due: Option<Instant>,
    /// When the whole answer is due.
    total_ends: Option<Instant>,
    /// The size of the answer at the last call.
    gathered: usize,
}

/// The next deadline.
#[derive(Debug)]
pub(super) struct Deadline {
    /// The moment at which the attempt fails.
    pub(super) at: Instant,
    /// Whether it holds even while bytes arrive.
    pub(super) is_hard: bool,
    /// The failure once it has passed.
    pub(super) failure: Failure,
}

impl Deadlines {
    pub(super) fn new(limits: Timeouts) -> Self {
        Self { limits, silence_ends: None, content_due: None, total_ends: None, gathered: 0 }
    }

    /// The next deadline. `gathered` is the size of the answer so far, `None` before its response begins.
    pub(super) fn next(&mut self, now: Instant, gathered: Option<usize>) -> Deadline {
        let Timeouts { first_byte, idle, content, total, .. } = self.limits;
        let end = *self.total_ends.get_or_insert(now + total);
        let silence_limit = if gathered.is_none() { first_byte } else { idle };
        let silent = *self.silence_ends.get_or_insert(now + silence_limit);
        let dry = gathered.map(|gathered| {
            if std::mem::replace(&mut self.gathered, gathered) != gathered {
                self.content_due = None;
            }
            *self.content_due.get_or_insert(now + content)
        });
        match dry {
            Some(dry) if dry < silent.min(end) => Deadline { at: dry, is_hard: true, failure: no_content(content) },
            _ if end < silent => Deadline { at: end, is_hard: true, failure: total_passed(total) },
            _ => Deadline { at: silent, is_hard: false, failure: silence(silence_limit) },
        }
    }

    /// Restarts the timeout for silence, because bytes arrived.
    pub(super) fn bytes_arrived(&mut self) {
        self.silence_ends = None;
    }
}

fn total_passed(total: Duration) -> Failure {
    failed(FailureClass::Timeout, format!("the answer was not complete after {} seconds", total.as_secs_f64()))
}

fn no_content(content: Duration) -> Failure {
    let seconds = content.as_secs_f64();
    failed(
        FailureClass::Timeout,
        format!("the provider was there, but no piece of an answer came for {seconds} seconds"),
    )
}

/// The failure of a provider that sent nothing for `idle`.
pub(super) fn silence(idle: Duration) -> Failure {
    failed(FailureClass::Timeout, format!("the provider was silent for {} seconds", idle.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_that_is_met_decides() {
        let began = Instant::now();
        let seconds = Duration::from_secs;
        let limits = Timeouts {
            first_byte: seconds(30),
            idle: seconds(20),
            content: seconds(50),
            total: seconds(200),
            ..Timeouts::default()
        };
        let mut deadlines = Deadlines::new(limits);
        // Seconds since the beginning, what has come, and until when is waited for what.
        let mut check = |now: u64, gathered: Option<usize>, until: u64, hard: bool, why: &str| {
            let got = deadlines.next(began + seconds(now), gathered);
            assert_eq!((got.at, got.is_hard), (began + seconds(until), hard), "{now} {gathered:?}");
            assert!(
                got.failure.message.contains(why) && got.failure.class == FailureClass::Timeout,
                "{:?}",
                got.failure
            );
            deadlines.bytes_arrived();
        };
        check(0, None, 30, false, "silent for 30");
        check(10, Some(0), 30, false, "silent for 20");
        // Bytes come, and none of the answer.
        check(25, Some(0), 45, false, "silent for 20");
        check(45, Some(0), 60, true, "no piece of an answer came for 50");
        // The last moment; what is asked too late is over.
        check(59, Some(3), 79, false, "silent for 20");
        check(110, Some(3), 109, true, "no piece");
        check(111, Some(4), 131, false, "silent");
        check(190, Some(9), 200, true, "not complete after 200");
        check(230, Some(9), 200, true, "not complete after 200");
    }

    #[test]
    fn silence_is_not_extended_by_asking_again() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut deadlines = Deadlines::new(Timeouts::default());
        let first = deadlines.next(began, None).at;
        assert_eq!(deadlines.next(began + second, None).at, first);
        deadlines.bytes_arrived();
        assert_eq!(deadlines.next(began + second, Some(0)).at, first + second);
    }

    #[test]
    fn content_has_at_least_as_much_time_as_silence() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Timeouts { idle: hour, ..Timeouts::default() }.consistent().content, hour);
        assert_eq!(Timeouts { first_byte: hour, ..Timeouts::default() }.consistent().content, hour);
        assert_eq!(Timeouts { idle: Duration::ZERO, ..Timeouts::default() }.consistent().content, CONTENT);
    }
}
