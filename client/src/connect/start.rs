//! Starts the daemon, and the helper that repairs its database: the only code of the client that spawns a process.
//!
//! `lingerd --background` prints one line on stdout: `ready` once its socket accepts, or `running` if
//! another daemon has the lock; then it stays in the background. If it cannot start, it ends with
//! `error: …` and `hint: …` on stderr.
//!
//! The end of a login may kill every process of its scope (`KillUserProcesses=yes`). So if the user's
//! systemd is reachable, the daemon is started in a scope of its own; `systemd-run --scope` becomes the
//! daemon, which therefore stays our child and keeps its output. If that fails, or is silent for a
//! while, the daemon is started in this login's scope, and its log says why. With the socket unit of
//! `contrib/` none of this runs, because the socket accepts.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use linger_protocol::daemon::Recovered;
use linger_protocol::place::Places;

use crate::error::{Exit, Failure};

/// How long a start may take: opening a large database after a crash is the slowest part.
const START: Duration = Duration::from_secs(20);

/// How long a start in a scope of its own may take before a start without one: the user manager may not answer.
const SCOPE: Duration = Duration::from_secs(4);

/// The most bytes that are read from a daemon that cannot start.
const MAX_WORDS: u64 = 16 << 10;

/// The arguments of a daemon in the background.
const DAEMON: &[&str] = &["--background"];

/// The outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// The daemon accepts connections.
    Ready,
    /// Another process holds the lock: a daemon, perhaps starting or ending, or a keeper.
    Running,
}

/// Starts the daemon and waits until it is ready, or was already.
pub(super) fn daemon(places: &Places) -> Result<Started, Failure> {
    let program = find()?;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(scope) = scope(runtime.as_deref(), &path, getrandom::u32().unwrap_or_default(), Path::exists) {
        match in_scope(command(scope, &program, DAEMON), places)? {
            Scoped::Started(started) => return Ok(started),
            Scoped::Failed(words) => note(places, &words),
            Scoped::Silent(attempt) => return without_scope(attempt, &program, places),
        }
    }
    Attempt::begin(command(Vec::new(), &program, DAEMON), places)?.finish(places)
}

/// Starts the gateway, outside of this login's scope where that can be, and waits until it is ready.
pub(crate) fn gateway(places: &Places, arguments: &[String]) -> Result<Started, Failure> {
    let program = find()?;
    let words: Vec<String> =
        ["--gateway", "--background"].map(str::to_owned).into_iter().chain(arguments.iter().cloned()).collect();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let scope = scope(runtime.as_deref(), &path, getrandom::u32().unwrap_or_default(), Path::exists);
    if let Some(scope) = scope
        && let Ok(mut attempt) = Attempt::begin(command(scope, &program, &words), places)
    {
        let answer = attempt.answer.recv_timeout(SCOPE);
        if answer.is_err() {
            // Anything that it still starts would be a second one.
            let _ended = attempt.child.kill();
        }
        attempt.leave();
        match answer {
            Ok(Ok(started)) => return Ok(started),
            Ok(Err(words)) if words.lines().any(|line| line.starts_with("error: ")) => {
                return Err(gateway_failed(&words));
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    let attempt = Attempt::begin(command(Vec::new(), &program, &words), places)?;
    let answer = attempt.answer.recv_timeout(START);
    attempt.leave();
    answer.unwrap_or_else(|_| Err(String::new())).map_err(|words| gateway_failed(&words))
}

/// Turns the gateway's error text into our failure.
fn gateway_failed(words: &str) -> Failure {
    let error = words.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it printed no error");
    Failure::new(Exit::FAILED, format!("the gateway does not start: {error}"))
        .hint("`linger config get gateway` shows its settings, `linger config set gateway.listen ADDRESS:PORT` changes where it listens")
}

/// Becomes the gateway; returns only if that fails.
#[allow(clippy::disallowed_methods, reason = "the daemon's program, as in `command`")]
pub(crate) fn become_gateway(arguments: &[String]) -> Failure {
    let program = match find() {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let error = Command::new(&program).arg("--gateway").args(arguments).exec();
    Failure::new(Exit::FAILED, format!("cannot start {}: {error}", program.display()))
        .hint("put a working `lingerd` next to this `linger`, or on PATH")
}

/// The outcome of a start in a scope of its own.
enum Scoped {
    Started(Started),
    /// There is no such scope, and why.
    Failed(String),
    /// No output yet, of systemd or the daemon.
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
        // This is the daemon's own error.
        Ok(Err(words)) if words.lines().any(|line| line.starts_with("error: ")) => Err(start_failure(&words, places)),
        Ok(Err(words)) => Ok(Scoped::Failed(words)),
        Err(_) => Ok(Scoped::Silent(attempt)),
    }
}

/// Starts the daemon without a scope, next to a silent attempt. That one may only be slow, as after a
/// crash: then its daemon has the lock, and we wait for it.
fn without_scope(mut silent: Attempt, program: &Path, places: &Places) -> Result<Started, Failure> {
    match Attempt::begin(command(Vec::new(), program, DAEMON), places)?.finish(places)? {
        Started::Running => silent.finish(places),
        Started::Ready => {
            note(places, &format!("it has said nothing for {} s", SCOPE.as_secs()));
            // Anything that it still starts finds the lock taken.
            let _ended = silent.child.kill();
            silent.leave();
            Ok(Started::Ready)
        }
    }
}

/// The command to put before the daemon's, so that it runs outside this login's scope: `systemd-run`,
/// if the user manager is reachable.
fn scope(runtime: Option<&Path>, path: &OsStr, random: u32, exists: impl Fn(&Path) -> bool) -> Option<Vec<OsString>> {
    // An empty or relative path is no runtime directory.
    let runtime = runtime.filter(|runtime| runtime.is_absolute())?;
    if !["systemd/private", "bus"].iter().any(|socket| exists(&runtime.join(socket))) {
        return None;
    }
    let mut found = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("systemd-run"));
    let program = found.find(|program| exists(program))?;
    // A unit name that is taken would be refused.
    let unit = format!("--unit=lingerd-{random:08x}");
    let options = ["--user", "--scope", "--collect", "--quiet", &unit, "--description=linger", "--"];
    Some(std::iter::once(program.into()).chain(options.map(OsString::from)).collect())
}

/// Runs the helper that repairs the database while no daemon runs, and waits for its report.
#[allow(clippy::disallowed_methods, reason = "the daemon's program, as in `command`")]
pub(crate) fn recover(places: &Places) -> Result<Recovered, Failure> {
    let program = find()?;
    let helper = Command::new(&program).arg("--recover").current_dir("/").stdin(Stdio::null()).output();
    let output = helper.map_err(|error| {
        Failure::new(Exit::FAILED, format!("cannot start {}: {error}", program.display()))
            .hint("put a working `lingerd` next to this `linger`, or on PATH")
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let said = |prefix| words.lines().find_map(|line| line.strip_prefix(prefix));
        let error = said("error: ").unwrap_or("it printed no error");
        let hint = said("hint: ").map_or_else(|| format!("see {}", places.log().display()), str::to_owned);
        return Err(Failure::new(Exit::FAILED, format!("the repair failed: {error}")).hint(hint));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(Exit::FAILED, format!("the repair has no report: {error}")))
}

/// Becomes the MCP server with linger's tools; returns only if that fails.
#[allow(clippy::disallowed_methods, reason = "the daemon's program, as in `command`")]
pub(crate) fn become_mcp_server(arguments: &[String]) -> Failure {
    let program = match find() {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let error = Command::new(&program).arg("--mcp-serve").args(arguments).exec();
    Failure::new(Exit::FAILED, format!("cannot start {}: {error}", program.display()))
        .hint("put a working `lingerd` next to this `linger`, or on PATH")
}

/// Opens a page in the user's browser; whether one could be started. Waits for none.
#[allow(clippy::disallowed_methods, reason = "the browser is the user's, and for a person at this terminal")]
pub(crate) fn open_browser(page: &str) -> bool {
    // A server chose the address: nothing but a page of the web is opened.
    if !page.starts_with("https://") && !page.starts_with("http://") {
        return false;
    }
    let own = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let usual = if cfg!(target_vendor = "apple") { "open" } else { "xdg-open" };
    let browser = own.unwrap_or_else(|| usual.into());
    let mut command = Command::new(browser);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}

/// Writes into the daemon's log that it was not started in a scope of its own.
fn note(places: &Places, words: &str) {
    let words = crate::terminal::clean_line(words.trim());
    let line = format!("WARN  [start] systemd-run failed, so the daemon is started in this login's scope: {words}\n");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(places.log());
    // If the log cannot be written, the daemon says so itself.
    let _unwritten = log.and_then(|mut log| log.write_all(line.as_bytes()));
}

/// The daemon's command with these arguments, behind `before`.
#[allow(clippy::disallowed_methods, reason = "the daemon is the one program that the client starts")]
fn command(before: Vec<OsString>, program: &Path, arguments: &[impl AsRef<OsStr>]) -> Command {
    let arguments = arguments.iter().map(|word| word.as_ref().to_owned());
    let mut words = before.into_iter().chain([program.as_os_str().to_owned()]).chain(arguments);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// A process that was started to be the daemon.
struct Attempt {
    child: Child,
    /// Its first line, or its error text.
    answer: mpsc::Receiver<Result<Started, String>>,
}

impl Attempt {
    fn begin(mut command: Command, places: &Places) -> Result<Self, Failure> {
        let child = command
            // The daemon keeps no directory of the user's busy, so the socket's path must be absolute.
            .current_dir("/")
            .envs(std::env::var_os("LINGER_SOCKET").map(|_| ("LINGER_SOCKET", places.socket.as_os_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let program = command.get_program().to_string_lossy();
        let mut child = child.map_err(|error| {
            Failure::unreachable(format!("cannot start {program}: {error}"))
                .hint("put a working `lingerd` next to this `linger`, or on PATH")
        })?;
        let (sender, answer) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Fails if the receiver has given up.
        std::thread::spawn(move || drop(sender.send(first_word(stdout, stderr))));
        Ok(Self { child, answer })
    }

    /// Waits for its first line.
    fn finish(self, places: &Places) -> Result<Started, Failure> {
        let answer = self.answer.recv_timeout(START);
        self.leave();
        match answer {
            Ok(answer) => answer.map_err(|words| start_failure(&words, places)),
            Err(_) => {
                let text = format!("the daemon did not start within {} s", START.as_secs());
                Err(Failure::unreachable(text).hint(format!("see {}", places.log().display())))
            }
        }
    }

    /// Leaves it running; a thread waits for its end, so that it does not become a zombie.
    fn leave(self) {
        let mut child = self.child;
        // Its log says how it ends.
        std::thread::spawn(move || drop(child.wait()));
    }
}

fn first_word(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> Result<Started, String> {
    let mut line = String::new();
    if let Some(stdout) = stdout {
        // Unreadable output counts as none.
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

/// Turns the daemon's error text into our failure.
fn start_failure(words: &str, places: &Places) -> Failure {
    let with = |prefix| words.lines().find_map(|line| line.strip_prefix(prefix));
    let message = with("error: ").or_else(|| words.lines().find(|line| !line.trim().is_empty()));
    let failure = match message {
        Some(message) => Failure::unreachable(format!("the daemon does not start: {message}")),
        None => Failure::unreachable("the daemon does not start"),
    };
    failure.hint(with("hint: ").map_or_else(|| format!("see {}", places.log().display()), str::to_owned))
}

/// The daemon's program: next to this one, or on PATH. Fails if there is none.
fn find() -> Result<PathBuf, Failure> {
    let here =
        std::env::current_exe().ok().and_then(|exe| Some(exe.canonicalize().unwrap_or(exe).parent()?.to_path_buf()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = here.iter().cloned().chain(std::env::split_paths(&path)).map(|dir| dir.join("lingerd"));
    found.into_iter().find(|program| program.is_file()).ok_or_else(|| {
        let here = here.as_deref().unwrap_or(Path::new("?")).display();
        Failure::unreachable("no daemon runs, and its program `lingerd` was not found").hint(format!(
            "install it in {here} (the directory of linger) or in a directory of PATH: both were searched"
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
