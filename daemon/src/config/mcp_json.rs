//! The servers in a workspace's `.mcp.json`, which other programs read too: `{"mcpServers": {"NAME": {"command": …}}}`.
//!
//! Pure. Keys that other programs have and linger has no use for are ignored. A server that cannot be used is left out, with the
//! reason; the others count.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use linger_protocol::variable::has_key_prefix;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

use super::source::{ConfigError, dotted, position};
use crate::mcp::settings::ServerConfig;

/// The file, below the root of a workspace.
pub const MCP_JSON: &str = ".mcp.json";

/// The key of its servers, there and in the settings of a workspace.
pub(super) const SERVERS: &str = "mcpServers";

/// The most servers that are read from it: each is a process.
const MAX_SERVERS: usize = 64;

/// The most problems that are told, for a notice is to be read.
const MAX_PROBLEMS: usize = 32;

/// The servers of the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed {
    /// The tables of those that can be used, with the keys of `[mcp.NAME]`.
    pub(super) servers: Map<String, Value>,
    /// The line of each of them, from 1.
    pub(super) lines: BTreeMap<String, usize>,
    /// Why others are left out, a line each.
    pub(super) problems: Vec<String>,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow, rename = "mcpServers")]
    servers: Members<'a>,
}

/// The members of an object in their order, each value as it is written: where it lies in the text gives its line.
struct Members<'a>(Vec<(String, &'a RawValue)>);

/// A server as the file has it.
#[derive(Deserialize)]
#[serde(expecting = "a table")]
struct JsonServer {
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

/// A fault of a server: the path of the key in it, the byte of the file, and the reason.
struct Wrong {
    key: Vec<String>,
    at: usize,
    why: String,
}

/// A server's value in the text of the file.
#[derive(Clone, Copy)]
struct JsonPlace<'a> {
    file: &'a str,
    server: &'a RawValue,
}

impl<'a> JsonPlace<'a> {
    /// The byte of the file at which a piece of it begins.
    fn offset(self, piece: &str) -> usize {
        (piece.as_ptr() as usize).saturating_sub(self.file.as_ptr() as usize)
    }

    /// A problem with a key of the server, or of a table in it; without a key, with the server.
    fn wrong(self, key: &[&str], why: impl Into<String>) -> Wrong {
        let mut at = self.server;
        for part in key {
            let members: Result<Members<'a>, _> = serde_json::from_str(at.get());
            match members.ok().and_then(|Members(all)| all.into_iter().find(|(name, _)| name == part)) {
                Some((_, value)) => at = value,
                None => break,
            }
        }
        let key = key.iter().map(|part| (*part).to_owned()).collect();
        Wrong { key, at: self.offset(at.get()), why: why.into() }
    }
}

/// Reads the text of `file`, the `.mcp.json` of the workspace with this root. Fails if it is no such file at all.
pub(super) fn parse(text: &str, file: &Path, root: &Path) -> Result<Parsed, ConfigError> {
    let error = |at: usize, key: String, message: String| {
        let (line, column) = position(text, at);
        ConfigError { file: file.to_path_buf(), line, column, key, message }
    };
    let File { servers: Members(servers) } = serde_json::from_str(text).map_err(|wrong| {
        let (at, message) = explained(&wrong, text);
        error(at, String::new(), message)
    })?;
    let mut parsed = Parsed::default();
    for (name, value) in servers {
        let place = JsonPlace { file: text, server: value };
        let at = place.offset(value.get());
        match server(&name, place, root) {
            Ok(None) => {}
            Err(_) if parsed.problems.len() >= MAX_PROBLEMS => {}
            Ok(Some(_)) if parsed.servers.len() >= MAX_SERVERS => {
                let why = format!("servers after the first {MAX_SERVERS} are left out");
                parsed.problems.push(error(at, String::new(), why).to_string());
                break;
            }
            Ok(Some(table)) => {
                parsed.lines.insert(name.clone(), position(text, at).0);
                parsed.servers.insert(name, table);
            }
            Err(Wrong { key, at, why }) => {
                let path: Vec<&str> = [SERVERS, &name].into_iter().chain(key.iter().map(String::as_str)).collect();
                parsed.problems.push(error(at, dotted(&path), why).to_string());
            }
        }
    }
    Ok(parsed)
}

/// The byte of an error in the text that was read, and the message without its place.
fn explained(error: &serde_json::Error, text: &str) -> (usize, String) {
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    (before + error.column().saturating_sub(1), message)
}

/// The table of a server, without what has its usual value; absent if it is switched off.
fn server(name: &str, place: JsonPlace<'_>, root: &Path) -> Result<Option<Value>, Wrong> {
    let raw = place.server.get();
    let written = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(raw));
    let written: JsonServer = written.map_err(|error| {
        let key = error.path().iter().map(|part| match part {
            Segment::Seq { index } => format!("[{index}]"),
            part => part.to_string(),
        });
        let (at, why) = explained(error.inner(), raw);
        Wrong { key: key.collect(), at: place.offset(raw) + at, why }
    })?;
    let JsonServer { transport, command, args, env, cwd, url, headers, timeout, disabled } = written;
    if disabled {
        return Ok(None);
    }
    match (transport.as_deref(), &command, &url) {
        (None, ..)
        | (Some("stdio"), Some(_), _)
        | (Some("http" | "streamable-http" | "streamableHttp"), _, Some(_)) => {}
        (Some("stdio"), None, _) => return Err(place.wrong(&["type"], "the type stdio needs `command`")),
        (Some("http" | "streamable-http" | "streamableHttp"), _, None) => {
            return Err(place.wrong(&["type"], "the type http needs `url`"));
        }
        (Some("sse"), ..) => {
            let why = "the type sse, of before 2025-03-26, is not supported; most such servers speak http too";
            return Err(place.wrong(&["type"], why));
        }
        (Some(other), ..) => {
            return Err(place.wrong(&["type"], format!("unknown type {other:?}; linger knows stdio and http")));
        }
    }
    let mut table = Map::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key.to_owned(), value));
    if let Some(command) = command {
        put("command", json!(command));
    }
    if let Some(url) = url {
        put("url", json!(url));
    }
    if !args.is_empty() {
        put("args", json!(args));
    }
    for (key, values) in [("env", env), ("headers", headers)] {
        if !values.is_empty() {
            let values = texts(values).map_err(|name| place.wrong(&[key, &name], "is not a text"))?;
            put(key, Value::Object(values));
        }
    }
    if let Some(cwd) = cwd {
        put("cwd", json!(linger_protocol::path::text(&root.join(cwd))));
    }
    if let Some(timeout) = timeout {
        put("timeout_s", json!(timeout.div_ceil(1000).max(1)));
    }
    let table = Value::Object(table);
    let config = ServerConfig::deserialize(&table).map_err(|error| place.wrong(&[], error.to_string()))?;
    config.check(name).map_err(|(key, why)| match key {
        "" => place.wrong(&[], why),
        // It is in milliseconds here.
        "timeout_s" => place.wrong(&["timeout"], format!("in seconds, it {why}")),
        key => place.wrong(&[key], why),
    })?;
    // It would be stored with what is trusted.
    let mut words = config.texts().flat_map(|text| text.split_whitespace());
    if let Some(key) = words.find(|word| has_key_prefix(word)) {
        let why = "a key is in the file; write `${NAME}`, and keep the key in the variable of that name";
        let at = place.offset(raw) + raw.find(key).unwrap_or_default();
        return Err(Wrong { key: Vec::new(), at, why: why.to_owned() });
    }
    Ok(Some(table))
}

/// The values as texts; numbers and truth values are written so by some. Fails with the name of one that is neither.
fn texts(values: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let text = |(name, value): (String, Value)| match value {
        Value::String(_) => Ok((name, value)),
        Value::Number(_) | Value::Bool(_) => Ok((name, Value::String(value.to_string()))),
        _ => Err(name),
    };
    values.into_iter().map(text).collect()
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<(String, &'de RawValue)> = Vec::new();
        let mut seen = HashMap::new();
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            // The last of one name counts, as for other readers of JSON.
            let at = *seen.entry(name.clone()).or_insert(members.len());
            match members.get_mut(at) {
                Some(member) => member.1 = value,
                None => members.push((name, value)),
            }
        }
        Ok(Members(members))
    }
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
        let Parsed { servers, problems, .. } = parsed(text).unwrap();
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
            let text = format!("{{\"mcpServers\": {{\n \"bad\": {server},\n \"good\": {{\"command\": \"x\"}}}}}}");
            let Parsed { servers, lines, problems } = parsed(&text).unwrap();
            assert_eq!(servers.keys().collect::<Vec<_>>(), ["good"], "{server}");
            assert_eq!(lines["good"], server.matches('\n').count() + 3, "{server}");
            let [problem] = problems.as_slice() else { panic!("{problems:?}") };
            let (place, why) = problem.strip_prefix("/w/.mcp.json:").unwrap().split_once(": mcpServers.bad").unwrap();
            assert!(format!("{place}{why}").starts_with(expect), "{expect}: {problem}");
        };
        check("{}", "2:9: needs `command`");
        check("7", "2:9: invalid type: integer `7`, expected a table");
        check("{\n\"type\": \"sse\",\n\"url\": \"http://h/\"}", "3:9.type: the type sse");
        check("{\n\"url\": \"http://h/\",\n \"type\": \"ws\"}", "4:10.type: unknown type");
        check("{\n\"type\": \"http\", \"command\": \"x\"}", "3:9.type: the type http needs `url`");
        check("{\"é\": 1, \"type\": \"stdio\", \"url\": \"http://h/\"}", "2:26.type: the type stdio needs `command`");
        check("{\"command\": \"x\",\n\"url\": \"http://h/\"}", "3:8.url: has `command` too");
        check("{\n\"url\": \"h/mcp\"}", "3:8.url: is not a URL");
        check("{\"command\": \"x\", \"env\": {\n\"A.B\": []}}", "3:8.env.\"A.B\": is not a text");
        check("{\"command\": \"x\",\n\"args\": [\"a\",\n1]}", "4:1.args[1]: invalid type");
        let key = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
        check(&format!("{{\"command\": \"x\", \"env\": {{\n\n\"A\": \"{key}\"}}}}"), "4:7: a key is in the file");
        check("{\"command\": \"x\",\n\"timeout\": 999999999999}", "3:12.timeout: in seconds");
    }

    #[test]
    fn problems_are_bounded_and_the_last_server_of_a_name_counts() {
        let many: String = (0..1000).map(|n| format!("\"s{n}\": 7, ")).collect();
        let text = format!("{{\"mcpServers\": {{{many}\"a\": 7, \"a\": {{\"command\": \"x\"}}}}}}");
        let Parsed { servers, problems, .. } = parsed(&text).unwrap();
        assert_eq!((servers.len(), servers.contains_key("a"), problems.len()), (1, true, MAX_PROBLEMS));
    }

    #[test]
    fn a_broken_file_is_an_error_with_its_place() {
        for (text, expect) in [
            ("{\n \"mcpServers\": {", "/w/.mcp.json:2:16: EOF"),
            ("{\n \"mcpServers\": {},\n \"é\": x}", "/w/.mcp.json:3:7: expected value"),
            ("{}", "/w/.mcp.json:1:2: missing field `mcpServers`"),
            ("[]", "/w/.mcp.json:1:"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(expect), "{text}: {error}");
        }
    }
}
