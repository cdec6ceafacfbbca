//! The limit of processes: a command that starts them without end does not take the last one that the user may have.
//!
//! Each child gets `RLIMIT_NPROC`, which all it starts inherits and none can raise. The kernel counts the threads of the user, not
//! those of the child, and of users of the same number in other containers too; so the limit is what the whole system runs when the
//! child starts, and [`MORE`]. Another bound: a storm within the process group of its call ends with that at its time-out or
//! a cancel, because the kernel lets no process fork that was sent SIGKILL.
//!
//! The kernel does not hold root to this limit. A container or a service that runs as root has one of its own (`pids.max`,
//! `TasksMax=`). A cgroup for each call would count exactly and hold root, but needs one that was delegated, with no process in it:
//! a daemon that a shell starts has none.

use rustix::process::Pid;
#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, prlimit};

/// Threads that a child and the rest of the user may add to those that run: more than a build with a compiler for each of 128
/// processors has, and too few to fill a machine's table of processes, of which the smallest default is 32,768.
#[cfg(target_os = "linux")]
const MORE: u64 = 4096;

/// Limits the processes of a child that was started just now, before it has run a line of what it was given.
/// A child that may not be limited, such as one that runs as another user, is as it is.
#[cfg(target_os = "linux")]
pub(super) fn limit(child: Pid) {
    let Some(most) = std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| running(&text)) else { return };
    let now = rustix::process::getrlimit(Resource::Nproc);
    let within = |limit: Option<u64>| Some(limit.unwrap_or(u64::MAX).min(most + MORE));
    let limit = Rlimit { current: within(now.current), maximum: within(now.maximum) };
    let _as_it_is = prlimit(Some(child), Resource::Nproc, limit);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn limit(_: Pid) {}

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
