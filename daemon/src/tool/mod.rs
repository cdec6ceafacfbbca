//! Tools: what a model can do, one file a tool, with its description for the model beside it in `name.md`.
//!
//! [`Tool::prepare`] checks the arguments before anything runs and gives a [`Call`], which says what it would do; the turn asks
//! for permission and then runs it. A call whose future is dropped stops: whatever it had started is ended by its guards.
//! Deliberately absent: permissions, and anything about the log.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use linger_protocol::event::{Outcome, OutputSegment};
use linger_protocol::message::ContentBlock;
use serde_json::Value;
use tokio::sync::mpsc;

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

    /// `path` with every link resolved in the part of it that exists.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let mut rest = Vec::new();
        let mut existing = path.to_path_buf();
        loop {
            if let Ok(real) = existing.canonicalize() {
                return rest.iter().rev().fold(real, |path, part| path.join(part));
            }
            match (existing.file_name().map(ToOwned::to_owned), existing.parent()) {
                (Some(name), Some(parent)) => {
                    rest.push(name);
                    existing = parent.to_path_buf();
                }
                _ => return path.to_path_buf(),
            }
        }
    }
}

/// What a running call is given.
pub struct Context {
    /// Takes output while the call runs; waits when the reader is behind.
    pub output: mpsc::Sender<OutputDelta>,
    /// Where the whole of an output that is too long goes; the call makes the file, 0600, when it needs it.
    pub spill: PathBuf,
}

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
    /// The file with the whole output, when `content` has not.
    pub file: Option<PathBuf>,
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
            file: None,
            diff: None,
        }
    }

    /// A failure with this text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}
