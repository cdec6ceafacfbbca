//! Unattended: what happens to a question that no person answers, as people write it: `hold`, `deny`, `deny:10m`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::age;

/// How a turn's question that no person answers is treated. Written `hold`, `deny`, or `deny:10m` with a number and a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Unattended {
    /// It waits for a person.
    #[default]
    Hold,
    /// It is answered with no after so many milliseconds: a permission is denied, a form declined, a choice stopped or withdrawn.
    DenyAfter(u64),
}

impl Unattended {
    /// When a question that was asked at `asked_at` is denied, in Unix milliseconds; `None` if it waits.
    pub fn deadline(self, asked_at: u64) -> Option<u64> {
        match self {
            Self::Hold => None,
            Self::DenyAfter(millis) => Some(asked_at.saturating_add(millis)),
        }
    }

    /// Whether questions wait for a person.
    pub fn holds(&self) -> bool {
        *self == Self::Hold
    }
}

impl FromStr for Unattended {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let after = match text.trim() {
            "hold" => return Ok(Self::Hold),
            "deny" => Some(0),
            text => text.strip_prefix("deny:").and_then(|after| age::parse(after).ok()),
        };
        after.map(Self::DenyAfter).ok_or_else(|| {
            let text = text.escape_default();
            format!(
                "'{text}' is not what happens to a question: write hold, deny, or deny:10m with a number and a unit"
            )
        })
    }
}

impl TryFrom<String> for Unattended {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Unattended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Hold => f.write_str("hold"),
            Self::DenyAfter(0) => f.write_str("deny"),
            Self::DenyAfter(millis) => write!(f, "deny:{}", age::spell(millis)),
        }
    }
}

impl From<Unattended> for String {
    fn from(unattended: Unattended) -> Self {
        unattended.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written() {
        for text in ["hold", "deny", "deny:90s", "deny:10m"] {
            let unattended: Unattended = text.parse().unwrap();
            assert_eq!(unattended.to_string(), text);
            assert_eq!(serde_json::from_value::<Unattended>(text.into()).unwrap(), unattended);
        }
        assert_eq!("deny:0s".parse::<Unattended>().unwrap().to_string(), "deny");
        for text in ["", "allow", "hold:1m", "deny:", "deny:soon", "deny 10m", "deny:10"] {
            assert!(text.parse::<Unattended>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_deadline_counts_from_the_question() {
        assert_eq!(Unattended::Hold.deadline(5), None);
        assert_eq!(Unattended::DenyAfter(7).deadline(5), Some(12));
        assert_eq!(Unattended::DenyAfter(u64::MAX).deadline(5), Some(u64::MAX));
    }
}
