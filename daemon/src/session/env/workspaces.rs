//! The workspaces of sessions, and what is kept in memory for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use linger_protocol::variable::IN_MEMORY;
use tokio::sync::mpsc;

use super::Toolbox;
use crate::agent;
use crate::config::ConfigStore;
use crate::config::instructions::workspace_root;
use crate::config::providers::Providers;
use crate::diagnostics::secret::SecretVariables;
use crate::fault;
use crate::sys::disk;
use crate::tool::Workspace;
use crate::tool::added::AddedDirs;
use crate::tool::notes::Notes;
use crate::tool::seen::{Seen, Writers};

/// Sessions whose seen files are remembered; beyond that, those that are not loaded are forgotten, and have to read again.
const MAX_SEEN: usize = 256;

/// The workspaces of all sessions.
pub struct Workspaces {
    places: Places,
    config: Arc<ConfigStore>,
    providers: Arc<Providers>,
    toolbox: Arc<Toolbox>,
    /// The secret variables of the sessions' tools, also of sessions that are not loaded.
    secrets: Mutex<BTreeMap<SessionId, SecretVariables>>,
    /// The files that the sessions' models have seen, also of sessions that are not loaded.
    seen: Mutex<BTreeMap<SessionId, Seen>>,
    /// Which of them wrote which file last.
    writers: Writers,
    watched: mpsc::UnboundedSender<agent::Places>,
    to_watch: Mutex<Option<mpsc::UnboundedReceiver<agent::Places>>>,
}

impl Workspaces {
    /// Who wrote which file last, over all sessions.
    #[cfg(test)]
    pub fn writers(&self) -> &Writers {
        &self.writers
    }

    /// No workspace yet.
    pub(super) fn new(
        places: Places,
        config: Arc<ConfigStore>,
        providers: Arc<Providers>,
        toolbox: Arc<Toolbox>,
    ) -> Self {
        let (watched, to_watch) = mpsc::unbounded_channel();
        let (secrets, seen, writers) = (Mutex::default(), Mutex::default(), Writers::default());
        Self {
            places,
            config,
            providers,
            toolbox,
            secrets,
            seen,
            writers,
            watched,
            to_watch: Mutex::new(Some(to_watch)),
        }
    }

    /// The secret variables of a session's tools.
    pub fn secrets_of(&self, session: &SessionId) -> SecretVariables {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).entry(session.clone()).or_default().clone()
    }

    /// A child has the secret variables of its parent: those that a client brings to one, the other has.
    pub fn share_secrets(&self, child: &SessionId, parent: &SessionId) {
        let shared = self.secrets_of(parent);
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(child.clone(), shared);
    }

    /// The files that a session's model has seen. At [`MAX_SEEN`] sessions the records not in use are dropped.
    fn seen_by(&self, session: &SessionId) -> Seen {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SEEN {
            all.retain(|_, seen| !seen.is_unused());
        }
        let seen = || self.writers.seen_by(&format!("session {session}"));
        all.entry(session.clone()).or_insert_with(seen).clone()
    }

    /// The workspace of a session in `cwd`. Its root is `cwd` if the disk does not answer within `limit`.
    pub async fn workspace(
        &self,
        session: &SessionId,
        cwd: &Path,
        env: BTreeMap<String, String>,
        limit: Duration,
    ) -> Workspace {
        self.workspace_within(session, cwd, env, limit, None).await
    }

    /// The same, under the rules and files of the workspace with the root `bound_by`; absent for its own.
    pub async fn workspace_within(
        &self,
        session: &SessionId,
        cwd: &Path,
        mut env: BTreeMap<String, String>,
        limit: Duration,
        bound_by: Option<PathBuf>,
    ) -> Workspace {
        if fault::bug("I11") {
            env.extend(std::env::vars());
        }
        let home = env.get("HOME").map(PathBuf::from);
        let timeout_s = self.config.bash_timeout_s();
        let seen = cwd.to_path_buf();
        let root = move || match seen.canonicalize() {
            // It is stored without links. One that has taken its place, or that of a directory above, does not move the workspace
            // to where it leads: nothing is within until it is gone.
            Ok(real) if real != seen => (seen, (true, None)),
            Ok(_) => (workspace_root(&seen, home.as_deref()), (true, None)),
            // Nobody knows the root of a directory that is gone: nothing is within, and the files above still count.
            Err(_) => {
                let above = Some(workspace_root(&seen, home.as_deref())).filter(|above| *above != seen);
                (seen, (false, above))
            }
        };
        let (root, found) = disk::probe(cwd, limit, root).await.unzip();
        // One that is gone is looked for again with the next prompt.
        let (is_seen, above) = found.unwrap_or_default();
        let bound_by = bound_by.or(above);
        let cwd = cwd.to_path_buf();
        let secrets = if env.values().any(|value| value == IN_MEMORY) {
            self.secrets_of(session)
        } else {
            SecretVariables::default()
        };
        let root = root.unwrap_or_else(|| cwd.clone());
        let (env, seen, added, skills) =
            (Arc::new(env), self.seen_by(session), AddedDirs::default(), Default::default());
        let of = bound_by.as_deref().unwrap_or(&root);
        let notes = Notes::of(&self.places.data, of, self.providers.keys.redactor().clone());
        Workspace { root, is_seen, bound_by, cwd, env, secrets, seen, added, skills, notes, timeout_s }
    }

    /// Asks for notice of changed files of a session in the workspace.
    pub fn watch_files(&self, workspace: &Workspace) {
        // Without a receiver nothing is said, as in tests.
        let _unwatched = self.watched.send(self.toolbox.agent_places(workspace));
    }

    /// The places whose files are to be watched. Absent at a second call.
    pub fn to_watch(&self) -> Option<mpsc::UnboundedReceiver<agent::Places>> {
        self.to_watch.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Forgets the secret variables of a removed session, and what its model has seen.
    pub(super) fn forget(&self, session: &SessionId) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
    }
}
