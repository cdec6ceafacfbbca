//! Which bytes from a terminal are one key that was pressed alone. Pure: takes what was read, and that nothing more came.
//!
//! A question is decided by one key. Where a line is typed or pasted instead, no letter of it decides: all of it is dropped, up
//! to Enter or until nothing comes any more.

use std::time::Duration;

/// How long nothing may follow a key. What is pasted comes within this, though a link may cut it in two; no person notices it.
const ALONE: Duration = Duration::from_millis(100);

/// How long nothing may follow what is dropped, unless Enter ends it.
const SILENCE: Duration = Duration::from_millis(500);

/// What was typed, as far as it is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Nothing that matters.
    #[default]
    Nothing,
    /// A key that means something, maybe alone.
    Key(char),
    /// Something else, which is dropped; whether Enter was its end so far.
    Other { ended: bool },
}

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// This key.
    Key(char),
    /// Something that is no answer, and was dropped.
    Other,
}

impl Typed {
    /// Takes what was read at once, where the keys in `means` mean something.
    pub(crate) fn read(&mut self, bytes: &[u8], means: &str) {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        *self = match (&*self, bytes) {
            // After a key, or alone, Enter is a habit.
            (Self::Nothing | Self::Key(_), bytes) if bytes.iter().all(is_end) => return,
            (Self::Nothing, [key] | [key, b'\r' | b'\n']) if means.contains(char::from(*key)) => {
                Self::Key(char::from(*key))
            }
            _ => Self::Other { ended: bytes.last().is_some_and(is_end) },
        };
    }

    /// How long to wait whether more comes; for ever if nothing was typed.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Nothing => None,
            Self::Key(_) | Self::Other { ended: true } => Some(ALONE),
            Self::Other { ended: false } => Some(SILENCE),
        }
    }

    /// Nothing more came within that time: what was typed is over.
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
