//! Blobs: bytes that are stored once by their hash, in files beside the database.
//!
//! `blobs/ab/cdef…` has the bytes whose SHA-256 begins with `abcdef`. A file is written under another name, synced and renamed,
//! so that whatever has a blob's name is whole; the same bytes are one file. What others do to these files is found by the hash
//! before anything is made of them ([`Blobs::check`]): a file that has other bytes is never served, and set aside by whoever has
//! the right ones. Which session uses which blob is in the database,
//! written in the transaction of the event that names it ([`crate::store`]); a file that nothing there names is a *stray*.
//!
//! Between the file and that transaction a [`Held`] keeps the blob: in memory, so that no removal takes it away meanwhile, and
//! by an empty file of its name in this daemon's own `blobs/new-…`, so that the next start knows what a daemon that died may
//! have left. No start reads more than these.
//! All of this blocks; callers are on a thread that may.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::id::BlobId;
use linger_protocol::message::{ContentBlock, ImageSource, MAX_IMAGE, image_type};
use linger_protocol::place::private_directory;
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempPath};

use crate::store::aside;
use crate::sys::clock;

/// How a blob's name begins.
const PREFIX: &str = "sha256:";

/// How the directories begin that hold what is being written and what is held.
const FRESH: &str = "new-";

/// The blobs of one database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Blobs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// Files that are being written, are held, or are about to be deleted; made when it is needed.
    fresh: PathBuf,
    /// How often each blob is held. Whoever deletes one has the lock meanwhile.
    held: Mutex<HashMap<BlobId, usize>>,
    /// Files whose bytes were compared with their names, as they were then.
    checked: Mutex<HashMap<BlobId, Stamp>>,
    /// Whoever puts a file in its place has this.
    mending: Mutex<()>,
}

/// What changes with a file: device, inode, size, and when it was changed last, in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

/// Files that are known to be whole: those that are read a piece at a time are read whole once.
const MAX_CHECKED: usize = 1024;

/// A blob that is there, and stays while this lives.
#[derive(Clone, Debug)]
pub struct Held(Arc<Hold>);

#[derive(Debug)]
struct Hold {
    blobs: Blobs,
    id: BlobId,
    size: u64,
    /// The database names it: the next start need not look at it.
    committed: AtomicBool,
}

/// Why an image could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum StowError {
    /// It is not base64, or nothing that models take.
    #[error("an image is a PNG, JPEG, GIF or WebP in base64")]
    NoImage,
    /// Providers would refuse it, and with it the whole session from then on.
    #[error("an image has {MAX_IMAGE} bytes at most, this one has {0}")]
    TooLarge(u64),
    /// There is no such blob.
    #[error("there is no blob '{0}'")]
    Unknown(BlobId),
    /// The disk.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// As many first bytes as it takes to know an image.
const PROBE: u64 = 16;

/// The media type of an image that models take.
fn good_image(probe: &[u8], size: u64) -> Result<&'static str, StowError> {
    let media_type = image_type(probe).ok_or(StowError::NoImage)?;
    if size > MAX_IMAGE { Err(StowError::TooLarge(size)) } else { Ok(media_type) }
}

/// What became of a blob that may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// It stays or is gone; nothing is left to do.
    Settled,
    /// Somebody holds it; look again later.
    Held,
}

/// Where the blobs of the database at `database` lie.
pub(crate) fn directory(database: &Path) -> PathBuf {
    database.with_file_name("blobs")
}

impl Blobs {
    /// The blobs of the database at `database`.
    pub fn beside(database: &Path) -> Self {
        let root = directory(database);
        let fresh = root.join(format!("{FRESH}{}", clock::random_word(8)));
        Self(Arc::new(Inner {
            root,
            fresh,
            held: Mutex::default(),
            checked: Mutex::default(),
            mending: Mutex::default(),
        }))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<BlobId, usize>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a blob is, or would be; nothing if it has no blob's name.
    pub fn path(&self, id: &BlobId) -> Option<PathBuf> {
        let (first, rest) = digits(id)?.split_at_checked(2)?;
        Some(self.0.root.join(first).join(rest))
    }

    /// A file to write a blob into; it is gone if it never becomes one.
    pub fn begin(&self) -> io::Result<NamedTempFile> {
        self.make_fresh()?;
        tempfile::Builder::new().prefix("w-").tempfile_in(&self.0.fresh)
    }

    /// Stores `bytes`.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Held> {
        let (id, size) = (id_of_bytes(bytes), bytes.len() as u64);
        if let Some(held) = self.hold(&id)?
            && self.check(&id).is_ok()
        {
            return Ok(held);
        }
        let mut file = self.begin()?;
        file.write_all(bytes)?;
        self.adopt(file.into_temp_path(), id, size)
    }

    /// Makes a file that was begun a blob; `id` is the hash of what is in it.
    pub fn adopt(&self, file: TempPath, id: BlobId, size: u64) -> io::Result<Held> {
        let path = self.path(&id).ok_or_else(|| io::Error::other("not a blob's name"))?;
        let held = self.keep(&id, size)?;
        let is_wrong = match self.check(&id) {
            Ok(()) => return Ok(held),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => false,
                io::ErrorKind::InvalidData => true,
                // It may be as it should.
                _ => return Err(error),
            },
        };
        File::open(&file)?.sync_all()?;
        let dir = path.parent().unwrap_or(&self.0.root);
        self.make_directory(dir)?;
        // One at a time: what another has just put there is right.
        let _one = self.0.mending.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wrong && self.check(&id).is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            self.set_aside(&id)?;
        }
        file.persist(&path).map_err(|error| error.error)?;
        File::open(dir)?.sync_all()?;
        Ok(held)
    }

    /// Holds a blob that is there; nothing if it is not.
    pub fn hold(&self, id: &BlobId) -> io::Result<Option<Held>> {
        let Some(path) = self.path(id) else { return Ok(None) };
        // Held before it is looked at: what is seen then cannot be taken away any more.
        let held = self.keep(id, 0)?;
        match fs::metadata(&path) {
            Ok(there) => self.keep(id, there.len()).map(Some),
            Err(error) if is_gone(&error) => {
                held.committed();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn keep(&self, id: &BlobId, size: u64) -> io::Result<Held> {
        self.make_fresh()?;
        let mut held = self.held();
        if let Some(marker) = self.marker(id) {
            File::create(marker)?;
        }
        *held.entry(id.clone()).or_default() += 1;
        Ok(Held(Arc::new(Hold { blobs: self.clone(), id: id.clone(), size, committed: AtomicBool::new(false) })))
    }

    /// Replaces the bytes of images by names of blobs; those that are names already must be those of blobs.
    pub fn stow(&self, content: Vec<ContentBlock>) -> Result<(Vec<ContentBlock>, Vec<Held>), StowError> {
        let mut holds = Vec::new();
        let stow = |block| -> Result<ContentBlock, StowError> {
            let ContentBlock::Image { source, .. } = block else { return Ok(block) };
            // What it is, its bytes say: providers refuse what is called something else.
            let (held, media_type) = match source {
                ImageSource::Data { data } => {
                    let bytes = BASE64.decode(data).map_err(|_| StowError::NoImage)?;
                    let media_type = good_image(&bytes, bytes.len() as u64)?;
                    (self.put(&bytes)?, media_type)
                }
                ImageSource::Blob { blob, .. } => {
                    let whole = self.check(&blob).is_ok();
                    let held = self.hold(&blob)?.filter(|_| whole).ok_or(StowError::Unknown(blob))?;
                    let media_type = good_image(&self.read(held.id(), 0, PROBE)?, held.size())?;
                    (held, media_type)
                }
            };
            let media_type = media_type.to_owned();
            let source = ImageSource::Blob { blob: held.id().clone(), bytes: held.size() };
            holds.push(held);
            Ok(ContentBlock::Image { media_type, source })
        };
        let content = content.into_iter().map(stow).collect::<Result<Vec<_>, _>>()?;
        Ok((content, holds))
    }

    /// Compares the bytes of a blob with its name. [`io::ErrorKind::NotFound`]: there is none; [`io::ErrorKind::InvalidData`]: they
    /// are others.
    pub fn check(&self, id: &BlobId) -> io::Result<()> {
        let path = self.path(id).ok_or(io::ErrorKind::NotFound)?;
        // What is in its place and no file may never end.
        let meta = path.symlink_metadata();
        let gone = |error: io::Error| if is_gone(&error) { io::ErrorKind::NotFound.into() } else { error };
        if !meta.map_err(gone)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a file", path.display())));
        }
        let mut file = File::open(&path)?;
        let stamp = stamp(&file.metadata()?);
        let checked = || self.0.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked().get(id) == Some(&stamp) {
            return Ok(());
        }
        let mut hash = Sha256::new();
        let mut bytes = vec![0; 64 << 10];
        loop {
            match file.read(&mut bytes)? {
                0 => break,
                n => hash.update(bytes.get(..n).unwrap_or_default()),
            }
        }
        if id_of(&hash.finalize()) != *id {
            let text = format!("{} has other bytes than were stored", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut checked = checked();
        if checked.len() >= MAX_CHECKED {
            checked.clear();
        }
        checked.insert(id.clone(), stamp);
        Ok(())
    }

    /// Gives what has the name of a blob a dated name; nothing if there is nothing.
    pub fn set_aside(&self, id: &BlobId) -> io::Result<Option<PathBuf>> {
        match self.path(id) {
            Some(path) => aside::out_of_the_way(&path),
            None => Ok(None),
        }
    }

    /// How many bytes a blob has.
    pub fn size(&self, id: &BlobId) -> io::Result<u64> {
        Ok(fs::metadata(self.path(id).ok_or(io::ErrorKind::NotFound)?)?.len())
    }

    /// A part of a blob.
    pub fn read(&self, id: &BlobId, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.path(id).ok_or(io::ErrorKind::NotFound)?)?;
        if offset >= file.metadata()?.len() {
            return Ok(Vec::new());
        }
        file.seek(io::SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A whole blob in base64, if it is what its name says.
    pub fn load(&self, id: &BlobId) -> io::Result<String> {
        self.check(id)?;
        Ok(BASE64.encode(self.read(id, 0, u64::MAX)?))
    }

    /// Deletes a blob unless it is held, or `used` says that a session uses it. What is left to delete is in `gone`.
    pub fn discard<E: From<io::Error>>(
        &self,
        id: &BlobId,
        used: impl FnOnce() -> Result<bool, E>,
        gone: &mut Vec<PathBuf>,
    ) -> Result<Discarded, E> {
        let Some(path) = self.path(id) else { return Ok(Discarded::Settled) };
        self.make_fresh()?;
        // Nobody can begin to hold it until it is settled.
        let held = self.held();
        if held.contains_key(id) {
            return Ok(Discarded::Held);
        }
        if used()? {
            return Ok(Discarded::Settled);
        }
        // Out of the way at once: deleting a large file takes its time.
        let away = self.0.fresh.join(format!("gone-{}", clock::random_word(8)));
        match fs::rename(&path, &away) {
            Ok(()) => gone.push(away),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Discarded::Settled)
    }

    /// What daemons that died left in their directories: blobs that may be strays, and the directories.
    pub fn left_behind(&self) -> io::Result<(Vec<BlobId>, Vec<PathBuf>)> {
        let (mut ids, mut dirs) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&self.0.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((ids, dirs)),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let is_fresh = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(FRESH.as_bytes()));
            if !is_fresh || path == self.0.fresh {
                continue;
            }
            for entry in fs::read_dir(&path)? {
                let name = entry?.file_name();
                let id = name.to_str().map(|digits| BlobId(format!("{PREFIX}{digits}")));
                ids.extend(id.filter(|id| digits(id).is_some()));
            }
            dirs.push(path);
        }
        Ok((ids, dirs))
    }

    /// Leaves nothing behind unless the next start has a use for it.
    pub fn close(&self) {
        let _in_use = fs::remove_dir(&self.0.fresh);
    }

    fn make_fresh(&self) -> io::Result<()> {
        let Inner { root, fresh, .. } = &*self.0;
        if fresh.is_dir() {
            return Ok(());
        }
        self.make_directory(root)?;
        private_directory(fresh).map_err(io::Error::other)
    }

    /// Makes a directory if it is absent, durably; something else of that name is moved away.
    fn make_directory(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        // One at a time: another call may have made it just now.
        let _one = self.0.mending.lock().unwrap_or_else(PoisonError::into_inner);
        if dir.is_dir() {
            return Ok(());
        }
        aside::out_of_the_way(dir)?;
        private_directory(dir).map_err(io::Error::other)?;
        dir.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
    }

    fn marker(&self, id: &BlobId) -> Option<PathBuf> {
        Some(self.0.fresh.join(digits(id)?))
    }
}

impl Held {
    /// Its name.
    pub fn id(&self) -> &BlobId {
        &self.0.id
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Where it is.
    pub fn path(&self) -> Option<PathBuf> {
        self.0.blobs.path(&self.0.id)
    }

    /// The database names it now.
    pub fn committed(&self) {
        self.0.committed.store(true, Ordering::Release);
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.blobs.held();
        let Some(count) = held.get_mut(&self.id) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        held.remove(&self.id);
        if self.committed.load(Ordering::Acquire)
            && let Some(marker) = self.blobs.marker(&self.id)
        {
            // If it stays, the next start looks at a blob that is in use.
            let _stays = fs::remove_file(marker);
        }
    }
}

/// Whether there is nothing of that name, or no directory where it would be.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn stamp(meta: &fs::Metadata) -> Stamp {
    (meta.dev(), meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec())
}

/// The name of the blob of these bytes.
pub fn id_of_bytes(bytes: &[u8]) -> BlobId {
    id_of(&Sha256::digest(bytes))
}

/// The name of the blob with this hash.
pub fn id_of(hash: &[u8]) -> BlobId {
    BlobId(hash.iter().fold(PREFIX.to_owned(), |name, byte| format!("{name}{byte:02x}")))
}

/// How long so many bytes are in base64; huge if that is no length.
pub fn in_base64(bytes: u64) -> usize {
    usize::try_from(bytes).ok().and_then(|bytes| base64::encoded_len(bytes, true)).unwrap_or(usize::MAX)
}

/// The hexadecimal digits of a blob's name; nothing if they are not those of a hash.
fn digits(id: &BlobId) -> Option<&str> {
    let digits = id.as_str().strip_prefix(PREFIX)?;
    let good = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == 64 && digits.bytes().all(good)).then_some(digits)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn blobs() -> (tempfile::TempDir, Blobs) {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::beside(&dir.path().join("linger.db"));
        (dir, blobs)
    }

    /// All files below `dir`, without it.
    fn files(dir: &Path) -> Vec<String> {
        let mut all = Vec::new();
        let Ok(entries) = fs::read_dir(dir) else { return all };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => all.extend(files(&path)),
                false => all.push(path.to_string_lossy().into_owned()),
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
        let after = Blobs::beside(&dir.path().join("linger.db"));
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
}
