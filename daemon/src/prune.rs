//! Which sessions are kept no longer: `session/prune`, and what the configuration calls `retention`.
//!
//! A list of candidates is read, and each is asked to go: whether it does is decided by its actor, for itself, so that a
//! session that is used meanwhile stays. No timer: an idle daemon makes nothing that could grow old in a hurry.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::session::{Info, Prune, Pruned};
use tokio::sync::oneshot;

use crate::clock;
use crate::daemon::Daemon;
use crate::session::actor::Command;
use crate::session::state::State;
use crate::store::damage::Found;
use crate::store::{SessionRow, aside};

/// Sessions that are named in an answer.
const NAMED: usize = 1000;

/// How long to wait before sessions are looked through again, in milliseconds: `retention` counts days.
const AGAIN_MS: u64 = 3_600_000;

/// Deletes the sessions that nobody has used for a while, or says which these are.
pub async fn prune(daemon: &Arc<Daemon>, params: Prune) -> Result<Pruned, RpcError> {
    let before = clock::now().saturating_sub(params.older_than_ms);
    let mut pruned = Pruned::default();
    for (id, size) in daemon.store.untouched(before, params.force).await? {
        let row = if pruned.sessions.len() < NAMED { daemon.store.session(id.clone()).await? } else { None };
        if !params.dry_run && !remove(daemon, &id, before, params.force).await? {
            continue;
        }
        pruned.sessions.extend(row.map(|row| info(&daemon.store.found, row)));
        pruned.count += 1;
        pruned.size += size;
    }
    if !params.dry_run {
        let (unused, gives_back, _) = daemon.store.space().await?;
        pruned.rewrite = !gives_back && (unused > 0 || pruned.count > 0);
        if pruned.rewrite {
            daemon.store.rewrite();
        }
    }
    Ok(pruned)
}

/// Deletes, in the background, what is older than the configuration keeps; at the start, and when a session is made, now and
/// then.
pub fn retain(daemon: &Arc<Daemon>) {
    let now = clock::now();
    let last = daemon.pruned_at.load(Ordering::Relaxed);
    let kept = daemon.config.current().ok().and_then(|config| config.retention_ms);
    let Some(kept) = kept.filter(|_| now.saturating_sub(last) >= AGAIN_MS) else { return };
    daemon.pruned_at.store(now, Ordering::Relaxed);
    let daemon = daemon.clone();
    tokio::spawn(async move {
        if let Err(error) = delete_old(&daemon, now.saturating_sub(kept)).await {
            tracing::warn!(target: "retention", %error, "sessions that are too old could not be deleted");
        }
    });
}

async fn delete_old(daemon: &Arc<Daemon>, before: u64) -> Result<(), RpcError> {
    for (session, size) in daemon.store.untouched(before, false).await? {
        if remove(daemon, &session, before, false).await? {
            tracing::info!(target: "retention", %session, size, "deleted: nobody has used it since before `retention`");
        }
    }
    Ok(())
}

/// Deletes one session unless it is in use; whether it did.
async fn remove(daemon: &Arc<Daemon>, id: &SessionId, before: u64, force: bool) -> Result<bool, RpcError> {
    let (reply, answer) = oneshot::channel();
    daemon.sessions.send(daemon, id, Command::Prune(before, force, reply));
    let gone = RpcError::new(Code::Internal, format!("session {id} did not answer"));
    match answer.await.unwrap_or(Err(gone)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.code(), Some(Code::Busy | Code::UnknownSession)) => Ok(false),
        // The others can go all the same; `linger doctor` names this one.
        Err(error) if error.code() == Some(Code::Damaged) => {
            tracing::warn!(target: "retention", session = %id, %error, "not deleted");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The row of `session/list`; one that cannot be read is in the list too.
pub fn info(found: &Found, row: SessionRow) -> Info {
    match State::from_stored(&row.fold) {
        Some(state) => {
            let (damaged, unwritten) = (found.of(&row.id), found.why_unwritten(&row.id));
            Info { damaged, unwritten, size: row.size, ..state.info(row.id) }
        }
        None => {
            found.beside(&row.id, "its state cannot be read; when it is attached to it is made anew from its events");
            let damaged = found.of(&row.id).or_else(|| Some("its state cannot be read".to_owned()));
            let (name, cwd, updated_at, size) = (row.name, row.cwd.into(), row.updated_at, row.size);
            Info { name, cwd, updated_at, damaged, size, ..State::default().info(row.id) }
        }
    }
}

/// Deletes the outputs that early builds kept in files of their own for a session.
pub async fn remove_outputs(daemon: &Daemon, session: &SessionId) {
    let outputs = daemon.places.state.join("outputs").join(session.as_str());
    match tokio::fs::remove_dir_all(&outputs).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(target: "session", path = %outputs.display(), %error, "outputs could not be removed");
        }
        _ => {}
    }
}

/// Deletes such outputs of sessions that are no more: the daemon may have died between the two.
pub async fn sweep_outputs(daemon: Arc<Daemon>) {
    if aside::is_owed(&daemon.store.path) {
        // Its sessions are not here yet.
        return;
    }
    let Ok(mut entries) = tokio::fs::read_dir(daemon.places.state.join("outputs")).await else { return };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let session = SessionId(name);
        if matches!(daemon.store.session(session.clone()).await, Ok(None)) {
            remove_outputs(&daemon, &session).await;
        }
    }
}
