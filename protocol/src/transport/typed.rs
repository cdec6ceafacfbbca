//! The typed client of jsonrpsee over the local socket, for tests: it drops events when it is slow, which a user must not see.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use interprocess::local_socket::tokio::Stream;
use interprocess::local_socket::tokio::prelude::*;
use jsonrpsee::core::client::{Client, ClientBuilder, ReceivedMessage, TransportReceiverT, TransportSenderT};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::line::{Decoder, Frame, Framing, encode};
use super::{MAX_EVENT, name};

/// Events of one subscription that may wait before jsonrpsee gives it up.
const BUFFER: usize = 1 << 20;

/// Connects to the daemon at `socket`.
pub async fn connect(socket: &Path) -> io::Result<Client> {
    let stream = Stream::connect(name(socket)?).await?;
    let (read, write) = tokio::io::split(stream);
    let receiver = Receiver { read, decoder: Decoder::new(MAX_EVENT), ready: VecDeque::new() };
    Ok(ClientBuilder::default()
        .max_buffer_capacity_per_subscription(BUFFER)
        .request_timeout(Duration::from_secs(120))
        .build_with_tokio(Sender(write), receiver))
}

struct Sender(WriteHalf<Stream>);

struct Receiver {
    read: ReadHalf<Stream>,
    decoder: Decoder,
    ready: VecDeque<String>,
}

impl TransportSenderT for Sender {
    type Error = io::Error;

    async fn send(&mut self, message: String) -> io::Result<()> {
        let mut line = Vec::with_capacity(message.len() + 1);
        encode(Framing::Lines, &message, &mut line);
        self.0.write_all(&line).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

impl TransportReceiverT for Receiver {
    type Error = io::Error;

    async fn receive(&mut self) -> io::Result<ReceivedMessage> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(ReceivedMessage::Text(line));
            }
            let n = self.read.read(&mut chunk).await?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.decoder.feed(chunk.get(..n).unwrap_or_default());
            while let Some(frame) = self.decoder.next_frame() {
                let Frame::Message(line) = frame else { return Err(io::ErrorKind::InvalidData.into()) };
                self.ready.push_back(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }
}
