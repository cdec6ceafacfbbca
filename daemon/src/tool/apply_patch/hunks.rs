//! The pieces of a patch put into a text: each is looked for after the one before, exactly first and then more and more loosely,
//! as the models that write patches expect. Pure.

use std::cell::OnceCell;

use super::super::alike::folded;
use super::super::change::TEXT_MAX;
use super::super::replace::{nearest_lines, windows};
use super::format::{Hunk, HunkLine};

/// How much is compared for one file, in lines and pieces of long ones: tenths of a second. A patch of a million equal lines would
/// take hours.
const COMPARED_MAX: usize = 20_000_000;

/// Bytes of a long line that count as one more line.
const LONG: usize = 64;

/// How loosely lines are compared; each level ignores more.
const LEVELS: usize = 4;

/// A text after its pieces are in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patched {
    pub(super) text: String,
    /// The new lines, from 1: the first and the last of each piece.
    pub(super) places: Vec<(usize, usize)>,
}

/// Puts the pieces into `text`; the error says which does not fit, with the nearest lines. A byte order mark stays, and is no part of
/// the first line.
pub(super) fn apply(text: &str, hunks: &[Hunk]) -> Result<Patched, String> {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => put(rest, hunks).map(|patched| Patched { text: format!("\u{feff}{}", patched.text), ..patched }),
        None => put(text, hunks),
    }
}

fn put(text: &str, hunks: &[Hunk]) -> Result<Patched, String> {
    let file = PatchedFile::of(text);
    let end = if windows(text) { "\r\n" } else { "\n" };
    let (mut out, mut places, mut at) = (PatchedText::default(), Vec::new(), 0);
    for hunk in hunks {
        let old: Vec<&str> = hunk.lines.iter().filter_map(HunkLine::old).collect();
        let mut from = at;
        for anchor in &hunk.anchors {
            from = file
                .find(&[anchor.as_str()], from, false)?
                .ok_or_else(|| missing(text, hunk, anchor, "the line of `@@`"))?
                + 1;
        }
        let place = if old.is_empty() {
            // Behind the anchors, or at the end.
            if hunk.anchors.is_empty() || hunk.at_end { file.lines.len() } else { from }
        } else {
            let found = match file.find(&old, from, hunk.at_end)? {
                // The line of an anchor may be the first of the piece.
                None if !hunk.anchors.is_empty() => file.find(&old, at.max(from - 1), hunk.at_end)?,
                found => found,
            };
            found.ok_or_else(|| missing(text, hunk, &old.join("\n"), "what should be there"))?
        };
        out.extend(file.lines.get(at..place).unwrap_or_default());
        (at, out.changed) = (place, None);
        for line in &hunk.lines {
            match line {
                // The file's own line, not the model's.
                HunkLine::Keep(_) => out.extend(file.lines.get(at..at + 1).unwrap_or_default()),
                HunkLine::Add(line) => {
                    out.push(line.trim_end_matches('\r'), file.end_near(at).unwrap_or(end));
                    out.change(out.count);
                }
                HunkLine::Remove(_) => out.change(out.count + 1),
            }
            at += usize::from(line.old().is_some());
        }
        places.extend(out.changed);
        if out.text.len() as u64 > TEXT_MAX {
            return Err(format!("it would have more than the {TEXT_MAX} bytes that can be edited"));
        }
    }
    out.extend(file.lines.get(at..).unwrap_or_default());
    if out.text.len() as u64 > TEXT_MAX {
        return Err(format!("it would have more than the {TEXT_MAX} bytes that can be edited"));
    }
    Ok(Patched { text: out.text, places })
}

/// The text to write, and its number of lines.
#[derive(Default)]
struct PatchedText {
    text: String,
    count: usize,
    /// The first and the last line of the piece being written that are not as they were.
    changed: Option<(usize, usize)>,
}

impl PatchedText {
    /// Lines of the file, each with its end.
    fn extend(&mut self, lines: &[&str]) {
        for line in lines {
            self.end_line("\n");
            self.text.push_str(line);
            self.count += 1;
        }
    }

    fn push(&mut self, line: &str, end: &str) {
        self.end_line(end);
        self.text.extend([line, end]);
        self.count += 1;
    }

    fn change(&mut self, line: usize) {
        let (first, last) = self.changed.unwrap_or((line, line));
        self.changed = Some((first, last.max(line)));
    }

    /// A last line without an end gets one when something follows.
    fn end_line(&mut self, end: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push_str(end);
        }
    }
}

struct PatchedFile<'a> {
    /// Its lines, each with its end.
    lines: Vec<&'a str>,
    /// The lines as each level compares them.
    plain: [OnceCell<Vec<String>>; LEVELS],
    compared: std::cell::Cell<usize>,
}

impl<'a> PatchedFile<'a> {
    fn of(text: &'a str) -> Self {
        let lines = text.split_inclusive('\n').collect();
        Self { lines, plain: Default::default(), compared: std::cell::Cell::default() }
    }

    /// How the line before place `at` ends, or the first one: a file may have both ends.
    fn end_near(&self, at: usize) -> Option<&'static str> {
        let line = self.lines.get(at.saturating_sub(1))?;
        match (line.ends_with("\r\n"), line.ends_with('\n')) {
            (true, _) => Some("\r\n"),
            (_, true) => Some("\n"),
            _ => None,
        }
    }

    /// Where `wanted` stands at or after line `from`, counted from 0; `at_end`: at the end of the file, if it is there.
    fn find(&self, wanted: &[&str], from: usize, at_end: bool) -> Result<Option<usize>, String> {
        for level in 0..LEVELS {
            let wanted: Vec<String> = wanted.iter().map(|line| plain(line, level)).collect();
            let Some(cell) = self.plain.get(level) else { break };
            let lines = cell.get_or_init(|| self.lines.iter().map(|line| plain(line, level)).collect());
            let Some(last) = lines.len().checked_sub(wanted.len()) else { return Ok(None) };
            let end = at_end.then_some(last).filter(|last| *last >= from);
            for place in end.into_iter().chain(from..=last) {
                if self.matches(lines.get(place..).unwrap_or_default(), &wanted)? {
                    return Ok(Some(place));
                }
            }
        }
        Ok(None)
    }

    fn matches(&self, lines: &[String], wanted: &[String]) -> Result<bool, String> {
        for (line, wanted) in lines.iter().zip(wanted) {
            let compared = self.compared.get() + 1 + line.len().min(wanted.len()) / LONG;
            self.compared.set(compared);
            if compared > COMPARED_MAX {
                return Err("too much of it is alike to find the place; name a line near it after `@@`".to_owned());
            }
            if line != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A line as a level compares it: as it is, without white space at its end, without any around it, with one form for what looks alike.
fn plain(line: &str, level: usize) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match level {
        0 => line.to_owned(),
        1 => line.trim_end().to_owned(),
        2 => line.trim().to_owned(),
        _ => folded(line.trim()),
    }
}

/// Why a piece does not fit, with the nearest lines.
fn missing(text: &str, hunk: &Hunk, wanted: &str, what: &str) -> String {
    format!("the piece at line {} of the patch: {}", hunk.number, nearest_lines(text, wanted, what))
}

#[cfg(test)]
mod tests {
    use super::super::format::{Section, parse};
    use super::*;

    fn patched(text: &str, body: &str) -> Result<String, String> {
        let sections = parse(&format!("*** Begin Patch\n*** Update File: a\n{body}\n*** End Patch"))?;
        let [Section::Update { hunks, .. }] = sections.as_slice() else { return Err("one section".to_owned()) };
        apply(text, hunks).map(|patched| patched.text)
    }

    fn check(text: &str, body: &str, expect: &str) {
        assert_eq!(patched(text, body).as_deref(), Ok(expect), "{body}");
    }

    #[test]
    fn pieces_are_put_in_their_places() {
        check("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n");
        check("a\nb\nc\n", " a\n+x\n+y", "a\nx\ny\nb\nc\n");
        check("a\nx\nb\nx\n", "@@ b\n-x\n+y", "a\nx\nb\ny\n");
        check(
            "class A\ndef f\nx\nclass B\ndef f\nx\n",
            "@@ class B\n@@ def f\n-x\n+y",
            "class A\ndef f\nx\nclass B\ndef f\ny\n",
        );
        check("x\ny\nx\n", "-x\n+z\n*** End of File", "x\ny\nz\n");
        check("a\n", "@@\n+b", "a\nb\n");
        check("a\nb\n", "@@ a\n+x", "a\nx\nb\n");
        check("a\nb\nc\nd\n", "-a\n+A\n@@\n-d\n+D", "A\nb\nc\nD\n");
        check("fn f() {\n}\n", "@@ fn f() {\n-fn f() {\n+fn g() {\n }", "fn g() {\n}\n");
        check("a\n\nb\n", " a\n\n-b\n+c", "a\n\nc\n");
    }

    #[test]
    fn ends_of_lines_and_white_space_stay_as_the_file_has_them() {
        check("a\r\nb\r\n", "-a\n+x\n b", "x\r\nb\r\n");
        check("\tif x:  \n\t\ty\n", " if x:\n-y\n+\t\tz", "\tif x:  \n\t\tz\n");
        check("say “a” – b\n-\n", " say \"a\" - b\n+c\n -", "say “a” – b\nc\n-\n");
        check("a\nb", "-b\n+c", "a\nc\n");
        check("a\nb", "-a\n+c", "c\nb");
        check("b", "@@\n+c", "b\nc\n");
        check("", "@@\n+c", "c\n");
        check("a\r\nb\nc\r\n", "-b\n+x\n+y", "a\r\nx\ny\nc\r\n");
        check("a\nb\r\nc\n", " b\n+x\n c", "a\nb\r\nx\r\nc\n");
        check("re\u{301}sume\u{301} a\u{202f}b\nx\n", " résumé a b\n-x\n+y", "re\u{301}sume\u{301} a\u{202f}b\ny\n");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line_and_stays() {
        check("\u{feff}one\ntwo\n", "-one\n+1\n two", "\u{feff}1\ntwo\n");
        check("\u{feff}one\r\ntwo\r\n", "@@ one\n-two\n+2", "\u{feff}one\r\n2\r\n");
        check("\u{feff}one\n", "+zero\n one", "\u{feff}zero\none\n");
        check("\u{feff}one\n", "-one", "\u{feff}");
        let error = patched("\u{feff}one\n", "-ones\n+x").unwrap_err();
        assert!(error.ends_with("the nearest lines are\n1\tone\n"), "{error}");
    }

    #[test]
    fn a_near_miss_is_told_with_the_nearest_lines() {
        let error = patched("fn one() {}\nfn two() {}\n", "-fn twoo() {}\n+x").unwrap_err();
        assert_eq!(
            error,
            "the piece at line 3 of the patch: what should be there was not found; the nearest lines are\n2\tfn two() {}\n"
        );
        assert!(patched("a\n", "@@ class X\n+x").unwrap_err().contains("the line of `@@` was not found"));
        // Each piece is after the one before.
        assert!(patched("a\nb\n", "-b\n+B\n@@\n-a\n+A").unwrap_err().contains("line 5 of the patch"));
    }

    #[test]
    fn equal_lines_without_end_are_given_up() {
        let text = "x\n".repeat(300_000);
        let piece = format!("{}-y\n+z", " x\n".repeat(100_000));
        assert!(patched(&text, &piece).unwrap_err().contains("too much of it is alike"));
    }

    proptest::proptest! {
        #[test]
        fn what_a_piece_adds_and_removes_is_what_changes(
            before in proptest::collection::vec("[ab]{0,2}", 0..8), at in 0usize..8, removed in 0usize..3, added in "[cd]{1,2}",
        ) {
            let at = at.min(before.len());
            let to = (at + removed).min(before.len());
            let text: String = before.iter().map(|line| format!("{line}\n")).collect();
            let kept = before.iter().take(at).map(|line| HunkLine::Keep(line.clone()));
            let gone = before.get(at..to).unwrap_or_default().iter().map(|line| HunkLine::Remove(line.clone()));
            let lines: Vec<HunkLine> = kept.chain(gone).chain([HunkLine::Add(added.clone())]).collect();
            let is_insert = at == 0 && to == 0;
            let patched = apply(&text, &[Hunk { lines, ..Hunk::default() }]).unwrap().text;
            let mut expect: Vec<String> = before.clone();
            if is_insert { expect.push(added) } else { expect.splice(at..to, [added]); }
            let expect: String = expect.iter().map(|line| format!("{line}\n")).collect();
            proptest::prop_assert_eq!(patched, expect);
        }
    }
}
