//! Parses `--since`: a cursor or a time.

use linger_protocol::id::Cursor;

use super::usage::day;
use crate::error::Failure;

/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// The position to start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// After this position.
    Cursor(Cursor),
    /// At this time, in Unix milliseconds.
    Time(u64),
}

/// Parses an age such as `2h`, a date, a date with a UTC time, or a cursor.
pub(super) fn since(text: &str, now: u64) -> Result<Since, Failure> {
    let text = text.trim();
    if let Some(time) = date(text) {
        return Ok(Since::Time(time));
    }
    // A number alone is a cursor.
    let is_age = text.ends_with(|last: char| last.is_ascii_alphabetic()) && !text.contains(['+', '.']) && text != "now";
    if is_age && let Ok(age) = linger_protocol::age::parse(text) {
        return Ok(Since::Time(now.saturating_sub(age)));
    }
    let is_cursor = text == "now" || text.starts_with(|first: char| first.is_ascii_digit());
    if !is_cursor || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.".contains(&byte)) {
        return Err(Failure::usage(format!("--since '{}' is neither a time nor a cursor", text.escape_default()))
            .hint("write a time such as 30m, 2h, 2026-11-24 or 2026-11-24T09:30 (UTC), or a cursor from --json"));
    }
    Ok(Since::Cursor(Cursor(text.to_owned())))
}

/// Parses a UTC date with an optional time of day.
fn date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let Some((date, time)) = text.split_once(['T', ' ']) else { return day(text).map(|day| day * DAY_MS) };
    let parts: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes] => (*hours, *minutes, 0),
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let is_time = hours < 24 && minutes < 60 && seconds < 60;
    day(date).filter(|_| is_time).map(|day| day * DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_from_a_cursor() {
        let now = 100 * DAY_MS;
        let check = |text: &str, expect: Since| assert_eq!(since(text, now).ok(), Some(expect), "{text}");
        let cursor = |text: &str| Since::Cursor(Cursor(text.to_owned()));
        check("1h", Since::Time(now - 3_600_000));
        check("2d", Since::Time(98 * DAY_MS));
        check("1970-01-02", Since::Time(DAY_MS));
        check("1970-01-02T01:30", Since::Time(DAY_MS + 5_400_000));
        check("1970-01-02 00:00:01Z", Since::Time(DAY_MS + 1000));
        for text in ["0", "17", "4+m2.0.6", "8+c1.120", "17.0f3a9c11", "now"] {
            check(text, cursor(text));
        }
        for wrong in ["", "soon", "5x y", "2026-13-01", "1970-01-02T24:00", "-1", "h"] {
            assert!(since(wrong, now).is_err(), "{wrong}");
        }
    }
}
