//! The process at the other end of a connection, as the system tells it.

use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(target_os = "linux")]
use rustix::io::retry_on_intr;

/// Whether the process at the other end still runs, even if its number was given to another one: for a server the process that
/// connected, for a client the one that called `listen`. `None` where the system cannot tell (Linux can from 6.5 on).
#[cfg(target_os = "linux")]
pub fn is_alive(socket: BorrowedFd<'_>) -> Option<bool> {
    let mut fd: RawFd = -1;
    let mut size = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: the system writes one descriptor into `fd`, whose size it is told, and gives it to nobody else.
    #[allow(unsafe_code)]
    let process = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERPIDFD);
        let got = libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut fd).cast(), &raw mut size);
        (got == 0 && fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    };
    let Some(process) = process else {
        // There is none of a process that has ended.
        return (std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOPROTOOPT)).then_some(false);
    };
    let mut end = [PollFd::new(&process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A signal can interrupt even a poll that does not wait.
    Some(retry_on_intr(|| poll(&mut end, Some(&now))) == Ok(0))
}

/// As above; no other system can tell.
#[cfg(not(target_os = "linux"))]
pub fn is_alive(_: BorrowedFd<'_>) -> Option<bool> {
    None
}
