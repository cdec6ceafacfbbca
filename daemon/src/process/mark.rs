//! What a process is known by that the daemon started, when daemon and keeper are dead and cannot say it any more.
//!
//! Three things name such a process, each for what the others miss. A variable ([`OWNER`]) is in the environment of every child;
//! a child that clears it is in the record ([`super::ledger`]), by number and start time. What clears it, leaves its group and
//! session and has lost its parent has neither: for it there is the *mark*, an odd number as hard limit of file locks
//! (`RLIMIT_LOCKS`). The daemon takes it for itself before it starts anything, and so every process below it has it.
//!
//! Why that limit: a limit goes through `fork`, `exec`, `setsid`, `env -i` and user namespaces; nobody without the system's
//! `CAP_SYS_RESOURCE` can raise it again; `/proc/PID/limits` shows it of every process; and this one has had no effect since
//! Linux 2.4.25, so that nobody has a reason to set it. A cgroup would hold its members better, but needs a manager of the user's
//! that gives one away, which is not there in a container or after a plain `ssh`; an open file or a keyring is given up by whoever
//! closes everything, as programs that go into the background do.
//!
//! The number says whose process it is: 56 bits of a hash of the data directory's path, device and inode. A process is ended for
//! it only if all of them are there and the user is the same, never if it is an ancestor of the daemon. Above them is a level. A
//! daemon that a tool of another one started, of other directories, may not raise what it inherited, and takes the next level
//! below; so what it starts has its own number, and neither takes the processes of the other for its own.
//!
//! What escapes: a process that lowers the limit further, one that has root's right to raise it, and whatever others start for it
//! (`systemd-run`, `at`, a multiplexer that runs already), which is no process of ours. The first may live on, but cannot pass for
//! a user: who has a limit above the mark did certainly not inherit it, and whoever has not is refused ([`kin`]).

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};
#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal};

#[cfg(target_os = "linux")]
use super::OWNER;
#[cfg(target_os = "linux")]
use crate::sys::peer;

/// The part of a mark that says whose it is.
const WHOSE: u64 = (1 << 56) - 1;

/// The levels; none is 0 or reaches the highest bit, which "unlimited" has.
const LEVELS: std::ops::RangeInclusive<u64> = 1..=0x7f;

/// How long killed processes may take to be gone: one may hang in the system for as long as a disk does.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(2);

/// The mark of this process and of all that it starts; none where it has not taken one, or cannot.
static MARK: OnceLock<u64> = OnceLock::new();

/// What the mark says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// The daemon did not start it, as far as the mark can say.
    Stranger,
    /// It has the mark.
    Marked,
    /// Its limit is below the mark: it may have inherited that and lowered it.
    Below,
    /// The system does not show its limits.
    Unknown,
}

/// Takes the mark of the daemon with this data directory, for this process and all that it starts. Fails where there can be none;
/// then only environment and record tell what a dead daemon left.
pub fn take(data: &Path) -> io::Result<()> {
    let mark = choose(limit_of(std::process::id())?, whose(data)?);
    let mark = mark.ok_or_else(|| io::Error::other("the limit of file locks is too low"))?;
    set(mark)?;
    // A system with numbers of 32 bits takes it for no limit.
    if limit_of(std::process::id())? != Some(mark) {
        return Err(io::Error::other("the system does not keep the limit of file locks"));
    }
    let _once = MARK.set(mark);
    Ok(())
}

/// What the mark says of this process, which is not in the daemon's family.
pub fn kin(pid: u32) -> Kin {
    match (MARK.get(), limit_of(pid)) {
        (None, _) => Kin::Stranger,
        (Some(_), Err(_)) => Kin::Unknown,
        (Some(mark), Ok(limit)) => against(*mark, limit),
    }
}

fn against(mark: u64, limit: Option<u64>) -> Kin {
    match limit {
        Some(limit) if is_of(limit, mark & WHOSE) => Kin::Marked,
        Some(limit) if limit <= mark => Kin::Below,
        _ => Kin::Stranger,
    }
}

/// The highest mark that a process with this limit can take; none is unlimited.
fn choose(limit: Option<u64>, whose: u64) -> Option<u64> {
    let marks = LEVELS.rev().map(|level| level << 56 | whose);
    marks.into_iter().find(|mark| limit.is_none_or(|limit| *mark <= limit))
}

/// Whether a limit is a mark of this daemon, or of an earlier one of the same directory.
fn is_of(limit: u64, whose: u64) -> bool {
    limit & WHOSE == whose && LEVELS.contains(&(limit >> 56))
}

/// Names a data directory: by its path alone it could be that of a container with processes of the same user.
fn whose(data: &Path) -> io::Result<u64> {
    use sha2::Digest as _;
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::metadata(data)?;
    let mut hash = sha2::Sha256::new();
    hash.update(meta.dev().to_le_bytes());
    hash.update(meta.ino().to_le_bytes());
    hash.update(data.as_os_str().as_encoded_bytes());
    Ok(hash.finalize().iter().take(7).fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(target_os = "linux")]
fn set(mark: u64) -> io::Result<()> {
    Ok(rustix::process::setrlimit(Resource::Locks, Rlimit { current: Some(mark), maximum: Some(mark) })?)
}

#[cfg(not(target_os = "linux"))]
fn set(_: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The hard limit of file locks of a process; none is unlimited.
fn limit_of(pid: u32) -> io::Result<Option<u64>> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    hard(&limits).ok_or_else(|| io::Error::other("the system shows no limit of file locks"))
}

/// The limit in what proc(5) shows: name, soft limit, hard limit and unit, in columns.
fn hard(limits: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks "))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Kills every process that descends from the daemon with this database, by its environment or its mark, and waits until it has
/// ended; how many there were. This process, its ancestors and those of the process `spared` are left alone: a daemon may have been
/// started by a tool of an earlier one. For the start, before anything else is served: only a daemon that died together with its
/// keeper left any.
#[cfg(target_os = "linux")]
pub fn end_left_behind(database: &Path, spared: Option<u32>) -> usize {
    let variable = format!("{OWNER}={}", database.display());
    let mark = MARK.get().map(|mark| mark & WHOSE);
    let me = std::process::id();
    let spared: BTreeSet<u32> = [Some(me), spared].into_iter().flatten().flat_map(peer::line).collect();
    let is_ours = |pid: u32| has_variable(pid, &variable) || mark.is_some_and(|mark| has_mark(pid, mark));
    end(|pid| !spared.contains(&pid) && is_ours(pid))
}

/// Kills the processes that are `meant`, and waits until they have ended; how many there were.
#[cfg(target_os = "linux")]
fn end(meant: impl Fn(u32) -> bool) -> usize {
    let until = Instant::now() + GONE;
    let mut killed = BTreeSet::new();
    loop {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut ending = Vec::new();
        for pid in pids.filter(|pid| meant(*pid)) {
            // The number may be another's by now; the descriptor cannot be, so it is taken first and looked at again.
            let open = |pid| pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok();
            let Some(process) = open(pid) else { continue };
            // One that has ended keeps number and limits until its parent asks for it, which that of a container may never do.
            if meant(pid) && !ended(&process, Duration::ZERO) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
                killed.insert(pid);
                ending.push(process);
            }
        }
        for process in &ending {
            // If it has not ended by then, it is about to.
            let _late = ended(process, until.saturating_duration_since(Instant::now()));
        }
        // One that was just forking has left a child that was not there to be seen.
        if ending.is_empty() || Instant::now() >= until {
            return killed.len();
        }
    }
}

/// Whether all threads of a process end within `limit`.
#[cfg(target_os = "linux")]
fn ended(process: &impl AsFd, limit: Duration) -> bool {
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ended, limit.try_into().ok().as_ref()).is_ok_and(|ready| ready > 0)
}

/// Elsewhere a process shows neither its environment nor its limits: what the dead one left behind is not found.
#[cfg(not(target_os = "linux"))]
pub fn end_left_behind(_database: &Path, _spared: Option<u32>) -> usize {
    0
}

#[cfg(target_os = "linux")]
fn has_variable(pid: u32, variable: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|other| other == variable.as_bytes())
}

/// Whether a process of this user has such a mark.
#[cfg(target_os = "linux")]
fn has_mark(pid: u32, whose: u64) -> bool {
    limit_of(pid).is_ok_and(|limit| limit.is_some_and(|limit| is_of(limit, whose)))
        && peer::user(pid) == Some(rustix::process::getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_within_another_ones_tool_takes_a_mark_of_its_own_and_one_within_its_own_the_same() {
        let (outer, inner) = (0x00aa_0000_0000_0001, 0x0055_0000_0000_0002);
        let first = choose(None, outer).unwrap();
        assert_eq!(first, 0x7faa_0000_0000_0001);
        assert_eq!(choose(Some(first), outer), Some(first), "the next life");
        assert_eq!(choose(Some(first), inner), Some(0x7f55_0000_0000_0002));
        assert_eq!(choose(Some(0x7f55_0000_0000_0002), outer), Some(0x7eaa_0000_0000_0001), "a level below");
        assert_eq!(choose(Some(1024), outer), None);
        assert!(is_of(first, outer) && is_of(0x7eaa_0000_0000_0001, outer));
        assert!(![first + 1, first & WHOSE, u64::MAX, 0].iter().any(|limit| is_of(*limit, outer)));
    }

    #[test]
    fn only_a_limit_above_the_mark_is_certainly_not_inherited() {
        let mark = choose(None, 7).unwrap();
        let kin = [None, Some(u64::MAX - 1), Some(mark + 1), Some(mark), Some(mark - 1), Some(0)];
        let expect = [Kin::Stranger, Kin::Stranger, Kin::Stranger, Kin::Marked, Kin::Below, Kin::Below];
        assert_eq!(kin.map(|limit| against(mark, limit)), expect);
    }

    #[test]
    fn the_limit_is_read_from_what_the_system_shows() {
        let head = "Limit                     Soft Limit           Hard Limit           Units     \n";
        let show = |line: &str| hard(&format!("{head}Max file size  unlimited unlimited bytes\n{line}"));
        assert_eq!(
            show("Max file locks            unlimited            unlimited            locks     \n"),
            Some(None)
        );
        assert_eq!(
            show("Max file locks            7                    4611686018427387905  locks\n"),
            Some(Some(4611686018427387905))
        );
        assert_eq!([show(""), show("Max file locks x\n"), show("Max file locks 1 y locks")], [None; 3]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a process that was left behind")]
    fn what_has_ended_and_was_never_waited_for_is_not_ended_again() {
        let dir = tempfile::tempdir().unwrap();
        let name = whose(dir.path()).unwrap();
        let mark = choose(None, name).unwrap();
        let mut left = std::process::Command::new("bash");
        let mut left = left.args(["-c", &format!("ulimit -x {mark} && exec sleep 1000")]).spawn().unwrap();
        while !has_mark(left.id(), name) {
            assert_eq!(left.try_wait().unwrap(), None, "bash sets no such limit");
        }
        assert_eq!(end(|pid| has_mark(pid, name)), 1);
        assert!(has_mark(left.id(), name), "it keeps its limits");
        assert_eq!(end(|pid| has_mark(pid, name)), 0);
        left.wait().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_has_one_name_and_this_process_none_of_a_daemon() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = whose(one.path()).unwrap();
        assert_eq!(name, whose(one.path()).unwrap());
        assert_ne!(name, whose(two.path()).unwrap());
        assert!(name <= WHOSE && !has_mark(std::process::id(), name));
        assert_eq!(kin(std::process::id()), Kin::Stranger);
    }
}
