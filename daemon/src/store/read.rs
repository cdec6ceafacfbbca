//! Queries of the reading connection.

use std::collections::BTreeMap;

use linger_protocol::id::{PermissionId, SessionId};
use linger_protocol::permission::{Decision, Pending};
use rusqlite::{OptionalExtension as _, Row, Rows, ToSql, params};
use serde::de::DeserializeOwned;

use super::reader::Lane;
use super::{Store, StoreError};
use crate::session::log::{Piece, PieceKind, Stored};

/// What the store knows of a session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Its state in JSON.
    pub fold: String,
    /// The variables of its tools.
    pub env: BTreeMap<String, String>,
}

/// Some events in a row.
pub type Page = Vec<Stored>;

/// The largest event that is read without asking, in bytes; hardly any text is longer.
const LARGE: usize = 256 << 10;

/// How much of permissions that wait is listed at once, in bytes: thousands of usual ones. Those that are left out come when
/// others are answered.
pub const PENDING: usize = 4 << 20;

/// A decision that was given.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The session that asked.
    pub session: SessionId,
    /// The decision, who gave it and when; nothing while it waits.
    pub decision: Option<(Decision, String, u64)>,
}

impl Store {
    /// A session's row.
    pub async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT id, fold, env FROM session WHERE id = ?")?
                .query_row([id.as_str()], session_row)
                .optional()
        })
        .await
    }

    /// The latest `limit` sessions, of one directory if `cwd` is given, that have the name or begin with the id `matching`.
    /// Each is made into what is wanted of it by `of`, on the reading thread.
    pub async fn sessions<T: Send + 'static>(
        &self,
        matching: Option<String>,
        cwd: Option<String>,
        limit: u32,
        of: impl Fn(SessionRow) -> T + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        self.read_in(Lane::Page, move |connection| {
            connection
                .prepare_cached(
                    "SELECT id, fold, env FROM session
                     WHERE (?1 IS NULL OR name = ?1 OR substr(id, 1, length(?1)) = ?1) AND (?2 IS NULL OR cwd = ?2)
                     ORDER BY updated_at DESC LIMIT ?3",
                )?
                .query_map(params![matching, cwd, limit], |row| session_row(row).map(&of))?
                .collect()
        })
        .await
    }

    /// Sessions whose turn was under way when the daemon ended.
    pub async fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT id FROM session WHERE state IN ('running', 'waiting', 'owed')")?
                .query_map([], |row| row.get::<_, String>(0).map(SessionId))?
                .collect()
        })
        .await
    }

    /// How many sessions there are.
    pub async fn session_count(&self) -> Result<u32, StoreError> {
        self.read(|connection| {
            connection.prepare_cached("SELECT count(*) FROM session")?.query_row([], |row| row.get(0))
        })
        .await
    }

    /// How many sessions there are, how many have a turn under way, how many permissions wait.
    pub async fn counts(&self) -> Result<(u32, u32, u32), StoreError> {
        self.read(|connection| {
            connection.query_row(
                "SELECT (SELECT count(*) FROM session),
                        (SELECT count(*) FROM session WHERE state IN ('running', 'waiting')),
                        (SELECT count(*) FROM permission WHERE decision IS NULL)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
        })
        .await
    }

    /// Events after `after` and up to `until`, about `bytes` of them and at least one if there is one. Instead of a first one that
    /// is large it gives the size, unless `large` says that there is room for one.
    pub async fn events(
        &self,
        id: SessionId,
        after: u64,
        until: u64,
        bytes: usize,
        large: bool,
    ) -> Result<Result<Page, usize>, StoreError> {
        self.read_in(Lane::Page, move |connection| {
            if !large {
                let size = connection
                    .prepare_cached(
                        "SELECT octet_length(data) FROM event WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 1",
                    )?
                    .query_row(params![id.as_str(), after as i64, until as i64], |row| row.get::<_, i64>(0))
                    .optional()?;
                if let Some(size) = size.map(|size| size as usize).filter(|size| *size > LARGE) {
                    return Ok(Err(size));
                }
            }
            let mut statement = connection.prepare_cached(
                "SELECT seq, at, kind, stream, data FROM event WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq",
            )?;
            let rows = statement.query(params![id.as_str(), after as i64, until as i64])?;
            Ok(Ok(page(rows, if large { 1 } else { bytes }, if large { usize::MAX } else { LARGE })?.0))
        })
        .await
    }

    /// The events of these kinds after `after`, about `bytes` of them, and whether there may be more: what a context is built from.
    pub async fn events_of(
        &self,
        id: SessionId,
        kinds: &'static [&'static str],
        after: u64,
        bytes: usize,
    ) -> Result<(Page, bool), StoreError> {
        self.read_in(Lane::Page, move |connection| {
            let marks = vec!["?"; kinds.len()].join(", ");
            let sql = format!(
                "SELECT seq, at, kind, stream, data FROM event WHERE session = ? AND seq > ? AND kind IN ({marks}) ORDER BY seq"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let (id, after) = (id.as_str(), after as i64);
            let mut values: Vec<&dyn ToSql> = vec![&id, &after];
            values.extend(kinds.iter().map(|kind| kind as &dyn ToSql));
            page(statement.query(values.as_slice())?, bytes, usize::MAX)
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
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT seq, at, kind, stream, data FROM event WHERE session = ? AND stream = ?")?
                .query_row([id.as_str(), &stream], stored)
                .optional()
        })
        .await
    }

    /// The text of streams that are still open.
    pub async fn scratch(&self, id: SessionId) -> Result<Vec<Piece>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached(
                    "SELECT stream, block, offset, kind, text FROM scratch WHERE session = ? ORDER BY stream, block, offset",
                )?
                .query_map([id.as_str()], |row| {
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
        })
        .await
    }

    /// The permissions that wait, the oldest first, as many as are listed at once.
    pub async fn pending(&self, session: Option<SessionId>) -> Result<Vec<Pending>, StoreError> {
        self.read_in(Lane::Page, move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT pending FROM permission WHERE decision IS NULL AND (?1 IS NULL OR session = ?1)
                 ORDER BY json_extract(pending, '$.at')",
            )?;
            let mut rows = statement.query([session.map(|id| id.0)])?;
            let (mut listed, mut size) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                size += row.get_ref(0)?.as_str().map_or(0, str::len);
                if size > PENDING && !listed.is_empty() {
                    break;
                }
                listed.push(parse(row, 0)?);
            }
            Ok(listed)
        })
        .await
    }

    /// Which session asked for a permission, and what was decided.
    pub async fn permission(&self, id: PermissionId) -> Result<Option<Answered>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT session, decision, decided_by, decided_at FROM permission WHERE id = ?")?
                .query_row([id.as_str()], |row| {
                    let decision = match row.get_ref(1)? {
                        rusqlite::types::ValueRef::Null => None,
                        _ => Some((parse(row, 1)?, row.get(2)?, row.get::<_, i64>(3)? as u64)),
                    };
                    Ok(Answered { session: SessionId(row.get(0)?), decision })
                })
                .optional()
        })
        .await
    }

    /// What a request with this idempotency key came to: its session and its result.
    pub async fn outcome<T: DeserializeOwned + Send + 'static>(
        &self,
        key: String,
    ) -> Result<Option<(SessionId, T)>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT session, result FROM outcome WHERE key = ?")?
                .query_row([key], |row| Ok((SessionId(row.get(0)?), parse(row, 1)?)))
                .optional()
        })
        .await
    }
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow { id: SessionId(row.get(0)?), fold: row.get(1)?, env: parse(row, 2)? })
}

/// Rows until there are `bytes` of them or one larger than `largest` follows, at least one if there is one, and whether there
/// may be more.
fn page(mut rows: Rows<'_>, bytes: usize, largest: usize) -> rusqlite::Result<(Page, bool)> {
    let (mut page, mut size) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if !page.is_empty() && row.get_ref(4)?.as_str().is_ok_and(|data| data.len() > largest) {
            return Ok((page, true));
        }
        let event = stored(row)?;
        size += event.data.len();
        page.push(event);
        if size >= bytes {
            return Ok((page, true));
        }
    }
    Ok((page, false))
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        seq: row.get::<_, i64>(0)? as u64,
        at: row.get::<_, i64>(1)? as u64,
        kind: row.get(2)?,
        stream: row.get(3)?,
        data: row.get(4)?,
    })
}

/// A column of JSON.
fn parse<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into()))
}
