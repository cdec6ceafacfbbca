//! Forks: where the events of a session lie.
//!
//! A fork has its origin's events up to a number, read where they lie, and its own after them. A fork of a fork names the sessions
//! that have the rows, not its origin, so that a chain of forks is no chain of lookups, and an origin can be removed.

use rusqlite::{Connection, params};

/// The most sessions that a log may lie in: a fork of a fork adds one at most.
pub const MAX_PARTS: usize = 256;

/// Consecutive events of a session that are rows of `source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The session that has the rows.
    pub(crate) source: String,
    /// The number before its first event.
    pub(crate) after: u64,
    /// The number of its last event.
    pub(crate) last: u64,
}

impl Part {
    /// The numbers of the wanted events in it: after the first and up to the second, if there can be any.
    pub(crate) fn within(&self, after: u64, until: u64) -> Option<(u64, u64)> {
        let (after, until) = (after.max(self.after), until.min(self.last));
        (after < until).then_some((after, until))
    }
}

/// The parts of a session's log, the last one being its own; one for a session that is no fork.
pub(crate) fn parts(connection: &Connection, session: &str) -> rusqlite::Result<Vec<Part>> {
    let (mut parts, mut after) = (Vec::new(), 0);
    let own = |after| Part { source: session.to_owned(), after, last: i64::MAX as u64 };
    let select = connection.prepare_cached("SELECT source, last FROM shared WHERE session = ? ORDER BY last");
    let mut select = match select {
        // A database that was set aside, with a schema that has no forks.
        Err(error) if error.to_string().contains("no such table") => return Ok(vec![own(0)]),
        select => select?,
    };
    let mut rows = select.query([session])?;
    while let Some(row) = rows.next()? {
        let last = row.get::<_, i64>(1)?.max(0) as u64;
        parts.push(Part { source: row.get(0)?, after, last });
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
