//! Arguments that several commands share, and the parser of times.

use std::time::Duration;

use clap::{Args, ValueEnum};

/// The arguments of a command that only takes `--json`.
#[derive(Debug, Args)]
pub(crate) struct Json {
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of a command that takes one session.
#[derive(Debug, Args)]
pub(crate) struct Keyed {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The output formats of other programs; here the option is `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    #[value(alias = "json")]
    StreamJson,
}

/// Parses a time: seconds, or a number with a unit.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = || Duration::try_from_secs_f64(text.trim().parse().ok()?).ok();
    let unit = || linger_protocol::age::parse(text).ok().map(Duration::from_millis);
    seconds()
        .or_else(unit)
        .ok_or_else(|| "write seconds, such as 30 or 0.5, or a number and a unit, such as 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_seconds_or_has_a_unit() {
        let check =
            |text: &str, ms: Option<u64>| assert_eq!(timeout(text).ok(), ms.map(Duration::from_millis), "{text}");
        check("0.5", Some(500));
        check("30", Some(30_000));
        check("10m", Some(600_000));
        check("2 h", Some(7_200_000));
        for wrong in ["", "-1", "soon", "nan", "inf", "1e99", "5x"] {
            check(wrong, None);
        }
    }
}
