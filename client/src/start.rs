//! Starts the daemon: the only place of the client that makes a process.
//!
//! `lingerd --background` prints one line on stdout once its socket accepts (`ready`), or finds that another daemon has the
//! place (`running`), and goes on in the background; or it ends with `error: …` and `hint: …` on stderr.
//!
//! A login that ends may take every process of its scope with it (`KillUserProcesses=yes`). So where the user's systemd can be
//! asked, the daemon is started in a scope of its own below it; `systemd-run --scope` becomes the daemon, which therefore stays our
//! child and keeps its output. If that fails, or says nothing for a while, the daemon is started all the same, and its log says why
//! it is in this login's scope.
//! A socket unit of `contrib/` needs nothing of this: its socket accepts, so nobody comes here.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use linger_protocol::place::Places;

use crate::error::Failure;

/// How long a start may take: opening a large database after a crash is the slowest part.
const START: Duration = Duration::from_secs(20);

/// How long a start in a scope of its own may take before another one is tried beside it: the user's manager may not answer.
const SCOPE: Duration = Duration::from_secs(4);

/// What a daemon that cannot start may say, in bytes.
const MAX_WORDS: u64 = 16 << 10;

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// The daemon accepts.
    Ready,
    /// Somebody else holds the lock: a daemon, perhaps one that starts or ends, or a keeper.
    Running,
}

/// Starts the daemon and waits until it is ready, or was already.
pub(crate) fn daemon(places: &Places) -> Result<Started, Failure> {
    let program = find()?;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(scope) = scope(runtime.as_deref(), &path, getrandom::u32().unwrap_or_default(), Path::exists) {
        match in_scope(command(scope, &program), places)? {
            Scoped::Started(started) => return Ok(started),
            Scoped::Failed(words) => note(places, &words),
            Scoped::Silent(attempt) => return beside(attempt, &program, places),
        }
    }
    Attempt::begin(command(Vec::new(), &program), places)?.finish(places)
}

/// What became of a start in a scope of its own.
enum Scoped {
    Started(Started),
    /// There is none, and why.
    Failed(String),
    /// Neither it nor the daemon has said a word.
    Silent(Attempt),
}

fn in_scope(command: Command, places: &Places) -> Result<Scoped, Failure> {
    let attempt = match Attempt::begin(command, places) {
        Ok(attempt) => attempt,
        Err(failure) => return Ok(Scoped::Failed(failure.message.unwrap_or_default())),
    };
    match attempt.answer.recv_timeout(SCOPE) {
        Ok(Ok(started)) => {
            attempt.leave();
            Ok(Scoped::Started(started))
        }
        // The daemon itself has spoken.
        Ok(Err(words)) if words.lines().any(|line| line.starts_with("error: ")) => Err(told(&words, places)),
        Ok(Err(words)) => Ok(Scoped::Failed(words)),
        Err(_) => Ok(Scoped::Silent(attempt)),
    }
}

/// Starts the daemon beside an attempt that is silent. That one may only be slow, as after a crash: then its daemon has the lock,
/// and is waited for.
fn beside(mut silent: Attempt, program: &Path, places: &Places) -> Result<Started, Failure> {
    match Attempt::begin(command(Vec::new(), program), places)?.finish(places)? {
        Started::Running => silent.finish(places),
        Started::Ready => {
            note(places, &format!("it has said nothing for {} s", SCOPE.as_secs()));
            // What it could still start would find the lock taken.
            let _ended = silent.child.kill();
            silent.leave();
            Ok(Started::Ready)
        }
    }
}

/// What to put before the daemon's command, so that it runs outside this login's scope: `systemd-run`, if the manager of the user
/// can be reached.
fn scope(runtime: Option<&Path>, path: &OsStr, random: u32, exists: impl Fn(&Path) -> bool) -> Option<Vec<OsString>> {
    // An empty path, or one from somewhere, is no runtime directory.
    let runtime = runtime.filter(|runtime| runtime.is_absolute())?;
    if !["systemd/private", "bus"].iter().any(|socket| exists(&runtime.join(socket))) {
        return None;
    }
    let mut found = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("systemd-run"));
    let program = found.find(|program| exists(program))?;
    // A name that is taken would be refused.
    let unit = format!("--unit=lingerd-{random:08x}");
    let options = ["--user", "--scope", "--collect", "--quiet", &unit, "--description=linger", "--"];
    Some(std::iter::once(program.into()).chain(options.map(OsString::from)).collect())
}

/// Writes into the daemon's log that it was not started in a scope of its own.
fn note(places: &Places, words: &str) {
    let words = crate::terminal::clean_line(words.trim());
    let line = format!("WARN  [start] systemd-run failed, so the daemon is started in this login's scope: {words}\n");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(places.log());
    // Without a log the daemon will say so itself.
    let _unwritten = log.and_then(|mut log| log.write_all(line.as_bytes()));
}

/// The command, and what comes before it.
#[allow(clippy::disallowed_methods, reason = "the one process that the client starts")]
fn command(before: Vec<OsString>, program: &Path) -> Command {
    let mut words = before.into_iter().chain([program.as_os_str().to_owned(), OsString::from("--background")]);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// A process that was started to be the daemon.
struct Attempt {
    child: Child,
    /// Its first word, or what it said instead.
    answer: mpsc::Receiver<Result<Started, String>>,
}

impl Attempt {
    fn begin(mut command: Command, places: &Places) -> Result<Self, Failure> {
        let child = command
            // The daemon holds on to no directory of the user's, so the socket's path must not depend on one.
            .current_dir("/")
            .envs(std::env::var_os("LINGER_SOCKET").map(|_| ("LINGER_SOCKET", places.socket.as_os_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let program = command.get_program().to_string_lossy();
        let mut child = child.map_err(|error| {
            Failure::unreachable(format!("cannot start {program}: {error}"))
                .hint("put a `lingerd` that runs here beside this `linger`, or on PATH")
        })?;
        let (sender, answer) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Whoever waits may give up before it has spoken.
        std::thread::spawn(move || drop(sender.send(first_word(stdout, stderr))));
        Ok(Self { child, answer })
    }

    /// Waits for its word.
    fn finish(self, places: &Places) -> Result<Started, Failure> {
        let answer = self.answer.recv_timeout(START);
        self.leave();
        match answer {
            Ok(answer) => answer.map_err(|words| told(&words, places)),
            Err(_) => {
                let text = format!("the daemon did not start within {} s", START.as_secs());
                Err(Failure::unreachable(text).hint(format!("see {}", places.log().display())))
            }
        }
    }

    /// Lets it go on by itself; a thread waits for its end, lest it stay a zombie.
    fn leave(self) {
        let mut child = self.child;
        // How it ends is in its log.
        std::thread::spawn(move || drop(child.wait()));
    }
}

fn first_word(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> Result<Started, String> {
    let mut line = String::new();
    if let Some(stdout) = stdout {
        // What cannot be read was not said.
        let _cut = BufReader::new(stdout.take(MAX_WORDS)).read_line(&mut line);
    }
    match line.trim_end() {
        "ready" => Ok(Started::Ready),
        "running" => Ok(Started::Running),
        _ => {
            let mut words = line;
            if let Some(stderr) = stderr {
                let _cut = stderr.take(MAX_WORDS).read_to_string(&mut words);
            }
            Err(words)
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_a_scope_of_its_own_where_the_users_systemd_can_be_asked() {
        let scope = |runtime: Option<&str>, path: &str, there: &[&str]| {
            let exists = |path: &Path| there.iter().any(|there| path == Path::new(there));
            let words = scope(runtime.map(Path::new), OsStr::new(path), 7, exists)?;
            Some(words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
        };
        let run = "/usr/bin/systemd-run";
        let command = format!("{run} --user --scope --collect --quiet --unit=lingerd-00000007 --description=linger --");
        let user = Some("/run/user/1000");
        assert_eq!(scope(user, "/bin:/usr/bin", &["/run/user/1000/systemd/private", run]), Some(command.clone()));
        assert_eq!(scope(user, "/bin:/usr/bin", &["/run/user/1000/bus", run]), Some(command));
        assert_eq!(scope(user, "/bin:/usr/bin", &[run]), None, "no manager");
        assert_eq!(scope(user, "/bin", &["/run/user/1000/bus", run]), None, "not on PATH");
        assert_eq!(
            scope(user, "", &["/run/user/1000/bus", "systemd-run", run]),
            None,
            "not from where the user stands"
        );
        assert_eq!(scope(None, "/usr/bin", &["bus", run]), None, "no login");
        assert_eq!(scope(Some(""), "/usr/bin", &["bus", run]), None);
    }
}
