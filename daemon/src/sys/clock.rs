//! Wall time and entropy: the daemon reads both only here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::fault;

/// Crockford's base 32: no letter looks like a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A day in milliseconds.
pub const DAY_MS: u64 = 86_400_000;

/// The time, for comparison with that of a file.
#[allow(clippy::disallowed_methods)] // The only clock read.
pub fn system() -> SystemTime {
    let (now, ahead) = (SystemTime::now(), fault::days_ahead());
    let by = Duration::from_secs(ahead.unsigned_abs().saturating_mul(DAY_MS / 1000));
    let moved = if ahead < 0 { now.checked_sub(by) } else { now.checked_add(by) };
    moved.unwrap_or(now)
}

/// The time in Unix milliseconds.
pub fn now() -> u64 {
    system().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A random word of `length` characters, five bits each.
pub fn random_word(length: usize) -> String {
    let mut bytes = vec![0; length];
    if getrandom::fill(&mut bytes).is_err() {
        // Without entropy the clock still tells two sessions apart.
        bytes.iter_mut().zip(now().to_le_bytes().iter().cycle()).for_each(|(byte, clock)| *byte = *clock);
    }
    word(&bytes)
}

/// A word of five bits of each byte.
pub fn word(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(ALPHABET.get(usize::from(byte & 31)).copied().unwrap_or(b'0'))).collect()
}

/// Random bytes for a secret; fails without entropy.
pub fn random_bytes(bytes: &mut [u8]) -> Result<(), String> {
    getrandom::fill(bytes).map_err(|error| error.to_string())
}

/// A random number from 0 to 1, for jitter.
pub fn random_fraction() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX)
}

/// A day as `2026-11-21`, counted in days since 1970-01-01 (the civil calendar of Howard Hinnant's `days_from_civil`).
pub fn date(day: u64) -> String {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let (month, of_month) = ((shifted_month + 2) % 12 + 1, of_year - (153 * shifted_month + 2) / 5 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_the_dates_of_the_calendar() {
        let days = [0, 58, 59, 11_016, 11_017, 20_778].map(date);
        assert_eq!(days, ["1970-01-01", "1970-02-28", "1970-03-01", "2000-02-29", "2000-03-01", "2026-11-21"]);
    }
}
