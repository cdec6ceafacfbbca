//! Artifacts: what one may be, and their rows. Their bytes are blobs, which the pseudo-session `artifact` uses as long as one artifact has them.

use linger_protocol::artifact::{Artifact, Before, MAX_ALL, MAX_ARTIFACT, UNKNOWN_TYPE};
use linger_protocol::id::{ArtifactId, BlobId, SessionId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tokio::sync::oneshot;

use super::blob::Held;
use super::error::{StoreError, ended};
use super::handle::Store;
use super::reader::Lane;
use crate::sys::clock;
use crate::sys::task;

/// The pseudo-session of artifacts in the table of blobs.
const SESSION: &str = "artifact";

/// The longest name of an artifact, in bytes: that of a file.
pub const MAX_NAME: usize = 255;

/// The longest content type, in bytes; registered ones have fewer than 100.
const MAX_TYPE: usize = 127;

/// The most bytes of what tools made, of all sessions together: a server gives files that no person asked for, so they have a share
/// of their own, and the oldest leave it first.
const MAX_MADE: u64 = 1_000_000_000;

/// The least that an artifact counts for in that share: its row and its file, so that many small ones are few too.
const LEAST: u64 = 4 << 10;

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

/// Whether an artifact of `size` bytes fits when the others have `all` bytes.
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

/// The name, or another one if it is none.
pub fn name_or_other(name: String) -> String {
    if is_name(&name) { name } else { "artifact".to_owned() }
}

/// The content type, or that of bytes of which nothing is known if it is none.
pub fn type_or_other(content_type: String) -> String {
    if is_type(&content_type) { content_type } else { UNKNOWN_TYPE.to_owned() }
}

/// A random UUID (RFC 9562, version 4).
pub fn uuid() -> std::io::Result<String> {
    random_id(4)
}

/// A random UUID of a version that ends in random bits: 4, or 8 for what a tool made ([`IS_MADE`]).
fn random_id(version: u128) -> std::io::Result<String> {
    let mut bytes = [0; 16];
    clock::random_bytes(&mut bytes).map_err(std::io::Error::other)?;
    let number = (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62)) | (version << 76) | (0b10 << 62);
    let hex = format!("{number:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

/// The columns of [`artifact`].
const COLUMNS: &str = "id, name, content_type, size, hash, created_at, made_by";

/// Whether a tool made the artifact of a row: clients choose their names, so `made_by` does not tell, and the version of the id does.
const IS_MADE: &str = "substr(id, 15, 1) = '8'";

/// Whether it did so in the session `?1`.
const IS_OF_SESSION: &str = "substr(id, 15, 1) = '8' AND substr(made_by, -length(?1) - 4) = ' of ' || ?1";

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

/// Adds an artifact that a tool made in `session`, within the caller's transaction, and returns it. The oldest that tools made make
/// room for it; one with the same name and bytes that the session has already stands for it.
fn add_made(
    connection: &Connection,
    new: Artifact,
    session: &str,
    max_made: u64,
) -> rusqlite::Result<Result<Artifact, NoRoom>> {
    let same = format!(
        "SELECT {COLUMNS} FROM artifact WHERE {IS_OF_SESSION} AND hash = ?2 AND name = ?3 AND content_type = ?4"
    );
    let hash = blob_of(&new);
    let values = params![session, hash.as_str(), new.name, new.content_type];
    if let Some(same) = connection.prepare_cached(&same)?.query_row(values, artifact).optional()? {
        return Ok(Ok(same));
    }
    let made = format!("SELECT coalesce(sum(max(size, {LEAST})), 0) FROM artifact WHERE {IS_MADE}");
    let made: i64 = connection.prepare_cached(&made)?.query_row([], |row| row.get(0))?;
    let (mut made, mut all) = (u64::try_from(made).unwrap_or_default(), bytes_of_all(connection)?);
    while made.saturating_add(new.size.max(LEAST)) > max_made || fits(new.size, all) == Err(NoRoom::All) {
        let oldest = format!("SELECT {COLUMNS} FROM artifact WHERE {IS_MADE} ORDER BY created_at, id LIMIT 1");
        let Some(oldest) = connection.prepare_cached(&oldest)?.query_row([], artifact).optional()? else { break };
        delete(connection, &oldest)?;
        (made, all) = (made.saturating_sub(oldest.size.max(LEAST)), all.saturating_sub(oldest.size));
    }
    if let Err(why) = fits(new.size, all) {
        return Ok(Err(why));
    }
    add(connection, &new)?;
    Ok(Ok(new))
}

/// Deletes an artifact, within the caller's transaction; its bytes follow if nothing else uses them.
fn delete(connection: &Connection, artifact: &Artifact) -> rusqlite::Result<()> {
    let hash = blob_of(artifact);
    connection.prepare_cached("DELETE FROM artifact WHERE id = ?")?.execute([artifact.id.as_str()])?;
    if connection.prepare_cached("SELECT 1 FROM artifact WHERE hash = ?")?.exists([hash.as_str()])? {
        return Ok(());
    }
    connection
        .prepare_cached("DELETE FROM blob WHERE session = ? AND hash = ?")?
        .execute(params![SESSION, hash.as_str()])?;
    connection.prepare_cached("INSERT OR IGNORE INTO stray (hash) VALUES (?)")?.execute([hash.as_str()]).map(drop)
}

/// Deletes what tools made in a removed session, within the caller's transaction, but for what they made until its event `needed`:
/// forks have that, and links to it. Gives how many.
pub(super) fn delete_of(connection: &Connection, session: &str, needed: i64) -> rusqlite::Result<usize> {
    // The event with a link is later than what it links to.
    let last = "SELECT at FROM event WHERE session = ? AND seq <= ? ORDER BY seq DESC LIMIT 1";
    let values = params![session, needed];
    let last: Option<i64> = connection.prepare_cached(last)?.query_row(values, |row| row.get(0)).optional()?;
    let sql = format!("SELECT {COLUMNS} FROM artifact WHERE {IS_OF_SESSION} AND (?2 IS NULL OR created_at > ?2)");
    let mut select = connection.prepare_cached(&sql)?;
    let made: Vec<Artifact> = select.query_map(params![session, last], artifact)?.collect::<rusqlite::Result<_>>()?;
    made.iter().try_for_each(|made| delete(connection, made))?;
    Ok(made.len())
}

/// The bytes of all artifacts.
fn bytes_of_all(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(sum(size), 0) FROM artifact";
    let sum: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(sum).unwrap_or_default())
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
    /// Stores an artifact, whose blob is held until then, if there is room; it is on disk when this returns.
    pub async fn add_artifact(&self, new: Artifact, held: Held) -> Result<Result<(), NoRoom>, StoreError> {
        let added = self
            .artifact_change(move |connection| match fits(new.size, bytes_of_all(connection)?) {
                Ok(()) => add(connection, &new).map(Ok),
                Err(why) => Ok(Err(why)),
            })
            .await?;
        if added.is_ok() {
            held.committed();
        }
        Ok(added)
    }

    /// Makes an artifact of bytes that a tool made in `session`. Fails, in words, if there is no room or it cannot be stored. A name
    /// or content type that is none is left out.
    pub async fn keep_artifact(
        &self,
        name: String,
        content_type: String,
        bytes: Vec<u8>,
        tool: &str,
        session: &SessionId,
    ) -> Result<Artifact, String> {
        let size = bytes.len() as u64;
        fits(size, 0).map_err(|why| why.to_string())?;
        let blobs = self.blobs.clone();
        let put = task::spawn_blocking(move || Ok((random_id(8)?, blobs.put(&bytes)?))).await;
        let put = put.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let (id, held) = put.map_err(|error| error.to_string())?;
        let sha256 = held.id().as_str().strip_prefix(PREFIX).unwrap_or_default().to_owned();
        let artifact = Artifact {
            id: ArtifactId(id),
            name: name_or_other(name),
            content_type: type_or_other(content_type),
            size,
            sha256,
            created_at: clock::now(),
            by: format!("{tool} of {session}"),
        };
        let session = session.as_str().to_owned();
        let added = self.artifact_change(move |connection| add_made(connection, artifact, &session, MAX_MADE)).await;
        let artifact = added.map_err(|error| error.to_string())?.map_err(|why| why.to_string())?;
        held.committed();
        tracing::info!(target: "artifact", id = %artifact.id, size, by = artifact.by, "made");
        Ok(artifact)
    }

    /// Makes a change to artifacts, in a transaction of its own; it is on disk when this returns.
    async fn artifact_change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (said, heard) = oneshot::channel();
        self.change(true, move |connection| {
            // The caller may be gone.
            let _unheard = said.send(change(connection)?);
            Ok(())
        })
        .await?;
        heard.await.map_err(|_| ended())
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
        self.read(bytes_of_all).await
    }

    /// Deletes an artifact; its bytes follow if nothing else uses them.
    pub async fn delete_artifact(&self, artifact: Artifact) -> Result<(), StoreError> {
        self.artifact_change(move |connection| delete(connection, &artifact)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open::open;

    fn database() -> (tempfile::TempDir, Connection) {
        let dir = tempfile::tempdir().unwrap();
        let (connection, _) = open(&dir.path().join("linger.db")).unwrap();
        (dir, connection)
    }

    /// Puts the `n`th artifact: of a tool, whose share is `max_made`, if it has a session.
    fn put(
        (connection, max_made): (&Connection, u64),
        n: u64,
        size: u64,
        session: Option<&str>,
    ) -> Result<Artifact, NoRoom> {
        let new = Artifact {
            id: ArtifactId(random_id(if session.is_some() { 8 } else { 4 }).unwrap()),
            name: format!("{n}.png"),
            content_type: "image/png".to_owned(),
            size,
            sha256: format!("{n:064x}"),
            created_at: n,
            by: format!("shot of {}", session.unwrap_or("s1")),
        };
        match session {
            Some(session) => add_made(connection, new, session, max_made).unwrap(),
            None => add(connection, &new).map(|()| Ok(new)).unwrap(),
        }
    }

    fn names(connection: &Connection) -> String {
        let sql = "SELECT coalesce(group_concat(name, ' '), '') FROM (SELECT name FROM artifact ORDER BY created_at)";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn what_tools_make_has_a_share_of_its_own_that_the_oldest_leave() {
        let (_dir, connection) = database();
        let put = |n, size, session| put((&connection, 4 * LEAST), n, size, session);
        put(1, LEAST, None).unwrap();
        for n in 2..=5 {
            put(n, if n == 2 { 1 } else { LEAST }, Some("s1")).unwrap();
        }
        assert_eq!(names(&connection), "1.png 2.png 3.png 4.png 5.png");
        put(6, 2 * LEAST, Some("s2")).unwrap();
        assert_eq!(names(&connection), "1.png 4.png 5.png 6.png", "a small one takes as much, and a client's stays");
        let strays: i64 = connection.query_row("SELECT count(*) FROM stray", [], |row| row.get(0)).unwrap();
        let blobs: i64 = connection.query_row("SELECT count(*) FROM blob", [], |row| row.get(0)).unwrap();
        assert_eq!((strays, blobs), (2, 4), "their bytes go too");
        // Where those of clients leave less than the share, it is so much smaller.
        put(7, MAX_ALL - 3 * LEAST, None).unwrap();
        put(8, LEAST, Some("s1")).unwrap();
        assert_eq!(names(&connection), "1.png 7.png 8.png");
        assert_eq!(put(9, 3 * LEAST, Some("s1")), Err(NoRoom::All));
    }

    #[test]
    fn the_same_bytes_count_once_in_a_session_and_leave_with_it() {
        let (_dir, connection) = database();
        let put = |n, size, session| put((&connection, MAX_MADE), n, size, session);
        let first = put(1, 5, Some("s1")).unwrap();
        assert_eq!(put(1, 5, Some("s1")).unwrap().id, first.id);
        let other = put(1, 5, Some("s2")).unwrap();
        assert_ne!(other.id, first.id);
        // A client may call itself anything.
        let own = put(2, 5, None).unwrap();
        delete_of(&connection, "s1", 0).unwrap();
        let left: Vec<_> = all(&connection).unwrap().into_iter().map(|it| it.id).collect();
        assert!(left.len() == 2 && left.contains(&other.id) && left.contains(&own.id), "{left:?}");
        let is_used = "SELECT 1 FROM blob WHERE hash = ?";
        let is_used = |it: &Artifact| connection.prepare(is_used).unwrap().exists([blob_of(it).as_str()]).unwrap();
        assert!(is_used(&other) && is_used(&own));
        delete_of(&connection, "s2", 0).unwrap();
        assert!(!is_used(&other) && is_used(&own));
    }

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
