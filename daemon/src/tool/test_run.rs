//! `test_run`: finds a project's test runner, runs it, and shows failures first.
//!
//! The command is found before anything is asked ([`Tool::complete`]), so that the permission is about the command that runs. It
//! runs in a shell like one of `bash`, under the same rules. No runner's output is parsed: lines that look like failures come
//! first, then the end of the output; a blob holds the whole.

use std::fmt::Write as _;
use std::path::Path;

use linger_protocol::event::ToolKind;
use linger_protocol::message::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::command::{ShellCommand, check_command};
use super::handle::Entry;
use super::invalid::Invalid;
use super::names::Takes;
use super::types::{Call, Hidden, Tool, ToolOutput};
use super::workspace::Workspace;
use super::{args, path, text};

/// How much is shown of the lines that look like failures, and of the end of the output, in bytes: ten failures, and a summary.
const FAILURES_MAX: usize = 12 << 10;
const TAIL: usize = 2 << 10;

/// Lines shown around one that looks like a failure: what led to it, and an assertion with its values.
const BEFORE: usize = 2;
const AFTER: usize = 12;

/// Signs of a failure in a line, separated by `|`: for cargo, pytest, Go, JavaScript runners, compilers and make.
const SIGNS: &str = "FAIL|panicked at|Error|error:|error[|not ok |✗|✖|✕|● |Traceback|assert|*** [";

/// The longest file that is searched for a test script or recipe, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Test runners; the first that fits counts. Columns: files of which one marks a project, a text that this file has, a file here or
/// above that chooses among several commands, the command, and what comes between it and a filter (empty if it takes none).
const RUNNERS: [(&str, &str, &str, &str, &str); 17] = [
    ("Cargo.toml", "", "", "cargo test", " "),
    ("package.json", "\"test\":", "pnpm-lock.yaml", "pnpm test", " -t "),
    ("package.json", "\"test\":", "yarn.lock", "yarn test", " -t "),
    ("package.json", "\"test\":", "bun.lock", "bun run test", " -t "),
    ("package.json", "\"test\":", "", "npm test", " -- -t "),
    ("go.mod", "", "", "go test ./...", " -run "),
    (PYTHON, "pytest", "uv.lock", "uv run pytest", " -k "),
    (PYTHON, "pytest", "poetry.lock", "poetry run pytest", " -k "),
    (PYTHON, "pytest", ".venv/bin/pytest", ".venv/bin/pytest", " -k "),
    (PYTHON, "pytest", "", "pytest", " -k "),
    ("justfile Justfile .justfile", "\ntest", "", "just test", ""),
    ("GNUmakefile makefile Makefile", "\ntest:", "", "make test", ""),
    ("GNUmakefile makefile Makefile", "\ncheck:", "", "make check", ""),
    ("CTestTestfile.cmake", "", "", "ctest --output-on-failure", " -R "),
    ("build/CTestTestfile.cmake", "", "", "ctest --test-dir build --output-on-failure", " -R "),
    ("pom.xml", "", "", "mvn test", " -Dtest="),
    ("build.gradle build.gradle.kts", "", "", "gradle test", " --tests "),
];
const PYTHON: &str = "pytest.ini pyproject.toml conftest.py tox.ini setup.cfg setup.py requirements.txt";

pub(super) struct TestRun;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    command: Option<String>,
    /// directory of the project
    path: Option<String>,
    /// only tests with this name
    filter: Option<String>,
    timeout_s: Option<u64>,
}

impl Tool for TestRun {
    fn name(&self) -> &str {
        "test_run"
    }

    fn description(&self) -> &str {
        include_str!("test_run.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn pattern(&self) -> Takes {
        Takes::Command
    }

    fn completes(&self) -> bool {
        true
    }

    fn complete(&self, input: &Value, workspace: &Workspace, hidden: &Hidden) -> Result<Option<Value>, Invalid> {
        let Args { command, path, filter, timeout_s } = args::parse(input)?;
        let refuse = |why: &str| Err(Invalid(format!("{why}; give the whole `command`")));
        if command.is_some() {
            let clash = "`path` and `filter` are for a command that is found; leave out `command`";
            return if path.or(filter).is_some() { Err(Invalid(clash.to_owned())) } else { Ok(None) };
        }
        let filter = filter.filter(|filter| !filter.is_empty());
        // It would be read as an option.
        if filter.as_ref().is_some_and(|filter| filter.starts_with('-') || filter.contains('\0')) {
            return refuse("`filter` is no name of a test");
        }
        let (dir, root) =
            (workspace.resolve(&workspace.directory(path.as_deref())?), workspace.resolve(&workspace.root));
        if !dir.starts_with(&root) {
            return refuse("`path` is not in the workspace");
        }
        let Some((project, command, option)) = find(&dir, &root, hidden) else {
            let shown = path::show(&workspace.cwd, &dir);
            return refuse(&format!("no test runner is known for {} or above", text::brief(&shown)));
        };
        let command = match filter {
            Some(_) if option.is_empty() => return refuse(&format!("`{command}` takes no `filter`")),
            Some(filter) => format!("{command}{option}{}", text::shell_word(&filter)),
            None => command.to_owned(),
        };
        let cwd = workspace.resolve(&workspace.cwd);
        // `cd` would take a leading `-` for an option.
        let below = project.strip_prefix(&cwd).ok().filter(|way| !way.to_string_lossy().starts_with('-'));
        let way = text::shell_word(&below.unwrap_or(project).to_string_lossy());
        let command = if project == cwd { command } else { format!("cd {way} && {command}") };
        let timed = |timeout_s| json!({ "command": command, "timeout_s": timeout_s });
        let complete = timeout_s.map_or_else(|| json!({ "command": command }), timed);
        Ok(Some(complete))
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { command, timeout_s, .. } = args::parse(input)?;
        let command = command.ok_or_else(|| Invalid("no `command`".to_owned()))?;
        let timeout_s = check_command(&command, timeout_s, workspace)?;
        let workspace = workspace.clone();
        Ok(Box::new(ShellCommand { command, timeout_s, workspace, keep: "", rewrite: Some(with_failures_first) }))
    }
}

/// The nearest directory from `dir` up to `root` with a known test runner, the command, and its filter option. Blocks on the disk.
fn find<'a>(dir: &'a Path, root: &Path, hidden: &Hidden) -> Option<(&'a Path, &'static str, &'static str)> {
    let inside = |dir: &'a Path| dir.ancestors().take_while(|at| at.starts_with(root));
    let text_of = |file: &Path| {
        let text = Entry::at(file).ok().filter(|_| !hidden(file))?.read(FILE_MAX).ok()??;
        Some(format!("\n{}", String::from_utf8_lossy(&text)))
    };
    // The script that `npm init` writes tests nothing.
    let says = |text: String, what: &str| text.contains(what) && !text.contains("no test specified");
    inside(dir).find_map(|at| {
        let runner = RUNNERS.iter().find(|(files, what, above, ..)| {
            files.split(' ').any(|file| text_of(&at.join(file)).is_some_and(|text| says(text, what)))
                && (above.is_empty() || inside(at).any(|at| at.join(above).is_file()))
        });
        runner.map(|(.., command, option)| (at, *command, *option))
    })
}

/// The result with a report in place of the output, if that is shorter and a blob holds the whole.
fn with_failures_first(end: &str, ran: ToolOutput) -> ToolOutput {
    let failures = if ran.is_error { failures(end) } else { String::new() };
    let report = format!("{failures}[the end of the output]\n{}", text::tail(end, TAIL));
    let plain: usize = ran.content.iter().filter_map(ContentBlock::as_text).map(str::len).sum();
    if ran.whole.is_none() || plain <= report.len() {
        return ran;
    }
    // Blocks that are no output say where the whole is, and how it ended.
    let is_output = |nth: usize| ran.output.iter().any(|segment| segment.block as usize == nth);
    let about = ran.content.iter().enumerate().filter(|(nth, _)| !is_output(*nth)).map(|(_, block)| block.clone());
    let content = std::iter::once(ContentBlock::text(report)).chain(about).collect();
    ToolOutput { content, output: Vec::new(), ..ran }
}

/// Lines that look like failures, with those around them; empty if there are none.
fn failures(output: &str) -> String {
    let is_sign = |line: &str| SIGNS.split('|').any(|sign| line.contains(sign)) && !line.trim_end().ends_with(" ok");
    let lines: Vec<&str> = output.lines().collect();
    let (mut shown, mut next) = (String::new(), 0);
    for (nth, _) in lines.iter().enumerate().filter(|(_, line)| is_sign(line)) {
        let from = next.max(nth.saturating_sub(BEFORE));
        if from > next && !shown.is_empty() {
            shown.push_str("  […]\n");
        }
        next = next.max((nth + AFTER).min(lines.len()));
        for line in lines.iter().take(next).skip(from) {
            // Writing to a string does not fail.
            let _ = writeln!(shown, "{}", text::head(line, TAIL));
        }
        if shown.len() > FAILURES_MAX {
            let head = text::head(&shown, FAILURES_MAX);
            return format!("[the first lines that look like failures]\n{head}\n");
        }
    }
    if shown.is_empty() { shown } else { format!("[lines that look like failures]\n{shown}") }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tool::tests::{run, test_workspace};

    /// The command that is found in a workspace with these files, or the reason why there is none.
    fn check(files: &[(&str, &str)], input: Value, expect: &str) {
        let (_dir, workspace) = test_workspace();
        for (name, text) in files {
            fs::create_dir_all(workspace.root.join(name).parent().unwrap()).unwrap();
            fs::write(workspace.root.join(name), text).unwrap();
        }
        let none: Hidden = std::sync::Arc::new(|_| false);
        let command = |found: Option<Value>| found.unwrap()["command"].as_str().unwrap().to_owned();
        let found = TestRun.complete(&input, &workspace, &none).map_or_else(|why| why.0, command);
        assert!(found.starts_with(expect), "{found}: {files:?}");
    }

    #[test]
    fn the_command_is_found_by_the_files_of_the_nearest_project() {
        let npm = |script: &str| format!(r#"{{"scripts": {{"test": "{script}"}}}}"#);
        check(&[], json!({}), "no test runner is known for . or above; give the whole `command`");
        check(&[("a/Cargo.toml", "")], json!({ "path": "a", "filter": "x y" }), "cd a && cargo test 'x y'");
        check(&[("package.json", &npm("jest"))], json!({ "filter": "a$b" }), "npm test -- -t 'a$b'");
        check(&[("package.json", &npm("jest")), ("yarn.lock", "")], json!({}), "yarn test");
        check(&[("package.json", &npm("echo no test specified")), ("Makefile", "check: a\n")], json!({}), "make check");
        check(&[("go.mod", ""), ("b/c", "")], json!({ "path": "b", "filter": "TestX" }), "go test ./... -run TestX");
        check(&[("pyproject.toml", "[tool.pytest]"), ("uv.lock", "")], json!({}), "uv run pytest");
        check(&[("Makefile", "test:\n")], json!({ "filter": "x" }), "`make test` takes no `filter`; give");
        check(&[], json!({ "path": "/" }), "`path` is not in the workspace");
        check(&[], json!({ "filter": "--config=x" }), "`filter` is no name of a test");
    }

    #[tokio::test]
    async fn failures_come_first_and_short_output_is_shown_as_it_is() {
        let (_dir, workspace) = test_workspace();
        linger_protocol::place::private_directory(&workspace.cwd.join("out")).unwrap();
        let fine = "test fine ... ok\n";
        let noise = fine.repeat(5000);
        for sign in ["thread 'a' panicked at a", "E  AssertionError: b", "--- FAIL: TestC", "not ok 1 - d"] {
            fs::write(workspace.cwd.join("log"), format!("{noise}{sign}\n  left: 1\n{noise}3 passed\n")).unwrap();
            let (text, is_error) = run(&TestRun, &workspace, json!({ "command": "cat log; exit 1" })).await;
            let begin = format!("[lines that look like failures]\n{fine}{fine}{sign}\n  left: 1\n");
            assert!(is_error && text.len() < 4096 && text.starts_with(&begin), "{text}");
            assert!(text.contains("3 passed\n|") && text.contains("whole output is in "), "{text}");
        }
        let (text, is_error) = run(&TestRun, &workspace, json!({ "command": "echo FAIL" })).await;
        assert_eq!((text.as_str(), is_error), ("FAIL\n", false));
    }
}
