//! A unified diff of two texts, for people to glance at.

use std::fmt::Write;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// Lines around a change that are shown with it.
const CONTEXT: usize = 3;

/// The changes from `old` to `new`, by lines, under the name of the file; a comparison that takes longer than `limit` is coarser.
pub fn unified(name: &str, old: &str, new: &str, limit: Duration) -> String {
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let changes = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + limit));
    let mut diff = format!("--- {name}\n+++ {name}\n");
    for hunk in group_diff_ops(changes, CONTEXT) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let [old_range, new_range] = [
            range(first.old_range().start, last.old_range().end),
            range(first.new_range().start, last.new_range().end),
        ];
        // A string takes all that is written.
        let _whole = writeln!(diff, "@@ -{old_range} +{new_range} @@");
        hunk.iter().for_each(|change| push(&mut diff, change, &old, &new));
    }
    diff
}

/// The lines of a change, those that go before those that come.
fn push(diff: &mut String, change: &DiffOp, old: &[&str], new: &[&str]) {
    let (tag, was, is) = change.as_tag_tuple();
    let mut lines = |sign, lines: Option<&[&str]>| {
        for line in lines.unwrap_or_default() {
            diff.push(sign);
            diff.push_str(line);
            if !line.ends_with('\n') {
                diff.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    match tag {
        DiffTag::Equal => lines(' ', old.get(was)),
        DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
            lines('-', old.get(was));
            lines('+', new.get(is));
        }
    }
}

/// Lines counted from 1; a range of none is named by the line before it.
fn range(start: usize, end: usize) -> String {
    match end.saturating_sub(start) {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> String {
        unified("x", old, new, Duration::from_secs(5))
    }

    #[test]
    fn changes_stand_between_the_lines_around_them() {
        let lines = |changed: &str| {
            (1..=20).map(|n| if n == 10 { changed.to_owned() } else { format!("{n}\n") }).collect::<String>()
        };
        let whole = diff(&lines("10\n"), &lines("ten\n"));
        insta::assert_snapshot!(whole, @r"
        --- x
        +++ x
        @@ -7,7 +7,7 @@
         7
         8
         9
        -10
        +ten
         11
         12
         13
        ");
    }

    #[test]
    fn a_file_that_is_new_or_has_no_last_line_end_says_so() {
        assert_eq!(diff("", "a\nb\n"), "--- x\n+++ x\n@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(diff("a\n", ""), "--- x\n+++ x\n@@ -1 +0,0 @@\n-a\n");
        let end = "\\ No newline at end of file";
        assert_eq!(diff("a", "b\n"), format!("--- x\n+++ x\n@@ -1 +1 @@\n-a\n{end}\n+b\n"));
    }

    #[test]
    fn changes_that_are_far_apart_are_hunks_of_their_own() {
        let old: String = (1..=40).map(|n| format!("{n}\n")).collect();
        let new = old.replace("\n5\n", "\n").replace("\n35\n", "\n35\n35.5\n");
        let heads: Vec<String> =
            diff(&old, &new).lines().filter(|line| line.starts_with("@@")).map(str::to_owned).collect();
        assert_eq!(heads, ["@@ -2,7 +2,6 @@", "@@ -33,6 +32,7 @@"]);
    }
}
