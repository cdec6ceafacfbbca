//! The limit of processes: a command that starts them without end does not take the last one that the user may have.
//!
//! Each child gets `RLIMIT_NPROC`, which all it starts inherits and none can raise. The kernel counts the threads of the user, not
//! those of the child, and of users of the same number in other containers too; so the limit is what the whole system runs when the
//! child starts, and [`MORE`]. The child begins with it, because the daemon has it while it starts the child ([`begin`]); that none
//! can raise it again is set from outside at once (`hold`). To set both between fork and exec would take a real fork, which copies
//! the page tables of the whole daemon and doubles the time of a start. Another bound: a storm within the process group of its call ends with that at its time-out or
//! a cancel, because the kernel lets no process fork that was sent SIGKILL.
//!
//! The kernel does not hold root to this limit. A container or a service that runs as root has one of its own (`pids.max`,
//! `TasksMax=`). A cgroup for each call would count exactly and hold root, but needs one that was delegated, with no process in it:
//! a daemon that a shell starts has none.

use rustix::process::Pid;
#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// Threads that a child and the rest of the user may add to those that run: more than a build with a compiler for each of 128
/// processors has, and too few to fill a machine's table of processes, of which the smallest default is 32,768.
#[cfg(target_os = "linux")]
const MORE: u64 = 4096;

/// The daemon's own limit before it started a child, and the lower one.
#[cfg(target_os = "linux")]
pub(super) struct LoweredLimit {
    before: Rlimit,
    limit: Rlimit,
}

/// Lowers the daemon's own limit until the result is dropped or held: what is started meanwhile inherits it. Only the one that may be
/// raised again, and not below what runs, so that the daemon itself goes on. For one child at a time.
#[cfg(target_os = "linux")]
pub(super) fn begin() -> Option<LoweredLimit> {
    let most = std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| running(&text))?;
    let before = getrlimit(Resource::Nproc);
    let within = |limit: Option<u64>| Some(limit.unwrap_or(u64::MAX).min(most + MORE));
    let limit = Rlimit { current: within(before.current), maximum: within(before.maximum) };
    setrlimit(Resource::Nproc, Rlimit { current: limit.current, ..before }).ok()?;
    Some(LoweredLimit { before, limit })
}

#[cfg(target_os = "linux")]
impl LoweredLimit {
    /// Takes from the child the right to raise the limit that it began with.
    /// A child that may not be limited, such as one that runs as another user, is as it is.
    pub(super) fn hold(self, child: Pid) {
        let _as_it_is = prlimit(Some(child), Resource::Nproc, self.limit);
    }
}

#[cfg(target_os = "linux")]
impl Drop for LoweredLimit {
    fn drop(&mut self) {
        let _as_it_is = setrlimit(Resource::Nproc, self.before);
    }
}

/// Nothing limits the processes of a child on this system.
#[cfg(not(target_os = "linux"))]
pub(super) struct LoweredLimit;

#[cfg(not(target_os = "linux"))]
pub(super) fn begin() -> Option<LoweredLimit> {
    None
}

#[cfg(not(target_os = "linux"))]
impl LoweredLimit {
    pub(super) fn hold(self, _: Pid) {}
}

/// The threads that the system has, of `/proc/loadavg` (proc(5)): three averages, those that run of those there are, the last id.
#[cfg(target_os = "linux")]
fn running(loadavg: &str) -> Option<u64> {
    let (_, all) = loadavg.split(' ').nth(3)?.split_once('/')?;
    // A system that does not count them says 0.
    all.parse().ok().filter(|all| *all > 0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_the_system_are_read() {
        assert_eq!(running("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        for text in ["", "0.20 0.18 0.12", "0 0 0 0/0 0", "a b c d/e f", "0 0 0 1/-1 2"] {
            assert_eq!(running(text), None, "{text}");
        }
    }
}
