//! Text to a terminal or a pipe, at once.

use std::io;

/// Writes a text and flushes it.
pub(super) fn write(to: &mut impl io::Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
