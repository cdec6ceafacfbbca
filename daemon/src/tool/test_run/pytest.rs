//! The output of pytest, with its default and its short tracebacks. Pure.

use super::report::{Failure, Report};

pub(super) fn read(output: &str) -> Report {
    let mut report = Report::default();
    let mut in_failures = false;
    let mut open: Option<(&str, Vec<&str>)> = None;
    let close = |open: &mut Option<(&str, Vec<&str>)>, report: &mut Report| {
        if let Some((name, lines)) = open.take() {
            report.failures.push(Failure::new(name, lines));
        }
    };
    for line in output.lines() {
        if let Some(title) = title(line, '=') {
            close(&mut open, &mut report);
            in_failures = title == "FAILURES" || title == "ERRORS";
            if is_count(title) {
                report.summary.push(title.to_owned());
            }
        } else if let Some(name) = title(line, '_').filter(|_| in_failures) {
            // Between the frames of a traceback stands `_ _ _`.
            close(&mut open, &mut report);
            open = Some((name, Vec::new()));
        } else if let Some((_, lines)) = &mut open {
            lines.push(line);
        }
    }
    close(&mut open, &mut report);
    report
}

/// The text between at least two of `rule` and a blank at both ends of a line.
fn title(line: &str, rule: char) -> Option<&str> {
    let inner = line.trim_start_matches(rule).trim_end_matches(rule);
    let is_ruled = line.starts_with([rule, rule].iter().collect::<String>().as_str()) && line.ends_with(rule);
    inner.strip_prefix(' ')?.strip_suffix(' ').filter(|title| is_ruled && !title.is_empty())
}

/// Whether a title is the last one: `2 failed, 1 passed in 0.07s`.
fn is_count(title: &str) -> bool {
    const ENDS: [&str; 8] = ["failed", "passed", "error", "errors", "skipped", "deselected", "warnings", "ran"];
    let word = title.split([' ', ',']).nth(1).unwrap_or_default();
    (ENDS.contains(&word) && title.contains(" in ")) || title.starts_with("no tests ran in ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_errors_have_their_traceback() {
        let report = read(include_str!("captured/pytest.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED ERROR at setup of test_error
              @pytest.fixture
              def broken():
          >       raise RuntimeError("no database")
          E       RuntimeError: no database

          test_a.py:20: RuntimeError
        FAILED TestMath.test_bad
          self = <test_a.TestMath object at 0x7f4204fbe450>

              def test_bad(self):
                  total = helper(3)
          >       assert total == 7, "totals differ"
          E       AssertionError: totals differ
          E       assert 6 == 7

          test_a.py:12: AssertionError
        FAILED test_param[2]
          n = 2

              @pytest.mark.parametrize("n", [1, 2])
              def test_param(n):
          >       assert n == 1
          E       assert 2 == 1

          test_a.py:16: AssertionError
        2 failed, 2 passed, 1 skipped, 1 error in 0.07s
        "#);
    }

    #[test]
    fn a_file_that_cannot_be_imported_is_a_failure() {
        let report = read(include_str!("captured/pytest-import.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED ERROR collecting test_b.py
          ImportError while importing test module '/home/me/py/test_b.py'.
          Hint: make sure your test modules/packages have valid Python names.
          Traceback:
          /usr/lib/python3.11/importlib/__init__.py:126: in import_module
              return _bootstrap._gcd_import(name[level:], package, level)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          test_b.py:1: in <module>
              import nothing_here
          E   ModuleNotFoundError: No module named 'nothing_here'
        1 error in 0.26s
        "#);
    }
}
