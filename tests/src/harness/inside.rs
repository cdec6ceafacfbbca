//! A daemon in the process of its test: the same configuration, clients, model server and checks as the real program has, on a
//! thread of its own. For tests that need nothing of a process: none of its clients has a socket, and nobody can kill it.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use linger_protocol::place::Places;
use lingerd::Options;
use lingerd::config::ConfigStore;
use lingerd::rpc::in_process::{Connector, InProcess, in_process};
use lingerd::service;
use lingerd::tool::set::Tools;
use tokio_util::sync::CancellationToken;

use super::prepared::{Prepared, Setup};
use super::{Client, Raw};
use crate::model::ModelServer;

/// How long work on files that was given up may take to notice.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// A running daemon with its directories.
pub struct Inside {
    prepared: Prepared,
    connector: Connector,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Deref for Inside {
    type Target = Prepared;

    fn deref(&self) -> &Prepared {
        &self.prepared
    }
}

impl Inside {
    /// A daemon whose providers `work` and `claude` are `model`.
    pub async fn start(model: &ModelServer) -> Self {
        Self::start_with(model, Setup::default()).await
    }

    /// A daemon in a mode that does not ask.
    pub async fn auto(model: &ModelServer) -> Self {
        Self::start_with(model, Setup { mode: "auto", ..Setup::default() }).await
    }

    /// As [`Self::start`], with a setup of its own, of which what is about a program means nothing.
    pub async fn start_with(model: &ModelServer, setup: Setup) -> Self {
        let prepared = Prepared::new(model, setup);
        let (connector, listener) = in_process();
        let shutdown = CancellationToken::new();
        let thread = std::thread::spawn({
            let (setup, shutdown) = (service_setup(&prepared), shutdown.clone());
            move || run(setup, listener, shutdown)
        });
        Self { prepared, connector, shutdown, thread: Some(thread) }
    }

    /// A client that has said hello.
    pub async fn client(&self) -> Client {
        self.named("test").await
    }

    /// A client with a name, which others see.
    pub async fn named(&self, name: &str) -> Client {
        let stream = self.connector.connect().await.expect("the daemon is there");
        let (read, write) = tokio::io::split(stream);
        Client::over(read, write, &self.dirs, name).await.expect("the daemon answers a hello")
    }

    /// A connection without manners.
    pub async fn raw(&self) -> Raw {
        Raw::over(self.connector.connect().await.expect("the daemon is there"))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        self.shutdown.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(failed || matches!(ended, Some(Ok(Ok(())))), "the daemon ended with {ended:?}");
        self.prepared.leave_nothing(failed);
    }
}

/// What the daemon is opened with: the variables are those that a program would be started with.
fn service_setup(prepared: &Prepared) -> service::Setup {
    let dir = |name: &str| prepared.dirs.root().join(name).join("linger");
    let places = Places { config: dir("c"), data: dir("d"), state: dir("s"), socket: prepared.dirs.socket() };
    let (tools, home) = (Tools::default(), prepared.dirs.root().join("h"));
    let config = Arc::new(ConfigStore::open(places.clone(), Some(home), tools.clone()));
    let variables = prepared.env(prepared.setup.keys);
    let find = move |wanted: &str| variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    service::Setup { config, environment: Arc::new(find), ..service::Setup::with_tools(places, tools) }
}

fn run(setup: service::Setup, listener: InProcess, shutdown: CancellationToken) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async { lingerd::run(Options::of(setup), listener, shutdown).await });
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}
