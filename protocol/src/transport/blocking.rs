//! The client's end: a socket, a reader and a writer, without a runtime.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interprocess::local_socket::Stream;
use interprocess::local_socket::traits::{Stream as _, StreamCommon as _};
use serde::Serialize;
use serde_json::value::RawValue;

use super::line::{Decoder, Frame, Framing, encode};
use super::{MAX_EVENT, MAX_REQUEST, name, peer};
use crate::RpcError;
use crate::completion::{self, COMPLETION_EVENT};
use crate::event::{Notification, SESSION_EVENT};
use crate::events::{self, EVENTS_EVENT};
use crate::method::Method;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// How long the daemon may take nothing of a request, or twice that when it took a part; then sending fails, and the connection is
/// of no more use. It reads at all times, unless it was stopped.
const SEND: Duration = Duration::from_secs(3);

/// Something that the daemon sent.
#[derive(Debug)]
pub enum Incoming {
    /// The answer to the request with this number.
    Response(u64, Result<Box<RawValue>, RpcError>),
    /// An event of an attached session; the line is `params` as it came.
    Event(Box<Notification>, Box<RawValue>),
    /// An event of any session, for a subscription to all; the line is `params` as it came.
    Any(Box<events::Notification>, Box<RawValue>),
    /// A piece of a completion, or its end.
    Completion(Box<completion::Notification>),
}

/// Reads what the daemon sends.
pub struct Reader {
    stream: Arc<Stream>,
    decoder: Decoder,
    chunk: Vec<u8>,
}

/// Sends requests.
pub struct Writer {
    stream: Arc<Stream>,
    next_id: u64,
}

/// Connects to the daemon at `socket`; refuses one that is not the user's own.
pub fn connect(socket: &Path) -> io::Result<(Reader, Writer)> {
    let stream = Stream::connect(name(socket)?)?;
    let me = rustix::process::geteuid().as_raw();
    if let Some(peer) = stream.peer_creds()?.euid()
        && peer != me
    {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the socket belongs to user {peer}, not to you ({me})"),
        ));
    }
    stream.set_send_timeout(Some(SEND))?;
    let stream = Arc::new(stream);
    let reader = Reader { stream: stream.clone(), decoder: Decoder::new(MAX_EVENT), chunk: vec![0; CHUNK] };
    Ok((reader, Writer { stream, next_id: 0 }))
}

impl Writer {
    /// The process that listens at the other end, if the system shows one that still runs.
    pub fn listener(&self) -> Option<u32> {
        let pid = self.stream.peer_creds().ok()?.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        // On an older Linux the number has to do.
        pid.filter(|_| peer::is_alive(self.descriptor()) != Some(false))
    }

    /// Whether the process that listened when this connection was made has ended: another one answers, as where a service
    /// manager keeps the socket.
    pub fn outlives_listener(&self) -> bool {
        peer::is_alive(self.descriptor()) == Some(false)
    }

    /// Ends the connection, for its reader too.
    pub fn close(&self) {
        // It may have been lost meanwhile.
        let _lost = rustix::net::shutdown(self.descriptor(), rustix::net::Shutdown::Both);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        let Stream::UdSocket(socket) = &*self.stream;
        socket.as_fd()
    }

    /// Sends a request and returns the number that its answer will have. `InvalidInput`: this request can never be
    /// sent. After any other error a part of it may have been sent, and nothing more can be.
    pub fn request<M: Method>(&mut self, params: &M) -> io::Result<u64> {
        #[derive(Serialize)]
        struct Request<'a, P> {
            jsonrpc: &'static str,
            id: u64,
            method: &'static str,
            params: &'a P,
        }
        self.next_id += 1;
        let request = Request { jsonrpc: "2.0", id: self.next_id, method: M::NAME, params };
        let mut line = Vec::with_capacity(256);
        let text =
            serde_json::to_string(&request).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if text.len() > MAX_REQUEST {
            let problem = format!("it has {} bytes, a request may have {MAX_REQUEST}", text.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        encode(Framing::Lines, &text, &mut line);
        (&*self.stream).write_all(&line)?;
        Ok(self.next_id)
    }
}

impl Reader {
    /// Waits for the next thing that the daemon sends; nothing when it has hung up.
    pub fn next_incoming(&mut self) -> io::Result<Option<Incoming>> {
        loop {
            while let Some(frame) = self.decoder.next_frame() {
                let Frame::Message(line) = frame else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the daemon sent a line that is too long"));
                };
                if let Some(incoming) = parse(&line)? {
                    return Ok(Some(incoming));
                }
            }
            let n = match (&*self.stream).read(&mut self.chunk) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                Err(error) => return Err(error),
            };
            if n == 0 {
                return Ok(None);
            }
            self.decoder.feed(self.chunk.get(..n).unwrap_or_default());
        }
    }
}

/// Reads one line; nothing if it is of a kind that this build does not know.
fn parse(line: &[u8]) -> io::Result<Option<Incoming>> {
    #[derive(serde::Deserialize)]
    struct ServerMessage {
        id: Option<u64>,
        method: Option<String>,
        params: Option<Box<RawValue>>,
        result: Option<Box<RawValue>>,
        error: Option<RpcError>,
    }
    let line: ServerMessage = serde_json::from_slice(line)?;
    Ok(match line {
        ServerMessage { method: Some(method), params: Some(params), .. } if method == SESSION_EVENT => {
            Some(Incoming::Event(serde_json::from_str(params.get())?, params))
        }
        ServerMessage { method: Some(method), params: Some(params), .. } if method == EVENTS_EVENT => {
            Some(Incoming::Any(serde_json::from_str(params.get())?, params))
        }
        ServerMessage { method: Some(method), params: Some(params), .. } if method == COMPLETION_EVENT => {
            Some(Incoming::Completion(serde_json::from_str(params.get())?))
        }
        ServerMessage { method: Some(_), .. } => None,
        ServerMessage { id: Some(id), error: Some(error), .. } => Some(Incoming::Response(id, Err(error))),
        ServerMessage { id: Some(id), result: Some(result), .. } => Some(Incoming::Response(id, Ok(result))),
        // The daemon could not tell which request it is about, or refuses the connection.
        ServerMessage { error: Some(error), .. } => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        _ => None,
    })
}
