//! One socket of a client, TCP or Unix; fails when the client does not read what it was sent.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};

/// How long a client may not read while something waits for it; a reader of events comes back with its cursor.
const STUCK: Duration = Duration::from_secs(60);

/// A client's connection, over either transport.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket with its time-out.
pub(super) struct Timed {
    socket: Socket,
    /// Set while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, stuck: None }
    }

    /// Adds the time-out to what a write came to.
    fn guard<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(STUCK)));
        stuck.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Timed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_read(cx, buffer),
            Socket::Unix(socket) => Pin::new(socket).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Timed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Socket::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
        };
        this.guard(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets have no buffer of their own here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Socket::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
