//! Owns the processes and connections of a test: the real daemon, raw clients, the real command-line client, pseudo-terminals.
//!
//! Nothing here sleeps for a time: a test waits for something with a name, with the one time-out [`crate::TIMEOUT`]. Where the
//! system has no event to wait for (a process that ends, a socket that is bound) [`until`] looks again every few milliseconds.

mod aimock;
mod cli;
mod client;
mod daemon;
mod dirs;
mod inside;
mod keychain;
mod prepared;
pub mod process;
mod pty;
mod raw;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use aimock::Aimock;
pub use cli::{Cli, Output, Running};
pub use client::Client;
pub use daemon::Daemon;
pub use dirs::Dirs;
pub use inside::Inside;
pub use keychain::Keychain;
pub use prepared::{Prepared, SCRIPTED_SERVER, Setup, scripted_server};
pub use pty::Pty;
pub use raw::Raw;

use crate::TIMEOUT;

/// How often [`until`] looks.
const LOOK: Duration = Duration::from_millis(5);

/// Processor time within [`TIMEOUT`] from which on a process does more than wait, in seconds.
const WORK: f64 = 0.1;

/// The programs under test.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `lingerd`.
    pub daemon: PathBuf,
    /// `linger`.
    pub client: PathBuf,
}

static PROGRAMS: OnceLock<Programs> = OnceLock::new();

/// The programs under test, built once a process: same target directory and profile as this test.
pub fn programs() -> &'static Programs {
    PROGRAMS.get_or_init(|| build(None))
}

/// Makes [`programs`] those that packages have, for figures. Panics if they were built before.
pub fn measure_packaged() {
    assert!(PROGRAMS.set(build(Some("dist"))).is_ok(), "the programs are chosen before their first use");
}

/// The programs with their faults ([`lingerd::fault`]), built once a process. They have names of their own, and share what they
/// are built from with the ordinary ones.
pub fn faulty() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        cargo_build(&["--features=lingerd/faults,linger/faults", "--bin=lingerd-faults", "--bin=linger-faults"], None);
        let profile = profile();
        Programs { daemon: profile.join("lingerd-faults"), client: profile.join("linger-faults") }
    })
}

/// Where programs of this test's profile lie: tests lie in `target/<profile>/deps`, programs in `target/<profile>`.
pub fn profile() -> PathBuf {
    let exe = std::env::current_exe().expect("this test has a path");
    let deps = exe.parent().expect("this test lies in a directory");
    if deps.ends_with("deps") { deps.parent().unwrap_or(deps) } else { deps }.to_path_buf()
}

/// Builds both programs with a profile of their own, or with that of this test.
fn build(own: Option<&str>) -> Programs {
    cargo_build(&["--bin=lingerd", "--bin=linger"], own);
    let directory = own.map_or_else(profile, |own| profile().with_file_name(own));
    Programs { daemon: directory.join("lingerd"), client: directory.join("linger") }
}

#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn cargo_build(more: &[&str], own: Option<&str>) {
    let profile = profile();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet"]).args(more).arg("--manifest-path");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"));
    command.arg("--target-dir").arg(profile.parent().unwrap_or(&profile));
    let name = own.or_else(|| profile.ends_with("release").then_some("release"));
    if let Some(name) = name {
        // Without the features of the tests.
        command.args(["--profile", name, "-p", "lingerd", "-p", "linger"]);
    } else {
        // With the features of the whole workspace: all that the tests are built from is there already.
        command.arg("--workspace");
    }
    // What cargo tells this test about itself would make build scripts run again.
    let own = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"]
            .iter()
            .any(|own| name.starts_with(own))
    });
    for name in own {
        command.env_remove(name);
    }
    let built = command.stdin(Stdio::null()).status().expect("cargo can be run");
    assert!(built.success(), "the programs under test do not build");
}

/// How often the time-out begins again at most: a process that works without end fails too.
const EXTENSIONS: usize = 5;

/// Waits for something; gives nothing if it does not come within [`TIMEOUT`]. The daemon of a test within its own process gets more
/// time while the process works, so that a busy machine fails no test.
pub async fn while_working<T>(wait: impl Future<Output = T>) -> Option<T> {
    let own = || process::cpu(std::process::id());
    let mut wait = std::pin::pin!(wait);
    for _ in 0..=EXTENSIONS {
        let before = own();
        match tokio::time::timeout(TIMEOUT, &mut wait).await {
            Ok(done) => return Some(done),
            Err(_) if own() - before > WORK => {}
            Err(_) => return None,
        }
    }
    None
}

/// Looks every few milliseconds until `look` gives something.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        // Before the look: what came while this thread had to wait has come.
        let last = start.elapsed() > TIMEOUT;
        if let Some(found) = look().await {
            return found;
        }
        assert!(!last, "{what}: not within {TIMEOUT:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// As [`until`], where there is no runtime; says whether it came to be within `limit`.
pub fn comes_true(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        // Before the look: what came while this thread had to wait has come.
        let last = start.elapsed() > limit;
        if look() {
            return true;
        }
        if last {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}
