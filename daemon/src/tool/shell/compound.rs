//! Compound commands and functions.

use super::parser::{Parser, Read, is_meta};
use super::types::Shape;

impl Parser<'_, '_> {
    /// A command: simple, compound, or the definition of a function.
    pub(super) fn command(&mut self) -> Read<()> {
        self.skip_blanks();
        if self.peek() == Some(b'(') {
            self.compound("(", self.at)?;
            return self.compound_redirections();
        }
        match self.reserved() {
            Some(("function", end)) => self.function_keyword(end),
            Some(("coproc", end)) => self.coprocess(end),
            Some((word @ ("{" | "if" | "while" | "until" | "for" | "select" | "case" | "[["), end)) => {
                self.compound(word, end)?;
                self.compound_redirections()
            }
            Some(("in" | "]]", _)) | None => self.simple(),
            Some(_) => self.unsure("a reserved word is out of place"),
        }
    }

    fn compound(&mut self, word: &str, end: usize) -> Read<()> {
        self.at = end;
        self.compounds += 1;
        let shape = if ["(", "{", "if", "while", "until"].contains(&word) { Shape::Grouped } else { Shape::Other };
        self.raise(shape);
        match word {
            "(" if self.rest().starts_with("((") && self.is_arithmetic(self.at + 2) => {
                self.raise(Shape::Other);
                self.at += 2;
                self.deeper(|this| this.arithmetic(b')', true))
            }
            "(" => self.within(
                |context| context.in_subshell = true,
                |this| {
                    this.at += 1;
                    this.list()?;
                    this.closed_by(")")
                },
            ),
            "{" => self.deeper(|this| {
                this.list()?;
                this.expect_reserved("}")
            }),
            "if" => self.deeper(Self::conditional),
            "while" | "until" => self.in_loop(|this| {
                this.list()?;
                this.body()
            }),
            "for" | "select" => self.in_loop(Self::iteration),
            "case" => self.deeper(Self::case),
            _ => self.deeper(Self::condition),
        }
    }

    fn in_loop(&mut self, read: impl FnOnce(&mut Self) -> Read<()>) -> Read<()> {
        self.within(|context| context.in_loop = true, read)
    }

    pub(super) fn closed_by(&mut self, token: &str) -> Read<()> {
        self.skip_lines()?;
        if self.eat(token) { Ok(()) } else { self.unsure("a parenthesis is not closed") }
    }

    fn compound_redirections(&mut self) -> Read<()> {
        loop {
            self.skip_blanks();
            match self.redirection()? {
                Some(redirection) => self.out.redirections.push(redirection),
                None => return Ok(()),
            }
        }
    }

    fn conditional(&mut self) -> Read<()> {
        self.list()?;
        self.expect_reserved("then")?;
        self.list()?;
        while self.eat_reserved("elif") {
            self.list()?;
            self.expect_reserved("then")?;
            self.list()?;
        }
        if self.eat_reserved("else") {
            self.list()?;
        }
        self.expect_reserved("fi")
    }

    /// `do … done`, or `{ … }`.
    fn body(&mut self) -> Read<()> {
        self.skip_lines()?;
        if self.eat_reserved("{") {
            self.list()?;
            return self.expect_reserved("}");
        }
        self.expect_reserved("do")?;
        self.list()?;
        self.expect_reserved("done")
    }

    /// The rest of a `for` or `select`, behind that word.
    fn iteration(&mut self) -> Read<()> {
        self.skip_blanks();
        if self.rest().starts_with("((") {
            self.at += 2;
            self.arithmetic(b')', true)?;
            self.skip_blanks();
            self.eat(";");
            return self.body();
        }
        let name = self.word()?;
        if name.literal.is_none() || name.is_quoted {
            return self.unsure("a loop has no plain name");
        }
        self.skip_lines()?;
        if self.eat_reserved("in") {
            loop {
                self.skip_blanks();
                match self.peek() {
                    Some(b';' | b'\n') => break,
                    Some(byte) if is_meta(byte) && !self.begins_substitution() => {
                        return self.unsure("an operator is out of place");
                    }
                    Some(_) => drop(self.word()?),
                    None => return self.unsure("a loop has no end"),
                }
            }
        }
        self.skip_blanks();
        if self.peek() == Some(b';') {
            self.at += 1;
        }
        self.body()
    }

    fn case(&mut self) -> Read<()> {
        // bash 5.2 does not find the end of such a substitution.
        if self.is_timed && self.context.in_substitution {
            return self.unsure("a `case` stands behind `time` in a substitution");
        }
        self.skip_blanks();
        self.word()?;
        self.skip_lines()?;
        if !self.eat_reserved("in") {
            return self.unsure("a reserved word is missing");
        }
        loop {
            self.skip_lines()?;
            if self.eat_reserved("esac") {
                return Ok(());
            }
            self.eat("(");
            loop {
                self.skip_blanks();
                if self.peek().is_none_or(is_meta) {
                    return self.unsure("a pattern is missing");
                }
                self.word()?;
                self.skip_blanks();
                if !self.eat("|") {
                    break;
                }
            }
            if !self.eat(")") {
                return self.unsure("a pattern has no end");
            }
            self.list()?;
            if !self.eat(";;&") && !self.eat(";;") && !self.eat(";&") {
                return self.expect_reserved("esac");
            }
        }
    }

    /// The rest of `[[ … ]]`.
    fn condition(&mut self) -> Read<()> {
        loop {
            while self.rest().starts_with([' ', '\t', '\n']) || self.rest().starts_with("\\\n") {
                self.breaks_line(self.at)?;
                self.at += 1;
            }
            if self.eat_reserved("]]") {
                return Ok(());
            }
            match self.peek() {
                None => return self.unsure("a condition has no end"),
                Some(b'#' | b';') => return self.unsure("a sign is out of place"),
                Some(b'&') if self.peek_at(1) != Some(b'&') => return self.unsure("a sign is out of place"),
                Some(b'&') => self.at += 2,
                Some(byte) if is_meta(byte) && !self.begins_substitution() => self.at += 1,
                Some(_) => drop(self.word()?),
            }
        }
    }

    fn function_keyword(&mut self, end: usize) -> Read<()> {
        self.at = end;
        self.skip_blanks();
        if self.peek().is_none_or(is_meta) || self.word()?.literal.is_none() {
            return self.unsure("a function has no plain name");
        }
        self.skip_blanks();
        if self.peek() == Some(b'(') { self.function_parens() } else { self.function_body() }
    }

    /// The parentheses behind a function's name, and its body.
    pub(super) fn function_parens(&mut self) -> Read<()> {
        self.at += 1;
        self.skip_blanks();
        if !self.eat(")") {
            return self.unsure("a parenthesis is out of place");
        }
        self.function_body()
    }

    fn function_body(&mut self) -> Read<()> {
        self.compounds += 1;
        self.raise(Shape::Other);
        self.skip_lines()?;
        let is_compound = self.peek() == Some(b'(')
            || self
                .reserved()
                .is_some_and(|(word, _)| ["{", "if", "while", "until", "for", "select", "case", "[["].contains(&word));
        if !is_compound {
            return self.unsure("a function has no body");
        }
        self.within(|context| context.in_function = true, Self::command)
    }

    /// The rest of a `coproc`: a command, or a name and a compound command.
    fn coprocess(&mut self, end: usize) -> Read<()> {
        self.at = end;
        self.compounds += 1;
        self.raise(Shape::Other);
        let begins_compound = |this: &Self| {
            this.peek() == Some(b'(')
                || this.reserved().is_some_and(|(word, _)| {
                    ["{", "if", "while", "until", "for", "select", "case", "[["].contains(&word)
                })
        };
        self.within(
            |context| context.in_background = true,
            |this| {
                this.skip_blanks();
                if begins_compound(this) {
                    return this.command();
                }
                let (start, known) = (this.at, this.out.commands.len());
                if this.peek().is_none_or(is_meta) {
                    return this.simple();
                }
                let name = this.word()?;
                this.skip_blanks();
                if begins_compound(this) && name.literal.is_some() && !name.is_quoted {
                    return this.command();
                }
                // Its first word is read once more, as the command's.
                this.at = start;
                this.out.commands.truncate(known);
                this.simple()
            },
        )
    }
}
