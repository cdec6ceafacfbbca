//! Tells whether the configuration file may have changed, without a look at the file.
//!
//! A second queue of the system (inotify), on the same way to the file as the watcher's. It has no thread: it is read when
//! somebody asks, and an empty queue says that nothing has changed since the queue was made. A queue that had a notice says so
//! until the watcher has gone the way anew and put another queue in its place.
//! Where the system keeps no such queue, or a file system on the way does not report every change, there is none, and the
//! file is read instead.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use tokio::sync::watch;

use super::watch::Point;

/// A queue of changes on the way to the configuration file; dropping it ends the watching.
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
    /// Watches `file` by the points on the way to it. Fails where a change could pass unseen.
    pub(super) fn of(file: &Path, trail: &[Point], wake: watch::Sender<()>) -> io::Result<Self> {
        let names = trail.iter().flat_map(|point| &point.names).cloned().collect();
        #[cfg(target_os = "linux")]
        return Ok(Self { queue: linux::Queue::of(file, trail)?, names, wake, has_notice: false });
        #[cfg(not(target_os = "linux"))]
        return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{names:?} {file:?} {wake:?}")));
    }

    /// Whether the file may have changed since this was made.
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

    use super::super::watch::Point;

    /// File systems of this machine, all of whose changes pass its kernel, by the numbers of statfs(2): ext2 to ext4, Btrfs,
    /// XFS, tmpfs, F2FS, overlayfs, ZFS, bcachefs.
    const LOCAL: [u64; 8] =
        [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994, 0xF2F5_2010, 0x794C_7630, 0x2FC1_2FC1, 0xCA45_1A4E];

    /// Room for the notices of one read, in bytes; one has 16 and its name of at most 256.
    const ROOM: usize = 4096;

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
                        // What its owner closes to this user, this user does not move either.
                        Err(error) if error != Errno::ACCESS && !is_absent(error) => return Err(error.into()),
                        Ok(()) | Err(_) => {}
                    }
                }
            }
            // Another name of the same file, in a directory that is on no way here.
            match queue.add(file, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB) {
                Err(error) if !is_absent(error) => Err(error.into()),
                Ok(()) | Err(_) => Ok(queue),
            }
        }

        /// Watches what the directory of `point` has, or the nearest one above it that is there.
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

        /// Takes what is in the queue; whether anything concerns one of `names`, or a watched file itself.
        pub(super) fn has_any(&self, names: &BTreeSet<OsString>) -> bool {
            let mut room = [MaybeUninit::uninit(); ROOM];
            let mut reader = Reader::new(&self.0, &mut room);
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
