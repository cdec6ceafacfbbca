//! What all sessions share: the store, the configuration, keys and tools, and the questions that actors ask of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{EventBody, NoticeCode};
use linger_protocol::id::{PermissionId, SessionId};
use linger_protocol::place::Places;
use linger_protocol::session::{Create, Created, Setup};
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::{AfterRestart, Config, ConfigError, ConfigStore};
use crate::disk;
use crate::fault;
use crate::key::{Key, UnderWay};
use crate::key_source::KeySources;
use crate::models;
use crate::permission::{self, CallInfo, Rule, Sight, Verdict};
use crate::process;
use crate::provider::ToolSpec;
use crate::provider::catalogue::{Catalogue, ResolveError, Resolved};
use crate::provider::keys::{Bearer, Keys};
use crate::provider::network::{Network, Variables};
use crate::provider::setup::Own;
use crate::prune;
use crate::repair::{self, Repairs};
use crate::session::actor::{Actor, Command, already_answered, idle_effort, unknown_model};
use crate::session::instructions::workspace_root;
use crate::session::state::{State, UNCONFIGURED};
use crate::session::turn::beside::SYSTEM;
use crate::session::waiting::Waiting;
use crate::sessions::{Asked, Sessions};
use crate::store::{Fold, Store, StoreError};
use crate::tool::{self, Access, Hidden, Tool, Workspace};

/// Characters of a session's id: 50 bits, so that a prefix of three or four tells those of one user apart.
const ID: usize = 10;

/// The longest name of a session, in characters: it stands in a column of a terminal.
const MAX_NAME: usize = 40;

/// The longest name of a model, in bytes; it stands in a line of `linger ls`.
const MAX_MODEL: usize = 256;

/// Sessions in the database. A row and its log take some KiB at least; whoever has as many never removes any.
pub const MAX_SESSIONS: u32 = 100_000;

/// Variables of one session in total, in bytes: PATH may take a few thousand.
const MAX_ENV: usize = 64 << 10;

/// While no configuration can be read, an idle session stays loaded this long, in seconds.
const IDLE_UNLOAD_S: u64 = 60;

/// While no configuration can be read, a shell may run this long, in seconds.
const BASH_TIMEOUT_S: u64 = 120;

/// What all sessions share.
pub struct Daemon {
    /// Where everything lies.
    pub places: Places,
    /// The store.
    pub store: Store,
    /// The configuration, as it is now.
    pub config: Arc<ConfigStore>,
    /// Provider keys.
    pub keys: Arc<Keys>,
    /// The catalogue, and the configuration that it was made of: every step of every turn asks for it.
    pub catalogue: Mutex<Option<(Arc<Config>, Arc<Catalogue>)>>,
    /// Wakes turns that wait for a key, or for a configuration.
    pub changed: watch::Sender<()>,
    /// Where keys are got that are not in an environment.
    pub key_sources: KeySources,
    /// The variables about the way out that the daemon was started with.
    pub variables: Variables,
    /// The loaded sessions.
    pub sessions: Sessions,
    /// The permissions that sessions wait for.
    pub asked: Asked,
    /// The prompts that wait, in all sessions.
    pub waiting: Waiting,
    /// Names that are being given, until that is stored.
    pub naming: Mutex<BTreeSet<String>>,
    /// Keyed requests of no session: sessions that are being made, and pruned.
    pub under_way: UnderWay,
    /// The tools, in the order in which models see them.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What it adds to every request by itself.
    pub own: OnceLock<Own>,
    /// Cancelled when the daemon is to end.
    pub shutdown: CancellationToken,
    /// When it started, in Unix milliseconds.
    pub started_at: u64,
    /// The keeper's process, if there is one.
    pub keeper: Option<u32>,
    /// How often a daemon of this keeper died before.
    pub restarts: u32,
    /// Clients that are connected.
    pub connections: AtomicU32,
    /// The search for damage, and the saving of what can be read.
    pub repairs: Repairs,
    /// When sessions were last looked through for those that are kept no longer, in Unix milliseconds.
    pub pruned_at: AtomicU64,
}

impl Daemon {
    /// The configuration, or why there is none.
    pub fn config(&self) -> Result<Arc<Config>, RpcError> {
        self.config.current().map_err(bad_config)
    }

    /// How long an idle session stays loaded.
    pub fn idle_unload(&self) -> Duration {
        Duration::from_secs(self.config.current().map_or(IDLE_UNLOAD_S, |config| config.idle_unload_s))
    }

    /// What becomes of turns that were under way when the daemon ended; nobody knows without a configuration.
    pub fn after_restart(&self) -> Option<AfterRestart> {
        self.config.current().ok().map(|config| config.after_restart)
    }

    /// Steps that a turn may take.
    pub fn max_steps(&self) -> u32 {
        self.config.current().map_or(1, |config| config.max_steps)
    }

    /// How full a model's window may be before older messages are summarised, in percent; 0 is never by itself.
    pub fn compact_at(&self) -> u8 {
        self.config.current().map_or(0, |config| config.compact_at)
    }

    /// How many tokens a model takes, where that is known.
    pub fn window(&self, model: &str) -> Option<u64> {
        self.catalogue().ok()?.window(model)
    }

    /// The providers, as the configuration has them now.
    pub fn catalogue(&self) -> Result<Arc<Catalogue>, ConfigError> {
        let config = self.config.current()?;
        let mut made = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, catalogue)) = made.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &config)) {
            return Ok(catalogue.clone());
        }
        let network = Arc::new(Network::new(&config.network, &self.variables));
        network.secrets().iter().for_each(|secret| self.keys.redactor().add(secret));
        let (default, keys) = (config.model.clone(), self.keys.clone());
        let catalogue = Catalogue::new(&config.providers, &config.models, default, keys, network);
        if let Some((_, before)) = made.as_ref() {
            catalogue.take_over(before);
        }
        let catalogue = Arc::new(catalogue);
        *made = Some((config, catalogue.clone()));
        Ok(catalogue)
    }

    /// As [`Self::catalogue`], for a client.
    pub fn usable_catalogue(&self) -> Result<Arc<Catalogue>, RpcError> {
        self.catalogue().map_err(bad_config)
    }

    /// Waits until a configuration that has changed is read: whoever comes may have written it a moment ago.
    pub async fn refresh_config(self: &Arc<Self>) {
        let (mut changed, place) = (self.changed.subscribe(), &self.places.config);
        let is_read = async {
            let has_changed = || {
                let config = self.config.clone();
                disk::look(place, disk::SHORT, move || config.has_changed())
            };
            // Whoever watches the file leaves it alone for a moment first: in between, no rule would be in force.
            while has_changed().await == Some(true) && changed.changed().await.is_ok() {}
        };
        if timeout(disk::SHORT, is_read).await.is_err() {
            // Some file systems tell of no changes.
            let config = self.config.clone();
            disk::look(place, disk::SHORT, move || config.reload()).await;
            self.config_was_read();
        }
    }

    /// Has everything looked at again that follows from the configuration.
    pub fn config_was_read(self: &Arc<Self>) {
        self.own_keys();
        self.changed.send_replace(());
        if self.after_restart() == Some(AfterRestart::Resume) {
            tokio::spawn(self.clone().go_on());
        }
    }

    /// Has the turns go on that were waiting for a configuration.
    async fn go_on(self: Arc<Self>) {
        let waiting = match self.store.in_state(UNCONFIGURED).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::error!(target: "daemon", %error, "turns that wait for the configuration cannot be found");
                return;
            }
        };
        for session in waiting {
            self.sessions.send(&self, &session, Command::Configured);
        }
    }

    /// Looks for keys in the daemon's own environment.
    pub fn own_keys(&self) {
        let Ok(catalogue) = self.catalogue() else { return };
        for variable in catalogue.wanted() {
            if let Ok(key) = std::env::var(&variable) {
                self.keys.insert(&variable, &key, Bearer::Daemon);
            }
        }
    }

    /// Where a session in `cwd` works. Its root is `cwd` itself if the disk does not answer within `limit`.
    pub async fn workspace(&self, cwd: &Path, mut env: BTreeMap<String, String>, limit: Duration) -> Workspace {
        if fault::bug("I11") {
            env.extend(std::env::vars());
        }
        env.insert(process::OWNER.to_owned(), self.places.database().to_string_lossy().into_owned());
        let home = env.get("HOME").map(PathBuf::from);
        let timeout_s = self.config.current().map_or(BASH_TIMEOUT_S, |config| config.bash_timeout_s);
        let seen = cwd.to_path_buf();
        let root = disk::look(cwd, limit, move || workspace_root(&seen, home.as_deref())).await;
        let cwd = cwd.to_path_buf();
        let is_seen = root.is_some();
        Workspace { root: root.unwrap_or_else(|| cwd.clone()), is_seen, cwd, env: Arc::new(env), timeout_s }
    }

    /// What the name of a model means, or the default one.
    pub fn model(&self, spec: Option<&str>) -> Result<Resolved, RpcError> {
        self.config()?;
        if spec.is_some_and(|spec| spec.len() > MAX_MODEL) {
            return Err(RpcError::new(Code::TooMuch, format!("the name of a model may have {MAX_MODEL} bytes")));
        }
        let resolved = self.usable_catalogue()?.resolve(spec.unwrap_or_default());
        resolved.map_err(|error| rpc_error(&error))
    }

    /// What `spec` means in a session with the model `current`.
    pub fn model_beside(&self, current: &str, spec: &str) -> Result<Resolved, RpcError> {
        if spec.len() > MAX_MODEL {
            return self.model(Some(spec));
        }
        let resolved = self.usable_catalogue()?.resolve_beside(current, spec);
        resolved.map_err(|error| rpc_error(&error))
    }

    /// What there is to say of a model that nobody knows of, if another one may have been meant.
    pub fn doubt(&self, origin: &str) -> Option<String> {
        let near = self.catalogue().ok()?.near_model(origin)?;
        Some(format!("nobody here knows of a model {origin}; did you mean {near}?"))
    }

    /// Whether a turn with this model could start.
    pub fn usable(&self, model: &str) -> Result<(), RpcError> {
        self.config()?;
        self.usable_catalogue()?.resolve(model).map(drop).map_err(|error| rpc_error(&error))
    }

    /// What requests to this model have beside the conversation.
    pub fn setup(&self, resolved: &Resolved) -> Setup {
        resolved.setup(self.own.get_or_init(|| Own::new(SYSTEM, &self.tool_specs())))
    }

    /// The tools as models see them.
    pub fn tool_specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.schema(),
        };
        self.tools.iter().map(spec).collect()
    }

    /// The tool with this name.
    pub fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.name() == name).cloned()
    }

    /// What a model is told that calls a tool which does not exist.
    pub fn no_such_tool(&self, name: &str) -> String {
        tool::find(&self.tools, name).err().map_or_else(String::new, |invalid| invalid.to_string())
    }

    /// Where a call would reach; nothing if the disk does not answer.
    pub async fn sight(&self, access: &Access, workspace: &Arc<Workspace>) -> Option<Sight> {
        let rules = self.config.current().map_or_else(|_| self.config.no_rules(), |config| config.rules.clone());
        if let Access::Command(_) = access {
            return Some(Sight::of(access, workspace, &rules));
        }
        let (access, seen) = (access.clone(), workspace.clone());
        disk::look(&workspace.cwd, disk::PATIENCE, move || Sight::of(&access, &seen, &rules)).await
    }

    /// May this call run?
    pub fn decide(&self, state: &State, call: &CallInfo<'_>, sight: &Sight, workspace: &Workspace) -> Verdict {
        match self.config.current() {
            Ok(config) => {
                let granted = state.grants.iter().filter_map(|rule| Rule::parse(rule).ok());
                let grants: Vec<Rule> = granted.chain(config.grants(&workspace.root).iter().cloned()).collect();
                permission::decide(&config.rules, &grants, state.mode, call, sight)
            }
            // Nobody knows what the rules forbid.
            Err(_) => Verdict::Ask { rule: Some("the configuration cannot be read".to_owned()) },
        }
    }

    /// What the rules keep a session's tools from reading.
    pub fn hidden(&self, tool: &str, access: &Access, workspace: &Arc<Workspace>) -> Hidden {
        let (Access::Read(root), Some(tool)) = (access, self.tool(tool)) else { return Arc::new(|_| false) };
        let (config, root, workspace) = (self.config.current().ok(), root.clone(), workspace.clone());
        // Where the disk is looked at, in the thread of the call.
        let hides = OnceLock::new();
        Arc::new(move |path| match &config {
            Some(config) => {
                let hides = hides.get_or_init(|| permission::hides(&config.rules, tool.name(), &root, &workspace));
                hides(path)
            }
            // Without rules to go by, nothing beyond the path that was permitted is read.
            None => true,
        })
    }

    /// Writes a rule into the configuration; the answer that brought it stands for the session anyway, which is told if the rule
    /// could not be written. A disk that does not answer is not waited for: the rule comes when it does.
    pub async fn grant_always(self: &Arc<Self>, session: &SessionId, root: &Path, rule: String) {
        let (daemon, session, root) = (self.clone(), session.clone(), root.to_path_buf());
        let granted = tokio::task::spawn_blocking(move || {
            if let Err(error) = daemon.config.grant(&root, &rule) {
                tracing::warn!(target: "permission", rule, %error, "the rule could not be written into the configuration");
                let text = format!("allowed in this session only: {error}");
                daemon.sessions.send(&daemon, &session, Command::Warn(NoticeCode::RuleNotStored, text));
            }
        });
        let _in_time = timeout(disk::PATIENCE, granted).await;
    }

    /// The error for an answer to a permission that has its decision, or never was.
    pub async fn already_answered(&self, id: &PermissionId) -> RpcError {
        match self.store.permission(id.clone()).await {
            Ok(Some(answered)) => match answered.decision {
                Some((decision, by, at)) => already_answered(decision, &by, at),
                None => {
                    RpcError::new(Code::Internal, format!("permission {id} waits, but its session does not know it"))
                }
            },
            Ok(None) => RpcError::new(Code::UnknownPermission, format!("there is no permission '{id}'"))
                .hint("`linger inbox` or permission/list shows those that wait"),
            Err(error) => error.into(),
        }
    }

    /// Refuses a name that is taken or does not look like one; nobody else gets it while what this gives is held.
    pub async fn check_name(self: &Arc<Self>, name: &str, own: Option<&SessionId>) -> Result<Named, RpcError> {
        let good = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        let begins = name.chars().next().is_some_and(char::is_alphanumeric);
        if !begins || name.chars().count() > MAX_NAME || !name.chars().all(good) {
            let error = RpcError::new(Code::BadName, format!("'{}' is no name for a session", name.escape_default()));
            return Err(error
                .hint(format!("up to {MAX_NAME} letters, digits, '-', '_' and '.', the first a letter or a digit")));
        }
        let Some(named) = Named::take(self, name) else {
            let error = RpcError::new(Code::BadName, format!("another session is being called '{name}'"));
            return Err(error.hint("choose another name"));
        };
        if own.is_none() {
            // It may be that of a session which is still being carried over.
            let _all: Result<Option<()>, ()> = repair::find(self, || std::future::ready(Ok(None))).await;
        }
        let rows = self.store.sessions(Some(name.to_owned()), None, 2, |row| row.id).await?;
        match rows.into_iter().find(|id| Some(id) != own) {
            None => Ok(named),
            Some(id) => Err(RpcError::new(Code::BadName, format!("session {id} is called '{name}' or begins so"))
                .hint("choose another name, or remove that session")),
        }
    }

    /// Makes a session, or finds the one that was made for the key.
    pub async fn create(self: &Arc<Self>, params: Create, key: Option<Key>) -> Result<Created, RpcError> {
        let Some(key) = key else { return self.make_session(params, None).await };
        let _turn = self.under_way.turn(&key).await;
        match self.outcome(&key).await? {
            Some(created) => Ok(created),
            None => self.make_session(params, Some(key)).await,
        }
    }

    /// What a request with this key came to, if it was made before.
    pub async fn outcome<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, RpcError> {
        self.store.outcome(key.id.clone()).await?.map(|outcome| outcome.answer(key)).transpose()
    }

    /// Answers when it is on disk.
    async fn make_session(self: &Arc<Self>, params: Create, key: Option<Key>) -> Result<Created, RpcError> {
        let config = self.config()?;
        let resolved = match self.model(params.model.as_deref()) {
            Err(error) if error.code() == Some(Code::NoModel) => {
                let provider = params.model.or_else(|| config.model.clone()).unwrap_or_default();
                let example = models::example(self, &provider).await;
                let hint = example.map(|model| format!("`--model {model}` is there; `linger models` lists all"));
                return Err(hint.into_iter().fold(error, RpcError::hint));
            }
            resolved => resolved?,
        };
        let doubt = self.doubt(&resolved.origin);
        let idle = resolved.idle_effort(params.effort);
        let (setup, model) = (Some(self.setup(&resolved)), resolved.origin);
        let cwd = directory(&params.cwd).await?;
        let _named = match &params.name {
            Some(name) => Some(self.check_name(name, None).await?),
            None => None,
        };
        let env: BTreeMap<String, String> =
            params.env.into_iter().filter(|(name, _)| config.env.contains(name)).collect();
        if env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_ENV {
            return Err(RpcError::new(Code::TooMuch, format!("the variables of a session may have {MAX_ENV} bytes")));
        }
        let sessions = self.store.session_count().await?;
        if sessions >= MAX_SESSIONS {
            let error = RpcError::new(Code::TooMuch, format!("there are {sessions} sessions already"));
            return Err(error.hint("remove some: `linger rm SESSION`"));
        }
        let id = SessionId(clock::random_word(ID));
        let created = Created { session: id.clone(), doubt: doubt.clone() };
        let outcome = key.map(|key| Fold::Outcome(key.outcome(&created)));
        let (mode, name) = (params.mode.unwrap_or(config.mode), params.name);
        tracing::info!(target: "session", session = %id, cwd = %cwd.display(), model, %mode, "created");
        let workspace = Arc::new(self.workspace(&cwd, env.clone(), disk::PATIENCE).await);
        let (effort, env_of) = (params.effort, env.clone());
        let body = EventBody::SessionCreated { cwd, model, mode, effort, name, setup, env: env_of };
        let (done, committed) = oneshot::channel();
        let commands = self.sessions.add(id.clone())?;
        let said = doubt.as_deref().map(unknown_model).into_iter().chain(idle.map(idle_effort)).collect();
        let actor = Actor::create(self.clone(), id.clone(), (body, said), (&env, workspace), outcome, done);
        match committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into()))) {
            Ok(()) => {
                tokio::spawn(actor.run(None, commands));
                prune::retain(self);
                Ok(created)
            }
            Err(error) => {
                self.sessions.forget(&id);
                Err(error.into())
            }
        }
    }
}

/// A name that is being given; others can have it when this is dropped.
pub struct Named(Arc<Daemon>, String);

impl Named {
    fn take(daemon: &Arc<Daemon>, name: &str) -> Option<Self> {
        let new = daemon.naming.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        new.then(|| Self(daemon.clone(), name.to_owned()))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.0.naming.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// The real path of a directory that a session is to work in.
async fn directory(cwd: &Path) -> Result<PathBuf, RpcError> {
    let gone = |problem: String| {
        RpcError::new(Code::NoWorkspace, format!("{}: {problem}", cwd.display())).hint("name a directory that exists")
    };
    if !cwd.is_absolute() {
        return Err(gone("not an absolute path".to_owned()));
    }
    let seen = cwd.to_path_buf();
    let real = disk::look(cwd, disk::PATIENCE, move || seen.canonicalize().map(|real| (real.is_dir(), real))).await;
    match real {
        Some(Ok((true, real))) => Ok(real),
        Some(Ok((false, _))) => Err(gone("not a directory".to_owned())),
        Some(Err(error)) => Err(gone(error.to_string())),
        None => Err(RpcError::new(Code::NoWorkspace, disk::silent(cwd)).hint("try again when it does")),
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        if error.is_damage() {
            let hint = "`linger doctor` says what is damaged, `linger doctor --repair` saves what can be read";
            return Self::new(Code::Damaged, format!("what is stored is damaged: {}", error.0)).hint(hint);
        }
        Self::new(Code::Storage, error.to_string()).hint("see whether the disk is full; `linger doctor` says more")
    }
}

/// The error of a request that needs a configuration, while there is none that can be used.
pub fn bad_config(error: ConfigError) -> RpcError {
    RpcError::new(Code::BadConfig, error.to_string()).hint("correct the file; it is read again when it is saved")
}

/// An error of the catalogue for a client, with what to do next.
pub fn rpc_error(error: &ResolveError) -> RpcError {
    let (code, hint) = match error {
        ResolveError::NoModel { .. } => (Code::NoModel, "`--model demo` shows linger without a key".to_owned()),
        ResolveError::NoDefault { .. } => (Code::NoModel, "`linger models` lists what can be used".to_owned()),
        ResolveError::HostedApart { .. } => (Code::BadConfig, "`linger models` lists what can be used".to_owned()),
        ResolveError::NoAddress { .. } => {
            (Code::NoModel, "write it in config.toml; it is read again when it is saved".to_owned())
        }
        ResolveError::UnknownProvider { .. } => {
            (Code::UnknownProvider, "`linger models` lists those there are; config.toml may name more".to_owned())
        }
        ResolveError::Keyless { .. } => (Code::NotAKey, "`linger key list` shows those that do".to_owned()),
        ResolveError::KeyMissing { provider, variable } => {
            let ways = format!("export {variable}=… and run this again, or `linger key set {provider}`");
            (Code::KeyMissing, format!("{ways}; `--model demo` needs none"))
        }
    };
    RpcError::new(code, error.to_string()).hint(hint)
}
