//! Cursors: the last seq a reader has, and how far it is in each stream that was open then.
//!
//! Written `4`, or `4+m2.0.6` in block 0 of message m2 after six bytes, or `8+c1.120` in the output of call c1.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use linger_protocol::id::Cursor;

/// Streams that one cursor can name; a step has no more calls at once.
const MAX_STREAMS: usize = 64;

/// A reader's position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last event it has.
    pub seq: u64,
    /// Block and offset up to which it has each open stream.
    pub streams: BTreeMap<String, (u32, u64)>,
}

impl Position {
    /// The position right after event `seq`.
    pub fn after(seq: u64) -> Self {
        Self { seq, streams: BTreeMap::new() }
    }

    /// Reads a cursor; nothing if it has not the form of one.
    pub fn parse(cursor: &Cursor) -> Option<Self> {
        let mut parts = cursor.0.split('+');
        let mut position = Self::after(parts.next()?.parse().ok()?);
        for part in parts.take(MAX_STREAMS) {
            let fields: Vec<&str> = part.split('.').collect();
            let (stream, at) = match fields.as_slice() {
                [message, block, offset] if !is_call(message) => (message, (block.parse().ok()?, offset.parse().ok()?)),
                [call, offset] if is_call(call) => (call, (0, offset.parse().ok()?)),
                _ => return None,
            };
            // It goes back to the client within quotes.
            if !stream.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return None;
            }
            position.streams.insert((*stream).to_owned(), at);
        }
        Some(position)
    }

    /// The cursor as clients keep it.
    pub fn cursor(&self) -> Cursor {
        let mut text = self.seq.to_string();
        for (stream, (block, offset)) in &self.streams {
            // Writing to a string cannot fail.
            let _infallible = if is_call(stream) {
                write!(text, "+{stream}.{offset}")
            } else {
                write!(text, "+{stream}.{block}.{offset}")
            };
        }
        Cursor(text)
    }

    /// How far the reader is in `stream`.
    pub fn within(&self, stream: &str) -> (u32, u64) {
        self.streams.get(stream).copied().unwrap_or_default()
    }

    /// Moves on within `stream`.
    pub fn advance(&mut self, stream: &str, block: u32, offset: u64) {
        match self.streams.get_mut(stream) {
            Some(at) => *at = (block, offset),
            None => {
                self.streams.insert(stream.to_owned(), (block, offset));
            }
        }
    }
}

/// Calls and messages are told apart by the first letter of their ids.
fn is_call(stream: &str) -> bool {
    stream.starts_with('c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let got = Position::parse(&Cursor(text.to_owned())).map(|position| position.cursor().0);
        assert_eq!(got.as_deref(), expect, "{text}");
    }

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        check("0", Some("0"));
        check("4+m2.0.6", Some("4+m2.0.6"));
        check("8+c1.120+c2.7", Some("8+c1.120+c2.7"));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in [
            "",
            "x",
            "-1",
            "4+",
            "4+m2",
            "4+m2.x.1",
            "4+m2.0.6.7",
            "4 ",
            "99999999999999999999",
            "4+m2.6",
            "4+c1.0.6",
            "4+c\"1.6",
        ] {
            check(text, None);
        }
    }
}
