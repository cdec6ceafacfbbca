//! Tells whether the configuration file may have changed, without touching the disk.
//!
//! A second inotify queue on the same path as the watcher's. It has no thread: it is read on demand, and an empty queue means
//! that nothing has changed since it was made. Once it has had a notice it keeps saying so, until the watcher follows the path
//! again and replaces it.
//! On systems without inotify, or if a file system on the path may not report every change, there is no queue, and the file is
//! read instead.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::watch;

/// How many symlinks are followed, as many as the system follows.
const MAX_LINKS: usize = 40;

/// A directory on the path to the file.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) dir: PathBuf,
    /// The name of the path's next part, and the names of `dir` and its ancestors.
    pub(super) names: Vec<OsString>,
    /// Whether this is the parent of a directory with the file or a symlink to it.
    pub(super) above: bool,
}

/// The directories where a change can replace `file`; the first is its own.
pub(super) fn trail(file: &Path) -> Vec<Point> {
    let (mut trail, mut links) = (Vec::new(), vec![file.to_path_buf()]);
    let mut followed = 0;
    while let Some(path) = links.pop() {
        for (above, at) in [false, true].into_iter().zip(path.ancestors()) {
            let (Some(dir), Some(name)) = (at.parent(), at.file_name()) else { continue };
            let from = dir.ancestors().filter_map(Path::file_name);
            let names = [name].into_iter().chain(from).map(OsStr::to_owned).collect();
            trail.push(Point { dir: dir.to_path_buf(), names, above });
            if let Ok(target) = at.read_link()
                && followed < MAX_LINKS
            {
                followed += 1;
                links.push(dir.join(target));
            }
        }
    }
    trail
}

/// A queue of changes on the path to the configuration file; dropping it stops watching.
#[derive(Debug)]
pub struct Notices {
    #[cfg(target_os = "linux")]
    queue: linux::Queue,
    names: BTreeSet<OsString>,
    /// Wakes the watcher, which makes the next queue.
    wake: watch::Sender<()>,
    has_notice: bool,
}

impl Notices {
    /// Watches `file` by the points on its path. Fails if a change could go unnoticed.
    pub(super) fn of(file: &Path, trail: &[Point], wake: watch::Sender<()>) -> io::Result<Self> {
        let names = trail.iter().flat_map(|point| &point.names).cloned().collect();
        #[cfg(target_os = "linux")]
        return Ok(Self { queue: linux::Queue::of(file, trail)?, names, wake, has_notice: false });
        #[cfg(not(target_os = "linux"))]
        return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{names:?} {file:?} {wake:?}")));
    }

    /// Whether the file may have changed since the queue was made.
    pub fn has_notice(&mut self) -> bool {
        if !self.has_notice && self.is_reported() {
            self.has_notice = true;
            self.wake.send_replace(());
        }
        self.has_notice
    }

    #[cfg(target_os = "linux")]
    fn is_reported(&self) -> bool {
        self.queue.has_any(&self.names)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_reported(&self) -> bool {
        true
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::ffi::{OsStr, OsString};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    use rustix::fs::statfs;
    use rustix::io::Errno;

    use super::Point;

    /// Local file systems, whose changes all pass this kernel, by the numbers of statfs(2): ext2 to ext4, Btrfs, XFS, tmpfs,
    /// F2FS, overlayfs, ZFS, bcachefs.
    const LOCAL: [u64; 8] =
        [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994, 0xF2F5_2010, 0x794C_7630, 0x2FC1_2FC1, 0xCA45_1A4E];

    /// The read buffer, in bytes; a notice has 16 and a name of at most 256.
    const BUFFER: usize = 4096;

    /// The descriptor of the queue.
    #[derive(Debug)]
    pub(super) struct Queue(OwnedFd);

    impl Queue {
        pub(super) fn of(file: &Path, trail: &[Point]) -> io::Result<Self> {
            let queue = Self(init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?);
            for point in trail {
                queue.watch_entries(point)?;
                for ancestor in point.dir.ancestors() {
                    match queue.add(ancestor, WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF) {
                        // A directory that this user cannot read, this user cannot move either.
                        Err(error) if error != Errno::ACCESS && !is_absent(error) => return Err(error.into()),
                        Ok(()) | Err(_) => {}
                    }
                }
            }
            // A hard link in another directory may be written.
            match queue.add(file, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB) {
                Err(error) if !is_absent(error) => Err(error.into()),
                Ok(()) | Err(_) => Ok(queue),
            }
        }

        /// Watches the entries of the directory of `point`, or of its nearest existing ancestor.
        fn watch_entries(&self, point: &Point) -> io::Result<()> {
            let entries = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
            let content = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
            let what = entries | WatchFlags::ATTRIB | if point.above { WatchFlags::empty() } else { content };
            let found = point.dir.ancestors().find_map(|dir| match self.add(dir, what) {
                Err(error) if is_absent(error) => None,
                added => Some(added.map(|()| dir)),
            });
            let dir = found.unwrap_or(Err(Errno::NOENT))?;
            let kind = u64::try_from(statfs(dir)?.f_type).unwrap_or_default();
            if LOCAL.contains(&kind) { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
        }

        fn add(&self, path: &Path, what: WatchFlags) -> rustix::io::Result<()> {
            add_watch(&self.0, path, what | WatchFlags::MASK_ADD).map(drop)
        }

        /// Empties the queue; whether anything concerns one of `names`, or a watched file itself.
        pub(super) fn has_any(&self, names: &BTreeSet<OsString>) -> bool {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(&self.0, &mut buffer);
            loop {
                match reader.next() {
                    Ok(notice) => {
                        let name = notice.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                        if name.is_none_or(|name| names.contains(name)) {
                            return true;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return error != Errno::AGAIN,
                }
            }
        }
    }

    fn is_absent(error: Errno) -> bool {
        matches!(error, Errno::NOENT | Errno::NOTDIR)
    }
}
