//! The file changes of a session's turns, as lines. Pure.

use std::path::Path;

use linger_protocol::checkpoint::{Differences, FileDiff};
use linger_protocol::event::ChangeKind;
use linger_protocol::id::TurnId;

use super::style::Style;
use crate::terminal::clean_line;

/// How the lines are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) style: Style,
    /// Without the lines of the files.
    pub(crate) stat: bool,
    /// Before each line of a file: what a file says never stands in the first column of a terminal.
    pub(crate) gutter: &'a str,
    /// Where paths are relative to.
    pub(crate) base: &'a Path,
}

/// Each file, its counts, and the lines that went and came.
pub(crate) fn differences(found: &Differences, form: Form<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for file in &found.files {
        lines.push(head(file, form));
        for line in file.diff.iter().filter(|_| !form.stat).flat_map(|diff| diff.lines()) {
            lines.push(format!("{}{}", form.gutter, colored(line, form)));
        }
    }
    lines
}

/// The sums: `2 files changed, 3 lines added, 1 removed`.
pub(crate) fn sums(found: &Differences) -> String {
    let total = |of: fn(&FileDiff) -> u32| found.files.iter().map(of).fold(0, u32::saturating_add);
    let (files, added, removed) = (found.files.len(), total(|file| file.added), total(|file| file.removed));
    let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
    let lines = if added == 1 { "line" } else { "lines" };
    format!("{files} changed, {added} {lines} added, {removed} removed")
}

/// A turn is `t3`, or 3.
pub(crate) fn turn_named(text: &str) -> TurnId {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("t{text}").as_str().into() } else { text.into() }
}

/// A file in one line.
fn head(file: &FileDiff, form: Form<'_>) -> String {
    let what = match file.kind {
        ChangeKind::Create => "new     ",
        ChangeKind::Delete => "deleted ",
        ChangeKind::Edit | ChangeKind::Unknown => "changed ",
    };
    let path = linger_protocol::path::shown(file.path.strip_prefix(form.base).unwrap_or(&file.path));
    let style = form.style;
    let counts = format!("{} {}", style.green(&format!("+{}", file.added)), style.red(&format!("-{}", file.removed)));
    let note = file.note.as_ref().map(|note| format!("  ({})", clean_line(note))).unwrap_or_default();
    let doubt = if file.uncertain { style.yellow("  (perhaps changed by something else)") } else { String::new() };
    let note = note + &doubt;
    let child = file.child.as_ref().map(|child| {
        style.dim(&format!("  [{} in session {}]", clean_line(&child.agent), clean_line(child.session.as_str())))
    });
    format!("{what} {}  {counts}{note}{}", style.bold(&clean_line(&path)), child.unwrap_or_default())
}

fn colored(line: &str, form: Form<'_>) -> String {
    let (line, style) = (clean_line(line), form.style);
    match line.as_bytes().first() {
        Some(b'+') if !line.starts_with("+++ ") => style.green(&line),
        Some(b'-') if !line.starts_with("--- ") => style.red(&line),
        Some(b'@') => style.cyan(&line),
        _ => line.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::checkpoint::DiffChild;

    use super::*;

    #[test]
    fn files_are_named_with_their_counts_and_children_with_their_agents() {
        let diff = "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+two\u{1b}[2J\n".to_owned();
        let file = FileDiff {
            path: "/w/a".into(),
            kind: ChangeKind::Edit,
            added: 1,
            removed: 0,
            diff: Some(diff),
            note: None,
            uncertain: false,
            child: None,
        };
        let child = DiffChild { session: "s9".into(), agent: "tester".to_owned() };
        let note = Some("it is no text".to_owned());
        let other = FileDiff {
            path: "/w/b".into(),
            kind: ChangeKind::Create,
            added: 0,
            diff: None,
            note,
            child: Some(child),
            ..file.clone()
        };
        let found = Differences { files: vec![file, other], missing: Vec::new() };
        let style = Style { color: false, unicode: false };
        let form = Form { style, stat: false, gutter: "  ", base: Path::new("/w") };
        insta::assert_snapshot!(differences(&found, form).join("\n"), @r"
        changed  a  +1 -0
          --- a/a
          +++ b/a
          @@ -1 +1,2 @@
           one
          +two␛[2J
        new      b  +0 -0  (it is no text)  [tester in session s9]
        ");
        assert_eq!(differences(&found, Form { stat: true, ..form }).len(), 2);
        assert_eq!(sums(&found), "2 files changed, 1 line added, 0 removed");
    }
}
