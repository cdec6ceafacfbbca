//! `linger usage`: cost by day, model or session.

use linger_protocol::method::UsageList;
use linger_protocol::usage::{List, Sum, Sums};

use crate::arguments::Usage;
use crate::connect::{Client, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::render::money;
use crate::render::table::columns;
use crate::terminal::Terminal;

/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

pub(super) fn run(args: &Usage) -> Result<Exit, Failure> {
    let since = args.since.as_deref().map(|text| since(text, now())).transpose()?;
    let mut client = Client::open()?;
    let raw = client.call_raw(&UsageList(List { since, by: args.by.into() }))??;
    let sums: Sums = parse::<UsageList>(&raw)?;
    let mut terminal = Terminal::new();
    if args.json {
        terminal.data(raw.get())?;
        return Ok(Exit::GOOD);
    }
    if sums.total.answers == 0 {
        terminal.say("no usage in this time")?;
        return Ok(Exit::GOOD);
    }
    let mut rows: Vec<_> = sums.rows.iter().map(|sum| row(name(sum), sum)).collect();
    rows.push(row("total".to_owned(), &sums.total));
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    if sums.left_out > 0 {
        terminal.say(&format!("{} more rows are only in the total; use --since to see fewer days", sums.left_out))?;
    }
    Ok(Exit::GOOD)
}

/// The name of a row.
fn name(sum: &Sum) -> String {
    let known = sum.day.clone().or_else(|| sum.model.clone().filter(|model| !model.is_empty()));
    known.unwrap_or_else(|| match (&sum.session, &sum.name) {
        (Some(session), Some(name)) => format!("{session} {name}"),
        (Some(session), None) => session.to_string(),
        (None, _) if sum.model.is_some() => "unknown model".to_owned(),
        (None, _) => "removed sessions".to_owned(),
    })
}

fn row(name: String, sum: &Sum) -> Vec<String> {
    let answers = if sum.answers == 1 { "1 answer".to_owned() } else { format!("{} answers", sum.answers) };
    let usage = &sum.usage;
    let count =
        |count: u64, what: &str| if count > 0 { format!("{} {what}", money::tokens(count)) } else { String::new() };
    vec![
        name,
        answers,
        format!("{} in", money::tokens(usage.input_tokens)),
        count(usage.cached_tokens, "cached"),
        count(usage.cache_write_tokens, "written"),
        format!("{} out", money::tokens(usage.output_tokens)),
        count(usage.reasoning_tokens, "reasoning"),
        money::cost(usage),
    ]
}

/// The beginning of a time: a number of days such as `7d`, which today is one of, or a date.
fn since(text: &str, now: u64) -> Result<u64, Failure> {
    if let Some(day) = day(text) {
        return Ok(day * DAY_MS);
    }
    // Sums are kept by day: the last half hour is not known.
    let days = text.trim_end().ends_with(['d', 'w']);
    let age = linger_protocol::age::parse(text).ok().filter(|_| days).ok_or_else(|| {
        let text = text.escape_default();
        Failure::usage(format!("--since '{text}' is no day")).hint(
            "write a date such as 2026-11-01, or a number of days or weeks such as 7d or 2w; a day is one of UTC, and 1d is today",
        )
    })?;
    // The last seven days are today and six before it.
    Ok(now.saturating_sub(age.saturating_sub(DAY_MS)))
}

/// A date as days since 1970-01-01 (the civil calendar of Howard Hinnant's `days_from_civil`).
pub(super) fn day(text: &str) -> Option<u64> {
    let digits = |text: &str, count: usize| {
        (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse::<u64>().ok())?
    };
    let mut parts = text.trim().split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if parts.next().is_some() || year < 1970 || !(1..=last).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_a_number_of_days() {
        let noon = 20_778 * DAY_MS + DAY_MS / 2;
        let days = |text: &str| since(text, noon).map(|since| since / DAY_MS).map_err(|failure| failure.message);
        for (text, day) in [
            ("1970-01-01", 0),
            ("1970-03-01", 59),
            ("2000-02-29", 11_016),
            ("2026-11-21", 20_778),
            ("1d", 20_778),
            ("7d", 20_772),
            ("0d", 20_778),
            ("2w", 20_765),
        ] {
            assert_eq!(days(text), Ok(day), "{text}");
        }
        for text in [
            "",
            "7",
            "30m",
            "24h",
            "0s",
            "2026-11",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-11-21-1",
            "1969-12-31",
            "yesterday",
        ] {
            assert_eq!(days(text), Err(Some(format!("--since '{text}' is no day"))), "{text}");
        }
    }
}
