//! What is done with a damaged database. Nobody waits for any of it, and nothing of it runs beside the work.
//!
//! The daemon sets aside what it cannot open, serves what can be read, and says what is damaged ([`status`], [`check`]). It mends
//! nothing. That is done while it is down, by a helper ([`run`], `lingerd --recover`) which holds the daemon's lock: it sets the
//! damaged database aside, makes a new one, and carries the sessions over ([`carry`]), also from what was set aside earlier. There
//! is one way for damage of every kind, and the original stays as it was.

mod carry;
mod pages;
pub(crate) mod salvage;
pub(crate) mod source;
mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use linger_protocol::daemon::{Checked, Damaged, Recovered};
use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Connection, OpenFlags};
use tokio_util::sync::CancellationToken;

use crate::store::aside::{self, Kind, Report};
use crate::store::blob::Blobs;
use crate::store::event_row::stored;
use crate::store::{Store, lost_blob, open};
use crate::sys::clock;

use carry::{Target, carry_over};
pub use status::{damage, warnings};

/// How long looking may take in a daemon: a gigabyte or two.
const LOOK: Duration = Duration::from_secs(10);

/// How many instructions of SQLite pass between two looks at the clock.
const STEPS: i32 = 10_000;

/// Reads everything that is stored, for some seconds at most, and says what of it is damaged; changes nothing. Blocks.
pub fn check(store: &Store, shutdown: &CancellationToken) -> Checked {
    let (began, shutdown) = (Instant::now(), shutdown.clone());
    let is_over = move || shutdown.is_cancelled() || began.elapsed() > LOOK;
    let looked =
        Connection::open_with_flags(&*store.path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|mut connection| {
            connection.progress_handler(STEPS, Some(is_over.clone()))?;
            look(&connection, &store.blobs, is_over)
        });
    let mut damage = damage(store);
    // Of these all were looked at.
    damage.retain(|known| known.what != Damaged::Blob);
    let looked = looked.unwrap_or_else(|error| Looked { database: Some(error.to_string()), ..Looked::default() });
    for (what, session, text) in looked.findings() {
        // Where the daemon has met it too, this says it better.
        damage.retain(|known| known.what != what || known.session != session || what == Damaged::Blob);
        damage.push(status::in_use(what, session, clock::now(), &text));
    }
    let repairable = damage.iter().any(status::is_repairable);
    Checked { complete: looked.complete, repairable, damage }
}

/// Saves what can be read of what is damaged in the database at `path` or was set aside beside it, and says what became of it.
/// Nobody else may use the database. Fails if nothing can be written; begun again, it goes on where it was.
pub fn run(path: &Path) -> anyhow::Result<Recovered> {
    let path = open::own_path(path);
    let blobs = Blobs::beside(&path);
    let (mut connection, _) = open::open(&path)?;
    let looked = look(&connection, &blobs, || false)?;
    if let Some((_, _, reason)) = looked.findings().into_iter().next() {
        drop(connection);
        aside::begin(&path, Report { reason, at: clock::now(), ..Report::default() })?;
        (connection, _) = open::open(&path)?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let mut target = Target { connection: &connection, blobs: &blobs, given_up: BTreeMap::new() };
    let mut asides = aside::list(&path);
    for aside in asides.iter_mut().filter(|aside| !aside.report.settled && aside.report.kind != Kind::Wal) {
        carry_over(&mut target, aside)?;
    }
    let given_up = target.given_up.into_values().map(|text| status::given_up(&text));
    let damage = asides.into_iter().map(status::of_aside).chain(given_up).collect();
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
    blobs.close();
    Ok(Recovered { damage })
}

/// What was found in the database that is in use.
#[derive(Debug, Default)]
struct Looked {
    /// Everything was read.
    complete: bool,
    /// What is wrong with its pages.
    database: Option<String>,
    sessions: Vec<(SessionId, String)>,
    blobs: Vec<String>,
}

impl Looked {
    /// All of it, in the order in which it is told.
    fn findings(&self) -> Vec<(Damaged, Option<SessionId>, String)> {
        let database = self.database.iter().map(|text| (Damaged::InUse, None, text.clone()));
        let sessions = self.sessions.iter().map(|(id, text)| (Damaged::Session, Some(id.clone()), text.clone()));
        let blobs = self.blobs.iter().map(|text| (Damaged::Blob, None, text.clone()));
        database.chain(sessions).chain(blobs).collect()
    }
}

/// What is wrong with the pages of a database, if anything.
fn complaint(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok(Some(said.replace("*** in database main ***\n", "")).filter(|said| said != "ok"))
}

/// Reads everything, as it is at one moment, until it `is_over`.
fn look(connection: &Connection, blobs: &Blobs, is_over: impl Fn() -> bool) -> rusqlite::Result<Looked> {
    let mut looked = Looked::default();
    let now = connection.unchecked_transaction()?;
    match complaint(connection) {
        _ if is_over() => return Ok(looked),
        Ok(complaint) => looked.database = complaint,
        Err(error) => looked.database = Some(error.to_string()),
    }
    let removed = salvage::removed(connection).unwrap_or_default();
    for id in salvage::ids(connection).0.into_iter().filter(|id| !removed.contains(id)) {
        let examined = salvage::examine(connection, &id, stored);
        if is_over() {
            return Ok(looked);
        }
        // One that has no file was lost, and given up.
        let uncounted = examined.unused.iter().any(|blob| blobs.check(blob).is_ok());
        let uncounted = uncounted.then(|| salvage::UNCOUNTED.to_owned());
        looked.sessions.extend(examined.broken.or(examined.wrong).or(uncounted).map(|text| (SessionId(id), text)));
    }
    // What keeps them from being read is told above.
    let mut used = connection.prepare("SELECT DISTINCT hash FROM blob")?;
    let used: Vec<BlobId> = used.query_map([], |row| row.get(0).map(BlobId))?.map_while(Result::ok).collect();
    drop(now);
    for blob in used {
        // Who used it may have been removed meanwhile.
        let is_used = || connection.prepare_cached("SELECT 1 FROM blob WHERE hash = ?")?.exists([blob.as_str()]);
        if let Err(error) = blobs.check(&blob)
            && let Some(text) = lost_blob(blobs, &blob, &error)
            && is_used()?
        {
            looked.blobs.push(text);
        }
        if is_over() {
            return Ok(looked);
        }
    }
    looked.complete = true;
    Ok(looked)
}

#[cfg(test)]
mod tests;
