//! The configured providers: their catalogue, the keys, and the sources of keys.
//!
//! Shared by all sessions. Each configuration gets one catalogue; the model lists fetched from providers carry over to the next.
//! Deliberately absent: requests to a provider ([`crate::provider::driver`]).

use std::sync::{Arc, Mutex, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use tokio::sync::watch;

use super::{Config, ConfigError, ConfigStore};
use crate::diagnostics::secret::Secret;
use crate::provider::Provider;
use crate::provider::catalogue::{Catalogue, Resolved};
use crate::provider::client::Clients;
use crate::provider::key_source::KeySources;
use crate::provider::keys::{Bearer, Keys};
use crate::provider::network::{Network, Variables};

/// The longest name of a model, in bytes; it must fit a line of `linger ls`.
const MAX_MODEL: usize = 256;

/// The value of an environment variable, if it is set. Keys, proxies and certificates come from there.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The providers that sessions can use.
pub struct Providers {
    config: Arc<ConfigStore>,
    /// The keys in memory.
    pub keys: Arc<Keys>,
    /// Sources of keys other than the environment.
    pub key_sources: KeySources,
    /// The daemon's environment.
    environment: Environment,
    /// The HTTP clients; they survive a reload.
    clients: Clients,
    /// The catalogue, cached with its configuration: each step of each turn uses it.
    catalogue: Mutex<Option<(Arc<Config>, Arc<Catalogue>)>>,
    /// Wakes turns that wait for a key, a model or a configuration.
    pub changed: watch::Sender<()>,
    /// Replaces all models in tests.
    #[cfg(test)]
    pub(crate) script: std::sync::OnceLock<crate::provider::scripted::Script>,
}

impl Providers {
    /// The providers of `config`, with the keys of the daemon's own environment.
    pub fn new(config: Arc<ConfigStore>, keys: Arc<Keys>, key_sources: KeySources, environment: Environment) -> Self {
        let (clients, catalogue, changed) = (Clients::default(), Mutex::default(), watch::channel(()).0);
        let providers = Self {
            config,
            keys,
            key_sources,
            environment,
            clients,
            catalogue,
            changed,
            #[cfg(test)]
            script: std::sync::OnceLock::new(),
        };
        providers.read_own_keys();
        providers
    }

    /// The provider of a resolved model, with the key obtained from [`Resolved::key`].
    pub fn open(&self, resolved: &Resolved, key: Option<Secret>) -> Provider {
        #[cfg(test)]
        if let Some(script) = self.script.get() {
            return Provider::Scripted(script.clone(), key);
        }
        resolved.open(key)
    }

    /// The catalogue of the current configuration.
    pub fn catalogue(&self) -> Result<Arc<Catalogue>, ConfigError> {
        let config = self.config.current()?;
        let mut made = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, catalogue)) = made.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &config)) {
            return Ok(catalogue.clone());
        }
        let variables = Variables::read(&*self.environment);
        let network = Arc::new(Network::new(&config.network, &variables, self.clients.clone()));
        network.secrets().iter().for_each(|secret| self.keys.redactor().add(secret));
        let (default, keys) = (config.model.clone(), self.keys.clone());
        let catalogue = Catalogue::new(&config.providers, &config.models, default, keys, network);
        if let Some((_, before)) = made.as_ref() {
            catalogue.take_over(before);
        }
        let catalogue = Arc::new(catalogue);
        *made = Some((config, catalogue.clone()));
        Ok(catalogue)
    }

    /// Takes keys from the daemon's own environment.
    pub fn read_own_keys(&self) {
        let Ok(catalogue) = self.catalogue() else { return };
        for variable in catalogue.wanted() {
            if let Some(key) = (self.environment)(&variable) {
                self.keys.insert(&variable, &key, Bearer::Daemon);
            }
        }
    }

    /// The context window of a model, in tokens, if known.
    pub fn window(&self, model: &str) -> Option<u64> {
        self.catalogue().ok()?.window(model)
    }

    /// Resolves the name of a model, or the default model.
    pub fn model(&self, spec: Option<&str>) -> Result<Resolved, RpcError> {
        let catalogue = self.catalogue()?;
        if spec.is_some_and(|spec| spec.len() > MAX_MODEL) {
            return Err(RpcError::new(Code::TooMuch, format!("the name of a model may have {MAX_MODEL} bytes")));
        }
        Ok(catalogue.resolve(spec.unwrap_or_default())?)
    }

    /// Resolves `spec` in a session whose model is `current`.
    pub fn model_in_session(&self, current: &str, spec: &str) -> Result<Resolved, RpcError> {
        if spec.len() > MAX_MODEL {
            return self.model(Some(spec));
        }
        Ok(self.catalogue()?.resolve_in_session(current, spec)?)
    }

    /// A warning for an unknown model, if a known one has a similar name.
    pub fn warning(&self, origin: &str) -> Option<String> {
        let near = self.catalogue().ok()?.near_model(origin)?;
        Some(format!("unknown model {origin}; did you mean {near}?"))
    }

    /// Checks that a turn with this model can start.
    pub fn usable(&self, model: &str) -> Result<(), RpcError> {
        Ok(self.catalogue()?.resolve(model).map(drop)?)
    }
}
