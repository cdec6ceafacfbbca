//! MCP servers, for people.

use linger_protocol::mcp::{Instance, PromptArgument, Resource, Server, ServerPrompt, State};

use super::table::{columns, size};
use crate::terminal::clean_line;

/// A line for each server, and lines below it for what is wrong.
pub(crate) fn listing(servers: &[Server]) -> Vec<String> {
    if servers.is_empty() {
        return vec!["no MCP servers; `linger mcp add NAME -- PROGRAM` adds one".to_owned()];
    }
    let lines = columns(&servers.iter().map(row).collect::<Vec<_>>());
    let mut all = Vec::new();
    for (line, server) in lines.into_iter().zip(servers) {
        all.push(line);
        all.extend(server.from.iter().map(|from| format!("  from {}", clean_line(&from.to_string_lossy()))));
        all.extend(server.session.iter().map(|session| format!("  from a client, only for session {session}")));
        all.extend(server.error.iter().chain(&server.problems).map(|problem| format!("  {problem}")));
    }
    all
}

/// Name, state, tools, processes with their memory and protocol, and what is started.
fn row(server: &Server) -> Vec<String> {
    let state = match server.state {
        State::Idle => "idle".to_owned(),
        State::Starting => "starting".to_owned(),
        State::Running => "running".to_owned(),
        State::Failed => "failed".to_owned(),
        State::Waiting => format!("waiting for {}", server.waits_for.join(", ")),
        State::NeedsLogin => match &server.session {
            Some(session) => format!("needs login: `linger mcp login {} -s {session}`", server.server),
            None => format!("needs login: `linger mcp login {}`", server.server),
        },
        State::Untrusted => "not trusted yet: `linger trust`".to_owned(),
        State::LeftOut => "left out".to_owned(),
        State::Unknown => "?".to_owned(),
    };
    let tools = match &server.tools {
        None if matches!(server.state, State::Untrusted | State::LeftOut) => String::new(),
        None => "not seen yet".to_owned(),
        Some(tools) if tools.len() == 1 => "1 tool".to_owned(),
        Some(tools) => format!("{} tools", tools.len()),
    };
    let process = |it: &Instance| {
        let pid = it.pid.map(|pid| format!("pid {pid}"));
        let parts = pid.into_iter().chain(it.memory.map(size)).chain([it.protocol.clone()]);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let processes = server.instances.iter().map(process);
    let processes = processes.collect::<Vec<_>>().join("; ");
    vec![server.server.clone(), state, tools, processes, server.target.clone()]
}

/// The tools of a server, with their names for rules.
pub(crate) fn tools(server: &Server) -> Vec<String> {
    let rows = server.tools.iter().flatten().map(|tool| vec![tool.name.clone(), tool.about.clone()]);
    columns(&rows.collect::<Vec<_>>())
}

/// Resources, as a prompt names them.
pub(crate) fn resources(rows: &[Resource]) -> Vec<String> {
    let about = |row: &Resource| if row.about.is_empty() { row.name.clone() } else { row.about.clone() };
    let row = |row: &Resource| vec![format!("@{}:{}", row.server, row.uri), about(row)];
    columns(&rows.iter().map(row).collect::<Vec<_>>())
}

/// Prompts, as a session takes them.
pub(crate) fn prompts(rows: &[ServerPrompt]) -> Vec<String> {
    let argument = |it: &PromptArgument| if it.required { format!(" {}", it.name) } else { format!(" [{}]", it.name) };
    let row = |row: &ServerPrompt| {
        let arguments: String = row.arguments.iter().map(argument).collect();
        vec![format!("/{}:{}{arguments}", row.server, row.prompt), row.about.clone()]
    };
    columns(&rows.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use linger_protocol::mcp::{Scope, ServerTool};

    use super::*;

    #[test]
    fn servers_are_shown_with_what_is_wrong() {
        let instance = Instance {
            cwd: None,
            pid: Some(7),
            memory: Some(80_000_000),
            name: "git 1.0".to_owned(),
            protocol: "2025-11-25".to_owned(),
            calls: 0,
        };
        let tool = ServerTool { name: "mcp__git__log".to_owned(), tool: "log".to_owned(), about: "Shows.".to_owned() };
        let git = Server {
            server: "git".to_owned(),
            target: "uvx mcp-server-git".to_owned(),
            scope: Scope::Workspace,
            required: false,
            state: State::Running,
            instances: vec![instance],
            tools: Some(vec![tool]),
            problems: Vec::new(),
            error: None,
            waits_for: Vec::new(),
            from: None,
            session: None,
        };
        let (state, waits_for) = (State::Waiting, vec!["TOKEN".to_owned()]);
        let issues = Server { server: "issues".to_owned(), state, instances: Vec::new(), waits_for, ..git.clone() };
        let error = Some("npx could not be started".to_owned());
        let (state, instances, tools_of) = (State::Failed, Vec::new(), None);
        let files = Server { server: "files".to_owned(), state, instances, tools: tools_of, error, ..git.clone() };
        let expect = [
            "git     running            1 tool        pid 7, 80 MB, 2025-11-25  uvx mcp-server-git",
            "files   failed             not seen yet                            uvx mcp-server-git",
            "  npx could not be started",
            "issues  waiting for TOKEN  1 tool                                  uvx mcp-server-git",
        ];
        assert_eq!(listing(&[git.clone(), files, issues]), expect);
        let from = Some("/w/.mcp.json".into());
        let waits = Server { state: State::Untrusted, instances: Vec::new(), tools: None, from, ..git.clone() };
        let expect = ["git  not trusted yet: `linger trust`      uvx mcp-server-git", "  from /w/.mcp.json"];
        assert_eq!(listing(&[waits]), expect);
        assert_eq!(tools(&git), ["mcp__git__log  Shows."]);
        assert_eq!(listing(&[]).len(), 1);
    }
}
