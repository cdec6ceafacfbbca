//! Making a session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::EventBody;
use linger_protocol::id::SessionId;
use linger_protocol::session::{Create, Created};
use tokio::sync::oneshot;

use super::Registry;
use crate::session::actor::{Actor, idle_effort, unknown_model};
use crate::store::idempotency::Key;
use crate::store::{Fold, StoreError};
use crate::sys::{clock, disk};

/// Characters of a session's id: 50 bits, so that a prefix of three or four tells those of one user apart.
const ID: usize = 10;

/// Sessions in the database; a row and its log take some KiB at least.
const MAX_SESSIONS: u32 = 100_000;

/// Variables of one session in total, in bytes: PATH may take a few thousand.
const MAX_ENV: usize = 64 << 10;

impl Registry {
    /// Makes a session, or finds the one that was made for the key. `parent` is the session that starts it; the caller has
    /// that session's authority.
    pub async fn create(
        self: &Arc<Self>,
        params: Create,
        parent: Option<SessionId>,
        key: Option<Key>,
    ) -> Result<Created, RpcError> {
        let Some(key) = key else { return self.make(params, parent, None).await };
        let _turn = self.under_way.turn(&key).await;
        match self.env.store.answer_to(&key).await? {
            Some(created) => Ok(created),
            None => self.make(params, parent, Some(key)).await,
        }
    }

    /// Answers when it is on disk.
    async fn make(
        self: &Arc<Self>,
        params: Create,
        parent: Option<SessionId>,
        key: Option<Key>,
    ) -> Result<Created, RpcError> {
        let env = &self.env;
        let config = env.config.current()?;
        let resolved = env.providers.model(params.model.as_deref())?;
        let doubt = env.providers.warning(&resolved.origin);
        let idle = resolved.idle_effort(params.effort);
        let (setup, model) = (Some(env.setup(&resolved, env.tools.current().specs())), resolved.origin);
        let cwd = directory(&params.cwd).await?;
        let _named = match &params.name {
            Some(name) => Some(env.names.take(&env.store, name, None).await?),
            None => None,
        };
        let variables: BTreeMap<String, String> =
            params.env.into_iter().filter(|(name, _)| config.env.contains(name)).collect();
        if variables.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_ENV {
            return Err(RpcError::new(Code::TooMuch, format!("the variables of a session may have {MAX_ENV} bytes")));
        }
        let sessions = env.store.session_count().await?;
        if sessions >= MAX_SESSIONS {
            let error = RpcError::new(Code::TooMuch, format!("there are {sessions} sessions already"));
            return Err(error.hint("remove some: `linger rm SESSION`"));
        }
        let id = SessionId(clock::random_word(ID));
        let created = Created { session: id.clone(), warning: doubt.clone() };
        let outcome = key.map(|key| Fold::Outcome(key.outcome(&created)));
        let (mode, name) = (params.mode.unwrap_or(config.mode), params.name);
        tracing::info!(target: "session", session = %id, cwd = %cwd.display(), model, %mode, "created");
        let workspace = Arc::new(env.workspace(&cwd, variables.clone(), disk::TIMEOUT).await);
        let (effort, env_of) = (params.effort, variables.clone());
        let body = EventBody::SessionCreated { cwd, model, mode, effort, name, parent, setup, env: env_of };
        let (done, committed) = oneshot::channel();
        let commands = self.mailboxes.add_new(id.clone())?;
        let said = doubt.as_deref().map(unknown_model).into_iter().chain(idle.map(idle_effort)).collect();
        let shared = (env.clone(), self.clone() as Arc<_>);
        let actor = Actor::create(shared, id.clone(), (body, said), (&variables, workspace), outcome, done);
        match committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into()))) {
            Ok(()) => {
                tokio::spawn(actor.run(None, commands));
                self.retain();
                Ok(created)
            }
            Err(error) => {
                self.mailboxes.forget(&id);
                Err(error.into())
            }
        }
    }
}

/// The real path of a directory that a session is to work in.
async fn directory(cwd: &Path) -> Result<PathBuf, RpcError> {
    let gone = |problem: String| {
        RpcError::new(Code::NoWorkspace, format!("{}: {problem}", cwd.display())).hint("name a directory that exists")
    };
    if !cwd.is_absolute() {
        return Err(gone("not an absolute path".to_owned()));
    }
    let seen = cwd.to_path_buf();
    let real = disk::probe(cwd, disk::TIMEOUT, move || seen.canonicalize().map(|real| (real.is_dir(), real))).await;
    match real {
        Some(Ok((true, real))) => Ok(real),
        Some(Ok((false, _))) => Err(gone("not a directory".to_owned())),
        Some(Err(error)) => Err(gone(error.to_string())),
        None => Err(RpcError::new(Code::NoWorkspace, disk::unresponsive(cwd)).hint("try again when it does")),
    }
}
