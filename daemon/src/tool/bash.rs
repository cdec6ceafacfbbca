//! `bash`: runs a command in the session's directory.

use std::time::Duration;

use linger_protocol::event::Outcome;
use linger_protocol::message::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::output::Output;
use super::{Access, BoxFuture, Call, Context, Invalid, Tool, ToolOutput, Workspace, args, file};
use crate::process::{Process, READ_SIZE, Stderr};

/// The longest time that a model may ask for, in seconds; the longest builds and tests need about that.
const TIMEOUT_MAX_S: u64 = 3600;

/// The tool.
pub(super) struct Bash;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    command: String,
    /// seconds until it is ended; at most 3600
    timeout_s: Option<u64>,
}

impl Tool for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn description(&self) -> &'static str {
        include_str!("bash.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { command, timeout_s } = args::parse(input)?;
        if command.trim().is_empty() {
            return Err(Invalid("`command` is empty".to_owned()));
        }
        if command.contains('\0') {
            return Err(Invalid("`command` has a NUL in it".to_owned()));
        }
        let timeout_s = timeout_s.unwrap_or(workspace.timeout_s.clamp(1, TIMEOUT_MAX_S));
        if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
            return Err(Invalid(format!("`timeout_s` must be from 1 to {TIMEOUT_MAX_S}")));
        }
        Ok(Box::new(Command { command, timeout_s, workspace: workspace.clone() }))
    }
}

struct Command {
    command: String,
    timeout_s: u64,
    workspace: Workspace,
}

impl Call for Command {
    fn action(&self) -> String {
        self.command.clone()
    }

    fn access(&self) -> Access {
        Access::Command(self.command.clone())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move { self.execute(context).await })
    }
}

impl Command {
    async fn execute(&self, context: Context) -> ToolOutput {
        let Workspace { cwd, env, .. } = &self.workspace;
        let mut process = match Process::shell(&self.command, cwd, env, Stderr::Merged) {
            Ok(process) => process,
            Err(_) if !cwd.is_dir() => return ToolOutput::error(file::gone(&self.workspace)),
            Err(error) => return ToolOutput::error(format!("the command could not be started: {error}")),
        };
        let mut output = Output::new(context);
        let ended = follow(&mut process, &mut output, Duration::from_secs(self.timeout_s)).await;
        let (status, outcome) = match ended {
            Some(Ok(status)) if status.success() => (None, Outcome::Ran),
            Some(status) => (Some(describe(status)), Outcome::Ran),
            None => {
                process.end().await;
                let status = format!(
                    "[timed out after {} s; the command and what it started were ended. `timeout_s` may be up to {TIMEOUT_MAX_S}]",
                    self.timeout_s
                );
                (Some(status), Outcome::TimedOut)
            }
        };
        let mut kept = output.finish().await;
        let is_error = status.is_some();
        kept.content.extend(status.map(ContentBlock::text));
        ToolOutput { content: kept.content, is_error, outcome, output: kept.segments, file: kept.file, diff: None }
    }
}

/// Reads output until the process has ended, and gives its status; nothing when the time is over.
async fn follow(
    process: &mut Process,
    output: &mut Output,
    limit: Duration,
) -> Option<std::io::Result<std::process::ExitStatus>> {
    let mut buffer = vec![0; READ_SIZE];
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            // The time first: a flood has always something to read.
            biased;
            () = &mut deadline => return None,
            read = process.read(&mut buffer) => match read {
                Ok(read @ 1..) => output.push(buffer.get(..read).unwrap_or_default()).await,
                Ok(0) | Err(_) => break,
            },
        }
    }
    tokio::select! {
        () = &mut deadline => None,
        status = process.wait() => Some(status),
    }
}

/// How a command ended that did not end well.
fn describe(status: std::io::Result<std::process::ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("[exit code {code}]"),
            (None, Some(signal)) => format!("[killed by signal {signal}]"),
            (None, None) => format!("[{status}]"),
        },
        Err(error) => format!("[how it ended is not known: {error}]"),
    }
}
