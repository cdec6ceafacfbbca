//! What failed is run once more, alone: the program `retry`, with planted tests in a test program of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The directory of one test, and what it recorded.
struct Record(tempfile::TempDir);

impl Record {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Runs the planted tests under `retry`.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn run(&self, planted: &str) -> Output {
        let mut retry = Command::new(env!("CARGO_BIN_EXE_retry"));
        retry.arg(self.0.path().join("record")).arg(program()).args(["--test-threads", "1"]);
        retry.env("PLANTED", planted).env("PLANTED_DIR", self.0.path()).output().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.0.path().join("record")).unwrap()
    }
}

/// The test program with what is planted, built once.
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_dir, path) = PROGRAM.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("planted-0");
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--test", "--edition", "2024", "-o"]).arg(&path);
        rustc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("it/retry/planted.rs"));
        assert!(rustc.status().unwrap().success());
        (dir, path)
    });
    path
}

#[track_caller]
fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn tests_that_pass_are_run_once_and_nothing_is_recorded() {
    let record = Record::new();
    let output = record.run("nothing");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(said(&output).matches("running ").count(), 1);
    assert_eq!(record.text(), "");
}

#[test]
fn a_test_that_fails_once_passes_alone_and_is_named_with_its_first_failure() {
    let record = Record::new();
    let output = record.run("fails-once");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said(&output).contains("running 1 test\ntest may_fail ... ok"), "{output:?}");
    let text = record.text();
    assert!(text.starts_with("planted may_fail\na word of the test\n"), "{text}");
    assert!(text.contains("the first failure"), "{text}");
    assert_eq!(text.matches("planted ").count(), 1, "{text}");
}

#[test]
fn a_test_that_fails_twice_fails() {
    let record = Record::new();
    let output = record.run("fails-always");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).ends_with("failed twice: [\"may_fail\"]\n"), "{output:?}");
    assert_eq!(record.text(), "");
}

#[test]
fn after_a_crash_each_test_without_a_result_is_run_alone() {
    let record = Record::new();
    let output = record.run("crashes-once");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // They run in the order of their names: the first had passed.
    assert!(record.text().starts_with("planted was ended by signal 6; 3 tests"), "{}", record.text());
    for name in ["may_crash", "may_fail", "passes"] {
        assert!(said(&output).contains(&format!("running 1 test\ntest {name} ... ok")), "{name}: {output:?}");
    }
}

#[test]
fn a_test_that_crashes_alone_too_fails() {
    let record = Record::new();
    let output = record.run("crashes-always");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).ends_with("failed twice: [\"may_crash\"]\n"), "{output:?}");
    assert_eq!(record.text(), "");
}

#[test]
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn a_program_without_a_list_is_run_once_more_as_a_whole() {
    let record = Record::new();
    let marker = record.0.path().join("marker");
    let script = "echo a word; [ -e \"$0\" ] || { : >\"$0\"; exit 3; }";
    let output = Command::new(env!("CARGO_BIN_EXE_retry"))
        .arg(record.0.path().join("record"))
        .args(["sh", "-c", script])
        .arg(&marker)
        .output()
        .unwrap();
    // It is run a second time for its list, and a third time as a whole.
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(record.text(), "sh ended with 3\na word\n\n");
}

#[test]
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn the_ordinary_torture_lists_its_parts_as_tests_are_listed() {
    let torture = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_torture")).args(arguments).output().unwrap();
    let listed = said(&torture(&["--ordinary", "--list"]));
    let parts: Vec<_> = listed.lines().map(|line| line.strip_suffix(": test").unwrap()).collect();
    assert_eq!(
        parts,
        [
            "fault-switches",
            "kills",
            "outages",
            "crash-points",
            "store-faults",
            "planted-bugs",
            "permission-races",
            "question-races",
            "reader-races",
            "power-cuts",
            "lying-disk"
        ]
    );
    assert_eq!(said(&torture(&["--ordinary", "kills", "--exact", "--list"])), "kills: test\n");
    assert_eq!(torture(&["--ordinary", "kill"]).status.code(), Some(2));
}
