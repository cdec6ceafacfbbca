//! The caller of a method and its authority; refuses other callers what only a user may do.

use std::sync::{Mutex, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;

use super::Services;
use crate::process::mark::{self, Kin};
use crate::sys::peer::{self, Peer};

/// The longest name of a caller, in characters.
const MAX_NAME: usize = 60;

/// The caller of a method.
#[derive(Debug)]
pub struct Caller {
    authority: Authority,
    /// Its name from `daemon/hello`.
    name: Mutex<Option<String>>,
}

/// What a caller may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A process of the daemon's own user, connected by socket. It may widen permissions only if the daemon did not start it.
    Peer(Peer),
    /// A session, for its children: it may widen nothing.
    Session(SessionId),
    /// The process that the daemon runs in: it may do everything.
    Daemon,
}

impl Caller {
    /// A caller without a name.
    pub fn new(authority: Authority) -> Self {
        Self { authority, name: Mutex::default() }
    }

    /// Its authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The name for other clients.
    pub fn name(&self) -> String {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        name.unwrap_or_else(|| match &self.authority {
            Authority::Peer(Peer { pid: Some(pid), .. }) => format!("pid {pid}"),
            Authority::Peer(Peer { pid: None, .. }) => "an unknown process".to_owned(),
            Authority::Session(session) => format!("session {session}"),
            Authority::Daemon => "the daemon".to_owned(),
        })
    }

    /// Sets the name, without control characters and cut to [`MAX_NAME`]; ignores an empty one.
    pub(super) fn set_name(&self, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        if !name.is_empty() {
            *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        }
    }

    /// Fails unless the caller is a user: for a session, and for a process that the daemon started or may have started.
    pub(super) fn must_be_user(&self, services: &Services, what: &str) -> Result<(), RpcError> {
        let (message, hint) = match self.standing(services.keeper) {
            Standing::User => return Ok(()),
            Standing::Session => (format!("a session may not {what}"), "do it from a terminal or an editor"),
            Standing::Family => {
                (format!("a process started by the daemon may not {what}"), "do it from a terminal or an editor")
            }
            Standing::Unknown => (
                format!("this process may not {what}: cannot tell whether the daemon started it"),
                "/proc must show the parents of the client's process: run `linger doctor`",
            ),
            Standing::Limited => (
                format!(
                    "this process may not {what}: its limit of file locks is as low as in processes started by the daemon"
                ),
                "do it from a terminal where `ulimit -Hx` prints unlimited",
            ),
        };
        tracing::warn!(target: "permission", caller = self.name(), what, "refused: {message}");
        Err(RpcError::new(Code::NotAllowed, message).hint(hint))
    }

    fn standing(&self, keeper: Option<u32>) -> Standing {
        match &self.authority {
            Authority::Peer(peer) => standing(*peer, keeper),
            Authority::Session(_) => Standing::Session,
            Authority::Daemon => Standing::User,
        }
    }
}

/// The relation of a caller to the daemon.
enum Standing {
    /// The daemon did not start it.
    User,
    /// It acts for a session.
    Session,
    /// The daemon started it.
    Family,
    /// Its ancestors are unknown.
    Unknown,
    /// It may have lowered the inherited mark.
    Limited,
}

/// The standing of a process. `keeper`: processes that a dead daemon left descend from it.
fn standing(peer: Peer, keeper: Option<u32>) -> Standing {
    let Some(pid) = peer.pid.filter(|pid| peer::started(*pid) == peer.began) else { return Standing::Unknown };
    let family = [Some(std::process::id()), keeper].into_iter().flatten();
    let descends: Vec<Option<bool>> = family.map(|ancestor| peer::descends_from(pid, ancestor)).collect();
    if descends.contains(&Some(true)) {
        return Standing::Family;
    }
    match mark::kin(pid) {
        _ if descends.contains(&None) => Standing::Unknown,
        Kin::Stranger => Standing::User,
        Kin::Marked => Standing::Family,
        Kin::Below => Standing::Limited,
        Kin::Unknown => Standing::Unknown,
    }
}
