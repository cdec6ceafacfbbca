//! The process as the system gave it: what it was started with, how it takes memory, who is at the other end of a socket. The one
//! module with `unsafe`.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd, retry_on_intr};

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

/// Whether the process that made this connection is still there, whatever has its number now; `None` where the system cannot tell
/// (Linux can from 6.5 on).
#[cfg(target_os = "linux")]
pub fn peer_is_there(socket: BorrowedFd<'_>) -> Option<bool> {
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
        // Of a process that has gone it gives none.
        return (io::Error::last_os_error().raw_os_error() != Some(libc::ENOPROTOOPT)).then_some(false);
    };
    let mut end = [PollFd::new(&process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A signal cuts it short though it does not wait, and children of ours end all the time.
    Some(retry_on_intr(|| poll(&mut end, Some(&now))) == Ok(0))
}

/// As above; nobody can tell here.
#[cfg(not(target_os = "linux"))]
pub fn peer_is_there(_: BorrowedFd<'_>) -> Option<bool> {
    None
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

/// Gives this process the name by which people look for it: one that was started by descriptor has none.
/// Elsewhere than on Linux it is started by its file.
pub fn name(name: &str) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_name(&std::ffi::CString::new(name).unwrap_or_default()) {
        eprintln!("warning: the daemon cannot be named: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _by_its_file = name;
}

/// Leaves the session of the terminal, which then is nobody's here: neither its hangup nor its keys reach this process, and what
/// this process starts finds no `/dev/tty` to write to. Whoever leads a session already has left.
pub fn leave_terminal() -> io::Result<()> {
    match rustix::process::setsid() {
        Err(Errno::PERM) if leads_session() => Ok(()),
        left => Ok(left.map(drop)?),
    }
}

fn leads_session() -> bool {
    // SAFETY: it reads a number. In a container that is 0 if whoever leads the session is outside, which rustix's type cannot hold.
    #[allow(unsafe_code)]
    let leader = unsafe { libc::getsid(0) };
    leader == rustix::process::getpid().as_raw_nonzero().get()
}

/// Lets go of the terminal: nothing is said or asked there any more.
pub fn let_go() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Gives back what is not needed while nothing happens: free memory, and pages of the program's own file, which the system maps
/// again, in microseconds, when they are used. An idle daemon then takes a third of what it took to start.
pub fn settle() {
    #[cfg(target_env = "gnu")]
    // SAFETY: touches free memory only.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
    #[cfg(target_os = "linux")]
    for (start, length) in clean_pages() {
        // SAFETY: the mapping is of a file, private and without a change of our own, so what is dropped is read from the file
        // again; nothing else in this process changes its mappings' contents.
        #[allow(unsafe_code)]
        let _kept = unsafe { rustix::mm::madvise(start as *mut _, length, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// The mappings of the program's own file that are exactly as the file is: where each begins, and how long it is.
#[cfg(target_os = "linux")]
fn clean_pages() -> Vec<(usize, usize)> {
    let Ok(exe) = std::env::current_exe() else { return Vec::new() };
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut own = false;
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [range, "r-xp" | "r--p", _, _, _, path] => {
                let ends = range.split_once('-').and_then(|(start, end)| {
                    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
                });
                own = std::path::Path::new(path) == exe && ends.is_some();
                found.extend(ends.filter(|_| own).map(|(start, end)| (start, end - start)));
            }
            ["Anonymous:", size, "kB"] if own && *size != "0" => {
                // Relocated by the loader: it is not what the file has.
                found.pop();
                own = false;
            }
            [_, flags, ..] if flags.len() == 4 && flags.ends_with('p') => own = false,
            _ => {}
        }
    }
    found
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_has_settled_works_as_before() {
        let before = clean_pages();
        assert!(!before.is_empty(), "the text of this test is as its file is");
        for _ in 0..3 {
            settle();
            assert_eq!(format!("{:?}", clean_pages()), format!("{before:?}"));
        }
    }
}
