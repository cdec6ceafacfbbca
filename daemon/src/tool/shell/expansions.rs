//! Expansions: `$name`, `${…}`, `$(…)`, `$((…))`, backticks, `$'…'` and process substitution. Their commands are read like any other.

use super::parser::{Parser, Read, program};
use super::types::{Operator, Shape, Word, WordPiece};
use super::words::Quote;

impl Parser<'_, '_> {
    /// `$` and what belongs to it.
    pub(super) fn dollar(&mut self, word: &mut Word, quote: Quote) -> Read<()> {
        let start = self.at;
        self.at += 1;
        self.skip_continued();
        let mut piece = if quote == Quote::None { WordPiece::Split } else { WordPiece::Unknown };
        match self.peek() {
            Some(b'(') if self.peek_at(1) == Some(b'(') && self.is_arithmetic(self.at + 2) => {
                self.raise(Shape::Other);
                self.at += 2;
                self.deeper(|this| this.arithmetic(b')', false))?;
            }
            Some(b'(') => self.substitution()?,
            Some(b'{') => {
                self.raise(Shape::Other);
                self.at += 1;
                self.deeper(|this| this.parameter(quote))?;
                // Each element is a word, also in quotes.
                if self.text.get(start..self.at).is_some_and(|text| text.contains(['@', '*'])) {
                    piece = WordPiece::Split;
                }
            }
            Some(b'[') => {
                self.raise(Shape::Other);
                self.at += 1;
                self.deeper(|this| this.arithmetic(b']', false))?;
            }
            Some(b'\'') if quote == Quote::None => return self.ansi(word),
            Some(b'"') if quote == Quote::None => {
                self.at += 1;
                (word.is_quoted, word.is_plain) = (true, false);
                return self.deeper(|this| this.double(word));
            }
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                self.raise(Shape::Other);
                while self.peek().is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                    self.at += 1;
                    self.skip_continued();
                }
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?$!-".contains(&byte) => {
                self.raise(Shape::Other);
                self.at += 1;
                if b"@*".contains(&byte) {
                    piece = WordPiece::Split;
                }
            }
            _ => {
                word.push("$");
                word.is_plain &= quote != Quote::None;
                return Ok(());
            }
        }
        word.is_quoted |= quote != Quote::None;
        word.push_unknown(piece);
        Ok(())
    }

    /// `(…)` behind `$`, `<` or `>`.
    pub(super) fn substitution(&mut self) -> Read<()> {
        self.raise(Shape::Other);
        let outside = std::mem::take(&mut self.pending);
        let (start, compounds, direct) = (self.at, self.compounds, std::mem::take(&mut self.direct));
        let (first, redirected) = (self.out.commands.len(), self.out.redirections.len());
        self.at += 1;
        self.within(
            |context| (context.in_substitution, context.fed_by) = (true, None),
            |this| {
                this.list()?;
                this.closed_by(")")
            },
        )?;
        if !self.pending.is_empty() {
            return self.unsure("a here-document has no text");
        }
        // bash 5.2 writes a substitution anew before it runs it, and places the text of a document wrongly beside other commands.
        let of_simple = self.out.commands.iter().skip(first).flat_map(|command| &command.redirections);
        let of_compound = self.out.redirections.iter().skip(redirected);
        let has_document = of_simple.chain(of_compound).any(|it| it.operator == Operator::HereDocument);
        let is_one = self.direct == 1 && self.compounds == compounds;
        self.direct = direct;
        if has_document && !is_one {
            return self.unsure("a here-document in a substitution stands beside other commands");
        }
        let has_lines = self.text.get(start..self.at).is_some_and(|text| text.contains('\n'));
        self.pending = outside;
        if has_lines && !self.pending.is_empty() {
            return self.unsure("a here-document begins within something else");
        }
        Ok(())
    }

    /// `` `…` ``, whose text is read with one level of backslashes taken away.
    pub(super) fn backticks(&mut self, word: &mut Word, quote: Quote) -> Read<()> {
        self.raise(Shape::Other);
        let start = self.at;
        self.at += 1;
        let mut inside = String::new();
        loop {
            self.breaks_line(self.at)?;
            let Some(c) = self.rest().chars().next() else { return self.unsure("a quote is not closed") };
            self.at += c.len_utf8();
            match c {
                '`' => break,
                '\\' => {
                    let next = self.rest().chars().next();
                    self.at += next.map_or(0, char::len_utf8);
                    let is_taken = |c: &char| "$`\\".contains(*c) || *c == '"' && quote == Quote::Double;
                    if next.filter(is_taken).is_none() {
                        inside.push('\\');
                    }
                    inside.extend(next);
                }
                c => inside.push(c),
            }
        }
        let place = Some(self.place(start));
        let (depth, mut context) = (self.depth, self.context);
        (context.in_substitution, context.fed_by) = (true, None);
        let mut parser = Parser { place, depth, context, ..Parser::of(&inside, self.out) };
        parser.deeper(program)?;
        word.is_quoted |= quote != Quote::None;
        word.push_unknown(if quote == Quote::None { WordPiece::Split } else { WordPiece::Unknown });
        Ok(())
    }

    /// The rest of `${…}`.
    fn parameter(&mut self, quote: Quote) -> Read<()> {
        let start = self.at;
        // `${ COMMAND; }` of bash 5.3.
        if matches!(self.peek(), None | Some(b' ' | b'\t' | b'\n' | b'|' | b'(' | b'}')) {
            return self.unsure("an expansion has no name");
        }
        let mut unused = Word::default();
        loop {
            self.breaks_line(self.at)?;
            let Some(c) = self.rest().chars().next() else { return self.unsure("an expansion has no end") };
            match c {
                '}' => {
                    let prompts = self.text.get(start..self.at).is_some_and(|text| text.ends_with("@P"));
                    self.at += 1;
                    return if prompts { self.unsure("an expansion runs what a variable says") } else { Ok(()) };
                }
                '$' => self.dollar(&mut unused, if quote == Quote::None { Quote::None } else { Quote::Double })?,
                '`' => self.backticks(&mut unused, quote)?,
                '"' => {
                    self.at += 1;
                    self.deeper(|this| this.double(&mut unused))?;
                }
                '\'' => self.single_in_parameter(quote)?,
                '\\' => {
                    self.at += 1;
                    self.breaks_line(self.at)?;
                    self.at += self.rest().chars().next().map_or(0, char::len_utf8);
                }
                '<' | '>' if self.begins_substitution() => {
                    return self.unsure("a process substitution is part of an expansion");
                }
                c => self.at += c.len_utf8(),
            }
        }
    }

    /// Single quotes in `${…}`. In double quotes they quote or stand for themselves, depending on the operator: what is read the same
    /// in both ways is certain.
    fn single_in_parameter(&mut self, quote: Quote) -> Read<()> {
        let inside = self.rest().get(1..).and_then(|rest| rest.split_once('\'')).map(|(inside, _)| inside);
        let Some(inside) = inside else { return self.unsure("a quote is not closed") };
        let is_special = |c: char| "}\"$`\\\n".contains(c);
        if (quote != Quote::None && inside.contains(is_special)) || inside.contains('\n') && !self.pending.is_empty() {
            return self.unsure("a quote in an expansion has two meanings");
        }
        self.at += inside.len() + 2;
        Ok(())
    }

    /// Whether `((` begins arithmetic and no subshell; `from` is behind it. Text that is neither is read as arithmetic, and is unsure.
    pub(super) fn is_arithmetic(&self, from: usize) -> bool {
        let mut depth = 0_usize;
        let bytes = self.text.as_bytes();
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            match byte {
                b'(' => depth += 1,
                b')' if depth == 0 => return bytes.get(at + 1) == Some(&b')'),
                b')' => depth -= 1,
                b'$' | b'`' | b'\'' | b'"' | b'\\' => return true,
                _ => {}
            }
        }
        true
    }

    /// Arithmetic up to `))` or `]`, and past it. `in_command`: of `(( ))` and `for (( ))`.
    pub(super) fn arithmetic(&mut self, end: u8, in_command: bool) -> Read<()> {
        let mut unused = Word::default();
        let mut depth = 0_usize;
        loop {
            self.breaks_line(self.at)?;
            let Some(byte) = self.peek() else { return self.unsure("arithmetic has no end") };
            match byte {
                b'$' => {
                    self.dollar(&mut unused, Quote::Double)?;
                    continue;
                }
                b'`' => {
                    self.backticks(&mut unused, Quote::Double)?;
                    continue;
                }
                b'(' | b'[' => depth += 1,
                _ if byte == end && depth == 0 => {
                    self.at += 1;
                    let is_closed = end == b']' || self.eat(")");
                    return if is_closed { Ok(()) } else { self.unsure("it may be arithmetic or a subshell") };
                }
                b')' | b']' if depth == 0 => return self.unsure("a parenthesis is out of place"),
                b')' | b']' => depth -= 1,
                b';' if in_command => {}
                _ if byte.is_ascii_alphanumeric() || b" \t\n_+-*/%<>=!&|^~?:,.#@".contains(&byte) => {}
                _ => return self.unsure("it may be arithmetic or a subshell"),
            }
            self.at += 1;
        }
    }

    /// `$'…'`, decoded.
    fn ansi(&mut self, word: &mut Word) -> Read<()> {
        self.at += 1;
        (word.is_quoted, word.is_plain) = (true, false);
        let mut bytes = Vec::new();
        loop {
            self.breaks_line(self.at)?;
            let Some(c) = self.rest().chars().next() else { return self.unsure("a quote is not closed") };
            self.at += c.len_utf8();
            match c {
                '\'' => break,
                '\\' => self.ansi_escape(&mut bytes)?,
                c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => word.push(&text),
            _ => word.push_unknown(WordPiece::Unknown),
        }
        Ok(())
    }

    fn ansi_escape(&mut self, bytes: &mut Vec<u8>) -> Read<()> {
        let Some(c) = self.rest().chars().next() else { return self.unsure("a quote is not closed") };
        self.at += c.len_utf8();
        let number = |this: &mut Self, radix: u32, most: usize| {
            let is_digit = |c: &char| c.is_digit(radix);
            let digits: String = this.rest().chars().take(most).take_while(is_digit).collect();
            this.at += digits.len();
            u32::from_str_radix(&digits, radix).ok()
        };
        let byte = match c {
            'a' => 7,
            'b' => 8,
            'e' | 'E' => 27,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '\'' | '"' | '?' => u8::try_from(c).unwrap_or_default(),
            '0'..='7' => {
                self.at -= 1;
                u8::try_from(number(self, 8, 3).unwrap_or_default() & 0xff).unwrap_or_default()
            }
            'x' | 'u' | 'U' => {
                let most = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let Some(code) = number(self, 16, most) else { return self.unsure("a character has no number") };
                if c != 'x' {
                    let Some(c) = char::from_u32(code) else { return self.unsure("a number is no character") };
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    return Ok(());
                }
                u8::try_from(code).unwrap_or_default()
            }
            'c' => return self.unsure("a control character is part of a word"),
            c => {
                bytes.push(b'\\');
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
        };
        bytes.push(byte);
        Ok(())
    }
}
