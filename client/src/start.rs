//! Starts the daemon: the only place of the client that makes a process.
//!
//! `lingerd --background` prints one line on stdout once its socket accepts (`ready`), or finds that another daemon has the
//! place (`running`), and goes on in the background; or it ends with `error: …` and `hint: …` on stderr.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use linger_protocol::place::Places;

use crate::error::Failure;

/// How long a start may take: opening a large database after a crash is the slowest part.
const START: Duration = Duration::from_secs(20);

/// What a daemon that cannot start may say, in bytes.
const MAX_WORDS: u64 = 16 << 10;

/// Starts the daemon and waits until it is ready, or was already.
pub(crate) fn daemon(places: &Places) -> Result<(), Failure> {
    let program = find()?;
    let child = spawn(&program, places)
        .map_err(|error| Failure::unreachable(format!("cannot start {}: {error}", program.display())))?;
    let (sender, answer) = mpsc::channel();
    // The thread outlives the answer: it waits for the process that went into the background, lest that stay a zombie.
    std::thread::spawn(move || watch(child, &sender));
    match answer.recv_timeout(START) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(words)) => Err(told(&words, places)),
        Err(_) => Err(Failure::unreachable(format!("the daemon did not start within {} s", START.as_secs()))
            .hint(format!("see {}", places.log().display()))),
    }
}

#[allow(clippy::disallowed_methods, reason = "the one process that the client starts")]
fn spawn(program: &Path, places: &Places) -> std::io::Result<Child> {
    Command::new(program)
        .arg("--background")
        // The daemon holds on to no directory of the user's, so the socket's path must not depend on one.
        .current_dir("/")
        .envs(std::env::var_os("LINGER_SOCKET").map(|_| ("LINGER_SOCKET", places.socket.as_os_str())))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

fn watch(mut child: Child, sender: &mpsc::Sender<Result<(), String>>) {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = BufReader::new(stdout.take(MAX_WORDS)).read_line(&mut line);
    }
    if matches!(line.trim_end(), "ready" | "running") {
        let _ = sender.send(Ok(()));
    } else {
        let mut words = line;
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(MAX_WORDS).read_to_string(&mut words);
        }
        let _ = sender.send(Err(words));
    }
    let _ = child.wait();
}

/// What the daemon said when it could not start, as a failure of ours.
fn told(words: &str, places: &Places) -> Failure {
    let with = |prefix| words.lines().find_map(|line| line.strip_prefix(prefix));
    let message = with("error: ").or_else(|| words.lines().find(|line| !line.trim().is_empty()));
    let failure = match message {
        Some(message) => Failure::unreachable(format!("the daemon does not start: {message}")),
        None => Failure::unreachable("the daemon does not start"),
    };
    failure.hint(with("hint: ").map_or_else(|| format!("see {}", places.log().display()), str::to_owned))
}

/// The daemon's program: beside this one, or on PATH.
fn find() -> Result<PathBuf, Failure> {
    let beside =
        std::env::current_exe().ok().and_then(|exe| Some(exe.canonicalize().unwrap_or(exe).parent()?.to_path_buf()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = beside.iter().cloned().chain(std::env::split_paths(&path)).map(|dir| dir.join("lingerd"));
    found.into_iter().find(|program| program.is_file()).ok_or_else(|| {
        let beside = beside.as_deref().unwrap_or(Path::new("?")).display();
        Failure::unreachable("no daemon runs, and its program `lingerd` was not found").hint(format!(
            "install it in {beside} (the directory of linger) or in a directory of PATH: both were searched"
        ))
    })
}
