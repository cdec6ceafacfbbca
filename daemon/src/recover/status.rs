//! What damage there is and what became of it, in words: for `daemon/status`, and for whoever says hello.

use std::path::PathBuf;

use linger_protocol::daemon::{self, Damage, Damaged};
use linger_protocol::id::SessionId;

use crate::service::Services;
use crate::store::SCHEMA;
use crate::store::aside::{self, Aside, Kind, Left};

/// What every client is told when it says hello.
pub fn warnings(daemon: &Services) -> Vec<String> {
    let found = &daemon.store.found;
    let well = found.all() == (None, Vec::new()) && found.all_unwritten().is_none();
    if well && daemon.repairs.asides().is_empty() {
        return Vec::new();
    }
    // Of what cannot be had any more they are told by `linger doctor`.
    let told = |damage: &Damage| {
        damage.hint.is_some() && !damage.lost && !matches!(damage.what, Damaged::Session | Damaged::Blob)
    };
    damage(daemon).into_iter().filter(told).map(|damage| damage.text).collect()
}

/// All damage, and what became of it.
pub fn damage(daemon: &Services) -> Vec<Damage> {
    let asides = aside::list(&daemon.store.path);
    daemon.repairs.asides().clone_from(&asides);
    let (database, sessions) = daemon.store.found.all();
    let plain = |what, at, text| Damage {
        what,
        session: None,
        file: None,
        at,
        text,
        hint: Some("`linger doctor --repair` saves what can be read".to_owned()),
        carried: 0,
        left: Vec::new(),
        lost: false,
    };
    let set_aside = asides.into_iter().map(|aside| of_aside(aside, daemon.repairs.running().is_some()));
    let in_use =
        database.map(|met| plain(Damaged::InUse, met.at, format!("the database in use is damaged: {}", met.text)));
    let sessions = sessions.into_iter().map(|(id, met)| {
        let text = format!("session {id} is damaged: {}", met.text);
        Damage { session: Some(id), ..plain(Damaged::Session, met.at, text) }
    });
    let beside = daemon.store.found.all_beside().into_iter().map(|(id, met)| {
        let hint = Some("`linger doctor --repair` writes it anew; nothing is lost".to_owned());
        let text = format!("session {id}: {}", met.text);
        Damage { session: Some(id), hint, ..plain(Damaged::Session, met.at, text) }
    });
    let blobs = daemon.store.found.blobs().into_iter().map(|(_, met)| Damage {
        hint: Some(
            "`linger doctor --repair` gives it up; what has the same bytes takes its place when it comes".to_owned(),
        ),
        ..plain(Damaged::Blob, met.at, format!("an image or an output is lost: {}", met.text))
    });
    let given_up = daemon.store.found.given_up().into_iter().map(|(met, file)| {
        let lies = file.as_ref().map(|file| format!("; what was there is {}", file.display())).unwrap_or_default();
        let text = format!("an image or an output was lost, and is used no more: {}{lies}", met.text);
        Damage { hint: None, file, ..plain(Damaged::Blob, met.at, text) }
    });
    let unwritten = daemon.store.found.all_unwritten().map(|(count, met)| {
        let text = match count {
            1 => format!("nothing can be written of a session: {}", met.text),
            _ => format!("nothing can be written of {count} sessions: {}", met.text),
        };
        let hint = "make room on the disk, or see why it fails; what waits goes on by itself".to_owned();
        Damage { hint: Some(hint), ..plain(Damaged::Unwritten, met.at, text) }
    });
    set_aside.chain(in_use).chain(sessions).chain(beside).chain(blobs).chain(given_up).chain(unwritten).collect()
}

fn of_aside(aside: Aside, working: bool) -> Damage {
    let Aside { path, report } = aside;
    let (at, left, whole) = (report.at, report.left.len(), report.left.is_empty());
    let file: &PathBuf = &path;
    let what = match report.kind {
        Kind::Database => Damaged::Database,
        Kind::Newer => Damaged::Newer,
        Kind::Wal => Damaged::Wal,
    };
    let carried = match (report.carried, left) {
        (0, 0) => "nothing in it could be read".to_owned(),
        (carried, 0) if report.uncertain => {
            format!("{carried} sessions were carried over whole; whether there were others cannot be read")
        }
        (carried, 0) => format!("all sessions that are in it were carried over ({carried})"),
        (carried, left) => {
            let sum = |of: fn(&Left) -> u64| report.left.iter().map(of).sum::<u64>();
            let (events, of) = (sum(|left| left.events), sum(|left| left.of.max(left.events)));
            let least = if report.left.iter().any(|left| left.of == 0) { "at least " } else { "" };
            let others = if report.uncertain { "; whether there were others cannot be read" } else { "" };
            format!(
                "of its {} sessions {carried} were carried over whole, {left} not: of their {least}{of} events {events} are here{others}",
                u64::from(carried) + left as u64
            )
        }
    };
    let lost = report.settled && report.has_rest();
    let known = report.settled || report.carried > 0 || !whole;
    let (text, hint) = match (report.kind, known) {
        (Kind::Wal, _) => (format!("{}; the copy is {}", report.reason, file.display()), None),
        (Kind::Newer, false) => (
            format!("the database was set aside as {}: {}", file.display(), report.reason),
            Some(format!(
                "start the newer linger: it carries the sessions over by itself; this one knows schema {SCHEMA}"
            )),
        ),
        (_, false) if working => (
            format!(
                "the database was set aside as {}: {}; its sessions are being carried over",
                file.display(),
                report.reason
            ),
            Some("wait a little; `linger daemon status` says how far it is".to_owned()),
        ),
        _ => (
            format!("the database was set aside as {}: {}; {carried}", file.display(), report.reason),
            if lost {
                Some(
                    "nothing more of it can be read here; keep the file, or delete it when you do not need what is missing"
                        .to_owned(),
                )
            } else {
                (!report.settled).then(|| "`linger doctor --repair` saves what can be read of the rest".to_owned())
            },
        ),
    };
    let left = report.left.into_iter();
    let left =
        left.map(|Left { session, events, of, text }| daemon::Left { session: SessionId(session), events, of, text });
    let (carried, left) = (report.carried, left.collect());
    Damage { what, session: None, file: Some(path), at, text, hint, carried, left, lost }
}
