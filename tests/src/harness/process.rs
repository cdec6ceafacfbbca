//! What `/proc` says about processes: families, memory, time, wake-ups. Linux; elsewhere nothing is found.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, pidfd_send_signal, prlimit,
};

/// A process that will not be taken for another one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the system did.
    pub started: u64,
    /// Its command line.
    pub command: String,
}

/// The fields of `/proc/PID/stat` after the name: `[0]` is the state, `[1]` the parent.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn process(pid: u32) -> Option<Process> {
    let stat = stat(pid)?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    // A zombie runs no more; whoever has to collect it does so later.
    (stat[0] != "Z").then(|| Process { pid, started: stat[19].parse().unwrap_or_default(), command })
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Sets how many files a process may open, and gives how many it could.
pub fn limit_files(pid: u32, most: u64) -> u64 {
    let new = Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) };
    let old = prlimit(Pid::from_raw(pid.cast_signed()), Resource::Nofile, new).expect("the process runs");
    old.current.unwrap_or(u64::MAX)
}

/// Everything below `pid`, without it.
pub fn descendants(pid: u32) -> Vec<Process> {
    let parents: Vec<(u32, u32)> =
        all().into_iter().filter_map(|pid| Some((pid, stat(pid)?[1].parse().ok()?))).collect();
    let mut family = BTreeSet::from([pid]);
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(p, parent)| family.contains(parent) && !family.contains(p))
            .map(|(p, _)| *p)
            .collect();
        if more.is_empty() {
            break;
        }
        family.extend(more);
    }
    family.remove(&pid);
    family.into_iter().filter_map(process).collect()
}

/// Processes whose environment, command line or working directory names `dir`, whoever their parent is by now. Of a daemon, only
/// root is told the environment; its command line names the directory, and its keeper is its parent.
pub fn of_directory(dir: &Path) -> Vec<Process> {
    let needle = dir.as_os_str().as_encoded_bytes();
    let names = |pid: u32, file: &str| has(pid, file, needle);
    let cwd = |pid: u32| fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let of_daemon = |pid: u32| names(pid, "cmdline") && names_itself(pid);
    let me = std::process::id();
    let mut found = BTreeSet::new();
    for pid in all().into_iter().filter(|pid| *pid != me) {
        if of_daemon(pid) {
            let parent = stat(pid).and_then(|stat| stat[1].parse().ok());
            found.extend(parent.filter(|parent| names_itself(*parent)));
        }
        if of_daemon(pid) || names(pid, "environ") || cwd(pid).starts_with(dir) {
            found.insert(pid);
        }
    }
    found.into_iter().filter_map(process).collect()
}

/// Whether a process is one of linger's daemons or keepers, by its command line.
fn names_itself(pid: u32) -> bool {
    has(pid, "cmdline", b"lingerd")
}

/// Whether the system names something in what it tells of a process.
fn has(pid: u32, file: &str, needle: &[u8]) -> bool {
    let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    text.windows(needle.len()).any(|window| window == needle)
}

/// Whether it still runs.
pub fn is_alive(known: &Process) -> bool {
    process(known.pid).is_some_and(|now| now.started == known.started)
}

/// Sends a signal; a process that has gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _gone = kill_process(pid, signal);
    }
}

/// `kill -9`; whether it has ended within a time, with all its threads: only then are its files closed.
pub fn kill_and_wait(pid: u32, limit: Duration) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    // It may have ended by itself.
    let _gone = pidfd_send_signal(&process, Signal::KILL);
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now()).try_into().expect("a time-out");
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            // Another child of this process has ended.
            Err(rustix::io::Errno::INTR) => {}
            ended => return ended.is_ok_and(|ended| ended > 0),
        }
    }
}

/// Resident and proportional memory, in KiB. Of a daemon only root is told the second; it is 0 for others.
pub fn memory(pid: u32) -> (u64, u64) {
    let rollup = format!("/proc/{pid}/smaps_rollup");
    let resident = kib(&rollup, "Rss:").or_else(|| kib(&format!("/proc/{pid}/status"), "VmRSS:"));
    (resident.unwrap_or_default(), kib(&rollup, "Pss:").unwrap_or_default())
}

/// Memory of a process that is in no file, or no longer as it is there, in KiB. Of a daemon only root is told.
pub fn own_memory(pid: u32) -> Option<u64> {
    kib(&format!("/proc/{pid}/smaps_rollup"), "Anonymous:")
}

/// The most resident memory that a process has had so far, in KiB.
pub fn peak(pid: u32) -> u64 {
    kib(&format!("/proc/{pid}/status"), "VmHWM:").expect("it lives")
}

/// A line of such a file.
fn kib(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find(|line| line.starts_with(name))?.split_whitespace().nth(1)?.parse().ok()
}

/// How many files a process has open. Of a daemon, only root is told.
pub fn files(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// How many bytes a process has read so far, from files, pipes and sockets. Of a daemon, only root is told.
pub fn read(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

/// User and system time of all threads, in seconds.
pub fn cpu(pid: u32) -> f64 {
    let Some(stat) = stat(pid) else { return 0.0 };
    let ticks: f64 = [11, 12].iter().filter_map(|field| stat[*field].parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// The same, as exact as the scheduler knows it, in milliseconds; what runs at this moment may lack its last few.
pub fn cpu_of_threads(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |stat: String| stat.split_whitespace().next()?.parse::<f64>().ok();
    threads.filter_map(|thread| of(fs::read_to_string(thread.path().join("schedstat")).ok()?)).sum::<f64>() / 1e6
}

/// How often the threads of a process went to sleep by themselves so far.
pub fn wakeups(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |status: String| {
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    threads.filter_map(|thread| of(fs::read_to_string(thread.path().join("status")).ok()?)).sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::harness::{Dirs, comes_true};

    #[test]
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn a_family_is_found_also_when_a_child_has_left_it() {
        let dirs = Dirs::default();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "(setsid sleep 631 &); sleep 632 & sleep 633"]).current_dir(dirs.workspace());
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let sleeps = |processes: &[Process]| processes.iter().filter(|p| p.command.starts_with("sleep 63")).count();
        let limit = Duration::from_secs(5);
        assert!(comes_true(limit, || sleeps(&descendants(child.id())) == 2), "{:?}", descendants(child.id()));
        assert!(comes_true(limit, || sleeps(&of_directory(dirs.root())) == 3), "{:?}", of_directory(dirs.root()));
        let all = of_directory(dirs.root());
        let (rss, pss) = memory(child.id());
        assert!(rss >= pss && pss > 0 && peak(child.id()) >= rss / 2, "{rss} {pss}");
        assert!(wakeups(child.id()) > 0);
        assert!(cpu(child.id()) < 1.0);
        assert!((0.0..1000.0).contains(&cpu_of_threads(std::process::id())) && cpu_of_threads(child.id()) > 0.0);
        all.iter().for_each(|process| signal(process.pid, Signal::KILL));
        child.wait().unwrap();
        assert!(comes_true(limit, || !all.iter().any(is_alive)));
        assert_eq!(of_directory(dirs.root()), []);
    }
}
