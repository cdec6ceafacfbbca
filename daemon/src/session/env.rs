//! What an actor and its turn use of what all sessions share.
//!
//! Everything here stands below the session and knows no actor. What an actor asks of the registry that holds its mailbox goes
//! through [`Host`], so that an actor can be built in a test without one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::event::NoticeCode;
use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use linger_protocol::session::Setup;
use tokio::sync::mpsc;

use super::actor::Command;
use super::names::Names;
use super::waiting::Waiting;
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

/// What every system prompt of linger's own begins with.
pub const SYSTEM: &str = include_str!("system.md");

/// What sessions share.
pub struct Env {
    /// Where the configuration and the database lie.
    pub places: Places,
    /// The log of all sessions.
    pub store: Store,
    /// The configuration, as it is now.
    pub config: Arc<ConfigStore>,
    /// Models, keys and the way to them.
    pub providers: Arc<Providers>,
    /// What decides on calls.
    pub policy: Arc<Policy>,
    /// The tools; turns take the set that counts then before each step.
    pub tools: Tools,
    /// All children.
    pub children: Children,
    /// What every system prompt begins with.
    pub system: String,
    /// Names that are being given, until that is stored.
    pub names: Names,
    /// The questions that wait, in all sessions and in the daemon's own log.
    pub questions: PendingQuestions,
    /// The size of the prompts that wait, in all sessions.
    pub waiting: Waiting,
}

/// What an actor asks of the registry that holds its mailbox.
pub trait Host: Send + Sync {
    /// Takes an idle session out of the registry, if its mailbox is empty and its log has no reader; whether it did.
    fn unload(&self, id: &SessionId, log: &Log, commands: &mpsc::UnboundedReceiver<Command>) -> bool;

    /// Takes a session out of the registry that was removed, or whose actor has given up.
    fn forget(&self, id: &SessionId);

    /// Tells the clients of a session that something failed outside its actor.
    fn warn(self: Arc<Self>, id: &SessionId, code: NoticeCode, text: String);
}

impl Env {
    /// An environment in which no session is yet.
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
            waiting: Waiting::default(),
        }
    }

    /// Where a session in `cwd` works. Its root is `cwd` itself if the disk does not answer within `limit`.
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

    /// What requests to this model have beside the conversation, with these tools.
    pub fn setup(&self, resolved: &Resolved, tools: &ToolSpecs) -> Setup {
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
