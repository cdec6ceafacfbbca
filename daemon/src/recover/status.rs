//! What damage there is and what became of it, in words: for `daemon/status`, and for whoever says hello.

use linger_protocol::daemon::{self, Damage, Damaged};
use linger_protocol::id::SessionId;

use crate::store::aside::{self, Aside, Kind, Left};
use crate::store::damage::Met;
use crate::store::{SCHEMA, Store};

/// What to do about what a repair can do something about.
const REPAIR: &str = "`linger doctor --repair` saves what can be read";

/// What every client is told when it says hello. Looks at no disk.
pub fn warnings(store: &Store) -> Vec<String> {
    let seen = store.found.seen();
    let asides = seen.asides.into_iter().map(of_aside);
    // Of what cannot be had any more, of a session or an image they are told by `linger doctor`.
    let told = asides.chain(database(seen.database)).filter(|damage| damage.hint.is_some() && !damage.lost);
    told.chain(unwritten(&seen.unwritten.into_values().collect::<Vec<_>>())).map(|damage| damage.text).collect()
}

/// The damage that was met, and what was set aside.
pub fn damage(store: &Store) -> Vec<Damage> {
    store.found.set_aside(aside::list(&store.path));
    let seen = store.found.seen();
    let sessions = seen.sessions.into_iter();
    let sessions = sessions.map(|(id, met)| in_use(Damaged::Session, Some(id), met.at, &met.text));
    let blobs = seen.blobs.into_values().map(|met| in_use(Damaged::Blob, None, met.at, &met.text));
    let unwritten = unwritten(&seen.unwritten.into_values().collect::<Vec<_>>());
    let asides = seen.asides.into_iter().map(of_aside);
    asides.chain(database(seen.database)).chain(sessions).chain(blobs).chain(unwritten).collect()
}

fn plain(what: Damaged, at: u64, text: String, hint: Option<String>) -> Damage {
    Damage { what, session: None, file: None, at, text, hint, carried: 0, left: Vec::new(), lost: false }
}

/// Something in the database that is in use.
pub(super) fn in_use(what: Damaged, session: Option<SessionId>, at: u64, text: &str) -> Damage {
    let text = match (what, &session) {
        (Damaged::Session, Some(id)) => format!("session {id} is damaged: {text}"),
        (Damaged::Blob, _) => format!("an image or an output is lost: {text}"),
        _ => format!("the database in use is damaged: {text}"),
    };
    Damage { session, ..plain(what, at, text, Some(REPAIR.to_owned())) }
}

fn database(met: Option<Met>) -> Option<Damage> {
    met.map(|met| in_use(Damaged::InUse, None, met.at, &met.text))
}

fn unwritten(all: &[Met]) -> Option<Damage> {
    let first = all.iter().min_by_key(|met| met.at)?;
    let text = match all.len() {
        1 => format!("nothing can be written of a session: {}", first.text),
        count => format!("nothing can be written of {count} sessions: {}", first.text),
    };
    let hint = "make room on the disk, or see why it fails; what waits goes on by itself".to_owned();
    Some(plain(Damaged::Unwritten, first.at, text, Some(hint)))
}

/// A blob that a repair gave up, and what is said of it.
pub(super) fn given_up(text: &str) -> Damage {
    plain(Damaged::Blob, 0, format!("an image or an output was lost, and is used no more: {text}"), None)
}

/// Whether a repair by this build could do something about it.
pub(super) fn is_repairable(damage: &Damage) -> bool {
    damage.hint.as_deref() == Some(REPAIR)
}

/// What was set aside, and what became of it.
pub(super) fn of_aside(aside: Aside) -> Damage {
    let Aside { path, report } = aside;
    let file = path.display();
    let what = match report.kind {
        Kind::Database => Damaged::Database,
        Kind::Newer => Damaged::Newer,
        Kind::Wal => Damaged::Wal,
    };
    let lost = report.settled && report.has_rest();
    let set_aside = format!("the database was set aside as {file}: {}", report.reason);
    let (text, hint) = match report.kind {
        Kind::Wal => (format!("{}; the copy is {file}", report.reason), None),
        _ if report.settled => (
            format!("{set_aside}; {}", carried(report.carried, &report.left, report.uncertain)),
            lost.then_some(
                "nothing more of it can be read here; keep the file, or delete it when you do not need what is missing",
            ),
        ),
        Kind::Newer if report.schema > SCHEMA => (
            format!("{set_aside}; its sessions are not here"),
            Some("start the newer linger: its `linger doctor --repair` carries the sessions over"),
        ),
        _ => (format!("{set_aside}; its sessions are not here"), Some(REPAIR)),
    };
    let left = report.left.into_iter();
    let left =
        left.map(|Left { session, events, of, text }| daemon::Left { session: SessionId(session), events, of, text });
    let damage = plain(what, report.at, text, hint.map(str::to_owned));
    Damage { file: Some(path), carried: report.carried, left: left.collect(), lost, ..damage }
}

/// How much of a database is here.
fn carried(carried: u32, left: &[Left], uncertain: bool) -> String {
    let others = if uncertain { "; whether there were others cannot be read" } else { "" };
    match (carried, left.len()) {
        (0, 0) => "nothing in it could be read".to_owned(),
        (carried, 0) if uncertain => format!("{carried} sessions were carried over whole{others}"),
        (carried, 0) => format!("all sessions that are in it were carried over ({carried})"),
        (carried, count) => {
            let sum = |of: fn(&Left) -> u64| left.iter().map(of).sum::<u64>();
            let (events, of) = (sum(|left| left.events), sum(|left| left.of.max(left.events)));
            let least = if left.iter().any(|left| left.of == 0) { "at least " } else { "" };
            format!(
                "of its {} sessions {carried} were carried over whole, {count} not: of their {least}{of} events {events} are here{others}",
                u64::from(carried) + count as u64
            )
        }
    }
}
