//! The catalogue: resolves `provider/model` with the configuration to a usable endpoint.
//!
//! Deliberately absent: running a key's command and asking the keychain, which take time; [`Resolved::key`] names the source.

mod config;
mod error;
mod key;
mod learned;
mod lists;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::daemon::Model;
use linger_protocol::patience::Patience;
use linger_protocol::session::{Effort, PrefixFingerprint};
use reqwest::Url;
use serde_json::{Map, Value};

use super::address;
use super::anthropic::{self, Anthropic};
use super::compat::Compat;
use super::driver::{Endpoint, FieldText, Timeouts};
use super::effort;
use super::gemini::{self, Gemini};
use super::hosted::Hosted;
use super::keys::{Account, Bearer, Keys};
use super::models::{self, ModelConfig, ModelInfo, Price, Prices, is_trained_on_patches};
use super::network::Network;
use super::ollama::{self, Ollama};
use super::openai::OpenAi;
use super::output_schema::{self, SchemaStrategy};
use super::own_fields::{self, Field, FieldValue, Fields, Part, Source};
use super::preset::{self, PLACEHOLDER, PRESETS};
use super::responses::Responses;
use super::setup::setup;
use super::tools::ToolSpecs;
use super::{Codec, Provider};
use crate::diagnostics::{self, secret::Secret};
pub use config::{Kind, ProviderConfig};
pub use error::ResolveError;
use lists::Lists;
pub use lists::Stored;

/// How many variables a hint names.
const NAMED: usize = 3;

/// How long to wait for a local server when listing models: a local connection takes microseconds.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a model may not answer before another one stands in, unless configured.
const FALLBACK_AFTER: Patience = Patience::Millis(60_000);

/// The source of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The provider needs none.
    None,
    /// Already known.
    Known(Secret),
    /// Printed by this command, which runs before the first request.
    Command(String),
    /// In the keychain, which is asked before the first request.
    Keychain(Account),
}

/// The secrets of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The key; absent if the provider needs none.
    pub key: Option<Secret>,
    /// The values of the fields that are secrets, in their order.
    pub fields: Vec<Secret>,
}

impl From<Option<Secret>> for Secrets {
    fn from(key: Option<Secret>) -> Self {
        Self { key, fields: Vec::new() }
    }
}

/// A model that can be used once its key is known.
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
    /// Its properties.
    pub facts: ModelInfo,
    /// How long a turn waits while it cannot answer.
    pub patience: Patience,
    /// The source of its key.
    pub key: KeySource,
    /// Headers and query parameters of the user's own.
    pub fields: Vec<Field>,
    /// Fields of the body of the user's own.
    pub body: Map<String, Value>,
    /// The variable with the preset's key, if the user's own `base_url` does not get it.
    withheld: Option<&'static str>,
    kind: Kind,
    compat: Compat,
    target: Provider,
}

impl Resolved {
    /// The fingerprint of requests apart from messages, for this system prompt and these tools.
    pub fn setup(&self, system: &str, tools: &ToolSpecs) -> PrefixFingerprint {
        setup((system, tools), &self.origin, (self.kind, self.compat), self.facts.effort, &self.body)
    }

    /// Without the provider's own tools that are not among `only`, the tools of a session.
    pub fn limited(mut self, only: Option<&[String]>) -> Self {
        let hosted = self.compat.hosted.limited(only);
        if hosted != self.compat.hosted {
            self.compat.hosted = hosted;
            if let (Provider::Http(endpoint), Some(codec)) = (&mut self.target, codec(self.kind, self.compat)) {
                endpoint.codec = codec;
            }
        }
        self
    }

    /// Whether requests enable thinking, for a session's `effort`.
    pub fn thinks(&self, effort: Effort) -> bool {
        let effort = if effort.is_auto() { self.facts.effort } else { effort };
        effort::thinks(effort) || effort.is_auto() && self.compat.thinking == Some(true)
    }

    /// A warning for an effort that has no effect on this model.
    pub fn idle_effort(&self, effort: Effort) -> Option<String> {
        let takes = match self.kind {
            _ if effort.is_auto() => true,
            Kind::Openai | Kind::OpenaiResponses => self.compat.reasoning_effort != Some(false),
            Kind::Anthropic => anthropic::takes_effort(&self.compat, &self.model, effort),
            Kind::Gemini | Kind::Ollama | Kind::Demo => true,
        };
        (!takes).then(|| format!("{} does not support effort: {} has no effect", self.origin, effort.name()))
    }

    /// A hint for a model that refuses a request without a key.
    pub fn without_key(&self) -> Option<String> {
        if self.key != KeySource::None {
            return None;
        }
        let provider = &self.provider;
        Some(match self.withheld {
            Some(variable) => format!(
                "no key was sent, as base_url is an address of your own: api_key_env = \"{variable}\" in [providers.{provider}] sends that one"
            ),
            None => format!("no key was sent: api_key_env in [providers.{provider}] names the variable of one"),
        })
    }

    /// Whether all calls are sent with `reasoning_content`, even another model's.
    pub fn has_reasoning(&self) -> bool {
        self.compat.reasoning_content == Some(true)
    }

    /// Its wire format.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Host and port of its endpoint; absent if it needs no network.
    pub fn address(&self) -> Option<String> {
        match &self.target {
            Provider::Http(endpoint) => Url::parse(&endpoint.base_url).ok().map(|url| address::authority(&url)),
            _ => None,
        }
    }

    /// The sources of its secrets: the key's, then those of [`Resolved::fields`].
    pub fn sources(&self) -> impl Iterator<Item = &KeySource> {
        let fields = self.fields.iter().filter_map(|field| match &field.value {
            Source::Secret(source) => Some(source),
            Source::Plain(_) => None,
        });
        std::iter::once(&self.key).chain(fields)
    }

    /// The provider, with the secrets obtained from [`Resolved::sources`].
    pub fn open(&self, secrets: Secrets) -> Provider {
        let mut target = self.target.clone();
        if let Provider::Http(endpoint) = &mut target {
            secrets.key.iter().chain(&secrets.fields).for_each(|secret| endpoint.redactor.add(secret));
            endpoint.key = secrets.key;
            let mut values = secrets.fields.into_iter();
            let value = |field: &Field| match &field.value {
                Source::Plain(value) => Some(FieldText::Plain(value.clone())),
                Source::Secret(_) => values.next().map(FieldText::Secret),
            };
            let texts: Vec<Option<FieldText>> = self.fields.iter().map(value).collect();
            let fields = self.fields.iter().zip(texts);
            let fields = fields.filter_map(|(field, text)| Some((field.part, field.name.clone(), text?)));
            endpoint.fields = Arc::new(fields.collect());
        }
        target
    }
}

/// All providers, configured ones and presets.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: BTreeMap<String, Entry>,
    /// The configured properties of models, by `provider/model`.
    models: BTreeMap<String, ModelConfig>,
    /// The configured model of new sessions.
    default: Option<String>,
    keys: Arc<Keys>,
    network: Arc<Network>,
    /// The model lists fetched from providers.
    lists: Arc<Lists>,
    /// Configured providers of whose table something is not confirmed.
    unconfirmed: BTreeSet<String>,
}

/// A provider, its configuration completed with defaults.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    base_url: String,
    variable: Option<String>,
    /// Whether it works without the key in `variable`.
    key_optional: bool,
    command: Option<String>,
    /// The variable with the preset's key, if it is not sent to this address.
    withheld: Option<&'static str>,
    model: Option<String>,
    max_tokens: u32,
    limits: Timeouts,
    patience: Patience,
    compat: Compat,
    /// The flags that the user set.
    configured: Compat,
    headers: Fields,
    query: Fields,
    body: Map<String, Value>,
    /// The preset with this address, whose models and prices apply.
    place: Option<&'static str>,
    /// The preset that the user reconfigured.
    preset: Option<&'static str>,
    /// Whether it is a known server on this machine, usable while it listens.
    local: bool,
}

impl Entry {
    /// `None` for an unknown kind; [`ProviderConfig::check`] reports that.
    fn new(name: &str, config: &ProviderConfig) -> Option<Self> {
        let named = preset::named(name);
        let kind = config.kind.or(named.map(|preset| preset.kind))?;
        let vendor = preset::vendor(kind)?;
        // A preset that is given another kind stays where it is: nothing of it goes to the vendor of that kind.
        let origin = named.unwrap_or(vendor);
        let base_url = config.base_url.clone().unwrap_or_else(|| origin.base_url.to_owned());
        // A vendor's key goes only to the vendor, unless configured otherwise.
        let place = if config.base_url.is_none() { Some(origin) } else { preset::by_address(&base_url) };
        let own = |text: fn(&preset::Preset) -> &'static str| {
            place.map(text).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (variable, command) = match (&config.api_key_env, &config.api_key_command) {
            (None, None) => (own(|place| place.variable), own(|place| place.command)),
            (variable, command) => (variable.clone(), command.clone()),
        };
        let own_key = named.map(|named| named.variable).filter(|variable| !variable.is_empty());
        let withheld = own_key.filter(|_| variable.is_none() && command.is_none());
        let known =
            place.map_or(Compat::NONE, |place| place.compat).or(named.map_or(Compat::NONE, |named| named.compat));
        let hosted = Hosted::named(&config.hosted_tools, kind).unwrap_or_default();
        Some(Self {
            kind,
            base_url,
            variable,
            key_optional: config.api_key_env.is_none() && place.is_some_and(|place| place.local),
            command,
            withheld,
            model: config.model.clone().or_else(|| Some(named?.model.to_owned()).filter(|model| !model.is_empty())),
            max_tokens: config.max_tokens.unwrap_or_default(),
            limits: config.limits(),
            patience: config.patience.unwrap_or(Patience::USUAL),
            compat: Compat { hosted, ..config.compat.or(known) },
            configured: config.compat,
            headers: config.headers.clone(),
            query: config.query.clone(),
            body: config.body.clone(),
            place: place.map(|place| place.name),
            preset: named.map(|named| named.name),
            local: place.is_some_and(|place| place.local),
        })
    }

    /// Whether a model takes hosted tools together with others.
    fn combines(&self, model: &str) -> bool {
        self.kind != Kind::Gemini || gemini::combines(&self.compat, model)
    }

    /// The most tokens of an answer: the provider's setting, but not above the model's maximum; without a setting the model's
    /// maximum, if the format requires a number. 0 leaves it to the provider or the format.
    fn max_tokens(&self, facts: &ModelInfo) -> u32 {
        let most = facts.max_output.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        match (self.max_tokens, most) {
            (0, Some(most)) if self.kind == Kind::Anthropic => most,
            (0, _) | (_, None) => self.max_tokens,
            (said, Some(most)) => said.min(most),
        }
    }

    /// The properties of a model at this address, without the user's settings.
    fn facts(&self, model: &str) -> ModelInfo {
        let mut facts = match (self.place, self.preset) {
            (Some(place), _) => models::facts(place, model),
            // At another address the model is the same, but its prices are unknown.
            (None, Some(preset)) => ModelInfo { prices: Prices::default(), ..models::facts(preset, model) },
            (None, None) => ModelInfo::default(),
        };
        if self.kind == Kind::Demo {
            facts.prices.usual = Price::FREE;
        }
        facts
    }

    /// The flags for a model with this configured window. Ollama silently drops tokens beyond the number it is given, so that number
    /// is the window, at most the provider's setting.
    fn compat(&self, window: Option<u64>) -> Compat {
        let said = window.filter(|_| self.kind == Kind::Ollama).map(|said| u32::try_from(said).unwrap_or(u32::MAX));
        let num_ctx = [said, self.compat.num_ctx].into_iter().flatten().min();
        Compat { num_ctx, ..self.compat }
    }
}

impl Catalogue {
    /// Combines presets and configured `providers`, reached over `network`, with properties of `models`; `default` is the configured
    /// model of new sessions.
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
            lists: Arc::default(),
            unconfirmed: BTreeSet::new(),
        }
    }

    /// The same, with the names of configured providers of which something is not confirmed.
    pub fn with_unconfirmed(self, unconfirmed: BTreeSet<String>) -> Self {
        Self { unconfirmed, ..self }
    }

    /// Every variable that may hold a key.
    pub fn variables(&self) -> Vec<String> {
        let keys = self.entries.values().filter_map(|entry| entry.variable.as_deref());
        let tables = self.entries.values().flat_map(|entry| [&entry.headers, &entry.query]);
        let tables = tables.chain(self.models.values().flat_map(|model| [&model.headers, &model.query]));
        let mut variables: Vec<String> =
            keys.chain(tables.flat_map(own_fields::variables)).map(str::to_owned).collect();
        variables.sort_unstable();
        variables.dedup();
        variables
    }

    /// The variables whose keys are missing or were refused.
    pub fn wanted(&self) -> Vec<String> {
        self.variables().into_iter().filter(|variable| self.keys.wants(variable)).collect()
    }

    /// Adds those of `keys` that a provider names.
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

    /// Whether requests of a provider can be sent: its key is known, or it needs none.
    pub fn has_key(&self, provider: &str) -> bool {
        self.entries.get(provider).is_some_and(|entry| self.missing(provider, entry).is_none())
    }

    /// Resolves `spec`: `provider/model`, a provider for its default model, or empty for the default of new sessions.
    /// Where a part of the provider's table is not confirmed yet, that is the error, unless it is a key that is missing.
    pub fn resolve(&self, spec: &str) -> Result<Resolved, ResolveError> {
        let name = spec.split_once('/').map_or(spec, |(name, _)| name);
        self.resolve_confirmed(spec).map_err(|error| match error {
            ResolveError::KeyMissing { .. } | ResolveError::FieldMissing { .. } => error,
            _ if self.is_unconfirmed(name) => ResolveError::Unconfirmed { provider: name.to_owned() },
            error => error,
        })
    }

    /// Whether something of the provider's table waits until a person confirms it.
    pub fn is_unconfirmed(&self, provider: &str) -> bool {
        self.unconfirmed.contains(provider)
    }

    /// Resolves `spec` by what is in force.
    fn resolve_confirmed(&self, spec: &str) -> Result<Resolved, ResolveError> {
        if spec.is_empty() {
            return self.resolve(&self.default_model()?);
        }
        let (name, model) = spec.split_once('/').unwrap_or((spec, ""));
        let provider = name.to_owned();
        let Some(entry) = self.entries.get(name) else {
            return Err(ResolveError::UnknownProvider { provider, near: self.meant(spec, None) });
        };
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
        let (fields, body) = self.own_fields(&provider, &origin, entry)?;
        let facts = self.facts(name, entry, &model);
        let (kind, compat) = (entry.kind, self.learned(name, &model, entry.compat(facts.window)));
        let target = self.target(name, entry, compat);
        let max_tokens = entry.max_tokens(&facts);
        let (withheld, patience) = (entry.withheld, entry.patience);
        Ok(Resolved {
            provider,
            model,
            origin,
            max_tokens,
            facts,
            patience,
            key,
            fields,
            body,
            withheld,
            kind,
            compat,
            target,
        })
    }

    /// The user's own fields for a model.
    fn own_fields(
        &self,
        provider: &str,
        origin: &str,
        entry: &Entry,
    ) -> Result<(Vec<Field>, Map<String, Value>), ResolveError> {
        let none = ModelConfig::default();
        let model = self.models.get(origin).unwrap_or(&none);
        let headers = own_fields::merged(&entry.headers, &model.headers);
        let query = own_fields::merged(&entry.query, &model.query);
        let headers = headers.into_iter().map(|(name, value)| (Part::Header, name, value));
        let query = query.into_iter().map(|(name, value)| (Part::Query, name, value));
        let field = |(part, name, value): (Part, String, FieldValue)| {
            let value = match value {
                FieldValue::Plain(value) => Source::Plain(value),
                FieldValue::Command { command } => Source::Secret(KeySource::Command(command)),
                FieldValue::Variable { env } => match self.keys.get(&env) {
                    Some(value) => Source::Secret(KeySource::Known(value)),
                    None => {
                        let (provider, field) = (provider.to_owned(), name);
                        return Err(ResolveError::FieldMissing { provider, field, variable: env });
                    }
                },
            };
            Ok(Field { part, name, value })
        };
        let fields = headers.chain(query).map(field).collect::<Result<_, _>>()?;
        let mut body = entry.body.clone();
        own_fields::merge(&mut body, &model.body);
        Ok((fields, body))
    }

    /// The properties of a model: configured, else from its provider's own list, else from the table of its preset.
    fn facts(&self, name: &str, entry: &Entry, model: &str) -> ModelInfo {
        let known = self.lists.facts(name, model).or(entry.facts(model));
        let none = ModelConfig::default();
        let said = self.models.get(&format!("{name}/{model}")).unwrap_or(&none);
        let mut facts = said.override_in(known);
        // What the server refuses counts, whatever was said before.
        facts.window = [facts.window, self.lists.refused_above(name, model)].into_iter().flatten().min();
        match entry.kind {
            // Its window is what the request asks for, even if the model could have more.
            Kind::Ollama => {
                let num_ctx = entry.compat(said.context_window).num_ctx.unwrap_or(ollama::NUM_CTX);
                let window = Some(u64::from(num_ctx)).into_iter().chain(self.lists.facts(name, model).window).min();
                ModelInfo { window, ..facts }
            }
            _ => facts,
        }
    }

    /// The configured models that stand in for `origin` while it cannot answer, and after how long.
    pub fn fallback(&self, origin: &str) -> (&[String], Duration) {
        let config = self.models.get(origin);
        let after = config.and_then(|config| config.fallback_after).unwrap_or(FALLBACK_AFTER);
        (config.map_or(&[], |config| &config.fallback), after.limit().unwrap_or(Duration::MAX))
    }

    /// The rows of `model/list`: each provider with its default model. Connects to local servers to see which ones run.
    pub async fn list(&self) -> Vec<Model> {
        let default = self.default_model().and_then(|spec| self.resolve(&spec)).map(|resolved| resolved.origin).ok();
        let mut rows = Vec::new();
        for (name, entry) in &self.entries {
            let model = format!("{name}/{}", entry.model.as_deref().unwrap_or("MODEL"));
            let missing = match (entry.base_url.contains(PLACEHOLDER), self.missing(name, entry)) {
                (true, _) => Some("base_url".to_owned()),
                (false, Some(variable)) => Some(variable.to_owned()),
                (false, None) if entry.local => not_listening(&entry.base_url).await,
                (false, None) => None,
            };
            let contacted = missing.is_none() && entry.local;
            rows.push(Model {
                contacted,
                default: default.as_ref() == Some(&model),
                ready: missing.is_none(),
                missing,
                ..self.row(name, entry, entry.model.as_deref().unwrap_or("MODEL"))
            });
        }
        rows
    }

    /// How a model can be asked for answers that fit `schema`.
    pub fn schema_strategy(&self, model: &str, schema: &Value) -> SchemaStrategy {
        let (name, model) = model.split_once('/').unwrap_or((model, ""));
        let entry = self.entries.get(name);
        entry.map_or(SchemaStrategy::PromptOnly, |entry| {
            output_schema::schema_strategy(entry.kind, self.learned(name, model, entry.compat), model, schema)
        })
    }

    /// Whether answers of a model that fit `schema` come as the field of an object.
    pub fn wraps(&self, model: &str, schema: &Value) -> bool {
        let entry = self.entries.get(model.split('/').next().unwrap_or(model));
        self.schema_strategy(model, schema) != SchemaStrategy::PromptOnly
            && entry.is_some_and(|entry| output_schema::wraps(entry.kind, schema))
    }

    /// The context window of a model (`provider/model`), in tokens, if known.
    pub fn window(&self, origin: &str) -> Option<u64> {
        let (name, model) = origin.split_once('/')?;
        self.facts(name, self.entries.get(name)?, model).window
    }

    /// Whether a model (`provider/model`) changes files by patches.
    pub fn patches(&self, origin: &str) -> bool {
        let Some((name, model)) = origin.split_once('/') else { return false };
        let known = self.entries.get(name).and_then(|entry| self.facts(name, entry, model).apply_patch);
        known.unwrap_or_else(|| is_trained_on_patches(model))
    }

    fn entry(&self, name: &str) -> Result<&Entry, ResolveError> {
        self.entries.get(name).ok_or_else(|| {
            let near = nearest(name, self.entries.keys().map(String::as_str));
            ResolveError::UnknownProvider { provider: name.to_owned(), near }
        })
    }

    /// The source of the key of `entry`: as configured, else the environment, else the keychain. Fails with the variable to set.
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

    /// Proxies and certificates for all providers.
    pub fn network(&self) -> &Network {
        &self.network
    }

    fn target(&self, name: &str, entry: &Entry, compat: Compat) -> Provider {
        let Some(codec) = codec(entry.kind, compat) else { return Provider::Demo };
        Provider::Http(Endpoint {
            name: name.to_owned(),
            base_url: entry.base_url.clone(),
            codec,
            key: None,
            fields: Arc::default(),
            limits: entry.limits,
            network: self.network.clone(),
            redactor: self.keys.redactor().clone(),
        })
    }
}

/// The most similar name, if any is similar.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    diagnostics::nearest::nearest(name, names, 0.5).map(str::to_owned)
}

/// The codec of `kind` with these flags; `None` for `demo`.
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

/// The problem if no server listens at a local address; a local connection succeeds or fails immediately.
async fn not_listening(base_url: &str) -> Option<String> {
    let url = Url::parse(base_url).ok()?;
    let (host, port) = (url.host_str()?.to_owned(), url.port_or_known_default()?);
    let listens =
        tokio::time::timeout(LOCAL_TIMEOUT, tokio::net::TcpStream::connect((address::bare(&host), port))).await;
    (!matches!(listens, Ok(Ok(_)))).then(|| format!("no server listens at {host}:{port}"))
}

#[cfg(test)]
mod tests;
