//! Inline Markdown: emphasis, code, links, escapes. Pure.
//!
//! A mark that opens something holds the text behind it back until the mark that closes it is there, the line ends, or the
//! bound of its kind is reached; without its end it is text. So no mark is lost, and no text is held for long.

use super::rows::Ink;

/// How much may be held back, in bytes: of emphasis and code, of which little is long …
const MAX_SPAN: usize = 300;

/// … and of a link, whose address may be.
const MAX_LINK: usize = 2048;

/// Levels of emphasis within emphasis, at most.
const MAX_DEPTH: usize = 4;

pub(super) const CODE: Ink = Ink::color(36);
const ADDRESS: Ink = Ink::DIM;
const LINK: Ink = Ink { underline: true, ..Ink::PLAIN };

/// The beginning of a text, as far as it is decided.
#[derive(Debug, PartialEq)]
enum InlineToken {
    /// More has to come.
    More,
    /// This many bytes are text.
    Text(usize),
    /// After this mark of so many bytes the next character is text.
    Escaped(usize),
    /// Code: its bytes, and those of each mark.
    Code(usize, usize),
    /// Emphasis: its bytes, and those of each mark.
    Emphasis(usize, usize, Ink),
    /// A link: its bytes, its text and its address.
    Link(usize, (usize, usize), (usize, usize)),
}

/// Whether a character may begin something.
pub(super) fn is_special(c: char) -> bool {
    matches!(c, '*' | '_' | '`' | '[' | '!' | '\\' | '~' | '<')
}

/// The part of a line that is held back, and what came before it.
#[derive(Debug, Default)]
pub(super) struct Inline {
    held: String,
    before: Option<char>,
}

impl Inline {
    /// Adds a character; `put` gets what is decided.
    pub(super) fn push(&mut self, c: char, ink: Ink, put: &mut impl FnMut(char, Ink)) {
        if self.held.is_empty() && !is_special(c) {
            self.before = Some(c);
            return put(c, ink);
        }
        self.held.push(c);
        self.decide(false, ink, put);
    }

    /// Ends the line.
    pub(super) fn end(&mut self, ink: Ink, put: &mut impl FnMut(char, Ink)) {
        self.decide(true, ink, put);
        self.before = None;
    }

    fn decide(&mut self, ended: bool, ink: Ink, put: &mut impl FnMut(char, Ink)) {
        let held = std::mem::take(&mut self.held);
        let left = walk(&held, &mut self.before, ended, ink, 0, put);
        self.held.push_str(left);
    }
}

/// Renders a text that no more text follows.
pub(super) fn whole(text: &str, ink: Ink, put: &mut impl FnMut(char, Ink)) {
    walk(text, &mut None, true, ink, 0, put);
}

/// Gives what is decided of `text` to `put`; the rest is returned.
fn walk<'a>(
    mut text: &'a str,
    before: &mut Option<char>,
    ended: bool,
    ink: Ink,
    depth: usize,
    put: &mut impl FnMut(char, Ink),
) -> &'a str {
    let part = |text: &'a str, from: usize, to: usize| text.get(from..to).unwrap_or_default();
    while !text.is_empty() {
        let found = if depth < MAX_DEPTH { scan(text, *before, ended) } else { InlineToken::Text(text.len()) };
        let mut say = |said: &str, ink: Ink| said.chars().for_each(|c| put(c, ink));
        let taken = match found {
            InlineToken::More => return text,
            InlineToken::Text(bytes) => {
                say(part(text, 0, bytes), ink);
                bytes
            }
            InlineToken::Escaped(bytes) => {
                say(part(text, 1, bytes), ink);
                bytes
            }
            InlineToken::Code(bytes, mark) => {
                let code = part(text, mark, bytes - mark);
                // A blank on each side makes room for marks in the code.
                let inner = code.strip_prefix(' ').and_then(|code| code.strip_suffix(' '));
                say(inner.filter(|inner| inner.contains('`')).unwrap_or(code), ink.and(CODE));
                bytes
            }
            InlineToken::Emphasis(bytes, mark, emphasis) => {
                let inner = part(text, mark, bytes - mark);
                walk(inner, &mut None, true, ink.and(emphasis), depth + 1, put);
                bytes
            }
            InlineToken::Link(bytes, (from, to), (start, end)) => {
                let (label, address) = (part(text, from, to), part(text, start, end));
                if label == address || label.is_empty() {
                    say(address, ink.and(LINK));
                } else {
                    walk(label, &mut None, true, ink.and(LINK), depth + 1, put);
                    let mut say = |said: &str, ink: Ink| said.chars().for_each(|c| put(c, ink));
                    say(" (", ink.and(ADDRESS));
                    say(address, ink.and(ADDRESS));
                    say(")", ink.and(ADDRESS));
                }
                bytes
            }
        };
        *before = text.get(..taken).and_then(|taken| taken.chars().next_back()).or(*before);
        text = text.get(taken..).unwrap_or_default();
    }
    text
}

/// Scans the start of `text`, given the character before it. The answer for a text is that for each longer one, unless it
/// is [`InlineToken::More`].
fn scan(text: &str, before: Option<char>, ended: bool) -> InlineToken {
    let Some(first) = text.chars().next() else { return InlineToken::More };
    let limit = if matches!(first, '[' | '!' | '<') { MAX_LINK } else { MAX_SPAN };
    let found = match first {
        '\\' => escape(text),
        '`' => code(text, ended),
        '*' | '_' | '~' => emphasis(text, first, before, ended),
        '[' => link(text, 0),
        '!' => match text.as_bytes().get(1) {
            None => InlineToken::More,
            Some(b'[') => link(text, 1),
            Some(_) => InlineToken::Text(1),
        },
        '<' => address(text),
        _ => return InlineToken::Text(text.find(is_special).unwrap_or(text.len())),
    };
    match found {
        // What opens nothing, or does not end.
        InlineToken::More if ended || text.len() > limit => InlineToken::Text(run(text, first).max(1)),
        found => found,
    }
}

/// How many bytes of `mark` a text begins with.
fn run(text: &str, mark: char) -> usize {
    text.len() - text.trim_start_matches(mark).len()
}

fn escape(text: &str) -> InlineToken {
    match text.as_bytes().get(1) {
        None => InlineToken::More,
        Some(byte) if byte.is_ascii_punctuation() => InlineToken::Escaped(2),
        Some(_) => InlineToken::Text(1),
    }
}

fn code(text: &str, ended: bool) -> InlineToken {
    let mark = run(text, '`');
    let mut at = mark;
    while let Some(next) = text.get(at..).and_then(|rest| rest.find('`')) {
        at += next;
        let length = run(text.get(at..).unwrap_or_default(), '`');
        // A run at the end may become longer.
        if !ended && at + length == text.len() {
            return InlineToken::More;
        }
        if length == mark {
            return InlineToken::Code(at + length, mark);
        }
        at += length;
    }
    InlineToken::More
}

fn emphasis(text: &str, mark: char, before: Option<char>, ended: bool) -> InlineToken {
    let length = run(text, mark);
    let Some(next) = text.get(length..).and_then(|rest| rest.chars().next()) else {
        return if ended { InlineToken::Text(length) } else { InlineToken::More };
    };
    let inside_word = mark == '_' && before.is_some_and(char::is_alphanumeric);
    // As CommonMark has it: a mark before punctuation opens only after a blank or punctuation.
    let punctuation = |c: char| c.is_ascii_punctuation();
    let opens = !next.is_whitespace()
        && (!punctuation(next) || before.is_none_or(|c| c.is_whitespace() || punctuation(c)) || next == '`');
    let ink = match (mark, length) {
        ('~', 2) => Ink { strike: true, ..Ink::PLAIN },
        ('~', _) => return InlineToken::Text(length),
        (_, 1) => Ink { italic: true, ..Ink::PLAIN },
        (_, 2) => Ink::BOLD,
        (_, 3) => Ink { italic: true, ..Ink::BOLD },
        _ => return InlineToken::Text(length),
    };
    if inside_word || !opens {
        return InlineToken::Text(length);
    }
    let (mut at, mut last) = (length, mark);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(c) = rest.chars().next() else { break };
        if c == '\\' {
            let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
            (at, last) = (at + 1 + escaped, 'x');
            continue;
        }
        if c == '`' {
            match code(rest, ended) {
                InlineToken::Code(bytes, _) => at += bytes,
                _ => at += run(rest, '`'),
            }
            last = '`';
            continue;
        }
        if c != mark {
            (at, last) = (at + c.len_utf8(), c);
            continue;
        }
        let here = run(rest, mark);
        let after = rest.get(here..).and_then(|rest| rest.chars().next());
        if after.is_none() && !ended {
            return InlineToken::More;
        }
        let word_goes_on = mark == '_' && after.is_some_and(char::is_alphanumeric);
        let closes = !last.is_whitespace() && !word_goes_on && (here == length || (here == 3 && length < 3));
        if closes {
            return InlineToken::Emphasis(at + here, length, ink);
        }
        (at, last) = (at + here, mark);
    }
    InlineToken::More
}

/// `[text](address)`, after so many bytes of a mark.
fn link(text: &str, mark: usize) -> InlineToken {
    let bytes = text.as_bytes();
    let (mut depth, mut escaped) = (0usize, false);
    let mut close = None;
    for (at, byte) in bytes.iter().enumerate().skip(mark) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => depth += 1,
            b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    close = Some(at);
                    break;
                }
            }
            _ => {}
        }
    }
    let Some(close) = close else { return InlineToken::More };
    match bytes.get(close + 1) {
        None => return InlineToken::More,
        Some(b'(') => {}
        Some(_) => return InlineToken::Text(mark + 1),
    }
    let (start, mut depth) = (close + 2, 0usize);
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => {
                let inner = text.get(start..at).unwrap_or_default();
                // A title behind the address is left out.
                let address = inner.split([' ', '\t']).next().unwrap_or_default().len();
                return InlineToken::Link(at + 1, (mark + 1, close), (start, start + address));
            }
            b')' => depth -= 1,
            _ => {}
        }
    }
    InlineToken::More
}

/// `<https://…>`.
fn address(text: &str) -> InlineToken {
    const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];
    let inner = text.get(1..).unwrap_or_default();
    if inner.starts_with(char::is_whitespace)
        || !SCHEMES.iter().any(|scheme| scheme.starts_with(inner) || inner.starts_with(scheme))
    {
        return InlineToken::Text(1);
    }
    match inner.find(['>', ' ', '\t', '<']) {
        None => InlineToken::More,
        Some(end) if inner.as_bytes().get(end) == Some(&b'>') => InlineToken::Link(end + 2, (1, end + 1), (1, end + 1)),
        Some(_) => InlineToken::Text(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with names of what is drawn in it.
    fn check(text: &str, expect: &str) {
        let mut pieces: Vec<(String, Ink)> = Vec::new();
        let mut inline = Inline::default();
        let mut put = |c: char, ink: Ink| match pieces.last_mut() {
            Some((piece, last)) if *last == ink => piece.push(c),
            _ => pieces.push((c.to_string(), ink)),
        };
        text.chars().for_each(|c| inline.push(c, Ink::PLAIN, &mut put));
        inline.end(Ink::PLAIN, &mut put);
        let name = |ink: Ink| {
            let flags = [
                (ink.bold, "b"),
                (ink.italic, "i"),
                (ink.underline, "u"),
                (ink.strike, "s"),
                (ink.dim, "d"),
                (ink.color == CODE.color, "c"),
            ];
            flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect::<String>()
        };
        let shown = pieces.iter().map(|(piece, ink)| match name(*ink).as_str() {
            "" => piece.clone(),
            name => format!("{{{name} {piece}}}"),
        });
        assert_eq!(shown.collect::<String>(), expect, "{text}");
    }

    #[test]
    fn emphasis_code_and_links() {
        check("a **b c** d", "a {b b c} d");
        check("*i* and _i_ and ***both*** and ~~no~~", "{i i} and {i i} and {bi both} and {s no}");
        check("**a *b* c**", "{b a }{bi b}{b  c}");
        check("**a *b***", "{b a }{bi b}");
        check("*a **b** c*", "{i a }{bi b}{i  c}");
        check("`a*b*` ``c`d`` `e", "{c a*b*} {c c`d} `e");
        check("**`code`:** x", "{bc code}{b :} x");
        check("see [the *page*](https://a.b/c_(d) \"t\").", "see {u the }{iu page}{d  (https://a.b/c_(d))}.");
        check("<https://a.b> [1] [x] ![alt](p.png) !", "{u https://a.b} [1] [x] {u alt}{d  (p.png)} !");
        check(r"\*no\* a\b", r"*no* a\b");
    }

    #[test]
    fn marks_that_close_nothing_are_text() {
        for text in [
            "2 * 3 * 4",
            "*.rs and *.toml",
            "snake_case_name",
            "__init__x",
            "a ** b",
            "****",
            "[open",
            "<T> <h1>",
            "a`b",
            "~/x and ~/y",
            "`",
            "*",
            "\\",
            "!",
            "**a",
        ] {
            check(text, text);
        }
        let long = format!("*{}", "a ".repeat(400));
        check(&long, &long);
    }
}
