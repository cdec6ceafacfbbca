//! Thinking within the text of an answer: between `<think>` and `</think>` at its beginning.
//!
//! The tags may be cut anywhere. Some templates put the opening tag into the request, so the answer begins with thinking: with a
//! flag for that, everything up to the closing tag is thinking. Without it, text that was shown stays text; the closing tag is
//! hidden, and a new block follows. A tag in quotes, or after an opening one, is plain text.
//!
//! Tags and adjacent white space become hidden blocks, so the text goes back to the model unchanged.

use std::borrow::Cow;

use linger_protocol::message::ContentBlock;
use serde_json::json;

use super::hosted::readable;
use super::response_builder::ResponseBuilder;
use super::types::{Message, StreamEvent};
use super::wire;

/// The field of a message with text, and maybe thinking.
pub(super) const CONTENT: &str = "content";

/// The parser's state. Tags count only at the beginning of a text.
#[derive(Debug)]
pub(super) enum ThinkTags {
    /// At the beginning, with a possible part of a tag held back; how the text continues without an opening tag.
    Before(String, Start),
    /// Between the tags, with a possible part of the closing tag held back.
    Inside(String),
    /// After the closing tag; white space still belongs to it.
    After,
    /// In text without an opening tag: its last character, and a possible part of a tag held back.
    Text(Option<char>, String),
    /// In plain text: no tag counts any more.
    Outside,
}

/// How an answer without an opening tag begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With text; a closing tag in it counts.
    Text,
    /// With thinking.
    Inside,
    /// With plain text.
    Outside,
}

impl Default for ThinkTags {
    fn default() -> Self {
        Self::new(false)
    }
}

/// A piece of an answer; never empty.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Thinking(String),
    /// A tag and adjacent white space.
    Tag(String),
}

impl Piece {
    fn is_empty(&self) -> bool {
        let (Self::Text(text) | Self::Thinking(text) | Self::Tag(text)) = self;
        text.is_empty()
    }

    /// Adds it to the answer.
    pub(super) fn append_to(&self, answer: &mut ResponseBuilder, out: &mut Vec<StreamEvent>) {
        match self {
            Self::Text(text) => answer.text(text, out),
            Self::Thinking(text) => answer.thinking(Some(json!({"field": CONTENT})), text, out),
            Self::Tag(text) => answer.hidden(CONTENT, text, out),
        }
    }
}

/// Whether a block is thinking from within the text.
pub(super) fn is_within_text(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Thinking { native, .. } if wire::native_str(native, "field") == Some(CONTENT))
}

/// The text of an answer with its tags, unless thinking comes before it; or the thinking, if there is nothing else: a model whose
/// answers begin with thinking may skip it.
pub fn text_with_tags(content: &[ContentBlock]) -> String {
    let is_thought = content.iter().any(is_within_text);
    let is_said = content.iter().filter_map(ContentBlock::as_text).any(|text| !text.trim().is_empty());
    let of = |block: &ContentBlock| match block {
        ContentBlock::Text { text } if is_said && !is_thought => Some(text.clone()),
        ContentBlock::Opaque { native } if is_said && !is_thought => native[CONTENT].as_str().map(str::to_owned),
        ContentBlock::Thinking { text, .. } if is_thought && !is_said && is_within_text(block) => Some(text.clone()),
        _ => None,
    };
    content.iter().filter_map(of).collect()
}

/// The text of an answer, unchanged and with its thinking if it is the model's own; and whether it has more than thinking.
pub(super) fn whole_text(message: &Message, own: bool) -> (String, bool) {
    let (mut whole, mut says, mut apart) = (String::new(), false, false);
    for block in &message.content {
        let part = match block {
            // An interrupted answer has no hidden blocks between its texts.
            ContentBlock::Text { text } if own => {
                let part = wire::without_nul(text);
                if apart {
                    // A blank paragraph says nothing; another model's is left out too.
                    if part.trim().is_empty() {
                        continue;
                    }
                    whole.push_str("\n\n");
                }
                apart |= !part.is_empty();
                part
            }
            ContentBlock::Text { text } => wire::visible(text).unwrap_or_default(),
            // Its text is a paragraph.
            ContentBlock::Hosted { .. } => {
                let part = readable(block).map(Cow::from).unwrap_or_default();
                if own && !whole.is_empty() && !part.is_empty() {
                    whole.push_str("\n\n");
                }
                apart |= !part.is_empty();
                part
            }
            ContentBlock::Thinking { text, .. } if own && is_within_text(block) => {
                whole.push_str(&wire::without_nul(text));
                apart = false;
                continue;
            }
            ContentBlock::Opaque { native } if own => {
                whole.push_str(native[CONTENT].as_str().unwrap_or_default());
                apart = false;
                continue;
            }
            // The form of earlier builds.
            ContentBlock::Thinking { text, native } if own && wire::native_str(native, "field") == Some("think") => {
                whole.push_str(&format!("<think>{}</think>\n\n", wire::without_nul(text)));
                continue;
            }
            _ => {
                apart = false;
                continue;
            }
        };
        if !own && !whole.is_empty() && !part.is_empty() {
            whole.push_str("\n\n");
        }
        says |= !part.trim().is_empty();
        whole.push_str(&part);
    }
    // Own thinking that goes back unchanged counts as content.
    says |= own && !whole.trim().is_empty();
    if whole.trim().is_empty() {
        // No format takes blank text.
        whole.clear();
    }
    (whole, says)
}

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

impl ThinkTags {
    /// For an answer; `open` if it begins with thinking.
    pub(super) fn new(open: bool) -> Self {
        Self::Before(String::new(), if open { Start::Inside } else { Start::Text })
    }

    /// For an answer in which only an opening tag counts.
    pub(super) fn tagged() -> Self {
        Self::Before(String::new(), Start::Outside)
    }

    /// Like [`Self::pause`]; no tag counts any more.
    pub(super) fn close(&mut self) -> Option<Piece> {
        let held = self.pause();
        match std::mem::replace(self, Self::Outside) {
            Self::Before(space, _) if !space.is_empty() => Some(Piece::Text(space)),
            _ => held,
        }
    }

    /// Whether a piece is plain text, a fast path.
    pub(super) fn is_plain(&mut self, piece: &str) -> bool {
        match self {
            Self::Outside => true,
            Self::Text(last, held) if held.is_empty() && !piece.contains('<') => {
                *last = piece.chars().last().or(*last);
                true
            }
            _ => false,
        }
    }

    /// Takes a piece of text; returns what is now decided.
    pub(super) fn push(&mut self, piece: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        self.take(piece, &mut out);
        out.retain(|piece| !piece.is_empty());
        out
    }

    /// Releases what was held back, because something else follows, or the end.
    pub(super) fn pause(&mut self) -> Option<Piece> {
        let (next, held) = match std::mem::replace(self, Self::Outside) {
            Self::Before(held, start) if held.trim().is_empty() => (Self::Before(held, start), None),
            Self::Before(held, Start::Inside) => (Self::Inside(String::new()), Some(Piece::Thinking(held))),
            Self::Before(held, Start::Text) => {
                (Self::Text(held.chars().last(), String::new()), Some(Piece::Text(held)))
            }
            Self::Before(held, Start::Outside) => (Self::Outside, Some(Piece::Text(held))),
            Self::Inside(held) => (Self::Inside(String::new()), Some(Piece::Thinking(held))),
            Self::Text(last, held) => {
                (Self::Text(held.chars().last().or(last), String::new()), Some(Piece::Text(held)))
            }
            other => (other, None),
        };
        *self = next;
        held.filter(|piece| !piece.is_empty())
    }

    fn take(&mut self, piece: &str, out: &mut Vec<Piece>) {
        match std::mem::replace(self, Self::Outside) {
            Self::Before(held, start) => {
                let held = held + piece;
                let closes = start != Start::Outside;
                let begun = held.trim_start();
                let mark = |rest: &str| Piece::Tag(held.strip_suffix(rest).unwrap_or_default().to_owned());
                if let Some(rest) = begun.strip_prefix(OPENING) {
                    out.push(mark(rest));
                    *self = Self::Inside(String::new());
                    self.take(rest, out);
                } else if let Some(rest) = begun.strip_prefix(CLOSING).filter(|_| closes) {
                    out.push(mark(rest));
                    *self = Self::After;
                    self.take(rest, out);
                } else if OPENING.starts_with(begun) || (closes && CLOSING.starts_with(begun)) {
                    *self = Self::Before(held, start);
                } else {
                    *self = match start {
                        Start::Text => Self::Text(None, String::new()),
                        Start::Inside => Self::Inside(String::new()),
                        Start::Outside => Self::Outside,
                    };
                    self.take(&held, out);
                }
            }
            Self::Inside(held) => {
                let held = held + piece;
                if let Some((thought, rest)) = held.split_once(CLOSING) {
                    out.extend([Piece::Thinking(thought.to_owned()), Piece::Tag(CLOSING.to_owned())]);
                    *self = Self::After;
                    self.take(rest, out);
                } else {
                    let (thought, kept) = held.split_at(held.len() - begun(&held, &[CLOSING]));
                    out.push(Piece::Thinking(thought.to_owned()));
                    *self = Self::Inside(kept.to_owned());
                }
            }
            Self::After => {
                let text = piece.trim_start();
                out.push(Piece::Tag(piece.strip_suffix(text).unwrap_or_default().to_owned()));
                out.push(Piece::Text(text.to_owned()));
                if text.is_empty() {
                    *self = Self::After;
                }
            }
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
        out.extend([Piece::Text(before.to_owned()), Piece::Tag(CLOSING.to_owned())]);
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
    use linger_protocol::message::{HostedPart, HostedTool};
    use proptest::prelude::*;

    use super::super::compat::Compat;
    use super::super::ollama::Ollama;
    use super::super::openai::OpenAi;
    use super::super::support;
    use super::super::types::Codec;
    use super::*;

    /// What `pieces` come to, with thoughts in brackets and marks in braces.
    fn sorted(open: bool, pieces: &[&str]) -> String {
        let mut think = ThinkTags::new(open);
        let mut out: Vec<Piece> = pieces.iter().flat_map(|piece| think.push(piece)).collect();
        out.extend(think.pause());
        assert_eq!(think.pause(), None);
        let written = |piece: Piece| match piece {
            Piece::Text(text) => text,
            Piece::Thinking(text) => format!("[{text}]"),
            Piece::Tag(text) => format!("{{{text}}}"),
        };
        out.into_iter().map(written).collect::<String>().replace("][", "").replace("}{", "")
    }

    /// `text` comes to this, wherever it is cut.
    fn check_cuts(open: bool, text: &str, expect: &str) {
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
    fn a_blank_paragraph_is_left_out_whoever_wrote_it() {
        let searched = |text: &str| ContentBlock::Hosted {
            tool: HostedTool::WebSearch,
            part: HostedPart::Call,
            text: text.to_owned(),
            native: None,
        };
        let message = support::assistant("p/m", vec![searched("a"), ContentBlock::text(" \n"), searched("b")]);
        assert_eq!(whole_text(&message, true), whole_text(&message, false));
        assert_eq!(whole_text(&message, true).0, "[web_search: a]\n\n[web_search: b]");
    }

    #[test]
    fn what_is_not_known_of_an_answer_that_broke_off_or_is_old_is_made_up() {
        let whole = |content: Vec<ContentBlock>| whole_text(&support::assistant("p/m", content), true).0;
        let text = |text: &str| ContentBlock::text(text);
        assert_eq!(whole(vec![text("hm"), text("so")]), "hm\n\nso");
        assert_eq!(whole(vec![text(""), text("hm"), text(""), text("so")]), "hm\n\nso");
        assert_eq!(whole(vec![text("hm"), support::unshown("</think>"), text("so")]), "hm</think>so");
        let thought = support::thought("hm", json!({"field": "think"}));
        assert_eq!(whole(vec![thought, text("so")]), "<think>hm</think>\n\nso");
    }

    #[test]
    fn tags_are_found_wherever_the_text_is_cut() {
        let check = |text: &str, expect: &str| check_cuts(false, text, expect);
        check("<think>hm ä</think>\n\nso", "{<think>}[hm ä]{</think>\n\n}so");
        check("\n <think></th</think>so <think>", "{\n <think>}[</th]{</think>}so <think>");
        check("<think>cut off</thi", "{<think>}[cut off</thi]");
        check("<thin", "<thin");
        check("a <think>b</think>", "a <think>b</think>");
        check("<think></think>", "{<think></think>}");
        check("<think>a</think>b</think>c", "{<think>}[a]{</think>}b</think>c");
    }

    #[test]
    fn a_closing_tag_without_an_opening_one_is_no_text_and_divides_it() {
        let check = |text: &str, expect: &str| check_cuts(false, text, expect);
        check("hm ä</think>so", "hm ä{</think>}so");
        check("hm\n</think>\n\nso </think>", "hm\n{</think>\n\n}so </think>");
        check(" </think>\nso", "{ </think>\n}so");
        check("a < b </thin", "a < b </thin");
        check("hm</think>", "hm{</think>}");
        check("a </th</think>b", "a </th{</think>}b");
        check("a <thi</think>b", "a <thi{</think>}b");
        // Somebody writes about it.
        check("the tag `</think>` and </think>", "the tag `</think>` and </think>");
        check("\"</think>\" closes", "\"</think>\" closes");
        check("after <think> comes </think>", "after <think> comes </think>");
    }

    #[test]
    fn an_answer_that_begins_inside_ends_its_thinking_at_the_closing_tag() {
        let check = |text: &str, expect: &str| check_cuts(true, text, expect);
        check("hm ä</think>\n\nso", "[hm ä]{</think>\n\n}so");
        check("<think>hm</think>so", "{<think>}[hm]{</think>}so");
        check("a <think> `b`</think>so </think>", "[a <think> `b`]{</think>}so </think>");
        check("</think>so", "{</think>}so");
        check("cut</thi", "[cut</thi]");
        check("<thin", "[<thin]");
        check(" \n", "");
    }

    proptest! {
        #[test]
        fn an_answer_goes_back_to_the_letter(pieces in prop::collection::vec(
            prop::sample::select(vec!["<think>", "</think>", "<", "think>", "a", "ä ", "\n", "\n\n", " ", "THOUGHT"]),
            0..12,
        )) {
            let openai = |piece: &str| match piece {
                "THOUGHT" => json!({"choices": [{"delta": {"reasoning": "hm"}}]}),
                piece => json!({"choices": [{"delta": {"content": piece}}]}),
            };
            let ollama = |piece: &str| match piece {
                "THOUGHT" => json!({"message": {"thinking": "hm"}}),
                piece => json!({"message": {"content": piece}}),
            };
            let pieces: Vec<&str> = pieces.into_iter().chain(["</think>", "said"]).collect();
            let chunks: String = pieces.iter().map(|piece| format!("data: {}\n\n", openai(piece))).collect();
            let lines: String = pieces.iter().map(|piece| format!("{}\n", ollama(piece))).collect();
            let text = pieces.concat().replace("THOUGHT", "");
            let check = |codec: &dyn Codec, stream: String| {
                let answer = support::decode(codec, &stream, 7).into_iter().find_map(|event| match event {
                    StreamEvent::Done(response) => Some(support::assistant("p/m", response.content)),
                    _ => None,
                });
                let question = support::user(vec![ContentBlock::text("say it")]);
                let body = support::body(codec, &[question, answer.unwrap()]);
                let messages = body["messages"].as_array().unwrap();
                assert_eq!(messages.last().unwrap()["content"], text);
            };
            check(&OpenAi::new(Compat::NONE), chunks + "data: [DONE]\n\n");
            check(&Ollama::default(), lines + "{\"done\":true}\n");
        }

        #[test]
        fn cuts_make_no_difference_and_nothing_is_lost(
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
            let expect = if text.trim().is_empty() { "" } else { &text };
            prop_assert_eq!(whole.replace(['[', ']', '{', '}'], ""), expect);
        }
    }
}
