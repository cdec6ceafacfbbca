//! MCP servers: the daemon owns them, all sessions share them, and their tools are tools like any other.
//!
//! [`Servers`] holds the configured ones and keeps the tool set up to date with what they list. A server is started when it is
//! first needed, and listed from the disk until then. Processes are started and ended by `process`, as all children are.
//! Deliberately absent: permissions (its tools ask like any tool), and who may change the configuration.
//!
//! | file | owns |
//! |---|---|
//! | `settings` | `[mcp.NAME]`; pure |
//! | `server` | one server: its instances, restarts, idle end |
//! | `connection` | one instance: handshake, lists, calls |
//! | `peer`, `lines` | JSON-RPC; messages and log lines |
//! | `http` | Streamable HTTP, for servers at an address |
//! | `login`, `oauth` | logins at such servers; OAuth |
//! | `challenge`, `discovery` | what a server says of the login that it wants, and where that is |
//! | `listing`, `result` | tools and results made fit for providers; pure |
//! | `tool` | a server's tool as a [`crate::tool::Tool`] |
//! | `workspaces` | the servers of the files of workspaces |
//! | `sessions` | the servers that clients bring for a session |
//! | `offers` | resources and prompts, for people |
//! | `cache` | the lists of tools on disk |

mod cache;
mod challenge;
mod connection;
mod discovery;
mod http;
mod lines;
mod listing;
mod login;
mod oauth;
mod offers;
mod peer;
mod result;
mod server;
pub mod sessions;
pub mod settings;
mod tool;
pub mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::mcp::{self, LogLine};
use tokio::time::{Instant, timeout_at};

use crate::diagnostics::secret::SecretVariables;
use crate::process::server::Children;
use crate::provider::keys::Keys;
use crate::sys::task;
use crate::tool::program::ProgramTool;
use crate::tool::set::{ToolSet, Tools};
use crate::tool::{BoxFuture, Tool, Workspace};
use cache::Cache;
pub(crate) use lines::{MAX_MESSAGE, next_line};
use listing::Listing;
pub use login::Logins;
pub use offers::{OfferError, Place};
use server::{Origin, Server};
use sessions::OfSession;
use settings::ServerConfig;
use tool::McpTool;
use workspaces::OfWorkspace;

/// How long a turn waits for servers that were never seen and that it does not need.
const FIRST_SIGHT: Duration = Duration::from_secs(10);

/// An HTTP client for an address, with the proxies and certificates of the configuration.
pub type Http = Arc<dyn Fn(reqwest::Url) -> BoxFuture<'static, Result<reqwest::Client, String>> + Send + Sync>;

/// What servers are started and reached with.
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

/// The configured servers; shared by all sessions.
pub struct Servers {
    tools: Tools,
    /// The tools that are no server's.
    base: Arc<ToolSet>,
    outside: Outside,
    cache: Cache,
    configured: Mutex<Configured>,
    /// The values that clients brought for the servers of sessions, by session and server; nowhere but in memory.
    brought: Mutex<BTreeMap<String, BTreeMap<String, SecretVariables>>>,
}

/// Whose servers are meant: the user's own, with those of a workspace and of a session where these are given.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServersOf<'a> {
    /// The root of the workspace.
    pub root: Option<&'a Path>,
    /// The session.
    pub session: Option<&'a str>,
}

#[derive(Default)]
struct Configured {
    /// Those of the user's own configuration.
    own: BTreeMap<String, Arc<Server>>,
    /// The tools of the user's own Markdown files.
    programs: Vec<Arc<ProgramTool>>,
    /// Those of the files of workspaces, by their roots.
    workspaces: BTreeMap<PathBuf, OfWorkspace>,
    /// Those that clients brought, by session.
    sessions: BTreeMap<String, OfSession>,
    /// Names the trusted servers of all workspaces, also of those without a session since the start.
    trusted: BTreeSet<String>,
}

impl Configured {
    /// Those that are not of the user's own configuration.
    fn others(&self) -> impl Iterator<Item = &Arc<Server>> {
        let of_workspaces = self.workspaces.values().flat_map(|of| of.servers.values());
        of_workspaces.chain(self.sessions.values().flat_map(|of| of.servers.values()))
    }
}

impl Servers {
    /// No servers yet; `tools` gets theirs. `file` has the lists of tools that were seen; reading it blocks on the disk.
    pub fn new(tools: Tools, outside: Outside, file: PathBuf) -> Arc<Self> {
        let (base, cache) = (tools.current(), Cache::open(file));
        Arc::new(Self { tools, base, outside, cache, configured: Mutex::default(), brought: Mutex::default() })
    }

    /// Takes the servers of the user's configuration. Those that changed end when their calls have; the others stay as they are.
    /// `trusted` names the trusted servers of all workspaces, whose lists of tools stay on disk.
    pub fn configure(self: &Arc<Self>, configured: &BTreeMap<String, ServerConfig>, trusted: BTreeSet<String>) {
        let gone = {
            let mut all = self.configured();
            let mut old = std::mem::take(&mut all.own);
            for (name, config) in configured {
                let same = old.remove(name).filter(|server| server.config == *config);
                let server = same.unwrap_or_else(|| Arc::new(self.server(name, config, Origin::Own)));
                all.own.insert(name.clone(), server);
            }
            all.trusted = trusted;
            self.publish(&all);
            old
        };
        // What had a grant ends at once: an open call could keep it for long.
        gone.values().for_each(|server| server.stop(!server.config.can.is_empty()));
    }

    /// Waits until the servers that a step of this session needs are there: those that are required, and for a while those that
    /// were never seen. Gives what to tell people, and fails if a required one cannot be started.
    pub async fn ready(&self, workspace: &Workspace, session: &str) -> Result<Vec<String>, String> {
        let all = self.of(ServersOf { root: Some(workspace.rules_root()), session: Some(session) });
        let waits = |server: &&Arc<Server>| !server.config.required && !server.waits_for().is_empty();
        let (waiting, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|server| waits(&server));
        let mut notices: Vec<String> = waiting.iter().flat_map(|server| server.news()).collect();
        let known: Vec<Arc<Server>> = all.clone();
        let needed = |server: &Arc<Server>| server.config.required || server.listing().is_none();
        let needed: Vec<Arc<Server>> = all.into_iter().filter(needed).collect();
        // All at once: the slowest is waited for, not the sum.
        let fresh: Vec<bool> = needed.iter().map(|server| server.error().is_none()).collect();
        needed.iter().for_each(|server| server.begin(workspace, session));
        let first_sight = Instant::now() + FIRST_SIGHT;
        for (server, fresh) in needed.into_iter().zip(fresh) {
            let name = &server.name;
            if server.config.required {
                let started = server.connection(workspace, session).await;
                started.map_err(|why| format!("the MCP server {name}, which is required, cannot be started: {why}"))?;
            } else if fresh {
                match timeout_at(first_sight, server.connection(workspace, session)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(why)) => notices.push(format!("the MCP server {name} cannot be started: {why}")),
                    Err(_) => notices.push(format!("the MCP server {name} is still starting; its tools come later")),
                }
            }
        }
        notices.extend(known.iter().flat_map(|server| server.news()));
        Ok(notices)
    }

    /// Starts the servers that a session will need: those that are required.
    pub fn begin(&self, workspace: &Workspace, session: &str) {
        let all = self.of(ServersOf { root: Some(workspace.rules_root()), session: Some(session) });
        all.iter().filter(|server| server.config.required).for_each(|server| server.begin(workspace, session));
    }

    /// How a server of these is. `None` if there is none of that name.
    pub fn get(&self, name: &str, of: ServersOf<'_>) -> Option<mcp::Server> {
        Some(self.named(name, of)?.row())
    }

    /// What a server wrote and logged last.
    pub fn logs(&self, name: &str, of: ServersOf<'_>) -> Option<Vec<LogLine>> {
        Some(self.named(name, of)?.logs())
    }

    /// Ends a server; its open calls fail, and the next one starts it. Whether there is one of that name.
    pub fn restart(&self, name: &str, of: ServersOf<'_>) -> bool {
        let server = self.named(name, of);
        server.iter().for_each(|server| server.stop(true));
        server.is_some()
    }

    /// Starts a server for a workspace, if it does not run, and gives how it is then.
    pub async fn test(&self, name: &str, workspace: &Workspace) -> Option<mcp::Server> {
        let server = self.named(name, ServersOf { root: Some(workspace.rules_root()), session: None })?;
        // Its error is in the row.
        let _started = server.connection(workspace, "").await;
        Some(server.row())
    }

    /// Begins a login at a server: its id, and the page to open in a browser. `None` if there is none of that name.
    pub async fn begin_login(
        &self,
        name: &str,
        of: ServersOf<'_>,
        redirect: &str,
    ) -> Option<Result<(String, String), String>> {
        let server = self.named(name, of)?;
        Some(match server.login() {
            Ok((address, client)) => self.outside.logins.begin(&address, redirect, client).await,
            Err(why) => Err(why),
        })
    }

    /// Ends a login with the code, the state and the issuer that the browser brought; gives why it is kept in memory alone, if so.
    pub async fn finish_login(&self, id: &str, brought: (&str, &str, Option<&str>)) -> Result<Option<String>, String> {
        let (address, why) = self.outside.logins.finish(id, brought).await?;
        let all = self.configured();
        let others = all.others();
        let at = |server: &&Arc<Server>| server.login().is_ok_and(|(its, _)| its == address);
        all.own.values().chain(others).filter(at).for_each(|server| server.forgive());
        Ok(why)
    }

    /// Forgets the login at a server, and ends it; whether there was one.
    pub async fn log_out(&self, name: &str, of: ServersOf<'_>) -> Option<Result<bool, String>> {
        let server = self.named(name, of)?;
        let forgotten = match server.login() {
            Ok((address, _)) => self.outside.logins.forget(&address).await,
            Err(why) => Err(why),
        };
        server.stop(true);
        Some(forgotten)
    }

    fn server(self: &Arc<Self>, name: &str, config: &ServerConfig, origin: Origin) -> Server {
        let this = Arc::downgrade(self);
        let listed = move |server: &Server, listing: &Arc<Listing>| {
            if let Some(this) = this.upgrade() {
                this.listed(server, listing);
            }
        };
        let identity = config.identity(origin.root());
        let known = self.cache.get(&identity).map(|known| known.renamed(name));
        Server::new(name.to_owned(), (config.clone(), origin), known, self.outside.clone(), Arc::new(listed))
    }

    /// A server listed other tools than before.
    fn listed(&self, server: &Server, listing: &Arc<Listing>) {
        let keep: Vec<String> = {
            let all = self.configured();
            let others = all.others();
            let running = all.own.values().chain(others).map(|server| server.identity.clone());
            running.chain(all.trusted.iter().cloned()).collect()
        };
        if keep.contains(&server.identity) {
            let (cache, identity, listing) = (self.cache.clone(), server.identity.clone(), listing.clone());
            task::spawn_blocking(move || cache.put(identity, (*listing).clone(), &keep));
        }
        self.publish(&self.configured());
    }

    /// Gives models the tools of all servers, from the next step on.
    fn publish(&self, all: &Configured) {
        // Under the lock, so that an older set does not follow a newer one.
        self.tools.replace(self.set(all.programs(None), all.own.values()));
        for of in all.workspaces.values() {
            of.tools.replace(self.set(all.programs(Some(of)), all.seen_in(Some(of), None)));
        }
        for of in all.sessions.values() {
            let workspace = all.workspaces.get(&of.root);
            of.tools.replace(self.set(all.programs(workspace), all.seen_in(workspace, Some(of))));
        }
    }

    fn set<'a>(&self, programs: Vec<Arc<ProgramTool>>, servers: impl Iterator<Item = &'a Arc<Server>>) -> ToolSet {
        let mut tools: Vec<Arc<dyn Tool>> = programs.into_iter().map(|program| program as Arc<dyn Tool>).collect();
        for server in servers {
            let Some(listing) = server.listing() else { continue };
            let used = listing.tools.iter().filter(|tool| server.config.has_tool(&tool.tool));
            tools.extend(used.enumerate().map(|(at, info)| {
                // A model reads them all, so once is enough.
                let about = server.config.about.as_deref().filter(|_| at == 0);
                let tool: Arc<dyn Tool> = Arc::new(McpTool::new(server.clone(), info.clone(), about));
                tool
            }));
        }
        self.base.and(tools)
    }

    /// The servers of these, by name.
    fn of(&self, of: ServersOf<'_>) -> Vec<Arc<Server>> {
        let all = self.configured();
        let session = of.session.and_then(|session| all.sessions.get(session));
        let root = session.map(|session| session.root.as_path()).or(of.root);
        all.seen_in(root.and_then(|root| all.workspaces.get(root)), session).cloned().collect()
    }

    fn named(&self, name: &str, of: ServersOf<'_>) -> Option<Arc<Server>> {
        self.of(of).into_iter().find(|server| server.name == name)
    }

    fn brought(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, SecretVariables>>> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configured(&self) -> MutexGuard<'_, Configured> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
