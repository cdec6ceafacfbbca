//! Who a caller is: its process or session, and what it proved in `daemon/hello`.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::token::{Behind, Grant};

use super::tokens::Token;
use crate::sys::peer::{self, Peer};

/// The authority of a caller, before it says anything of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A process of the daemon's own user, connected by socket. It may widen permissions only if the daemon did not start it.
    Peer(Peer),
    /// A session, for its children: it may widen nothing.
    Session(SessionId),
    /// The process that the daemon runs in: it may do everything.
    Daemon,
}

/// The claims of a connection in `daemon/hello`, checked.
#[derive(Clone, Debug, Default)]
pub(super) enum Proof {
    /// Nothing: its process counts.
    #[default]
    Process,
    /// A token that is not valid: nothing is answered.
    Refused,
    /// It speaks for another process, and has no token yet.
    Face(Face),
    /// A token, and the process that it speaks for, if it speaks for one.
    Token(Arc<Token>, Option<Face>),
    /// Nothing, but it is an MCP server of the daemon, with this grant in the user's configuration, also as a token.
    Server(Arc<Grant>, Arc<Token>),
}

/// The process that a face speaks for, as it was at `daemon/hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// This process, of the daemon's own user or another.
    Process(Peer),
    /// A process of another user's, such as a proxy: the system shows its user and nothing else.
    OtherUser,
    /// Nothing is known of it that tells it from a process that the daemon started.
    Hidden,
}

impl Face {
    pub(super) fn of(behind: Behind) -> Self {
        let own = rustix::process::geteuid().as_raw();
        match (behind.pid.filter(|pid| *pid > 0), behind.user) {
            (Some(pid), _) => Self::Process(Peer { pid: Some(pid), began: peer::started(pid), uid: own }),
            (None, Some(user)) if user != own => Self::OtherUser,
            (None, _) => Self::Hidden,
        }
    }
}

/// The error of a token that is not valid.
pub(super) fn unauthorized(text: &str) -> RpcError {
    RpcError::new(Code::Unauthorized, text)
        .hint("`linger token mint NAME` makes a token; `linger token list` lists them")
}
