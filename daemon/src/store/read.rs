//! Queries of the reading connection: sessions here, events and questions in files of their own.
//!
//! An unreadable row makes only its session damaged: lists omit the session, or name it.

mod events;
mod questions;

use linger_protocol::RpcError;
use linger_protocol::id::{BlobId, CallId, SessionId};
use linger_protocol::session::Before;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use serde::de::DeserializeOwned;

use super::damage::is_damage;
use super::error::StoreError;
use super::handle::Store;
use super::reader::Lane;
use crate::store::idempotency::{Key, Outcome};
pub use events::LARGE;
pub(crate) use events::{last, page, pieces};
pub use questions::{Answered, PENDING};

/// A session's row; unreadable columns are empty.
#[derive(Clone, Debug, Default)]
pub struct SessionRow {
    /// Unique, and never used again.
    pub id: SessionId,
    /// Unique among sessions; absent until it has one.
    pub name: Option<String>,
    /// Its working directory.
    pub cwd: String,
    /// When it last changed, in Unix milliseconds.
    pub updated_at: u64,
    /// Its state: the head, then a line for each stored family.
    pub fold: String,
    /// The variables of its tools in JSON.
    pub env: String,
    /// Such as `running`; a start resumes sessions by it.
    pub state: String,
    /// Bytes of its events and blobs.
    pub size: u64,
}

impl Store {
    /// The outcome of an earlier request with this key; `None` if there was none.
    pub async fn answer_to<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, RpcError> {
        self.outcome(key.id.clone()).await?.map(|outcome| outcome.answer(key)).transpose()
    }

    /// A session's row.
    pub async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| session(connection, id.as_str())).await
    }

    /// The latest `limit` of the wanted sessions after `before`. `of` converts each row, on the reading thread.
    pub async fn sessions<T: Send + 'static>(
        &self,
        wanted: Wanted,
        limit: u32,
        before: Option<Before>,
        of: impl Fn(SessionRow) -> T + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        let found = self.found.clone();
        let from = before.unwrap_or_else(|| Before { updated_at: u64::MAX, ..Before::default() });
        self.read_in(Lane::Page, move |connection| {
            let updated_at = i64::try_from(from.updated_at).unwrap_or(i64::MAX);
            let among = wanted.among.as_ref().map(|among| serde_json::json!(among).to_string());
            let columns = columns(FOLD);
            let one_shot = state_field("session", "identity", "one_shot");
            let rows = connection
                .prepare_cached(&format!(
                    "SELECT {columns} FROM session
                     WHERE (?1 IS NULL OR name = ?1 OR id = ?1
                            OR (length(?1) >= {MIN_PREFIX} AND substr(id, 1, length(?1)) = ?1))
                       AND (?2 IS NULL OR cwd = ?2)
                       AND (?6 IS NULL OR (state = '{BINNED}') = ?6)
                       AND (NOT ?7 OR name IS NOT NULL OR NOT coalesce({one_shot}, 0))
                       AND (?8 IS NULL OR id IN (SELECT value FROM json_each(?8)))
                       AND {IS_SESSION} AND updated_at <= ?4 AND (updated_at, id) < (?4, ?5)
                     ORDER BY updated_at DESC, id DESC LIMIT ?3",
                ))?
                .query_map(
                    params![
                        wanted.matching,
                        wanted.cwd,
                        limit,
                        updated_at,
                        from.session.as_str(),
                        wanted.bin,
                        wanted.lasting,
                        among
                    ],
                    |row| session_row(row).map(&of),
                )?
                .collect();
            match rows {
                // One row is unreadable.
                Err(error) if is_damage(&error) => {
                    let rows = one_by_one(connection, &wanted, limit, &from, |id, error| {
                        found.session(id, &StoreError::from(error).0.to_string());
                    });
                    Ok(rows.into_iter().map(of).collect())
                }
                rows => rows,
            }
        })
        .await
    }

    /// Whether a session has a name that `id` begins with, so that the name would also mean this id.
    pub async fn is_beginning_of(&self, id: &SessionId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.read(move |connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT 1 FROM session WHERE length(name) >= {MIN_PREFIX} AND substr(?1, 1, length(name)) = name"
                ))?
                .exists([id.as_str()])
        })
        .await
    }

    /// Sessions that have not changed since `before`, with their sizes, the oldest first: those in the bin, idle ones, or all that
    /// are not in the bin.
    pub async fn untouched(&self, before: u64, of: Untouched) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let states = match of {
            Untouched::Binned => format!("state = '{BINNED}'"),
            Untouched::Idle => "state = 'idle'".to_owned(),
            Untouched::All => format!("state <> '{BINNED}'"),
        };
        self.read_in(Lane::Page, move |connection| {
            connection
                .prepare_cached(&format!(
                    "SELECT id, size FROM session WHERE updated_at < ?1 AND {states} AND {IS_SESSION} ORDER BY updated_at"
                ))?
                .query_map(params![before as i64], |row| {
                    Ok((SessionId(row.get(0)?), row.get::<_, i64>(1)?.max(0) as u64))
                })?
                .collect()
        })
        .await
    }

    /// When a session changed last, of all; 0 without sessions.
    pub async fn newest_change(&self) -> Result<u64, StoreError> {
        let sql = "SELECT max(updated_at) FROM session";
        let newest: Option<i64> =
            self.read(move |connection| connection.prepare_cached(sql)?.query_row([], |row| row.get(0))).await?;
        Ok(newest.unwrap_or(0).max(0) as u64)
    }

    /// Whether a session uses a blob.
    pub async fn uses(&self, id: BlobId, among: Option<Vec<SessionId>>) -> Result<bool, StoreError> {
        let among = among.map(|sessions| serde_json::json!(sessions).to_string());
        let sql = "SELECT 1 FROM blob WHERE hash = ?1
                   AND (?2 IS NULL OR session IN (SELECT value FROM json_each(?2))
                        OR session IN (SELECT source FROM shared WHERE session IN (SELECT value FROM json_each(?2)))) LIMIT 1";
        self.read(move |connection| connection.prepare_cached(sql)?.exists(params![id.as_str(), among])).await
    }

    /// A session and its children, and theirs.
    pub async fn tree(&self, root: SessionId) -> Result<Vec<SessionId>, StoreError> {
        self.read(move |connection| tree(connection, &root)).await
    }

    /// The child that a call of a session has made.
    pub async fn child_of(&self, parent: SessionId, call: CallId) -> Result<Option<SessionId>, StoreError> {
        self.read(move |connection| {
            let of = state_field("session", "task", "delegated.call");
            let sql = format!("SELECT id FROM session WHERE parent = ?1 AND {of} = ?2");
            let row = |row: &rusqlite::Row<'_>| row.get(0).map(SessionId);
            connection.prepare_cached(&sql)?.query_row([parent.as_str(), call.as_str()], row).optional()
        })
        .await
    }

    /// Unused bytes of the database, and bytes of all blobs.
    pub async fn space(&self) -> Result<(u64, u64), StoreError> {
        self.read_in(Lane::Page, |connection| {
            let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let unused = pragma("freelist_count")? * pragma("page_size")?;
            let blobs: i64 = connection
                .prepare_cached("SELECT coalesce(sum(size), 0) FROM (SELECT DISTINCT hash, size FROM blob)")?
                .query_row([], |row| row.get(0))?;
            Ok((unused as u64, blobs.max(0) as u64))
        })
        .await
    }

    /// Sessions whose turn was running when the daemon ended, or whose state is unknown.
    pub async fn unfinished(&self) -> Result<Vec<SessionId>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached(&format!("SELECT id FROM session WHERE state NOT IN ('idle', 'offered', '{BINNED}')"))?
                .query_map([], |row| row.get::<_, String>(0).map(SessionId))?
                .collect()
        })
        .await
    }

    /// Sessions with this stored state.
    pub async fn in_state(&self, name: &'static str) -> Result<Vec<SessionId>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT id FROM session WHERE state = ?")?
                .query_map([name], |row| row.get::<_, String>(0).map(SessionId))?
                .collect()
        })
        .await
    }

    /// How many sessions there are.
    pub async fn session_count(&self) -> Result<u32, StoreError> {
        self.read(|connection| {
            let sql = format!("SELECT count(*) FROM session WHERE {IS_SESSION}");
            connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))
        })
        .await
    }

    /// The numbers of sessions and of those with a running turn; of pending questions and of those that are permissions.
    pub async fn counts(&self) -> Result<([u32; 2], [u32; 2]), StoreError> {
        // A damaged session runs nothing.
        let damaged: Vec<SessionId> = self.found.seen().sessions.into_keys().collect();
        let damaged = serde_json::json!(damaged).to_string();
        self.read(move |connection| {
            let sessions = connection.query_row(
                &format!(
                    "SELECT count(*), count(*) FILTER (
                        WHERE state IN ('running', 'waiting') AND id NOT IN (SELECT value FROM json_each(?))
                     ) FROM session WHERE {IS_SESSION} AND state <> '{BINNED}'"
                ),
                [damaged],
                |row| Ok([row.get(0)?, row.get(1)?]),
            )?;
            let questions = connection.query_row(
                "SELECT count(*), count(*) FILTER (
                    WHERE CASE WHEN json_valid(asked) THEN json_extract(asked, '$.kind') = 'permission' END
                 ) FROM question WHERE answer IS NULL
                 AND EXISTS (SELECT 1 FROM session WHERE session.id = question.session)",
                [],
                |row| Ok([row.get(0)?, row.get(1)?]),
            )?;
            Ok((sessions, questions))
        })
        .await
    }

    /// The outcome of the request with this idempotency key.
    pub async fn outcome(&self, id: String) -> Result<Option<Outcome>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT params, result FROM outcome WHERE key = ?")?
                .query_row([&id], |row| {
                    Ok(Outcome { key: Key { id: id.clone(), params: row.get(0)? }, result: Ok(row.get(1)?) })
                })
                .optional()
        })
        .await
    }
}

/// The name in the database of the state of a session that is in the bin.
pub const BINNED: &str = "binned";

/// The least length of a beginning of an id that stands for the id, in characters: among a thousand sessions one of four means
/// one of them by chance in a thousand, one of two in every case.
pub const MIN_PREFIX: usize = 4;

/// Which sessions a list has.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only sessions with this name or id, or whose id begins with this.
    pub matching: Option<String>,
    /// Only sessions of this directory.
    pub cwd: Option<String>,
    /// Only sessions in the bin, or only others; both when absent.
    pub bin: Option<bool>,
    /// Only those with a name, or that were not made for one prompt.
    pub lasting: bool,
    /// Only these.
    pub among: Option<Vec<SessionId>>,
}

/// Which of the sessions that have not changed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untouched {
    /// Sessions in the bin.
    Binned,
    /// Sessions without a turn that are not in the bin.
    Idle,
    /// All that are not in the bin.
    All,
}

/// The stored state of a row of `session`: the head, then a line for each family. No JSON has a line end in it.
pub const FOLD: &str =
    "fold || coalesce((SELECT group_concat(char(10) || family.name || ' ' || family.data, '') FROM family
     WHERE family.session = session.id), '')";

/// The columns of [`session_row`], with the text of the state.
fn columns(fold: &str) -> String {
    format!("session.id, session.name, cwd, updated_at, {fold}, env, state, size")
}

/// A field of the stored state of a row of `table`, as SQL: of its family, or of a state that is whole in one column.
pub(super) fn state_field(table: &str, family: &str, field: &str) -> String {
    format!(
        "coalesce(
             (SELECT json_extract(data, '$.{field}') FROM family
              WHERE family.session = {table}.id AND family.name = '{family}' AND json_valid(data)),
             CASE WHEN json_valid({table}.fold) THEN json_extract({table}.fold, '$.{field}') END)"
    )
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    // Other types count as missing.
    let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str().unwrap_or_default().to_owned());
    Ok(SessionRow {
        id: SessionId(row.get(0)?),
        name: Some(text(1)?).filter(|name| !name.is_empty()),
        cwd: text(2)?,
        updated_at: row.get::<_, i64>(3)? as u64,
        fold: text(4)?,
        env: text(5)?,
        state: text(6)?,
        // For display only.
        size: row.get::<_, i64>(7).unwrap_or_default().max(0) as u64,
    })
}

/// A session and its children, and theirs.
pub(super) fn tree(connection: &Connection, root: &SessionId) -> rusqlite::Result<Vec<SessionId>> {
    let sql = "WITH RECURSIVE tree (id) AS (
                   VALUES (?1) UNION SELECT session.id FROM session JOIN tree ON session.parent = tree.id
               ) SELECT id FROM tree";
    connection.prepare_cached(sql)?.query_map([root.as_str()], |row| row.get(0).map(SessionId))?.collect()
}

/// A session's row.
pub(crate) fn session(connection: &Connection, id: &str) -> rusqlite::Result<Option<SessionRow>> {
    match select_session(connection, id, FOLD) {
        // A database that was set aside, with a schema whose states are whole in one column.
        Err(_) if !connection.table_exists(None, "family")? => session_alone(connection, id),
        row => row,
    }
}

/// A session's row without the families of its state, which cannot be read.
pub(crate) fn session_alone(connection: &Connection, id: &str) -> rusqlite::Result<Option<SessionRow>> {
    select_session(connection, id, "fold")
}

fn select_session(connection: &Connection, id: &str, fold: &str) -> rusqlite::Result<Option<SessionRow>> {
    let sql = format!("SELECT {} FROM session WHERE id = ?", columns(fold));
    connection.prepare_cached(&sql)?.query_row([id], session_row).optional()
}

/// The condition that a row of `session` is not the daemon's own log ([`linger_protocol::id::DAEMON`]).
const IS_SESSION: &str = "id <> 'daemon'";

/// As [`Store::sessions`], one query a row; calls `damaged` for unreadable rows.
fn one_by_one(
    connection: &Connection,
    wanted: &Wanted,
    limit: u32,
    from: &Before,
    damaged: impl Fn(&SessionId, rusqlite::Error),
) -> Vec<SessionRow> {
    let row = |id: String| match session(connection, &id) {
        Ok(row) => row,
        Err(error) => {
            let id = SessionId(id);
            damaged(&id, error);
            Some(SessionRow { id, ..SessionRow::default() })
        }
    };
    let is_meant = |row: &SessionRow, text: &str| {
        let begins = text.chars().count() >= MIN_PREFIX && row.id.as_str().starts_with(text);
        begins || row.id.as_str() == text || row.name.as_deref() == Some(text)
    };
    // Which were made for one prompt is not looked up here.
    let wanted = |row: &SessionRow| {
        wanted.matching.as_deref().is_none_or(|text| is_meant(row, text))
            && wanted.cwd.as_deref().is_none_or(|cwd| row.cwd == cwd)
            && wanted.bin.is_none_or(|bin| (row.state == BINNED) == bin)
            && wanted.among.as_ref().is_none_or(|among| among.contains(&row.id))
            && !row.id.is_daemon()
            && (row.updated_at, &row.id.0) < (from.updated_at, &from.session.0)
    };
    let mut rows: Vec<SessionRow> = ids(connection).into_iter().filter_map(row).filter(wanted).collect();
    rows.sort_by(|one, two| (two.updated_at, &two.id.0).cmp(&(one.updated_at, &one.id.0)));
    rows.truncate(limit as usize);
    rows
}

/// The ids in the index of all sessions, the latest first, up to the first unreadable one.
fn ids(connection: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    // The rest is not listed until a repair.
    let mut walk = || -> rusqlite::Result<()> {
        let sql = "SELECT id FROM session INDEXED BY session_updated ORDER BY updated_at DESC";
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.push(row.get(0)?);
        }
        Ok(())
    };
    let _end = walk();
    found
}
