//! `edit`: replaces a piece of a file.

use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::set::Takes;
use super::{BoxFuture, Call, Context, Effects, Invalid, Tool, ToolOutput, Workspace, args, blocking, file, path};

/// Places that an error names.
const PLACES_MAX: usize = 10;

/// The tool.
pub(super) struct Edit;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    path: String,
    old: String,
    new: String,
    /// replace every occurrence
    all: Option<bool>,
}

impl Tool for Edit {
    fn name(&self) -> &str {
        "edit"
    }

    fn description(&self) -> &str {
        include_str!("edit.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        true
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { path, old, new, all } = args::parse(input)?;
        let path = path::absolute(workspace, &path)?;
        if old.is_empty() {
            return Err(Invalid("`old` is empty; use write to make a file".to_owned()));
        }
        if old == new {
            return Err(Invalid("`old` and `new` are the same".to_owned()));
        }
        Ok(Box::new(Editing { path, old, new, all: all.unwrap_or_default(), workspace: workspace.clone() }))
    }
}

struct Editing {
    path: PathBuf,
    old: String,
    new: String,
    all: bool,
    workspace: Workspace,
}

impl Call for Editing {
    fn action(&self) -> String {
        format!("edit {}", path::show(&self.workspace.cwd, &self.path))
    }

    fn effects(&self) -> Effects {
        Effects::write(self.path.clone())
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| match self.edit() {
            Ok(output) => output,
            Err(error) => ToolOutput::error(file::explain(&self.workspace, &self.path, &error)),
        })
    }
}

impl Editing {
    fn edit(&self) -> io::Result<ToolOutput> {
        let target = self.workspace.resolve(&self.path);
        let text = file::text(&target)?;
        let shown = path::show(&self.workspace.cwd, &self.path);
        let edited = match replace(&text, &self.old, &self.new, self.all) {
            Ok(edited) => edited,
            Err(why) => return Ok(ToolOutput::error(format!("{shown} is unchanged: {why}"))),
        };
        file::replace(&target, edited.text.as_bytes())?;
        let said = match edited.count {
            1 => format!("edited {shown}, {}", edited.place),
            count => format!("edited {shown}, {count} places, {}", edited.place),
        };
        Ok(ToolOutput { diff: file::diff(&shown, &text, &edited.text), ..ToolOutput::text(said) })
    }
}

/// A text after an edit.
#[derive(Debug)]
struct Edited {
    text: String,
    count: usize,
    /// The new lines: `line 3` or `lines 3-5`.
    place: String,
}

/// Replaces `old` in `text`; the error says what to do better.
fn replace(text: &str, old: &str, new: &str, all: bool) -> Result<Edited, String> {
    let (old, new) = match windows(text) {
        true => (with_crlf(old), with_crlf(new)),
        false => (old.to_owned(), new.to_owned()),
    };
    if old == new {
        return Err("`old` and `new` differ only in line ends".to_owned());
    }
    let Some(first) = text.find(&old) else { return Err(missing(text, &old)) };
    if !all {
        let places = places(text, &old);
        if places.len() > 1 {
            return Err(ambiguous(text, &places));
        }
    }
    let (count, last) = text.match_indices(&old).fold((0, first), |(count, _), (place, _)| (count + 1, place));
    let size = (text.len() - count * old.len()).saturating_add(count.saturating_mul(new.len()));
    if size as u64 > file::TEXT_MAX {
        return Err(format!("it would have {size} bytes, more than the {} that can be edited", file::TEXT_MAX));
    }
    let edited = text.replace(&old, &new);
    // Where the last replacement begins in the new text.
    let last = last + (count - 1) * new.len() - (count - 1) * old.len();
    let (from, to) = (line_of(&edited, first), line_of(&edited, last + new.trim_end_matches(['\r', '\n']).len()));
    let place = if from == to { format!("line {from}") } else { format!("lines {from}-{to}") };
    Ok(Edited { text: edited, count, place })
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

/// Whether every line ends as in Windows; models write plain line ends whatever they read.
fn windows(text: &str) -> bool {
    let (all, crlf) = (text.matches('\n').count(), text.matches("\r\n").count());
    all > 0 && all == crlf
}

fn with_crlf(text: &str) -> String {
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

/// Why `old` may not be there. A text is searched as a whole, for line by line a long `old` would take hours.
fn missing(text: &str, old: &str) -> String {
    let (lines, wanted) = (trimmed(text), trimmed(old.trim()));
    let found = |wanted: &str| lines.find(wanted).map(|place| line_of(&lines, place));
    let Some(first) = old.trim().lines().next() else { return "`old` was not found".to_owned() };
    if let Some(line) = found(&wanted) {
        return format!("`old` was not found; line {line} differs only in white space, read it again");
    }
    match found(&trimmed(first)) {
        Some(line) => format!("`old` was not found; line {line} is like its first, but what follows differs"),
        None => "`old` was not found; read the file again".to_owned(),
    }
}

/// The lines without the white space around them, each between two line ends.
fn trimmed(text: &str) -> String {
    text.lines().fold("\n".to_owned(), |lines, line| lines + line.trim() + "\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_workspace};

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
        check("a\r\nb\n", "a", "x\ny", false, Ok(("x\ny\r\nb\n", "lines 1-2")));
        check("a\r\n", "a\n", "a\r\n", false, Err("`old` and `new` differ only in line ends"));
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
        let space = "`old` was not found; line 2 differs only in white space, read it again";
        check("if x {\n\tfoo();\n\tbar();\n}\n", "    foo();\n    bar();", "x", false, Err(space));
        let first = "`old` was not found; line 1 is like its first, but what follows differs";
        check("if x {\n\tfoo();\n", "if x {\n  bar();", "x", false, Err(first));
        check("abc\n", "d", "x", false, Err("`old` was not found; read the file again"));
        check("abc\n", "\n\n\n", "x", false, Err("`old` was not found"));
    }

    #[test]
    fn a_long_piece_that_is_not_there_is_searched_for_in_one_pass() {
        let last = "`old` was not found; line 1 is like its first, but what follows differs";
        check(&"a\n".repeat(400_000), &format!("{}b\n", "a\n".repeat(200_000)), "x", false, Err(last));
        let space = "`old` was not found; line 1 differs only in white space, read it again";
        check(&" a\n".repeat(400_000), &"a \n".repeat(200_000), "x", false, Err(space));
    }

    #[tokio::test]
    async fn a_file_is_edited_in_place() {
        let (_dir, workspace) = test_workspace();
        let file = workspace.cwd.join("a.rs");
        fs::write(&file, "one\ntwo\n").unwrap();
        let edit = |old: &str| json!({"path": "a.rs", "old": old, "new": "2"});
        assert_eq!(run(&Edit, &workspace, edit("two")).await, ("edited a.rs, line 2".to_owned(), false));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n");
        let unchanged = "a.rs is unchanged: `old` was not found; read the file again";
        assert_eq!(run(&Edit, &workspace, edit("two")).await, (unchanged.to_owned(), true));
        fs::write(&file, b"\xff").unwrap();
        assert_eq!(run(&Edit, &workspace, edit("two")).await, ("a.rs is not UTF-8 text".to_owned(), true));
    }
}
