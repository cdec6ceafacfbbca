//! Queries of the reading connection.

use std::collections::BTreeMap;

use linger_protocol::id::{BlobId, PermissionId, SessionId};
use linger_protocol::permission::{Decision, Pending};
use rusqlite::{OptionalExtension as _, Row, params};
use serde::de::DeserializeOwned;

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
    /// Bytes of its events and blobs.
    pub size: u64,
}

/// Some events in a row.
pub type Page = Vec<Stored>;

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
                .prepare_cached("SELECT id, fold, env, size FROM session WHERE id = ?")?
                .query_row([id.as_str()], session_row)
                .optional()
        })
        .await
    }

    /// The latest `limit` sessions, of one directory if `cwd` is given, that have the name or begin with the id `matching`.
    pub async fn sessions(
        &self,
        matching: Option<String>,
        cwd: Option<String>,
        limit: u32,
    ) -> Result<Vec<SessionRow>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached(
                    "SELECT id, fold, env, size FROM session
                     WHERE (?1 IS NULL OR name = ?1 OR substr(id, 1, length(?1)) = ?1) AND (?2 IS NULL OR cwd = ?2)
                     ORDER BY updated_at DESC LIMIT ?3",
                )?
                .query_map(params![matching, cwd, limit], session_row)?
                .collect()
        })
        .await
    }

    /// Sessions that have not changed since `before`, the oldest first: those with nothing under way, or all.
    pub async fn untouched(&self, before: u64, all: bool) -> Result<Vec<(SessionId, u64)>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached(
                    "SELECT id, size FROM session WHERE updated_at < ?1 AND (?2 OR state = 'idle') ORDER BY updated_at",
                )?
                .query_map(params![before as i64, all], |row| {
                    Ok((SessionId(row.get(0)?), row.get::<_, i64>(1)? as u64))
                })?
                .collect()
        })
        .await
    }

    /// How many bytes a blob has that a session uses.
    pub async fn blob(&self, id: BlobId) -> Result<Option<u64>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT size FROM blob WHERE hash = ? LIMIT 1")?
                .query_row([id.as_str()], |row| row.get::<_, i64>(0).map(|size| size as u64))
                .optional()
        })
        .await
    }

    /// Bytes of the database that hold nothing, whether it can give them back as it is, and bytes of all blobs.
    pub async fn space(&self) -> Result<(u64, bool, u64), StoreError> {
        self.read(|connection| {
            let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let unused = pragma("freelist_count")? * pragma("page_size")?;
            let blobs: i64 = connection
                .prepare_cached("SELECT coalesce(sum(size), 0) FROM (SELECT DISTINCT hash, size FROM blob)")?
                .query_row([], |row| row.get(0))?;
            Ok((unused as u64, pragma("auto_vacuum")? == super::INCREMENTAL, blobs as u64))
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

    /// Events after `after` and up to `until`, about `bytes` of them and at least one if there is one.
    pub async fn events(&self, id: SessionId, after: u64, until: u64, bytes: usize) -> Result<Page, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT seq, at, kind, stream, data FROM event WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq",
            )?;
            let mut rows = statement.query(params![id.as_str(), after as i64, until as i64])?;
            let (mut page, mut size) = (Vec::new(), 0);
            while size < bytes
                && let Some(row) = rows.next()?
            {
                let event = stored(row)?;
                size += event.data.len();
                page.push(event);
            }
            Ok(page)
        })
        .await
    }

    /// The events of these kinds, all of them, in order: what a context is built from.
    pub async fn events_of(&self, id: SessionId, kinds: &'static [&'static str]) -> Result<Page, StoreError> {
        self.read(move |connection| {
            let marks = vec!["?"; kinds.len()].join(", ");
            let sql = format!(
                "SELECT seq, at, kind, stream, data FROM event WHERE session = ? AND kind IN ({marks}) ORDER BY seq"
            );
            let values = std::iter::once(id.as_str()).chain(kinds.iter().copied());
            connection.prepare_cached(&sql)?.query_map(rusqlite::params_from_iter(values), stored)?.collect()
        })
        .await
    }

    /// One event.
    pub async fn event(&self, id: SessionId, seq: u64) -> Result<Option<Stored>, StoreError> {
        Ok(self.events(id, seq.saturating_sub(1), seq, 1).await?.into_iter().next())
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

    /// The permissions that wait, the oldest first.
    pub async fn pending(&self, session: Option<SessionId>) -> Result<Vec<Pending>, StoreError> {
        let mut rows: Vec<Pending> = self
            .read(move |connection| {
                connection
                    .prepare_cached(
                        "SELECT pending FROM permission WHERE decision IS NULL AND (?1 IS NULL OR session = ?1)",
                    )?
                    .query_map([session.map(|id| id.0)], |row| parse(row, 0))?
                    .collect()
            })
            .await?;
        rows.sort_by_key(|pending| pending.at);
        Ok(rows)
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
    let size = row.get::<_, i64>(3)? as u64;
    Ok(SessionRow { id: SessionId(row.get(0)?), fold: row.get(1)?, env: parse(row, 2)?, size })
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
