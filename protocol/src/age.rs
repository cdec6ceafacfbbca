//! Ages as people write them: `90d`, `12h`, `2w`. Shared, so that the command line and the configuration mean the same.

/// The units and how many milliseconds each has.
const UNITS: [(char, u64); 5] =
    [('s', 1000), ('m', 60_000), ('h', 3_600_000), ('d', 86_400_000), ('w', 7 * 86_400_000)];

/// Why a text is no age.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no age: write a number and a unit, such as 90d, 12h or 2w")]
pub struct NoAge(String);

/// The milliseconds of an age: a whole number and one unit of `s`, `m`, `h`, `d`, `w`.
pub fn parse(text: &str) -> Result<u64, NoAge> {
    let no_age = || NoAge(text.escape_default().to_string());
    let trimmed = text.trim();
    let unit = trimmed.chars().last().ok_or_else(no_age)?;
    let (_, ms) = UNITS.iter().find(|(letter, _)| *letter == unit).ok_or_else(no_age)?;
    let number = trimmed.strip_suffix(unit).unwrap_or_default().trim_end();
    // `parse` alone would take a sign.
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(no_age());
    }
    let number: u64 = number.parse().map_err(|_| no_age())?;
    number.checked_mul(*ms).ok_or_else(no_age)
}

/// An age in its largest whole unit: `90s`, `2m`, `1h`. Milliseconds below a second are cut off.
pub fn spell(millis: u64) -> String {
    let whole = UNITS.iter().rev().skip(1).find(|(_, unit)| millis >= *unit && millis.is_multiple_of(*unit));
    let (letter, unit) = whole.unwrap_or(&UNITS[0]);
    format!("{}{letter}", millis / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        let ages = ["0s", "10m", "12h", "90d", " 2 w "].map(|text| parse(text).unwrap());
        assert_eq!(ages, [0, 600_000, 43_200_000, 7_776_000_000, 1_209_600_000]);
        for text in ["", "90", "d", "-1d", "+1d", "1.5d", "1y", "1d2h", "99999999999999999999w", "999999999999w", "1D"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
