//! Colours of code blocks: strings, comments, numbers and keywords, all from one table. Pure.
//!
//! Code comes a line at a time; between two lines only an open string or comment is remembered. A language that is not
//! in the table has no colours. No character is added or lost.

use super::rows::Ink;

const KEYWORD: Ink = Ink::color(35);
const STRING: Ink = Ink::color(32);
const COMMENT: Ink = Ink::color(90);
const NUMBER: Ink = Ink::color(33);

/// Each row begins with `* `: names | line comments | block comment | strings within a line | strings over lines | raw
/// strings over lines | keywords. A keyword in capitals counts in any case.
const LANGUAGES: &str = r#"
* rust rs | // | /* */ | | " | | as async await break const continue crate dyn else enum extern false fn for if impl
in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while
* python py python3 | # | | " ' | """ ''' | | False None True and as assert async await break class continue def del
elif else except finally for from global if import in is lambda match not or pass raise return try while with yield
* javascript js jsx typescript ts tsx mjs vue | // | /* */ | " ' | ` | | abstract any as async await boolean break case
catch class const continue default delete do else enum export extends false finally for from function if implements
import in instanceof interface let new null number of private public readonly return static string super switch this
throw true try type typeof undefined var void while yield
* go golang | // | /* */ | " ' | | ` | break case chan const continue default defer else error fallthrough false for
func go goto if import int interface map nil package range return select string struct switch true type var
* c h cpp c++ cc hpp cxx | // | /* */ | " ' | | | #define #else #endif #if #ifdef #ifndef #include #pragma auto bool
break case catch char class const constexpr continue default delete do double else enum extern false float for goto if
inline int long namespace new nullptr NULL operator private protected public return short signed sizeof static struct
switch template this throw true try typedef typename union unsigned using virtual void volatile while
* java kotlin kt csharp cs c# | // | /* */ | " ' | """ | | abstract boolean break byte case catch char class const
continue default do double else enum extends false final finally float for fun if implements import in instanceof int
interface long namespace new null package private protected public record return short static string super switch
synchronized this throw throws true try using val var void when while
* bash sh shell zsh console dockerfile makefile make | # | | | " | ' | case do done elif else esac exit export fi for
function if in local return set then unset until while CMD COPY ENV FROM RUN WORKDIR
* json jsonc json5 jsonl | // | /* */ | " ' | | | false null true
* toml ini cfg conf | # ; | | " ' | """ | ''' | false true
* yaml yml | # | | " ' | | | false no null true yes
* sql sqlite postgresql mysql | -- | /* */ | " | | ' | ADD ALL ALTER AND AS ASC BEGIN BETWEEN BY CASE COMMIT CONSTRAINT
CREATE CROSS DEFAULT DELETE DESC DISTINCT DROP ELSE END EXISTS FALSE FOREIGN FROM FULL GROUP HAVING IF IN INDEX INNER
INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER OUTER PRIMARY REFERENCES RETURNING RIGHT ROLLBACK
SELECT SET TABLE THEN TRUE UNION UNIQUE UPDATE VALUES VIEW WHEN WHERE WITH
* css scss less | | /* */ | " ' | | | @media @import @keyframes @font-face !important auto inherit none
* html xml svg | | <!-- --> | | | " |
"#;

/// A string or a block comment; with `escapes` a backslash takes the meaning of the next character.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: &'static str,
    end: &'static str,
    ink: Ink,
    over_lines: bool,
    escapes: bool,
}

/// Colours one code block: a row of [`LANGUAGES`], and the string or comment that is open.
#[derive(Debug, Default)]
pub(super) struct Lexer {
    is_diff: bool,
    comments: Vec<&'static str>,
    spans: Vec<Span>,
    keywords: Vec<&'static str>,
    open: Option<Span>,
}

impl Lexer {
    /// A lexer for the language that the words behind a fence name.
    pub(super) fn new(info: &str) -> Self {
        let name = info.split([' ', ',', '{', '\t', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let mut rows = LANGUAGES.split("\n* ").map(|row| row.split('|').map(str::split_whitespace));
        let row = rows.find(|row| row.clone().next().is_some_and(|mut names| names.any(|known| known == name)));
        let Some(mut row) = row else { return Self { is_diff: name == "diff" || name == "patch", ..Self::default() } };
        let mut next = || row.next_back().into_iter().flatten();
        let keywords = next().collect();
        let strings = [(true, false), (true, true), (false, true)].into_iter().flat_map(|(over_lines, escapes)| {
            next().map(move |end| Span { begin: end, end, ink: STRING, over_lines, escapes })
        });
        let mut spans: Vec<Span> = strings.collect();
        if let [begin, end] = *next().collect::<Vec<_>>() {
            spans.push(Span { begin, end, ink: COMMENT, over_lines: true, escapes: false });
        }
        Self { comments: next().collect(), spans, keywords, ..Self::default() }
    }

    /// Gives the pieces of a line to `put`.
    pub(super) fn line(&mut self, line: &str, put: &mut impl FnMut(&str, Ink)) {
        if self.spans.is_empty() {
            return put(line, if self.is_diff { diff(line) } else { Ink::PLAIN });
        }
        let (mut rest, mut before) = (line, None);
        while let Some(c) = rest.chars().next() {
            let (bytes, ink) = match self.open {
                Some(span) => self.span(span, rest, 0),
                None => self.piece(rest, c, before),
            };
            let (piece, after) = rest.split_at_checked(bytes).unwrap_or((rest, ""));
            put(piece, ink);
            (before, rest) = (piece.chars().next_back(), after);
        }
    }

    /// The bytes of one colour that `rest`, which begins with `c`, begins with.
    fn piece(&mut self, rest: &str, c: char, before: Option<char>) -> (usize, Ink) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        // `$#` and `a#b` begin no comment.
        let apart = !matches!(c, '#' | ';') || before.is_none_or(char::is_whitespace);
        if let Some(span) = self.spans.iter().find(|span| rest.starts_with(span.begin)) {
            return self.span(*span, rest, span.begin.len());
        }
        if apart && self.comments.iter().any(|begin| rest.starts_with(begin)) {
            return (rest.len(), COMMENT);
        }
        if c == '\'' {
            return character(rest).map_or((1, Ink::PLAIN), |bytes| (bytes, STRING));
        }
        let (in_word, sign) = (before.is_some_and(is_word), usize::from(matches!(c, '#' | '@' | '!')));
        let is_number = c.is_ascii_digit() && !in_word;
        let more = |c: char| is_word(c) || is_number && c == '.' || sign == 1 && c == '-';
        let word = rest.get(sign..).map_or(0, |rest| rest.find(|c| !more(c)).unwrap_or(rest.len())) + sign;
        let text = rest.get(..word).unwrap_or_default();
        let any_case = |known: &str| known.eq_ignore_ascii_case(text) && known.bytes().all(|c| c.is_ascii_uppercase());
        match word {
            0 => (c.len_utf8(), Ink::PLAIN),
            _ if is_number => (word, NUMBER),
            _ if !in_word && self.keywords.iter().any(|known| *known == text || any_case(known)) => (word, KEYWORD),
            _ => (word, Ink::PLAIN),
        }
    }

    /// The bytes of a string or comment up to its end, searched from `at`, or to the end of the line.
    fn span(&mut self, span: Span, rest: &str, mut at: usize) -> (usize, Ink) {
        self.open = None;
        while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
            if left.starts_with(span.end) {
                return (at + span.end.len(), span.ink);
            }
            let taken = if span.escapes && left.starts_with('\\') { 2 } else { 1 };
            at += left.chars().take(taken).map(char::len_utf8).sum::<usize>();
        }
        self.open = Some(span).filter(|span| span.over_lines);
        (rest.len(), span.ink)
    }
}

/// The bytes of `'x'` or `'\n'`; `'a` alone is a lifetime.
fn character(rest: &str) -> Option<usize> {
    let is_escaped = rest.starts_with("'\\");
    let from = if is_escaped { 3 } else { 1 + rest.chars().nth(1)?.len_utf8() };
    let end = from + rest.get(from..)?.find('\'')?;
    (is_escaped || end == from).then_some(end + 1)
}

fn diff(line: &str) -> Ink {
    match line.as_bytes().first() {
        Some(b'+') if !line.starts_with("+++") => Ink::color(32),
        Some(b'-') if !line.starts_with("---") => Ink::color(31),
        Some(b'@') => Ink::color(36),
        _ => Ink::PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code with a letter for the colour of each piece.
    fn colored(info: &str, code: &str) -> String {
        let (mut lexer, mut out) = (Lexer::new(info), Vec::new());
        for line in code.split('\n') {
            let (mut marked, mut plain) = (String::new(), String::new());
            lexer.line(line, &mut |piece, ink| {
                plain.push_str(piece);
                let known = [(KEYWORD, "w"), (STRING, "s"), (COMMENT, "c"), (NUMBER, "n")];
                let letter = known.iter().find(|(known, _)| *known == ink).map(|(_, letter)| letter);
                marked += &letter.map_or(piece.to_owned(), |letter| format!("{{{letter} {piece}}}"));
            });
            assert_eq!(plain, line);
            out.push(marked);
        }
        out.join("\n")
    }

    #[test]
    fn each_language_has_its_colours() {
        for (info, code, expect) in [
            ("rust", "fn f<'a>(c: &'a u8) 'x' '\\n' // 1", "{w fn} f<'a>(c: &'a u8) {s 'x'} {s '\\n'} {c // 1}"),
            ("rs,x", "/* a\nb */ 0x1f, \"q\\\"\nr\"", "{c /* a}\n{c b */} {n 0x1f}, {s \"q\\\"}\n{s r\"}"),
            ("python", "def f(): # é\n  '''a\n'b''' or x2", "{w def} f(): {c # é}\n  {s '''a}\n{s 'b'''} {w or} x2"),
            ("sh", "if [ $# -gt 1 ]; then '\\' # x", "{w if} [ $# -gt {n 1} ]; {w then} {s '\\'} {c # x}"),
            ("json", "{\"a\": [1, true]}", "{{s \"a\"}: [{n 1}, {w true}]}"),
            ("sql", "Select 'a\\' -- x", "{w Select} {s 'a\\'} {c -- x}"),
            ("html", "<a href=\"b\"><!-- d\n-->", "<a href={s \"b\"}>{c <!-- d}\n{c -->}"),
            ("brainf", "fn \"x\" // 1", "fn \"x\" // 1"),
        ] {
            assert_eq!(colored(info, code), expect);
        }
        assert_eq!((diff("-a"), diff("--- a"), diff("@@ 1")), (Ink::color(31), Ink::PLAIN, Ink::color(36)));
    }
}
