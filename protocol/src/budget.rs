//! Budgets: the sums at which a session asks before it goes on, and how people write them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::age;

/// The limits of a session. When a sum over all its turns reaches one, the turn asks before its next step; each answer to go on
/// raises the limit by its own size. In requests 0 takes a limit away, and an absent one stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// The cost of its models, in millionths of a US dollar, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_micros: Option<u64>,
    /// Tokens of requests and answers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// How long its turns may run, in milliseconds, without the time that they wait for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// The most steps of each turn, if that is less than the configuration's; the turn then ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
}

impl Budget {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The smaller of each limit.
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        fn less<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            a.into_iter().chain(b).min()
        }
        Self {
            max_cost_micros: less(self.max_cost_micros, other.max_cost_micros),
            max_tokens: less(self.max_tokens, other.max_tokens),
            max_ms: less(self.max_ms, other.max_ms),
            max_steps: less(self.max_steps, other.max_steps),
        }
    }

    /// This one with what `said` says of it.
    #[must_use]
    pub fn changed(self, said: Self) -> Self {
        fn one<T: Copy + PartialEq + Default>(now: Option<T>, said: Option<T>) -> Option<T> {
            said.or(now).filter(|limit| *limit != T::default())
        }
        Self {
            max_cost_micros: one(self.max_cost_micros, said.max_cost_micros),
            max_tokens: one(self.max_tokens, said.max_tokens),
            max_ms: one(self.max_ms, said.max_ms),
            max_steps: one(self.max_steps, said.max_steps),
        }
    }
}

/// For people: `$2.00, 200000 tokens, 30m, 50 steps`; `none` without a limit.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.max_cost_micros.map(spell_dollars),
            self.max_tokens.map(|tokens| format!("{tokens} tokens")),
            self.max_ms.map(age::spell),
            self.max_steps.map(|steps| format!("{steps} steps a turn")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// The millionths of a dollar in an amount such as `2`, `0.50` or `$3`.
pub fn parse_dollars(text: &str) -> Result<u64, String> {
    let bad = || format!("'{}' is not an amount in dollars: write 2 or 0.50", text.escape_default());
    let amount = text.trim();
    let amount = amount.strip_prefix('$').unwrap_or(amount);
    let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // A tenth of a cent and less is a price of some models, a millionth is the unit.
    if !digits(whole) || !digits(part) || part.len() > 6 || (whole.is_empty() && part.is_empty()) {
        return Err(bad());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
    let part: u64 = format!("{part:0<6}").parse().map_err(|_| bad())?;
    whole.checked_mul(1_000_000).and_then(|micros| micros.checked_add(part)).ok_or_else(bad)
}

/// An amount as people write it: `$0.50`, with more digits only where they say something.
pub fn spell_dollars(micros: u64) -> String {
    let text = format!("{:06}", micros % 1_000_000);
    let part = text.trim_end_matches('0');
    format!("${}.{part:0<2}", micros / 1_000_000)
}

/// A number of tokens such as `50000`, `200k` or `2M`.
pub fn parse_tokens(text: &str) -> Result<u64, String> {
    let bad = || format!("'{}' is not a number of tokens: write 50000, 200k or 2M", text.escape_default());
    let text = text.trim();
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.get(..text.len() - 1), 1_000),
        Some(b'm' | b'M') => (text.get(..text.len() - 1), 1_000_000),
        _ => (Some(text), 1),
    };
    let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).ok_or_else(bad)?;
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        let good =
            [("2", 2_000_000), ("0.5", 500_000), ("$1.25", 1_250_000), (".01", 10_000), ("0", 0), ("3.", 3_000_000)];
        for (text, micros) in good {
            assert_eq!(parse_dollars(text), Ok(micros), "{text}");
        }
        for text in ["", ".", "-1", "1,5", "1e3", "0.0000001", "two", "99999999999999999999"] {
            assert!(parse_dollars(text).is_err(), "{text}");
        }
        let spelled = [(500_000, "$0.50"), (2_000_000, "$2.00"), (1_234_500, "$1.2345"), (1, "$0.000001")];
        for (micros, text) in spelled {
            assert_eq!(spell_dollars(micros), text);
            assert_eq!(parse_dollars(text), Ok(micros));
        }
    }

    #[test]
    fn numbers_of_tokens_have_units() {
        assert_eq!(["50000", "200k", "2M", "0"].map(parse_tokens), [Ok(50_000), Ok(200_000), Ok(2_000_000), Ok(0)]);
        for text in ["", "k", "1.5k", "-3", "10 k", "99999999999999999M"] {
            assert!(parse_tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name_and_zero_takes_away() {
        let now = Budget { max_tokens: Some(5), max_ms: Some(7), ..Budget::default() };
        let said = Budget { max_tokens: Some(0), max_steps: Some(3), ..Budget::default() };
        assert_eq!((now.to_string().as_str(), Budget::default().to_string().as_str()), ("5 tokens, 0s", "none"));
        assert_eq!(now.changed(said), Budget { max_ms: Some(7), max_steps: Some(3), ..Budget::default() });
    }
}
