//! Questions: those that wait, and what one asked and was answered.
//!
//! One that cannot be read makes its session damaged, and the others are listed.

use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::question::{After, PendingQuestion};
use rusqlite::{OptionalExtension as _, Row, params};
use serde::de::DeserializeOwned;

use crate::store::damage::unreadable;
use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::read::state_field;
use crate::store::reader::Lane;

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
            let title = state_field("parent", "title", "title");
            let mut statement = connection.prepare_cached(&format!(
                // A child has the questions of its own children, and a parent those of all of them.
                "WITH RECURSIVE tree (id) AS (
                     VALUES (?1) UNION SELECT session.id FROM session JOIN tree ON session.parent = tree.id
                 )
                 SELECT question.session, asked, parent.id, parent.name,
                        {title}
                 FROM question
                 JOIN session AS own ON own.id = question.session
                 LEFT JOIN session AS parent ON parent.id = own.parent
                 WHERE answer IS NULL AND (?1 IS NULL OR question.session IN (SELECT id FROM tree))
                 AND (?4 IS NULL OR question.session IN (SELECT value FROM json_each(?4)))
                 AND (?2 IS NULL OR CASE WHEN json_valid(asked) THEN (json_extract(asked, '$.at'), question.id) > (?2, ?3) END)
                 ORDER BY CASE WHEN json_valid(asked) THEN json_extract(asked, '$.at') END, question.id",
            ))?;
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
}

/// A column of JSON.
fn parse<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(unreadable)
}
