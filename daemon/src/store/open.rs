//! Opening the database: the daemon starts, whatever it finds.
//!
//! An unusable database is set aside ([`super::aside`]) and a new one created; a repair copies its sessions. A start checks the
//! header, the schema and the ids of all sessions, which takes milliseconds; deeper damage is detected by the query that meets it
//! ([`super::damage`]). All of it is read only before its schema changes. Until the checks pass, nothing is written, not even by
//! closing, so that the database is set aside byte for byte.
//! A database of a later linger is set aside too.
//! A new database is created under another name and renamed, so that an empty or incomplete one is always damage.
//! While a connection is open, only SQLite opens the database and its index: when a process closes any descriptor of a file, it
//! loses all its locks on it (fcntl(2)).
//! A network file system is refused: the WAL's index is shared memory, which two machines do not share, and locks there are
//! unreliable.

use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ffi};

use super::aside::{self, AsideKind, Report};
use super::damage::is_damage;
use super::files::{self, PARTS};
use super::migrate::{self, APPLICATION, SCHEMA};
use crate::fault;
use crate::sys::clock;

/// Page cache of each connection in KiB: sessions read their log once and forward.
const CACHE_KIB: i64 = 256;

/// The WAL is cut back to this size after a checkpoint, in bytes.
const WAL_LIMIT: i64 = 16 << 20;

/// The database's `auto_vacuum`: free pages are given back when they are asked for, and move nothing otherwise.
pub(crate) const INCREMENTAL: i64 = 2;

/// How long another process, such as `sqlite3`, may lock the database.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The first bytes of every database (<https://sqlite.org/fileformat.html>, 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Why a database is not used.
enum Trouble {
    Damaged(String),
    Newer(i64),
    /// The system's, which setting aside does not help.
    Other(anyhow::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error().map(|error| error.extended_code) {
            _ if is_damage(&error) => Self::Damaged(error.to_string()),
            Some(ffi::SQLITE_IOERR_SHMSIZE) => {
                Self::Other(anyhow::Error::from(error).context("the disk has no room for its index, which is 32 KiB"))
            }
            _ => Self::Other(error.into()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

/// The path of the database without links, because its WAL is there. A link to something that is not a file stays: then the link is
/// set aside.
pub fn own_path(path: &Path) -> PathBuf {
    path.canonicalize().ok().filter(|own| own.is_file()).unwrap_or_else(|| path.to_path_buf())
}

/// A connection for writing to a database of this schema, made if there is none, and one for reading.
pub fn open(path: &Path) -> anyhow::Result<(Connection, Connection)> {
    refuse_network(path)?;
    let failed = || format!("{}: cannot set the database aside", path.display());
    aside::finish(path).with_context(failed)?;
    // SQLite looks there before it opens anything.
    files::move_away(&files::with(path, "-journal")).with_context(failed)?;
    let write = match path.symlink_metadata() {
        Ok(_) => match usable(path) {
            Ok(connection) => connection,
            Err(trouble) => {
                let (kind, schema, reason) = match trouble {
                    Trouble::Damaged(reason) if fault::bug("I14") => anyhow::bail!(reason),
                    Trouble::Damaged(reason) => (AsideKind::Database, 0, reason),
                    Trouble::Newer(version) => (AsideKind::Newer, version, newer(version)),
                    Trouble::Other(error) => {
                        return Err(error.context(format!("{}: cannot open the database", path.display())));
                    }
                };
                aside::begin(path, Report { kind, schema, reason, at: clock::now(), ..Report::default() })
                    .with_context(failed)?;
                aside::finish(path).with_context(failed)?;
                create(path)?
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            aside::orphan(path).with_context(failed)?;
            create(path)?
        }
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let read = connect(path)?;
    read.pragma_update(None, "query_only", true)?;
    Ok((write, read))
}

fn newer(version: i64) -> String {
    format!("its schema is version {version}, this lingerd knows {SCHEMA}: a newer one wrote it")
}

/// Opens a connection with its settings.
pub fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    settle(&connection)?;
    Ok(connection)
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    // The writing thread moves the WAL at the end. SQLite would also delete it, and the next start may have no room for a new one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_LIMIT, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Creates a database under another name, and renames it when it is complete and synced.
fn create(path: &Path) -> anyhow::Result<Connection> {
    let new = files::with(path, ".new");
    let made = (|| {
        // Of a start that was killed here.
        files::clear_database(&new)?;
        // SQLite gives the WAL and its index the mode of the database.
        let file = files::private_file(&new)?;
        let connection = Connection::open(&new)?;
        // One sync at the end is enough.
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update_and_check(None, "journal_mode", "MEMORY", |_| Ok(()))?;
        // Possible only while it is empty.
        connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
        connection.execute_batch(&format!("BEGIN; {} COMMIT;", migrate::sql(0, SCHEMA)))?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)?;
        file.sync_all()?;
        drop(file);
        std::fs::rename(&new, path)?;
        let connection = connect(path)?;
        // Begins the WAL, without the sync of its header that nothing follows yet. The first commit that is synced takes the
        // directory along, as SQLite does for a new WAL, and thus the name of the database.
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "user_version", SCHEMA)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        anyhow::Ok(connection)
    })();
    made.with_context(|| format!("{}: cannot make the database", path.display()))
}

/// Opens an existing database, read-only until the checks pass, and brings it to this schema.
fn usable(path: &Path) -> Result<Connection, Trouble> {
    look(path)?;
    for part in PARTS {
        make_private(&files::with(path, part))?;
    }
    let connection = Connection::open(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let version = check(&connection)?;
    if (1..SCHEMA).contains(&version) {
        // A step must not fail halfway.
        check_all(&connection)?;
    }
    if !connection.is_readonly(rusqlite::MAIN_DB)? {
        keep_lost_commits(path, &connection)?;
    }
    migrate::migrate(&connection, path, version).map_err(|error| match error.downcast::<rusqlite::Error>() {
        Ok(error) => Trouble::from(error),
        Err(error) => Trouble::Other(error),
    })?;
    settle(&connection)?;
    Ok(connection)
}

/// Checks without SQLite, which takes an empty file for a new database and deletes its WAL.
fn look(path: &Path) -> Result<(), Trouble> {
    for part in PARTS {
        let other = files::with(path, part).symlink_metadata().is_ok_and(|meta| !meta.is_file());
        if other {
            return Err(Trouble::Damaged(format!("linger.db{part} is not a file")));
        }
    }
    let mut header = Vec::new();
    // What it begins with, and the size of its pages.
    std::fs::File::open(path)?.take(MAGIC.len() as u64 + 2).read_to_end(&mut header)?;
    let size = std::fs::metadata(path)?.len();
    // A checkpoint that was killed may have left half a page; all of it is in the WAL.
    let torn =
        |page: u64| size % page != 0 && std::fs::metadata(files::with(path, "-wal")).map_or(0, |meta| meta.len()) == 0;
    match header.as_slice() {
        [] => Err(Trouble::Damaged("it is empty".to_owned())),
        [magic @ .., high, low] if magic == MAGIC => match u64::from(u16::from_be_bytes([*high, *low])) {
            page @ 512.. if torn(page) => Err(Trouble::Damaged("it ends in the middle of a page".to_owned())),
            _ => Ok(()),
        },
        _ => Err(Trouble::Damaged("it does not begin as a database does".to_owned())),
    }
}

/// Checks the schema and the ids of sessions; gives the version.
fn check(connection: &Connection) -> Result<i64, Trouble> {
    connection.busy_timeout(PATIENCE)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let found = schema(connection)?;
    if version == 0 && found.is_empty() {
        return Ok(0);
    }
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION {
        let text = "a build from before the first release wrote it, or another program";
        return Err(Trouble::Damaged(text.to_owned()));
    }
    if version > SCHEMA {
        return Err(Trouble::Newer(version));
    }
    let model = Connection::open_in_memory()?;
    model.execute_batch(&migrate::sql(0, version))?;
    let expected = schema(&model)?;
    if version <= 0 || expected.iter().any(|part| !found.contains(part)) {
        return Err(Trouble::Damaged(format!("it has not the schema of a linger database of version {version}")));
    }
    for (table, ..) in expected.iter().filter(|(name, kind, _)| kind == "table" && !name.starts_with("sqlite_")) {
        connection.prepare(&format!("SELECT 1 FROM \"{table}\" LIMIT 1"))?.exists([])?;
    }
    let mut sessions = connection.prepare("SELECT id, state FROM session")?;
    let mut rows = sessions.query([])?;
    while let Some(row) = rows.next()? {
        row.get_ref(0)?;
    }
    Ok(version)
}

/// Reads everything, before a schema step.
fn check_all(connection: &Connection) -> Result<(), Trouble> {
    let complaint: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if complaint == "ok" { Ok(()) } else { Err(Trouble::Damaged(complaint)) }
}

/// Name, type and text of everything in the schema.
fn schema(connection: &Connection) -> rusqlite::Result<Vec<(String, String, Option<String>)>> {
    let mut statement = connection.prepare("SELECT name, type, sql FROM sqlite_schema")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

/// Copies a WAL that has commits after its first unreadable page: SQLite will overwrite them.
///
/// A killed process leaves none: the last page of a commit is written after its others. They are a sign of a power cut, or of damage. (Formats: <https://sqlite.org/walformat.html>.)
fn keep_lost_commits(path: &Path, connection: &Connection) -> Result<(), Trouble> {
    let Ok(wal) = std::fs::File::open(files::with(path, "-wal")) else { return Ok(()) };
    // How many pages of it are readable. The index has that too, but only SQLite may open it.
    let (readable, _) = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::NOOP)?;
    // In the WAL's header the size of a page is at 8 and the salt at 16; in that of a page its commit mark at 4, the salt at 8.
    let at = |file: &std::fs::File, at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    };
    let (Some(page), Some(salts)) = (at(&wal, 8), at(&wal, 16).zip(at(&wal, 20))) else { return Ok(()) };
    let step = 24 + u64::from(u32::from_be_bytes(page));
    let mut next = 32 + u64::try_from(readable).unwrap_or(0) * step;
    let (mut lost, mut more) = (0, false);
    while let (Some(commit), Some(salts_here)) = (at(&wal, next + 4), at(&wal, next + 8).zip(at(&wal, next + 12))) {
        let written = salts_here == salts;
        more |= written && lost > 0;
        lost += u64::from(written && commit != [0; 4]);
        next += step;
    }
    if more {
        let reason = format!("{lost} commits at the end of the WAL cannot be read; what comes before them is in use");
        let copy = aside::copy_wal(path, reason)?;
        tracing::error!(target: "store", lost, file = %copy.display(), "the end of the WAL cannot be read; a copy was kept");
    }
    Ok(())
}

/// Gives an existing file the mode 0600.
fn make_private(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.permissions().mode() & 0o777 != 0o600 => {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a directory on a network file system.
fn refuse_network(path: &Path) -> anyhow::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let kind = rustix::fs::statfs(dir).with_context(|| dir.display().to_string())?.f_type;
    // Not all systems have the same type there; all values are 32 bits.
    let name = network_file_system(kind as u32, || fuse_type(dir));
    match name {
        None => Ok(()),
        Some(name) => anyhow::bail!(
            "{} lies on a network file system ({name}), where a database is not safe; let XDG_DATA_HOME name a directory on a local disk",
            dir.display()
        ),
    }
}

/// The name of a file system that other machines may use at the same time, by its number in `statfs`.
///
/// The numbers are those of Linux (`linux/magic.h`, and the file systems' own headers). FUSE has one number for all its file
/// systems, many of them local: there the type of the mount decides.
pub fn network_file_system(kind: u32, fuse: impl FnOnce() -> Option<String>) -> Option<String> {
    let name = match kind {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xfe53_4d42 => "SMB2",
        0xff53_4d42 => "CIFS",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x564c => "NCP",
        // Directories of the host of a virtual machine, Windows' drives in WSL: no locks, and the host writes too.
        0x0102_1997 => "9p",
        0x786f_4256 => "vboxsf",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x4750_4653 => "GPFS",
        0x6573_5546 => {
            const REMOTE: [&str; 14] = [
                "sshfs",
                "rclone",
                "s3fs",
                "gcsfuse",
                "goofys",
                "mount-s3",
                "blobfuse",
                "davfs",
                "curlftpfs",
                "smbnetfs",
                "glusterfs",
                "ceph",
                "juicefs",
                "moosefs",
            ];
            let mounted = fuse()?;
            let kind = mounted.strip_prefix("fuse.").unwrap_or(&mounted);
            return REMOTE.iter().any(|remote| kind.starts_with(remote)).then(|| mounted.clone());
        }
        _ => return None,
    };
    Some(name.to_owned())
}

/// The type of the mount that `dir` lies on, such as `fuse.sshfs`.
fn fuse_type(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_type(&mounts, &dir)
}

/// The type of the innermost mount above `dir` (proc(5), `/proc/pid/mountinfo`).
fn mount_type(mounts: &str, dir: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = PathBuf::from(unescape(left.split(' ').nth(4)?));
        dir.starts_with(&point).then(|| Some((point.components().count(), right.split(' ').next()?.to_owned())))?
    };
    // The last mount on a point is the visible one.
    mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// Spaces and the like stand as `\040` there.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
#[path = "open_tests.rs"]
pub(crate) mod tests;
