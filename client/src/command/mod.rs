//! The subcommands, one file each, and what several of them need.

mod agents;
mod answer;
mod artifact;
mod attach;
mod attention;
mod cancel;
mod compact;
mod compactions;
mod complete;
mod config;
mod daemon;
mod diff;
mod doctor;
mod env;
mod events;
mod export;
mod find;
mod gateway;
mod habit;
mod help;
mod import;
mod inbox;
mod init;
mod init_file;
mod key;
mod log;
mod login;
mod ls;
mod mcp;
mod memory;
mod merge;
mod models;
mod new;
mod permissions;
mod prompt;
mod prune;
mod queue;
mod rename;
mod rm;
mod run;
mod search;
mod send;
mod serve;
mod set;
mod since;
mod status;
mod token;
mod tools;
mod tree;
mod trust;
mod undo;
mod usage;
mod validate;
mod wait;

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use linger_protocol::id::SessionId;
use linger_protocol::method::{Method, SessionCreate};
use linger_protocol::session::{Create, Created};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::acp;
use crate::arguments::{Arguments, Changeable, Choice, Command};
use crate::connect::Client;
use crate::environment::{absolute, umask};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::terminal::{Terminal, clean_line};
use find::resolve;

/// The least time for the daemon's answers, whatever `--timeout` says.
const ANSWER: Duration = Duration::from_secs(2);

/// Runs the command that was given.
pub(crate) fn dispatch(arguments: Arguments) -> Result<Exit, Failure> {
    match arguments.command {
        None => attach::bare(arguments.bare),
        Some(Command::Chat(args)) => attach::bare(args),
        Some(Command::Status(args)) => status::run(&args),
        Some(Command::Continue(args)) => queue::resume(&args),
        Some(Command::Queue(args)) => queue::list(&args),
        Some(Command::Unqueue(args)) => queue::unqueue(args),
        Some(Command::Events(args)) => events::run(&args),
        Some(Command::Search(args)) => search::run(&args),
        Some(Command::Export(args)) => export::run(&args),
        Some(Command::Rename(args)) => rename::run(args),
        Some(Command::Set(args)) => set::run(args),
        Some(Command::Restore(args)) => rm::restore(&args),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::New(args)) => new::run(args),
        Some(Command::Ls(args)) => ls::run(&args),
        Some(Command::Attach(args)) => attach::run(&args),
        Some(Command::Send(args)) => send::run(args),
        Some(Command::Wait(args)) => wait::run(&args),
        Some(Command::Log(args)) => log::run(&args),
        Some(Command::Inbox(args)) => inbox::run(&args),
        Some(Command::Answer(args)) => answer::run(args),
        Some(Command::Cancel(args)) => cancel::run(&args),
        Some(Command::Compact(args)) => compact::run(args),
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Undo(args)) => undo::undo(args),
        Some(Command::Redo(args)) => undo::redo(args),
        Some(Command::Uncompact(args)) => compactions::uncompact(&args),
        Some(Command::Fork(args)) => tree::fork(args),
        Some(Command::Rewind(args)) => tree::rewind(args),
        Some(Command::Merge(args)) => merge::run(&args),
        Some(Command::Rm(args)) => rm::run(&args),
        Some(Command::Prune(args)) => prune::run(&args),
        Some(Command::Models(args)) => models::run(&args),
        Some(Command::Usage(args)) => usage::run(&args),
        Some(Command::Memory(command)) => memory::run(command),
        Some(Command::Tools(args)) => tools::run(args),
        Some(Command::Skills(command)) => agents::run(&agents::SKILLS, command),
        Some(Command::Commands(command)) => agents::run(&agents::COMMANDS, command),
        Some(Command::Agents(command)) => agents::run(&agents::AGENTS, command),
        Some(Command::Env(args)) => env::run(&args),
        Some(Command::Permissions(args)) => permissions::run(args),
        Some(Command::Mcp(command)) => mcp::run(command),
        Some(Command::Key(command)) => key::run(command),
        Some(Command::Init(args)) => init::run(args),
        Some(Command::Login(args)) => key::login(args),
        Some(Command::Import(args)) => import::run(&args),
        Some(Command::Validate(args)) => validate::run(&args),
        Some(Command::Completions(args)) => complete::completions(&args),
        Some(Command::Complete(args)) => complete::complete(&args),
        Some(Command::Config(args)) => config::run(args),
        Some(Command::Trust(args)) => trust::run(args),
        Some(Command::Artifact(command)) => artifact::run(command),
        Some(Command::Token(command)) => token::run(command),
        Some(Command::Daemon(command)) => daemon::run(&command),
        Some(Command::Gateway(command)) => gateway::run(&command),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Acp(args)) => acp::run(args),
        Some(Command::Help(args)) => help::run(&args),
    }
}

/// The longest addition to the system prompt, in bytes: what the daemon takes.
const MAX_SYSTEM: u64 = 16 << 10;

/// Creates a session in the user's directory; `one_shot` if it is for one prompt.
fn made(client: &mut Client, choice: Choice, one_shot: bool) -> Result<Created, Failure> {
    let Choice { changeable, agent, allow, system, name, directory } = choice;
    let Changeable { model, mode, effort, patience, fallback, unattended, limits, tools, add_dir } = changeable;
    let system = system.as_deref().map(system_of).transpose()?;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let (effort, fallback) = (effort.unwrap_or_default(), Some(fallback).filter(|models| !models.is_empty()));
    let create = Create {
        cwd: find::directory(directory.as_deref())?,
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
        umask: Some(umask()),
        key: Some(key()?),
    };
    client.call(&SessionCreate(create))
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

/// As [`made`], for a command that does not show the session's first events: prints the warning.
fn create(client: &mut Client, choice: Choice, one_shot: bool) -> Result<SessionId, Failure> {
    let Created { session, warning, .. } = made(client, choice, one_shot)?;
    if let Some(warning) = warning {
        Terminal::new().say(&format!("warning: {}", clean_line(&warning)))?;
    }
    Ok(session)
}

/// The message about prompts that are queued behind a stopped turn.
pub(crate) fn held(queued: u32, session: &SessionId) -> Option<String> {
    let (prompts, them) = match queued {
        0 => return None,
        1 => ("1 prompt is".to_owned(), "it"),
        more => (format!("{more} prompts are"), "them"),
    };
    Some(format!("{prompts} still queued; `linger continue {session}` or a new prompt starts {them}"))
}

/// Prints each element of a result as it came, one a line.
fn print_rows<M: Method>(client: &mut Client, request: &M) -> Result<(), Failure> {
    let raw = client.call_raw(request)??;
    let rows: Vec<Box<RawValue>> = serde_json::from_str(raw.get()).map_err(|error| {
        Failure::new(Exit::FAILED, format!("the daemon's answer to {} is no list: {error}", M::NAME))
    })?;
    let mut terminal = Terminal::new();
    for row in rows {
        terminal.data(row.get())?;
    }
    Ok(())
}

/// Prints one value as JSON, in a line.
fn print_value(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::new(Exit::FAILED, format!("the result cannot be printed: {error}")))?;
    Ok(Terminal::new().data(&line)?)
}

/// The moment after which to wait no longer.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

/// The deadline for the daemon's answers: even `--timeout 0` leaves time to read how a session stands.
fn answer_deadline(deadline: Option<Instant>) -> Option<Instant> {
    deadline.map(|deadline| deadline.max(Instant::now() + ANSWER))
}
