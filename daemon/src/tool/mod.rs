//! Tools: what a model can do, one file a tool, with its description for the model beside it in `name.md`.
//!
//! [`Tool::prepare`] checks the arguments before anything runs and gives a [`Call`], which says what it would do; the turn asks
//! for permission and then runs it. A call whose future is dropped stops: whatever it had started is ended by its guards.
//! Deliberately absent: permissions, and anything about the log.

mod access;
pub mod added;
pub mod apply_patch;
mod args;
mod ask_user;
pub(crate) mod background;
mod bash;
mod bash_output;
mod call_tool;
pub mod change;
pub mod checkpoint;
pub mod delegate;
pub mod diff;
mod edit;
mod fetch;
mod file;
mod find_tools;
mod git;
mod glob;
mod grep;
pub(crate) mod handle;
mod ignored;
pub mod image;
mod ls;
pub mod memory;
pub mod notes;
pub(crate) mod output;
pub mod page;
mod path;
pub(crate) mod pattern;
mod plan;
pub mod program;
mod read;
mod replace;
pub mod restore;
pub mod seen;
pub mod set;
pub mod skill;
mod test_run;
pub(crate) mod text;
pub mod worktree;
mod write;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use linger_protocol::agent::SkillLimit;
use linger_protocol::event::{Exit, Location, ModelCost, Outcome, OutputSegment, PlanEntry, ToolKind};
use linger_protocol::id::{CallId, SessionId};
use linger_protocol::message::ContentBlock;
use linger_protocol::question::QuestionOption;
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::diagnostics::secret::SecretVariables;
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};
use crate::store::blob::{Blobs, Held};
use crate::sys::task;
pub use access::{Access, Effects, Targets};
use background::Jobs;
pub(crate) use bash::{ForegroundBash, TIMEOUT_MAX_S};
use change::{Change, KeptChange};
pub(crate) use file::keep_shut;
use notes::Notes;
pub(crate) use path::{absolute, normalise};
use seen::Seen;
use set::Takes;
use skill::Skills;

/// How many links `resolve` follows before it gives up on a loop; Linux allows as many.
const LINKS_MAX: usize = 40;

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that a model can call.
pub trait Tool: Send + Sync {
    /// Its name, at most 64 letters, digits, `_` and `-`: what every provider takes.
    fn name(&self) -> &str;
    /// What the model is told about it.
    fn description(&self) -> &str;
    /// JSON Schema of its arguments.
    fn schema(&self) -> Value;
    /// Whether any call of it may change something, for lists of tools; what one call does, [`Call::effects`] says.
    fn changes(&self) -> bool {
        true
    }
    /// What kind of tool it is, for those who show its calls.
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
    /// Changes with what it claims to do: a permission that lasts is for this version. Empty for the daemon's own tools.
    fn version(&self) -> &str {
        ""
    }
    /// What a rule's pattern means for it: `name(pattern)`. Unless it says so, nothing: rules name the tool alone.
    fn pattern(&self) -> Takes {
        Takes::Nothing
    }
    /// Whether [`Self::complete`] may change arguments.
    fn completes(&self) -> bool {
        false
    }
    /// Arguments with what only the disk tells, in the place of those of the model: they are what is shown, permitted and run. Blocks.
    fn complete(&self, _input: &Value, _: &Workspace) -> Result<Option<Value>, Invalid> {
        Ok(None)
    }
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
    /// What it does to the world, for permission, order and recovery; the same each time.
    fn effects(&self) -> Effects;
    /// The places that its arguments name.
    fn locations(&self) -> Vec<Location> {
        let effects = self.effects();
        let paths = effects.access.each().iter().filter_map(Access::path);
        paths.map(|path| Location { path: path.to_path_buf(), line: None }).collect()
    }
    /// What it limits its turn to from then on: the skill that it reads.
    fn limit(&self) -> Option<SkillLimit> {
        None
    }
    /// What it would make of the files at `targets`, its paths with every link resolved; for calls that write. Blocks.
    fn preview(&self, _targets: &Targets) -> Vec<Change> {
        Vec::new()
    }
    /// Why it would change nothing, with the files at `targets` as they are now, in the words of its result; for calls that write. Blocks.
    fn refusal(&self, _targets: &Targets) -> Option<String> {
        None
    }
    /// Runs it.
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput>;
    /// Waits for what the same call does that was started before the daemon was restarted, and gives its result; starts nothing.
    /// The daemon may have died between the record of the start and the start itself: then there is nothing to wait for, and the
    /// result says so. Only for calls whose effects say [`AfterCrash::Join`](linger_protocol::event::AfterCrash::Join).
    fn join(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput {
            outcome: Outcome::Unknown,
            ..ToolOutput::error("[interrupted, outcome unknown: the daemon was restarted while this call ran]")
        }))
    }
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
    /// The root of the workspace whose files (rules, hooks, tools, agents, notes) count here, if it is another one: in a worktree of
    /// a child those of the workspace that it was made of do, so that it can do no more there.
    pub bound_by: Option<PathBuf>,
    /// The variables that children get; nothing else is inherited. A secret one has [`IN_MEMORY`] as its value.
    ///
    /// [`IN_MEMORY`]: linger_protocol::variable::IN_MEMORY
    pub env: Arc<BTreeMap<String, String>>,
    /// The values of the secret ones.
    pub secrets: SecretVariables,
    /// What the session's model has seen of files.
    pub seen: Seen,
    /// The directories that a user added, which count like `root`.
    pub added: added::AddedDirs,
    /// The skills that the session's model can read.
    pub skills: Skills,
    /// The notes that outlive it.
    pub notes: Notes,
    /// The shell of `bash` calls may run this long unless the model asks for another time, in seconds.
    pub timeout_s: u64,
}

impl Workspace {
    /// What starts children of a session's tools here; `children` are those that live longer than a call.
    pub fn spawn(&self, children: Children, session: Option<SessionId>) -> Spawn {
        let started_for = session.map_or(StartedFor::Daemon, StartedFor::Session);
        Spawn { cwd: self.cwd.clone(), env: self.secrets.fill(&self.env), children, started_for }
    }

    /// The root of the workspace whose files count here.
    pub fn rules_root(&self) -> &Path {
        self.bound_by.as_deref().unwrap_or(&self.root)
    }

    /// The same place in the workspace whose files count here, for a path without links in a worktree.
    pub fn bound_place(&self, path: &Path) -> Option<PathBuf> {
        Some(self.bound_by.as_ref()?.join(path.strip_prefix(&self.root).ok()?))
    }

    /// Whether `path` lies within the workspace or an added directory, links resolved.
    pub fn contains(&self, path: &Path) -> bool {
        let resolved = self.resolve(path);
        resolved.starts_with(&self.root) || self.added.has(&resolved)
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
                // A link to nothing: a write to it creates the file at the other end.
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
    /// Names the call among those of all sessions, and stays the same after a restart.
    pub call: String,
    /// The paths that were permitted, with every link resolved; none for a call without a path.
    pub targets: Targets,
    /// Takes output while the call runs; waits when the reader is behind.
    pub output: mpsc::Sender<OutputDelta>,
    /// Where the whole of an output that is too long goes.
    pub blobs: Blobs,
    /// Whether a rule keeps this file from being read; for calls that read more than the path that was permitted.
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
    pub delegate: delegate::Delegate,
}

impl Context {
    /// Where `path` leads to, as it was permitted.
    fn reached(&self, workspace: &Workspace, path: &Path) -> PathBuf {
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
    /// What is asked, at most 64 KiB.
    pub text: String,
    /// What may be answered.
    pub wants: Wants,
}

/// What a question wants.
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
    /// The files that it changed.
    pub changes: Vec<KeptChange>,
    /// How its process ended by itself.
    pub exit: Option<Exit>,
    /// The plan that the call shows.
    pub plan: Option<Vec<PlanEntry>>,
    /// What people are told of it: a result that is not as its tool says.
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
    /// Its content.
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
        Arc::new(git::Git),
        Arc::new(test_run::TestRun),
        Arc::new(bash_output::BashOutput),
        Arc::new(bash_output::BashKill),
        Arc::new(fetch::Fetch),
        Arc::new(plan::Plan),
        Arc::new(ask_user::AskUser),
        Arc::new(delegate::Tasks),
    ]
}

/// Runs `work` on a thread that may block. When the future is dropped, the token tells `work` to stop.
fn blocking(work: impl FnOnce(&CancellationToken) -> ToolOutput + Send + 'static) -> BoxFuture<'static, ToolOutput> {
    Box::pin(async move {
        let token = CancellationToken::new();
        let _guard = token.clone().drop_guard();
        let done = task::spawn_blocking(move || work(&token)).await;
        done.unwrap_or_else(|error| ToolOutput::error(format!("the tool failed: {error}")))
    })
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod repository;

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    /// A tool of the server that its name has, which is never called.
    pub(crate) fn served(name: &str, about: &str) -> Arc<dyn Tool> {
        struct Served(String, String);
        impl Tool for Served {
            fn name(&self) -> &str {
                &self.0
            }
            fn description(&self) -> &str {
                &self.1
            }
            fn schema(&self) -> Value {
                json!({ "type": "object", "properties": { "x": { "description": "y".repeat(1000) } } })
            }
            fn server(&self) -> Option<&str> {
                self.0.strip_prefix(set::MCP)?.split("__").next()
            }
            fn prepare(&self, _: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
                Err(Invalid("not called".to_owned()))
            }
        }
        Arc::new(Served(name.to_owned(), about.to_owned()))
    }

    #[test]
    fn a_schema_has_names_types_and_what_is_required() {
        let timeout = json!({"type": "integer", "description": "seconds until it is ended; at most 3600"});
        let expect = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {"command": {"type": "string"}, "timeout_s": timeout, "background": {"type": "boolean"}},
            "required": ["command"],
        });
        assert_eq!(bash::Bash.schema(), expect);
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
    pub(crate) fn test_context(workspace: &Workspace, output: mpsc::Sender<OutputDelta>) -> Context {
        Context {
            call: "s/c1".to_owned(),
            targets: Targets::default(),
            output,
            blobs: Blobs::of(&workspace.cwd.join("out/linger.db")),
            hidden: Arc::new(|_| false),
            spawn: workspace.spawn(Children::default(), None),
            ask: Arc::new(|_| Box::pin(std::future::ready(Err(Invalid("no one to ask".to_owned()))))),
            id: "c1".into(),
            jobs: Jobs::new().0,
            web: Arc::new(|_| Box::pin(std::future::ready(Err("no network".to_owned())))),
            delegate: delegate::nowhere(),
        }
    }

    /// A workspace in a new directory.
    pub(crate) fn test_workspace() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        let path = std::env::var("PATH").unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), "/home/nobody".to_owned())]);
        let secrets = SecretVariables::default();
        let workspace = Workspace {
            root: cwd.clone(),
            is_seen: true,
            bound_by: None,
            cwd,
            env: Arc::new(env),
            secrets,
            seen: Seen::default(),
            added: added::AddedDirs::default(),
            skills: Skills::default(),
            notes: Notes::default(),
            timeout_s: 60,
        };
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
