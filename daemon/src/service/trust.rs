//! `trust/*`: the settings in the files of a workspace, and those of them that a person trusts.
//!
//! The daemon asks in its own log when a session meets settings that wait; nothing is held up by that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::config::{Confirmed, Waiting as Waits};
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::question::{Blocks, Question, QuestionOption, Subject};
use linger_protocol::trust::{Confirm, Get, Revoke, Revoked, Trusted, Workspace};
use serde_json::json;
use tokio::sync::mpsc;

use super::in_force::blocking;
use super::open_questions::{CONFIRM, KEEP, MAX_SHOWN};
use super::{Caller, Services};
use crate::agent::Library;
use crate::config::{Waiting, WorkspaceNow};
use crate::question;
use crate::question::permission::hash;
use crate::session::messages::{Command, Stale};
use crate::sys::disk;

/// Asks about each workspace whose files a session has met, and withdraws what an earlier daemon has asked; ends with the daemon.
pub async fn watch(services: Arc<Services>, mut changes: mpsc::UnboundedReceiver<PathBuf>) {
    let stale = |reply| Command::AskAbout(Subject::Workspace, Stale::All, None, reply);
    if let Err(error) = services.registry.ask(&SessionId::daemon(), stale).await {
        tracing::warn!(target: "config", error = error.message, "cannot withdraw questions about workspaces");
    }
    while let Some(root) = changes.recv().await {
        review(&services, &root).await;
    }
}

/// Asks about what waits in a workspace, in place of an earlier question.
async fn review(services: &Services, root: &Path) {
    let waiting = services.config.workspace(root).and_then(|now| now.waiting.clone());
    let earlier = services.trust_questions.state().get(root).cloned();
    if earlier.as_ref().map(|(_, about)| about) == waiting.as_ref() {
        return;
    }
    let stale = earlier.and_then(|(question, _)| question).map_or(Stale::Nothing, Stale::One);
    let asked = waiting.as_deref().map(|waiting| Box::new(ask(root, waiting)));
    let send = |reply| Command::AskAbout(Subject::Workspace, stale, asked, reply);
    match services.registry.ask(&SessionId::daemon(), send).await {
        Ok(question) => {
            let mut state = services.trust_questions.state();
            match waiting {
                Some(waiting) => drop(state.insert(root.to_path_buf(), (question, waiting))),
                None => drop(state.remove(root)),
            }
        }
        // `trust/get` shows it all the same.
        Err(error) => tracing::error!(target: "config", error = error.message, "cannot ask about a workspace"),
    }
}

/// The question about these settings. Only a list that is shown whole can be trusted.
fn ask(root: &Path, waiting: &Waiting) -> Question {
    let lines = waiting.shown();
    let list: String = lines.iter().map(|line| format!("\n{line}")).collect();
    let mut options = vec![QuestionOption::new(CONFIRM, "trust this"), QuestionOption::new(KEEP, "leave it out")];
    let root = root.display();
    let mut text = format!("the files of the workspace {root} want this; it is not in force until you trust it:{list}");
    if list.len() > MAX_SHOWN {
        text = format!("the files of the workspace {root} want {} things: `linger trust` shows them", lines.len());
        options.remove(0);
    }
    Question { about: Some(Subject::Workspace), ..question::choice(text, options, Blocks::Nothing, None) }
}

fn digest(root: &Path, waiting: &Waiting) -> String {
    hash(&json!({ "kind": "workspace", "workspace": linger_protocol::path::text(root), "changes": waiting.lines() }))
}

/// A question about a workspace was answered; the effect is there when this returns.
pub(super) async fn answered(
    services: &Services,
    root: PathBuf,
    waiting: Arc<Waiting>,
    answer: &str,
    by: String,
) -> Result<(), RpcError> {
    if let Some((question, _)) = services.trust_questions.state().get_mut(&root) {
        // What is left out stays so until the files change.
        *question = None;
    }
    match answer {
        CONFIRM => put_into_force(services, root, waiting, by).await,
        _ => Ok(()),
    }
}

/// The settings in the files of a workspace, and those that wait.
pub async fn get(services: &Services, caller: &Caller, params: Get) -> Result<Workspace, RpcError> {
    caller.may_look_into(services, &params.cwd).await?;
    let (workspace, now) = look(services, &params.cwd).await?;
    let waits = |waiting: &Arc<Waiting>| Waits {
        digest: digest(&workspace, waiting),
        question: services.trust_questions.question(&workspace, waiting),
        changes: waiting.shown(),
    };
    Ok(Workspace {
        file: workspace.join(crate::config::WORKSPACE_FILE),
        settings: now.settings.clone(),
        error: now.error.as_ref().map(ToString::to_string),
        problems: now.server_problems(&workspace),
        waiting: now.waiting.as_ref().map(waits),
        workspace,
    })
}

/// Trusts what waits in a workspace.
pub async fn confirm(services: &Services, caller: &Caller, params: Confirm) -> Result<Confirmed, RpcError> {
    let (root, now) = look(services, &params.workspace).await?;
    let Some(waiting) = now.waiting.clone() else { return Ok(Confirmed::default()) };
    if digest(&root, &waiting) != params.digest {
        let stale = RpcError::new(Code::WrongDigest, "the files of the workspace have changed since they were shown");
        return Err(stale.hint("look at them again with `linger trust` or trust/get"));
    }
    let confirmed = waiting.lines();
    put_into_force(services, root, waiting, caller.name()).await?;
    Ok(Confirmed { confirmed })
}

/// The workspaces of which something is trusted.
pub async fn list(services: &Services, _: &Caller, _: Empty) -> Result<Vec<Trusted>, RpcError> {
    let rows = services.config.trusts().into_iter();
    Ok(rows.map(|(workspace, trusts)| Trusted { workspace, trusts }).collect())
}

/// Trusts nothing of a workspace any more.
pub async fn revoke(services: &Services, caller: &Caller, params: Revoke) -> Result<Revoked, RpcError> {
    let cwd = params.cwd;
    let known = services.config.trusts().into_iter().any(|(root, _)| root == cwd);
    let workspace = if known { cwd } else { look(services, &cwd).await?.0 };
    let (config, root, by) = (services.config.clone(), workspace.clone(), caller.name());
    let revoked = blocking(move || config.distrust(&root, &by)).await?;
    apply(services, &workspace);
    Ok(Revoked { workspace, revoked })
}

async fn put_into_force(services: &Services, root: PathBuf, waiting: Arc<Waiting>, by: String) -> Result<(), RpcError> {
    tracing::info!(target: "config", by, root = %root.display(), changes = ?waiting.lines(), "trusted");
    let (config, of) = (services.config.clone(), root.clone());
    blocking(move || config.trust(&of, &waiting, &by)).await?;
    apply(services, &root);
    Ok(())
}

/// Starts and ends MCP servers as the trusted files of a workspace want it.
fn apply(services: &Services, root: &Path) {
    services.configure_servers();
    services.env().toolbox.configure_workspace(root);
}

/// The root of the workspace of a directory, and what its files say.
pub(super) async fn look(services: &Services, cwd: &Path) -> Result<(PathBuf, Arc<WorkspaceNow>), RpcError> {
    if !cwd.is_absolute() {
        let error = RpcError::new(Code::NoWorkspace, format!("{}: not an absolute path", cwd.display()));
        return Err(error.hint("name a directory that exists"));
    }
    let env = services.env();
    let workspace = env.workspaces.workspace(&SessionId::default(), cwd, BTreeMap::new(), disk::TIMEOUT).await;
    let (config, root, places) =
        (services.config.clone(), workspace.root.clone(), env.toolbox.agent_places(&workspace));
    let look = move || {
        Library::load(&config, &places);
        config.look(&root)
    };
    let now = disk::probe(cwd, disk::TIMEOUT, look).await;
    let silent = || RpcError::new(Code::Storage, disk::unresponsive(cwd));
    Ok((workspace.root, now.ok_or_else(silent)?))
}
