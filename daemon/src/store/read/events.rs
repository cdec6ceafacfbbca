//! Events of a session, a page at a time, and the text of its open streams.

use linger_protocol::id::SessionId;
use rusqlite::{Connection, OptionalExtension as _, Row, Rows, ToSql, params};

use crate::log::{Piece, PieceKind, Stored};
use crate::store::damage::unreadable;
use crate::store::error::StoreError;
use crate::store::event_row::{EVENT, Page, stored};
use crate::store::handle::Store;
use crate::store::parts::{self, parts};
use crate::store::reader::Lane;

/// The largest event that is read without reserved memory, in bytes. Hundreds of clients that do not read each hold one page,
/// twice: as deltas and as events.
pub const LARGE: usize = 32 << 10;

impl Store {
    /// The number of a session's last event; 0 if it has none.
    pub async fn last(&self, id: SessionId) -> Result<u64, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| last(connection, id.as_str())).await
    }

    /// Events after `after` and up to `until`, about `bytes` of them and at least one if any exists. If the first one is large, gives
    /// its size instead, unless `large` is set.
    pub async fn events(
        &self,
        id: SessionId,
        after: u64,
        until: u64,
        bytes: usize,
        large: bool,
    ) -> Result<Result<Page, usize>, StoreError> {
        self.read_of(Lane::Page, &id.clone(), move |connection| {
            if !large {
                let size = first_size(connection, id.as_str(), after, until)?;
                if let Some(size) = size.map(|size| size as usize).filter(|size| *size > LARGE) {
                    return Ok(Err(size));
                }
            }
            // A large one is a page by itself.
            let (bytes, most) = if large { (1, usize::MAX) } else { (bytes, LARGE) };
            match page(connection, id.as_str(), after, until, bytes, most) {
                (page, Some(error)) if page.is_empty() => Err(error),
                // The next page begins with the unreadable event.
                (page, _) => Ok(Ok(page)),
            }
        })
        .await
    }

    /// The events of these kinds after `after`, about `bytes` of them, and whether more may follow: the input of a context.
    pub async fn events_of(
        &self,
        id: SessionId,
        kinds: &'static [&'static str],
        after: u64,
        bytes: usize,
    ) -> Result<(Page, bool), StoreError> {
        self.read_of(Lane::Page, &id.clone(), move |connection| {
            let marks = vec!["?"; kinds.len()].join(", ");
            let sql =
                format!("SELECT {EVENT} FROM event WHERE session = ? AND seq > ? AND seq <= ? AND kind IN ({marks}) ORDER BY seq");
            let mut statement = connection.prepare_cached(&sql)?;
            let (mut page, mut size) = (Vec::new(), 0);
            for part in parts(connection, id.as_str())? {
                let Some((after, until)) = part.within(after, u64::MAX) else { continue };
                let (after, until) = (after as i64, until as i64);
                let mut values: Vec<&dyn ToSql> = vec![&part.source, &after, &until];
                values.extend(kinds.iter().map(|kind| kind as &dyn ToSql));
                if rows_of(statement.query(values.as_slice())?, bytes, &mut page, &mut size)? {
                    return Ok((page, true));
                }
            }
            Ok((page, false))
        })
        .await
    }

    /// The number of the event that began the turn of a message, which is looked for back from the event `before`.
    pub async fn turn_of(&self, id: SessionId, message: String, before: u64) -> Result<Option<u64>, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| {
            let found = latest(connection, id.as_str(), "message", Some(&message), before)?;
            match found {
                Some(seq) => latest(connection, id.as_str(), "turn_started", None, seq),
                None => Ok(None),
            }
        })
        .await
    }

    /// One event.
    pub async fn event(&self, id: SessionId, seq: u64) -> Result<Option<Stored>, StoreError> {
        let page = self.events(id, seq.saturating_sub(1), seq, 1, true).await?;
        Ok(page.unwrap_or_default().into_iter().next())
    }

    /// The event that closes a stream, if it is closed.
    pub async fn closing(&self, id: SessionId, stream: String) -> Result<Option<Stored>, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| {
            let sql = format!("SELECT {EVENT} FROM event WHERE session = ? AND stream = ?");
            let mut statement = connection.prepare_cached(&sql)?;
            for part in parts(connection, id.as_str())? {
                let found = statement.query_row([&part.source, &stream], stored).optional()?;
                if let Some(found) =
                    found.filter(|found| part.within(0, found.seq).is_some_and(|(_, to)| to == found.seq))
                {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
        .await
    }

    /// The text of streams that are still open.
    pub async fn scratch(&self, id: SessionId) -> Result<Vec<Piece>, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| pieces(connection, id.as_str())).await
    }
}

/// The number of the latest event of a kind up to `until`; of a message, if one is named.
fn latest(
    connection: &Connection,
    id: &str,
    kind: &str,
    message: Option<&str>,
    until: u64,
) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT seq FROM event WHERE session = ?1 AND seq > ?2 AND seq <= ?3 AND kind = ?4
               AND (?5 IS NULL OR json_extract(data, '$.message') = ?5) ORDER BY seq DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    for part in parts(connection, id)?.into_iter().rev() {
        let Some((after, until)) = part.within(0, until) else { continue };
        let values = params![part.source, after as i64, until as i64, kind, message];
        if let Some(seq) = statement.query_row(values, |row| row.get::<_, i64>(0)).optional()? {
            return Ok(Some(seq as u64));
        }
    }
    Ok(None)
}

/// The number of a session's last event; 0 if it has none.
pub(crate) fn last(connection: &Connection, id: &str) -> rusqlite::Result<u64> {
    let mut last = connection.prepare_cached("SELECT seq FROM event WHERE session = ? ORDER BY seq DESC LIMIT 1")?;
    let own = last.query_row([id], |row| row.get::<_, i64>(0)).optional()?;
    own.map_or_else(|| parts::shared(connection, id), |seq| Ok(seq as u64))
}

/// Consecutive events after `after`, about `bytes` of them and at most `most` unless the first alone has more; and the error of the
/// next one, if it is unreadable.
pub(crate) fn page(
    connection: &Connection,
    id: &str,
    after: u64,
    until: u64,
    bytes: usize,
    most: usize,
) -> (Page, Option<rusqlite::Error>) {
    let (mut page, mut size) = (Vec::new(), 0);
    let mut read = || {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {EVENT} FROM event WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq"
        ))?;
        for part in parts(connection, id)? {
            let Some((after, until)) = part.within(after, until) else { continue };
            let mut rows = statement.query(params![part.source, after as i64, until as i64])?;
            let mut next = after + 1;
            while next <= until {
                if size >= bytes {
                    return Ok(());
                }
                let row = rows.next()?;
                if !page.is_empty() && row.is_some_and(|row| length(row).saturating_add(size) > most) {
                    return Ok(());
                }
                let event = row.map(stored).transpose()?;
                let Some(event) = event.filter(|event| event.seq == next) else {
                    return Err(unreadable(format!("event {next} is missing")));
                };
                size += event.data.len();
                next += 1;
                page.push(event);
            }
        }
        Ok(())
    };
    let error = read().err();
    (page, error)
}

/// How long the first event after `after` is, in bytes, if there is one up to `until`.
fn first_size(connection: &Connection, id: &str, after: u64, until: u64) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT octet_length(data) FROM event WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    for part in parts(connection, id)? {
        let Some((after, until)) = part.within(after, until) else { continue };
        let of = params![part.source, after as i64, until as i64];
        if let Some(size) = statement.query_row(of, |row| row.get(0)).optional()? {
            return Ok(Some(size));
        }
    }
    Ok(None)
}

/// How long the event in a row is, in bytes.
fn length(row: &Row<'_>) -> usize {
    row.get_ref(4).ok().and_then(|data| data.as_bytes().ok()).map_or(0, <[u8]>::len)
}

/// The text of a session's open streams.
pub(crate) fn pieces(connection: &Connection, id: &str) -> rusqlite::Result<Vec<Piece>> {
    connection
        .prepare_cached(
            "SELECT stream, block, offset, kind, text FROM scratch WHERE session = ?1
             AND NOT EXISTS (SELECT 1 FROM event WHERE event.session = ?1 AND event.stream = scratch.stream)
             ORDER BY stream, block, offset",
        )?
        .query_map([id], |row| {
            let kind: String = row.get(3)?;
            Ok(Piece {
                stream: row.get(0)?,
                block: row.get(1)?,
                offset: row.get::<_, i64>(2)? as u64,
                kind: PieceKind::from_name(&kind),
                text: row.get(4)?,
            })
        })?
        .collect()
}

/// Adds rows to a page until it has about `bytes`; whether more may follow.
fn rows_of(mut rows: Rows<'_>, bytes: usize, page: &mut Page, size: &mut usize) -> rusqlite::Result<bool> {
    while let Some(row) = rows.next()? {
        let event = stored(row)?;
        *size += event.data.len();
        page.push(event);
        if *size >= bytes {
            return Ok(true);
        }
    }
    Ok(false)
}
