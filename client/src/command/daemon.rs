//! `linger daemon status|start|stop`: works with a daemon of any version, and starts none unless told to.

use std::time::{Duration, Instant};

use linger_protocol::daemon::{Empty, Stop};
use linger_protocol::method::{DaemonStatus, DaemonStop};
use linger_protocol::place::Places;

use super::{call_both, now};
use crate::cli::Daemon;
use crate::connect::{Client, dial, key};
use crate::error::{Exit, Failure};
use crate::render::table::{age, columns};
use crate::terminal::Terminal;

/// How long a daemon may take to end: it cancels nothing, but waits for its disk.
const END: Duration = Duration::from_secs(10);

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
    rows.extend(status.config_error.map(|error| ("error", error)));
    rows.extend(status.config_warnings.into_iter().map(|warning| ("warning", warning)));
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    Ok(Exit::GOOD)
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
    client.stop(&DaemonStop(Stop { force, key: Some(key()?) }))?;
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
