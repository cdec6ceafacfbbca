//! Queries of the reading connection.
//!
//! An unreadable row makes only its session damaged: lists omit the session, or name it.

use linger_protocol::id::{BlobId, CallId, QuestionId, SessionId};
use linger_protocol::question::{After, PendingQuestion};
use linger_protocol::session::Before;
use rusqlite::{Connection, OptionalExtension as _, Row, Rows, ToSql, params};
use serde::de::DeserializeOwned;

use super::damage::{is_damage, unreadable};
use super::event_row::{EVENT, stored};
use super::parts::{self, parts};
use super::reader::Lane;
use super::{Store, StoreError};
use crate::log::{Piece, PieceKind, Stored};
use crate::store::idempotency::{Key, Outcome};

/// A session's row; unreadable columns are empty.
#[derive(Clone, Debug, Default)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Its name.
    pub name: Option<String>,
    /// Its working directory.
    pub cwd: String,
    /// When it last changed, in Unix milliseconds.
    pub updated_at: u64,
    /// Its state in JSON.
    pub fold: String,
    /// The variables of its tools in JSON.
    pub env: String,
    /// Such as `running`; a start resumes sessions by it.
    pub state: String,
    /// Bytes of its events and blobs.
    pub size: u64,
}

/// Consecutive events.
pub type Page = Vec<Stored>;

/// The largest event that is read without reserved memory, in bytes. Hundreds of clients that do not read each hold one page,
/// twice: as deltas and as events.
pub const LARGE: usize = 32 << 10;

/// The most bytes of pending questions that one list has: thousands of them. The others follow when some are answered.
pub const PENDING: usize = 4 << 20;

/// The session of a question, and its answer.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The session that asked.
    pub session: SessionId,
    /// The name of the chosen option (none if it was withdrawn), who answered and when; `None` while it is pending.
    pub answer: Option<(Option<String>, String, u64)>,
}

impl Store {
    /// A session's row.
    pub async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| session(connection, id.as_str())).await
    }

    /// The number of a session's last event; 0 if it has none.
    pub async fn last(&self, id: SessionId) -> Result<u64, StoreError> {
        self.read_of(Lane::Quick, &id.clone(), move |connection| last(connection, id.as_str())).await
    }

    /// The latest `limit` of the wanted sessions after `before`. `of` converts each row, on the reading thread.
    pub async fn sessions<T: Send + 'static>(
        &self,
        wanted: Wanted,
        (limit, before): (u32, Option<Before>),
        of: impl Fn(SessionRow) -> T + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        let found = self.found.clone();
        let from = before.map_or((u64::MAX, String::new()), |row| (row.updated_at, row.session.0));
        self.read_in(Lane::Page, move |connection| {
            let updated_at = i64::try_from(from.0).unwrap_or(i64::MAX);
            let among = wanted.among.as_ref().map(|among| serde_json::json!(among).to_string());
            let rows = connection
                .prepare_cached(&format!(
                    "SELECT {SESSION} FROM session
                     WHERE (?1 IS NULL OR name = ?1 OR id = ?1
                            OR (length(?1) >= {MIN_PREFIX} AND substr(id, 1, length(?1)) = ?1))
                       AND (?2 IS NULL OR cwd = ?2)
                       AND (?6 IS NULL OR (state = '{BINNED}') = ?6)
                       AND (NOT ?7 OR name IS NOT NULL
                            OR NOT CASE WHEN json_valid(fold) THEN coalesce(json_extract(fold, '$.one_shot'), 0) ELSE 0 END)
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
                        from.1,
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
                    let rows = one_by_one(connection, &wanted, (limit, &from), |id, error| {
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
            let sql = "SELECT id FROM session WHERE parent = ?1 AND json_valid(fold)
                       AND json_extract(fold, '$.delegated.call') = ?2";
            let row = |row: &rusqlite::Row<'_>| row.get(0).map(SessionId);
            connection.prepare_cached(sql)?.query_row([parent.as_str(), call.as_str()], row).optional()
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

    /// Pending questions, with their sessions.
    pub async fn unanswered(&self) -> Result<Vec<(QuestionId, SessionId)>, StoreError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT id, session FROM question WHERE answer IS NULL")?
                .query_map([], |row| Ok((QuestionId(row.get(0)?), SessionId(row.get(1)?))))?
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
        let damaged = serde_json::to_string(&damaged).unwrap_or_default();
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
            match page(connection, id.as_str(), after, until, (bytes, most)) {
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
                if rows_of(statement.query(values.as_slice())?, bytes, (&mut page, &mut size))? {
                    return Ok((page, true));
                }
            }
            Ok((page, false))
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

    /// The questions that wait, the oldest first, as many as are listed at once; only those after `after`.
    pub async fn pending(
        &self,
        session: Option<SessionId>,
        after: Option<After>,
        among: Option<Vec<SessionId>>,
    ) -> Result<Vec<PendingQuestion>, StoreError> {
        let found = self.found.clone();
        let among = among.map(|among| serde_json::json!(among).to_string());
        self.read_in(Lane::Page, move |connection| {
            let mut statement = connection.prepare_cached(
                // A child has the questions of its own children, and a parent those of all of them.
                "WITH RECURSIVE tree (id) AS (
                     VALUES (?1) UNION SELECT session.id FROM session JOIN tree ON session.parent = tree.id
                 )
                 SELECT question.session, asked, parent.id, parent.name,
                        CASE WHEN json_valid(parent.fold) THEN json_extract(parent.fold, '$.title') END
                 FROM question
                 JOIN session AS own ON own.id = question.session
                 LEFT JOIN session AS parent ON parent.id = own.parent
                 WHERE answer IS NULL AND (?1 IS NULL OR question.session IN (SELECT id FROM tree))
                 AND (?4 IS NULL OR question.session IN (SELECT value FROM json_each(?4)))
                 AND (?2 IS NULL OR CASE WHEN json_valid(asked) THEN (json_extract(asked, '$.at'), question.id) > (?2, ?3) END)
                 ORDER BY CASE WHEN json_valid(asked) THEN json_extract(asked, '$.at') END, question.id",
            )?;
            let (at, id) = after.map(|after| (after.at as i64, after.question.0)).unzip();
            let mut rows = statement.query(params![session.map(|id| id.0), at, id, among])?;
            let (mut listed, mut size) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                size += row.get_ref(1)?.as_str().map_or(0, str::len);
                if size > PENDING && !listed.is_empty() {
                    break;
                }
                match parse::<PendingQuestion>(row, 1) {
                    Ok(asked) => {
                        let (name, title): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
                        let parent = row.get::<_, Option<String>>(2)?.map(SessionId);
                        listed.push(PendingQuestion { parent, parent_name: name.or(title), ..asked });
                    }
                    Err(error) => {
                        let text = format!("a pending question cannot be read: {}", StoreError::from(error).0);
                        found.session(&SessionId(row.get(0)?), &text);
                    }
                }
            }
            Ok(listed)
        })
        .await
    }

    /// The session of a question, and its answer.
    pub async fn question(&self, id: QuestionId) -> Result<Option<Answered>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT session, answer, answered_by, answered_at FROM question WHERE id = ?")?
                .query_row([id.as_str()], |row| {
                    let answer = match row.get_ref(1)? {
                        rusqlite::types::ValueRef::Null => None,
                        _ => Some((parse(row, 1)?, row.get(2)?, row.get::<_, i64>(3)? as u64)),
                    };
                    Ok(Answered { session: SessionId(row.get(0)?), answer })
                })
                .optional()
        })
        .await
    }

    /// The stored question with this id as lists show it; absent if it is unknown.
    pub async fn asked(&self, id: QuestionId) -> Result<Option<PendingQuestion>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT asked FROM question WHERE id = ?")?
                .query_row([id.as_str()], |row| parse(row, 0))
                .optional()
        })
        .await
    }

    /// The outcome of the request with this idempotency key.
    pub async fn outcome(&self, id: String) -> Result<Option<Outcome>, StoreError> {
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT params, result FROM outcome WHERE key = ?")?
                .query_row([&id], |row| {
                    Ok(Outcome { key: Key { id: id.clone(), params: row.get(0)? }, result: row.get(1)? })
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
    /// Those with this name or id, or whose id begins with this.
    pub matching: Option<String>,
    /// Those of this directory.
    pub cwd: Option<String>,
    /// Those that are in the bin, or that are not; both when absent.
    pub bin: Option<bool>,
    /// Only those with a name, or that were not made for one prompt.
    pub lasting: bool,
    /// Only these.
    pub among: Option<Vec<SessionId>>,
}

/// Which of the sessions that have not changed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untouched {
    /// Those in the bin.
    Binned,
    /// Those without a turn that are not in the bin.
    Idle,
    /// All that are not in the bin.
    All,
}

/// The columns of [`session_row`].
const SESSION: &str = "id, name, cwd, updated_at, fold, env, state, size";

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
    let sql = format!("SELECT {SESSION} FROM session WHERE id = ?");
    connection.prepare_cached(&sql)?.query_row([id], session_row).optional()
}

/// The condition that a row of `session` is not the daemon's own log ([`linger_protocol::id::DAEMON`]).
const IS_SESSION: &str = "id <> 'daemon'";

/// The number of a session's last event; 0 if it has none.
pub(crate) fn last(connection: &Connection, id: &str) -> rusqlite::Result<u64> {
    let mut last = connection.prepare_cached("SELECT seq FROM event WHERE session = ? ORDER BY seq DESC LIMIT 1")?;
    let own = last.query_row([id], |row| row.get::<_, i64>(0)).optional()?;
    own.map_or_else(|| parts::shared(connection, id), |seq| Ok(seq as u64))
}

/// As [`Store::sessions`], one query a row; calls `damaged` for unreadable rows.
fn one_by_one(
    connection: &Connection,
    wanted: &Wanted,
    (limit, from): (u32, &(u64, String)),
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
            && (row.updated_at, &row.id.0) < (from.0, &from.1)
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

/// Consecutive events after `after`, about `bytes` of them and at most `most` unless the first alone has more; and the error of the
/// next one, if it is unreadable.
pub(crate) fn page(
    connection: &Connection,
    id: &str,
    after: u64,
    until: u64,
    (bytes, most): (usize, usize),
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
fn rows_of(mut rows: Rows<'_>, bytes: usize, (page, size): (&mut Page, &mut usize)) -> rusqlite::Result<bool> {
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

/// A column of JSON.
fn parse<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(unreadable)
}
