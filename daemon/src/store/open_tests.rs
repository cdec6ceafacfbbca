//! Damage of every kind to copies of a real database: the store opens, and what it does not use is set aside byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use linger_protocol::id::SessionId;
use tempfile::TempDir;

use super::*;
use crate::recover::salvage::{self, Examined};
use crate::recover::source::{Source, Unreadable};
use crate::session::state::State;
use crate::store::aside::Aside;
use crate::store::event_row::{said, sum};
use crate::store::rng::Rng;
use crate::store::{Store, damage};

/// The database of a daemon that was killed, of the first schema: with a blob, and a removed session that is not deleted yet.
const SCHEMA_1: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/schema-1.sql"));

/// How many damaged copies are opened.
const SEEDS: u64 = 300;

fn examine(connection: &Connection, id: &str) -> Examined {
    salvage::examine(connection, id, said)
}

fn ids(connection: &Connection) -> Vec<String> {
    salvage::ids(connection).0
}

fn set_head(connection: &Connection, session: &str, head: i64) {
    let fold: String =
        connection.query_row("SELECT fold FROM session WHERE id = ?", [session], |row| row.get(0)).unwrap();
    let state = State { head: head as u64, ..State::from_stored(&fold).unwrap() };
    connection.execute("UPDATE session SET fold = ? WHERE id = ?", [&state.to_stored(), session]).unwrap();
}

/// A database with some sessions of three pages and more; with what was written last in its WAL, as after a kill.
pub(crate) fn killed() -> TempDir {
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
        fs::copy(aside::with(&path, part), aside::with(&killed.path().join("linger.db"), part)).unwrap();
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

/// The files of a database, as they lie there.
pub(crate) fn files(path: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    PARTS.iter().filter_map(|part| Some((*part, fs::read(aside::with(path, part)).ok()?))).collect()
}

/// Opens what must open; gives what was set aside, which must be what was there.
#[track_caller]
fn opens(path: &Path, what: &str) -> Vec<Aside> {
    let found = files(path);
    let (write, read) = open(path).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    drop((write, read));
    let asides = aside::list(path);
    for aside in &asides {
        if aside.report.kind == Kind::Wal {
            assert_eq!(fs::read(&aside.path).unwrap(), found["-wal"], "{what}: the WAL that was kept");
        } else {
            assert!(files(&aside.path) == found, "{what}: what was set aside is not what was found");
        }
    }
    asides
}

/// How many sessions can be read whole, after their carrying over or without it.
fn whole(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    ids(&connection).iter().filter(|id| examine(&connection, id).broken.is_none()).count()
}

#[test]
fn a_database_that_was_killed_is_opened_with_everything_in_its_wal() {
    let (_dir, path) = copy_of(&killed());
    assert_eq!(opens(&path, "killed"), []);
    assert_eq!(whole(&path), 7);
    let connection = Connection::open(&path).unwrap();
    assert_eq!(examine(&connection, "3c725prqhm").events, 55);
}

#[test]
fn whatever_bytes_are_flipped_the_store_opens_and_sets_aside_what_it_does_not_use() {
    let original = killed();
    let (mut kept, mut set_aside) = (0, 0);
    for seed in 0..SEEDS {
        let (_dir, path) = copy_of(&original);
        let mut rng = Rng(seed);
        let file = aside::with(&path, ["", "", "", "-wal", "-shm"][rng.below(5)]);
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
        match opens(&path, &what).iter().filter(|aside| aside.report.kind != Kind::Wal).count() {
            0 => kept += 1,
            _ => set_aside += 1,
        }
        // And what is used can be used.
        let store = Store::open(&path).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let rows = runtime.block_on(store.sessions(None, None, 1000, |row| row));
        rows.unwrap_or_else(|error| panic!("{what}: sessions cannot be listed: {error}"));
    }
    assert!(kept > SEEDS / 10 && set_aside > SEEDS / 10, "{kept} kept, {set_aside} set aside: both must be tried");
}

#[test]
fn whatever_length_it_is_cut_to_the_store_opens_and_what_is_left_of_sessions_is_found() {
    let original = killed();
    let length = fs::metadata(original.path().join("linger.db")).unwrap().len();
    let mut found = 0;
    for seed in 0..SEEDS / 4 {
        let (_dir, path) = copy_of(&original);
        let mut rng = Rng(seed);
        // Without its WAL, which has the last pages.
        fs::remove_file(aside::with(&path, "-wal")).unwrap();
        fs::remove_file(aside::with(&path, "-shm")).unwrap();
        let cut = rng.below(length as usize) as u64;
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let asides = opens(&path, &format!("cut to {cut}"));
        assert_eq!(asides.len(), 1, "cut to {cut}");
        if let Ok(source) = Source::open(&asides[0].path) {
            let sessions = ids(&source.connection);
            let events = |id: &String| examine(&source.connection, id).events;
            found += sessions.iter().map(events).sum::<u64>();
        }
    }
    assert!(found > 0, "something is left of most");
}

#[test]
fn with_its_first_page_gone_everything_else_is_read() {
    for length in [16, 100, PAGE] {
        let (_dir, path) = copy_of(&killed());
        let mut bytes = fs::read(&path).unwrap();
        bytes[..length].fill(0xaa);
        fs::write(&path, bytes).unwrap();
        let asides = opens(&path, "no first page");
        assert_eq!(asides.len(), 1);
        let before = files(&asides[0].path);
        let source = Source::open(&asides[0].path).unwrap();
        let sessions = ids(&source.connection);
        assert_eq!(sessions.len(), 8, "{length} bytes are gone");
        // One was removed, and has events only.
        for id in sessions.into_iter().filter(|id| id != "jd6jypey8m") {
            let examined = examine(&source.connection, &id);
            assert_eq!((examined.broken, examined.stale), (None, false), "{id}");
        }
        drop(source);
        assert!(files(&asides[0].path) == before, "reading changed it");
        assert!(!aside::with(&asides[0].path, ".reading").exists());
    }
}

#[test]
fn what_was_removed_and_which_blobs_are_used_is_known_of_a_database_that_was_set_aside() {
    let image = "sha256:6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA_1).unwrap();
    let source = Source::open(&path).unwrap();
    assert_eq!(source.removed().iter().map(String::as_str).collect::<Vec<_>>(), ["jd6jypey8m"]);
    let blobs = salvage::blobs(&source.page("nan4p4avy9", 0, 6));
    assert_eq!(blobs.iter().map(linger_protocol::id::BlobId::as_str).collect::<Vec<_>>(), [image]);
}

/// The size of a page.
const PAGE: usize = 4096;

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
    assert_eq!(asides[0].report.kind, Kind::Database);
    assert!(asides[0].report.reason.contains("a build from before the first release wrote it"), "{:?}", asides[0]);
}

#[test]
fn a_database_of_a_later_linger_is_set_aside_untouched_and_taken_back_by_one_that_knows_it() {
    let (_dir, path) = copy_of(&killed());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", SCHEMA + 1).unwrap();
    let asides = opens(&path, "newer");
    assert_eq!(asides.len(), 1);
    assert_eq!(asides[0].report.kind, Kind::Newer);
    assert!(asides[0].path.to_str().unwrap().contains("linger.db.newer-"));
    assert!(matches!(Source::open(&asides[0].path), Err(Unreadable::Newer(v)) if v == SCHEMA + 1));
    Connection::open(&asides[0].path).unwrap().pragma_update(None, "user_version", SCHEMA).unwrap();
    assert!(Source::open(&asides[0].path).is_ok());
}

#[test]
fn a_daemon_that_is_killed_while_it_sets_aside_goes_on_with_it() {
    for killed_after in 0..=PARTS.len() {
        let (_dir, path) = copy_of(&killed());
        let found = files(&path);
        let to = aside::begin(&path, Report { reason: "a test".to_owned(), at: 1, ..Report::default() }).unwrap();
        for part in PARTS.iter().take(killed_after) {
            fs::rename(aside::with(&path, part), aside::with(&to, part)).unwrap();
        }
        drop(open(&path).unwrap());
        assert!(files(&to) == found, "after {killed_after} renames");
        let asides = aside::list(&path);
        assert_eq!(asides.len(), 1, "after {killed_after} renames");
        assert_eq!(asides[0].report.reason, "a test");
        assert!(!aside::with(&path, ".setting-aside").exists());
        assert_eq!(whole(&path), 0, "the new one is empty");
    }
}

#[test]
fn a_wal_without_its_database_is_not_taken_for_that_of_the_new_one() {
    let (_dir, path) = copy_of(&killed());
    let wal = fs::read(aside::with(&path, "-wal")).unwrap();
    fs::remove_file(&path).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(whole(&path), 0);
    let asides = aside::list(&path);
    assert!(asides.iter().any(|aside| fs::read(&aside.path).unwrap() == wal), "{asides:?}");
}

#[test]
fn a_wal_that_is_damaged_in_the_middle_is_kept_and_what_comes_before_is_used() {
    let (_dir, path) = copy_of(&killed());
    let wal = aside::with(&path, "-wal");
    let mut bytes = fs::read(&wal).unwrap();
    let middle = 32 + (bytes.len() - 32) / (24 + PAGE) / 2 * (24 + PAGE) + 24;
    bytes[middle + 100] ^= 0x40;
    fs::write(&wal, &bytes).unwrap();
    let asides = opens(&path, "a WAL with a hole");
    assert_eq!(
        asides.iter().map(|aside| (aside.report.kind, aside.report.settled)).collect::<Vec<_>>(),
        [(Kind::Wal, true)]
    );
    assert!(asides[0].report.reason.contains("commits at the end of the WAL cannot be read"));
    let read = examine(&Connection::open(&path).unwrap(), "37grq28w2p");
    assert_eq!((read.broken, read.stale), (None, false), "a commit is there whole or not at all");
    // A WAL that merely ends is what every kill leaves.
    let (_dir, path) = copy_of(&killed());
    let wal = aside::with(&path, "-wal");
    let length = fs::metadata(&wal).unwrap().len();
    fs::OpenOptions::new().write(true).open(&wal).unwrap().set_len(length - 3000).unwrap();
    assert_eq!(opens(&path, "a WAL that ends"), []);
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
                assert!(is_locked(&aside::with(&path, part)), "{}{part}, opened for the {time} time", path.display());
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
        fs::set_permissions(aside::with(&path, part), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let (_write, _read) = open(&path).unwrap();
    PARTS.iter().for_each(|part| assert_eq!(mode(&aside::with(&path, part)), 0o600, "linger.db{part}"));
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("linger.db");
    let (_write, _read) = open(&new).unwrap();
    PARTS.iter().for_each(|part| assert_eq!(mode(&aside::with(&new, part)), 0o600, "a new linger.db{part}"));
}

#[test]
fn a_database_of_the_first_schema_is_loaded_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("linger.db");
    Connection::open(&path).unwrap().execute_batch(SCHEMA_1).unwrap();
    assert_eq!(opens(&path, "schema 1"), []);
    let connection = Connection::open(&path).unwrap();
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, SCHEMA);
    let read = |id: &str| {
        let examined = examine(&connection, id);
        assert_eq!((&examined.broken, examined.stale), (&None, false), "{id}");
        let stored = examined.row.unwrap();
        let mut fold = State::from_stored(&stored.fold).unwrap();
        // The words of prompts that wait are in their events.
        fold.queue
            .iter_mut()
            .zip(&examined.state.queue)
            .for_each(|(stored, read)| stored.content.clone_from(&read.content));
        // Of costs the build that stored it said nothing.
        let mut read = examined.state.clone();
        assert_eq!((read.usage.cost_micros, fold.usage.cost_at_least), (None, false));
        read.usage.cost_at_least = false;
        read.turn.iter_mut().for_each(|turn| turn.usage.cost_at_least = false);
        assert_eq!(fold, read, "{id}: what is folded again is what was stored");
        (examined.events, examined.state.stored_name(), examined.env["HOME"].clone())
    };
    let home = || "/home/u/p".to_owned();
    assert_eq!(read("37grq28w2p"), (7, "waiting", home()));
    assert_eq!(read("3c725prqhm"), (10, "idle", home()));
    assert_eq!(read("hmp369g2kx"), (11, "idle", home()));
    assert_eq!(read("m55bcbgrhy"), (4, "running", home()));
    drop(connection);
    let store = Store::open(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pieces = runtime.block_on(store.scratch(SessionId::from("m55bcbgrhy"))).unwrap();
    assert_eq!((pieces.len(), pieces[0].text.as_str()), (17, "word 1 "));
    let pending = runtime.block_on(store.pending(None)).unwrap();
    let actions = pending.iter().map(|pending| pending.asked.permission.as_ref().unwrap().action.as_str());
    assert_eq!(actions.collect::<Vec<_>>(), ["date"]);
    let answered = runtime.block_on(store.question("q6j6bbc9".into())).unwrap().unwrap();
    assert_eq!(answered.answer.unwrap().0.as_deref(), Some("reject_once"));
    let key = "session/prompt 37grq28w2p 602974bb2b0d0bada345b681c78b3a79".to_owned();
    let outcome = runtime.block_on(store.outcome(key)).unwrap().unwrap();
    let result: serde_json::Value = serde_json::from_str(&outcome.result).unwrap();
    assert_eq!(result["prompt"], "p2");
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
