//! The services that all sessions share.
//!
//! They are below the session and know no actor. An actor talks to its registry through [`Host`], so that a test can build an actor
//! without a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::event::NoticeCode;
use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use linger_protocol::session::PrefixFingerprint;
use linger_protocol::variable::IN_MEMORY;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::actor::{Command, Commands};
use super::attention::Attention;
use super::delegate::Child;
use super::names::Names;
use super::queued_bytes::QueuedBytes;
use crate::agent::{self, Entry, Library};
use crate::config::instructions::workspace_root;
use crate::config::providers::Providers;
use crate::config::{ConfigStore, Images, Policy};
use crate::diagnostics::secret::SecretVariables;
use crate::fault;
use crate::log::Log;
use crate::mcp::{Logins, Outside, Servers};
use crate::process::server::Children;
use crate::provider::catalogue::Resolved;
use crate::question::PendingQuestions;
use crate::store::Store;
use crate::sys::disk;
use crate::tool::added::AddedDirs;
use crate::tool::checkpoint::Checkpoints;
use crate::tool::image::{Image, ImageModels};
use crate::tool::notes::Notes;
use crate::tool::program::Program;
use crate::tool::seen::{Seen, Writers};
use crate::tool::set::{ToolSet, Tools};
use crate::tool::worktree::Worktrees;
use crate::tool::{BoxFuture, SessionTraits, Tool, Workspace};

/// The beginning of linger's own system prompts.
pub const SYSTEM: &str = include_str!("system.md");

/// Sessions whose seen files are remembered; beyond that, those that are not loaded are forgotten, and have to read again.
const MAX_SEEN: usize = 256;

/// The window of a model that is not known, in tokens.
const USUAL_WINDOW: u64 = 128_000;

/// About how many bytes of a JSON Schema are a token.
const BYTES_PER_TOKEN: u64 = 4;

/// The shared services.
pub struct Env {
    /// The directories and files.
    pub places: Places,
    /// The database of all sessions.
    pub store: Store,
    /// The configuration.
    pub config: Arc<ConfigStore>,
    /// Models and keys.
    pub providers: Arc<Providers>,
    /// Decides on calls.
    pub policy: Arc<Policy>,
    /// The tools; a turn takes the current set before each step.
    pub tools: Tools,
    /// The providers that make images.
    pub images: Arc<dyn ImageModels>,
    /// The tool for that.
    pub image_tool: Arc<dyn Tool>,
    /// The MCP servers, which add to the tools.
    pub servers: Arc<Servers>,
    /// All children.
    pub children: Children,
    /// The beginning of every system prompt.
    pub system: String,
    /// Session names that are not stored yet.
    pub names: Names,
    /// The pending questions of all sessions and of the daemon's own log.
    pub questions: PendingQuestions,
    /// The total size of queued prompts.
    pub queued_bytes: QueuedBytes,
    /// What people were told of sessions, and how far they read.
    pub attention: Arc<Attention>,
    /// The tool calls that run.
    pub running_calls: RunningCalls,
    /// The checkpoints of workspaces.
    pub checkpoints: Checkpoints,
    /// The git worktrees of children.
    pub worktrees: Worktrees,
    /// The secret variables of the sessions' tools, also of sessions that are not loaded.
    secrets: Mutex<BTreeMap<SessionId, SecretVariables>>,
    watched: mpsc::UnboundedSender<agent::Places>,
    to_watch: Mutex<Option<mpsc::UnboundedReceiver<agent::Places>>>,
    /// What the sessions' models have seen of files, also of sessions that are not loaded.
    seen: Mutex<BTreeMap<SessionId, Seen>>,
    /// Which of them wrote which file last.
    writers: Writers,
}

/// Counts the tool calls of all sessions that run, so that a daemon that is told to stop can wait for them.
pub struct RunningCalls(Semaphore);

impl RunningCalls {
    /// More than ever run: each holds a place until its result is recorded.
    const MAX: u32 = 1 << 20;

    /// Waits until calls may begin; the call runs while the permit lives.
    pub async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.0.acquire().await.ok()
    }

    /// Waits until no call runs. None begins while this waits, or while the permit lives.
    pub async fn none(&self) -> Option<SemaphorePermit<'_>> {
        self.0.acquire_many(Self::MAX).await.ok()
    }
}

impl Default for RunningCalls {
    fn default() -> Self {
        Self(Semaphore::new(Self::MAX as usize))
    }
}

/// The registry, from an actor's side.
pub trait Host: Send + Sync {
    /// Unloads an idle session if its mailbox is empty and its log has no readers; whether it did.
    fn unload(&self, id: &SessionId, log: &Log, commands: &Commands) -> bool;

    /// Drops a session that was removed, or whose actor has ended.
    fn forget(&self, id: &SessionId);

    /// Warns the clients of a session about a failure outside its actor.
    fn warn(self: Arc<Self>, id: &SessionId, code: NoticeCode, text: String);

    /// Sends a command to a session, and loads that if needed. The command always gets a reply.
    fn command(self: Arc<Self>, id: &SessionId, command: Command);

    /// Creates the child of a call, or finds the one that was created for it.
    fn child(self: Arc<Self>, wanted: Child) -> BoxFuture<'static, Result<SessionId, RpcError>>;
}

impl Env {
    /// An environment without sessions.
    pub fn new(
        places: Places,
        store: Store,
        config: Arc<ConfigStore>,
        providers: Arc<Providers>,
        tools: Tools,
        system: String,
        children: Children,
    ) -> Self {
        let (keys, http) = (providers.keys.clone(), providers.http());
        let logins = Arc::new(Logins::new(http.clone(), keys.clone(), providers.key_sources.clone()));
        let outside = Outside { children: children.clone(), keys, http, logins };
        let images: Arc<dyn ImageModels> = Arc::new(Images(providers.clone()));
        let servers = Servers::new(tools.clone(), outside, places.server_tools());
        let checkpoints = Checkpoints::below(places.checkpoints(), children.clone());
        let worktrees = Worktrees::below(places.worktrees(), children.clone());
        let (watched, to_watch) = mpsc::unbounded_channel();
        Self {
            attention: Attention::open(places.attention()),
            places,
            store,
            policy: Arc::new(Policy::new(config.clone())),
            config,
            providers,
            image_tool: Arc::new(Image(images.clone())),
            images,
            tools,
            servers,
            children,
            system,
            names: Names::default(),
            questions: PendingQuestions::default(),
            queued_bytes: QueuedBytes::default(),
            running_calls: RunningCalls::default(),
            checkpoints,
            worktrees,
            secrets: Mutex::default(),
            watched,
            to_watch: Mutex::new(Some(to_watch)),
            seen: Mutex::default(),
            writers: Writers::default(),
        }
    }

    /// The secret variables of a session's tools.
    pub fn secrets_of(&self, session: &SessionId) -> SecretVariables {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).entry(session.clone()).or_default().clone()
    }

    /// A child has the secret variables of its parent: those that a client brings to one, the other has.
    pub fn share_secrets(&self, child: &SessionId, parent: &SessionId) {
        let shared = self.secrets_of(parent);
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(child.clone(), shared);
    }

    /// What a session's model has seen of files.
    fn seen_by(&self, session: &SessionId) -> Seen {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SEEN {
            all.retain(|_, seen| !seen.is_unused());
        }
        let seen = || self.writers.seen_by(&format!("session {session}"));
        all.entry(session.clone()).or_insert_with(seen).clone()
    }

    /// Forgets what is in memory of a session that was removed: its secret variables, what it has seen, and its MCP servers.
    pub fn forget_secrets(&self, session: &SessionId) {
        self.attention.forget(session);
        self.servers.forget_session(session.as_str());
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }

    /// The workspace of a session in `cwd`. Its root is `cwd` if the disk does not answer within `limit`.
    pub async fn workspace(
        &self,
        session: &SessionId,
        cwd: &Path,
        env: BTreeMap<String, String>,
        limit: Duration,
    ) -> Workspace {
        self.workspace_within(session, cwd, env, (limit, None)).await
    }

    /// The same, where the files of the workspace with this root count.
    pub async fn workspace_within(
        &self,
        session: &SessionId,
        cwd: &Path,
        mut env: BTreeMap<String, String>,
        (limit, bound_by): (Duration, Option<PathBuf>),
    ) -> Workspace {
        if fault::bug("I11") {
            env.extend(std::env::vars());
        }
        let home = env.get("HOME").map(PathBuf::from);
        let timeout_s = self.config.bash_timeout_s();
        let seen = cwd.to_path_buf();
        let root = move || match seen.canonicalize() {
            // It is stored without links. One that has taken its place, or that of a directory above, does not move the workspace
            // to where it leads: nothing is within until it is gone.
            Ok(real) if real != seen => seen,
            _ => workspace_root(&seen, home.as_deref()),
        };
        let root = disk::probe(cwd, limit, root).await;
        let cwd = cwd.to_path_buf();
        let is_seen = root.is_some();
        let secrets = match env.values().any(|value| value == IN_MEMORY) {
            true => self.secrets_of(session),
            false => SecretVariables::default(),
        };
        let root = root.unwrap_or_else(|| cwd.clone());
        let (env, seen, added, skills) =
            (Arc::new(env), self.seen_by(session), AddedDirs::default(), Default::default());
        let of = bound_by.as_deref().unwrap_or(&root);
        let notes = Notes::of(&self.places.data, of, self.providers.keys.redactor().clone());
        Workspace { root, is_seen, bound_by, cwd, env, secrets, seen, added, skills, notes, timeout_s }
    }

    /// Reads the files of a workspace, and takes their MCP servers.
    pub async fn read_workspace(&self, workspace: &Workspace) {
        self.policy.read(workspace).await;
        self.read_tools(workspace).await;
        self.configure_workspace(workspace.rules_root());
    }

    /// Takes the MCP servers of the files of a workspace, as they were last read.
    pub fn configure_workspace(&self, root: &Path) {
        let (Some(now), Ok(config)) = (self.config.workspace(root), self.config.current()) else { return };
        self.servers.configure_workspace(root, &now.config.servers, &config.env.keys);
    }

    /// Takes the MCP servers of the configuration in force.
    pub fn configure_servers(&self) {
        if let Ok(config) = self.config.current() {
            self.servers.configure(&config.mcp, self.config.trusted_servers());
        }
    }

    /// Reads the Markdown files of tools and servers that a session in the workspace has, and takes them.
    pub async fn read_tools(&self, workspace: &Workspace) {
        let (config, places) = (self.config.clone(), self.agent_places(workspace));
        let read = move || Library::load_tools(&config, &places);
        if let Some(library) = disk::probe(&workspace.cwd, disk::TIMEOUT, read).await {
            self.install(&library, workspace.rules_root());
        }
    }

    /// Takes the tools and servers of Markdown files, as they were read for the workspace with this root.
    pub fn install(&self, library: &Library, root: &Path) {
        if library.is_own_new {
            self.configure_servers();
        }
        let (of_workspace, own): (Vec<_>, Vec<_>) = library.tools.iter().partition(|it| it.found.within.is_some());
        let programs = |entries: Vec<&Entry<Program>>| entries.into_iter().map(|it| it.item.clone()).collect();
        self.servers.set_programs(root, programs(own), programs(of_workspace));
    }

    /// Asks for notice of changed files of a session in the workspace.
    pub fn watch_files(&self, workspace: &Workspace) {
        // Without a receiver nothing is said, as in tests.
        let _unwatched = self.watched.send(self.agent_places(workspace));
    }

    /// The places whose files are to be watched. Absent at a second call.
    pub fn to_watch(&self) -> Option<mpsc::UnboundedReceiver<agent::Places>> {
        self.to_watch.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Where the user's own files lie, and those of no workspace.
    pub fn own_places(&self) -> agent::Places {
        let config = self.places.config.clone();
        let home = self.config.home().map(Path::to_path_buf);
        agent::Places { root: config.clone(), cwd: config.clone(), config, home }
    }

    /// Where the skills, commands and agents of a session lie.
    pub fn agent_places(&self, workspace: &Workspace) -> agent::Places {
        let root = workspace.rules_root().to_path_buf();
        let cwd = workspace.bound_place(&workspace.cwd).unwrap_or_else(|| workspace.cwd.clone());
        agent::Places { config: self.places.config.clone(), home: self.config.home().map(Path::to_path_buf), root, cwd }
    }

    /// The prefix fingerprint of requests to this model by a session in the workspace with this root that has `only` these tools.
    pub fn setup(
        &self,
        resolved: &Resolved,
        (root, session): (&Path, &SessionId),
        only: Option<&[String]>,
        traits: SessionTraits<'_>,
    ) -> PrefixFingerprint {
        let tools = self.tools_of(&resolved.origin, (root, session), only, traits);
        resolved.clone().limited(only).setup(&self.system, tools.specs())
    }

    /// What a session has of the tools that only some have: `depth` is how far it is from one that a user started.
    pub fn offered(&self, has_skills: bool, depth: u32) -> SessionTraits<'static> {
        let may_delegate = depth < self.config.delegation().depth;
        SessionTraits { has_skills, has_notes: self.config.memory(), may_delegate, ..SessionTraits::default() }
    }

    /// The tools of a session of the workspace with this model that has `only` these. What those of MCP servers may take of a
    /// request depends on the model's window.
    pub fn tools_of(
        &self,
        model: &str,
        (root, session): (&Path, &SessionId),
        only: Option<&[String]>,
        traits: SessionTraits<'_>,
    ) -> Arc<ToolSet> {
        let window = self.providers.window(model).unwrap_or(USUAL_WINDOW);
        let tokens = window / 100 * u64::from(self.config.mcp_direct_percent());
        let tools = self.servers.tools_in(root, session.as_str());
        let room = usize::try_from(tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
        let provider = model.split('/').next().unwrap_or_default();
        let schema = |tool: &str| tools.current().get(tool).map(|tool| tool.schema());
        let refused = self.providers.refused_tools.of(provider, schema);
        let traits = SessionTraits {
            only,
            writes_patches: self.providers.patches(model),
            refused: (!refused.is_empty()).then_some(&refused),
            ..traits
        };
        tools.of(&traits, std::slice::from_ref(&self.image_tool), room)
    }
}

#[cfg(test)]
impl Env {
    /// An environment of its own below `dir`, with the defaults and the demo model.
    pub(crate) fn of_tests(dir: &Path) -> Arc<Self> {
        use crate::diagnostics::secret::Redactor;
        use crate::provider::key_source::KeySources;
        use crate::provider::keychain::Keychain;
        use crate::provider::keys::Keys;

        let places = Places::below(dir).unwrap();
        let store = Store::open(&places.database()).unwrap();
        let config = Arc::new(ConfigStore::open(places.clone(), None, Tools::default()));
        let children = Children::of(&places.database());
        let keychain = Keychain::new(places.kept_keys(), children.clone());
        let keys = Arc::new(Keys::new(Redactor::default(), keychain.accounts()));
        let key_sources = KeySources::new(Arc::new(keychain), keys.clone());
        let providers = Arc::new(Providers::new(config.clone(), keys, key_sources, Arc::new(|_: &str| None)));
        Arc::new(Self::new(places, store, config, providers, Tools::default(), SYSTEM.to_owned(), children))
    }
}
