//! The program `lingerd`: a keeper, and below it the daemon, which finds its directories, binds the socket and runs.
//!
//! `lingerd` stays in the foreground; daemon and tools are detached from the terminal all the same. Clients start
//! `lingerd --background`, which leaves the terminal's session and, after printing `ready`, closes standard output. A second daemon
//! prints `running` and exits with 0. `lingerd --mcp-serve` has nothing to do with the daemon: see `serve`. `lingerd --gateway` is a client of it: see `gateway`. `lingerd --recover` is a helper that repairs the database while no daemon runs.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use linger_protocol::VERSION;
use linger_protocol::footprint;
use linger_protocol::place::{PlaceError, Places, check_socket, own_directory, private_directory};
use lingerd::config::{Changes, ConfigStore};
use lingerd::diagnostics::secret::Redactor;
use lingerd::face::gateway;
use lingerd::face::serve;
use lingerd::keeper::lock::{Lock, LockError};
use lingerd::keeper::{self, Kept};
use lingerd::process::{ledger, mark};
use lingerd::provider::keychain::helper;
use lingerd::rpc::listener::{ListenError, Listener};
use lingerd::service::{Setup, own_environment};
use lingerd::sys::task;
use lingerd::sys::{descriptors, memory, terminal};
use lingerd::tool::page;
use lingerd::tool::set::Tools;
use lingerd::{Options, diagnostics};
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long to wait for blocking threads at the end.
const THREADS_TIMEOUT: Duration = Duration::from_secs(1);

const USAGE: &str =
    "usage: lingerd [--background | --recover | --mcp-serve [--tools TOOL,TOOL] [--allow RULE] | --gateway …]

The daemon that owns linger's agent sessions. Clients start it; `linger daemon status` shows it.

  --background   leave the terminal once ready
  --mcp-serve    the tools as an MCP server: `linger mcp serve`
  --gateway      the gateway, an HTTP server: `linger gateway`
  --recover      save what can be read of a damaged database, and print a report in JSON: `linger doctor --repair`
  --version      print the version
  --help         print this

LINGER_SOCKET is the socket's path, LINGER_LOG the level of the log file (error, warn, info, debug, trace).";

pub(crate) fn main() -> ExitCode {
    descriptors::forbid_inheritance();
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some((helper::ARGUMENT, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return helper::main(rest);
    }
    if let Some((serve::ARGUMENT, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return serve::main(rest);
    }
    if let Some((gateway::ARGUMENT, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return gateway::main(rest);
    }
    if arguments.first().is_some_and(|first| first == page::ARGUMENT) {
        return page::main();
    }
    let (mut background, mut recovers) = (false, false);
    let (mut kept, mut lock) = (None, None);
    for argument in arguments {
        match argument.as_str() {
            "--background" => background = true,
            "--recover" => recovers = true,
            "--version" | "-V" => {
                println!("lingerd {VERSION}");
                return ExitCode::SUCCESS;
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => match (Kept::from_argument(other), keeper::lock_from_argument(other)) {
                (Some(inherited), _) => kept = Some(inherited),
                (None, Some(inherited)) => lock = Some(inherited),
                (None, None) => {
                    eprintln!("error: unknown argument '{other}'\nhint: lingerd --help");
                    return ExitCode::from(2);
                }
            },
        }
    }
    let ended = match kept {
        None if recovers => recover(),
        None => lock.transpose().and_then(|lock| keep(background, lock)),
        Some(kept) => kept.and_then(|kept| start(kept, background)),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            let place = error.downcast_ref::<PlaceError>().map(PlaceError::hint);
            let locked = || error.downcast_ref::<LockError>()?.hint().map(str::to_owned);
            let listens = || error.downcast_ref::<ListenError>().map(ListenError::hint);
            if let Some(hint) = place.or_else(locked).or_else(listens) {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The keeper: checks the directories and keeps a daemon running.
fn keep(background: bool, lock: Option<Lock>) -> anyhow::Result<ExitCode> {
    let places = Places::of_user()?;
    for dir in [&places.data, &places.state] {
        private_directory(dir)?;
    }
    own_directory(&places.config)?;
    check_socket(&places.socket)?;
    keeper::run(&places, background, lock)
}

/// The helper that repairs the database: it holds the daemon's lock meanwhile.
fn recover() -> anyhow::Result<ExitCode> {
    let places = Places::of_user()?;
    for dir in [&places.data, &places.state] {
        private_directory(dir)?;
    }
    let lock = Lock::take(&places)?;
    if lock.follows_a_death {
        // What it left is looked for by the next daemon.
        ledger::keep(&places.children())?;
    }
    lock.announce_repair().context("the lock's file cannot be written")?;
    diagnostics::start(&places.log(), std::env::var("LINGER_LOG").ok().as_deref(), Redactor::default())?;
    let recovered = lingerd::recover::run(&places.database())?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&recovered)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The daemon below the keeper.
fn start(kept: Kept, background: bool) -> anyhow::Result<ExitCode> {
    memory::tune_allocator();
    terminal::set_process_name("lingerd");
    let places = Places::of_user()?;
    let redactor = Redactor::default();
    diagnostics::start(&places.log(), std::env::var("LINGER_LOG").ok().as_deref(), redactor.clone())?;
    if let Err(error) = terminal::leave_terminal() {
        tracing::warn!(target: "daemon", %error, "cannot leave the terminal: tools can write to it");
    }
    let lock = kept.lock.clone();
    anyhow::ensure!(lock.is_held(&places), "--kept is for the keeper only: it holds the lock");
    if let Err(error) = mark::take(&places.data) {
        tracing::warn!(target: "daemon", %error, "cannot set the mark of children: every answer to a permission is refused");
    }
    kept.link.await_name();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let orphaned = Arc::new(AtomicBool::new(false));
    let result = runtime.block_on(serve(places.clone(), redactor, kept, background, orphaned.clone()));
    // A thread that hangs in a file system must not keep the daemon from ending.
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    if orphaned.load(Ordering::Relaxed) {
        tracing::info!(target: "daemon", "becoming the keeper");
        return Err(keeper::replace_this_process(&places, background, &lock)).context("cannot replace the dead keeper");
    }
    result.map(|()| ExitCode::SUCCESS)
}

async fn serve(
    places: Places,
    redactor: Redactor,
    kept: Kept,
    background: bool,
    orphaned: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let Kept { link, lock, listener, keeper, restarts } = kept;
    let changes = Changes::of(&places.config_file());
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let tools = Tools::default();
    let config = Arc::new(ConfigStore::open(places.clone(), home, tools.clone()));
    // A socket from the service manager may have any path.
    let passed = listener.as_ref().and_then(|socket| Some(socket.local_addr().ok()?.as_pathname()?.to_path_buf()));
    let socket = passed.unwrap_or_else(|| places.socket.clone());
    let places = Places { socket, ..places };
    let listener = Listener::open(&places.socket, listener, |socket| lock.announce_or_warn(keeper, socket))?;
    let shutdown = CancellationToken::new();
    end_on_signals(&shutdown, &orphaned)?;
    end_without_keeper(link.reader()?, &shutdown, orphaned)?;
    let socket = places.socket.clone();
    let link = Arc::new(link);
    let ready = Box::new({
        let link = link.clone();
        move || {
            tracing::info!(target: "daemon", version = VERSION, socket = %socket.display(), restarts, "ready");
            announce(background).context("cannot write standard output")?;
            link.ready();
            Ok(())
        }
    });
    task::spawn({
        let shutdown = shutdown.clone();
        async move {
            shutdown.cancelled().await;
            link.ending();
        }
    });
    let keeper = Some(keeper);
    let system = lingerd::session::env::SYSTEM.to_owned();
    let environment = own_environment();
    let setup = Setup { places, config, tools, system, redactor, environment, keeper, restarts };
    let options = Options { setup, changes, ready, on_idle: footprint::release_idle_memory };
    let result = lingerd::run(options, listener, shutdown).await;
    drop(lock);
    result
}

/// Prints `ready`; in the background, closes standard output afterwards.
fn announce(background: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready")?;
    stdout.flush()?;
    if background { terminal::detach_stdio() } else { Ok(()) }
}

/// Ends in good order when the keeper dies, because a crash would no longer be followed by a restart.
fn end_without_keeper(
    link: std::os::unix::net::UnixStream,
    shutdown: &CancellationToken,
    orphaned: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let (mut link, shutdown) = (tokio::net::UnixStream::from_std(link)?, shutdown.clone());
    task::spawn(async move {
        // A keeper sends nothing: end of file, data or an error means that it is gone.
        let _end = link.read_u8().await;
        if !shutdown.is_cancelled() {
            tracing::error!(target: "daemon", "the keeper died");
            orphaned.store(true, Ordering::Relaxed);
            shutdown.cancel();
        }
    });
    Ok(())
}

fn end_on_signals(shutdown: &CancellationToken, orphaned: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signal, shutdown, orphaned) = (signal(kind)?, shutdown.clone(), orphaned.clone());
        task::spawn(async move {
            signal.recv().await;
            // A daemon that is told to end must not become the keeper.
            orphaned.store(false, Ordering::Relaxed);
            shutdown.cancel();
        });
    }
    // A hangup of the terminal must not end the daemon.
    let mut hangup = signal(SignalKind::hangup())?;
    task::spawn(async move { while hangup.recv().await.is_some() {} });
    Ok(())
}
