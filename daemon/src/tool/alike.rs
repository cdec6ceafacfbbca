//! Text and names that look alike: composed and decomposed letters, kinds of spaces, quotes and dashes, and what does not show.
//!
//! Screenshots of macOS have a narrow no-break space in their names, editors make quotes curly, and models write the plain form. A name
//! that differs in nothing else is found if exactly one has it ([`completed`]); of a text the character is named ([`place`]).

use std::path::{Path, PathBuf};

use icu_normalizer::ComposingNormalizerBorrowed;
use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};

use super::invalid::Invalid;
use super::types::{Hidden, ToolOutput};
use super::workspace::Workspace;

/// Names of a directory that are compared with one that was not found.
const NEIGHBOURS_MAX: usize = 10_000;

/// Characters of a line that are searched for the place of a difference, and characters that are compared there.
const SEARCHED: usize = 2000;
const COMPARED: usize = 60;

/// The field of a call's arguments with the name that the model gave, when a file with another one takes its place.
const ASKED: &str = "asked";

/// The name that a model gave for a file with another one.
pub(super) struct AskedName {
    /// As the model gave it.
    name: String,
    /// The same, absolute.
    pub(super) path: PathBuf,
}

impl AskedName {
    /// Takes the name that [`completed`] added out of the arguments, if it did.
    pub(super) fn take(input: &Value, workspace: &Workspace) -> Result<(Value, Option<Self>), Invalid> {
        let mut input = input.clone();
        let name = input.as_object_mut().and_then(|fields| fields.shift_remove(ASKED));
        let Some(Value::String(name)) = name else { return Ok((input, None)) };
        let path = workspace.absolute(&name)?;
        Ok((input, Some(Self { name, path })))
    }

    /// Says in the result of a call that another file was taken, which is shown as `shown`.
    pub(super) fn say(&self, shown: &str, mut output: ToolOutput) -> ToolOutput {
        output.content.insert(0, ContentBlock::text(note(&self.name, shown)));
        output
    }
}

/// The text with one form for what looks alike (NFKC, and beyond that quotes, dashes, spaces, and what does not show).
pub(super) fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    ComposingNormalizerBorrowed::new_nfkc().normalize(text).chars().filter(|c| shows(*c)).map(plain).collect()
}

fn shows(c: char) -> bool {
    !matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

/// The plain form of a character that models write otherwise than files have it.
fn plain(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' | '\u{2032}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\n' | '\r' | '\t' => c,
        c if c.is_whitespace() => ' ',
        c => c,
    }
}

/// The arguments with the path of the one file whose name looks like that of `path`, which is not there; absent if `path` is there, if
/// there is no such file or several, or if a rule keeps one of both from being read. Blocks on the disk.
pub(super) fn completed(input: &Value, workspace: &Workspace, hidden: &Hidden) -> Option<Value> {
    let asked = input.get("path")?.as_str().filter(|_| input.get(ASKED).is_none())?;
    let path = workspace.absolute(asked).ok()?;
    let found = find(&path).filter(|found| !hidden(&path) && !hidden(found))?;
    let below = found.strip_prefix(&workspace.cwd).unwrap_or(&found).to_str()?;
    let named = if below.starts_with('~') { found.to_str()? } else { below };
    let mut completed = input.clone();
    let fields = completed.as_object_mut()?;
    fields.insert("path".to_owned(), json!(named));
    fields.insert(ASKED.to_owned(), json!(asked));
    Some(completed)
}

/// The one path that looks like this one, which is not there.
fn find(path: &Path) -> Option<PathBuf> {
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let mut found = PathBuf::new();
    for part in path.components() {
        let here = found.join(part);
        if here.symlink_metadata().is_ok() {
            found = here;
            continue;
        }
        let wanted = folded(part.as_os_str().to_str()?);
        let names: Vec<_> = std::fs::read_dir(&found).ok()?.flatten().take(NEIGHBOURS_MAX + 1).collect();
        if names.len() > NEIGHBOURS_MAX {
            return None;
        }
        let mut alike = names
            .iter()
            .map(std::fs::DirEntry::file_name)
            .filter(|name| name.to_str().is_some_and(|name| folded(name) == wanted));
        let only = alike.next().filter(|_| alike.next().is_none())?;
        found.push(only);
    }
    Some(found)
}

/// A sentence that another name looks like `name`, and the difference, for an error about `name`, which is not there.
pub(super) fn same(name: &str, other: &str) -> Option<String> {
    let is_same = !(name.is_ascii() && other.is_ascii()) && folded(name) == folded(other);
    let how = difference(name, other).filter(|_| is_same)?;
    Some(format!("; `{}` is there, which looks the same: {how}", super::text::one_line(other)))
}

/// Says that a file with another name than `asked` was taken.
fn note(asked: &str, shown: &str) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let how = difference(&name(asked), &name(shown)).map(|how| format!(": {how}")).unwrap_or_default();
    format!("[there is no `{}`; this is `{shown}`{how}]", super::text::brief(asked))
}

/// The line of `text`, whose lines end in `\n`, where `wanted` stands but for characters that look alike, and the first of them in words.
pub(super) fn place(text: &str, wanted: &str) -> Option<(usize, String)> {
    if text.is_ascii() && wanted.is_ascii() {
        return None;
    }
    let (alike, sought) = (folded(text), folded(wanted));
    let at = alike.find(&sought).filter(|_| !sought.trim().is_empty())?;
    let line = alike.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    let from = match line {
        0 => 0,
        line => text.match_indices('\n').nth(line - 1).map_or(0, |(at, _)| at + 1),
    };
    let rest = text.get(from..)?;
    let first: String = sought.lines().next().unwrap_or_default().chars().take(COMPARED).collect();
    let begins = |start: &usize| {
        let part: String = rest.get(*start..).unwrap_or_default().chars().take(2 * COMPARED + 10).collect();
        folded(&part).starts_with(&first)
    };
    let start = rest.char_indices().map(|(start, _)| start).take(SEARCHED).find(begins);
    let how = start.and_then(|start| difference(wanted, rest.get(start..)?));
    Some((line + 1, how.unwrap_or_else(|| "it has other characters that look the same".to_owned())))
}

/// The first difference in words: what `other` has where `one` has something else.
fn difference(one: &str, other: &str) -> Option<String> {
    let at = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let (mine, its) = (letter(one, at), letter(other, at));
    if mine.is_empty() && its.is_empty() {
        return None;
    }
    Some(format!("it has {} where yours has {}", named(&its), named(&mine)))
}

/// A character and the marks on it.
fn letter(text: &str, at: usize) -> Vec<char> {
    let mut chars = text.chars().skip(at);
    let is_mark = |c: &char| ('\u{300}'..='\u{36f}').contains(c);
    let first = chars.next();
    first.into_iter().chain(chars.take_while(is_mark)).collect()
}

/// Characters by number, and by name or as they are.
fn named(chars: &[char]) -> String {
    let name = |c: &char| {
        let known = match c {
            ' ' => "space",
            '\n' => "line end",
            '\t' => "tab",
            '\u{a0}' => "no-break space",
            '\u{ad}' => "soft hyphen",
            '\u{200b}' => "zero-width space",
            '\u{200e}' => "left-to-right mark",
            '\u{202f}' => "narrow no-break space",
            '\u{3000}' => "ideographic space",
            '\u{2010}' => "hyphen",
            '\u{2011}' => "non-breaking hyphen",
            '\u{2013}' => "en dash",
            '\u{2014}' => "em dash",
            '\u{2212}' => "minus sign",
            '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' => "curly quote",
            '\u{feff}' => "byte order mark",
            '\u{300}'..='\u{36f}' => "a mark on it",
            c if c.is_whitespace() => "another space",
            c if !shows(*c) || c.is_control() => "it does not show",
            _ => return format!("U+{:04X} `{c}`", u32::from(*c)),
        };
        format!("U+{:04X} ({known})", u32::from(*c))
    };
    match chars {
        [] => "nothing".to_owned(),
        chars => chars.iter().map(name).collect::<Vec<_>>().join(" and "),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tool::tests::test_workspace;

    #[test]
    fn what_looks_alike_is_equal() {
        for (one, other) in [
            ("résumé", "re\u{301}sume\u{301}"),
            ("3.14 PM", "3.14\u{202f}PM"),
            ("a b", "a\u{a0}b"),
            ("a b", "a\u{3000}b"),
            ("it's", "it’s"),
            ("\"q\"", "“q”"),
            ("a-b", "a–b"),
            ("a-b", "a\u{2011}b"),
            ("ab", "a\u{200b}b"),
            ("ABC", "ＡＢＣ"),
            ("한", "\u{1112}\u{1161}\u{11ab}"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }
        assert_ne!(folded("résumé"), folded("resume"));
        assert_eq!(folded("a\n\tb\r\n"), "a\n\tb\r\n");
    }

    #[test]
    fn a_file_is_found_if_only_one_looks_like_it_and_no_rule_hides_one_of_them() {
        let (_dir, workspace) = test_workspace();
        let make = |name: &str| {
            let path = workspace.cwd.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        for name in
            ["Shot 3.14\u{202f}PM.txt", "e\u{301}te\u{301}/x–y.md", "a\u{a0}b", "a\u{2009}b", "plain", "~\u{a0}x"]
        {
            make(name);
        }
        let hides: fn(&Path) -> bool = |_| false;
        let check = |asked: &str, hidden: fn(&Path) -> bool, expect: Option<&str>| {
            let hidden: Hidden = Arc::new(hidden);
            let found = completed(&json!({ "path": asked, "limit": 1 }), &workspace, &hidden);
            let path = found.as_ref().map(|found| found["path"].as_str().unwrap().to_owned());
            assert_eq!(path.as_deref(), expect, "{asked}");
            assert!(found.is_none_or(|found| found["asked"] == asked && found["limit"] == 1));
        };
        check("Shot 3.14 PM.txt", hides, Some("Shot 3.14\u{202f}PM.txt"));
        check("été/x-y.md", hides, Some("e\u{301}te\u{301}/x–y.md"));
        check("a b", hides, None);
        check("a\u{a0}b", hides, None);
        check("plain", hides, None);
        check("none", hides, None);
        check("été/x-y.md", |path| path.to_str().unwrap().contains("x-y"), None);
        check("été/x-y.md", |path| path.to_str().unwrap().contains("x–y"), None);
        let absolute = workspace.cwd.join("~\u{a0}x");
        check("./~ x", hides, absolute.to_str());
    }

    #[test]
    fn the_first_character_that_differs_is_named() {
        let note = |asked: &str, shown: &str| note(asked, shown);
        assert_eq!(
            note("d/3.14 PM", "d/3.14\u{202f}PM"),
            "[there is no `d/3.14 PM`; this is `d/3.14\u{202f}PM`: it has U+202F (narrow no-break space) where yours has U+0020 (space)]"
        );
        assert!(
            note("é", "e\u{301}").ends_with("it has U+0065 `e` and U+0301 (a mark on it) where yours has U+00E9 `é`]")
        );
        assert!(note("ab", "ab\u{200b}").ends_with("it has U+200B (zero-width space) where yours has nothing]"));
        let check = |text: &str, wanted: &str, expect: Option<(usize, &str)>| {
            let got = place(text, wanted);
            assert_eq!(got.as_ref().map(|(line, how)| (*line, how.as_str())), expect);
        };
        check(
            "a\nsay(“it’s”)\n",
            "(\"it's",
            Some((2, "it has U+201C `“` where yours has U+0022 `\"`".replace("`“`", "(curly quote)").as_str())),
        );
        check("a\nb – c\nd\n", "b - c\nd", Some((2, "it has U+2013 (en dash) where yours has U+002D `-`")));
        check(
            "un re\u{301}sume\u{301}",
            "résumé",
            Some((1, "it has U+0065 `e` and U+0301 (a mark on it) where yours has U+00E9 `é`")),
        );
        check("x = a\u{a0}b", "a b", Some((1, "it has U+00A0 (no-break space) where yours has U+0020 (space)")));
        check("é", "b", None);
        check("plain", "plan", None);
    }
}
