//! Reading a child's output to the end, within bounds: for helpers and for commands that print a key.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::child::{OUTPUT_GRACE, Process, READ_SIZE};

/// How much of standard error is kept, in bytes: enough for a reason.
const MAX_STDERR: usize = 4 << 10;

/// The result of a child that was read to its end.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// Its standard output.
    pub output: Vec<u8>,
    /// The beginning of its standard error, if separate.
    pub stderr: String,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited, or another process killed it.
    Status(ExitStatus),
    /// Its output exceeds the bound.
    TooMuch,
    /// It ran into the timeout.
    TooLate,
}

/// Keeps the beginning of standard error and discards the rest, so that the writer does not block.
async fn listen(errors: &mut pipe::Receiver, kept: &mut Vec<u8>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let room = MAX_STDERR.saturating_sub(kept.len());
        kept.extend(buffer.iter().take(read.min(room)));
    }
}

impl Process {
    /// Reads up to `max_bytes` of output and waits for the child; after `limit` it ends the child.
    pub async fn finish(mut self, limit: Duration, max_bytes: usize) -> io::Result<Finished> {
        let (mut output, mut stderr) = (Vec::new(), Vec::new());
        let mut errors = self.errors.take();
        let run = async {
            let listen = async {
                if let Some(errors) = &mut errors {
                    listen(errors, &mut stderr).await;
                }
            };
            let mut listen = pin!(listen);
            let mut silent = false;
            let mut buffer = vec![0; READ_SIZE];
            loop {
                let read = tokio::select! {
                    read = self.read(&mut buffer) => read?,
                    () = &mut listen, if !silent => {
                        silent = true;
                        continue;
                    }
                };
                output.extend(buffer.iter().take(read));
                if output.len() > max_bytes {
                    return Ok::<_, io::Error>(End::TooMuch);
                }
                if read == 0 {
                    let status = self.wait().await?;
                    if !silent {
                        // A process in the background may hold the pipe forever.
                        let _late = timeout(OUTPUT_GRACE, listen).await;
                    }
                    return Ok(End::Status(status));
                }
            }
        };
        let end = match timeout(limit, run).await {
            Ok(end) => end?,
            Err(_) => {
                self.end().await;
                End::TooLate
            }
        };
        Ok(Finished { end, output, stderr: String::from_utf8_lossy(&stderr).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::child::{Input, Stderr};
    use super::super::spawn::{Children, Spawn};
    use super::*;

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(20);

    async fn finish(script: &str, limit: Duration) -> Finished {
        let spawn = Spawn {
            cwd: "/".into(),
            env: Arc::default(),
            children: Children::default(),
            started_for: Default::default(),
        };
        let process = spawn.shell(script, Input::Nothing, Stderr::Apart).await.unwrap();
        timeout(SOON, process.finish(limit, 16)).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_child_is_read_to_its_end_within_its_bounds() {
        let all = finish("echo key; echo noise >&2; exit 3", SOON).await;
        assert_eq!((all.output.as_slice(), all.stderr.as_str()), (b"key\n".as_slice(), "noise\n"));
        assert!(matches!(all.end, End::Status(status) if status.code() == Some(3)));
        assert_eq!(finish("yes", SOON).await.end, End::TooMuch);
        assert_eq!(finish("sleep 1000", Duration::from_millis(50)).await.end, End::TooLate);
        let loud = finish("yes >&2 & sleep 0.1; echo key", SOON).await;
        assert_eq!((loud.output.as_slice(), loud.stderr.len()), (b"key\n".as_slice(), MAX_STDERR));
    }
}
