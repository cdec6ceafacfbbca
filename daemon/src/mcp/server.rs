//! One configured server: its running instances, its tools, and what became of it.
//!
//! Each instance has a task that starts it, follows its tools, and ends it when it was idle for [`IDLE`]. A server that cannot be
//! started, or that ends by itself, is started again when it is next needed, after a pause that grows.
//! Deliberately absent: which servers there are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::id::SessionId;
use linger_protocol::mcp::{self, Instance, LogLine, Scope, ServerTool};
use linger_protocol::token::Grant;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use super::discovery::Http;
use super::http::{Address, ServerLogin};
use super::lines::Log;
use super::listing::Listing;
use super::login::Logins;
use super::peer::FORGOTTEN;
use super::settings::{OAuth, ServerConfig, variable_of};
use crate::diagnostics::secret::{Redactor, Secret, SecretVariables};
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};
use crate::provider::keys::Keys;
use crate::sys::{clock, disk, task};
use crate::tool::Workspace;

/// Services that start and reach servers.
#[derive(Clone)]
pub struct Outside {
    /// The daemon's children.
    pub children: Children,
    /// The values of the variables that the configuration names.
    pub keys: Arc<Keys>,
    /// HTTP clients.
    pub http: Http,
    /// The logins at servers.
    pub logins: Arc<Logins>,
}

/// How long an instance without calls runs.
const IDLE: Duration = Duration::from_secs(600);

/// The pauses before a server is started again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A server that ran this long did not fail at its start.
const STEADY: Duration = Duration::from_secs(60);

/// Problems of one server's tools in a notice, at most.
const MAX_NEWS: usize = 5;

/// How long the next list of tools waits after one: a server may say with every message that they changed.
const RELIST_PAUSE: Duration = Duration::from_secs(1);

/// Called when a server's list of tools is another: the server's identity, and the list.
pub(super) type Listed = Arc<dyn Fn(&Server, &Arc<Listing>) + Send + Sync>;

/// Where a server is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The user's own configuration.
    Own,
    /// The files of the workspace with this root: which of them.
    Workspace(PathBuf, &'static str),
    /// A client brought it for this session, with these values.
    Session(String, SecretVariables),
}

impl Origin {
    /// The root of the workspace whose files have it.
    pub(super) fn root(&self) -> Option<&Path> {
        match self {
            Self::Workspace(root, _) => Some(root),
            Self::Own | Self::Session(..) => None,
        }
    }
}

/// A configured server.
pub(super) struct Server {
    /// Its name in the configuration.
    pub(super) name: String,
    /// Its table there.
    pub(super) config: ServerConfig,
    /// Where it is from.
    pub(super) origin: Origin,
    /// Names what it starts.
    pub(super) identity: String,
    outside: Outside,
    log: Log,
    listed: Listed,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    listing: Option<Arc<Listing>>,
    instances: HashMap<InstancePlace, Slot>,
    /// Numbers the slots.
    last: u64,
    /// Starts and runs that failed, one after the other.
    failures: u32,
    /// Not started again before.
    retry_at: Option<Instant>,
    error: Option<String>,
    /// A turn has waited for its first list in vain: no other step waits for it.
    is_late: bool,
    /// The last notices about it to turns.
    told: Vec<String>,
}

/// The session and directory that an instance is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct InstancePlace {
    workspace: Option<PathBuf>,
    session: Option<String>,
}

struct Slot {
    number: u64,
    status: watch::Receiver<InstanceStatus>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
enum InstanceStatus {
    Starting,
    Running(Arc<Connection>),
    Failed(String),
}

/// Where an instance is started.
struct Launch {
    place: InstancePlace,
    number: u64,
    spawn: Spawn,
    roots: Value,
}

impl Server {
    pub(super) fn new(
        name: String,
        config: ServerConfig,
        origin: Origin,
        listing: Option<Listing>,
        outside: Outside,
        listed: Listed,
    ) -> Self {
        let log = Log::new(&name, outside.keys.redactor().clone());
        let identity = config.identity(origin.root());
        let state = ServerState { listing: listing.map(Arc::new), ..ServerState::default() };
        Self { name, config, origin, identity, outside, log, listed, state: Mutex::new(state) }
    }

    /// Its tools, as it listed them last.
    pub(super) fn listing(&self) -> Option<Arc<Listing>> {
        self.state().listing.clone()
    }

    /// Why it failed last, if it runs nowhere since.
    pub(super) fn error(&self) -> Option<String> {
        self.state().error.clone()
    }

    /// Whether a turn has waited for its first list in vain.
    pub(super) fn is_late(&self) -> bool {
        self.state().is_late
    }

    /// A turn has waited for its first list in vain.
    pub(super) fn set_late(&self) {
        self.state().is_late = true;
    }

    /// The variables that it waits for.
    pub(super) fn waits_for(&self) -> Vec<String> {
        self.config.missing(|name| self.value(name).is_some())
    }

    /// The value of a variable that its configuration names. What a client brings for the files of a workspace goes to the servers
    /// there alone.
    fn value(&self, name: &str) -> Option<Secret> {
        match &self.origin {
            Origin::Own => self.outside.keys.get(name),
            Origin::Workspace(root, _) => self.outside.keys.get(&variable_of(root, name)),
            Origin::Session(_, values) => values.get(name),
        }
    }

    /// `text` without the values of the variables that its configuration names, as they are and as JSON writes them: they are for
    /// the server alone. What every program gets, such as `HOME`, is no secret.
    pub(super) fn redacted(&self, text: &str) -> String {
        let own = Redactor::default();
        for name in self.config.variables().iter().filter(|name| !ServerConfig::is_base(name)) {
            let Some(secret) = self.value(name) else { continue };
            let written = json!(secret.reveal()).to_string();
            own.add(&Secret::new(written.trim_matches('"')));
            own.add(&secret);
        }
        own.redact(text)
    }

    /// Notices about it that no turn has had yet: what it waits for, and problems of its tools.
    pub(super) fn news(&self) -> Vec<String> {
        let name = &self.name;
        let mut news = match self.waits_for() {
            missing if missing.is_empty() => Vec::new(),
            missing => vec![format!("the MCP server {name} is {}", self.waiting(&missing))],
        };
        let listing = self.listing();
        let mut problems = self.problems(listing.as_deref()).into_iter();
        news.extend(problems.by_ref().take(MAX_NEWS).map(|problem| format!("the MCP server {name}: {problem}")));
        match problems.count() {
            0 => {}
            more => news.push(format!("the MCP server {name}: {more} more such problems, see `linger mcp list`")),
        }
        let mut state = self.state();
        let told = std::mem::replace(&mut state.told, news.clone());
        news.retain(|text| !told.contains(text));
        news
    }

    /// The instance for a session in a workspace; starts it if there is none, and waits for it.
    pub(super) async fn connection(
        self: &Arc<Self>,
        workspace: &Workspace,
        session: &str,
    ) -> Result<Arc<Connection>, String> {
        let mut status = self.want(workspace, session);
        let status = status.wait_for(|status| !matches!(status, InstanceStatus::Starting)).await;
        match status.as_deref() {
            Ok(InstanceStatus::Running(connection)) => Ok(connection.clone()),
            Ok(InstanceStatus::Failed(why)) => Err(why.clone()),
            Ok(InstanceStatus::Starting) | Err(_) => Err("it was stopped".to_owned()),
        }
    }

    /// As [`Self::connection`], without waiting.
    pub(super) fn begin(self: &Arc<Self>, workspace: &Workspace, session: &str) {
        drop(self.want(workspace, session));
    }

    /// Ends all instances; the next call starts one. Open calls fail if `now`, and are waited for otherwise.
    pub(super) fn stop(&self, now: bool) {
        let instances = {
            let mut state = self.state();
            (state.failures, state.retry_at, state.error) = (0, None, None);
            std::mem::take(&mut state.instances)
        };
        for slot in instances.into_values().filter(|_| now) {
            if let InstanceStatus::Running(connection) = &*slot.status.borrow() {
                connection.close("it was restarted");
            }
        }
    }

    /// The latest lines that it wrote and logged.
    pub(super) fn logs(&self) -> Vec<LogLine> {
        self.log.all()
    }

    /// How it is.
    pub(super) fn row(&self) -> mcp::Server {
        let state = self.state();
        let status = |slot: &Slot| slot.status.borrow().clone();
        let all: Vec<(&InstancePlace, InstanceStatus)> =
            state.instances.iter().map(|(place, slot)| (place, status(slot))).collect();
        let instance = |(place, status): &(&InstancePlace, InstanceStatus)| {
            let InstanceStatus::Running(connection) = status else { return None };
            let info = &connection.info;
            Some(Instance {
                cwd: place.workspace.clone().or_else(|| self.config.cwd.clone()),
                pid: connection.pid,
                memory: None,
                name: format!("{} {}", info.server_info.name, info.server_info.version).trim().to_owned(),
                protocol: info.protocol_version.clone(),
                calls: u32::try_from(*connection.calls.borrow()).unwrap_or(u32::MAX),
            })
        };
        let instances: Vec<Instance> = all.iter().filter_map(instance).collect();
        let starting = all.iter().any(|(_, status)| matches!(status, InstanceStatus::Starting));
        let waits_for = self.waits_for();
        let how = match (instances.is_empty(), starting, &state.error) {
            (true, ..) if !waits_for.is_empty() => mcp::State::Waiting,
            // It may run, with a login that does not allow all.
            _ if self.needs_login() => mcp::State::NeedsLogin,
            (false, ..) => mcp::State::Running,
            (true, true, _) => mcp::State::Starting,
            (true, false, Some(_)) => mcp::State::Failed,
            (true, false, None) => mcp::State::Idle,
        };
        let ServerConfig { required, .. } = &self.config;
        mcp::Server {
            server: self.name.clone(),
            target: self.config.target(),
            scope: self.config.scope(),
            required: *required,
            state: how,
            instances,
            tools: state.listing.as_ref().map(|listing| self.tools_of(listing)),
            problems: self.problems(state.listing.as_deref()),
            error: state.error.clone(),
            waits_for,
            from: match &self.origin {
                Origin::Workspace(root, file) => Some(root.join(file)),
                Origin::Own | Origin::Session(..) => None,
            },
            session: match &self.origin {
                Origin::Session(session, _) => Some(SessionId(session.clone())),
                Origin::Own | Origin::Workspace(..) => None,
            },
        }
    }

    /// The next start does not wait because of those that failed.
    pub(super) fn forgive(&self) {
        let mut state = self.state();
        (state.failures, state.retry_at, state.error) = (0, None, None);
    }

    /// Its address and what we are to its authorization server, with the values of its variables, for a login.
    pub(super) fn login(&self) -> Result<(String, OAuth), String> {
        let value = |name: &str| self.value(name).map(|key| key.reveal().to_owned());
        let config = self.config.expanded(value).map_err(|name| self.waiting(&[name]))?;
        let url = config.url.ok_or("it is a program, and needs no login")?;
        if config.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            return Err("its `headers` have a token, so a login would not be used".to_owned());
        }
        let url: reqwest::Url = url.parse().map_err(|error| format!("its address is no URL: {error}"))?;
        Ok((url.to_string(), config.oauth))
    }

    fn needs_login(&self) -> bool {
        self.config.url.is_some() && self.login().is_ok_and(|(server, _)| self.outside.logins.is_wanted(&server))
    }

    fn tools_of(&self, listing: &Listing) -> Vec<ServerTool> {
        let used = listing.tools.iter().filter(|tool| self.config.has_tool(&tool.tool));
        used.map(|tool| ServerTool {
            name: tool.name.clone(),
            tool: tool.tool.clone(),
            about: tool.description.lines().next().unwrap_or_default().to_owned(),
        })
        .collect()
    }

    /// Problems of its tools, and of the configured choice of them.
    fn problems(&self, listing: Option<&Listing>) -> Vec<String> {
        let Some(listing) = listing else { return Vec::new() };
        let has = |tool: &&String| listing.tools.iter().any(|known| known.tool == **tool);
        let absent = self.config.tools.iter().flatten().filter(|tool| !has(tool));
        let absent = absent.map(|tool| format!("it has no tool `{tool}`, which the configuration names"));
        listing.problems.iter().cloned().chain(absent).collect()
    }

    fn want(self: &Arc<Self>, workspace: &Workspace, session: &str) -> watch::Receiver<InstanceStatus> {
        let missing = self.waits_for();
        if !missing.is_empty() {
            // No start that failed: it is tried again as soon as they are there.
            return watch::channel(InstanceStatus::Failed(self.waiting(&missing))).1;
        }
        let (place, mut launch) = self.launch(workspace, session);
        let mut state = self.state();
        let has_ended =
            |status: &InstanceStatus| matches!(status, InstanceStatus::Running(connection) if connection.has_ended());
        if let Some(slot) = state.instances.get(&place).filter(|slot| !has_ended(&slot.status.borrow())) {
            return slot.status.clone();
        }
        state.last += 1;
        launch.number = state.last;
        let (sender, status) = watch::channel(InstanceStatus::Starting);
        let (this, retry_at, number) = (self.clone(), state.retry_at, launch.number);
        let task = task::spawn(async move {
            if let Some(retry_at) = retry_at {
                sleep_until(retry_at).await;
            }
            this.keep(launch, sender).await;
        });
        let slot = Slot { number, status: status.clone(), _task: AbortOnDropHandle::new(task) };
        state.instances.insert(place, slot);
        status
    }

    fn launch(&self, workspace: &Workspace, session: &str) -> (InstancePlace, Launch) {
        let scope = self.config.scope();
        let shared = matches!(scope, Scope::User | Scope::Unknown);
        let place = InstancePlace {
            workspace: (!shared).then(|| workspace.root.clone()),
            session: (scope == Scope::Session).then(|| session.to_owned()),
        };
        let env = ServerConfig::environment(&workspace.env);
        let home = || env.get("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let root = self.config.cwd.clone().or_else(|| place.workspace.clone());
        let cwd = root.clone().unwrap_or_else(home);
        let named = place.workspace.as_ref().or(root.as_ref());
        let roots = named.and_then(|root| reqwest::Url::from_directory_path(root).ok());
        let roots = roots.map(|uri| json!({ "uri": uri.as_str().trim_end_matches('/') }));
        let children = self.outside.children.clone();
        let spawn = Spawn { cwd, env: Arc::new(env), children, started_for: StartedFor::Daemon };
        let launch = Launch { place: place.clone(), number: 0, spawn, roots: roots.into_iter().collect() };
        (place, launch)
    }

    /// The owner of an instance: with `can` it has a grant, for the sessions of its directory, or for all without one.
    async fn started_for(&self, place: &InstancePlace) -> Result<StartedFor, String> {
        // A workspace or a client cannot grant it anything, whatever they say.
        if self.config.can.is_empty() || !matches!(self.origin, Origin::Own) {
            return Ok(StartedFor::Daemon);
        }
        let directory = match self.config.cwd.clone().or_else(|| place.workspace.clone()) {
            Some(named) => {
                let seen = named.clone();
                // As sessions store theirs.
                let real = disk::probe(&named, disk::TIMEOUT, move || seen.canonicalize().ok()).await.flatten();
                Some(real.ok_or_else(|| format!("cannot open its directory {}", named.display()))?)
            }
            None => None,
        };
        let (name, can) = (format!("mcp {}", self.name), self.config.can.clone());
        let grant = Grant { name, can, sessions: None, directory, mode: None, expires_at: u64::MAX };
        Ok(StartedFor::Server(Arc::new(grant)))
    }

    /// The life of an instance.
    async fn keep(self: Arc<Self>, launch: Launch, status: watch::Sender<InstanceStatus>) {
        match self.start(&launch).await {
            Ok(connection) => {
                let began = Instant::now();
                let connection = Arc::new(connection);
                status.send_replace(InstanceStatus::Running(connection.clone()));
                tokio::select! {
                    why = connection.ended() => self.lost(&why, began.elapsed() > STEADY),
                    () = self.follow(&connection) => {}
                    () = idle(&connection) => {
                        tracing::info!(target: "mcp", server = self.name, "ended: it was idle");
                        connection.close("it was idle");
                    }
                }
            }
            Err(why) => {
                self.failed(&why, false);
                status.send_replace(InstanceStatus::Failed(why));
            }
        }
        let mut state = self.state();
        if state.instances.get(&launch.place).is_some_and(|slot| slot.number == launch.number) {
            state.instances.remove(&launch.place);
        }
    }

    async fn start(&self, launch: &Launch) -> Result<Connection, String> {
        let limit = self.config.start_timeout();
        let start = async {
            let connection = self.connect(launch).await?;
            let listing = connection.list(&self.name).await?;
            Ok((connection, listing))
        };
        let began = clock::now();
        let late = || Err(format!("it did not start within {} s{}", limit.as_secs(), self.log.wrote(began)));
        let (connection, listing) = timeout(limit, start).await.unwrap_or_else(|_| late())?;
        tracing::info!(target: "mcp", server = self.name, pid = connection.pid, tools = listing.tools.len(), "started");
        {
            let mut state = self.state();
            (state.error, state.is_late) = (None, false);
        }
        self.set_listing(listing);
        Ok(connection)
    }

    async fn connect(&self, Launch { place, spawn, roots, .. }: &Launch) -> Result<Connection, String> {
        let value = |name: &str| self.value(name).map(|key| key.reveal().to_owned());
        let config = self.config.expanded(value).map_err(|name| self.waiting(&[name]))?;
        let Some(url) = &config.url else {
            let env = Arc::new(
                spawn.env.iter().map(|(name, value)| (name.clone(), value.clone())).chain(config.env.clone()).collect(),
            );
            let started_for = self.started_for(place).await?;
            let spawn = Spawn { env, started_for, ..spawn.clone() };
            let command = config.command.as_deref().unwrap_or_default();
            return Connection::start(&config, command, &spawn, roots.clone(), &self.log).await;
        };
        let url: reqwest::Url = url.parse().map_err(|error| format!("its address is no URL: {error}"))?;
        let client = (self.outside.http)(url.clone()).await?;
        let of = match &self.origin {
            Origin::Session(session, _) => format!(" --session {session}"),
            Origin::Own | Origin::Workspace(..) => String::new(),
        };
        let command = format!("linger mcp login {}{of}", self.name);
        let login = ServerLogin { logins: self.outside.logins.clone(), server: url.to_string(), command };
        let address = Address::new(client, url, &config.headers, login)?;
        Connection::reach(&config, address, roots.clone(), &self.log).await
    }

    /// Asks for the tools again whenever the server says that they changed.
    async fn follow(&self, connection: &Connection) {
        loop {
            connection.changed.notified().await;
            match timeout(self.config.start_timeout(), connection.list(&self.name)).await {
                Ok(Ok(listing)) => self.set_listing(listing),
                Ok(Err(error)) => {
                    tracing::warn!(target: "mcp", server = self.name, error, "cannot list its tools again")
                }
                Err(_) => tracing::warn!(target: "mcp", server = self.name, "it does not list its tools again"),
            }
            sleep(RELIST_PAUSE).await;
        }
    }

    fn set_listing(&self, listing: Listing) {
        let listing = Arc::new(listing);
        {
            let mut state = self.state();
            if state.listing.as_deref() == Some(&*listing) {
                return;
            }
            state.listing = Some(listing.clone());
        }
        (self.listed)(self, &listing);
    }

    /// A connection has ended by itself.
    fn lost(&self, why: &str, was_steady: bool) {
        if why == FORGOTTEN {
            // It runs: the next call begins a new session, at once.
            tracing::info!(target: "mcp", server = self.name, why, "a new session is due");
        } else {
            self.failed(why, was_steady);
        }
    }

    fn failed(&self, why: &str, was_steady: bool) {
        tracing::warn!(target: "mcp", server = self.name, error = why, "failed");
        let mut state = self.state();
        state.failures = if was_steady { 1 } else { state.failures.saturating_add(1) };
        state.retry_at = Some(Instant::now() + pause(state.failures));
        state.error = Some(why.to_owned());
    }

    /// The notice that these variables are missing.
    fn waiting(&self, missing: &[String]) -> String {
        let how = match &self.origin {
            Origin::Session(..) => "open the session again in the program that brought the server",
            Origin::Own | Origin::Workspace(..) => "run linger where its configuration's variables are set",
        };
        format!("waiting for {}: {how}", missing.join(", "))
    }

    /// Whether it runs, or is being started.
    pub(super) fn runs(&self) -> bool {
        !self.state().instances.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait before the start that follows so many failures.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

/// Waits until the instance has had no call for [`IDLE`].
async fn idle(connection: &Connection) {
    let mut calls = connection.calls.subscribe();
    loop {
        let idle = calls.wait_for(|calls| *calls == 0).await.is_ok();
        match timeout(IDLE, calls.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) if idle && *calls.borrow() == 0 => return,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_before_a_restart_grows_to_a_minute() {
        let pauses = [1, 2, 3, 6, 7, 100].map(|failures| pause(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60]);
    }
}
