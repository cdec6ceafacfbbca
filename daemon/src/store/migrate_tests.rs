//! From one schema to the next: wholly or not at all, and with a copy.

use std::path::PathBuf;

use super::*;
use crate::store::aside::{PARTS, with};

/// A step that makes, changes and fills, as those to come will.
const NEXT: &str = "
    CREATE TABLE more (id INTEGER PRIMARY KEY, session TEXT NOT NULL) STRICT;
    INSERT INTO more (session) SELECT id FROM session;
    ALTER TABLE outcome ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
    UPDATE outcome SET weight = 2;
    CREATE INDEX more_session ON more (session);
    DROP INDEX session_cwd;
    PRAGMA user_version = 2;";

fn first(dir: &tempfile::TempDir) -> (PathBuf, Connection) {
    let path = dir.path().join("linger.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/schema-1.sql"))).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    (path, connection)
}

/// Everything in it, as text.
fn content(connection: &Connection) -> String {
    let mut all = String::new();
    let mut schema = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
    let rows = schema.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))).unwrap();
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    for (name, sql) in rows {
        all += &format!("{name}: {sql:?}\n");
        if sql.is_some_and(|sql| sql.starts_with("CREATE TABLE")) {
            let mut rows = connection.prepare(&format!("SELECT * FROM {name} ORDER BY 1, 2")).unwrap();
            let columns = rows.column_count();
            let mut rows = rows.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let row: Vec<_> =
                    (0..columns).map(|column| row.get::<_, rusqlite::types::Value>(column).unwrap()).collect();
                all += &format!("{row:?}\n");
            }
        }
    }
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    all + &format!("version {version}")
}

#[test]
fn killed_before_each_statement_and_after_the_last_the_database_is_the_old_one_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, connection) = first(&dir);
    let old = content(&connection);
    let statements: Vec<&str> = NEXT.split_inclusive(';').collect();
    let transaction = connection.unchecked_transaction().unwrap();
    let killed = |n: usize| {
        // What a process leaves that is killed now: the files as they are.
        let left = tempfile::tempdir().unwrap();
        let copy = left.path().join("linger.db");
        PARTS.iter().for_each(|part| drop(std::fs::copy(with(&path, part), with(&copy, part))));
        (n, content(&Connection::open(&copy).unwrap()))
    };
    for (n, statement) in statements.iter().enumerate() {
        assert_eq!(killed(n), (n, old.clone()));
        connection.execute_batch(statement).unwrap();
    }
    assert_eq!(killed(statements.len()), (statements.len(), old.clone()));
    transaction.commit().unwrap();
    let new = content(&connection);
    assert!(new.ends_with("version 2") && new.contains("more_session"));
    assert_eq!(killed(0).1, new);
}

#[test]
fn before_a_schema_changes_the_database_is_copied_and_the_copy_is_whole_and_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (path, connection) = first(&dir);
    let old = content(&connection);
    for _ in 0..2 {
        let copy = backup(&connection, &path, 1).unwrap();
        assert_eq!(copy, with(&path, ".v1-backup"));
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(content(&Connection::open(&copy).unwrap()), old);
        assert!(!with(&copy, ".new").exists());
    }
    // Without room for a copy nothing is changed, and the error says what it was about.
    std::fs::create_dir(with(&path, ".v3-backup")).unwrap();
    let error = format!("{:#}", backup(&connection, &path, 3).unwrap_err());
    assert!(error.contains("linger.db.v3-backup could not be written"), "{error}");
}

#[test]
fn a_step_that_fails_leaves_the_old_database() {
    let dir = tempfile::tempdir().unwrap();
    let (path, connection) = first(&dir);
    connection.execute_batch("PRAGMA user_version = 0").unwrap();
    let old = content(&connection);
    // All tables are there already.
    let error = migrate(&connection, &path, 0).unwrap_err();
    assert!(format!("{error:#}").contains("could not be brought from version 0"), "{error:#}");
    assert!(connection.is_autocommit());
    assert_eq!(content(&connection), old);
}

#[test]
fn each_version_has_a_database_that_was_kept() {
    for version in 1..=SCHEMA {
        let kept = format!("{}/../tests/data/schema-{version}.sql", env!("CARGO_MANIFEST_DIR"));
        let sql = std::fs::read_to_string(&kept).unwrap_or_else(|error| panic!("{kept}: {error}"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linger.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(&sql).unwrap();
        let count = |connection: &Connection| -> i64 {
            connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap()
        };
        let events = count(&connection);
        assert!(events > 0, "{kept}: has events");
        migrate(&connection, &path, version).unwrap();
        assert_eq!(count(&connection), events, "{kept}: no event is lost");
        assert_eq!(with(&path, &format!(".v{version}-backup")).exists(), version < SCHEMA);
        let number = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
        let logged = number("SELECT count(*) FROM event WHERE kind = 'message' AND data ->> '$.role' = 'assistant'");
        // The fourth also has what an answer cost whose session is gone.
        let gone = i64::from(version >= 4);
        assert_eq!(number("SELECT sum(answers) FROM usage"), logged + gone, "{kept}: every answer has its day");
    }
}

#[test]
fn what_earlier_builds_counted_is_summed_by_day_whatever_else_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(&sql(0, 3)).unwrap();
    let answer = r#"{"kind":"message","role":"assistant","model":"a/b","usage":{"input_tokens":7,"output_tokens":1}}"#;
    let lies =
        r#"{"kind":"message","role":"assistant","usage":{"input_tokens":9223372036854775807,"cached_tokens":"x"}}"#;
    let rows = [(1, "message", answer), (2, "message", answer), (3, "message", lies), (4, "message", "no JSON")];
    for (seq, kind, data) in rows.into_iter().chain([(5, "message", r#"{"role":"user"}"#), (6, "notice", answer)]) {
        connection
            .execute("INSERT INTO event VALUES ('s1', ?, 86400000, ?, NULL, ?)", rusqlite::params![seq, kind, data])
            .unwrap();
    }
    migrate(&connection, &path, 3).unwrap();
    let mut rows =
        connection.prepare("SELECT day, session, model, answers, input, cached, cost, at_least FROM usage").unwrap();
    let rows = rows.query_map([], |row| {
        let (day, session, model): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (answers, input, cached): (i64, i64, i64) = (row.get(3)?, row.get(4)?, row.get(5)?);
        Ok((
            format!("{day} '{session}' {model}"),
            answers,
            input,
            cached,
            row.get::<_, Option<i64>>(6)?,
            row.get::<_, i64>(7)?,
        ))
    });
    let rows: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    let expect =
        [("1 '' ".to_owned(), 1, 9_000_000_000_000_000, 0, None, 1), ("1 '' a/b".to_owned(), 2, 14, 0, None, 1)];
    assert_eq!(rows, expect);
}
