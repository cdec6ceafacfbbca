//! `mcp/*`: the MCP servers, and their tables in the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::mcp::{
    Add, Attachable, FinishLogin, GetPrompt, List, LoggedIn, LoggedOut, Login, LoginPage, Logs, Named, Offered,
    ReadResource, Resource, Server, ServerPrompt, State, Test,
};

use super::{Caller, Services, in_force, need, trust};
use crate::config::WaitingServer;
use crate::mcp::settings::WorkspaceServer;
use crate::mcp::workspaces::row;
use crate::mcp::{OfferError, Place, Returned, ServersOf};
use crate::provider::address;
use crate::session::messages::Command;
use crate::sys::task;
use crate::sys::{disk, memory};
use crate::tool::Workspace;

/// The servers that are configured, and those of the files of a workspace.
pub async fn list(services: &Services, caller: &Caller, params: List) -> Result<Vec<Server>, RpcError> {
    services.config.current()?;
    let session = params.session;
    caller.may_name(services, session.as_ref(), params.cwd.as_deref(), need::of("mcp/list")?).await?;
    let cwd = directory(services, session.as_ref(), params.cwd).await?;
    let Some(cwd) = cwd else { return Ok(measured(services.env().toolbox.servers.list(ServersOf::default())).await) };
    let (root, now) = trust::look(services, &cwd).await?;
    services.env().toolbox.configure_workspace(&root);
    let mut rows = services
        .env()
        .toolbox
        .servers
        .list(ServersOf { root: Some(&root), session: session.as_ref().map(SessionId::as_str) });
    for WaitingServer { name, file, config, is_changed } in &now.waiting_servers {
        match rows.iter_mut().find(|row| row.server == *name && row.from.is_some()).filter(|_| *is_changed) {
            Some(row) => {
                row.problems.push(format!("changed in {file}: runs as it was until you trust it: `linger trust`"))
            }
            None => {
                let server = WorkspaceServer { config: config.clone(), file };
                rows.push(row(&root, name, &server, State::Untrusted));
            }
        }
    }
    rows.sort_by(|a, b| a.server.cmp(&b.server));
    Ok(measured(rows).await)
}

/// Puts a server into the configuration, confirmed; sessions have its tools from their next step on.
pub async fn add(services: &Services, caller: &Caller, params: Add) -> Result<Empty, RpcError> {
    if services.config.has_server(&params.server)? {
        let error = RpcError::new(Code::BadName, format!("there is an MCP server '{}' already", params.server));
        return Err(error.hint(format!("`linger mcp remove {}` removes it", params.server)));
    }
    let (store, by) = (services.config.clone(), caller.name());
    in_force::blocking(move || store.add_server(&params, &by)).await?;
    in_force::apply(services).await;
    Ok(Empty {})
}

/// Takes a server out of the configuration; its calls are waited for.
pub async fn remove(services: &Services, caller: &Caller, params: Named) -> Result<Empty, RpcError> {
    let (store, name, by) = (services.config.clone(), params.server.clone(), caller.name());
    if !in_force::blocking(move || store.remove_server(&name, &by)).await? {
        return Err(unknown(&params.server));
    }
    in_force::apply(services).await;
    Ok(Empty {})
}

/// Ends a server; the next call starts it.
pub async fn restart(services: &Services, caller: &Caller, params: Named) -> Result<Empty, RpcError> {
    let whose = whose(services, caller, params.cwd.as_deref(), params.session).await?;
    let is_known = services.env().toolbox.servers.restart(&params.server, whose.of());
    if is_known { Ok(Empty {}) } else { Err(unknown(&params.server)) }
}

/// The last lines that a server wrote and logged.
pub async fn logs(services: &Services, caller: &Caller, params: Named) -> Result<Logs, RpcError> {
    // A server of all sessions may write about each of them.
    let whose = whose(services, caller, params.cwd.as_deref(), params.session).await?;
    let lines = services.env().toolbox.servers.logs(&params.server, whose.of());
    Ok(Logs { lines: lines.ok_or_else(|| unknown(&params.server))? })
}

/// Starts a server for a workspace, if it does not run, and says how it is.
pub async fn test(services: &Services, _: &Caller, params: Test) -> Result<Server, RpcError> {
    let Test { server, cwd, env } = params;
    let (env, _) = services.config.current()?.env.take(env);
    let workspace = services.env().workspaces.workspace(&SessionId::daemon(), &cwd, env, disk::TIMEOUT).await;
    services.env().read_workspace(&workspace).await;
    let row = services.env().toolbox.servers.test(&server, &workspace).await.ok_or_else(|| unknown(&server))?;
    measured(vec![row]).await.pop().ok_or_else(|| unknown(&server))
}

/// Begins a login at a server: a person of the user's opens the page that this gives.
pub async fn login(services: &Services, caller: &Caller, params: Login) -> Result<LoginPage, RpcError> {
    let Login { server, cwd, session, redirect } = params;
    // The code that comes there is worth the login.
    let is_local = reqwest::Url::parse(&redirect).is_ok_and(|url| url.scheme() == "http" && address::is_loopback(&url));
    if !is_local {
        return Err(RpcError::new(Code::BadName, "the redirect is no http address of this machine")
            .hint("listen at http://127.0.0.1:PORT/ and name that"));
    }
    let whose = whose(services, caller, cwd.as_deref(), session).await?;
    let begun = services.env().toolbox.servers.begin_login(&server, whose.of(), &redirect).await;
    let (login, page) = begun.ok_or_else(|| unknown(&server))?.map_err(|why| no_login(&server, &why))?;
    Ok(LoginPage { login, page })
}

/// Ends a login with what the browser brought; the server is started by its next call.
pub async fn finish_login(services: &Services, caller: &Caller, params: FinishLogin) -> Result<LoggedIn, RpcError> {
    let FinishLogin { login, server, cwd, session, code, state, issuer } = params;
    let returned = Returned { code: &code, state: &state, issuer: issuer.as_deref() };
    let finished = services.env().toolbox.servers.finish_login(&login, returned).await;
    let no_keychain = finished.map_err(|why| no_login(&server, &why))?;
    let whose = whose(services, caller, cwd.as_deref(), session).await?;
    services.env().toolbox.servers.restart(&server, whose.of());
    tracing::info!(target: "mcp", server, by = caller.name(), "logged in");
    Ok(LoggedIn { no_keychain })
}

/// Forgets the login at a server.
pub async fn logout(services: &Services, caller: &Caller, params: Named) -> Result<LoggedOut, RpcError> {
    let whose = whose(services, caller, params.cwd.as_deref(), params.session).await?;
    let forgotten = services.env().toolbox.servers.log_out(&params.server, whose.of()).await;
    let removed = forgotten.ok_or_else(|| unknown(&params.server))?.map_err(|why| no_login(&params.server, &why))?;
    Ok(LoggedOut { removed })
}

fn no_login(server: &str, why: &str) -> RpcError {
    let error = RpcError::new(Code::ServerFailed, format!("the MCP server {server}: {why}"));
    error.hint("a server without OAuth takes a token in `headers`, as `linger help servers` shows")
}

/// The resources of servers that a prompt of the session can name.
pub async fn resources(services: &Services, caller: &Caller, params: Offered) -> Result<Vec<Resource>, RpcError> {
    let server = params.server.clone();
    let (workspace, session) = place(services, caller, params).await?;
    let at = Place { workspace: &workspace, session: session.as_str() };
    services.env().toolbox.servers.resources(server.as_deref(), &at).await.map_err(failed)
}

/// The content of a resource.
pub async fn resource(services: &Services, caller: &Caller, params: ReadResource) -> Result<Attachable, RpcError> {
    let workspace = workspace(services, caller, &params.session).await?;
    let at = Place { workspace: &workspace, session: params.session.as_str() };
    let content = services.env().toolbox.servers.read(&params.server, &params.uri, &at).await.map_err(failed)?;
    Ok(Attachable { content })
}

/// The prompts that servers have ready.
pub async fn prompts(services: &Services, caller: &Caller, params: Offered) -> Result<Vec<ServerPrompt>, RpcError> {
    let server = params.server.clone();
    let (workspace, session) = place(services, caller, params).await?;
    let at = Place { workspace: &workspace, session: session.as_str() };
    services.env().toolbox.servers.prompts(server.as_deref(), &at).await.map_err(failed)
}

/// The content of such a prompt.
pub async fn prompt(services: &Services, caller: &Caller, params: GetPrompt) -> Result<Attachable, RpcError> {
    let workspace = workspace(services, caller, &params.session).await?;
    let GetPrompt { session, server, prompt, arguments, text } = params;
    let at = Place { workspace: &workspace, session: session.as_str() };
    let content =
        services.env().toolbox.servers.prompt(&server, &prompt, arguments, &text, &at).await.map_err(failed)?;
    Ok(Attachable { content })
}

/// Whose server a request names.
#[derive(Default)]
struct Whose {
    root: Option<PathBuf>,
    session: Option<SessionId>,
}

impl Whose {
    fn of(&self) -> ServersOf<'_> {
        ServersOf { root: self.root.as_deref(), session: self.session.as_ref().map(SessionId::as_str) }
    }
}

/// The workspace of a session or of a directory, whose files are read; fails if the caller may not look into it.
async fn whose(
    services: &Services,
    caller: &Caller,
    cwd: Option<&Path>,
    session: Option<SessionId>,
) -> Result<Whose, RpcError> {
    caller.may_name(services, session.as_ref(), cwd, need::of("mcp/list")?).await?;
    let cwd = directory(services, session.as_ref(), cwd.map(Path::to_path_buf)).await?;
    let Some(cwd) = cwd else { return Ok(Whose::default()) };
    let (root, _) = trust::look(services, &cwd).await?;
    services.env().toolbox.configure_workspace(&root);
    Ok(Whose { root: Some(root), session })
}

/// The directory of the session that a request names, or else the one that it names itself.
async fn directory(
    services: &Services,
    session: Option<&SessionId>,
    cwd: Option<PathBuf>,
) -> Result<Option<PathBuf>, RpcError> {
    let Some(session) = session else { return Ok(cwd) };
    let basis = services.registry.ask(session, Command::CallBasis).await?;
    Ok(Some(basis.workspace.rules_root().to_path_buf()))
}

/// The workspace for which something is asked, and its session, or that of the daemon.
async fn place(services: &Services, caller: &Caller, params: Offered) -> Result<(Arc<Workspace>, SessionId), RpcError> {
    match params {
        Offered { session: Some(session), .. } => Ok((workspace(services, caller, &session).await?, session)),
        Offered { cwd: Some(cwd), env, .. } => {
            caller.must_be_process(services, "start an MCP server")?;
            let (env, _) = services.config.current()?.env.take(env);
            let session = SessionId::daemon();
            let workspace = services.env().workspaces.workspace(&session, &cwd, env, disk::TIMEOUT).await;
            services.env().read_workspace(&workspace).await;
            Ok((Arc::new(workspace), session))
        }
        Offered { .. } => Err(RpcError::new(Code::NoWorkspace, "a session or a directory is needed")),
    }
}

/// Where a session works, for a caller that may give it something to do.
async fn workspace(services: &Services, caller: &Caller, session: &SessionId) -> Result<Arc<Workspace>, RpcError> {
    caller.may_use(services, session, need::of("mcp/resource")?).await?;
    Ok(services.registry.ask(session, Command::CallBasis).await?.workspace)
}

fn failed(error: OfferError) -> RpcError {
    match error {
        OfferError::Unknown(server) => unknown(&server),
        error @ OfferError::Wrong(_) => {
            RpcError::new(Code::BadPrompt, error.to_string()).hint("`linger mcp prompts` lists them")
        }
        OfferError::Failed(ref server, _) => RpcError::new(Code::ServerFailed, error.to_string())
            .hint(format!("`linger mcp logs {server}` shows what it wrote")),
    }
}

/// The rows, with the memory of each process.
async fn measured(mut rows: Vec<Server>) -> Vec<Server> {
    let rows = task::spawn_blocking(move || {
        for instance in rows.iter_mut().flat_map(|row| &mut row.instances) {
            instance.memory = instance.pid.and_then(memory::resident);
        }
        rows
    });
    rows.await.unwrap_or_default()
}

fn unknown(server: &str) -> RpcError {
    let error = RpcError::new(Code::UnknownServer, format!("no MCP server is called '{}'", server.escape_default()));
    error.hint("`linger mcp list` lists them")
}
