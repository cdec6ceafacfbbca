//! The catalogue: resolves `provider/model` with the configuration to a usable endpoint.
//!
//! Deliberately absent: running a key's command and asking the keychain, which take time; [`Resolved::key`] names the source.

mod config;
mod entry;
mod error;
mod hosted_names;
mod key;
mod learned;
mod lists;
mod model_config;
mod names;
mod resolved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::daemon::Model;
use linger_protocol::patience::Patience;
use reqwest::Url;
use serde_json::{Map, Value};

use super::address;
use super::attempt::Provider;
pub use super::codecs::codec;
use super::compat::Compat;
use super::driver::Endpoint;
pub use super::keys::KeySource;
use super::keys::{Bearer, Keys};
pub use super::kind::ProviderKind;
use super::models::{ModelInfo, is_trained_on_patches};
use super::network::Network;
use super::output_schema::{self, SchemaStrategy};
use super::own_fields::{self, Field, FieldPlace, FieldSource, FieldValue};
use super::preset::{PLACEHOLDER, PRESETS};
use crate::diagnostics;
pub use config::ProviderConfig;
use entry::Entry;
pub use error::ResolveError;
use lists::Lists;
pub use lists::Stored;
pub use model_config::ModelConfig;
pub use resolved::{Resolved, Secrets};

/// How many variables a hint names.
const NAMED: usize = 3;

/// How long to wait for a local server when listing models: a local connection takes microseconds.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a model may not answer before another one stands in, unless configured.
const FALLBACK_AFTER: Patience = Patience::Millis(60_000);

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
        if from == Bearer::Client {
            self.keys.begin_client();
        }
        let named = keys.into_iter().filter(|(variable, _)| variables.iter().any(|name| name == variable));
        named.for_each(|(variable, key)| self.keys.insert(variable, key, from));
    }

    /// The model of new sessions: the configured one, else that of the first preset that can be used. A key that a client brought
    /// comes after all keys that were there before, so that it makes no other provider the default.
    pub fn default_model(&self) -> Result<String, ResolveError> {
        if let Some(default) = &self.default {
            return Ok(default.clone());
        }
        let preset_first = PRESETS.iter().map(|preset| preset.name);
        let names = preset_first.chain(self.entries.keys().map(String::as_str));
        let models = names.filter_map(|name| {
            let entry = self.entries.get(name).filter(|entry| entry.kind != ProviderKind::Demo)?;
            let model = self.missing(name, entry).is_none().then_some(format!("{name}/{}", entry.model.as_ref()?))?;
            Some((self.client_place(name), model))
        });
        models.min_by_key(|(place, _)| *place).map(|(_, model)| model).ok_or_else(|| {
            let with_model = PRESETS.iter().filter(|preset| !preset.model.is_empty() && !preset.variable.is_empty());
            let named = with_model.filter_map(|preset| self.missing(preset.name, self.entries.get(preset.name)?));
            ResolveError::NoModel { variables: named.take(NAMED).map(str::to_owned).collect() }
        })
    }

    /// The place of a provider's key among those that clients have brought; `None` if it needs none or has one of another source.
    pub fn client_place(&self, provider: &str) -> Option<u64> {
        let entry = self.entries.get(provider)?;
        matches!(self.source(provider, entry), Ok(KeySource::Known(_))).then_some(())?;
        self.keys.client_place(entry.variable.as_deref()?)
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
        let headers = headers.into_iter().map(|(name, value)| (FieldPlace::Header, name, value));
        let query = query.into_iter().map(|(name, value)| (FieldPlace::Query, name, value));
        let field = |(part, name, value): (FieldPlace, String, FieldValue)| {
            let value = match value {
                FieldValue::Plain(value) => FieldSource::Plain(value),
                FieldValue::Command { command } => FieldSource::Secret(KeySource::Command(command)),
                FieldValue::Variable { env } => match self.keys.get(&env) {
                    Some(value) => FieldSource::Secret(KeySource::Known(value)),
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
        let codec = codec(entry.kind, entry.compat(said.context_window));
        if let Some(asked) = codec.and_then(|codec| codec.requested_window()) {
            // Even if the model could have more.
            facts.window = Some(u64::from(asked)).into_iter().chain(self.lists.facts(name, model).window).min();
        }
        facts
    }

    /// The configured models that stand in for `origin` while it cannot answer, and after how long.
    pub fn fallback(&self, origin: &str) -> (&[String], Duration) {
        let config = self.models.get(origin);
        let after = config.and_then(|config| config.fallback_after).unwrap_or(FALLBACK_AFTER);
        (config.map_or(&[], |config| &config.fallback), after.limit().unwrap_or(Duration::MAX))
    }

    /// The rows of `model/list`: each provider with its default model. Connects to local servers to see which ones run.
    pub async fn list(&self) -> Vec<Model> {
        let default = self.default_origin();
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

    /// The model of new sessions, `provider/model`, if there is one.
    pub(super) fn default_origin(&self) -> Option<String> {
        self.default_model().and_then(|spec| self.resolve(&spec)).map(|resolved| resolved.origin).ok()
    }

    /// How a model can be asked for answers that fit `schema`.
    pub fn schema_strategy(&self, model: &str, schema: &Value) -> SchemaStrategy {
        let (name, model) = model.split_once('/').unwrap_or((model, ""));
        let entry = self.entries.get(name);
        entry.map_or(SchemaStrategy::PromptOnly, |entry| {
            let compat = self.learned(name, model, entry.compat);
            output_schema::schema_strategy(codec(entry.kind, compat).as_deref(), compat, model, schema)
        })
    }

    /// Whether answers of a model that fit `schema` come as the field of an object.
    pub fn wraps(&self, model: &str, schema: &Value) -> bool {
        let entry = self.entries.get(model.split('/').next().unwrap_or(model));
        self.schema_strategy(model, schema) != SchemaStrategy::PromptOnly
            && entry.and_then(Entry::codec).is_some_and(|codec| output_schema::wraps(codec.as_ref(), schema))
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
