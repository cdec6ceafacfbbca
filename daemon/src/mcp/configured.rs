//! The servers that are configured, by where they come from: the user, the files of a workspace, a client for its session.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use linger_protocol::mcp::SessionServer;

use super::server::Server;
use super::settings::WorkspaceServer;
use crate::tool::Tool as _;
use crate::tool::program::ProgramTool;
use crate::tool::set::{ToolSet, Tools};

/// All of them.
#[derive(Default)]
pub(super) struct Configured {
    /// Servers of the user's own configuration.
    pub(super) own: BTreeMap<String, Arc<Server>>,
    /// The tools of the user's own Markdown files.
    pub(super) programs: Vec<Arc<ProgramTool>>,
    /// Servers of the files of workspaces, by their roots.
    pub(super) workspaces: BTreeMap<PathBuf, OfWorkspace>,
    /// Servers that clients brought, by session.
    pub(super) sessions: BTreeMap<String, OfSession>,
    /// Names the trusted servers of all workspaces, also of those without a session since the start.
    pub(super) trusted: BTreeSet<String>,
}

/// The servers of a workspace's files, those that are trusted.
pub(super) struct OfWorkspace {
    /// As the files have them.
    pub(super) given: BTreeMap<String, WorkspaceServer>,
    /// Why some are left out.
    pub(super) left_out: BTreeMap<String, String>,
    pub(super) servers: BTreeMap<String, Arc<Server>>,
    /// The tools of its Markdown files.
    pub(super) programs: Vec<Arc<ProgramTool>>,
    /// The tools of its sessions.
    pub(super) tools: Tools,
}

impl Default for OfWorkspace {
    fn default() -> Self {
        let (given, left_out, servers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { given, left_out, servers, programs: Vec::new(), tools: Tools::new(ToolSet::new([])) }
    }
}

/// The servers of a session.
pub(super) struct OfSession {
    /// The root of its workspace.
    pub(super) root: PathBuf,
    /// As they are stored.
    pub(super) given: Vec<SessionServer>,
    pub(super) servers: BTreeMap<String, Arc<Server>>,
    /// The tools of the session.
    pub(super) tools: Tools,
    /// The session's actor lives while this does.
    pub(super) loaded: Weak<()>,
}

impl Configured {
    /// Servers of workspaces and sessions.
    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<Server>> {
        let of_workspaces = self.workspaces.values().flat_map(|of| of.servers.values());
        of_workspaces.chain(self.sessions.values().flat_map(|of| of.servers.values()))
    }

    /// The servers of sessions in a workspace, and of one session, by name.
    pub(super) fn seen_in<'a>(
        &'a self,
        workspace: Option<&'a OfWorkspace>,
        session: Option<&'a OfSession>,
    ) -> impl Iterator<Item = &'a Arc<Server>> {
        let (files, brought) = (workspace.map(|of| &of.servers), session.map(|of| &of.servers));
        // One that comes later hides one of the same name.
        let all = files.into_iter().chain(brought).flatten().chain(&self.own);
        all.map(|(name, server)| (name.as_str(), server)).collect::<BTreeMap<_, _>>().into_values()
    }

    /// The tools of Markdown files that sessions in a workspace have, by name; without one the user's own.
    pub(super) fn programs(&self, of: Option<&OfWorkspace>) -> Vec<Arc<ProgramTool>> {
        let mut all: BTreeMap<&str, &Arc<ProgramTool>> = self.programs.iter().map(|it| (it.name(), it)).collect();
        all.extend(of.into_iter().flat_map(|of| &of.programs).map(|it| (it.name(), it)));
        all.into_values().cloned().collect()
    }
}

impl OfSession {
    /// Whether a client brought a server of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|server| server.server == name)
    }
}
