//! The product code of a crate, read as its modules: what is compiled only for tests is left out.
//!
//! It reads tokens, not a syntax tree: enough for tests about the shape of the house. Two such tests share it: `tidy.rs` here, and
//! `layers.rs` of the daemon and of the client, which include it by its path.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of product code.
pub(crate) struct Source {
    /// The file's path in the repository.
    pub(crate) path: PathBuf,
    /// The module's path in its crate; empty for the root.
    pub(crate) module: Vec<String>,
    /// The text with the items of tests blanked; line numbers are those of the file.
    #[allow(dead_code, reason = "only `tidy.rs` reads comments")]
    pub(crate) text: String,
    /// The code, without comments and without the contents of strings.
    pub(crate) tokens: Vec<Token>,
}

/// A word, a lifetime, a number, one of `::`, `->` and `=>`, or another character.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    /// The characters.
    pub(crate) text: String,
    /// The byte in the file at which they begin.
    pub(crate) at: usize,
    /// The line, counted from 1.
    pub(crate) line: usize,
}

/// The sources of a crate, found from its `root`, such as `daemon/src/lib.rs`, as the compiler finds them.
pub(crate) fn read(root: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    read_module(Path::new(root), Vec::new(), &mut sources);
    sources
}

/// The directory of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read_module(path: &Path, module: Vec<String>, sources: &mut Vec<Source>) {
    let text =
        fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let source = source(path, module, &text);
    let directory = match path.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "main.rs" | "mod.rs") => path.parent().unwrap().to_path_buf(),
        _ => path.with_extension(""),
    };
    let declared = source.tokens.windows(3).filter(|at| at[0].text == "mod" && at[2].text == ";");
    let children: Vec<String> = declared.map(|at| at[1].text.clone()).collect();
    let module = source.module.clone();
    sources.push(source);
    for child in children {
        let flat = directory.join(&child).with_extension("rs");
        let file = if repository().join(&flat).exists() { flat } else { directory.join(&child).join("mod.rs") };
        read_module(&file, [module.clone(), vec![child]].concat(), sources);
    }
}

/// A source from its text.
pub(crate) fn source(path: &Path, module: Vec<String>, text: &str) -> Source {
    let code = blank_comments_and_strings(text);
    let hidden = test_items(&tokens(&code));
    let (text, code) = (blank(text, &hidden), blank(&code, &hidden));
    Source { path: path.to_path_buf(), module, tokens: tokens(&code), text }
}

/// Spaces in place of all characters in `ranges`, which are in order, except for line feeds.
fn blank(text: &str, ranges: &[(usize, usize)]) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut shown = 0;
    for &(from, to) in ranges {
        blanked.push_str(&text[shown..from]);
        shown = to.min(text.len());
        for c in text[from..shown].chars() {
            blanked.push_str(if c == '\n' { "\n" } else { &"    "[..c.len_utf8()] });
        }
    }
    blanked + &text[shown..]
}

/// The text with spaces in place of its comments and of what stands between quotes.
fn blank_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let end_of = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at);
    let word = |at: usize| at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r')).filter(|_| !word(at));
        let raw = raw.map(|rest| (rest.len(), rest.len() - rest.trim_start_matches('#').len(), rest));
        let end = if rest.starts_with("//") {
            end_of(at, "\n")
        } else if rest.starts_with("/*") {
            end_of(at, "*/") + 2
        } else if let Some((left, hashes, _)) = raw.filter(|(_, hashes, rest)| rest[*hashes..].starts_with('"')) {
            let (begin, close) = (text.len() - left + hashes + 1, format!("\"{}", "#".repeat(hashes)));
            end_of(begin, &close) + close.len()
        } else if rest.starts_with('"') {
            quoted(bytes, at, b'"')
        } else if rest.starts_with('\'') && is_character(rest) {
            quoted(bytes, at, b'\'')
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        ranges.push((at, end));
        at = end;
    }
    blank(text, &ranges)
}

/// Whether a quote begins a character, and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut inner = rest.chars().skip(1);
    inner.next().is_some_and(|first| first == '\\' || inner.next() == Some('\''))
}

/// Behind the quote that ends what begins with the quote at `from`.
fn quoted(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn tokens(code: &str) -> Vec<Token> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let length = if in_word(first) || first == '\'' {
            rest[1..].find(|c| !in_word(c)).map_or(rest.len(), |end| end + 1)
        } else if ["::", "->", "=>"].iter().any(|pair| rest.starts_with(pair)) {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(Token { text: rest[..length].to_owned(), at, line });
        }
        line += usize::from(first == '\n');
        at += length;
    }
    tokens
}

/// Where the items are that stand behind `#[cfg(test)]`, `#[cfg(all(test, …))]` or `#[test]`, from the attribute on.
fn test_items(tokens: &[Token]) -> Vec<(usize, usize)> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let (mut items, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if text(at) != "#" || text(at + 1) != "[" {
            at += 1;
            continue;
        }
        let end = closing(tokens, at + 1);
        let words: Vec<&str> = (at + 2..end).map(text).filter(|word| word.starts_with(char::is_alphabetic)).collect();
        if !matches!(words.as_slice(), ["test"] | ["cfg", "test"] | ["cfg", "all", "test", ..]) {
            at = end + 1;
            continue;
        }
        let mut last = end + 1;
        while last < tokens.len() && !["{", ";"].contains(&text(last)) {
            last = if ["(", "["].contains(&text(last)) { closing(tokens, last) + 1 } else { last + 1 };
        }
        let last = if text(last) == "{" { closing(tokens, last) } else { last };
        items.push((tokens[at].at, tokens.get(last).map_or(usize::MAX, |token| token.at + 1)));
        at = last + 1;
    }
    items
}

/// The token that closes the bracket at `open`; the last one when none does.
pub(crate) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}
