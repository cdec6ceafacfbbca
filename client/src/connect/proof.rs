//! The secrets that go to a daemon that is proven to be the user's own ([`linger_protocol::listener`]): provider keys, and variables for tools.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::daemon::Welcome;
use linger_protocol::listener;
use linger_protocol::place::Places;
use linger_protocol::variable::{Choice, PROVIDER_KEYS, TOOL_ENV, Withheld};

use crate::environment::working_directory;
use crate::error::Failure;

/// So much of the configuration is read, in bytes.
const MAX_CONFIGURATION: u64 = 1 << 20;

/// The files of a workspace that can have MCP servers.
const WORKSPACE_FILES: [&str; 2] = [".mcp.json", ".linger/config.toml"];

/// Whether the user has named the socket: then it may be the end of a tunnel to another machine.
pub(super) fn is_named() -> bool {
    std::env::var_os("LINGER_SOCKET").is_some_and(|path| !path.is_empty())
}

/// The failure if a stranger listens.
pub(super) fn stranger(pid: u32, places: &Places) -> Failure {
    let socket = places.socket.display();
    Failure::unreachable(listener::stranger(pid, &places.socket))
        .hint(format!("it received only this client's name; end it and delete {socket}: the daemon creates it again"))
}

/// The failure if a token would go to a listener that is not proven.
pub(super) fn no_token(places: &Places) -> Failure {
    let socket = places.socket.display();
    Failure::unreachable(format!("cannot verify that {socket} belongs to your daemon, so the token is not sent there"))
        .hint("if its keeper was killed, run `linger daemon stop`; the next command starts it again")
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
