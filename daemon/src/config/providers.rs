//! The configured providers: their catalogue, the keys, and the sources of keys.
//!
//! Shared by all sessions. Each configuration gets one catalogue; the model lists fetched from providers carry over to the next.
//! Deliberately absent: requests to a provider ([`crate::provider::driver`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use tokio::sync::watch;

use super::{Config, ConfigError, ConfigStore};
use crate::mcp::settings::{ServerConfig, variable_of};
use crate::provider::Provider;
use crate::provider::catalogue::{Catalogue, Resolved, Secrets, Stored};
use crate::provider::client::Clients;
use crate::provider::key_source::KeySources;
use crate::provider::keys::{Bearer, Keys};
use crate::provider::lister;
use crate::provider::network::{Network, Variables};
use crate::provider::public::PrivateHosts;
use crate::provider::reached::Reached;
use crate::provider::refused_tools::RefusedTools;
use crate::sys::task;
use crate::tool::Web;

/// The longest name of a model, in bytes; it must fit a line of `linger ls`.
const MAX_MODEL: usize = 256;

/// How long a turn waits for a provider's list after the first answer.
const LIST_WAIT: Duration = Duration::from_secs(2);

/// How long a provider's list is used before it is fetched again.
const LIST_KEPT: Duration = Duration::from_secs(300);

/// The largest file of lists, in bytes.
const MAX_STORED: u64 = 16 << 20;
/// The most models that stand in for one.
const MAX_FALLBACKS: usize = 8;

/// How long a connection to an MCP server or for a page may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// The value of an environment variable, if it is set. Keys, proxies and certificates come from there.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The providers that sessions can use.
pub struct Providers {
    pub(super) config: Arc<ConfigStore>,
    /// The keys in memory.
    pub keys: Arc<Keys>,
    /// Sources of keys other than the environment.
    pub key_sources: Arc<KeySources>,
    /// The daemon's environment.
    environment: Environment,
    /// The addresses that have ever answered.
    pub reached: Arc<Reached>,
    /// The tools that providers refuse.
    pub refused_tools: RefusedTools,
    /// The HTTP clients; they survive a reload.
    clients: Clients,
    /// The catalogue, cached with its configuration: each step of each turn uses it.
    catalogue: Mutex<Option<(Arc<Config>, Arc<Catalogue>)>>,
    /// The providers and models that were asked for their lists.
    listed: Mutex<BTreeSet<String>>,
    /// When the lists of providers were last renewed for an editor.
    renewed: Mutex<BTreeMap<String, Instant>>,
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
        let reached = Reached::open(config.places().reached());
        let providers = Self {
            reached,
            refused_tools: RefusedTools::default(),
            config,
            keys,
            key_sources: Arc::new(key_sources),
            environment,
            clients,
            catalogue,
            listed: Mutex::default(),
            renewed: Mutex::default(),
            changed,
            #[cfg(test)]
            script: std::sync::OnceLock::new(),
        };
        providers.read_own_keys();
        providers
    }

    /// The provider of a resolved model, with the secrets obtained from [`Resolved::sources`].
    pub fn open(&self, resolved: &Resolved, secrets: Secrets) -> Provider {
        #[cfg(test)]
        if let Some(script) = self.script.get() {
            return Provider::Scripted(script.clone(), secrets.key);
        }
        resolved.open(secrets)
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
        let catalogue = Catalogue::new(&config.providers, &config.models, default, keys, network)
            .with_unconfirmed(config.unconfirmed.clone());
        if let Some((_, before)) = made.as_ref() {
            catalogue.take_over(before);
        }
        let catalogue = Arc::new(catalogue);
        *made = Some((config, catalogue.clone()));
        Ok(catalogue)
    }

    /// HTTP clients by the routes of the configuration in use.
    pub fn http(self: &Arc<Self>) -> crate::mcp::Http {
        let this = self.clone();
        Arc::new(move |url| {
            let this = this.clone();
            Box::pin(async move {
                let catalogue = this.catalogue().map_err(|error| error.to_string())?;
                catalogue.network().client(&url, CONNECT).await
            })
        })
    }

    /// HTTP clients for pages of the web, by the routes and the private hosts of the configuration in use.
    pub fn web(self: &Arc<Self>) -> Web {
        let this = self.clone();
        Arc::new(move |url| {
            let this = this.clone();
            Box::pin(async move {
                let catalogue = this.catalogue().map_err(|error| error.to_string())?;
                let config = this.config.current().map_err(|error| error.to_string())?;
                let private = PrivateHosts::new(&config.fetch_private);
                catalogue.network().public_client(&url, CONNECT, private).await
            })
        })
    }

    /// The variables whose values are missing: of providers, and of MCP servers.
    pub fn wanted(&self) -> Vec<String> {
        let of_providers = self.catalogue().map(|catalogue| catalogue.wanted()).unwrap_or_default();
        let of_servers = self.of_servers().into_iter().filter(|variable| self.keys.wants(variable));
        of_providers.into_iter().chain(of_servers).collect()
    }

    /// Takes what a client brings of the variables that providers and MCP servers name.
    pub fn add(&self, brought: &BTreeMap<String, String>) {
        let Ok(catalogue) = self.catalogue() else { return };
        catalogue.add_keys(brought.iter().map(|(name, key)| (name.as_str(), key.as_str())), Bearer::Client);
        for (name, value) in self.of_servers().iter().filter_map(|name| brought.get_key_value(name)) {
            self.keys.insert(name, value, Bearer::Client);
        }
    }

    /// Variables that trusted servers of workspaces name and no client has brought, by the root of the workspace.
    pub fn wanted_of_workspaces(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let Ok(config) = self.config.current() else { return BTreeMap::new() };
        let missing =
            |root: &Path, name: &String| !config.env.keys.contains(name) && self.keys.wants(&variable_of(root, name));
        let rows = self.config.trusted_variables().into_iter().map(|(root, names)| {
            let names = names.into_iter().filter(|name| missing(&root, name)).collect();
            (root, names)
        });
        rows.filter(|(_, names): &(_, Vec<String>)| !names.is_empty()).collect()
    }

    /// Takes what a client brings for the trusted servers of workspaces.
    pub fn add_of_workspaces(&self, brought: &BTreeMap<PathBuf, BTreeMap<String, String>>) {
        let trusted = self.config.trusted_variables();
        for (root, values) in brought {
            let Some(names) = trusted.get(root) else { continue };
            for (name, value) in values.iter().filter(|(name, _)| names.contains(*name)) {
                self.keys.insert(&variable_of(root, name), value, Bearer::Client);
            }
        }
    }

    /// The variables that MCP servers name.
    fn of_servers(&self) -> BTreeSet<String> {
        let config = self.config.current();
        config.map(|config| config.mcp.values().flat_map(ServerConfig::variables).collect()).unwrap_or_default()
    }

    /// Takes keys from the daemon's own environment.
    pub fn read_own_keys(&self) {
        for variable in self.wanted() {
            if let Some(key) = (self.environment)(&variable) {
                self.keys.insert(&variable, &key, Bearer::Daemon);
            }
        }
    }

    /// Asks a model's provider for its list, once while the daemon runs, if nothing else tells the model's window. Waits for
    /// [`LIST_WAIT`] at most; a stored list is used at once, and renewed in the background. True if something was learned.
    pub async fn learn_list(self: &Arc<Self>, model: &str) -> bool {
        let Ok(catalogue) = self.catalogue() else { return false };
        let Ok(resolved) = catalogue.resolve(model) else { return false };
        let Some(scope) = catalogue.scope(&resolved) else { return false };
        let asked = if scope.unlisted_model.is_some() { &resolved.origin } else { &resolved.provider };
        if !self.listed.lock().unwrap_or_else(PoisonError::into_inner).insert(asked.clone()) {
            return false;
        }
        self.restore_lists(&catalogue).await;
        let has_list = catalogue.has_list(&resolved, scope);
        let fetch = task::spawn(fetched(self.clone(), resolved));
        has_list || tokio::time::timeout(LIST_WAIT, fetch).await.is_ok()
    }

    /// Takes the lists that earlier daemons stored.
    pub async fn restore_lists(&self, catalogue: &Catalogue) {
        let file = self.config.places().model_lists();
        let read = task::spawn_blocking(move || read_lists(&file)).await;
        catalogue.restore_lists(read.ok().flatten().unwrap_or_default());
    }

    /// Whether a provider's list is to be fetched again; notes that it is.
    pub fn takes_renewal(&self, provider: &str) -> bool {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = renewed.get(provider).is_none_or(|at| at.elapsed() >= LIST_KEPT);
        if is_old {
            renewed.insert(provider.to_owned(), Instant::now());
        }
        is_old
    }

    /// Stores the lists that providers have given.
    pub async fn store_lists(&self, catalogue: &Catalogue) {
        let (file, lists) = (self.config.places().model_lists(), catalogue.stored_lists());
        let written = task::spawn_blocking(move || write_lists(&file, &lists)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(target: "request", %error, "cannot store the lists of models");
        }
    }

    /// The context window of a model, in tokens, if known.
    pub fn window(&self, model: &str) -> Option<u64> {
        self.catalogue().ok()?.window(model)
    }

    /// Whether a model changes files by patches: as configured, else by its name.
    pub fn patches(&self, model: &str) -> bool {
        self.catalogue().is_ok_and(|catalogue| catalogue.patches(model))
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

    /// The full names of models that are to stand in for another; fails if one of them cannot be used.
    pub fn fallbacks(&self, specs: &[String]) -> Result<Vec<String>, RpcError> {
        if specs.len() > MAX_FALLBACKS {
            return Err(RpcError::new(Code::TooMuch, format!("a session may have {MAX_FALLBACKS} fallback models")));
        }
        specs.iter().map(|spec| Ok(self.model(Some(spec))?.origin)).collect()
    }

    /// The first usable model that stands in for `own`, a session's own model, after `current`; and after how long. `chosen` are the
    /// session's, in place of the configured ones.
    pub fn next_fallback(&self, own: &str, current: &str, chosen: Option<&[String]>) -> Option<(Resolved, Duration)> {
        let catalogue = self.catalogue().ok()?;
        let (configured, after) = catalogue.fallback(own);
        let models = chosen.unwrap_or(configured);
        let tried = models.iter().position(|model| model == current).map_or(0, |at| at + 1);
        let usable = |model: &String| catalogue.resolve(model).ok().filter(|resolved| resolved.origin != current);
        let next = models.iter().skip(if current == own { 0 } else { tried }).find_map(usable)?;
        Some((next, after))
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

/// Fetches and stores the list of a model's provider.
async fn fetched(providers: Arc<Providers>, resolved: Resolved) {
    let Ok(catalogue) = providers.catalogue() else { return };
    let Some(scope) = catalogue.scope(&resolved) else { return };
    // A request was just answered, so its secrets are at hand.
    let Ok(secrets) = providers.key_sources.obtain_all(&resolved).await else { return };
    let Provider::Http(endpoint) = providers.open(&resolved, secrets) else { return };
    match lister::list(&endpoint, scope).await {
        Ok(Some(listed)) => {
            catalogue.keep_list(&resolved.provider, &listed);
            providers.store_lists(&catalogue).await;
        }
        Ok(None) => {}
        Err(problem) => tracing::info!(target: "request", provider = resolved.provider, problem, "cannot list models"),
    }
}

fn read_lists(file: &Path) -> Option<Stored> {
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(MAX_STORED).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_lists(file: &Path, lists: &Stored) -> std::io::Result<()> {
    let mut new = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new("/")))?;
    new.write_all(serde_json::to_string(lists)?.as_bytes())?;
    new.persist(file)?;
    Ok(())
}
