//! The rows of artifacts. Their bytes are blobs, which the pseudo-session `artifact` uses as long as one artifact has them.

use linger_protocol::artifact::{Artifact, Before};
use linger_protocol::id::{ArtifactId, BlobId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::blob::Held;
use super::reader::Lane;
use super::{Store, StoreError};

/// What stands for a session in the table of blobs.
const SESSION: &str = "artifact";

/// The columns of [`artifact`].
const COLUMNS: &str = "id, name, content_type, size, hash, created_at, made_by";

/// The prefix of a blob's name, which the hash of an artifact is shown without.
const PREFIX: &str = "sha256:";

fn artifact(row: &Row<'_>) -> rusqlite::Result<Artifact> {
    let number = |at: usize| row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or_default());
    let hash: String = row.get(4)?;
    Ok(Artifact {
        id: ArtifactId(row.get(0)?),
        name: row.get(1)?,
        content_type: row.get(2)?,
        size: number(3)?,
        sha256: hash.strip_prefix(PREFIX).unwrap_or(&hash).to_owned(),
        created_at: number(5)?,
        by: row.get(6)?,
    })
}

/// The name of an artifact's blob.
pub fn blob_of(artifact: &Artifact) -> BlobId {
    BlobId(format!("{PREFIX}{}", artifact.sha256))
}

/// Adds an artifact, within the caller's transaction.
pub(crate) fn add(connection: &Connection, artifact: &Artifact) -> rusqlite::Result<()> {
    let Artifact { id, name, content_type, size, created_at, by, .. } = artifact;
    let (size, hash) = (*size as i64, blob_of(artifact));
    connection.execute(
        &format!("INSERT INTO artifact ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"),
        params![id.as_str(), name, content_type, size, hash.as_str(), *created_at as i64, by],
    )?;
    let sql = "INSERT OR IGNORE INTO blob (session, hash, size, seq) VALUES (?, ?, ?, NULL)";
    connection.execute(sql, params![SESSION, hash.as_str(), size]).map(drop)
}

/// All artifacts, up to the first unreadable row; of a database without that table none.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Artifact>> {
    let is_there =
        connection.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'artifact'")?.exists([])?;
    if !is_there {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM artifact"))?;
    Ok(statement.query_map([], artifact)?.map_while(Result::ok).collect())
}

/// Whether an artifact is there.
pub(crate) fn is_there(connection: &Connection, id: &ArtifactId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM artifact WHERE id = ?")?.exists([id.as_str()])
}

impl Store {
    /// Stores an artifact, whose blob is held until then; it is on disk when this returns.
    pub async fn add_artifact(&self, new: Artifact, held: Held) -> Result<(), StoreError> {
        self.change(true, move |connection| add(connection, &new)).await?;
        held.committed();
        Ok(())
    }

    /// An artifact, if it is there.
    pub async fn artifact(&self, id: ArtifactId) -> Result<Option<Artifact>, StoreError> {
        self.read(move |connection| {
            let sql = format!("SELECT {COLUMNS} FROM artifact WHERE id = ?");
            connection.prepare_cached(&sql)?.query_row([id.as_str()], artifact).optional()
        })
        .await
    }

    /// The latest `limit` after `before`; only those of one client, if it is named.
    pub async fn artifacts(
        &self,
        limit: u32,
        before: Option<Before>,
        by: Option<String>,
    ) -> Result<Vec<Artifact>, StoreError> {
        let (at, id) = before
            .map_or((i64::MAX, String::new()), |row| (i64::try_from(row.created_at).unwrap_or(i64::MAX), row.id.0));
        self.read_in(Lane::Page, move |connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM artifact WHERE (created_at, id) < (?1, ?2) AND (?3 IS NULL OR made_by = ?3)
                 ORDER BY created_at DESC, id DESC LIMIT ?4"
            );
            connection.prepare_cached(&sql)?.query_map(params![at, id, by, limit], artifact)?.collect()
        })
        .await
    }

    /// The bytes of all artifacts.
    pub async fn artifact_bytes(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let sum: i64 = connection
                .prepare_cached("SELECT coalesce(sum(size), 0) FROM artifact")?
                .query_row([], |row| row.get(0))?;
            Ok(u64::try_from(sum).unwrap_or_default())
        })
        .await
    }

    /// Deletes an artifact; its bytes follow if nothing else uses them.
    pub async fn delete_artifact(&self, artifact: Artifact) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let hash = blob_of(&artifact);
            connection.execute("DELETE FROM artifact WHERE id = ?", [artifact.id.as_str()])?;
            if connection.prepare("SELECT 1 FROM artifact WHERE hash = ?")?.exists([hash.as_str()])? {
                return Ok(());
            }
            connection.execute("DELETE FROM blob WHERE session = ? AND hash = ?", params![SESSION, hash.as_str()])?;
            connection.execute("INSERT OR IGNORE INTO stray (hash) VALUES (?)", [hash.as_str()]).map(drop)
        })
        .await
    }
}
