//! Who listens at the socket: the daemon, or another process that took its place.
//!
//! The daemon's keeper holds a lock on its directory. A process that listens is the daemon if its parent holds that lock and names
//! it: the keeper's name in process lists ends in the daemon's process id, and no other process can change that name. A child of
//! a tool whose daemon was killed has the keeper as its parent too, but not the daemon's id.
//! A process that took the lock itself, after killing both, shows in its limit of file locks: the daemon lowers that of itself and
//! of everything it starts, and only root can raise it again. A daemon that took its dead keeper's place cannot be told from it,
//! so neither is proven.
//! Provider keys and variables go to a proven daemon only.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::daemon::Welcome;
use linger_protocol::place::Places;
use linger_protocol::transport::blocking::Writer;
use linger_protocol::variable::{Choice, PROVIDER_KEYS, TOOL_ENV, Withheld};

use super::holder;
use crate::environment::working_directory;
use crate::error::Failure;
use crate::terminal::clean_line;

/// So much of the configuration is read, in bytes.
const MAX_CONFIGURATION: u64 = 1 << 20;

/// The files of a workspace that can have MCP servers.
const WORKSPACE_FILES: [&str; 2] = [".mcp.json", ".linger/config.toml"];

/// The identity of the listening process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
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

/// Proves who listens at the other end.
pub(super) fn of(places: &Places, writer: &Writer) -> Proof {
    let Some(listener) = writer.listener() else { return Proof::Unknown };
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

/// Whether the user has named the socket: then it may be the end of a tunnel to another machine.
pub(super) fn is_named() -> bool {
    std::env::var_os("LINGER_SOCKET").is_some()
}

/// The failure if a stranger listens.
pub(super) fn stranger(pid: u32, places: &Places) -> Failure {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = if name.trim().is_empty() { String::new() } else { format!(" ({})", clean_line(name.trim())) };
    let socket = places.socket.display();
    Failure::unreachable(format!("process {pid}{name} listens at {socket}, but it is not the daemon"))
        .hint(format!("it received only this client's name; end it and delete {socket}: the daemon creates it again"))
}

/// The provider keys of this environment among `wanted`: those of known providers, and those that the configuration names.
pub(super) fn keys(wanted: &[String], places: &Places) -> BTreeMap<String, String> {
    let is_preset = |name: &String| PROVIDER_KEYS.contains(&name.as_str());
    let others = wanted.iter().any(|name| !is_preset(name));
    let config = if others { configuration(places) } else { String::new() };
    let known = wanted.iter().filter(|name| is_preset(name) || names(&config, name));
    known.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}

/// The variables of this environment for the trusted servers of the workspace that this process works in, by its root. Those count
/// that a file there names, as this reads it, and that hold no provider's key.
pub(super) fn workspace_keys(
    wanted: &BTreeMap<PathBuf, Vec<String>>,
    places: &Places,
) -> BTreeMap<PathBuf, BTreeMap<String, String>> {
    let Ok(here) = working_directory() else { return BTreeMap::new() };
    let here = here.canonicalize().unwrap_or(here);
    let mut given = BTreeMap::new();
    for (root, wanted) in wanted.iter().filter(|(root, _)| here.starts_with(root)) {
        let texts = WORKSPACE_FILES.map(|file| text(&root.join(file)));
        let config = configuration(places);
        let is_key = |name: &str| PROVIDER_KEYS.contains(&name) || key_variables(&config).any(|key| key == name);
        let named = wanted.iter().filter(|name| texts.iter().any(|text| names_variable(text, name)) && !is_key(name));
        let values: BTreeMap<String, String> =
            named.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect();
        if !values.is_empty() {
            given.insert(root.clone(), values);
        }
    }
    given
}

/// The variables that tools get, and why they do not get the rest. `welcome` may name more: those count that the
/// configuration names too.
pub(super) fn environment(
    welcome: &Welcome,
    places: &Places,
) -> (BTreeMap<String, String>, BTreeMap<String, Withheld>) {
    let config = configuration(places);
    choice(welcome, &config).take(variables())
}

/// The variables with secrets that the configuration passes to tools.
pub(super) fn secrets(welcome: &Welcome, places: &Places) -> BTreeMap<String, String> {
    if !welcome.env.iter().any(|name| !TOOL_ENV.contains(&name.as_str())) {
        return BTreeMap::new();
    }
    let config = configuration(places);
    let choice = choice(welcome, &config);
    variables().filter(|(name, value)| choice.is_passed_secret(name, value)).collect()
}

/// The text of the configuration; empty if it cannot be read.
fn configuration(places: &Places) -> String {
    text(&places.config_file())
}

/// The text of a file; empty if it cannot be read. Opening a pipe of that name must not wait for a writer.
fn text(file: &Path) -> String {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file);
    let mut text = String::new();
    match opened {
        Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => {
            let read = file.take(MAX_CONFIGURATION).read_to_string(&mut text);
            if read.is_ok() { text } else { String::new() }
        }
        _ => text,
    }
}

/// The variables of this process that are text.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn choice(welcome: &Welcome, config: &str) -> Choice {
    let deny = welcome.env_deny.iter().cloned().collect();
    let pass = welcome.env.iter().filter(|name| names(config, name)).cloned().collect();
    Choice { pass, deny, keys: key_variables(config).map(str::to_owned).collect() }
}

/// The variables that hold the keys of configured providers.
fn key_variables(config: &str) -> impl Iterator<Item = &str> {
    // `api_key_env = "X"`, and `{ env = "X" }` of a header.
    config.match_indices("env").filter_map(|(at, key)| {
        let value = config.get(at + key.len()..)?.trim_start().strip_prefix('=')?.trim_start();
        let mark = value.chars().next().filter(|mark| matches!(mark, '"' | '\''))?;
        value.get(1..)?.split(mark).next()
    })
}

/// Whether a configuration has this text as a string, or as the name of a variable in one: `${NAME}`, `${NAME:-…}`.
fn names(config: &str, name: &str) -> bool {
    let is_string = ['"', '\''].iter().any(|quote| config.contains(&format!("{quote}{name}{quote}")));
    is_string || names_variable(config, name)
}

/// Whether a text names a variable: `${NAME}`, `${NAME:-…}`.
fn names_variable(text: &str, name: &str) -> bool {
    ['}', ':'].iter().any(|end| text.contains(&format!("${{{name}{end}")))
}

#[cfg(test)]
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

    #[test]
    fn a_listener_gets_no_secret_that_the_configuration_does_not_pass() {
        let welcome = |env: &[&str]| -> Welcome {
            let env: Vec<_> = env.iter().map(|name| (*name).to_owned()).collect();
            serde_json::from_value(serde_json::json!({"protocol": 1, "version": "", "env": env, "keys": []})).unwrap()
        };
        let listed = welcome(&["PATH", "GH_TOKEN", "WORK", "AWS_SECRET_ACCESS_KEY"]);
        let config = "[env]\npass = [\"GH_TOKEN\"]\n[providers.x]\napi_key_env = 'WORK'";
        let choice = choice(&listed, config);
        let given = |name: &str| choice.withheld(name, "x").is_none();
        let names = ["PATH", "GH_TOKEN", "WORK", "AWS_SECRET_ACCESS_KEY", "KUBECONFIG"];
        assert_eq!(names.map(given), [true, true, false, false, true]);
    }

    #[test]
    fn a_listener_gets_no_variable_as_a_key_that_the_configuration_does_not_name() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::below(dir.path()).unwrap();
        // It is set wherever this runs, and is no provider's.
        let wanted = ["PATH".to_owned()];
        assert!(keys(&wanted, &places).is_empty(), "nothing is configured");
        fs::create_dir_all(&places.config).unwrap();
        for (named, expect) in [("WORK_KEY", 0), ("PATH", 1)] {
            let config = format!("[providers.work]\napi_key_env = \"{named}\"");
            fs::write(places.config_file(), config).unwrap();
            assert_eq!(keys(&wanted, &places).len(), expect, "{named} is configured");
        }
    }

    #[test]
    fn a_configuration_names_a_variable_as_a_whole_string() {
        let config = "[providers.work]\napi_key_env = \"WORK_KEY\"\n[env]\npass = ['GH_TOKEN']\n[mcp.x]\nargs = ['--${MODE:-a}', '${ID}']";
        assert_eq!(key_variables(config).collect::<Vec<_>>(), ["WORK_KEY"]);
        assert_eq!(key_variables("headers = { 'api-key' = { env = 'AZURE' } }").collect::<Vec<_>>(), ["AZURE"]);
        for (name, expect) in [
            ("WORK_KEY", true),
            ("GH_TOKEN", true),
            ("MODE", true),
            ("ID", true),
            ("KEY", false),
            ("work", false),
            ("pass", false),
        ] {
            assert_eq!(names(config, name), expect, "{name}");
        }
    }
}
