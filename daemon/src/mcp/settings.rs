//! The settings of a server, `[mcp.NAME]`, and their consequences.
//!
//! Pure. Deliberately absent: where the table is read from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linger_protocol::mcp::Scope;
use linger_protocol::token::Can;
use serde::{Deserialize, Serialize};

use crate::provider::address;

/// The newest revision of the protocol that begins with a handshake.
pub(super) const PROTOCOL: &str = "2025-11-25";

/// The revision in which each request says what it speaks.
pub(super) const PER_REQUEST: &str = "2026-07-28";

/// The longest name of a server, in bytes: it is a part of each tool's name, which has 64.
const MAX_NAME: usize = 32;

/// The longest time limits that can be configured, in seconds.
const MAX_START_S: u64 = 600;
const MAX_CALL_S: u64 = 24 * 3600;

/// The directory of a workspace with a server in each Markdown file.
pub const SERVER_FILES: &str = ".linger/mcp";

/// The variables of a session that a server gets: what programs need to find their things.
const BASE_ENV: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TZ", "SHELL", "NVM_DIR"];

/// `[mcp.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct ServerConfig {
    /// The program of a server that is a child of the daemon.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables, beside those that every program needs.
    pub env: BTreeMap<String, String>,
    /// Its directory; absent: the root of the workspace.
    #[serde(with = "linger_protocol::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// The address of a server that runs already.
    pub url: Option<String>,
    /// Headers of each request to it.
    pub headers: BTreeMap<String, String>,
    /// The client at the authorization server of its logins; without one, linger registers itself.
    #[serde(skip_serializing_if = "OAuth::is_default")]
    pub oauth: OAuth,
    /// Whether a turn waits until it runs, and fails without it.
    pub required: bool,
    /// When models are to use it; told to them with its first tool.
    pub about: Option<String>,
    /// Who shares one process; absent: follows from `cwd` and `url`.
    pub scope: Option<Scope>,
    /// The tools that models get; absent: all.
    pub tools: Option<BTreeSet<String>>,
    /// The revision of the protocol that it speaks; absent: found out.
    pub protocol: Option<String>,
    /// Rights over the daemon's socket for it and the processes it starts; only the user's own configuration can give them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub can: Vec<Can>,
    /// How long it may take to start, in seconds.
    pub start_timeout_s: u64,
    /// How long a call may go without progress, in seconds.
    pub timeout_s: u64,
    /// Whether only `env` and `headers` name variables, and the other texts are as they are: a client brought it for a session.
    #[serde(skip)]
    pub is_literal: bool,
}

/// A client that is known to an authorization server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct OAuth {
    /// Its name there; an `https` address is that of its metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The client's secret; `${NAME}` keeps it out of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The only authorization server that gets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

impl OAuth {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Why it cannot be used.
    fn problem(&self) -> Option<&'static str> {
        let Self { client_id, client_secret, issuer } = self;
        match (client_id, client_secret, issuer) {
            (None, None, None) => None,
            (None, ..) => Some("needs `client_id`"),
            // Else the server could name another one, which would get the secret.
            (_, Some(_), None) => {
                Some("has `client_secret`, and needs `issuer`, the address of the authorization server that it is for")
            }
            _ => None,
        }
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.client_id.iter().chain(&self.client_secret).chain(&self.issuer)
    }
}

/// A server of the files of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceServer {
    /// Its settings.
    pub config: ServerConfig,
    /// The file, below the root.
    pub file: &'static str,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            oauth: OAuth::default(),
            required: false,
            about: None,
            scope: None,
            tools: None,
            protocol: None,
            can: Vec::new(),
            start_timeout_s: 30,
            timeout_s: 300,
            is_literal: false,
        }
    }
}

impl ServerConfig {
    /// Checks the settings; fails with the key that is at fault, and the reason.
    pub fn check(&self, name: &str) -> Result<(), (&'static str, String)> {
        let wrong = |key, why: &str| Err((key, why.to_owned()));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.chars().all(is_name)
            || name.contains("__")
            || name.ends_with('_')
        {
            // Else two servers could have a tool of the same name.
            let why = format!(
                "a server's name has at most {MAX_NAME} letters, digits, `-` and `_`, no `__`, and no `_` at its end"
            );
            return Err(("", why));
        }
        match (&self.command, &self.url) {
            (None, None) => return wrong("", "needs `command`, the program to run, or `url`, the address of a server"),
            (Some(_), Some(_)) => return wrong("url", "has `command` too; a server has one of the two"),
            (Some(command), None) if command.trim().is_empty() => return wrong("command", "is empty"),
            (Some(_), None) if !self.headers.is_empty() => return wrong("headers", "goes with `url`"),
            (Some(_), None) if !self.oauth.is_default() => return wrong("oauth", "goes with `url`"),
            (None, Some(_)) if !self.args.is_empty() => return wrong("args", "goes with `command`"),
            (None, Some(_)) if !self.env.is_empty() => return wrong("env", "goes with `command`"),
            (None, Some(_)) if !self.can.is_empty() => return wrong("can", "goes with `command`"),
            (None, Some(_)) if self.cwd.is_some() => return wrong("cwd", "goes with `command`"),
            _ => {}
        }
        if let Some(url) = self.url.as_deref().filter(|url| !url.contains("${")) {
            address::web(url).map_err(|problem| ("url", problem))?;
        }
        if let Some(problem) = self.oauth.problem() {
            return wrong("oauth", problem);
        }
        if self.cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
            return wrong("cwd", "must be an absolute path, or begin with ~/");
        }
        if self.scope == Some(Scope::Unknown) {
            return wrong("scope", "must be \"user\", \"workspace\" or \"session\"");
        }
        if !self.can.is_empty() && self.cwd.is_none() && self.command.as_ref().is_some_and(|it| is_relative(it)) {
            // It would be a program of the repository.
            return wrong("command", "must be a name in PATH or an absolute path, as `can` is there");
        }
        if self.can.iter().any(|can| !Can::OF_SERVERS.contains(can)) {
            let most = Can::OF_SERVERS.map(Can::name).join(" and ");
            let why = "a process that the daemon started neither steers, answers nor administers";
            return Err(("can", format!("has {most} at most: {why}")));
        }
        if self.protocol.as_deref().is_some_and(|protocol| ![PROTOCOL, PER_REQUEST].contains(&protocol)) {
            return Err((
                "protocol",
                format!("must be \"{PROTOCOL}\" or \"{PER_REQUEST}\"; without it, linger finds out"),
            ));
        }
        if !(1..=MAX_START_S).contains(&self.start_timeout_s) {
            return Err(("start_timeout_s", format!("must be from 1 to {MAX_START_S}")));
        }
        if !(1..=MAX_CALL_S).contains(&self.timeout_s) {
            return Err(("timeout_s", format!("must be from 1 to {MAX_CALL_S}")));
        }
        Ok(())
    }

    /// Its address or its command, for people.
    pub fn target(&self) -> String {
        let command = || self.command.iter().chain(&self.args).map(String::as_str).collect::<Vec<_>>().join(" ");
        self.url.clone().unwrap_or_else(command)
    }

    /// Who shares one process or connection.
    pub fn scope(&self) -> Scope {
        let fixed = self.cwd.is_some() || self.url.is_some();
        self.scope.unwrap_or(if fixed { Scope::User } else { Scope::Workspace })
    }

    /// How long it may take to start.
    pub fn start_timeout(&self) -> Duration {
        Duration::from_secs(self.start_timeout_s)
    }

    /// How long a call may go without progress.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// Whether models get this tool.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.contains(tool))
    }

    /// Names the server that this starts: its tools are those of every other start. Time limits and the choice of tools
    /// change nothing about that. A server of a workspace's files is another one in each workspace (`of`): a relative command
    /// is a program of the repository.
    pub fn identity(&self, of: Option<&Path>) -> String {
        let Self { command, args, env, cwd, url, headers, .. } = self;
        let mut server = serde_json::json!({
            "command": command, "args": args, "env": env, "cwd": cwd.as_deref().map(linger_protocol::path::text), "url": url, "headers": headers,
        });
        if let (Some(root), Some(server)) = (of, server.as_object_mut()) {
            server.insert("workspace".to_owned(), serde_json::json!(root));
        }
        crate::question::permission::hash(&server)
    }

    /// The variables that it names as `${NAME}` or `${NAME:-otherwise}`.
    pub fn variables(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for text in self.texts() {
            // What is missing does not matter here.
            let _named = expand(text, |name| {
                names.insert(name.to_owned());
                Some(String::new())
            });
        }
        names
    }

    /// The variables without a value and a default, so that it cannot be started.
    pub fn missing(&self, has: impl Fn(&str) -> bool) -> Vec<String> {
        let mut missing = BTreeSet::new();
        for text in self.texts() {
            // Each goes on as if the one before was there.
            while let Err(name) = expand(text, |name| (has(name) || missing.contains(name)).then(String::new)) {
                missing.insert(name);
            }
        }
        missing.into_iter().collect()
    }

    /// The same with the values of its variables; fails with the name of one that is not set and has no default.
    pub fn expanded(&self, value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut config = self.clone();
        let Self { command, args, env, url, headers, oauth, is_literal, .. } = &mut config;
        let OAuth { client_id, client_secret, issuer } = oauth;
        let literal = command.iter_mut().chain(args).chain(url).chain(client_id).chain(client_secret).chain(issuer);
        for text in env.values_mut().chain(headers.values_mut()).chain(literal.filter(|_| !*is_literal)) {
            *text = expand(text, &value)?;
        }
        Ok(config)
    }

    /// The texts that can name variables.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let Self { command, args, env, url, headers, oauth, is_literal, .. } = self;
        let literal = command.iter().chain(args).chain(url).chain(oauth.texts()).filter(move |_| !*is_literal);
        literal.chain(env.values()).chain(headers.values())
    }

    /// Whether every program gets this variable. Proxies are left out: their addresses can have passwords.
    pub fn is_base(name: &str) -> bool {
        BASE_ENV.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
    }

    /// The variables of a session that every program needs; a server gets its own `env` in addition.
    pub fn environment(session: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
        let base = session
            .iter()
            .filter(|(name, _)| Self::is_base(name) || proxies.contains(&name.to_ascii_uppercase().as_str()));
        base.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Whether a command is a path below the directory in which it is started.
fn is_relative(command: &str) -> bool {
    command.contains('/') && !Path::new(command).is_absolute()
}

/// The name among the daemon's keys of a variable that a client brought for the files of a workspace: no variable's own name.
pub fn variable_of(root: &Path, name: &str) -> String {
    format!("{name} of {}", root.display())
}

/// `text` with the values of `${NAME}` and `${NAME:-otherwise}`; a bare `$NAME` is text.
fn expand(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((inside, after)) = after.split_once('}') else {
            expanded.push_str("${");
            rest = after;
            continue;
        };
        let (name, otherwise) = inside.split_once(":-").map_or((inside, None), |(name, text)| (name, Some(text)));
        match value(name).or_else(|| otherwise.map(str::to_owned)) {
            Some(value) => expanded.push_str(&value),
            None => return Err(name.to_owned()),
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ServerConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_server_is_a_program_or_an_address() {
        let check = |name: &str, text: &str, expect: Option<&str>| {
            assert_eq!(parse(text).check(name).err().map(|(key, _)| key), expect, "{name}: {text}");
        };
        check("git", "command = 'x'", None);
        check("git", "url = 'http://127.0.0.1:1/mcp'", None);
        check("git", "url = '${BASE}/mcp'", None);
        check("git", "url = 'ftp://h/'", Some("url"));
        check("git", "url = 'h/mcp'", Some("url"));
        check("git", "", Some(""));
        check("a__b", "command = 'x'", Some(""));
        check("a_", "command = 'x'", Some(""));
        check("a b", "command = 'x'", Some(""));
        check("git", "command = 'x'\nurl = 'http://h/'", Some("url"));
        check("git", "command = ' '", Some("command"));
        check("git", "url = 'http://h/'\nargs = ['x']", Some("args"));
        check("git", "command = 'x'\noauth.client_id = 'x'", Some("oauth"));
        check("git", "url = 'http://h/'\noauth.client_id = 'x'", None);
        check("git", "url = 'http://h/'\noauth.issuer = 'x'", Some("oauth"));
        check("git", "url = 'http://h/'\noauth.client_id = 'x'\noauth.client_secret = '${X}'", Some("oauth"));
        check("git", "command = 'x'\ncwd = 'here'", Some("cwd"));
        check("git", "command = 'x'\nprotocol = '2026-07-28'", None);
        check("git", "command = 'x'\nprotocol = 'new'", Some("protocol"));
        check("git", "command = 'x'\ncan = ['speak']", None);
        check("git", "command = 'x'\ncan = ['speak', 'answer_edits']", Some("can"));
        check("git", "command = './x'\ncan = ['speak']", Some("command"));
        check("git", "command = './x'\ncwd = '/srv'\ncan = ['speak']", None);
        check("git", "command = 'x'\nscope = 'worksapce'", Some("scope"));
        check("git", "url = 'http://h/'\ncan = ['speak']", Some("can"));
        check("git", "command = 'x'\ntimeout_s = 0", Some("timeout_s"));
        check("git", "command = 'x'\nstart_timeout_s = 601", Some("start_timeout_s"));
    }

    #[test]
    fn a_server_with_a_place_of_its_own_is_shared_by_all() {
        let check = |text: &str, expect| assert_eq!(parse(text).scope(), expect, "{text}");
        check("command = 'x'", Scope::Workspace);
        check("command = 'x'\ncwd = '/srv'", Scope::User);
        check("url = 'http://h/'", Scope::User);
        check("command = 'x'\ncwd = '/srv'\nscope = 'session'", Scope::Session);
    }

    #[test]
    fn it_is_another_server_only_if_it_starts_otherwise() {
        let one = parse("command = 'x'").identity(None);
        assert_eq!(parse("command = 'x'\ntimeout_s = 9\nrequired = true\ntools = ['a']").identity(None), one);
        assert_ne!(parse("command = 'x'\nargs = ['y']").identity(None), one);
        assert_ne!(parse("command = 'x'\nenv.A = 'b'").identity(None), one);
        assert_ne!(parse("command = 'x'").identity(Some(Path::new("/w"))), one);
    }

    #[test]
    fn variables_are_named_and_put_in() {
        let config = parse("command = 'x'\nargs = ['${A}', '$B', '${C:-see}', '${']\nenv.KEY = 'is ${A}${D}'");
        let names: Vec<String> = config.variables().into_iter().collect();
        assert_eq!(names, ["A", "C", "D"]);
        assert_eq!(config.missing(|_| false), ["A", "D"]);
        assert!(config.missing(|name| name != "C").is_empty());
        let value = |name: &str| (name == "A").then(|| "a".to_owned());
        assert_eq!(config.expanded(value).unwrap_err(), "D");
        let value = |name: &str| (name != "C").then(|| name.to_lowercase());
        let expanded = config.expanded(value).unwrap();
        assert_eq!(expanded.args, ["a", "$B", "see", "${"]);
        assert_eq!(expanded.env["KEY"], "is ad");
    }

    #[test]
    fn a_server_gets_what_programs_need() {
        let session = [("PATH", "/bin"), ("HOME", "/h"), ("SSH_AUTH_SOCK", "/s"), ("https_proxy", "http://p")];
        let session = session.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let env = ServerConfig::environment(&session);
        let expect = [("HOME", "/h"), ("PATH", "/bin"), ("https_proxy", "http://p")];
        assert_eq!(env, expect.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
