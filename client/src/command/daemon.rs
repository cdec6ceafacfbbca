//! `linger daemon status|start|stop|restart`: works with a daemon of any version; only `start` and `restart` start one.
//!
//! Only a process that is proven to be this machine's daemon is asked to stop. If the socket is gone, silent, or another process's,
//! the process that holds the lock is the daemon or its keeper: `stop` then sends a signal to that process, and to no other.

use std::path::Path;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::daemon::{Empty, Status, Stop, Storage};
use linger_protocol::error::Code;
use linger_protocol::events::{NOW, Subscribe};
use linger_protocol::id::Cursor;
use linger_protocol::listener::holder::{self, Holder};
use linger_protocol::method::{DaemonStatus, DaemonStop, EventsSubscribe, Method};
use linger_protocol::place::Places;
use serde_json::value::RawValue;

use super::output::print_value;
use crate::arguments::Daemon;
use crate::connect::{Client, Reply, elsewhere, far, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::input::Event;
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
        Daemon::Restart { now, json } => restart(*now, *json),
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
    Ok(Client::open_running(places)?.map_or(AtSocket::Nothing, |mut client| ask_over(&mut client, request)))
}

fn ask_over<M: Method>(client: &mut Client, request: &M) -> AtSocket {
    match client.call_once(request, ANSWER) {
        Ok(Reply::Answered(Ok(answer))) => AtSocket::Answer(answer),
        Ok(Reply::Answered(Err(error))) => AtSocket::Refusal(error),
        Ok(Reply::Lost) => AtSocket::HungUp,
        Ok(Reply::Late) => AtSocket::Silent,
        Err(failure) => AtSocket::Foreign(failure),
    }
}

/// As [`ask`], but only of the daemon that holds the lock: a tunnel may have taken its socket's place.
fn ask_proven<M: Method>(places: &Places, holder: Option<&Holder>, request: &M) -> Result<AtSocket, Failure> {
    let Some(mut client) = Client::open_running(places)? else { return Ok(AtSocket::Nothing) };
    if holder.is_some_and(|holder| client.is_daemon_of(holder)) {
        return Ok(ask_over(&mut client, request));
    }
    let why = match holder {
        Some(holder) => format!("the daemon's lock is held by process {}", holder.pid),
        None => "no process holds the daemon's lock".to_owned(),
    };
    Ok(AtSocket::Foreign(Failure::unreachable(why)))
}

/// The places with the daemon's own socket, if it differs from ours.
fn with_own_socket(places: &Places, holder: Option<&Holder>) -> Option<Places> {
    let socket = holder?.other_socket(places)?;
    Some(Places { socket: socket.to_owned(), ..places.clone() })
}

fn status(json: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let found = ask(&places, &DaemonStatus(Empty {}))?;
    if let AtSocket::Answer(raw) = found {
        return print_status(&raw, json);
    }
    if matches!(found, AtSocket::Nothing) && !json && !far::is_here(&places) {
        return Err(far::nothing_there(&places));
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
        (AtSocket::Nothing, Some(pid)) => match holder.and_then(|holder| holder.other_socket(places)) {
            Some(other) => elsewhere(pid, other, places),
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

/// Stops the daemon and starts it again. A busy one is awaited, or with `now` told to end all the same: its turns continue.
fn restart(now: bool, json: bool) -> Result<Exit, Failure> {
    if now {
        end_daemon(true, false, "")?;
    } else {
        end_when_idle()?;
    }
    let client = Client::open()?;
    if json {
        print_value(&serde_json::json!({ "version": client.welcome.version, "socket": client.places.socket }))?;
        return Ok(Exit::GOOD);
    }
    let (version, socket) = (&client.welcome.version, client.places.socket.display());
    Terminal::new().say(&format!("restarted the daemon: lingerd {version} is running at {socket}"))?;
    Ok(Exit::GOOD)
}

/// Stops the daemon as soon as no turn is running. Each event of a session may be the end of the last turn; nothing is asked
/// meanwhile.
fn end_when_idle() -> Result<(), Failure> {
    let mut told = false;
    loop {
        // Subscribed before it is asked, so that no end of a turn is missed. One of another protocol only says whether it is busy.
        let mut client = Client::open_if_running().ok().flatten();
        let now = Subscribe { after: Some(Cursor(NOW.to_owned())), ..Subscribe::default() };
        let subscribed = client.as_mut().map(|client| client.call(&EventsSubscribe(now)));
        let busy = match try_to_end(false, false)? {
            StopOutcome::Busy(error) => error,
            StopOutcome::Ended | StopOutcome::NotRunning => return Ok(()),
        };
        let (Some(mut client), Some(Ok(_))) = (client, subscribed) else {
            return Err(Failure::from(busy).hint("`linger daemon restart --now` does not wait; turns continue"));
        };
        if !std::mem::replace(&mut told, true) {
            let text = format!("waiting: {}; `linger daemon restart --now` does not wait", busy.message);
            Terminal::new().say(&text)?;
        }
        // Another connection follows a lost one.
        while let Some(Event::Incoming(..)) = client.next_event(None) {
            match try_to_end(false, false)? {
                StopOutcome::Busy(_) => {}
                StopOutcome::Ended | StopOutcome::NotRunning => return Ok(()),
            }
        }
    }
}

/// Stops the daemon cleanly; returns whether one was running. `anyway` is the hint if turns are running.
pub(super) fn end_daemon(force: bool, now: bool, anyway: &str) -> Result<bool, Failure> {
    match try_to_end(force, now)? {
        StopOutcome::Ended => Ok(true),
        StopOutcome::NotRunning => Ok(false),
        StopOutcome::Busy(error) => {
            Err(Failure::from(error).hint(format!("{anyway}; the turns continue when it starts again")))
        }
    }
}

/// The outcome of an attempt to stop the daemon.
enum StopOutcome {
    Ended,
    NotRunning,
    /// A turn is running.
    Busy(RpcError),
}

fn try_to_end(force: bool, now: bool) -> Result<StopOutcome, Failure> {
    let mut places = Places::of_user()?;
    if !far::is_here(&places) {
        return Err(far::not_from_here(&places, "only that machine may stop its daemon"));
    }
    let holder = holder::find(&places);
    let stop = DaemonStop(Stop { force: force || now, now, key: Some(key()?) });
    let mut found = ask_proven(&places, holder.as_ref(), &stop)?;
    if let (AtSocket::Nothing, Some(other)) = (&found, with_own_socket(&places, holder.as_ref())) {
        places = other;
        found = ask_proven(&places, holder.as_ref(), &stop)?;
    }
    match (found, &holder) {
        (AtSocket::Refusal(error), _) if error.code() == Some(Code::Busy) && !force => {
            return Ok(StopOutcome::Busy(error));
        }
        (AtSocket::Refusal(error), _) => return Err(error.into()),
        (AtSocket::Answer(_) | AtSocket::HungUp, Some(holder)) if holder.ends_within(CALL_GRACE + END) => {}
        (AtSocket::Nothing, None) => return Ok(StopOutcome::NotRunning),
        (found, None) => return Err(no_status(&places, found, None)),
        (AtSocket::Foreign(_), Some(holder)) => {
            end(holder, force, &places.log(), "has lost its socket to another process")?
        }
        (_, Some(holder)) => end(holder, force, &places.log(), "does not answer")?,
    }
    Ok(StopOutcome::Ended)
}

/// Stops a daemon that cannot be asked: SIGTERM lets it store its state, with `force` SIGKILL follows.
fn end(holder: &Holder, force: bool, log: &Path, why: &str) -> Result<(), Failure> {
    let pid = holder.pid;
    if holder.ends_within(Duration::ZERO) {
        return Ok(());
    }
    Terminal::new().say(&format!("the daemon (process {pid}) {why}; sending SIGTERM"))?;
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
