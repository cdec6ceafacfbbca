//! The servers that the files of a workspace bring: its sessions have them with the user's own.
//!
//! Deliberately absent: reading the files, and whether they are trusted (`config`). One of the user's own servers hides one of the
//! same name, and one that names the key of a provider is left out; the list says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use linger_protocol::mcp;

use super::configured::OfWorkspace;
use super::server::{Origin, Server};
use super::servers::{Servers, ServersOf};
use super::settings::{SERVER_FILES, WorkspaceServer};
use crate::tool::program::{Program, ProgramTool};
use crate::tool::set::Tools;

/// These tools; those that are the same as before stay.
fn taken(before: &[Arc<ProgramTool>], now: Vec<Program>) -> Vec<Arc<ProgramTool>> {
    let tool = |program: Program| {
        let same = before.iter().find(|it| *it.program() == program).cloned();
        same.unwrap_or_else(|| Arc::new(ProgramTool::new(program)))
    };
    now.into_iter().map(tool).collect()
}

impl Servers {
    /// Takes the servers of the files of a workspace, without those that name one of `keys`, the variables of providers.
    pub fn configure_workspace(
        self: &Arc<Self>,
        root: &Path,
        given: &BTreeMap<String, WorkspaceServer>,
        keys: &BTreeSet<String>,
    ) {
        let mut gone = BTreeMap::new();
        {
            let mut guard = self.configured();
            let all = &mut *guard;
            let is_known = all.workspaces.contains_key(root);
            let left_out = left_out(given, keys);
            let is_same = |of: &OfWorkspace| of.given == *given && of.left_out == left_out;
            if !is_known && given.is_empty() || all.workspaces.get(root).is_some_and(is_same) {
                return;
            }
            let has_programs = all.workspaces.get(root).is_some_and(|of| !of.programs.is_empty());
            if given.is_empty() && !has_programs {
                gone.extend(all.workspaces.remove(root).into_iter().flat_map(|of| of.servers));
            } else {
                let of = all.workspaces.entry(root.to_path_buf()).or_default();
                gone = std::mem::take(&mut of.servers);
                for (name, WorkspaceServer { config, file }) in
                    given.iter().filter(|(name, _)| !left_out.contains_key(*name))
                {
                    let is_same = |it: &Arc<Server>| {
                        it.config == *config && matches!(&it.origin, Origin::Workspace(_, of) if of == file)
                    };
                    let same = if gone.get(name).is_some_and(is_same) { gone.remove(name) } else { None };
                    let new = || Arc::new(self.server(name, config, Origin::Workspace(root.to_path_buf(), file)));
                    of.servers.insert(name.clone(), same.unwrap_or_else(new));
                }
                (of.given, of.left_out) = (given.clone(), left_out);
            }
            self.publish(all);
        }
        gone.values().for_each(|server| server.stop(false));
    }

    /// Takes the tools of Markdown files: the user's own, and those of the workspace with this root.
    pub fn set_programs(&self, root: &Path, own: Vec<Program>, of_workspace: Vec<Program>) {
        let mut guard = self.configured();
        let all = &mut *guard;
        let is_same = |before: &[Arc<ProgramTool>], now: &[Program]| before.iter().map(|it| it.program()).eq(now);
        let before = all.workspaces.get(root).map(|of| of.programs.clone()).unwrap_or_default();
        if is_same(&all.programs, &own) && is_same(&before, &of_workspace) {
            return;
        }
        all.programs = taken(&all.programs, own);
        if before.is_empty() && of_workspace.is_empty() {
            return self.publish(all);
        }
        let of = all.workspaces.entry(root.to_path_buf()).or_default();
        of.programs = taken(&before, of_workspace);
        if of.programs.is_empty() && of.given.is_empty() {
            all.workspaces.remove(root);
        }
        self.publish(all);
    }

    /// The tools of a session in the workspace with this root.
    pub fn tools_in(&self, root: &Path, session: &str) -> Tools {
        let all = self.configured();
        let of_session = all.sessions.get(session).map(|of| &of.tools);
        of_session.or_else(|| Some(&all.workspaces.get(root)?.tools)).unwrap_or(&self.tools).clone()
    }

    /// The servers of these, by name, with those that are left out.
    pub fn list(&self, of: ServersOf<'_>) -> Vec<mcp::Server> {
        let mut rows: Vec<mcp::Server> = self.of(of).iter().map(|server| server.row()).collect();
        let all = self.configured();
        rows.extend(self.hidden_in(&all, of));
        let session = of.session.and_then(|session| all.sessions.get(session));
        let files = of.root.and_then(|root| Some((root, all.workspaces.get(root)?)));
        for (root, of, name, server) in
            files.iter().flat_map(|(root, of)| of.given.iter().map(|it| (*root, *of, it.0, it.1)))
        {
            let why = match of.left_out.get(name) {
                Some(why) => why.clone(),
                None if all.own.contains_key(name) => {
                    format!("left out: your own config.toml has [mcp.{name}]")
                }
                None if session.is_some_and(|session| session.has(name)) => {
                    "left out: a client brought one of that name for the session".to_owned()
                }
                None => continue,
            };
            rows.push(mcp::Server { problems: vec![why], ..row(root, name, server, mcp::State::LeftOut) });
        }
        rows.sort_by(|a, b| a.server.cmp(&b.server));
        rows
    }
}

/// The row of a server that cannot run.
pub fn row(
    root: &Path,
    name: &str,
    WorkspaceServer { config, file }: &WorkspaceServer,
    state: mcp::State,
) -> mcp::Server {
    let from = root.join(file);
    let from = if *file == SERVER_FILES { from.join(format!("{name}.md")) } else { from };
    mcp::Server {
        server: name.to_owned(),
        target: config.target(),
        scope: config.scope(),
        required: config.required,
        state,
        instances: Vec::new(),
        tools: None,
        problems: Vec::new(),
        error: None,
        waits_for: Vec::new(),
        from: Some(from),
        session: None,
    }
}

fn left_out(given: &BTreeMap<String, WorkspaceServer>, keys: &BTreeSet<String>) -> BTreeMap<String, String> {
    let why = |(name, server): (&String, &WorkspaceServer)| {
        let key = server.config.variables().into_iter().find(|variable| keys.contains(variable))?;
        Some((name.clone(), format!("left out: {key} holds the key of a provider, which no MCP server gets")))
    };
    given.iter().filter_map(why).collect()
}
