//! The descriptors that this process was started with: taken over, or kept from its children.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first descriptor that is none of standard input, output and error.
const FIRST: RawFd = 3;

/// Closes inherited descriptors to child processes, and this process's memory and environment, which
/// hold keys, to other processes of the same user. For the start, while there is one thread.
pub fn forbid_inheritance() {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let inherited: Vec<RawFd> =
        listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd >= FIRST).collect();
    for fd in inherited {
        // SAFETY: the descriptor is used within this call only, which fails if it is closed; nobody owns it through this.
        #[allow(unsafe_code)]
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // The one that listed the directory is closed by now.
        let _closed = fcntl_setfd(fd, FdFlags::CLOEXEC);
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        eprintln!("warning: other processes of this user can read the daemon's memory: {error}");
    }
}

/// Takes a descriptor that this process was started with. For the start, once for each.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < FIRST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is open, or the next line fails; nobody else has it, because whoever started this process made it for this.
    #[allow(unsafe_code)]
    let taken = unsafe { OwnedFd::from_raw_fd(fd) };
    match fcntl_getfd(&taken) {
        Ok(_) => Ok(taken),
        Err(error) => {
            // Closing what is not open would be an error of its own.
            std::mem::forget(taken);
            Err(error.into())
        }
    }
}
