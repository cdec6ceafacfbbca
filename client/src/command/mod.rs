//! The subcommands, one file each, and what several of them need.

mod answer;
mod attach;
mod cancel;
mod compact;
mod daemon;
mod doctor;
mod help;
mod inbox;
mod key;
mod log;
mod ls;
mod models;
mod new;
mod prompt;
mod prune;
mod rm;
mod run;
mod send;
mod tools;
mod usage;
mod wait;

pub(crate) use wait::current;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use linger_protocol::id::SessionId;
use linger_protocol::message::Usage;
use linger_protocol::method::{Method, SessionCreate, SessionList};
use linger_protocol::session::{Create, Created, Info, List};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::cli::{Choice, Cli, Command};
use crate::connect::{Client, key};
use crate::error::{Exit, Failure};
use crate::question::short_path;
use crate::render::money;
use crate::render::table::{age, columns, size, state};
use crate::terminal::{Terminal, clean_line};

/// Candidates of an ambiguous name that are listed.
const MAX_CANDIDATES: usize = 10;

/// How long the daemon may take to answer who has no time at all.
const ANSWER: Duration = Duration::from_secs(2);

/// Runs the command that was given.
pub(crate) fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        None => attach::latest(),
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
        Some(Command::Rm(args)) => rm::run(&args),
        Some(Command::Prune(args)) => prune::run(&args),
        Some(Command::Models(args)) => models::run(&args),
        Some(Command::Usage(args)) => usage::run(&args),
        Some(Command::Tools(args)) => tools::run(&args),
        Some(Command::Key(command)) => key::run(command),
        Some(Command::Daemon(command)) => daemon::run(&command),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Help(args)) => help::run(&args),
    }
}

/// Wall time in Unix milliseconds, to say how old things are.
#[allow(clippy::disallowed_methods, reason = "the one place where the client looks at the clock on the wall")]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The directory that the user is in.
#[allow(clippy::disallowed_methods, reason = "the client stands in one directory: the user's")]
pub(crate) fn here() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::usage(format!("the current directory cannot be used: {error}"))
            .hint("go to a directory that is there: `cd` alone leads home")
    })
}

/// The one session that `text` means: by id, name, or the beginning of an id.
fn resolve(client: &mut Client, text: &str) -> Result<Info, Failure> {
    if text.is_empty() {
        return Err(Failure::usage("a session has a name or an id, not nothing").hint("`linger ls` lists the sessions"));
    }
    let rows = client.call(&SessionList(List { matching: Some(text.to_owned()), ..List::default() }))?;
    if let Some(row) = rows.iter().find(|row| row.session.as_str() == text || row.name.as_deref() == Some(text)) {
        return Ok(row.clone());
    }
    match <[Info; 1]>::try_from(rows) {
        Ok([row]) => Ok(row),
        Err(rows) if rows.is_empty() => {
            Err(Failure::usage(format!("no session is called '{text}'")).hint("`linger ls` lists the sessions"))
        }
        Err(rows) => {
            let mut lines = vec![format!("'{text}' could be one of {} sessions", rows.len())];
            lines.extend(listing(rows.get(..MAX_CANDIDATES).unwrap_or(&rows), now()));
            Err(Failure::usage(lines.join("\n")).hint("write more of the id"))
        }
    }
}

/// Creates a session in the user's directory.
fn made(client: &mut Client, choice: Choice) -> Result<Created, Failure> {
    let Choice { model, mode, effort, name } = choice;
    let effort = effort.unwrap_or_default();
    let create = Create { cwd: here()?, model, mode, effort, name, env: client.session_env(), key: Some(key()?) };
    client.call(&SessionCreate(create))
}

/// As [`made`], for a command that does not show the session from its beginning: says what there is to doubt of it.
fn create(client: &mut Client, choice: Choice) -> Result<SessionId, Failure> {
    let Created { session, doubt } = made(client, choice)?;
    if let Some(doubt) = doubt {
        Terminal::new().say(&format!("warning: {}", clean_line(&doubt)))?;
    }
    Ok(session)
}

/// That prompts wait behind a turn which was stopped, and what to do about it.
pub(crate) fn held(queued: u32, session: &SessionId) -> Option<String> {
    let prompts = match queued {
        0 => return None,
        1 => "1 prompt stays".to_owned(),
        more => format!("{more} prompts stay"),
    };
    Some(format!("{prompts} queued until your next word: `linger attach {session}`, then /continue or a new prompt"))
}

/// Sessions as lines for people.
pub(crate) fn listing(rows: &[Info], now: u64) -> Vec<String> {
    let row = |info: &Info| {
        let title = info.name.clone().or_else(|| info.title.clone()).unwrap_or_default();
        let title: String = title.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(40).collect();
        vec![
            info.session.to_string(),
            state(info),
            age(info.updated_at, now),
            size(info.size),
            spent(&info.usage),
            money::fill(info.context_tokens, info.context_window).unwrap_or_default(),
            title,
            short_path(&info.cwd),
        ]
    };
    columns(&rows.iter().map(row).collect::<Vec<_>>())
}

/// Tokens and what they cost, in one cell.
fn spent(usage: &Usage) -> String {
    if usage.is_uncounted() {
        return money::cost(usage);
    }
    let tokens = money::tokens(usage.input_tokens.saturating_add(usage.output_tokens));
    format!("{tokens} tokens, {}", money::cost(usage))
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

/// Until when the daemon may answer who has until `deadline`: with no time at all, too, one is told how a session stands.
fn patience(deadline: Option<Instant>) -> Option<Instant> {
    deadline.map(|deadline| deadline.max(Instant::now() + ANSWER))
}
