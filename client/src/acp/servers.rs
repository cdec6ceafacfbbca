//! The editor's MCP servers, as the servers of one session: the daemon starts them, so they outlive the editor.
//!
//! An editor sends whatever its user configured, so each server is read on its own: one that cannot be used is left out
//! with a note, and the session opens without it.

use agent_client_protocol_schema::v1::{McpServerHttp, McpServerStdio};
use linger_protocol::mcp::SessionServer;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The longest name that the daemon takes.
const MAX_NAME: usize = 32;

/// The name of a server whose own name has no letter that a tool's name can have.
const NAMELESS: &str = "server";

/// The most characters of a server's name, or of a reason, in a note.
const MAX_SHOWN: usize = 80;

/// The servers that an editor names.
#[derive(Debug, Default)]
pub(super) struct EditorServers {
    /// The servers that can be used, each with a name of its own.
    pub(super) usable: Vec<SessionServer>,
    /// Notes for the user: servers that were left out or have another name here.
    pub(super) notes: Vec<String>,
}

impl EditorServers {
    /// Takes `mcpServers` out of the params of a request; what is left has none.
    pub(super) fn take(params: &mut Value) -> Self {
        let Some(params) = params.as_object_mut() else { return Self::default() };
        match params.insert("mcpServers".to_owned(), json!([])) {
            Some(Value::Array(given)) => Self::read(given),
            None | Some(Value::Null) => Self::default(),
            Some(_) => {
                Self { notes: vec!["`mcpServers` is not a list; no MCP server is used".to_owned()], ..Self::default() }
            }
        }
    }

    /// Leaves out the programs: a daemon on another machine would start them there.
    pub(super) fn without_programs(mut self) -> Self {
        for server in self.usable.extract_if(.., |server| server.command.is_some()) {
            self.notes.push(left_out(&server.server, "it would start on the other machine"));
        }
        self
    }

    fn read(given: Vec<Value>) -> Self {
        let mut servers = Self::default();
        for given in given {
            let shown = given.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned();
            match server(given) {
                Ok(server) => servers.add(&shown, server),
                Err(why) => servers.notes.push(left_out(&shown, &why)),
            }
        }
        servers
    }

    /// Adds a server under a name that no other has. The same server given twice is one.
    fn add(&mut self, shown: &str, server: SessionServer) {
        let same = |other: &SessionServer| *other == SessionServer { server: other.server.clone(), ..server.clone() };
        if self.usable.iter().any(same) {
            return;
        }
        let clean = name(shown);
        let base = if clean.is_empty() { NAMELESS } else { &clean };
        let is_taken = |name: &str| self.usable.iter().any(|other| other.server == name);
        let numbered = (2..).map(|n| with_number(base, n));
        let name = std::iter::once(base.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default();
        if name != clean {
            self.notes.push(format!("the MCP server {} is called {name} here", short(shown)));
        }
        self.usable.push(SessionServer { server: name, ..server });
    }
}

/// The note about a server that the session does not have.
pub(super) fn left_out(shown: &str, why: &str) -> String {
    format!("the MCP server {} is left out: {}", short(shown), short(why))
}

/// A server as the daemon takes it, without a name. Fails with the reason why it cannot be used.
fn server(mut given: Value) -> Result<SessionServer, String> {
    let Some(fields) = given.as_object_mut() else { return Err("it is not an object".to_owned()) };
    let kind = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    let has_address_alone = fields.contains_key("url") && !fields.contains_key("command");
    match kind.as_deref() {
        Some("sse") => Err("it uses SSE, which MCP has replaced; give it type `http`".to_owned()),
        Some("http" | "streamable-http" | "streamableHttp") => http(fields),
        None if has_address_alone => http(fields),
        None | Some("stdio") => stdio(fields),
        Some(other) => {
            Err(format!("its type `{other}` is unknown; linger takes programs, and addresses of type `http`"))
        }
    }
}

fn stdio(fields: &mut Map<String, Value>) -> Result<SessionServer, String> {
    fields.entry("args").or_insert_with(|| json!([]));
    pairs(fields, "env");
    let stdio: McpServerStdio = parse(fields)?;
    let command = stdio.command.to_string_lossy().into_owned();
    if command.trim().is_empty() {
        return Err("its `command` is empty".to_owned());
    }
    let env = stdio.env.into_iter().map(|variable| (variable.name, variable.value)).collect();
    Ok(SessionServer { command: Some(command), args: stdio.args, env, ..SessionServer::default() })
}

fn http(fields: &mut Map<String, Value>) -> Result<SessionServer, String> {
    pairs(fields, "headers");
    let http: McpServerHttp = parse(fields)?;
    let headers = http.headers.into_iter().map(|header| (header.name, header.value)).collect();
    Ok(SessionServer { url: Some(http.url), headers, ..SessionServer::default() })
}

fn parse<T: DeserializeOwned>(fields: &mut Map<String, Value>) -> Result<T, String> {
    fields.entry("name").or_insert_with(|| json!(""));
    serde_json::from_value(Value::Object(std::mem::take(fields))).map_err(|error| error.to_string())
}

/// Brings names with values into ACP's form, a list: an object is what configurations of servers have.
fn pairs(fields: &mut Map<String, Value>, key: &str) {
    let list = match fields.get(key) {
        None => json!([]),
        Some(Value::Object(pairs)) => {
            pairs.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect::<Value>()
        }
        Some(_) => return,
    };
    fields.insert(key.to_owned(), list);
}

/// A name that tools can have in theirs: editors show any text. Empty if nothing of it is left.
fn name(shown: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut name = String::new();
    for c in shown.chars().map(fits) {
        if name.len() < MAX_NAME && !(c == '_' && name.ends_with('_')) {
            name.push(c);
        }
    }
    let name = name.trim_matches('_');
    if name.chars().any(|c| c.is_ascii_alphanumeric()) { name.to_owned() } else { String::new() }
}

/// `base_n`, cut to what the daemon takes.
fn with_number(base: &str, n: usize) -> String {
    let number = format!("_{n}");
    let kept = base.get(..MAX_NAME - number.len()).unwrap_or(base).trim_end_matches('_');
    format!("{kept}{number}")
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(servers: Value) -> EditorServers {
        let mut params = json!({ "cwd": "/w", "mcpServers": servers });
        let read = EditorServers::take(&mut params);
        assert_eq!(params, json!({ "cwd": "/w", "mcpServers": [] }));
        read
    }

    fn names(servers: &EditorServers) -> Vec<&str> {
        servers.usable.iter().map(|server| server.server.as_str()).collect()
    }

    #[test]
    fn what_an_editor_calls_a_server_becomes_a_name_for_tools() {
        let check = |shown: &str, expect: &str| assert_eq!(name(shown), expect);
        check("files", "files");
        check("My files (local)", "My_files_local");
        check("a__b_", "a_b");
        check("日本", "");
        check("- -", "");
        check(&"x".repeat(40), &"x".repeat(32));
    }

    #[test]
    fn each_server_has_a_name_of_its_own_in_whichever_script_it_was_written() {
        let named = |name: &str| json!({ "name": name, "command": format!("/bin/{name}"), "args": [], "env": [] });
        let long = "x".repeat(40);
        let all = ["日本", "a b", "a_b", "Москва", &long, &format!("{long}y"), "a_b_2", ""];
        let read = read(all.into_iter().map(named).collect());
        let cut = "x".repeat(30);
        let expect =
            ["server", "a_b", "a_b_2", "server_2", &"x".repeat(32), &format!("{cut}_2"), "a_b_2_2", "server_3"];
        assert_eq!(names(&read), expect);
        assert!(read.notes.contains(&"the MCP server 日本 is called server here".to_owned()), "{:?}", read.notes);
        assert!(!read.notes.iter().any(|note| note.contains("server a b is")), "{:?}", read.notes);
    }

    #[test]
    fn the_same_server_given_twice_is_one() {
        let server = json!({ "name": "a", "command": "/bin/a" });
        assert_eq!(names(&read(json!([server, server]))), ["a"]);
    }

    #[test]
    fn programs_and_addresses_are_taken() {
        let servers = read(json!([
            { "name": "a", "command": "/bin/a", "args": ["x"], "env": [{ "name": "T", "value": "v" }] },
            { "type": "http", "name": "b", "url": "http://h/", "headers": [{ "name": "X", "value": "v" }] },
            { "name": "c", "url": "http://i/", "headers": { "X": "w" } },
            { "type": "stdio", "name": "d", "command": "npx", "env": { "T": "w" } },
        ]));
        let [a, b, c, d] = servers.usable.as_slice() else { panic!("{servers:?}") };
        assert_eq!((a.command.as_deref(), a.env["T"].as_str()), (Some("/bin/a"), "v"));
        assert_eq!((b.url.as_deref(), b.headers["X"].as_str()), (Some("http://h/"), "v"));
        assert_eq!((c.url.as_deref(), c.headers["X"].as_str()), (Some("http://i/"), "w"));
        assert_eq!((d.command.as_deref(), d.env["T"].as_str()), (Some("npx"), "w"));
        assert_eq!(servers.notes, Vec::<String>::new());
    }

    #[test]
    fn a_server_that_cannot_be_used_is_left_out_and_named() {
        let check = |server: Value, expect: &str| {
            let servers = read(json!([server, { "name": "good", "command": "/bin/a" }]));
            assert_eq!(names(&servers), ["good"], "{servers:?}");
            assert!(servers.notes[0].contains(expect), "{:?}", servers.notes);
        };
        check(json!({ "type": "sse", "name": "old", "url": "http://h/" }), "MCP server old is left out: it uses SSE");
        check(json!({ "name": "none", "args": [] }), "MCP server none is left out: missing field `command`");
        check(json!({ "name": "blank", "command": " " }), "`command` is empty");
        check(json!({ "type": "http", "name": "far" }), "missing field `url`");
        check(json!({ "type": "acp", "name": "x", "id": "1" }), "type `acp` is unknown");
        check(json!({ "name": "x", "command": 5 }), "invalid type");
        check(json!("x"), "not an object");
        check(json!(null), "server without a name is left out");
        let servers = read(json!("none"));
        assert_eq!((names(&servers).len(), servers.notes.len()), (0, 1));
        assert_eq!(names(&EditorServers::take(&mut json!({ "cwd": "/w" }))).len(), 0);
    }
}
