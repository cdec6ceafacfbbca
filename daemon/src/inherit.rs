//! The process as the system gave it: what it was started with, and how it takes memory. The one module with `unsafe`.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};

/// The first descriptor that is none of standard input, output and error.
const FIRST: RawFd = 3;

/// Blocks of this size and more, in bytes, are given back to the system as soon as they are free: prompts with images, large
/// results. glibc would raise the limit with each such block, and keep them.
#[cfg(target_env = "gnu")]
const GIVEN_BACK: libc::c_int = 256 << 10;

/// Makes the allocator give memory back, so that a daemon is as small after its work as before.
pub fn frugal() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers of the allocator; there is one thread yet. What it does not take it leaves as it was.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, GIVEN_BACK);
        libc::mallopt(libc::M_TRIM_THRESHOLD, GIVEN_BACK);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

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
