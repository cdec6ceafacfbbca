//! The mark: recognises processes that a daemon started after daemon and keeper are dead.
//!
//! Three things identify such a process, each where the others fail. A variable ([`OWNER`]) is in the environment of every child;
//! a child that clears it is in the ledger ([`super::ledger`]), by process id and start time. A process that clears it, leaves its
//! group and session and loses its parent has neither: it has the *mark*, an unusual hard limit of file locks (`RLIMIT_LOCKS`).
//! The daemon sets it on itself before it starts anything, so every descendant inherits it.
//!
//! Why this limit: limits survive `fork`, `exec`, `setsid`, `env -i` and user namespaces; raising one takes `CAP_SYS_RESOURCE`;
//! `/proc/PID/limits` shows it for every process; and this one has no effect since Linux 2.4.25, so no program sets it. A cgroup
//! would hold its members better, but needs a user's manager that delegates one, which a container or a plain `ssh` lacks; an open
//! file or a keyring is lost when a program closes everything to become a background process.
//!
//! The number identifies the daemon: 56 bits of a hash of the data directory's path, device and inode. A process is killed for it
//! only if all of them match and the user is the same, and never if it is an ancestor of the daemon. The bits above are a level: a
//! daemon started by a tool of another daemon cannot raise the limit it inherited, so it takes the next lower level. Its children
//! then have its own number, and neither daemon mistakes the other's processes for its own.
//!
//! What escapes: a process that lowers the limit further, one with `CAP_SYS_RESOURCE`, and processes that others start on request
//! (`systemd-run`, `at`, a running multiplexer), which are not descendants. The first may survive, but cannot pass for a user:
//! only a limit above the mark proves that it was not inherited, and every other peer is refused ([`kin`]).
//!
//! So the mark must not be lower than that of the processes to refuse: a daemon does not start below its own mark or below a
//! lowered limit ([`may_start`]), as a tool could that killed the daemon and its keeper. A program that takes their lock too, or
//! that makes up a second daemon above itself, runs as the user and passes for one; only a sandbox prevents that.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};
#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal};

#[cfg(target_os = "linux")]
use crate::sys::peer;

/// The variable that names the daemon a process descends from, by the path of its database.
pub const OWNER: &str = "LINGER_OWNER";

/// The part of a mark that identifies the daemon.
const WHOSE: u64 = (1 << 56) - 1;

/// The levels; 0 is unused, and so is the highest bit, which "unlimited" has.
const LEVELS: std::ops::RangeInclusive<u64> = 1..=0x7f;

/// How long to wait for killed processes: one may hang in the kernel as long as a disk does.
#[cfg(target_os = "linux")]
const GONE: Duration = Duration::from_secs(2);

/// The mark of this process and its descendants; `None` if [`take`] failed, unset in a program that takes none. A process has
/// one, because it is a limit.
static MARK: OnceLock<Option<u64>> = OnceLock::new();

/// A process's relation to the daemon, by the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// As far as the mark tells, the daemon did not start it.
    Stranger,
    /// It has the mark.
    Marked,
    /// Its limit is below the mark: it may have lowered an inherited one.
    Below,
    /// The system does not show its limits, or the daemon has no mark.
    Unknown,
}

/// Sets the mark of the daemon with this data directory on this process. Fails if the system does not support it or the
/// inherited limit is too low; then every process is [`Kin::Unknown`], and only environment and ledger identify processes that a
/// dead daemon left.
pub fn take(data: &Path) -> io::Result<()> {
    let taken = try_take(data);
    let _once = MARK.set(taken.as_ref().ok().copied());
    taken.map(drop)
}

fn try_take(data: &Path) -> io::Result<u64> {
    let mark = choose(limit_of(std::process::id())?, whose(data)?);
    let mark = mark.ok_or_else(|| io::Error::other("the limit of file locks is too low"))?;
    set(mark)?;
    // A 32-bit system treats it as unlimited.
    if limit_of(std::process::id())? != Some(mark) {
        return Err(io::Error::other("the system does not keep the limit of file locks"));
    }
    Ok(mark)
}

/// A daemon cannot start here: its mark would not be above those of processes that it must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLow {
    /// The limit is the mark of the same data directory.
    #[error("this process was started by a daemon that has ended")]
    Orphan,
    /// The limit is no mark of a daemon above this process.
    #[error("the limit of file locks is lowered to {0}")]
    Lowered(u64),
}

impl TooLow {
    /// The next thing to do about it.
    pub fn hint(&self) -> &'static str {
        "start it from a terminal where `ulimit -Hx` prints unlimited"
    }
}

/// Whether a daemon of the data directory `data` may start in this process. Within a tool of another daemon it may: `is_above`
/// says whether the daemon of a data directory lives above this process, and [`OWNER`] which one that is.
pub fn may_start(data: &Path, is_above: impl Fn(&Path) -> bool) -> Result<(), TooLow> {
    let outer = std::env::var_os(OWNER).map(PathBuf::from);
    // A system without such limits has no mark.
    let limit = limit_of(std::process::id()).unwrap_or_default();
    admit(limit, whose(data).ok(), outer.as_deref().and_then(Path::parent).filter(|outer| is_above(outer)))
}

/// Whether this process may go on as the keeper of the daemon that it was: it has that daemon's mark, or no limit. A tool that took
/// the lock could lower the limit further, so that another one of its processes is above the next daemon's mark.
pub fn may_replace(data: &Path) -> Result<(), TooLow> {
    succeed(limit_of(std::process::id()).unwrap_or_default(), whose(data).ok())
}

/// As [`may_replace`], for a process with this limit.
fn succeed(limit: Option<u64>, own: Option<u64>) -> Result<(), TooLow> {
    match limit {
        Some(limit) if own.and_then(|own| choose(None, own)) != Some(limit) => Err(TooLow::Lowered(limit)),
        _ => Ok(()),
    }
}

/// As [`may_start`], for a process with this limit below the daemon of `outer`.
fn admit(limit: Option<u64>, own: Option<u64>, outer: Option<&Path>) -> Result<(), TooLow> {
    let Some(limit) = limit else { return Ok(()) };
    if own.is_some_and(|own| is_of(limit, own)) {
        return Err(TooLow::Orphan);
    }
    let is_outer = outer.and_then(|outer| whose(outer).ok()).is_some_and(|outer| is_of(limit, outer));
    if is_outer { Ok(()) } else { Err(TooLow::Lowered(limit)) }
}

/// The relation of a process that is not a descendant of the daemon, by the mark.
pub fn kin(pid: u32) -> Kin {
    kin_of(MARK.get().copied(), limit_of(pid))
}

/// As [`kin`], for a daemon with this mark and a process with this limit.
fn kin_of(mark: Option<Option<u64>>, limit: io::Result<Option<u64>>) -> Kin {
    match (mark, limit) {
        (None, _) => Kin::Stranger,
        (Some(None), _) | (Some(_), Err(_)) => Kin::Unknown,
        (Some(Some(mark)), Ok(limit)) => against(mark, limit),
    }
}

fn against(mark: u64, limit: Option<u64>) -> Kin {
    match limit {
        Some(limit) if is_of(limit, mark & WHOSE) => Kin::Marked,
        Some(limit) if limit <= mark => Kin::Below,
        _ => Kin::Stranger,
    }
}

/// The highest mark that a process with this limit can take; a limit of `None` is unlimited.
fn choose(limit: Option<u64>, whose: u64) -> Option<u64> {
    let marks = LEVELS.rev().map(|level| level << 56 | whose);
    marks.into_iter().find(|mark| limit.is_none_or(|limit| *mark <= limit))
}

/// Whether a limit is a mark of this daemon, or of an earlier one of the same directory.
fn is_of(limit: u64, whose: u64) -> bool {
    limit & WHOSE == whose && LEVELS.contains(&(limit >> 56))
}

/// The identity of a data directory. The path alone is ambiguous: a container may have the same path and user.
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

/// The hard limit of file locks of a process; `None` is unlimited.
fn limit_of(pid: u32) -> io::Result<Option<u64>> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    hard(&limits).ok_or_else(|| io::Error::other("the system shows no limit of file locks"))
}

/// The hard limit in `/proc/PID/limits` (proc(5)): columns name, soft limit, hard limit, unit.
fn hard(limits: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks "))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Kills every process that descends from the daemon with this database, by its environment or its mark, waits for them, and
/// returns their number. It spares this process, `spared` and the ancestors of both: a tool of an earlier daemon may have started
/// this one. Call it before serving; only a daemon that died together with its keeper leaves any.
#[cfg(target_os = "linux")]
pub fn end_left_behind(database: &Path, spared: Option<u32>) -> usize {
    let variable = format!("{OWNER}={}", database.display());
    let mark = MARK.get().copied().flatten().map(|mark| mark & WHOSE);
    let me = std::process::id();
    let spared: BTreeSet<u32> = [Some(me), spared].into_iter().flatten().flat_map(peer::line).collect();
    let is_ours = |pid: u32| has_variable(pid, &variable) || mark.is_some_and(|mark| has_mark(pid, mark));
    end(|pid| !spared.contains(&pid) && is_ours(pid))
}

/// Kills the processes that are `meant`, waits for them, and returns their number.
#[cfg(target_os = "linux")]
fn end(meant: impl Fn(u32) -> bool) -> usize {
    let until = Instant::now() + GONE;
    let mut killed = BTreeSet::new();
    loop {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut ending = Vec::new();
        for pid in pids.filter(|pid| meant(*pid)) {
            // The id may be reused by now, a descriptor is not: so open it first and check again.
            let open = |pid| pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok();
            let Some(process) = open(pid) else { continue };
            // A zombie keeps its id and limits until its parent reaps it, which init of a container may never do.
            if meant(pid) && !ended(&process, Duration::ZERO) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
                killed.insert(pid);
                ending.push(process);
            }
        }
        for process in &ending {
            // A process that has not ended by then is hung in the kernel.
            let _late = ended(process, until.saturating_duration_since(Instant::now()));
        }
        // Repeat until none is found: a process may have forked a child that this pass missed.
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

/// Other systems show neither environment nor limits of a process, so nothing is found.
#[cfg(not(target_os = "linux"))]
pub fn end_left_behind(_database: &Path, _spared: Option<u32>) -> usize {
    0
}

#[cfg(target_os = "linux")]
fn has_variable(pid: u32, variable: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|other| other == variable.as_bytes())
}

/// Whether a process belongs to this user and has this mark.
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
    fn a_daemon_without_its_mark_takes_nobody_for_a_user() {
        let hidden = || io::Error::other("no limits are shown");
        for limit in [Ok(None), Ok(Some(3)), Err(hidden())] {
            assert_eq!(kin_of(Some(None), limit), Kin::Unknown, "it could not take its mark");
        }
        assert_eq!(kin_of(Some(choose(None, 7)), Err(hidden())), Kin::Unknown);
        assert_eq!(kin_of(Some(choose(None, 7)), Ok(None)), Kin::Stranger);
        assert_eq!(kin_of(None, Ok(Some(3))), Kin::Stranger, "a program without marks");
    }

    #[test]
    fn a_daemon_starts_above_its_own_mark_and_below_that_of_a_daemon_above_it() {
        let (own, outer) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = whose(own.path()).unwrap();
        let admit = |limit, outer: Option<&Path>| admit(limit, Some(name), outer);
        assert_eq!(admit(None, None), Ok(()));
        let mark = choose(None, name).unwrap();
        assert_eq!(admit(Some(mark), None), Err(TooLow::Orphan));
        assert_eq!(admit(Some(mark), Some(own.path())), Err(TooLow::Orphan));
        let above = choose(None, whose(outer.path()).unwrap()).unwrap();
        assert_eq!(admit(Some(above), Some(outer.path())), Ok(()), "within a tool of another one");
        for lowered in [3, (125 << 56) + 12345, above - 1, mark - 1] {
            assert_eq!(admit(Some(lowered), Some(outer.path())), Err(TooLow::Lowered(lowered)));
        }
        assert_eq!(admit(Some(above), None), Err(TooLow::Lowered(above)), "the other one has ended");
    }

    #[test]
    fn a_keeper_is_succeeded_by_a_process_with_the_mark_of_its_daemon_and_none_below() {
        let mark = choose(None, 7).unwrap();
        assert_eq!([None, Some(mark)].map(|limit| succeed(limit, Some(7))), [Ok(()), Ok(())]);
        for lowered in [mark - 1, 0x7e << 56 | 7, (125 << 56) + 12345, 3] {
            assert_eq!(succeed(Some(lowered), Some(7)), Err(TooLow::Lowered(lowered)));
        }
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
