//! Deleting old sessions: `session/prune`, and `retention` of the configuration.
//!
//! The store lists the candidates, and the actor of each decides, so that a session that is used meanwhile stays. There is no
//! timer: sessions are searched at the start and when one is created.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::session::{Info, Prune, Pruned};

use super::Registry;
use crate::session::actor::Command;
use crate::session::state::State;
use crate::store::SessionRow;
use crate::store::damage::Found;
use crate::sys::clock;

/// The most sessions that a response names.
const NAMED: usize = 1000;

/// The pause between two searches, in milliseconds: `retention` counts days.
const AGAIN_MS: u64 = 3_600_000;

impl Registry {
    /// Deletes the sessions that were not used for a while, or only lists them.
    pub async fn prune(self: &Arc<Self>, params: Prune) -> Result<Pruned, RpcError> {
        let store = &self.env.store;
        let before = clock::now().saturating_sub(params.older_than_ms);
        let mut pruned = Pruned::default();
        for (id, size) in store.untouched(before, params.force).await? {
            let row = if pruned.sessions.len() < NAMED { store.session(id.clone()).await? } else { None };
            if !params.dry_run && !self.prune_one(&id, before, params.force).await? {
                continue;
            }
            pruned.sessions.extend(row.map(|row| info(&store.found, row)));
            pruned.count += 1;
            pruned.size += size;
        }
        Ok(pruned)
    }

    /// Deletes sessions older than `retention`, in the background; called at the start and when a session is created.
    pub fn retain(self: &Arc<Self>) {
        let now = clock::now();
        let last = self.pruned_at.load(Ordering::Relaxed);
        let kept = self.env.config.current().ok().and_then(|config| config.retention_ms);
        let Some(kept) = kept.filter(|_| now.saturating_sub(last) >= AGAIN_MS) else { return };
        self.pruned_at.store(now, Ordering::Relaxed);
        let registry = self.clone();
        tokio::spawn(async move {
            if let Err(error) = registry.delete_old(now.saturating_sub(kept)).await {
                tracing::warn!(target: "retention", %error, "cannot delete sessions older than `retention`");
            }
        });
    }

    async fn delete_old(self: &Arc<Self>, before: u64) -> Result<(), RpcError> {
        for (session, size) in self.env.store.untouched(before, false).await? {
            if self.prune_one(&session, before, false).await? {
                tracing::info!(target: "retention", %session, size, "deleted: older than `retention`");
            }
        }
        Ok(())
    }

    /// Deletes one session unless it is in use; whether it did.
    async fn prune_one(self: &Arc<Self>, id: &SessionId, before: u64, force: bool) -> Result<bool, RpcError> {
        match self.ask(id, |reply| Command::Prune(before, force, reply)).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.code(), Some(Code::Busy | Code::UnknownSession)) => Ok(false),
            // `linger doctor` reports this one; the others are deleted.
            Err(error) if error.code() == Some(Code::Damaged) => {
                tracing::warn!(target: "retention", session = %id, %error, "not deleted");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// The row of `session/list`, also of an unreadable session.
pub fn info(found: &Found, row: SessionRow) -> Info {
    match State::from_stored(&row.fold) {
        Some(state) => {
            let (damaged, unwritten) = (found.of(&row.id), found.why_unwritten(&row.id));
            Info { damaged, unwritten, size: row.size, ..state.info(row.id) }
        }
        None => {
            let damaged = found.of(&row.id).or_else(|| Some("its state cannot be read".to_owned()));
            let (name, cwd, updated_at, size) = (row.name, row.cwd.into(), row.updated_at, row.size);
            Info { name, cwd, updated_at, damaged, size, ..State::default().info(row.id) }
        }
    }
}
