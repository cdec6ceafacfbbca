//! Columns, ages and sizes, for people.

use super::markdown::width;

/// Aligns columns by their widest cell; the last one is left ragged.
pub(crate) fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| rows.iter().filter_map(|row| row.get(n)).map(|cell| width::of(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| cell.clone() + &" ".repeat(width.saturating_sub(width::of(cell))));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// How long ago something was: the largest unit alone.
pub(crate) fn age(then: u64, now: u64) -> String {
    let seconds = now.saturating_sub(then) / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A moment in UTC, such as `2026-11-24 09:43:12Z`. The days are counted as in Howard Hinnant's `civil_from_days`.
pub(crate) fn moment(ms: u64) -> String {
    let seconds = ms / 1000;
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let date = of_year - (153 * shifted + 2) / 5 + 1;
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// Bytes in the largest unit that leaves a number before the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1000.0;
    let mut units = UNITS.iter().peekable();
    // What would be shown as 1000 belongs to the next unit.
    while scaled >= 999.5 && units.len() > 1 {
        scaled /= 1000.0;
        units.next();
    }
    let unit = units.peek().copied().unwrap_or(&"");
    if scaled < 9.95 { format!("{scaled:.1} {unit}") } else { format!("{scaled:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "bb", "c"], ["äää", "b", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), ["a    bb  c", "äää  b"]);
        let wide = [["日本", "b"], ["x", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&wide), ["日本  b", "x     y"]);
    }

    #[test]
    fn a_size_has_two_or_three_digits() {
        let sizes = [0, 999, 1000, 9940, 9960, 999_499, 999_501, 1_234_567, 12_345_678_901, u64::MAX].map(size);
        let expect = ["0 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "1.2 MB", "12 GB", "18447 PB"];
        assert_eq!(sizes, expect);
    }

    #[test]
    fn a_moment_is_a_date_and_a_time() {
        let of = |seconds: u64| moment(seconds * 1000);
        assert_eq!(of(0), "1970-01-01 00:00:00Z");
        assert_eq!(of(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(of(1_795_513_392), "2026-11-24 09:43:12Z");
    }

    #[test]
    fn an_age_has_one_unit() {
        let ages = [0, 59, 60, 3600, 90_000].map(|s| age(1000, 1000 + s * 1000));
        assert_eq!(ages, ["0 s", "59 s", "1 min", "1 h", "1 d"]);
    }
}
