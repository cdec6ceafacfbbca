//! Replacing pieces of a text: all of them or none, and what an error tells about the nearest place. Pure.

use std::borrow::Cow;

use serde::Deserialize;

use super::alike;
use super::change::TEXT_MAX;
use super::text::floor;

/// Places that an error names.
const PLACES_MAX: usize = 10;

/// Lines that an error shows of the nearest place, and bytes of each.
const NEAR_LINES: usize = 12;
const NEAR_LINE: usize = 200;

/// A text with more lines is not searched for a similar one; comparing takes a microsecond a line.
const NEAR_MAX: usize = 50_000;

/// How alike a line must be to be shown, of a hundred.
const ALIKE: usize = 60;

/// One replacement.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, expecting = "an object with old and new")]
pub(super) struct Piece {
    /// The text to replace.
    pub(super) old: String,
    /// The text that takes its place.
    pub(super) new: String,
    /// Whether every occurrence is replaced.
    #[serde(default)]
    pub(super) all: bool,
}

/// A text after an edit.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) text: String,
    pub(super) count: usize,
    /// The new lines: `line 3` or `lines 3-5`.
    pub(super) place: String,
}

/// Makes the replacements one after another; the error says what to do better, and nothing is replaced.
pub(super) fn replace_all(text: &str, pieces: &[Piece]) -> Result<Edited, String> {
    let mut done: Option<Edited> = None;
    for (piece, n) in pieces.iter().zip(1..) {
        let text = done.as_ref().map_or(text, |done| done.text.as_str());
        let edited = replace(text, &piece.old, &piece.new, piece.all);
        let edited = edited.map_err(|why| if pieces.len() > 1 { format!("edit {n}: {why}") } else { why })?;
        done = Some(match done {
            Some(before) => Edited {
                count: before.count + edited.count,
                place: format!("{}, {}", before.place, edited.place),
                ..edited
            },
            None => edited,
        });
    }
    done.ok_or_else(|| "`edits` is empty".to_owned())
}

/// Replaces `old` in `text`; the error says what to do better. Models write plain line ends whatever they read: where the text has
/// others, `old` is found with either, and what takes its place ends its lines as they were there.
fn replace(text: &str, old: &str, new: &str, all: bool) -> Result<Edited, String> {
    let is_as_written = !text.contains("\r\n") || (old.contains("\r\n") && !windows(text));
    if is_as_written && text.contains(old) {
        return put(&LineEnds::as_written(text), old, new, all);
    }
    let (old, new) = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    if old == new {
        return Err("`old` and `new` differ only in line ends".to_owned());
    }
    put(&LineEnds::of(text), &old, &new, all)
}

fn put(text: &LineEnds<'_>, old: &str, new: &str, all: bool) -> Result<Edited, String> {
    let plain = text.plain.as_ref();
    if !plain.contains(old) {
        return Err(missing(plain, old));
    }
    if !all {
        let places = places(plain, old);
        if places.len() > 1 {
            return Err(ambiguous(plain, &places));
        }
    }
    let count = plain.matches(old).count();
    let longest = new.len() + if text.windows.is_empty() { 0 } else { new.matches('\n').count() };
    let size = (plain.len() + text.windows.len()).saturating_sub(count * old.len());
    let size = size.saturating_add(count.saturating_mul(longest));
    if size as u64 > TEXT_MAX {
        return Err(format!("it would have {size} bytes, more than the {TEXT_MAX} that can be edited"));
    }
    let (mut edited, mut at, mut first, mut last) = (String::with_capacity(size), 0, None, 0);
    for (place, _) in plain.match_indices(old) {
        edited.push_str(text.original(at, place));
        (last, at) = (edited.len(), place + old.len());
        first.get_or_insert(last);
        text.push(&mut edited, new, place, at);
    }
    let end = edited.len();
    edited.push_str(text.original(at, plain.len()));
    let written = edited.get(last..end).unwrap_or_default().trim_end_matches(['\r', '\n']).len();
    let (from, to) = (line_of(&edited, first.unwrap_or_default()), line_of(&edited, last + written));
    let place = if from == to { format!("line {from}") } else { format!("lines {from}-{to}") };
    Ok(Edited { text: edited, count, place })
}

/// A text with `\n` at the end of each line, and where that was `\r\n`.
struct LineEnds<'a> {
    text: &'a str,
    plain: Cow<'a, str>,
    /// The places in `plain` of the line ends that were `\r\n`, in order.
    windows: Vec<usize>,
}

impl<'a> LineEnds<'a> {
    fn as_written(text: &'a str) -> Self {
        Self { text, plain: Cow::Borrowed(text), windows: Vec::new() }
    }

    fn of(text: &'a str) -> Self {
        let windows = text.match_indices("\r\n").enumerate().map(|(before, (at, _))| at - before).collect();
        Self { text, plain: Cow::Owned(text.replace("\r\n", "\n")), windows }
    }

    /// The text as it was, for a part of `plain`.
    fn original(&self, from: usize, to: usize) -> &'a str {
        let at = |place: usize| place + self.windows.partition_point(|end| *end < place);
        self.text.get(at(from)..at(to)).unwrap_or_default()
    }

    fn is_windows(&self, place: usize) -> bool {
        self.windows.binary_search(&place).is_ok()
    }

    /// Adds what takes the place from `from` to `to`. Lines that are the same at its beginning and end keep their own ends; the others
    /// have those of the lines that they replace, or of the line around them.
    fn push(&self, out: &mut String, new: &str, from: usize, to: usize) {
        if self.windows.is_empty() {
            return out.push_str(new);
        }
        let old = self.plain.get(from..to).unwrap_or_default();
        let ends: Vec<bool> = old.match_indices('\n').map(|(at, _)| self.is_windows(from + at)).collect();
        let around = || {
            let after = self.plain.get(to..).and_then(|rest| rest.find('\n')).map(|at| to + at);
            let before = || self.plain.get(..from).and_then(|text| text.rfind('\n'));
            after.or_else(before).is_some_and(|at| self.is_windows(at))
        };
        let lines: Vec<&str> = new.split('\n').collect();
        let same_begin = old.split('\n').zip(&lines).take_while(|(old, new)| old == *new).count();
        let same_end = old.rsplit('\n').zip(lines.iter().rev()).take_while(|(old, new)| old == *new).count();
        let count = lines.len() - 1;
        for (nth, line) in lines.into_iter().enumerate() {
            out.push_str(line);
            if nth == count {
                break;
            }
            let from_end = count - nth;
            let is_windows = match ends.len() {
                0 => around(),
                had if nth < same_begin.min(had) => ends.get(nth).copied().unwrap_or_default(),
                // The end of this line is before one that is the same as in the old text.
                had if from_end <= same_end.min(had) => ends.get(had - from_end).copied().unwrap_or_default(),
                had => ends.get(nth.min(had.saturating_sub(same_end)).min(had - 1)).copied().unwrap_or_default(),
            };
            out.push_str(if is_windows { "\r\n" } else { "\n" });
        }
    }
}

/// Where `old` begins in `text`, also where it overlaps itself; one more than are told.
fn places(text: &str, old: &str) -> Vec<usize> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut places: Vec<usize> = Vec::new();
    while places.len() <= PLACES_MAX {
        let from = places.last().map_or(0, |place| place + step);
        let Some(place) = text.get(from..).and_then(|rest| rest.find(old)) else { break };
        places.push(from + place);
    }
    places
}

/// Whether every line ends as in Windows.
pub(super) fn windows(text: &str) -> bool {
    let (all, crlf) = (text.matches('\n').count(), text.matches("\r\n").count());
    all > 0 && all == crlf
}

pub(super) fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// The number of the line at a byte of `text`.
fn line_of(text: &str, place: usize) -> usize {
    text.as_bytes().iter().take(place).filter(|byte| **byte == b'\n').count() + 1
}

fn ambiguous(text: &str, places: &[usize]) -> String {
    let lines: Vec<String> = places.iter().take(PLACES_MAX).map(|place| line_of(text, *place).to_string()).collect();
    let (count, more) = match places.len() {
        ..=PLACES_MAX => (format!("{} times", places.len()), ""),
        _ => (format!("more than {PLACES_MAX} times"), ", …"),
    };
    format!("`old` occurs {count}, at lines {}{more}; give more lines around it, or set `all`", lines.join(", "))
}

/// Why `old` may not be there, with the nearest lines.
fn missing(text: &str, old: &str) -> String {
    nearest_lines(text, old, "`old`")
}

/// Why `old`, which is called `what`, may not be there, with the nearest lines. A text is searched as a whole, for line by line a long
/// `old` would take hours.
pub(super) fn nearest_lines(text: &str, old: &str, what: &str) -> String {
    let (lines, wanted) = (trimmed(text), trimmed(old.trim()));
    let found = |wanted: &str| lines.find(wanted).map(|place| line_of(&lines, place));
    let Some(first) = old.trim().lines().next() else { return format!("{what} was not found") };
    let count = old.trim().lines().count();
    if let Some(line) = found(&wanted) {
        return format!("{what} was not found; line {line} differs only in white space:\n{}", shown(text, line, count));
    }
    if let Some((line, how)) = alike::place(text, old.trim()) {
        let near = shown(text, line, count);
        return format!("{what} was not found; line {line} looks the same, but {how}:\n{near}");
    }
    if let Some(line) = found(&trimmed(first)) {
        let near = shown(text, line, count);
        return format!("{what} was not found; line {line} is like its first, but what follows differs:\n{near}");
    }
    match nearest(text, old) {
        Some(line) => format!("{what} was not found; the nearest lines are\n{}", shown(text, line, count)),
        None => format!("{what} was not found; read the file again"),
    }
}

/// The lines without the white space around them, each between two line ends.
fn trimmed(text: &str) -> String {
    text.lines().fold("\n".to_owned(), |lines, line| lines + line.trim() + "\n")
}

/// `count` lines from `line` on, with their numbers.
fn shown(text: &str, line: usize, count: usize) -> String {
    let lines = text.lines().zip(1..).skip(line.saturating_sub(1)).take(count.min(NEAR_LINES));
    let cut = |line: &str| match line.get(..floor(line, NEAR_LINE)).unwrap_or_default() {
        all if all.len() == line.len() => all.to_owned(),
        part => format!("{part}…"),
    };
    lines.map(|(line, number): (&str, usize)| format!("{number}\t{}\n", cut(line))).collect()
}

/// Where `old` would begin if the line most like its longest one is that line.
fn nearest(text: &str, old: &str) -> Option<usize> {
    if text.lines().take(NEAR_MAX + 1).count() > NEAR_MAX {
        return None;
    }
    let (at, longest) = old.trim().lines().map(str::trim).enumerate().max_by_key(|(_, line)| line.len())?;
    let wanted = pairs(longest);
    let alike = |line: &str| {
        let line = line.trim();
        // Lines of other lengths are not looked at.
        (line.len() <= 2 * longest.len() && longest.len() <= 2 * line.len()).then(|| overlap(&wanted, &pairs(line)))
    };
    let scored = text.lines().zip(1..).filter_map(|(line, number): (&str, usize)| Some((alike(line)?, number)));
    // Of equals the first.
    let (score, line) = scored.max_by_key(|(score, number)| (*score, std::cmp::Reverse(*number)))?;
    (score >= ALIKE).then(|| line.saturating_sub(at).max(1))
}

/// The pairs of neighbouring bytes, sorted; of a long line those of its beginning.
fn pairs(line: &str) -> Vec<[u8; 2]> {
    let bytes = line.as_bytes().get(..line.len().min(NEAR_LINE)).unwrap_or_default();
    let mut pairs: Vec<[u8; 2]> = bytes.windows(2).filter_map(|pair| pair.try_into().ok()).collect();
    pairs.sort_unstable();
    pairs
}

/// How many of a hundred pairs both have (Dice's coefficient).
fn overlap(one: &[[u8; 2]], other: &[[u8; 2]]) -> usize {
    let (mut rest, mut common) = (other, 0);
    for pair in one {
        let skip = rest.partition_point(|it| it < pair);
        rest = rest.get(skip..).unwrap_or_default();
        if rest.first() == Some(pair) {
            (rest, common) = (rest.get(1..).unwrap_or_default(), common + 1);
        }
    }
    200 * common / (one.len() + other.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, old: &str, new: &str, all: bool, expect: Result<(&str, &str), &str>) {
        let got = replace(text, old, new, all);
        let got = got.as_ref().map(|edited| (edited.text.as_str(), edited.place.as_str())).map_err(String::as_str);
        assert_eq!(got, expect);
    }

    #[test]
    fn one_place_or_all_are_replaced() {
        check("a\nb\nc\n", "b", "x\ny", false, Ok(("a\nx\ny\nc\n", "lines 2-3")));
        check("a\nb\nc\n", "b\n", "", false, Ok(("a\nc\n", "line 2")));
        check("a\nb\na\n", "a", "xx", true, Ok(("xx\nb\nxx\n", "lines 1-3")));
        check("x a\nx\na\n", "x a", "y", true, Ok(("y\nx\na\n", "line 1")));
    }

    #[test]
    fn windows_line_ends_stay() {
        check("a\r\nb\r\nc\r\n", "a\nb", "x\ny", false, Ok(("x\r\ny\r\nc\r\n", "lines 1-2")));
        check("a\r\nb\r\n", "a\r\n", "x\n", false, Ok(("x\r\nb\r\n", "line 1")));
        check("a\r\nb\n", "a", "x\ny", false, Ok(("x\r\ny\r\nb\n", "lines 1-2")));
        check("a\r\n", "a\n", "a\r\n", false, Err("`old` and `new` differ only in line ends"));
    }

    #[test]
    fn a_file_with_both_line_ends_is_edited_over_them_and_keeps_them() {
        let text = "a\r\nb\r\nc\nd\r\n";
        check(text, "a\nb", "x\ny", false, Ok(("x\r\ny\r\nc\nd\r\n", "lines 1-2")));
        check(text, "b\nc\nd", "b\nX\nY\nc\nd", false, Ok(("a\r\nb\r\nX\r\nY\r\nc\nd\r\n", "lines 2-6")));
        check(text, "b\nc\nd\n", "b\nc\n", false, Ok(("a\r\nb\r\nc\n", "lines 2-3")));
        check(text, "c\nd", "c\nx\nd", false, Ok(("a\r\nb\r\nc\nx\nd\r\n", "lines 3-5")));
        check(text, "c", "c\nx", false, Ok(("a\r\nb\r\nc\nx\nd\r\n", "lines 3-4")));
        check(text, "\nc\n", "\n", false, Ok(("a\r\nb\r\nd\r\n", "line 2")));
        check(text, "b\r\nc\n", "b\nc\n", false, Ok(("a\r\nb\nc\nd\r\n", "lines 2-3")));
        check("a\nb\n", "a\r\nb\r\n", "x\r\n", false, Ok(("x\n", "line 1")));
        check("a\nb\n", "a\n", "a\r\n", false, Ok(("a\r\nb\n", "line 1")));
        check("x\r\n1\nx\n2\r\nx\r\n1\n", "x\n1\n", "y\n", true, Ok(("y\nx\n2\r\ny\n", "lines 1-4")));
        check("a\r\nb\nc", "b\nc", "b\nc\nd", false, Ok(("a\r\nb\nc\nd", "lines 2-4")));
    }

    #[test]
    fn characters_that_look_the_same_are_named() {
        let curly = "`old` was not found; line 2 looks the same, but it has U+2019 (curly quote) where yours has U+0027 `'`:\n2\tit’s\n";
        check("a\nit’s\nb\n", "it's", "x", false, Err(curly));
        let composed = "`old` was not found; line 1 looks the same, but it has U+00E9 `é` where yours has U+0065 `e` and U+0301 (a mark on it):\n1\té b\n2\tc\n";
        check("é b\nc\n", "e\u{301} b\nc", "x", false, Err(composed));
        let space = "`old` was not found; line 1 looks the same, but it has U+00A0 (no-break space) where yours has U+0020 (space):\n1\tx = a\u{a0}b;\n";
        check("x = a\u{a0}b;\r\n", "= a b", "x", false, Err(space));
    }

    #[test]
    fn an_error_says_what_to_do_better() {
        let many = "`old` occurs 3 times, at lines 1, 2, 4; give more lines around it, or set `all`";
        check("a\na\nb\na\n", "a", "x", false, Err(many));
        let more = "`old` occurs more than 10 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …; give more lines around it, or set `all`";
        check(&"a\n".repeat(12), "a", "x", false, Err(more));
        let overlapping = "`old` occurs 2 times, at lines 1, 2; give more lines around it, or set `all`";
        check("}\n}\n}\n", "}\n}\n", "}\n", false, Err(overlapping));
        check("ééé", "éé", "e", false, Err(overlapping.replace("1, 2", "1, 1").as_str()));
        let large = "it would have 65536000000 bytes, more than the 16777216 that can be edited";
        check(&"a".repeat(1_000_000), "a", &"b".repeat(65_536), true, Err(large));
        let space = "`old` was not found; line 2 differs only in white space:\n2\t\tfoo();\n3\t\tbar();\n";
        check("if x {\n\tfoo();\n\tbar();\n}\n", "    foo();\n    bar();", "x", false, Err(space));
        let first =
            "`old` was not found; line 1 is like its first, but what follows differs:\n1\tif x {\n2\t\tfoo();\n";
        check("if x {\n\tfoo();\n", "if x {\n  bar();", "x", false, Err(first));
        let near = "`old` was not found; the nearest lines are\n2\tlet total = sum(list);\n3\tprint(total);\n";
        check(
            "a\nlet total = sum(list);\nprint(total);\n",
            "let totals = sum(lists);\nprint(x);",
            "x",
            false,
            Err(near),
        );
        check("abc\n", "d", "x", false, Err("`old` was not found; read the file again"));
        check("abc\n", "\n\n\n", "x", false, Err("`old` was not found"));
    }

    #[test]
    fn a_long_piece_that_is_not_there_is_searched_for_in_one_pass() {
        let last = "`old` was not found; line 1 is like its first, but what follows differs:\n";
        let error = replace(&"a\n".repeat(400_000), &format!("{}b\n", "a\n".repeat(200_000)), "x", false).unwrap_err();
        assert!(error.starts_with(last) && error.len() < 200, "{error}");
        let space = "`old` was not found; line 1 differs only in white space:\n";
        let error = replace(&" a\n".repeat(400_000), &"a \n".repeat(200_000), "x", false).unwrap_err();
        assert!(error.starts_with(space), "{error}");
    }

    #[test]
    fn of_several_edits_all_are_made_or_none() {
        let piece = |old: &str, new: &str, all| Piece { old: old.to_owned(), new: new.to_owned(), all };
        let text = "a\nb\nc\n";
        let edited = replace_all(text, &[piece("a", "x\ny", false), piece("y", "z", false), piece("c", "d", true)]);
        let edited = edited.unwrap();
        let got = (edited.text.as_str(), edited.count, edited.place.as_str());
        assert_eq!(got, ("x\nz\nb\nd\n", 3, "lines 1-2, line 2, line 4"));
        let error = replace_all(text, &[piece("a", "x", false), piece("none", "y", false)]).unwrap_err();
        assert_eq!(error, "edit 2: `old` was not found; read the file again");
        assert_eq!(replace_all(text, &[]).unwrap_err(), "`edits` is empty");
    }
}
