//! Artifacts: what one may be, and their rows. Their bytes are blobs, which the pseudo-session `artifact` uses as long as one artifact has them.

use linger_protocol::artifact::{Artifact, Before, MAX_ALL, MAX_ARTIFACT, UNKNOWN_TYPE};
use linger_protocol::id::{ArtifactId, BlobId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::blob::Held;
use super::reader::Lane;
use super::{Store, StoreError};
use crate::sys::clock;

/// What stands for a session in the table of blobs.
const SESSION: &str = "artifact";

/// The longest name of an artifact, in bytes: that of a file.
pub const MAX_NAME: usize = 255;

/// The longest content type, in bytes; registered ones have fewer than 100.
const MAX_TYPE: usize = 127;

/// Why an artifact cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// It is too large.
    #[error("an artifact may have {MAX_ARTIFACT} bytes")]
    Each,
    /// With it there would be too many bytes.
    #[error("all artifacts together may have {MAX_ALL} bytes")]
    All,
}

/// Whether an artifact of `size` bytes fits beside those that have `all` bytes.
pub fn fits(size: u64, all: u64) -> Result<(), NoRoom> {
    match (size > MAX_ARTIFACT, all.saturating_add(size) > MAX_ALL) {
        (true, _) => Err(NoRoom::Each),
        (_, true) => Err(NoRoom::All),
        _ => Ok(()),
    }
}

/// Whether a text is the name of a file, without directories.
pub fn is_name(name: &str) -> bool {
    !name.trim().is_empty()
        && name.len() <= MAX_NAME
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control)
        && !matches!(name, "." | "..")
}

/// Whether a text is a content type.
pub fn is_type(text: &str) -> bool {
    text.len() <= MAX_TYPE && text.contains('/') && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// A random UUID (RFC 9562, version 4).
pub fn uuid() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    clock::random_bytes(&mut bytes).map_err(std::io::Error::other)?;
    let number = (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62)) | (4 << 76) | (0b10 << 62);
    let hex = format!("{number:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

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

    /// Makes an artifact of bytes that a tool made. Fails, in words, if there is no room or it cannot be stored. A name or content type
    /// that is none is left out.
    pub async fn keep_artifact(
        &self,
        (name, content_type): (String, String),
        bytes: Vec<u8>,
        by: String,
    ) -> Result<Artifact, String> {
        let size = bytes.len() as u64;
        let all = self.artifact_bytes().await.map_err(|error| error.to_string())?;
        fits(size, all).map_err(|why| why.to_string())?;
        let blobs = self.blobs.clone();
        let put = tokio::task::spawn_blocking(move || Ok((uuid()?, blobs.put(&bytes)?))).await;
        let put = put.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let (id, held) = put.map_err(|error| error.to_string())?;
        let sha256 = held.id().as_str().strip_prefix(PREFIX).unwrap_or_default().to_owned();
        let artifact = Artifact {
            id: ArtifactId(id),
            name: if is_name(&name) { name } else { "artifact".to_owned() },
            content_type: if is_type(&content_type) { content_type } else { UNKNOWN_TYPE.to_owned() },
            size,
            sha256,
            created_at: clock::now(),
            by,
        };
        self.add_artifact(artifact.clone(), held).await.map_err(|error| error.to_string())?;
        tracing::info!(target: "artifact", id = %artifact.id, size, by = artifact.by, "made");
        Ok(artifact)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_has_64_mib_at_most_and_all_have_10_gb() {
        const EACH: u64 = 64 << 20;
        const ALL: u64 = 10_000_000_000;
        for (size, all, expect) in [
            (0, 0, Ok(())),
            (EACH, 0, Ok(())),
            (EACH + 1, 0, Err(NoRoom::Each)),
            (0, ALL, Ok(())),
            (1, ALL, Err(NoRoom::All)),
            (EACH, ALL - EACH, Ok(())),
            (EACH, ALL - EACH + 1, Err(NoRoom::All)),
            // What is too large for itself is never a matter of the others.
            (EACH + 1, ALL, Err(NoRoom::Each)),
            (1, u64::MAX, Err(NoRoom::All)),
            (u64::MAX, u64::MAX, Err(NoRoom::Each)),
        ] {
            assert_eq!(fits(size, all), expect, "{size} beside {all}");
        }
    }

    #[test]
    fn a_name_is_that_of_a_file_and_a_type_one_of_bytes() {
        let long = "n".repeat(MAX_NAME + 1);
        for (name, expect) in [
            ("a.png", true),
            ("ä b", true),
            ("", false),
            (" ", false),
            (".", false),
            ("..", false),
            ("a/b", false),
            ("a\\b", false),
            ("a\nb", false),
            (&long, false),
            (&long[1..], true),
        ] {
            assert_eq!(is_name(name), expect, "{name}");
        }
        assert!(is_type("image/png") && is_type("text/plain; charset=utf-8"));
        assert!(!is_type("png") && !is_type("image/\npng") && !is_type(&format!("a/{}", "b".repeat(MAX_TYPE))));
    }
}
