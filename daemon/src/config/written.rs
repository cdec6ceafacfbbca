//! `config.toml` as it is written, its defaults, and what is wrong with it; and the configuration that it means. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linger_protocol::permission::Mode;
use linger_protocol::place::Places;
use linger_protocol::unattended::Unattended;
use linger_protocol::variable::{Choice, has_key_prefix, is_name};
use serde::Deserialize;

use super::attention::{self, AttentionWritten};
use super::delegation::Delegation;
use super::gateway::{self, GatewayWritten};
use super::hooks::{self, HookWritten};
use super::source::{ConfigError, Source};
use super::values::{AfterRestart, AlwaysRules, Config, UnknownPrice};
use crate::mcp::settings::ServerConfig;
use crate::provider::address;
use crate::provider::catalogue::ModelConfig;
use crate::provider::catalogue::{ProviderConfig, ProviderKind, ResolveError, nearest};
use crate::provider::network::{self, NetworkConfig};
use crate::provider::own_fields::{self, FieldValue};
use crate::provider::preset::PRESETS;
use crate::question::permission::{Rule, Rules};
use crate::tool::TIMEOUT_MAX_S;
use crate::tool::set::Names;

/// The longest a `bash` call or an idle session may be told to wait, in seconds: a week; more is a slip of the finger.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// The shortest `retention`, in milliseconds: a typing error must not delete yesterday's session.
const MIN_RETENTION_MS: u64 = 24 * 3600 * 1000;

/// The range of `compact_at`, in percent of the window: with less, every step would compact again; with more, the next step would
/// not fit.
const COMPACT_AT: std::ops::RangeInclusive<u8> = 20..=95;

/// Names of keys that hold a secret.
const SECRET_KEYS: [&str; 6] = ["api_key", "apikey", "key", "token", "secret", "password"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct ConfigFile {
    model: Option<String>,
    titles: Option<String>,
    mode: Mode,
    unattended: Option<Unattended>,
    unknown_price: UnknownPrice,
    max_steps: u32,
    memory: bool,
    compact_at: u8,
    after_restart: AfterRestart,
    idle_unload_s: u64,
    retention: Option<String>,
    blobs: Option<PathBuf>,
    tools: ToolsWritten,
    delegate: Delegation,
    env: EnvWritten,
    permissions: PermissionsWritten,
    workspaces: BTreeMap<String, WorkspaceWritten>,
    providers: BTreeMap<String, ProviderConfig>,
    models: BTreeMap<String, ModelConfig>,
    network: NetworkConfig,
    mcp: BTreeMap<String, ServerConfig>,
    hooks: Vec<HookWritten>,
    attention: AttentionWritten,
    gateway: GatewayWritten,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct ToolsWritten {
    bash_timeout_s: u64,
    fetch_private: Vec<String>,
    image: Option<String>,
    mcp_direct_percent: u8,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct EnvWritten {
    pass: BTreeSet<String>,
    deny: BTreeSet<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub(super) struct PermissionsWritten {
    pub(super) allow: Vec<String>,
    pub(super) ask: Vec<String>,
    pub(super) deny: Vec<String>,
    pub(super) ask_reads: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
struct WorkspaceWritten {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            model: None,
            titles: None,
            mode: Mode::default(),
            unattended: None,
            unknown_price: UnknownPrice::default(),
            max_steps: 200,
            memory: true,
            compact_at: 80,
            after_restart: AfterRestart::default(),
            idle_unload_s: 60,
            retention: None,
            blobs: None,
            tools: ToolsWritten::default(),
            delegate: Delegation::default(),
            env: EnvWritten::default(),
            permissions: PermissionsWritten::default(),
            workspaces: BTreeMap::new(),
            providers: BTreeMap::new(),
            models: BTreeMap::new(),
            network: NetworkConfig::default(),
            mcp: BTreeMap::new(),
            hooks: Vec::new(),
            attention: AttentionWritten::default(),
            gateway: GatewayWritten::default(),
        }
    }
}

impl Default for ToolsWritten {
    fn default() -> Self {
        Self { bash_timeout_s: 120, fetch_private: Vec::new(), image: None, mcp_direct_percent: 10 }
    }
}

impl ConfigFile {
    /// Resolves `~/`.
    pub(super) fn with_home(mut self, home: Option<&Path>) -> Self {
        let file = self.network.ca_file.as_ref().and_then(|file| Some(home?.join(file.strip_prefix("~").ok()?)));
        self.network.ca_file = file.or(self.network.ca_file);
        let blobs = self.blobs.as_ref().and_then(|dir| Some(home?.join(dir.strip_prefix("~").ok()?)));
        self.blobs = blobs.or(self.blobs);
        for server in self.mcp.values_mut() {
            let cwd = server.cwd.as_ref().and_then(|cwd| Some(home?.join(cwd.strip_prefix("~").ok()?)));
            server.cwd = cwd.or(server.cwd.take());
        }
        self
    }

    pub(super) fn into_config(
        self,
        source: &Source<'_>,
        places: &Places,
        home: Option<&Path>,
        names: &Names,
    ) -> Result<Config, ConfigError> {
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
            ask_reads: self.permissions.ask_reads,
        };
        let mut workspaces = BTreeMap::new();
        for (root, workspace) in &self.workspaces {
            if !Path::new(root).is_absolute() {
                return Err(source.error(&["workspaces", root], "a workspace is named by its absolute path"));
            }
            let of = |name: &str, list: &[String]| rules(&["workspaces", root, name], list);
            let always = AlwaysRules { allow: of("allow", &workspace.allow)?, deny: of("deny", &workspace.deny)? };
            workspaces.insert(PathBuf::from(root), always);
        }
        let warnings = self.warnings(source, &rules_everywhere, &workspaces, names);
        let hooks = hooks::check(&self.hooks, names)
            .map_err(|(at, key, problem)| source.error(&["hooks", &format!("[{at}]"), key], problem))?;
        let hooks = hooks.into();
        let public_url =
            gateway::check(&self.gateway).map_err(|(key, problem)| source.error(&["gateway", key], problem))?;
        let attention =
            attention::check(self.attention).map_err(|(key, problem)| source.error(&["attention", key], problem))?;
        let retention_ms = self.retention.as_deref().map(|text| retention(source, text)).transpose()?;
        if self.blobs.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            return Err(source.error(&["blobs"], "expected an absolute path, or one that begins with ~/"));
        }
        let keys = self.providers.values().flat_map(|provider| {
            let fields = own_fields::variables(&provider.headers).chain(own_fields::variables(&provider.query));
            fields.chain(provider.api_key_env.as_deref()).map(str::to_owned)
        });
        let keys = keys.chain(PRESETS.iter().map(|preset| preset.variable.to_owned())).collect();
        Ok(Config {
            model: self.model,
            titles: self.titles,
            mode: self.mode,
            unattended: self.unattended.unwrap_or_default(),
            unknown_price: self.unknown_price,
            max_steps: self.max_steps,
            memory: self.memory,
            compact_at: self.compact_at,
            after_restart: self.after_restart,
            idle_unload_s: self.idle_unload_s,
            retention_ms,
            blobs: self.blobs,
            bash_timeout_s: self.tools.bash_timeout_s,
            fetch_private: self.tools.fetch_private,
            image_model: self.tools.image,
            mcp_direct_percent: self.tools.mcp_direct_percent,
            delegation: self.delegate,
            env: Choice { pass: self.env.pass, deny: self.env.deny, keys },
            rules: rules_everywhere,
            workspaces,
            providers: self.providers,
            unconfirmed: BTreeSet::new(),
            models: self.models,
            network: self.network,
            mcp: self.mcp,
            hooks,
            attention,
            public_url,
            warnings,
        })
    }

    pub(super) fn check(&self, source: &Source<'_>) -> Result<(), ConfigError> {
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
        if self.tools.image.as_ref().is_some_and(|model| !model.contains('/')) {
            return Err(source.error(&["tools", "image"], "name a model as provider/model, such as openai/gpt-image-1"));
        }
        for (i, host) in self.tools.fetch_private.iter().enumerate() {
            if !network::is_host(host) {
                let problem = "is not a host, a domain or a network, such as \"localhost\" or \"10.0.0.0/8\"";
                return Err(source.error(&["tools", "fetch_private", &format!("[{i}]")], problem));
            }
        }
        if self.tools.mcp_direct_percent > 100 {
            return Err(source.error(&["tools", "mcp_direct_percent"], "must be from 0 to 100 percent of the window"));
        }
        if self.model.as_deref().is_some_and(|model| model.split('/').any(|part| part.trim().is_empty())) {
            return Err(source.error(&["model"], "write `provider/model`, or a provider alone"));
        }
        if let Some(model) = self.model.as_deref().filter(|model| !model.is_empty()) {
            let provider = model.split('/').next().unwrap_or_default();
            self.check_provider(provider).map_err(|problem| source.error(&["model"], problem))?;
        }
        if let Some(model) = self.titles.as_deref().filter(|name| !["auto", "off"].contains(name)) {
            self.check_model(model).map_err(|problem| {
                source.error(&["titles"], format!("write \"auto\", \"off\" or a model: {problem}"))
            })?;
        }
        for node in source.nodes() {
            let path: Vec<&str> = node.path.iter().map(String::as_str).collect();
            let Some(text) = node.text else { continue };
            let problem = match path.as_slice() {
                ["providers", _, "base_url"] => url_problem(text),
                ["mcp", _, "url"] if !text.contains("${") => url_problem(text),
                // The value is not quoted: it may be a key in the wrong place.
                ["providers", _, "api_key_env"] if !is_name(text) => {
                    Some("is not the name of a variable; a key itself belongs in the environment".to_owned())
                }
                ["env", _, _] if !is_name(text) => Some("is not the name of a variable".to_owned()),
                ["env", "pass", _] if text.starts_with("LINGER_") => {
                    Some("linger's own variables are never passed to a session".to_owned())
                }
                // Otherwise the key would be stored with the session, and the model could read it.
                ["env", "pass", _] => self.provider_with_key(text).map(|provider| {
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
        if let Err((key, problem)) = self.delegate.check() {
            return Err(source.error(&["delegate", key], problem));
        }
        if let Err((key, problem)) = self.network.check() {
            return Err(source.error(&["network", key], problem));
        }
        for (name, provider) in &self.providers {
            if let Err((key, problem)) = provider.check(name) {
                return Err(source.error(&["providers", name, key], problem));
            }
        }
        for (name, server) in &self.mcp {
            // It would be a key of a provider that is no host's of its.
            let of_provider = |variable: &String| Some((self.provider_with_key(variable)?, variable.clone()));
            if let Some((provider, variable)) = server.variables().iter().find_map(of_provider) {
                let problem =
                    format!("{variable} holds the key of the provider `{provider}`, which no MCP server gets");
                return Err(source.error(&["mcp", name], problem));
            }
            if let Err((key, problem)) = server.check(name) {
                let path: Vec<&str> = ["mcp", name, key].into_iter().filter(|part| !part.is_empty()).collect();
                return Err(source.error(&path, problem));
            }
        }
        for (name, model) in &self.models {
            self.check_model(name).map_err(|problem| source.error(&["models", name], problem))?;
            let kind = self.kind(name.split('/').next().unwrap_or_default());
            model.check(kind).map_err(|(key, problem)| source.error(&["models", name, key], problem))?;
            for (i, other) in model.fallback.iter().enumerate() {
                let path = ["models", name, "fallback", &format!("[{i}]")];
                self.check_model(other).map_err(|problem| source.error(&path, problem))?;
            }
        }
        Ok(())
    }

    /// The wire format of a provider.
    fn kind(&self, provider: &str) -> ProviderKind {
        let configured = self.providers.get(provider).and_then(|provider| provider.kind);
        let preset = || PRESETS.iter().find(|preset| preset.name == provider).map(|preset| preset.kind);
        configured.or_else(preset).unwrap_or(ProviderKind::Openai)
    }

    /// The provider whose key is in this variable.
    fn provider_with_key(&self, variable: &str) -> Option<&str> {
        let names = |provider: &ProviderConfig| {
            let mut fields = own_fields::variables(&provider.headers).chain(own_fields::variables(&provider.query));
            provider.api_key_env.as_deref() == Some(variable) || fields.any(|name| name == variable)
        };
        let written = self.providers.iter().find(|(_, provider)| names(provider));
        let of_model = |model: &ModelConfig| {
            own_fields::variables(&model.headers)
                .chain(own_fields::variables(&model.query))
                .any(|name| name == variable)
        };
        let model = || self.models.iter().find(|(_, model)| of_model(model));
        let preset = || PRESETS.iter().find(|preset| preset.variable == variable).map(|preset| preset.name);
        let of_models = || model().map(|(name, _)| name.split('/').next().unwrap_or(name));
        written.map(|(name, _)| name.as_str()).or_else(of_models).or_else(preset)
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

    fn warnings(
        &self,
        source: &Source<'_>,
        rules: &Rules,
        workspaces: &BTreeMap<PathBuf, AlwaysRules>,
        names: &Names,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        for (root, rules) in workspaces {
            let root = root.to_string_lossy();
            for (name, list, allows) in [("allow", &rules.allow, true), ("deny", &rules.deny, false)] {
                for (i, rule) in list.iter().enumerate() {
                    let line = source.line(&["workspaces", &root, name, &format!("[{i}]")]);
                    // An answer means exactly what it says: only what can never match, or allows more than was shown, is worth a word.
                    let caution = || rule.caution(names);
                    let warning = rule.matches_nothing(names).or_else(caution).filter(|_| allows);
                    let told = |text| format!("config.toml:{line}: workspaces.\"{root}\".{name}: {text}");
                    warnings.extend(warning.map(told));
                }
            }
        }
        for (name, list, allows) in
            [("allow", &rules.allow, true), ("ask", &rules.ask, false), ("deny", &rules.deny, false)]
        {
            for (i, rule) in list.iter().enumerate() {
                let line = source.line(&["permissions", name, &format!("[{i}]")]);
                let shadow = || rules.shadow(rule).filter(|_| allows);
                let caution = || rule.caution(names).filter(|_| allows);
                let warning = rule.warning(allows, names).or_else(shadow).or_else(caution);
                warnings.extend(warning.map(|text| format!("config.toml:{line}: permissions.{name}: {text}")));
            }
        }
        for (name, provider) in &self.providers {
            if let Some(host) = clear_text_host(provider) {
                let line = source.line(&["providers", name, "base_url"]);
                warnings.push(format!(
                    "config.toml:{line}: providers.{name}.base_url: the key goes to {host} unencrypted: use https://, or a tunnel"
                ));
            }
        }
        warnings
    }
}

/// Refuses a key in the file, without quoting it.
pub(super) fn refuse_secrets(source: &Source<'_>) -> Result<(), ConfigError> {
    for node in source.nodes() {
        let Some(text) = node.text else { continue };
        let path: Vec<&str> = node.path.iter().map(String::as_str).collect();
        let [section, .., key] = path.as_slice() else { continue };
        let is_field = |at: &str| path.get(2) == Some(&at);
        let named = matches!(*section, "providers" | "models") && is_secret(key) && !is_field("body");
        // `Bearer …`.
        if *section == "mcp" && text.split_whitespace().any(has_key_prefix) {
            let way = "a key is never written here: write `${NAME}`, and keep the key in the variable of that name";
            return Err(source.error(&path, way));
        }
        if named || has_key_prefix(text) {
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

/// The other machine to which a provider's secrets go over `http://`.
fn clear_text_host(provider: &ProviderConfig) -> Option<String> {
    let url = reqwest::Url::parse(provider.base_url.as_deref()?).ok()?;
    let is_secret = |value: &FieldValue| !matches!(value, FieldValue::Plain(_));
    let has_secret = provider.api_key_env.is_some()
        || provider.api_key_command.is_some()
        || provider.headers.values().chain(provider.query.values()).any(is_secret);
    let is_clear = url.scheme() == "http" && !address::is_loopback(&url);
    (has_secret && is_clear).then(|| address::authority(&url))
}

fn url_problem(text: &str) -> Option<String> {
    match address::web(text) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Some("a key is never written here: use `api_key_env`, `api_key_command` or `linger key set`".to_owned())
        }
        Ok(url) if url.query_pairs().any(|(name, _)| is_secret(&name)) => {
            Some("a key is never written here: use `api_key_env`, `api_key_command` or `linger key set`".to_owned())
        }
        Ok(_) => None,
        Err(problem) => Some(problem),
    }
}
