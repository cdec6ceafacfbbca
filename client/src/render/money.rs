//! Tokens and their cost, for people.

use linger_protocol::message::Usage;

/// Tokens in the largest unit that leaves a number before the point.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..=9999 => count.to_string(),
        10_000..=999_999 => format!("{}k", count / 1000),
        1_000_000..=9_999_999 => format!("{:.1}M", (count / 100_000) as f64 / 10.0),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// The cost; empty if nothing was used.
pub(crate) fn cost(usage: &Usage) -> String {
    match (usage.cost_micros, usage.costs_more()) {
        // What was cut before anything was counted may have cost nothing.
        (None, true) if usage.is_uncounted() => format!("at least {}", dollars(0)),
        (None, true) => "cost unknown".to_owned(),
        (None, false) => String::new(),
        (Some(micros), false) => dollars(micros),
        (Some(micros), true) => format!("at least {}", dollars(micros)),
    }
}

/// Millionths of a dollar, as dollars with two to six digits.
pub(crate) fn dollars(micros: u64) -> String {
    let dollars = micros as f64 / 1e6;
    match micros {
        0 => "$0".to_owned(),
        1..=99 => format!("${dollars:.6}"),
        100..=99_999 => format!("${dollars:.4}"),
        _ => format!("${dollars:.2}"),
    }
}

/// A price in dollars per million tokens, or `unknown`.
pub(crate) fn price(dollars: Option<f64>) -> String {
    dollars.map_or_else(|| "unknown".to_owned(), |dollars| format!("${dollars}"))
}

/// Tokens in and out, with the cached and the reasoning part.
pub(crate) fn traffic(usage: &Usage) -> String {
    let part = |count: u64, what: &str| if count > 0 { format!(" ({} {what})", tokens(count)) } else { String::new() };
    let (cached, thought) = (part(usage.cached_tokens, "cached"), part(usage.reasoning_tokens, "reasoning"));
    format!("{} tokens in{cached}, {} out{thought}", tokens(usage.input_tokens), tokens(usage.output_tokens))
}

/// How full a context is; `None` if a number is unknown.
pub(crate) fn fill(used: Option<u64>, window: Option<u64>) -> Option<String> {
    let (used, window) = (used?, window.filter(|window| *window > 0)?);
    Some(format!("{} % of {}", used.saturating_mul(100) / window, tokens(window)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_so_full_if_both_numbers_are_known() {
        assert_eq!(fill(Some(124_999), Some(200_000)).as_deref(), Some("62 % of 200k"));
        assert_eq!(fill(Some(5), Some(0)), None);
        assert_eq!((fill(None, Some(9)), fill(Some(9), None)), (None, None));
    }

    #[test]
    fn tokens_have_at_most_four_digits() {
        let counts = [0, 9999, 10_000, 999_999, 1_000_000, 1_990_000, 12_000_000].map(tokens);
        assert_eq!(counts, ["0", "9999", "10k", "999k", "1.0M", "1.9M", "12M"]);
    }

    #[test]
    fn a_cost_says_what_is_not_known_of_it() {
        let of = |cost_micros, cost_at_least| cost(&Usage { cost_micros, cost_at_least, ..Usage::default() });
        assert_eq!(of(None, false), "");
        assert_eq!(of(None, true), "at least $0");
        assert_eq!(cost(&Usage { input_tokens: 5, ..Usage::default() }), "cost unknown");
        assert_eq!(
            [0, 7, 100, 12_345, 99_999, 100_000, 1_234_567].map(|micros| of(Some(micros), false)),
            ["$0", "$0.000007", "$0.0001", "$0.0123", "$0.1000", "$0.10", "$1.23"]
        );
        assert_eq!(of(Some(50_000), true), "at least $0.0500");
        assert_eq!(of(Some(0), true), "at least $0");
    }

    #[test]
    fn an_unknown_price_is_not_nothing() {
        assert_eq!(
            [price(None), price(Some(0.0)), price(Some(1.25)), price(Some(15.0))],
            ["unknown", "$0", "$1.25", "$15"]
        );
    }
}
