//! Creating a session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::agent::{Role, Scope, Status};
use linger_protocol::budget::Budget;
use linger_protocol::child::Delegated;
use linger_protocol::error::Code;
use linger_protocol::event::{EventBody, Level, NoticeCode, SessionCreated};
use linger_protocol::id::SessionId;
use linger_protocol::mcp::SessionServer;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Create, Created, Effort};
use linger_protocol::variable::{IN_MEMORY, MAX_TOTAL};
use tokio::sync::oneshot;

use super::{ID, Registry, worktree};
use crate::agent::role::stricter;
use crate::agent::{Agent, FileKind, Library};
use crate::config::Config;
use crate::diagnostics::nearest::nearest;
use crate::diagnostics::secret::Secret;
use crate::process::server::UMASK;
use crate::provider::catalogue::Resolved;
use crate::provider::tools::{is_among, only};
use crate::question::permission::Rule;
use crate::session::actor::{Actor, NewSession, add_directories, idle_effort, unknown_model};
use crate::session::messages::Child;
use crate::store::idempotency::Key;
use crate::store::{Fold, StoreError};
use crate::sys::task;
use crate::sys::{clock, disk, login};
use crate::tool::Workspace;
use crate::tool::skill::NAME as SKILL;

/// How alike a name must be to be suggested.
const NEAR: f32 = 0.7;

/// The most rules that a session may begin with: a command line has few.
const MAX_ALLOWED: usize = 64;

/// The longest addition to the system prompt, in bytes: it is in the session's state. Longer text belongs into `AGENTS.md`.
const MAX_SYSTEM: usize = 16 << 10;

/// Sessions in the database; a row and its log take some KiB at least.
const MAX_SESSIONS: u32 = 100_000;

impl Registry {
    /// Creates a session, or finds the one that was created for the key. `parent` is the session that starts it; the caller has its
    /// authority. `most` is the loosest mode that it may have.
    pub async fn create(
        self: &Arc<Self>,
        params: Create,
        parent: Option<SessionId>,
        most: Option<Mode>,
        key: Option<Key>,
    ) -> Result<Created, RpcError> {
        let parent = parent.map_or(Creator::User(most), Creator::Session);
        let Some(key) = key else { return self.make(params, parent, None).await };
        let _turn = self.under_way.turn(&key).await;
        match self.env.store.answer_to(&key).await? {
            Some(created) => Ok(created),
            None => self.make(params, parent, Some(key)).await,
        }
    }

    /// Returns when it is on disk.
    pub(super) async fn make(
        self: &Arc<Self>,
        mut params: Create,
        creator: Creator,
        key: Option<Key>,
    ) -> Result<Created, RpcError> {
        let env = &self.env;
        let config = env.config.current()?;
        let delegated = creator.delegated();
        let mut plan = self.plan(&params, delegated).await?;
        let _named = match &params.name {
            Some(name) => Some(env.names.take(&env.store, name, None).await?),
            None => None,
        };
        let mut variables = variables(&config, &mut params, delegated)?;
        self.check_room().await?;
        let with_worktree = delegated.filter(|child| child.wants_worktree(plan.cast.worktree));
        let id = self.new_id(with_worktree).await?;
        self.bring(&id, &config, &params.mcp_servers, delegated, &mut variables);
        let mut of_call = delegated.map(|child| child.delegated.clone());
        if let Some(child) = with_worktree {
            let (own, place) = self.worktree_of(child, &id).await?;
            plan.cwd = place;
            let bound_by = Some(child.workspace.rules_root().to_path_buf());
            of_call = of_call.map(|of| Delegated { worktree: Some(own), bound_by, ..of });
        }
        let (workspace, warning) = self.open_workspace(&id, &plan.cwd, &variables, of_call.as_ref()).await;
        let brought: Vec<SessionServer> = params.mcp_servers.iter().map(SessionServer::without_values).collect();
        // The actor holds them from its first event on.
        let _brought = env.toolbox.servers.configure_session(id.as_str(), workspace.rules_root(), &brought);
        let depth = delegated.map_or(0, |child| child.delegated.depth);
        let setup = Some(env.toolbox.setup(
            &plan.resolved,
            workspace.rules_root(),
            &id,
            plan.tools.as_deref(),
            env.toolbox.offered(false, depth),
        ));
        let mode = params.mode.unwrap_or_else(|| env.policy.mode(config.mode, &workspace));
        let mode = delegated.map_or(mode, |child| child.most);
        let mode = plan.cast.mode.into_iter().chain(creator.most()).fold(mode, stricter);
        let model = plan.resolved.origin.clone();
        let created = Created { session: id.clone(), model: model.clone(), mode, warning: plan.doubt.clone() };
        let outcome = key.map(|key| Fold::Outcome(key.outcome(&created)));
        tracing::info!(target: "session", session = %id, cwd = %plan.cwd.display(), model, %mode, "created");
        env.toolbox.servers.begin(&workspace, id.as_str());
        let events = plan.events(&params, &config, brought, warning);
        let body = EventBody::SessionCreated(SessionCreated {
            cwd: plan.cwd,
            model,
            mode,
            effort: plan.effort,
            name: params.name,
            parent: creator.parent(),
            delegated: of_call.clone(),
            setup,
            tools: plan.tools,
            one_shot: params.one_shot,
            agent: plan.cast.role,
            allow: params.allow,
            system: plan.system,
            env: variables.clone(),
        });
        let (done, committed) = oneshot::channel();
        let commands = match self.mailboxes.add_new(id.clone()) {
            Ok(commands) => commands,
            Err(error) => {
                self.drop_worktree(of_call.as_ref(), &workspace).await;
                return Err(error);
            }
        };
        let new = NewSession { id: id.clone(), variables: &variables, workspace: workspace.clone(), outcome };
        let events = std::iter::once(body).chain(events).collect();
        let actor = Actor::create(env.clone(), self.clone(), new, events, done);
        if let Err(error) = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into()))) {
            self.mailboxes.forget(&id);
            env.forget_secrets(&id);
            self.drop_worktree(of_call.as_ref(), &workspace).await;
            return Err(error.into());
        }
        task::spawn(Box::new(actor).run(None, commands));
        self.retain();
        Ok(created)
    }

    /// Checks a request, and reads its agent; nothing of the session exists yet.
    async fn plan(&self, params: &Create, delegated: Option<&Child>) -> Result<SessionPlan, RpcError> {
        let env = &self.env;
        let cwd = directory(&params.cwd).await?;
        let mut cast = match &params.agent {
            Some(name) => {
                let bound_by = delegated.and_then(|child| child.delegated.bound_by.clone());
                let inherited = delegated.map(|child| child.model.as_str());
                self.cast(name, &cwd, params, bound_by, inherited).await?
            }
            None => Cast::default(),
        };
        let tools = match (params.tools.as_deref().and_then(only), cast.tools.take()) {
            (Some(wanted), Some(has)) => {
                Some(wanted.iter().filter(|tool| is_among(Some(&has), tool)).cloned().collect())
            }
            (wanted, has) => wanted.or(has),
        };
        let effort = match (cast.effort, params.effort.is_auto()) {
            (Some(own), _) if delegated.is_some() => own,
            (own, true) => own.unwrap_or_default(),
            (_, false) => params.effort,
        };
        let inherited = delegated.map(|child| child.model.as_str());
        let resolved = env.providers.model(params.model.as_deref().or(cast.model.as_deref()).or(inherited))?;
        let doubt = env.providers.warning(&resolved.origin);
        if let Some(unknown) = params.tools.as_deref().and_then(|only| env.toolbox.tools.unknown(only)) {
            return Err(RpcError::new(Code::UnknownOption, unknown).hint("`linger tools` lists them"));
        }
        let fallback = params.fallback.as_deref().map(|models| env.providers.fallbacks(models)).transpose()?;
        let on_outage = (params.patience.is_some() || fallback.is_some())
            .then(|| EventBody::outage_changed(params.patience, fallback));
        let mut added = Vec::new();
        for dir in &params.additional_directories {
            add_directories(&mut added, &[directory(dir).await?])?;
        }
        self.check_rules(&params.allow)?;
        let system = params.system.clone().filter(|system| !system.trim().is_empty());
        if system.as_ref().is_some_and(|system| system.len() > MAX_SYSTEM || system.contains('\0')) {
            let text = format!("the addition to the system prompt may have {MAX_SYSTEM} bytes, and no NUL");
            return Err(RpcError::new(Code::TooMuch, text).hint("put longer text into AGENTS.md"));
        }
        Ok(SessionPlan { cwd, cast, tools, effort, resolved, doubt, on_outage, added, system })
    }

    /// Fails if there are as many sessions as there may be.
    pub(super) async fn check_room(&self) -> Result<(), RpcError> {
        let sessions = self.env.store.session_count().await?;
        if sessions < MAX_SESSIONS {
            return Ok(());
        }
        let error = RpcError::new(Code::TooMuch, format!("there are {sessions} sessions already"));
        Err(error.hint("remove some: `linger rm SESSION`"))
    }

    /// An unused id; that of a child with a worktree is made from its call.
    pub(super) async fn new_id(&self, with_worktree: Option<&Child>) -> Result<SessionId, RpcError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let id = match with_worktree {
                Some(child) => worktree::id_of(child, tries),
                None => SessionId(clock::random_word(ID)),
            };
            // A name must not stand for two sessions. With thousands of names this repeats once in a few hundred sessions.
            if !self.env.store.is_beginning_of(&id).await? {
                return Ok(id);
            }
        }
    }

    /// Keeps the secrets of a new session, and the MCP servers that come with the request or from its parent.
    fn bring(
        &self,
        id: &SessionId,
        config: &Config,
        servers: &[SessionServer],
        delegated: Option<&Child>,
        variables: &mut BTreeMap<String, String>,
    ) {
        let env = &self.env;
        if let Some(child) = delegated {
            env.workspaces.share_secrets(id, &child.parent);
            env.toolbox.servers.share_brought(child.parent.as_str(), id.as_str());
        }
        env.toolbox.servers.bring(id.as_str(), servers);
        if delegated.is_some() {
            return;
        }
        for (name, value) in variables.iter_mut().filter(|(name, value)| config.env.is_passed_secret(name, value)) {
            env.workspaces.secrets_of(id).put(name, Secret::new(&std::mem::replace(value, IN_MEMORY.to_owned())));
        }
    }

    /// The workspace of a new session, read and watched, and the notice about its files, if something in them waits.
    async fn open_workspace(
        &self,
        id: &SessionId,
        cwd: &Path,
        variables: &BTreeMap<String, String>,
        of_call: Option<&Delegated>,
    ) -> (Arc<Workspace>, Option<EventBody>) {
        let env = &self.env;
        let bound_by = of_call.and_then(|of| of.bound_by.clone());
        let (workspaces, limit) = (&env.workspaces, disk::TIMEOUT);
        let mut workspace = workspaces.workspace_within(id, cwd, variables.clone(), limit, bound_by).await;
        workspace.notes.is_child = of_call.is_some();
        let workspace = Arc::new(workspace);
        let waits = env.policy.look(&workspace, id).await;
        env.toolbox.read_tools(&workspace).await;
        env.toolbox.configure_workspace(workspace.rules_root());
        env.workspaces.watch_files(&workspace);
        (workspace, waits.map(|text| EventBody::notice(Level::Warning, NoticeCode::ConfigWaits, text)))
    }
}

/// The variables of a new session. A child has those of its parent, which were chosen before.
fn variables(
    config: &Config,
    params: &mut Create,
    delegated: Option<&Child>,
) -> Result<BTreeMap<String, String>, RpcError> {
    if params.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_TOTAL {
        return Err(RpcError::new(Code::TooMuch, format!("the variables of a session may have {MAX_TOTAL} bytes")));
    }
    let mut variables = match delegated {
        Some(child) => child.workspace.env.as_ref().clone(),
        None => {
            let own = if params.login_env { login::variables() } else { BTreeMap::new() };
            config.env.take(own.into_iter().chain(std::mem::take(&mut params.env))).0
        }
    };
    variables.extend(params.umask.map(|mask| (UMASK.to_owned(), format!("{:04o}", mask & 0o777))));
    Ok(variables)
}

/// A new session as its request and its agent want it, checked.
struct SessionPlan {
    cwd: PathBuf,
    cast: Cast,
    /// The only tools that it has; `None` for all.
    tools: Option<Vec<String>>,
    effort: Effort,
    resolved: Resolved,
    /// A warning about its model.
    doubt: Option<String>,
    /// The event about what it does when its model does not answer, if the request says so.
    on_outage: Option<EventBody>,
    /// Directories beside its own.
    added: Vec<PathBuf>,
    /// The addition to the system prompt.
    system: Option<String>,
}

impl SessionPlan {
    /// The events that follow the first one. `warning`: the notice about the files of the workspace.
    fn events(
        &mut self,
        params: &Create,
        config: &Config,
        brought: Vec<SessionServer>,
        warning: Option<EventBody>,
    ) -> Vec<EventBody> {
        let unattended = params.unattended.unwrap_or(config.unattended);
        let budget = Budget::default().changed(params.budget).at_most(self.cast.budget);
        let added = std::mem::take(&mut self.added);
        let mut events: Vec<EventBody> = self.on_outage.take().into_iter().collect();
        events.extend((!unattended.holds()).then(|| EventBody::unattended_changed(unattended)));
        events.extend((!budget.is_empty()).then(|| EventBody::budget_changed(budget)));
        events.extend((!added.is_empty()).then(|| EventBody::directories_changed(added)));
        events.extend((!brought.is_empty()).then(|| EventBody::mcp_servers_changed(brought)));
        events.extend(self.doubt.as_deref().map(unknown_model));
        events.extend(self.resolved.idle_effort(self.effort).map(idle_effort));
        events.extend(warning);
        let of_agent = std::mem::take(&mut self.cast.warnings);
        events.extend(of_agent.into_iter().map(|text| EventBody::notice(Level::Warning, NoticeCode::Agent, text)));
        events
    }
}

impl Registry {
    /// Checks the rules that a session begins with: each must be one that can match.
    fn check_rules(&self, rules: &[String]) -> Result<(), RpcError> {
        let bad = |why: String| {
            RpcError::new(Code::BadRule, why).hint("write `tool` or `tool(pattern)`, such as `bash(cargo test:*)`")
        };
        if rules.len() > MAX_ALLOWED {
            return Err(RpcError::new(Code::TooMuch, format!("a session may begin with {MAX_ALLOWED} rules")));
        }
        let tools = self.env.toolbox.tools.current();
        for rule in rules {
            let rule = Rule::parse(rule, tools.names()).map_err(|error| bad(error.to_string()))?;
            if let Some(warning) = rule.warning(true, tools.names()) {
                return Err(bad(warning));
            }
        }
        Ok(())
    }

    /// The settings of a new session that come from the agent of this name.
    async fn cast(
        &self,
        name: &str,
        cwd: &Path,
        params: &Create,
        bound_by: Option<PathBuf>,
        inherited: Option<&str>,
    ) -> Result<Cast, RpcError> {
        let env = &self.env;
        let (id, variables) = (SessionId::default(), params.env.clone());
        let workspace = env.workspaces.workspace_within(&id, cwd, variables, disk::TIMEOUT, bound_by).await;
        let (config, places) = (env.config.clone(), env.toolbox.agent_places(&workspace));
        let library = disk::probe(cwd, disk::TIMEOUT, move || Library::load(&config, &places)).await;
        let library = library.ok_or_else(|| RpcError::new(Code::NoWorkspace, disk::unresponsive(cwd)))?;
        let Some(entry) = library.agents.iter().find(|entry| entry.name == name) else {
            let rows = library.clone().rows(FileKind::Agent, false);
            let row = rows.iter().find(|row| row.name == name);
            let names: Vec<&str> = library.agents.iter().map(|entry| entry.name.as_str()).collect();
            let near = nearest(name, library.agents.iter().map(|entry| entry.name.as_str()), NEAR);
            let (why, hint) = match (row.map(|row| row.status), near) {
                (Some(Status::Waits), _) if row.is_some_and(|row| row.scope == Scope::User) => {
                    ("is not confirmed", "`linger config confirm` shows what is not, and asks".to_owned())
                }
                (Some(Status::Waits), _) => {
                    ("is not trusted", "`linger trust` shows what the workspace wants, and asks".to_owned())
                }
                (Some(Status::Broken), _) => ("cannot be read", "`linger agents validate` says why".to_owned()),
                (_, Some(near)) => ("is unknown", format!("did you mean {near}?")),
                _ if names.is_empty() => ("is unknown", "`linger agents list` lists them".to_owned()),
                _ => ("is unknown", format!("the agents are {}", names.join(", "))),
            };
            return Err(RpcError::new(Code::UnknownOption, format!("the agent `{name}` {why}")).hint(hint));
        };
        let mut warnings: Vec<String> = entry
            .problems
            .iter()
            .map(|it| format!("{}:{}: {}", entry.found.path.display(), it.line, it.text))
            .collect();
        let Agent { model, alias, effort, mode, mut tools, skills, budget, worktree, .. } = entry.item.clone();
        if let (Some(tools), Some(_)) = (&mut tools, skills) {
            tools.push(SKILL.to_owned());
        }
        let has_key = |model: &String| {
            let provider = model.split('/').next().unwrap_or_default();
            let Ok(catalogue) = env.providers.catalogue() else { return false };
            if !catalogue.has_key(provider) {
                return false;
            }
            // linger chose the provider, from another program's word for a model. A key that some client once had in its
            // environment does not take the session to a provider that it would not use otherwise.
            let usual = inherited.map(str::to_owned).or_else(|| catalogue.default_model().ok()).unwrap_or_default();
            let is_chosen = usual.split('/').next() == Some(provider) || catalogue.client_place(provider).is_none();
            if !is_chosen && params.model.is_none() {
                warnings.push(format!(
                    "{name} names the model {model}, for which only a client's environment had a key; the agent uses the \
                     session's own model: `-m {model}`, or the whole name in its file, chooses that one"
                ));
            }
            is_chosen
        };
        let is_known = |model: &String| alias.is_none() || env.providers.model(Some(model)).is_ok();
        let model = model.filter(is_known).or_else(|| alias.clone().filter(has_key));
        // A model that this user has not does not keep the agent from its work.
        let model = model.filter(|model| match env.providers.usable(model) {
            Ok(()) => true,
            Err(error) => {
                warnings.push(format!("{}; the agent uses the session's own model", error.message));
                false
            }
        });
        Ok(Cast { role: Some(entry.role()), model, effort, mode, tools, budget, warnings, worktree })
    }
}

/// The creator of a new session.
#[derive(Clone, Debug)]
pub(super) enum Creator {
    /// A user, or a connection with a token, whose grant has a loosest mode.
    User(Option<Mode>),
    /// A session, which has its authority.
    Session(SessionId),
    /// A call of `delegate`.
    Call(Box<Child>),
}

impl Creator {
    /// The loosest mode that it allows; `None` for any.
    fn most(&self) -> Option<Mode> {
        match self {
            Self::User(most) => *most,
            Self::Session(_) | Self::Call(_) => None,
        }
    }

    fn parent(&self) -> Option<SessionId> {
        match self {
            Self::User(_) => None,
            Self::Session(parent) => Some(parent.clone()),
            Self::Call(child) => Some(child.parent.clone()),
        }
    }

    fn delegated(&self) -> Option<&Child> {
        match self {
            Self::Call(child) => Some(child),
            Self::User(_) | Self::Session(_) => None,
        }
    }
}

/// The settings of a session that come from its agent.
#[derive(Default)]
struct Cast {
    role: Option<Role>,
    model: Option<String>,
    effort: Option<Effort>,
    /// It never asks less than this.
    mode: Option<Mode>,
    tools: Option<Vec<String>>,
    /// The budget that it never exceeds.
    budget: Budget,
    warnings: Vec<String>,
    /// Whether it gets a git worktree when it is delegated to.
    worktree: bool,
}

/// The canonical path of a directory of a session; `~` is the home directory of the daemon's user.
pub async fn directory(cwd: &Path) -> Result<PathBuf, RpcError> {
    directory_within(cwd, disk::TIMEOUT).await
}

/// As [`directory`], on a disk that answers within `limit`.
pub async fn directory_within(cwd: &Path, limit: Duration) -> Result<PathBuf, RpcError> {
    let gone = |problem: String| {
        RpcError::new(Code::NoWorkspace, format!("{}: {problem}", cwd.display())).hint("name a directory that exists")
    };
    let seen = login::expand(cwd);
    if !seen.is_absolute() {
        return Err(gone("not an absolute path".to_owned()));
    }
    let real = disk::probe(&seen.clone(), limit, move || seen.canonicalize().map(|real| (real.is_dir(), real))).await;
    match real {
        Some(Ok((true, real))) => Ok(real),
        Some(Ok((false, _))) => Err(gone("not a directory".to_owned())),
        Some(Err(error)) => Err(gone(error.to_string())),
        None => Err(RpcError::new(Code::NoWorkspace, disk::unresponsive(cwd)).hint("try again when it does")),
    }
}
