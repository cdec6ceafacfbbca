//! The configuration: `config.toml` and what follows from it.
//!
//! [`Config::parse`] is pure: text in, configuration or the first error out, with file, line and key. [`ConfigStore`] holds the
//! last good one; [`watch`](watch::Changes) wakes when the file may have changed, [`notices`] tells whether reading it again can
//! find anything new. Only [`ConfigStore::grant`] writes the file.
//! The file never contains a key; a value that looks like one is refused and not repeated.

mod grant;
pub mod instructions;
mod notices;
mod policy;
pub mod providers;
mod source;
mod store;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::variable::TOOL_ENV;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::de::DeTable;

use crate::provider::catalogue::{ProviderConfig, ResolveError, nearest};
use crate::provider::models::ModelConfig;
use crate::provider::network::NetworkConfig;
use crate::provider::preset::PRESETS;
pub use grant::GrantError;
pub use policy::Policy;
pub use source::ConfigError;
pub use store::{ConfigStore, Reload};
pub use watch::Changes;

use crate::permission::{Rule, Rules};
use crate::store::blob;
use crate::tool::TIMEOUT_MAX_S;
use crate::tool::set::Names;
use source::Source;

/// The longest a `bash` call or an idle session may be told to wait, in seconds: a week; more is a slip of the finger.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// The shortest `retention`, in milliseconds: a typing error must not delete yesterday's session.
const MIN_RETENTION_MS: u64 = 24 * 3600 * 1000;

/// The range of `compact_at`, in percent of the window: with less, every step would compact again; with more, the next step would
/// not fit.
const COMPACT_AT: std::ops::RangeInclusive<u8> = 20..=95;

/// Names of keys that hold a secret.
const SECRET_KEYS: [&str; 6] = ["api_key", "apikey", "key", "token", "secret", "password"];

/// Prefixes of well-known services' keys.
const SECRET_PREFIXES: [&str; 7] = ["sk-", "sk_", "gsk_", "xai-", "AIza", "ghp_", "github_pat_"];

/// The shortest value that counts as a key by its prefix, in bytes.
const SHORTEST_SECRET: usize = 16;

/// How an interrupted turn continues after a restart of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterRestart {
    /// It resumes by itself, unless it has had too many crashes.
    #[default]
    Resume,
    /// It waits for `session/continue` or the next prompt.
    Offer,
}

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model of new sessions, `provider/model` or a provider alone.
    pub model: Option<String>,
    /// The mode of new sessions.
    pub mode: Mode,
    /// The most steps of one turn.
    pub max_steps: u32,
    /// When to compact automatically, in percent of the model's window; 0 is never.
    pub compact_at: u8,
    /// How an interrupted turn continues after a restart.
    pub after_restart: AfterRestart,
    /// How long an idle session without clients stays loaded, in seconds.
    pub idle_unload_s: u64,
    /// How long an unused session is kept, in milliseconds; forever if absent.
    pub retention_ms: Option<u64>,
    /// The default timeout of a `bash` call, in seconds.
    pub bash_timeout_s: u64,
    /// The variables that a client passes to new sessions.
    pub env: BTreeSet<String>,
    /// The rules for every session.
    pub rules: Rules,
    /// The rules that `allow_always` answers added, by root of the workspace.
    pub workspaces: BTreeMap<PathBuf, Vec<Rule>>,
    /// The providers, by name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Properties of models, by `provider/model`.
    pub models: BTreeMap<String, ModelConfig>,
    /// Proxies and trusted certificates.
    pub network: NetworkConfig,
    /// Settings that are valid but have no effect, one line each.
    pub warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct Written {
    model: Option<String>,
    mode: Mode,
    max_steps: u32,
    compact_at: u8,
    after_restart: AfterRestart,
    idle_unload_s: u64,
    retention: Option<String>,
    tools: ToolsWritten,
    env: EnvWritten,
    permissions: PermissionsWritten,
    workspaces: BTreeMap<String, WorkspaceWritten>,
    providers: BTreeMap<String, ProviderConfig>,
    models: BTreeMap<String, ModelConfig>,
    network: NetworkConfig,
    mcp: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct ToolsWritten {
    bash_timeout_s: u64,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct EnvWritten {
    allow: Option<Vec<String>>,
    extra: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct PermissionsWritten {
    allow: Vec<String>,
    ask: Vec<String>,
    deny: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct WorkspaceWritten {
    allow: Vec<String>,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            model: None,
            mode: Mode::default(),
            max_steps: 200,
            compact_at: 80,
            after_restart: AfterRestart::default(),
            idle_unload_s: 60,
            retention: None,
            tools: ToolsWritten::default(),
            env: EnvWritten::default(),
            permissions: PermissionsWritten::default(),
            workspaces: BTreeMap::new(),
            providers: BTreeMap::new(),
            models: BTreeMap::new(),
            network: NetworkConfig::default(),
            mcp: BTreeMap::new(),
        }
    }
}

impl Default for ToolsWritten {
    fn default() -> Self {
        Self { bash_timeout_s: 120 }
    }
}

impl Config {
    /// linger's own directories, and the files in them, because those may be symlinks to elsewhere.
    pub(super) fn own(places: &Places) -> Vec<PathBuf> {
        let mut own = vec![places.config.clone(), places.data.clone(), places.state.clone()];
        own.extend([places.config_file(), places.database(), blob::directory(&places.database())]);
        own.extend([places.kept_keys(), places.children(), places.log()]);
        own.extend(instructions::NAMES.map(|name| places.config.join(name)));
        own
    }

    /// Parses the text of `places.config_file()`; empty text gives the defaults. `home` is the meaning of `~/` in a rule.
    /// `names`: the tools that rules can name.
    pub fn parse(text: &str, places: &Places, home: Option<&Path>, names: &Names) -> Result<Self, ConfigError> {
        let file = places.config_file();
        let (tree, errors) = DeTable::parse_recoverable(text);
        let source = Source::new(&file, text, tree.get_ref());
        if let Some(error) = errors.first() {
            return Err(source.explain(error));
        }
        // First, because later errors may quote a value.
        refuse_secrets(&source)?;
        let written: Written = toml::from_str(text).map_err(|error| source.explain(&error))?;
        written.into_config(&source, places, home, names)
    }

    /// The rules that `allow_always` answers added for the workspace with this root.
    pub fn grants(&self, root: &Path) -> &[Rule] {
        self.workspaces.get(root).map_or(&[], Vec::as_slice)
    }
}

impl Written {
    fn into_config(
        mut self,
        source: &Source<'_>,
        places: &Places,
        home: Option<&Path>,
        names: &Names,
    ) -> Result<Config, ConfigError> {
        let file = self.network.ca_file.as_ref().and_then(|file| Some(home?.join(file.strip_prefix("~").ok()?)));
        self.network.ca_file = file.or(self.network.ca_file);
        self.check(source)?;
        let rules = |path: &[&str], list: &[String]| -> Result<Vec<Rule>, ConfigError> {
            let parse = |(i, text): (usize, &String)| {
                Rule::parse(text, names).map_err(|error| source.error(&[path, &[&format!("[{i}]")]].concat(), error))
            };
            list.iter().enumerate().map(parse).collect()
        };
        let rules_of = |name: &str, list: &[String]| rules(&["permissions", name], list);
        let rules_everywhere = Rules {
            deny: rules_of("deny", &self.permissions.deny)?,
            ask: rules_of("ask", &self.permissions.ask)?,
            allow: rules_of("allow", &self.permissions.allow)?,
            home: home.map(Path::to_path_buf),
            own: Config::own(places),
        };
        let mut workspaces = BTreeMap::new();
        for (root, workspace) in &self.workspaces {
            if !Path::new(root).is_absolute() {
                return Err(source.error(&["workspaces", root], "a workspace is named by its absolute path"));
            }
            workspaces.insert(PathBuf::from(root), rules(&["workspaces", root, "allow"], &workspace.allow)?);
        }
        let warnings = self.warnings(source, &rules_everywhere, names);
        let retention_ms = self.retention.as_deref().map(|text| retention(source, text)).transpose()?;
        let env = self.env.allow.unwrap_or_else(|| TOOL_ENV.map(str::to_owned).to_vec());
        Ok(Config {
            model: self.model,
            mode: self.mode,
            max_steps: self.max_steps,
            compact_at: self.compact_at,
            after_restart: self.after_restart,
            idle_unload_s: self.idle_unload_s,
            retention_ms,
            bash_timeout_s: self.tools.bash_timeout_s,
            env: env.into_iter().chain(self.env.extra).collect(),
            rules: rules_everywhere,
            workspaces,
            providers: self.providers,
            models: self.models,
            network: self.network,
            warnings,
        })
    }

    fn check(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        if self.max_steps == 0 {
            return Err(source.error(&["max_steps"], "must be at least 1"));
        }
        if self.compact_at != 0 && !COMPACT_AT.contains(&self.compact_at) {
            let [least, most] = [COMPACT_AT.start(), COMPACT_AT.end()];
            let problem = format!("must be from {least} to {most} percent of the model's window, or 0 to disable");
            return Err(source.error(&["compact_at"], problem));
        }
        if self.idle_unload_s > MAX_SECONDS {
            return Err(source.error(&["idle_unload_s"], format!("must be at most {MAX_SECONDS}")));
        }
        if !(1..=TIMEOUT_MAX_S).contains(&self.tools.bash_timeout_s) {
            return Err(source.error(&["tools", "bash_timeout_s"], format!("must be from 1 to {TIMEOUT_MAX_S}")));
        }
        if self.model.as_deref().is_some_and(|model| model.split('/').any(|part| part.trim().is_empty())) {
            return Err(source.error(&["model"], "write `provider/model`, or a provider alone"));
        }
        if let Some(model) = self.model.as_deref().filter(|model| !model.is_empty()) {
            let provider = model.split('/').next().unwrap_or_default();
            self.check_provider(provider).map_err(|problem| source.error(&["model"], problem))?;
        }
        for node in source.nodes() {
            let path: Vec<&str> = node.path.iter().map(String::as_str).collect();
            let Some(text) = node.text else { continue };
            let problem = match path.as_slice() {
                ["providers", _, "base_url"] => url_problem(text),
                // The value is not quoted: it may be a key in the wrong place.
                ["providers", _, "api_key_env"] if !is_variable(text) => {
                    Some("is not the name of a variable; a key itself belongs in the environment".to_owned())
                }
                ["env", _, _] if !is_variable(text) => Some("is not the name of a variable".to_owned()),
                ["env", _, _] if text.starts_with("LINGER_") => {
                    Some("linger's own variables are never passed to a session".to_owned())
                }
                // Otherwise the key would be stored with the session, and the model could read it.
                ["env", _, _] => self.provider_with_key(text).map(|provider| {
                    format!(
                        "{text} holds the key of the provider `{provider}`, which is never passed to a session: a tool \
                         that needs a key gets one from a file, or from a variable of another name"
                    )
                }),
                _ => None,
            };
            if let Some(problem) = problem {
                return Err(source.error(&path, problem));
            }
        }
        if let Err((key, problem)) = self.network.check() {
            return Err(source.error(&["network", key], problem));
        }
        for (name, provider) in &self.providers {
            if let Err((key, problem)) = provider.check(name) {
                return Err(source.error(&["providers", name, key], problem));
            }
        }
        for (name, model) in &self.models {
            self.check_model(name).map_err(|problem| source.error(&["models", name], problem))?;
            model.check().map_err(|(key, problem)| source.error(&["models", name, key], problem))?;
        }
        Ok(())
    }

    /// The provider whose key is in this variable.
    fn provider_with_key(&self, variable: &str) -> Option<&str> {
        let written = self.providers.iter().find(|(_, provider)| provider.api_key_env.as_deref() == Some(variable));
        let preset = || PRESETS.iter().find(|preset| preset.variable == variable).map(|preset| preset.name);
        written.map(|(name, _)| name.as_str()).or_else(preset)
    }

    /// Checks that `name` is `provider/model` with a known provider.
    fn check_model(&self, name: &str) -> Result<(), String> {
        let (provider, _) = name
            .split_once('/')
            .filter(|(_, model)| !model.trim().is_empty())
            .ok_or_else(|| "a model is named `provider/model` in quotes".to_owned())?;
        self.check_provider(provider)
    }

    /// Checks that a provider is known.
    fn check_provider(&self, provider: &str) -> Result<(), String> {
        let names = || PRESETS.iter().map(|preset| preset.name).chain(self.providers.keys().map(String::as_str));
        if names().any(|known| known == provider) {
            return Ok(());
        }
        let near = nearest(provider, names());
        Err(ResolveError::UnknownProvider { provider: provider.to_owned(), near }.to_string())
    }

    fn warnings(&self, source: &Source<'_>, rules: &Rules, names: &Names) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, list, allows) in
            [("allow", &rules.allow, true), ("ask", &rules.ask, false), ("deny", &rules.deny, false)]
        {
            for (i, rule) in list.iter().enumerate() {
                let line = source.line(&["permissions", name, &format!("[{i}]")]);
                let warning = rule.warning(allows, names);
                warnings.extend(warning.map(|text| format!("config.toml:{line}: permissions.{name}: {text}")));
            }
        }
        for name in self.mcp.keys() {
            let line = source.line(&["mcp", name]);
            warnings.push(format!("config.toml:{line}: mcp.{name}: MCP servers are not supported yet"));
        }
        warnings
    }
}

/// Refuses a key in the file, without quoting it.
fn refuse_secrets(source: &Source<'_>) -> Result<(), ConfigError> {
    for node in source.nodes() {
        let Some(text) = node.text else { continue };
        let path: Vec<&str> = node.path.iter().map(String::as_str).collect();
        let [section, .., key] = path.as_slice() else { continue };
        let named = *section == "providers" && is_secret(key);
        let looks = text.len() >= SHORTEST_SECRET
            && !text.contains(char::is_whitespace)
            && SECRET_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        if named || looks {
            return Err(source.error(
                &path,
                "a key is never written here: name the variable that holds it (`api_key_env = \"WORK_KEY\"`), or the \
                 command that prints it (`api_key_command = \"pass show work\"`), or put it into the keychain \
                 (`linger key set PROVIDER`)",
            ));
        }
    }
    Ok(())
}

/// Whether a key of this name holds a secret.
fn is_secret(name: &str) -> bool {
    SECRET_KEYS.contains(&name.to_lowercase().replace('-', "_").as_str())
}

fn retention(source: &Source<'_>, text: &str) -> Result<u64, ConfigError> {
    let kept = linger_protocol::age::parse(text).map_err(|error| source.error(&["retention"], error))?;
    if kept < MIN_RETENTION_MS {
        return Err(source.error(&["retention"], "must be at least 1d: sessions unused for that long are deleted"));
    }
    Ok(kept)
}

fn url_problem(text: &str) -> Option<String> {
    match reqwest::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => Some("must begin with http:// or https://".to_owned()),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("a key is never written here: use `api_key_env`, `api_key_command` or `linger key set`".to_owned())
        }
        Ok(url) if url.query_pairs().any(|(name, _)| is_secret(&name)) => {
            Some("a key is never written here: use `api_key_env`, `api_key_command` or `linger key set`".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(format!("is not a URL: {error}")),
    }
}

fn is_variable(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod watch_tests;
