//! Damage in words, for `daemon/status` and for clients that say hello.

use linger_protocol::daemon::{self, Damage, Damaged};
use linger_protocol::id::SessionId;

use crate::store::aside::{self, Aside, AsideKind, Left};
use crate::store::damage::Met;
use crate::store::{SCHEMA, Store};

/// The hint of damage that a repair by this build can reduce.
const REPAIR: &str = "`linger doctor --repair` saves what can be read";

/// The warnings for every client that says hello. Reads nothing from the disk.
pub fn warnings(store: &Store) -> Vec<String> {
    let seen = store.found.seen();
    let asides = seen.asides.into_iter().map(of_aside);
    // `linger doctor` reports damaged sessions and blobs, and what cannot be repaired.
    let database = seen.database.map(|met| in_use(Damaged::InUse, None, met.at, &met.text));
    let told = asides.chain(database).filter(|damage| damage.hint.is_some() && !damage.lost);
    told.chain(unwritten(seen.unwritten.into_values().collect())).map(|damage| damage.text).collect()
}

/// All known damage, and the files that were set aside.
pub fn damage(store: &Store) -> Vec<Damage> {
    store.found.set_aside(aside::list(&store.path));
    let seen = store.found.seen();
    let sessions = seen.sessions.into_iter();
    let sessions = sessions.map(|(id, met)| in_use(Damaged::Session, Some(id), met.at, &met.text));
    let blobs = seen.blobs.into_values().map(|met| in_use(Damaged::Blob, None, met.at, &met.text));
    let unwritten = unwritten(seen.unwritten.into_values().collect());
    let asides = seen.asides.into_iter().map(of_aside);
    let database = seen.database.map(|met| in_use(Damaged::InUse, None, met.at, &met.text));
    asides.chain(database).chain(sessions).chain(blobs).chain(unwritten).collect()
}

fn plain(what: Damaged, at: u64, text: String, hint: Option<String>) -> Damage {
    Damage { what, session: None, file: None, at, text, hint, carried: 0, left: Vec::new(), lost: false }
}

/// Damage in the database in use.
pub(super) fn in_use(what: Damaged, session: Option<SessionId>, at: u64, text: &str) -> Damage {
    let text = match (what, &session) {
        (Damaged::Session, Some(id)) => format!("session {id} is damaged: {text}"),
        (Damaged::Blob, _) => format!("an image or an output is lost: {text}"),
        _ => format!("the database in use is damaged: {text}"),
    };
    Damage { session, ..plain(what, at, text, Some(REPAIR.to_owned())) }
}

fn unwritten(all: Vec<Met>) -> Option<Damage> {
    let first = all.iter().min_by_key(|met| met.at)?;
    let text = match all.len() {
        1 => format!("cannot write events of a session: {}", first.text),
        count => format!("cannot write events of {count} sessions: {}", first.text),
    };
    let hint = "free space on the disk, or see why writing fails; the sessions resume when it works".to_owned();
    Some(plain(Damaged::Unwritten, first.at, text, Some(hint)))
}

/// A blob that a repair gave up.
pub(super) fn given_up(text: &str) -> Damage {
    plain(Damaged::Blob, 0, format!("an image or an output was lost, and is used no more: {text}"), None)
}

/// Whether a repair by this build can reduce it.
pub(super) fn is_repairable(damage: &Damage) -> bool {
    damage.hint.as_deref() == Some(REPAIR)
}

/// A file that was set aside, and how much of it was copied.
pub(super) fn of_aside(aside: Aside) -> Damage {
    let Aside { path, report } = aside;
    let file = path.display();
    let what = match report.kind {
        AsideKind::Database => Damaged::Database,
        AsideKind::Newer => Damaged::Newer,
        AsideKind::Wal => Damaged::Wal,
    };
    let lost = report.settled && report.has_rest();
    let set_aside = format!("the database was set aside as {file}: {}", report.reason);
    let (text, hint) = match report.kind {
        AsideKind::Wal => (format!("{}; the copy is {file}", report.reason), None),
        _ if report.settled => (
            format!("{set_aside}; {}", carried(report.carried, &report.left, report.uncertain)),
            lost.then_some(
                "nothing more of it can be read here; keep the file, or delete it when you do not need what is missing",
            ),
        ),
        AsideKind::Newer if report.schema > SCHEMA => (
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

/// How much of a database was copied.
fn carried(carried: u32, left: &[Left], uncertain: bool) -> String {
    let others = if uncertain { "; it may have others that cannot be found" } else { "" };
    if left.is_empty() {
        return match carried {
            0 => "nothing in it could be read".to_owned(),
            _ if uncertain => format!("{carried} sessions were carried over whole{others}"),
            _ => format!("all sessions that are in it were carried over ({carried})"),
        };
    }
    let (count, sum) = (left.len(), |of: fn(&Left) -> u64| left.iter().map(of).sum::<u64>());
    let (events, of) = (sum(|left| left.events), sum(|left| left.of.max(left.events)));
    let least = if left.iter().any(|left| left.of == 0) { "at least " } else { "" };
    let all = u64::from(carried) + count as u64;
    format!(
        "of its {all} sessions {carried} were carried over whole, {count} not: of their {least}{of} events {events} are here{others}"
    )
}
