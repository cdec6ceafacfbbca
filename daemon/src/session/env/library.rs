//! The Markdown files that a session has: its agents, skills and commands, read from the disk when they are needed.

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use serde_json::Value;

use crate::agent::{Library, Places};
use crate::session::env::Toolbox;
use crate::sys::disk;
use crate::tool::Workspace;

/// The files of a workspace and the user's own. Fails if the disk does not answer.
pub async fn library(toolbox: &Toolbox, workspace: &Workspace) -> Result<Library, RpcError> {
    let (config, places): (_, Places) = (toolbox.config.clone(), toolbox.agent_places(workspace));
    let library = disk::probe(&workspace.cwd, disk::TIMEOUT, move || Library::load(&config, &places)).await;
    library.ok_or_else(|| RpcError::new(Code::Storage, disk::unresponsive(&workspace.cwd)))
}

/// The schema that the file of an agent sets for its answers.
pub(in crate::session) async fn response_schema(
    toolbox: &Toolbox,
    workspace: &Workspace,
    agent: &str,
) -> Result<Option<Value>, RpcError> {
    let library = library(toolbox, workspace).await?;
    let agent = library.agents.into_iter().find(|entry| entry.name == agent);
    Ok(agent.and_then(|entry| entry.item.response_schema))
}
