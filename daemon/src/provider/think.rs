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

#[cfg(test)]
mod tests {
    use super::*;

    /// What `pieces` come to: the thought, and the text.
    fn sorted(pieces: &[&str]) -> (String, String) {
        let mut think = Think::default();
        let mut out: Vec<Piece> = pieces.iter().flat_map(|piece| think.push(piece)).collect();
        out.extend(think.end());
        let (mut thought, mut text) = (String::new(), String::new());
        for piece in out {
            match piece {
                Piece::Thought(piece) => thought.push_str(&piece),
                Piece::Text(piece) => text.push_str(&piece),
            }
        }
        (thought, text)
    }

    #[test]
    fn tags_are_found_wherever_the_text_is_cut() {
        fn check(text: &str, thought: &str, rest: &str) {
            let expect = (thought.to_owned(), rest.to_owned());
            let cuts: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
            for first in &cuts {
                for second in cuts.iter().filter(|second| *second >= first) {
                    let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                    assert_eq!(sorted(&pieces), expect, "{pieces:?}");
                }
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(sorted(&letters.iter().map(String::as_str).collect::<Vec<_>>()), expect, "{text}");
        }
        check("<think>hm ä</think>\n\nso", "hm ä", "so");
        check("\n <think></th</think>so <think>", "</th", "so <think>");
        check("<think>cut off</thi", "cut off</thi", "");
        check("<thin", "", "<thin");
        check("a <think>b</think>", "", "a <think>b</think>");
        check("<think></think>", "", "");
    }
}
