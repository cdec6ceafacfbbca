//! A child that is read to its end, within bounds: for helpers and for commands that print a key.

use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::{LAST_WORDS, Process, READ_SIZE};

/// The most bytes of standard error that are kept: enough for a reason.
const MAX_COMPLAINT: usize = 4 << 10;

/// What became of a child that was read to its end.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// What it wrote to its standard output.
    pub output: Vec<u8>,
    /// The beginning of what it wrote to its standard error, if that was apart.
    pub complaint: String,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, or by a signal of somebody else.
    Status(ExitStatus),
    /// It wrote more than it may.
    TooMuch,
    /// It took longer than it may.
    TooLate,
}

/// Keeps the beginning of what comes, and reads the rest, so that whoever writes is not stopped.
async fn listen(errors: &mut pipe::Receiver, kept: &mut Vec<u8>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let room = MAX_COMPLAINT.saturating_sub(kept.len());
        kept.extend(buffer.iter().take(read.min(room)));
    }
}

impl Process {
    /// Reads to the end, up to `max_bytes` of output, and waits for the child. One that takes longer than `limit` is ended.
    pub async fn finish(mut self, limit: Duration, max_bytes: usize) -> io::Result<Finished> {
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let mut errors = self.errors.take();
        let run = async {
            let listen = async {
                if let Some(errors) = &mut errors {
                    listen(errors, &mut complaint).await;
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
                        // What it said last is there; who lives on in the background may hold the pipe for ever.
                        let _late = timeout(LAST_WORDS, listen).await;
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
        Ok(Finished { end, output, complaint: String::from_utf8_lossy(&complaint).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::server::{Children, Spawn};
    use super::super::{Input, Stderr};
    use super::*;

    /// More than any of these takes; a hang fails the test.
    const SOON: Duration = Duration::from_secs(20);

    async fn finish(script: &str, limit: Duration) -> Finished {
        let spawn = Spawn { cwd: "/".into(), env: Arc::default(), children: Children::default() };
        let process = spawn.shell(script, Input::Nothing, Stderr::Apart).await.unwrap();
        timeout(SOON, process.finish(limit, 16)).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_child_is_read_to_its_end_within_its_bounds() {
        let all = finish("echo key; echo noise >&2; exit 3", SOON).await;
        assert_eq!((all.output.as_slice(), all.complaint.as_str()), (b"key\n".as_slice(), "noise\n"));
        assert!(matches!(all.end, End::Status(status) if status.code() == Some(3)));
        assert_eq!(finish("yes", SOON).await.end, End::TooMuch);
        assert_eq!(finish("sleep 1000", Duration::from_millis(50)).await.end, End::TooLate);
        let loud = finish("yes >&2 & sleep 0.1; echo key", SOON).await;
        assert_eq!((loud.output.as_slice(), loud.complaint.len()), (b"key\n".as_slice(), MAX_COMPLAINT));
    }
}
