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
//! | `listing`, `result` | tools and results made fit for providers; pure |
//! | `tool` | a server's tool as a [`crate::tool::Tool`] |
//! | `offers` | resources and prompts, for people |
//! | `cache` | the lists of tools on disk |

mod cache;
mod connection;
mod http;
mod lines;
mod listing;
mod offers;
mod peer;
mod result;
mod server;
pub mod settings;
mod tool;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::mcp::{self, LogLine};
use tokio::time::{Instant, timeout_at};

use crate::process::server::Children;
use crate::provider::keys::Keys;
use crate::tool::set::{ToolSet, Tools};
use crate::tool::{BoxFuture, Tool, Workspace};
use cache::Cache;
pub(crate) use lines::{MAX_MESSAGE, next_line};
use listing::Listing;
pub use offers::{OfferError, Place};
use server::Server;
use settings::ServerConfig;
use tool::McpTool;

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
}

/// The configured servers; shared by all sessions.
pub struct Servers {
    tools: Tools,
    /// The tools that are no server's.
    base: Arc<ToolSet>,
    outside: Outside,
    cache: Cache,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
}

impl Servers {
    /// No servers yet; `tools` gets theirs. `file` has the lists of tools that were seen; reading it blocks on the disk.
    pub fn new(tools: Tools, outside: Outside, file: PathBuf) -> Arc<Self> {
        let (base, cache) = (tools.current(), Cache::open(file));
        Arc::new(Self { tools, base, outside, cache, servers: Mutex::default() })
    }

    /// Takes the servers of a configuration. Those that changed end when their calls have; the others stay as they are.
    pub fn configure(self: &Arc<Self>, configured: &BTreeMap<String, ServerConfig>) {
        let gone = {
            let mut servers = self.servers();
            let mut old = std::mem::take(&mut *servers);
            for (name, config) in configured {
                let same = old.remove(name).filter(|server| server.config == *config);
                let server = same.unwrap_or_else(|| Arc::new(self.server(name, config)));
                servers.insert(name.clone(), server);
            }
            old
        };
        gone.values().for_each(|server| server.stop(false));
        self.publish();
    }

    /// Waits until the servers that a step of this session needs are there: those that are required, and for a while those that
    /// were never seen. Gives what to tell people, and fails if a required one cannot be started.
    pub async fn ready(&self, workspace: &Workspace, session: &str) -> Result<Vec<String>, String> {
        let all: Vec<Arc<Server>> = self.servers().values().cloned().collect();
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
        let all: Vec<Arc<Server>> = self.servers().values().cloned().collect();
        all.iter().filter(|server| server.config.required).for_each(|server| server.begin(workspace, session));
    }

    /// The servers, by name.
    pub fn list(&self) -> Vec<mcp::Server> {
        self.servers().values().map(|server| server.row()).collect()
    }

    /// How a server is; `None` if there is none of that name.
    pub fn get(&self, name: &str) -> Option<mcp::Server> {
        Some(self.named(name)?.row())
    }

    /// What a server wrote and logged last.
    pub fn logs(&self, name: &str) -> Option<Vec<LogLine>> {
        Some(self.named(name)?.logs())
    }

    /// Ends a server; its open calls fail, and the next one starts it. Whether there is one of that name.
    pub fn restart(&self, name: &str) -> bool {
        let server = self.named(name);
        server.iter().for_each(|server| server.stop(true));
        server.is_some()
    }

    /// Starts a server for a workspace, if it does not run, and gives how it is then.
    pub async fn test(&self, name: &str, workspace: &Workspace) -> Option<mcp::Server> {
        let server = self.named(name)?;
        // Its error is in the row.
        let _started = server.connection(workspace, "").await;
        Some(server.row())
    }

    fn server(self: &Arc<Self>, name: &str, config: &ServerConfig) -> Server {
        let this = Arc::downgrade(self);
        let listed = move |server: &Server, listing: &Arc<Listing>| {
            if let Some(this) = this.upgrade() {
                this.listed(server, listing);
            }
        };
        let known = self.cache.get(&config.identity()).map(|known| known.renamed(name));
        Server::new(name.to_owned(), config.clone(), known, self.outside.clone(), Arc::new(listed))
    }

    /// A server listed other tools than before.
    fn listed(&self, server: &Server, listing: &Arc<Listing>) {
        let keep: Vec<String> = self.servers().values().map(|server| server.identity.clone()).collect();
        if keep.contains(&server.identity) {
            let (cache, identity, listing) = (self.cache.clone(), server.identity.clone(), listing.clone());
            tokio::task::spawn_blocking(move || cache.put(identity, (*listing).clone(), &keep));
        }
        self.publish();
    }

    /// Gives models the tools of all servers, from the next step on.
    fn publish(&self) {
        let servers = self.servers();
        let mut tools: Vec<Arc<dyn Tool>> = self.base.iter().cloned().collect();
        for server in servers.values() {
            let Some(listing) = server.listing() else { continue };
            let used = listing.tools.iter().filter(|tool| server.config.has_tool(&tool.tool));
            tools.extend(used.map(|info| {
                let tool: Arc<dyn Tool> = Arc::new(McpTool::new(server.clone(), info.clone()));
                tool
            }));
        }
        // Under the lock, so that an older set does not follow a newer one.
        self.tools.replace(ToolSet::new(tools));
    }

    fn named(&self, name: &str) -> Option<Arc<Server>> {
        self.servers().get(name).cloned()
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
