//! A failure of a provider, as HTTP and OpenAI's clients have it.

use linger_protocol::completion::CompletionEvent;

use crate::provider::{Failure, FailureClass};

/// The end of a completion that failed.
pub(super) fn failed(failure: Failure) -> CompletionEvent {
    let Failure { class, message, retry_after } = failure;
    let retry_after_ms = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let hint = class.hint().to_owned();
    CompletionEvent::Failed { message, hint, status: status(class), code: code(class).to_owned(), retry_after_ms }
}

/// The HTTP status of a failure.
fn status(class: FailureClass) -> u16 {
    match class {
        FailureClass::Connect | FailureClass::Refused | FailureClass::Network | FailureClass::Stream => 502,
        FailureClass::Overloaded => 503,
        FailureClass::Timeout => 504,
        FailureClass::RateLimited | FailureClass::Quota => 429,
        // The caller's own token is good: this is about the provider's key.
        FailureClass::Auth | FailureClass::Forbidden => 502,
        FailureClass::NotFound => 404,
        FailureClass::TooLong
        | FailureClass::PerhapsTooLong
        | FailureClass::Images
        | FailureClass::History
        | FailureClass::Reasoning
        | FailureClass::Parameter(_)
        | FailureClass::Rejected => 400,
    }
}

/// OpenAI's word for a failure, by which its clients decide what to do.
fn code(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RateLimited => "rate_limit_exceeded",
        FailureClass::Quota => "insufficient_quota",
        FailureClass::NotFound => "model_not_found",
        FailureClass::TooLong => "context_length_exceeded",
        _ => "provider_failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failure_keeps_its_meaning_and_the_wait_that_is_asked_for() {
        let check = |class, expect: u16, word: &str| {
            let failure = Failure { class, message: "m".to_owned(), retry_after: Some(Duration::from_millis(1500)) };
            let CompletionEvent::Failed { status, code, retry_after_ms, .. } = failed(failure) else {
                panic!("it did not fail")
            };
            assert_eq!((status, code.as_str(), retry_after_ms), (expect, word, Some(1500)), "{class:?}");
        };
        check(FailureClass::RateLimited, 429, "rate_limit_exceeded");
        check(FailureClass::Quota, 429, "insufficient_quota");
        check(FailureClass::Overloaded, 503, "provider_failed");
        check(FailureClass::Timeout, 504, "provider_failed");
        check(FailureClass::NotFound, 404, "model_not_found");
        check(FailureClass::TooLong, 400, "context_length_exceeded");
        check(FailureClass::Rejected, 400, "provider_failed");
        check(FailureClass::Auth, 502, "provider_failed");
    }
}
