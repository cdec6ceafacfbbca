//! Damage: the jobs that look for it and save what can be read, at the start by themselves and at the user's word.
//!
//! What a job carries over, and how, is in `carry`; what users are told of damage in `status`.
//! By itself only what is whole is carried over from a database that was set aside: of the others something is lost for good once
//! they go on. That takes the user's word, `daemon/repair`. A database in use that is damaged is never mended in
//! place: the daemon ends, sets it aside at its next start, and carries over from there; so there is one way, and the original
//! stays as it was. (A session whose state alone cannot be read needs none of this: loading it makes the state anew.)
//! One job runs at a time, on a thread of its own; it writes as all others do, through the store's writing thread. A job that was
//! cut short by the end of the daemon is begun again at the next start.

mod carry;
mod pages;
pub mod salvage;
pub mod source;
mod status;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linger_protocol::daemon::Repaired;
use linger_protocol::id::{BlobId, SessionId};
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::service::Services;
use crate::session::actor::Command;
use crate::store::aside::{self, Aside, Kind, Report};
use crate::store::{Fold, StoreError};
use crate::sys::clock;

use carry::carry_over;
pub use status::{damage, warnings};

/// How long `daemon/repair` waits before it says that it goes on; clients wait 30 s for an answer.
const ANSWER: Duration = Duration::from_secs(20);

/// How long looking may take when nothing is to be changed: a gigabyte or two.
const LOOK: Duration = Duration::from_secs(10);

/// How long the start waits for sessions to be carried over, so that small databases are whole when clients come.
const START: Duration = Duration::from_secs(1);

/// How many instructions of SQLite pass between two looks at the clock.
const STEPS: i32 = 10_000;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Carries over what is whole.
    CarryOver,
    /// Looks for damage.
    Look,
    /// Looks for damage, and saves what can be read.
    Repair,
}

/// The jobs.
pub struct Repairs {
    running: Mutex<Option<Task>>,
    ended: watch::Sender<Repaired>,
    /// Tells of each session that was carried over, and of the end of a job.
    carried: watch::Sender<()>,
    /// What was set aside, as of the last look.
    asides: Mutex<Vec<Aside>>,
}

impl Default for Repairs {
    fn default() -> Self {
        let ended = watch::channel(Repaired::default()).0;
        Self { running: Mutex::default(), ended, carried: watch::channel(()).0, asides: Mutex::default() }
    }
}

impl Repairs {
    fn asides(&self) -> MutexGuard<'_, Vec<Aside>> {
        self.asides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Option<Task>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether sessions are being carried over.
    pub fn carry_over(&self) -> bool {
        *self.running() == Some(Task::CarryOver)
    }

    /// What `look` finds, now or once more has been carried over, or until `enough` of it.
    async fn find<T, E, F: Future<Output = Result<Option<T>, E>>>(
        &self,
        mut look: impl FnMut() -> F,
        enough: impl Future<Output = ()>,
    ) -> Result<Option<T>, E> {
        let (mut carried, mut enough) = (self.carried.subscribe(), pin!(enough));
        loop {
            // In this order: what comes after the look is heard of.
            carried.mark_unchanged();
            let more = self.carry_over();
            let found = look().await?;
            if found.is_some() || !more {
                return Ok(found);
            }
            tokio::select! {
                // The sender lives as long as this.
                _ = carried.changed() => {}
                () = &mut enough => return Ok(None),
            }
        }
    }
}

/// Carries over what was set aside; waits a little.
pub async fn at_start(daemon: &Arc<Services>) {
    let asides = aside::list(&daemon.store.path);
    let wanted = asides.iter().any(|aside| !aside.report.settled);
    asides.iter().for_each(|aside| source::tidy(&aside.path));
    *daemon.repairs.asides() = asides;
    if wanted {
        let mut ended = daemon.repairs.ended.subscribe();
        start(daemon, Task::CarryOver);
        // What is not there by then comes later.
        let _in_time = tokio::time::timeout(START, ended.changed()).await;
    }
}

/// What `look` finds of the sessions, for a client that asks for one by name or id: it may be among those that are being carried
/// over, and is waited for then, but no longer than [`ANSWER`].
pub async fn find<T, E, F: Future<Output = Result<Option<T>, E>>>(
    repairs: &Repairs,
    shutdown: &CancellationToken,
    look: impl FnMut() -> F,
) -> Result<Option<T>, E> {
    let enough = async {
        tokio::select! {
            () = tokio::time::sleep(ANSWER) => {}
            () = shutdown.cancelled() => {}
        }
    };
    repairs.find(look, enough).await
}

/// Looks for damage, and unless this is only a `check` saves what can be read.
pub async fn repair(daemon: &Arc<Services>, check: bool) -> Repaired {
    if daemon.shutdown.is_cancelled() {
        // It was asked for already.
        return Repaired { restarting: true, ..Repaired::default() };
    }
    let task = if check { Task::Look } else { Task::Repair };
    let mut ended = daemon.repairs.ended.subscribe();
    let waited = tokio::time::timeout(ANSWER, async {
        loop {
            let ours = start(daemon, task);
            // The sender lives as long as the daemon.
            let _changed = ended.changed().await;
            if ours {
                return *ended.borrow_and_update();
            }
        }
    });
    let repaired = waited.await.unwrap_or(Repaired { working: true, ..Repaired::default() });
    if repaired.restarting {
        daemon.shutdown.cancel();
    }
    repaired
}

/// Starts a job unless one runs; whether the one that runs now is of this kind, so that its end is the answer.
fn start(daemon: &Arc<Services>, task: Task) -> bool {
    {
        let mut running = daemon.repairs.running();
        if let Some(running) = *running {
            return running == task;
        }
        *running = Some(task);
    }
    let daemon = daemon.clone();
    tokio::task::spawn_blocking(move || {
        // Also if it panics: the next one must be able to begin.
        struct End(Arc<Services>, Repaired);
        impl Drop for End {
            fn drop(&mut self) {
                *self.0.repairs.asides() = aside::list(&self.0.store.path);
                *self.0.repairs.running() = None;
                self.0.repairs.carried.send_replace(());
                self.0.repairs.ended.send_replace(self.1);
            }
        }
        let mut end = End(daemon.clone(), Repaired::default());
        end.1 = work(&daemon, task);
    });
    true
}

fn work(daemon: &Arc<Services>, task: Task) -> Repaired {
    let mut looked = Looked::default();
    if task != Task::CarryOver {
        let limit = (task == Task::Look).then_some(LOOK);
        match look(daemon, limit) {
            Ok(all) => looked = all,
            Err(error) => {
                tracing::error!(target: "repair", %error, "the database cannot be looked at");
                daemon.store.found.write_failed(&error);
            }
        }
    }
    let checked = looked.checked;
    if task == Task::Repair {
        looked.stale.iter().for_each(|session| mend(daemon, session));
        looked.uncounted.iter().for_each(|(session, blobs)| count(daemon, session, blobs));
        forget_blobs(daemon);
        if let Some(reason) = in_use(daemon) {
            let report = Report { reason, at: clock::now(), partial: true, ..Report::default() };
            match aside::begin(&daemon.store.path, report) {
                Ok(to) => {
                    tracing::warn!(target: "repair", file = %to.display(), "the database is set aside at the next start");
                    return Repaired { restarting: true, checked, working: false };
                }
                Err(error) => tracing::error!(target: "repair", %error, "the database cannot be set aside"),
            }
        }
    }
    if task != Task::Look {
        for mut aside in aside::list(&daemon.store.path) {
            let report = &mut aside.report;
            report.partial |= task == Task::Repair;
            // Earlier builds did not look at pages by themselves.
            let again = task == Task::Repair && !report.searched && report.kind != Kind::Wal;
            let nothing = report.carried == 0 && report.left.is_empty();
            if (!report.settled || (again && (report.has_rest() || nothing))) && !daemon.shutdown.is_cancelled() {
                carry_over(daemon, &mut aside);
            }
        }
    }
    Repaired { checked, ..Repaired::default() }
}

/// What is wrong with the database in use, beyond what loading a session mends.
fn in_use(daemon: &Services) -> Option<String> {
    let (database, sessions) = daemon.store.found.all();
    let session = sessions.into_iter().next().map(|(id, met)| format!("session {id} is damaged: {}", met.text));
    database.map(|met| met.text).or(session)
}

/// What is said of a session in [`Looked::uncounted`].
const UNCOUNTED: &str = "its size, or which images and outputs it uses, is not written down as its events have it";

/// What was found in the database that is in use, and can be mended in place.
#[derive(Default)]
struct Looked {
    /// Everything was read.
    checked: bool,
    /// Sessions whose events are good, and their state or their permissions are not: loading them makes these anew.
    stale: Vec<SessionId>,
    /// Sessions of which is not written down how large they are, or that they use these blobs.
    uncounted: Vec<(SessionId, Vec<BlobId>)>,
}

/// Reads everything in the database that is in use.
fn look(daemon: &Arc<Services>, limit: Option<Duration>) -> rusqlite::Result<Looked> {
    let mut connection = Connection::open_with_flags(&*daemon.store.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let (began, shutdown) = (Instant::now(), daemon.shutdown.clone());
    let over = move || shutdown.is_cancelled() || limit.is_some_and(|limit| began.elapsed() > limit);
    connection.progress_handler(STEPS, Some(over.clone()))?;
    let found = &daemon.store.found;
    let complaint = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match complaint {
        _ if over() => return Ok(Looked::default()),
        Ok(text) if text == "ok" => {}
        Ok(text) => found.database(&text.replace("*** in database main ***\n", "")),
        Err(error) => found.write_failed(&error),
    }
    let mut looked = Looked::default();
    for id in salvage::ids(&connection) {
        let examined = salvage::look(&connection, &id);
        if over() {
            return Ok(looked);
        }
        let id = SessionId(id);
        // What is said below is what is wrong now.
        found.beside_is_well(&id);
        // One that has no file was lost, and given up.
        let is_there = |blob: &BlobId| daemon.store.blobs.check(blob).is_ok();
        let unused: Vec<BlobId> = examined.unused.into_iter().filter(is_there).collect();
        if (examined.miscounted || !unused.is_empty())
            && matches!(&examined.row, Ok(Some(_)))
            && examined.broken.is_none()
        {
            found.beside(&id, UNCOUNTED);
            looked.uncounted.push((id.clone(), unused));
        }
        match (examined.row, examined.broken) {
            (Err(text), _) | (Ok(Some(_)), Some(text)) => found.session(&id, &text),
            (Ok(Some(_)), None) if examined.stale => {
                found.beside(&id, "its state cannot be read; loading it makes it anew from its events");
                looked.stale.push(id);
            }
            (Ok(Some(_)), None) if examined.beside => {
                let text = "what it does and what waits for an answer is not written down where it is looked for";
                found.beside(&id, text);
                looked.stale.push(id);
            }
            // Else it was removed, or is the beginning of one that is being carried over.
            (Ok(None), _) if !aside::is_owed(&daemon.store.path) && is_orphan(&connection, &id)? => {
                found.session(&id, "the row that says where it stands is missing");
            }
            (Ok(_), _) => {}
        }
    }
    // What keeps them from being read is told above.
    let ids: Vec<BlobId> = connection
        .prepare("SELECT DISTINCT hash FROM blob")?
        .query_map([], |row| row.get(0).map(BlobId))?
        .map_while(Result::ok)
        .collect();
    for id in ids {
        let used = || connection.prepare_cached("SELECT 1 FROM blob WHERE hash = ?")?.exists([id.as_str()]);
        match daemon.store.blobs.check(&id) {
            Ok(()) => {
                found.blob_is_well(&id);
                for session in miscounted(&connection, &id, daemon.store.blobs.size(&id).unwrap_or_default())? {
                    found.beside(&session, UNCOUNTED);
                    looked.uncounted.push((session, vec![id.clone()]));
                }
            }
            // Who used it may have been removed meanwhile.
            Err(_) if !used()? => found.blob_is_well(&id),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                drop(daemon.store.lost_blob(&id, error));
            }
            // It may be as it should.
            Err(error) => {
                let path = daemon.store.blobs.path(&id).unwrap_or_default();
                found.blob(&id, &format!("{} cannot be read: {error}", path.display()));
            }
        }
        if over() {
            return Ok(looked);
        }
    }
    looked.checked = true;
    Ok(looked)
}

/// The sessions that use a blob as one of another size.
fn miscounted(connection: &Connection, id: &BlobId, size: u64) -> rusqlite::Result<Vec<SessionId>> {
    connection
        .prepare_cached("SELECT session FROM blob WHERE hash = ? AND size <> ?")?
        .query_map((id.as_str(), size.cast_signed()), |row| row.get(0).map(SessionId))?
        .collect()
}

/// Whether there are events of a session that nobody has removed, and which has no row. At one moment: it may be removed now.
fn is_orphan(connection: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM event WHERE session = ?1)
               AND NOT EXISTS (SELECT 1 FROM session WHERE id = ?1)
               AND NOT EXISTS (SELECT 1 FROM removed WHERE session = ?1)";
    connection.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0))
}

/// Sets aside what has the name of a blob and is another, and uses neither it nor what is missing any more.
fn forget_blobs(daemon: &Services) {
    let found = &daemon.store.found;
    let blobs = &daemon.store.blobs;
    let (mut lost, mut kept) = (Vec::new(), BTreeMap::new());
    for (id, _) in found.blobs() {
        match blobs.check(&id).map_err(|error| error.kind()) {
            Ok(()) => found.blob_is_well(&id),
            Err(ErrorKind::NotFound) => lost.push(id),
            Err(ErrorKind::InvalidData) => match blobs.set_aside(&id) {
                Ok(aside) => {
                    kept.extend(aside.map(|aside| (id.clone(), aside)));
                    lost.push(id);
                }
                Err(error) => tracing::error!(target: "repair", blob = %id, %error, "cannot be set aside"),
            },
            // It may be as it should, and is not given up.
            Err(_) => {}
        }
    }
    if lost.is_empty() {
        return;
    }
    match Handle::current().block_on(daemon.store.forget_blobs(lost.clone())) {
        Ok(()) => lost.iter().for_each(|id| found.give_up(id, kept.remove(id))),
        Err(error) => tracing::error!(target: "repair", %error, "blobs that are lost cannot be given up"),
    }
}

/// Writes down that a session uses these blobs too, and how large it is.
fn count(daemon: &Arc<Services>, session: &SessionId, blobs: &[BlobId]) {
    let hold =
        || blobs.iter().filter_map(|blob| daemon.store.blobs.hold(blob).transpose()).collect::<io::Result<Vec<_>>>();
    let written = hold()
        .map_err(StoreError::from)
        .and_then(|held| Handle::current().block_on(daemon.store.fold(session, vec![Fold::Uses(held)])));
    match written {
        Ok(()) => daemon.store.found.beside_is_well(session),
        Err(error) => daemon.store.found.beside(session, &format!("what it uses cannot be written down: {error}")),
    }
}

/// Has a session make anew what is kept of it beside its events; loading it does so, too.
fn mend(daemon: &Arc<Services>, session: &SessionId) {
    let (reply, answer) = oneshot::channel();
    daemon.registry.send(session, Command::Mend(reply));
    match answer.blocking_recv() {
        Ok(Ok(())) => daemon.store.found.mended(session),
        Ok(Err(error)) => tracing::error!(target: "repair", %session, error = error.message, "cannot be mended"),
        // It was removed, or the daemon ends.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_asks_for_what_is_being_carried_over_waits_for_it_and_for_nothing_else() {
        let repairs = Repairs::default();
        let never = std::future::pending::<()>;
        // What there is when it is looked for the n-th time.
        let find = async |there: &[Option<u8>]| {
            let mut there = there.iter();
            let look = || {
                // Each time something has been carried over meanwhile, and at the last time but one all of it.
                if there.len() == 2 {
                    *repairs.running() = None;
                }
                repairs.carried.send_replace(());
                std::future::ready(Ok::<_, ()>(*there.next().expect("it is looked for no more")))
            };
            repairs.find(look, never()).await.unwrap()
        };
        assert_eq!(find(&[None]).await, None, "nothing is being carried over");
        *repairs.running() = Some(Task::Look);
        assert_eq!(find(&[None]).await, None);
        *repairs.running() = Some(Task::CarryOver);
        assert_eq!(find(&[None, None, Some(7), None]).await, Some(7), "as soon as it is there");
        *repairs.running() = Some(Task::CarryOver);
        // The job ends while it is looked for.
        assert_eq!(find(&[None, None, Some(7)]).await, Some(7));
        *repairs.running() = Some(Task::CarryOver);
        assert_eq!(find(&[None, None, None]).await, None);
        *repairs.running() = Some(Task::CarryOver);
        let look = || std::future::ready(Ok::<_, ()>(None::<u8>));
        assert_eq!(repairs.find(look, async {}).await, Ok(None), "but not for ever");
    }
}
