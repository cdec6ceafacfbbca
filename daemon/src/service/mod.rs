//! What the daemon offers its callers, and what it is made of.
//!
//! Each method of the protocol is a plain async function of the services, the caller and the request, a file a method family:
//! [`daemon`], [`model`], [`session`], [`question`], [`blob`], [`usage`], [`key`]. Who may do what is decided there
//! ([`Caller`]); how a request came is not known here.
//! [`Services`] has one field a concern, each in the room of that concern, below the sessions; the methods of the protocol stand
//! above them.

pub mod blob;
mod caller;
pub mod config;
pub mod daemon;
pub mod key;
pub mod model;
pub mod question;
pub mod session;
pub mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use linger_protocol::place::Places;
use tokio_util::sync::CancellationToken;

pub use caller::{Authority, Caller};

use crate::config::ConfigStore;
use crate::config::providers::Providers;
use crate::diagnostics::secret::Redactor;
use crate::process::server::Children;
use crate::provider::key_source::KeySources;
use crate::provider::keychain::Keychain;
use crate::provider::keys::Keys;
use crate::provider::network::Variables;
use crate::recover::Repairs;
use crate::registry::Registry;
use crate::session::env::{Env, SYSTEM};
use crate::store::Store;
use crate::sys::clock;
use crate::tool;
use crate::tool::set::Tools;

/// All services of one daemon.
pub struct Services {
    /// Where everything lies.
    pub places: Places,
    /// The log of all sessions.
    pub store: Store,
    /// The configuration, as it is now.
    pub config: Arc<ConfigStore>,
    /// Models, keys and the way to them.
    pub providers: Arc<Providers>,
    /// The sessions, loaded or not.
    pub registry: Arc<Registry>,
    /// The search for damage, and the saving of what can be read.
    pub repairs: Arc<Repairs>,
    /// Cancelled when the daemon is to end.
    pub shutdown: CancellationToken,
    /// When it started, in Unix milliseconds.
    pub started_at: u64,
    /// The keeper's process, if there is one.
    pub keeper: Option<u32>,
    /// How often a daemon of this keeper died before.
    pub restarts: u32,
    /// Clients that are connected.
    pub connections: AtomicU32,
}

/// What services are opened with.
pub struct Setup {
    /// Where everything lies.
    pub places: Places,
    /// The configuration, read already.
    pub config: Arc<ConfigStore>,
    /// The tools of all sessions: [`tool::builtin`], and others. The set can be replaced at any time.
    pub tools: Tools,
    /// What every system prompt begins with: [`SYSTEM`], or another.
    pub system: String,
    /// What keeps keys out of text.
    pub redactor: Redactor,
    /// The keeper's process, if there is one.
    pub keeper: Option<u32>,
    /// How often a daemon of this keeper died before.
    pub restarts: u32,
}

impl Setup {
    /// The ordinary one for these places, without a keeper. It reads the configuration.
    pub fn of(places: Places) -> Self {
        Self::with_tools(places, Tools::default())
    }

    /// The same with these tools, which the rules of the configuration can name.
    pub fn with_tools(places: Places, tools: Tools) -> Self {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let config = Arc::new(ConfigStore::open(places.clone(), home, tools.clone()));
        let (system, redactor) = (SYSTEM.to_owned(), Redactor::default());
        Self { places, config, tools, system, redactor, keeper: None, restarts: 0 }
    }
}

impl Services {
    /// Opens the database and what stands on it; nothing is loaded yet. Cancel `shutdown` to end them, and close the store then.
    pub fn open(setup: Setup, shutdown: CancellationToken) -> anyhow::Result<Arc<Self>> {
        let Setup { places, config, tools, system, redactor, keeper, restarts } = setup;
        let store = Store::open(&places.database())?;
        tool::keep_shut(&places.database());
        let children = Children::of(&places.database());
        let keychain = Keychain::new(places.kept_keys(), children.clone());
        let keys = Arc::new(Keys::new(redactor, keychain.accounts()));
        let key_sources = KeySources::new(Arc::new(keychain), keys.clone());
        let variables = Variables::read(|name| std::env::var(name).ok());
        let providers = Arc::new(Providers::new(config.clone(), keys, key_sources, variables));
        let env = Env::new(places.clone(), store.clone(), config.clone(), providers.clone(), tools, system, children);
        let repairs = Arc::new(Repairs::default());
        let registry = Arc::new(Registry::new(Arc::new(env), repairs.clone(), shutdown.clone()));
        let (started_at, connections) = (clock::now(), AtomicU32::new(0));
        Ok(Arc::new(Self {
            places,
            store,
            config,
            providers,
            registry,
            repairs,
            shutdown,
            started_at,
            keeper,
            restarts,
            connections,
        }))
    }

    /// What sessions share.
    pub fn env(&self) -> &Arc<Env> {
        &self.registry.env
    }
}
