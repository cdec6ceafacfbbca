//! Who listens at the socket: the daemon, or another process that took its place.
//!
//! The daemon holds a lock on its directory for as long as it, or its keeper, lives. A process that listens is the daemon if it
//! holds that lock, or if its parent does, which is the keeper. Provider keys and variables go to a proven daemon only.

use std::collections::BTreeMap;
use std::fs;

use linger_protocol::place::Places;
use linger_protocol::transport::blocking::Writer;
use linger_protocol::variable::{PROVIDER_KEYS, TOOL_ENV};

use super::holder;
use crate::error::Failure;
use crate::terminal::clean_line;

/// What is known of the process that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It is the daemon.
    Daemon,
    /// It cannot be told: a socket of another machine or container, or a system that does not show locks.
    Unknown,
    /// It is this process, which is not the daemon.
    Stranger(u32),
}

/// Proves who listens at the other end.
pub(super) fn of(places: &Places, writer: &Writer) -> Proof {
    let Some(listener) = writer.listener() else { return Proof::Unknown };
    let holder = holder::find(places).map(|holder| holder.pid);
    judge(listener, holder, holder::parent(listener))
}

fn judge(listener: u32, holder: Option<u32>, parent: Option<u32>) -> Proof {
    match holder {
        Some(holder) if listener == holder || parent == Some(holder) => Proof::Daemon,
        Some(_) if parent.is_some() => Proof::Stranger(listener),
        _ => Proof::Unknown,
    }
}

/// Whether the user has named the socket: then it may be the end of a tunnel to another machine.
pub(super) fn is_named() -> bool {
    std::env::var_os("LINGER_SOCKET").is_some()
}

/// The failure if a stranger listens.
pub(super) fn stranger(pid: u32, places: &Places) -> Failure {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = if name.trim().is_empty() { String::new() } else { format!(" ({})", clean_line(name.trim())) };
    let socket = places.socket.display();
    Failure::unreachable(format!("process {pid}{name} listens at {socket}, and it is not the daemon"))
        .hint(format!("nothing was sent to it; end it and delete {socket}: the daemon makes it again"))
}

/// The provider keys of this environment among `wanted`: those of known providers, and those that the configuration names.
pub(super) fn keys(wanted: &[String], places: &Places) -> BTreeMap<String, String> {
    known(wanted, &PROVIDER_KEYS, places)
}

/// The variables of this environment for tools among `wanted`: the usual ones, and those that the configuration names.
pub(super) fn environment(wanted: &[String], places: &Places) -> BTreeMap<String, String> {
    known(wanted, &TOOL_ENV, places)
}

fn known(wanted: &[String], usual: &[&str], places: &Places) -> BTreeMap<String, String> {
    let others = wanted.iter().any(|name| !usual.contains(&name.as_str()));
    let config = if others { fs::read_to_string(places.config_file()).unwrap_or_default() } else { String::new() };
    let known = wanted.iter().filter(|name| usual.contains(&name.as_str()) || names(&config, name));
    known.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}

/// Whether a configuration has this text as a string.
fn names(config: &str, name: &str) -> bool {
    ['"', '\''].iter().any(|quote| config.contains(&format!("{quote}{name}{quote}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_the_lock_and_its_child_are_the_daemon_and_nobody_else() {
        assert_eq!(judge(7, Some(7), Some(1)), Proof::Daemon);
        assert_eq!(judge(8, Some(7), Some(7)), Proof::Daemon, "below its keeper");
        assert_eq!(judge(9, Some(7), Some(8)), Proof::Stranger(9), "a child of the daemon");
        assert_eq!(judge(9, None, Some(1)), Proof::Unknown, "no lock is shown");
        assert_eq!(judge(9, Some(7), None), Proof::Unknown, "no process is shown");
    }

    #[test]
    fn a_configuration_names_a_variable_as_a_whole_string() {
        let config = "[providers.work]\napi_key_env = \"WORK_KEY\"\n[env]\nextra = ['GH_TOKEN']";
        for (name, expect) in
            [("WORK_KEY", true), ("GH_TOKEN", true), ("KEY", false), ("work", false), ("extra", false)]
        {
            assert_eq!(names(config, name), expect, "{name}");
        }
    }
}
