//! The servers in a workspace's `.mcp.json`, which other programs read too: `{"mcpServers": {"NAME": {"command": …}}}`.
//!
//! Pure. Keys that other programs have and linger has no use for are ignored. A server that cannot be used is left out, with the
//! reason; the others count.

use std::path::Path;

use linger_protocol::variable::has_key_prefix;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::source::{ConfigError, dotted};
use crate::mcp::settings::ServerConfig;

/// The file, below the root of a workspace.
pub const MCP_JSON: &str = ".mcp.json";

/// The key of its servers, there and in the settings of a workspace.
pub(super) const SERVERS: &str = "mcpServers";

/// The most servers that are read from it: each is a process.
const MAX_SERVERS: usize = 64;

/// The servers of the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed {
    /// The tables of those that can be used, with the keys of `[mcp.NAME]`.
    pub(super) servers: Map<String, Value>,
    /// Why others are left out, a line each.
    pub(super) problems: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers")]
    servers: Map<String, Value>,
}

/// A server as the file has it.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "type")]
    transport: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Map<String, Value>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: Map<String, Value>,
    /// How long a call may take, in milliseconds.
    timeout: Option<u64>,
    #[serde(default)]
    disabled: bool,
}

/// Reads the text of `file`, the `.mcp.json` of the workspace with this root. Fails if it is no such file at all.
pub(super) fn parse(text: &str, file: &Path, root: &Path) -> Result<Parsed, ConfigError> {
    let File { servers } = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        // The position is in the error already.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        ConfigError { file: file.to_path_buf(), line, column, key: String::new(), message }
    })?;
    let mut parsed = Parsed::default();
    for (name, value) in servers {
        match server(&name, value, root) {
            Ok(None) => {}
            Ok(Some(_)) if parsed.servers.len() >= MAX_SERVERS => {
                parsed.problems.push(format!("{}: servers after the first {MAX_SERVERS} are left out", file.display()));
                break;
            }
            Ok(Some(table)) => drop(parsed.servers.insert(name, table)),
            Err(why) => parsed.problems.push(format!("{}: {}: {why}", file.display(), dotted(&[SERVERS, &name]))),
        }
    }
    Ok(parsed)
}

/// The table of a server, without what has its usual value; absent if it is switched off.
fn server(name: &str, value: Value, root: &Path) -> Result<Option<Value>, String> {
    let written = Written::deserialize(value).map_err(|error| error.to_string())?;
    let Written { transport, command, args, env, cwd, url, headers, timeout, disabled } = written;
    if disabled {
        return Ok(None);
    }
    match (transport.as_deref(), &command, &url) {
        (None, ..)
        | (Some("stdio"), Some(_), _)
        | (Some("http" | "streamable-http" | "streamableHttp"), _, Some(_)) => {}
        (Some("stdio"), None, _) => return Err("the type stdio needs `command`".to_owned()),
        (Some("http" | "streamable-http" | "streamableHttp"), _, None) => {
            return Err("the type http needs `url`".to_owned());
        }
        (Some("sse"), ..) => {
            return Err(
                "the type sse, of before 2025-03-26, is not supported; most such servers speak http too".to_owned()
            );
        }
        (Some(other), ..) => return Err(format!("unknown type {other:?}; linger knows stdio and http")),
    }
    let mut table = Map::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
    command.into_iter().for_each(|command| put("command", json!(command)));
    url.into_iter().for_each(|url| put("url", json!(url)));
    if !args.is_empty() {
        put("args", json!(args));
    }
    for (key, values) in [("env", env), ("headers", headers)] {
        if !values.is_empty() {
            put(key, Value::Object(texts(key, values)?));
        }
    }
    cwd.into_iter().for_each(|cwd| put("cwd", json!(root.join(cwd))));
    timeout.into_iter().for_each(|timeout| put("timeout_s", json!(timeout.div_ceil(1000).max(1))));
    let table = Value::Object(table);
    let config = ServerConfig::deserialize(&table).map_err(|error| error.to_string())?;
    config.check(name).map_err(|(key, why)| if key.is_empty() { why } else { format!("{key}: {why}") })?;
    // It would be stored with what is trusted.
    if config.texts().any(|text| text.split_whitespace().any(has_key_prefix)) {
        return Err("a key is in the file; write `${NAME}`, and keep the key in the variable of that name".to_owned());
    }
    Ok(Some(table))
}

/// The values as texts; numbers and truth values are written so by some.
fn texts(key: &str, values: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(_) => Ok((name, value)),
        Value::Number(_) | Value::Bool(_) => Ok((name, Value::String(value.to_string()))),
        _ => Err(format!("{key}.{name}: is not a text")),
    };
    values.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Parsed, String> {
        parse(text, Path::new("/w/.mcp.json"), Path::new("/w")).map_err(|error| error.to_string())
    }

    #[test]
    fn servers_are_read_as_other_programs_write_them() {
        let text = r#"{"mcpServers": {
            "git": {"command": "uvx", "args": ["mcp-server-git", "${X:-y}"], "env": {"A": "b", "N": 1}, "alwaysAllow": []},
            "web": {"type": "http", "url": "https://h/mcp", "headers": {"X-Key": "${KEY}"}, "timeout": 1500},
            "here": {"type": "stdio", "command": "./serve", "cwd": "sub"},
            "off": {"command": "x", "disabled": true}}, "inputs": []}"#;
        let Parsed { servers, problems } = parsed(text).unwrap();
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            Value::Object(servers),
            json!({
                "git": { "command": "uvx", "args": ["mcp-server-git", "${X:-y}"], "env": { "A": "b", "N": "1" } },
                "web": { "url": "https://h/mcp", "headers": { "X-Key": "${KEY}" }, "timeout_s": 2 },
                "here": { "command": "./serve", "cwd": "/w/sub" },
            })
        );
    }

    #[test]
    fn a_server_that_cannot_be_used_is_named_and_the_others_count() {
        let check = |server: &str, expect: &str| {
            let text = format!(r#"{{"mcpServers": {{"bad": {server}, "good": {{"command": "x"}}}}}}"#);
            let Parsed { servers, problems } = parsed(&text).unwrap();
            assert_eq!(servers.keys().collect::<Vec<_>>(), ["good"], "{server}");
            assert!(problems.len() == 1 && problems[0].starts_with("/w/.mcp.json: mcpServers.bad: "), "{problems:?}");
            assert!(problems[0].contains(expect), "{problems:?}");
        };
        check("{}", "needs `command`");
        check("7", "invalid type");
        check(r#"{"type": "sse", "url": "http://h/"}"#, "is not supported");
        check(r#"{"type": "ws", "url": "http://h/"}"#, "unknown type");
        check(r#"{"type": "http", "command": "x"}"#, "needs `url`");
        check(r#"{"type": "stdio", "url": "http://h/"}"#, "needs `command`");
        check(r#"{"command": "x", "env": {"A": []}}"#, "env.A");
        check(r#"{"command": "x", "env": {"A": "ghp_0123456789abcdefghijklmnopqrstuvwxyz"}}"#, "a key is in the file");
        check(r#"{"command": "x", "timeout": 999999999999}"#, "timeout_s");
    }

    #[test]
    fn a_broken_file_is_an_error_with_its_place() {
        for (text, expect) in [
            ("{\n \"mcpServers\": {", "/w/.mcp.json:2:16: EOF"),
            ("{}", "/w/.mcp.json:1:2: missing field `mcpServers`"),
            ("[]", "/w/.mcp.json:1:"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(expect), "{text}: {error}");
        }
    }
}
