//! The words of all messages, for full text search: a database of its own (`search.db`) beside that of the sessions.
//!
//! It can be deleted at any time, and is then made again: all of it comes from the log. Each write has the words of some events and
//! the [`Place`] up to which the log was read, in one transaction, so that a crash leaves it a little behind and never wrong. It keeps
//! no text, only which word stands in which event; to show a match, read the event.
//! A transaction here takes no lock of the sessions' database.
//! Deliberately absent: any knowledge of what an event means.

use std::path::{Path, PathBuf};

use linger_protocol::id::{Cursor, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::StoreError;
use super::feed::Place;
use super::files::{clear_database, private_file};

/// The version of its tables; another one is made again.
const VERSION: i64 = 1;

/// The tables. `words` has no text of its own; its rows are numbered like the events.
const TABLES: &str = r#"
    CREATE TABLE place (cursor TEXT NOT NULL) STRICT;
    INSERT INTO place VALUES ('0');
    CREATE TABLE doc (n INTEGER NOT NULL PRIMARY KEY, session TEXT NOT NULL, stream TEXT NOT NULL) STRICT;
    CREATE INDEX doc_session ON doc (session, stream);
    CREATE VIRTUAL TABLE words USING fts5
        (text, content = '', contentless_delete = 1, tokenize = "unicode61 remove_diacritics 2");
"#;

/// The memory for pages of this database, in KiB: it is read and written seldom.
const CACHE: i64 = 512;

/// An event that has words, or had some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number over all sessions.
    pub n: i64,
    /// The session that the message belongs to.
    pub session: SessionId,
    /// The message.
    pub stream: String,
    /// Its text; absent if the message no longer counts.
    pub text: Option<String>,
}

/// The open index.
pub struct Words {
    connection: Connection,
    /// How far the log was read.
    at: Place,
}

impl Words {
    /// The file of the index of this database.
    pub fn path(database: &Path) -> PathBuf {
        database.with_file_name("search.db")
    }

    /// Opens the index, or makes an empty one. What is there and is no index of this version is deleted.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match Self::open_existing(path) {
            Ok(Some(words)) => return Ok(words),
            Ok(None) => {}
            Err(error) => tracing::info!(target: "store", %error, "the index of words is made again"),
        }
        Self::create(path)
    }

    /// Makes an empty index in place of what is there.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        clear_database(path)?;
        drop(private_file(path)?);
        let connection = connect(path)?;
        connection.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?;
        Ok(Self { connection, at: Place::default() })
    }

    fn open_existing(path: &Path) -> Result<Option<Self>, StoreError> {
        if !path.symlink_metadata().is_ok_and(|file| file.is_file()) {
            return Ok(None);
        }
        let connection = connect(path)?;
        if connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? != VERSION {
            return Ok(None);
        }
        let cursor: Option<String> =
            connection.query_row("SELECT cursor FROM place", [], |row| row.get(0)).optional()?;
        Ok(cursor.and_then(|cursor| Place::parse(&Cursor(cursor))).map(|at| Self { connection, at }))
    }

    /// How far the log was read.
    pub fn at(&self) -> Place {
        self.at
    }

    /// Writes what was read of the log up to `at`.
    pub fn add(&mut self, entries: &[Entry], at: Place) -> Result<(), StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        for Entry { n, session, stream, text } in entries {
            match text {
                Some(text) => {
                    transaction
                        .prepare_cached("INSERT OR REPLACE INTO doc (n, session, stream) VALUES (?, ?, ?)")?
                        .execute(params![n, session.as_str(), stream])?;
                    transaction
                        .prepare_cached("INSERT OR REPLACE INTO words (rowid, text) VALUES (?, ?)")?
                        .execute(params![n, text])?;
                }
                None => {
                    let of = "SELECT n FROM doc WHERE session = ? AND stream = ?";
                    for sql in [
                        format!("DELETE FROM words WHERE rowid IN ({of})"),
                        format!("DELETE FROM doc WHERE n IN ({of})"),
                    ] {
                        transaction.prepare_cached(&sql)?.execute(params![session.as_str(), stream])?;
                    }
                }
            }
        }
        transaction.prepare_cached("UPDATE place SET cursor = ?")?.execute([at.cursor().0])?;
        transaction.commit()?;
        self.at = at;
        Ok(())
    }

    /// The sessions that it has words of.
    pub fn sessions(&self) -> Result<Vec<SessionId>, StoreError> {
        // A look into the index of the table for each session: `DISTINCT` reads all of that index, which grows with the history.
        let mut statement = self.connection.prepare_cached(
            "WITH RECURSIVE s(id) AS (
                 SELECT min(session) FROM doc
                 UNION ALL
                 SELECT (SELECT min(session) FROM doc WHERE session > s.id) FROM s WHERE s.id IS NOT NULL
             ) SELECT id FROM s WHERE id IS NOT NULL",
        )?;
        Ok(statement.query_map([], |row| row.get(0).map(SessionId))?.collect::<rusqlite::Result<_>>()?)
    }

    /// Deletes the words of sessions, from the file too.
    pub fn forget(&mut self, sessions: &[SessionId]) -> Result<(), StoreError> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut removed = 0;
        for session in sessions {
            for sql in [
                "DELETE FROM words WHERE rowid IN (SELECT n FROM doc WHERE session = ?)",
                "DELETE FROM doc WHERE session = ?",
            ] {
                removed += transaction.prepare_cached(sql)?.execute([session.as_str()])?;
            }
        }
        // Deleted words stay in the file until their part of it is written again. That writes all of the index.
        if removed > 0 {
            transaction.execute("INSERT INTO words (words) VALUES ('optimize')", [])?;
        }
        Ok(transaction.commit()?)
    }

    /// The numbers of the best matches of a [`query`], after the first `skip`; only of these sessions, if given.
    pub fn find(
        &self,
        query: &str,
        among: Option<&[SessionId]>,
        limit: usize,
        skip: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let among = among.map(|sessions| serde_json::json!(sessions).to_string());
        let mut statement = self.connection.prepare_cached(
            "SELECT doc.n FROM words JOIN doc ON doc.n = words.rowid
             WHERE words MATCH ?1 AND (?2 IS NULL OR doc.session IN (SELECT value FROM json_each(?2)))
             ORDER BY words.rank, doc.n DESC LIMIT ?3 OFFSET ?4",
        )?;
        let rows = statement.query_map(params![query, among, limit as i64, skip as i64], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // After a power loss it is behind, and not broken.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -CACHE)?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    Ok(connection)
}

/// A term of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// A word, or several that follow each other.
    pub text: String,
    /// Whether the last word only begins so.
    pub is_beginning: bool,
}

/// The terms of what a person writes: words, `"several words"`, `begin*`. What has no letter or digit is left out.
pub fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    // Between quotes stand phrases: every other part.
    for (at, part) in text.split('"').enumerate() {
        let words: Vec<&str> = if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() };
        for word in words {
            let (text, is_beginning) = match word.strip_suffix('*') {
                Some(text) if at % 2 == 0 => (text, true),
                _ => (word, false),
            };
            if text.chars().any(char::is_alphanumeric) {
                terms.push(Term { text: text.trim().to_owned(), is_beginning });
            }
        }
    }
    terms
}

/// The terms in the language of FTS5: all of them must be found.
pub fn query(terms: &[Term]) -> String {
    let one = |term: &Term| format!("\"{}\"{}", term.text.replace('"', ""), if term.is_beginning { "*" } else { "" });
    terms.iter().map(one).collect::<Vec<_>>().join(" AND ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: i64, session: &str, text: Option<&str>) -> Entry {
        Entry { n, session: session.into(), stream: format!("m{n}"), text: text.map(str::to_owned) }
    }

    fn place(text: &str) -> Place {
        Place::parse(&Cursor(text.to_owned())).unwrap()
    }

    #[test]
    fn what_people_write_becomes_terms_and_no_syntax_of_fts5() {
        let check = |text: &str, expect: &str| assert_eq!(query(&terms(text)), expect, "{text}");
        check("fix the parser", r#""fix" AND "the" AND "parser""#);
        check(r#"say "off by one" pars*"#, r#""say" AND "off by one" AND "pars"*"#);
        check(
            "a OR b NOT (c) -d ^e text:f",
            r#""a" AND "OR" AND "b" AND "NOT" AND "(c)" AND "-d" AND "^e" AND "text:f""#,
        );
        check("— … * \"", "");
        check("\"never closed", r#""never closed""#);
    }

    #[test]
    fn words_are_found_in_the_order_of_their_rank_and_gone_once_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.db");
        let mut words = Words::open(&path).unwrap();
        let entries = [
            entry(1, "s1", Some("the parser is broken, the parser of dates")),
            entry(2, "s2", Some("a long text about many other things in which a parser is named once and never again")),
            entry(3, "s2", Some("Größe und Höhe: parse_header()")),
        ];
        words.add(&entries, place("3.00000001")).unwrap();
        let find = |words: &Words, text: &str| words.find(&query(&terms(text)), None, 10, 0).unwrap();
        assert_eq!(find(&words, "parser"), [1, 2]);
        assert_eq!(find(&words, "grosse"), [0_i64; 0]);
        assert_eq!(words.sessions().unwrap(), [SessionId::from("s1"), SessionId::from("s2")]);
        assert_eq!(find(&words, "hohe"), [3]);
        assert_eq!(find(&words, "parse_header"), [3]);
        assert_eq!(find(&words, "pars*"), [1, 3, 2]);
        assert_eq!(find(&words, "\"parser of\""), [1]);
        assert_eq!(words.find("\"parser\"", Some(&["s2".into()]), 10, 0).unwrap(), [2]);
        words.add(&[entry(2, "s2", None)], place("4.00000001")).unwrap();
        assert_eq!(find(&words, "parser"), [1]);
        drop(words);
        let mut words = Words::open(&path).unwrap();
        assert_eq!((words.at(), find(&words, "parser")), (place("4.00000001"), vec![1]));
        words.forget(&["s1".into()]).unwrap();
        assert_eq!((find(&words, "parser"), words.sessions().unwrap()), (vec![], vec!["s2".into()]));
        drop(words);
        let left = std::fs::read(&path).unwrap();
        assert!(!left.windows(6).any(|bytes| bytes == b"broken"), "a word of a removed session is in the file");
    }

    #[test]
    fn what_is_no_index_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.db");
        for content in [&b"no database"[..], &[0; 4096]] {
            std::fs::write(&path, content).unwrap();
            let mut words = Words::open(&path).unwrap();
            assert_eq!(words.at(), Place::default());
            words.add(&[entry(1, "s", Some("text"))], place("1.00000001")).unwrap();
        }
    }
}
