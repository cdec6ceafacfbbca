//! A connection to the daemon's socket, for one request at a time or one stream: JSON-RPC, a message a line.
//!
//! Each request has one of its own, with its token: the daemon closes those of a token that is revoked, and a stream that its client
//! does not read stops reading here, so that the daemon holds a position. `POST /rpc` leaves its own to the next request of its client.
//! Nothing is sent before the daemon is proven to listen ([`super::reach`]).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use hyper::StatusCode;
use linger_protocol::gateway::RunningGateway;
use linger_protocol::listener::Proof;
use linger_protocol::transport::MAX_EVENT;
use linger_protocol::transport::line::{Decoder, Frame, Framing, encode};
use linger_protocol::{PROTOCOL, RpcError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::access::Token;
use super::peer::Peer;
use super::reach::Daemon;
use super::reply::Failure;
use super::shared::Gateway;

/// The gateway's name for other clients, where no token gives one.
const NAME: &str = "gateway";

/// How long the daemon may take to answer a hello.
const HELLO: Duration = Duration::from_secs(30);

/// How long a daemon may take to start behind a socket of a service manager.
const ACTIVATION: Duration = Duration::from_secs(10);

/// How much is read at once, in bytes.
const CHUNK: usize = 4 << 10;

/// The connection.
pub(super) struct Wire {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    decoder: Decoder,
    /// Notifications that came before an answer: the `params`.
    notices: VecDeque<Box<RawValue>>,
    last: u64,
    /// The daemon's answer to the hello.
    pub(super) welcome: Value,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The daemon's word.
    Refused(RpcError),
    /// The connection is gone, and was before anything was asked.
    Unsent,
    /// The connection is gone; what was asked may have happened.
    Lost,
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused(error) => error.into(),
            Trouble::Unsent | Trouble::Lost => {
                Self::new(StatusCode::BAD_GATEWAY, "lost", "the connection to the daemon was lost")
                    .hint("send it again; with a `key` it happens once")
            }
        }
    }
}

/// A line of the daemon's.
#[derive(Deserialize)]
struct DaemonMessage<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

impl Wire {
    /// Connects with a token, for a process.
    pub(super) async fn open(gateway: &Gateway, token: Option<&Token>, peer: Peer) -> Result<Self, Failure> {
        let stream = gateway.daemon.connect().await?;
        let mut hello = json!({ "client": NAME, "protocol": PROTOCOL, "behind": peer.behind() });
        if let (Some(token), Some(fields)) = (token, hello.as_object_mut()) {
            fields.insert("token".to_owned(), token.reveal().into());
        }
        Self::greet(&gateway.daemon, stream, hello).await
    }

    /// Tells the daemon, if there is one, where this gateway listens; it knows that for as long as the connection lasts.
    pub(super) async fn register(daemon: &Daemon, running: &RunningGateway) -> Result<Self, Failure> {
        let stream = daemon.connect_now().await?;
        let hello = json!({ "client": NAME, "protocol": PROTOCOL, "gateway": running });
        Self::greet(daemon, stream, hello).await
    }

    /// Says hello to the daemon, once it is proven to listen.
    async fn greet(daemon: &Daemon, stream: UnixStream, hello: Value) -> Result<Self, Failure> {
        let mut proof = daemon.prove(&stream);
        let is_activated = proof != Proof::Daemon && Daemon::is_activated(&stream);
        let mut wire = Self::over(stream);
        if is_activated {
            let started = wire.ask("daemon/hello", json!({ "client": NAME, "protocol": PROTOCOL }));
            timeout(ACTIVATION, started).await.map_err(|_| Failure::unavailable("the daemon does not start"))??;
            let stream = daemon.connect().await?;
            proof = daemon.prove(&stream);
            wire = Self::over(stream);
        }
        if proof != Proof::Daemon {
            return Err(daemon.unproven(proof));
        }
        let welcome = timeout(HELLO, wire.ask("daemon/hello", hello)).await;
        let welcome = welcome.map_err(|_| Failure::unavailable("the daemon does not answer"))??;
        wire.welcome = serde_json::from_str(welcome.get()).unwrap_or_default();
        Ok(wire)
    }

    fn over(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        let (decoder, notices) = (Decoder::new(MAX_EVENT), VecDeque::new());
        Self { read, write, decoder, notices, last: 0, welcome: Value::Null }
    }

    /// Whether the daemon has sent nothing since the last answer, and has not closed it.
    pub(super) fn is_quiet(&self) -> bool {
        let is_empty = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        self.notices.is_empty() && self.read.try_read(&mut [0]).is_err_and(is_empty)
    }

    /// Asks and waits for the answer.
    pub(super) async fn ask(&mut self, method: &str, params: impl Serialize) -> Result<Box<RawValue>, Trouble> {
        self.last += 1;
        let (id, mut bytes) = (self.last, Vec::new());
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        encode(Framing::Lines, &message, &mut bytes);
        if self.write.write_all(&bytes).await.is_err() {
            return Err(Trouble::Unsent);
        }
        loop {
            if let Some(answer) = self.answer(id)? {
                return answer.map_err(Trouble::Refused);
            }
            self.read().await?;
        }
    }

    /// As [`Self::ask`], with the result as a type.
    pub(super) async fn get<T: for<'de> Deserialize<'de>>(
        &mut self,
        method: &str,
        params: impl Serialize,
    ) -> Result<T, Trouble> {
        let raw = self.ask(method, params).await?;
        serde_json::from_str(raw.get()).map_err(|_| Trouble::Lost)
    }

    /// The `params` of the next notification; `None` at the end. A call that is dropped loses nothing.
    pub(super) async fn next(&mut self) -> Option<Box<RawValue>> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(notice);
            }
            // Nothing is asked now: what has an id is late.
            match self.answer(0) {
                Ok(_) if !self.notices.is_empty() => {}
                Ok(_) => self.read().await.ok()?,
                Err(_) => return None,
            }
        }
    }

    /// Takes the lines that are here, up to the answer to `id`.
    fn answer(&mut self, id: u64) -> Result<Option<Result<Box<RawValue>, RpcError>>, Trouble> {
        while let Some(frame) = self.decoder.next_frame() {
            let Frame::Message(bytes) = frame else { return Err(Trouble::Lost) };
            let line: DaemonMessage<'_> = serde_json::from_slice(&bytes).map_err(|_| Trouble::Lost)?;
            match (line.method, line.params) {
                (Some(_), Some(params)) => self.notices.push_back(params.to_owned()),
                // The daemon refuses the connection, or could not read a request.
                _ if line.id.is_none() && line.error.is_some() => {
                    return Ok(line.error.map(Err));
                }
                _ if line.id != Some(id) => {}
                _ => {
                    let error = line.error.map(Err);
                    let result = line.result.map(|result| Ok(result.to_owned()));
                    return Ok(Some(error.or(result).ok_or(Trouble::Lost)?));
                }
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<(), Trouble> {
        let mut chunk = [0; CHUNK];
        match self.read.read(&mut chunk).await {
            Ok(n @ 1..) => {
                self.decoder.feed(chunk.get(..n).unwrap_or_default());
                Ok(())
            }
            Ok(_) | Err(_) => Err(Trouble::Lost),
        }
    }
}
