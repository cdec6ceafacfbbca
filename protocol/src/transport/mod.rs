//! JSON lines over a local socket, both ends.
//!
//! [`mod@line`] cuts bytes into messages (pure); [`blocking`] is the end of a thin client, without a runtime; [`serve`] is the
//! daemon's end of one connection, `request` what comes in there, [`outbox`] what goes out, [`room`] a bound on all of them;
//! [`both`] is a message between two that may both ask; [`typed`] lets the typed client of jsonrpsee speak over the same socket, for tests.

pub mod blocking;
pub mod both;
pub mod line;
#[cfg(any(test, feature = "rpc"))]
mod misfit;
#[cfg(feature = "rpc")]
pub mod outbox;
pub mod peer;
#[cfg(feature = "rpc")]
mod request;
#[cfg(feature = "rpc")]
pub mod room;
#[cfg(feature = "rpc")]
pub mod serve;
#[cfg(feature = "rpc-client")]
pub mod typed;

use std::io;
use std::path::Path;

use interprocess::local_socket::{GenericFilePath, Name, ToFsName as _};

/// The name of the socket at `path`, for interprocess.
pub fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

/// The largest message that the daemon takes, in bytes: a prompt with a few images in base64 fits.
pub const MAX_REQUEST: usize = 16 << 20;

/// Entries of one batch; the specification has no use for more.
pub const MAX_BATCH: usize = 64;

/// The largest message that a client takes, in bytes: the largest event, which is a message with several large results.
pub const MAX_EVENT: usize = 64 << 20;
