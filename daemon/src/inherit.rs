//! What the daemon takes over from whoever started it, and keeps from those that it starts.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};

/// The first descriptor that is none of standard input, output and error.
const FIRST: RawFd = 3;

/// Closes the door behind the daemon: no descriptor that it was started with reaches a tool, and no process of the same user
/// can read its memory or its environment, where keys are. For the start, while there is one thread.
pub fn seal() {
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
