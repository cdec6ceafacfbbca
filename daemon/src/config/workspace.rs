//! The configuration of a workspace: `.linger/config.toml`, and the servers of `.mcp.json` ([`super::mcp_json`]).
//!
//! They come with a repository, so they can set little: rules, a mode that asks more, hooks, and MCP servers. What of it widens what may happen is in
//! force once a person trusts it ([`super::store`]). Parsing is pure; reading opens regular files below the root, and follows no
//! link.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::mcp::Scope;
use linger_protocol::permission::Mode;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::de::DeTable;

use super::hooks::{self, Hook, HookWritten};
use super::instructions::is_trusted;
use super::mcp_json::{MCP_JSON, SERVERS};
use super::source::{ConfigError, Source};
use super::widening::{FILES, MCP_FILES};
use super::written::{PermissionsWritten, refuse_secrets};
use crate::mcp::settings::{SERVER_FILES, ServerConfig, WorkspaceServer};
use crate::question::permission::Rule;
use crate::tool::handle::Entry;
use crate::tool::set::Names;

/// The configuration of a workspace, below its root.
pub const CONFIG: &str = ".linger/config.toml";

/// The largest file, in bytes: hundreds of times a real one.
const MAX_FILE: u64 = 256 << 10;

/// The settings of a workspace's files.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceConfig {
    /// The mode of new sessions, if it asks more than theirs.
    pub mode: Option<Mode>,
    /// Calls that never run.
    pub deny: Vec<Rule>,
    /// Calls that always ask.
    pub ask: Vec<Rule>,
    /// Calls that run without asking.
    pub allow: Vec<Rule>,
    /// Whether commands that only read ask too.
    pub ask_reads: bool,
    /// The hooks, in the order of the file.
    pub hooks: Vec<Hook>,
    /// The MCP servers, by name.
    pub servers: BTreeMap<String, WorkspaceServer>,
    /// The servers of `.mcp.json` that are left out, because `.linger/config.toml` has one of that name.
    pub hidden_servers: Vec<String>,
}

/// The whole file. What else `config.toml` can set is none of a workspace's business.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct WorkspaceFile {
    mode: Option<Mode>,
    permissions: PermissionsWritten,
    hooks: Vec<HookWritten>,
    mcp: BTreeMap<String, ServerConfig>,
}

/// The text of the file; `None` without one. A file of another user counts only where the directory is that user's too.
pub(super) fn read(root: &Path, file: &str) -> io::Result<Option<String>> {
    let opened = match Entry::at(&root.join(file)).and_then(|entry| entry.open()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        opened => opened,
    };
    let (file, metadata) = opened?;
    let here = root.metadata()?.uid();
    if !is_trusted(metadata.uid()) && metadata.uid() != here {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("is larger than {MAX_FILE} bytes")));
    }
    String::from_utf8(text).map(Some).map_err(|_| io::Error::other("is not UTF-8"))
}

/// The settings in the text of `file`, checked.
pub(super) fn parse(text: &str, file: &Path, names: &Names) -> Result<Value, ConfigError> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let source = Source::new(file, text, tree.get_ref());
    if let Some(error) = errors.first() {
        return Err(source.explain(error));
    }
    refuse_secrets(&source)?;
    let written: WorkspaceFile = toml::from_str(text).map_err(|error| source.explain(&error))?;
    if let Some(mode @ (Mode::Edit | Mode::Auto)) = written.mode {
        let why = format!("a workspace cannot choose the mode {mode}, only one that asks more: ask or plan");
        return Err(source.error(&["mode"], why));
    }
    let lists = [("allow", &written.permissions.allow), ("ask", &written.permissions.ask)];
    for (list, rules) in lists.into_iter().chain([("deny", &written.permissions.deny)]) {
        for (i, rule) in rules.iter().enumerate() {
            let path = ["permissions", list, &format!("[{i}]")];
            Rule::parse(rule, names).map_err(|error| source.error(&path, error))?;
        }
    }
    hooks::check(&written.hooks, names)
        .map_err(|(at, key, problem)| source.error(&["hooks", &format!("[{at}]"), key], problem))?;
    for (name, server) in &written.mcp {
        if !server.can.is_empty() {
            let why = "only your own config.toml can say what a server may do with sessions";
            return Err(source.error(&["mcp", name, "can"], why));
        }
        // A directory of the workspace is named from its root.
        let server = ServerConfig { cwd: server.cwd.as_ref().map(|cwd| Path::new("/").join(cwd)), ..server.clone() };
        server.check(name).map_err(|(key, problem)| {
            let path: Vec<&str> = ["mcp", name, key].into_iter().filter(|part| !part.is_empty()).collect();
            source.error(&path, problem)
        })?;
    }
    toml::from_str(text).map_err(|error| source.explain(&error))
}

impl WorkspaceConfig {
    /// The meaning of these settings: those of a valid file, without what is not trusted.
    pub(super) fn of_settings(settings: &Value, root: &Path, names: &Names) -> Result<Self, String> {
        let mut settings = settings.clone();
        let of_json = settings.as_object_mut().and_then(|it| it.shift_remove(SERVERS)).unwrap_or_else(nothing);
        settings.as_object_mut().map(|table| table.shift_remove(FILES));
        let of_files = settings.as_object_mut().and_then(|it| it.shift_remove(MCP_FILES)).unwrap_or_else(nothing);
        let WorkspaceFile { mode, permissions, hooks, mcp } =
            serde_json::from_value(settings).map_err(|it| it.to_string())?;
        let of_json: BTreeMap<String, ServerConfig> = serde_json::from_value(of_json).map_err(|it| it.to_string())?;
        let of_files: BTreeMap<String, ServerConfig> = serde_json::from_value(of_files).map_err(|it| it.to_string())?;
        let server = |(name, config): (String, ServerConfig), file| {
            let cwd = config.cwd.as_ref().map(|cwd| root.join(cwd));
            // What a workspace brings is for its own sessions.
            let scope = config.scope.filter(|scope| *scope == Scope::Session).or(Some(Scope::Workspace));
            (name, WorkspaceServer { config: ServerConfig { cwd, scope, can: Vec::new(), ..config }, file })
        };
        let hidden_servers = of_json.keys().filter(|name| mcp.contains_key(*name)).cloned().collect();
        let mut servers: BTreeMap<String, WorkspaceServer> =
            of_json.into_iter().map(|it| server(it, MCP_JSON)).collect();
        servers.extend(of_files.into_iter().map(|it| server(it, SERVER_FILES)));
        servers.extend(mcp.into_iter().map(|it| server(it, CONFIG)));
        let rules = |list: &[String]| -> Result<Vec<Rule>, String> {
            list.iter().map(|rule| Rule::parse(rule, names).map_err(|error| error.to_string())).collect()
        };
        let PermissionsWritten { allow, ask, deny, ask_reads } = &permissions;
        let hooks = hooks::check(&hooks, names).map_err(|(.., problem)| problem)?;
        let ask_reads = *ask_reads;
        Ok(Self {
            mode,
            ask_reads,
            deny: rules(deny)?,
            ask: rules(ask)?,
            allow: rules(allow)?,
            hooks,
            servers,
            hidden_servers,
        })
    }

    /// Whether it has no rule.
    pub(super) fn has_no_rules(&self) -> bool {
        self.deny.is_empty() && self.ask.is_empty() && self.allow.is_empty() && !self.ask_reads
    }
}

/// Trusted settings, by the root of their workspace.
pub type Trusted = BTreeMap<PathBuf, Value>;

/// Settings that say nothing.
pub(super) fn nothing() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tool::set::ToolSet;

    fn parsed(text: &str) -> Result<Value, String> {
        let tools = ToolSet::new(crate::tool::builtin());
        parse(text, Path::new("/w/.linger/config.toml"), tools.names()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_workspace_sets_rules_and_a_mode_that_asks_more() {
        let settings =
            parsed("mode = 'plan'\n[permissions]\nallow = ['bash(make)']\ndeny = ['read(**/.env)']").unwrap();
        let tools = ToolSet::new(crate::tool::builtin());
        let config = WorkspaceConfig::of_settings(&settings, Path::new("/w"), tools.names()).unwrap();
        assert_eq!(config.mode, Some(Mode::Plan));
        assert_eq!((config.allow.len(), config.ask.len(), config.deny.len()), (1, 0, 1));
    }

    #[test]
    fn whatever_else_is_an_error_with_its_place() {
        for (text, expect) in [
            ("mode = 'auto'", "/w/.linger/config.toml:1:1: mode: a workspace cannot choose the mode auto"),
            ("\n[permissions]\ndeny = ['read(']", "/w/.linger/config.toml:3:"),
            ("[network]\nproxy = 'http://h'", "/w/.linger/config.toml:1:"),
            ("model = 'demo'", "/w/.linger/config.toml:1:"),
            ("env.pass = ['A']", "/w/.linger/config.toml:1:"),
            ("[providers.x]\nbase_url = 'http://h'", "/w/.linger/config.toml:1:"),
            ("[permissions\n", "/w/.linger/config.toml:1:"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(expect), "{text}: {error}");
        }
    }

    #[test]
    fn only_a_file_is_read_that_lies_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("w");
        std::fs::create_dir_all(root.join(".linger")).unwrap();
        assert_eq!(read(&root, CONFIG).unwrap(), None);
        std::fs::write(root.join(CONFIG), "mode = 'ask'").unwrap();
        assert_eq!(read(&root, CONFIG).unwrap().as_deref(), Some("mode = 'ask'"));
        let elsewhere = dir.path().join("elsewhere");
        std::fs::rename(root.join(".linger"), &elsewhere).unwrap();
        symlink(&elsewhere, root.join(".linger")).unwrap();
        read(&root, CONFIG).unwrap_err();
        std::fs::remove_file(root.join(".linger")).unwrap();
        std::fs::create_dir(root.join(".linger")).unwrap();
        symlink("/dev/zero", root.join(CONFIG)).unwrap();
        read(&root, CONFIG).unwrap_err();
        std::fs::remove_file(root.join(CONFIG)).unwrap();
        std::fs::write(root.join(CONFIG), vec![b' '; MAX_FILE as usize + 1]).unwrap();
        assert!(read(&root, CONFIG).unwrap_err().to_string().contains("larger"));
    }
}
