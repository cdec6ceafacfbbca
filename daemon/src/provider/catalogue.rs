//! The catalogue: from a `provider/model` and the configuration to something that can be asked.
//!
//! Deliberately absent: running a key's command and asking the keychain, which take time; [`Resolved::key`] says what is to be done.

mod key;

mod names;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linger_protocol::daemon::Model;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::address;
use super::anthropic::Anthropic;
use super::compat::Compat;
use super::driver::{Endpoint, Limits};
use super::gemini::{self, Gemini};
use super::hosted::Hosted;
use super::keys::{Account, Bearer, Keys};
use super::models::{self, Facts, ModelConfig, Price};
use super::network::Network;
use super::ollama::{self, Ollama};
use super::openai::OpenAi;
use super::preset::{self, PLACEHOLDER, PRESETS};
use super::responses::Responses;
use super::shape::{self, Shaping};
use super::{Codec, Provider};
use crate::secret::Secret;

/// How many variables a hint names: the rest are a list of their own.
const NAMED: usize = 3;

/// How long a local server is waited for when models are listed: on one's own machine a connection takes microseconds.
const LOOK: Duration = Duration::from_millis(100);

/// A wire format, as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Openai,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// Google's Gemini.
    Gemini,
    /// Ollama's own.
    Ollama,
    /// The built-in scripted model.
    Demo,
}

impl Kind {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
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
    /// How long it may take until a response begins; as long as it may be silent if absent.
    pub first_byte_timeout_ms: Option<u64>,
    /// How long a whole answer may take.
    pub total_timeout_ms: Option<u64>,
    /// Tools that the provider runs itself and that its models may use.
    pub hosted_tools: Vec<String>,
    /// Where it departs from the wire format.
    pub compat: Compat,
}

impl ProviderConfig {
    fn limits(&self) -> Limits {
        let usual = Limits::default();
        let or = |millis: Option<u64>, usual| millis.map_or(usual, Duration::from_millis);
        let idle = or(self.idle_timeout_ms, usual.idle);
        Limits {
            connect: or(self.connect_timeout_ms, usual.connect),
            first_byte: or(self.first_byte_timeout_ms, idle),
            idle,
            total: or(self.total_timeout_ms, usual.total),
        }
    }

    /// What is wrong with it as the provider `name`: the key that is at fault, and why.
    pub fn check(&self, name: &str) -> Result<(), (&'static str, String)> {
        let Some(kind) = self.kind.or_else(|| Some(preset::named(name)?.kind)) else {
            let kinds = "anthropic, openai, openai-responses, gemini, ollama, demo";
            return Err(("kind", format!("missing: one of {kinds}")));
        };
        if let Some(flag) = self.compat.misplaced(kind) {
            return Err(("compat", format!("{flag} means nothing to the kind {}", kind.name())));
        }
        Hosted::named(&self.hosted_tools, kind).map_err(|problem| ("hosted_tools", problem))?;
        if self.compat.num_ctx == Some(0) {
            return Err(("compat", "num_ctx is 0: no model can work without a context".to_owned()));
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

/// Where a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The provider needs none.
    None,
    /// It is there.
    Known(Secret),
    /// This command prints it; whoever starts a request runs it first.
    Command(String),
    /// The keychain has it; whoever starts a request asks for it first.
    Keychain(Account),
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
    /// What is known of the model.
    pub facts: Facts,
    /// Where the key comes from.
    pub key: KeySource,
    target: Provider,
}

impl Resolved {
    /// What to ask, with the key that came of [`Resolved::key`].
    pub fn open(&self, key: Option<Secret>) -> Provider {
        let mut target = self.target.clone();
        if let Provider::Http(endpoint) = &mut target {
            endpoint.key = key;
            endpoint.key.iter().for_each(|key| endpoint.redactor.add(key));
        }
        target
    }
}

/// Why a model cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// None was named, and there is no default.
    #[error(
        "no model: set {} (`linger models` lists more), or name one in config.toml, or use the scripted model `demo`",
        .variables.join(" or ")
    )]
    NoModel {
        /// Any of these would give one, among others.
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
    /// The provider's address is not known.
    #[error(
        "the provider `{provider}` has no address: set `base_url` in [providers.{provider}], such as \"{example}\""
    )]
    NoAddress {
        /// The provider.
        provider: String,
        /// An address with a placeholder.
        example: String,
    },
    /// It takes hosted tools, but not beside others.
    #[error(
        "{} takes no {tool} beside other tools: {}take `hosted_tools` out of [providers.{provider}]",
        if *.vertex { "Vertex AI" } else { .model.as_str() },
        if *.vertex { "" } else { "choose a model from Gemini 3 on, or " }
    )]
    HostedApart {
        /// The provider.
        provider: String,
        /// The model there.
        model: String,
        /// The first of the tools that are switched on.
        tool: &'static str,
        /// No model of it does.
        vertex: bool,
    },
    /// It has no use for a key.
    #[error("the provider `{provider}` needs no key")]
    Keyless {
        /// The provider.
        provider: String,
    },
    /// The key is not there.
    #[error("the provider `{provider}` needs a key: set {variable}, or store it with `linger key set {provider}`")]
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
    /// What the user says of models, by `provider/model`.
    models: BTreeMap<String, ModelConfig>,
    /// What the configuration names for new sessions.
    default: Option<String>,
    keys: Arc<Keys>,
    network: Arc<Network>,
    /// The models that providers have listed since the configuration was read, by provider.
    listed: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

/// A provider with everything that its configuration left out.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    base_url: String,
    variable: Option<String>,
    /// It may do without the key in `variable`.
    key_optional: bool,
    command: Option<String>,
    model: Option<String>,
    max_tokens: u32,
    limits: Limits,
    compat: Compat,
    /// The preset at whose address it is, whose models and prices are known.
    place: Option<&'static str>,
    /// A known server on this machine, which can be used while somebody listens.
    local: bool,
}

impl Entry {
    /// Gives nothing for a provider whose kind nobody knows; [`ProviderConfig::check`] says so to people.
    fn new(name: &str, config: &ProviderConfig) -> Option<Self> {
        let named = preset::named(name);
        let kind = config.kind.or(named.map(|preset| preset.kind))?;
        let vendor = preset::vendor(kind)?;
        // A preset may be given another of its vendor's kinds, and stays what it is.
        let origin = named.filter(|preset| preset.kind == kind || preset.name == vendor.name).unwrap_or(vendor);
        let base_url = config.base_url.clone().unwrap_or_else(|| origin.base_url.to_owned());
        // A vendor's key goes to the vendor, unless somebody says otherwise.
        let place = if config.base_url.is_none() { Some(origin) } else { preset::at(&base_url) };
        let own = |text: fn(&preset::Preset) -> &'static str| {
            place.map(text).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (variable, command) = match (&config.api_key_env, &config.api_key_command) {
            (None, None) => (own(|place| place.variable), own(|place| place.command)),
            (variable, command) => (variable.clone(), command.clone()),
        };
        let known =
            place.map_or(Compat::NONE, |place| place.compat).or(named.map_or(Compat::NONE, |named| named.compat));
        let hosted = Hosted::named(&config.hosted_tools, kind).unwrap_or_default();
        Some(Self {
            kind,
            base_url,
            variable,
            key_optional: config.api_key_env.is_none() && place.is_some_and(|place| place.local),
            command,
            model: config.model.clone().or_else(|| Some(named?.model.to_owned()).filter(|model| !model.is_empty())),
            max_tokens: config.max_tokens.unwrap_or_default(),
            limits: config.limits(),
            compat: Compat { hosted, ..config.compat.or(known) },
            place: place.map(|place| place.name),
            local: place.is_some_and(|place| place.local),
        })
    }

    /// Whether a model takes hosted tools beside others.
    fn combines(&self, model: &str) -> bool {
        self.kind != Kind::Gemini || gemini::combines(&self.compat, model)
    }

    /// What is known of a model here, whatever the user says of it.
    fn facts(&self, model: &str) -> Facts {
        let mut facts = self.place.map_or_else(Facts::default, |place| models::facts(place, model));
        match self.kind {
            // It sees what is asked for, and no more.
            Kind::Ollama => facts.window = Some(u64::from(self.compat.num_ctx.unwrap_or(ollama::NUM_CTX))),
            Kind::Demo => facts.prices.usual = Price::FREE,
            _ => {}
        }
        facts
    }
}

impl Catalogue {
    /// The presets and `providers`, reached over `network`, and what the user says of `models`; `default` is the model that the
    /// configuration names for new sessions.
    pub fn new(
        providers: &BTreeMap<String, ProviderConfig>,
        models: &BTreeMap<String, ModelConfig>,
        default: Option<String>,
        keys: Arc<Keys>,
        network: Arc<Network>,
    ) -> Self {
        let presets = PRESETS
            .iter()
            .filter_map(|preset| Some((preset.name, Entry::new(preset.name, &ProviderConfig::default())?)));
        let configured = providers.iter().filter_map(|(name, config)| Some((name.as_str(), Entry::new(name, config)?)));
        let entries = presets.chain(configured).map(|(name, entry)| (name.to_owned(), entry)).collect();
        Self {
            entries,
            models: models.clone(),
            default: default.filter(|model| !model.is_empty()),
            keys,
            network,
            listed: Arc::default(),
        }
    }

    /// Every variable that may hold a key.
    pub fn variables(&self) -> Vec<String> {
        let mut variables: Vec<String> = self.entries.values().filter_map(|entry| entry.variable.clone()).collect();
        variables.sort_unstable();
        variables.dedup();
        variables
    }

    /// The variables whose keys are not there, or were refused.
    pub fn wanted(&self) -> Vec<String> {
        self.variables().into_iter().filter(|variable| self.keys.wants(variable)).collect()
    }

    /// Keeps those of `keys` that a provider names.
    pub fn add_keys<'a>(&self, keys: impl IntoIterator<Item = (&'a str, &'a str)>, from: Bearer) {
        let variables = self.variables();
        let named = keys.into_iter().filter(|(variable, _)| variables.iter().any(|name| name == variable));
        named.for_each(|(variable, key)| self.keys.insert(variable, key, from));
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
            self.missing(name, entry).is_none().then_some(format!("{name}/{}", entry.model.as_ref()?))
        });
        models.next().ok_or_else(|| {
            let with_model = PRESETS.iter().filter(|preset| !preset.model.is_empty() && !preset.variable.is_empty());
            let named = with_model.filter_map(|preset| self.missing(preset.name, self.entries.get(preset.name)?));
            ResolveError::NoModel { variables: named.take(NAMED).map(str::to_owned).collect() }
        })
    }

    /// What `spec` means: `provider/model`, a provider for its default model, or nothing for the default of new sessions.
    pub fn resolve(&self, spec: &str) -> Result<Resolved, ResolveError> {
        if spec.is_empty() {
            return self.resolve(&self.default_model()?);
        }
        let (name, model) = spec.split_once('/').unwrap_or((spec, ""));
        let entry = self.entry(name)?;
        let provider = name.to_owned();
        let model = match (model, &entry.model) {
            ("", Some(model)) => model.clone(),
            ("", None) => return Err(ResolveError::NoDefault { provider }),
            (model, _) => model.to_owned(),
        };
        if entry.base_url.contains(PLACEHOLDER) {
            return Err(ResolveError::NoAddress { provider, example: entry.base_url.clone() });
        }
        if !entry.combines(&model)
            && let Some(tool) = entry.compat.hosted.tools().first()
        {
            let vertex = entry.compat.vertex == Some(true);
            return Err(ResolveError::HostedApart { provider, model, tool: tool.name(), vertex });
        }
        let key = self.source(name, entry).map_err(|variable| ResolveError::KeyMissing {
            provider: provider.clone(),
            variable: variable.to_owned(),
        })?;
        let origin = format!("{provider}/{model}");
        let target = self.target(name, entry);
        let facts = self.facts(entry, &origin, &model);
        Ok(Resolved { provider, model, origin, max_tokens: entry.max_tokens, facts, key, target })
    }

    fn facts(&self, entry: &Entry, origin: &str, model: &str) -> Facts {
        let known = entry.facts(model);
        self.models.get(origin).map_or(known, |said| said.over(known))
    }

    /// The rows of `model/list`: each provider with its default model. Asks the machine which of the local servers are there.
    pub async fn list(&self) -> Vec<Model> {
        let default = self.default_model().and_then(|spec| self.resolve(&spec)).map(|resolved| resolved.origin).ok();
        let mut rows = Vec::new();
        for (name, entry) in &self.entries {
            let model = format!("{name}/{}", entry.model.as_deref().unwrap_or("MODEL"));
            let missing = match (entry.base_url.contains(PLACEHOLDER), self.missing(name, entry)) {
                (true, _) => Some("base_url".to_owned()),
                (false, Some(variable)) => Some(variable.to_owned()),
                (false, None) if entry.local => nobody_at(&entry.base_url).await,
                (false, None) => None,
            };
            rows.push(Model {
                default: default.as_ref() == Some(&model),
                ready: missing.is_none(),
                missing,
                ..self.row(name, entry, entry.model.as_deref().unwrap_or("MODEL"), Facts::default())
            });
        }
        rows
    }

    /// How a model can be asked for answers that fit `schema`.
    pub fn shaping(&self, model: &str, schema: &Value) -> Shaping {
        let (name, model) = model.split_once('/').unwrap_or((model, ""));
        let entry = self.entries.get(name);
        entry.map_or(Shaping::Words, |entry| shape::shaping(entry.kind, entry.compat, model, schema))
    }

    /// How many tokens a model takes, where that is known.
    pub fn window(&self, model: &str) -> Option<u64> {
        self.resolve(model).ok()?.facts.window
    }

    fn entry(&self, name: &str) -> Result<&Entry, ResolveError> {
        self.entries.get(name).ok_or_else(|| {
            let near = nearest(name, self.entries.keys().map(String::as_str));
            ResolveError::UnknownProvider { provider: name.to_owned(), near }
        })
    }

    /// Where the key of `entry` comes from: what the configuration names, the environment, the keychain. The variable that would
    /// have to be set, if it comes from nowhere.
    fn source<'a>(&self, name: &str, entry: &'a Entry) -> Result<KeySource, &'a str> {
        if let Some(command) = &entry.command {
            return Ok(KeySource::Command(command.clone()));
        }
        if let Some(key) = entry.variable.as_ref().and_then(|variable| self.keys.get(variable)) {
            return Ok(KeySource::Known(key));
        }
        if let Some(account) = key::account(name, entry).filter(|account| self.keys.is_kept(account)) {
            return Ok(KeySource::Keychain(account));
        }
        match entry.variable.as_deref().filter(|_| !entry.key_optional) {
            Some(variable) => Err(variable),
            None => Ok(KeySource::None),
        }
    }

    /// The variable that must be set before `entry` can be used.
    fn missing<'a>(&self, name: &str, entry: &'a Entry) -> Option<&'a str> {
        self.source(name, entry).err()
    }

    /// The way out that all of them take.
    pub fn network(&self) -> &Network {
        &self.network
    }

    fn target(&self, name: &str, entry: &Entry) -> Provider {
        let Some(codec) = codec(entry.kind, entry.compat) else { return Provider::Demo };
        Provider::Http(Endpoint {
            name: name.to_owned(),
            base_url: entry.base_url.clone(),
            codec,
            key: None,
            limits: entry.limits,
            network: self.network.clone(),
            redactor: self.keys.redactor().clone(),
        })
    }
}

/// The name that is most like `name`, if one is like it.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    similar::get_close_matches(name, &names, 1, 0.5).first().map(|near| (*near).to_owned())
}

/// The wire format `kind` with these flags; `demo` has none.
pub fn codec(kind: Kind, compat: Compat) -> Option<Arc<dyn Codec>> {
    Some(match kind {
        Kind::Anthropic => Arc::new(Anthropic::new(compat)),
        Kind::Openai => Arc::new(OpenAi::new(compat)),
        Kind::OpenaiResponses => Arc::new(Responses::new(compat)),
        Kind::Gemini => Arc::new(Gemini::new(compat)),
        Kind::Ollama => Arc::new(Ollama::new(compat)),
        Kind::Demo => return None,
    })
}

/// What is missing if nobody listens at an address of this machine; an answer, good or bad, comes at once there.
async fn nobody_at(base_url: &str) -> Option<String> {
    let url = Url::parse(base_url).ok()?;
    let (host, port) = (url.host_str()?.to_owned(), url.port_or_known_default()?);
    let listens = tokio::time::timeout(LOOK, tokio::net::TcpStream::connect((address::bare(&host), port))).await;
    (!matches!(listens, Ok(Ok(_)))).then(|| format!("nobody listens at {host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn catalogue(config: &str, default: &str, keys: &[(&str, &str)]) -> Catalogue {
        let providers: BTreeMap<String, ProviderConfig> = toml::from_str(config).unwrap();
        assert!(providers.iter().all(|(name, config)| config.check(name).is_ok()));
        let said = ModelConfig { context_window: Some(9000), input_price: Some(1.5), ..ModelConfig::default() };
        let models = BTreeMap::from([("local/qwen/3".to_owned(), said)]);
        let default = Some(default.to_owned());
        let catalogue = Catalogue::new(&providers, &models, default, Arc::default(), Arc::default());
        catalogue.add_keys(keys.iter().copied(), Bearer::Daemon);
        catalogue
    }

    pub(super) const WORK: &str = "
        [work]
        kind = 'openai'
        base_url = 'http://127.0.0.1:4001/v1'
        api_key_env = 'WORK_KEY'
        max_tokens = 9
        [local]
        kind = 'openai'
        base_url = 'http://127.0.0.1:8081/v1'
        model = 'qwen/3'
        compat = { developer_role = true }
        [pass]
        kind = 'anthropic'
        api_key_command = 'pass show work'
        model = 'm'";

    pub(super) fn check(catalogue: &Catalogue, spec: &str, expect: Result<(&str, KeySource), &str>) {
        let got =
            catalogue.resolve(spec).map(|resolved| (resolved.origin, resolved.key)).map_err(|error| error.to_string());
        let expect = expect.map(|(origin, key)| (origin.to_owned(), key)).map_err(str::to_owned);
        assert_eq!(got, expect, "{spec}");
    }

    pub(super) fn known(key: &str) -> KeySource {
        KeySource::Known(Secret::new(key))
    }

    #[test]
    fn a_spec_names_a_provider_and_perhaps_a_model() {
        let catalogue = catalogue(WORK, "", &[("WORK_KEY", "w-secret"), ("HOME", "not a key")]);
        check(&catalogue, "work/a/b", Ok(("work/a/b", known("w-secret"))));
        check(&catalogue, "local", Ok(("local/qwen/3", KeySource::None)));
        check(&catalogue, "pass", Ok(("pass/m", KeySource::Command("pass show work".to_owned()))));
        check(&catalogue, "demo", Ok(("demo/demo", KeySource::None)));
        check(
            &catalogue,
            "anthropic",
            Err(
                "the provider `anthropic` needs a key: set ANTHROPIC_API_KEY, or store it with `linger key set anthropic`",
            ),
        );
        check(
            &catalogue,
            "work",
            Err("the provider `work` has no default model: write `work/MODEL`, or set `model` in [providers.work]"),
        );
        check(&catalogue, "antropic/x", Err("there is no provider `antropic`; did you mean `anthropic`?"));
        check(&catalogue, "zzz", Err("there is no provider `zzz`"));
        let wanted = catalogue.wanted();
        assert!(
            ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "VLLM_API_KEY"]
                .iter()
                .all(|name| wanted.contains(&(*name).to_owned()))
        );
        assert!(!wanted.contains(&"WORK_KEY".to_owned()));
        assert_eq!(catalogue.keys.get("HOME"), None);
    }

    #[test]
    fn hosted_tools_are_refused_to_models_that_take_none_beside_others() {
        let on = "
            [gemini]\nhosted_tools = ['code_execution']
            [vertex]\nbase_url = 'https://aiplatform.googleapis.com/v1/projects/p/locations/global'\nhosted_tools = ['web_search']
            [mine]\nkind = 'gemini'\napi_key_env = 'GEMINI_API_KEY'\nhosted_tools = ['web_search']\ncompat = { hosted_with_tools = true }";
        let catalogue = catalogue(on, "", &[("GEMINI_API_KEY", "k-secret")]);
        check(&catalogue, "gemini", Ok(("gemini/gemini-flash-latest", known("k-secret"))));
        check(
            &catalogue,
            "gemini/gemini-2.5-pro",
            Err(
                "gemini-2.5-pro takes no code_execution beside other tools: choose a model from Gemini 3 on, or take `hosted_tools` out of [providers.gemini]",
            ),
        );
        check(
            &catalogue,
            "vertex/gemini-3-pro",
            Err("Vertex AI takes no web_search beside other tools: take `hosted_tools` out of [providers.vertex]"),
        );
        check(&catalogue, "mine/gemini-2.5-pro", Ok(("mine/gemini-2.5-pro", known("k-secret"))));
    }

    #[test]
    fn the_default_is_what_is_configured_or_what_has_a_key() {
        check(
            &catalogue("", "", &[]),
            "",
            Err(
                "no model: set ANTHROPIC_API_KEY or OPENAI_API_KEY or GEMINI_API_KEY (`linger models` lists more), or name one in config.toml, or use the scripted model `demo`",
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
    fn a_key_that_is_opened_is_then_redacted() {
        let catalogue = catalogue(WORK, "", &[]);
        let key = Some(Secret::new("s3cr3t-key\n"));
        let Provider::Http(endpoint) = catalogue.resolve("pass").unwrap().open(key) else { panic!() };
        assert_eq!(endpoint.key, Some(Secret::new("s3cr3t-key")));
        assert_eq!(endpoint.redactor.redact("bad key s3cr3t-key"), "bad key <redacted>");
        assert!(!format!("{endpoint:?}").contains("s3cr3t"));
    }

    #[tokio::test]
    async fn the_list_says_what_is_ready() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let rows = catalogue(WORK, "local", &[]).list().await;
        let row = |name: &str| {
            let row = rows.iter().find(|row| row.model.starts_with(&format!("{name}/"))).unwrap();
            (row.model.as_str(), row.kind.as_str(), row.missing.as_deref(), row.default)
        };
        for expect in [
            ("anthropic/claude-sonnet-5", "anthropic", Some("ANTHROPIC_API_KEY"), false),
            ("demo/demo", "demo", None, false),
            ("local/qwen/3", "openai", None, true),
            ("openai/gpt-5", "openai", Some("OPENAI_API_KEY"), false),
            ("pass/m", "anthropic", None, false),
            ("work/MODEL", "openai", Some("WORK_KEY"), false),
            ("vertex/MODEL", "gemini", Some("base_url"), false),
            ("groq/MODEL", "openai", Some("GROQ_API_KEY"), false),
        ] {
            assert_eq!(row(expect.0.split('/').next().unwrap()), expect);
        }
        let port = listener.local_addr().unwrap().port();
        assert_eq!(nobody_at(&format!("http://127.0.0.1:{port}/v1")).await, None);
        drop(listener);
        let nobody = format!("nobody listens at 127.0.0.1:{port}");
        assert_eq!(nobody_at(&format!("http://127.0.0.1:{port}/v1")).await, Some(nobody));
    }

    #[test]
    fn what_is_known_of_a_model_is_known_by_its_place() {
        let keys = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o"), ("WORK_KEY", "w")];
        let config = format!(
            "{WORK}\n[gpt]\nkind = 'openai-responses'\n[ollama.compat]\nnum_ctx = 4096\n\
             [groq]\nbase_url = 'http://10.0.0.1/v1'"
        );
        let catalogue = catalogue(&config, "", &keys);
        let facts = |spec: &str| catalogue.resolve(spec).unwrap().facts;
        assert_eq!(facts("anthropic/claude-sonnet-5"), models::facts("anthropic", "claude-sonnet-5"));
        assert!(facts("anthropic").window.is_some());
        assert_eq!(facts("gpt/gpt-5"), models::facts("openai", "gpt-5"));
        assert_eq!(facts("work/gpt-5"), Facts::default());
        assert_eq!(facts("groq/openai/gpt-oss-120b"), Facts::default(), "another place has other prices");
        assert_eq!(facts("ollama/x"), Facts { window: Some(4096), ..Facts::default() });
        assert_eq!(facts("demo").prices.usual, Price::FREE);
        let local = facts("local");
        assert_eq!((local.window, local.prices.usual.input, local.prices.usual.output), (Some(9000), Some(1.5), None));
    }

    #[test]
    fn presets_know_their_addresses_keys_and_flags() {
        fn check(config: &str, name: &str, expect: (Kind, &str, Option<&str>, Option<&str>)) -> Compat {
            let catalogue = catalogue(config, "", &[]);
            let entry = &catalogue.entries[name];
            let got = (entry.kind, entry.base_url.as_str(), entry.variable.as_deref(), entry.command.as_deref());
            assert_eq!(got, expect, "{config} {name}");
            entry.compat
        }
        use Kind::{Gemini, Ollama, Openai, OpenaiResponses};
        let groq = "https://api.groq.com/openai/v1";
        check("", "groq", (Openai, groq, Some("GROQ_API_KEY"), None));
        check("[groq]\nmodel = 'x'", "groq", (Openai, groq, Some("GROQ_API_KEY"), None));
        let responses = (OpenaiResponses, "https://api.openai.com/v1", Some("OPENAI_API_KEY"), None);
        check("[openai]\nkind = 'openai-responses'", "openai", responses);
        check("[gpt]\nkind = 'openai-responses'", "gpt", responses);
        check("", "ollama", (Ollama, "http://127.0.0.1:11434", Some("OLLAMA_API_KEY"), None));
        // An address is as good as a name, and a name keeps its flags at another address.
        let there = "[mine]\nkind = 'openai'\nbase_url = 'https://api.deepseek.com/v1'";
        let flags = check(there, "mine", (Openai, "https://api.deepseek.com/v1", Some("DEEPSEEK_API_KEY"), None));
        assert_eq!(flags.reasoning_content, Some(true));
        let proxied = "[deepseek]\nbase_url = 'http://10.0.0.1/v1'\ncompat = { tool_result_name = true }";
        let flags = check(proxied, "deepseek", (Openai, "http://10.0.0.1/v1", None, None));
        assert_eq!((flags.reasoning_content, flags.tool_result_name), (Some(true), Some(true)));
        let off = check(
            "[deepseek]\ncompat = { reasoning_content = false }",
            "deepseek",
            (Openai, "https://api.deepseek.com", Some("DEEPSEEK_API_KEY"), None),
        );
        assert_eq!(off.reasoning_content, Some(false));
        let region = "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/europe-west1";
        let token = Some("gcloud auth print-access-token");
        let flags = check(&format!("[vertex]\nbase_url = '{region}'"), "vertex", (Gemini, region, None, token));
        assert_eq!(flags.vertex, Some(true));
        let own = format!("[vertex]\nbase_url = '{region}'\napi_key_command = 'token'");
        check(&own, "vertex", (Gemini, region, None, Some("token")));
    }

    #[test]
    fn a_local_server_needs_no_key_and_vertex_needs_a_project() {
        let plain = catalogue("", "", &[]);
        check(&plain, "ollama/qwen3", Ok(("ollama/qwen3", KeySource::None)));
        let with_key = catalogue("", "", &[("OLLAMA_API_KEY", "k-secret")]);
        check(&with_key, "ollama/qwen3", Ok(("ollama/qwen3", known("k-secret"))));
        let needed = catalogue("[ollama]\napi_key_env = 'MINE'", "", &[]);
        check(
            &needed,
            "ollama/x",
            Err("the provider `ollama` needs a key: set MINE, or store it with `linger key set ollama`"),
        );
        let address = "the provider `vertex` has no address: set `base_url` in [providers.vertex], such as \
                       \"https://aiplatform.googleapis.com/v1/projects/PROJECT/locations/global\"";
        check(&plain, "vertex/gemini-x", Err(address));
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
        check("kind = 'openai'\ncompat = { num_ctx = 9 }", "compat");
        check("kind = 'ollama'\ncompat = { num_ctx = 0 }", "compat");
        assert!(toml::from_str::<ProviderConfig>("api_key = 'oops'").is_err());
    }
}
