//! The configured servers: what starts, lists and ends them, and the tool sets that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::mcp::{self, LogLine};
use tokio::time::{Instant, timeout_at};

use super::cache::Cache;
use super::configured::Configured;
use super::listing::Listing;
use super::oauth::Returned;
use super::server::{Origin, Outside, Server};
use super::settings::ServerConfig;
use super::tool::McpTool;
use crate::diagnostics::secret::SecretVariables;
use crate::sys::task;
use crate::tool::program::ProgramTool;
use crate::tool::set::{ToolSet, Tools};
use crate::tool::{Tool, Workspace};

/// How long a turn waits for servers that were never seen and that it does not need.
const FIRST_SIGHT: Duration = Duration::from_secs(10);

/// The configured servers; shared by all sessions.
pub struct Servers {
    pub(super) tools: Tools,
    /// The tools that are no server's.
    base: Arc<ToolSet>,
    pub(super) outside: Outside,
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
    /// Absent for servers outside of a session.
    pub session: Option<&'a str>,
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
        let fresh: Vec<bool> = needed.iter().map(|server| server.error().is_none() && !server.is_late()).collect();
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
                    Err(_) => {
                        server.set_late();
                        notices.push(format!("the MCP server {name} is still starting; its tools come later"));
                    }
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

    /// The latest lines that a server wrote and logged.
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
    pub async fn finish_login(&self, id: &str, returned: Returned<'_>) -> Result<Option<String>, String> {
        let (address, why) = self.outside.logins.finish(id, returned).await?;
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

    pub(super) fn server(self: &Arc<Self>, name: &str, config: &ServerConfig, origin: Origin) -> Server {
        let this = Arc::downgrade(self);
        let listed = move |server: &Server, listing: &Arc<Listing>| {
            if let Some(this) = this.upgrade() {
                this.listed(server, listing);
            }
        };
        let identity = config.identity(origin.root());
        let known = self.cache.get(&identity).map(|known| known.renamed(name));
        Server::new(name.to_owned(), config.clone(), origin, known, self.outside.clone(), Arc::new(listed))
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
    pub(super) fn publish(&self, all: &Configured) {
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
    pub(super) fn of(&self, of: ServersOf<'_>) -> Vec<Arc<Server>> {
        let all = self.configured();
        let session = of.session.and_then(|session| all.sessions.get(session));
        let root = session.map(|session| session.root.as_path()).or(of.root);
        all.seen_in(root.and_then(|root| all.workspaces.get(root)), session).cloned().collect()
    }

    pub(super) fn named(&self, name: &str, of: ServersOf<'_>) -> Option<Arc<Server>> {
        self.of(of).into_iter().find(|server| server.name == name)
    }

    pub(super) fn brought(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, SecretVariables>>> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn configured(&self) -> MutexGuard<'_, Configured> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
