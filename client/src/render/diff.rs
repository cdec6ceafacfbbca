//! The difference of two texts, line by line, for a question about a change. Pure.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::style::Style;
use crate::terminal::clean_exact_line;

/// Lines around a change that are shown with it.
const CONTEXT: usize = 3;

/// How long a comparison may take before it is a coarser one: a person waits for it.
const LIMIT: Duration = Duration::from_millis(200);

/// A change of a file, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The lines, each with its sign: ` `, `-`, `+`, or `@` for a gap.
    lines: Vec<(char, String)>,
    /// Lines that go, lines that come, and lines that there were; absent for a new file.
    counts: Option<[usize; 3]>,
}

impl Difference {
    /// From one text to another; `None` as the first for a new file.
    pub(crate) fn of(before: Option<&str>, after: &str) -> Self {
        let [old, new] = [before.unwrap_or_default(), after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
        let changes = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + LIMIT));
        let (mut lines, mut gone, mut come) = (Vec::new(), 0, 0);
        for hunk in group_diff_ops(changes, CONTEXT) {
            let first = hunk.first().map_or(0, |change| change.new_range().start);
            if before.is_some() {
                lines.push(('@', format!("@@ line {} @@", first + 1)));
            }
            for change in &hunk {
                let (less, more) = push(&mut lines, change, &old, &new);
                (gone, come) = (gone + less, come + more);
            }
        }
        Self { lines, counts: before.map(|_| [gone, come, old.len()]) }
    }

    /// The sum of the change, in words.
    pub(crate) fn summary(&self) -> String {
        let many = |n: usize| format!("{n} line{}", if n == 1 { "" } else { "s" });
        match self.counts {
            None => format!("a new file of {}", many(self.lines.len())),
            Some([0, 0, _]) => "changes nothing".to_owned(),
            Some([0, come, of]) => format!("adds {} to {}", many(come), many(of)),
            Some([gone, 0, of]) => format!("removes {} of {of}", many(gone)),
            Some([gone, come, of]) if gone == come => format!("replaces {} of {of}", many(gone)),
            Some([gone, come, of]) => format!("replaces {} of {of} by {come}", many(gone)),
        }
    }

    /// How many lines it has.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The lines for people, no character of them hidden; the middle is left out unless `[head, tail]` have room for all.
    pub(crate) fn text(&self, style: &Style, [head, tail]: [usize; 2]) -> String {
        let left_out = self.lines.len().saturating_sub(head.saturating_add(tail));
        let mut out = String::new();
        for (at, (sign, line)) in self.lines.iter().enumerate() {
            if left_out > 0 && at == head {
                let lines = if left_out == 1 { "line is" } else { "lines are" };
                out.push_str(&format!("    ({left_out} {lines} not shown)\n"));
            }
            if left_out > 0 && at >= head && at < self.lines.len() - tail {
                continue;
            }
            let line = clean_exact_line(line);
            let line = match sign {
                '+' => style.green(&format!("+{line}")),
                '-' => style.red(&format!("-{line}")),
                '@' => style.cyan(&line),
                _ => format!(" {line}"),
            };
            out.push_str(&format!("    {line}\n"));
        }
        out
    }
}

/// The lines of a change, those that go before those that come; how many of each.
fn push(lines: &mut Vec<(char, String)>, change: &DiffOp, old: &[&str], new: &[&str]) -> (usize, usize) {
    let (tag, was, is) = change.as_tag_tuple();
    let mut add = |sign, those: Option<&[&str]>| {
        let those = those.unwrap_or_default();
        for line in those {
            let bare = line.strip_suffix('\n');
            let end = if bare.is_none() { " (no line end)" } else { "" };
            lines.push((sign, format!("{}{end}", bare.unwrap_or(line))));
        }
        those.len()
    };
    match tag {
        DiffTag::Equal => {
            add(' ', old.get(was));
            (0, 0)
        }
        DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => (add('-', old.get(was)), add('+', new.get(is))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_stands_between_the_lines_around_it() {
        let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let after = before.replace("\n10\n", "\nten\u{202e}\n");
        let difference = Difference::of(Some(&before), &after);
        let style = Style { color: false, unicode: true };
        let all = [usize::MAX, 0];
        let text = "    @@ line 7 @@\n     7\n     8\n     9\n    -10\n    +ten<202e>\n     11\n     12\n     13\n";
        assert_eq!(difference.text(&style, all), text);
        assert_eq!(difference.summary(), "replaces 1 line of 20");
        assert_eq!(difference.text(&style, [1, 1]), "    @@ line 7 @@\n    (7 lines are not shown)\n     13\n");
    }

    #[test]
    fn what_it_comes_to_is_said_in_words() {
        let check = |before: Option<&str>, after: &str, expect: &str| {
            assert_eq!(Difference::of(before, after).summary(), expect, "{before:?} {after:?}");
        };
        check(None, "a\nb\n", "a new file of 2 lines");
        check(Some("a\nb\n"), "a\n", "removes 1 line of 2");
        check(Some("a\n"), "a\nb\nc\n", "adds 2 lines to 1 line");
        check(Some("a\nb\n"), "x\ny\nz\n", "replaces 2 lines of 2 by 3");
        check(Some("a\n"), "a\n", "changes nothing");
    }
}
