//! Cursors: the last seq that a reader has, and its offset in each open stream.
//!
//! Written as `4`; as `4+m2.0.6` after six bytes of block 0 of message m2; as `8+c1.120` after 120 bytes of the output of call c1.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use linger_protocol::id::Cursor;

/// The most streams in one cursor; a step has no more concurrent calls.
const MAX_STREAMS: usize = 64;

/// A reader's position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last event that the reader has.
    pub seq: u64,
    /// Block and byte offset in each open stream.
    pub streams: BTreeMap<String, (u32, u64)>,
}

impl Position {
    /// The position right after event `seq`.
    pub fn after(seq: u64) -> Self {
        Self { seq, streams: BTreeMap::new() }
    }

    /// Parses a cursor; `None` if it is malformed.
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
            // It returns to the client inside a JSON string.
            if !stream.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return None;
            }
            position.streams.insert((*stream).to_owned(), at);
        }
        Some(position)
    }

    /// The position as text for clients.
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

    /// Block and byte offset in `stream`; zeros if it is new to the reader.
    pub fn within(&self, stream: &str) -> (u32, u64) {
        self.streams.get(stream).copied().unwrap_or_default()
    }

    /// Sets the position in `stream`.
    pub fn advance(&mut self, stream: &str, block: u32, offset: u64) {
        match self.streams.get_mut(stream) {
            Some(at) => *at = (block, offset),
            None => {
                self.streams.insert(stream.to_owned(), (block, offset));
            }
        }
    }
}

/// Ids of calls begin with `c`, ids of messages with `m`.
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
