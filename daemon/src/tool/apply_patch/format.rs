//! The text of a patch: `*** Begin Patch`, sections of files, `*** End Patch`. Pure.
//!
//! The grammar is that of OpenAI's `apply_patch`, which its models are trained on; what they get wrong often is taken too: text
//! in a here-document, blanks around the markers, an empty line for an empty line of context.

/// The most files of one patch: a model names a dozen, and each is a question, a diff and a change.
const FILES_MAX: usize = 100;

/// The most pieces of one file.
const HUNKS_MAX: usize = 1000;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// The part of a patch about one file; paths as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// Makes a file with this content.
    Add { path: String, content: String },
    /// Removes a file.
    Delete { path: String },
    /// Changes a file, and gives it another path if there is one.
    Update { path: String, to: Option<String>, hunks: Vec<Hunk> },
}

/// A piece of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Lines that come before it, each after the one before: `@@ fn main()`.
    pub(super) anchors: Vec<String>,
    /// Context, removed and added lines, in order.
    pub(super) lines: Vec<HunkLine>,
    /// Whether it stands at the end of the file.
    pub(super) at_end: bool,
    /// The line of the patch where it begins, from 1.
    pub(super) number: usize,
}

/// A line of a piece, without its mark and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HunkLine {
    /// It is there, and stays.
    Keep(String),
    /// It is there, and goes.
    Remove(String),
    /// It comes.
    Add(String),
}

impl HunkLine {
    /// The line as the file has it; none for one that comes.
    pub(super) fn old(&self) -> Option<&str> {
        match self {
            Self::Keep(text) | Self::Remove(text) => Some(text),
            Self::Add(_) => None,
        }
    }
}

/// Reads a patch; the error names the line of the patch and what should stand there.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, String> {
    let text = text.trim();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.trim() == BEGIN).ok_or_else(|| {
        format!("the patch does not begin with `{BEGIN}`; write `{BEGIN}`, sections such as `{UPDATE} path`, `{END}`")
    })?;
    // A command line of a shell, or a fence, may stand around it.
    let last = lines.iter().rposition(|line| line.trim() == END).filter(|last| *last > first);
    let Some(last) = last else { return Err(format!("the patch does not end with `{END}`; it may have been cut")) };
    let mut reader = Reader { lines: &lines, at: first + 1, end: last };
    let mut sections = Vec::new();
    while reader.at < reader.end {
        if reader.line().trim().is_empty() {
            reader.at += 1;
            continue;
        }
        if sections.len() >= FILES_MAX {
            return Err(format!("a patch may change {FILES_MAX} files; make several"));
        }
        sections.push(reader.section()?);
    }
    if sections.is_empty() {
        Err("the patch has no section, such as `*** Update File: path`".to_owned())
    } else {
        Ok(sections)
    }
}

/// Where the reading of a patch is.
struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
    /// The line of `*** End Patch`.
    end: usize,
}

impl Reader<'_> {
    fn line(&self) -> &str {
        self.lines.get(self.at).filter(|_| self.at < self.end).copied().unwrap_or_default()
    }

    fn wrong<T>(&self, problem: impl AsRef<str>) -> Result<T, String> {
        Err(format!("line {} of the patch: {}", self.at + 1, problem.as_ref()))
    }

    /// Whether the section continues.
    fn is_within(&self) -> bool {
        let marks = [ADD, DELETE, UPDATE];
        self.at < self.end && !marks.iter().any(|mark| self.line().starts_with(mark))
    }

    fn path(&mut self, mark: &str) -> Result<Option<String>, String> {
        let Some(path) = self.line().trim_start().strip_prefix(mark).map(|path| path.trim().to_owned()) else {
            return Ok(None);
        };
        if path.is_empty() {
            return self.wrong(format!("`{mark}` has no path"));
        }
        self.at += 1;
        Ok(Some(path))
    }

    fn section(&mut self) -> Result<Section, String> {
        if let Some(path) = self.path(ADD)? {
            return self.added(path);
        }
        if let Some(path) = self.path(DELETE)? {
            while self.is_within() && self.line().trim().is_empty() {
                self.at += 1;
            }
            return Ok(Section::Delete { path });
        }
        match self.path(UPDATE)? {
            Some(path) => self.updated(path),
            None => self.wrong(format!("`{ADD} path`, `{UPDATE} path` or `{DELETE} path` is missing here")),
        }
    }

    fn added(&mut self, path: String) -> Result<Section, String> {
        let mut content = String::new();
        while self.is_within() {
            let line = self.line();
            match line.strip_prefix('+') {
                Some(line) => content.extend([line, "\n"]),
                None if line.is_empty() => {
                    // A blank line before the next section is none of the file's.
                    let rest = self.lines.get(self.at + 1..self.end).unwrap_or_default();
                    let next = rest.iter().find(|line| !line.is_empty());
                    content.extend(next.is_some_and(|line| line.starts_with('+')).then_some('\n'));
                }
                None => return self.wrong(format!("a line of the new file {path} begins with `+`")),
            }
            self.at += 1;
        }
        Ok(Section::Add { path, content })
    }

    fn updated(&mut self, path: String) -> Result<Section, String> {
        let to = self.path(MOVE)?;
        let mut hunks: Vec<Hunk> = Vec::new();
        while self.is_within() {
            let (line, number) = (self.line().to_owned(), self.at + 1);
            let is_open = hunks.last().is_some_and(|hunk| !hunk.at_end);
            if line.trim_end() == END_OF_FILE {
                match hunks.last_mut() {
                    Some(hunk) => hunk.at_end = true,
                    None => return self.wrong(format!("`{END_OF_FILE}` stands before any line of {path}")),
                }
            } else if let Some(anchor) = line.strip_prefix("@@") {
                // Several of them in a row belong together: a class, and then its method.
                let anchor = anchor.trim_end().strip_suffix("@@").unwrap_or(anchor);
                let anchor = anchor.strip_prefix(' ').unwrap_or(anchor).to_owned();
                if !hunks.last().is_some_and(|hunk| hunk.lines.is_empty() && !hunk.at_end) {
                    hunks.push(Hunk { number, ..Hunk::default() });
                }
                // As in a unified diff, numbers of lines are no text of the file.
                let is_text = !anchor.trim().is_empty() && !is_range(&anchor);
                if let Some(hunk) = hunks.last_mut().filter(|_| is_text) {
                    hunk.anchors.push(anchor);
                }
            } else {
                let Some(line) = marked(&line) else {
                    return self.wrong(format!(
                        "a line of {path} begins with a blank (it stays), `-` (it goes) or `+` (it comes), or is `@@`"
                    ));
                };
                if !is_open {
                    hunks.push(Hunk { number, ..Hunk::default() });
                }
                if let Some(hunk) = hunks.last_mut() {
                    hunk.lines.push(line);
                }
            }
            if hunks.len() > HUNKS_MAX {
                return self.wrong(format!("a file may be changed in {HUNKS_MAX} places; make several patches"));
            }
            self.at += 1;
        }
        // A blank line before the next section is none of the file's.
        if let Some(hunk) = hunks.last_mut().filter(|hunk| !hunk.at_end)
            && self.lines.get(self.at.saturating_sub(1)).is_some_and(|line| line.is_empty())
            && hunk.lines.last() == Some(&HunkLine::Keep(String::new()))
        {
            hunk.lines.pop();
        }
        hunks.retain(|hunk| !hunk.lines.is_empty());
        if hunks.is_empty() && to.is_none() {
            return self.wrong(format!("the section of {path} changes nothing"));
        }
        Ok(Section::Update { path, to, hunks })
    }
}

/// A line of a change by its mark; models leave the blank of an empty line out.
fn marked(line: &str) -> Option<HunkLine> {
    if line.is_empty() {
        return Some(HunkLine::Keep(String::new()));
    }
    let (mark, rest) = line.split_at_checked(1)?;
    let rest = rest.to_owned();
    match mark {
        " " => Some(HunkLine::Keep(rest)),
        "-" => Some(HunkLine::Remove(rest)),
        "+" => Some(HunkLine::Add(rest)),
        _ => None,
    }
}

/// Whether this is `-1,3 +1,4`, as in a unified diff.
fn is_range(anchor: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let mut words = anchor.split_whitespace();
    let (old, new) =
        (words.next().and_then(|it| it.strip_prefix('-')), words.next().and_then(|it| it.strip_prefix('+')));
    old.is_some_and(number) && new.is_some_and(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(path: &str, to: Option<&str>, hunks: Vec<Hunk>) -> Section {
        Section::Update { path: path.to_owned(), to: to.map(str::to_owned), hunks }
    }

    #[test]
    fn sections_anchors_and_lines_are_read() {
        let text = "<<'EOF'\n*** Begin Patch\n*** Add File: a/new\n+one\n+\n+two\n\n*** Delete File: old\n\
                    *** Update File: b\n*** Move to: c\n@@ class A\n@@ def f():\n x\n-y\n+z\n\n*** Update File: d\n-q\n\
                    *** End of File\n*** End Patch\nEOF";
        let keep = |text: &str| HunkLine::Keep(text.to_owned());
        let [x, y, z, q] = ["x", "y", "z", "q"].map(str::to_owned);
        let anchors = vec!["class A".to_owned(), "def f():".to_owned()];
        let hunk =
            Hunk { anchors, lines: vec![keep(&x), HunkLine::Remove(y), HunkLine::Add(z)], at_end: false, number: 11 };
        let end = Hunk { lines: vec![HunkLine::Remove(q)], at_end: true, number: 18, ..Hunk::default() };
        let expect = vec![
            Section::Add { path: "a/new".to_owned(), content: "one\n\ntwo\n".to_owned() },
            Section::Delete { path: "old".to_owned() },
            update("b", Some("c"), vec![hunk]),
            update("d", None, vec![end]),
        ];
        assert_eq!(parse(text), Ok(expect));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let patch = |inner: &str| format!("*** Begin Patch\n{inner}\n*** End Patch");
        for (text, expect) in [
            (String::new(), "does not begin with `*** Begin Patch`"),
            ("*** Begin Patch\n*** Delete File: a".to_owned(), "does not end with `*** End Patch`"),
            (patch(""), "has no section"),
            (patch("hello"), "line 2 of the patch: `*** Add File: path`"),
            (patch("*** Add File: a\nx"), "line 3 of the patch: a line of the new file a begins with `+`"),
            (patch("*** Update File: a\n@@\n"), "the section of a changes nothing"),
            (patch("*** Update File: a\n*x"), "line 3 of the patch: a line of a begins with a blank"),
            (patch("*** Delete File:"), "line 2 of the patch: `*** Delete File:` has no path"),
            (patch("*** Update File: a\n*** End of File"), "stands before any line"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expect), "{text:?}: {error}");
        }
        let many: Vec<String> = (0..=FILES_MAX).map(|n| format!("*** Delete File: {n}")).collect();
        assert!(parse(&patch(&many.join("\n"))).unwrap_err().contains("100 files"));
    }

    #[test]
    fn numbers_of_a_unified_diff_are_no_anchor() {
        let text = "*** Begin Patch\n*** Update File: a\n@@ -1,2 +1,2 @@\n-x\n+y\n*** End Patch";
        let hunk =
            Hunk { lines: vec![HunkLine::Remove("x".into()), HunkLine::Add("y".into())], number: 3, ..Hunk::default() };
        assert_eq!(parse(text), Ok(vec![update("a", None, vec![hunk])]));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(lines in proptest::collection::vec("(\\*\\*\\* (Add|Update|Delete) File: a|\\*\\*\\* Move to: b|@@|@@ x|[ +-]?[xü]{0,2}|\\*\\*\\* End of File)", 0..20)) {
            let _any = parse(&format!("*** Begin Patch\n{}\n*** End Patch", lines.join("\n")));
        }
    }
}
