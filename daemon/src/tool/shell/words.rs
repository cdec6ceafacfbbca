//! Words, assignments and quotes.

use super::parser::{Parser, Read, is_meta};
use super::types::{Assignment, Shape, Word, WordPiece, is_plain};

/// How far a glob's `]` and a brace expansion's `}` are looked for, in bytes. Beyond it the word may be anything.
const AHEAD: usize = 256;

/// The quotes around the text that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    /// Nothing.
    None,
    /// `"…"`
    Double,
    /// The text of a here-document.
    Here,
}

impl Word {
    pub(super) fn push(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(WordPiece::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(WordPiece::Text(text.to_owned())),
        }
    }

    pub(super) fn push_unknown(&mut self, piece: WordPiece) {
        self.is_plain = false;
        self.pieces.push(piece);
    }

    /// The word at its end.
    fn finished(mut self) -> Self {
        let text = |piece: &WordPiece| match piece {
            WordPiece::Text(text) => Some(text.clone()),
            WordPiece::Unknown | WordPiece::Split => None,
        };
        self.literal = self.pieces.iter().map(text).collect();
        self
    }
}

impl<'a> Parser<'a, '_> {
    /// A bounded part of what stands behind the next byte, so that a line of signs is read in linear time.
    fn ahead(&self) -> &'a str {
        let rest = self.rest().get(1..).unwrap_or_default();
        match rest.char_indices().map(|(at, _)| at).find(|at| *at >= AHEAD) {
            Some(end) => rest.get(..end).unwrap_or(rest),
            None => rest,
        }
    }
}

impl Parser<'_, '_> {
    /// The word that is next; there is one.
    pub(super) fn word(&mut self) -> Read<Word> {
        let start = self.at;
        let mut word = Word { is_plain: true, ..Word::default() };
        self.parts(&mut word)?;
        if self.at == start {
            return self.unsure("a word is missing");
        }
        word.text = self.place(start);
        Ok(word.finished())
    }

    /// The rest of a word.
    fn parts(&mut self, word: &mut Word) -> Read<()> {
        let start = self.at;
        loop {
            self.skip_continued();
            let Some(c) = self.rest().chars().next() else { return Ok(()) };
            match c {
                '<' | '>' if self.begins_substitution() => {
                    self.at += 1;
                    self.substitution()?;
                    word.push_unknown(WordPiece::Unknown);
                }
                _ if u8::try_from(c).is_ok_and(is_meta) => return Ok(()),
                '\'' => self.single(word)?,
                '"' => {
                    self.at += 1;
                    word.is_quoted = true;
                    self.deeper(|this| this.double(word))?;
                }
                '\\' => self.escaped(word)?,
                '$' => self.dollar(word, Quote::None)?,
                '`' => self.backticks(word, Quote::None)?,
                _ => self.unquoted(word, c, start),
            }
        }
    }

    /// A character outside of quotes that is neither one nor an expansion's.
    fn unquoted(&mut self, word: &mut Word, c: char, start: usize) {
        let before = self.text.get(start..self.at).and_then(|text| text.chars().next_back());
        match c {
            '*' | '?' => {
                word.has_glob = true;
                word.push_unknown(WordPiece::Unknown);
            }
            '[' => return self.bracket(word),
            '~' if matches!(before, None | Some('=' | ':')) => {
                word.push_unknown(WordPiece::Unknown);
                let name = self.rest().find(|c: char| !(c.is_alphanumeric() || "~+-._".contains(c)));
                self.at += name.unwrap_or(self.rest().len());
                return;
            }
            '{' if self.is_brace() => {
                word.push_unknown(WordPiece::Split);
                word.push("{");
            }
            '{' | '}' if before.is_some() => word.push(c.encode_utf8(&mut [0; 4])),
            _ => {
                word.is_plain &= is_plain(c) || "~^".contains(c);
                word.push(c.encode_utf8(&mut [0; 4]));
            }
        }
        self.at += c.len_utf8();
    }

    /// `[`, with what a glob has behind it.
    fn bracket(&mut self, word: &mut Word) {
        let rest = self.ahead();
        let end = rest.find(|c: char| u8::try_from(c).is_ok_and(|byte| is_meta(byte) || b"'\"\\$`".contains(&byte)));
        let inside = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        // A `]` at the beginning stands for itself.
        let closed =
            inside.char_indices().skip_while(|(at, c)| (*at == 0 && "!^]".contains(*c)) || (*at == 1 && *c == ']'));
        let closing = closed.into_iter().find(|(_, c)| *c == ']').map(|(at, _)| at);
        self.at += 1;
        word.is_plain = false;
        match (closing, end.and_then(|end| rest.get(end..)).and_then(|rest| rest.chars().next())) {
            (Some(closing), _) => {
                word.has_glob = true;
                word.push_unknown(WordPiece::Unknown);
                self.at += closing + 1;
            }
            // What is quoted or expanded may close it, or what is too far away.
            (None, Some('\'' | '"' | '\\' | '$' | '`')) => word.push_unknown(WordPiece::Split),
            (None, None) if rest.len() >= AHEAD => word.push_unknown(WordPiece::Split),
            (None, _) => word.push("["),
        }
    }

    /// Whether the `{` that is next may begin a brace expansion.
    fn is_brace(&self) -> bool {
        let mut rest = self.ahead();
        let mut has_choice = false;
        let is_far = rest.len() >= AHEAD;
        while let Some(c) = rest.chars().next() {
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            match c {
                '\'' | '"' => match rest.split_once(c) {
                    Some((_, after)) => rest = after,
                    None => return true,
                },
                '\\' => rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default(),
                '$' | '`' => return true,
                ',' => has_choice = true,
                '.' if rest.starts_with('.') => has_choice = true,
                '}' if has_choice => return true,
                _ if u8::try_from(c).is_ok_and(is_meta) => return false,
                _ => {}
            }
        }
        is_far
    }

    fn escaped(&mut self, word: &mut Word) -> Read<()> {
        self.at += 1;
        let Some(c) = self.rest().chars().next() else { return self.unsure("a backslash is the last character") };
        word.is_quoted = true;
        word.is_plain &= c.is_ascii();
        word.push(c.encode_utf8(&mut [0; 4]));
        self.at += c.len_utf8();
        Ok(())
    }

    /// Fails at a line end in quotes while a here-document is to begin at the next line.
    pub(super) fn breaks_line(&self, at: usize) -> Read<()> {
        let is_break = self.text.as_bytes().get(at) == Some(&b'\n') && !self.pending.is_empty();
        if is_break { self.unsure("a here-document begins within something else") } else { Ok(()) }
    }

    fn single(&mut self, word: &mut Word) -> Read<()> {
        self.at += 1;
        let Some((inside, _)) = self.rest().split_once('\'') else { return self.unsure("a quote is not closed") };
        if inside.contains('\n') && !self.pending.is_empty() {
            return self.unsure("a here-document begins within something else");
        }
        word.is_quoted = true;
        word.push(inside);
        self.at += inside.len() + 1;
        Ok(())
    }

    /// The rest of `"…"`.
    pub(super) fn double(&mut self, word: &mut Word) -> Read<()> {
        loop {
            match self.peek() {
                None => return self.unsure("a quote is not closed"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => self.quoted(word, Quote::Double)?,
            }
        }
    }

    /// The text of a here-document, up to the end.
    pub(super) fn here_text(&mut self, word: &mut Word) -> Read<()> {
        while self.peek().is_some() {
            self.quoted(word, Quote::Here)?;
        }
        Ok(())
    }

    /// A character in double quotes or a here-document, or the expansion that it begins.
    fn quoted(&mut self, word: &mut Word, quote: Quote) -> Read<()> {
        self.breaks_line(self.at)?;
        let Some(c) = self.rest().chars().next() else { return Ok(()) };
        match c {
            '$' => return self.dollar(word, quote),
            '`' => return self.backticks(word, quote),
            '\\' => {
                self.at += 1;
                let next = self.rest().chars().next();
                match next {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '\\')) => word.push(c.encode_utf8(&mut [0; 4])),
                    Some('"') if quote == Quote::Double => word.push("\""),
                    Some(c) => {
                        word.push("\\");
                        word.push(c.encode_utf8(&mut [0; 4]));
                    }
                    None => return self.unsure("a quote is not closed"),
                }
                self.breaks_line(self.at)?;
                self.at += next.map_or(0, char::len_utf8);
                return Ok(());
            }
            _ => word.push(c.encode_utf8(&mut [0; 4])),
        }
        self.at += c.len_utf8();
        Ok(())
    }

    /// The assignment that is next, if one is.
    pub(super) fn assignment(&mut self) -> Read<Option<Assignment>> {
        let start = self.at;
        let Some((name, has_index)) = self.assigned_name()? else {
            self.at = start;
            return Ok(None);
        };
        let appends = self.text.as_bytes().get(self.at) == Some(&b'+');
        self.at += usize::from(appends);
        self.skip_continued();
        self.at += 1;
        self.skip_continued();
        if self.peek() == Some(b'(') {
            if has_index {
                return self.unsure("an array is out of place");
            }
            self.deeper(Self::array)?;
            self.raise(Shape::Other);
            return Ok(Some(Assignment { text: self.place(start), name, value: None, is_plain: false }));
        }
        let mut word = Word { is_plain: true, ..Word::default() };
        self.parts(&mut word)?;
        let word = word.finished();
        let is_simple = !appends && !has_index;
        let value = word.literal.filter(|_| is_simple);
        let is_plain = word.is_plain && value.is_some();
        Ok(Some(Assignment { text: self.place(start), name, value, is_plain }))
    }

    /// The name in front of `=` or `+=`, and whether an index stands behind it; stops at the sign.
    fn assigned_name(&mut self) -> Read<Option<(String, bool)>> {
        let mut name = String::new();
        loop {
            self.skip_continued();
            match self.peek() {
                Some(byte)
                    if byte == b'_' || byte.is_ascii_alphabetic() || !name.is_empty() && byte.is_ascii_digit() =>
                {
                    name.push(char::from(byte));
                    self.at += 1;
                }
                _ => break,
            }
        }
        if name.is_empty() {
            return Ok(None);
        }
        let has_index = self.peek() == Some(b'[');
        if has_index {
            let inside = self.rest().split(']').next().unwrap_or_default().to_owned();
            if inside.len() == self.rest().len() || inside.contains(|c: char| " \t\n;&|()<>'\"\\`".contains(c)) {
                return self.unsure("an index is not plain");
            }
            self.at += inside.len() + 1;
            self.skip_continued();
        }
        let is_sign = self.peek() == Some(b'=')
            || self.peek() == Some(b'+') && {
                let rest = self.rest().get(1..).unwrap_or_default();
                rest.trim_start_matches("\\\n").starts_with('=')
            };
        Ok(is_sign.then_some((name, has_index)))
    }

    /// `( … )` behind the name of an array.
    fn array(&mut self) -> Read<()> {
        self.at += 1;
        loop {
            self.skip_blanks();
            match self.peek() {
                None => return self.unsure("an array has no end"),
                Some(b')') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\n') => {
                    self.breaks_line(self.at)?;
                    self.at += 1;
                }
                Some(byte) if is_meta(byte) && !self.begins_substitution() => {
                    return self.unsure("an operator is out of place");
                }
                Some(b'[') => {
                    let inside = self.rest().split(']').next().unwrap_or_default();
                    if inside.len() == self.rest().len() || inside.contains(|c: char| " \t\n;&|()<>'\"\\`".contains(c))
                    {
                        return self.unsure("an index is not plain");
                    }
                    self.word()?;
                }
                Some(_) => drop(self.word()?),
            }
        }
    }
}
