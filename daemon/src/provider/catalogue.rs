//! The catalogue: from a `provider/model` and the configuration to something that can be asked.
//!
//! Keys live in [`Keys`], in memory only; each is sent to the address of the provider that names it and nowhere else.
//! Deliberately absent: running a key's command, which only the process module may; [`Resolved::key`] says that it must be run.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use linger_protocol::daemon::Model;
use reqwest::Url;
use serde::Deserialize;

use super::anthropic::Anthropic;
use super::driver::{CONNECT_TIMEOUT, Endpoint, IDLE_TIMEOUT};
use super::openai::{Compat, OpenAi};
use super::{Codec, Provider};
use crate::secret::{Redactor, Secret};

/// A wire format, as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Openai,
    /// The built-in scripted model.
    Demo,
}

impl Kind {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Demo => "demo",
        }
    }
}

/// `[providers.NAME]`, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// The wire format; a preset has one already.
    pub kind: Option<Kind>,
    /// Where requests go; the vendor's own address if absent.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub api_key_env: Option<String>,
    /// A command that prints the key.
    pub api_key_command: Option<String>,
    /// The model when only the provider is named.
    pub model: Option<String>,
    /// The most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// How long it may be silent.
    pub idle_timeout_ms: Option<u64>,
    /// How long a connection may take.
    pub connect_timeout_ms: Option<u64>,
    /// Where it departs from the wire format.
    pub compat: Compat,
}

/// A provider that needs no configuration but its key.
struct Preset {
    name: &'static str,
    kind: Kind,
    base_url: &'static str,
    variable: &'static str,
    model: &'static str,
}

/// In the order in which a default is looked for.
const PRESETS: [Preset; 3] = [
    Preset {
        name: "anthropic",
        kind: Kind::Anthropic,
        base_url: "https://api.anthropic.com",
        variable: "ANTHROPIC_API_KEY",
        model: "claude-sonnet-5",
    },
    Preset {
        name: "openai",
        kind: Kind::Openai,
        base_url: "https://api.openai.com/v1",
        variable: "OPENAI_API_KEY",
        model: "gpt-5",
    },
    Preset { name: "demo", kind: Kind::Demo, base_url: "", variable: "", model: "demo" },
];

impl ProviderConfig {
    /// What is wrong with it as the provider `name`: the key that is at fault, and why.
    pub fn check(&self, name: &str) -> Result<(), (&'static str, String)> {
        if self.kind.is_none() && preset(name).is_none() {
            return Err(("kind", "missing: one of anthropic, openai, demo".to_owned()));
        }
        if name.is_empty() || name.contains('/') {
            return Err(("kind", "the provider's name is empty or has a slash in it".to_owned()));
        }
        if self.api_key_env.is_some() && self.api_key_command.is_some() {
            return Err(("api_key_command", "api_key_env is there too; only one of them can be meant".to_owned()));
        }
        let Some(base_url) = &self.base_url else { return Ok(()) };
        match Url::parse(base_url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
            Ok(_) => Err(("base_url", "neither an http nor an https address".to_owned())),
            Err(error) => Err(("base_url", error.to_string())),
        }
    }
}

fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The keys that the daemon holds, by the variable that they came in.
#[derive(Debug, Default)]
pub struct Keys {
    secrets: RwLock<BTreeMap<String, Secret>>,
    redactor: Redactor,
}

impl Keys {
    /// An empty store that tells `redactor` about each key.
    pub fn new(redactor: Redactor) -> Self {
        Self { secrets: RwLock::default(), redactor }
    }

    /// Keeps a key; an empty one is none.
    pub fn insert(&self, variable: &str, key: &str) {
        let secret = Secret::new(key);
        if !secret.reveal().is_empty() {
            self.redactor.add(&secret);
            self.secrets.write().unwrap_or_else(PoisonError::into_inner).insert(variable.to_owned(), secret);
        }
    }

    /// The key that came in `variable`.
    pub fn get(&self, variable: &str) -> Option<Secret> {
        let secret = self.secrets.read().unwrap_or_else(PoisonError::into_inner).get(variable).cloned();
        // It is in use, and must not be the one that is forgotten.
        secret.iter().for_each(|secret| self.redactor.add(secret));
        secret
    }
}

/// Where a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The provider needs none.
    None,
    /// It is there.
    Known(Secret),
    /// This command prints it; whoever starts a request runs it first.
    Command(String),
}

/// A model that can be asked, once its key is at hand.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The provider's name.
    pub provider: String,
    /// The model's name there: [`super::Request::model`].
    pub model: String,
    /// `provider/model`: [`super::Request::origin`].
    pub origin: String,
    /// [`super::Request::max_tokens`].
    pub max_tokens: u32,
    /// Where the key comes from.
    pub key: KeySource,
    target: Provider,
}

impl Resolved {
    /// What to ask. `printed` is what the command of [`KeySource::Command`] printed; elsewhere it is not looked at.
    pub fn open(&self, printed: Option<&str>) -> Provider {
        let mut target = self.target.clone();
        if let Provider::Http(endpoint) = &mut target {
            endpoint.key = match (&self.key, printed) {
                (KeySource::Known(key), _) => Some(key.clone()),
                (KeySource::Command(_), Some(printed)) => Some(Secret::new(printed)),
                _ => None,
            };
            endpoint.key.iter().for_each(|key| endpoint.redactor.add(key));
        }
        target
    }
}

/// Why a model cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// None was named, and there is no default.
    #[error("no model: set {}, or name one in config.toml, or use the scripted model `demo`", .variables.join(" or "))]
    NoModel {
        /// Any of these would give one.
        variables: Vec<String>,
    },
    /// The provider is named, but it has no default model.
    #[error(
        "the provider `{provider}` has no default model: write `{provider}/MODEL`, or set `model` in [providers.{provider}]"
    )]
    NoDefault {
        /// The provider.
        provider: String,
    },
    /// No provider has this name.
    #[error("there is no provider `{provider}`{}", .near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownProvider {
        /// What was written.
        provider: String,
        /// A name that is like it.
        near: Option<String>,
    },
    /// The key is not there.
    #[error("the provider `{provider}` needs a key: set {variable}")]
    KeyMissing {
        /// The provider.
        provider: String,
        /// The variable that holds it.
        variable: String,
    },
}

/// All providers, configured ones and presets.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: BTreeMap<String, Entry>,
    /// What the configuration names for new sessions.
    default: Option<String>,
    keys: Arc<Keys>,
}

/// A provider with everything that its configuration left out.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    base_url: String,
    /// Of `base_url`; empty if it has none.
    host: String,
    variable: Option<String>,
    command: Option<String>,
    model: Option<String>,
    max_tokens: u32,
    connect_timeout: Duration,
    idle_timeout: Duration,
    compat: Compat,
}

impl Entry {
    /// Gives nothing for a provider whose kind nobody knows; [`ProviderConfig::check`] says so to people.
    fn new(name: &str, config: &ProviderConfig) -> Option<Self> {
        let preset = preset(name);
        let kind = config.kind.or(preset.map(|preset| preset.kind))?;
        let vendor = PRESETS.iter().find(|preset| preset.kind == kind)?;
        let base_url = config.base_url.clone().unwrap_or_else(|| vendor.base_url.to_owned());
        // A vendor's key goes to the vendor, unless somebody says otherwise.
        let url = Url::parse(&base_url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default().to_owned();
        let own = url.zip(Url::parse(vendor.base_url).ok());
        let own =
            own.is_some_and(|(url, vendor)| url.host_str() == vendor.host_str() && url.scheme() == vendor.scheme());
        let variable = match (&config.api_key_env, &config.api_key_command) {
            (Some(variable), _) => Some(variable.clone()),
            (None, None) if own => Some(vendor.variable.to_owned()),
            _ => None,
        };
        let timeout = |millis: Option<u64>, default| millis.map_or(default, Duration::from_millis);
        Some(Self {
            kind,
            base_url,
            host,
            variable,
            command: config.api_key_command.clone(),
            model: config.model.clone().or_else(|| preset.map(|preset| preset.model.to_owned())),
            max_tokens: config.max_tokens.unwrap_or_default(),
            connect_timeout: timeout(config.connect_timeout_ms, CONNECT_TIMEOUT),
            idle_timeout: timeout(config.idle_timeout_ms, IDLE_TIMEOUT),
            compat: config.compat,
        })
    }
}

impl Catalogue {
    /// The presets and `providers`; `default` is the model that the configuration names for new sessions.
    pub fn new(providers: &BTreeMap<String, ProviderConfig>, default: Option<String>, keys: Arc<Keys>) -> Self {
        let presets = PRESETS
            .iter()
            .filter_map(|preset| Some((preset.name, Entry::new(preset.name, &ProviderConfig::default())?)));
        let configured = providers.iter().filter_map(|(name, config)| Some((name.as_str(), Entry::new(name, config)?)));
        let entries = presets.chain(configured).map(|(name, entry)| (name.to_owned(), entry)).collect();
        Self { entries, default: default.filter(|model| !model.is_empty()), keys }
    }

    /// Every variable that may hold a key.
    pub fn variables(&self) -> Vec<String> {
        let mut variables: Vec<String> = self.entries.values().filter_map(|entry| entry.variable.clone()).collect();
        variables.sort_unstable();
        variables.dedup();
        variables
    }

    /// The variables whose keys are not there.
    pub fn wanted(&self) -> Vec<String> {
        self.variables().into_iter().filter(|variable| self.keys.get(variable).is_none()).collect()
    }

    /// Keeps those of `keys` that a provider names.
    pub fn add_keys<'a>(&self, keys: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let variables = self.variables();
        let named = keys.into_iter().filter(|(variable, _)| variables.iter().any(|name| name == variable));
        named.for_each(|(variable, key)| self.keys.insert(variable, key));
    }

    /// The model of new sessions.
    pub fn default_model(&self) -> Result<String, ResolveError> {
        if let Some(default) = &self.default {
            return Ok(default.clone());
        }
        let preset_first = PRESETS.iter().map(|preset| preset.name);
        let names = preset_first.chain(self.entries.keys().map(String::as_str));
        let mut models = names.filter_map(|name| {
            let entry = self.entries.get(name).filter(|entry| entry.kind != Kind::Demo)?;
            self.missing(entry).is_none().then_some(format!("{name}/{}", entry.model.as_ref()?))
        });
        models.next().ok_or_else(|| ResolveError::NoModel { variables: self.wanted() })
    }

    /// What `spec` means: `provider/model`, a provider for its default model, or nothing for the default of new sessions.
    pub fn resolve(&self, spec: &str) -> Result<Resolved, ResolveError> {
        if spec.is_empty() {
            return self.resolve(&self.default_model()?);
        }
        let (name, model) = spec.split_once('/').unwrap_or((spec, ""));
        let Some(entry) = self.entries.get(name) else {
            let names: Vec<&str> = self.entries.keys().map(String::as_str).collect();
            let near = similar::get_close_matches(name, &names, 1, 0.5).first().map(|near| (*near).to_owned());
            return Err(ResolveError::UnknownProvider { provider: name.to_owned(), near });
        };
        let provider = name.to_owned();
        let model = match (model, &entry.model) {
            ("", Some(model)) => model.clone(),
            ("", None) => return Err(ResolveError::NoDefault { provider }),
            (model, _) => model.to_owned(),
        };
        if let Some(variable) = self.missing(entry) {
            return Err(ResolveError::KeyMissing { provider, variable: variable.to_owned() });
        }
        let key = match (&entry.command, entry.variable.as_ref().and_then(|variable| self.keys.get(variable))) {
            (Some(command), _) => KeySource::Command(command.clone()),
            (None, Some(key)) => KeySource::Known(key),
            (None, None) => KeySource::None,
        };
        let origin = format!("{provider}/{model}");
        let target = self.target(name, entry);
        Ok(Resolved { provider, model, origin, max_tokens: entry.max_tokens, key, target })
    }

    /// The rows of `model/list`: each provider with its default model.
    pub fn list(&self) -> Vec<Model> {
        let default = self.default_model().and_then(|spec| self.resolve(&spec)).map(|resolved| resolved.origin).ok();
        let row = |(name, entry): (&String, &Entry)| {
            let model = format!("{name}/{}", entry.model.as_deref().unwrap_or("MODEL"));
            let missing = self.missing(entry);
            Model {
                default: default.as_ref() == Some(&model),
                model,
                kind: entry.kind.name().to_owned(),
                base_url: (entry.kind != Kind::Demo).then(|| entry.base_url.clone()),
                ready: missing.is_none(),
                missing: missing.map(str::to_owned),
            }
        };
        self.entries.iter().map(row).collect()
    }

    /// The variable that must be set before `entry` can be used.
    fn missing<'a>(&self, entry: &'a Entry) -> Option<&'a str> {
        entry.variable.as_deref().filter(|variable| self.keys.get(variable).is_none())
    }

    fn target(&self, name: &str, entry: &Entry) -> Provider {
        let codec: Arc<dyn Codec> = match entry.kind {
            Kind::Demo => return Provider::Demo,
            Kind::Anthropic => Arc::new(Anthropic),
            Kind::Openai => Arc::new(OpenAi::new(&entry.host, entry.compat)),
        };
        Provider::Http(Endpoint {
            name: name.to_owned(),
            base_url: entry.base_url.clone(),
            codec,
            key: None,
            connect_timeout: entry.connect_timeout,
            idle_timeout: entry.idle_timeout,
            redactor: self.keys.redactor.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(config: &str, default: &str, keys: &[(&str, &str)]) -> Catalogue {
        let providers: BTreeMap<String, ProviderConfig> = toml::from_str(config).unwrap();
        assert!(providers.iter().all(|(name, config)| config.check(name).is_ok()));
        let catalogue = Catalogue::new(&providers, Some(default.to_owned()), Arc::new(Keys::new(Redactor::default())));
        catalogue.add_keys(keys.iter().copied());
        catalogue
    }

    const WORK: &str = "
        [work]
        kind = 'openai'
        base_url = 'http://127.0.0.1:4000/v1'
        api_key_env = 'WORK_KEY'
        max_tokens = 9
        [local]
        kind = 'openai'
        base_url = 'http://127.0.0.1:8080/v1'
        model = 'qwen/3'
        compat = { developer_role = true }
        [pass]
        kind = 'anthropic'
        api_key_command = 'pass show work'
        model = 'm'";

    fn check(catalogue: &Catalogue, spec: &str, expect: Result<(&str, KeySource), &str>) {
        let got =
            catalogue.resolve(spec).map(|resolved| (resolved.origin, resolved.key)).map_err(|error| error.to_string());
        let expect = expect.map(|(origin, key)| (origin.to_owned(), key)).map_err(str::to_owned);
        assert_eq!(got, expect, "{spec}");
    }

    fn known(key: &str) -> KeySource {
        KeySource::Known(Secret::new(key))
    }

    #[test]
    fn a_spec_names_a_provider_and_perhaps_a_model() {
        let catalogue = catalogue(WORK, "", &[("WORK_KEY", "w-secret"), ("HOME", "not a key")]);
        check(&catalogue, "work/a/b", Ok(("work/a/b", known("w-secret"))));
        check(&catalogue, "local", Ok(("local/qwen/3", KeySource::None)));
        check(&catalogue, "pass", Ok(("pass/m", KeySource::Command("pass show work".to_owned()))));
        check(&catalogue, "demo", Ok(("demo/demo", KeySource::None)));
        check(&catalogue, "anthropic", Err("the provider `anthropic` needs a key: set ANTHROPIC_API_KEY"));
        check(
            &catalogue,
            "work",
            Err("the provider `work` has no default model: write `work/MODEL`, or set `model` in [providers.work]"),
        );
        check(&catalogue, "antropic/x", Err("there is no provider `antropic`; did you mean `anthropic`?"));
        check(&catalogue, "zzz", Err("there is no provider `zzz`"));
        assert_eq!(catalogue.wanted(), ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]);
        assert_eq!(catalogue.keys.get("HOME"), None);
    }

    #[test]
    fn the_default_is_what_is_configured_or_what_has_a_key() {
        check(
            &catalogue("", "", &[]),
            "",
            Err(
                "no model: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one in config.toml, or use the scripted model `demo`",
            ),
        );
        check(&catalogue("", "", &[("OPENAI_API_KEY", "o")]), "", Ok(("openai/gpt-5", known("o"))));
        let both = [("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")];
        check(&catalogue("", "", &both), "", Ok(("anthropic/claude-sonnet-5", known("a"))));
        check(&catalogue("", "openai/x", &both), "", Ok(("openai/x", known("o"))));
        check(&catalogue(WORK, "", &[]), "", Ok(("local/qwen/3", KeySource::None)));
    }

    #[test]
    fn a_vendors_key_goes_to_the_vendor_unless_somebody_says_otherwise() {
        let keys = [("OPENAI_API_KEY", "o")];
        let elsewhere = catalogue("[openai]\nbase_url = 'http://proxy.example/v1'", "", &keys);
        check(&elsewhere, "openai", Ok(("openai/gpt-5", KeySource::None)));
        let said = "[openai]\nbase_url = 'http://proxy.example/v1'\napi_key_env = 'OPENAI_API_KEY'";
        check(&catalogue(said, "", &keys), "openai", Ok(("openai/gpt-5", known("o"))));
        let plain = catalogue("[openai]\nbase_url = 'http://api.openai.com/v1'", "", &keys);
        check(&plain, "openai", Ok(("openai/gpt-5", KeySource::None)));
    }

    #[test]
    fn a_command_prints_a_key_that_is_then_redacted() {
        let catalogue = catalogue(WORK, "", &[]);
        let Provider::Http(endpoint) = catalogue.resolve("pass").unwrap().open(Some("s3cr3t-key\n")) else { panic!() };
        assert_eq!(endpoint.key, Some(Secret::new("s3cr3t-key")));
        assert_eq!(endpoint.redactor.redact("bad key s3cr3t-key"), "bad key <redacted>");
        assert!(!format!("{endpoint:?}").contains("s3cr3t"));
    }

    #[test]
    fn the_list_says_what_is_ready() {
        let rows = catalogue(WORK, "local", &[]).list();
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.model.as_str(), row.kind.as_str(), row.missing.as_deref(), row.default))
            .collect();
        let expect = [
            ("anthropic/claude-sonnet-5", "anthropic", Some("ANTHROPIC_API_KEY"), false),
            ("demo/demo", "demo", None, false),
            ("local/qwen/3", "openai", None, true),
            ("openai/gpt-5", "openai", Some("OPENAI_API_KEY"), false),
            ("pass/m", "anthropic", None, false),
            ("work/MODEL", "openai", Some("WORK_KEY"), false),
        ];
        assert_eq!(rows, expect);
    }

    #[test]
    fn mistakes_in_the_configuration_are_named() {
        fn check(config: &str, key: &str) {
            let config: ProviderConfig = toml::from_str(config).unwrap();
            assert_eq!(config.check("work").unwrap_err().0, key);
        }
        check("", "kind");
        check("kind = 'openai'\nbase_url = 'localhost:4000'", "base_url");
        check("kind = 'openai'\nbase_url = '/v1'", "base_url");
        check("kind = 'openai'\napi_key_env = 'A'\napi_key_command = 'b'", "api_key_command");
        assert!(toml::from_str::<ProviderConfig>("api_key = 'oops'").is_err());
    }
}
