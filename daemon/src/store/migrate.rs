//! The schema, a step a version, and how a database comes from one to the next: wholly or not at all.
//!
//! Before the first step the database is copied (`linger.db.v1-backup`), then all steps run in one transaction. A daemon that is
//! killed anywhere leaves either the old database or the new one. A step that was released never changes; a database of each
//! released version is kept under `tests/data` and migrated by a test.

use std::path::Path;

use anyhow::Context as _;
use rusqlite::Connection;

use super::files;

/// The schema, a step a version.
const STEPS: [&str; 5] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
];

/// The version of the schema that this build knows.
pub const SCHEMA: i64 = STEPS.len() as i64;

/// SQLite's `application_id` of every linger database, as the first step sets it.
pub(super) const APPLICATION: i64 = 1_818_848_871;

/// Brings a database of version `from` to [`SCHEMA`]; a copy of it is made first, unless it is a new one.
pub(super) fn migrate(connection: &Connection, path: &Path, from: i64) -> anyhow::Result<()> {
    run(connection, path, from, &STEPS)
}

fn run(connection: &Connection, path: &Path, from: i64, steps: &[&str]) -> anyhow::Result<()> {
    let to = steps.len() as i64;
    if from == to {
        return Ok(());
    }
    if from > 0 {
        let copy = backup(connection, path, from)?;
        tracing::info!(target: "store", from, to, backup = %copy.display(), "migrating");
    }
    let sql = format!("BEGIN IMMEDIATE; {} COMMIT;", between(steps, from, to));
    connection.pragma_update(None, "synchronous", "FULL")?;
    let done = connection.execute_batch(&sql);
    if done.is_err() && !connection.is_autocommit() {
        // The first error is the one to tell; without the transaction the old database is as it was.
        let _rolled_back = connection.execute_batch("ROLLBACK");
    }
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    done.with_context(|| format!("the schema could not be brought from version {from} to {to}"))
}

/// The statements that bring a database from one version to another; without a transaction around them.
pub(crate) fn sql(from: i64, to: i64) -> String {
    between(&STEPS, from, to)
}

fn between(steps: &[&str], from: i64, to: i64) -> String {
    let (skip, take) = (usize::try_from(from).unwrap_or(0), usize::try_from(to - from).unwrap_or(0));
    let steps: String = steps.iter().skip(skip).take(take).copied().collect();
    format!("{steps} PRAGMA user_version = {to};")
}

/// Copies the database, as of now, to `linger.db.v1-backup`; an older copy of the same version gives way.
fn backup(connection: &Connection, path: &Path, version: i64) -> anyhow::Result<std::path::PathBuf> {
    let to = files::with(path, &format!(".v{version}-backup"));
    let new = files::with(&to, ".new");
    let copied = (|| {
        files::clear_database(&new)?;
        // SQLite takes an empty file that is there, and keeps its mode.
        let file = files::private_file(&new)?;
        let name = new.to_str().context("its name is not UTF-8")?;
        connection.execute("VACUUM INTO ?", [name])?;
        file.sync_all()?;
        std::fs::rename(&new, &to)?;
        files::sync_directory(&to)?;
        anyhow::Ok(())
    })();
    copied.with_context(|| {
        format!(
            "{} could not be written: it is to be a copy before the schema changes; see whether the disk is full",
            to.display()
        )
    })?;
    Ok(to)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
