//! Which sessions a reader may see: some with their children, those to come included, and those of a directory.

use std::path::{Path, PathBuf};

use linger_protocol::id::SessionId;
use linger_protocol::path::from_text;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::StoreError;
use super::handle::Store;
use super::reader::Lane;

/// The sessions of a reader; all that are both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// These and their children.
    pub roots: Option<Vec<SessionId>>,
    /// Only sessions that work in this directory or below it; absolute and without links, as sessions store theirs.
    pub directory: Option<PathBuf>,
}

impl Scope {
    /// A session and its children.
    pub fn of(root: SessionId) -> Self {
        Self { roots: Some(vec![root]), directory: None }
    }

    /// Whether it is all there is, also what belongs to no session.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a directory, absolute and without links, belongs to it.
    pub fn has_directory(&self, path: &Path) -> bool {
        self.directory.as_ref().is_none_or(|directory| path.starts_with(directory))
    }
}

/// Whether a session is in a scope.
pub(super) fn has(connection: &Connection, scope: &Scope, session: &SessionId) -> rusqlite::Result<bool> {
    if scope.is_all() {
        return Ok(true);
    }
    let cwd = connection
        .prepare_cached("SELECT cwd FROM session WHERE id = ? AND id <> 'daemon'")?
        .query_row([session.as_str()], |row| row.get::<_, String>(0))
        .optional()?;
    let Some(cwd) = cwd else { return Ok(false) };
    if !scope.has_directory(&from_text(&cwd)) {
        return Ok(false);
    }
    let Some(roots) = &scope.roots else { return Ok(true) };
    let sql = "WITH RECURSIVE up (id) AS (
                   VALUES (?1) UNION SELECT session.parent FROM session JOIN up ON session.id = up.id
                   WHERE session.parent IS NOT NULL
               ) SELECT 1 FROM up WHERE id IN (SELECT value FROM json_each(?2))";
    connection.prepare_cached(sql)?.exists(params![session.as_str(), serde_json::json!(roots).to_string()])
}

/// The sessions in a scope.
fn sessions(connection: &Connection, scope: &Scope) -> rusqlite::Result<Vec<SessionId>> {
    let mut found = Vec::new();
    let id_and_cwd = |row: &rusqlite::Row<'_>| Ok((SessionId(row.get(0)?), row.get::<_, String>(1)?));
    let mut keep = |(id, cwd): (SessionId, String)| {
        if scope.has_directory(&from_text(&cwd)) && !id.is_daemon() {
            found.push(id);
        }
    };
    match &scope.roots {
        None => {
            let mut all = connection.prepare_cached("SELECT id, cwd FROM session")?;
            for row in all.query_map([], id_and_cwd)? {
                keep(row?);
            }
        }
        Some(roots) => {
            let sql = "WITH RECURSIVE tree (id) AS (
                           SELECT value FROM json_each(?)
                           UNION SELECT session.id FROM session JOIN tree ON session.parent = tree.id
                       ) SELECT session.id, cwd FROM session JOIN tree ON session.id = tree.id";
            let mut tree = connection.prepare_cached(sql)?;
            for row in tree.query_map([serde_json::json!(roots).to_string()], id_and_cwd)? {
                keep(row?);
            }
        }
    }
    Ok(found)
}

impl Store {
    /// Whether a session is in a scope.
    pub async fn is_within(&self, scope: Scope, session: SessionId) -> Result<bool, StoreError> {
        self.read(move |connection| has(connection, &scope, &session)).await
    }

    /// The sessions in a scope.
    pub async fn within(&self, scope: Scope) -> Result<Vec<SessionId>, StoreError> {
        self.read_in(Lane::Page, move |connection| sessions(connection, &scope)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrate;

    #[test]
    fn a_scope_has_children_to_come_and_only_what_lies_below_its_directory() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&migrate::sql(0, migrate::SCHEMA)).unwrap();
        for (id, parent, cwd) in [
            ("a", None, "/w"),
            ("b", Some("a"), "/w/x"),
            ("c", Some("b"), "/other"),
            ("d", None, "/wx"),
            ("daemon", None, ""),
        ] {
            let sql = "INSERT INTO session VALUES (?, NULL, ?, 'idle', 0, '{}', '{}', 0, ?, NULL, NULL)";
            connection.execute(sql, params![id, cwd, parent]).unwrap();
        }
        let check = |roots: Option<&[&str]>, directory: Option<&str>, expect: &[&str]| {
            let roots = roots.map(|roots| roots.iter().map(|id| SessionId::from(*id)).collect());
            let scope = Scope { roots, directory: directory.map(PathBuf::from) };
            let ids = ["a", "b", "c", "d", "daemon", "unknown"];
            let one_by_one: Vec<&str> =
                ids.into_iter().filter(|id| has(&connection, &scope, &SessionId::from(*id)).unwrap()).collect();
            assert_eq!(one_by_one, expect, "{scope:?}");
            let mut all = sessions(&connection, &scope).unwrap();
            all.sort_unstable();
            assert_eq!(all.iter().map(SessionId::as_str).collect::<Vec<_>>(), expect, "{scope:?}");
        };
        check(Some(&["a"]), None, &["a", "b", "c"]);
        check(Some(&["b", "d", "unknown"]), None, &["b", "c", "d"]);
        check(Some(&[]), None, &[]);
        check(None, Some("/w"), &["a", "b"]);
        check(None, Some("/w/x"), &["b"]);
        check(Some(&["b"]), Some("/other"), &["c"]);
        assert!(has(&connection, &Scope::default(), &SessionId::daemon()).unwrap());
    }
}
