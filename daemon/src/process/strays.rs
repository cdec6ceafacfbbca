//! Processes that left the group of their call: they end with it.
//!
//! Such a process (`setsid -f`) becomes a child of the daemon, the sub-reaper, when its parent has ended. It is recognised by
//! [`CALL`] in its environment, or, if it cleared that, by the mark of the daemon ([`super::mark`]); the latter only while no call
//! runs that may have started it. What a call started stays while the call runs, and what the daemon starts for itself, as the
//! agent of a command that prints a key, stays until the daemon ends.
//! The reaper ([`super::adopt_orphans`]) looks whenever a call or an adopted process ends: nothing polls.

use std::sync::atomic::{AtomicU64, Ordering};

use linger_protocol::id::SessionId;
use rustix::process::{Pid, Signal, kill_process};

use super::mark::{self, Kin};
use super::own;
use crate::fault;

/// The variable that names the call a process belongs to: the daemon's process id and a number; [`DAEMON`] for what the daemon
/// starts for itself.
pub(super) const CALL: &str = "LINGER_CALL";

/// The value of [`CALL`] for children of no call.
const DAEMON: &str = "daemon";

/// The number of the next call.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The value of [`CALL`] for a new child of a tool of `session`, or of the daemon itself.
pub(super) fn name(session: Option<&SessionId>) -> String {
    match session {
        Some(_) => format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
        None => DAEMON.to_owned(),
    }
}

/// Kills an adopted process that belongs to no running call.
pub(super) fn end(adopted: Pid) {
    let pid = adopted.as_raw_nonzero().get().cast_unsigned();
    if !may_stay(pid) && !fault::bug("I8") {
        // It is reaped like every orphan; what it started comes next.
        let _gone = kill_process(adopted, Signal::KILL);
    }
}

fn may_stay(pid: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    let call = variables.find_map(|variable| std::str::from_utf8(variable).ok()?.strip_prefix(CALL)?.strip_prefix('='));
    let calls = own();
    let mut running = calls.iter().map(|child| child.call.as_str());
    match call.filter(|call| is_ours(call)) {
        Some(DAEMON) => true,
        Some(call) => running.any(|it| it == call),
        // A program that embeds the daemon has no mark, and children of its own.
        None => mark::kin(pid) == Kin::Stranger || running.any(|it| it != DAEMON),
    }
}

/// Whether a value of [`CALL`] is of this process: it may be that of a daemon above.
fn is_ours(call: &str) -> bool {
    call == DAEMON || call.split_once('.').is_some_and(|(pid, _)| pid == std::process::id().to_string())
}
