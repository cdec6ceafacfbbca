//! What a test run came to: its failures first, then its summary, within bounds.
//!
//! The output says which program wrote it, not the command: `make test` may run any of them, or several. Pure.

use super::{cargo, go, javascript, pytest};
use crate::tool::text;

/// Failures that are shown with their lines; of the others the names are shown.
const DETAILED: usize = 10;

/// Failures that are named.
const NAMED: usize = 100;

/// What is shown of one failure: enough for an assertion and what led to it.
const LINES_MAX: usize = 40;
const BYTES_MAX: usize = 1500;

/// Lines of a summary: one for each of so many programs.
const SUMMARY_MAX: usize = 20;

/// A name that is longer is cut, in bytes.
const NAME_MAX: usize = 200;

/// What a program reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) failures: Vec<Failure>,
    /// Lines with the counts.
    pub(super) summary: Vec<String>,
}

/// A test that failed, or what kept tests from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) name: String,
    /// What it wrote.
    pub(super) lines: Vec<String>,
}

impl Failure {
    /// A failure with these lines, less those at both ends that are blank.
    pub(super) fn new<'a>(name: &str, lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut lines: Vec<String> = lines.into_iter().map(|line| line.trim_end().to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        let blank = lines.iter().take_while(|line| line.is_empty()).count();
        Self { name: name.trim().to_owned(), lines: lines.split_off(blank) }
    }
}

/// The report in the output of a test run; nothing if no known program wrote it.
pub(super) fn read(output: &str) -> Option<Report> {
    let output = plain(output);
    let mut report = Report::default();
    for read in [cargo::read, pytest::read, go::read, javascript::jest, javascript::tap, javascript::spec] {
        let Report { failures, summary } = read(&output);
        report.failures.extend(failures.into_iter().filter(|new| !report.failures.contains(new)).collect::<Vec<_>>());
        report.summary.extend(summary);
    }
    (report != Report::default()).then_some(report)
}

/// `output` without colours, and with line ends as Unix has them.
fn plain(output: &str) -> String {
    let mut text = String::with_capacity(output.len());
    let mut rest = output;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |end| end + 1);
        rest = after.get(end..).unwrap_or_default();
    }
    text.push_str(rest);
    text.replace("\r\n", "\n")
}

impl Report {
    /// For the model.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (nth, Failure { name, lines }) in self.failures.iter().take(NAMED).enumerate() {
            text.push_str(&format!("FAILED {}\n", text::head(&text::one_line(name), NAME_MAX)));
            if nth < DETAILED {
                text.push_str(&cut(lines));
            }
        }
        if self.failures.len() > NAMED {
            text.push_str(&format!("[{} more failures]\n", self.failures.len() - NAMED));
        }
        for line in self.summary.iter().take(SUMMARY_MAX) {
            text.push_str(&format!("{}\n", text::head(line, BYTES_MAX)));
        }
        if self.summary.len() > SUMMARY_MAX {
            text.push_str(&format!("[{} more lines]\n", self.summary.len() - SUMMARY_MAX));
        }
        text
    }
}

/// The beginning of these lines, and their end: an assertion stands first or last.
fn cut(lines: &[String]) -> String {
    let mut text = String::new();
    let half = LINES_MAX / 2;
    for (nth, line) in lines.iter().enumerate() {
        let is_left_out = lines.len() > LINES_MAX && nth >= half && nth < lines.len() - half;
        match is_left_out {
            false if line.is_empty() => text.push('\n'),
            false => text.push_str(&format!("  {line}\n")),
            true if nth == half => text.push_str(&format!("  [{} lines]\n", lines.len() - LINES_MAX)),
            true => {}
        }
    }
    if text.len() <= BYTES_MAX {
        return text;
    }
    format!("{}\n  […]\n{}", text::head(&text, BYTES_MAX / 2), text::tail(&text, BYTES_MAX / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded_whatever_fails() {
        let lines: Vec<String> = (0..1000).map(|n| format!("{n} {}", "x".repeat(500))).collect();
        let failure = |n| Failure { name: format!("t{n}"), lines: lines.clone() };
        let report = Report { failures: (0..500).map(failure).collect(), summary: lines.clone() };
        let text = report.text();
        assert!(text.len() < 60_000, "{}", text.len());
        assert!(text.contains("FAILED t99\n[400 more failures]\n"), "{text}");
        let few = Failure::new("few", ["", "a", "", "b ", "", ""]);
        assert_eq!(few.lines, ["a", "", "b"]);
        let many: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        assert!(cut(&many).contains("  19\n  [10 lines]\n  30\n"));
    }

    #[test]
    fn colours_and_other_output_are_no_report() {
        assert_eq!(plain("\u{1b}[1;31mFAIL\u{1b}[0m x\r\ny\u{1b}["), "FAIL x\ny");
        for output in ["", "hello\nworld", "all good\n", "\u{1b}["] {
            assert_eq!(read(output), None, "{output:?}");
        }
    }
}
