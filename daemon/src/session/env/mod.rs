//! The services that all sessions share.
//!
//! They are below the session and know no actor. An actor talks to its registry through [`Host`], so that a test can build an actor
//! without a registry.

pub mod attention;
pub mod hooks;
pub mod library;
pub mod names;
pub mod queued_bytes;
mod services;
mod toolbox;
mod workspaces;

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::event::NoticeCode;
use linger_protocol::id::SessionId;
use linger_protocol::place::Places;

use crate::config::providers::Providers;
use crate::config::{ConfigStore, Policy};
use crate::log::Log;
use crate::mcp::{Logins, Outside};
use crate::process::server::Children;
use crate::question::PendingQuestions;
use crate::session::messages::{Child, Command, Commands};
use crate::store::Store;
use crate::store::days::Days;
use crate::sys::task;
use crate::tool::checkpoint::Checkpoints;
use crate::tool::set::Tools;
use crate::tool::worktree::Worktrees;
use crate::tool::{BoxFuture, Workspace};
use attention::Notifications;
use names::Names;
use queued_bytes::QueuedBytes;
pub use services::{CallServices, RunningCalls, TurnServices};
pub use toolbox::Toolbox;
pub use workspaces::Workspaces;

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
    /// Tools and MCP servers.
    pub toolbox: Arc<Toolbox>,
    /// The workspaces, with what is in memory for them.
    pub workspaces: Workspaces,
    /// The part of these services that turns get.
    pub turns: Arc<TurnServices>,
    /// The part of these services that tool calls get.
    pub calls: Arc<CallServices>,
    /// Session names that are not stored yet.
    pub names: Names,
    /// The pending questions of all sessions and of the daemon's own log.
    pub questions: PendingQuestions,
    /// The total size of queued prompts.
    pub queued_bytes: QueuedBytes,
    /// Notifications sent to people, and how far they have read each session.
    pub attention: Arc<Notifications>,
    /// The git worktrees of children.
    pub worktrees: Worktrees,
    /// The days on which a daemon ran.
    pub days: Arc<Days>,
}

/// The registry, from an actor's side.
pub trait Host: Send + Sync {
    /// Unloads an idle session if its mailbox is empty and its log has no readers; whether it did.
    fn unload(&self, id: &SessionId, log: &Log, commands: &Commands) -> bool;

    /// Drops a session that was removed, or whose actor has ended.
    fn forget(&self, id: &SessionId);

    /// Warns the clients of a session about a failure outside its actor.
    fn warn(self: Arc<Self>, id: &SessionId, code: NoticeCode, text: String);

    /// Sends a command to a session, and loads that if needed. The command always gets a reply.
    fn command(self: Arc<Self>, id: &SessionId, command: Command);

    /// Creates the child of a call, or finds the one that was created for it.
    fn child(self: Arc<Self>, wanted: Child) -> BoxFuture<'static, Result<SessionId, RpcError>>;
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
        let (keys, http) = (providers.keys.clone(), providers.http());
        let logins = Arc::new(Logins::new(http.clone(), keys.clone(), providers.key_sources.clone()));
        let outside = Outside { children: children.clone(), keys, http, logins };
        let toolbox = Arc::new(Toolbox::new(places.clone(), config.clone(), providers.clone(), tools, system, outside));
        let policy = Arc::new(Policy::new(config.clone()));
        let days = Arc::new(Days::beside(&places.database()));
        let calls = Arc::new(CallServices {
            store: store.clone(),
            policy: policy.clone(),
            providers: providers.clone(),
            checkpoints: Checkpoints::below(places.checkpoints(), children.clone(), days.clone()),
            empty: places.data.join("gone"),
            children: children.clone(),
            running: RunningCalls::default(),
        });
        let turns = Arc::new(TurnServices {
            store: store.clone(),
            config: config.clone(),
            providers: providers.clone(),
            policy: policy.clone(),
            toolbox: toolbox.clone(),
            calls: calls.clone(),
        });
        Self {
            attention: Notifications::open(places.attention()),
            worktrees: Worktrees::below(places.worktrees(), children),
            days,
            workspaces: Workspaces::new(places.clone(), config.clone(), providers.clone(), toolbox.clone()),
            names: Names::default(),
            questions: PendingQuestions::default(),
            queued_bytes: QueuedBytes::default(),
            places,
            store,
            config,
            providers,
            policy,
            toolbox,
            turns,
            calls,
        }
    }

    /// Removes the directory in which commands of a removed session ran while its own was gone.
    pub fn remove_empty(&self, session: &SessionId) {
        let dir = self.calls.empty.join(session.as_str());
        drop(task::spawn_blocking(move || match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(target: "session", dir = %dir.display(), %error, "cannot be removed");
            }
            _ => {}
        }));
    }

    /// Forgets what is in memory of a session that was removed: its secret variables, what it has seen, and its MCP servers.
    pub fn forget_secrets(&self, session: &SessionId) {
        self.attention.forget(session);
        self.toolbox.servers.forget_session(session.as_str());
        self.workspaces.forget(session);
    }

    /// Reads the files of a workspace, and takes their MCP servers.
    pub async fn read_workspace(&self, workspace: &Workspace) {
        self.policy.read(workspace).await;
        self.toolbox.read_tools(workspace).await;
        self.toolbox.configure_workspace(workspace.rules_root());
    }
}

#[cfg(test)]
impl Env {
    /// An environment of its own below `dir`, with the defaults and the demo model.
    pub(crate) fn of_tests(dir: &std::path::Path) -> Arc<Self> {
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
