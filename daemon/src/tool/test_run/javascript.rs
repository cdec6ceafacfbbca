//! The outputs of jest and of Node's own runner, as TAP and as its `spec` reporter writes it. Pure.

use super::report::{Failure, Report};

/// What jest writes.
pub(super) fn jest(output: &str) -> Report {
    let mut report = Report::default();
    let mut open: Option<(String, Vec<&str>)> = None;
    let mut file = "";
    for line in output.lines() {
        file = line.strip_prefix("FAIL ").unwrap_or(file);
        let starts = line.strip_prefix("  ● ").filter(|name| !name.starts_with("Console"));
        let is_count = ["Tests:  ", "Test Suites: "].iter().any(|start| line.starts_with(start));
        let ends = is_count || ["FAIL ", "PASS ", "Summary of all"].iter().any(|start| line.starts_with(start));
        if (starts.is_some() || ends)
            && let Some((name, lines)) = open.take()
        {
            report.failures.push(Failure::new(&name, lines));
        }
        if is_count {
            report.summary.push(line.to_owned());
        }
        match (&mut open, starts) {
            // Not a test, so it has no name of its own.
            (_, Some("Test suite failed to run")) => open = Some((file.to_owned(), Vec::new())),
            (_, Some(name)) => open = Some((name.to_owned(), Vec::new())),
            (Some((_, lines)), None) if !is_foreign_frame(line) => {
                lines.push(line.strip_prefix("    ").unwrap_or(line))
            }
            _ => {}
        }
    }
    // The end of an output without counts.
    report.failures.extend(open.filter(|_| !report.summary.is_empty()).map(|(name, lines)| Failure::new(&name, lines)));
    if report.summary.is_empty() { Report::default() } else { report }
}

/// What `node --test` writes to a pipe.
pub(super) fn tap(output: &str) -> Report {
    let mut report = Report::default();
    if !output.lines().any(|line| line.starts_with("TAP version ")) {
        return report;
    }
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        let bare = line.trim_start();
        if let Some(test) = bare.strip_prefix("not ok ") {
            let name = test.split_once(" - ").map_or(test, |(_, name)| name);
            let indent = line.len() - bare.len() + 2;
            let mut body = Vec::new();
            if lines.next_if(|line| line.trim() == "---").is_some() {
                while let Some(line) = lines.next_if(|line| line.trim() != "...") {
                    body.push(line.get(indent..).unwrap_or(line));
                }
            }
            let is_expected = name.contains(" # TODO") || name.contains(" # SKIP");
            let is_of_parts = body.iter().any(|line| line.contains("subtestsFailed"));
            if !is_expected && !is_of_parts {
                report.failures.push(Failure::new(name, of_interest(&body)));
            }
        } else if ["# pass ", "# fail ", "# skipped ", "# cancelled "].iter().any(|start| line.starts_with(start)) {
            report.summary.extend(line.strip_prefix("# ").map(str::to_owned));
        }
    }
    one_line(report)
}

/// What `node --test` writes to a terminal, and newer ones to a pipe.
pub(super) fn spec(output: &str) -> Report {
    let mut report = Report::default();
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if ["pass ", "fail ", "skipped ", "cancelled "]
            .iter()
            .any(|start| line.strip_prefix("ℹ ").is_some_and(|rest| rest.starts_with(start)))
        {
            report.summary.extend(line.strip_prefix("ℹ ").map(str::to_owned));
        } else if let Some(at) = line.strip_prefix("test at ").filter(|_| !report.summary.is_empty()) {
            let name = lines.next().unwrap_or_default().trim_start_matches("✖ ");
            let mut body = vec![at];
            while let Some(line) = lines.next_if(|line| !line.starts_with("test at ")) {
                if !is_foreign_frame(line) {
                    body.push(line.strip_prefix("  ").unwrap_or(line));
                }
            }
            report.failures.push(Failure::new(name, body));
        }
    }
    one_line(report)
}

/// The counts of a report in one line.
fn one_line(report: Report) -> Report {
    let summary = Some(report.summary.join(", ")).filter(|line| !line.is_empty());
    Report { summary: summary.into_iter().collect(), ..report }
}

/// The fields that say what failed and where, less the frames of the runner.
fn of_interest<'a>(fields: &[&'a str]) -> Vec<&'a str> {
    const LEFT_OUT: [&str; 4] = ["duration_ms:", "failureType:", "code:", "type:"];
    let kept = fields.iter().filter(|line| !LEFT_OUT.iter().any(|field| line.starts_with(field)));
    kept.filter(|line| !is_foreign_frame(line)).copied().collect()
}

/// Whether a line is a frame of a library, of Node or of a runner.
fn is_foreign_frame(line: &str) -> bool {
    let line = line.trim_start();
    let is_in =
        line.starts_with("at ") || line.starts_with("async ") || line.ends_with(')') || line.starts_with("node:");
    let is_foreign = ["node_modules/", "(node:", "node:internal/", "(<anonymous>)", "async Promise.all"];
    is_in && is_foreign.iter().any(|part| line.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_jest_have_their_diff_and_own_frames() {
        let report = jest(include_str!("captured/jest.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED math › bad
          expect(received).toBe(expected) // Object.is equality

          Expected: 7
          Received: 6

            1 | test('good', () => {});
            2 | describe('math', () => {
          > 3 |   test('bad', () => { expect(2 * 3).toBe(7); });
              |                                     ^
            4 |   test('throws', () => { throw new Error('no database'); });
            5 | });
            6 | test.skip('later', () => {});

            at Object.toBe (a.test.js:3:37)
        FAILED math › throws
          no database

            2 | describe('math', () => {
            3 |   test('bad', () => { expect(2 * 3).toBe(7); });
          > 4 |   test('throws', () => { throw new Error('no database'); });
              |                                ^
            5 | });
            6 | test.skip('later', () => {});
            7 |

            at Object.<anonymous> (a.test.js:4:32)
        FAILED ./b.test.js
          Jest encountered an unexpected token

          Jest failed to parse a file. This happens e.g. when your code or its dependencies use non-standard JavaScript syntax, or when Jest is not configured to support such syntax.

          Out of the box Jest supports Babel, which will be used to transform your files into valid JS based on your Babel configuration.

          By default "node_modules" folder is ignored by transformers.

          Here's what you can do:
           • If you are trying to use TypeScript, see https://jestjs.io/docs/getting-started#using-typescript
           • To have some of your "node_modules" files transformed, you can specify a custom "transformIgnorePatterns" in your config.
           • If you need a custom transformation, specify a "transform" option in your config.
           • If you simply want to mock your non-JS modules (e.g. binary assets) you can stub them out with the "moduleNameMapper" config option.

          You'll find more details and examples of these config options in the docs:
          https://jestjs.io/docs/configuration
          For information about custom transformations, see:
          https://jestjs.io/docs/code-transformation

          Details:

          SyntaxError: /home/me/js/b.test.js: Unexpected token (2:0)

            1 | syntax(
          > 2 |
              | ^
        Test Suites: 2 failed, 2 total
        Tests:       2 failed, 1 skipped, 1 passed, 4 total
        "#);
    }

    #[test]
    fn failures_of_node_are_read_from_both_reporters() {
        let report = tap(include_str!("captured/node.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED bad
          location: '/home/me/node/a.test.mjs:5:3'
          error: |-
            Expected values to be strictly equal:

            6 !== 7

          name: 'AssertionError'
          expected: 7
          actual: 6
          operator: 'strictEqual'
          stack: |-
            TestContext.<anonymous> (file:///home/me/node/a.test.mjs:5:30)
        FAILED throws
          location: '/home/me/node/a.test.mjs:6:3'
          error: 'no database'
          stack: |-
            TestContext.<anonymous> (file:///home/me/node/a.test.mjs:6:32)
        pass 1, fail 2, cancelled 0, skipped 1
        "#);
        let report = spec(include_str!("captured/node-spec.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED bad (1.697553ms)
          a.test.mjs:5:3
          AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:

          6 !== 7

              at TestContext.<anonymous> (file:///home/me/node/a.test.mjs:5:30)
            generatedMessage: true,
            code: 'ERR_ASSERTION',
            actual: 6,
            expected: 7,
            operator: 'strictEqual'
          }
        FAILED throws (0.237022ms)
          a.test.mjs:6:3
          Error: no database
              at TestContext.<anonymous> (file:///home/me/node/a.test.mjs:6:32)
        pass 1, fail 2, cancelled 0, skipped 1
        "#);
    }

    #[test]
    fn each_reads_only_its_own() {
        let (of_jest, of_node) = (include_str!("captured/jest.txt"), include_str!("captured/node.txt"));
        assert_eq!((tap(of_jest), spec(of_jest)), (Report::default(), Report::default()));
        assert_eq!((jest(of_node), spec(of_node)), (Report::default(), Report::default()));
        assert_eq!(jest(include_str!("captured/pytest.txt")), Report::default());
    }
}
