//! Thinking that hides in the text of an answer, between `<think>` and `</think>` at its beginning.
//!
//! The tags may be cut anywhere. Some templates write the opening tag into the request, so that an answer begins inside: where a
//! flag says so, all up to the closing tag is thinking. Where nothing said so, what has been shown as text stays text; the closing
//! tag is taken out, and what follows is a block of its own. A tag in quotes, or after an opening one, is what somebody writes
//! about.

/// Where the text is with respect to the tags, which count at its beginning only.
#[derive(Debug)]
pub(super) enum Think {
    /// At the beginning; this much may still become a tag. Without an opening one it goes on inside, if the flag is set.
    Before(String, bool),
    /// Between the tags; this much may still become the closing tag.
    Inside(String),
    /// Just after the closing tag, where white space belongs to nothing.
    After,
    /// In text that began without an opening tag: what came last of it, and what may still become a tag.
    Text(Option<char>, String),
    /// In text in which no tag counts.
    Outside,
}

impl Default for Think {
    fn default() -> Self {
        Self::new(false)
    }
}

/// A piece of an answer; never empty.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Thought(String),
    /// What was text so far should have been thinking; the answer follows.
    Break,
}

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

impl Think {
    /// At the beginning of an answer; `open` if that is inside of thinking.
    pub(super) fn new(open: bool) -> Self {
        Self::Before(String::new(), open)
    }

    /// Takes a piece of text and gives what it is now known to be.
    pub(super) fn push(&mut self, piece: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        self.take(piece, &mut out);
        out.retain(|piece| !matches!(piece, Piece::Text(text) | Piece::Thought(text) if text.is_empty()));
        out
    }

    /// Something else comes than text, or nothing more: what was held back is what it looks like.
    pub(super) fn pause(&mut self) -> Option<Piece> {
        let (next, held) = match std::mem::replace(self, Self::Outside) {
            Self::Before(held, open) if held.trim().is_empty() => (Self::Before(held, open), None),
            Self::Before(held, true) => (Self::Inside(String::new()), Some(Piece::Thought(held))),
            Self::Before(held, false) => (Self::Text(held.chars().last(), String::new()), Some(Piece::Text(held))),
            Self::Inside(held) => (Self::Inside(String::new()), Some(Piece::Thought(held))),
            Self::Text(last, held) => {
                (Self::Text(held.chars().last().or(last), String::new()), Some(Piece::Text(held)))
            }
            other => (other, None),
        };
        *self = next;
        held.filter(|piece| !matches!(piece, Piece::Text(text) | Piece::Thought(text) if text.is_empty()))
    }

    fn take(&mut self, piece: &str, out: &mut Vec<Piece>) {
        match std::mem::replace(self, Self::Outside) {
            Self::Before(held, open) => {
                let held = held + piece;
                let begun = held.trim_start();
                if let Some(rest) = begun.strip_prefix(OPENING) {
                    *self = Self::Inside(String::new());
                    self.take(rest, out);
                } else if let Some(rest) = begun.strip_prefix(CLOSING) {
                    *self = Self::After;
                    self.take(rest, out);
                } else if OPENING.starts_with(begun) || CLOSING.starts_with(begun) {
                    *self = Self::Before(held, open);
                } else {
                    *self = if open { Self::Inside(String::new()) } else { Self::Text(None, String::new()) };
                    self.take(&held, out);
                }
            }
            Self::Inside(held) => {
                let held = held + piece;
                if let Some((thought, rest)) = held.split_once(CLOSING) {
                    out.push(Piece::Thought(thought.to_owned()));
                    *self = Self::After;
                    self.take(rest, out);
                } else {
                    let (thought, kept) = held.split_at(held.len() - begun(&held, &[CLOSING]));
                    out.push(Piece::Thought(thought.to_owned()));
                    *self = Self::Inside(kept.to_owned());
                }
            }
            Self::After => match piece.trim_start() {
                "" => *self = Self::After,
                text => out.push(Piece::Text(text.to_owned())),
            },
            Self::Text(last, held) => self.text(last, held + piece, out),
            Self::Outside => out.push(Piece::Text(piece.to_owned())),
        }
    }

    /// Text that has no tag so far; `last` is what came before it.
    fn text(&mut self, last: Option<char>, text: String, out: &mut Vec<Piece>) {
        let tag = text.match_indices('<').find_map(|(at, _)| {
            let (before, rest) = text.split_at_checked(at)?;
            let tag = [OPENING, CLOSING].into_iter().find(|tag| rest.starts_with(tag))?;
            Some((tag, before, rest.strip_prefix(tag)?))
        });
        let Some((tag, before, rest)) = tag else {
            let (known, kept) = text.split_at(text.len() - begun(&text, &[OPENING, CLOSING]));
            *self = Self::Text(known.chars().last().or(last), kept.to_owned());
            return out.push(Piece::Text(known.to_owned()));
        };
        if tag == OPENING || before.chars().last().or(last).is_some_and(|last| "`'\"".contains(last)) {
            return out.push(Piece::Text(text));
        }
        out.extend([Piece::Text(before.to_owned()), Piece::Break]);
        *self = Self::After;
        self.take(rest, out);
    }
}

/// How many bytes at the end of `text` may become one of `tags`.
fn begun(text: &str, tags: &[&str]) -> usize {
    let begins = |tag: &&str| (1..tag.len()).rev().find(|n| tag.get(..*n).is_some_and(|begin| text.ends_with(begin)));
    tags.iter().filter_map(begins).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `pieces` come to: the thought, and the text, with `|` for a break.
    fn sorted(open: bool, pieces: &[&str]) -> (String, String) {
        let mut think = Think::new(open);
        let mut out: Vec<Piece> = pieces.iter().flat_map(|piece| think.push(piece)).collect();
        out.extend(think.pause());
        assert_eq!(think.pause(), None);
        let (mut thought, mut text) = (String::new(), String::new());
        for piece in out {
            match piece {
                Piece::Thought(piece) => thought.push_str(&piece),
                Piece::Text(piece) => text.push_str(&piece),
                Piece::Break => text.push('|'),
            }
        }
        (thought, text)
    }

    /// `text` comes to a thought and the rest, wherever it is cut.
    fn check_cuts(open: bool, text: &str, thought: &str, rest: &str) {
        let expect = (thought.to_owned(), rest.to_owned());
        let cuts: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|second| *second >= first) {
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                assert_eq!(sorted(open, &pieces), expect, "{pieces:?}");
            }
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(sorted(open, &letters.iter().map(String::as_str).collect::<Vec<_>>()), expect, "{text}");
    }

    #[test]
    fn tags_are_found_wherever_the_text_is_cut() {
        let check = |text: &str, thought: &str, rest: &str| check_cuts(false, text, thought, rest);
        check("<think>hm ä</think>\n\nso", "hm ä", "so");
        check("\n <think></th</think>so <think>", "</th", "so <think>");
        check("<think>cut off</thi", "cut off</thi", "");
        check("<thin", "", "<thin");
        check("a <think>b</think>", "", "a <think>b</think>");
        check("<think></think>", "", "");
        check("<think>a</think>b</think>c", "a", "b</think>c");
    }

    #[test]
    fn a_closing_tag_without_an_opening_one_is_no_text_and_divides_it() {
        let check = |text: &str, rest: &str| check_cuts(false, text, "", rest);
        check("hm ä</think>so", "hm ä|so");
        check("hm\n</think>\n\nso </think>", "hm\n|so </think>");
        check(" </think>\nso", "so");
        check("a < b </thin", "a < b </thin");
        check("hm</think>", "hm|");
        check("a </th</think>b", "a </th|b");
        check("a <thi</think>b", "a <thi|b");
        // Somebody writes about it.
        check("the tag `</think>` and </think>", "the tag `</think>` and </think>");
        check("\"</think>\" closes", "\"</think>\" closes");
        check("after <think> comes </think>", "after <think> comes </think>");
    }

    #[test]
    fn an_answer_that_begins_inside_ends_its_thinking_at_the_closing_tag() {
        let check = |text: &str, thought: &str, rest: &str| check_cuts(true, text, thought, rest);
        check("hm ä</think>\n\nso", "hm ä", "so");
        check("<think>hm</think>so", "hm", "so");
        check("a <think> `b`</think>so </think>", "a <think> `b`", "so </think>");
        check("</think>so", "", "so");
        check("cut</thi", "cut</thi", "");
        check("<thin", "<thin", "");
        check(" \n", "", "");
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<think>", "</think>", "<", "</", "think>", "a", "ä ", "\n", "`", " "]),
                0..10,
            ),
            cuts in prop::collection::vec(any::<bool>(), 100),
            open: bool,
        ) {
            let text = parts.concat();
            let mut pieces = vec![String::new()];
            for (letter, cut) in text.chars().zip(cuts) {
                if cut {
                    pieces.push(String::new());
                }
                pieces.last_mut().unwrap().push(letter);
            }
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let whole = sorted(open, &[&text]);
            prop_assert_eq!(sorted(open, &pieces), whole.clone());
            // Nothing is lost but a tag or two, and white space beside them.
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '|').count();
            let lost = letters(&text) - letters(&whole.0) - letters(&whole.1);
            prop_assert!([0, OPENING.len(), CLOSING.len(), OPENING.len() + CLOSING.len()].contains(&lost), "{}", lost);
        }
    }
}
