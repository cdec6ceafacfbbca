//! Whether and when to retry a failed attempt. Pure: time and randomness come in from outside.
//!
//! Deliberately absent: waiting, and superseding text that was shown; both belong to the turn.

use std::time::Duration;

use super::{Failure, FailureClass};

/// The most attempts at one step: with the waits below they span a short outage.
pub const MAX_ATTEMPTS: u32 = 6;
/// The most attempts when the connection is refused: a restarting server is back by then, a wrong address stays wrong.
pub const MAX_REFUSED: u32 = 3;
/// The longest time for the attempts of one step; after that a user should look.
pub const MAX_ELAPSED: Duration = Duration::from_secs(600);
/// The longest `Retry-After` by default; beyond it a user should know.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The first wait is at most this, each further one at most twice the one before.
const BASE: Duration = Duration::from_millis(500);
/// The longest wait of our own backoff.
const CAP: Duration = Duration::from_secs(30);

/// What to do after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Try again.
    Again {
        /// After this long.
        after: Duration,
    },
    /// Do not.
    GiveUp {
        /// The reason, appended to the failure's message; absent if that says it all.
        note: Option<String>,
    },
}

/// Decides after attempt number `attempt` (from 1) failed, `elapsed` after the first began.
/// `longest` bounds `Retry-After`; `random` is from 0 to 1.
pub fn decide(failure: &Failure, attempt: u32, elapsed: Duration, longest: Duration, random: f64) -> Decision {
    match failure.class {
        FailureClass::Connect
        | FailureClass::Refused
        | FailureClass::Overloaded
        | FailureClass::Timeout
        | FailureClass::Stream => {}
        FailureClass::Network
        | FailureClass::Auth
        | FailureClass::NotFound
        | FailureClass::TooLong
        | FailureClass::Images
        | FailureClass::History
        | FailureClass::Reasoning
        | FailureClass::Rejected => return Decision::GiveUp { note: None },
    }
    if attempt >= attempts(failure.class) {
        return Decision::GiveUp { note: Some(format!("gave up after {attempt} attempts")) };
    }
    let asked = failure.retry_after.unwrap_or_default();
    if asked > longest {
        return Decision::GiveUp { note: Some(format!("the provider asks to wait {}", spoken(asked))) };
    }
    let ceiling = BASE.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(CAP);
    let after = ceiling.mul_f64(random.clamp(0.0, 1.0)).max(asked);
    if elapsed + after > MAX_ELAPSED.max(longest) {
        return Decision::GiveUp { note: Some(format!("gave up after {}", spoken(elapsed))) };
    }
    Decision::Again { after }
}

/// The most attempts for this class of failure.
pub fn attempts(class: FailureClass) -> u32 {
    if class == FailureClass::Refused { MAX_REFUSED } else { MAX_ATTEMPTS }
}

fn spoken(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        class: FailureClass,
        retry_after: Option<u64>,
        attempt: u32,
        elapsed: u64,
        random: f64,
        expect: Result<u64, &str>,
    ) {
        let failure = Failure { class, message: String::new(), retry_after: retry_after.map(Duration::from_secs) };
        let expect = match expect {
            Ok(millis) => Decision::Again { after: Duration::from_millis(millis) },
            Err("") => Decision::GiveUp { note: None },
            Err(note) => Decision::GiveUp { note: Some(note.to_owned()) },
        };
        let got = decide(&failure, attempt, Duration::from_secs(elapsed), MAX_RETRY_AFTER, random);
        assert_eq!(got, expect, "{class:?} {retry_after:?} attempt {attempt} after {elapsed} s");
    }

    #[test]
    fn how_long_a_provider_may_ask_to_wait_can_be_set() {
        let seconds = Duration::from_secs;
        let failure =
            Failure { class: FailureClass::Overloaded, message: String::new(), retry_after: Some(seconds(900)) };
        let decided = |longest| decide(&failure, 1, Duration::ZERO, longest, 0.0);
        assert_eq!(decided(seconds(1000)), Decision::Again { after: seconds(900) });
        assert!(matches!(decided(seconds(899)), Decision::GiveUp { .. }));
    }

    #[test]
    fn what_may_pass_is_tried_again_with_growing_waits() {
        use FailureClass::*;
        for class in [Connect, Overloaded, Timeout, Stream] {
            check(class, None, 1, 0, 1.0, Ok(500));
        }
        check(Connect, None, 1, 0, 0.0, Ok(0));
        check(Connect, None, 2, 0, 0.5, Ok(500));
        check(Connect, None, 5, 0, 1.0, Ok(8000));
        check(Connect, None, 5, 0, 7.0, Ok(8000));
        check(Refused, None, 2, 0, 0.0, Ok(0));
        check(Refused, None, 3, 0, 0.0, Err("gave up after 3 attempts"));
        check(Connect, None, 6, 0, 0.0, Err("gave up after 6 attempts"));
        check(Timeout, None, 3, 600, 1.0, Err("gave up after 10 minutes"));
    }

    #[test]
    fn what_will_not_pass_is_not_tried_again() {
        use FailureClass::*;
        for class in [Auth, NotFound, TooLong, Images, History, Rejected] {
            check(class, Some(1), 1, 0, 0.0, Err(""));
        }
    }

    #[test]
    fn a_provider_may_ask_for_a_minute_but_no_more() {
        use FailureClass::Overloaded;
        check(Overloaded, Some(7), 1, 0, 0.5, Ok(7000));
        check(Overloaded, Some(60), 1, 0, 0.5, Ok(60_000));
        check(Overloaded, Some(61), 1, 0, 0.5, Err("the provider asks to wait 61 seconds"));
        check(Overloaded, Some(90_000), 1, 0, 0.5, Err("the provider asks to wait 25 hours"));
        check(Overloaded, Some(0), 2, 0, 1.0, Ok(1000));
    }
}
