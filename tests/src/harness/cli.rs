//! The real `linger`, run as a script would: arguments, standard input, exit code.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::process;
use crate::TIMEOUT;

/// A command that has not been run.
#[derive(Clone, Debug)]
pub struct Cli {
    env: Vec<(String, String)>,
    cwd: PathBuf,
    args: Vec<String>,
    stdin: Vec<u8>,
    program: PathBuf,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The first word of standard output, such as the identifier that `run -d` prints.
    pub fn word(&self) -> &str {
        self.stdout.split_whitespace().next().unwrap_or_default()
    }

    /// Standard output, one JSON value a line.
    pub fn json(&self) -> Vec<Value> {
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(read).collect()
    }

    /// Panics unless the exit code is this.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Panics unless standard error has this.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "'{words}' is not in stderr:\n{}", self.stderr);
        self
    }

    /// Panics unless it is an error as they should be: what is wrong, and what to do next.
    #[track_caller]
    pub fn fails_with_hint(self, code: i32) -> Self {
        self.exits(code).says("error: ").says("hint: ")
    }
}

impl Cli {
    /// Any program with this environment, not yet run.
    pub fn new(program: &Path, env: Vec<(String, String)>, cwd: PathBuf, args: &[&str]) -> Self {
        Self {
            program: program.to_path_buf(),
            env,
            cwd,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            stdin: Vec::new(),
        }
    }

    /// Standard input; a pipe that is empty otherwise.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// A variable more, or another value for one.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(n, _)| n != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A variable less.
    pub fn without(mut self, name: &str) -> Self {
        self.env.retain(|(n, _)| n != name);
        self
    }

    /// Another working directory.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().envs(self.env.iter().cloned()).current_dir(&self.cwd).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub async fn run(self) -> Output {
        let what = format!("linger {}", self.args.join(" "));
        let running = async {
            let mut child = self.command().spawn().expect("linger can be run");
            let mut stdin = child.stdin.take().expect("stdin is a pipe");
            // A command that reads no input may close it first.
            let _closed = stdin.write_all(&self.stdin).await;
            drop(stdin);
            child.wait_with_output().await.expect("linger ends")
        };
        let output = tokio::time::timeout(TIMEOUT, running).await;
        let output = output.unwrap_or_else(|_| panic!("{what} has not ended within {TIMEOUT:?}"));
        Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts it; its output is read line by line.
    pub async fn spawn(self) -> Running {
        let mut child = self.command().spawn().expect("linger can be run");
        let mut stdin = child.stdin.take().expect("stdin is a pipe");
        let _closed = stdin.write_all(&self.stdin).await;
        drop(stdin);
        let lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        Running { child, lines }
    }

    /// Starts it, with a standard input that stays open.
    pub async fn talk(self) -> (Running, ChildStdin) {
        let mut child = self.command().spawn().expect("linger can be run");
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        (Running { child, lines }, stdin)
    }
}

/// A command that runs.
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// The next line of standard output; nothing at its end.
    pub async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(TIMEOUT, self.lines.next_line()).await;
        line.expect("linger writes a line in time").expect("linger writes text")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("linger runs")
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    /// Waits for its end.
    pub async fn end(mut self) -> Output {
        let mut stdout = String::new();
        while let Some(line) = self.line().await {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).await.expect("linger writes text");
        }
        let status = tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("linger ends in time");
        Output { code: status.expect("linger ends").code().unwrap_or(-1), stdout, stderr }
    }
}
