//! `linger daemon status|start|stop`: works with a daemon of any version, and starts none unless told to.

use std::time::{Duration, Instant};

use linger_protocol::daemon::{Empty, Stop, Storage};
use linger_protocol::method::{DaemonStatus, DaemonStop};
use linger_protocol::place::Places;

use super::{call_both, now};
use crate::cli::Daemon;
use crate::connect::{Client, dial};
use crate::error::{Exit, Failure};
use crate::render::table::{age, columns, size};
use crate::terminal::Terminal;

/// How long a daemon may take to end: it cancels nothing, but waits for its disk.
const END: Duration = Duration::from_secs(10);

/// With less than this left on its file system, the database will soon not be written, in bytes: one output of a tool may have
/// as much.
const LOW_SPACE: u64 = 1 << 30;

/// What the database holds for later use is worth a word beyond this, in bytes.
const MUCH_UNUSED: u64 = 1 << 20;

pub(super) fn run(command: &Daemon) -> Result<Exit, Failure> {
    match command {
        Daemon::Status(args) => status(args.json),
        Daemon::Start => start(),
        Daemon::Stop { force } => stop(*force),
    }
}

fn status(json: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let mut terminal = Terminal::new();
    let Some(mut client) = Client::open_running(&places)? else {
        if json {
            terminal.data(&serde_json::json!({ "running": false, "socket": places.socket }).to_string())?;
        }
        return Err(not_running(&places));
    };
    let (raw, status) = call_both(&mut client, &DaemonStatus(Empty {}))?;
    if json {
        terminal.data(raw.get())?;
        return Ok(Exit::GOOD);
    }
    let mut rows = vec![
        ("version", status.version),
        ("process", format!("{}, running for {}", status.pid, age(status.started_at, now()))),
        ("socket", status.socket.display().to_string()),
        ("database", status.database.display().to_string()),
        ("log", status.log.display().to_string()),
        ("configuration", status.config.display().to_string()),
        ("model", status.model.unwrap_or_else(|| "none".to_owned())),
        ("sessions", format!("{}, {} running", status.sessions, status.running)),
        ("permissions", format!("{} waiting", status.permissions)),
        ("clients", status.connections.to_string()),
    ];
    if let Some(taken) = &status.storage {
        rows.extend([("storage", storage(taken)), ("free", size(taken.free))]);
        rows.extend(low_space(taken).map(|low| ("warning", low)));
    }
    rows.extend(status.config_error.map(|error| ("error", error)));
    rows.extend(status.config_warnings.into_iter().map(|warning| ("warning", warning)));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    Ok(Exit::GOOD)
}

/// What is taken on the disk, in one line.
pub(super) fn storage(storage: &Storage) -> String {
    let Storage { database, unused, wal, blobs, log, .. } = *storage;
    let unused = if unused > MUCH_UNUSED { format!(" ({} of it unused)", size(unused)) } else { String::new() };
    let [database, wal, blobs, log] = [database, wal, blobs, log].map(size);
    format!("database {database}{unused}, its write-ahead log {wal}, images and outputs {blobs}, lingerd.log {log}")
}

/// What to say when there is little left on the file system.
pub(super) fn low_space(storage: &Storage) -> Option<String> {
    let free = storage.free;
    (free < LOW_SPACE).then(|| format!("only {} are left on the file system of the database", size(free)))
}

fn start() -> Result<Exit, Failure> {
    let client = Client::open()?;
    let socket = client.places.socket.display();
    Terminal::new().say(&format!("lingerd {} runs at {socket}", client.welcome.version))?;
    Ok(Exit::GOOD)
}

fn stop(force: bool) -> Result<Exit, Failure> {
    let places = Places::of_user()?;
    let mut terminal = Terminal::new();
    let Some(mut client) = Client::open_running(&places)? else {
        terminal.say("no daemon runs")?;
        return Ok(Exit::GOOD);
    };
    client.stop(&DaemonStop(Stop { force }))?;
    let deadline = Instant::now() + END;
    while dial(&places)?.is_some() {
        if Instant::now() > deadline {
            return Err(Failure::new(Exit::FAILED, format!("the daemon did not end within {} s", END.as_secs()))
                .hint(format!("see {}", places.log().display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    terminal.say("the daemon has ended; turns that were under way go on when it starts again")?;
    Ok(Exit::GOOD)
}

fn not_running(places: &Places) -> Failure {
    Failure::unreachable(format!("no daemon runs at {}", places.socket.display()))
        .hint("any command starts one, `linger daemon start` does nothing else")
}
