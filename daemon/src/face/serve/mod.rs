//! `lingerd --mcp-serve`: linger's own tools as an MCP server for another program, over standard input and output.
//!
//! Without daemon, session and model: the host that started it is the client. Deny and ask rules of the configuration and of the
//! workspace's files hold, as they are when it starts; what asks is put to the host's user where the host can ask, and refused otherwise, unless a rule of the command line allows it.
//! Allow rules of the configuration do not count: they are for linger's own sessions, and which of them a person has confirmed
//! is the daemon's to know. It ends with its standard input, and its children with it.
//!
//! | file | owns |
//! |---|---|
//! | `host` | the conversation: lines of JSON-RPC, both eras of the protocol |
//! | `calls` | one call: arguments, permission, run, result |

mod calls;
mod host;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use linger_protocol::place::Places;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::instructions::workspace_root;
use crate::config::{Config, ConfigStore};
use crate::process;
use crate::process::server::Children;
use crate::question::permission::{Rule, Rules};
use crate::store::blob::Blobs;
use crate::tool::set::{ToolSet, Tools};
use crate::tool::{ForegroundBash, Tool, Workspace, builtin};
use calls::Calls;

/// The argument that makes `lingerd` this server.
pub const ARGUMENT: &str = "--mcp-serve";

/// The built-in tools that are not served: they ask a session's user, show its plan, follow its commands, or need the network as
/// the daemon has it.
const OF_SESSIONS: [&str; 6] = ["bash_output", "bash_kill", "plan", "ask_user", "fetch", "delegate"];

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServeOptions {
    /// The only tools; absent for all.
    tools: Option<Vec<String>>,
    /// Rules for calls that run without asking.
    allow: Vec<String>,
}

/// A mistake in the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Serves until standard input ends.
pub fn main(arguments: &[String]) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let asked = parse(arguments)?;
    let places = Places::of_user()?;
    // Only of this process: what is left of its children is found by this path.
    let own = tempfile::tempdir().context("no directory for temporary files")?;
    let calls = Arc::new(calls(&asked, &places, own.path())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let children = calls.children.clone();
    let ended = runtime.block_on(async move {
        let (input, output) = (file(std::io::stdin().as_fd())?, file(std::io::stdout().as_fd())?);
        let adopting = process::adopt_orphans().map(tokio::spawn);
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let ended = tokio::select! {
            ended = host::serve(input, output, calls) => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
        children.end().await;
        adopting.iter().for_each(tokio::task::JoinHandle::abort);
        ended
    });
    // A thread that waits for standard input does not end by itself.
    runtime.shutdown_background();
    process::end_left_behind(&owner(own.path()), None);
    Ok(ended?)
}

/// A pipe or socket of unknown kind, read and written on threads that may block.
fn file(fd: BorrowedFd<'_>) -> std::io::Result<tokio::fs::File> {
    Ok(tokio::fs::File::from_std(std::fs::File::from(fd.try_clone_to_owned()?)))
}

fn parse(arguments: &[String]) -> anyhow::Result<ServeOptions> {
    let mut asked = ServeOptions::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => match words.next() {
                Some(value) => (word.as_str(), value.clone()),
                None => return Err(Usage(format!("{word} needs a value")).into()),
            },
        };
        match name {
            "--tools" => {
                let names = value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
                asked.tools.get_or_insert_default().extend(names);
            }
            "--allow" => asked.allow.push(value),
            _ => return Err(Usage(format!("unknown argument '{name}'")).into()),
        }
    }
    Ok(asked)
}

/// The tools that a host can have.
fn served() -> ToolSet {
    let usable = builtin().into_iter().filter(|tool| !OF_SESSIONS.contains(&tool.name()));
    let bash = Arc::new(ForegroundBash) as Arc<dyn Tool>;
    ToolSet::new(usable.map(|tool| if tool.name() == bash.name() { bash.clone() } else { tool }))
}

/// The services of calls, for the directory that this process was started in.
fn calls(asked: &ServeOptions, places: &Places, own: &Path) -> anyhow::Result<Calls> {
    let all = served();
    let tools = match &asked.tools {
        None => all,
        Some(names) => {
            let chosen: Result<Vec<Arc<dyn Tool>>, _> = names.iter().map(|name| all.find(name).cloned()).collect();
            ToolSet::new(chosen.map_err(|unknown| Usage(unknown.to_string()))?)
        }
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let file = places.config_file();
    let text = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("{} cannot be read", file.display()))?,
    };
    // A configuration that cannot be read may forbid anything.
    let config = Config::parse(&text, places, home.as_deref(), tools.names())?;
    let allow: Result<Vec<Rule>, _> = asked.allow.iter().map(|rule| Rule::parse(rule, tools.names())).collect();
    let mut rules = Rules { allow: allow.map_err(|error| Usage(format!("--allow: {error}")))?, ..config.rules };
    #[allow(clippy::disallowed_methods, reason = "the host chooses the directory by starting this process there")]
    let cwd = std::env::current_dir().context("the working directory is gone")?.canonicalize()?;
    let (env, _withheld) = config.env.take(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    let workspace = workspace(cwd, home.as_deref(), env, config.bash_timeout_s);
    // Nothing is trusted here, so the files of the workspace only narrow.
    let files = ConfigStore::open(places.clone(), home, Tools::default()).look(&workspace.root);
    if let Some(error) = &files.error {
        // It may forbid anything, too.
        return Err(error.clone().into());
    }
    rules.deny.extend(files.config.deny.iter().cloned());
    rules.ask.extend(files.config.ask.iter().cloned());
    Ok(Calls::new(tools, rules, workspace, Children::of(&owner(own)), Blobs::of(&owner(own))))
}

fn workspace(cwd: PathBuf, home: Option<&Path>, env: BTreeMap<String, String>, timeout_s: u64) -> Workspace {
    let root = workspace_root(&cwd, home);
    Workspace {
        cwd,
        root,
        is_seen: true,
        bound_by: None,
        env: Arc::new(env),
        secrets: Default::default(),
        timeout_s,
        seen: Default::default(),
        added: Default::default(),
        skills: Default::default(),
        notes: Default::default(),
    }
}

/// The path that this process's children carry, and beside which whole outputs are.
fn owner(own: &Path) -> PathBuf {
    own.join("serve")
}

#[cfg(test)]
mod command_line {
    use super::*;

    #[test]
    fn the_command_line_chooses_tools_and_rules() {
        let parse = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let asked = parse(&["--tools", "bash,read", "--allow", "bash(make)", "--allow=edit"]).unwrap();
        let tools = Some(vec!["bash".to_owned(), "read".to_owned()]);
        assert_eq!(asked, ServeOptions { tools, allow: vec!["bash(make)".to_owned(), "edit".to_owned()] });
        assert!(parse(&["--tools"]).is_err() && parse(&["--mode=auto"]).is_err());
    }
}
