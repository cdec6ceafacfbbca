//! `bash_output` and `bash_kill`: what a command in the background has written, and its end.

use std::time::Duration;

use linger_protocol::event::ToolKind;
use linger_protocol::id::BackgroundId;
use linger_protocol::message::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::Effects;
use super::args;
use super::background::describe;
use super::command::TIMEOUT_MAX_S;
use super::invalid::Invalid;
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput};
use super::workspace::Workspace;

/// The longest wait, in seconds: as long as a command in the foreground may take.
const MAX_WAIT_S: u64 = TIMEOUT_MAX_S;

/// The tool that reads.
pub(super) struct BashOutput;

/// The tool that ends.
pub(super) struct BashKill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct OutputArgs {
    handle: String,
    /// wait so many seconds for its end, at most 3600
    wait_s: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct KillArgs {
    handle: String,
}

impl Tool for BashOutput {
    fn name(&self) -> &str {
        "bash_output"
    }

    fn description(&self) -> &str {
        include_str!("bash_output.md")
    }

    fn schema(&self) -> Value {
        args::schema::<OutputArgs>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let OutputArgs { handle, wait_s } = args::parse(input)?;
        let wait_s = wait_s.unwrap_or(0);
        if wait_s > MAX_WAIT_S {
            return Err(Invalid(format!("`wait_s` must be at most {MAX_WAIT_S}")));
        }
        Ok(Box::new(ReadOutput { handle: handle.into(), wait: Duration::from_secs(wait_s) }))
    }
}

struct ReadOutput {
    handle: BackgroundId,
    wait: Duration,
}

impl Call for ReadOutput {
    fn action(&self) -> String {
        format!("output of {}", self.handle)
    }

    fn effects(&self) -> Effects {
        Effects::nothing()
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let (text, ended) = match context.jobs.read(&self.handle, self.wait).await {
                Ok(read) => read,
                Err(unknown) => return ToolOutput::error(unknown.0),
            };
            let status = match &ended {
                None => format!("[{} runs]", self.handle),
                Some(ended) => {
                    let how = describe(ended.exit.as_ref(), ended.reason.as_deref());
                    let file = ended.whole.as_ref().and_then(crate::store::blob::Held::path);
                    let file = file.map(|path| format!("; the whole output is in {}", path.display()));
                    format!("[{} has ended: {how}{}]", self.handle, file.unwrap_or_default())
                }
            };
            // Providers refuse a block of white space alone.
            let text = if text.trim().is_empty() { "[no new output]".to_owned() } else { text };
            ToolOutput {
                content: vec![ContentBlock::text(text), ContentBlock::text(&status)],
                ..ToolOutput::text(status)
            }
        })
    }
}

impl Tool for BashKill {
    fn name(&self) -> &str {
        "bash_kill"
    }

    fn description(&self) -> &str {
        include_str!("bash_kill.md")
    }

    fn schema(&self) -> Value {
        args::schema::<KillArgs>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn changes(&self) -> bool {
        false
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let KillArgs { handle } = args::parse(input)?;
        Ok(Box::new(Killing { handle: handle.into() }))
    }
}

struct Killing {
    handle: BackgroundId,
}

impl Call for Killing {
    fn action(&self) -> String {
        format!("end {}", self.handle)
    }

    /// None: the command was permitted to run, and its end needs no permission.
    fn effects(&self) -> Effects {
        Effects { overlaps: false, ..Effects::nothing() }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            match context.jobs.kill(&self.handle, "ended by bash_kill").await {
                Ok(()) => ToolOutput::text(format!("{} has ended", self.handle)),
                Err(unknown) => ToolOutput::error(unknown.0),
            }
        })
    }
}
