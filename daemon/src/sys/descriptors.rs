//! Inherited descriptors: taking them over, and closing them to children.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// The descriptors that [`take`] has given out: each has one owner.
static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Hides inherited descriptors from child processes, and this process's memory and environment, which hold keys, from other
/// processes of the same user. Call it at the start, before other threads exist.
pub fn forbid_inheritance() {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let inherited: Vec<RawFd> =
        listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd >= FIRST).collect();
    for fd in inherited {
        // It fails for the descriptor that listed the directory, which is closed by now.
        let _closed = set_flags(fd, libc::FD_CLOEXEC);
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        eprintln!("warning: other processes of this user can read the daemon's memory: {error}");
    }
}

/// Takes ownership of an inherited descriptor. Call it at the start, before this process opens files. Fails if `fd` is standard
/// I/O, closed, or taken already.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < FIRST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    check_open(fd)?;
    if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(fd) {
        return Err(io::Error::other("the descriptor is taken already"));
    }
    // SAFETY: `fd` is open, the parent opened it for this process alone, and no other call has taken it.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the flags of a descriptor, which may be closed: then it fails.
fn set_flags(fd: RawFd, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: F_SETFD takes integers alone and reaches no memory; it fails with EBADF on a closed descriptor.
    #[allow(unsafe_code)]
    let done = unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Fails with EBADF if the descriptor is closed.
fn check_open(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_GETFD takes integers alone and reaches no memory; it fails with EBADF on a closed descriptor.
    #[allow(unsafe_code)]
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;

    #[test]
    fn a_descriptor_is_taken_once_and_only_while_it_is_open() {
        let (reader, _writer) = io::pipe().unwrap();
        let fd = reader.into_raw_fd();
        let taken = take(fd).unwrap();
        assert_eq!(taken.as_raw_fd(), fd);
        take(fd).unwrap_err();
        take(0).unwrap_err();
        take(RawFd::MAX).unwrap_err();
        set_flags(RawFd::MAX, libc::FD_CLOEXEC).unwrap_err();
    }
}
