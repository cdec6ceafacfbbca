//! Wall time and entropy: the one place where the daemon asks for either.

use std::time::{SystemTime, UNIX_EPOCH};

/// Crockford's alphabet: no letter that is taken for a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The time in Unix milliseconds.
#[allow(clippy::disallowed_methods)] // This is the place.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A random word of `length` characters, five bits each.
pub fn random_word(length: usize) -> String {
    let mut bytes = vec![0; length];
    if getrandom::fill(&mut bytes).is_err() {
        // Without entropy the clock still tells two sessions apart.
        bytes.iter_mut().zip(now().to_le_bytes().iter().cycle()).for_each(|(byte, clock)| *byte = *clock);
    }
    bytes.iter().map(|byte| char::from(ALPHABET.get(usize::from(byte & 31)).copied().unwrap_or(b'0'))).collect()
}

/// A random number from 0 to 1, for jitter.
pub fn random_fraction() -> f64 {
    f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX)
}
