//! RunningCommand a command for a call: collecting its output, within bounds, and how it ended.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use linger_protocol::event::Outcome;
use linger_protocol::message::ContentBlock;

use super::access::Effects;
use super::background::exit;
use super::file;
use super::invalid::Invalid;
use super::left::left_behind;
use super::output::Output;
use super::types::{BoxFuture, Call, Context, ToolOutput};
use super::workspace::Workspace;
use crate::process::{Input, Process, READ_SIZE, Stderr};
use crate::sys::disk;

/// The longest time that a model may ask for, in seconds; the longest builds and tests need about that.
pub(crate) const TIMEOUT_MAX_S: u64 = 3600;

/// How long a command may be silent before the line that it has begun is shown: a question, or a step that takes its time.
const SILENCE: Duration = Duration::from_secs(1);

/// How much of the end of an output is kept for a result that is rewritten, in bytes: it is in memory.
const END_MAX: usize = 4 << 20;

/// Fails if this is no command, or if its time is out of bounds; else gives its time in seconds.
pub(super) fn check_command(command: &str, timeout_s: Option<u64>, workspace: &Workspace) -> Result<u64, Invalid> {
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
    Ok(timeout_s)
}

/// A command that runs in a shell in the session's directory.
pub(super) struct ShellCommand {
    pub(super) command: String,
    pub(super) timeout_s: u64,
    pub(super) workspace: Workspace,
    /// How to keep a process that it starts; empty if there is no way.
    pub(super) keep: &'static str,
    /// Makes another result, given the last [`END_MAX`] bytes of the output; absent if the result stays as it is.
    pub(super) rewrite: Option<fn(&str, ToolOutput) -> ToolOutput>,
}

impl Call for ShellCommand {
    fn action(&self) -> String {
        self.command.clone()
    }

    fn effects(&self) -> Effects {
        Effects::command(self.command.clone())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let process = match context.spawn.shell(&self.command, Input::Nothing, Stderr::Merged).await {
                Ok(process) => process,
                Err(error) => return not_started(&self.workspace, &error).await,
            };
            let mut output = Output::of_command(context.output, context.blobs);
            if self.rewrite.is_some() {
                output.keep_end(END_MAX);
            }
            let longer = format!(" `timeout_s` may be up to {TIMEOUT_MAX_S}");
            let Self { workspace, timeout_s, keep, .. } = &*self;
            let running = RunningCommand { workspace, timeout_s: *timeout_s, longer: &longer, keep };
            let (result, end) = running.collect_with_end(process, output).await;
            if let Some(rewrite) = self.rewrite { rewrite(&end, result) } else { result }
        })
    }
}

/// The result of a command that could not be started.
pub(super) async fn not_started(workspace: &Workspace, error: &io::Error) -> ToolOutput {
    let seen = workspace.cwd.clone();
    let gone = disk::probe(&workspace.cwd, disk::TIMEOUT, move || !seen.is_dir()).await.unwrap_or(false);
    let why = format!("the command could not be started: {error}");
    ToolOutput::error(if gone { file::gone(workspace) } else { why })
}

/// The facts beside its process that the result of a command depends on.
pub(super) struct RunningCommand<'a> {
    pub(super) workspace: &'a Workspace,
    /// Seconds until it is ended.
    pub(super) timeout_s: u64,
    /// How to get more time; empty if there is no way.
    pub(super) longer: &'a str,
    /// How to keep a process that it starts; empty if there is no way.
    pub(super) keep: &'a str,
}

impl<'a> RunningCommand<'a> {
    /// A command without ways to more time and to processes that stay.
    pub(super) fn within(workspace: &'a Workspace, timeout_s: u64) -> Self {
        Self { workspace, timeout_s, longer: "", keep: "" }
    }

    /// The result of a command: its output, how it ended, and what it left behind. After the time it is ended.
    pub(super) async fn collect(&self, process: Process, output: Output) -> ToolOutput {
        self.collect_with_end(process, output).await.0
    }

    /// As [`Self::collect`], with what the output keeps of its end.
    async fn collect_with_end(&self, mut process: Process, mut output: Output) -> (ToolOutput, String) {
        let ended = follow(&mut process, &mut output, Duration::from_secs(self.timeout_s)).await;
        let exit = ended.as_ref().and_then(|ended| ended.as_ref().ok()).map(exit);
        let (status, left, outcome) = match ended {
            Some(status) => {
                let left = left_behind(process.left(), &self.workspace.secrets, self.keep);
                let is_well = status.as_ref().is_ok_and(ExitStatus::success);
                ((!is_well).then(|| describe(status)), left, Outcome::Ran)
            }
            None => {
                process.end().await;
                let Self { timeout_s, longer, .. } = self;
                let status =
                    format!("[timed out after {timeout_s} s; the command and what it started were ended.{longer}]");
                (Some(status), None, Outcome::TimedOut)
            }
        };
        let end = output.take_end();
        let mut kept = output.finish().await;
        let is_error = status.is_some();
        kept.content.extend(status.into_iter().chain(left).map(ContentBlock::text));
        let result = ToolOutput {
            is_error,
            outcome,
            output: kept.segments,
            whole: kept.whole,
            exit,
            content: kept.content,
            ..ToolOutput::text("")
        };
        (result, end)
    }
}

/// Reads output until the process has ended, and gives its status; nothing when the time is over.
async fn follow(process: &mut Process, output: &mut Output, limit: Duration) -> Option<io::Result<ExitStatus>> {
    let mut buffer = vec![0; READ_SIZE];
    let deadline = tokio::time::sleep(limit);
    tokio::pin!(deadline);
    let mut is_shown = true;
    loop {
        let silence = tokio::time::sleep(SILENCE);
        tokio::select! {
            // The time first: a flood has always something to read.
            biased;
            () = &mut deadline => return None,
            read = process.read(&mut buffer) => match read {
                Ok(read @ 1..) => {
                    output.push(buffer.get(..read).unwrap_or_default()).await;
                    is_shown = false;
                }
                Ok(0) | Err(_) => break,
            },
            () = silence, if !is_shown => {
                output.let_out().await;
                is_shown = true;
            }
        }
    }
    tokio::select! {
        () = &mut deadline => None,
        status = process.wait() => Some(status),
    }
}

/// How a command ended that did not end well.
fn describe(status: io::Result<ExitStatus>) -> String {
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
