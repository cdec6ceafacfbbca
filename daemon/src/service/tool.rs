//! `tool/list`: the tools of a session, where they come from, what they do, and whether they would ask.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::daemon::{Tool as Row, ToolDecision, ToolEffect, ToolVerdict, Tools};
use linger_protocol::id::SessionId;

use super::{Caller, Services, need};
use crate::agent::skill;
use crate::question::permission::{CallInfo, Verdict};
use crate::session::env::library::library;
use crate::session::messages::{CallBasis, Command};
use crate::sys::{disk, login};
use crate::tool::set::{Takes, ToolSet};
use crate::tool::{Access, Tool, Workspace};

/// The tools of a session, or of a new one.
pub async fn list(services: &Services, caller: &Caller, params: Tools) -> Result<Vec<Row>, RpcError> {
    let Tools { session, cwd } = params;
    if session.is_none() && cwd.is_none() {
        caller.scope(services)?;
    } else {
        caller.may_name(services, session.as_ref(), cwd.as_deref(), need::of("tool/list")?).await?;
    }
    let basis = match (session, cwd) {
        (Some(session), _) => Some(services.registry.ask(&session, Command::CallBasis).await?),
        (None, Some(cwd)) => {
            let basis = of_new(services, cwd).await?;
            let tools = tools_of_new(services, &basis.workspace).await?;
            Some(CallBasis { tools, ..basis })
        }
        (None, None) => None,
    };
    let tools = basis.as_ref().map_or_else(|| services.env().toolbox.tools.current(), |basis| basis.tools.clone());
    let mut rows = Vec::new();
    for tool in tools.iter() {
        let effect = effect(tool.as_ref());
        let verdict = match &basis {
            Some(basis) => verdict(services, tool.as_ref(), effect, basis).await,
            None => None,
        };
        rows.push(Row {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.schema(),
            read_only: !tool.changes(),
            kind: tool.kind(),
            effect,
            verdict,
            server: tool.server().map(str::to_owned),
            file: tool.file().map(Path::to_path_buf),
        });
    }
    Ok(rows)
}

/// The basis of decisions about calls of a new session in a directory, whatever its model, without the tools that only some sessions
/// have.
pub(super) async fn of_new(services: &Services, cwd: PathBuf) -> Result<CallBasis, RpcError> {
    let env = services.env();
    let config = env.config.current()?;
    // Programs are found as after a login: the session's own PATH is not known yet.
    let home = env.config.home().map(|home| ("HOME".to_owned(), home.to_string_lossy().into_owned()));
    let variables = login::variables().into_iter().chain(home).collect();
    let workspace = env.workspaces.workspace(&SessionId::default(), &cwd, variables, disk::TIMEOUT).await;
    env.read_workspace(&workspace).await;
    let tools = env.toolbox.servers.tools_in(&workspace.root, SessionId::default().as_str()).current();
    let (grants, denied, mode) = (Vec::new(), Vec::new(), env.policy.mode(config.mode, &workspace));
    let (workspace, model, limits) = (Arc::new(workspace), String::new(), Vec::new());
    Ok(CallBasis { tools, mode, grants, denied, workspace, role: None, model, is_busy: false, limits })
}

/// The tools of a new session with the usual model.
async fn tools_of_new(services: &Services, workspace: &Workspace) -> Result<Arc<ToolSet>, RpcError> {
    let env = services.env();
    let model = env.providers.model(None).map(|resolved| resolved.origin).unwrap_or_default();
    let has_skills = !skill::told(library(&services.env().toolbox, workspace).await?.skills.iter()).is_empty();
    Ok(env.toolbox.tools_of(
        &model,
        workspace.rules_root(),
        &SessionId::default(),
        None,
        env.toolbox.offered(has_skills, 0),
    ))
}

fn effect(tool: &dyn Tool) -> ToolEffect {
    match (tool.pattern(), tool.changes()) {
        _ if tool.server().is_some() => ToolEffect::Unknown,
        (_, true) if tool.file().is_some() => ToolEffect::Unknown,
        (_, false) if tool.file().is_some() => ToolEffect::Reads,
        (Takes::Path, false) => ToolEffect::Reads,
        (Takes::Path, true) => ToolEffect::Writes,
        (Takes::Command | Takes::Arguments, _) => ToolEffect::Runs,
        (Takes::Host, _) => ToolEffect::Network,
        (Takes::Version | Takes::Nothing, _) => ToolEffect::Asks,
    }
}

/// The decision about a plain call; absent if the disk does not answer.
async fn verdict(services: &Services, tool: &dyn Tool, effect: ToolEffect, basis: &CallBasis) -> Option<ToolVerdict> {
    let CallBasis { mode, workspace, .. } = basis;
    let inside = workspace.root.join("a file");
    let access = match effect {
        ToolEffect::Reads => Access::Read(inside),
        ToolEffect::Writes => Access::Write(inside),
        ToolEffect::Runs => Access::Command(String::new()),
        ToolEffect::Network => Access::Network(String::new()),
        ToolEffect::Asks => Access::Nothing,
        ToolEffect::Unknown => {
            let (server, version) = (tool.server().unwrap_or_default().to_owned(), tool.version().to_owned());
            Access::Other { server, tool: tool.name().to_owned(), version }
        }
    };
    let policy = &services.env().policy;
    let resolved = policy.resolve(&access, workspace).await?;
    let call = CallInfo { tool: tool.name(), changes: tool.changes(), access };
    let said = |verdict, by| Some(ToolVerdict { verdict, by });
    match policy.decide(basis.settled(), &call, &resolved, workspace) {
        Verdict::Allow { by } => said(ToolDecision::Allow, by),
        Verdict::Ask { rule, .. } => {
            said(ToolDecision::Ask, rule.map_or_else(|| format!("mode {mode}"), |rule| format!("rule {rule}")))
        }
        Verdict::Deny { reason, .. } => said(ToolDecision::Deny, reason),
    }
}
