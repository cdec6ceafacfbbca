//! Long-lived children, and how tools start any child.
//!
//! A [`Server`] is a child with pipes in both directions. A task waits for it, reaps it as soon as it ends, and ends it when its
//! [`Life`] is dropped or the daemon ends ([`Children::end`]). Like every child it has a process group, is in the ledger and
//! carries the mark, so the start after a crash finds it.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::child::{Executable, GRACE, Group, Input, Process, Stderr, find, receiver};
pub use super::spawn::{Children, Spawn};

impl Children {
    /// Ends every server and waits for them, for at most `2 * GRACE`. Starting one fails from now on.
    pub async fn end(&self) {
        self.ending.cancel();
        self.running.close();
        if timeout(2 * GRACE, self.running.wait()).await.is_err() {
            tracing::warn!(target: "process", left = self.running.len(), "children still running after SIGKILL");
        }
    }
}

/// A long-lived child with pipes in both directions.
#[derive(Debug)]
pub struct Server {
    /// Its standard input; dropping it sends end of file.
    pub input: pipe::Sender,
    /// Its standard output.
    pub output: pipe::Receiver,
    /// Its standard error; must be read, or the child blocks when the pipe is full.
    pub errors: pipe::Receiver,
    /// Ends the child when dropped.
    pub life: Life,
}

/// Owns a server's process group: dropping it sends SIGTERM, and SIGKILL after [`GRACE`].
#[derive(Debug)]
pub struct Life {
    /// The server's process id.
    pub pid: u32,
    ended: watch::Receiver<Option<ExitStatus>>,
    _ends: DropGuard,
}

impl Life {
    /// Waits until the server has ended; `None` if its exit status is unknown.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        // An error means that its task is gone, and with it the server.
        self.ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Ends the server and waits for it.
    pub async fn end(self) {
        let Self { mut ended, _ends, .. } = self;
        drop(_ends);
        let _gone = ended.wait_for(Option::is_some).await;
    }
}

/// Waits for a server, and ends it when `wanted` is cancelled.
async fn keep(mut group: Group, wanted: CancellationToken, ended: watch::Sender<Option<ExitStatus>>) {
    let status = tokio::select! {
        status = group.wait() => status,
        () = wanted.cancelled() => {
            group.terminate();
            // On timeout the next line kills it.
            let _late = timeout(GRACE, group.wait()).await;
            group.kill();
            group.wait().await
        }
    };
    match status {
        Ok(status) => drop(ended.send(Some(status))),
        Err(error) => tracing::warn!(target: "process", %error, "unknown exit status of a child"),
    }
}

/// The variable with the file mode creation mask of a session's commands, in octal.
pub const UMASK: &str = "LINGER_UMASK";

impl Spawn {
    /// Starts `script` in bash, or in sh if there is no bash; dropping the [`Process`] ends it.
    pub async fn shell(&self, script: &str, input: Input, stderr: Stderr) -> io::Result<Process> {
        let shell = find(&["bash", "sh"], &self.env, &self.cwd).await?;
        // In its first line, so that errors count the script's own lines.
        let masked = self.umask().map(|mask| format!("umask {mask}; {script}"));
        Process::start(self, &shell, &["-c", masked.as_deref().unwrap_or(script)], input, stderr)
    }

    /// The value of [`UMASK`].
    fn umask(&self) -> Option<&str> {
        self.env.get(UMASK).map(String::as_str).filter(|mask| mask.bytes().all(|digit| (b'0'..=b'7').contains(&digit)))
    }

    /// Starts a program by its name in PATH or its path; dropping the [`Process`] ends it.
    pub async fn program<S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: &[S],
        input: Input,
        stderr: Stderr,
    ) -> io::Result<Process> {
        let program = find(&[program], &self.env, &self.cwd).await?;
        Process::start(self, &program, args, input, stderr)
    }

    /// As [`Self::program`], with the mask of the session, as [`Self::shell`] has it.
    pub async fn command<S: AsRef<OsStr>>(
        &self,
        program: &str,
        args: &[S],
        input: Input,
        stderr: Stderr,
    ) -> io::Result<Process> {
        let Some(mask) = self.umask() else { return self.program(program, args, input, stderr).await };
        let Executable { file, .. } = find(&[program], &self.env, &self.cwd).await?;
        let script = format!("umask {mask}; exec \"$0\" \"$@\"");
        let fixed = [OsStr::new("-c"), OsStr::new(&script), file.as_os_str()];
        let args: Vec<&OsStr> = fixed.into_iter().chain(args.iter().map(AsRef::as_ref)).collect();
        self.program("/bin/sh", &args, input, stderr).await
    }

    /// Starts this program again as a helper.
    pub fn helper(&self, args: &[&str], input: Input) -> io::Result<Process> {
        let own = Path::new("/proc/self/exe");
        let file = if own.exists() { own.to_path_buf() } else { std::env::current_exe()? };
        let program = Executable { name: file.to_string_lossy().into_owned(), file };
        Process::start(self, &program, args, input, Stderr::Apart)
    }

    /// Starts a long-lived program, which outlives the call that started it. Fails when the daemon is ending.
    pub async fn server<S: AsRef<OsStr>>(&self, program: &str, args: &[S]) -> io::Result<Server> {
        if self.children.ending.is_cancelled() {
            return Err(io::Error::other("the daemon is ending"));
        }
        let program = find(&[program], &self.env, &self.cwd).await?;
        let ((stdin, input), (output, stdout), (errors, stderr)) = (io::pipe()?, io::pipe()?, io::pipe()?);
        let group = Group::start(self, &program, args, [stdin.into(), stdout.into(), stderr.into()])?;
        let (input, output, errors) =
            (pipe::Sender::from_owned_fd(input.into())?, receiver(output)?, receiver(errors)?);
        let (send, ended) = watch::channel(None);
        let wanted = self.children.ending.child_token();
        let life = Life { pid: group.pid(), ended, _ends: wanted.clone().drop_guard() };
        self.children.running.spawn(keep(group, wanted, send));
        Ok(Server { input, output, errors, life })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

    use super::super::ledger::StartedFor;
    use super::*;

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(20);

    fn spawn() -> Spawn {
        Spawn { cwd: "/".into(), env: Arc::default(), children: Children::default(), started_for: StartedFor::Daemon }
    }

    /// Sends a line and gives the one that comes back.
    async fn echo(input: &mut pipe::Sender, output: &mut BufReader<&mut pipe::Receiver>, line: &str) -> String {
        input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let mut back = String::new();
        timeout(SOON, output.read_line(&mut back)).await.unwrap().unwrap();
        back
    }

    #[tokio::test]
    async fn a_server_answers_line_by_line_and_ends_with_the_daemon() {
        let spawn = spawn();
        let mut server = spawn.server::<&str>("cat", &[]).await.unwrap();
        let mut output = BufReader::new(&mut server.output);
        assert_eq!(echo(&mut server.input, &mut output, "one").await, "one\n");
        assert_eq!(echo(&mut server.input, &mut output, "two").await, "two\n");
        assert_eq!(spawn.children.running.len(), 1);
        timeout(SOON, spawn.children.end()).await.unwrap();
        let status = timeout(SOON, server.life.ended()).await.unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
        assert_eq!(spawn.children.running.len(), 0);
        assert!(spawn.server::<&str>("cat", &[]).await.is_err(), "none starts any more");
    }

    #[tokio::test]
    async fn a_server_that_ends_by_itself_is_reaped() {
        let mut server = spawn().server("sh", &["-c", "read line; exit 3"]).await.unwrap();
        server.input.write_all(b"go\n").await.unwrap();
        let status = timeout(SOON, server.life.ended()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
    }

    #[tokio::test]
    async fn a_server_that_is_dropped_ends_with_what_it_started_and_ignores_no_signal_for_long() {
        let spawn = spawn();
        let script =
            "trap '' TERM; (trap '' TERM; while :; do sleep 1000; done) & echo ready; while :; do sleep 1000; done";
        let Server { input: _input, mut output, errors: _errors, life } =
            spawn.server("sh", &["-c", script]).await.unwrap();
        let mut ready = [0; 6];
        timeout(SOON, output.read_exact(&mut ready)).await.unwrap().unwrap();
        drop(life);
        // The pipe ends when nothing that has it lives.
        timeout(SOON, output.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
        spawn.children.running.close();
        timeout(SOON, spawn.children.running.wait()).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_has_the_mask_of_its_session() {
        for (mask, expect) in [("0027", "0027"), ("0002", "0002")] {
            let env = Arc::new(BTreeMap::from([(UMASK.to_owned(), mask.to_owned())]));
            let process =
                Spawn { env, ..spawn() }.shell("umask; nonsense", Input::Nothing, Stderr::Apart).await.unwrap();
            let finished = timeout(SOON, process.finish(SOON, 100)).await.unwrap().unwrap();
            assert_eq!(String::from_utf8_lossy(&finished.output).trim(), expect);
            assert!(finished.stderr.contains("line 1: nonsense"), "{}", finished.stderr);
            let env = Arc::new(BTreeMap::from([(UMASK.to_owned(), mask.to_owned())]));
            let spawn = Spawn { env, ..self::spawn() };
            let args = ["-c", "umask; echo \"$1\"", "x", "a '$b"];
            let process = spawn.command("sh", &args, Input::Nothing, Stderr::Apart).await.unwrap();
            let finished = timeout(SOON, process.finish(SOON, 100)).await.unwrap().unwrap();
            assert_eq!(String::from_utf8_lossy(&finished.output), format!("{expect}\na '$b\n"));
        }
    }

    #[tokio::test]
    async fn a_child_reads_more_than_a_pipe_holds() {
        let bytes = vec![b'x'; 1 << 20];
        let process = spawn().program("wc", &["-c"], Input::Bytes(bytes), Stderr::Apart).await.unwrap();
        let finished = timeout(SOON, process.finish(SOON, 100)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&finished.output).trim(), "1048576");
        let deaf = spawn().shell("exit 4", Input::Bytes(vec![b'x'; 1 << 20]), Stderr::Apart).await.unwrap();
        let finished = timeout(SOON, deaf.finish(SOON, 100)).await.unwrap().unwrap();
        assert!(matches!(finished.end, super::super::End::Status(status) if status.code() == Some(4)));
    }
}
