//! Files and directories by handle: what is opened is what was permitted, whatever is renamed in between.
//!
//! A permission is about a path with every link resolved. Here such a path is opened without following any link, and all that
//! follows goes by the handle of its directory. If a link has come into the path meanwhile, opening it fails.
//! What this cannot tell: a directory that was moved, which is another one under the same name.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::own_database::{Identity, OWN_DATABASE, is_own};
use crate::sys::clock;

/// Characters of a temporary file's name after its prefix: 50 bits.
const TEMPORARY: usize = 10;

/// How a directory is opened to find what is in it: without a need to list it.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::RDONLY;

/// A directory that is held open.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by its absolute path, which has no link. Fails if one has come into it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        without_links(&root()?, path.strip_prefix("/").unwrap_or(path)).map(Self)
    }

    /// As [`Dir::open`], and makes what is missing.
    fn make(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                step_by_step(&root()?, path.strip_prefix("/").unwrap_or(path), true).map(Self)
            }
            done => done,
        }
    }

    /// As [`Dir::make`]; the missing directories get these permissions, the innermost first, and 0700 where there are none.
    fn make_as(path: &Path, modes: &[u32]) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        let (parent, name) = split(path)?;
        let (mode, above) = modes.split_first().map_or((0o700, modes), |(first, above)| (*first, above));
        Entry { dir: Self::make_as(parent, above)?.0, name }.make_directory(mode)?;
        Self::open(path)
    }

    /// Lists it: names, in no order, and whether each is a directory or a link where the disk says so at once.
    pub(super) fn list(&self) -> io::Result<fs::Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(fs::Dir::new(fs::openat(&self.0, ".", flags, Mode::empty())?)?)
    }

    /// The entry of this name.
    pub(super) fn entry(&self, name: &OsStr) -> io::Result<Entry> {
        Ok(Entry { dir: self.0.try_clone()?, name: name.to_owned() })
    }
}

/// Finds the entries below a directory one after another; those of one directory stand together, and it is opened once for them.
#[derive(Debug)]
pub(super) struct Below<'a> {
    root: &'a Dir,
    /// The directory of the last entry, by its path below `root`.
    last: Option<(PathBuf, Dir)>,
}

impl<'a> Below<'a> {
    pub(super) fn of(root: &'a Dir) -> Self {
        Self { root, last: None }
    }

    /// The entry at this relative path, which has no link. Fails if one has come into it.
    pub(super) fn entry(&mut self, path: &Path) -> io::Result<Entry> {
        let (parent, name) = split(path)?;
        if let Some((last, dir)) = &self.last
            && last == parent
        {
            return dir.entry(&name);
        }
        let dir = Dir(without_links(&self.root.0, parent)?);
        let entry = dir.entry(&name);
        self.last = Some((parent.to_path_buf(), dir));
        entry
    }

    /// The status of the entry at this path; a link is not followed.
    pub(super) fn status(&mut self, path: &Path) -> io::Result<Stat> {
        match &self.last {
            Some((last, dir)) if Some(last.as_path()) == path.parent() => {
                Ok(fs::statat(&dir.0, split(path)?.1, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            _ => self.entry(path)?.status(),
        }
    }
}

/// A name in a directory that is held open; it need not exist.
#[derive(Debug)]
pub(crate) struct Entry {
    dir: OwnedFd,
    name: OsString,
}

impl Entry {
    /// Finds an absolute path, which has no link. Fails if its directory does not exist, or if a link has come into the path.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let (parent, name) = split(path)?;
        Ok(Self { dir: Dir::open(parent)?.0, name })
    }

    /// As [`Entry::at`], and makes the directories that are missing.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let (parent, name) = split(path)?;
        Ok(Self { dir: Dir::make(parent)?.0, name })
    }

    /// As [`Entry::make`]; the directories that are missing get these permissions, the innermost first.
    pub(super) fn make_as(path: &Path, modes: &[u32]) -> io::Result<Self> {
        let (parent, name) = split(path)?;
        Ok(Self { dir: Dir::make_as(parent, modes)?.0, name })
    }

    /// Makes a directory with exactly these permissions.
    pub(super) fn make_directory(&self, mode: u32) -> io::Result<()> {
        match fs::mkdirat(&self.dir, &self.name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // By handle: what has taken its place meanwhile keeps its permissions.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::openat(&self.dir, &self.name, flags, Mode::empty())?;
        Ok(fs::fchmod(made, Mode::from_raw_mode(mode & 0o7777))?)
    }

    /// Removes a directory that is empty.
    pub(super) fn remove_empty(&self) -> io::Result<()> {
        Ok(fs::unlinkat(&self.dir, &self.name, AtFlags::REMOVEDIR)?)
    }

    /// Removes a directory that has nothing in it but such directories.
    pub(super) fn remove_directory(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = Dir(fs::openat(&self.dir, &self.name, flags, Mode::empty())?);
        for entry in dir.list()? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                dir.entry(name)?.remove_directory()?;
            }
        }
        self.remove_empty()
    }

    /// The status of the entry; a link is not followed.
    pub(super) fn status(&self) -> io::Result<Stat> {
        Ok(fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Where a link leads to, as it is written.
    pub(super) fn link(&self) -> io::Result<OsString> {
        let target = fs::readlinkat(&self.dir, &self.name, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
    }

    /// Opens a regular file. Nothing else is opened at all: a FIFO would block, and a device may act.
    pub(crate) fn open(&self) -> io::Result<(File, Metadata)> {
        let status = self.status()?;
        regular(fs::FileType::from_raw_mode(status.st_mode))?;
        if is_own(&Identity::from(&status)) {
            return Err(io::Error::other(OWN_DATABASE));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&self.dir, &self.name, flags, Mode::empty())?);
        // It may have been replaced since.
        let metadata = file.metadata()?;
        if is_own(&Identity::from(&metadata)) {
            // To close it would take away SQLite's locks.
            std::mem::forget(file);
            return Err(io::Error::other(OWN_DATABASE));
        }
        regular(fs::FileType::from_raw_mode(metadata.mode()))?;
        Ok((file, metadata))
    }

    /// All of a regular file; nothing if it is longer than `limit`.
    pub(super) fn read(&self, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let (file, _) = self.open()?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
    }

    /// Removes a regular file.
    pub(super) fn remove(&self) -> io::Result<()> {
        regular(self.file_type()?)?;
        Ok(fs::unlinkat(&self.dir, &self.name, AtFlags::empty())?)
    }

    /// Removes a symbolic link, not its target; fails for anything else.
    pub(super) fn remove_link(&self) -> io::Result<()> {
        match self.file_type()? {
            fs::FileType::Symlink => Ok(fs::unlinkat(&self.dir, &self.name, AtFlags::empty())?),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn file_type(&self) -> io::Result<fs::FileType> {
        Ok(fs::FileType::from_raw_mode(self.status()?.st_mode))
    }

    /// Puts `content` in the place of the file: a reader sees the old or the new, and a power cut leaves one of them.
    /// Mode and, where it may, owner stay as they were.
    pub(super) fn replace(&self, content: &[u8]) -> io::Result<()> {
        let old = self.status_if_there()?;
        if let Some(old) = &old {
            regular(fs::FileType::from_raw_mode(old.st_mode))?;
        }
        if old.is_some() {
            // The directory alone decides about a rename; a file that was made read-only is to stay as it is.
            fs::accessat(&self.dir, &self.name, fs::Access::WRITE_OK, AtFlags::empty())?;
        }
        let mode = old.as_ref().map(|old| old.st_mode & 0o7777);
        self.place(content, old.as_ref(), if old.is_some() { 0o600 } else { 0o666 }, mode)
    }

    /// Puts a former file back, also in the place of a link. A file that stands there keeps its permissions as far as the former
    /// one had them; a new one gets those, or 0600 where they are not known. `is_executable`: whether those who may read it may
    /// execute it, if that may have changed.
    pub(super) fn restore(&self, content: &[u8], is_executable: Option<bool>, mode: Option<u32>) -> io::Result<()> {
        let is_link = |old: &Stat| fs::FileType::from_raw_mode(old.st_mode) == fs::FileType::Symlink;
        let old = self.status_if_there()?.filter(|old| !is_link(old));
        if let Some(old) = &old {
            regular(fs::FileType::from_raw_mode(old.st_mode))?;
        }
        let usual = if is_executable == Some(true) { 0o700 } else { 0o600 };
        let new = match &old {
            // What it is counts more than permissions that were another's in its place.
            None if is_executable == Some(false) => mode.unwrap_or(usual) & !0o111,
            None => mode.unwrap_or(usual),
            Some(old) => {
                let kept = old.st_mode & 0o7777;
                let kept = is_executable.map_or(kept, |is_executable| with_execution(kept, is_executable));
                kept & mode.unwrap_or(0o7777)
            }
        };
        self.place(content, old.as_ref(), 0o600, Some(new))
    }

    fn status_if_there(&self) -> io::Result<Option<Stat>> {
        match self.status() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            status => status.map(Some),
        }
    }

    /// Places a new file under the name: it is begun with the permissions `first`, and ends with `last` if that is given.
    fn place(&self, content: &[u8], old: Option<&Stat>, first: u32, last: Option<u32>) -> io::Result<()> {
        let mut new = Temporary::new(&self.dir, first)?;
        new.file.write_all(content)?;
        if let Some(old) = old {
            // Only root can give a file away; what another user writes here is theirs.
            let _kept = std::os::unix::fs::fchown(&new.file, Some(old.st_uid), Some(old.st_gid));
        }
        if let Some(last) = last {
            new.file.set_permissions(Permissions::from_mode(last))?;
        }
        new.file.sync_all()?;
        fs::renameat(&self.dir, &new.name, &self.dir, &self.name)?;
        new.is_kept = true;
        Ok(())
    }

    /// Says whether those who may read the file may execute it; nothing is permitted beyond `most`.
    pub(super) fn set_executable(&self, is_executable: bool, most: Option<u32>) -> io::Result<()> {
        let (file, metadata) = self.open()?;
        let mode = with_execution(metadata.mode() & 0o7777, is_executable) & most.unwrap_or(0o7777);
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Puts a link to `target` in the place of the file or link.
    pub(super) fn replace_link(&self, target: &OsStr) -> io::Result<()> {
        if let Some(old) = self.status_if_there()? {
            let file_type = fs::FileType::from_raw_mode(old.st_mode);
            if file_type != fs::FileType::Symlink {
                regular(file_type)?;
            }
        }
        let name = temporary_name();
        fs::symlinkat(target, &self.dir, &name)?;
        let placed = fs::renameat(&self.dir, &name, &self.dir, &self.name);
        if placed.is_err() {
            let _gone = fs::unlinkat(&self.dir, &name, AtFlags::empty());
        }
        Ok(placed?)
    }
}

/// The mode with execution allowed for everyone who may read, or for none.
fn with_execution(mode: u32, is_executable: bool) -> u32 {
    if is_executable { mode | (mode & 0o444) >> 2 } else { mode & !0o111 }
}

fn temporary_name() -> String {
    format!(".linger-{}", clock::random_word(TEMPORARY))
}

/// A new file, which is deleted unless it was renamed.
struct Temporary<'a> {
    dir: &'a OwnedFd,
    name: String,
    file: File,
    is_kept: bool,
}

impl<'a> Temporary<'a> {
    fn new(dir: &'a OwnedFd, mode: u32) -> io::Result<Self> {
        let name = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(dir, &name, flags, Mode::from_raw_mode(mode))?);
        Ok(Self { dir, name, file, is_kept: false })
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let _gone = fs::unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Fails unless it is the type of a regular file.
pub(super) fn regular(file_type: fs::FileType) -> io::Result<()> {
    match file_type {
        fs::FileType::RegularFile => Ok(()),
        fs::FileType::Directory => Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory; use ls")),
        _ => Err(io::Error::other("is not a regular file")),
    }
}

/// How many of the directories above a path are missing.
pub(super) fn missing_above(path: &Path) -> usize {
    path.ancestors().skip(1).take_while(|above| above.symlink_metadata().is_err()).count()
}

/// The directory of a path, and its last name.
fn split(path: &Path) -> io::Result<(&Path, OsString)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name.to_owned())),
        _ => regular(fs::FileType::Directory).and(Err(io::ErrorKind::IsADirectory.into())),
    }
}

fn root() -> io::Result<OwnedFd> {
    Ok(fs::open("/", PASS | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the directory at `path` below `base`, if there is no link in the path.
#[cfg(target_os = "linux")]
fn without_links(base: &impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let none = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = PASS | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match fs::openat2(base, path, flags, Mode::empty(), none) {
        // Systems before 5.6, and containers that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(base, path, false),
        opened => Ok(opened?),
    }
}

#[cfg(not(target_os = "linux"))]
fn without_links(base: &impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    step_by_step(base, path, false)
}

/// The same by one call for each name; `make`: what is missing is made.
fn step_by_step(base: &impl AsFd, path: &Path, make: bool) -> io::Result<OwnedFd> {
    let flags = PASS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = base.as_fd().try_clone_to_owned()?;
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            // Nothing that is resolved has one.
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        dir = match fs::openat(&dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                match fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                fs::openat(&dir, name, flags, Mode::empty())?
            }
            opened => opened?,
        };
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_with_a_link_in_it_is_not_opened_at_once_and_not_step_by_step() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::write(base.join("a/file"), "").unwrap();
        symlink("a", base.join("inside")).unwrap();
        symlink("/", base.join("outside")).unwrap();
        let held = Dir::open(&base).unwrap();
        for (path, expect) in [
            ("", true),
            ("a/b", true),
            ("inside", false),
            ("inside/b", false),
            ("outside/etc", false),
            ("a/file", false),
            ("a/none", false),
            ("..", false),
            ("a/../a", false),
            ("/etc", false),
        ] {
            assert_eq!(step_by_step(&held.0, Path::new(path), false).is_ok(), expect, "step by step: {path}");
            // The kernel takes `a/..`, which does not leave the directory.
            if path != "a/../a" {
                assert_eq!(without_links(&held.0, Path::new(path)).is_ok(), expect, "at once: {path}");
            }
        }
        assert_eq!(Dir::open(&base.join("a/none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(Dir::open(&base.join("inside")).is_err());
    }

    #[test]
    fn what_is_missing_is_made_and_never_behind_a_link() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = dir.path().canonicalize().unwrap();
        symlink(other.path(), base.join("link")).unwrap();
        Entry::make(&base.join("a/b/c")).unwrap().replace(b"x").unwrap();
        assert_eq!(std::fs::read(base.join("a/b/c")).unwrap(), b"x");
        assert!(Entry::make(&base.join("link/b/c")).is_err());
        assert!(Entry::at(&base.join("link/c")).is_err());
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_handle_stays_with_its_directory_when_a_link_takes_the_name() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("d")).unwrap();
        let entry = Entry::at(&base.join("d/x")).unwrap();
        std::fs::rename(base.join("d"), base.join("moved")).unwrap();
        symlink(other.path(), base.join("d")).unwrap();
        entry.replace(b"x").unwrap();
        assert_eq!(std::fs::read(base.join("moved/x")).unwrap(), b"x");
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
        std::fs::write(other.path().join("secret"), "").unwrap();
        symlink(other.path().join("secret"), base.join("moved/secret")).unwrap();
        let link = Below::of(&Dir::open(&base).unwrap()).entry(Path::new("moved/secret")).unwrap();
        assert_eq!(link.open().unwrap_err().to_string(), "is not a regular file");
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("d")).unwrap();
        assert_eq!(Entry::at(&base.join("d")).unwrap().replace(b"").unwrap_err().to_string(), "is a directory; use ls");
        drop(Temporary::new(&root_of(&base), 0o600).unwrap());
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 1);
    }

    fn root_of(path: &Path) -> OwnedFd {
        Dir::open(path).unwrap().0
    }
}
