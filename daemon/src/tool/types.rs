//! Tools, their calls and their results: the bottom of the room.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::{Exit, Location, ModelCost, Outcome, OutputSegment, PlanEntry, ToolKind};
use linger_protocol::id::CallId;
use linger_protocol::message::ContentBlock;
use linger_protocol::question::QuestionOption;
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::{Access, Effects, Targets};
use super::background::Jobs;
use super::change::{Change, KeptChange};
use super::invalid::Invalid;
use super::names::Takes;
use super::output::OutputDelta;
use super::workspace::Workspace;
use crate::process::server::Spawn;
use crate::provider::tools::is_among;
use crate::store::blob::{Blobs, Held};
use crate::sys::task;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A tool that a model can call.
pub trait Tool: Send + Sync {
    /// Its name: at most 64 letters, digits, `_` and `-`, which every provider accepts.
    fn name(&self) -> &str;
    /// The description that the model reads.
    fn description(&self) -> &str;
    /// JSON Schema of its arguments.
    fn schema(&self) -> Value;
    /// Whether any call of it may change something, for lists of tools; what one call does, [`Call::effects`] says.
    fn changes(&self) -> bool {
        true
    }
    /// The kind of tool, for clients that show its calls.
    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }
    /// The MCP server that it belongs to; absent for the daemon's own.
    fn server(&self) -> Option<&str> {
        None
    }
    /// The Markdown file that describes it; absent for the daemon's own and those of servers.
    fn file(&self) -> Option<&Path> {
        None
    }
    /// Changes when its description changes: a lasting permission is for one version. Empty for the daemon's own tools.
    fn version(&self) -> &str {
        ""
    }
    /// Whether a session has it: unless the tool says otherwise, if the session's list of tools names it.
    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        session.names(self.name())
    }
    /// The meaning of a rule's pattern, `name(pattern)`. By default there are no patterns: rules name the tool alone.
    fn pattern(&self) -> Takes {
        Takes::Nothing
    }
    /// Whether [`Self::complete`] may change arguments.
    fn completes(&self) -> bool {
        false
    }
    /// Adds to the model's arguments what only the disk knows, without reading what is `hidden`. The result is what is shown,
    /// permitted and run; absent if nothing is added. Blocks.
    fn complete(&self, _input: &Value, _: &Workspace, _hidden: &Hidden) -> Result<Option<Value>, Invalid> {
        Ok(None)
    }
    /// Checks the arguments and gives the call that they mean.
    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid>;
}

/// The facts about a session that decide which tools it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTraits<'a> {
    /// The only tools it may have, as [`is_among`] compares them; absent for all.
    pub only: Option<&'a [String]>,
    /// It was told of skills.
    pub has_skills: bool,
    /// It has notes that outlive it.
    pub has_notes: bool,
    /// It may start children.
    pub may_delegate: bool,
    /// Its model changes files by patches.
    pub writes_patches: bool,
    /// The tools that its model's provider refuses; absent for none.
    pub refused: Option<&'a BTreeSet<String>>,
}

impl SessionTraits<'_> {
    /// A session of which nothing is known but that a user started it.
    pub const USUAL: SessionTraits<'static> = SessionTraits {
        only: None,
        has_skills: false,
        has_notes: false,
        may_delegate: true,
        writes_patches: false,
        refused: None,
    };

    /// Whether its list of tools has this one.
    pub fn names(&self, tool: &str) -> bool {
        is_among(self.only, tool) && !self.refused.is_some_and(|refused| refused.contains(tool))
    }
}

/// A call with good arguments.
pub trait Call: Send + Sync {
    /// The action in words for people: `read src/main.rs`, or the command itself.
    fn action(&self) -> String;
    /// The effects on the world, for permission, order and recovery; the same each time.
    fn effects(&self) -> Effects;
    /// The places that its arguments name.
    fn locations(&self) -> Vec<Location> {
        let effects = self.effects();
        let paths = effects.access.each().iter().filter_map(Access::path);
        paths.map(|path| Location { path: path.to_path_buf(), line: None }).collect()
    }
    /// The limit that the turn gets from then on, by the skill that the call reads.
    fn limit(&self) -> Option<SkillLimit> {
        None
    }
    /// The changes that it would make to the files at `targets`, its paths with every link resolved; for calls that write. Blocks.
    fn preview(&self, _targets: &Targets) -> Vec<Change> {
        Vec::new()
    }
    /// Why it would change nothing with the files at `targets` as they are now, in the words of its result; for calls that write. Blocks.
    fn refusal(&self, _targets: &Targets) -> Option<String> {
        None
    }
    /// Runs the call to its end; dropping the future stops it.
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput>;
    /// Waits for the result of the same call that was started before the daemon restarted; starts nothing.
    /// The daemon may have died between the record of the start and the start itself: then there is nothing to wait for, and the
    /// result says so. Only for calls whose effects say [`AfterCrash::Join`](linger_protocol::event::AfterCrash::Join).
    fn join(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput {
            outcome: Outcome::Unknown,
            ..ToolOutput::error("[interrupted, outcome unknown: the daemon was restarted while this call ran]")
        }))
    }
}

/// The services and facts that a running call is given.
pub struct Context {
    /// Names the call among those of all sessions, and stays the same after a restart.
    pub call: String,
    /// The paths that were permitted, with every link resolved; none for a call without a path.
    pub targets: Targets,
    /// Takes output while the call runs; waits when the reader is behind.
    pub output: mpsc::Sender<OutputDelta>,
    /// Where the whole of an output that is too long goes.
    pub blobs: Blobs,
    /// Whether this file is kept from being read; for calls that read more than the path that was permitted.
    pub hidden: Hidden,
    /// Starts children in the directory and the environment of the session.
    pub spawn: Spawn,
    /// Asks a person, who may take days to answer.
    pub ask: Ask,
    /// The call, within its session.
    pub id: CallId,
    /// The session's commands in the background.
    pub jobs: Jobs,
    /// Clients for pages of the web.
    pub web: Web,
    /// Has a task done by another agent.
    pub delegate: Delegate,
}

impl Context {
    /// Where `path` leads to, as it was permitted.
    pub(super) fn reached(&self, workspace: &Workspace, path: &Path) -> PathBuf {
        match self.targets.of(path) {
            Some(target) => target.to_path_buf(),
            None if self.targets.is_empty() => workspace.resolve(path),
            // No such path was permitted: opened as it is, it is refused if there is a link in it.
            None => path.to_path_buf(),
        }
    }
}

/// Gives the HTTP client for an address, which follows no redirect and connects to public addresses alone, and to the private ones that
/// the configuration names. Fails with the reason if `url` is none of these.
pub type Web = Arc<dyn Fn(Url) -> BoxFuture<'static, Result<Client, String>> + Send + Sync>;

/// A question that a call asks a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The question in words, at most 64 KiB.
    pub text: String,
    /// The possible answers.
    pub wants: Wants,
}

/// The form of the answer that a question wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// One of these, 1 to 32, each with a name of its own.
    Option(Vec<QuestionOption>),
    /// The fields of this JSON Schema.
    Fields(Value),
}

/// The answer to a [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The name of the option; for fields `accept` or `decline`.
    pub answer: String,
    /// The fields that were accepted.
    pub value: Option<Value>,
}

/// Asks a person, and gives the answer once that is on disk. Fails if the question is refused, for
/// its size or because too many wait, and if it is withdrawn.
/// A call that asks the same again, also after a restart, asks nothing new: it waits on, or has the answer that was given.
pub type Ask = Arc<dyn Fn(Choice) -> BoxFuture<'static, Result<Chosen, Invalid>> + Send + Sync>;

/// A task for another agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Name of the agent.
    pub agent: String,
    /// The work to do.
    pub task: String,
    /// The files to begin with, as the model named them.
    pub files: Vec<String>,
    /// The directory to work in; absolute, without `.` and `..`, within that of the session.
    pub directory: PathBuf,
    /// JSON Schema of its answer; absent for the usual form.
    pub schema: Option<Value>,
    /// Whether the result comes later.
    pub background: bool,
    /// Whether it gets a git worktree of its own; absent for what its agent says.
    pub worktree: Option<bool>,
}

/// Has a task done, or joins what was begun before a restart, and gives the result of the call.
pub type Delegate = Arc<dyn Fn(Order) -> BoxFuture<'static, ToolOutput> + Send + Sync>;

/// Says whether a file is not to be read without asking: a rule hides it, or it lies elsewhere than what was permitted.
pub type Hidden = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// The blocks that the model reads; bounded.
    pub content: Vec<ContentBlock>,
    /// Whether it is a failure.
    pub is_error: bool,
    /// How the call ended.
    pub outcome: Outcome,
    /// Which blocks of `content` were streamed, and where each begins in the stream.
    pub output: Vec<OutputSegment>,
    /// The whole output, when `content` has not.
    pub whole: Option<Held>,
    /// A unified diff of what changed; bounded.
    pub diff: Option<String>,
    /// The files that it changed.
    pub changes: Vec<KeptChange>,
    /// How its process ended by itself.
    pub exit: Option<Exit>,
    /// The plan that the call shows.
    pub plan: Option<Vec<PlanEntry>>,
    /// Notices for people: the result is not as its tool says.
    pub notices: Vec<String>,
    /// The model that the call asked, and what that cost.
    pub model_cost: Option<ModelCost>,
    /// Files that it made or was given; they become artifacts, and `content` gets links to them.
    pub made: Vec<Made>,
}

/// A file that a tool made or was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its name, without directories.
    pub name: String,
    /// Such as `image/png`, as its maker says.
    pub content_type: String,
    /// Its whole content.
    pub bytes: Vec<u8>,
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
            changes: Vec::new(),
            exit: None,
            plan: None,
            notices: Vec::new(),
            model_cost: None,
            made: Vec::new(),
        }
    }

    /// A failure with this text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// Runs `work` on a thread that may block. When the future is dropped, the token tells `work` to stop.
pub(super) fn blocking(
    work: impl FnOnce(&CancellationToken) -> ToolOutput + Send + 'static,
) -> BoxFuture<'static, ToolOutput> {
    Box::pin(async move {
        let token = CancellationToken::new();
        let _guard = token.clone().drop_guard();
        let done = task::spawn_blocking(move || work(&token)).await;
        done.unwrap_or_else(|error| ToolOutput::error(format!("the tool failed: {error}")))
    })
}
