//! `linger daemon status|start|stop`: works with a daemon of any version, and starts none unless told to.
//!
//! If the socket is gone or silent, the holder of the lock is the daemon or its keeper. Such a daemon is
//! ended by a signal to that process, and to no other.

use std::path::Path;
use std::time::{Duration, Instant};

use linger_protocol::daemon::{Empty, Status, Stop, Storage};
use linger_protocol::error::Code;
use linger_protocol::method::{DaemonStatus, DaemonStop, Method};
use linger_protocol::place::Places;
use serde_json::value::RawValue;

use super::output::print_value;
use crate::arguments::Daemon;
use crate::connect::dial;
use crate::connect::holder::{self, Holder};
use crate::connect::{Client, Reply, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::table::{age, columns, size};
use crate::terminal::Terminal;

/// How long a daemon may take to end: it waits for its disk only.
const END: Duration = Duration::from_secs(10);

/// How long the daemon lets tool calls that run come to their end before it ends itself.
const CALL_GRACE: Duration = Duration::from_secs(10);

/// How long a daemon may take to answer: a millisecond, unless its disk is slow.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a process may take to disappear after SIGKILL.
const KILLED: Duration = Duration::from_secs(2);

/// With less than this free, in bytes, a warning: one output of a tool may need as much.
const LOW_SPACE: u64 = 1 << 30;

/// Unused space in the database is mentioned beyond this, in bytes.
const MUCH_UNUSED: u64 = 1 << 20;

pub(super) fn run(command: &Daemon) -> Result<Exit, Failure> {
    match command {
        Daemon::Status(args) => status(args.json),
        Daemon::Start(args) => start(args.json),
        Daemon::Stop { force, now, json } => stop(*force, *now, *json),
    }
}

/// What is at the daemon's socket.
enum Found {
    /// It answered.
    Answer(Box<RawValue>),
    /// It refused.
    Refusal(linger_protocol::RpcError),
    /// A process that hung up.
    HungUp,
    /// A process that does not answer.
    Silent,
    /// A process that is no daemon, and how that was noticed.
    Foreign(Failure),
    /// No process.
    Nothing,
}

/// Sends a request to the process at the socket; starts no daemon.
fn ask<M: Method>(places: &Places, request: &M) -> Result<Found, Failure> {
    let Some(mut client) = Client::open_running(places)? else { return Ok(Found::Nothing) };
    Ok(match client.call_once(request, ANSWER) {
        Ok(Reply::Answered(Ok(answer))) => Found::Answer(answer),
        Ok(Reply::Answered(Err(error))) => Found::Refusal(error),
        Ok(Reply::Lost) => Found::HungUp,
        Ok(Reply::Late) => Found::Silent,
        Err(failure) => Found::Foreign(failure),
    })
}

/// The places with the daemon's own socket, if that is another than ours.
fn elsewhere(places: &Places, holder: Option<&Holder>) -> Option<Places> {
    let socket = holder?.socket.as_ref().filter(|socket| **socket != places.socket)?;
    Some(Places { socket: socket.clone(), ..places.clone() })
}

fn status(json: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let found = ask(&places, &DaemonStatus(Empty {}))?;
    if let Found::Answer(raw) = found {
        return print_status(&raw, json);
    }
    let holder = holder::find(&places);
    if json {
        let state = match (&found, &holder) {
            (Found::Nothing, None) => "none",
            (Found::Foreign(_) | Found::Refusal(_), _) | (_, None) => "foreign",
            (_, Some(_)) => "silent",
        };
        // The daemon or its keeper: without an answer we cannot tell.
        let holder = holder.as_ref().map(|holder| holder.pid);
        let value = serde_json::json!({ "running": false, "state": state, "socket": places.socket, "pid": null, "holder": holder });
        Terminal::new().data(&value.to_string())?;
    }
    Err(no_status(&places, found, holder.as_ref()))
}

/// The failure without a status.
fn no_status(places: &Places, found: Found, holder: Option<&Holder>) -> Failure {
    let (socket, log) = (places.socket.display(), places.log());
    let of_lock = holder.map(|holder| holder.pid);
    match (found, of_lock) {
        (Found::Nothing, None) => not_running(places),
        (Found::Nothing, Some(pid)) => match holder.and_then(|holder| holder.is_elsewhere(places)) {
            Some(elsewhere) => elsewhere,
            None => Failure::unreachable(format!("the daemon (process {pid}) does not accept connections at {socket}"))
                .hint(format!(
                    "it may be starting or ending; if not, `linger daemon stop` ends it; see {}",
                    log.display()
                )),
        },
        (Found::Silent | Found::HungUp | Found::Answer(_), Some(pid)) => {
            Failure::unreachable(format!("the daemon (process {pid}) does not answer at {socket}"))
                .hint(format!("`linger daemon stop` ends it; turns continue at the next start; see {}", log.display()))
        }
        (Found::Silent | Found::HungUp | Found::Answer(_), None) => foreign(&socket, "it does not answer"),
        (Found::Foreign(failure), _) => foreign(&socket, failure.message.as_deref().unwrap_or_default()),
        (Found::Refusal(error), Some(pid)) if error.code() == Some(Code::TooMuch) => {
            Failure::unreachable(format!("the daemon (process {pid}) refused the connection: {}", error.message)).hint(
                "close some clients; or `linger daemon stop` ends the daemon, and turns continue at the next start",
            )
        }
        (Found::Refusal(error), _) => foreign(&socket, &error.message),
    }
}

fn foreign(socket: &impl std::fmt::Display, why: &str) -> Failure {
    Failure::unreachable(format!("the process at {socket} is no daemon of yours: {why}"))
        .hint("stop it, or set LINGER_SOCKET to another path")
}

fn print_status(raw: &RawValue, json: bool) -> Result<Exit, Failure> {
    let mut terminal = Terminal::new();
    let status: Status = parse::<DaemonStatus>(raw)?;
    if json {
        terminal.data(raw.get())?;
        return Ok(Exit::GOOD);
    }
    let mut process = format!("{}, running for {}", status.pid, age(status.started_at, now()));
    if let Some(keeper) = status.keeper {
        process += &format!("; its keeper is {keeper}");
    }
    match status.restarts {
        0 => {}
        1 => process += "; it died once and was started again, see the log",
        times => process += &format!("; it died {times} times and was started again, see the log"),
    }
    let mut rows = vec![
        ("version", status.version),
        ("process", process),
        ("socket", status.socket.display().to_string()),
        ("database", status.database.display().to_string()),
        ("log", status.log.display().to_string()),
        ("configuration", status.config.display().to_string()),
        ("model", status.model.unwrap_or_else(|| "none".to_owned())),
        ("sessions", format!("{}, {} running", status.sessions, status.running)),
        ("questions", format!("{} waiting", status.questions)),
        ("clients", status.connections.to_string()),
        ("tokens", format!("{} valid", status.tokens)),
    ];
    if let Some(taken) = &status.storage {
        rows.extend([("storage", storage(taken)), ("free", size(taken.free))]);
        rows.extend(low_space(taken).map(|low| ("warning", low)));
    }
    rows.extend(status.log_error.map(|error| ("warning", format!("cannot write to the log: {error}"))));
    rows.extend(status.config_error.map(|error| ("error", error)));
    rows.extend(status.config_warnings.into_iter().map(|warning| ("warning", warning)));
    rows.extend(status.damage.into_iter().map(|damage| ("damage", damage.text)));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    Ok(Exit::GOOD)
}

/// Disk usage, in one line.
pub(super) fn storage(storage: &Storage) -> String {
    let Storage { database, unused, wal, blobs, log, .. } = *storage;
    let unused = if unused > MUCH_UNUSED { format!(" ({} of it unused)", size(unused)) } else { String::new() };
    let [database, wal, blobs, log] = [database, wal, blobs, log].map(size);
    format!("database {database}{unused}, its write-ahead log {wal}, images and outputs {blobs}, lingerd.log {log}")
}

/// The warning when little space is left on the file system.
pub(super) fn low_space(storage: &Storage) -> Option<String> {
    let free = storage.free;
    (free < LOW_SPACE).then(|| format!("only {} are left on the file system of the database", size(free)))
}

fn start(json: bool) -> Result<Exit, Failure> {
    let client = Client::open()?;
    if json {
        let started = serde_json::json!({ "version": client.welcome.version, "socket": client.places.socket });
        print_value(&started)?;
        return Ok(Exit::GOOD);
    }
    let socket = client.places.socket.display();
    Terminal::new().say(&format!("lingerd {} runs at {socket}", client.welcome.version))?;
    Ok(Exit::GOOD)
}

fn stop(force: bool, now: bool, json: bool) -> Result<Exit, Failure> {
    let ended = end_daemon(force, now, "`linger daemon stop --force` stops it all the same")?;
    if json {
        print_value(&serde_json::json!({ "stopped": ended }))?;
        return Ok(Exit::GOOD);
    }
    let said =
        if ended { "the daemon has ended; running turns continue when it starts again" } else { "no daemon runs" };
    Terminal::new().say(said)?;
    Ok(Exit::GOOD)
}

/// Ends the daemon in good order; whether there was one. `all_the_same`: what to do if turns are running.
pub(super) fn end_daemon(force: bool, now: bool, all_the_same: &str) -> Result<bool, Failure> {
    let mut places = Places::of_user()?;
    let holder = holder::find(&places);
    let stop = DaemonStop(Stop { force: force || now, now, key: Some(key()?) });
    let mut found = ask(&places, &stop)?;
    if let (Found::Nothing, Some(other)) = (&found, elsewhere(&places, holder.as_ref())) {
        places = other;
        found = ask(&places, &stop)?;
    }
    // A holder with another socket is not the daemon that was asked; one without a socket may be.
    let holder = holder.filter(|holder| match &holder.socket {
        Some(socket) => *socket == places.socket,
        None => !matches!(found, Found::Answer(_)),
    });
    match (found, &holder) {
        (Found::Refusal(error), _) if error.code() == Some(Code::Busy) && !force => {
            return Err(Failure::from(error).hint(format!("{all_the_same}; the turns continue when it starts again")));
        }
        (Found::Refusal(error), _) => return Err(error.into()),
        (Found::Answer(_) | Found::HungUp, Some(holder)) if holder.ends_within(CALL_GRACE + END) => {}
        (Found::Answer(_) | Found::HungUp, None) => wait_for_socket(&places)?,
        (Found::Nothing, None) => return Ok(false),
        (Found::Foreign(failure), None) => return Err(no_status(&places, Found::Foreign(failure), None)),
        (Found::Silent, None) => return Err(no_status(&places, Found::Silent, None)),
        (_, Some(holder)) => end(holder, force, &places.log())?,
    }
    Ok(true)
}

/// Waits until no process accepts at the socket.
fn wait_for_socket(places: &Places) -> Result<(), Failure> {
    let deadline = Instant::now() + CALL_GRACE + END;
    while dial(places)?.is_some() {
        if Instant::now() > deadline {
            let within = (CALL_GRACE + END).as_secs();
            return Err(Failure::new(Exit::FAILED, format!("the daemon did not end within {within} s"))
                .hint(format!("see {}", places.log().display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends a daemon that does not answer: SIGTERM lets it store its state; with `force` SIGKILL follows.
fn end(holder: &Holder, force: bool, log: &Path) -> Result<(), Failure> {
    let pid = holder.pid;
    if holder.ends_within(Duration::ZERO) {
        return Ok(());
    }
    Terminal::new().say(&format!("the daemon (process {pid}) does not answer; sending SIGTERM"))?;
    let cannot = |error: std::io::Error| {
        Failure::new(Exit::FAILED, format!("process {pid} cannot be ended: {error}"))
            .hint(format!("see {}", log.display()))
    };
    // It may have ended just now.
    let asked = holder.terminate();
    if holder.ends_within(END) {
        return Ok(());
    }
    asked.map_err(cannot)?;
    if !force {
        return Err(Failure::new(
            Exit::FAILED,
            format!("the daemon (process {pid}) did not end within {} s", END.as_secs()),
        )
        .hint("`linger daemon stop --force` kills it; turns continue from the log at the next start"));
    }
    Terminal::new().say(&format!("it did not end within {} s; sending SIGKILL", END.as_secs()))?;
    holder.kill().map_err(cannot)?;
    match holder.ends_within(KILLED) {
        true => Ok(()),
        false => Err(Failure::new(Exit::FAILED, format!("process {pid} is still there after SIGKILL"))
            .hint("it is waiting for a disk or a network that does not answer")),
    }
}

fn not_running(places: &Places) -> Failure {
    Failure::unreachable(format!("no daemon runs at {}", places.socket.display()))
        .hint("any command starts one; `linger daemon start` does only that")
}
