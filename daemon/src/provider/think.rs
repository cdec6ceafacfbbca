//! Thinking that hides in the text of an answer, between `<think>` and `</think>` at its beginning.
//!
//! The tags may be cut anywhere. Deliberately absent: thinking that has a closing tag but no opening one, which nothing tells
//! from text while it streams.

/// Where the text is with respect to the tags, which count at its beginning only.
#[derive(Debug)]
pub(super) enum Think {
    /// At the beginning; this much may still become the opening tag.
    Before(String),
    /// Between the tags; this much may still become the closing tag.
    Inside(String),
    /// Just after the closing tag, where white space belongs to nothing.
    After,
    /// In the answer.
    Outside,
}

impl Default for Think {
    fn default() -> Self {
        Self::Before(String::new())
    }
}

/// A piece of an answer; never empty.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Thought(String),
}

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

impl Think {
    /// Takes a piece of text and gives what it is now known to be.
    pub(super) fn push(&mut self, piece: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        self.take(piece, &mut out);
        out.retain(|piece| !matches!(piece, Piece::Text(text) | Piece::Thought(text) if text.is_empty()));
        out
    }

    /// No more comes: what was held back is what it looks like.
    pub(super) fn end(&mut self) -> Option<Piece> {
        match std::mem::replace(self, Self::Outside) {
            Self::Before(held) if !held.trim().is_empty() => Some(Piece::Text(held)),
            Self::Inside(held) if !held.is_empty() => Some(Piece::Thought(held)),
            _ => None,
        }
    }

    fn take(&mut self, piece: &str, out: &mut Vec<Piece>) {
        match std::mem::replace(self, Self::Outside) {
            Self::Before(held) => {
                let held = held + piece;
                let begun = held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPENING) {
                    *self = Self::Inside(String::new());
                    self.take(rest, out);
                } else if OPENING.starts_with(begun) {
                    *self = Self::Before(held);
                } else {
                    out.push(Piece::Text(held));
                }
            }
            Self::Inside(held) => {
                let held = held + piece;
                if let Some((thought, rest)) = held.split_once(CLOSING) {
                    out.push(Piece::Thought(thought.to_owned()));
                    *self = Self::After;
                    self.take(rest, out);
                } else {
                    let lengths = (1..CLOSING.len()).rev();
                    let kept =
                        lengths.filter_map(|n| CLOSING.get(..n)).find(|tag| held.ends_with(tag)).unwrap_or_default();
                    out.push(Piece::Thought(held.strip_suffix(kept).unwrap_or(&held).to_owned()));
                    *self = Self::Inside(kept.to_owned());
                }
            }
            Self::After => match piece.trim_start() {
                "" => *self = Self::After,
                text => out.push(Piece::Text(text.to_owned())),
            },
            Self::Outside => out.push(Piece::Text(piece.to_owned())),
        }
    }
}
