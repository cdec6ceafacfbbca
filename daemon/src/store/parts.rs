//! Forks: where the events of a session lie.
//!
//! A fork has its origin's events up to a number, read where they lie, and its own after them. A fork of a fork names the sessions
//! that have the rows, not its origin, so that a chain of forks is no chain of lookups, and an origin can be removed.

use linger_protocol::id::SessionId;
use rusqlite::{Connection, ToSql, params};

use super::error::StoreError;
use super::event_row::{EVENT, Page, stored};
use super::handle::Store;
use super::reader::Lane;

/// The most sessions that a log may lie in: a fork of a fork adds one at most.
pub const MAX_PARTS: usize = 256;

/// Bytes of events that are read backwards at once: they are in memory together.
const BYTES: usize = 256 << 10;

/// Consecutive events of a session that are rows of `source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPart {
    /// The session that has the rows.
    pub(crate) source: String,
    /// The number before its first event.
    pub(crate) after: u64,
    /// The number of its last event.
    pub(crate) last: u64,
}

impl LogPart {
    /// The numbers of the wanted events in it: after the first and up to the second, if there can be any.
    pub(crate) fn within(&self, after: u64, until: u64) -> Option<(u64, u64)> {
        let (after, until) = (after.max(self.after), until.min(self.last));
        (after < until).then_some((after, until))
    }
}

impl Store {
    /// The events of these kinds up to `until`, the latest first: at most `most`, about [`BYTES`] of them and at least one if any
    /// exists; and whether more may follow.
    pub async fn events_before(
        &self,
        id: SessionId,
        kinds: &'static [&'static str],
        until: u64,
        most: usize,
    ) -> Result<(Page, bool), StoreError> {
        self.read_of(Lane::Page, &id.clone(), move |connection| {
            let marks = vec!["?"; kinds.len()].join(", ");
            let sql = format!(
                "SELECT {EVENT} FROM event WHERE session = ? AND seq > ? AND seq <= ? AND kind IN ({marks})
                 ORDER BY seq DESC LIMIT ?"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let (mut page, mut size) = (Vec::new(), 0);
            for part in parts(connection, id.as_str())?.iter().rev() {
                let Some((after, until)) = part.within(0, until) else { continue };
                let (after, until, left) = (after as i64, until as i64, most.saturating_sub(page.len()) as i64);
                let mut values: Vec<&dyn ToSql> = vec![&part.source, &after, &until];
                values.extend(kinds.iter().map(|kind| kind as &dyn ToSql));
                values.push(&left);
                let mut rows = statement.query(values.as_slice())?;
                while let Some(row) = rows.next()? {
                    let event = stored(row)?;
                    size += event.data.len();
                    page.push(event);
                    if size >= BYTES || page.len() >= most {
                        return Ok((page, true));
                    }
                }
            }
            Ok((page, false))
        })
        .await
    }

    /// In how many sessions the events of a session lie up to one.
    pub async fn parts_to(&self, id: SessionId, seq: u64) -> Result<usize, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| {
            Ok(parts(connection, id.as_str())?.iter().filter(|part| part.after < seq).count())
        })
        .await
    }
}

/// The parts of a session's log, the last one being its own; one for a session that is no fork.
pub(crate) fn parts(connection: &Connection, session: &str) -> rusqlite::Result<Vec<LogPart>> {
    let (mut parts, mut after) = (Vec::new(), 0);
    let own = |after| LogPart { source: session.to_owned(), after, last: i64::MAX as u64 };
    let select = connection.prepare_cached("SELECT source, last FROM shared WHERE session = ? ORDER BY last");
    let mut select = match select {
        // A database that was set aside, with a schema that has no forks.
        Err(error) if error.to_string().contains("no such table") => return Ok(vec![own(0)]),
        select => select?,
    };
    let mut rows = select.query([session])?;
    while let Some(row) = rows.next()? {
        let last = row.get::<_, i64>(1)?.max(0) as u64;
        parts.push(LogPart { source: row.get(0)?, after, last });
        after = last;
    }
    parts.push(own(after));
    Ok(parts)
}

/// The number of the last event that a session shares; 0 if it is no fork.
pub(crate) fn shared(connection: &Connection, session: &str) -> rusqlite::Result<u64> {
    Ok(parts(connection, session)?.last().map_or(0, |own| own.after))
}

/// Makes the events up to `seq` of `origin` the first ones of `session`, within the caller's transaction. Fails if the origin was
/// removed.
pub(super) fn share(connection: &Connection, session: &str, origin: &str, seq: u64) -> rusqlite::Result<usize> {
    if !connection.prepare_cached("SELECT 1 FROM session WHERE id = ?")?.exists([origin])? {
        let removed = "the session that it goes on from was removed";
        return Err(rusqlite::Error::ToSqlConversionFailure(removed.into()));
    }
    let mut add = connection.prepare_cached("INSERT INTO shared (session, last, source) VALUES (?, ?, ?)")?;
    for part in parts(connection, origin)? {
        let last = part.last.min(seq);
        add.execute(params![session, last as i64, part.source])?;
        if last == seq {
            break;
        }
    }
    connection
        .prepare_cached("UPDATE session SET origin = ?, origin_seq = ? WHERE id = ?")?
        .execute(params![origin, seq as i64, session])
}

/// Ends what a removed session shares with others, within the caller's transaction.
pub(super) fn unshare(connection: &Connection, session: &str) -> rusqlite::Result<usize> {
    connection.prepare_cached("DELETE FROM shared WHERE session = ?")?.execute([session])
}

/// The number of the last event of a session that a fork has; 0 if none has any.
pub(super) fn needed(connection: &Connection, session: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT coalesce(max(last), 0) FROM shared WHERE source = ?")?
        .query_row([session], |row| row.get(0))
}
