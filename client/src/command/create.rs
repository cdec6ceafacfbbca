//! Creates the session that a command works in, from the options of the command line.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::method::SessionCreate;
use linger_protocol::session::{Create, Created};

use super::find;
use crate::arguments::{Changeable, Choice};
use crate::connect::{Client, parse};
use crate::environment::{absolute, umask};
use crate::error::Failure;
use crate::idempotency::key;
use crate::terminal::{Terminal, clean_line};

/// Bytes of an addition to the system prompt, at most; the daemon has the same limit.
const MAX_SYSTEM: u64 = 16 << 10;

/// The home directory of the daemon's user, as `session/create` takes it.
const HOME: &str = "~";

/// Creates a session; `one_shot` if it is for one prompt. The caller shows the warning.
pub(super) fn create_with_warning(client: &mut Client, choice: Choice, one_shot: bool) -> Result<Created, Failure> {
    let Choice { changeable, agent, allow, system, name, directory } = choice;
    let Changeable { model, mode, effort, patience, fallback, unattended, limits, tools, add_dir } = changeable;
    let system = system.as_deref().map(system_of).transpose()?;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let (effort, fallback) = (effort.unwrap_or_default(), Some(fallback).filter(|models| !models.is_empty()));
    let create = Create {
        cwd: place(client, directory.as_deref())?,
        model,
        mode,
        effort,
        patience,
        fallback,
        unattended,
        budget: limits.into(),
        additional_directories: absolute(add_dir)?,
        mcp_servers: Vec::new(),
        tools,
        agent,
        allow,
        system,
        name,
        one_shot,
        env: client.session_env(),
        login_env: client.lacks_env(),
        umask: Some(umask()),
        key: Some(key()?),
    };
    match client.call_raw(&SessionCreate(create.clone()))? {
        Err(error) if error.code() == Some(Code::NoWorkspace) && client.is_far() && directory.is_none() => {
            let here = create.cwd.display();
            let note = format!("note: {here} does not exist on the other machine: working in the home directory there");
            Terminal::new().say(&note)?;
            client.call(&SessionCreate(Create { cwd: HOME.into(), key: Some(key()?), ..create }))
        }
        answer => parse::<SessionCreate>(&answer?),
    }
}

/// The directory of a new session. On another machine it is the one of this name if it exists there, and `--dir` counts from the
/// home directory there.
fn place(client: &Client, named: Option<&Path>) -> Result<PathBuf, Failure> {
    match named {
        Some(named) if client.is_far() && !named.is_absolute() && !named.starts_with(HOME) => {
            Ok(Path::new(HOME).join(named))
        }
        Some(named) if client.is_far() => Ok(named.to_path_buf()),
        None if client.is_far() => Ok(find::directory(None).unwrap_or_else(|_| HOME.into())),
        named => find::directory(named),
    }
}

/// The text that a file adds to the system prompt.
fn system_of(path: &Path) -> Result<String, Failure> {
    let failed = |why: String| Failure::usage(format!("--system {}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    let read = file.take(MAX_SYSTEM + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > MAX_SYSTEM {
        return Err(failed(format!("it has more than {MAX_SYSTEM} bytes")).hint("put longer text into AGENTS.md"));
    }
    Ok(text)
}

/// Creates a session and prints the warning about its model, for a command that does not show its first events.
pub(super) fn create(client: &mut Client, choice: Choice, one_shot: bool) -> Result<SessionId, Failure> {
    let Created { session, warning, .. } = create_with_warning(client, choice, one_shot)?;
    if let Some(warning) = warning {
        Terminal::new().say(&format!("warning: {}", clean_line(&warning)))?;
    }
    Ok(session)
}
