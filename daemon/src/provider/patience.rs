//! How long an answer is waited for: until its response begins, for the next byte, for something of the answer, and in all.
//!
//! Pure: the time comes in from outside. Deliberately absent: the waiting, and the time for a connection, which is the client's.

use std::time::Duration;

use tokio::time::Instant;

use super::retry::MAX_RETRY_AFTER;
use super::trouble::failed;
use super::{Failure, FailureClass};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a provider may be silent; unless somebody says otherwise, also before its response begins.
const IDLE: Duration = Duration::from_secs(120);
/// How long a provider may say that it lives and nothing else: no model thinks longer without showing anything, and what hangs
/// behind a proxy that keeps the connection alive would else take the whole time of an answer.
const CONTENT: Duration = Duration::from_secs(15 * 60);
/// How long one answer may take in all: the longest that models give take less.
const TOTAL: Duration = Duration::from_secs(3600);

/// How long a provider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection.
    pub connect: Duration,
    /// Until a response begins; on a slow machine a model reads its prompt meanwhile.
    pub first_byte: Duration,
    /// For the next byte.
    pub idle: Duration,
    /// For the next piece of the answer: what only says that the provider lives is none.
    pub content: Duration,
    /// For a whole answer.
    pub total: Duration,
    /// How long it may ask to wait before it is asked again.
    pub retry_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: CONNECT,
            first_byte: IDLE,
            idle: IDLE,
            content: CONTENT,
            total: TOTAL,
            retry_after: MAX_RETRY_AFTER,
        }
    }
}

impl Limits {
    /// These, with as much time for content as for a byte: who may be silent so long may also say that it lives so long.
    pub(super) fn consistent(self) -> Self {
        Self { content: self.content.max(self.idle).max(self.first_byte), ..self }
    }
}

/// What is left of the limits of one answer.
#[derive(Debug)]
pub(super) struct Patience {
    limits: Limits,
    /// When the silence is too long. Kept here, so that a call that is dropped does not extend it.
    silent: Option<Instant>,
    /// When nothing of the answer has come for too long.
    dry: Option<Instant>,
    /// When the whole answer has taken too long.
    end: Option<Instant>,
    /// How much of the answer there was.
    gathered: usize,
}

/// How long is waited for what comes next.
#[derive(Debug)]
pub(super) struct Until {
    /// Until then.
    pub(super) at: Instant,
    /// Whether it is over then even if something comes all the time.
    pub(super) hard: bool,
    /// What has failed then.
    pub(super) late: Failure,
}

impl Patience {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, silent: None, dry: None, end: None, gathered: 0 }
    }

    /// Until when is waited; `gathered` is how much of the answer there is, once its response has begun.
    pub(super) fn until(&mut self, now: Instant, gathered: Option<usize>) -> Until {
        let Limits { first_byte, idle, content, total, .. } = self.limits;
        let end = *self.end.get_or_insert(now + total);
        let patience = if gathered.is_none() { first_byte } else { idle };
        let silent = *self.silent.get_or_insert(now + patience);
        let dry = gathered.map(|gathered| {
            if std::mem::replace(&mut self.gathered, gathered) != gathered {
                self.dry = None;
            }
            *self.dry.get_or_insert(now + content)
        });
        match dry {
            Some(dry) if dry < silent.min(end) => Until { at: dry, hard: true, late: empty(content) },
            _ if end < silent => Until { at: end, hard: true, late: endless(total) },
            _ => Until { at: silent, hard: false, late: silence(patience) },
        }
    }

    /// Something came.
    pub(super) fn heard(&mut self) {
        self.silent = None;
    }
}

fn endless(total: Duration) -> Failure {
    failed(FailureClass::Timeout, format!("the answer was not complete after {} seconds", total.as_secs_f64()))
}

fn empty(content: Duration) -> Failure {
    let seconds = content.as_secs_f64();
    failed(
        FailureClass::Timeout,
        format!("the provider was there, but no piece of an answer came for {seconds} seconds"),
    )
}

/// Nothing came.
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
        let limits = Limits {
            first_byte: seconds(30),
            idle: seconds(20),
            content: seconds(50),
            total: seconds(200),
            ..Limits::default()
        };
        let mut patience = Patience::new(limits);
        // Seconds since the beginning, what has come, and until when is waited for what.
        let mut check = |now: u64, gathered: Option<usize>, until: u64, hard: bool, why: &str| {
            let got = patience.until(began + seconds(now), gathered);
            assert_eq!((got.at, got.hard), (began + seconds(until), hard), "{now} {gathered:?}");
            assert!(got.late.message.contains(why) && got.late.class == FailureClass::Timeout, "{:?}", got.late);
            patience.heard();
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
    fn silence_that_nobody_broke_is_not_extended() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut patience = Patience::new(Limits::default());
        let first = patience.until(began, None).at;
        assert_eq!(patience.until(began + second, None).at, first);
        patience.heard();
        assert_eq!(patience.until(began + second, Some(0)).at, first + second);
    }

    #[test]
    fn who_may_be_silent_for_long_may_say_so() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Limits { idle: hour, ..Limits::default() }.consistent().content, hour);
        assert_eq!(Limits { first_byte: hour, ..Limits::default() }.consistent().content, hour);
        assert_eq!(Limits { idle: Duration::ZERO, ..Limits::default() }.consistent().content, CONTENT);
    }
}
