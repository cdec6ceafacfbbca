//! The output of `go test`, and errors of the compiler. Pure.

use super::report::{Failure, Report};

pub(super) fn read(output: &str) -> Report {
    let mut report = Report::default();
    let mut passed = 0;
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        let bare = line.trim_start();
        if let Some(name) = bare.strip_prefix("--- FAIL: ") {
            let indent = line.len() - bare.len();
            let mut body = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_end(line)) {
                // A test's own lines are deeper than its name; what a panic writes is not.
                body.push(line.get(indent..).unwrap_or(line));
            }
            let has_parts = lines.peek().is_some_and(|next| {
                let part = next.trim_start();
                part.starts_with("--- FAIL: ") && next.len() - part.len() > indent
            });
            if !body.is_empty() || !has_parts {
                report.failures.push(Failure::new(name.split(" (").next().unwrap_or(name), body));
            }
        } else if let Some(package) = line.strip_prefix("# ") {
            let mut body = Vec::new();
            while let Some(line) = lines.next_if(|line| !is_end(line) && !line.starts_with("# ")) {
                body.push(line);
            }
            // Others write such lines too; a compiler says where: `a.go:3:23: …`.
            if body.iter().any(|line| line.contains(".go:")) {
                report.failures.push(Failure::new(&format!("build of {package}"), body));
            }
        } else if line.starts_with("FAIL\t") {
            report.summary.push(line.replace('\t', " "));
        } else if line.starts_with("ok  \t") {
            passed += 1;
        }
    }
    if passed > 0 {
        report.summary.push(format!("{passed} packages ok"));
    }
    report
}

/// Whether a line begins something else than the output of a test.
fn is_end(line: &str) -> bool {
    let bare = line.trim_start();
    ["--- FAIL: ", "--- PASS: ", "--- SKIP: ", "=== "].iter().any(|start| bare.starts_with(start))
        || ["FAIL", "PASS"].contains(&line)
        || ["FAIL\t", "ok  \t", "?   \t", "exit status "].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_subtests_panics_and_builds_are_failures() {
        let report = read(include_str!("captured/go.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED build of example.org/x/bad [example.org/x/bad.test]
          bad/b.go:3:23: cannot use "x" (untyped string constant) as int value in return statement
        FAILED TestBad
              a_test.go:9: Double(3) = 6, want 7
        FAILED TestTable/two
              a_test.go:17: two is bad
        FAILED TestPanic
          panic: assignment to entry in nil map [recovered, repanicked]

          goroutine 4 [running]:
          testing.tRunner.func1.2({0x6bb580, 0x6f3100})
          	/usr/local/go/src/testing/testing.go:2125 +0x232
          testing.tRunner.func1()
          	/usr/local/go/src/testing/testing.go:2128 +0x329
          panic({0x6bb580?, 0x6f3100?})
          	/usr/local/go/src/runtime/panic.go:859 +0x125
          example.org/x/sub.TestPanic(0x377fb67b4488?)
          	/home/me/go/sub/s_test.go:7 +0x28
          testing.tRunner(0x377fb67b4488, 0x6d9020)
          	/usr/local/go/src/testing/testing.go:2195 +0xea
          created by testing.(*T).Run in goroutine 1
          	/usr/local/go/src/testing/testing.go:2260 +0x4d4
        FAIL example.org/x 0.004s
        FAIL example.org/x/bad [build failed]
        FAIL example.org/x/sub 0.005s
        "#);
    }
}
