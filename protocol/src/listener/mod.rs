//! The process that listens at the daemon's socket: whether it is the daemon, or another one that took its place.
//!
//! The daemon's keeper holds a lock on its directory. A process that listens is the daemon if its parent holds that lock and names
//! it: the keeper's name in process lists ends in the daemon's process id, and no other process can change that name. A child of
//! a tool whose daemon was killed has the keeper as its parent too, but not the daemon's id.
//! A process that took the lock itself, after killing both, shows in its limit of file locks: the daemon lowers that of itself and
//! of everything it starts, and only root can raise it again. A daemon that took its dead keeper's place cannot be told from it,
//! so neither is proven.
//! Tokens, login codes, provider keys and variables go to a proven daemon only.

pub mod holder;

use std::fs;
use std::path::Path;

use crate::place::Places;

/// The identity of the listening process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It is the daemon.
    Daemon,
    /// It cannot be told: a socket of another machine or container, a system that does not show locks, or a keeper that was killed.
    Unknown,
    /// It is this process, which is not the daemon.
    Stranger(u32),
}

/// The system's account of the listening process and of the lock's holder.
#[derive(Clone, Copy, Debug)]
struct Facts {
    listener: u32,
    /// The listener's parent; absent if the system does not show it.
    parent: Option<u32>,
    /// The holder of the lock.
    holder: Option<u32>,
    /// Whether the holder's name has the listener's process id.
    is_named: bool,
    /// Whether the holder's limit of file locks is lower than this process's: then a daemon started it, or it was one.
    is_limited: bool,
}

/// Judges the process that listens at a connection's other end; `None` if the system shows none.
pub fn prove(places: &Places, listener: Option<u32>) -> Proof {
    let Some(listener) = listener else { return Proof::Unknown };
    let holder = holder::find(places).map(|holder| holder.pid);
    judge(Facts {
        listener,
        parent: holder::parent(listener),
        holder,
        is_named: holder.is_some_and(|holder| names_daemon(holder, listener)),
        is_limited: holder.is_some_and(is_limited),
    })
}

fn judge(Facts { listener, parent, holder, is_named, is_limited }: Facts) -> Proof {
    match holder {
        Some(_) if is_limited => Proof::Unknown,
        Some(holder) if listener == holder || (parent == Some(holder) && is_named) => Proof::Daemon,
        Some(_) if parent.is_some() => Proof::Stranger(listener),
        _ => Proof::Unknown,
    }
}

/// Whether the name of the keeper has the process id of the daemon. Both are numbered as the keeper sees them: in a container these
/// are other numbers, and a process in a container of its own has more of them.
fn names_daemon(keeper: u32, daemon: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{keeper}/comm")).unwrap_or_default();
    let (keeper, daemon) = (numbers(keeper), numbers(daemon));
    let named = name.trim_end().strip_prefix("lingerd ").and_then(|pid| pid.parse().ok());
    named.is_some() && keeper.len() == daemon.len() && daemon.last().copied() == named
}

/// The process ids of a process, from this process's view to its own (`NSpid` in proc(5)); without containers one.
fn numbers(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or_else(|| vec![pid], |line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Whether a process has a lower limit of file locks than this one; false if the system does not tell.
fn is_limited(pid: u32) -> bool {
    let limits = |pid: &str| fs::read_to_string(format!("/proc/{pid}/limits")).ok().and_then(|limits| hard(&limits));
    matches!((limits(&pid.to_string()), limits("self")), (Some(its), Some(own)) if its < own)
}

/// The hard limit of file locks in `/proc/PID/limits` (proc(5)): columns name, soft limit, hard limit, unit.
fn hard(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks "))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// The sentence about a stranger at the socket, with its name.
pub fn stranger(pid: u32, socket: &Path) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    let name = if name.is_empty() { name } else { format!(" ({name})") };
    format!("process {pid}{name} listens at {}, but it is not the daemon", socket.display())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test speaks.
mod tests {
    use super::*;

    #[test]
    fn the_daemon_is_the_child_that_the_holder_of_the_lock_names() {
        let daemon = Facts { listener: 8, parent: Some(7), holder: Some(7), is_named: true, is_limited: false };
        assert_eq!(judge(daemon), Proof::Daemon, "below its keeper");
        assert_eq!(judge(Facts { listener: 7, parent: Some(1), is_named: false, ..daemon }), Proof::Daemon);
        assert_eq!(judge(Facts { is_named: false, ..daemon }), Proof::Stranger(8), "adopted by the keeper");
        assert_eq!(judge(Facts { parent: Some(9), ..daemon }), Proof::Stranger(8), "a child of the daemon");
        assert_eq!(judge(Facts { is_limited: true, ..daemon }), Proof::Unknown, "a tool may have taken the lock");
        assert_eq!(judge(Facts { holder: None, ..daemon }), Proof::Unknown, "no lock is shown");
        assert_eq!(judge(Facts { parent: None, ..daemon }), Proof::Unknown, "no process is shown");
    }

    #[test]
    fn the_limit_is_the_hard_one() {
        let limits = |line: &str| hard(&format!("Limit  Soft Limit  Hard Limit  Units\n{line}"));
        assert_eq!(
            limits("Max file locks            unlimited            unlimited            locks     \n"),
            Some(u64::MAX)
        );
        assert_eq!(limits("Max file locks            5                    7                    locks     \n"), Some(7));
        assert_eq!(limits(""), None);
        let own = std::process::id();
        assert!(!is_limited(own), "not lower than itself");
        #[cfg(target_os = "linux")]
        assert_eq!(numbers(own).first(), Some(&own));
    }
}
