//! The MCP part of `linger doctor`: the state of each server, and problems in this directory's files.
//!
//! Deliberately absent: starting a server; `linger mcp test` does that.

use linger_protocol::mcp::{List, Server, State};
use linger_protocol::method::{McpList, TrustGet};
use linger_protocol::trust::Get;

use super::report::Report;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::Failure;

/// The hint for a broken file of a workspace.
const FILE_HINT: &str = "correct the file; other servers are not affected";

pub(super) fn examine(report: &mut Report, client: &mut Client) -> Result<(), Failure> {
    // A deleted directory has no files.
    let cwd = working_directory().ok();
    match client.call(&McpList(List { cwd: cwd.clone(), session: None })) {
        Ok(rows) => rows.iter().try_for_each(|row| server(report, row))?,
        Err(failure) => report.failure(&failure)?,
    }
    // A process without the right to ask still gets the list.
    let workspace = cwd.and_then(|cwd| client.call(&TrustGet(Get { cwd })).ok());
    let mut problems = workspace.iter().flat_map(|workspace| &workspace.problems);
    problems.try_for_each(|problem| report.bad(problem, Some(FILE_HINT)))
}

fn server(report: &mut Report, row: &Server) -> Result<(), Failure> {
    let name = &row.server;
    let tools = row.tools.as_ref().map_or_else(String::new, |tools| format!(", {} tools", tools.len()));
    match row.state {
        State::Idle => report.good(&format!("MCP server {name}: not needed yet{tools}"))?,
        State::Starting => report.good(&format!("MCP server {name}: starting"))?,
        State::Running | State::Unknown => report.good(&format!("MCP server {name}: running{tools}"))?,
        State::Untrusted => {
            report.good(&format!(
                "MCP server {name}: from this directory's files, not trusted yet; run `linger trust`"
            ))?;
        }
        State::Failed => {
            let why = row.error.as_deref().unwrap_or("it ended");
            let hint = format!("see `linger mcp logs {name}`; `linger mcp test {name}` starts it");
            report.bad(&format!("MCP server {name} cannot be started: {why}"), Some(&hint))?;
        }
        State::Waiting => {
            let names = row.waits_for.join(", ");
            let hint = "run any linger command in a shell where it is set";
            report.bad(&format!("MCP server {name} waits for the variable {names}"), Some(hint))?;
        }
        State::NeedsLogin => {
            report.bad(&format!("MCP server {name} needs a login"), Some(&format!("run `linger mcp login {name}`")))?;
        }
        State::LeftOut => {
            let why = row.problems.first().map_or("left out", String::as_str);
            return report.bad(&format!("MCP server {name}: {why}"), None);
        }
    }
    row.problems.iter().try_for_each(|problem| report.more(&format!("{name}: {problem}"), None))
}
