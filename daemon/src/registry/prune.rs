//! The bin, and deleting old sessions: `session/bin`, `session/prune`, and `retention` of the configuration.
//!
//! What is older than `retention` goes into the bin, and what lies there for 30 days is deleted. Neither believes the clock alone:
//! `store/days` says what is old.
//! The store lists the candidates, and the actor of each decides, so that a session that is used meanwhile stays. There is no
//! timer: sessions are searched at the start and when one is created.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::session::{Info, Prune, Pruned};

use super::Registry;
use super::place::HeldPlace;
use crate::session::messages::{Command, KeyedReply};
use crate::session::state::State;
use crate::store::damage::KnownDamage;
use crate::store::idempotency::Key;
use crate::store::{SessionRow, Untouched};
use crate::sys::clock;
use crate::sys::task;

/// The most sessions that a response names.
const NAMED: usize = 1000;

/// The pause between two searches, in milliseconds: `retention` counts days.
const AGAIN_MS: u64 = 3_600_000;

/// How long a session stays in the bin, in milliseconds: a month, in which a mistake is noticed.
pub const BIN_MS: u64 = 30 * clock::DAY_MS;

impl Registry {
    /// Puts a session into the bin; with `force` also while a turn runs, which is cancelled first. `place`: the request's place in
    /// the session, if it has one.
    pub async fn bin(
        self: &Arc<Self>,
        id: &SessionId,
        force: bool,
        key: Option<Key>,
        place: Option<&HeldPlace>,
    ) -> Result<(), RpcError> {
        if force {
            let cancel = |reply| Command::Cancel(true, KeyedReply { key: None, reply });
            match self.ask_in(place, id, cancel).await {
                // Nothing runs; or it is in the bin already, as when the request is sent again.
                Err(error) if !matches!(error.code(), Some(Code::Idle | Code::Binned)) => return Err(error),
                _ => {}
            }
        }
        self.ask_in(place, id, |reply| Command::Bin(KeyedReply { key, reply })).await
    }

    /// Deletes the sessions that were not used for a while, puts them into the bin, or only lists them.
    pub async fn prune(self: &Arc<Self>, params: Prune) -> Result<Pruned, RpcError> {
        let store = &self.env.store;
        // The bin is emptied whole: also what was put there in this millisecond.
        let now = clock::now();
        let before = if params.bin { now.saturating_add(1) } else { now.saturating_sub(params.older_than_ms) };
        let mut pruned = Pruned::default();
        let of = match (params.bin, params.force) {
            (true, _) => Untouched::Binned,
            (false, true) => Untouched::All,
            (false, false) => Untouched::Idle,
        };
        for (id, size) in store.untouched(before, of).await? {
            let row = if pruned.sessions.len() < NAMED { store.session(id.clone()).await? } else { None };
            let done = match (params.dry_run, params.into_bin && !params.bin) {
                (true, false) if !params.force => !self.is_used_below(&id, before).await?,
                (true, _) => true,
                (false, true) => pruned_one(&id, self.bin(&id, params.force, None, None).await)?,
                (false, false) => self.prune_one(&id, before, params.force).await?,
            };
            if !done {
                continue;
            }
            pruned.sessions.extend(row.map(|row| info(&store.found, row)));
            pruned.count += 1;
            pruned.size += size;
        }
        Ok(pruned)
    }

    /// Puts sessions older than `retention` into the bin, and deletes those that were there for long, in the background; called at the
    /// start and when a session is created.
    pub fn retain(self: &Arc<Self>) {
        let now = clock::now();
        let last = self.pruned_at.load(Ordering::Relaxed);
        let kept = self.env.config.current().ok().and_then(|config| config.retention_ms);
        if now.saturating_sub(last) < AGAIN_MS {
            return;
        }
        self.pruned_at.store(now, Ordering::Relaxed);
        let registry = self.clone();
        task::spawn(async move {
            let recorded = registry.clone();
            // Not again in this life of the daemon if it fails: the next start tries again.
            let _recorded = task::spawn_blocking(move || recorded.env.days.note(now)).await;
            if let Err(error) = registry.delete_old(now).await {
                tracing::warn!(target: "retention", %error, "cannot delete sessions that were in the bin for 30 days");
            }
            if let Some(kept) = kept
                && let Err(error) = registry.bin_old(kept, now).await
            {
                tracing::warn!(target: "retention", %error, "cannot put sessions into the bin: older than `retention`");
            }
        });
    }

    async fn delete_old(self: &Arc<Self>, now: u64) -> Result<(), RpcError> {
        let before = self.env.days.before(BIN_MS, now, Some(self.env.store.newest_change().await?));
        for (session, size) in self.env.store.untouched(before, Untouched::Binned).await? {
            if self.prune_one(&session, before, false).await? {
                tracing::info!(target: "retention", %session, size, "deleted: was in the bin for 30 days");
            }
        }
        Ok(())
    }

    async fn bin_old(self: &Arc<Self>, kept: u64, now: u64) -> Result<(), RpcError> {
        let before = self.env.days.before(kept, now, Some(self.env.store.newest_change().await?));
        for (session, _) in self.env.store.untouched(before, Untouched::Idle).await? {
            if !self.is_used_below(&session, before).await? && self.bin_one(&session, before).await? {
                tracing::info!(target: "retention", %session, "put into the bin: older than `retention`");
            }
        }
        Ok(())
    }

    /// Puts a session that was not used since `before` into the bin, with its children; whether it did.
    async fn bin_one(self: &Arc<Self>, id: &SessionId, before: u64) -> Result<bool, RpcError> {
        let children = match self.leave(id, false, None).await {
            Ok(children) => children,
            Err(error) => return pruned_one(id, Err(error)),
        };
        if !pruned_one(id, self.ask(id, |reply| Command::Retain(before, reply)).await)? {
            return Ok(false);
        }
        for child in children {
            pruned_one(&child, self.bin(&child, false, None, None).await)?;
        }
        Ok(true)
    }

    /// Whether a session below this one is in use: it was used since, has a prompt to answer, or was taken out of the bin in which
    /// this one lies.
    async fn is_used_below(&self, id: &SessionId, before: u64) -> Result<bool, RpcError> {
        let below = self.below(id).await?;
        if below.is_empty() {
            return Ok(false);
        }
        let row = self.env.store.session(id.clone()).await?;
        let state = row.and_then(|row| State::from_stored(&row.fold));
        let is_binned = state.is_some_and(|state| state.settings.binned_at.is_some());
        let is_used = |state: &State| {
            let is_out = state.settings.binned_at.is_none();
            state.progress.updated_at >= before || (is_out && (is_binned || state.has_due_prompt()))
        };
        Ok(below.iter().any(|(_, state)| is_used(state)))
    }

    /// Deletes one session unless it, or one below it, is in use; whether it did.
    async fn prune_one(self: &Arc<Self>, id: &SessionId, before: u64, force: bool) -> Result<bool, RpcError> {
        if !force && self.is_used_below(id, before).await? {
            return Ok(false);
        }
        let children = match self.leave(id, force, None).await {
            Ok(children) => children,
            Err(error) => return pruned_one(id, Err(error)),
        };
        let kept = self.tidy_worktrees(&children, id).await;
        for worktree in kept {
            tracing::info!(target: "retention", session = %id, path = %worktree.path.display(), "a worktree with changes stays");
        }
        let is_pruned = pruned_one(id, self.ask(id, |reply| Command::Prune(before, force, reply)).await)?;
        if is_pruned {
            self.remove_all(children, true).await?;
        }
        Ok(is_pruned)
    }
}

/// Whether a session was pruned; one that is in use or gone was not, and is no reason to stop.
fn pruned_one(id: &SessionId, result: Result<(), RpcError>) -> Result<bool, RpcError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.code(), Some(Code::Busy | Code::UnknownSession | Code::Binned)) => Ok(false),
        // `linger doctor` reports this one; the others are deleted.
        Err(error) if error.code() == Some(Code::Damaged) => {
            tracing::warn!(target: "retention", session = %id, %error, "not deleted");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The row of `session/list`, also of an unreadable session.
pub fn info(found: &KnownDamage, row: SessionRow) -> Info {
    match State::from_stored(&row.fold) {
        Some(state) => {
            let (damaged, unwritten) = (found.of(&row.id), found.why_unwritten(&row.id));
            Info { damaged, unwritten, size: row.size, ..state.info(row.id) }
        }
        None => {
            let damaged = found.of(&row.id).or_else(|| Some("its state cannot be read".to_owned()));
            let (name, cwd, updated_at, size) =
                (row.name, linger_protocol::path::from_text(&row.cwd), row.updated_at, row.size);
            Info { name, cwd, updated_at, damaged, size, ..State::default().info(row.id) }
        }
    }
}
