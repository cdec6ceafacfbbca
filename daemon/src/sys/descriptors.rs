//! Inherited descriptors: taking them over, and closing them to children.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// Hides inherited descriptors from child processes, and this process's memory and environment, which hold keys, from other
/// processes of the same user. Call it at the start, before other threads exist.
pub fn forbid_inheritance() {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let inherited: Vec<RawFd> =
        listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd >= FIRST).collect();
    for fd in inherited {
        // SAFETY: the borrow ends with this loop body, and `fcntl` fails safely on a closed descriptor.
        #[allow(unsafe_code)]
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // It fails for the descriptor that listed the directory, which is closed by now.
        let _closed = fcntl_setfd(fd, FdFlags::CLOEXEC);
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        eprintln!("warning: other processes of this user can read the daemon's memory: {error}");
    }
}

/// Takes ownership of an inherited descriptor. Call it at the start, once for each. Fails if `fd` is standard I/O or closed.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < FIRST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the parent opened it for this process alone; the check below fails if it is not open.
    #[allow(unsafe_code)]
    let taken = unsafe { OwnedFd::from_raw_fd(fd) };
    match fcntl_getfd(&taken) {
        Ok(_) => Ok(taken),
        Err(error) => {
            // Dropping a descriptor that is not open would abort.
            std::mem::forget(taken);
            Err(error.into())
        }
    }
}
