//! `lingerd --gateway`: linger over HTTP, for scripts with an OpenAI client, and for browsers.
//!
//! A process of its own, started by the user's client and never by the daemon. It is a client of the daemon's socket like any
//! other and has no authority of its own: each request brings a token, which the daemon checks, and the gateway says which process
//! is behind it. It can be killed at any time: sessions go on, and readers of events come back with their cursor.
//! Host and Origin are checked before a request is routed, and nothing but the page's files is given without a token.
//! Deliberately absent: TLS (a proxy of the user's may stand before it: `public_url`), and any second way to do a thing.
//!
//! | file | owns |
//! |---|---|
//! | `options`, `state` | the command line; the lock |
//! | `server`, `stream`, `log` | connections and their bounds; one socket with its time-out; the access log |
//! | `access`, `peer` | Host, Origin, tokens; the process at the other end |
//! | `client`, `shared` | a caller with its token and its connections; what all requests share |
//! | `route`, `reply`, `body` | the routing table; responses; what a request sends |
//! | `reach`, `wire` | the way to the daemon, proven to be it; a connection to it |
//! | `registration` | tells the daemon where the gateway listens |
//! | `login`, `rpc`, `events`, `artifact`, `blob`, `page` | the routes outside of `/v1` |
//! | `openai` | the routes of `/v1` |

mod access;
mod artifact;
mod blob;
mod body;
mod client;
mod events;
mod log;
mod login;
mod openai;
mod options;
mod page;
mod peer;
mod reach;
mod registration;
mod reply;
mod route;
mod rpc;
mod server;
mod shared;
mod state;
mod stream;
mod wire;

use std::future::pending;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use linger_protocol::place::{Places, private_directory};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::sys::{memory, terminal};
use access::Hosts;
use log::AccessLog;
use options::GatewayOptions;
use reach::Daemon;
use registration::Registration;
use server::Listener;
use shared::Gateway;
use state::Lock;

/// The argument that makes `lingerd` the gateway.
pub const ARGUMENT: &str = "--gateway";

/// The most streams at a time: each has a connection of its own to the daemon, which takes a few hundred.
const MAX_STREAMS: usize = 256;

/// The most connections to the daemon that wait for another request of their client: the daemon has 512 places for all.
const MAX_IDLE: usize = 32;

/// Serves until a signal ends it.
pub fn main(arguments: &[String]) -> ExitCode {
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    memory::tune_allocator();
    let options = GatewayOptions::parse(arguments)?;
    let places = Places::of_user()?;
    private_directory(&places.state)?;
    let Some(_lock) = Lock::take(&places)? else {
        println!("running");
        return Ok(ExitCode::SUCCESS);
    };
    if options.background {
        terminal::leave_terminal().context("cannot leave the terminal")?;
    }
    server::raise_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let listener = Listener::open(&options.listen).await?;
        let hosts = Hosts::new(&listener.address, &options);
        let gateway = Arc::new(Gateway {
            log: AccessLog::new(places.gateway_log()),
            daemon: Daemon::new(places),
            hosts,
            models: options.models,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            idle: Arc::new(Semaphore::new(MAX_IDLE)),
        });
        let registration = Registration::begin(&gateway, &listener.address).await;
        let registration = registration.map_err(|failure| anyhow::anyhow!(failure.message))?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "ready").and_then(|()| stdout.flush()).context("cannot write standard output")?;
        if options.background {
            terminal::detach_stdio().context("cannot leave the terminal")?;
        }
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            () = server::serve(&gateway, &listener, options.max_connections) => {}
            () = async { registration.keep().await; pending().await } => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        listener.close();
        anyhow::Ok(())
    });
    // What a request still reads on another thread must not keep it.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}
