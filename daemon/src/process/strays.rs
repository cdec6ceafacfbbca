//! Processes that left the group of their call: they end with it.
//!
//! Such a process (`setsid -f`) becomes a child of the daemon, the sub-reaper, when its parent has ended. It is recognised by
//! [`CALL`] in its environment, or, if it cleared that, by the mark of the daemon ([`super::mark`]); such a one belongs to one of
//! the calls that ran when it was first seen. What a call started stays while the call runs, and what the daemon starts for itself,
//! as the agent of a command that prints a key, stays until the daemon ends. The names of both are random: a process that takes
//! another name must read it from that one's environment.
//! The reaper ([`super::adopt_orphans`]) looks whenever a call or an adopted process ends: nothing polls.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use linger_protocol::id::SessionId;
use rustix::process::{Pid, Signal, kill_process};

use super::below::children;
use super::mark::{self, Kin};
use super::running;
use crate::fault;
use crate::sys::clock::random_word;
use crate::sys::peer;

/// The variable that names the call a process belongs to: the daemon's process id and a random word; [`of_daemon`] for what the
/// daemon starts for itself.
pub(super) const CALL: &str = "LINGER_CALL";

/// The length of the random word: too many to guess, and to be given out twice.
const WORD: usize = 12;

/// The calls that ran when an adopted process without a name was first seen, by process id and start time.
static SEEN: Mutex<BTreeMap<(u32, u64), Vec<String>>> = Mutex::new(BTreeMap::new());

/// Processes of one call that are counted, and characters of the command line of each: enough to know it again.
const COUNTED: usize = 1000;
const LINE: usize = 80;

/// How often it is looked at a copy of the shell that has started nothing, and how long after one another.
const ATTEMPTS: usize = 6;
const ATTEMPT: Duration = Duration::from_millis(10);

/// A process that a command left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its process id.
    pub pid: u32,
    /// The beginning of its command line, as it may be: with what does not print.
    pub line: String,
}

/// The processes that the leader of `group`, which has ended, leaves behind: those of its group and those with its name. Of processes
/// that started one another the first one counts, but of a copy of the leader (a subshell, whose command line `line` is the leader's)
/// those that it started. Empty where the daemon does not adopt them.
pub(super) async fn left_by(call: &str, group: Pid, line: &[u8]) -> Vec<Stray> {
    let mut found = LeftBehind::default();
    for _ in 0..ATTEMPTS {
        found = look(call, group, line);
        if !found.has_copy {
            break;
        }
        // A copy may be about to become the program that is meant.
        tokio::time::sleep(ATTEMPT).await;
    }
    found.strays
}

#[derive(Default)]
struct LeftBehind {
    strays: Vec<Stray>,
    /// Whether one is a copy of the leader that has started nothing.
    has_copy: bool,
}

fn look(call: &str, group: Pid, line: &[u8]) -> LeftBehind {
    let orphans = children().unwrap_or_default().into_iter().filter(|child| !running::is_own(*child));
    let mut left = LeftBehind::default();
    for orphan in orphans.filter(|orphan| is_left(*orphan, call, group)) {
        left.name(orphan.as_raw_nonzero().get().cast_unsigned(), line);
    }
    left
}

/// Whether an adopted process belongs to the group, or to the call and to no other.
fn is_left(orphan: Pid, call: &str, group: Pid) -> bool {
    if rustix::process::getpgid(Some(orphan)).is_ok_and(|its| its == group) {
        return true;
    }
    let pid = orphan.as_raw_nonzero().get().cast_unsigned();
    match call_of(pid) {
        Some(its) => call != of_daemon() && its == call,
        // It is ended if no call is left that it may belong to.
        None => {
            let is_other = |it: &String| it != call && it != of_daemon();
            let others = running::lock().iter().map(|child| child.call.clone()).filter(is_other).collect();
            call != of_daemon() && mark::kin(pid) != Kin::Stranger && !may_belong(pid, others)
        }
    }
}

impl LeftBehind {
    fn name(&mut self, pid: u32, leader: &[u8]) {
        // One that has ended, or is about to, has none.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        if line.is_empty() || self.strays.len() >= COUNTED {
            return;
        }
        if line == leader {
            let started = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let before = self.strays.len();
            started.split_whitespace().filter_map(|pid| pid.parse().ok()).for_each(|pid| self.name(pid, leader));
            if self.strays.len() > before {
                return;
            }
            self.has_copy = true;
        }
        let words = String::from_utf8_lossy(line).replace('\0', " ");
        self.strays.push(Stray { pid, line: words.chars().take(LINE).collect() });
    }
}

/// The value of [`CALL`] for a new child of a tool of `session`, or of the daemon itself.
pub(super) fn name(session: Option<&SessionId>) -> String {
    match session {
        Some(_) => format!("{}.{}", std::process::id(), random_word(WORD)),
        None => of_daemon().to_owned(),
    }
}

/// The value of [`CALL`] for children of no call.
pub(super) fn of_daemon() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| format!("{}.daemon.{}", std::process::id(), random_word(WORD)))
}

/// Kills an adopted process that belongs to no running call.
pub(super) fn end(adopted: Pid) {
    let pid = adopted.as_raw_nonzero().get().cast_unsigned();
    if !may_stay(pid) && !fault::bug("I8") {
        // It is reaped like every orphan; what it started comes next.
        let _gone = kill_process(adopted, Signal::KILL);
    }
}

/// The value of [`CALL`] in the environment of a process; absent if it has none of this daemon.
fn call_of(pid: u32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let call = variables.find_map(|variable| std::str::from_utf8(variable).ok()?.strip_prefix(CALL)?.strip_prefix('='));
    call.filter(|call| is_ours(call)).map(ToOwned::to_owned)
}

fn may_stay(pid: u32) -> bool {
    let running: Vec<String> =
        running::lock().iter().map(|child| child.call.clone()).filter(|call| call != of_daemon()).collect();
    match call_of(pid) {
        Some(call) if call == of_daemon() => true,
        Some(call) => running.contains(&call),
        // A program that embeds the daemon has no mark, and children of its own.
        None => mark::kin(pid) == Kin::Stranger || may_belong(pid, running),
    }
}

/// Whether a process without a name may belong to a call that still runs.
fn may_belong(pid: u32, running: Vec<String>) -> bool {
    let Some(began) = peer::started(pid) else { return true };
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !seen.contains_key(&(pid, began)) {
        seen.retain(|(pid, began), _| peer::started(*pid) == Some(*began));
    }
    let then = seen.entry((pid, began)).or_insert_with(|| running.clone());
    then.retain(|call| running.contains(call));
    !then.is_empty()
}

/// Whether a value of [`CALL`] is of this process: it may be that of a daemon above.
fn is_ours(call: &str) -> bool {
    call.split_once('.').is_some_and(|(pid, _)| pid == std::process::id().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_name_stays_while_a_call_runs_that_ran_when_it_was_first_seen() {
        let (pid, all) = (std::process::id(), |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect());
        assert!(may_belong(pid, all(&["1.a", "1.b"])));
        assert!(may_belong(pid, all(&["1.b", "1.c"])));
        assert!(!may_belong(pid, all(&["1.a", "1.c"])), "c began later, and a name that comes again is no proof");
    }

    #[test]
    fn no_name_can_be_told_in_advance() {
        let session = SessionId::from("abcd".to_owned());
        assert_ne!(name(Some(&session)), name(Some(&session)));
        assert!(is_ours(&name(None)) && is_ours(&name(Some(&session))));
        assert!(!is_ours("daemon") && !is_ours("1.daemon") && !is_ours(""));
        assert_eq!(name(None), name(None), "of one daemon");
    }
}
