//! A connection without manners: sends any bytes, reads when it is told to.

use std::io;
use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::while_working;
use crate::TIMEOUT;

/// Both directions of a connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection and what was read ahead.
pub struct Raw(BufReader<Box<dyn Stream>>);

impl Raw {
    /// Connects, and says nothing.
    pub async fn connect(socket: &Path) -> Self {
        Self::over(UnixStream::connect(socket).await.expect("the socket accepts"))
    }

    /// Says nothing over a connection.
    pub(super) fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(BufReader::new(Box::new(stream)))
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("the daemon reads");
    }

    /// Sends bytes that the daemon need not read to the end.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.write_all(bytes.as_ref()).await
    }

    /// Closes the writing side.
    pub async fn finish(&mut self) {
        self.0.shutdown().await.expect("the writing side closes");
    }

    /// The next line that is no notification, as JSON; nothing when the daemon has hung up, also in the middle of it.
    pub async fn line(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            while_working(self.0.read_line(&mut line)).await.expect("the daemon answers in time").ok()?;
            if !line.ends_with('\n') {
                return None;
            }
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if value.get("method").is_none() {
                return Some(value);
            }
        }
    }

    /// The next line, whatever it is; nothing when the daemon has hung up.
    pub async fn any_line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let n = self.0.read_line(&mut line).await.ok()?;
        (n > 0).then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Sends a line and gives the next answer.
    pub async fn ask(&mut self, line: &str) -> Value {
        self.send(format!("{line}\n")).await;
        self.line().await.unwrap_or_else(|| panic!("the daemon hung up after {line}"))
    }

    /// Reads until an event of this kind has come, and looks at nothing else.
    pub async fn until(&mut self, kind: &str) {
        let kind = format!("\"kind\":\"{kind}\"");
        let mut line = String::new();
        while !line.contains(&kind) {
            line.clear();
            let read = while_working(self.0.read_line(&mut line)).await;
            let n = read.expect("the event comes in time").expect("the daemon is there");
            assert!(n > 0, "the daemon hung up before {kind}");
        }
    }

    /// The next message with a `Content-Length` header.
    pub async fn counted(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(TIMEOUT, self.0.read_line(&mut line)).await;
            read.expect("the daemon answers in time").expect("a header");
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().expect("a length");
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// Reads whatever comes until `done` says that it is enough; gives how many bytes that were.
    pub async fn drain(&mut self, mut done: impl FnMut(&str) -> bool) -> usize {
        let mut bytes = 0;
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(TIMEOUT, self.0.read_line(&mut line)).await;
            let n = read.expect("more comes in time").expect("the connection lives");
            bytes += n;
            if n == 0 || done(&line) {
                return bytes;
            }
        }
    }
}
