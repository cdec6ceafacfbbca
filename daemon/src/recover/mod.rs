//! Damage to the database: finding, reporting and repairing it.
//!
//! The daemon sets aside what it cannot open, serves the readable rest, and reports damage ([`damage`], [`check`]); it repairs
//! nothing. A helper does ([`run`], `lingerd --recover`), which holds the daemon's lock while the daemon is down: it sets the
//! damaged database aside, creates a new one, and copies the sessions ([`carry`]), also from files that were set aside earlier. The
//! originals stay unchanged.

mod carry;
mod pages;
mod salvage;
mod source;
mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use linger_protocol::daemon::{Checked, Damaged, Recovered};
use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Connection, OpenFlags};
use tokio_util::sync::CancellationToken;

use crate::store::aside::{self, AsideKind, Report};
use crate::store::blob::Blobs;
use crate::store::{Store, lost_blob, open};
use crate::sys::clock;

use carry::{Target, carry_over};
use source::complaint;
pub use status::{damage, warnings};

/// How long a check may take in a daemon: enough for a gigabyte or two.
const CHECK: Duration = Duration::from_secs(10);

/// SQLite instructions between two looks at the clock.
const STEPS: i32 = 10_000;

/// Something damaged in the database in use: what it is, its session, and the reason.
type Finding = (Damaged, Option<SessionId>, String);

/// Reads the whole database, for some seconds at most, and reports damage; changes nothing. Blocks.
pub fn check(store: &Store, shutdown: &CancellationToken) -> Checked {
    let (began, shutdown) = (Instant::now(), shutdown.clone());
    let is_over = move || shutdown.is_cancelled() || began.elapsed() > CHECK;
    let scanned =
        Connection::open_with_flags(&*store.path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|mut connection| {
            connection.progress_handler(STEPS, Some(is_over.clone()))?;
            scan(&connection, &store.blobs, is_over)
        });
    let mut damage = damage(store);
    // The scan looks at all blobs again.
    damage.retain(|known| known.what != Damaged::Blob);
    let (findings, complete) = scanned.unwrap_or_else(|error| (vec![(Damaged::InUse, None, error.to_string())], false));
    for (what, session, text) in findings {
        // Its reason is better than the one that the daemon met.
        damage.retain(|known| known.what != what || known.session != session || what == Damaged::Blob);
        damage.push(status::in_use(what, session, clock::now(), &text));
    }
    let repairable = damage.iter().any(status::is_repairable);
    Checked { complete, repairable, damage }
}

/// Repairs the database at `path` and copies the sessions of those that were set aside earlier. Nobody else may use the database.
/// Fails if nothing can be written; run again, it continues.
pub fn run(path: &Path) -> anyhow::Result<Recovered> {
    let path = open::own_path(path);
    let blobs = Blobs::of(&path);
    let (mut connection, _) = open::open(&path)?;
    let (findings, _) = scan(&connection, &blobs, || false)?;
    if let Some((_, _, reason)) = findings.into_iter().next() {
        drop(connection);
        aside::begin(&path, Report { reason, at: clock::now(), ..Report::default() })?;
        (connection, _) = open::open(&path)?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let mut target = Target { connection: &connection, blobs: &blobs, given_up: BTreeMap::new() };
    let mut asides = aside::list(&path);
    for aside in asides.iter_mut().filter(|aside| !aside.report.settled && aside.report.kind != AsideKind::Wal) {
        carry_over(&mut target, aside)?;
    }
    let given_up = target.given_up.into_values().map(|text| status::given_up(&text));
    let damage = asides.into_iter().map(status::of_aside).chain(given_up).collect();
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
    blobs.close();
    Ok(Recovered { damage })
}

/// Reads everything, in one transaction, until it `is_over`; gives what is damaged, and whether all was read.
fn scan(connection: &Connection, blobs: &Blobs, is_over: impl Fn() -> bool) -> rusqlite::Result<(Vec<Finding>, bool)> {
    let mut findings = Vec::new();
    let transaction = connection.unchecked_transaction()?;
    let complaint = complaint(connection).unwrap_or_else(|error| Some(error.to_string()));
    if is_over() {
        return Ok((findings, false));
    }
    findings.extend(complaint.map(|text| (Damaged::InUse, None, text)));
    for id in salvage::sessions(connection, Vec::new()) {
        let examined = salvage::examine(connection, &id);
        if is_over() {
            return Ok((findings, false));
        }
        findings.extend(examined.broken.or(examined.wrong).map(|text| (Damaged::Session, Some(SessionId(id)), text)));
    }
    // An unreadable table is reported above.
    let mut used = connection.prepare("SELECT DISTINCT hash FROM blob")?;
    let used: Vec<BlobId> = used.query_map([], |row| row.get(0).map(BlobId))?.map_while(Result::ok).collect();
    drop(transaction);
    for blob in used {
        // Its session may have been removed meanwhile.
        let is_used = || connection.prepare_cached("SELECT 1 FROM blob WHERE hash = ?")?.exists([blob.as_str()]);
        if let Err(error) = blobs.check(&blob)
            && let Some(text) = lost_blob(blobs, &blob, &error)
            && is_used()?
        {
            findings.push((Damaged::Blob, None, text));
        }
        if is_over() {
            return Ok((findings, false));
        }
    }
    Ok((findings, true))
}

#[cfg(test)]
mod tests;
