//! The wire adapter: jsonrpsee's methods, each of which calls its function in [`crate::service`]. No logic lives here.
//!
//! What is a connection's own stays here: what it is attached to, its turn among the queries of others, and room for what is
//! large ([`conn`]). A query runs one at a time on a connection; a mutation is sent on when its request is read.

mod conn;
pub mod connections;
pub mod forward;
pub mod in_process;
pub mod listener;
mod methods;

pub use conn::Conn;
pub use methods::methods;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::service::Authority;

/// Where connections come from.
pub trait Accept {
    /// What a connection is read from and written to.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and what its requests are asked on the strength of. Safe to cancel.
    fn accept(&mut self) -> impl Future<Output = (Self::Stream, Authority)> + Send;
}
