//! The place in the text, and lists, pipelines and simple commands. Compound commands are in `compound`, words in `words`.

use std::ops::Range;

use super::types::{
    Assignment, CommandLine, MAX_COMMANDS, MAX_DEPTH, Redirection, Shape, Simple, Standing, Unsure, Word,
};

/// The outcome of reading a part: it stops at the first place that is not certain.
pub(super) type Read<T> = Result<T, Unsure>;

/// Words that bash reads specially in the place of a command.
const RESERVED: [&str; 22] = [
    "!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "select", "then",
    "time", "until", "while", "{", "}", "in", "]]",
];

/// Reserved words that end a list.
const CLOSING: [&str; 8] = ["do", "done", "elif", "else", "esac", "fi", "then", "}"];

/// Builtin commands whose arguments are read as assignments.
const DECLARING: [&str; 8] = ["alias", "declare", "eval", "export", "let", "local", "readonly", "typeset"];

/// Reads a text from front to back, into `out`.
pub(super) struct Parser<'a, 'o> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// The place of the whole text in the line, if it is not the line itself but was made of a part of it.
    pub(super) place: Option<Range<usize>>,
    pub(super) out: &'o mut CommandLine,
    pub(super) depth: usize,
    pub(super) context: Standing,
    /// Here-documents whose text begins at the next line.
    pub(super) pending: Vec<PendingDocument>,
    /// Compound commands and lists in the background so far.
    pub(super) compounds: usize,
    /// Simple commands of the innermost substitution.
    pub(super) direct: usize,
    /// Whether `time` was read.
    pub(super) is_timed: bool,
}

/// A here-document that is still to come.
pub(super) struct PendingDocument {
    pub(super) delimiter: String,
    pub(super) is_quoted: bool,
    pub(super) strips_tabs: bool,
}

/// Reads all of `text` as a program.
pub(super) fn program(parser: &mut Parser<'_, '_>) -> Read<()> {
    parser.list()?;
    if parser.at < parser.text.len() {
        return parser.unsure("it is no complete command");
    }
    if parser.pending.is_empty() { Ok(()) } else { parser.unsure("a here-document has no text") }
}

impl<'a, 'o> Parser<'a, 'o> {
    /// At the beginning of a text.
    pub(super) fn of(text: &'a str, out: &'o mut CommandLine) -> Self {
        let (at, place, depth, context, pending) = (0, None, 0, Standing::default(), Vec::new());
        Self { text, at, place, out, depth, context, pending, compounds: 0, direct: 0, is_timed: false }
    }

    pub(super) fn unsure<T>(&self, why: &'static str) -> Read<T> {
        let at = self.place.as_ref().map_or(self.at, |place| place.start);
        Err(Unsure { at, why })
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Moves past `token` if it is next, also across continued lines.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        let start = self.at;
        for byte in token.bytes() {
            if self.at > start {
                self.skip_continued();
            }
            if self.peek() != Some(byte) {
                self.at = start;
                return false;
            }
            self.at += 1;
        }
        true
    }

    /// Moves past backslashes at ends of lines.
    pub(super) fn skip_continued(&mut self) {
        while self.rest().starts_with("\\\n") {
            self.at += 2;
        }
    }

    /// Moves to the next token of this line: past blanks, continued lines and a comment.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            self.skip_continued();
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'#') => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    /// As [`Self::skip_blanks`], and past line ends, whose here-documents are read.
    pub(super) fn skip_lines(&mut self) -> Read<()> {
        self.skip_blanks();
        while self.peek() == Some(b'\n') {
            self.at += 1;
            self.here_documents()?;
            self.skip_blanks();
        }
        Ok(())
    }

    pub(super) fn place(&self, start: usize) -> Range<usize> {
        self.place.clone().unwrap_or(start..self.at)
    }

    pub(super) fn raise(&mut self, shape: Shape) {
        self.out.shape = self.out.shape.max(shape);
    }

    /// Reads a part that is one level deeper.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return self.unsure("it is nested too deeply");
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Reads a part whose commands stand in another place.
    pub(super) fn within<T>(
        &mut self,
        change: impl FnOnce(&mut Standing),
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<T> {
        let outside = self.context;
        change(&mut self.context);
        let result = self.deeper(read);
        self.context = outside;
        result
    }

    /// The reserved word that is next, and where it ends.
    pub(super) fn reserved(&self) -> Option<(&'static str, usize)> {
        const LONGEST: usize = 8;
        let (mut token, mut at) = (String::new(), self.at);
        while let Some(byte) = self.text.as_bytes().get(at).copied().filter(|byte| !is_meta(*byte)) {
            if self.text.get(at..).is_some_and(|rest| rest.starts_with("\\\n")) {
                at += 2;
                continue;
            }
            if token.len() == LONGEST || !byte.is_ascii() {
                return None;
            }
            token.push(char::from(byte));
            at += 1;
        }
        RESERVED.into_iter().find(|word| *word == token).map(|word| (word, at))
    }

    pub(super) fn eat_reserved(&mut self, word: &str) -> bool {
        match self.reserved() {
            Some((found, end)) if found == word => {
                self.at = end;
                true
            }
            _ => false,
        }
    }

    pub(super) fn expect_reserved(&mut self, word: &str) -> Read<()> {
        self.skip_lines()?;
        if self.eat_reserved(word) { Ok(()) } else { self.unsure("a reserved word is missing") }
    }

    /// Commands up to what ends them: `)`, `;;`, a closing reserved word or the end.
    pub(super) fn list(&mut self) -> Read<()> {
        loop {
            self.skip_lines()?;
            let ends = match self.peek() {
                None | Some(b')') => true,
                Some(b';') => [Some(b';'), Some(b'&')].contains(&self.peek_at(1)),
                _ => self.reserved().is_some_and(|(word, _)| CLOSING.contains(&word)),
            };
            if ends {
                return Ok(());
            }
            let first = self.out.commands.len();
            self.pipelines()?;
            self.skip_blanks();
            match (self.peek(), self.peek_at(1)) {
                (Some(b';'), Some(b';' | b'&')) => return Ok(()),
                (Some(b';'), _) => self.at += 1,
                (Some(b'&'), _) => {
                    self.compounds += 1;
                    self.at += 1;
                    self.raise(Shape::Other);
                    self.mark(first, |context| context.in_background = true);
                }
                (Some(b'\n'), _) => {}
                _ => return Ok(()),
            }
        }
    }

    fn mark(&mut self, first: usize, change: impl Fn(&mut Standing)) {
        for command in self.out.commands.iter_mut().skip(first) {
            change(&mut command.context);
        }
    }

    /// Pipelines joined by `&&` and `||`.
    fn pipelines(&mut self) -> Read<()> {
        self.pipeline()?;
        loop {
            self.skip_blanks();
            if !self.eat("&&") && !self.eat("||") {
                return Ok(());
            }
            self.skip_lines()?;
            self.pipeline()?;
        }
    }

    fn pipeline(&mut self) -> Read<()> {
        let mut has_prefix = false;
        loop {
            self.skip_blanks();
            if self.eat_reserved("!") {
                has_prefix = true;
                if self.peek() == Some(b'(') {
                    return self.unsure("it may be a pattern");
                }
            } else if self.eat_reserved("time") {
                (has_prefix, self.is_timed) = (true, true);
                for option in ["-p", "--"] {
                    self.skip_blanks();
                    let is_whole = self.rest().get(2..).is_none_or(|rest| rest.bytes().next().is_none_or(is_meta));
                    if self.rest().starts_with(option) && is_whole {
                        self.at += 2;
                    }
                }
            } else {
                break;
            }
            self.raise(Shape::Grouped);
        }
        if has_prefix && matches!(self.peek(), None | Some(b';' | b'\n' | b'&' | b'|' | b')')) {
            return Ok(());
        }
        let first = self.out.commands.len();
        self.command()?;
        let mut stage = first;
        loop {
            self.skip_blanks();
            if self.rest().starts_with("||") || !self.eat("|") {
                break;
            }
            self.skip_continued();
            if self.peek() == Some(b'|') {
                return self.unsure("an operator is continued on the next line");
            }
            self.eat("&");
            self.skip_lines()?;
            let next = self.out.commands.len();
            let feeds = next.checked_sub(1).filter(|last| *last >= stage);
            // Here it is a program and no reserved word.
            if self.reserved().is_some_and(|(word, _)| word == "time") {
                self.simple()?;
            } else {
                self.command()?;
            }
            for command in self.out.commands.iter_mut().skip(next) {
                command.context.fed_by = command.context.fed_by.or(feeds);
            }
            self.mark(stage, |context| context.in_pipeline = true);
            stage = next;
        }
        Ok(())
    }

    /// A simple command, or the definition of a function.
    pub(super) fn simple(&mut self) -> Read<()> {
        let start = self.at;
        let mut end = start;
        let (mut assignments, mut words, mut redirections) = (Vec::new(), Vec::<Word>::new(), Vec::new());
        loop {
            self.skip_blanks();
            if let Some(redirection) = self.redirection()? {
                redirections.push(redirection);
            } else if self.peek().is_none_or(is_end) && !self.begins_substitution() {
                break;
            } else if words.is_empty()
                && let Some(assignment) = self.assignment()?
            {
                assignments.push(assignment);
            } else {
                let declares = words.first().and_then(|word| word.literal.as_deref());
                match declares.is_some_and(|name| DECLARING.contains(&name)).then(|| self.assignment()).transpose()? {
                    Some(Some(assignment)) => words.push(self.word_of(assignment)),
                    _ => words.push(self.word()?),
                }
            }
            end = self.at;
        }
        if self.peek() == Some(b'(') {
            return match (words.as_slice(), assignments.is_empty() && redirections.is_empty()) {
                ([name], true) if name.literal.is_some() && !name.is_quoted => self.function_parens(),
                _ => self.unsure("a parenthesis is out of place"),
            };
        }
        self.push(Parts { start, end, assignments, words, redirections })
    }

    /// An argument that is an assignment, as the word that it is.
    fn word_of(&self, assignment: Assignment) -> Word {
        let Assignment { text, name, value, is_plain } = assignment;
        match value {
            Some(value) => Word { is_plain, is_quoted: false, ..Word::of(&format!("{name}={value}"), text) },
            None => Word {
                text,
                pieces: vec![super::types::WordPiece::Text(name), super::types::WordPiece::Split],
                ..Word::default()
            },
        }
    }

    fn push(&mut self, parts: Parts) -> Read<()> {
        let Parts { start, end, assignments, words, redirections } = parts;
        if words.is_empty() && assignments.is_empty() && redirections.is_empty() {
            return self.unsure("a command is missing");
        }
        if self.out.commands.len() >= MAX_COMMANDS {
            return self.unsure("it has too many commands");
        }
        let is = |word: &Word, text: &str| word.literal.as_deref().is_none_or(|literal| literal.contains(text));
        // They change how the lines after this one are read.
        let rereads = words.first().is_some_and(|name| name.literal.as_deref() == Some("shopt"))
            && words.iter().skip(1).any(|word| is(word, "expand_aliases") || is(word, "extglob"));
        let text = self.place.clone().unwrap_or(start..end);
        self.direct += 1;
        self.out.commands.push(Simple { text, assignments, words, redirections, context: self.context });
        if rereads { self.unsure("an option changes how the rest is read") } else { Ok(()) }
    }
}

/// A simple command as it was read, in places of the text.
struct Parts {
    start: usize,
    end: usize,
    assignments: Vec<Assignment>,
    words: Vec<Word>,
    redirections: Vec<Redirection>,
}

/// Whether a byte ends a word.
pub(super) fn is_meta(byte: u8) -> bool {
    b" \t\n;&|()<>".contains(&byte)
}

/// Whether a byte ends a simple command.
fn is_end(byte: u8) -> bool {
    b"\n;&|()".contains(&byte)
}
