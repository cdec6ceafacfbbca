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
            let mut rows = connection.prepare(&format!("SELECT * FROM {name} ORDER BY 1")).unwrap();
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
fn a_step_to_the_next_version_keeps_every_row_and_a_copy_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let (path, connection) = first(&dir);
    let old = content(&connection);
    let count = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    let (events, sessions) = (count("SELECT count(*) FROM event"), count("SELECT count(*) FROM session"));
    assert!(events > 0 && sessions > 0);
    let step = NEXT.replace("PRAGMA user_version = 2;", "");
    run(&connection, &path, 1, &[STEPS[0], &step]).unwrap();
    assert_eq!(count("SELECT count(*) FROM event"), events);
    assert_eq!(count("SELECT count(*) FROM more"), sessions);
    assert_eq!(count("SELECT min(weight) FROM outcome"), 2);
    assert!(content(&connection).ends_with("version 2"));
    assert_eq!(content(&Connection::open(with(&path, ".v1-backup")).unwrap()), old);
}

#[test]
fn the_first_schema_is_that_of_the_database_that_was_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (_, kept) = first(&dir);
    let made = Connection::open_in_memory().unwrap();
    made.execute_batch(&sql(0, 1)).unwrap();
    let schema = |connection: &Connection| -> Vec<(String, Option<String>)> {
        let mut rows = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(schema(&kept), schema(&made));
    for connection in [kept, made] {
        let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
        assert_eq!(id, APPLICATION);
    }
}
