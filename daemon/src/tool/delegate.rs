//! `delegate`: gives a task to another agent, which works in a session of its own, a child of this one.
//!
//! Here are the arguments and what they mean; what makes, follows and joins the child is given to the call ([`Delegate`]), because a
//! tool knows no session. A restart joins it: the child's own log knows how far it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::event::{AfterCrash, ToolKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::access::Effects;
use super::invalid::Invalid;
use super::path::normalise;
use super::types::{BoxFuture, Call, Context, SessionTraits, Tool, ToolOutput};
pub use super::types::{Delegate, Order};
use super::workspace::Workspace;
use super::{args, text};
use crate::provider::schema;

/// Name in lists of tools and in rules.
pub const NAME: &str = "delegate";

/// The agent that is always there: a session without a role.
pub const GENERAL: &str = "general";

/// The longest task, in bytes: about 16,000 tokens, which a model writes in one answer at most.
const MAX_TASK: usize = 64 << 10;

/// The longest name of an agent or a file, in bytes: what a path may have.
const MAX_NAME: usize = 4096;

/// The most files that a task names; more belong into the task as a pattern.
const MAX_FILES: usize = 32;

/// How much of a task or a name is shown, in characters.
const SHOWN: usize = 80;

/// For those who have no sessions: every task is refused.
pub fn nowhere() -> Delegate {
    Arc::new(|_| Box::pin(std::future::ready(ToolOutput::error("not run: there are no other agents here"))))
}

pub(super) struct Tasks;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    /// `general`, or one that you were told of
    agent: String,
    task: String,
    /// files to begin with
    files: Option<Vec<String>>,
    /// where it works, below the working directory
    directory: Option<String>,
    /// JSON Schema of the answer, in place of the usual form
    schema: Option<Map<String, Value>>,
    background: Option<bool>,
    worktree: Option<bool>,
}

impl Tool for Tasks {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("delegate.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        session.may_delegate && session.names(NAME)
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { agent, task, files, directory, schema, background, worktree } = args::parse(input)?;
        let (agent, task) = (agent.trim().to_owned(), task.trim().to_owned());
        if agent.is_empty() || agent.len() > MAX_NAME {
            return Err(Invalid(format!("`agent` must be a name, such as `{GENERAL}`")));
        }
        if task.is_empty() || task.len() > MAX_TASK {
            return Err(Invalid(format!("`task` must have from 1 to {MAX_TASK} bytes")));
        }
        let files = files.unwrap_or_default();
        if let Some(long) = files.iter().find(|file| file.len() > MAX_NAME) {
            return Err(Invalid(format!("`files`: {}… is no path", text::one_line(text::head(long, SHOWN)))));
        }
        if files.len() > MAX_FILES {
            return Err(Invalid(format!("`files` may be {MAX_FILES}; name more of them in the task")));
        }
        let directory = within(directory.as_deref(), &workspace.cwd)?;
        let schema = schema.map(Value::Object);
        if let Some(problem) = schema.as_ref().and_then(|schema| schema::check(schema).err()) {
            return Err(Invalid(format!("`schema`: {problem}")));
        }
        let background = background.unwrap_or_default();
        Ok(Box::new(Delegating(Order { agent, task, files, directory, schema, background, worktree })))
    }
}

/// A directory within that of the session.
fn within(directory: Option<&str>, cwd: &Path) -> Result<PathBuf, Invalid> {
    let Some(named) = directory.map(str::trim).filter(|named| !named.is_empty()) else { return Ok(cwd.to_path_buf()) };
    let directory = normalise(&cwd.join(named));
    if directory.starts_with(cwd) {
        Ok(directory)
    } else {
        let shown = text::one_line(text::head(named, SHOWN));
        Err(Invalid(format!("`directory`: {shown} is not below the working directory")))
    }
}

struct Delegating(Order);

impl Call for Delegating {
    fn action(&self) -> String {
        let line = self.0.task.lines().next().unwrap_or_default();
        let shown: String = line.chars().take(SHOWN).collect();
        let more = if shown.len() < self.0.task.len() { "…" } else { "" };
        format!("{}: {}{more}", text::one_line(&self.0.agent), text::one_line(&shown))
    }

    fn effects(&self) -> Effects {
        // What the child does asks for itself.
        Effects { after_crash: AfterCrash::Join, ..Effects::nothing() }
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        (context.delegate)(self.0)
    }

    fn join(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        (context.delegate)(self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::tests::test_workspace;

    #[test]
    fn what_cannot_be_delegated_is_refused_in_words() {
        let (_dir, workspace) = test_workspace();
        let check = |input: Value, expect: &str| {
            let problem = Tasks.prepare(&input, &workspace).err().unwrap().0;
            assert!(problem.starts_with(expect), "{problem}");
        };
        check(json!({ "agent": " ", "task": "x" }), "`agent` must be a name, such as `general`");
        check(json!({ "agent": "general", "task": " " }), "`task` must have from 1 to 65536 bytes");
        check(json!({ "agent": "general", "task": "x", "files": vec!["a"; 33] }), "`files` may be 32");
        check(json!({ "agent": "general", "task": "x", "directory": "a/../.." }), "`directory`: a/../.. is not below");
        check(json!({ "agent": "general", "task": "x", "schema": { "type": "nothing" } }), "`schema`: ");
    }

    #[test]
    fn a_task_is_shown_in_one_line_and_joined_after_a_restart() {
        let (_dir, workspace) = test_workspace();
        let task = json!({ "agent": "general", "task": "look at this\nand that", "directory": "sub" });
        let call = Tasks.prepare(&task, &workspace).unwrap();
        assert_eq!(call.action(), "general: look at this…");
        let effects = call.effects();
        assert_eq!((effects.after_crash, effects.overlaps, effects.changes), (AfterCrash::Join, true, false));
        assert_eq!(within(Some("sub"), &workspace.cwd).unwrap(), workspace.cwd.join("sub"));
    }
}
