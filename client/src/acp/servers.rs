//! The editor's MCP servers, as the servers of one session: the daemon starts them, so they outlive the editor.

use agent_client_protocol_schema::v1::{Error, ErrorCode, McpServer};
use linger_protocol::mcp::SessionServer;

/// The longest name that the daemon takes.
const MAX_NAME: usize = 32;

/// The servers that an editor names. Fails for one that cannot be used, and says which.
pub(super) fn servers(given: Vec<McpServer>) -> Result<Vec<SessionServer>, Error> {
    given.into_iter().map(server).collect()
}

fn server(given: McpServer) -> Result<SessionServer, Error> {
    Ok(match given {
        McpServer::Stdio(stdio) => SessionServer {
            server: name(&stdio.name),
            command: Some(stdio.command.to_string_lossy().into_owned()),
            args: stdio.args,
            env: stdio.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            ..SessionServer::default()
        },
        McpServer::Http(http) => SessionServer {
            server: name(&http.name),
            url: Some(http.url),
            headers: http.headers.into_iter().map(|header| (header.name, header.value)).collect(),
            ..SessionServer::default()
        },
        McpServer::Sse(sse) => {
            let why = "uses SSE, which MCP has replaced; give it type `http`";
            return Err(wrong(&sse.name, why));
        }
        _ => {
            return Err(wrong(
                "of an unknown type",
                "cannot be used: linger supports programs and addresses of type `http`",
            ));
        }
    })
}

fn wrong(name: &str, why: &str) -> Error {
    Error::new(ErrorCode::InvalidParams.into(), format!("the MCP server {name} {why}"))
}

/// A name that tools can have in theirs: editors show any text.
fn name(shown: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut name = String::new();
    for c in shown.chars().map(fits) {
        if name.len() < MAX_NAME && !(c == '_' && name.ends_with('_')) {
            name.push(c);
        }
    }
    name.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_editor_calls_a_server_becomes_a_name_for_tools() {
        let check = |shown: &str, expect: &str| assert_eq!(name(shown), expect);
        check("files", "files");
        check("My files (local)", "My_files_local");
        check("a__b_", "a_b");
        check(&"x".repeat(40), &"x".repeat(32));
    }

    #[test]
    fn programs_and_addresses_are_taken_and_others_named() {
        let read = |json: serde_json::Value| servers(vec![serde_json::from_value(json).unwrap()]);
        let stdio = read(serde_json::json!({
            "name": "a", "command": "/bin/a", "args": ["x"], "env": [{ "name": "T", "value": "v" }] }));
        let stdio = stdio.unwrap().remove(0);
        assert_eq!((stdio.command.as_deref(), stdio.env["T"].as_str()), (Some("/bin/a"), "v"));
        let http = read(serde_json::json!({
            "type": "http", "name": "b", "url": "http://h/", "headers": [{ "name": "X", "value": "v" }] }));
        let http = http.unwrap().remove(0);
        assert_eq!((http.url.as_deref(), http.headers["X"].as_str()), (Some("http://h/"), "v"));
        let sse = read(serde_json::json!({ "type": "sse", "name": "c", "url": "http://h/", "headers": [] }));
        assert!(sse.unwrap_err().message.contains("MCP server c uses SSE"));
    }
}
