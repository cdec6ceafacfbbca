//! `linger daemon status|start|stop`: works with a daemon of any version; only `start` starts one.
//!
//! If the socket is gone or silent, the process that holds the lock is the daemon or its keeper. `stop` then sends a signal to that
//! process, and to no other.

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

/// How long a daemon may take to end: it only waits for its disk.
const END: Duration = Duration::from_secs(10);

/// How long the daemon waits for running tool calls before it ends.
const CALL_GRACE: Duration = Duration::from_secs(10);

/// How long a daemon may take to answer: usually a millisecond, more if its disk is slow.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a process may take to disappear after SIGKILL.
const KILLED: Duration = Duration::from_secs(2);

/// Free bytes below which a warning is shown: one output of a tool can need this much.
const LOW_SPACE: u64 = 1 << 30;

/// Unused bytes in the database above which they are mentioned.
const MUCH_UNUSED: u64 = 1 << 20;

pub(super) fn run(command: &Daemon) -> Result<Exit, Failure> {
    match command {
        Daemon::Status(args) => status(args.json),
        Daemon::Start(args) => start(args.json),
        Daemon::Stop { force, now, json } => stop(*force, *now, *json),
    }
}

/// The process at the daemon's socket.
enum AtSocket {
    /// It answered the request.
    Answer(Box<RawValue>),
    /// It refused the request.
    Refusal(linger_protocol::RpcError),
    /// It hung up.
    HungUp,
    /// It does not answer.
    Silent,
    /// It is not a daemon of this user, for this reason.
    Foreign(Failure),
    /// No process listens.
    Nothing,
}

/// Sends a request to the process at the socket; starts no daemon.
fn ask<M: Method>(places: &Places, request: &M) -> Result<AtSocket, Failure> {
    let Some(mut client) = Client::open_running(places)? else { return Ok(AtSocket::Nothing) };
    Ok(match client.call_once(request, ANSWER) {
        Ok(Reply::Answered(Ok(answer))) => AtSocket::Answer(answer),
        Ok(Reply::Answered(Err(error))) => AtSocket::Refusal(error),
        Ok(Reply::Lost) => AtSocket::HungUp,
        Ok(Reply::Late) => AtSocket::Silent,
        Err(failure) => AtSocket::Foreign(failure),
    })
}

/// The places with the daemon's own socket, if it differs from ours.
fn elsewhere(places: &Places, holder: Option<&Holder>) -> Option<Places> {
    let socket = holder?.socket.as_ref().filter(|socket| **socket != places.socket)?;
    Some(Places { socket: socket.clone(), ..places.clone() })
}

fn status(json: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let found = ask(&places, &DaemonStatus(Empty {}))?;
    if let AtSocket::Answer(raw) = found {
        return print_status(&raw, json);
    }
    let holder = holder::find(&places);
    if json {
        let state = match (&found, &holder) {
            (AtSocket::Nothing, None) => "none",
            (AtSocket::Foreign(_) | AtSocket::Refusal(_), _) | (_, None) => "foreign",
            (_, Some(_)) => "silent",
        };
        // The daemon or its keeper: without an answer we cannot tell.
        let holder = holder.as_ref().map(|holder| holder.pid);
        let value = serde_json::json!({ "running": false, "state": state, "socket": places.socket, "pid": null, "holder": holder });
        Terminal::new().data(&value.to_string())?;
    }
    Err(no_status(&places, found, holder.as_ref()))
}

/// The failure to report when there is no status.
fn no_status(places: &Places, found: AtSocket, holder: Option<&Holder>) -> Failure {
    let (socket, log) = (places.socket.display(), places.log());
    let of_lock = holder.map(|holder| holder.pid);
    match (found, of_lock) {
        (AtSocket::Nothing, None) => not_running(places),
        (AtSocket::Nothing, Some(pid)) => match holder.and_then(|holder| holder.is_elsewhere(places)) {
            Some(elsewhere) => elsewhere,
            None => Failure::unreachable(format!("the daemon (process {pid}) does not accept connections at {socket}"))
                .hint(format!(
                    "it may be starting or stopping; if not, `linger daemon stop` stops it; see {}",
                    log.display()
                )),
        },
        (AtSocket::Silent | AtSocket::HungUp | AtSocket::Answer(_), Some(pid)) => {
            Failure::unreachable(format!("the daemon (process {pid}) does not answer at {socket}"))
                .hint(format!("`linger daemon stop` stops it; turns continue at the next start; see {}", log.display()))
        }
        (AtSocket::Silent | AtSocket::HungUp | AtSocket::Answer(_), None) => foreign(&socket, "it does not answer"),
        (AtSocket::Foreign(failure), _) => foreign(&socket, failure.message.as_deref().unwrap_or_default()),
        (AtSocket::Refusal(error), Some(pid)) if error.code() == Some(Code::TooMuch) => {
            Failure::unreachable(format!("the daemon (process {pid}) refused the connection: {}", error.message))
                .hint("close some clients, or run `linger daemon stop`; turns continue at the next start")
        }
        (AtSocket::Refusal(error), _) => foreign(&socket, &error.message),
    }
}

fn foreign(socket: &impl std::fmt::Display, why: &str) -> Failure {
    Failure::unreachable(format!("the process at {socket} is not your daemon: {why}"))
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
        1 => process += "; it crashed once and was restarted, see the log",
        times => process += &format!("; it crashed {times} times and was restarted, see the log"),
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

/// Disk usage in one line.
pub(super) fn storage(storage: &Storage) -> String {
    let Storage { database, unused, wal, blobs, log, .. } = *storage;
    let unused = if unused > MUCH_UNUSED { format!(" ({} of it unused)", size(unused)) } else { String::new() };
    let [database, wal, blobs, log] = [database, wal, blobs, log].map(size);
    format!("database {database}{unused}, its write-ahead log {wal}, images and outputs {blobs}, lingerd.log {log}")
}

/// The warning when little space is left on the file system.
pub(super) fn low_space(storage: &Storage) -> Option<String> {
    let free = storage.free;
    (free < LOW_SPACE).then(|| format!("only {} left on the file system of the database", size(free)))
}

fn start(json: bool) -> Result<Exit, Failure> {
    let client = Client::open()?;
    if json {
        let started = serde_json::json!({ "version": client.welcome.version, "socket": client.places.socket });
        print_value(&started)?;
        return Ok(Exit::GOOD);
    }
    let socket = client.places.socket.display();
    Terminal::new().say(&format!("lingerd {} is running at {socket}", client.welcome.version))?;
    Ok(Exit::GOOD)
}

fn stop(force: bool, now: bool, json: bool) -> Result<Exit, Failure> {
    let ended = end_daemon(force, now, "`linger daemon stop --force` stops it anyway")?;
    if json {
        print_value(&serde_json::json!({ "stopped": ended }))?;
        return Ok(Exit::GOOD);
    }
    let message = if ended {
        "stopped the daemon; running turns continue when it starts again"
    } else {
        "the daemon is not running"
    };
    Terminal::new().say(message)?;
    Ok(Exit::GOOD)
}

/// Stops the daemon cleanly; returns whether one was running. `anyway` is the hint if turns are running.
pub(super) fn end_daemon(force: bool, now: bool, anyway: &str) -> Result<bool, Failure> {
    let mut places = Places::of_user()?;
    let holder = holder::find(&places);
    let stop = DaemonStop(Stop { force: force || now, now, key: Some(key()?) });
    let mut found = ask(&places, &stop)?;
    if let (AtSocket::Nothing, Some(other)) = (&found, elsewhere(&places, holder.as_ref())) {
        places = other;
        found = ask(&places, &stop)?;
    }
    // A holder with another socket is not the daemon that was asked; one without a socket may be.
    let holder = holder.filter(|holder| match &holder.socket {
        Some(socket) => *socket == places.socket,
        None => !matches!(found, AtSocket::Answer(_)),
    });
    match (found, &holder) {
        (AtSocket::Refusal(error), _) if error.code() == Some(Code::Busy) && !force => {
            return Err(Failure::from(error).hint(format!("{anyway}; the turns continue when it starts again")));
        }
        (AtSocket::Refusal(error), _) => return Err(error.into()),
        (AtSocket::Answer(_) | AtSocket::HungUp, Some(holder)) if holder.ends_within(CALL_GRACE + END) => {}
        (AtSocket::Answer(_) | AtSocket::HungUp, None) => wait_for_socket(&places)?,
        (AtSocket::Nothing, None) => return Ok(false),
        (AtSocket::Foreign(failure), None) => return Err(no_status(&places, AtSocket::Foreign(failure), None)),
        (AtSocket::Silent, None) => return Err(no_status(&places, AtSocket::Silent, None)),
        (_, Some(holder)) => end(holder, force, &places.log())?,
    }
    Ok(true)
}

/// Waits until nothing accepts connections at the socket.
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

/// Stops a daemon that does not answer: SIGTERM lets it store its state, with `force` SIGKILL follows.
fn end(holder: &Holder, force: bool, log: &Path) -> Result<(), Failure> {
    let pid = holder.pid;
    if holder.ends_within(Duration::ZERO) {
        return Ok(());
    }
    Terminal::new().say(&format!("the daemon (process {pid}) does not answer; sending SIGTERM"))?;
    let cannot = |error: std::io::Error| {
        Failure::new(Exit::FAILED, format!("cannot stop process {pid}: {error}")).hint(format!("see {}", log.display()))
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
    if holder.ends_within(KILLED) {
        return Ok(());
    }
    Err(Failure::new(Exit::FAILED, format!("process {pid} is still there after SIGKILL"))
        .hint("it waits for a disk or network that does not answer"))
}

fn not_running(places: &Places) -> Failure {
    Failure::unreachable(format!("no daemon is running at {}", places.socket.display()))
        .hint("any command starts it; `linger daemon start` does only that")
}
