//! Damage of every kind to copies of a real database: the store opens, and what it does not use is set aside byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::store::aside::Aside;
use crate::store::event_row::sum;
use crate::store::rng::Rng;
use crate::store::{Store, damage};

/// The database of a daemon that was killed, of the first schema: with a blob, and a removed session that is not deleted yet.
pub(crate) const SCHEMA_1: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/schema-1.sql"));

/// How many damaged copies are opened.
pub(crate) const SEEDS: u64 = 300;

/// A database with some sessions of three pages and more; with what was written last in its WAL, as after a kill.
fn killed() -> TempDir {
    killed_with(|_, _, _| ())
}

/// As [`killed`], with a `set_head` that gives a session's state the number of its last event.
pub(crate) fn killed_with(set_head: impl Fn(&Connection, &str, i64)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "auto_vacuum", crate::store::INCREMENTAL).unwrap();
    connection.execute_batch(SCHEMA_1).unwrap();
    settle(&connection).unwrap();
    let add = |session: &str, seq: i64| {
        let data = format!(
            "{{\"kind\":\"notice\",\"level\":\"info\",\"text\":\"{}\",\"seq\":{seq},\"at\":1}}",
            "x".repeat(500)
        );
        connection
            .execute(
                "INSERT INTO event (session, seq, at, kind, data, sum) VALUES (?, ?, 1, 'notice', ?, ?)",
                (session, seq, &data, sum(session.as_bytes(), &data)),
            )
            .unwrap();
    };
    let sessions = [("37grq28w2p", 8), ("3c725prqhm", 11), ("hmp369g2kx", 12), ("m55bcbgrhy", 5)];
    for (session, next) in sessions {
        (next..next + 40).for_each(|seq| add(session, seq));
        set_head(&connection, session, next + 39);
    }
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())).unwrap();
    for (session, next) in sessions {
        (next + 40..next + 45).for_each(|seq| add(session, seq));
        set_head(&connection, session, next + 44);
    }
    let killed = tempfile::tempdir().unwrap();
    for part in PARTS {
        fs::copy(files::with(&path, part), files::with(&killed.path().join("linger.db"), part)).unwrap();
    }
    killed
}

pub(crate) fn copy_of(dir: &TempDir) -> (TempDir, PathBuf) {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let path = copy.path().join("linger.db");
    (copy, path)
}

/// The content of a database and its WAL, if it has any. SQLite may create an empty WAL, and rewrites its index.
pub(crate) fn files(path: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    let read = |part| Some((part, fs::read(files::with(path, part)).ok().filter(|bytes| !bytes.is_empty())?));
    ["", "-wal"].into_iter().filter_map(read).collect()
}

/// Opens what must open; gives what was set aside, which must be what was there.
#[track_caller]
pub(crate) fn opens(path: &Path, what: &str) -> Vec<Aside> {
    let found = files(path);
    let (write, read) = open(path).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    drop((write, read));
    let asides = aside::list(path);
    for aside in &asides {
        if aside.report.kind == AsideKind::Wal {
            assert_eq!(fs::read(&aside.path).unwrap(), found["-wal"], "{what}: the WAL that was kept");
        } else {
            assert!(files(&aside.path) == found, "{what}: what was set aside is not what was found");
        }
    }
    asides
}

/// How many sessions there are.
fn sessions(path: &Path) -> i64 {
    Connection::open(path).unwrap().query_row("SELECT count(*) FROM session", [], |row| row.get(0)).unwrap()
}

#[test]
fn whatever_bytes_are_flipped_the_store_opens_and_sets_aside_what_it_does_not_use() {
    let original = killed();
    let (mut kept, mut set_aside) = (0, 0);
    for seed in 0..SEEDS {
        let (_dir, path) = copy_of(&original);
        let mut rng = Rng(seed);
        let file = files::with(&path, ["", "", "", "-wal", "-shm"][rng.below(5)]);
        let mut bytes = fs::read(&file).unwrap();
        let how = rng.below(4);
        match how {
            0 => (0..1 + rng.below(8)).for_each(|_| {
                let at = rng.below(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }),
            // A torn page: half of it is what never was.
            1 => {
                let at = rng.below(bytes.len() / 512) * 512;
                (at..bytes.len().min(at + 2048)).for_each(|at| bytes[at] = rng.below(256) as u8);
            }
            2 => bytes.truncate(rng.below(bytes.len())),
            _ => (0..100.min(bytes.len())).for_each(|at| bytes[at] = rng.below(256) as u8),
        }
        fs::write(&file, bytes).unwrap();
        let what = format!("seed {seed}, {how} in {}", file.display());
        match opens(&path, &what).iter().filter(|aside| aside.report.kind != AsideKind::Wal).count() {
            0 => kept += 1,
            _ => set_aside += 1,
        }
        // And what is used can be used.
        let store = Store::open(&path).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let rows = runtime.block_on(store.sessions(Default::default(), 1000, None, |row| row));
        rows.unwrap_or_else(|error| panic!("{what}: sessions cannot be listed: {error}"));
    }
    assert!(kept > SEEDS / 10 && set_aside > SEEDS / 10, "{kept} kept, {set_aside} set aside: both must be tried");
}

#[test]
fn empty_files_garbage_directories_and_databases_of_others_are_set_aside() {
    let others = tempfile::tempdir().unwrap();
    Connection::open(others.path().join("x")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    for content in [Vec::new(), b"hello".to_vec(), vec![0; 9000], fs::read(others.path().join("x")).unwrap()] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("linger.db");
        fs::write(&path, &content).unwrap();
        assert_eq!(opens(&path, "garbage").len(), 1);
        drop(open(&path).unwrap());
        assert_eq!(aside::list(&path).len(), 1, "it is set aside once");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("precious"), "x").unwrap();
    drop(open(&path).unwrap());
    let asides = aside::list(&path);
    assert_eq!(fs::read_to_string(asides[0].path.join("precious")).unwrap(), "x");
}

#[test]
fn a_database_of_a_build_from_before_the_first_release_is_set_aside_and_named() {
    let (_dir, path) = copy_of(&killed());
    Connection::open(&path).unwrap().pragma_update(None, "application_id", 0).unwrap();
    let asides = opens(&path, "an early build");
    assert_eq!(asides.len(), 1);
    assert_eq!(asides[0].report.kind, AsideKind::Database);
    assert!(asides[0].report.reason.contains("a build from before the first release wrote it"), "{:?}", asides[0]);
}

#[test]
fn a_database_of_a_later_linger_is_set_aside_untouched() {
    let (_dir, path) = copy_of(&killed());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", SCHEMA + 1).unwrap();
    let asides = opens(&path, "newer");
    assert_eq!(asides.len(), 1);
    assert_eq!(asides[0].report.kind, AsideKind::Newer);
    assert!(asides[0].path.to_str().unwrap().contains("linger.db.newer-"));
}

#[test]
fn a_daemon_that_is_killed_while_it_sets_aside_goes_on_with_it() {
    for killed_after in 0..=PARTS.len() {
        let (_dir, path) = copy_of(&killed());
        let found = files(&path);
        let to = aside::begin(&path, Report { reason: "a test".to_owned(), at: 1, ..Report::default() }).unwrap();
        for part in PARTS.iter().take(killed_after) {
            fs::rename(files::with(&path, part), files::with(&to, part)).unwrap();
        }
        drop(open(&path).unwrap());
        assert!(files(&to) == found, "after {killed_after} renames");
        let asides = aside::list(&path);
        assert_eq!(asides.len(), 1, "after {killed_after} renames");
        assert_eq!(asides[0].report.reason, "a test");
        assert!(!files::with(&path, ".setting-aside").exists());
        assert_eq!(sessions(&path), 0, "the new one is empty");
    }
}

#[test]
fn a_wal_without_its_database_is_not_taken_for_that_of_the_new_one() {
    let (_dir, path) = copy_of(&killed());
    let wal = fs::read(files::with(&path, "-wal")).unwrap();
    fs::remove_file(&path).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(sessions(&path), 0);
    let asides = aside::list(&path);
    assert!(asides.iter().any(|aside| fs::read(&aside.path).unwrap() == wal), "{asides:?}");
}

/// Whether this process has a lock on a file. The system's list is read in pieces, and what others lock meanwhile may push an entry
/// out of all of them; not of twenty in a row.
#[cfg(target_os = "linux")]
fn is_locked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (inode, pid) = (fs::metadata(path).unwrap().ino().to_string(), std::process::id().to_string());
    let is_listed = |line: &str| {
        // 1: POSIX  ADVISORY  READ 4711 08:02:131090 1073741826 1073742335
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(4) == Some(&pid.as_str()) && words.get(5).and_then(|file| file.rsplit(':').next()) == Some(&inode)
    };
    (0..20).any(|_| fs::read_to_string("/proc/locks").unwrap().lines().any(is_listed))
}

#[test]
#[cfg(target_os = "linux")]
fn the_locks_that_keep_others_from_taking_it_for_unused_are_held() {
    let new = tempfile::tempdir().unwrap();
    let old = killed();
    for path in [new.path().join("linger.db"), old.path().join("linger.db")] {
        for time in ["first", "second"] {
            let connections = open(&path).unwrap();
            for part in ["", "-shm"] {
                assert!(is_locked(&files::with(&path, part)), "{}{part}, opened for the {time} time", path.display());
            }
            // As a kill leaves it: with a WAL.
            connections.0.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
            connections.1.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        }
    }
}

#[test]
fn files_that_others_could_read_are_the_users_alone_afterwards() {
    let (_dir, path) = copy_of(&killed());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for part in PARTS {
        fs::set_permissions(files::with(&path, part), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let (_write, _read) = open(&path).unwrap();
    PARTS.iter().for_each(|part| assert_eq!(mode(&files::with(&path, part)), 0o600, "linger.db{part}"));
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("linger.db");
    let (_write, _read) = open(&new).unwrap();
    PARTS.iter().for_each(|part| assert_eq!(mode(&files::with(&new, part)), 0o600, "a new linger.db{part}"));
}

#[test]
fn a_read_error_is_damage_and_a_full_disk_is_none() {
    let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
    use rusqlite::ffi;
    for (code, expect) in [
        (ffi::SQLITE_CORRUPT, true),
        (ffi::SQLITE_NOTADB, true),
        (ffi::SQLITE_IOERR_READ, true),
        (ffi::SQLITE_IOERR_WRITE, false),
        (ffi::SQLITE_IOERR_FSYNC, false),
        (ffi::SQLITE_FULL, false),
        (ffi::SQLITE_BUSY, false),
        (ffi::SQLITE_CONSTRAINT, false),
    ] {
        assert_eq!(damage::is_damage(&failure(code)), expect, "{code}");
    }
}

#[test]
fn network_file_systems_are_known_by_their_numbers_and_fuse_by_the_mount() {
    let name = |kind: u32, fuse: Option<&str>| network_file_system(kind, || fuse.map(str::to_owned));
    for (kind, expect) in [
        (0x6969, Some("NFS")),
        (0xff53_4d42, Some("CIFS")),
        (0xfe53_4d42, Some("SMB2")),
        (0x517b, Some("SMB")),
        (0x5346_414f, Some("AFS")),
        (0x0102_1997, Some("9p")),
        (0x00c3_6400, Some("Ceph")),
        // ext4, btrfs, xfs, tmpfs, zfs, overlayfs, f2fs, ecryptfs
        (0xef53, None),
        (0x9123_683e, None),
        (0x5846_5342, None),
        (0x0102_1994, None),
        (0x2fc1_2fc1, None),
        (0x794c_7630, None),
        (0xf2f5_2010, None),
        (0xf15f, None),
    ] {
        assert_eq!(name(kind, None).as_deref(), expect, "{kind:x}");
    }
    let fuse = 0x6573_5546;
    assert_eq!(name(fuse, Some("fuse.sshfs")).as_deref(), Some("fuse.sshfs"));
    assert_eq!(name(fuse, Some("fuse.glusterfs")).as_deref(), Some("fuse.glusterfs"));
    assert_eq!(name(fuse, Some("fuse.gocryptfs")), None);
    assert_eq!(name(fuse, Some("fuseblk")), None);
    assert_eq!(name(fuse, None), None);
}

#[test]
fn the_innermost_and_latest_mount_says_what_a_directory_lies_on() {
    let mounts = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
                  30 22 0:40 / /home/u rw shared:2 - ext4 /dev/sdb rw\n\
                  31 22 0:41 / /home/u rw shared:2 - fuse.sshfs h:/x rw\n\
                  32 31 0:42 / /home/u/my\\040disk rw - fuseblk /dev/sdc rw\n";
    let kind = |dir: &str| mount_type(mounts, Path::new(dir));
    assert_eq!(kind("/var").as_deref(), Some("ext4"));
    assert_eq!(kind("/home/u/.local").as_deref(), Some("fuse.sshfs"));
    assert_eq!(kind("/home/u/my disk/x").as_deref(), Some("fuseblk"));
    assert_eq!(kind("/home/user").as_deref(), Some("ext4"));
}
