//! Decides which bytes from a terminal are one key that was pressed alone. Pure.
//!
//! One key answers a question. If a line is typed or pasted instead, none of its letters does: the
//! whole line is dropped, up to Enter or a silence.

use std::time::Duration;

/// The silence after a key that was pressed alone. Pasted text arrives faster, even where a slow link
/// cuts it in two; a person does not notice the delay.
const ALONE: Duration = Duration::from_millis(100);

/// The silence that ends dropped text without Enter.
const SILENCE: Duration = Duration::from_millis(500);

/// The bytes typed so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Nothing that matters.
    #[default]
    Nothing,
    /// A key with a meaning; more may follow.
    Key(char),
    /// Anything else, which is dropped; `ended` if Enter was last.
    Other { ended: bool },
}

/// A key, once nothing more followed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// A single character, typed without Enter.
    Key(char),
    /// Anything else; it was dropped.
    Other,
}

impl Typed {
    /// Takes the bytes of one read; `means` has the keys with a meaning.
    pub(crate) fn read(&mut self, bytes: &[u8], means: &str) {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        *self = match (&*self, bytes) {
            // Enter after a key, or alone, is a habit.
            (Self::Nothing | Self::Key(_), bytes) if bytes.iter().all(is_end) => return,
            (Self::Nothing, [key] | [key, b'\r' | b'\n']) if means.contains(char::from(*key)) => {
                Self::Key(char::from(*key))
            }
            _ => Self::Other { ended: bytes.last().is_some_and(is_end) },
        };
    }

    /// How long to wait for more; without end if nothing was typed.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Nothing => None,
            Self::Key(_) | Self::Other { ended: true } => Some(ALONE),
            Self::Other { ended: false } => Some(SILENCE),
        }
    }

    /// Nothing more came within that time.
    pub(crate) fn over(&mut self) -> Option<Pressed> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Key(key) => Some(Pressed::Key(key)),
            Self::Other { .. } => Some(Pressed::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_alone_and_no_letter_of_a_line_does() {
        let check = |reads: &[&str], expect: Option<Pressed>, wait: Option<Duration>| {
            let mut typed = Typed::default();
            reads.iter().for_each(|read| typed.read(read.as_bytes(), "ysan"));
            assert_eq!((typed.wait(), typed.over(), typed), (wait, expect, Typed::Nothing), "{reads:?}");
        };
        let key = Some(Pressed::Key('y'));
        check(&["y"], key, Some(ALONE));
        check(&["y\r"], key, Some(ALONE));
        check(&["y", "\n"], key, Some(ALONE));
        check(&["\n", "y"], key, Some(ALONE));
        check(&["\n"], None, None);
        let other = Some(Pressed::Other);
        check(&["x"], other, Some(SILENCE));
        check(&["yy"], other, Some(SILENCE));
        check(&["y", "es"], other, Some(SILENCE));
        check(&["y\n", "rm -rf /\n"], other, Some(ALONE));
        check(&["wait, do not do that\n"], other, Some(ALONE));
        check(&["w", "a"], other, Some(SILENCE));
        check(&["wait\n", "a"], other, Some(SILENCE));
        check(&["/mode pl", "a", "n", "\r"], other, Some(ALONE));
        check(&["ä"], other, Some(SILENCE));
        check(&["\x1b[A"], other, Some(SILENCE));
    }
}
