//! Patience: how long a turn waits for a provider that cannot answer, as people write it: `90s`, `1h`, `forever`, `0`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::age;

/// How long a turn waits while its provider cannot answer. Written as a number and a unit, as `forever`, or as 0 for not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "String")]
pub enum Patience {
    /// For so many milliseconds.
    Millis(u64),
    /// Without a limit.
    Forever,
}

/// The forms in which it is read.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write a time such as \"90s\", \"10m\" or \"1h\", \"forever\", or 0")]
enum Written {
    /// `90s`, `10m`, `1h`, `2d`, `forever` or `0`.
    Text(String),
    /// 0.
    Number(u64),
}

impl Patience {
    /// One hour, which outlasts a restart, a moved laptop and a rate limit.
    pub const USUAL: Self = Self::Millis(3_600_000);

    /// This, but at most so long.
    pub fn at_most(self, limit: Duration) -> Self {
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Millis(own) => Self::Millis(own.min(millis)),
            Self::Forever if limit == Duration::MAX => Self::Forever,
            Self::Forever => Self::Millis(millis),
        }
    }

    /// The limit; `None` is forever.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Self::Millis(millis) => Some(Duration::from_millis(millis)),
            Self::Forever => None,
        }
    }
}

impl TryFrom<Written> for Patience {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Number(0) => Ok(Self::Millis(0)),
            Written::Number(number) => number.to_string().parse(),
        }
    }
}

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "forever" => Ok(Self::Forever),
            "0" => Ok(Self::Millis(0)),
            text => age::parse(text).map(Self::Millis).map_err(|_| {
                let text = text.escape_default();
                format!(
                    "'{text}' is no time to wait: write a number and a unit, such as 90s, 10m or 1h, or forever, or 0"
                )
            }),
        }
    }
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Forever => f.write_str("forever"),
            Self::Millis(0) => f.write_str("0"),
            Self::Millis(millis) => f.write_str(&age::spell(millis)),
        }
    }
}

impl From<Patience> for String {
    fn from(patience: Patience) -> Self {
        patience.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_read_as_it_is_written() {
        for text in ["0", "forever", "90s", "10m", "1h", "2d"] {
            let patience: Patience = text.parse().unwrap();
            assert_eq!(patience.to_string(), text);
            let json = serde_json::to_string(&patience).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Patience>(&json).unwrap(), patience);
        }
        assert_eq!(serde_json::from_str::<Patience>("0").unwrap(), Patience::Millis(0));
        assert_eq!("60s".parse::<Patience>().unwrap().to_string(), "1m");
        assert_eq!(Patience::USUAL.to_string(), "1h");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["\"\"", "\"soon\"", "90", "-1", "true", "\"-1s\"", "\"90\""] {
            assert!(serde_json::from_str::<Patience>(text).is_err(), "{text}");
        }
    }
}
