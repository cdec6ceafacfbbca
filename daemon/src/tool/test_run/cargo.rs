//! The output of `cargo test`: the harness of Rust, and errors of the compiler. Pure.

use super::report::{Failure, Report};

pub(super) fn read(output: &str) -> Report {
    let mut report = Report::default();
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            let mut body = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("---- ") && *line != "failures:") {
                body.push(line);
            }
            report.failures.push(Failure::new(name, without_backtrace(&body)));
        } else if line.starts_with("test result: ") {
            report.summary.push(line.to_owned());
        } else if is_compile_error(line) {
            let mut body = vec![line];
            while let Some(line) = lines.next_if(|line| !line.trim().is_empty()) {
                body.push(line);
            }
            report.failures.push(Failure::new("build", body));
        }
    }
    report
}

/// Whether a line begins what the compiler reports, and not what cargo says of it afterwards.
fn is_compile_error(line: &str) -> bool {
    const BY_CARGO: [&str; 5] = ["test failed", "doctest failed", "could not compile", "build failed", "aborting due"];
    match line.strip_prefix("error") {
        Some(rest) if rest.starts_with("[E") => true,
        Some(rest) => rest.strip_prefix(": ").is_some_and(|what| {
            let is_count = what.split(' ').nth(1).is_some_and(|word| word.starts_with("target"));
            !is_count && !BY_CARGO.iter().any(|said| what.starts_with(said))
        }),
        None => false,
    }
}

/// The lines less the frames of a panic, which say nothing that its first line does not.
fn without_backtrace<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let is_frame = |line: &str| {
        let line = line.trim_start();
        let number = line.split(": ").next().unwrap_or_default();
        line == "stack backtrace:"
            || line.starts_with("note: ")
            || line.starts_with("at ")
            || (!number.is_empty() && line.contains(": ") && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let from = lines.iter().position(|line| line.trim() == "stack backtrace:").unwrap_or(lines.len());
    let kept = lines.iter().enumerate().filter(|(nth, line)| *nth < from || !is_frame(line)).map(|(_, line)| *line);
    kept.filter(|line| !line.starts_with("note: run with `RUST_BACKTRACE")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_and_doctests_have_their_panic_and_no_frames() {
        let report = read(include_str!("captured/cargo.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED tests::result
          Error: "no database"
        FAILED tests::bad
          about to fail

          thread 'tests::bad' (31748) panicked at src/lib.rs:14:9:
          assertion `left == right` failed: totals differ
            left: 6
           right: 7
        FAILED src/lib.rs - (line 1)
          Test executable failed (exit status: 101).

          stderr:

          thread 'main' (31776) panicked at src/lib.rs:3:1:
          assertion `left == right` failed
            left: 1
           right: 2
        test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.14s
        test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
        test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s
        "#);
    }

    #[test]
    fn an_error_of_the_compiler_is_a_failure() {
        let report = read(include_str!("captured/cargo-build.txt"));
        insta::assert_snapshot!(report.text(), @r#"
        FAILED build
          error[E0308]: mismatched types
            --> src/lib.rs:21:16
             |
          21 | fn x() -> u8 { "x" }
             |           --   ^^^ expected `u8`, found `&str`
             |           |
             |           expected `u8` because of return type
        "#);
    }
}
