//! The wire adapter: jsonrpsee's methods, each of which calls one function of [`crate::service`]. No logic lives here.
//!
//! The state of a connection lives here: its attachments, its query lock, and its capacity for large answers ([`conn`]).
//! A connection runs one query at a time; a mutation is forwarded as soon as its request is read.

#[cfg(test)]
mod authority_tests;
mod conn;
pub mod connections;
pub mod forward;
pub mod in_process;
pub mod listener;
mod methods;
mod request;
mod streams;

pub use conn::Conn;
pub use methods::methods;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::service::Authority;

/// A source of connections.
pub trait Accept {
    /// The byte stream of a connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, with the authority of its requests. Cancel safe.
    fn accept(&mut self) -> impl Future<Output = (Self::Stream, Authority)> + Send;
}
