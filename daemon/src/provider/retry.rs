//! Whether and when to retry a failed attempt. Pure: time and randomness come in from outside.
//!
//! A failure that passes by itself is waited out, for as long as the patience lasts. An attempt that breaks off in the middle of
//! an answer costs money, so there are few of those. The backoff follows from the time waited so far, so it continues after a
//! restart of the daemon without a counter.
//! Deliberately absent: waiting, and superseding text that was shown; both belong to the turn.

use std::time::Duration;

use linger_protocol::patience::Patience;

use super::types::{Failure, FailureClass};

/// How often a step is repeated after an attempt that broke off.
pub const MAX_BROKEN_OFF: u32 = 5;
/// How long to wait for an address that has never answered: it is probably wrong, or its server is not started.
pub const NEVER_ANSWERED: Duration = Duration::from_secs(10);
/// The shortest wait.
const SHORTEST: Duration = Duration::from_millis(500);
/// The longest wait of our own backoff.
pub const CAP: Duration = Duration::from_secs(30);

/// The failed attempts of a step so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    /// The time since the first of them failed.
    pub waited: Duration,
    /// How many broke off in the middle of an answer, the last one included.
    pub broken_off: u32,
    /// Whether the last one did.
    pub broke_off: bool,
    /// Whether the provider's address has ever answered.
    pub answered_before: bool,
}

/// The next step after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Repeat the attempt.
    Again {
        /// The wait before the attempt.
        after: Duration,
    },
    /// End the turn with the failure.
    GiveUp {
        /// The reason, appended to the failure's message; absent if that says it all.
        note: Option<String>,
    },
}

/// Whether a failure of this class passes by itself.
pub fn passes(class: FailureClass) -> bool {
    matches!(
        class,
        FailureClass::Connect
            | FailureClass::Refused
            | FailureClass::Overloaded
            | FailureClass::RateLimited
            | FailureClass::Timeout
            | FailureClass::Stream
    )
}

/// Whether another model may stand in after a failure of this class: it passes by itself, or the key or the account is refused.
pub fn may_fall_back(class: FailureClass) -> bool {
    passes(class) || matches!(class, FailureClass::Auth | FailureClass::Forbidden | FailureClass::Quota)
}

/// Whether an attempt that failed like this may have cost money. `begun`: a part of the answer came.
pub fn broke_off(class: FailureClass, begun: bool) -> bool {
    begun || matches!(class, FailureClass::Timeout | FailureClass::Stream)
}

/// Decides after a failed attempt; `random` is from 0 to 1.
pub fn decide(failure: &Failure, tries: &Tries, patience: Patience, random: f64) -> Decision {
    let give_up = |note: String| Decision::GiveUp { note: Some(note).filter(|note| !note.is_empty()) };
    if !passes(failure.class) {
        return give_up(String::new());
    }
    if tries.broke_off && tries.broken_off > MAX_BROKEN_OFF {
        return give_up(format!("gave up after {} attempts", tries.broken_off));
    }
    let never = matches!(failure.class, FailureClass::Connect | FailureClass::Refused) && !tries.answered_before;
    let limit = patience.limit();
    let limit = if never { Some(limit.map_or(NEVER_ANSWERED, |limit| limit.min(NEVER_ANSWERED))) } else { limit };
    let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(tries.waited));
    let asked = failure.retry_after.unwrap_or_default();
    if asked > left {
        return give_up(format!("the provider asks to wait {}", spoken(asked)));
    }
    if left < SHORTEST {
        let waited =
            if tries.waited < SHORTEST { String::new() } else { format!("gave up after {}", spoken(tries.waited)) };
        return give_up(waited);
    }
    let ceiling = tries.waited.clamp(2 * SHORTEST, CAP);
    let backoff = ceiling.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0);
    Decision::Again { after: backoff.min(left).max(asked) }
}

/// The text of a notice about the next try; [`reason`] gets the failure back.
pub fn announced(failure: &Failure, waited: Option<Duration>, after: Duration) -> String {
    let waited = waited.map(|waited| format!("waiting for {}, ", spoken(waited))).unwrap_or_default();
    let after = if after < CAP { format!("{:.1} s", after.as_secs_f64()) } else { spoken(after) };
    format!("{}; {waited}trying again in {after}", failure.message)
}

/// The failure in the text of a notice about the next try.
pub fn reason(announced: &str) -> &str {
    announced.rsplit_once("; ").map_or(announced, |(reason, _)| reason)
}

/// A time for people.
pub fn spoken(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds => format!("{} hours", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Patience = Patience::USUAL;

    fn failure(class: FailureClass, retry_after: Option<u64>) -> Failure {
        Failure { class, message: "it failed".to_owned(), retry_after: retry_after.map(Duration::from_secs) }
    }

    /// `waited` is in milliseconds, as is the expected wait.
    fn check(
        class: FailureClass,
        retry_after: Option<u64>,
        waited: u64,
        patience: Patience,
        expect: Result<u64, &str>,
    ) {
        let tries = Tries { waited: Duration::from_millis(waited), answered_before: true, ..Tries::default() };
        let expect = match expect {
            Ok(millis) => Decision::Again { after: Duration::from_millis(millis) },
            Err("") => Decision::GiveUp { note: None },
            Err(note) => Decision::GiveUp { note: Some(note.to_owned()) },
        };
        let got = decide(&failure(class, retry_after), &tries, patience, 1.0);
        assert_eq!(got, expect, "{class:?} {retry_after:?} after {waited} ms");
    }

    #[test]
    fn what_passes_by_itself_is_waited_out_with_growing_pauses() {
        use FailureClass::*;
        for class in [Connect, Refused, Overloaded, RateLimited, Timeout, Stream] {
            check(class, None, 0, HOUR, Ok(1000));
            check(class, None, 900, HOUR, Ok(1000));
            check(class, None, 8000, HOUR, Ok(8000));
            check(class, None, 31_000, HOUR, Ok(30_000));
            check(class, None, 3_599_000, HOUR, Ok(1000));
            check(class, None, 3_599_600, HOUR, Err("gave up after 59 minutes"));
            check(class, None, 999_000_000, Patience::Forever, Ok(30_000));
            check(class, None, 0, Patience::Millis(0), Err(""));
        }
        let tries = Tries { answered_before: true, ..Tries::default() };
        let shortest = Decision::Again { after: Duration::from_millis(500) };
        assert_eq!(decide(&failure(Overloaded, None), &tries, HOUR, 0.0), shortest);
    }

    #[test]
    fn what_will_not_pass_is_not_tried_again() {
        use FailureClass::*;
        for class in [Network, Auth, NotFound, TooLong, Images, History, Reasoning, Rejected] {
            check(class, Some(1), 0, Patience::Forever, Err(""));
        }
    }

    #[test]
    fn a_provider_may_ask_for_as_long_as_the_patience_lasts() {
        use FailureClass::Overloaded;
        check(Overloaded, Some(7), 0, HOUR, Ok(7000));
        check(Overloaded, Some(0), 2000, HOUR, Ok(2000));
        check(Overloaded, Some(3600), 0, HOUR, Ok(3_600_000));
        check(Overloaded, Some(3600), 1000, HOUR, Err("the provider asks to wait 60 minutes"));
        check(Overloaded, Some(90_000), 0, HOUR, Err("the provider asks to wait 25 hours"));
        check(Overloaded, Some(90_000), 0, Patience::Forever, Ok(90_000_000));
    }

    #[test]
    fn an_address_that_never_answered_is_given_up_soon() {
        let decided = |class, waited| {
            let tries = Tries { waited: Duration::from_millis(waited), ..Tries::default() };
            decide(&failure(class, None), &tries, Patience::Forever, 1.0)
        };
        let given_up = Decision::GiveUp { note: Some("gave up after 10 seconds".to_owned()) };
        for class in [FailureClass::Connect, FailureClass::Refused] {
            assert_eq!(decided(class, 6000), Decision::Again { after: Duration::from_secs(4) });
            assert_eq!(decided(class, 10_000), given_up);
        }
        assert_eq!(decided(FailureClass::Overloaded, 10_000), Decision::Again { after: Duration::from_secs(10) });
    }

    #[test]
    fn attempts_that_broke_off_are_few() {
        let decided = |broken_off, broke_off| {
            let tries = Tries { broken_off, broke_off, answered_before: true, ..Tries::default() };
            decide(&failure(FailureClass::Stream, None), &tries, Patience::Forever, 1.0)
        };
        assert!(matches!(decided(5, true), Decision::Again { .. }));
        assert_eq!(decided(6, true), Decision::GiveUp { note: Some("gave up after 6 attempts".to_owned()) });
        assert!(matches!(decided(6, false), Decision::Again { .. }), "a refused connection is free");
        assert!(broke_off(FailureClass::Overloaded, true) && broke_off(FailureClass::Timeout, false));
        assert!(!broke_off(FailureClass::Overloaded, false));
    }

    #[test]
    fn the_reason_is_found_in_what_was_announced() {
        let failure = Failure { message: "503: busy; come back".to_owned(), ..failure(FailureClass::Overloaded, None) };
        let seconds = Duration::from_secs;
        let texts = [announced(&failure, None, seconds(1)), announced(&failure, Some(seconds(31)), seconds(600))];
        assert_eq!(texts[0], "503: busy; come back; trying again in 1.0 s");
        assert_eq!(texts[1], "503: busy; come back; waiting for 31 seconds, trying again in 10 minutes");
        texts.iter().for_each(|text| assert_eq!(reason(text), failure.message));
    }
}
