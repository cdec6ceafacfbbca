//! Colours of code, a line at a time: a lexer that reads a table. Pure.
//!
//! Between two lines it remembers the string or comment that is open, and nothing else. What it does not know has no
//! colour; no character is added or lost.

use super::languages::{Kind, Language, named};
use super::rows::Ink;

const KEYWORD: Ink = Ink::color(35);
const STRING: Ink = Ink::color(32);
const COMMENT: Ink = Ink::color(90);
const NUMBER: Ink = Ink::color(33);
const KEY: Ink = Ink::color(34);
const ADDED: Ink = Ink::color(32);
const REMOVED: Ink = Ink::color(31);
const HUNK: Ink = Ink::color(36);

/// What goes on from the line before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    Comment,
    /// A string that ends with this.
    String(&'static str),
}

/// The colours of a piece of code.
#[derive(Debug, Default)]
pub(super) struct Lexer {
    language: Option<&'static Language>,
    open: Open,
}

impl Lexer {
    /// The colours for what stands behind a fence.
    pub(super) fn new(info: &str) -> Self {
        Self { language: named(info), open: Open::Nothing }
    }

    /// Gives the pieces of a line to `put`.
    pub(super) fn line(&mut self, line: &str, put: &mut impl FnMut(&str, Ink)) {
        let Some(language) = self.language else { return put(line, Ink::PLAIN) };
        if language.kind == Kind::Diff {
            return put(line, diff(line));
        }
        let mut rest = line;
        let mut before = None;
        while let Some(c) = rest.chars().next() {
            let (bytes, ink) = self.piece(language, rest, c, before);
            let (piece, after) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
            put(piece, ink);
            before = piece.chars().next_back();
            rest = after;
        }
    }

    /// How many bytes `rest`, which begins with `c`, begins with that are drawn alike.
    fn piece(&mut self, language: &Language, rest: &str, c: char, before: Option<char>) -> (usize, Ink) {
        let in_word = before.is_some_and(is_word);
        match self.open {
            Open::Comment => {
                let end = language.block_comment.map_or("", |(_, end)| end);
                return (self.until(rest, 0, end, false), COMMENT);
            }
            Open::String(end) => return (self.until(rest, 0, end, language.escapes), STRING),
            Open::Nothing => {}
        }
        if let Some((begin, end)) = language.block_comment.filter(|(begin, _)| rest.starts_with(begin)) {
            self.open = Open::Comment;
            return (self.until(rest, begin.len(), end, false), COMMENT);
        }
        // `$#` and `a#b` are none.
        let apart = !matches!(c, '#' | ';') || before.is_none_or(char::is_whitespace);
        if apart && language.line_comments.iter().any(|begin| rest.starts_with(begin)) {
            return (rest.len(), COMMENT);
        }
        if language.kind == Kind::Lifetimes && c == '\'' {
            return lifetime(rest);
        }
        if let Some((end, over_lines)) = language.strings.iter().find(|(begin, _)| rest.starts_with(begin)) {
            self.open = Open::String(end);
            let bytes = self.until(rest, end.len(), end, language.escapes);
            if !over_lines {
                self.open = Open::Nothing;
            }
            let key = matches!(language.kind, Kind::Keys(sign) if is_before(rest, bytes, sign));
            return (bytes, if key { KEY } else { STRING });
        }
        if language.kind == Kind::Tags && c == '<' {
            let name = |c: char| is_word(c) || matches!(c, '<' | '/' | '!' | '?' | '-');
            return (rest.find(|c| !name(c)).unwrap_or(rest.len()), KEYWORD);
        }
        if c.is_ascii_digit() && !in_word {
            let more = |c: char| is_word(c) || c == '.';
            return (rest.find(|c| !more(c)).unwrap_or(rest.len()), NUMBER);
        }
        let sign = matches!(c, '#' | '@' | '!');
        if is_word(c) || sign {
            return word(language, rest, sign, in_word);
        }
        (c.len_utf8(), Ink::PLAIN)
    }

    /// How many bytes there are up to and with `end`, which closes what is open, or to the end of the line.
    fn until(&mut self, rest: &str, from: usize, end: &str, escapes: bool) -> usize {
        let mut at = from;
        while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
            if left.starts_with(end) {
                self.open = Open::Nothing;
                return at + end.len();
            }
            let mut chars = left.chars();
            let c = chars.next();
            at += c.map_or(1, char::len_utf8);
            if escapes && c == Some('\\') {
                at += chars.next().map_or(0, char::len_utf8);
            }
        }
        rest.len()
    }
}

fn word(language: &Language, rest: &str, sign: bool, in_word: bool) -> (usize, Ink) {
    let first = usize::from(sign);
    let dashes = matches!(language.kind, Kind::Keys(_));
    let more = |c: char| is_word(c) || (dashes && matches!(c, '-' | '.'));
    let after = rest.get(first..).unwrap_or_default();
    let bytes = first + after.find(|c| !more(c)).unwrap_or(after.len());
    let found = rest.get(..bytes).unwrap_or_default();
    let is = |keyword: &&str| if language.any_case { keyword.eq_ignore_ascii_case(found) } else { **keyword == *found };
    let ink = match language.kind {
        _ if in_word => Ink::PLAIN,
        Kind::Keys(sign) if is_before(rest, bytes, sign) => KEY,
        _ if language.keywords.iter().any(is) => KEYWORD,
        _ => Ink::PLAIN,
    };
    (bytes, ink)
}

/// Whether `sign` follows after so many bytes and blanks.
fn is_before(rest: &str, bytes: usize, sign: char) -> bool {
    rest.get(bytes..).is_some_and(|after| after.trim_start_matches(' ').starts_with(sign))
}

/// `'x'` or `'\n'` is a character, `'a` a lifetime.
fn lifetime(rest: &str) -> (usize, Ink) {
    let mut chars = rest.char_indices().skip(1);
    let closes = match chars.next() {
        Some((_, '\\')) => rest.get(3..).and_then(|after| after.find('\'')).map(|at| at + 4),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
        None => None,
    };
    match closes {
        Some(bytes) => (bytes, STRING),
        None => (1, Ink::PLAIN),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The ink of a line of a diff.
fn diff(line: &str) -> Ink {
    match line.as_bytes().first() {
        Some(b'+') if !line.starts_with("+++") => ADDED,
        Some(b'-') if !line.starts_with("---") => REMOVED,
        Some(b'@') => HUNK,
        _ => Ink::PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The code with the first letter of what each piece is.
    fn check(info: &str, code: &str, expect: &str) {
        let (mut lexer, mut out) = (Lexer::new(info), String::new());
        for (n, line) in code.split('\n').enumerate() {
            out.push_str(if n > 0 { "\n" } else { "" });
            let names =
                [(KEYWORD, 'w'), (STRING, 's'), (COMMENT, 'c'), (NUMBER, 'n'), (KEY, 'k'), (REMOVED, 'r'), (HUNK, 'h')];
            lexer.line(line, &mut |piece, ink| match names.iter().find(|(known, _)| *known == ink) {
                Some((_, name)) => out.push_str(&format!("{{{name} {piece}}}")),
                None => out.push_str(piece),
            });
        }
        assert_eq!(out, expect);
    }

    #[test]
    fn each_language_has_its_colours() {
        check(
            "rust",
            "fn f<'a>(c: char) { 'x' == '\\n' } // 1",
            "{w fn} f<'a>(c: char) { {s 'x'} == {s '\\n'} } {c // 1}",
        );
        check("rs", "/* a\nb */ 0x1f, \"q\\\"\nr\"", "{c /* a}\n{c b */} {n 0x1f}, {s \"q\\\"}\n{s r\"}");
        check(
            "python",
            "def f(): # no\n  '''a\n  b''' or x2",
            "{w def} f(): {c # no}\n  {s '''a}\n{s   b'''} {w or} x2",
        );
        check("ts", "const a = `x\n${y}`;", "{w const} a = {s `x}\n{s ${y}`};");
        check("go", "func main() { return nil }", "{w func} main() { {w return} {w nil} }");
        check("cpp", "#include <a>\nint x = 1.5f;", "{w #include} <a>\n{w int} x = {n 1.5f};");
        check("java", "class A { }", "{w class} A { }");
        check("sh", "if [ $# -gt 1 ]; then # x", "{w if} [ $# -gt {n 1} ]; {w then} {c # x}");
        check("json", "{\"a\": [1, true, \"b\"]}", "{{k \"a\"}: [{n 1}, {w true}, {s \"b\"}]}");
        check("toml", "[a]\nb-c = \"d\" # e", "[a]\n{k b-c} = {s \"d\"} {c # e}");
        check("yaml", "a: true\n- b: 'c'", "{k a}: {w true}\n- {k b}: {s 'c'}");
        check("sql", "Select * FROM t -- x", "{w Select} * {w FROM} t {c -- x}");
        check("html", "<a href=\"b\">c</a><!-- d\n-->", "{w <a} href={s \"b\"}>c{w </a}>{c <!-- d}\n{c -->}");
        check("css", ".a { color: red; }", ".a { {k color}: red; }");
        check("diff", "@@ 1\n-a\n b\n--- a", "{h @@ 1}\n{r -a}\n b\n--- a");
        check("brainf", "fn \"x\" // 1", "fn \"x\" // 1");
    }

    proptest! {
        #[test]
        fn no_character_is_added_or_lost(language in 0usize..15, lines in prop::collection::vec("[a-z'\"`/*#<>=:. \\\\1-]{0,20}", 1..6)) {
            let names = ["rust", "py", "js", "go", "c", "java", "sh", "json", "toml", "yaml", "sql", "css", "html", "diff", "none"];
            let mut lexer = Lexer::new(names.get(language).copied().unwrap_or_default());
            for line in lines {
                let mut shown = String::new();
                lexer.line(&line, &mut |piece, _| shown.push_str(piece));
                prop_assert_eq!(shown, line);
            }
        }
    }
}
