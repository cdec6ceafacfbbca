//! `retry RECORD PROGRAM ARGUMENT…`: runs a test program; each test that did not pass is run once more, alone.
//!
//! Cargo calls it as the runner of its test programs (`target.'cfg(all())'.runner`), so that it works for every kind of test.
//! PROGRAM speaks as libtest does: a line `test NAME ... ok` for each test, `--list`, and `NAME --exact`. A program that cannot
//! list its tests (documentation's) is run once more as a whole.
//! A test that passes the second time is flaky: RECORD gets its name and what it said when it failed. A test that fails twice
//! fails the run, and so does a program that says nothing about what failed.
//! Runs that go on at the same time share a lock on RECORD; a second run holds it exclusively, and so runs alone.
//! Deliberately absent: a third run, and a list of tests that may fail.
#![allow(clippy::expect_used)] // It runs tests, and is no product.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Lines of a failure that are recorded: enough for a panic, its backtrace and the end of a log.
const LINES: usize = 80;

/// How long output is read after its program ended: a process that it left behind may hold the pipe open.
const LEFT_BEHIND: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(record), Some(program)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: retry RECORD PROGRAM ARGUMENT…");
        return ExitCode::from(2);
    };
    let tests = Program { path: program, arguments: arguments.collect() };
    let record = File::options().create(true).append(true).open(record).expect("RECORD can be written");
    record.lock_shared().expect("RECORD can be locked");
    let first = tests.run(&[]);
    record.unlock().expect("RECORD is locked");
    if first.status.success() {
        return ExitCode::SUCCESS;
    }
    let suspects = tests.list().map(|listed| first.suspects(&listed));
    record.lock().expect("RECORD can be locked");
    let flaky = match suspects {
        Some(suspects) if suspects.is_empty() => None,
        Some(suspects) => tests.each_alone(&first, &suspects),
        None => tests.as_a_whole(&first),
    };
    let Some(flaky) = flaky else { return ExitCode::FAILURE };
    (&record).write_all(flaky.as_bytes()).expect("RECORD can be written");
    ExitCode::SUCCESS
}

/// A test program.
struct Program {
    path: OsString,
    arguments: Vec<OsString>,
}

/// What a program did.
struct Run {
    status: ExitStatus,
    output: String,
}

impl Program {
    fn name(&self) -> String {
        let name = Path::new(&self.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Cargo appends a hash.
        name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_owned())
    }

    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).args(more);
        command
    }

    /// Runs the program, and prints its output as it comes.
    fn run(&self, more: &[&str]) -> Run {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = self.command(more);
        command.stdout(writer.try_clone().expect("a pipe")).stderr(writer);
        let mut child = command.spawn().expect("the test program can be run");
        drop(command); // It holds the writing ends.
        let (sender, chunks) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 13];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                let chunk = buffer.get(..length).unwrap_or_default().to_vec();
                // Output that cannot be printed is still looked at.
                let _printed = std::io::stdout().write_all(&chunk).and_then(|()| std::io::stdout().flush());
                if sender.send(chunk).is_err() {
                    break;
                }
            }
        });
        let status = child.wait().expect("the test program is a child");
        let mut output = Vec::new();
        while let Ok(chunk) = chunks.recv_timeout(LEFT_BEHIND) {
            output.extend(chunk);
        }
        Run { status, output: String::from_utf8_lossy(&output).into_owned() }
    }

    /// The names of the tests, if the program can tell.
    fn list(&self) -> Option<Vec<String>> {
        let mut command = self.command(&["--list"]);
        let listed = command.stderr(Stdio::null()).output().ok().filter(|listed| listed.status.success())?;
        let listed = String::from_utf8(listed.stdout).ok()?;
        let names: Vec<String> =
            listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Runs each of `suspects` alone; what is to be recorded if all pass.
    fn each_alone(&self, first: &Run, suspects: &[String]) -> Option<String> {
        println!("\nonce more, each alone: {} of {}", suspects.len(), self.name());
        let passes = |name: &&str| {
            let second = self.run(&[name, "--exact"]);
            second.status.success() && second.reported().get(name) == Some(&"ok")
        };
        let (passed, failed): (Vec<&str>, Vec<&str>) = suspects.iter().map(String::as_str).partition(passes);
        if !failed.is_empty() {
            println!("\nfailed twice: {failed:?}");
            return None;
        }
        let reported = first.reported();
        let (named, silent): (Vec<&str>, Vec<&str>) =
            passed.into_iter().partition(|name| reported.get(name) == Some(&"FAILED"));
        let named = named.iter().map(|name| format!("{} {name}\n{}\n\n", self.name(), first.said(name)));
        let mut flaky: String = named.collect();
        if !silent.is_empty() {
            let (count, ended) = (silent.len(), ended(first.status));
            flaky += &format!("{} {ended}; {count} tests without a result passed alone\n", self.name());
            flaky += &format!("{}\n\n", last(&first.output));
        }
        Some(flaky)
    }

    /// Runs all tests once more; what is to be recorded if they pass.
    fn as_a_whole(&self, first: &Run) -> Option<String> {
        println!("\nonce more: {}", self.name());
        let passed = self.run(&[]).status.success();
        passed.then(|| format!("{} {}\n{}\n\n", self.name(), ended(first.status), last(&first.output)))
    }
}

impl Run {
    /// What was said of each test: `ok`, `FAILED`, `ignored`.
    fn reported(&self) -> BTreeMap<&str, &str> {
        self.output.lines().filter_map(reported).collect()
    }

    /// The tests that are to be run once more: all of which nothing good was said.
    fn suspects(&self, listed: &[String]) -> Vec<String> {
        let reported = self.reported();
        let good = |name: &&String| matches!(reported.get(name.as_str()), Some(&("ok" | "ignored")));
        listed.iter().filter(|name| !good(name)).cloned().collect()
    }

    /// What a test said that failed.
    fn said(&self, name: &str) -> String {
        let head = format!("---- {name} stdout ----");
        let mut lines = self.output.lines().skip_while(|line| *line != head).peekable();
        if lines.peek().is_none() {
            return last(&self.output);
        }
        let section = lines.skip(1).take_while(|line| !line.starts_with("---- ") && *line != "failures:");
        section.take(LINES).collect::<Vec<_>>().join("\n").trim().to_owned()
    }
}

/// The test that a line of output is about, and its result.
fn reported(line: &str) -> Option<(&str, &str)> {
    // What a test prints without a line end stands before it.
    let said = |(at, word): (usize, &str)| {
        let (name, result) = line.get(at + word.len()..)?.split_once(" ... ")?;
        Some((name.strip_suffix(" - should panic").unwrap_or(name), result))
    };
    let (name, result) = line.match_indices("test ").filter_map(said).find(|(name, _)| !name.contains(' '))?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    Some((name, result.split(',').next().unwrap_or(result)))
}

/// The end of an output.
fn last(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}

fn ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("ended with {}", status.code().unwrap_or_default()),
    }
}
