//! Blobs: where they lie, what keeps them, and what a crash leaves.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn blobs() -> (tempfile::TempDir, Blobs) {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::of(&dir.path().join("linger.db"));
    (dir, blobs)
}

/// All files below `dir`, without it.
fn files(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return all };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path.to_string_lossy().into_owned());
        }
    }
    all
}

fn unused() -> io::Result<bool> {
    Ok(false)
}

#[test]
fn directories_that_many_make_at_once_stay_where_they_are() {
    for round in 0..20u32 {
        let (dir, blobs) = blobs();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    blobs.put(&round.to_le_bytes()).unwrap();
                });
            }
        });
        let moved: Vec<String> = files(dir.path()).into_iter().filter(|path| path.contains("damaged")).collect();
        assert_eq!(moved, Vec::<String>::new());
    }
}

#[test]
fn blobs_can_be_on_another_disk_and_wait_for_it() {
    let (dir, blobs) = blobs();
    let (elsewhere, away) = (dir.path().join("disk/blobs"), dir.path().join("away"));
    fs::create_dir_all(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.path().join("blobs")).unwrap();
    blobs.put(b"abc").unwrap().committed();
    assert!(elsewhere.join("ba").is_dir());
    fs::rename(dir.path().join("disk"), &away).unwrap();
    let why = blobs.put(b"other").unwrap_err().to_string();
    assert!(why.contains(&format!("leads to {}, which is not there", elsewhere.display())), "{why}");
    fs::rename(&away, dir.path().join("disk")).unwrap();
    assert_eq!(blobs.read(&id_of_bytes(b"abc"), 0, 3).unwrap(), b"abc", "nothing was put in its place");
    blobs.put(b"other").unwrap();
}

#[test]
fn blobs_lie_where_they_were_placed_and_none_is_left_behind() {
    let (dir, blobs) = blobs();
    let (database, disk) = (dir.path().join("linger.db"), dir.path().join("disk"));
    let wanted = disk.join("blobs");
    let why = place(&database, &wanted).unwrap_err().to_string();
    assert_eq!(why, format!("{} is not there", disk.display()));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(dir.path().join("blobs")).unwrap();
    place(&database, &wanted).unwrap();
    blobs.put(b"abc").unwrap().committed();
    assert!(wanted.join("ba").is_dir());
    assert_eq!(fs::metadata(&wanted).unwrap().mode() & 0o777, 0o700);
    place(&database, &wanted).unwrap();
    fs::rename(&disk, dir.path().join("away")).unwrap();
    place(&database, &wanted).unwrap();
    fs::rename(dir.path().join("away"), &disk).unwrap();
    let other = disk.join("other");
    let why = place(&database, &other).unwrap_err().to_string();
    assert!(why.starts_with(&format!("they lie in {}, not in {}", wanted.display(), other.display())), "{why}");
    fs::remove_file(dir.path().join("blobs")).unwrap();
    fs::rename(&wanted, dir.path().join("blobs")).unwrap();
    let why = place(&database, &wanted).unwrap_err().to_string();
    assert!(why.starts_with(&format!("they lie in {}", dir.path().join("blobs").display())), "{why}");
    assert_eq!(blobs.read(&id_of_bytes(b"abc"), 0, 3).unwrap(), b"abc");
}

#[test]
fn the_same_bytes_are_one_private_file_under_their_hash() {
    let (dir, blobs) = blobs();
    let first = blobs.put(b"abc").unwrap();
    let path = first.path().unwrap();
    let expect = "blobs/ba/7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(path, dir.path().join(expect));
    assert_eq!(first.id().as_str(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(mode(&dir.path().join("blobs")), 0o700);
    let written = path.metadata().unwrap().modified().unwrap();
    let second = blobs.put(b"abc").unwrap();
    assert_eq!((&first, second.size()), (&second, 3));
    assert_eq!(path.metadata().unwrap().modified().unwrap(), written, "it is not written again");
    assert_eq!(files(dir.path()).len(), 2, "the blob, and a marker while it is held");
    for held in [first, second] {
        held.committed();
    }
    assert_eq!(files(dir.path()), [path.to_str().unwrap()]);
    assert_eq!(blobs.read(&id_of_bytes(b"abc"), 1, 1).unwrap(), b"b");
}

#[test]
fn a_daemon_that_dies_before_the_rename_leaves_no_blob_and_after_it_one_that_the_next_start_knows() {
    let (dir, before) = blobs();
    let mut begun = before.begin().unwrap();
    begun.write_all(b"half").unwrap();
    std::mem::forget(begun);
    let stored = before.put(b"whole").unwrap();
    let id = stored.id().clone();
    std::mem::forget(stored); // No drop: as if it were killed.
    let after = Blobs::of(&dir.path().join("linger.db"));
    assert!(after.path(&id).unwrap().exists());
    let (strays, dirs) = after.left_behind().unwrap();
    assert_eq!((strays, dirs), (vec![id.clone()], vec![before.0.fresh.clone()]));
    let mut gone = Vec::new();
    assert_eq!(after.discard(&id, unused, &mut gone).unwrap(), Discarded::Settled);
    assert!(!after.path(&id).unwrap().exists());
    assert_eq!(gone.len(), 1);
}

#[test]
fn what_is_held_or_used_is_not_deleted() {
    let (_dir, blobs) = blobs();
    let held = blobs.put(b"abc").unwrap();
    let id = held.id().clone();
    let mut gone = Vec::new();
    let other = blobs.hold(&id).unwrap().unwrap();
    drop(held);
    assert_eq!(blobs.discard(&id, unused, &mut gone).unwrap(), Discarded::Held);
    drop(other);
    assert_eq!(blobs.discard(&id, || Ok::<_, io::Error>(true), &mut gone).unwrap(), Discarded::Settled);
    assert!(blobs.path(&id).unwrap().exists() && gone.is_empty());
    assert_eq!(blobs.discard(&id, unused, &mut gone).unwrap(), Discarded::Settled);
    assert!(!blobs.path(&id).unwrap().exists());
    assert!(blobs.hold(&id).unwrap().is_none());
}

#[test]
fn bytes_that_changed_are_not_taken_for_the_blob() {
    let (_dir, blobs) = blobs();
    let held = blobs.put(b"abc").unwrap();
    assert_eq!(blobs.load(held.id()).unwrap(), "YWJj");
    fs::write(held.path().unwrap(), "abd").unwrap();
    assert_eq!(blobs.load(held.id()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    let path = held.path().unwrap();
    assert_eq!(blobs.put(b"abc").unwrap().path(), Some(path.clone()), "the right ones take their place");
    assert_eq!(fs::read(&path).unwrap(), b"abc");
    let aside = files(path.parent().unwrap()).into_iter().find(|file| file.contains(".damaged-"));
    assert_eq!(fs::read(aside.unwrap()).unwrap(), b"abd", "and they are kept");
}

#[test]
fn a_name_that_is_no_hash_leads_nowhere() {
    let (_dir, blobs) = blobs();
    let long = format!("sha256:{}", "../".repeat(22));
    for name in ["", "sha256:", "sha256:../../linger.db", &long, &format!("sha256:{}", "A".repeat(64))] {
        assert_eq!(blobs.path(&BlobId(name.to_owned())), None, "{name}");
    }
}
