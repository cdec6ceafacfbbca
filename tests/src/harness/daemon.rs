//! The real `lingerd` in directories of its own.
//!
//! The child that the harness owns is the one that it started: the keeper. The daemon proper is the process that
//! `daemon/status` names, and may be killed for itself.

use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::prepared::{Prepared, Setup};
use super::process::{self, Process};
use super::{Cli, Client, Pty, Raw, comes_true, faulty, programs, until};
use crate::model::ModelServer;

/// How long a process may take to end. A daemon that was asked to has 5 s (F5 of the fault table), after which its keeper kills it
/// and ends with another code; on a busy machine the rest may take as long again.
const GRACE: Duration = Duration::from_secs(20);

/// A running daemon with its directories.
pub struct Daemon {
    prepared: Prepared,
    child: Mutex<Option<Child>>,
}

impl Deref for Daemon {
    type Target = Prepared;

    fn deref(&self) -> &Prepared {
        &self.prepared
    }
}

impl Daemon {
    /// A daemon whose providers `work` and `claude` are `model`.
    pub async fn start(model: &ModelServer) -> Self {
        Self::start_with(model, Setup::default()).await
    }

    /// A daemon in a mode that does not ask.
    pub async fn auto(model: &ModelServer) -> Self {
        Self::start_with(model, Setup { mode: "auto", ..Setup::default() }).await
    }

    /// As [`Self::start`], with a setup of its own.
    pub async fn start_with(model: &ModelServer, setup: Setup) -> Self {
        let daemon = Self::prepare(model, setup);
        daemon.launch().await;
        daemon
    }

    /// Directories and a configuration, and no daemon yet.
    pub fn prepare(model: &ModelServer, setup: Setup) -> Self {
        // Built now, so that no time-out counts it.
        if setup.faulty {
            faulty()
        } else {
            programs()
        };
        Self { prepared: Prepared::new(model, setup), child: Mutex::new(None) }
    }

    /// From now on it is passed this socket.
    pub fn pass(&mut self, socket: RawFd) {
        self.prepared.setup.passed = Some(socket);
    }

    /// Starts the program and waits until it says `ready`.
    pub async fn launch(&self) {
        self.launch_with(&[]).await;
    }

    /// As [`Self::launch`], with more variables for this one start.
    pub async fn launch_with(&self, more: &[(String, String)]) {
        let started = self.try_launch(more).await;
        assert!(started, "lingerd ended before it was ready\n{}", self.log_tail());
    }

    /// As [`Self::launch_with`]; whether it came to be ready, or ended before.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    pub async fn try_launch(&self, more: &[(String, String)]) -> bool {
        let built = &if self.setup.faulty { faulty() } else { programs() }.daemon;
        let program = if self.setup.copied { &self.copy(built) } else { built };
        let mut command = Command::new(program);
        if let Some(files) = self.setup.files {
            command = Command::new("/bin/sh");
            command.args(["-c", &format!("ulimit -n {files} && exec \"$0\"")]).arg(program);
        }
        if let Some(socket) = self.setup.passed {
            command = Command::new("/bin/bash");
            let passing = format!("exec 3<&{socket} && LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\"");
            command.args(["-c", &passing]).arg(program);
        }
        command.env_clear().envs(self.env(self.setup.keys)).env("LINGER_LOG", self.setup.log);
        command.envs(more.iter().cloned()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("lingerd can be run");
        let (send, ready) = mpsc::channel();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // When the receiver has gone, the rest is read so that the daemon is not stopped by a full pipe.
            lines.for_each(|line| drop(send.send(line)));
        });
        let stderr = child.stderr.take().expect("stderr is a pipe");
        std::thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| eprintln!("lingerd: {line}"));
        });
        *self.lock() = Some(child);
        until("lingerd says ready", async || match ready.try_recv() {
            Ok(line) => (line.trim() == "ready").then_some(true),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(false),
        })
        .await
    }

    /// The program's copy, made at the first start, by another process: whatever another test starts just now would have the file
    /// open for writing, and then it cannot be run.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn copy(&self, program: &Path) -> PathBuf {
        let copy = self.program_copy();
        if !copy.exists() {
            let copied = Command::new("cp").arg(program).arg(&copy).status();
            assert!(copied.is_ok_and(|status| status.success()), "the program can be copied");
        }
        copy
    }

    /// Where the copy of the program is, if it was asked for.
    pub fn program_copy(&self) -> PathBuf {
        self.dirs.root().join("lingerd")
    }

    /// Starts it again if what was started has ended, as a client would that finds none.
    pub async fn revive(&self, more: &[(String, String)]) {
        let ended = self.lock().as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()));
        if ended {
            self.launch_with(more).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The process that was started: the keeper.
    pub fn keeper(&self) -> u32 {
        self.lock().as_ref().expect("the daemon was started").id()
    }

    /// The daemon proper.
    pub async fn pid(&self) -> u32 {
        let status = self.client().await.call("daemon/status", json!({})).await;
        status["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("daemon/status has a pid")
    }

    /// A client that has said hello.
    pub async fn client(&self) -> Client {
        self.named("test").await
    }

    /// A client with a name, which others see.
    pub async fn named(&self, name: &str) -> Client {
        Client::connect(&self.dirs, name)
            .await
            .unwrap_or_else(|error| panic!("cannot connect: {error}\n{}", self.log_tail()))
    }

    /// A connection without manners.
    pub async fn raw(&self) -> Raw {
        Raw::connect(&self.dirs.socket()).await
    }

    /// The typed client of jsonrpsee.
    pub async fn typed(&self) -> jsonrpsee::core::client::Client {
        linger_protocol::transport::typed::connect(&self.dirs.socket()).await.expect("the typed client connects")
    }

    /// `linger ARGS`, not yet run.
    pub fn cli(&self, args: &[&str]) -> Cli {
        let program = if self.setup.faulty { faulty() } else { programs() }.client.as_path();
        Cli::new(program, self.env(true), self.workspace(), args)
    }

    /// `linger ARGS` in a terminal of its own.
    pub fn pty(&self, args: &[&str]) -> Pty {
        Pty::spawn(&self.env(true), &self.workspace(), args)
    }

    /// The same, with another `TERM`.
    pub fn pty_on(&self, term: &str, args: &[&str]) -> Pty {
        let mut env = self.env(true);
        env.iter_mut().filter(|(name, _)| name == "TERM").for_each(|(_, value)| *value = term.to_owned());
        Pty::spawn(&env, &self.workspace(), args)
    }

    /// `kill -9` of the daemon proper; waits until the keeper has brought up the next one.
    pub async fn kill_daemon(&self) {
        let old = self.pid().await;
        process::signal(old, Signal::KILL);
        until("the keeper starts the next daemon", async || {
            let client = Client::connect(&self.dirs, "test").await.ok()?;
            let status = client.request("daemon/status", json!({})).await?.ok()?;
            (status["pid"].as_u64() != Some(u64::from(old))).then_some(())
        })
        .await;
    }

    /// `kill -9` of the keeper alone.
    pub async fn kill_keeper(&self) {
        process::signal(self.keeper(), Signal::KILL);
        self.reap();
    }

    /// Waits until the keeper ends by itself, and gives its exit code.
    pub fn ended(&self) -> Option<i32> {
        let mut child = self.lock().take()?;
        let mut status = None;
        comes_true(crate::TIMEOUT, || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        if status.is_none() {
            *self.lock() = Some(child);
            panic!("the keeper has not ended by itself\n{}", self.log_tail());
        }
        status?.code()
    }

    /// `kill -9` of keeper and daemon at once, as a machine that loses power would.
    pub async fn kill_all(&self) {
        self.kill_both(self.pid().await);
    }

    /// [`Self::kill_all`] where it is known which process the `daemon` is.
    pub fn kill_both(&self, daemon: u32) {
        // A daemon takes the place of a keeper that dies before it.
        process::signal(self.keeper(), Signal::STOP);
        assert!(process::kill_and_wait(daemon, GRACE), "the daemon survives kill -9");
        process::signal(self.keeper(), Signal::KILL);
        self.reap();
    }

    /// `kill -9` of the keeper and everything below it, without asking a daemon that may not be able to answer.
    pub fn kill_family(&self) {
        process::signal(self.keeper(), Signal::KILL);
        // A keeper may have been starting the next daemon, and a daemon without one becomes one: until nobody is left. One that is
        // about to become another program says nothing of itself for a moment, and has the lock.
        let gone = comes_true(GRACE, || {
            let left = process::of_directory(self.dirs.root());
            left.iter().all(|process| process::kill_and_wait(process.pid, GRACE))
                && left.is_empty()
                && self.is_unlocked()
        });
        self.reap();
        assert!(gone, "a process survives kill -9");
    }

    /// Whether nobody has the lock beside the database.
    fn is_unlocked(&self) -> bool {
        let lock = std::fs::File::open(self.dirs.database().with_file_name("lingerd.lock"));
        lock.map_or(true, |lock| lock.try_lock_shared().is_ok())
    }

    /// [`Self::kill_all`], then a new start in the same directories.
    pub async fn kill_and_restart(&self) {
        self.kill_all().await;
        self.launch().await;
    }

    /// SIGTERM; waits for the end and gives the exit code.
    pub fn terminate(&self) -> Option<i32> {
        process::signal(self.keeper(), Signal::TERM);
        let mut code = None;
        let ended = comes_true(GRACE, || {
            let status = self.lock().as_mut().and_then(|child| child.try_wait().ok().flatten());
            code = status.map(|status| status.code());
            status.is_some()
        });
        assert!(ended, "lingerd has not ended after SIGTERM\n{}", self.log_tail());
        *self.lock() = None;
        code.flatten()
    }

    fn reap(&self) {
        if let Some(mut child) = self.lock().take() {
            // It was killed: there is nothing to learn from how it ended.
            let _status = child.wait();
        }
    }

    /// What runs because of this daemon, without keeper and daemon themselves.
    pub fn children(&self, daemon: u32) -> Vec<Process> {
        process::descendants(self.keeper()).into_iter().filter(|process| process.pid != daemon).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            eprintln!("{}", self.log_tail());
        }
        let Some(mut child) = self.lock().take() else { return self.leave_nothing(failed) };
        process::signal(child.id(), Signal::TERM);
        let ended = comes_true(GRACE, || child.try_wait().is_ok_and(|status| status.is_some()));
        if !ended {
            let family = process::descendants(child.id());
            process::signal(child.id(), Signal::KILL);
            let _status = child.wait();
            family.iter().for_each(|process| process::signal(process.pid, Signal::KILL));
        }
        assert!(ended || failed, "lingerd has not ended {GRACE:?} after SIGTERM");
        self.leave_nothing(failed);
    }
}
