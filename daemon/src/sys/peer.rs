//! Peer processes: whether one is alive, its user, and whether it descends from the daemon.
//!
//! A tool's child must not answer whether that tool may run. The keeper is the sub-reaper of all processes below it, so a child
//! that forked away still has it as an ancestor. `None` means unknown; callers must refuse then.

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id; absent if the system does not tell.
    pub pid: Option<u32>,
    /// Its start time in ticks ([`started`]), because the system reuses process ids.
    pub began: Option<u64>,
    /// Its user id.
    pub uid: u32,
}

/// The deepest ancestry that is walked; real ones have a few dozen generations.
const MAX_GENERATIONS: usize = 1024;

/// How often the walk restarts when a parent dies under it.
const ATTEMPTS: usize = 3;

/// Whether `pid` is `ancestor` or descends from it; `None` if unknown.
pub fn descends_from(pid: u32, ancestor: u32) -> Option<bool> {
    (0..ATTEMPTS).find_map(|_| walk(pid, ancestor, parent))
}

fn walk(pid: u32, ancestor: u32, parent: impl Fn(u32) -> Option<u32>) -> Option<bool> {
    let mut pid = pid;
    for _ in 0..MAX_GENERATIONS {
        if pid == ancestor {
            return Some(true);
        }
        match parent(pid)? {
            0 => return Some(false),
            next => pid = next,
        }
    }
    None
}

/// A process and its ancestors, as far as the system shows them.
pub fn line(pid: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(pid), |pid| parent(*pid).filter(|parent| *parent > 0)).take(MAX_GENERATIONS)
}

/// The user id of a process.
pub fn user(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Whether a process is a server of ssh, as by its name: at the end of a forwarded socket it stands for a client elsewhere.
pub fn is_ssh(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    matches!(name.trim_end(), "sshd" | "sshd-session" | "dropbear")
}

/// When a process started, in ticks since boot. Together with the process id it identifies one process.
pub fn started(pid: u32) -> Option<u64> {
    stat(pid, 22)
}

/// The parent of a process; 0 for the first one.
#[cfg(target_os = "linux")]
fn parent(pid: u32) -> Option<u32> {
    stat(pid, 4)?.try_into().ok()
}

/// The `nth` field of `/proc/PID/stat` (proc(5), from 1): `pid (name) state ppid …`; the name may contain parentheses.
fn stat(pid: u32, nth: usize) -> Option<u64> {
    /// The number of the first field after the name.
    const STATE: usize = 3;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(nth - STATE)?.parse().ok()
}

/// The parent of a process; unknown on this system.
#[cfg(not(target_os = "linux"))]
fn parent(_pid: u32) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_walked_to_its_first_member() {
        let parents = |pid| match pid {
            9 => Some(5),
            5 => Some(3),
            3 => Some(1),
            1 => Some(0),
            7 => Some(7),
            _ => None,
        };
        assert_eq!(walk(9, 3, parents), Some(true));
        assert_eq!(walk(3, 3, parents), Some(true));
        assert_eq!(walk(3, 9, parents), Some(false));
        assert_eq!(walk(8, 3, parents), None, "an unknown process");
        assert_eq!(walk(7, 3, parents), None, "a circle");
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[allow(clippy::disallowed_methods)] // A real child, with a name that could fool a parser.
    fn a_real_child_descends_from_this_process_and_not_the_other_way_round() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("x) S 1 (");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("30").spawn().unwrap();
        let me = std::process::id();
        assert_eq!(descends_from(child.id(), me), Some(true));
        assert_eq!(descends_from(me, child.id()), Some(false));
        assert_eq!(descends_from(me, std::os::unix::process::parent_id()), Some(true));
        assert_eq!(line(child.id()).take(3).collect::<Vec<_>>(), [child.id(), me, std::os::unix::process::parent_id()]);
        assert_eq!(line(child.id()).last(), line(me).last());
        assert_eq!(user(child.id()), Some(rustix::process::getuid().as_raw()));
        let gone = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(descends_from(gone, me), None);
    }
}
