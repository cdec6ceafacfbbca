//! `git`: runs git; calls that only read run without asking.
//!
//! An [inspection](super::inspection) is git of linger's own. Every other call is a command like those of `bash`: it asks, and runs
//! git as a shell in the session's directory would.

use linger_protocol::event::ToolKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::inspection::inspect;
use super::options::{self, Inspection};
use super::process::start_as_command;
use crate::tool::access::Effects;
use crate::tool::invalid::Invalid;
use crate::tool::names::Takes;
use crate::tool::output::Output;
use crate::tool::types::{BoxFuture, Call, Context, Tool, ToolOutput};
use crate::tool::workspace::Workspace;
use crate::tool::{args, command, text};

/// The longest arguments, in bytes: a commit message of some pages.
const ARGS_MAX: usize = 64 << 10;

pub(in crate::tool) struct GitTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    args: Vec<String>,
}

impl Tool for GitTool {
    fn name(&self) -> &str {
        "git"
    }

    fn description(&self) -> &str {
        include_str!("git.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    fn pattern(&self) -> Takes {
        Takes::Arguments
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { args } = args::parse(input)?;
        if args.is_empty() {
            return Err(Invalid("`args` is empty; name a subcommand, such as `status`".to_owned()));
        }
        if args.iter().any(|arg| arg.contains('\0')) {
            return Err(Invalid("`args` has a NUL in it".to_owned()));
        }
        let size: usize = args.iter().map(String::len).sum();
        if size > ARGS_MAX {
            return Err(Invalid(format!("`args` has {size} bytes, and may have {ARGS_MAX}")));
        }
        let depth = workspace.cwd.strip_prefix(&workspace.root).map(|below| below.components().count());
        let inspection = options::inspection(&args, depth.unwrap_or(0));
        Ok(Box::new(GitCall { args, inspection, workspace: workspace.clone() }))
    }
}

struct GitCall {
    args: Vec<String>,
    /// Present if the call only reads.
    inspection: Option<Inspection>,
    workspace: Workspace,
}

impl Call for GitCall {
    fn action(&self) -> String {
        let words = self.args.iter().map(|arg| text::shell_word(arg));
        std::iter::once("git".into()).chain(words).collect::<Vec<_>>().join(" ")
    }

    fn effects(&self) -> Effects {
        match self.inspection {
            Some(_) => Effects::inspect(self.action(), &self.workspace.root),
            None => Effects::command(self.action()),
        }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(async move {
            let Some(inspection) = &self.inspection else { return self.execute(context).await };
            let root = &self.workspace.root;
            let root = context.targets.of(root).unwrap_or(root).to_path_buf();
            let shown = inspect(inspection, root, &self.workspace, context).await;
            shown.unwrap_or_else(|why| ToolOutput::error(why.0))
        })
    }
}

impl GitCall {
    async fn execute(&self, context: Context) -> ToolOutput {
        match start_as_command(&context.spawn, &self.args).await {
            Ok(process) => {
                let output = Output::of_command(context.output, context.blobs);
                command::RunningCommand::within(&self.workspace, self.workspace.timeout_s)
                    .collect(process, output)
                    .await
            }
            Err(error) => command::not_started(&self.workspace, &error).await,
        }
    }
}

#[cfg(test)]
mod tests;
