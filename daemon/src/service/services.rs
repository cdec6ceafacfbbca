//! The services that all methods share, and opening them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use linger_protocol::place::Places;
use tokio_util::sync::CancellationToken;

use super::gateways::Gateways;
use super::open_questions::{ConfigQuestion, WorkspaceQuestions};
use super::tokens::Tokens;
use crate::config::ConfigStore;
use crate::config::providers::{Environment, Providers};
use crate::diagnostics::secret::Redactor;
use crate::process::server::Children;
use crate::provider::key_source::KeySources;
use crate::provider::keychain::Keychain;
use crate::provider::keys::Keys;
use crate::registry::Registry;
use crate::session::env::{Env, SYSTEM};
use crate::session::reading::search::Search;
use crate::store::{Store, blob as blobs};
use crate::sys::clock;
use crate::tool::set::Tools;

/// All services of one daemon.
pub struct Services {
    /// The directories and files.
    pub places: Places,
    /// The database of all sessions.
    pub store: Store,
    /// The configuration.
    pub config: Arc<ConfigStore>,
    /// Models and keys.
    pub providers: Arc<Providers>,
    /// The sessions, loaded or not.
    pub registry: Arc<Registry>,
    /// Cancelled when the daemon is to end.
    pub shutdown: CancellationToken,
    /// The start of the daemon, in Unix milliseconds.
    pub started_at: u64,
    /// The keeper's process id, if there is a keeper.
    pub keeper: Option<u32>,
    /// How many daemons of this keeper have died.
    pub restarts: u32,
    /// The tokens that connections may have.
    pub tokens: Tokens,
    /// The gateways that are connected.
    pub gateways: Gateways,
    /// The number of connections.
    pub connections: AtomicU32,
    /// The question about the configuration.
    pub config_question: ConfigQuestion,
    /// The questions about workspaces.
    pub trust_questions: WorkspaceQuestions,
    /// The index of all messages.
    pub search: Search,
    /// Why the blobs are not where the configuration says.
    misplaced: Option<String>,
}

/// The arguments of [`Services::open`].
pub struct Setup {
    /// The directories and files.
    pub places: Places,
    /// The configuration, already read.
    pub config: Arc<ConfigStore>,
    /// The tools of all sessions: [`crate::tool::builtin`], and others. The set can be replaced at any time.
    pub tools: Tools,
    /// The beginning of every system prompt: [`SYSTEM`], or another.
    pub system: String,
    /// Removes keys from the log.
    pub redactor: Redactor,
    /// The environment: that of this process, or another.
    pub environment: Environment,
    /// The keeper's process id, if there is a keeper.
    pub keeper: Option<u32>,
    /// How many daemons of this keeper have died.
    pub restarts: u32,
}

impl Setup {
    /// The default setup for these places, without a keeper. Reads the configuration, which blocks on the disk.
    pub fn of(places: Places) -> Self {
        Self::with_tools(places, Tools::default())
    }

    /// As [`Self::of`], with these tools, which the rules of the configuration can name.
    pub fn with_tools(places: Places, tools: Tools) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let config = Arc::new(ConfigStore::open(places.clone(), home, tools.clone()));
        let (system, redactor, environment) = (SYSTEM.to_owned(), Redactor::default(), own_environment());
        Self { places, config, tools, system, redactor, environment, keeper: None, restarts: 0 }
    }
}

/// The environment of this process.
pub fn own_environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok())
}

impl Services {
    /// Opens the database and the services above it; loads no session. To end them, cancel `shutdown` and close the store.
    pub fn open(setup: Setup, shutdown: CancellationToken) -> anyhow::Result<Arc<Self>> {
        let Setup { places, config, tools, system, redactor, environment, keeper, restarts } = setup;
        let misplaced =
            config.blobs().and_then(|wanted| blobs::place(&places.database(), &wanted).err()).map(|error| {
                tracing::warn!(target: "daemon", %error, "the blobs are not where the configuration says");
                format!("config.toml: blobs: {error}")
            });
        let store = Store::open(&places.database())?;
        crate::tool::keep_shut(&places.database());
        crate::tool::keep_shut(&crate::store::words::Words::path(&places.database()));
        let children = Children::of(&places.database());
        let keychain = Keychain::new(places.kept_keys(), children.clone());
        let keys = Arc::new(Keys::new(redactor, keychain.accounts()));
        let key_sources = KeySources::new(Arc::new(keychain), keys.clone());
        let providers = Arc::new(Providers::new(config.clone(), keys, key_sources, environment));
        let env = Env::new(places.clone(), store.clone(), config.clone(), providers.clone(), tools, system, children);
        let registry = Arc::new(Registry::new(Arc::new(env), shutdown.clone()));
        let (started_at, connections, config_question) = (clock::now(), AtomicU32::new(0), ConfigQuestion::default());
        let tokens = Tokens::new(&store.tokens);
        Ok(Arc::new(Self {
            places,
            store,
            config,
            providers,
            registry,
            shutdown,
            started_at,
            keeper,
            restarts,
            tokens,
            gateways: Gateways::default(),
            connections,
            config_question,
            trust_questions: WorkspaceQuestions::default(),
            search: Search::default(),
            misplaced,
        }))
    }

    /// The warnings about the configuration and the place of the blobs.
    pub(super) fn config_warnings(&self) -> Vec<String> {
        self.config.warnings().into_iter().chain(self.misplaced.clone()).collect()
    }

    /// Applies the MCP servers of the configuration in force.
    pub(super) fn configure_servers(&self) {
        self.env().toolbox.configure_servers();
    }

    /// The services that sessions share.
    pub fn env(&self) -> &Arc<Env> {
        &self.registry.env
    }
}
