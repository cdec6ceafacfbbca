//! The services that all sessions share.
//!
//! They are below the session and know no actor. An actor talks to its registry through [`Host`], so that a test can build an actor
//! without a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::event::NoticeCode;
use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use linger_protocol::session::PrefixFingerprint;
use tokio::sync::mpsc;

use super::actor::Command;
use super::names::Names;
use super::queued_bytes::QueuedBytes;
use crate::config::ConfigStore;
use crate::config::Policy;
use crate::config::instructions::workspace_root;
use crate::config::providers::Providers;
use crate::fault;
use crate::log::Log;
use crate::process::server::Children;
use crate::provider::catalogue::Resolved;
use crate::provider::tools::ToolSpecs;
use crate::question::PendingQuestions;
use crate::store::Store;
use crate::sys::disk;
use crate::tool::Workspace;
use crate::tool::set::Tools;

/// The beginning of linger's own system prompts.
pub const SYSTEM: &str = include_str!("system.md");

/// The shared services.
pub struct Env {
    /// The directories and files.
    pub places: Places,
    /// The database of all sessions.
    pub store: Store,
    /// The configuration.
    pub config: Arc<ConfigStore>,
    /// Models and keys.
    pub providers: Arc<Providers>,
    /// Decides on calls.
    pub policy: Arc<Policy>,
    /// The tools; a turn takes the current set before each step.
    pub tools: Tools,
    /// All children.
    pub children: Children,
    /// The beginning of every system prompt.
    pub system: String,
    /// Session names that are not stored yet.
    pub names: Names,
    /// The pending questions of all sessions and of the daemon's own log.
    pub questions: PendingQuestions,
    /// The total size of queued prompts.
    pub queued_bytes: QueuedBytes,
}

/// The registry, from an actor's side.
pub trait Host: Send + Sync {
    /// Unloads an idle session if its mailbox is empty and its log has no readers; whether it did.
    fn unload(&self, id: &SessionId, log: &Log, commands: &mpsc::UnboundedReceiver<Command>) -> bool;

    /// Drops a session that was removed, or whose actor has ended.
    fn forget(&self, id: &SessionId);

    /// Warns the clients of a session about a failure outside its actor.
    fn warn(self: Arc<Self>, id: &SessionId, code: NoticeCode, text: String);
}

impl Env {
    /// An environment without sessions.
    pub fn new(
        places: Places,
        store: Store,
        config: Arc<ConfigStore>,
        providers: Arc<Providers>,
        tools: Tools,
        system: String,
        children: Children,
    ) -> Self {
        Self {
            places,
            store,
            policy: Arc::new(Policy::new(config.clone())),
            config,
            providers,
            tools,
            children,
            system,
            names: Names::default(),
            questions: PendingQuestions::default(),
            queued_bytes: QueuedBytes::default(),
        }
    }

    /// The workspace of a session in `cwd`. Its root is `cwd` if the disk does not answer within `limit`.
    pub async fn workspace(&self, cwd: &Path, mut env: BTreeMap<String, String>, limit: Duration) -> Workspace {
        if fault::bug("I11") {
            env.extend(std::env::vars());
        }
        let home = env.get("HOME").map(PathBuf::from);
        let timeout_s = self.config.bash_timeout_s();
        let seen = cwd.to_path_buf();
        let root = disk::probe(cwd, limit, move || workspace_root(&seen, home.as_deref())).await;
        let cwd = cwd.to_path_buf();
        let is_seen = root.is_some();
        Workspace { root: root.unwrap_or_else(|| cwd.clone()), is_seen, cwd, env: Arc::new(env), timeout_s }
    }

    /// The prefix fingerprint of requests to this model with these tools.
    pub fn setup(&self, resolved: &Resolved, tools: &ToolSpecs) -> PrefixFingerprint {
        resolved.setup(&self.system, tools)
    }
}

#[cfg(test)]
impl Env {
    /// An environment of its own below `dir`, with the defaults and the demo model.
    pub(crate) fn of_tests(dir: &Path) -> Arc<Self> {
        use crate::diagnostics::secret::Redactor;
        use crate::provider::key_source::KeySources;
        use crate::provider::keychain::Keychain;
        use crate::provider::keys::Keys;

        let places = Places::below(dir).unwrap();
        let store = Store::open(&places.database()).unwrap();
        let config = Arc::new(ConfigStore::open(places.clone(), None, Tools::default()));
        let children = Children::of(&places.database());
        let keychain = Keychain::new(places.kept_keys(), children.clone());
        let keys = Arc::new(Keys::new(Redactor::default(), keychain.accounts()));
        let key_sources = KeySources::new(Arc::new(keychain), keys.clone());
        let providers = Arc::new(Providers::new(config.clone(), keys, key_sources, Arc::new(|_: &str| None)));
        Arc::new(Self::new(places, store, config, providers, Tools::default(), SYSTEM.to_owned(), children))
    }
}
