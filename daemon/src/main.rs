//! The program `lingerd`: finds its places, takes the lock, binds the socket, and runs.
//!
//! `lingerd` stays in the foreground; `lingerd --background` is what a client starts: it leaves the terminal's session and lets
//! go of standard output once it has said `ready`. A second daemon says `running` and ends well.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use linger_protocol::VERSION;
use linger_protocol::place::{Places, check_socket, own_directory, private_directory};
use lingerd::config::{Changes, ConfigStore};
use lingerd::listener::Listener;
use lingerd::lock::{Lock, LockError};
use lingerd::secret::Redactor;
use lingerd::{Options, inherit, log};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long work on files that was given up may take to notice.
const LAST_THREADS: Duration = Duration::from_secs(1);

const USAGE: &str = "usage: lingerd [--background]

The daemon that owns linger's agent sessions. Clients start it; `linger daemon status` shows it.

  --background   leave the terminal once ready
  --version      print the version
  --help         print this

LINGER_SOCKET is the socket's path, LINGER_LOG the level of the log file (error, warn, info, debug, trace).";

fn main() -> ExitCode {
    let mut background = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--background" => background = true,
            "--version" | "-V" => {
                println!("lingerd {VERSION}");
                return ExitCode::SUCCESS;
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("error: unknown argument '{other}'\nhint: lingerd --help");
                return ExitCode::from(2);
            }
        }
    }
    match start(background) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if let Some(hint) =
                error.downcast_ref::<linger_protocol::place::PlaceError>().map(linger_protocol::place::PlaceError::hint)
            {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn start(background: bool) -> anyhow::Result<()> {
    inherit::seal();
    inherit::frugal();
    let places = Places::of_user()?;
    for dir in [&places.data, &places.state] {
        private_directory(dir)?;
    }
    own_directory(&places.config)?;
    check_socket(&places.socket)?;
    let redactor = Redactor::default();
    log::start(&places.log(), std::env::var("LINGER_LOG").ok().as_deref(), redactor.clone())?;
    let lock = match Lock::take(&places) {
        Ok(lock) => lock,
        Err(LockError::Held(held)) => {
            println!("running");
            tracing::debug!(target: "daemon", ?held, "another daemon has the lock");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if background {
        // A child of a shell's job cannot be a group leader here, so this cannot fail; if it does, a hangup may reach us.
        if let Err(error) = rustix::process::setsid() {
            tracing::warn!(target: "daemon", %error, "could not leave the terminal's session");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(places, redactor, lock, background));
    // A thread that hangs in a file system must not keep the daemon from ending.
    runtime.shutdown_timeout(LAST_THREADS);
    result
}

async fn serve(places: Places, redactor: Redactor, lock: Lock, background: bool) -> anyhow::Result<()> {
    let changes = Changes::of(&places.config_file()).context("the configuration cannot be watched")?;
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let config = Arc::new(ConfigStore::open(places.clone(), home));
    let listener = Listener::open(&places, &lock, &mut listenfd::ListenFd::from_env())?;
    let shutdown = CancellationToken::new();
    end_on_signals(&shutdown)?;
    let socket = places.socket.clone();
    let ready = Box::new(move || {
        tracing::info!(target: "daemon", version = VERSION, socket = %socket.display(), "ready");
        announce(background).context("standard output cannot be written")?;
        inherit::settle();
        Ok(())
    });
    let result = lingerd::run(Options { places, config, changes, redactor, ready }, listener, shutdown).await;
    drop(lock);
    result
}

/// Says that the socket accepts; in the background, nothing is ever said again.
fn announce(background: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready")?;
    stdout.flush()?;
    if background {
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(())
}

fn end_on_signals(shutdown: &CancellationToken) -> anyhow::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signal, shutdown) = (signal(kind)?, shutdown.clone());
        tokio::spawn(async move {
            signal.recv().await;
            shutdown.cancel();
        });
    }
    // A terminal that goes away is no reason to end.
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move { while hangup.recv().await.is_some() {} });
    Ok(())
}
