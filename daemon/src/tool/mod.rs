//! Tools: what a model can do, one file a tool, with its description for the model beside it in `name.md`.
//!
//! [`Tool::prepare`] checks the arguments before anything runs and gives a [`Call`], which says what it would do; the turn asks
//! for permission and then runs it. A call whose future is dropped stops: whatever it had started is ended by its guards.
//! Deliberately absent: permissions, and anything about the log.

mod args;
mod bash;
mod edit;
pub(crate) mod file;
mod glob;
mod grep;
mod ignored;
mod ls;
mod output;
mod path;
pub(crate) mod pattern;
mod read;
pub(crate) mod text;
mod write;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use linger_protocol::event::{Outcome, OutputSegment};
use linger_protocol::message::ContentBlock;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::blob::{Blobs, Held};
pub(crate) use bash::TIMEOUT_MAX_S;
pub(crate) use file::keep_shut;

/// How many links `resolve` follows before it gives up on a loop; Linux allows as many.
const LINKS_MAX: usize = 40;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that a model can call.
pub trait Tool: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What the model is told about it.
    fn description(&self) -> &'static str;
    /// JSON Schema of its arguments.
    fn schema(&self) -> Value;
    /// Whether no call of it ever changes anything; such calls may overlap, and may run again after a crash.
    fn read_only(&self) -> bool;
    /// Checks the arguments and gives the call that they mean.
    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid>;
}

/// Arguments that do not fit; what the model is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// A call with good arguments.
pub trait Call: Send + Sync {
    /// What it does, for people: `read src/main.rs`, or the command itself.
    fn action(&self) -> String;
    /// What it touches, for the rules.
    fn access(&self) -> Access;
    /// Runs it.
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput>;
}

/// What a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads a file or a directory tree; absolute, without `.` and `..`.
    Read(PathBuf),
    /// Changes or makes a file; absolute, without `.` and `..`.
    Write(PathBuf),
    /// Runs a command, which may do anything.
    Command(String),
}

/// Where a session works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The session's directory, absolute; relative paths begin here.
    pub cwd: PathBuf,
    /// The nearest directory above with a `.git` in it, or `cwd`.
    pub root: PathBuf,
    /// Whether that was seen; the disk may not have answered.
    pub is_seen: bool,
    /// The variables that children get; nothing else is inherited.
    pub env: Arc<BTreeMap<String, String>>,
    /// The shell of `bash` calls may run this long unless the model asks for another time, in seconds.
    pub timeout_s: u64,
}

impl Workspace {
    /// Whether `path` lies within the workspace, links resolved.
    pub fn contains(&self, path: &Path) -> bool {
        self.resolve(path).starts_with(&self.root)
    }

    /// `path` with every link resolved, also where what it leads to does not exist (yet).
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let mut rest = Vec::new();
        let mut existing = path.to_path_buf();
        let mut links = 0;
        loop {
            if let Ok(real) = existing.canonicalize() {
                return rest.iter().rev().fold(real, |path, part| path.join(part));
            }
            let (Some(name), Some(parent)) = (existing.file_name().map(ToOwned::to_owned), existing.parent()) else {
                return path.to_path_buf();
            };
            match existing.read_link() {
                // A link to nothing: whoever writes to it makes the file at the other end.
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    existing = path::normalise(&self.resolve(parent).join(target));
                }
                _ => {
                    existing = parent.to_path_buf();
                    rest.push(name);
                }
            }
        }
    }
}

/// What a running call is given.
pub struct Context {
    /// Takes output while the call runs; waits when the reader is behind.
    pub output: mpsc::Sender<OutputDelta>,
    /// Where the whole of an output that is too long goes.
    pub blobs: Blobs,
    /// Whether a rule keeps this file from being read; for calls that read more than the path that was permitted.
    pub hidden: Hidden,
}

/// Says whether a file is kept from being read.
pub type Hidden = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// A piece of output while a call runs; a jump in `offset` marks what was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputDelta {
    /// Where the piece begins, in bytes of UTF-8.
    pub offset: u64,
    /// The piece.
    pub text: String,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// What the model reads; bounded.
    pub content: Vec<ContentBlock>,
    /// Whether it is a failure.
    pub is_error: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Which blocks of `content` were streamed, and where each begins in the stream.
    pub output: Vec<OutputSegment>,
    /// The whole output, when `content` has not.
    pub whole: Option<Held>,
    /// A unified diff of what changed; bounded.
    pub diff: Option<String>,
}

impl ToolOutput {
    /// A success with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentBlock::text(text)],
            is_error: false,
            outcome: Outcome::Ran,
            output: Vec::new(),
            whole: None,
            diff: None,
        }
    }

    /// A failure with this text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// The tools that come with the daemon, in the order in which a model sees them.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(bash::Bash),
        Arc::new(read::Read),
        Arc::new(write::Write),
        Arc::new(edit::Edit),
        Arc::new(ls::Ls),
        Arc::new(glob::Glob),
        Arc::new(grep::Grep),
    ]
}

/// The tool with this name, or what to tell a model that made the name up.
pub fn find<'a>(tools: &'a [Arc<dyn Tool>], name: &str) -> Result<&'a Arc<dyn Tool>, Invalid> {
    tools.iter().find(|tool| tool.name() == name).ok_or_else(|| {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        let near = text::did_you_mean(name, &names);
        Invalid(format!("there is no tool `{}`{near} (the tools are {})", text::one_line(name), names.join(", ")))
    })
}

/// Runs `work` on a thread that may block. When the future is dropped, the token tells `work` to stop.
fn blocking(work: impl FnOnce(&CancellationToken) -> ToolOutput + Send + 'static) -> BoxFuture<'static, ToolOutput> {
    Box::pin(async move {
        let token = CancellationToken::new();
        let _guard = token.clone().drop_guard();
        let done = tokio::task::spawn_blocking(move || work(&token)).await;
        done.unwrap_or_else(|error| ToolOutput::error(format!("the tool failed: {error}")))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_specifications_of_all_tools_are_small() {
        let specs: Vec<Value> = builtin()
            .iter()
            .map(|tool| json!({"name": tool.name(), "description": tool.description(), "input_schema": tool.schema()}))
            .collect();
        let size = serde_json::to_string(&specs).unwrap().len();
        assert!(size < 4500, "{size} bytes: the first request of a session must stay under 10 KB");
    }

    #[test]
    fn a_schema_has_names_types_and_what_is_required() {
        let timeout = json!({"type": "integer", "description": "seconds until it is ended; at most 3600"});
        let expect = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {"command": {"type": "string"}, "timeout_s": timeout},
            "required": ["command"],
        });
        assert_eq!(bash::Bash.schema(), expect);
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_nearest_name() {
        let error = find(&builtin(), "raed").err().unwrap().0;
        assert_eq!(
            error,
            "there is no tool `raed`; did you mean `read`? (the tools are bash, read, write, edit, ls, glob, grep)"
        );
        assert_eq!(find(&builtin(), "grep").unwrap().name(), "grep");
    }

    #[test]
    fn a_link_out_of_the_workspace_is_not_in_it() {
        let outside = tempfile::tempdir().unwrap();
        let (_dir, workspace) = test_workspace();
        symlink(outside.path(), workspace.cwd.join("dir")).unwrap();
        symlink(outside.path().join("missing"), workspace.cwd.join("dangling")).unwrap();
        symlink("inside/missing", workspace.cwd.join("in")).unwrap();
        symlink("loop", workspace.cwd.join("loop")).unwrap();
        let check = |path: &str, expect: bool| {
            assert_eq!(workspace.contains(&workspace.cwd.join(path)), expect, "{path}");
        };
        check("new/file", true);
        check("in", true);
        check("loop", true);
        check("dir", false);
        check("dir/new/file", false);
        check("dangling", false);
        check("../x", false);
    }

    /// What a call is given whose blobs are in the directory `out` of its workspace.
    pub(super) fn test_context(workspace: &Workspace, output: mpsc::Sender<OutputDelta>) -> Context {
        Context { output, blobs: Blobs::beside(&workspace.cwd.join("out/linger.db")), hidden: Arc::new(|_| false) }
    }

    /// A workspace in a new directory.
    pub(super) fn test_workspace() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        let path = std::env::var("PATH").unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), "/home/nobody".to_owned())]);
        let workspace = Workspace { root: cwd.clone(), is_seen: true, cwd, env: Arc::new(env), timeout_s: 60 };
        (dir, workspace)
    }

    /// Runs a call whose output nobody reads, and gives its first texts and whether it failed.
    pub(super) async fn run(tool: &dyn Tool, workspace: &Workspace, input: Value) -> (String, bool) {
        let call = match tool.prepare(&input, workspace) {
            Ok(call) => call,
            Err(invalid) => return (invalid.0, true),
        };
        let (sender, _receiver) = mpsc::channel(1);
        let output = call.run(test_context(workspace, sender)).await;
        (output.content.iter().filter_map(ContentBlock::as_text).collect::<Vec<_>>().join("|"), output.is_error)
    }
}
