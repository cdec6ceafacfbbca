//! Blobs: bytes that are stored once by their hash, in files beside the database.
//!
//! `blobs/ab/cdef…` has the bytes whose SHA-256 begins with `abcdef`. A file is written under another name, synced and renamed,
//! so that a file with a blob's name is complete; the same bytes are one file. Before a file is used, its bytes are compared with
//! its hash ([`Blobs::check`]): one with other bytes is never served, and set aside when the right bytes are stored.
//! The database says which session uses which blob, in the transaction of the event that names it ([`crate::store`]); a file that
//! it does not name is a *stray*.
//!
//! Until that transaction a [`Held`] keeps the blob: in memory against removal, and by an empty file of its name in this daemon's
//! `blobs/new-…`, so that the next start finds strays of a killed daemon without reading the other directories.
//! All functions block.

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

use crate::store::files;
use crate::sys::clock;

/// The prefix of a blob's name.
const PREFIX: &str = "sha256:";

/// The prefix of the directories with unfinished files and markers of held blobs.
const FRESH: &str = "new-";

/// The blobs of one database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Blobs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// The directory of unfinished, held and deleted files; created when needed.
    fresh: PathBuf,
    /// How often each blob is held; locked while one is deleted.
    held: Mutex<HashMap<BlobId, usize>>,
    /// Files whose bytes matched their names, with their stamps.
    checked: Mutex<HashMap<BlobId, Stamp>>,
    /// Locked while a file or directory is put in place.
    mending: Mutex<()>,
}

/// Identifies the content of a file: device, inode, size, and change time in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

/// The most files whose check is remembered.
const MAX_CHECKED: usize = 1024;

/// A stored blob, which is not deleted while this lives.
#[derive(Clone, Debug)]
pub struct Held(Arc<Hold>);

#[derive(Debug)]
struct Hold {
    blobs: Blobs,
    id: BlobId,
    size: u64,
    /// The database names it, so that its marker is not needed.
    committed: AtomicBool,
}

/// Why an image could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum StowError {
    /// It is not base64, or not a format that models accept.
    #[error("an image is a PNG, JPEG, GIF or WebP in base64")]
    NoImage,
    /// Providers would refuse it, and with it every later request of the session.
    #[error("an image has {MAX_IMAGE} bytes at most, this one has {0}")]
    TooLarge(u64),
    /// There is no such blob.
    #[error("there is no blob '{0}'")]
    Unknown(BlobId),
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How many first bytes identify an image.
const PROBE: u64 = 16;

/// The media type of an image that models accept.
fn good_image(probe: &[u8], size: u64) -> Result<&'static str, StowError> {
    let media_type = image_type(probe).ok_or(StowError::NoImage)?;
    if size > MAX_IMAGE { Err(StowError::TooLarge(size)) } else { Ok(media_type) }
}

/// The result of [`Blobs::discard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// It is used or deleted.
    Settled,
    /// It is held; try again later.
    Held,
}

/// The directory of the blobs of a database.
pub(crate) fn directory(database: &Path) -> PathBuf {
    database.with_file_name("blobs")
}

/// Places the blobs of a database in the directory `wanted`: the database's own directory gets a symbolic link to it. Changes nothing
/// and fails if another directory has blobs already, or if the parent of `wanted` is absent, as that of an unmounted disk.
pub fn place(database: &Path, wanted: &Path) -> io::Result<()> {
    let link = directory(database);
    let here = match fs::read_link(&link) {
        Ok(here) if here == wanted => return Ok(()),
        Ok(here) => Some(here),
        // An empty directory is as good as none.
        Err(_) => (link.exists() && fs::remove_dir(&link).is_err()).then(|| link.clone()),
    };
    if let Some(here) = here {
        let (here, wanted) = (here.display(), wanted.display());
        let why =
            format!("they lie in {here}, not in {wanted}: stop the daemon and move them (`linger help sessions`)");
        return Err(io::Error::other(why));
    }
    let above = wanted.parent().unwrap_or(wanted);
    if !above.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", above.display())));
    }
    private_directory(wanted).map_err(io::Error::other)?;
    std::os::unix::fs::symlink(wanted, &link)?;
    link.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}

impl Blobs {
    /// The blobs of the database at `database`.
    pub fn of(database: &Path) -> Self {
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

    /// The path of a blob; `None` if `id` is not a blob's name.
    pub fn path(&self, id: &BlobId) -> Option<PathBuf> {
        let (first, rest) = digits(id)?.split_at_checked(2)?;
        Some(self.0.root.join(first).join(rest))
    }

    /// A temporary file to write a blob to.
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

    /// Makes a file of [`Blobs::begin`] a blob; `id` is the hash of its bytes.
    pub fn adopt(&self, file: TempPath, id: BlobId, size: u64) -> io::Result<Held> {
        let path = self.path(&id).ok_or_else(|| io::Error::other("not a blob's name"))?;
        let held = self.keep(&id, size)?;
        let is_wrong = match self.check(&id) {
            Ok(()) => return Ok(held),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => false,
                io::ErrorKind::InvalidData => true,
                // An error that may pass.
                _ => return Err(error),
            },
        };
        File::open(&file)?.sync_all()?;
        let dir = path.parent().unwrap_or(&self.0.root);
        self.make_directory(dir)?;
        // Another call may have stored the right bytes just now.
        let _one = self.0.mending.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wrong && self.check(&id).is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            self.set_aside(&id)?;
        }
        file.persist(&path).map_err(|error| error.error)?;
        File::open(dir)?.sync_all()?;
        Ok(held)
    }

    /// Holds a blob; `None` if it is not stored.
    pub fn hold(&self, id: &BlobId) -> io::Result<Option<Held>> {
        let Some(path) = self.path(id) else { return Ok(None) };
        // Hold it before the check, so that it cannot be deleted after.
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

    /// Replaces the bytes of images by names of blobs. Fails if an image is unusable, or names an unknown blob.
    pub fn stow(&self, content: Vec<ContentBlock>) -> Result<(Vec<ContentBlock>, Vec<Held>), StowError> {
        let mut holds = Vec::new();
        let stow = |block| -> Result<ContentBlock, StowError> {
            let ContentBlock::Image { source, .. } = block else { return Ok(block) };
            // The bytes tell the type: providers refuse another one.
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

    /// Compares the bytes of a blob with its name. Fails with [`io::ErrorKind::NotFound`] if it is missing, with
    /// [`io::ErrorKind::InvalidData`] if they differ.
    pub fn check(&self, id: &BlobId) -> io::Result<()> {
        let path = self.path(id).ok_or(io::ErrorKind::NotFound)?;
        // Reading a pipe or a device may never end.
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

    /// Renames the file of a blob, if any, to a dated name, and gives that.
    pub fn set_aside(&self, id: &BlobId) -> io::Result<Option<PathBuf>> {
        match self.path(id) {
            Some(path) => files::move_aside(&path),
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

    /// A whole blob in base64, after [`Blobs::check`].
    pub fn load(&self, id: &BlobId) -> io::Result<String> {
        self.check(id)?;
        Ok(BASE64.encode(self.read(id, 0, u64::MAX)?))
    }

    /// Deletes a blob unless it is held, or `used` says that a session uses it: renames its file, and adds that to `gone` for the
    /// caller to delete.
    pub fn discard<E: From<io::Error>>(
        &self,
        id: &BlobId,
        used: impl FnOnce() -> Result<bool, E>,
        gone: &mut Vec<PathBuf>,
    ) -> Result<Discarded, E> {
        let Some(path) = self.path(id) else { return Ok(Discarded::Settled) };
        self.make_fresh()?;
        // The lock keeps others from holding it meanwhile.
        let held = self.held();
        if held.contains_key(id) {
            return Ok(Discarded::Held);
        }
        if used()? {
            return Ok(Discarded::Settled);
        }
        // Renaming is quick; deleting a large file is not.
        let away = self.0.fresh.join(format!("gone-{}", clock::random_word(8)));
        match fs::rename(&path, &away) {
            Ok(()) => gone.push(away),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Discarded::Settled)
    }

    /// The directories of killed daemons, and the blobs that they held, which may be strays.
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

    /// Removes this daemon's directory if it is empty.
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

    /// Creates a directory if it is absent, synced; another kind of file of that name is renamed. A link that leads to nothing stays:
    /// blobs may be on a disk that is not there now.
    fn make_directory(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        if dir.is_symlink() && !dir.exists() {
            let leads = fs::read_link(dir)?;
            let why = format!("{} leads to {}, which is not there", dir.display(), leads.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        // Another call may have created it just now.
        let _one = self.0.mending.lock().unwrap_or_else(PoisonError::into_inner);
        if dir.is_dir() {
            return Ok(());
        }
        files::move_aside(dir)?;
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

    /// Where it is on disk; absent if it is not.
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
            // If it stays, the next start checks a used blob.
            let _stays = fs::remove_file(marker);
        }
    }
}

/// Whether the file or its directory is missing.
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

/// The length of so many bytes in base64; `usize::MAX` if it overflows.
pub fn in_base64(bytes: u64) -> usize {
    usize::try_from(bytes).ok().and_then(|bytes| base64::encoded_len(bytes, true)).unwrap_or(usize::MAX)
}

/// The hexadecimal digits of a blob's name; `None` if they are not a hash.
fn digits(id: &BlobId) -> Option<&str> {
    let digits = id.as_str().strip_prefix(PREFIX)?;
    let good = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == 64 && digits.bytes().all(good)).then_some(digits)
}

#[cfg(test)]
#[path = "blob_tests.rs"]
mod tests;
